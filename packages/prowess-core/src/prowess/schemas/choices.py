"""Enums, flags and literals as choices: how each member is written as JSON, read back, and listed in a schema.

Pydantic compares JSON with the Python values of an enum, so a date or a tuple never matches the listed form, and it never
lists a combination of flags. Here one table decides reading, writing and the schema together.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

from pydantic_core import (
    PydanticCustomError,
    PydanticKnownError,
    PydanticSerializationUnexpectedValue,
    core_schema,
    to_jsonable_python,
)

from prowess.jsontypes import Json, Schema
from prowess.schemas.matching import identity
from prowess.schemas.nodes import json_type

__all__ = ["as_key", "choice_of", "described_choice", "is_choice", "is_plain", "tags", "written"]

_KEY: Final = "prowess_choice"
_MOST_SUMS: Final = 6
"""Flags with gaps between their bits are listed sum by sum up to this number of bits."""


def written(value: Any) -> Json:
    """A member of an enum or a literal as JSON data. Raises an exception if JSON has no form for it."""
    value = value.value if isinstance(value, enum.Enum) else value
    data: Json = to_jsonable_python(value, by_alias=True, bytes_mode="base64")
    json.dumps(data, allow_nan=False)
    return data


def is_plain(schema: dict[str, Any], *, as_key: bool = False) -> bool:
    """Whether pydantic itself reads the JSON forms that the schema of an `enum` or a `literal` lists."""
    if schema["type"] == "literal":
        allowed = (str,) if as_key else (str, int, bool, type(None))
        return all(type(item) in allowed for item in schema["expected"])
    if issubclass(schema["cls"], enum.Flag):
        return False
    kinds: set[Any] = {type(member.value) for member in schema["members"]}
    return kinds == {str} or (kinds == {int} and not as_key)


class _Choice:
    """A closed list of members of enums and plain values. As keys of an object, all of them are strings."""

    def __init__(self, members: Sequence[Any], *, as_key: bool = False) -> None:
        self.members = tuple(members)
        self._forms: list[tuple[Any, Json]] = [(member, _form(member, as_key=as_key)) for member in members]
        self._by_form: dict[Any, Any] = {}
        for member, form in self._forms:
            other = self._by_form.setdefault(identity(form), member)
            if other is not member:
                raise TypeError(f"{other!r} and {member!r} are both written as {form!r}: give them different values")
        self._raw = {identity(written(member)): member for member in members} if as_key else {}
        self._enums = list(dict.fromkeys(type(member) for member in members if isinstance(member, enum.Enum)))

    def read(self, value: Any) -> Any:
        """The member that a value stands for: the member itself, its written form, or its Python value."""
        if any(type(value) is type(member) and value == member for member in self.members):
            return value
        if isinstance(value, enum.Enum) and type(value) in self._enums:
            raise self._refusal
        try:
            key = identity(value)
            return self._by_form[key] if key in self._by_form else self._raw[key]
        except (TypeError, KeyError):
            return self._converted(value)

    def _converted(self, value: Any) -> Any:
        """The member that the enums themselves find for a value, for example by `_missing_`, or from a date as text."""
        for kind in self._enums:
            try:
                member = kind(value)
            except Exception:  # noqa: BLE001, S112 - an author's `_missing_` may raise anything
                continue
            mistaken = isinstance(value, bool) is not isinstance(member.value, bool) and value == member.value
            if not mistaken and any(member is allowed for allowed in self.members):  # for Python, 1 is True
                return member
        raise self._refusal

    @cached_property
    def _refusal(self) -> PydanticKnownError:
        shown = [repr(form) for _, form in self._forms]
        text = " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
        return PydanticKnownError("enum" if self._enums else "literal_error", {"expected": text})

    def write(self, value: Any) -> Json:
        """The written form of a member, or of a value that stands for one."""
        try:
            member = self.read(value)
        except PydanticKnownError as error:
            raise PydanticSerializationUnexpectedValue(str(error)) from error
        return next(form for other, form in self._forms if type(other) is type(member) and other == member)

    def describe(self) -> Schema:
        """The JSON Schema, which lists the written forms."""
        forms = [form for _, form in self._forms]
        schema: Schema = {"enum": forms} if len(forms) > 1 or self._enums else {"const": forms[0]}
        types = {json_type(form) for form in forms}
        return {**schema, "type": types.pop()} if len(types) == 1 else schema


class _Flags:
    """Any combination of flags, written as the sum of their values."""

    def __init__(self, kind: type[enum.Flag]) -> None:
        self.kind = kind
        self.members = {name: int(member.value) for name, member in kind.__members__.items() if member.value}
        self.mask = 0
        for value in self.members.values():
            self.mask |= value

    def read(self, value: Any) -> Any:
        """The combination for a number; as the key of an object, the number is a string."""
        if isinstance(value, self.kind):
            return value
        if isinstance(value, str) and value.removeprefix("-").isdecimal():
            value = int(value)
        if type(value) is float and value.is_integer():
            value = int(value)
        try:
            found = self.kind(value) if type(value) is int else None
        except ValueError:  # pragma: no cover - not raised by Python 3.11.2, which drops the unknown bits
            found = None
        if not isinstance(found, self.kind) or found.value != value:
            raise PydanticCustomError("flags", "Input should be {expected}", {"expected": self._words})
        return found

    def write(self, value: Any) -> Json:
        """The sum of the values."""
        try:
            return int(self.read(value).value)
        except PydanticCustomError as error:
            raise PydanticSerializationUnexpectedValue(str(error)) from error

    def describe(self) -> Schema:
        """An integer whose description explains each bit."""
        return {"type": "integer", **self._limits(), "description": f"{self._words[:1].upper()}{self._words[1:]}."}

    def _limits(self) -> Schema:
        if getattr(self.kind, "_boundary_", None) is enum.KEEP:  # bits without a name are kept, too
            return {"minimum": 0}
        bits = [1 << place for place in range(self.mask.bit_length()) if self.mask >> place & 1]
        if len(bits) == self.mask.bit_length() or len(bits) > _MOST_SUMS:
            return {"minimum": 0, "maximum": self.mask}
        sums = [0]
        for bit in bits:
            sums += [bit + smaller for smaller in sums]
        return {"enum": sums}

    @property
    def _words(self) -> str:
        listed = ", ".join(f"{value} ({name})" for name, value in self.members.items())
        return f"the sum of any of: {listed}" if listed else "0"


_Any: TypeAlias = "_Choice | _Flags"


def choice_of(schema: dict[str, Any], *, as_key: bool = False) -> Any:
    """A core schema for the members of an `enum` or `literal` schema."""
    choice: _Any
    if schema["type"] == "literal":
        choice = _Choice(schema["expected"], as_key=as_key)
    elif issubclass(schema["cls"], enum.Flag):
        choice = _Flags(schema["cls"])
    else:
        choice = _Choice(schema["members"], as_key=as_key)
    metadata = {**schema.get("metadata", {}), _KEY: choice}
    made: Any = core_schema.no_info_plain_validator_function(
        choice.read, serialization=core_schema.plain_serializer_function_ser_schema(choice.write, when_used="json")
    )
    kept: dict[str, Any] = {"ref": schema["ref"]} if "ref" in schema and not as_key else {}
    return {**made, **kept, "metadata": metadata}


def is_choice(schema: Any) -> bool:
    """Whether a core schema comes from `choice_of`."""
    return _KEY in schema.get("metadata", {})


def described_choice(schema: Any) -> Schema:
    """The JSON Schema for a core schema from `choice_of`."""
    choice: _Any = schema["metadata"][_KEY]
    return choice.describe()


def as_key(member: Any) -> Any:
    """A member of an enum as the key of an object; other keys unchanged."""
    return _form(member, as_key=True) if isinstance(member, enum.Enum) else member


def _form(member: Any, *, as_key: bool) -> Json:
    data = written(member)
    return data if isinstance(data, str) or not as_key else json.dumps(data, ensure_ascii=False)


def tags(choices: Iterable[Any]) -> dict[Any, Any]:
    """The tags of a union by their written form, for tags that are members of an enum."""
    return {form: tag for tag in choices if isinstance(tag, enum.Enum) and isinstance(form := written(tag), (str, int))}
