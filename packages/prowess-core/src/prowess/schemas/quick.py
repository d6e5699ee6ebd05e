"""Compiles a JSON Schema to a fast, one-sided check: it accepts only values that a full validation would accept.

If it rejects a value, or cannot be built, ask `explicit.validate`, which also gives the reason. Pydantic's validators do the
work, because they visit a large value a hundred times faster than a validator written in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from prowess.jsontypes import Json, Schema
from prowess.schemas.matching import identity, leaf_problems
from prowess.schemas.refs import resolve
from prowess.schemas.unions import are_apart
from prowess.schemas.walk import is_list, is_schema

__all__ = ["quick_check"]

_SILENT: Final = frozenset(
    {"$comment", "$defs", "$schema", "contentEncoding", "contentMediaType", "default", "definitions", "deprecated"}
    | {"description", "discriminator", "examples", "format", "readOnly", "title", "writeOnly"}
)
"""Keywords that validate nothing."""
_LEAVES: Final = frozenset(
    {"const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength", "maxProperties", "maximum"}
    | {"minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern"}
)
"""Keywords that `matching` checks."""
_OF_OBJECTS: Final = frozenset({"additionalProperties", "properties", "required"})
_OF_ARRAYS: Final = frozenset({"items", "prefixItems", "uniqueItems"})


class _Unsuitable(Exception):
    """The schema uses a keyword that this check does not support."""


def quick_check(schema: Schema) -> Callable[[Json], bool]:
    """A function that returns `True` only for valid values. It may return `False` for a few valid ones."""
    try:
        validator = SchemaValidator(_Compiler(schema).compiled())
    except (_Unsuitable, SchemaError):  # pydantic-core refuses an empty `enum`
        return _never

    def check(value: Json) -> bool:
        try:
            validator.validate_python(value)
        except (ValidationError, RecursionError):
            return False
        return True

    return check


def _never(_value: Json) -> bool:
    return False


class _Compiler:
    def __init__(self, document: Schema) -> None:
        self.document = document
        self.definitions: dict[str, Any] = {}

    def compiled(self) -> Any:
        root = self._node(self.document)
        return core_schema.definitions_schema(root, list(self.definitions.values())) if self.definitions else root

    def _any_node(self, node: Any) -> Any:
        if node is True:
            return core_schema.any_schema()
        if not is_schema(node):
            raise _Unsuitable
        return self._node(node)

    def _node(self, node: Schema) -> Any:
        """The checks of a schema in a chain, all of which must pass."""
        said = {keyword for keyword in node if keyword not in _SILENT and not keyword.startswith("x-")}
        parts: list[Any] = []
        if "$ref" in said:
            parts.append(self._reference(node["$ref"]))
        if "type" in said or said & (_OF_OBJECTS | _OF_ARRAYS):
            parts.append(self._typed(node))
        if said & _LEAVES:
            parts.append(_leaf({keyword: node[keyword] for keyword in node if keyword in _LEAVES}))
        parts.extend(self._union(node, keyword) for keyword in ("anyOf", "oneOf") if keyword in said)
        parts.extend(self._any_node(part) for part in node.get("allOf", ()))
        if "if" in said:
            parts.append(self._conditional(node))
            said -= {"if", "then"}
        if said - _LEAVES - _OF_OBJECTS - _OF_ARRAYS - {"$ref", "type", "anyOf", "oneOf", "allOf"}:
            raise _Unsuitable
        if not parts:
            return core_schema.any_schema()
        return parts[0] if len(parts) == 1 else core_schema.chain_schema(parts)

    def _reference(self, ref: str) -> Any:
        if ref not in self.definitions:
            target = resolve(self.document, ref)
            if target is None or "$id" in self.document:
                raise _Unsuitable
            self.definitions[ref] = {}  # the target may refer to itself
            self.definitions[ref] = {**_named(self._node(target)), "ref": ref}
        return core_schema.definition_reference_schema(ref)

    def _typed(self, node: Schema) -> Any:
        names = node.get("type")
        if names is None:  # such keywords accept any value of another type; this check refuses those
            names = [name for name, words in (("object", _OF_OBJECTS), ("array", _OF_ARRAYS)) if words & node.keys()]
        branches = [self._of_type(name, node) for name in (names if is_list(names) else [names])]
        return branches[0] if len(branches) == 1 else core_schema.union_schema(branches, mode="left_to_right")

    def _of_type(self, name: Any, node: Schema) -> Any:
        if name == "object":
            return self._object(node)
        if name == "array":
            return self._array(node)
        if name not in _SCALARS:
            raise _Unsuitable
        return _SCALARS[name]

    def _object(self, node: Schema) -> Any:
        required = set(node.get("required", ()))
        more = node.get("additionalProperties", True)
        properties: dict[str, Any] = {**dict.fromkeys(sorted(required), more), **node.get("properties", {})}
        if not properties and more is not False:
            return core_schema.dict_schema(_TEXT, self._any_node(more), strict=True)
        fields = {
            name: core_schema.typed_dict_field(self._any_node(held), required=name in required)
            for name, held in properties.items()
        }
        if more is False:
            return core_schema.typed_dict_schema(fields, extra_behavior="forbid", strict=True)
        return core_schema.typed_dict_schema(
            fields, extra_behavior="allow", extras_schema=self._any_node(more), strict=True
        )

    def _array(self, node: Schema) -> Any:
        positions: list[Any] = node.get("prefixItems", [])
        rest = node.get("items", True)
        if positions:
            if node.get("minItems", 0) < len(positions) or node.get("maxItems", len(positions) + 1) > len(positions):
                raise _Unsuitable
            items = core_schema.tuple_schema([self._any_node(held) for held in positions], strict=False)
            array = core_schema.chain_schema([core_schema.list_schema(strict=True), items])
        elif rest is False:
            array = core_schema.list_schema(max_length=0, strict=True)
        else:
            array = core_schema.list_schema(self._any_node(rest), strict=True)
        if node.get("uniqueItems") is not True:
            return array
        return core_schema.chain_schema([_UNIQUE, array])

    def _union(self, node: Schema, keyword: str) -> Any:
        branches: list[Any] = node[keyword]
        if keyword == "oneOf" and all(is_schema(branch) and branch.keys() == {"required"} for branch in branches):
            return _one_present([frozenset(branch["required"]) for branch in branches])
        union = core_schema.union_schema([self._any_node(held) for held in branches], mode="left_to_right")
        if keyword == "anyOf" or len(branches) == 1:
            return union
        if not are_apart(self.document, node):
            raise _Unsuitable
        tag = node["discriminator"]["propertyName"]
        return core_schema.chain_schema([_checked(lambda value: isinstance(value, dict) and tag in value), union])

    def _conditional(self, node: Schema) -> Any:
        """`then` for the objects that `if` selects by exact texts of some properties."""
        condition = node["if"]
        named: Any = condition.get("properties") if is_schema(condition) and len(condition) == 1 else None
        listed = {name: _texts(held) for name, held in named.items()} if is_schema(named) else {}
        if not listed or None in listed.values():
            raise _Unsuitable

        def check(value: Any, validate: Callable[[Any], Any]) -> Any:
            if is_schema(value) and any(name in value and value[name] not in texts for name, texts in listed.items()):
                return value  # `if` does not apply
            return validate(value)

        return core_schema.no_info_wrap_validator_function(check, self._any_node(node.get("then", True)))


def _named(schema: Any) -> Any:
    """A schema that can be a definition; a reference to another definition has to be wrapped."""
    return core_schema.chain_schema([schema]) if schema["type"] == "definition-ref" else schema


def _checked(holds: Callable[[Any], bool]) -> Any:
    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError
        return value

    return core_schema.no_info_plain_validator_function(check)


def _texts(node: Any) -> list[str] | None:
    """The strings that a schema lists if it admits only these; else `None`."""
    if not is_schema(node) or len(node) != 1:
        return None
    texts: list[Any] = node.get("enum", [node.get("const")])
    return texts if all(type(text) is str for text in texts) else None


def _one_present(branches: list[frozenset[str]]) -> Any:
    """A check that exactly one of these sets of properties is present."""
    return _checked(lambda value: isinstance(value, dict) and sum(branch <= value.keys() for branch in branches) == 1)


def _leaf(node: Schema) -> Any:
    if node.keys() == {"enum"} and all(type(value) is str for value in node["enum"]):
        return core_schema.literal_schema(node["enum"])
    return _checked(lambda value: leaf_problems(node, value) == 0)


_TEXT: Final = core_schema.str_schema(strict=True)
_WHOLE: Final = core_schema.int_schema(strict=True)
_SCALARS: Final[dict[Any, Any]] = {
    "boolean": core_schema.bool_schema(strict=True),
    "integer": _WHOLE,
    "null": core_schema.none_schema(),
    "number": core_schema.union_schema(
        [_WHOLE, core_schema.float_schema(strict=True, allow_inf_nan=False)], mode="left_to_right"
    ),
    "string": _TEXT,
}


def _is_unique(value: Any) -> bool:
    items: list[Any] = value if is_list(value) else []
    return items is value and len(set(map(identity, items))) == len(items)


_UNIQUE: Final = _checked(_is_unique)
