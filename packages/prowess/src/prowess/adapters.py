"""One annotation, compiled: reads values of it, writes them as JSON, describes them. The one place that builds on pydantic.

Pydantic settles some things per model (bytes as UTF-8, NaN allowed, instances trusted). A wire wants one answer for all
of them, so the compiled schema is rebuilt with ours: bytes are base64, NaN is refused, instances are checked again.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import typing
from typing import Any, Final, Literal, cast, get_args

import typing_extensions
from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, SchemaSerializer, SchemaValidator

from prowess.jsontypes import Json, Schema
from prowess.schemas.steps import prune_titles

__all__ = ["Adapter", "Unusable", "record", "to_text"]

_CONFIG: Final[dict[str, Any]] = {
    "revalidate_instances": "always",
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "constants",
    "allow_inf_nan": False,
}
_CONFIGURED: Final = frozenset({"model", "dataclass", "typed-dict"})


class Unusable(Exception):  # noqa: N818 - a reason to be wrapped by whoever knows the parameter and the place
    """An annotation has no JSON Schema. The message says why, in one line."""


class Adapter:
    """Reads, writes and describes values of one annotation."""

    __slots__ = ("_core", "_serializer", "_validator")

    def __init__(self, annotation: Any) -> None:
        _adopt_typed_dicts(annotation)
        try:
            core: Any = TypeAdapter[Any](annotation).core_schema
        except (PydanticUserError, TypeError, NameError, AttributeError) as error:
            raise Unusable(_first_line(error)) from error
        self._core: CoreSchema = _rebuilt(core)
        self._validator = SchemaValidator(self._core, cast("Any", _CONFIG), _use_prebuilt=False)
        self._serializer = SchemaSerializer(self._core, cast("Any", _CONFIG), _use_prebuilt=False)

    def read_json(self, text: bytes | str) -> Any:
        """A value from JSON text. Raises pydantic's `ValidationError`."""
        return self._validator.validate_json(text)

    def read(self, value: Any) -> Any:
        """A value from Python objects, model instances included. Raises pydantic's `ValidationError`."""
        return self._validator.validate_python(value, by_alias=True, by_name=True)

    def dump(self, value: Any) -> Json:
        """The value as JSON data, by the declared type."""
        return self._serializer.to_python(value, mode="json", by_alias=True)

    def schema(self, mode: Literal["validation", "serialization"]) -> Schema:
        """The canonical JSON Schema: 2020-12, with `$defs`, without titles."""
        try:
            schema = _SchemaWriter(by_alias=True).generate(self._core, mode=mode)
        except PydanticInvalidForJsonSchema as error:
            raise Unusable(_first_line(error)) from error
        return prune_titles(schema)


def record(fields: dict[str, Any], *, extra: Any = None) -> Any:
    """A TypedDict type for named values. `extra` types all further keys; without it they are refused."""
    if extra is not None:
        return typing_extensions.TypedDict("Arguments", fields, extra_items=extra)  # pyright: ignore
    built: Any = typing_extensions.TypedDict("Arguments", fields)  # pyright: ignore
    built.__pydantic_config__ = ConfigDict(extra="forbid")
    return built


def to_text(value: Json) -> str:
    """JSON text for people and models; raises `ValueError` for what JSON or UTF-8 cannot hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()  # a lone surrogate must fail here, where one call is at stake, and not in the writer
    return text


class _SchemaWriter(GenerateJsonSchema):
    """Describes bytes as what they are on the wire, and says nothing of defaults that are no JSON."""

    ignored_warning_kinds: typing.ClassVar = {"skipped-choice", "non-serializable-default"}

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        described: JsonSchemaValue = {"type": "string", "contentEncoding": "base64url"}
        self.update_with_validations(described, schema, {})
        return described


def _rebuilt(part: Any) -> Any:
    """A copy of a core schema in which every class is configured like a wire wants it."""
    if isinstance(part, dict):
        copied: dict[Any, Any] = {key: _rebuilt(value) for key, value in cast("dict[Any, Any]", part).items()}
        if copied.get("type") in _CONFIGURED and "schema" in copied or copied.get("type") == "typed-dict":
            copied["config"] = {**copied.get("config", {}), **_CONFIG}
            if "revalidate_instances" in copied:
                copied["revalidate_instances"] = "always"
        return copied
    if type(part) is list or type(part) is tuple:
        items = [_rebuilt(item) for item in cast("list[Any]", part)]
        return items if type(part) is list else tuple(items)
    return part


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def _adopt_typed_dicts(annotation: Any) -> None:
    """Let pydantic accept `typing.TypedDict` on Python 3.11, which it refuses in favour of `typing_extensions`."""
    if sys.version_info < (3, 12):  # pragma: no branch - this whole function is for one Python version
        _adopt(annotation, set())


def _adopt(annotation: Any, seen: set[int]) -> None:
    for item in get_args(annotation):
        _adopt(item, seen)
    if not isinstance(annotation, type) or id(annotation) in seen:
        return
    seen.add(id(annotation))
    typed_dict = type(annotation).__name__ == "_TypedDictMeta" and type(annotation).__module__ == "typing"
    if not (typed_dict or dataclasses.is_dataclass(annotation)):
        return
    hints = _hints(annotation)
    for hint in hints.values():
        _adopt(hint, seen)
    if typed_dict and "__get_pydantic_core_schema__" not in vars(annotation):
        _teach(annotation, hints)


def _hints(holder: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(holder, include_extras=True)
    except (NameError, TypeError):  # pydantic finds the same and says it better
        return {}


def _teach(typed_dict: Any, hints: dict[str, Any]) -> None:
    """Hand pydantic the twin that `typing_extensions` makes of a `typing.TypedDict`."""
    required: frozenset[str] = typed_dict.__required_keys__
    fields = {name: hint if name in required else typing_extensions.NotRequired[hint] for name, hint in hints.items()}
    twin: Any = typing_extensions.TypedDict(typed_dict.__name__, fields)  # pyright: ignore
    twin.__module__, twin.__doc__ = typed_dict.__module__, typed_dict.__doc__
    config = getattr(typed_dict, "__pydantic_config__", None)
    if config is not None:
        twin.__pydantic_config__ = config
    # One twin for ever: a recursive TypedDict must meet the same class again, or it would be unrolled without end.
    typed_dict.__get_pydantic_core_schema__ = lambda _source, handler: handler.generate_schema(twin)  # pyright: ignore
