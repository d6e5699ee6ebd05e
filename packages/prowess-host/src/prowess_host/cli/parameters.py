"""The parameters of a command for people: their types in words, examples, and values from a shell.

Works on JSON Schemas, without projects or terminals.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from prowess.contracts.contract import Contract
from prowess.errors import ProwessError, did_you_mean
from prowess.jsontypes import JsonObject, Schema
from prowess.schemas.walk import is_list, is_schema

__all__ = [
    "FROM_INPUT",
    "ArgumentError",
    "CliParameter",
    "as_object",
    "example_line",
    "example_of",
    "merged",
    "parameters_of",
    "read_arguments",
    "type_in_words",
]

FROM_INPUT: Final = "-"
_MOST_CHOICES: Final = 8
_EXAMPLES: Final[dict[str, Any]] = {"integer": 1, "number": 1.5, "boolean": True, "null": None}
_BY_FORMAT: Final = {
    "date": "2026-12-31",
    "date-time": "2026-12-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "uuid": "12345678-1234-5678-1234-567812345678",
    "uri": "https://example.com",
    "email": "ada@example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}
"""Examples of strings with a format."""


class ArgumentError(ProwessError):
    """The arguments on the command line are malformed."""


class CliParameter(NamedTuple):
    """One parameter of a command."""

    name: str
    type: str
    """In words."""
    required: bool
    default: str
    """As text to type; empty without a default."""
    description: str
    schema: Schema


def parameters_of(contract: Contract) -> list[CliParameter]:
    """The parameters of a command, required ones first."""
    whole = contract.input_schema
    required = set(whole.get("required", ()))
    found = [_parameter(name, schema, whole, required) for name, schema in whole.get("properties", {}).items()]
    return sorted(found, key=lambda each: not each.required)


def _parameter(name: str, schema: Any, whole: Schema, required: set[str]) -> CliParameter:
    schema = schema if is_schema(schema) else {}
    preset = schema.get("default")
    default = (
        preset
        if isinstance(preset, str) and preset
        else ""
        if preset is None
        else json.dumps(preset, ensure_ascii=False)
    )
    text = " ".join(str(schema.get("description", "")).split())
    return CliParameter(name, type_in_words(schema, whole), name in required, default, text, schema)


# --- in words -------------------------------------------------------------------------------------


def type_in_words(schema: Schema, whole: Schema) -> str:
    """A type in words, for example `list of integer` or `"a" | "b"`."""
    words: list[str] = []
    for each in _branches(schema, whole):
        word = _word(each, whole)
        if word not in words and word != "null":
            words.append(word)
    return " | ".join(words) or "any"


def _word(schema: Schema, whole: Schema) -> str:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if choices:
        shown = [each if isinstance(each, str) else json.dumps(each) for each in choices[:_MOST_CHOICES]]
        return " | ".join(shown + ["…"] * (len(choices) > _MOST_CHOICES))
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items")
        return f"list of {type_in_words(items, whole)}" if is_schema(items) and items else "list"
    return str(schema.get("format", kind)) if kind == "string" else str(kind)


def _branches(schema: Any, whole: Schema, depth: int = 0) -> Iterator[Schema]:
    """The plain schemas that a schema allows: references, unions and lists of types resolved."""
    if not is_schema(schema) or depth > 8:
        return
    if "$ref" in schema:
        yield from _branches(_target(str(schema["$ref"]), whole), whole, depth + 1)
        return
    for union in ("anyOf", "oneOf"):
        if union in schema:
            for each in schema[union]:
                yield from _branches(each, whole, depth + 1)
            return
    for each in schema.get("allOf", ()) if "type" not in schema else ():
        yield from _branches(each, whole, depth + 1)
        return
    types = schema.get("type")
    if is_list(types):
        for each in types:
            yield {**schema, "type": each}
    else:
        yield schema


def _target(ref: str, whole: Schema) -> Any:
    found: Any = whole
    for part in ref.removeprefix("#").split("/"):
        if part:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if is_schema(found) else None
    return found


# --- examples -------------------------------------------------------------------------------------


def example_line(contract: Contract) -> str:
    """A line that calls a command with its required parameters."""
    words = [
        f"{each.name}={example_of(each.schema, contract.input_schema)}"
        for each in parameters_of(contract)
        if each.required
    ]
    return " ".join(["prowess", "call", contract.id, *words])


def example_of(schema: Schema, whole: Schema) -> str:
    """An example value, quoted for a shell."""
    value = _example(schema, whole)
    return shlex.quote(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _example(schema: Any, whole: Schema, depth: int = 0) -> Any:
    branches = [each for each in _branches(schema, whole) if each.get("type") != "null"]
    first: Schema = branches[0] if branches else {}
    for given in (schema if is_schema(schema) else {}, first):
        if given.get("examples"):
            return given["examples"][0]
    if "enum" in first or "const" in first:
        return first["enum"][0] if "enum" in first else first["const"]
    kind = first.get("type")
    if kind == "array":
        item = _example(first.get("items"), whole, depth + 1) if depth < 3 else "text"
        return [item, "more"] if item == "text" else [item]
    if kind == "object":
        needed = [name for name in first.get("properties", {}) if name in first.get("required", ())]
        return {name: _example(first["properties"][name], whole, depth + 1) for name in needed if depth < 3} or {
            "key": "value"
        }
    if kind in ("integer", "number") and "minimum" in first:
        return first["minimum"]
    return _BY_FORMAT.get(str(first.get("format")), _EXAMPLES.get(str(kind), "text"))


# --- from a shell ---------------------------------------------------------------------------------


def read_arguments(words: Sequence[str], contract: Contract, read_input: Any) -> JsonObject:
    """Parse arguments: `key=value`, `--key value`, a JSON object, or `-` for the input."""
    given: JsonObject = {}
    lists: set[str] = set()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == FROM_INPUT:
            given = merged(given, as_object(read_input(), "the input"))
        elif word.startswith("{"):
            given = merged(given, as_object(word, "the arguments"))
        else:
            key, text = _pair(word, rest, contract)
            _put(given, lists, key, text, contract)
    return given


def merged(given: JsonObject, more: JsonObject) -> JsonObject:
    """All arguments. None may be given twice, because nobody can tell which one is meant."""
    for name in more:
        if name in given:
            raise ArgumentError(f"{name} is given twice; give it once")
    return {**given, **more}


def as_object(text: str, source: str) -> JsonObject:
    """A JSON object."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{source} must be JSON ({error})") from error
    if not isinstance(value, dict):
        raise ArgumentError(f'{source} must be a JSON object, like {{"key": 1}}')
    return value  # pyright: ignore[reportUnknownVariableType]


def _once(pairs: list[tuple[str, Any]]) -> JsonObject:
    """The object of these pairs."""
    found: JsonObject = {}
    for pair in pairs:
        found = merged(found, dict([pair]))
    return found


def _pair(word: str, rest: list[str], contract: Contract) -> tuple[str, str]:
    """A key with its value as text. The value of an option may be the next word."""
    key, equals, text = word.partition("=")
    if not key.startswith("--"):
        if not equals:
            raise ArgumentError(f"the argument {word!r} must have the form key=value. {_usage(contract)}")
        return key, text
    key, negated = _spelled(key[2:], contract)
    if equals:
        return key, text
    if negated or _is_flag(contract.input_schema.get("properties", {}).get(key), contract.input_schema):
        return key, "false" if negated else "true"
    properties: JsonObject = contract.input_schema.get("properties", {})
    if not rest and key not in properties and contract.input_schema.get("additionalProperties") is False:
        known = [f"--{name.replace('_', '-')}" for name in properties]
        raise ArgumentError(
            f"{contract.id} has no parameter {word}{did_you_mean(word, known) or '.'} {_usage(contract)}"
        )
    if not rest:
        raise ArgumentError(f"the option {word} needs a value. {_usage(contract)}")
    return key, rest.pop(0)


def _spelled(option: str, contract: Contract) -> tuple[str, bool]:
    """The parameter of an option, and whether the option negates it (`--no-…`)."""
    properties: JsonObject = contract.input_schema.get("properties", {})
    names = {name.replace("_", "-"): name for name in properties}
    plain = option.replace("_", "-")
    if plain not in names and plain.startswith("no-") and plain[3:] in names:
        return names[plain[3:]], True
    return names.get(plain, option), False


def _is_flag(schema: Any, whole: Schema) -> bool:
    return {"boolean"} == {str(each.get("type")) for each in _branches(schema, whole)} - {"null"}


def _put(given: JsonObject, lists: set[str], key: str, text: str, contract: Contract) -> None:
    """Add a value, converted to the type in the schema. Items of a list may be given one at a time."""
    whole = contract.input_schema
    schema = whole.get("properties", {}).get(key, {})
    arrays = [each for each in _branches(schema, whole) if each.get("type") == "array"]
    value = _value(text, schema, whole)
    if arrays and not isinstance(value, list) and not _accepts(value, schema, whole):
        value = [_value(text, arrays[0].get("items", {}), whole)]
        if key in lists:
            given[key].extend(value)
            return
        lists.add(key)
    given.update(merged(given, {key: value}))


def _value(text: str, schema: Any, whole: Schema) -> Any:
    """Convert a text: it stays a string if the schema accepts only strings, else it is parsed as JSON if possible."""
    branches = list(_branches(schema, whole))
    kinds = {str(each.get("type")) for each in branches} - {"null"}
    choices = [choice for each in branches for choice in each.get("enum", ())]
    if kinds == {"string"} or text in choices:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if "string" not in kinds or _accepts(value, schema, whole) else text


def _accepts(value: Any, schema: Any, whole: Schema) -> bool:
    """Whether a branch of the schema has the type of a value."""
    return any(_is_of(value, str(each.get("type", "any"))) for each in _branches(schema, whole))


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind in ("boolean", "any")
    types: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "array": list, "object": dict}
    return kind == "any" or (value is None and kind == "null") or (kind in types and isinstance(value, types[kind]))


def _usage(contract: Contract) -> str:
    return f"For example: {example_line(contract)}"
