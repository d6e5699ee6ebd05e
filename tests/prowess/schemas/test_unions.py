"""Unions with a tag: whether the tag decides the branch, and what schemas say where it does not."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Discriminator, Field, RootModel, Tag, ValidationError

from prowess.schemas.adapters import Adapter
from prowess.schemas.unions import are_apart, loosen_overlapping, require_tags

A: dict[str, Any] = {"properties": {"kind": {"const": "a"}}}
B: dict[str, Any] = {"properties": {"kind": {"enum": ["b", "c"]}}}
BY_KIND = {"propertyName": "kind"}


@pytest.mark.parametrize(
    "discriminator, branches, apart",
    [
        (BY_KIND, [A, B], True),
        (BY_KIND, [{"$ref": "#/$defs/A"}, B], True),
        (BY_KIND, [A, B, A], False),
        (BY_KIND, [A, {"$ref": "#/$defs/Nowhere"}], False),
        (BY_KIND, [A, {"type": "object"}], False),
        (BY_KIND, [A, {"properties": {"kind": True}}], False),
        (BY_KIND, [A, True], False),
        ({"propertyName": 5}, [A, B], False),
        ("kind", [A, B], False),
    ],
)
def test_a_tag_decides_if_each_branch_lists_its_own_values(discriminator: Any, branches: list[Any], apart: bool):
    """Anything else may overlap."""
    node = {"oneOf": branches, "discriminator": discriminator, "$defs": {"A": A}}

    assert apart == are_apart(node, node)
    assert ("oneOf" if apart else "anyOf") in loosen_overlapping(node)


def test_a_choice_of_the_author_without_a_tag_stays():
    """Only a tag promises that the branches exclude each other."""
    schema = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}

    assert schema == loosen_overlapping(schema)


class Celsius(BaseModel):
    unit: Literal["C"] = Field("C", exclude=True)
    degrees: float


class Kelvin(BaseModel):
    unit: Literal["K"] = Field("K", exclude=True)
    degrees: float


Degrees = Annotated[Celsius | Kelvin, Field(discriminator="unit")]


class Short(BaseModel):
    text: str


class Long(BaseModel):
    text: str
    pages: int = 1


def _by_length(value: Any) -> str:
    text = value["text"] if isinstance(value, dict) else value.text
    return "long" if len(text) > 3 else "short"


Sized = Annotated[Annotated[Short, Tag("short")] | Annotated[Long, Tag("long")], Discriminator(_by_length)]


@pytest.mark.parametrize(
    "annotation, sent, value",
    [
        (Degrees, {"unit": "K", "degrees": 1.5}, Kelvin(degrees=1.5)),
        (Sized, {"text": "abc"}, Short(text="abc")),
        (Sized, {"text": "abcd"}, Long(text="abcd")),
        (list[Sized], [{"text": "abcd", "pages": 2}], [Long(text="abcd", pages=2)]),
    ],
)
def test_a_value_that_fits_several_branches_keeps_the_schema(annotation: Any, sent: Any, value: Any):
    """The tag is not written, or a function chooses."""
    adapter = Adapter(annotation)

    assert Draft202012Validator(adapter.schema("validation")).is_valid(sent)
    assert value == adapter.read(sent)
    assert Draft202012Validator(adapter.schema("serialization")).is_valid(adapter.dump(value))


def test_a_union_with_a_written_tag_is_exact():
    """In both directions."""

    class Cat(BaseModel):
        kind: Literal["cat"] = "cat"

    class Dog(BaseModel):
        kind: Literal["dog"] = "dog"

    adapter = Adapter(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert "oneOf" in adapter.schema("validation")
    assert "oneOf" in adapter.schema("serialization")


# Tags with a default, which pydantic asks for nevertheless


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    radius: float


class Square(BaseModel):
    kind: Literal["square", "box"] = Field("square", alias="kind")
    side: float
    inner: Shape | None = None


class Cat(BaseModel):
    kind: Literal["pet"] = "pet"
    says: Literal["meow"] = "meow"


class Dog(BaseModel):
    kind: Literal["pet"] = "pet"
    says: Literal["wow"] = "wow"


class On(BaseModel):
    state: Literal["on"] = Field("on", alias="STATE")


class Off(BaseModel):
    state: Literal["off"] = Field("off", alias="STATE")


class Pet(RootModel[Annotated[Cat | Dog, Field(discriminator="says")]]): ...


Shape = Annotated[Circle | Square, Field(discriminator="kind")]
Thing = Annotated[Circle | Annotated[Cat | Dog, Field(discriminator="says")], Field(discriminator="kind")]
Square.model_rebuild()


@pytest.mark.parametrize(
    "annotation, whole, tags",
    [
        (Shape, {"kind": "circle", "radius": 1}, ["kind"]),
        (list[Shape], [{"kind": "box", "side": 1, "inner": {"kind": "circle", "radius": 1}}], ["kind"]),
        (Thing, {"kind": "pet", "says": "meow"}, ["kind", "says"]),
        (Pet, {"says": "wow"}, ["says"]),
        (Annotated[On | Off, Field(discriminator="state")], {"STATE": "off"}, ["STATE"]),
    ],
)
def test_an_input_schema_requires_the_tag(annotation: Any, whole: Any, tags: list[str]):
    """What a client leaves out by the schema can be left out."""
    adapter = Adapter(annotation)
    schema = adapter.schema("validation")
    Draft202012Validator(schema).validate(whole)
    adapter.read_json(json.dumps(whole))
    for tag in tags:
        first = {**(whole[0] if isinstance(whole, list) else whole)}
        del first[tag]
        partial = [first] if isinstance(whole, list) else first
        assert not Draft202012Validator(schema).is_valid(partial)
        with pytest.raises(ValidationError):
            adapter.read_json(json.dumps(partial))
    assert all("default" not in held["properties"].get(tag, {}) for held in schema["$defs"].values() for tag in tags)


def test_a_class_that_is_no_branch_keeps_its_default():
    """Pydantic fills it in. A schema that is written has the default too, because the field may be absent there."""
    assert "required" not in Adapter(Cat).schema("validation")
    assert "kind" not in Adapter(Shape).schema("serialization")["$defs"]["Circle"]["required"]


@pytest.mark.parametrize(
    "branches", [[True, {"$ref": "#/$defs/B"}], [{"$ref": "#"}, {"$ref": "#/$defs/C"}, {"$ref": "#/$defs/Nowhere"}]]
)
def test_odd_branches_of_an_author_stay_as_they_are(branches: list[Any]):
    """Those that are no objects, and references that lead elsewhere."""
    schema = {"oneOf": branches, "discriminator": BY_KIND, "$defs": {"B": True, "C": {"properties": {"kind": True}}}}

    assert schema == require_tags(schema)
