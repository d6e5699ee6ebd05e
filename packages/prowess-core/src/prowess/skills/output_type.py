"""Compiles the return type of a command: the shape of its results for clients, and the check of returned values."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_origin

import typing_extensions
from pydantic import BaseModel

from prowess.contracts.contract import TOOL, OutputShape
from prowess.contracts.declaration import Declaration
from prowess.contracts.kinds import COMPLETION, PROMPT
from prowess.contracts.signature import MISSING, Signature, without_none
from prowess.errors import SchemaError
from prowess.jsontypes import Schema
from prowess.results.content import CONTENT_MARKER, is_content_type, is_text_type, may_hold_data
from prowess.results.libraries import renders
from prowess.results.normalize import Output
from prowess.schemas.adapters import Adapter, Unusable
from prowess.schemas.boxes import is_text
from prowess.schemas.explicit import check_explicit
from prowess.schemas.refs import resolve
from prowess.schemas.walk import visit

__all__ = ["adapter_of", "compile_output", "is_structure"]

_NOTHING: Final = (None, type(None), typing.NoReturn, typing.Never)
_NO_VALUE: Final = (MISSING, Any, *_NOTHING)


def compile_output(
    declared: Declaration, signature: Signature, command: str, *, rendered: bool
) -> tuple[OutputShape, Output]:
    """The shape of the results of a command, and the check of its values. Raises `SchemaError`.

    `rendered` says that a plugin may convert results whose type has no schema.
    """
    returns = signature.returns
    if declared.kind in (PROMPT, COMPLETION):
        return OutputShape(), Output()  # messages and texts have no schema
    given = declared.output_schema
    _check_output(declared, signature, command)
    if given == "any":
        return OutputShape({}, field=declared.output_field), Output(Adapter(Any))
    if given is not None:
        check_explicit(given, what=f"output_schema of {command}")
        adapter = None if _is_nothing(returns) else adapter_of(returns, signature.names, "serialization")
        content = is_content_type(returns) or _is_pair(returns)
        kinds = _kinds(adapter.schema("serialization")) if adapter is not None and not content else None
        allowed = _kinds(given)
        # an object may be a whole result, with other data inside
        if kinds and allowed and "object" not in kinds and kinds.isdisjoint(allowed):
            raise SchemaError(
                f"output_schema of {command} contradicts the annotation -> {_name(returns)}, which is written as "
                f"{' or '.join(sorted(kinds))}: it allows {' or '.join(sorted(allowed))}. Change one of them"
            )
        return OutputShape(given, explicit=True, field=declared.output_field, content=content), Output(adapter, given)
    pair, lacks_content = _is_pair(returns), False
    if pair:
        content, returns = get_args(returns)
        lacks_content = type(None) in get_args(content)
    if _is_nothing(returns) or (not pair and is_content_type(returns)):
        return OutputShape(field=declared.output_field), Output()
    try:
        adapter = Adapter(returns, signature.names)
        schema = adapter.schema("serialization")
    except Unusable as error:
        if (rendered or renders(returns)) and not pair:
            return OutputShape(field=declared.output_field), Output()
        reason = f"the return type of {command} has no JSON Schema: {error}"
        way_out = "declare the result with output=" if declared.kind == TOOL else "return a string"
        raise SchemaError(
            f"{reason}. Annotate it with data types, convert its values in a plugin with the hook `prowess_render`, or "
            f"{way_out}"
        ) from error
    beside = pair or any(CONTENT_MARKER in node for _, node in visit(schema))
    shape = OutputShape(
        schema,
        field=declared.output_field,
        type_name=_structure_name(returns),
        text=declared.output_field is None and is_text_type(returns) and is_text(schema),
        content=beside,
    )
    return shape, Output(adapter, pair=pair, lacks_content=lacks_content)


def _check_output(declared: Declaration, signature: Signature, command: str) -> None:
    """Refuse options about the result that have no effect or contradict the annotation."""
    annotated, returns = signature.annotated, signature.returns
    if declared.output_schema == "any" and declared.output is not None:
        raise SchemaError(f'output= of {command} has no effect beside output_schema="any". Drop one of them')
    if declared.output is not None and _contradicts(annotated, returns, signature.names):
        raise SchemaError(
            f"output={_name(returns)} of {command} contradicts the annotation -> {_name(annotated)}. "
            "Keep the one that is true"
        )
    if declared.output_field is None or declared.output_schema is not None:
        return
    content = is_content_type(returns) and not _is_pair(returns) and not may_hold_data(returns)
    if content or any(returns is nothing for nothing in _NOTHING):
        raise SchemaError(
            f"output_field={declared.output_field!r} of {command} has no effect: a result of the type "
            f"{_name(returns)} has no data to put in a field. Drop it, or return data"
        )


def _contradicts(annotated: Any, returns: Any, names: Mapping[str, Any]) -> bool:
    """Whether no value can have both types. `-> None` contradicts nothing, because stubs use it."""
    if _is_nothing(annotated) or _is_nothing(returns) or is_content_type(annotated):
        return False
    adapters = adapter_of(annotated, names, "serialization"), adapter_of(returns, names, "serialization")
    kinds = [_kinds(adapter.schema("serialization")) if adapter else None for adapter in adapters]
    return kinds[0] is not None and kinds[1] is not None and kinds[0].isdisjoint(kinds[1])


def adapter_of(
    annotation: Any, names: Mapping[str, Any], mode: Literal["validation", "serialization"]
) -> Adapter | None:
    """The adapter of an annotation, or `None` if it has no schema."""
    try:
        adapter = Adapter(annotation, names)
        adapter.schema(mode)
    except Unusable:
        return None
    return adapter


def _kinds(schema: Schema) -> set[str] | None:
    """The JSON types that a schema allows at its root; `None` if it does not say."""
    node = resolve(schema, schema["$ref"]) if "$ref" in schema else schema
    if node is None or "type" not in node:
        return None
    kinds: set[str] = {node["type"]} if isinstance(node["type"], str) else set(node["type"])
    return kinds | {"integer"} if "number" in kinds else kinds


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def is_structure(kind: Any) -> bool:
    """Whether a class is a model, a dataclass or a TypedDict."""
    return issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or typing_extensions.is_typeddict(kind)


def _is_nothing(returns: Any) -> bool:
    return any(returns is nothing for nothing in _NO_VALUE)


def _is_pair(returns: Any) -> bool:
    """Whether a type is a tuple of content and data."""
    arguments = get_args(returns)
    is_two = get_origin(returns) is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis
    return is_two and is_content_type(arguments[0]) and not is_content_type(arguments[1])


def _structure_name(returns: Any) -> str | None:
    kind: Any = without_none(returns)
    kind = get_origin(kind) or kind
    return kind.__name__.partition("[")[0] if isinstance(kind, type) and is_structure(kind) else None
