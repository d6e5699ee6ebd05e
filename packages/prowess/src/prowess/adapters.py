"""One annotation, compiled: reads values of it, writes them as JSON, describes them. The one place that builds on pydantic.

Pydantic settles some things per model (bytes as UTF-8, NaN allowed). A wire wants one answer for all of them, so the
compiled schema is rebuilt with ours: bytes are base64, NaN is refused, and nothing is read later than it came.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast, get_args

import typing_extensions
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic.types import Base64Encoder, Base64UrlEncoder, EncodedBytes
from pydantic_core import (
    CoreSchema,
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
    core_schema,
    to_jsonable_python,
)

from prowess.jsontypes import Json, Schema
from prowess.schemas.steps import prune_titles

__all__ = ["Adapter", "Unusable", "as_default", "record", "to_text"]

_CONFIG: Final[dict[str, Any]] = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "constants",
    "allow_inf_nan": False,
}
_CHECKED: Final[dict[str, Any]] = {**_CONFIG, "revalidate_instances": "always"}
_CLASSES: Final = frozenset({"dataclass", "model", "typed-dict"})
_DATA: Final = frozenset({"default", "metadata"})
"""Keys of a core schema that hold the author's values: what looks like a schema there is none."""
_ANY: Final = {"type": "any"}
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_typed_dict: Final[Any] = typing_extensions.TypedDict


class Unusable(Exception):
    """An annotation has no JSON Schema. The message says why, in one line."""


class Adapter:
    """Reads, writes and describes values of one annotation. `names` are those that its own texts may mean."""

    __slots__ = ("_checker", "_core", "_holds_instances", "_serializer", "_validator", "unsure")

    def __init__(self, annotation: Any, names: Mapping[str, Any] | None = None) -> None:
        try:
            _adopt_typed_dicts(annotation, dict(names or {}))
            core = _core_schema(annotation, dict(names or {}))
            self._core: CoreSchema = _rebuilt(core, _CONFIG)
            self._validator = SchemaValidator(self._core, cast("Any", _CONFIG), _use_prebuilt=False)
            self._serializer = SchemaSerializer(self._core, cast("Any", _CONFIG), _use_prebuilt=False)
        except Exception as error:  # an author's own schema method may raise anything
            raise Unusable(_reason(error)) from error
        parts = list(_parts(self._core))
        self._holds_instances = any(part["type"] in ("dataclass", "model") for part in parts)
        self._checker: SchemaValidator | None = None
        self.unsure = any(_writes_what_it_likes(part) for part in parts)
        """Whether a serializer of the author does not say what it returns, so that the schema may be wrong about it."""

    def read_json(self, text: bytes | str) -> Any:
        """A value from JSON text. Raises pydantic's `ValidationError`."""
        return self._validator.validate_json(text)

    def read(self, value: Any) -> Any:
        """A value from Python objects; instances pass as they are. Raises pydantic's `ValidationError`."""
        return self._validator.validate_python(value, by_alias=True, by_name=True)

    def dump(self, value: Any) -> Json:
        """The value as JSON data that keeps the schema; a `ValidationError` or another exception where it cannot.

        Instances are looked into: one that was changed, or made without validation, may hold anything.
        """
        if self._holds_instances:
            self._check(value)
        return self._serializer.to_python(value, mode="json", by_alias=True, warnings="error")

    def _check(self, value: Any) -> None:
        if self._checker is None:
            self._checker = SchemaValidator(_rebuilt(self._core, _CHECKED), cast("Any", _CHECKED), _use_prebuilt=False)
        try:
            self._checker.validate_python(value, by_alias=True, by_name=True)
        except ValidationError:
            raise
        except Exception:  # noqa: BLE001 - a validator that only knows raw input has no say over what it made of it
            return

    def schema(self, mode: Literal["validation", "serialization"]) -> Schema:
        """The canonical JSON Schema: 2020-12, with `$defs`, without titles."""
        try:
            schema = _SchemaWriter().generate(self._core, mode=mode)
        except Exception as error:  # an author's own schema method may raise anything
            raise Unusable(_reason(error)) from error
        return prune_titles(schema)


def record(fields: dict[str, Any], *, extra: Any = None) -> Any:
    """A TypedDict type for named values. `extra` types all further keys; without it they are refused."""
    open_or_closed: dict[str, Any] = {"closed": True} if extra is None else {"extra_items": extra}
    return _typed_dict("Arguments", fields, **open_or_closed)


def as_default(value: Any) -> Json:
    """A default as a schema shows it, the same in every process; raises `PydanticSerializationError` if it is no JSON."""
    try:
        data: Any = to_jsonable_python(value, by_alias=True, bytes_mode="base64")
        json.dumps(data, allow_nan=False)
    except Exception as error:  # an author's serializer may raise anything
        raise PydanticSerializationError(str(error)) from error
    return sorted(data, key=json.dumps) if isinstance(value, (set, frozenset)) else data


def to_text(value: Json) -> str:
    """JSON text for people and models; raises `ValueError` for what JSON or UTF-8 cannot hold."""
    text = _encode(value)
    text.encode()  # a lone surrogate must fail here, where one call is at stake, and not in the writer
    return text


class _SchemaWriter(GenerateJsonSchema):
    """Describes bytes as what they are on the wire, and says nothing of what no JSON can be."""

    def __init__(self) -> None:
        super().__init__(by_alias=True)
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ARG002 - a limit counts bytes, not letters of base64
        return {"type": "string", "contentEncoding": "base64url"}

    def is_subclass_schema(self, schema: Any) -> JsonSchemaValue:
        return self.handle_invalid_for_json_schema(schema, "a class")

    def encode_default(self, dft: Any) -> Any:
        return as_default(dft)


def _core_schema(annotation: Any, names: dict[str, Any]) -> Any:
    adapter = TypeAdapter[Any](annotation)
    if not adapter.pydantic_complete:
        adapter.rebuild(force=True, raise_errors=True, _types_namespace=names)
    return adapter.core_schema


def _rebuilt(part: Any, config: dict[str, Any]) -> Any:
    """A copy of a core schema in which every class is configured like a wire wants it."""
    if isinstance(part, Mapping):  # where a model puts off its schema, it is a mapping that makes it now
        node = {**cast("Mapping[str, Any]", part)}
        if _is_schema(node):
            return _rebuilt_schema(node, config)
        return {name: _rebuilt(held, config) for name, held in node.items()}
    if type(part) in (list, tuple):
        return type(part)(_rebuilt(item, config) for item in part)
    return part


def _rebuilt_schema(schema: dict[str, Any], config: dict[str, Any]) -> Any:
    kind, check = schema["type"], config is _CHECKED
    if kind == "literal":
        return _literal(schema)
    if (kind == "json" and check and "schema" in schema) or (kind == "function-after" and _is_base64(schema)):
        return _rebuilt(schema["schema"], config)
    copied = {key: value if key in _DATA else _rebuilt(value, config) for key, value in schema.items()}
    if kind == "generator":  # pydantic would read its items one by one, in the midst of the command
        copied["type"] = "list"
    elif kind == "tagged-union":
        values = {tag.value: choice for tag, choice in copied["choices"].items() if isinstance(tag, enum.Enum)}
        copied["choices"] = {**values, **copied["choices"]}
    elif kind in _CLASSES:
        copied["config"] = {**copied.get("config", {}), **config}
    return copied


def _literal(schema: dict[str, Any]) -> Any:
    """Members of an enum are sent by their value; pydantic only knows them as themselves."""
    members = [item for item in schema["expected"] if isinstance(item, enum.Enum)]
    others = [item for item in schema["expected"] if not isinstance(item, enum.Enum)]
    if not members:
        return schema
    kinds = dict.fromkeys(type(member) for member in members)
    choices: list[Any] = [
        core_schema.enum_schema(kind, [item for item in members if type(item) is kind]) for kind in kinds
    ]
    return core_schema.union_schema([*choices, core_schema.literal_schema(others)] if others else choices)


def _is_schema(part: Mapping[str, Any]) -> bool:
    """Whether a mapping is a schema itself, and not one of names to schemas, where a field may be called `type`."""
    return isinstance(part.get("type"), str)


def _is_base64(schema: dict[str, Any]) -> bool:
    """Whether a function decodes bytes from base64, as ours are already."""
    owner: Any = getattr(schema["function"]["function"], "__self__", None)
    return isinstance(owner, EncodedBytes) and owner.encoder in (Base64Encoder, Base64UrlEncoder)


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside a core schema, and itself."""
    if isinstance(part, dict):
        node = cast("dict[str, Any]", part)
        if _is_schema(node):
            yield node
        for key, value in node.items():
            if not (_is_schema(node) and key in _DATA):
                yield from _parts(value)
    elif isinstance(part, (list, tuple)):
        for item in cast("list[Any]", part):
            yield from _parts(item)


def _writes_what_it_likes(schema: dict[str, Any]) -> bool:
    how = schema.get("serialization", {})
    if how.get("type") not in ("function-plain", "function-wrap") or how.get("return_schema", _ANY) != _ANY:
        return False
    return not str(getattr(how["function"], "__module__", "")).startswith("pydantic")


def _reason(error: Exception) -> str:
    """The first line of an error, without advice that is not for authors of skills."""
    line = (str(error) or type(error).__name__).splitlines()[0]
    return line.partition(". Set `arbitrary_types_allowed")[0].replace("core_schema.", "").rstrip(".")


def _adopt_typed_dicts(annotation: Any, names: dict[str, Any]) -> None:
    """Let pydantic accept `typing.TypedDict` on Python 3.11, which it refuses in favour of `typing_extensions`.

    It cannot be helped inside a pydantic model, which pydantic compiles when it is defined.
    """
    if sys.version_info < (3, 12):  # pragma: no branch - this whole function is for one Python version
        _adopt(annotation, names, set())


def _adopt(annotation: Any, names: dict[str, Any], seen: set[int]) -> None:
    for item in get_args(annotation):
        _adopt(item, names, seen)
    if id(annotation) in seen or not _has_typed_fields(annotation):
        return
    seen.add(id(annotation))
    hints = _hints(annotation, names)
    for hint in hints.values():
        _adopt(hint, names, seen)
    if hints and typing.is_typeddict(annotation):
        _teach(annotation, hints)


def _has_typed_fields(annotation: Any) -> bool:
    if typing_extensions.is_typeddict(annotation) or dataclasses.is_dataclass(annotation):
        return True
    return isinstance(annotation, type) and hasattr(annotation, "_fields")


def _hints(holder: Any, names: dict[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(holder, localns=names, include_extras=True)
    except Exception:  # noqa: BLE001 - pydantic finds the same and says it better
        return {}


def _teach(typed_dict: Any, hints: dict[str, Any]) -> None:
    """Hand pydantic the twin that `typing_extensions` makes of a `typing.TypedDict`.

    One twin for ever: a recursive TypedDict must meet the same class again, or it would be unrolled without end.
    """
    if "__get_pydantic_core_schema__" in vars(typed_dict):
        return
    optional = hints.keys() - typed_dict.__required_keys__
    fields = {name: _optional(hint) if name in optional else hint for name, hint in hints.items()}
    twin = _typed_dict(typed_dict.__name__, fields)
    for name in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
        if hasattr(typed_dict, name):
            setattr(twin, name, getattr(typed_dict, name))

    def schema(source: Any, handler: Any) -> Any:
        if source is not typed_dict:
            raise TypeError("a generic TypedDict has to come from typing_extensions before Python 3.12")
        return handler.generate_schema(twin)

    typed_dict.__get_pydantic_core_schema__ = schema


def _optional(hint: Any) -> Any:
    """A hint of a key that may be missing, unless it says for itself whether it may."""
    qualified = typing.get_origin(hint) in (typing_extensions.Required, typing_extensions.NotRequired)
    return hint if qualified else typing_extensions.NotRequired[hint]
