"""A declaration becomes a plan: its contract, and everything that is needed to run it. Runs nothing of the author's."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import typing_extensions
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError

from prowess.adapters import Adapter, Unusable, as_default, record
from prowess.arguments import ArgumentReader
from prowess.content import is_content_type
from prowess.contract import Contract, OutputShape, Policies
from prowess.declaration import Declaration, Place
from prowess.docstrings import Docstring
from prowess.docstrings import parse as parse_docstring
from prowess.errors import InjectionError, LoadError, SchemaError
from prowess.injection import Injectables, Need, settings_needs
from prowess.jsontypes import Schema
from prowess.normalize import Output
from prowess.schemas.explicit import check_explicit
from prowess.schemas.nulls import is_nullable
from prowess.schemas.walk import visit
from prowess.settings import Settings
from prowess.signature import ABSENT, MISSING, Parameter, Signature, metadata, read, without_none

__all__ = ["Plan", "compile_command"]

_ANYTHING: Final[Schema] = {"type": "object", "additionalProperties": True}
_COMPOSITION: Final = frozenset({"$ref", "allOf", "anyOf", "dependentRequired", "if", "oneOf"})
"""Keywords by which a schema may require a property elsewhere than in `required`."""
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
    positional: tuple[str, ...]
    """Parameters that a Python caller may pass by position."""
    positional_only: tuple[str, ...]
    """Parameters that the function takes by position only."""


def compile_command(
    declared: Declaration,
    *,
    skill: str,
    injectables: Injectables,
    settings: Settings,
    root: Path,
    rendered: bool = False,
) -> Plan:
    """The plan of one command; a `LoadError` names the file, the line and what is wrong.

    `rendered` says that a plugin may know what to make of a result whose type has no schema.
    """
    try:
        return _Compiler(declared, skill, injectables, settings, root, rendered=rendered).plan()
    except LoadError as error:
        if error.file is None:
            place = declared.place
            raise type(error)(error.reason, file=place.file, line=place.line) from error
        raise


@dataclass(frozen=True, slots=True)
class _Field:
    """One parameter that a client sends: under its own name, or under an alias."""

    name: str
    sent_as: str
    annotation: Any
    default: Any
    """The default of the signature; `MISSING` where there is none, `ABSENT` where pydantic fills it in, or nobody does."""

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def has_plain_default(self) -> bool:
        return self.default is not MISSING and self.default is not ABSENT


class _Compiler:
    def __init__(
        self,
        declared: Declaration,
        skill: str,
        injectables: Injectables,
        settings: Settings,
        root: Path,
        *,
        rendered: bool,
    ) -> None:
        self.declared = declared
        self.id = f"{skill}.{declared.name}"
        self.skill = skill
        self.injectables = injectables
        self.settings = settings
        self.root = root
        self.rendered = rendered
        self.doc: Docstring = parse_docstring(declared.function.__doc__)
        self.signature = read(declared)

    def plan(self) -> Plan:
        needs = self._needs()
        injected = tuple(need.parameter for need in needs)
        fields = [self._field(item) for item in self.signature.parameters if item.name not in injected]
        self._check_aliases(fields)
        adapter = self._adapter(fields)
        schema = self._input_schema(adapter, fields, injected)
        shape, output = self._output()
        contract = self._contract(schema, shape, injected)
        defaults = {field.name: field.default for field in fields if field.has_plain_default}
        only = self.signature.positional_only
        reader = ArgumentReader(
            command=self.id,
            adapter=adapter,
            allowed=tuple(field.sent_as for field in fields),
            injected=injected,
            renamed=tuple(field.name for field in fields if field.name != field.sent_as),
            schema=schema,
            explicit=isinstance(self.declared.input_schema, dict),
            open=self.signature.extra is not MISSING,
            fills_nulls=_has_required_nullable(schema),
            gaps={name: defaults[name] for name in only if name in defaults},
        )
        return Plan(
            self.declared, contract, self.signature, reader, output, needs, defaults, self.signature.positional, only
        )

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
                needs.append(Need(item.name, source, key, item.default, self._reader_of(source, item.annotation)))
                continue
            need = self.injectables.need(item.name, item.annotation, item.default, autowire=self.declared.autowire)
            if need is not None:
                needs.append(need)
        for name in named:
            raise InjectionError(f"nothing takes the injected {name!r}: add a parameter of that name, or do not inject")
        return tuple(needs)

    def _reader_of(self, source: str, annotation: Any) -> Callable[[Any], Any] | None:
        """What makes a setting a value of the annotation, where the annotation has a schema."""
        if source != "setting" or annotation is Any:
            return None
        adapter = self._usable(annotation, "validation")
        return adapter.read if adapter is not None else None

    def _named_needs(self) -> dict[str, tuple[typing.Literal["root", "setting"], str]]:
        named: dict[str, tuple[typing.Literal["root", "setting"], str]] = {
            name: ("setting", key) for name, key in settings_needs(self.declared.inject_settings).items()
        }
        if self.declared.inject_root:
            named["project_root"] = ("root", "")
        return named

    # Input

    def _field(self, parameter: Parameter) -> _Field:
        annotation, default = parameter.annotation, parameter.default
        infos = [item for item in _beside(annotation) if isinstance(item, FieldInfo)]
        filled = any(not info.is_required() for info in infos)
        if isinstance(default, FieldInfo):
            infos.append(default)
            annotation = Annotated[annotation, default]
            default = MISSING if default.is_required() and not filled else ABSENT
        elif filled and default is MISSING:
            default = ABSENT
        elif filled:  # the default of the signature wins
            annotation = Annotated[annotation, Field(default=default)]
        description = _description(annotation, infos) or self.doc.parameters.get(parameter.name)
        if description:
            annotation = Annotated[annotation, Field(description=description)]
        return _Field(parameter.name, self._sent_as(parameter.name, infos), annotation, default)

    def _sent_as(self, name: str, infos: list[FieldInfo]) -> str:
        for info in reversed(infos):
            alias = info.validation_alias or info.alias
            if alias is not None and not isinstance(alias, str):
                raise SchemaError(f"parameter {name!r} of {self.id}: an alias must be a plain text, not {alias!r}")
            if alias:
                return alias
        return name

    def _check_aliases(self, fields: list[_Field]) -> None:
        sent = [field.sent_as for field in fields]
        for field in fields:
            if sent.count(field.sent_as) > 1:
                raise SchemaError(f"two parameters of {self.id} are called {field.sent_as!r}: change the alias of one")

    def _adapter(self, fields: list[_Field]) -> Adapter:
        if self.declared.input_schema is not None:
            fields = [self._schemable(field) for field in fields]
        try:
            return self._record(fields, self.signature.extra)
        except Unusable as error:
            raise self._culprit(fields, error) from error

    def _record(self, fields: list[_Field], extra: Any = MISSING) -> Adapter:
        typed = {
            field.name: field.annotation if field.required else typing_extensions.NotRequired[field.annotation]
            for field in fields
        }
        return Adapter(record(typed, extra=None if extra is MISSING else extra), self.signature.names)

    def _schemable(self, field: _Field) -> _Field:
        """The field itself, or one that takes anything where its type has no schema and an explicit one vouches for it."""
        usable = self._usable(field.annotation, "validation")
        return field if usable else dataclasses.replace(field, annotation=Any)

    def _usable(self, annotation: Any, mode: typing.Literal["validation", "serialization"]) -> Adapter | None:
        try:
            adapter = Adapter(annotation, self.signature.names)
            adapter.schema(mode)
        except Unusable:
            return None
        return adapter

    def _culprit(self, fields: list[_Field], error: Unusable) -> SchemaError:
        """The parameter that has no schema, found by trying each alone."""
        for field in fields:
            try:
                self._record([field]).schema("validation")
            except Unusable as reason:
                nobody = f"; {self.injectables.nobody(kind)}" if (kind := _foreign(field.annotation)) else ""
                return SchemaError(
                    f"parameter {field.name!r} of {self.id} has no JSON Schema: {reason}{nobody}. "
                    "Annotate it with data types, or pass input_schema="
                )
        return SchemaError(f"the **keywords of {self.id} have no JSON Schema: {error}. Pass input_schema=")

    def _input_schema(self, adapter: Adapter, fields: list[_Field], injected: tuple[str, ...]) -> Schema:
        given = self.declared.input_schema
        if given == "any":
            return dict(_ANYTHING)
        if given is not None:
            check_explicit(given, what=f"input_schema of {self.id}")
            for problem in self._disagreements(given, fields, injected):
                raise SchemaError(f"input_schema of {self.id} {problem}")
            return given
        try:
            schema = adapter.schema("validation")
        except Unusable as error:
            raise self._culprit(fields, error) from error
        schema.setdefault("properties", {})
        for field in fields:
            if field.has_plain_default:
                _show_default(schema["properties"][field.sent_as], field.default)
        return schema

    def _disagreements(self, schema: Schema, fields: list[_Field], injected: tuple[str, ...]) -> Iterator[str]:
        """An explicit schema must offer what the function needs, and nothing that it cannot take."""
        if schema.get("type") != "object":
            yield "must be of type 'object' at its root"
        offered, required = set(schema.get("properties", {})), set(schema.get("required", ()))
        known = {field.sent_as for field in fields}
        foreign = offered & set(injected) if self.signature.extra is not MISSING else offered - known
        if foreign - known:
            yield f"offers {_listed(foreign)}, which a client cannot send"
        needed = {field.sent_as for field in fields if field.required}
        if needed - offered and schema.get("additionalProperties") is False:
            yield f"leaves out {_listed(needed - offered)}, which the function needs"
        optional = (needed & offered) - required
        if optional and _COMPOSITION.isdisjoint(schema):
            yield f"does not require {_listed(optional)}, which the function needs"

    # Output

    def _output(self) -> tuple[OutputShape, Output]:
        declared, returns = self.declared, self.signature.returns
        given = declared.output_schema
        if given == "any":
            return OutputShape({}, field=declared.output_field), Output(Adapter(Any))
        if given is not None:
            check_explicit(given, what=f"output_schema of {self.id}")
            adapter = None if _is_nothing(returns) else self._usable(returns, "serialization")
            return OutputShape(given, explicit=True, field=declared.output_field), Output(adapter, given)
        pair = _is_pair(returns)
        if pair:
            returns = get_args(returns)[1]
        if _is_nothing(returns) or (not pair and is_content_type(returns)):
            return OutputShape(field=declared.output_field), Output()
        try:
            adapter = Adapter(returns, self.signature.names)
            schema = adapter.schema("serialization")
        except Unusable as error:
            if self.rendered and not pair:
                return OutputShape(field=declared.output_field), Output()
            reason = f"the return type of {self.id} has no JSON Schema: {error}"
            raise SchemaError(f"{reason}. Annotate it with data types, or pass output= or output_schema=") from error
        shape = OutputShape(schema, field=declared.output_field, type_name=_structure_name(returns))
        return shape, Output(adapter, schema if adapter.unsure else None, pair=pair)


def _beside(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _description(annotation: Any, infos: list[FieldInfo]) -> str | None:
    """What the author wrote beside the type: `Field(description=...)`, a plain text, or `Doc`."""
    for info in reversed(infos):
        if info.description:
            return info.description
    for item in metadata(annotation):
        text = item if isinstance(item, str) else getattr(item, "documentation", getattr(item, "description", None))
        if isinstance(text, str):
            return text
    return None


def _foreign(annotation: Any) -> Any:
    """A class of the author's that is no data: one that might have been meant to be injected."""
    kind = without_none(annotation)
    known = not isinstance(kind, type) or kind.__module__ == "builtins" or _is_structure(kind)
    return None if known else kind


def _is_structure(kind: Any) -> bool:
    return issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or typing_extensions.is_typeddict(kind)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _show_default(schema: Schema, default: Any) -> None:
    with contextlib.suppress(PydanticSerializationError):  # what is no JSON is not shown; the call still uses it
        schema["default"] = as_default(default)


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
    is_two = get_origin(returns) is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis
    return is_two and is_content_type(arguments[0]) and not is_content_type(arguments[1])


def _structure_name(returns: Any) -> str | None:
    kind: Any = without_none(returns)
    kind = get_origin(kind) or kind
    return kind.__name__.partition("[")[0] if isinstance(kind, type) and _is_structure(kind) else None
