"""Results as the profiles show them, and their boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field
from tests.prowess.profiles.shown import Address, Chat, Color, Nav, Node, contract, returning, shown_output
from typing_extensions import TypedDict

from prowess.profiles.profile import BUILT_IN
from prowess.schemas.walk import visit

BOXES = {"portable": "x-prowess-box", "full": "x-prowess-box", "openmcp": "x-dedalus-box"}


@dataclass
class Profiled:
    name: str
    address: Address
    tags: list[str]


@dataclass
class HasTitle:
    title: str
    url: str


class LocationData(TypedDict):
    latitude: float
    longitude: float
    label: Optional[str]


class LLH(TypedDict):
    h: float


class GPS(TypedDict):
    fix: bool


class CalculationResult(BaseModel):
    sum: float
    operation: str
    timestamp: int


# Output: boxes named `result`


@pytest.mark.parametrize("profile", BOXES)
@pytest.mark.parametrize(
    ("annotation", "schema", "value"),
    [
        pytest.param(int, {"type": "integer"}, 7, id="O-27 int"),
        pytest.param(str, {"type": "string"}, "hello", id="O-28 str"),
        pytest.param(bool, {"type": "boolean"}, True, id="O-28 bool"),
        pytest.param(float, {"type": "number"}, 72.5, id="O-28 float"),
        pytest.param(list[str], {"type": "array", "items": {"type": "string"}}, ["a"], id="O-28 list"),
        pytest.param(int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, id="O-32 optional"),
    ],
)
def test_what_is_no_object_is_boxed(profile: str, annotation: Any, schema: dict[str, Any], value: Any) -> None:
    """Under `result`, with a marker from which a client can unbox it."""
    given = returning(annotation)
    shown = BUILT_IN[profile].output_schema(given)

    assert {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        BOXES[profile]: {"field": "result"},
    } == shown
    assert {"result": value} == BUILT_IN[profile].value(given, value)


@dataclass
class O30:
    flag: bool
    retries: int = 1


@dataclass
class O31:
    total: int


@pytest.mark.parametrize("profile", BOXES)
@pytest.mark.parametrize(
    ("annotation", "properties", "required", "value"),
    [
        pytest.param(dict[str, int], None, None, {"records": 42}, id="O-29 map"),
        pytest.param(O30, {"flag", "retries"}, ["flag"], {"flag": True, "retries": 1}, id="O-30 dataclass"),
        pytest.param(O31, {"total"}, ["total"], {"total": 6}, id="O-31 result"),
        pytest.param(
            Profiled,
            {"name", "address", "tags"},
            ["name", "address", "tags"],
            {"name": "n", "address": {"street": "s", "unit": None}, "tags": []},
            id="O-36 nested",
        ),
        pytest.param(HasTitle, {"title", "url"}, ["title", "url"], {"title": "t", "url": "u"}, id="O-37 title"),
        pytest.param(Node, {"value", "children"}, ["value"], {"value": 1, "children": []}, id="recursive"),
    ],
)
def test_objects_are_not_boxed(
    profile: str, annotation: Any, properties: set[str] | None, required: list[str] | None, value: Any
) -> None:
    """They are the structured content themselves, nulls and all."""
    given = returning(annotation)
    shown = BUILT_IN[profile].output_schema(given)

    assert shown is not None
    assert "object" == shown["type"]
    assert properties == (set(shown["properties"]) if "properties" in shown else None)
    assert required == shown.get("required")
    assert value is BUILT_IN[profile].value(given, value)
    assert Draft202012Validator(shown).is_valid(value)
    assert profile == "full" or all("$ref" not in node for _, node in visit(shown))


def test_openmcp_closes_the_objects_it_shows_in_results() -> None:
    """As in the document's examples; unlike there, what is required says so."""
    assert {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "address": {
                "type": "object",
                "properties": {
                    "street": {"type": "string"},
                    "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["street", "unit"],
                "additionalProperties": False,
            },
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "address", "tags"],
        "additionalProperties": False,
    } == shown_output("openmcp", Profiled)


@pytest.mark.parametrize("_case", [pytest.param(None, id="O-35 union of objects")])
def test_openmcp_shows_a_choice_between_objects_at_the_root(_case: None) -> None:
    """The document's `anyOf`, with the type that a handshake wire wants to see beside it, and values without a box."""
    given = returning(Chat | Nav)
    shown = BUILT_IN["openmcp"].output_schema(given)
    value = {"kind": "navigate", "url": "https://example.com"}

    assert {
        "type": "object",
        "anyOf": [
            {
                "type": "object",
                "properties": {"kind": {"enum": ["chat"], "type": "string"}, "message": {"type": "string"}},
                "required": ["kind", "message"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"kind": {"enum": ["navigate"], "type": "string"}, "url": {"type": "string"}},
                "required": ["kind", "url"],
                "additionalProperties": False,
            },
        ],
    } == shown
    assert value is BUILT_IN["openmcp"].value(given, value)
    assert {"u": value} == BUILT_IN["openmcp"].value(returning(Chat | Nav, field="u"), value)
    assert {"u"} == set(shown_output("openmcp", Chat | Nav, field="u")["properties"])


@pytest.mark.parametrize("profile", ["portable", "full"])
def test_a_choice_between_objects_is_boxed_elsewhere(profile: str) -> None:
    """Narrow clients take no union at the root."""
    given = returning(Chat | Nav)

    assert {"result"} == set(BUILT_IN[profile].output_schema(given)["properties"])
    assert {"result": {"kind": "chat"}} == BUILT_IN[profile].value(given, {"kind": "chat"})


@pytest.mark.parametrize("profile", ["portable", "full"])
@pytest.mark.parametrize("field", [None, "sum"])
def test_nothing_is_boxed_on_a_wire_that_takes_any_value(profile: str, field: str | None) -> None:
    """The author's field name is for wires that need a box."""
    given = returning(int, field=field)

    assert {"type": "integer"} == BUILT_IN[profile].output_schema(given, boxed=False)
    assert 7 == BUILT_IN[profile].value(given, 7, boxed=False)


@pytest.mark.parametrize("profile", ["openmcp", "turul"])
def test_profiles_of_documents_look_the_same_on_every_wire(profile: str) -> None:
    """Who asks for the document gets the document."""
    given = returning(int)

    assert BUILT_IN[profile].output_schema(given) == BUILT_IN[profile].output_schema(given, boxed=False)
    assert BUILT_IN[profile].value(given, 7) == BUILT_IN[profile].value(given, 7, boxed=False)


@pytest.mark.parametrize("profile", [*BOXES, "turul"])
@pytest.mark.parametrize("annotation", [int, LocationData])
def test_the_authors_field_names_the_box_and_forces_it(profile: str, annotation: Any) -> None:
    """Also around an object."""
    given = returning(annotation, field="sum")
    shown = BUILT_IN[profile].output_schema(given)

    assert shown is not None
    assert {"sum"} == set(shown["properties"])
    assert {"sum": 8.0} == BUILT_IN[profile].value(given, 8.0)
    assert BOXES.get(profile) in (*shown, None)


@pytest.mark.parametrize("profile", [*BOXES, "turul"])
@pytest.mark.parametrize("value", [7, None, [1], {"a": 1}])
def test_values_without_a_schema_are_boxed_as_the_wire_needs(profile: str, value: Any) -> None:
    """Nothing was declared, so no schema is shown, but structured content is an object all the same."""
    given = contract()
    boxed = BUILT_IN[profile].value(given, value)

    assert None is BUILT_IN[profile].output_schema(given)
    assert isinstance(boxed, dict)
    assert value in (boxed, *boxed.values())
    if profile == "turul":
        assert {"output": value} == boxed
    elif profile != "openmcp":
        assert value is BUILT_IN[profile].value(given, value, boxed=False)


# Output: portable


def test_portable_results_are_as_safe_as_its_parameters() -> None:
    """Written out, bounded, without tuples, constants and closed objects; nulls stay, since values show them."""

    class Everything(BaseModel):
        model_config = ConfigDict(extra="forbid")
        pair: tuple[int, str]
        tree: Node
        action: Annotated[Chat | Nav, Field(discriminator="kind")] | None
        by_color: dict[Color, int]

    schema = shown_output("portable", Everything)
    keywords = {key for _, node in visit(schema) for key in node}

    assert set() == keywords & {"$ref", "$defs", "const", "oneOf", "prefixItems", "propertyNames", "title"}
    assert all(node.get("additionalProperties") is not False for _, node in visit(schema))
    assert {"type": "null"} in schema["properties"]["action"]["anyOf"]
    assert ["pair", "tree", "action", "by_color"] == schema["required"]


# Output: turul


@pytest.mark.parametrize(
    ("annotation", "author", "field"),
    [
        pytest.param(float, "calculationResult", "calculationResult", id="U-15 field by author"),
        pytest.param(str, None, "output", id="U-16 primitive"),
        pytest.param(LocationData, None, "locationData", id="U-17 structure"),
        pytest.param(LLH, None, "llh", id="U-18 LLH"),
        pytest.param(GPS, None, "gps", id="U-18 GPS"),
        pytest.param(LocationData, "LLH", "LLH", id="U-19 author wins"),
        pytest.param(list[LocationData], None, "output", id="U-20 list"),
    ],
)
def test_turul_boxes_everything_under_a_name(annotation: Any, author: str | None, field: str) -> None:
    """The author's name, else that of the structure, else `output`; the same in schema and value."""
    given = returning(annotation, field=author)
    shown = BUILT_IN["turul"].output_schema(given)

    assert shown is not None
    assert [field] == list(shown["properties"])
    assert [field] == shown["required"]
    assert [field] == list(BUILT_IN["turul"].value(given, "anything"))
    assert BUILT_IN["turul"].text_is_boxed


def test_turul_shows_the_examples_of_its_decisions() -> None:
    """A string, a structure."""
    assert {"type": "object", "properties": {"output": {"type": "string"}}, "required": ["output"]} == shown_output(
        "turul", str
    )
    assert {
        "type": "object",
        "properties": {
            "calculationResult": {
                "type": "object",
                "properties": {
                    "sum": {"type": "number"},
                    "operation": {"type": "string"},
                    "timestamp": {"type": "integer"},
                },
                "required": ["sum", "operation", "timestamp"],
            }
        },
        "required": ["calculationResult"],
    } == shown_output("turul", CalculationResult)


@pytest.mark.parametrize("_case", [pytest.param(None, id="U-30 none is absent")])
def test_turul_leaves_out_what_is_none(_case: None) -> None:
    """Keys of declared properties, not entries of lists and maps."""
    given = returning(list[LocationData])
    shown = BUILT_IN["turul"].output_schema(given)
    value = [{"latitude": 1.0, "longitude": 2.0, "label": None}]

    assert {"output": [{"latitude": 1.0, "longitude": 2.0}]} == BUILT_IN["turul"].value(given, value)
    assert shown is not None
    assert ["latitude", "longitude"] == shown["properties"]["output"]["items"]["required"]
    assert {"output": {"a": None}} == BUILT_IN["turul"].value(returning(dict[str, int | None]), {"a": None})


@pytest.mark.parametrize(("value", "expected"), [(None, {}), (7, {"output": 7})], ids=["none", "something"])
def test_turul_leaves_out_an_optional_result(value: Any, expected: dict[str, Any]) -> None:
    """The field is not required, and absent when there is nothing."""
    given = returning(int | None)

    assert {"type": "object", "properties": {"output": {"type": "integer"}}} == BUILT_IN["turul"].output_schema(given)
    assert expected == BUILT_IN["turul"].value(given, value)
