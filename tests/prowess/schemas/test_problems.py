"""What is wrong with arguments, in the words that a model reads."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    Json,
    Tag,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticCustomError
from pydantic_core._pydantic_core import list_all_errors

from prowess.schemas.problems import problem_lines

STRICT = ConfigDict(extra="forbid")


def problems(arguments: dict[str, Any], injected: tuple[str, ...] = (), **parameters: Any) -> list[str]:
    """The lines for a command with these parameters (a type, or a type and a default)."""
    fields = {name: of if isinstance(of, tuple) else (of, ...) for name, of in parameters.items()}
    model = create_model("Arguments", __config__=STRICT, **fields)
    try:
        model.model_validate(arguments)
    except ValidationError as error:
        return problem_lines(error.errors(include_url=False), arguments, allowed=list(parameters), injected=injected)
    return []


def problem(value: Any, of: Any) -> str:
    """The one line for a command with one parameter `x`."""
    [line] = problems({"x": value}, x=of)
    return line


# --- whole arguments --------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once():
    """A model that mends them one by one wastes turns. Whole arguments come first."""
    lines = problems({"tags": ["a", 1], "limit": "ten"}, pattern=str, tags=list[str], limit=int)
    assert ["pattern: required", 'limit: expected an integer, got "ten"', "tags[1]: expected a string, got 1"] == lines


def test_an_unknown_argument_names_the_nearest_and_all_that_are_allowed():
    """The model can choose without another look at the schema."""
    lines = problems({"colour": 1, "zebra": 2}, color=(int, 0), size=(int, 0))
    assert [
        'colour: unknown argument; did you mean "color"? Allowed: color, size',
        "zebra: unknown argument. Allowed: color, size",
    ] == lines


def test_a_command_without_parameters_says_so():
    """An empty list of allowed names would read like an accident."""
    assert ["x: unknown argument; there are none to send"] == problems({"x": 1})


def test_a_long_list_of_allowed_names_is_cut():
    """A command with fifty parameters does not repeat them all."""
    [line] = problems({"zebra": 1}, **{f"p{n}": (int, 0) for n in range(50)})
    assert line.endswith("p13, p14 and 35 more")


def test_an_injected_argument_cannot_be_sent():
    """What Prowess provides is no client's business, and its value is not repeated."""
    assert ["settings: is provided by Prowess and cannot be sent"] == problems({"settings": {"a": 1}}, ("settings",))


def test_an_odd_name_is_quoted():
    """A name that is no identifier is shown as JSON, on one line, and can be sent."""
    assert ['"a b\\n": unknown argument; there are none to send'] == problems({"a b\n": 1})
    error: Any = {"type": "extra_forbidden", "loc": ("\ud800",), "msg": "", "input": 1}
    assert ['"\\ud800": unknown argument; there are none to send'] == problem_lines(
        [error], {}, allowed=[], injected=[]
    )


# --- nested values ----------------------------------------------------------------------------------


class Filter(BaseModel):
    model_config = STRICT
    name: str
    color: str = "red"
    children: list[Filter] = []


def test_a_path_leads_through_objects_and_arrays():
    """Every problem of a nested value is found where it is."""
    lines = problems(
        {"filters": [{"name": "a"}, {"nam": 1}, {"name": 3, "children": [{"name": "b", "zebra": 1}]}]},
        filters=list[Filter],
    )
    assert [
        "filters[1].name: required",
        'filters[1].nam: unknown key; did you mean "name"?',
        "filters[2].name: expected a string, got 3",
        "filters[2].children[0].zebra: unknown key",
    ] == lines


def test_odd_keys_stand_in_brackets():
    """Keys of a mapping can be any text, and can be wrong themselves."""
    assert 'x["a b"]: expected an integer, got "c"' == problem({"a b": "c"}, dict[str, int])
    assert 'x.a (the key): expected an integer, got "a"' == problem({"a": 1}, dict[int, int])
    assert 'x["[key]"]: expected an integer, got "c"' == problem({"[key]": "c"}, dict[str, int])


def test_an_overlong_path_loses_its_middle():
    """Both ends of a path say more than its middle."""
    value: Any = {"name": 1}
    for _ in range(30):
        value = {"name": "a", "children": [value]}
    line = problem(value, Filter)
    assert line.startswith("x.children[0].children[0]")
    assert line.endswith("children[0].name: expected a string, got 1")
    assert "…" in line
    assert 180 > len(line)


def test_a_tuple_that_is_too_short_lacks_an_item():
    """The missing place is named by its index."""
    assert "x[1]: required" == problem([1], tuple[int, str])


def test_a_default_that_does_not_fit_is_named_like_a_value():
    """It is not in the input, but its name is known."""
    assert ['x: expected an integer, got "a"'] == problems({}, x=(int, Field("a", validate_default=True)))


# --- unions -----------------------------------------------------------------------------------------


class Cat(BaseModel):
    model_config = STRICT
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    model_config = STRICT
    kind: Literal["dog"]
    name: str


@pytest.mark.parametrize(
    "of, value, line",
    [
        (int | list[str], "a", 'x: expected an integer or an array, got "a"'),
        (int | list[str], [1], "x: fits none of these: expected an integer; or x[0]: expected a string, got 1"),
        (int | None, "a", 'x: expected an integer, got "a"'),
        (bool | int | float, "a", 'x: expected true or false or an integer or a number, got "a"'),
        (
            dict[str, int] | dict[str, bool],
            {"a": "b"},
            'x: fits none of these: x.a: expected an integer, got "b"; or x.a: expected true or false, got "b"',
        ),
        (Cat | int, "a", 'x: expected an object or an integer, got "a"'),
        (
            Cat | Dog,
            {"kind": "cat", "lives": "nine"},
            (
                'x: fits none of these: x.lives: expected an integer, got "nine"; '
                'or x.kind: expected "dog", got "cat" and x.name: required and x.lives: unknown key'
            ),
        ),
        (
            list[Cat | int],
            [{"kind": "cat", "lives": None}],
            "x[0]: fits none of these: expected an integer; or x[0].lives: expected an integer, got null",
        ),
    ],
)
def test_the_branches_of_a_union_share_one_line(of: Any, value: Any, line: str):
    """The tags that pydantic puts into a location are no keys and show nowhere."""
    assert line == problem(value, of)


@pytest.mark.parametrize(
    "value, line",
    [
        ({"kind": "cat", "lives": "nine"}, 'x.lives: expected an integer, got "nine"'),
        ({"kind": "cat", "cat": 1, "lives": 9}, "x.cat: unknown key"),
        ({"kind": "cow"}, 'x: expected an object with the key "kind" being one of "cat", "dog", got {"kind":"cow"}'),
        ({}, 'x: expected an object with the key "kind", got {}'),
        (5, "x: expected an object, got 5"),
    ],
)
def test_a_tagged_union_speaks_for_its_one_branch(value: Any, line: str):
    """The tag is the name of a branch, also where a key has the same name."""
    assert line == problem(value, Annotated[Cat | Dog, Field(discriminator="kind")])


class Node(BaseModel):
    kind: Literal["next"]
    next: dict[str, int]


def test_a_branch_tag_that_is_also_a_key_of_the_input_is_still_a_tag():
    """What pydantic says of the input tells the two readings of a location apart."""
    of = Annotated[Node | Cat, Field(discriminator="kind")]
    assert 'x.next.a: expected an integer, got "b"' == problem({"kind": "next", "next": {"a": "b"}}, of)
    assert "x.next: expected an object, got 3" == problem({"kind": "next", "next": 3}, of)


def test_a_union_chosen_by_a_function_names_its_kinds():
    """There is no key to name."""
    of = Annotated[Annotated[Cat, Tag("a")] | Annotated[Dog, Tag("b")], Discriminator(lambda v: v.get("t"))]
    assert 'x: expected a value of the kind one of "a", "b", got {"t":"c"}' == problem({"t": "c"}, of)
    assert "x: expected a value of a known kind, got {}" == problem({}, of)


def odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd")
    return value


def test_a_validator_in_a_union_has_its_say():
    """The words of an author stand beside the expectations of the other branches."""
    of = Annotated[int, AfterValidator(odd)] | list[int] | Annotated[int, AfterValidator(odd)]
    assert "x: expected an array or must be odd, got 2" == problem(2, of)


# --- what was expected ------------------------------------------------------------------------------


class Style(enum.Enum):
    ISO = "iso"
    UNIX = "it's unix"


class Mixed(enum.Enum):
    NOTHING = None
    HALF = 0.5
    PAIR = (1, "a")
    TEXT = "x or y"


@dataclasses.dataclass
class Point:
    x: int


def custom(value: int) -> int:
    raise PydanticCustomError("mine", "{n} is enough", {"n": 3})


@pytest.mark.parametrize(
    "of, value, line",
    [
        (int, 1.5, "x: expected an integer, got 1.5"),
        (int, None, "x: expected an integer, got null"),
        (
            int,
            "9" * 5000,
            'x: expected an integer of fewer digits, got "999999999999999999999999999999999999999999999999999999999…"',
        ),
        (float, "a", 'x: expected a number, got "a"'),
        (Annotated[float, Field(allow_inf_nan=False)], math.nan, "x: expected a finite number, got NaN"),
        (bool, "perhaps", 'x: expected true or false, got "perhaps"'),
        (str, {"a": [1]}, 'x: expected a string, got {"a":[1]}'),
        (list[int], {}, "x: expected an array, got {}"),
        (dict[str, int], [], "x: expected an object, got []"),
        (Point, 3, "x: expected an object, got 3"),
        (None, 3, "x: expected null, got 3"),
        (Annotated[int, Field(ge=1)], 0, "x: expected an integer >= 1, got 0"),
        (Annotated[float, Field(gt=1)], 1, "x: expected a number > 1, got 1"),
        (Annotated[float, Field(lt=1.5)], 2, "x: expected a number < 1.5, got 2"),
        (
            Annotated[dt.date, Field(le=dt.date(2020, 1, 1))],
            "2021-01-01",
            'x: expected a value <= 2020-01-01, got "2021-01-01"',
        ),
        (Annotated[int, Field(multiple_of=5)], 3, "x: expected a multiple of 5, got 3"),
        (Annotated[str, Field(min_length=1)], "", 'x: expected a string of at least 1 character, got ""'),
        (Annotated[str, Field(max_length=2)], "abc", 'x: expected a string of at most 2 characters, got "abc"'),
        (Annotated[list[int], Field(min_length=2)], [1], "x: expected at least 2 items, got [1]"),
        (Annotated[str, Field(pattern="^[{]a$")], "b", 'x: expected a string matching ^[{]a$, got "b"'),
        (
            Annotated[decimal.Decimal, Field(decimal_places=2)],
            "1.234",
            'x: expected a decimal number of at most 2 decimal places, got "1.234"',
        ),
        (
            Annotated[decimal.Decimal, Field(max_digits=3, decimal_places=2)],
            "12.0",
            'x: expected a decimal number of at most 1 digit before the point, got "12.0"',
        ),
        (Literal["a"], "b", 'x: expected "a", got "b"'),
        (Literal["a", 1, None, True], "b", 'x: expected one of "a", 1, null, true, got "b"'),
        (Literal[b"a", "b"], "c", "x: expected b'a' or 'b', got \"c\""),
        (Literal["a or b", " or ", "'"], "b", 'x: expected one of "a or b", " or ", "\'", got "b"'),
        (Mixed, "b", 'x: expected one of null, 0.5, [1, "a"], "x or y", got "b"'),
        (Style, "ISO", 'x: expected one of "iso", "it\'s unix", got "ISO"'),
        (dt.datetime, "soon", 'x: expected a date and time (ISO 8601), got "soon"'),
        (AwareDatetime, "2020-01-01T00:00:00", 'x: expected a time with a timezone, got "2020-01-01T00:00:00"'),
        (dt.date, "soon", 'x: expected a date (YYYY-MM-DD), got "soon"'),
        (uuid.UUID, "u", 'x: expected a UUID, got "u"'),
        (HttpUrl, "ftp://a", "x: expected a URL with the scheme 'http' or 'https', got \"ftp://a\""),
        (Json[int], "{", 'x: expected a string of JSON, got "{"'),
        (complex, "x", 'x: expected a complex number, got "x"'),
        (Annotated[int, AfterValidator(odd)], 2, "x: must be odd, got 2"),
        (Annotated[int, AfterValidator(custom)], 7, "x: 3 is enough, got 7"),
    ],
)
def test_an_expectation_reads_naturally(of: Any, value: Any, line: str):
    """In the words of JSON, with the value that came, without pydantic's phrases."""
    assert line == problem(value, of)


def test_a_failed_assertion_has_words_or_is_not_valid():
    """An `assert` without a message says nothing worth repeating."""
    errors: Any = [{"type": "assertion_error", "loc": ("x",), "msg": "Assertion failed, ", "input": 7}]
    assert ["x: not valid, got 7"] == problem_lines(errors, {"x": 7}, allowed=[], injected=[])


def test_a_long_row_of_choices_is_cut():
    """An enum of two hundred names would drown the rest."""
    line = problem("z", Literal[tuple(f"c{n}" for n in range(40))])
    assert line.endswith('"c13", "c14" and 25 more, got "z"')


# --- what came --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, shown",
    [
        ("a" * 100, f'"{"a" * 57}…"'),
        (list(range(100)), "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22…"),
        ({"a": "é\n"}, '{"a":"é\\n"}'),
        (["\ud800"], '["\\ud800"]'),
        (object(), '"<object>"'),
        ([object()], '["<object>"]'),
        ({(1, 2): 3}, '"<dict>"'),
    ],
)
def test_a_value_is_shown_as_short_json(value: Any, shown: str):
    """Sixty characters are enough to recognise it, and the line can always be sent."""
    assert f"x: expected an integer, got {shown}" == problem(value, int)


def test_a_value_that_holds_itself_is_shown_by_its_type():
    """Python callers can send anything."""
    value: list[Any] = []
    value.append(value)
    assert 'x: expected an integer, got "<list>"' == problem(value, int)


def test_a_location_in_a_value_that_holds_itself_is_found_without_trying_all_ways():
    """Each part could be a key or a tag; what was tried once is not tried again."""
    value: dict[str, Any] = {}
    value["a"] = value
    error: Any = {"type": "int_type", "loc": ("x", *"a" * 200), "msg": "", "input": 1}
    [line] = problem_lines([error], {"x": value}, allowed=["x"], injected=[])
    assert line.startswith("x.a.a.a.a")


def test_a_line_has_one_line_and_an_end():
    """A validator may write a book; a line of the report is still a line."""

    def book(value: int) -> int:
        raise ValueError("word\n" * 1000)

    line = problem(1, Annotated[int, AfterValidator(book)])
    assert line.startswith("x: word word word")
    assert (600, "…") == (len(line), line[-1])


# --- many problems ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "count, shown, last", [(20, 20, None), (21, 20, "... and 2 more"), (5000, 20, "... and 4981 more")]
)
def test_no_more_than_twenty_lines_are_given(count: int, shown: int, last: str | None):
    """The rest is counted."""
    lines = problems({"x": ["a"] * count}, x=list[int])
    assert shown == len(lines)
    assert (last or 'x[19]: expected an integer, got "a"') == lines[-1]


def test_a_flood_of_branches_is_counted_too():
    """Where not even all errors were read, the report says that there are more."""
    lines = problems({"x": {"a": ["a"] * 2000}}, x=dict[str, list[int] | list[float]])
    assert 2 == len(lines)
    assert lines[0].startswith("x.a: fits none of these: x.a[0]: expected an integer")
    assert "... and 3920 more" == lines[1]


def test_the_same_line_is_given_once():
    """Branches of the same name repeat each other."""
    errors: Any = [{"type": "int_type", "loc": ("x",), "msg": "Input should be a valid integer", "input": "a"}] * 3
    assert ['x: expected an integer, got "a"'] == problem_lines(errors, {"x": "a"}, allowed=[], injected=[])


# --- whatever comes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("known", list_all_errors(), ids=lambda known: known["type"])
def test_every_error_that_pydantic_has_becomes_a_line(known: dict[str, Any]):
    """None raises, none keeps pydantic's phrases, none links to documentation."""
    context = {key: value or "it" for key, value in (known.get("example_context") or {}).items()}
    message = known["message_template_python"].format_map({"expected_plural": "s", **context})
    error: Any = {"type": known["type"], "loc": ("x",), "msg": message, "input": 1, "ctx": context}
    [line] = problem_lines([error], {"x": 1}, allowed=["x"], injected=[])
    assert line.startswith("x: ")
    assert not any(word in line for word in ("Input", "http", "unable to", "{", "Value error"))


@pytest.mark.parametrize("known", list_all_errors(), ids=lambda known: known["type"])
def test_an_error_without_its_context_falls_back_to_its_message(known: dict[str, Any]):
    """Errors can be raised by hand."""
    error: Any = {"type": known["type"], "loc": ("x",), "msg": "Input should be it", "input": 1}
    assert 1 == len(problem_lines([error], {"x": 1}, allowed=["x"], injected=[]))


class Hostile:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


def test_a_hostile_value_does_not_hide_the_problems():
    """Then pydantic's own words have to do."""
    error: Any = {"type": "int_type", "loc": ("x", 0), "msg": "Input should be a valid integer", "input": Hostile()}
    assert ["x.0: Input should be a valid integer"] == problem_lines(
        [error], {"x": [Hostile()]}, allowed=[], injected=[]
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "[key]"]), below, max_size=3)
    ),
    max_leaves=8,
)
KINDS = [known["type"] for known in list_all_errors()]
ERRORS = st.fixed_dictionaries(
    {
        "type": st.sampled_from([*KINDS, "mine"]),
        "loc": st.lists(st.sampled_from(["a", "b", "[key]", "int", 0, 1]), max_size=5).map(tuple),
        "msg": st.text(max_size=5),
        "input": JSON,
    },
    optional={"ctx": st.dictionaries(st.sampled_from(["expected", "ge", "discriminator", "min_length"]), JSON)},
)


@given(st.lists(ERRORS, max_size=30), st.dictionaries(st.sampled_from(["a", "b"]), JSON))
def test_whatever_the_errors_hold_there_are_sendable_lines(errors: list[Any], arguments: dict[str, Any]):
    """Never raises; at least one line for any errors, at most twenty, each of them one line of valid text."""
    lines = problem_lines(errors, arguments, allowed=["a"], injected=["b"])
    assert bool(errors) is bool(lines)
    assert 20 >= len(lines)
    assert all(line.encode() and 1 == len(line.splitlines()) for line in lines)
