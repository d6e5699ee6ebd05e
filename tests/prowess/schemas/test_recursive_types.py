"""Recursive types, and annotations whose own code fails: a command comes out of it, or a failure with file, line and parameter."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal, TypeVar, Union

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from prowess import Image
from prowess.errors import LoadError

T = TypeVar("T")
Json = TypeAliasType("Json", "Union[dict[str, Json], list[Json], str, int, None]")
Noted = TypeAliasType("Noted", "list[Annotated[Noted, 'within']]")
Tree = TypeAliasType("Tree", "Union[T, list[Tree[T]]]", type_params=(T,))
Picture = TypeAliasType("Picture", Union[Image, list["Picture"]])
Pictures = TypeAliasType("Pictures", Union[T, list["Pictures"], Image], type_params=(T,))
Side = TypeAliasType("Side", Literal["left", "right"])
Endless = TypeAliasType("Endless", "Endless")


class Document(BaseModel):
    body: Json
    parts: list[Document] = []


def echoing(annotation: Any, *, returns: Any = None) -> Any:
    async def echo(value):
        return value

    echo.__annotations__.update({"value": annotation, "return": returns or annotation})
    return echo


def declared_in_new_syntax() -> list[tuple[Any, Any]]:
    """PEP 695, where this Python knows it."""
    if sys.version_info < (3, 12):
        return []
    names: dict[str, Any] = {}
    source = "type Json = dict[str, Json] | list[Json] | str | int | None\\ntype Tree[T] = T | list[Tree[T]]"
    exec(source.replace("\\n", "\n"), names)
    return [(names["Json"], {"a": [1, {"b": None}]}), (names["Tree"][int], [1, [2]])]


@pytest.mark.parametrize(
    "annotation, value",
    [
        (Json, {"a": [1, {"b": None}]}),
        (list[Json], [[1], "a"]),
        (Json | None, None),
        (dict[str, Json], {"a": [1]}),
        (Annotated[Json, "anything"], ["a"]),
        (Noted, [[], [[]]]),
        (Tree[int], [1, [2, [3]]]),
        (Document, {"body": [1], "parts": [{"body": None, "parts": []}]}),
        *declared_in_new_syntax(),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_recursive_aliases_are_arguments_and_results(entry: Any, annotation: Any, value: Any):
    """As deep as they go."""
    command = entry(echoing(annotation))
    assert command.contract.output.schema is not None
    outcome = await command.call({"value": value})
    assert ("ok", value) == (outcome.kind, outcome.value), outcome.text
    Draft202012Validator(command.contract.output.schema).validate(outcome.value)


@pytest.mark.parametrize("returns", [Picture, list[Picture], Pictures[int], Annotated[Picture, "shown"]])
def test_a_recursive_alias_with_content_in_it_is_content(entry: Any, returns: Any):
    """There is no output schema for it."""
    assert entry(echoing(int, returns=returns)).contract.output.schema is None


def refusal(entry: Any, function: Any) -> str:
    with pytest.raises(LoadError) as caught:
        entry(function)
    assert (__file__, function.__code__.co_firstlineno) == (caught.value.file, caught.value.line)
    return caught.value.reason


class Failing(type):
    """A class whose own code fails whenever anybody looks at it closely."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__mro__", "__origin__", "__value__", "__metadata__"):
            raise RecursionError("maximum recursion depth exceeded")
        return super().__getattribute__(name)


class Odd(metaclass=Failing):
    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("no")

    __hash__ = None  # type: ignore[assignment]


async def test_an_alias_that_is_used_twice_may_be_a_key(entry: Any):
    """Where pydantic refers to its definition."""
    found = entry(echoing(dict[Side, list[Side]]))
    assert {"left": ["right"]} == (await found.call({"value": {"left": ["right"]}})).value
    assert "input" == (await found.call({"value": {"up": []}})).kind


@pytest.mark.parametrize("alias", [Endless, list[Endless]])
def test_an_alias_for_nothing_says_so(entry: Any, alias: Any):
    """As a parameter, and as a result."""
    assert "parameter 'value' of test_recursive_types.echo" in refusal(entry, echoing(alias, returns=int))
    assert "the return type of test_recursive_types.echo" in refusal(entry, echoing(int, returns=alias))


@pytest.mark.parametrize("annotation", [Odd, list[Odd], Annotated[int, Odd.__new__(Odd)]])
def test_an_annotation_that_fails_when_it_is_looked_at_is_a_failure_with_its_place(entry: Any, annotation: Any):
    """Whatever its own code raises."""
    for function, what in [
        (echoing(annotation, returns=int), "parameter"),
        (echoing(int, returns=annotation), "the return type"),
    ]:
        told = failure(entry, function)
        assert what in told
        assert told.endswith("True")


def failure(entry: Any, function: Any) -> str:
    """Why a function cannot be loaded, if anything is wrong with it at all."""
    try:
        entry(function)
    except LoadError as error:
        return f"{error.reason} {error.file == __file__ and error.line == function.__code__.co_firstlineno}"
    return "parameter, the return type True"
