"""The line that says what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prowess import Runtime, skill_command
from prowess.contracts.returns import returns_line

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "warm": {"type": "boolean"}}, "required": ["city"]}


def line(schema: Any, description: str = "Weather.") -> str:
    return returns_line(schema, description)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, ""),
        ({"type": "string"}, ""),
        ({"type": "array", "items": {"type": "integer"}}, ""),
        (CITY, "Returns: {city: string, warm?: boolean}"),
        ({"type": "array", "items": CITY}, "Returns: list of {city: string, warm?: boolean}"),
        ({"anyOf": [CITY, {"type": "null"}]}, "Returns: {city: string, warm?: boolean} or null"),
        ({"$ref": "#/$defs/C", "$defs": {"C": CITY}}, "Returns: {city: string, warm?: boolean}"),
        (
            {"type": "object", "properties": {"n": {"$ref": "#"}, "m": True, "u": {"$ref": "#/no"}}},
            "Returns: {n?: {n?: object, m?: anything, u?: object}, m?: anything, u?: object}",
        ),
        (
            {
                "type": "object",
                "properties": {
                    "e": {"enum": [1, 2, 3, 4, 5]},
                    "c": {"const": "x"},
                    "l": {"type": "array"},
                    "m": {"type": "object", "additionalProperties": {"type": "string", "format": "date"}},
                    "t": {"type": ["integer", "null"]},
                },
            },
            'Returns: {e?: 1 or 2 or 3 or 4 or …, c?: "x", l?: list, m?: map of date, t?: integer or null}',
        ),
    ],
)
def test_the_fields_are_named_with_their_types(schema: Any, expected: str) -> None:
    assert expected == line(schema)


@pytest.mark.parametrize(
    "description", ["Returns:\n    The city.", "Weather.\n\n:return: it", "It returns it.", "Says city and warm."]
)
def test_a_description_that_says_it_gets_no_line(description: str) -> None:
    assert "" == line(CITY, description)


def test_the_line_is_short() -> None:
    """Inner objects go first, then fields."""
    many = {f"field_{n}": {"type": "string"} for n in range(40)}
    assert "Returns: {a?: object}" == line(
        {
            "type": "object",
            "properties": {"a": {"type": "object", "properties": {"b": {"type": "object", "properties": many}}}},
        }
    ).replace("{b?: object}", "object")
    text = line({"type": "object", "properties": many})
    assert len(text) <= 300
    assert text.endswith(", …")


@pytest.mark.parametrize(("config", "told"), [("", True), ("describe_results = false", False)])
async def test_a_setting_turns_it_off(tmp_path: Path, config: str, told: bool) -> None:
    (tmp_path / "prowess.toml").write_text(config)
    async with Runtime.open(tmp_path) as runtime:

        @skill_command
        def weather() -> dict[str, Any]:
            """Weather."""
            return {}

        declared: Any = skill_command(output_schema=CITY)(weather.raw)
        contract = runtime.entry_of(declared.__prowess__).contract
    assert "Weather." == contract.description
    assert told is ("Returns: {city" in contract.shown_description)
