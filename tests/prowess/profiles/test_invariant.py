"""What every profile must hold, tested by property over generated Python types and values.

The value it shows meets the schema it shows; no reference dangles; the root is an object where the wire needs one;
arguments that meet the schema it shows reach the declared types, also with their nulls left out.
"""

from __future__ import annotations

import copy
import enum
import itertools
from collections.abc import Callable
from dataclasses import field, make_dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import NotRequired, TypeAliasType, TypedDict

from prowess.contracts.contract import Contract, OutputShape
from prowess.profiles.profile import BUILT_IN, Profile, decode_arguments
from prowess.schemas.explicit import check_explicit
from prowess.schemas.nulls import omit_nulls, strip_null
from prowess.schemas.refs import resolve
from prowess.schemas.steps import prune_titles, string_names
from prowess.schemas.walk import visit

_SETTINGS = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_NAMES = ("title", "default", "description", "properties", "examples", "const", "enum", "anyOf", "a", "b")
_serial = itertools.count()


# Types that are written down


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Maybe(enum.Enum):
    YES = "yes"
    UNKNOWN = None


class Linked(BaseModel):
    title: str
    next: Optional[Linked]


class Tree(BaseModel):
    default: int | None
    children: list[Tree]
    by_name: dict[str, Tree | None] = {}


class Chicken(TypedDict):
    egg: Optional[Egg]


class Egg(TypedDict):
    chicken: NotRequired[Chicken | None]
    weight: int | None


class Add(BaseModel):
    op: Literal["add"]
    left: Add | Neg | int
    right: Optional[Add | Neg | int]


class Neg(BaseModel):
    op: Literal["neg"]
    inner: Add | Neg | int | None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int | None


class Dog(BaseModel):
    kind: Literal["dog"]
    tail: float | None = None
    properties: dict[str, int | None] = {}


class Aliased(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    reference: int | None = Field(alias="$ref")
    kind: str = Field(alias="type")


@pydantic_dataclass(config=ConfigDict(extra="forbid"))
class Closed:
    description: str | None
    items: list[str | None]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
MaybeInt = TypeAliasType("MaybeInt", Optional[int])
Nothing = TypeAliasType("Nothing", None)
Json = TypeAliasType("Json", "Union[dict[str, Json], list[Json], str, int, bool, None]")
MaybeTree = TypeAliasType("MaybeTree", Optional[Tree])


# Strategies for a type together with its values


class Typed(NamedTuple):
    annotation: Any
    values: st.SearchStrategy[Any]


_ints = st.integers(-5, 5)
_text = st.text("ab", max_size=3)
_linked: st.SearchStrategy[Linked] = st.deferred(
    lambda: st.builds(Linked, title=_text, next=st.none() | _linked)  # pyright: ignore[reportUnknownLambdaType]
)
_trees: st.SearchStrategy[Tree] = st.deferred(
    lambda: st.builds(
        Tree,
        default=st.none() | _ints,
        children=st.lists(_trees, max_size=2),
        by_name=st.dictionaries(_text, st.none() | _trees, max_size=1),
    )
)
_chickens: st.SearchStrategy[Any] = st.deferred(lambda: st.fixed_dictionaries({"egg": st.none() | _eggs}))
_eggs: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"weight": st.none() | _ints}, optional={"chicken": st.none() | _chickens}
)
_sums: st.SearchStrategy[Any] = st.deferred(
    lambda: (
        st.builds(Add, op=st.just("add"), left=_ints | _sums, right=st.none() | _ints | _sums)
        | st.builds(Neg, op=st.just("neg"), inner=st.none() | _ints | _sums)
    )
)
_json = st.recursive(
    st.none() | st.booleans() | _ints | _text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_text, inner, max_size=2),
    max_leaves=4,
)
_pets = st.builds(Cat, kind=st.just("cat"), lives=st.none() | _ints) | st.builds(
    Dog,
    kind=st.just("dog"),
    tail=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    properties=st.dictionaries(_text, st.none() | _ints, max_size=2),
)

_LEAVES: tuple[Typed, ...] = (
    Typed(int, _ints),
    Typed(str, _text),
    Typed(bool, st.booleans()),
    Typed(float, st.floats(allow_nan=False, allow_infinity=False)),
    Typed(bytes, st.binary(max_size=3).map(lambda raw: raw.hex().encode())),
    Typed(datetime, st.datetimes()),
    Typed(date, st.dates()),
    Typed(Any, _json),
    Typed(None, st.none()),
    Typed(Literal["x"], st.just("x")),
    Typed(Literal["x", None], st.sampled_from(["x", None])),
    Typed(Literal[1, "one", True], st.sampled_from([1, "one", True])),
    Typed(Color, st.sampled_from(Color)),
    Typed(Level, st.sampled_from(Level)),
    Typed(Maybe, st.sampled_from(Maybe)),
    Typed(Annotated[int, Field(ge=0, lt=9, description="small")], st.integers(0, 8)),
    Typed(Annotated[str, Field(pattern="^a+$", max_length=3)], st.sampled_from(["a", "aa"])),
    Typed(set[int], st.sets(_ints, max_size=2)),
    Typed(MaybeInt, st.none() | _ints),
    Typed(Nothing, st.none()),
    Typed(Json, _json),
    Typed(MaybeTree, st.none() | _trees),
    Typed(Linked, _linked),
    Typed(Tree, _trees),
    Typed(Chicken, _chickens),
    Typed(Add | Neg, _sums),
    Typed(Pet, _pets),
    Typed(Aliased, st.builds(lambda a, b: Aliased.model_validate({"$ref": a, "type": b}), st.none() | _ints, _text)),
    Typed(Closed, st.builds(Closed, description=st.none() | _text, items=st.lists(st.none() | _text, max_size=2))),
)


@st.composite
def _structures(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    names = draw(st.lists(st.sampled_from(_NAMES), unique=True, max_size=3))
    fields = {name: draw(inner) for name in names}
    optional = draw(st.sets(st.sampled_from(names))) if names else set[str]()
    kind = draw(st.sampled_from(_STRUCTURES))
    return kind(f"S{next(_serial)}", fields, optional)


def _a_model(name: str, fields: dict[str, Typed], optional: set[str]) -> Typed:
    definitions: dict[str, Any] = {
        # A field may be called like an attribute of BaseModel only by alias.
        f"f_{key}": (
            (Optional[held.annotation], Field(default=None, alias=key))
            if key in optional
            else (held.annotation, Field(alias=key))
        )
        for key, held in fields.items()
    }
    model = create_model(name, __config__=ConfigDict(serialize_by_alias=True), **definitions)
    return Typed(model, _dicts(fields, optional).map(model.model_validate))


def _a_dataclass(name: str, fields: dict[str, Typed], optional: set[str]) -> Typed:
    required = [(key, held.annotation) for key, held in fields.items() if key not in optional]
    others = [(key, Optional[fields[key].annotation], field(default=None)) for key in fields if key in optional]
    made = make_dataclass(name, [*required, *others])
    return Typed(made, _dicts(fields, optional).map(lambda values: made(**values)))


def _a_typed_dict(name: str, fields: dict[str, Typed], optional: set[str]) -> Typed:
    annotations = {
        key: NotRequired[held.annotation] if key in optional else held.annotation for key, held in fields.items()
    }
    return Typed(TypedDict(name, annotations), _dicts(fields, optional))


_STRUCTURES: tuple[Callable[[str, dict[str, Typed], set[str]], Typed], ...] = (_a_model, _a_dataclass, _a_typed_dict)


def _dicts(fields: dict[str, Typed], optional: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {key: held.values for key, held in fields.items() if key not in optional},
        optional={key: held.values for key, held in fields.items() if key in optional},
    )


def _alias(of: Typed) -> Typed:
    return Typed(TypeAliasType(f"Alias{next(_serial)}", of.annotation), of.values)


def _composites(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        _structures(inner),
        _structures(inner),
        inner.map(lambda t: Typed(Optional[t.annotation], st.none() | t.values)),
        inner.map(lambda t: Typed(list[t.annotation], st.lists(t.values, max_size=2))),
        inner.map(lambda t: Typed(dict[str, t.annotation], st.dictionaries(_text, t.values, max_size=2))),
        inner.map(
            lambda t: Typed(dict[Color, t.annotation], st.dictionaries(st.sampled_from(Color), t.values, max_size=2))
        ),
        inner.map(
            lambda t: Typed(dict[Level, t.annotation], st.dictionaries(st.sampled_from(Level), t.values, max_size=2))
        ),
        inner.map(lambda t: Typed(tuple[t.annotation, ...], st.lists(t.values, max_size=2).map(tuple))),
        inner.map(_alias),
        st.tuples(inner, inner).map(
            lambda pair: Typed(tuple[pair[0].annotation, pair[1].annotation], st.tuples(pair[0].values, pair[1].values))
        ),
        st.tuples(inner, inner).map(
            lambda pair: Typed(Union[pair[0].annotation, pair[1].annotation], pair[0].values | pair[1].values)
        ),
    )


_typed = st.recursive(st.sampled_from(_LEAVES), _composites, max_leaves=6)


# The canonical contract, as compilation makes it


def _dumped(adapter: TypeAdapter[Any], value: Any) -> Any:
    return adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True)


def _contract(input_schema: Any = None, output: OutputShape | None = None) -> Contract:
    return Contract("s.c", "s_c", "s", "c", "", input_schema or {"type": "object"}, output or OutputShape())


def _valid(schema: Any, value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)


def _assert_sound(schema: dict[str, Any], *, thoroughly: bool) -> None:
    if thoroughly:
        check_explicit(schema, what="shown schema")
    for _, node in visit(schema):
        assert "$ref" not in node or resolve(schema, node["$ref"]) is not None


# Holding a document against the meta-schema takes most of the time, so each example does it for one profile.
_some_profile = st.sampled_from(sorted(BUILT_IN))


@st.composite
def _results(draw: st.DrawFn) -> tuple[Contract, Any]:
    typed = draw(_typed)
    adapter = TypeAdapter[Any](typed.annotation)
    schema = prune_titles(adapter.json_schema(mode="serialization"))
    value = _dumped(adapter, draw(typed.values))
    assume(_valid(string_names(schema), value))
    name = draw(st.sampled_from([None, None, getattr(typed.annotation, "__name__", None)]))
    return _contract(
        output=OutputShape(schema, field=draw(st.sampled_from([None, None, "out"])), type_name=name)
    ), value


@_SETTINGS
@given(_results(), _some_profile)
def test_what_is_shown_of_a_value_meets_what_is_shown_of_its_schema(result: tuple[Contract, Any], checked: str) -> None:
    """For every profile, type and value: `value(v)` is valid under `output_schema(S)`, which is sound in itself."""
    contract, value = result
    before = copy.deepcopy((contract.output.schema, value))
    for profile, boxed in itertools.product(BUILT_IN.values(), (True, False)):
        _check_result(profile, contract, value, boxed=boxed, thoroughly=checked == profile.name)
    assert before == (contract.output.schema, value)


def _check_result(profile: Profile, contract: Contract, value: Any, *, boxed: bool, thoroughly: bool) -> None:
    schema = profile.output_schema(contract, boxed=boxed)
    assert profile.structured is (schema is not None)
    if schema is None:
        return
    shown = profile.value(contract, value, boxed=boxed)
    _assert_sound(schema, thoroughly=thoroughly)
    assert _valid(schema, shown), (profile.name, boxed, schema, shown)
    if boxed:
        assert "object" == schema["type"], profile.name
        assert isinstance(shown, dict), profile.name
    if profile.name != "full":
        assert all("$ref" not in node for _, node in visit(schema)), profile.name


@st.composite
def _calls(draw: st.DrawFn) -> tuple[Contract, TypeAdapter[Any], dict[str, Any], dict[str, Any]]:
    fields = {name: draw(_typed) for name in draw(st.lists(st.sampled_from(_NAMES), unique=True, max_size=3))}
    optional = {name for name in fields if draw(st.booleans())}
    parameters = _a_typed_dict(f"A{next(_serial)}", fields, optional)
    parameters.annotation.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter = TypeAdapter[Any](parameters.annotation)
    schema = prune_titles(adapter.json_schema(mode="validation"))
    arguments = _dumped(adapter, draw(parameters.values))
    assume(_valid(string_names(schema), arguments) and _fits(adapter, arguments))
    kept = draw(st.sets(st.integers(0, 20)))
    return _contract(schema), adapter, arguments, _without_some_nulls(arguments, kept)


def _fits(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValueError:
        return False
    return True


def _without_some_nulls(value: Any, kept: set[int]) -> Any:
    """Nulls dropped from dicts, wherever they stand, save some."""
    count = itertools.count()

    def drop(held: Any) -> Any:
        if isinstance(held, list):
            return [drop(item) for item in held]
        if isinstance(held, dict):
            return {key: drop(item) for key, item in held.items() if item is not None or next(count) in kept}
        return held

    return drop(value)


@_SETTINGS
@given(_calls(), _some_profile)
def test_arguments_that_meet_what_is_shown_reach_the_declared_types(
    call: tuple[Contract, TypeAdapter[Any], dict[str, Any], dict[str, Any]], checked: str
) -> None:
    """Arguments valid under a shown input schema are valid under the signature once their nulls are restored."""
    contract, adapter, arguments, fewer = call
    before = copy.deepcopy((contract.input_schema, arguments, fewer))
    for profile in BUILT_IN.values():
        schema = profile.input_schema(contract)
        _assert_sound(schema, thoroughly=checked == profile.name)
        assert "object" == schema["type"], profile.name
        assert isinstance(schema["properties"], dict), profile.name
        shown = omit_nulls(contract.input_schema, arguments) if profile.name in _HIDING_NULL else arguments
        assert _valid(schema, shown), (profile.name, schema, shown)
        _check_arguments(adapter, contract, shown)
        says_all = profile.name != "omni" or _valid(strip_null(contract.input_schema), fewer)
        if says_all and _valid(schema, fewer):  # omni says nothing of the entries of maps, as its guide has it
            _check_arguments(adapter, contract, fewer)
    assert before == (contract.input_schema, arguments, fewer)


_HIDING_NULL = ("portable", "omni", "turul")


def _check_arguments(adapter: TypeAdapter[Any], contract: Contract, shown: dict[str, Any]) -> None:
    decoded = decode_arguments(contract.input_schema, shown)
    assert _fits(adapter, decoded), (contract.input_schema, shown, decoded)
