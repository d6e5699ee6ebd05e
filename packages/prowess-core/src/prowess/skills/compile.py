"""Compiles a declaration to a plan: the contract, and everything needed to run the command. Runs no code of the author."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from enum import Enum
from functools import partial
from numbers import Number
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, cast, get_args, get_origin

import typing_extensions
from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, PydanticUndefined

from prowess.calls.arguments import ArgumentReader
from prowess.contracts.contract import TOOL, Contract, OutputShape, Policies
from prowess.contracts.declaration import Declaration, InjectedSetting, Location, is_async, parse_injected
from prowess.contracts.docstrings import Docstring
from prowess.contracts.docstrings import parse as parse_docstring
from prowess.contracts.kinds import COMPLETION, PROMPT, RESOURCE
from prowess.contracts.returns import returns_line
from prowess.contracts.signature import ABSENT, MISSING, Parameter, Signature, metadata, read, without_none
from prowess.contracts.uris import parse_template
from prowess.errors import InjectionError, LoadError, SchemaError, did_you_mean, message_of, named_error
from prowess.frozen import frozen
from prowess.injection.injectables import Injectables
from prowess.injection.recipes import Need
from prowess.jsontypes import Schema
from prowess.results.normalize import Output
from prowess.schemas.adapters import Adapter, Unusable, as_default, record
from prowess.schemas.explicit import check_explicit, validate
from prowess.schemas.nulls import is_nullable
from prowess.schemas.possible import Impossible
from prowess.schemas.quick import quick_check
from prowess.schemas.refs import resolve
from prowess.schemas.walk import visit
from prowess.settings.settings import Settings
from prowess.skills.output_type import adapter_of, compile_output, is_structure

__all__ = ["Plan", "compile_command"]

_ANYTHING: Final[Schema] = {"type": "object", "additionalProperties": True}
_COMPOSITION: Final = frozenset({"$ref", "allOf", "anyOf", "dependentRequired", "if", "oneOf"})
"""Keywords with which a schema may require properties besides `required`."""
_CONTEXTS: Final = ("ctx", "context")
"""The usual names for the context of a call."""
_PLAIN: Final = frozenset({bool, float, int, str, type(None)})
_ORDERED: Final = (list, tuple)
_CONTAINERS: Final = (*_ORDERED, set, frozenset, deque, dict)
_MEANT: Final = {"settings": "Settings", "logger": "logging.Logger", "log": "logging.Logger", "paths": "ConfigPaths"}
"""Names of parameters that are probably meant to be injected, with the necessary annotation."""


@frozen
class Plan:
    """A compiled command."""

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
    further: ArgumentReader | None = None
    """The reader of `*args`, which only Python callers can pass, under their name; `None` for any objects."""
    completions: Mapping[str, Plan] = dataclasses.field(default_factory=dict[str, Any])
    """The completing functions by argument."""


def compile_command(
    declared: Declaration,
    *,
    skill: str,
    injectables: Injectables,
    settings: Settings,
    root: Path,
    rendered: bool = False,
) -> Plan:
    """Compile one command. Raises `LoadError` or `DeclarationError` with the file, the line and the reason.

    `rendered` says that a plugin may convert results whose type has no schema.
    """
    if declared.refusal is not None:
        raise declared.refusal.with_traceback(None)
    location = declared.location
    try:
        return _Compiler(declared, skill, injectables, settings, root, rendered=rendered).plan()
    except LoadError as error:
        if error.file is None:
            raise type(error)(error.reason, file=location.file, line=location.line) from error
        raise
    except Exception as error:  # annotations can run any code
        reason = f"{skill}.{declared.name} cannot be described: {_first_line(error)}"
        raise SchemaError(reason, file=location.file, line=location.line) from error


@contextlib.contextmanager
def _about(what: str) -> Generator[None]:
    """Attribute exceptions inside to one parameter or to the return type, unless they name it themselves."""
    try:
        yield
    except LoadError:
        raise
    except Exception as error:  # annotations can run any code
        raise SchemaError(f"{what} cannot be described: {_first_line(error)}. Write another type there") from error


def _first_line(error: Exception) -> str:
    return named_error(error, message_of(error).partition("\n")[0])


@frozen
class _Field:
    """One parameter that clients send, under its name or an alias."""

    name: str
    sent_as: str
    annotation: Any
    default: Any
    """The default of the signature; `MISSING` without one, `ABSENT` if the key may stay absent or pydantic fills it."""
    written: Any = MISSING
    """The default in the signature or in a `Field`; `MISSING` without one."""
    converts: bool = False
    """Whether pydantic reads the default like a sent value (`validate_default`)."""

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
        sent = [item for item in self.signature.parameters if item.name not in injected]
        self._check_annotated(sent)
        fields = [self._field(item) for item in sent]
        self._check_names(fields)
        with _about(f"the parameters of {self.id}"):
            adapter = self._adapter(fields)
            schema = self._input_schema(adapter, fields, injected)
            implicit = [field.name for field in fields if field.written is None and _misfits(schema, field)]
            if implicit:
                fields = [_or_none(field) if field.name in implicit else field for field in fields]
                adapter = self._adapter(fields)
                schema = self._input_schema(adapter, fields, injected)
        self._check_defaults(adapter, fields, schema)
        with _about(f"the return type of {self.id}"):
            shape, output = compile_output(self.declared, self.signature, self.id, rendered=self.rendered)
        self._check_uri(fields)
        completing = self._completing(fields)
        contract = self._contract(schema, shape, injected, tuple(self._warnings(sent)))
        contract = dataclasses.replace(contract, completions=self._completions(schema, fields, completing))
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
            self.declared,
            contract,
            self.signature,
            reader,
            output,
            needs,
            defaults,
            self.signature.positional,
            only,
            self._further(),
            completing,
        )

    def _further(self) -> ArgumentReader | None:
        name, kind = self.signature.takes_args, self.signature.each_arg
        if kind is Any or adapter_of(kind, self.signature.names, "validation") is None:
            return None
        return ArgumentReader(self.id, Adapter(record({name: list[kind]}), self.signature.names), (name,), (), {})

    def _contract(
        self, schema: Schema, shape: OutputShape, injected: tuple[str, ...], warnings: tuple[str, ...]
    ) -> Contract:
        declared = self.declared
        description = declared.description if declared.description is not None else self.doc.text
        describes = declared.kind == TOOL and self.settings.own.describe_results
        return Contract(
            id=self.id,
            wire_name=self._wire_name(),
            skill=self.skill,
            name=declared.name,
            description=description,
            summary=parse_docstring(description).summary if declared.description is not None else self.doc.summary,
            returns=returns_line(shape.schema, description) if describes else "",
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
                run_on=declared.run_on,
            ),
            aliases=tuple(alias.replace("/", ".") for alias in declared.aliases),
            tags=declared.tags,
            icons=declared.icons,
            meta=declared.meta,
            profile=declared.profile,
            input_explicit=declared.input_schema is not None,
            injected=injected,
            inject_settings=declared.inject_settings,
            source=self._source(),
            warnings=warnings,
            in_thread=declared.thread is not False and not is_async(declared.function),
            kind=declared.kind,
            uri=declared.uri,
            mime_type=self._mime_type(shape),
        )

    def _mime_type(self, shape: OutputShape) -> str | None:
        """The MIME type of a resource: the declared one, else the one of the annotation."""
        if self.declared.kind != RESOURCE or self.declared.mime_type is not None:
            return self.declared.mime_type
        if shape.schema is None or shape.content:
            return None
        return "text/plain" if shape.text else "application/json"

    def _wire_name(self) -> str:
        own = self.settings.own
        if self.id in own.wire_names:
            return own.wire_names[self.id]
        return self.id if own.names == "dotted" else self.id.replace(".", "_")

    def _source(self) -> str:
        location = self.declared.location
        file = Path(location.file)
        shown = file.relative_to(self.root) if file.is_relative_to(self.root) else file
        return str(Location(shown.as_posix(), location.line))

    # Injected parameters

    def _needs(self) -> tuple[Need, ...]:
        named = self._named_needs()
        needs: list[Need] = []
        for item in self.signature.parameters:
            if item.name in named:
                source, key, _ = named.pop(item.name)
                needs.append(Need(item.name, source, key, item.default, self._reader_of(source, item.annotation)))
                continue
            with _about(f"parameter {item.name!r} of {self.id}"):
                need = self.injectables.need(item.name, item.annotation, item.default, autowire=self.declared.autowire)
            if need is not None and need.key in self.injectables.sent:
                need = dataclasses.replace(need, read=self._reader_of(need.source, item.annotation))
            if need is not None:
                needs.append(need)
        for name in named:
            raise InjectionError(
                f"the injected {name!r} has no parameter: add a parameter of that name, or remove the injection"
            )
        return tuple(needs)

    def _reader_of(self, source: str, annotation: Any) -> Callable[[Any], Any] | None:
        """The function that converts a setting to the annotated type, if that has a schema."""
        if source == "root" or annotation is Any:
            return None
        adapter = adapter_of(annotation, self.signature.names, "validation")
        return partial(_read_setting, adapter) if adapter is not None else None

    def _named_needs(self) -> dict[str, InjectedSetting | tuple[typing.Literal["root"], str, str]]:
        read = map(parse_injected, self.declared.inject_settings)
        named: dict[str, InjectedSetting | tuple[typing.Literal["root"], str, str]] = {
            item.parameter: item for item in read
        }
        if self.declared.inject_root:
            named["project_root"] = ("root", "", "project_root")
        return named

    # Forgotten annotations

    def _check_annotated(self, sent: list[Parameter]) -> None:
        """Refuse an unannotated context, which clients would have to send."""
        for item in sent:
            forgotten = item.name in _CONTEXTS and not item.is_annotated and item.default is MISSING
            if forgotten and self.declared.input_schema is None:
                raise SchemaError(
                    f"parameter {item.name!r} of {self.id} has no annotation, so every client would have to send it. "
                    f"Write `{item.name}: Context` (from prowess import Context) to get the context of the call, or the "
                    f"type that clients send, like `{item.name}: str`"
                )

    def _warnings(self, sent: list[Parameter]) -> Iterator[str]:
        """Warnings about options that work, but probably not as intended."""
        for item in sent:
            if not item.is_annotated and self.declared.input_schema is None:
                kind = _MEANT.get(item.name) or _kind_of(item.default)
                yield (
                    f"parameter {item.name!r} has no annotation, so clients may send anything. "
                    f"Annotate it, like `{item.name}: {kind}`"
                )
        if self.signature.takes_args:
            name = self.signature.takes_args
            yield f"clients cannot send *{name}. Take a list instead, like `{name}: list[str]`"

    # Resources and completions

    def _check_uri(self, fields: list[_Field]) -> None:
        """Check that the variables of the URI and the parameters are the same."""
        if self.declared.kind != RESOURCE:
            return
        variables = {variable.name: variable for variable in parse_template(self.declared.uri).variables}
        sent = {field.sent_as: field for field in fields}
        uri = self.declared.uri
        for name in variables.keys() - sent.keys():
            near = did_you_mean(name, sent)
            raise SchemaError(
                f"{{{name}}} of {uri} is not a parameter of {self.id}{near}; add a parameter of that name"
            )
        for name, field in sent.items():
            if name not in variables:
                near = did_you_mean(name, variables)
                raise SchemaError(
                    f"parameter {name!r} of {self.id} is not a variable of {uri}{near}; add {{{name}}} to the URI, or inject it"
                )
            if variables[name].operator == "?" and field.required:
                raise SchemaError(
                    f"parameter {name!r} of {self.id} is in the query of {uri}, which clients may omit; give it a default"
                )

    def _completing(self, fields: list[_Field]) -> dict[str, Plan]:
        """The plans of the functions that complete arguments."""
        plans: dict[str, Plan] = {}
        names = [field.sent_as for field in fields]
        for argument, known in self.declared.complete.items():
            if argument not in names:
                near = did_you_mean(argument, names)
                raise SchemaError(f"complete= of {self.id} names {argument!r}, which is not an argument{near}")
            if callable(known):
                plans[argument] = self._completing_plan(argument, known, names)
        return plans

    def _completing_plan(self, argument: str, function: Callable[..., Any], names: list[str]) -> Plan:
        declared = Declaration(
            function, f"{self.declared.name}.{argument}", kind=COMPLETION, autowire=self.declared.autowire
        )
        plan = compile_command(
            declared,
            skill=self.skill,
            injectables=self.injectables,
            settings=self.settings,
            root=self.root,
            rendered=self.rendered,
        )
        takes = plan.reader.allowed
        if not takes or set(takes[1:]) - set(names):
            wrong = ", ".join(sorted(set(takes[1:]) - set(names))) or "nothing"
            raise SchemaError(
                f"the function that completes {argument!r} of {self.id} takes {wrong}; it must take the text that was typed, "
                f"and beyond that only arguments of {self.id}: {_listed(set(names))}",
                file=declared.location.file,
                line=declared.location.line,
            )
        return plan

    def _completions(
        self, schema: Schema, fields: list[_Field], completing: Mapping[str, Plan]
    ) -> dict[str, tuple[str, ...] | None]:
        """The completions of each argument: those of the author, else the choices of its type."""
        if self.declared.kind not in (RESOURCE, PROMPT):
            return {}
        found: dict[str, tuple[str, ...] | None] = {}
        for name in (field.sent_as for field in fields):
            if name in completing:
                found[name] = None
            elif given := tuple(self.declared.complete.get(name, ())) or _choices(schema, name):
                found[name] = given
        return found

    # Input

    def _field(self, parameter: Parameter) -> _Field:
        with _about(f"parameter {parameter.name!r} of {self.id}"):
            return self._described_field(parameter)

    def _described_field(self, parameter: Parameter) -> _Field:
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
        defaults = [default, *(info.default for info in reversed(infos) if info.default is not PydanticUndefined)]
        shown = next((held for held in defaults if held is not MISSING and held is not ABSENT), MISSING)
        converts = default is ABSENT and any(info.validate_default for info in infos)
        return _Field(parameter.name, self._sent_as(parameter.name, infos), annotation, default, shown, converts)

    def _sent_as(self, name: str, infos: list[FieldInfo]) -> str:
        for info in reversed(infos):
            alias = info.validation_alias or info.alias
            if alias is not None and not isinstance(alias, str):
                raise SchemaError(f"parameter {name!r} of {self.id}: an alias must be a plain text, not {alias!r}")
            if alias:
                return alias
        return name

    def _check_names(self, fields: list[_Field]) -> None:
        for alias in self.declared.aliases:
            if alias.replace("/", ".") in (self.id, self._wire_name()):
                raise SchemaError(f"the alias {alias!r} is the name of {self.id} already. Drop it")
        sent = [field.sent_as for field in fields]
        for field in fields:
            if sent.count(field.sent_as) > 1:
                raise SchemaError(f"two parameters of {self.id} are called {field.sent_as!r}: change the alias of one")

    def _check_defaults(self, adapter: Adapter, fields: list[_Field], schema: Schema) -> None:
        """Check that defaults in the schema fit their types. A default that is not JSON, such as a sentinel, is not checked."""
        shown = {field.name: field for field in fields if field.written is not None and _is_shown(field.written)}
        names = {field.sent_as: field.name for field in fields}
        read, refused = adapter.read_defaults({name: field.written for name, field in shown.items()})
        for sent_as, reason in refused:
            raise self._wrong_default(shown[names.get(sent_as, sent_as)], f"{reason[:1].lower()}{reason[1:]}")
        for field in shown.values():
            if type(field.written) in (bool, str) and (problems := _misfits(schema, field)):
                raise self._wrong_default(field, problems[0].removeprefix("value: "))
        for field in shown.values():
            value = read.get(
                field.name, field.written
            )  # a refused one that depends on the clock or the disk was not read
            if not field.converts and _is_other(field.written, value):
                raise SchemaError(
                    f"parameter {field.name!r} of {self.id}: the default {field.written!r} is not of the declared type, and "
                    f"defaults are passed as they are; write {_written(value)}"
                )

    def _wrong_default(self, field: _Field, reason: str) -> SchemaError:
        return SchemaError(
            f"parameter {field.name!r} of {self.id}: the default {field.written!r} does not match its type ({reason}); "
            "change the default or the type"
        )

    def _adapter(self, fields: list[_Field]) -> Adapter:
        if self.declared.input_schema is not None:
            fields = [self._schemable(field) for field in fields]
        try:
            return self._record(fields, self.signature.extra)
        except Unusable as error:
            raise self._culprit(fields, error) from error

    def _record(self, fields: list[_Field], extra: Any = MISSING) -> Adapter:
        for field in fields:
            kind = cast("object", field.annotation)
            if isinstance(kind, _ORDERED):
                raise Unusable(f"{field.annotation!r} is not a type")
        typed = {
            field.name: field.annotation if field.required else typing_extensions.NotRequired[field.annotation]
            for field in fields
        }
        return Adapter(record(typed, extra=None if extra is MISSING else extra), self.signature.names)

    def _schemable(self, field: _Field) -> _Field:
        """The field, or one that accepts anything if its type has no schema and an explicit schema covers it."""
        usable = adapter_of(field.annotation, self.signature.names, "validation")
        return field if usable else dataclasses.replace(field, annotation=Any)

    def _culprit(self, fields: list[_Field], error: Unusable) -> SchemaError:
        """The parameter without a schema, found by trying each alone."""
        for field in fields:
            try:
                self._record([field]).schema("validation")
            except Unusable as reason:
                hint = self._injection_hint(field)
                return SchemaError(
                    f"parameter {field.name!r} of {self.id} has no JSON Schema: {reason}{hint}. "
                    "Annotate it with data types, or pass input_schema="
                )
        return SchemaError(f"the **keywords of {self.id} have no JSON Schema: {error}. Pass input_schema=")

    def _injection_hint(self, field: _Field) -> str:
        """Why a class, perhaps meant to be injected, has no provider."""
        kind = _foreign(field.annotation)
        if kind is None:
            return ""
        if kind in self.injectables.keys:
            return f"; with autowire=False it is injected where it is marked: Annotated[{kind.__name__}, Inject()]"
        return f"; {self.injectables.why_missing(kind)}"

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
        self._check_possible(schema, fields)
        for field in fields:
            if field.has_plain_default and field.sent_as in schema["properties"]:  # `SkipJsonSchema` may hide it
                _show_default(schema, field)
        return schema

    def _check_possible(self, schema: Schema, fields: list[_Field]) -> None:
        """Refuse a parameter for which no client can send a value."""
        if "$ref" in schema:  # the only type that refers to the arguments
            raise SchemaError(
                f"a parameter of {self.id} has the type Self, which has a meaning only in a class. Name the class"
            )
        impossible = Impossible(schema)
        for field in fields:
            if reason := impossible.why(schema["properties"].get(field.sent_as, {})):
                raise SchemaError(
                    f"no value fits the type of parameter {field.name!r} of {self.id}: {reason}. Change its type"
                )

    def _disagreements(self, schema: Schema, fields: list[_Field], injected: tuple[str, ...]) -> Iterator[str]:
        """The contradictions between an explicit schema and the parameters of the function."""
        if schema.get("type") != "object":
            yield "must be of type 'object' at its root"
        offered, required = set(schema.get("properties", {})), set(schema.get("required", ()))
        known = {field.sent_as for field in fields}
        for verb, names in (("offers", offered), ("requires", required - offered)):
            foreign = names & set(injected) if self.signature.extra is not MISSING else names
            if foreign - known:
                yield f"{verb} {_listed(foreign - known)}, which a client cannot send"
        needed = {field.sent_as for field in fields if field.required}
        if needed - offered and schema.get("additionalProperties") is False:
            yield f"leaves out {_listed(needed - offered)}, which the function needs"
        optional = (needed & offered) - required
        if optional and _COMPOSITION.isdisjoint(schema):
            yield f"does not require {_listed(optional)}, which the function needs"


def _read_setting(adapter: Adapter, value: Any) -> Any:
    """A setting as its parameter is annotated. The environment holds only text, so a list or a table is JSON there."""
    try:
        return adapter.read(value)
    except ValidationError:
        if isinstance(value, str):
            with contextlib.suppress(ValidationError):
                return adapter.read_json(value)
        raise


def _choices(schema: Schema, name: str) -> tuple[str, ...]:
    """The values of an argument with an enumeration."""
    node = {**schema.get("properties", {}).get(name, {}), "$defs": schema.get("$defs", {})}
    values: list[Any] = []
    for branch in [*node.get("anyOf", ()), node]:
        whole = resolve(node, branch["$ref"]) if "$ref" in branch else branch
        values += (whole or {}).get("enum", ())
        values += [whole["const"]] if whole and "const" in whole else []
        values += [True, False] if whole and whole.get("type") == "boolean" else []
    texts = [str(each).lower() if isinstance(each, bool) else str(each) for each in values if each is not None]
    return tuple(dict.fromkeys(texts))


def _kind_of(default: Any) -> str:
    """The annotation that a default suggests."""
    kind: str = type(default).__name__
    return kind if kind in {"bool", "int", "float", "str", "list", "dict"} else "str"


def _misfits(schema: Schema, field: _Field) -> list[str]:
    """The problems of a default under the schema of its parameter, without conversions, which defaults do not get."""
    part = {**schema.get("properties", {}).get(field.sent_as, {}), "$defs": schema.get("$defs", {})}
    if any(not node.get("$ref", "#/$defs/").startswith("#/$defs/") for _, node in visit(part)):
        return []  # a reference to the root of an explicit schema, which the part lacks
    return [] if quick_check(part)(field.written) else validate(part, field.written)


def _is_other(written: Any, read: Any) -> bool:
    """Whether a default, or a part of it, has another type than the value that its annotation reads from it.

    An integer may stand for another number, a text for a path, and one container for another: functions rarely see
    the difference.
    """
    if isinstance(written, type(read)) and type(read) not in (*_ORDERED, dict):
        return False
    if isinstance(read, Enum) or is_structure(type(read)) or hasattr(read, "_fields"):
        return True
    if isinstance(written, dict) and isinstance(read, dict):
        return any(map(_is_other, cast("dict[Any, Any]", written).values(), cast("dict[Any, Any]", read).values()))
    if isinstance(written, _CONTAINERS):
        return isinstance(read, _ORDERED) and any(map(_is_other, cast("Any", written), cast("Any", read)))
    if isinstance(written, int):
        return not isinstance(read, Number)
    return not (isinstance(written, str) and isinstance(read, PurePath))


def _written(value: Any) -> str:
    """A value as in source code."""
    if not isinstance(value, Enum):
        return repr(value)
    kind, name = type(value).__name__, value.name
    return f"{kind}.{name}" if name in type(value).__members__ else f"{kind}({value.value!r})"


def _or_none(field: _Field) -> _Field:
    """The field with `None` allowed: `x: int = None` means `int | None`, as in older versions of Python's typing."""
    kind, beside = field.annotation, _beside(field.annotation)
    infos = [item for item in beside if isinstance(item, FieldInfo)]
    if beside:  # descriptions stay outside, while validators must not get `None`
        checks = tuple(item for item in beside if not isinstance(item, FieldInfo))
        kind = Annotated[(get_args(kind)[0], *checks)] if checks else get_args(kind)[0]
    kind = typing.Optional[kind]  # noqa: UP045 - a string annotation has no `|`
    return dataclasses.replace(field, annotation=Annotated[(kind, *infos)] if infos else kind)


def _beside(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _description(annotation: Any, infos: list[FieldInfo]) -> str | None:
    """The description in the annotation: `Field(description=...)`, a plain text, or `Doc`."""
    for info in reversed(infos):
        if info.description:
            return info.description
    for item in metadata(annotation):
        text = item if isinstance(item, str) else getattr(item, "documentation", getattr(item, "description", None))
        if isinstance(text, str):
            return text
    return None


def _foreign(annotation: Any) -> Any:
    """A class of the author that is not data, and so perhaps meant to be injected; else `None`."""
    kind = without_none(annotation)
    known = not isinstance(kind, type) or kind.__module__ == "builtins" or is_structure(kind)
    return None if known else kind


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _is_shown(default: Any) -> bool:
    try:
        as_default(default)
    except PydanticSerializationError:
        return False
    return default is not MISSING


def _show_default(schema: Schema, field: _Field) -> None:
    """Add a default to the schema of its parameter. One that a client cannot send is used in the call, but not shown."""
    with contextlib.suppress(PydanticSerializationError):
        shown = as_default(field.default, notes=metadata(field.annotation))
        if not isinstance(field.default, (str, type(None))) and _is_encoded(field.annotation):
            return
        if type(field.default) in _PLAIN or not _misfits(schema, dataclasses.replace(field, written=shown)):
            schema["properties"][field.sent_as]["default"] = shown


def _is_encoded(annotation: Any) -> bool:
    """Whether a type contains texts that clients send in another form, such as `list[Base64Str]`."""
    notes = metadata(annotation)
    return any(hasattr(note, "encode_str") for note in notes) or any(map(_is_encoded, get_args(annotation)))


def _has_required_nullable(schema: Schema) -> bool:
    """Whether a caller may omit a required property in a profile that strips nulls."""
    return any(
        is_nullable(schema, node.get("properties", {}).get(name))
        for _, node in visit(schema)
        for name in node.get("required", ())
    )
