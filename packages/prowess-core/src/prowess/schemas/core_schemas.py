"""Rebuilds pydantic's core schema of an annotation for clients. The only module that knows how core schemas are built.

Three things change. Every class gets our configuration: bytes are base64, NaN is rejected. Types that pydantic reads or
writes differently from its own JSON Schema are replaced (enums, flags, literals, keys of objects). And an instance of a
class is trusted: the validators of a class are for raw input, and have already run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final, cast

from pydantic.functional_validators import PlainValidator
from pydantic.json_schema import WithJsonSchema
from pydantic.types import Base64Encoder, Base64UrlEncoder, EncodedBytes, EncodedStr
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from prowess.schemas.choices import choice_of, is_choice, is_plain, tags

__all__ = [
    "WIRE",
    "Rebuilder",
    "complete",
    "failing_fast",
    "has_untyped_serializer",
    "holds_anything",
    "holds_instances",
    "is_changed",
    "is_described",
    "is_written_apart",
    "keys_may_meet",
    "may_add_keys",
    "repeats_matter",
    "runs_validators",
    "trusting",
    "without_functions",
]

WIRE: Final[dict[str, Any]] = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "constants",
    "allow_inf_nan": False,
}
_CLASSES: Final = frozenset({"dataclass", "model", "typed-dict"})
_INSTANCES: Final = frozenset({"dataclass", "model", "named-tuple"})
_FUNCTIONS: Final = frozenset({"function-after", "function-before", "function-plain", "function-wrap"})
_DATA: Final = frozenset({"default", "metadata"})
"""Keys of a core schema that hold the author's values, which may look like schemas."""
_NOT_TEXT: Final = frozenset(
    {"tuple", "list", "set", "frozenset", "dict", "model", "dataclass", "typed-dict", "named-tuple", "none", "call"}
    | {"deque", "counter", "defaultdict", "ordered-dict", "frozendict", "generator"}
)
"""Kinds of values that cannot be written as the name of a property."""
_FORKS: Final = frozenset({"lax-or-strict", "tagged-union", "union"})
"""Kinds that try another branch when one does not fit."""
_ARRAYS: Final = frozenset({"frozenset", "list", "set", "tuple"})
_MAPS: Final = frozenset({"counter", "defaultdict", "dict", "frozendict", "ordered-dict"})
_PLAIN_KEYS: Final = ({"type": "any"}, {"type": "str"})
_ANY: Final = {"type": "any"}
_DISTINCT: Final = frozenset({"bool", "date", "datetime", "decimal", "enum", "int", "literal", "str", "time", "uuid"})
"""Kinds of keys of which different ones are written differently."""
_NATIVE: Final = frozenset({"bool", "float", "int", "none", "str"})
"""Kinds whose different values are different values of JSON."""
_ANYTHING: Final = frozenset({"any", "is-instance"})
"""Kinds of schemas that accept any content."""
_WITH_KEYS: Final = frozenset({*_ANYTHING, *_CLASSES, "definition-ref", "dict"})
"""Kinds of schemas whose values may be written as objects."""
_LIMITS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "decimal_places": None,
    "max_digits": None,
}
"""Limits that pydantic publishes under its own names, and the keywords of JSON Schema for them."""
_CHECKING: Final = {
    "function-after": ("pydantic._internal._validators.", "pydantic.types.PathType."),
    "function-wrap": ("pydantic._internal._known_annotated_metadata.",),
}
"""How the names of functions begin that check values, by the kind of their schemas."""
_OWN_TYPES: Final = ("builtins", "pydantic", "pydantic_core")
"""Modules whose functions do not belong to an author's class."""


class Rebuilder:
    """Rebuilds core schemas. `field_core` makes the core schema of one field of a dataclass, or `None`."""

    def __init__(self, field_core: Callable[[type[Any], str], Any]) -> None:
        self._field_core = field_core
        self._definitions: dict[str, Any] = {}
        """The definitions from pydantic, by reference."""
        self._rebuilt: dict[str, Any] = {}

    def rebuild(self, core: Any) -> CoreSchema:
        """A copy of a core schema with our rules. Raises `TypeError` for a type that JSON cannot represent."""
        root = self._opened(core)
        return core_schema.definitions_schema(root, list(self._rebuilt.values())) if self._rebuilt else root

    def _opened(self, core: Any) -> Any:
        """The rebuilt schema. Its definitions are added to the known ones."""
        if core["type"] != "definitions":
            return self._part(core)
        new = {item["ref"]: item for item in core["definitions"] if item["ref"] not in self._definitions}
        self._definitions.update(new)
        for ref, item in new.items():
            rebuilt = self._part(item)
            if rebuilt.get("schema_ref") != ref:  # else it is stored already
                self._rebuilt[ref] = rebuilt
        return self._part(core["schema"])

    def _part(self, part: Any) -> Any:
        if isinstance(part, Mapping):  # the deferred schema of a model is a mapping that is computed now
            node = {**cast("Mapping[str, Any]", part)}
            return self._schema(node) if _is_schema(node) else {name: self._part(held) for name, held in node.items()}
        if type(part) in (list, tuple):
            return type(part)(self._part(item) for item in part)
        return part

    def _schema(self, schema: dict[str, Any]) -> Any:
        kind, schema = schema["type"], _distinct(schema)
        if kind in ("enum", "literal"):
            return schema if is_plain(schema) else choice_of(schema)
        if kind == "function-after" and _is_base64(schema):
            return self._part(schema["schema"])
        if kind == "dataclass" and (late := _late_fields(schema)):
            return self._with_late_fields(schema, late)
        return self._copied(schema)

    def _copied(self, schema: dict[str, Any]) -> Any:
        kind = schema["type"]
        inner = {key: value for key, value in schema.items() if key not in _DATA and key != "keys_schema"}
        rebuilt = {**schema, **{key: self._part(value) for key, value in inner.items()}}
        if kind == "generator":  # pydantic would validate the items one by one while the command runs
            rebuilt["type"] = "list"
        elif kind == "tagged-union":
            sent = {form: rebuilt["choices"][tag] for form, tag in tags(rebuilt["choices"]).items()}
            rebuilt["choices"] = {**sent, **rebuilt["choices"]}
        elif _is_check(rebuilt):
            function = {**rebuilt["function"], "function": _refusing(rebuilt["function"]["function"])}
            rebuilt = _with_published_limits({**rebuilt, "function": function})
        elif kind == "function-plain" and _repeats_itself(rebuilt):
            rebuilt["serialization"] = core_schema.plain_serializer_function_ser_schema(
                lambda value: value, return_schema=rebuilt["serialization"]["return_schema"]
            )
        elif kind in _CLASSES:
            rebuilt["config"] = {**rebuilt.get("config", {}), **WIRE}
        if "keys_schema" in schema:
            rebuilt["keys_schema"] = self._key(schema["keys_schema"])
        if kind in ("model-fields", "typed-dict"):
            rebuilt["fields"] = {name: _named(name, field) for name, field in rebuilt["fields"].items()}
        elif kind == "dataclass-args":
            rebuilt["fields"] = [_named(field["name"], field) for field in rebuilt["fields"]]
        return rebuilt

    # Keys of objects, which are strings in JSON

    def _key(self, schema: dict[str, Any]) -> Any:
        """A key schema that reads keys in their written form. Raises `TypeError` for keys that strings cannot represent."""
        kind, schema = schema["type"], _distinct(schema)
        if kind == "definition-ref":
            return self._key(self._definitions[schema["schema_ref"]])
        if kind in _NOT_TEXT and "serialization" not in schema:
            name = getattr(schema.get("cls"), "__name__", kind)
            raise TypeError(
                f"the keys of a JSON object are text, and a {name} cannot be written as one. "
                "Use a list of pairs, or keys of type str"
            )
        if kind in ("enum", "literal"):
            return schema if is_plain(schema, as_key=True) else choice_of(schema, as_key=True)
        rebuilt = self._part(schema)
        if kind in ("function-after", "nullable", "default"):
            rebuilt = {**rebuilt, "schema": self._key(schema["schema"])}
        elif kind == "union":
            rebuilt = {**rebuilt, "choices": [self._key(choice) for choice in schema["choices"]]}
        return rebuilt

    # Fields of dataclasses that are set after `__init__`

    def _with_late_fields(self, schema: dict[str, Any], late: list[str]) -> Any:
        """The dataclass with the fields that pydantic leaves out: results contain them, arguments do not."""
        cls: type[Any] = schema["cls"]
        ref: str = schema.get("ref") or f"{cls.__module__}.{cls.__qualname__}:{abs(hash(repr(schema)))}"
        self._rebuilt[ref] = {}  # the dataclass may hold itself
        fields = [(name, self._field_core(cls, name)) for name in late]
        added = [_late_field(name, self._opened(core)) for name, core in fields if core is not None]
        rebuilt = self._copied(schema)
        self._rebuilt[ref] = {**rebuilt, "ref": ref, "schema": _with_fields(rebuilt["schema"], added, cls)}
        return core_schema.definition_reference_schema(ref)


def _named(name: str, field: dict[str, Any]) -> dict[str, Any]:
    """A field that is read by a name, which a schema can show, and not only by paths into other values (`AliasPath`)."""
    alias: Any = field.get("validation_alias", name)
    if isinstance(alias, str):
        return field
    paths: list[Any] = alias if isinstance(alias[0], list) else [alias]
    if not any(len(path) == 1 for path in paths):
        paths = [*paths, [name]]
    return {**field, "validation_alias": paths}


def _is_check(schema: dict[str, Any]) -> bool:
    """Whether a function of pydantic checks a path, or a limit of a type that has no such limit itself, such as a union."""
    if schema["type"] not in _CHECKING or not _runs_function(schema):
        return False
    function: Any = schema["function"]["function"]
    function = getattr(function, "func", function)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    return name.startswith(_CHECKING[schema["type"]])


def _refusing(check: Callable[..., Any]) -> Callable[..., Any]:
    """A check that refuses a value where pydantic's raises other errors, like the broken validator of an author."""

    @wraps(getattr(check, "func", check))
    def refuse(value: Any, *more: Any) -> Any:
        try:
            return check(value, *more)
        except TypeError as error:
            raise PydanticCustomError("limit", "Input should be a value that the declared limit applies to") from error
        except OSError as error:
            raise PydanticCustomError(
                "path_unusable", "Input should be a usable path ({reason})", {"reason": error.strerror}
            ) from error

    return refuse


def _with_published_limits(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose limits have the names of JSON Schema. Pydantic writes `ge` for a limit of a whole union.

    A limit of what a function of the author returns says nothing about what clients send or get.
    """
    facts = schema.get("metadata", {})
    updates: dict[str, Any] = facts.get("pydantic_js_updates", {})
    if updates.keys().isdisjoint(_LIMITS):
        return schema
    kept = {name: value for name, value in updates.items() if name not in _LIMITS}
    converted = any("serialization" in part and not is_choice(part) for part in _parts(schema))
    if not converted and not is_changed(schema["schema"]):
        kept |= {_LIMITS[name]: value for name, value in updates.items() if _is_publishable(name, value)}
    return {**schema, "metadata": {**facts, "pydantic_js_updates": kept}}


def _is_publishable(name: str, limit: Any) -> bool:
    """Whether a limit can stand in a schema: JSON has no dates and no infinity, and validators divide floats inexactly."""
    exact = type(limit) is int or (type(limit) is float and math.isfinite(limit) and name != "multiple_of")
    return exact and _LIMITS.get(name) is not None


def _repeats_itself(schema: dict[str, Any]) -> bool:
    """Whether a schema comes from `PlainValidator`, which writes a value twice: a date as text, and that text as a date."""
    how = schema.get("serialization", {})
    return how.get("type") == "function-wrap" and how["function"].__module__ == PlainValidator.__module__


def _distinct(schema: dict[str, Any]) -> dict[str, Any]:
    """Without aliases in an enum: an alias repeats its member, and some clients refuse a value that is listed twice."""
    if schema["type"] != "enum":
        return schema
    return {**schema, "members": list({id(member): member for member in schema["members"]}.values())}


def _late_fields(schema: dict[str, Any]) -> list[str]:
    """Public fields without a default that `__init__` does not take."""
    arguments: Any = schema["schema"]
    while arguments["type"] != "dataclass-args":
        arguments = arguments["schema"]
    known = {field["name"] for field in arguments["fields"]}
    fields = dataclasses.fields(schema["cls"])
    return [field.name for field in fields if not field.init and field.name not in known and field.name[0] != "_"]


def _late_field(name: str, core: Any) -> Any:
    return {"type": "dataclass-field", "name": name, "schema": core, "init": False, "kw_only": False}


def _with_fields(inner: Any, added: list[Any], cls: Any) -> Any:
    if inner["type"] != "dataclass-args":
        return {**inner, "schema": _with_fields(inner["schema"], added, cls)}
    order = list(cls.__dataclass_fields__)
    return {**inner, "fields": sorted([*inner["fields"], *added], key=lambda field: order.index(field["name"]))}


# Instances


def trusting(core: Any, *, everywhere: bool) -> Any:
    """A copy of a rebuilt core schema that takes an instance of a declared class as it is.

    Pydantic runs an `after` validator of a class again on each instance. In this copy no validator of a class runs on an
    instance. With `everywhere`, as for results, the same holds for validators in the annotation around the class.
    """
    definitions = {item["ref"]: item for item in core["definitions"]} if core["type"] == "definitions" else {}

    def copied(part: Any) -> Any:
        if isinstance(part, dict):
            node = cast("dict[str, Any]", part)
            copy = {key: held if _is_data(node, key) else copied(held) for key, held in _validating(node)}
            return trusted(node, copy) if _is_schema(node) else copy
        return type(part)(copied(item) for item in part) if type(part) in (list, tuple) else part

    def trusted(node: dict[str, Any], copy: dict[str, Any]) -> Any:
        kind, classes = node["type"], _classes(node, definitions)
        if everywhere and (kind == "json" or _is_decoded(node)):  # a command returns what it means, not its text
            return copy.get("schema", _ANY)
        if everywhere and kind in _MAPS and not _has_plain_keys(node):
            return _with_all_entries(copy)
        if everywhere and kind in _INSTANCES and "config" in copy:
            copy["config"] = {**copy["config"], "revalidate_instances": "never"}
        if _runs_function(node):
            copy = _sparing(copy)
            if everywhere:
                classes = (*classes, *_owner(node))
            elif not _belongs(node, classes):
                return copy
        elif not everywhere or kind not in ("named-tuple", "tagged-union", "union"):
            return copy
        return _skipping(copy, classes) if classes else copy

    return copied(core)


def without_functions(core: Any) -> Any:
    """A copy of a rebuilt core schema without the functions of the author. It accepts anything where one converted a value."""
    definitions = {item["ref"]: item for item in core["definitions"]} if core["type"] == "definitions" else {}

    def copied(part: Any) -> Any:
        if isinstance(part, dict):
            node = cast("dict[str, Any]", part)
            if _is_schema(node) and _runs_function(node) and not is_choice(node):
                ref = {"ref": node["ref"]} if "ref" in node else {}
                keeps = node["type"] == "function-before" or _classes(node, definitions)
                return {**(copied(node["schema"]) if keeps else _ANY), **ref}
            if _is_schema(node) and node["type"] == "json":  # a default is what the text means
                return copied(node.get("schema", _ANY))
            if _is_schema(node) and node["type"] == "default":
                return {"type": "default", "schema": copied(node["schema"]), "default": None}
            return {key: held if _is_data(node, key) else copied(held) for key, held in _validating(node)}
        return type(part)(copied(item) for item in part) if type(part) in (list, tuple) else part

    return copied(core)


def failing_fast(core: Any) -> Any:
    """A copy of a rebuilt core schema whose arrays report only their first problem."""

    def copied(part: Any) -> Any:
        if isinstance(part, dict):
            node = cast("dict[str, Any]", part)
            copy = {key: held if _is_data(node, key) else copied(held) for key, held in _validating(node)}
            return {**copy, "fail_fast": True} if _is_schema(node) and node["type"] in _ARRAYS else copy
        return type(part)(copied(item) for item in part) if type(part) in (list, tuple) else part

    return copied(core)


def _validating(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The entries of a node without its serializer, whose schema looks like that of a validator."""
    return ((key, held) for key, held in node.items() if key != "serialization" or not _is_schema(node))


def _sparing(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose function may know raw input alone, as one that splits a text: other values go to the type inside it."""
    kind, function = schema["type"], schema["function"]["function"]
    if kind == "function-after" or is_choice(schema):
        return schema

    def read(value: Any, *more: Any) -> Any:
        try:
            return function(value, *more)
        except (AttributeError, TypeError):
            return more[0](value) if kind == "function-wrap" else value

    return {**schema, "function": {**schema["function"], "function": read}}


def _skipping(schema: dict[str, Any], classes: tuple[type[Any], ...]) -> Any:
    def trust(value: Any, handler: Callable[[Any], Any]) -> Any:
        return value if isinstance(value, classes) else handler(value)

    return _outside(schema, lambda inner: core_schema.no_info_wrap_validator_function(trust, inner))


def _outside(schema: dict[str, Any], wrap: Callable[[Any], Any]) -> Any:
    """A schema inside another one, which takes over its reference."""
    ref = {"ref": schema["ref"]} if "ref" in schema else {}
    return {**wrap({key: value for key, value in schema.items() if key != "ref"}), **ref}


def complete(core: Any) -> Any:
    """A copy of a rebuilt core schema whose objects refuse keys that it reads alike."""
    if all(node["type"] not in _MAPS or _has_plain_keys(node) for node in _parts(core)):
        return core

    def copied(part: Any) -> Any:
        if isinstance(part, dict):
            node = cast("dict[str, Any]", part)
            copy = {key: held if _is_data(node, key) else copied(held) for key, held in node.items()}
            is_map = _is_schema(node) and node["type"] in _MAPS and not _has_plain_keys(node)
            return _with_all_entries(copy) if is_map else copy
        return type(part)(copied(item) for item in part) if type(part) in (list, tuple) else part

    return copied(core)


class _Key:
    """A key that was read. It equals no other one, so that a dict keeps all entries."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _with_all_entries(schema: dict[str, Any]) -> Any:
    """A schema of an object that refuses keys which it reads alike, like `1` and `"1"` as integers.

    A validator function around the object would be simpler. But it would be given Python's data for the JSON, which
    pydantic reads by other rules: strict types refuse their text, and unions choose another branch.
    """

    def keep(entries: Any) -> Any:
        read = {key.value: value for key, value in entries.items()}
        if len(read) < len(entries):
            raise PydanticCustomError(
                "keys_alike", "two of its keys are the same for its type, so an entry would be lost"
            )
        return type(entries)(read)

    keys = _outside(schema["keys_schema"], lambda keys: core_schema.no_info_after_validator_function(_Key, keys))
    marked = {**schema, "keys_schema": keys}
    return _outside(marked, lambda inner: core_schema.no_info_after_validator_function(keep, inner))


def _classes(
    schema: dict[str, Any], definitions: dict[str, Any], seen: frozenset[str] = frozenset()
) -> tuple[Any, ...]:
    """The classes that a value of a schema may be an instance of, without looking into containers."""
    kind = schema["type"]
    if kind in _INSTANCES:
        return (schema["cls"],)
    if kind == "definition-ref":
        ref: str = schema["schema_ref"]
        return () if ref in seen else _classes(definitions[ref], definitions, seen | {ref})
    inner: list[Any] = []
    if kind in ("function-after", "function-before", "function-wrap", "default", "nullable"):
        inner = [schema["schema"]]
    elif kind == "union":
        inner = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
    elif kind == "tagged-union":
        inner = list(schema["choices"].values())
    return tuple(dict.fromkeys(cls for part in inner for cls in _classes(part, definitions, seen)))


def _belongs(schema: dict[str, Any], classes: tuple[Any, ...]) -> bool:
    """Whether the function of a schema is a validator method of the only class inside it."""
    function: Any = schema["function"]["function"]
    function = getattr(function, "__func__", function)
    found = [getattr(cls, getattr(function, "__name__", ""), None) for cls in classes]
    return any(getattr(method, "__func__", method) is function for method in found)


def _owner(schema: dict[str, Any]) -> tuple[Any, ...]:
    """The class whose `__get_pydantic_core_schema__` most likely made a schema, as its function makes instances."""
    function: Any = schema["function"]["function"]
    owner = function if isinstance(function, type) else getattr(function, "__self__", None)
    known = isinstance(owner, type) and owner.__module__.partition(".")[0] not in _OWN_TYPES
    return (owner,) if known else ()


# Questions about core schemas


def holds_instances(core: Any) -> bool:
    """Whether a value may hold an instance of a class, whose fields may have changed since its validation."""
    kinds = {*_INSTANCES, "is-instance"}
    return any(part["type"] in kinds or (_runs_function(part) and _owner(part)) for part in _parts(core))


def holds_anything(core: Any) -> bool:
    """Whether a value may hold parts of any type."""
    return any(part["type"] in _ANYTHING for part in _parts(core))


def runs_validators(core: Any) -> bool:
    """Whether reading runs functions of the author, which may change their argument."""
    return any(_runs_function(part) and not is_choice(part) for part in _parts(core))


def _runs_function(schema: dict[str, Any]) -> bool:
    """Whether a schema is a validating function. A serializing one has the same type, and no dict around its function."""
    return schema["type"] in _FUNCTIONS and isinstance(schema["function"], dict)


def has_untyped_serializer(core: Any) -> bool:
    """Whether a serializer has no declared return type, so that the schema may be wrong about it."""
    return any(_is_untyped(part) for part in _parts(core))


def is_changed(core: Any) -> bool:
    """Whether a function of the author may change a value after its limits were checked."""
    return any(
        _runs_function(part) and not is_choice(part) and not _is_of_pydantic(part["function"]["function"])
        for part in _parts(core)
    )


def is_described(core: Any) -> bool:
    """Whether the author describes a part by a JSON Schema of their own, which may be wrong about what is written."""
    return any(map(_has_own_description, _parts(core)))


def _has_own_description(schema: dict[str, Any]) -> bool:
    facts = schema.get("metadata", {})
    functions = [*facts.get("pydantic_js_functions", ()), *facts.get("pydantic_js_annotation_functions", ())]
    return "pydantic_js_extra" in facts or any(
        isinstance(getattr(function, "__self__", None), WithJsonSchema) or not _is_of_pydantic(function)
        for function in functions
    )


def _is_of_pydantic(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] in _OWN_TYPES


def repeats_matter(core: Any) -> bool:
    """Whether repeated names in an object of JSON text may change the result, although the last value counts.

    In an open map, pydantic also reads the earlier values. That matters in unions, where an earlier value may decide the
    branch, for functions of the author, which see all values, and for keys that can be written in several ways.
    """
    parts = list(_parts(core))
    maps = [part for part in parts if _is_map(part)]
    if not maps:
        return False
    return (
        runs_validators(core)
        or any(not _has_plain_keys(part) for part in maps)
        or any(name.startswith("str_") for part in parts for name in part.get("config", ()))
        or any(
            _may_hold_a_map(part)
            for part in parts
            if part["type"] in _FORKS or part.get("on_error", "raise") != "raise"
        )
    )


def _is_map(schema: dict[str, Any]) -> bool:
    return schema["type"] in _MAPS or "extras_schema" in schema


def _has_plain_keys(schema: dict[str, Any]) -> bool:
    return "extras_keys_schema" not in schema and schema.get("keys_schema", _ANY) in _PLAIN_KEYS


def _may_hold_a_map(schema: dict[str, Any]) -> bool:
    return any(_is_map(part) or part["type"] == "definition-ref" for part in _parts(schema))


def keys_may_meet(core: Any) -> bool:
    """Whether different keys of an object may be written alike, like `1` and `"1"`."""
    return any(
        part["type"] in _ANYTHING or "allow" in _extra_behaviors(part) or not _has_distinct_keys(part)
        for part in _parts(core)
    )


def _extra_behaviors(schema: dict[str, Any]) -> tuple[Any, ...]:
    return schema.get("extra_behavior"), schema.get("config", {}).get("extra_fields_behavior")


def _has_distinct_keys(schema: dict[str, Any]) -> bool:
    keys = schema.get("keys_schema", _ANY)
    return schema["type"] not in _MAPS or (keys["type"] in _DISTINCT and "serialization" not in keys)


def is_written_apart(schema: Any) -> bool:
    """Whether different values of a schema are certainly written differently."""
    if is_choice(schema):
        return True
    if "serialization" in schema:
        return False
    if schema["type"] == "nullable":
        return is_written_apart(schema["schema"])
    if schema["type"] == "union":
        choices: list[Any] = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
        return all(choice["type"] in _NATIVE and "serialization" not in choice for choice in choices)
    return schema["type"] in _DISTINCT | _NATIVE


def may_add_keys(core: Any) -> bool:
    """Whether an object may be written with keys that its type does not declare."""
    return any(_is_unsure(part) and any(held["type"] in _WITH_KEYS for held in _parts(part)) for part in _parts(core))


def _is_unsure(schema: dict[str, Any]) -> bool:
    if schema.get("config", {}).get("polymorphic_serialization"):
        return True
    function = schema.get("serialization", {}).get("function")
    return _is_untyped(schema) and not _is_of_pydantic(function)


def _is_untyped(schema: dict[str, Any]) -> bool:
    how = schema.get("serialization", {})
    if how.get("type") == "any":  # `SerializeAsAny`: the type of the value decides how it is written
        return True
    if how.get("type") not in ("function-plain", "function-wrap") or how.get("return_schema", _ANY) != _ANY:
        return False
    return not is_choice(schema)


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside a core schema, and itself."""
    if isinstance(part, dict):
        node = cast("dict[str, Any]", part)
        if _is_schema(node):
            yield node
        for key, value in node.items():
            if not _is_data(node, key):
                yield from _parts(value)
    elif isinstance(part, (list, tuple)):
        for item in cast("list[Any]", part):
            yield from _parts(item)


def _is_data(node: Mapping[str, Any], key: str) -> bool:
    return key in _DATA and _is_schema(node)


def _is_schema(part: Mapping[str, Any]) -> bool:
    """Whether a mapping is a schema, and not a mapping of names to schemas, where a field may be called `type`."""
    return isinstance(part.get("type"), str)


def _is_decoded(schema: dict[str, Any]) -> bool:
    """Whether a function decodes a text, like `Base64Str`, which is encoded again when it is written."""
    return _runs_function(schema) and isinstance(getattr(schema["function"]["function"], "__self__", None), EncodedStr)


def _is_base64(schema: dict[str, Any]) -> bool:
    """Whether a function decodes base64, which our bytes need no more."""
    owner: Any = getattr(schema["function"]["function"], "__self__", None)
    return isinstance(owner, EncodedBytes) and owner.encoder in (Base64Encoder, Base64UrlEncoder)
