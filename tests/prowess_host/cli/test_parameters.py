"""Parameters on a command line: what they take, in words, and how words become arguments."""

from __future__ import annotations

from typing import Any

import pytest

from prowess.contracts.contract import Contract
from prowess_host.cli.parameters import ArgumentError, parameters_of, read_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "place": {"$ref": "#/$defs/a~1b"},
        "lost": {"$ref": "#/$defs/none"},
        "when": {"type": ["integer", "null"]},
        "dry_run": {"allOf": [{"$ref": "#/$defs/flag"}]},
        "either": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]},
    },
    "required": [],
    "additionalProperties": False,
    "$defs": {"a/b": {"type": "string", "format": "date"}, "flag": {"type": "boolean"}},
}
CONTRACT = Contract("t.x", "t_x", "t", "x", "", SCHEMA)


def read(*words: str) -> Any:
    return read_arguments(words, CONTRACT, lambda: "")


@pytest.mark.parametrize(
    ("expected", "name"),
    [
        ("date", "place"),
        ("any", "lost"),
        ("integer", "when"),
        ("boolean", "dry_run"),
        ("boolean | list of string", "either"),
    ],
)
def test_a_type_is_told_in_words_wherever_the_schema_keeps_it(expected: str, name: str):
    """References, unions and lists of types come from workers, also of other languages."""
    [words] = [each.type for each in parameters_of(CONTRACT) if each.name == name]
    assert expected == words


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"dry_run": True}, ["--dry-run"]),
        ({"dry_run": False}, ["--no-dry-run"]),
        ({"when": 3, "place": "2026-01-02"}, ["--when", "3", "place=2026-01-02"]),
        ({"either": ["a", "b"]}, ["either=a", "either=b"]),
    ],
)
def test_words_become_values_of_the_type_that_a_reference_names(expected: dict[str, Any], words: list[str]):
    assert expected == read(*words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("when", ["when=1", "when=2"]),
        ("when", ["when=1", "--when", "1"]),
        ("when", ['{"when": 1}', "when=2"]),
        ("when", ["when=1", '{"when": 2}']),
        ("when", ['{"when": 1, "when": 2}']),
        ("dry_run", ["--dry-run", "--no-dry-run"]),
        ("either", ["either=a", 'either=["b"]']),
        ("either", ['either=["b"]', "either=a"]),
        ("either", ['either=["b"]', 'either=["c"]']),
        ("either", ["either=true", "either=a"]),
    ],
)
def test_an_argument_that_is_given_twice_is_refused(name: str, words: list[str]):
    """The last one would win, and nobody would notice a slip."""
    with pytest.raises(ArgumentError, match=f"{name} is given twice; give it once"):
        read(*words)


def test_an_option_that_no_parameter_has_is_refused_with_a_guess():
    """It would otherwise wait for a value."""
    with pytest.raises(ArgumentError, match=r't\.x has no parameter --plase; did you mean "--place"'):
        read("--plase")
