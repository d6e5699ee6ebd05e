"""Profiles: schema transforms for one kind of client, each paired with the matching transform of values.

In every profile, `value(contract, v)` is valid under `output_schema(contract)`. Profiles work on schemas and JSON values,
independent of Python types and of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from prowess.contracts.contract import Contract
from prowess.errors import did_you_mean
from prowess.frozen import frozen
from prowess.jsontypes import Json, JsonObject, Schema
from prowess.schemas import nodes, steps
from prowess.schemas.boxes import box, is_object, is_union_of_objects
from prowess.schemas.naming import camel_case
from prowess.schemas.nulls import is_nullable, omit_nulls, restore_nulls
from prowess.schemas.walk import each_node

__all__ = ["BUILT_IN", "Box", "Profile", "SchemaStep", "ValueStep", "decode_arguments", "no_profile"]

SchemaStep: TypeAlias = Callable[[Schema], Schema]
ValueStep: TypeAlias = Callable[[Schema, Json], Json]
"""Converts a canonical value, given its output schema, to the value in the profile."""


@frozen
class Box:
    """The rules by which a profile boxes results, and the name of the field."""

    field: str = "result"
    """The name of the field, unless the author gives one."""
    marker: str | None = None
    """The keyword that marks the box for clients."""
    objects: bool = False
    """Box objects too; a structure in a field with the name of its type."""
    modern: bool = False
    """Box in revision 2026-07-28 too, which allows any JSON value."""
    unions: bool = True
    """Box unions of objects."""
    omit_null: bool = False
    """Omit the field if the result is null."""


_JOINING: Final = frozenset({"$ref", "anyOf", "oneOf"})
"""Keywords of a root whose type is elsewhere."""


@frozen
class Profile:
    """A name, the steps for schemas and values, and the rules for boxing.

    Explicit schemas of an author stay unchanged, except for boxing.
    """

    name: str
    input_steps: tuple[SchemaStep, ...] = ()
    output_steps: tuple[SchemaStep, ...] = ()
    value_steps: tuple[ValueStep, ...] = ()
    box: Box | None = Box(marker="x-prowess-box")
    """`None` for a profile without structured results."""
    text_is_boxed: bool = False
    """Whether the text block has the boxed value instead of the bare one."""
    plain_text: bool = False
    """Whether plain text results have no output schema and no structured copy.

    Claude Code shows a model only the structured content if there is one, so a text would arrive as JSON with escaped
    quotes and line ends.
    """

    @property
    def structured(self) -> bool:
        """Whether the profile has structured content."""
        return self.box is not None

    def shows_data(self, contract: Contract) -> bool:
        """Whether results of a command have structured content."""
        return self.box is not None and not (self.plain_text and contract.output.text)

    def input_schema(self, contract: Contract) -> Schema:
        """The input schema for clients."""
        return contract.input_schema if contract.input_explicit else _apply(self.input_steps, contract.input_schema)

    def output_schema(self, contract: Contract, *, boxed: bool = True) -> Schema | None:
        """The output schema for clients. `boxed=False` is for revisions that allow any JSON value."""
        canonical = contract.output.schema
        if canonical is None or self.box is None or not self.shows_data(contract):
            return None
        shown = canonical if contract.output.explicit else _apply((*self.output_steps, _AGREED), canonical)
        field = self._field(contract, boxed)
        if field is not None:
            return box(shown, field, marker=self.box.marker, required=not self._omits_null(contract))
        return {"type": "object", **shown} if self._is_bare_union(contract) else shown

    def value(self, contract: Contract, value: Json, *, boxed: bool = True) -> Json:
        """The structured content for a canonical result."""
        schema = contract.output.schema
        field = self._field(contract, boxed, value)
        if field is not None and value is None and self._omits_null(contract):
            return {}
        if schema is not None and not contract.output.explicit:
            for step in self.value_steps:
                value = step(schema, value)
        return value if field is None else {field: value}

    def _field(self, contract: Contract, boxed: bool, value: Json = None) -> str | None:
        """The field of the box, or `None` without a box."""
        box, output = self.box, contract.output
        if box is None or not (boxed or box.modern):
            return None
        if output.field is not None:
            return output.field
        if box.objects:
            return camel_case(output.type_name) if output.type_name else box.field
        schema = output.schema
        if schema is None:
            bare = isinstance(value, dict)
        elif schema.keys().isdisjoint(_JOINING):
            bare = schema.get("type") == "object"
        else:
            bare = self._is_bare(contract)
        return None if bare else box.field

    def _is_bare(self, contract: Contract) -> bool:
        schema = contract.output.schema
        return schema is not None and (is_object(schema) or self._is_bare_union(contract))

    def _is_bare_union(self, contract: Contract) -> bool:
        """Whether the result is an unboxed union of objects, whose root needs `type: object`."""
        schema = contract.output.schema
        if self.box is None or self.box.unions or schema is None or contract.output.explicit:
            return False
        return not is_object(schema) and is_union_of_objects(schema)

    def _omits_null(self, contract: Contract) -> bool:
        schema = contract.output.schema
        if self.box is None or not self.box.omit_null or schema is None or contract.output.explicit:
            return False
        return is_nullable(schema, schema)


def no_profile(name: str, known: Iterable[str]) -> str:
    """The message for an unknown profile."""
    names = sorted(known)
    return f"there is no profile {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}"


def _apply(changes: tuple[SchemaStep, ...], schema: Schema) -> Schema:
    for change in changes:
        schema = change(schema)
    return schema


def decode_arguments(input_schema: Schema, arguments: JsonObject) -> JsonObject:
    """Arguments with null for every required parameter or field that may be null and is missing, at any depth.

    `input_schema` is the canonical one. In profiles that remove null from schemas, such a key is optional.
    """
    return cast("dict[str, Any]", restore_nulls(input_schema, arguments))


# The built-in profiles

_STRIP_NULL = partial(steps.strip_null, marked=True)
_AGREED: SchemaStep = each_node(nodes.drop_disputed)
_CLEAN: SchemaStep = each_node(nodes.prune_title, nodes.drop_schema_keyword)

_PORTABLE_NODES = (
    nodes.prune_title,
    nodes.drop_schema_keyword,
    nodes.drop_none_default,
    nodes.const_as_enum,
    nodes.oneof_as_anyof,
    nodes.tuple_as_array,
    nodes.fill_items,
    nodes.drop_property_names,
)

_PORTABLE = Profile(
    "portable",
    input_steps=(
        _STRIP_NULL,
        steps.inline_refs,
        each_node(nodes.one_type, *_PORTABLE_NODES, nodes.repeat_constraints, nodes.nullable_beside_type),
        steps.open_nested_objects,
        steps.object_root,
    ),
    output_steps=(steps.inline_refs, each_node(*_PORTABLE_NODES, nodes.open_object)),
    plain_text=True,
)

_FULL = Profile(
    "full",
    input_steps=(steps.string_names, steps.prune_titles, steps.object_root),
    output_steps=(steps.string_names, steps.prune_titles, steps.inline_root),
    plain_text=True,
)

_OPENMCP = Profile(
    "openmcp",
    input_steps=(
        steps.string_names,
        steps.inline_refs,
        each_node(nodes.prune_title, nodes.drop_schema_keyword, nodes.const_as_enum, nodes.fill_items),
        steps.describe_parameters,
        steps.object_root,
    ),
    output_steps=(
        steps.string_names,
        steps.inline_refs,
        each_node(nodes.prune_title, nodes.drop_schema_keyword, nodes.const_as_enum, nodes.fill_items),
        steps.close_objects,
    ),
    box=Box(marker="x-dedalus-box", modern=True, unions=False),
)

_OMNI = Profile(
    "omni",
    input_steps=(
        _STRIP_NULL,
        steps.string_names,
        steps.inline_refs,
        _CLEAN,
        steps.drop_none_default,
        each_node(nodes.const_as_enum, nodes.tuple_as_array, nodes.fill_items, nodes.nullable_beside_type),
        steps.drop_enum_default,
        steps.drop_additional,
        steps.object_root,
        steps.list_required,
    ),
    box=None,
)

_TURUL_INLINE = partial(steps.inline_refs, fallback={"type": "object"})

_TURUL = Profile(
    "turul",
    input_steps=(
        _STRIP_NULL,
        steps.string_names,
        _TURUL_INLINE,
        _CLEAN,
        steps.drop_none_default,
        each_node(nodes.tuple_as_array, nodes.fill_items, nodes.nullable_beside_type),
        steps.open_objects,
        steps.object_root,
    ),
    output_steps=(
        partial(steps.strip_null, root=True),
        steps.string_names,
        _TURUL_INLINE,
        _CLEAN,
        each_node(nodes.oneof_as_anyof, nodes.tuple_as_array, nodes.fill_items, nodes.open_object),
    ),
    value_steps=(omit_nulls,),
    box=Box(field="output", objects=True, modern=True, omit_null=True),
    text_is_boxed=True,
)

BUILT_IN: Mapping[str, Profile] = MappingProxyType(
    {profile.name: profile for profile in (_PORTABLE, _FULL, _OPENMCP, _OMNI, _TURUL)}
)
"""The built-in profiles by name. The first one is the default."""
