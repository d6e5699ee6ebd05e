"""Compiles one annotation, to read its values, write them as JSON and describe them. The only module that builds on pydantic.

Pydantic sets some rules per model, such as bytes as UTF-8 and NaN allowed. Clients need the same rules for all models, so
the compiled schema is rebuilt with ours: bytes are base64, NaN is rejected, and iterators are read at once.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal, cast, get_args

import typing_extensions
from pydantic import AliasChoices, BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import (
    PydanticOmit,
    PydanticSerializationError,
    SchemaError,
    SchemaSerializer,
    SchemaValidator,
    to_jsonable_python,
)

from prowess.errors import named_error
from prowess.jsontypes import Json, Schema
from prowess.patterns import lazy_pattern
from prowess.schemas.choices import as_key, described_choice, is_choice, written
from prowess.schemas.core_schemas import (
    WIRE,
    Rebuilder,
    complete,
    failing_fast,
    has_untyped_serializer,
    holds_anything,
    holds_instances,
    is_changed,
    is_described,
    is_written_apart,
    keys_may_meet,
    may_add_keys,
    repeats_matter,
    runs_validators,
    trusting,
    without_functions,
)
from prowess.schemas.explicit import validate
from prowess.schemas.nodes import oneof_as_anyof
from prowess.schemas.quick import quick_check
from prowess.schemas.refs import without
from prowess.schemas.steps import declare_open, prune_titles
from prowess.schemas.unions import loosen_overlapping, require_tags

__all__ = ["Adapter", "Misfit", "Unusable", "as_default", "record", "to_text"]

_CHANGING: Final = (
    *("_past", "_future", "parent_does_not_exist", "path_exists", "path_not_directory", "path_not_file"),
    *("path_not_socket", "path_unusable"),
)
"""Ends of error types that depend on the current time or the disk."""
_DECLARING: Final = frozenset(
    {"dataclass", "dataclass-args", "default", "definitions", "model", "model-fields", "typed-dict"}
)
"""Core schemas of types with declared fields, which allow other fields only if they say so."""
_SCALARS: Final[Mapping[str, type]] = {"bool": bool, "int": int, "str": str}
_ANY: Final = {"type": "any"}
_ENCODED: Final = ("base64", "base64url")
_REWRITTEN: Final = ("password", "uri")
"""Formats of texts that are written in another way: masked, or with the escapes of a URL."""
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_typed_dict: Final[Any] = typing_extensions.TypedDict


class Unusable(Exception):
    """An annotation has no JSON Schema. The message gives the reason in one line."""


class Misfit(ValueError):
    """A written value breaks its schema. `problems` has one line for each place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Adapter:
    """Reads, writes and describes values of one annotation. `names` resolves names in annotations that are strings."""

    def __init__(self, annotation: Any, names: Mapping[str, Any] | None = None) -> None:
        known = dict(names or {})
        try:
            _adopt_typed_dicts(annotation, known)
            core = _core_schema(annotation, known)
            self._core = Rebuilder(lambda cls, name: _field_core(cls, name, known)).rebuild(core)
            self._validator = _validator(complete(self._core))
            self._serializer = SchemaSerializer(self._core, cast("Any", WIRE), _use_prebuilt=False)
            scalar = _SCALARS.get(self._core["type"])
            self._scalar = None if scalar and ("serialization" in self._core or is_described(self._core)) else scalar
            """The type whose values are JSON already, such as `str`; else `None`."""
        except Exception as error:  # an author's own schema method may raise anything
            raise Unusable(_reason(error)) from error

    def read_json(self, text: bytes | str) -> Any:
        """A value from JSON text, with the names of the schema. Raises pydantic's `ValidationError`."""
        return self._validator.validate_json(text, by_alias=True)

    def read_until_first(self, text: bytes) -> Any:
        """A value from JSON text. Raises pydantic's `ValidationError` with the first problem of each array."""
        return self._hasty_reader.validate_json(text, by_alias=True)

    def read(self, value: Any) -> Any:
        """A value from Python objects; instances pass as they are. Raises pydantic's `ValidationError`."""
        return self._reader.validate_python(value, by_alias=True, by_name=True)

    def accept(self, value: Any) -> Any:
        """A returned object as a value of the declared type. Raises pydantic's `ValidationError`.

        Plain data is read. An instance of a declared class is taken as it is: no validator runs on it.
        """
        if self._runs_validators:
            value = _copied(value)  # a validator may change it, and the author's code may still use it
        return self._accepter.validate_python(value, by_alias=True, by_name=True)

    def scalar(self, value: Any) -> Json:
        """A returned scalar of a type whose values are JSON already, such as `str`. `None` if `accept` and `dump` decide."""
        if self._scalar is None:
            return None
        try:
            return self.accept(value)
        except ValidationError:
            return None

    def dump(self, value: Any, fallback: Callable[[Any], Any] | None = None) -> Json:
        """A value of the declared type as JSON data. Raises `Misfit` if the data breaks the schema, or what a serializer raises.

        `fallback` converts objects that pydantic cannot write, where the type allows anything.
        """
        if type(value) is self._scalar:
            return value
        try:
            data = self._serializer.to_python(value, mode="json", by_alias=True, warnings="error", fallback=fallback)
        except PydanticSerializationError as error:
            raise self._misfit(value, error, fallback) from error
        if self._checks_what_is_written:
            self._check(data)
        return data

    def text_of(self, value: Any, fallback: Callable[[Any], Any] | None = None) -> bytes:
        """A value as JSON text, which has all entries, also those of one name."""
        return self._serializer.to_json(value, by_alias=True, warnings="none", fallback=fallback)

    def read_defaults(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """The values as the field types of a record read them, and the names and reasons of those that they refuse.

        Runs no validator of the author.
        """
        validator = _validator(without_functions(self._core))
        try:
            return validator.validate_python(dict(values), by_alias=True, by_name=True), []
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
        named = [(item["loc"][0] if item["loc"] else None, item) for item in problems]
        return {}, [
            (str(name), item["msg"]) for name, item in named if name in values and not item["type"].endswith(_CHANGING)
        ]

    def _check(self, data: Json) -> None:
        if not self._surely_fits(data):
            problems = [*_not_finite(data), *validate(self.schema("serialization"), data, root="result")]
            if problems:
                raise Misfit(problems)

    def _misfit(
        self, value: Any, error: PydanticSerializationError, fallback: Callable[[Any], Any] | None
    ) -> Exception:
        """A readable exception for a pydantic warning about a value of another type."""
        if _UNEXPECTED not in str(error):
            return error
        try:
            self._check(
                self._serializer.to_python(value, mode="json", by_alias=True, warnings="none", fallback=fallback)
            )
        except Misfit as misfit:
            return misfit
        return Misfit([_reworded(line.strip()) for line in str(error).splitlines() if _UNEXPECTED in line])

    @cached_property
    def open(self) -> bool:
        """Whether a value may hold parts of any type."""
        return holds_anything(self._core)

    @cached_property
    def keys_may_meet(self) -> bool:
        """Whether two entries of a value may get the same name in JSON."""
        return keys_may_meet(self._core)

    @cached_property
    def _reader(self) -> SchemaValidator:
        return _validator(trusting(complete(self._core), everywhere=False))

    @cached_property
    def _hasty_reader(self) -> SchemaValidator:
        return _validator(failing_fast(self._core))

    @cached_property
    def _accepter(self) -> SchemaValidator:
        return _validator(trusting(self._core, everywhere=True))

    @cached_property
    def _runs_validators(self) -> bool:
        return runs_validators(self._core)

    @cached_property
    def repeats_matter(self) -> bool:
        """Whether repeated names in an object of JSON text may change the result, although the last value counts."""
        return repeats_matter(self._core)

    @cached_property
    def _checks_what_is_written(self) -> bool:
        questions = (holds_instances, has_untyped_serializer, is_described, is_changed)
        return any(question(self._core) for question in questions)

    @cached_property
    def _surely_fits(self) -> Callable[[Json], bool]:
        return quick_check(self.schema("serialization"))

    def schema(self, mode: Literal["validation", "serialization"]) -> Schema:
        """The canonical JSON Schema: 2020-12, with `$defs`, without titles."""
        try:
            schema = _SchemaWriter().generate(self._core, mode=mode)
        except Exception as error:  # an author's own schema method may raise anything
            raise Unusable(_reason(error)) from error
        if mode == "serialization":
            schema = loosen_overlapping(schema)  # a tag with `exclude=True` is not written
            if may_add_keys(self._core):
                schema = declare_open(schema)
        else:
            schema = require_tags(schema)
        return prune_titles(schema)


def record(fields: dict[str, Any], *, extra: Any = None) -> Any:
    """A TypedDict type for named values. `extra` types all further keys; without it they are refused."""
    open_or_closed: dict[str, Any] = {"closed": True} if extra is None else {"extra_items": extra}
    return _typed_dict("Arguments", fields, **open_or_closed)


def as_default(value: Any, mode: JsonSchemaMode = "validation", notes: Iterable[Any] = ()) -> Json:
    """A default as clients send it, or get it, the same in every process. Raises `PydanticSerializationError` without one.

    `notes` stand beside its type in `Annotated`.
    """
    try:
        data = to_jsonable_python(_shown(_encoded(value, notes), mode), by_alias=True, bytes_mode="base64")
        json.dumps(data, allow_nan=False)
    except Exception as error:  # a property of the author may raise anything
        raise PydanticSerializationError(str(error)) from error
    return data


def _encoded(value: Any, notes: Iterable[Any]) -> Any:
    """A default as clients write it under the notes of its type, such as those of pydantic's `Base64Str`."""
    encode = next((note.encode_str for note in notes if hasattr(note, "encode_str")), None)
    return encode(value) if encode is not None and isinstance(value, str) else value


def _shown(value: Any, mode: JsonSchemaMode) -> Any:
    """A default with the names of its fields that clients use. Serializers of the author are for results."""
    if hasattr(value, "get_secret_value"):
        raise ValueError("a secret is not shown")
    if isinstance(value, enum.Enum):
        return written(value)
    if getattr(value, "__pydantic_root_model__", False):  # importing `RootModel` takes 70 ms
        return _shown(value.root, mode)
    if isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        value = _fields_of(value, mode)
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        return {as_key(name): _shown(held, mode) for name, held in entries.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((as_default(item, mode) for item in cast("Iterable[Any]", value)), key=json.dumps)
    return [_shown(item, mode) for item in cast("Iterable[Any]", value)] if isinstance(value, (list, tuple)) else value


def _fields_of(value: Any, mode: JsonSchemaMode) -> dict[str, Any]:
    """The fields of a model or a dataclass by the names that clients use."""
    infos: Mapping[str, FieldInfo] = getattr(cast("Any", type(value)), "__pydantic_fields__", {})
    names = list(infos)
    if not isinstance(value, BaseModel):
        names = [field.name for field in dataclasses.fields(value) if field.init or mode == "serialization"]
    notes = {name: info.metadata for name, info in infos.items() if mode == "validation"}
    found = {_alias(name, infos.get(name), mode): _encoded(getattr(value, name), notes.get(name, ())) for name in names}
    if isinstance(value, BaseModel):
        computed = type(value).model_computed_fields
        found.update(value.model_extra or {})
        found.update({info.alias or name: getattr(value, name) for name, info in computed.items()})
    return found


def _alias(name: str, info: FieldInfo | None, mode: JsonSchemaMode) -> str:
    alias = None if info is None else info.validation_alias if mode == "validation" else info.serialization_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return next((choice for choice in choices if isinstance(choice, str)), name)


def to_text(value: Json) -> str:
    """JSON text for people and models. Raises `ValueError` for a value that JSON or UTF-8 cannot represent."""
    if type(value) is int:
        return repr(value)  # ten times as fast as the encoder
    text = _encode(value)
    text.encode()  # a lone surrogate must fail this call here, and not the writer later
    return text


class _SchemaWriter(GenerateJsonSchema):
    """Describes bytes as base64, and leaves out defaults and types that JSON cannot represent."""

    def __init__(self) -> None:
        super().__init__(by_alias=True)
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    @property
    def mode(self) -> JsonSchemaMode:
        """The given one. A model may ask for another one, which would not describe what it reads or writes."""
        return self._mode

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ARG002 - a limit counts bytes, not letters of base64
        return {"type": "string", "contentEncoding": "base64url"}

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        try:
            shown = super().generate_inner(schema)
        except PydanticOmit:
            if self.mode == "validation" or "metadata" not in schema:
                raise
            unmarked = cast("Any", {**schema, "metadata": {}})  # a client receives what it need not send
            shown = super().generate_inner(unmarked)
        form = shown.get("format")
        if form in _ENCODED or (form in _REWRITTEN and self.mode == "serialization"):
            shown = without(shown, "maxLength", "minLength", "pattern")  # they apply to what the text stands for
        if self.mode == "serialization" and "properties" in shown and schema["type"] not in _DECLARING:
            return {
                "additionalProperties": True,
                **shown,
            }  # the author's schema may describe only some of the properties
        return shown

    def model_fields_schema(self, schema: Any) -> JsonSchemaValue:
        self._check_names(schema, schema["fields"].items())
        return super().model_fields_schema(schema)

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        self._check_names(schema, schema["fields"].items())
        return super().typed_dict_schema(schema)

    def dataclass_args_schema(self, schema: Any) -> JsonSchemaValue:
        self._check_names(schema, ((field["name"], field) for field in schema["fields"]))
        return super().dataclass_args_schema(schema)

    def _check_names(self, schema: Any, fields: Iterable[tuple[str, Any]]) -> None:
        """Refuse a class that writes two fields under one name."""
        if self.mode == "validation":
            return
        known: dict[str, str] = {}
        written = [
            (field.get("serialization_alias", name), name)
            for name, field in fields
            if not field.get("serialization_exclude")
        ]
        computed = [
            (field.get("alias", field["property_name"]), field["property_name"])
            for field in schema.get("computed_fields", ())
        ]
        for alias, name in [*written, *computed]:
            if known.setdefault(alias, name) != name:
                raise Unusable(
                    f"the fields {known[alias]!r} and {name!r} are both written as {alias!r}; change an alias"
                )

    def typed_dict_field_schema(self, schema: Any) -> JsonSchemaValue:
        return self._shown_field(schema, super().typed_dict_field_schema)

    def model_field_schema(self, schema: Any) -> JsonSchemaValue:
        return self._shown_field(schema, super().model_field_schema)

    def dataclass_field_schema(self, schema: Any) -> JsonSchemaValue:
        return self._shown_field(schema, super().dataclass_field_schema)

    def _shown_field(self, field: Any, write: Callable[[Any], JsonSchemaValue]) -> JsonSchemaValue:
        """The schema of a field. A client must see a field that it has to send."""
        try:
            return write(field)
        except PydanticOmit:
            if self.mode == "validation" and self.field_is_required(field, total=True):
                raise Unusable("SkipJsonSchema hides a value that clients have to send") from None
            raise

    def datetime_schema(self, schema: Any) -> JsonSchemaValue:
        if schema.get("tz_constraint") == "naive":  # the format `date-time` requires a time zone
            return {"type": "string", "description": "a date and time without a time zone, like 2026-01-31T12:00:00"}
        return super().datetime_schema(schema)

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        shown = super().float_schema(schema)
        if self.mode == "serialization":
            shown.pop("multipleOf", None)  # validators divide, and 0.3 / 0.1 is 2.9999999999999996
        return shown

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        shown = super().tagged_union_schema(schema)
        if "discriminator" in shown:
            return shown
        return oneof_as_anyof(shown)  # a function chooses the branch, and a value may fit others as well

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        shown = super().dict_schema(schema)
        for pattern, values in shown.pop("patternProperties", {}).items():  # which allows other keys
            names = {**shown.get("propertyNames", {}), "pattern": pattern}
            shown = {**shown, "propertyNames": names, "additionalProperties": values}
        return shown

    def named_tuple_schema(self, schema: Any) -> JsonSchemaValue:
        """A named tuple, with the names of its items as descriptions, because titles are dropped."""
        shown = super().named_tuple_schema(schema)
        for field, item in zip(schema["fields"], shown.get("prefixItems", ()), strict=True):
            item["description"] = ": ".join([field["name"], *([item["description"]] if "description" in item else [])])
        return shown

    def set_schema(self, schema: Any) -> JsonSchemaValue:
        return self._without_repeats(schema, super().set_schema(schema))

    def frozenset_schema(self, schema: Any) -> JsonSchemaValue:
        return self._without_repeats(schema, super().frozenset_schema(schema))

    def _without_repeats(self, schema: Any, shown: JsonSchemaValue) -> JsonSchemaValue:
        """The schema of a set. Two of its items may be written alike, such as a path and a text."""
        if self.mode == "serialization" and not is_written_apart(schema.get("items_schema", _ANY)):
            del shown["uniqueItems"]
        return shown

    def function_plain_schema(self, schema: Any) -> JsonSchemaValue:
        return described_choice(schema) if is_choice(schema) else super().function_plain_schema(schema)

    def field_is_present(self, field: Any) -> bool:
        """Whether a field is in a schema: for input if `__init__` takes it, for output if it is stored."""
        absent = field.get("init_only") if self.mode == "serialization" else field.get("init") is False
        return not absent and super().field_is_present(field)

    def is_subclass_schema(self, schema: Any) -> JsonSchemaValue:
        return self.handle_invalid_for_json_schema(schema, "a class")

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """A default of an encoded text is shown encoded, as clients send it. For results, pydantic does so itself."""
        inner = schema["schema"]
        inner = inner.get("schema", inner) if inner["type"] == "nullable" else inner
        note = getattr(inner.get("function", {}).get("function"), "__self__", None)
        if self.mode == "validation" and "default" in schema and hasattr(note, "encode_str"):
            schema = {**schema, "default": _encoded(schema["default"], [note])}
        return super().default_schema(schema)

    def encode_default(self, dft: Any) -> Any:
        return as_default(dft, self.mode)


def _core_schema(annotation: Any, names: dict[str, Any]) -> Any:
    adapter = TypeAdapter[Any](annotation)
    if not adapter.pydantic_complete:
        adapter.rebuild(force=True, raise_errors=True, _types_namespace=names)
    return adapter.core_schema


def _field_core(cls: type[Any], name: str, names: dict[str, Any]) -> Any:
    """The core schema of one field of a dataclass; `None` for a type without data, like a lock."""
    try:
        core = _core_schema(_hints(cls, names)[name], names)
        _SchemaWriter().generate(core, mode="serialization")
    except Exception:  # noqa: BLE001 - an author's own schema method may raise anything
        return None
    return core


def _validator(core: Any) -> SchemaValidator:
    return SchemaValidator(core, cast("Any", WIRE), _use_prebuilt=False)


def _copied(value: Any) -> Any:
    """A copy of plain containers; other objects, and containers that hold themselves, stay as they are."""
    try:
        return _copy(value)
    except RecursionError:
        return value


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(held) for key, held in cast("dict[Any, Any]", value).items()}
    if type(value) in (list, tuple):
        return type(value)(_copy(held) for held in value)
    return value


_UNEXPECTED: Final = "PydanticSerializationUnexpectedValue"
_UNLIKE: Final = lazy_pattern(
    rf"{_UNEXPECTED}\(Expected `(?P<type>[^`]*)` - serialized value may not be as expected "
    r"\[(?:field_name='(?P<field>[^']*)', )?input_value=(?P<value>.*), input_type=(?P<kind>.*)\]\)"
)
_OTHER: Final = lazy_pattern(rf"{_UNEXPECTED}\((?P<reason>.*?)(?: - serialized value may not be as expected\.)?\)$")
_NO_CHOICE: Final = lazy_pattern(rf"{_UNEXPECTED}\(Input should be (?P<wanted>.*)\)")


def _reworded(line: str) -> str:
    """A pydantic warning about one value, in the form of our other problems."""
    line = _NO_CHOICE.sub(r"result: expected \g<wanted>", line)
    return _OTHER.sub(r"result: \g<reason>", _UNLIKE.sub(_unlike, line))


def _unlike(match: re.Match[str]) -> str:
    return f"{match['field'] or 'result'}: expected {match['type']}, got {match['value']} (a {match['kind']})"


def _not_finite(data: Any, place: str = "result") -> Iterator[str]:
    """Problems for NaN and infinity, which JSON Schema cannot exclude."""
    if isinstance(data, float) and not math.isfinite(data):
        yield f"{place}: expected a finite number, got {data}"
    elif isinstance(data, dict):
        for name, held in cast("dict[str, Any]", data).items():
            yield from _not_finite(held, f"{place}.{name}")
    elif isinstance(data, list):
        for index, held in enumerate(cast("list[Any]", data)):
            yield from _not_finite(held, f"{place}[{index}]")


_AROUND: Final = lazy_pattern(r'Error building "[\w-]+" validator:|\^+')


def _reason(error: Exception) -> str:
    """An error in one line, without advice that does not help authors of skills."""
    if isinstance(error, SchemaError):  # its first lines name the validators around the one that failed
        lines = [line.strip().removeprefix("SchemaError: ") for line in str(error).splitlines()]
        return " ".join(line for line in lines if not _AROUND.fullmatch(line))
    if isinstance(error, LookupError):  # its message is a bare key
        return named_error(error)
    line = (str(error) or type(error).__name__).splitlines()[0]
    return line.partition(". Set `arbitrary_types_allowed")[0].replace("core_schema.", "").rstrip(".")


def _adopt_typed_dicts(annotation: Any, names: dict[str, Any]) -> None:  # pragma: before 3.12
    """Let pydantic accept `typing.TypedDict` on Python 3.11, where it asks for that of `typing_extensions`.

    This does not reach into pydantic models, which pydantic compiles when they are defined.
    """
    if sys.version_info < (3, 12):  # pragma: no branch - this whole function is for one Python version
        _adopt(annotation, names, set())


def _adopt(annotation: Any, names: dict[str, Any], seen: set[int]) -> None:  # pragma: before 3.12
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


def _has_typed_fields(annotation: Any) -> bool:  # pragma: before 3.12
    if typing_extensions.is_typeddict(annotation) or dataclasses.is_dataclass(annotation):
        return True
    return isinstance(annotation, type) and hasattr(annotation, "_fields")


def _hints(holder: Any, names: dict[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(holder, localns=names, include_extras=True)
    except Exception:  # noqa: BLE001 - pydantic meets the same error and explains it better # pragma: before 3.12
        return {}


def _teach(typed_dict: Any, hints: dict[str, Any]) -> None:  # pragma: before 3.12
    """Make pydantic use a `typing_extensions` copy of a `typing.TypedDict`.

    There is one copy of each, so that a recursive TypedDict ends at a class that is known already.
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
            raise TypeError("import a generic TypedDict from typing_extensions before Python 3.12")
        return handler.generate_schema(twin)

    typed_dict.__get_pydantic_core_schema__ = schema


def _optional(hint: Any) -> Any:  # pragma: before 3.12
    """The hint of an optional key, unless the hint itself says `Required` or `NotRequired`."""
    qualified = typing.get_origin(hint) in (typing_extensions.Required, typing_extensions.NotRequired)
    return hint if qualified else typing_extensions.NotRequired[hint]
