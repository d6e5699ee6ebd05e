"""A declaration becomes a plan: its contract, and everything that is needed to run it. Runs nothing of the author's."""

from __future__ import annotations

import copy
import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import typing_extensions
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from prowess.adapters import Adapter, Unusable, record
from prowess.arguments import ArgumentReader
from prowess.content import is_content_type
from prowess.contract import Contract, OutputShape, Policies
from prowess.declaration import Declaration, Place
from prowess.docstrings import Docstring
from prowess.docstrings import parse as parse_docstring
from prowess.errors import InjectionError, LoadError, SchemaError
from prowess.injection import Inject, Injectables, Need, settings_needs
from prowess.jsontypes import Schema
from prowess.normalize import Output
from prowess.schemas.explicit import check_explicit
from prowess.schemas.nulls import is_nullable
from prowess.schemas.walk import visit
from prowess.settings import Settings
from prowess.signature import MISSING, Absent, Parameter, Signature, metadata, read, without_none

__all__ = ["Plan", "compile_command"]

_ANYTHING: Final[Schema] = {"type": "object", "additionalProperties": True}
_NO_VALUE: Final = (MISSING, Any, None, type(None), typing.NoReturn, typing.Never)


@dataclass(frozen=True, slots=True)
class Plan:
    """A command, compiled."""

    declaration: Declaration
    contract: Contract
    signature: Signature
    reader: ArgumentReader
    output: Output
    needs: tuple[Need, ...]
    defaults: Mapping[str, Any]
    positional_only: tuple[str, ...]


def compile_command(
    declared: Declaration, *, skill: str, injectables: Injectables, settings: Settings, root: Path
) -> Plan:
    """The plan of one command; a `LoadError` names the file, the line and what is wrong."""
    try:
        return _Compiler(declared, skill, injectables, settings, root).plan()
    except LoadError as error:
        if error.file is None:
            place = declared.place
            raise type(error)(error.reason, file=place.file, line=place.line) from error
        raise


@dataclass(frozen=True, slots=True)
class _Field:
    """One parameter that a client sends."""

    parameter: Parameter
    annotation: Any
    default: Any
    factory: Callable[[], Any] | None = None

    @property
    def required(self) -> bool:
        return self.default is MISSING and self.factory is None


class _Compiler:
    def __init__(
        self, declared: Declaration, skill: str, injectables: Injectables, settings: Settings, root: Path
    ) -> None:
        self.declared = declared
        self.id = f"{skill}.{declared.name}"
        self.skill = skill
        self.injectables = injectables
        self.settings = settings
        self.root = root
        self.doc: Docstring = parse_docstring(declared.function.__doc__)
        self.signature = read(declared)

    def plan(self) -> Plan:
        needs = self._needs()
        injected = tuple(need.parameter for need in needs)
        fields = [self._field(item) for item in self.signature.parameters if item.name not in injected]
        adapter = self._adapter(fields)
        schema = self._input_schema(adapter, fields)
        shape, output = self._output()
        contract = self._contract(schema, shape, injected)
        reader = ArgumentReader(
            command=self.id,
            adapter=adapter,
            allowed=tuple(field.parameter.name for field in fields),
            injected=injected,
            schema=schema,
            explicit=isinstance(self.declared.input_schema, dict),
            open=self.signature.extra is not MISSING,
            fills_nulls=_has_required_nullable(schema),
            factories={field.parameter.name: field.factory for field in fields if field.factory},
        )
        defaults = {
            field.parameter.name: field.default
            for field in fields
            if not field.required and field.factory is None and not isinstance(field.default, Absent)
        }
        only = tuple(item.name for item in self.signature.parameters if item.positional_only)
        return Plan(self.declared, contract, self.signature, reader, output, needs, defaults, only)

    def _contract(self, schema: Schema, shape: OutputShape, injected: tuple[str, ...]) -> Contract:
        declared = self.declared
        description = declared.description if declared.description is not None else self.doc.text
        return Contract(
            id=self.id,
            wire_name=self._wire_name(),
            skill=self.skill,
            name=declared.name,
            description=description,
            summary=parse_docstring(description).summary if declared.description is not None else self.doc.summary,
            input_schema=schema,
            output=shape,
            category=declared.category,
            title=declared.title,
            hints=declared.hints,
            policies=Policies(
                retry_on=tuple(cls.__qualname__ for cls in declared.retry_on),
                max_attempts=declared.max_attempts,
                cache_ttl=declared.cache_ttl,
                timeout=declared.timeout,
                concurrency=declared.concurrency,
                thread=declared.thread,
            ),
            aliases=tuple(alias.replace("/", ".") for alias in declared.aliases),
            tags=declared.tags,
            icons=declared.icons,
            meta=declared.meta,
            profile=declared.profile,
            input_explicit=declared.input_schema is not None,
            injected=injected,
            source=self._source(),
        )

    def _wire_name(self) -> str:
        own = self.settings.own
        if self.id in own.wire_names:
            return own.wire_names[self.id]
        return self.id if own.names == "dotted" else self.id.replace(".", "_")

    def _source(self) -> str:
        place = self.declared.place
        file = Path(place.file)
        shown = file.relative_to(self.root) if file.is_relative_to(self.root) else file
        return str(Place(shown.as_posix(), place.line))

    # Injected parameters

    def _needs(self) -> tuple[Need, ...]:
        named = self._named_needs()
        needs: list[Need] = []
        for item in self.signature.parameters:
            if item.name in named:
                source, key = named.pop(item.name)
                needs.append(Need(item.name, source, key, item.default))
                continue
            need = self.injectables.need(item.name, item.annotation, item.default, autowire=self.declared.autowire)
            if need is not None:
                needs.append(need)
        for name in named:
            raise InjectionError(f"nothing takes the injected {name!r}: add a parameter of that name, or do not inject")
        return tuple(needs)

    def _named_needs(self) -> dict[str, tuple[typing.Literal["root", "setting"], str]]:
        named: dict[str, tuple[typing.Literal["root", "setting"], str]] = {
            name: ("setting", key) for name, key in settings_needs(self.declared.inject_settings).items()
        }
        if self.declared.inject_root:
            named["project_root"] = ("root", "")
        return named

    # Input

    def _field(self, parameter: Parameter) -> _Field:
        annotation, default, factory = parameter.annotation, parameter.default, None
        infos = [item for item in (default, *metadata(annotation)) if isinstance(item, FieldInfo)]
        if isinstance(default, FieldInfo):
            default = MISSING
        for info in infos:
            if default is MISSING and info.default not in (PydanticUndefined, Ellipsis):
                default = info.default
            factory = factory or info.default_factory
        annotation = _without_defaults(annotation, infos)
        description = _description(annotation, infos) or self.doc.parameters.get(parameter.name)
        if description:
            annotation = Annotated[annotation, FieldInfo(description=description)]
        return _Field(parameter, annotation, default, typing.cast("Callable[[], Any] | None", factory))

    def _adapter(self, fields: list[_Field]) -> Adapter:
        extra = None if self.signature.extra is MISSING else self.signature.extra
        try:
            return Adapter(record(_typed(fields), extra=extra))
        except Unusable as error:
            if self.declared.input_schema is not None:
                return Adapter(record(_typed([_schemable(field) for field in fields]), extra=extra))
            raise self._culprit(fields, error) from error

    def _culprit(self, fields: list[_Field], error: Unusable) -> SchemaError:
        """The parameter that has no schema, found by trying each alone."""
        for field in fields:
            try:
                Adapter(record(_typed([field]))).schema("validation")
            except Unusable as reason:
                kind = without_none(field.parameter.annotation)
                provided = f"; {self.injectables.nobody(kind)}" if isinstance(kind, type) else ""
                return SchemaError(
                    f"parameter {field.parameter.name!r} of {self.id} has no JSON Schema: {reason}{provided}. "
                    "Annotate it with data types, or pass input_schema="
                )
        return SchemaError(f"the parameters of {self.id} have no JSON Schema: {error}. Pass input_schema=")

    def _input_schema(self, adapter: Adapter, fields: list[_Field]) -> Schema:
        given = self.declared.input_schema
        if given == "any":
            return dict(_ANYTHING)
        if given is not None:
            check_explicit(given, what=f"input_schema of {self.id}")
            self._agree(given, fields)
            return given
        try:
            schema = adapter.schema("validation")
        except Unusable as error:
            raise self._culprit(fields, error) from error
        schema.setdefault("properties", {})
        for field in fields:
            _show_default(schema["properties"][field.parameter.name], field.default)
        return schema

    def _agree(self, schema: Schema, fields: list[_Field]) -> None:
        """An explicit schema must offer what the function needs, and nothing that it cannot take."""
        if schema.get("type") != "object":
            raise SchemaError(f"input_schema of {self.id}: the root must be of type 'object'")
        offered = set(schema.get("properties", {}))
        known = {field.parameter.name for field in fields}
        if self.signature.extra is MISSING and offered - known:
            names = ", ".join(sorted(offered - known))
            raise SchemaError(f"input_schema of {self.id} offers {names}, which the function does not take")
        needed = {field.parameter.name for field in fields if field.required}
        if needed - offered and schema.get("additionalProperties") is False:
            names = ", ".join(sorted(needed - offered))
            raise SchemaError(f"input_schema of {self.id} leaves out {names}, which the function needs")

    # Output

    def _output(self) -> tuple[OutputShape, Output]:
        declared, returns = self.declared, self.signature.returns
        given = declared.output_schema
        if given == "any":
            return OutputShape({}, field=declared.output_field), Output(Adapter(Any))
        if given is not None:
            check_explicit(given, what=f"output_schema of {self.id}")
            adapter = None if _is_nothing(returns) else _usable(returns)
            return OutputShape(given, explicit=True, field=declared.output_field), Output(adapter, given)
        pair = _is_pair(returns)
        if pair:
            returns = get_args(returns)[1]
        if _is_nothing(returns) or (not pair and is_content_type(returns)):
            return OutputShape(field=declared.output_field), Output()
        try:
            adapter = Adapter(returns)
            schema = adapter.schema("serialization")
        except Unusable as error:
            reason = f"the return type of {self.id} has no JSON Schema: {error}"
            raise SchemaError(f"{reason}. Annotate it with data types, or pass output= or output_schema=") from error
        shape = OutputShape(schema, field=declared.output_field, type_name=_structure_name(returns))
        return shape, Output(adapter, pair=pair)


def _typed(fields: list[_Field]) -> dict[str, Any]:
    return {
        field.parameter.name: field.annotation if field.required else typing_extensions.NotRequired[field.annotation]
        for field in fields
    }


def _schemable(field: _Field) -> _Field:
    """The field itself, or one that takes anything where its type has no schema and an explicit one vouches for it."""
    return field if _usable(field.annotation) else dataclasses.replace(field, annotation=Any)


def _usable(annotation: Any) -> Adapter | None:
    try:
        adapter = Adapter(annotation)
        adapter.schema("serialization")
    except Unusable:
        return None
    return adapter


def _without_defaults(annotation: Any, infos: list[FieldInfo]) -> Any:
    """The annotation with its `Field(...)` constraints, but without their defaults, which stand in the signature."""
    if get_origin(annotation) is Annotated:
        kept = [item for item in get_args(annotation)[1:] if not isinstance(item, FieldInfo)]
        annotation = get_args(annotation)[0]
        for item in kept:
            annotation = Annotated[annotation, item]
    for info in reversed(infos):
        plain = copy.copy(info)
        plain.default, plain.default_factory = PydanticUndefined, None
        annotation = Annotated[annotation, plain]
    return annotation


def _description(annotation: Any, infos: list[FieldInfo]) -> str | None:
    """What the author wrote beside the type: `Field(description=...)`, a plain text, or `Doc`."""
    written = [info.description for info in infos if info.description]
    for item in metadata(annotation):
        text = item if isinstance(item, str) else getattr(item, "documentation", None)
        if isinstance(text, str):
            written.append(text)
    return written[0] if written else None


def _show_default(schema: Schema, default: Any) -> None:
    if default is MISSING or isinstance(default, (Absent, Inject)):
        return
    if isinstance(default, float) and not math.isfinite(default):
        return
    try:
        schema["default"] = to_jsonable_python(default, by_alias=True, bytes_mode="base64")
    except Exception:  # noqa: BLE001 - a default that is no JSON is simply not shown; the call still uses it
        return


def _has_required_nullable(schema: Schema) -> bool:
    """Whether a profile that strips nulls lets a caller leave out what the canonical schema requires."""
    return any(
        is_nullable(schema, node.get("properties", {}).get(name))
        for _, node in visit(schema)
        for name in node.get("required", ())
    )


def _is_nothing(returns: Any) -> bool:
    return any(returns is nothing for nothing in _NO_VALUE)


def _is_pair(returns: Any) -> bool:
    """A tuple of content and data: the one way to return both."""
    arguments = get_args(returns)
    is_two = get_origin(returns) is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis  # noqa: PLR2004
    return is_two and is_content_type(arguments[0]) and not is_content_type(arguments[1])


def _structure_name(returns: Any) -> str | None:
    kind = without_none(returns)
    kind = get_origin(kind) or kind
    if not isinstance(kind, type):
        return None
    structure = issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or typing_extensions.is_typeddict(kind)
    return kind.__name__ if structure else None
