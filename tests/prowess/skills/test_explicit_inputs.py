"""Explicit input schemas: used as given, and compared with the signature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.prowess.skills.odd_types import Foreign

from prowess import Context

TEXT = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[0-9]+$"}}, "required": ["a"]}


async def test_an_explicit_schema_is_used_as_given(entry: Any):
    """Shown as it is by every profile, and arguments are validated by it; then they become the declared types."""
    schema = {**TEXT, "title": "T", "properties": {"a": {"type": "string", "pattern": "^[0-9]+$", "default": None}}}

    def function(a: int) -> int:
        return a + 1

    compiled = entry(function, input_schema=schema)
    assert schema == compiled.contract.input_schema
    assert compiled.contract.input_explicit
    assert 8 == (await compiled.call({"a": "7"})).value
    assert "a: expected string, got 7" in (await compiled.call({"a": 7})).text
    assert "a: expected text that matches ^[0-9]+$" in (await compiled.call({"a": "x"})).text


async def test_an_explicit_schema_may_refer_to_its_own_whole(entry: Any):
    """A default is not judged by a part that means nothing without the rest."""

    def function(a: str, b: str = "x") -> str:
        return a + b

    properties = {"a": {"type": "string"}, "b": {"$ref": "#/properties/a", "default": "x"}}
    compiled = entry(function, input_schema={"type": "object", "properties": properties, "required": ["a"]})
    assert "1x" == (await compiled.call({"a": "1"})).value
    assert "b: expected string" in (await compiled.call({"a": "1", "b": 2})).text


async def test_an_explicit_schema_validates_python_calls_as_json(entry: Any):
    """What instances look like on the wire is what counts."""

    def function(a: Path) -> str:
        return type(a).__name__

    compiled = entry(
        function, input_schema={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    )
    assert type(Path()).__name__ == (await compiled.call_python((Path("/x"),), {})).value
    assert "a: expected string, got 5" in (await compiled.call_python((5,), {})).text
    assert "cannot be read as JSON" in (await compiled.call_python((object(),), {})).text


def test_an_explicit_schema_has_to_agree_with_the_signature(refusal: Any, contract: Any):
    """It offers what the function needs, and nothing that it cannot take or that is injected."""

    def function(a: int, ctx: Context, b: int = 0) -> None: ...

    def open_function(a: int, ctx: Context, **more: Any) -> None: ...

    def given(function: Callable[..., Any], **schema: Any) -> str:
        return refusal(function, input_schema={"type": "object", **schema})

    name = "input_schema of test_explicit_inputs.function"
    assert f"{name} must be of type 'object' at its root" == refusal(function, input_schema={"type": "array"})
    assert f"{name} offers y, z, which a client cannot send" == given(function, properties={"a": {}, "z": {}, "y": {}})
    assert f"{name} offers ctx, which a client cannot send" == given(function, properties={"a": {}, "ctx": {}})
    assert "offers ctx, which a client cannot send" in given(open_function, properties={"ctx": {}})
    assert f"{name} requires c, which a client cannot send" == given(function, required=["a", "c"])
    assert "requires ctx, which a client cannot send" in given(open_function, required=["a", "c", "ctx"])
    assert f"{name} leaves out a, which the function needs" == given(function, additionalProperties=False)
    assert f"{name} does not require a, which the function needs" == given(function, properties={"a": {}})
    for fits in (
        {},
        {"properties": {"a": {}}, "required": ["a"]},
        {"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]},
    ):
        assert contract(function, input_schema={"type": "object", **fits})
    assert contract(open_function, input_schema={"type": "object", "properties": {"z": {}}})


def test_an_explicit_schema_may_list_no_choices(contract: Any):
    """Although no value fits that part."""

    def function(a: Any = None) -> None: ...

    given = {"type": "object", "properties": {"a": {"anyOf": [{"enum": []}, {"type": "null"}]}}}
    assert given == contract(function, input_schema=given).input_schema


def test_an_explicit_schema_has_to_be_one(refusal: Any):
    """JSON Schema 2020-12, and nothing from elsewhere."""

    def function(a: int) -> None: ...

    for schema, problem in (
        ({"type": 123}, "not valid JSON Schema 2020-12"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, "dialect"),
        ({"type": "object", "$ref": "https://evil.example/schema.json"}, "https://evil.example/schema.json"),
    ):
        for option in ("input_schema", "output_schema"):
            reason = refusal(function, **{option: schema})
            assert reason.startswith(f"{option} of test_explicit_inputs.function: ")
            assert problem in reason


async def test_an_explicit_schema_vouches_for_types_without_one(entry: Any):
    """Those parameters take what the schema lets through; the others keep their types."""

    def function(a: int, handler: Callable[[int], int], thing: Foreign) -> list[Any]:
        return [a, handler, thing]

    schema = {"type": "object", "properties": {name: {} for name in ("a", "handler", "thing")}}
    for given in ({**schema, "required": ["a", "handler", "thing"]}, "any"):
        compiled = entry(function, input_schema=given)
        assert [1, "h", {"x": 1}] == (await compiled.call({"a": "1", "handler": "h", "thing": {"x": 1}})).value


async def test_any_is_the_permissive_schema(entry: Any):
    """Where an author asks for it, and nowhere else."""

    def function(a: int, b: int = 2) -> int:
        return a + b

    compiled = entry(function, input_schema="any")
    assert {"type": "object", "additionalProperties": True} == compiled.contract.input_schema
    assert compiled.contract.input_explicit
    assert 3 == (await compiled.call({"a": 1})).value
    assert "a: required" in (await compiled.call({})).text
