"""Arguments of a call: read by the declared types, every problem found at once."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json, to_jsonable_python

from prowess.adapters import Adapter
from prowess.errors import InputError
from prowess.jsontypes import Json, Schema
from prowess.problems import problem_lines
from prowess.profiles import decode_arguments
from prowess.schemas.explicit import validate as validate_explicit

__all__ = ["ArgumentReader", "positional"]

_Read: TypeAlias = "Callable[[dict[str, Any]], dict[str, Any]]"


@dataclass(frozen=True, slots=True)
class ArgumentReader:
    """Turns what a caller sent into what the function takes."""

    command: str
    adapter: Adapter
    allowed: tuple[str, ...]
    injected: tuple[str, ...]
    schema: Schema
    """The canonical input schema."""
    renamed: tuple[str, ...] = ()
    """Names of parameters that are sent under an alias."""
    explicit: bool = False
    open: bool = False
    """Whether unknown names are passed on, to `**kwargs`."""
    fills_nulls: bool = False
    """Whether a missing key may stand for `None` somewhere."""
    gaps: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Defaults of parameters that are passed by position, where none can be left out before another."""

    def from_json(self, arguments: object) -> dict[str, Any]:
        """Arguments as a client sends them: JSON data."""
        if not isinstance(arguments, Mapping):
            raise InputError(self.command, [f"arguments: expected an object, got {type(arguments).__name__}"])
        sent = dict(cast("Mapping[str, Any]", arguments))
        return self._read(sent, self._from_text, self._refusals(sent) if self.open else [])

    def from_python(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as Python code passes them: instances are welcome."""
        return self._read(arguments, self.adapter.read, [])

    def _read(self, sent: dict[str, Any], read: _Read, errors: list[Any]) -> dict[str, Any]:
        """The values, or every problem there is; `errors` are those that are known already."""
        self._check_explicit(sent)
        values: dict[str, Any] = {}
        try:
            values = self._with_nulls(sent, read)
        except ValidationError as error:
            refused = {item["loc"] for item in errors}
            found = [item for item in error.errors(include_url=False) if item["loc"][:1] not in refused]
            errors = [*found, *errors]
        if errors:
            problems = problem_lines(errors, sent, allowed=self.allowed, injected=self.injected)
            raise InputError(self.command, problems)
        return {**self.gaps, **values}

    def _with_nulls(self, sent: dict[str, Any], read: _Read) -> dict[str, Any]:
        """The values, where need be with the nulls that a client may leave out."""
        try:
            return read(sent)
        except ValidationError:
            if not self.fills_nulls:
                raise
        return read(decode_arguments(self.schema, sent))

    def _from_text(self, sent: dict[str, Any]) -> dict[str, Any]:
        text = self._converted(to_json, sent, bytes_mode="base64")
        values = self.adapter.read_json(text)
        if b"NaN" in text or b"Infinity" in text:  # pydantic refuses them as numbers, but not where anything goes
            self._converted(from_json, text, allow_inf_nan=False)
        return values

    def _refusals(self, sent: dict[str, Any]) -> list[Any]:
        """Names that no client may use: a closed schema refuses them as unknown, an open one would let them through."""
        return [
            {"type": "extra_forbidden", "loc": (name,), "msg": "", "input": sent[name]}
            for name in (*self.injected, *self.renamed)
            if name in sent and name not in self.allowed
        ]

    def _check_explicit(self, sent: dict[str, Any]) -> None:
        if self.explicit:
            data = self._converted(to_jsonable_python, sent, bytes_mode="base64")
            problems = self._converted(lambda: validate_explicit(self.schema, data))
            if problems:
                raise InputError(self.command, problems)

    def _converted(self, convert: Callable[..., Any], *data: Any, **options: Any) -> Any:
        try:
            return convert(*data, **options)
        except Exception as error:  # whatever somebody's object does when it is to be written
            text = str(error).encode("utf-8", "backslashreplace").decode()
            raise InputError(self.command, [f"arguments: cannot be read as JSON ({text})"]) from error

    def canonical(self, values: dict[str, Any], defaults: Mapping[str, Any]) -> Json:
        """Validated arguments as JSON data, defaults filled in: equal for equal arguments, and for no others."""
        return _faithful({**defaults, **values})


def positional(names: Sequence[str], values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split values for a function whose first `names` can only be passed by position."""
    if not names:
        return [], values
    return [values[name] for name in names if name in values], {
        name: value for name, value in values.items() if name not in names
    }


def _faithful(value: Any) -> Json:
    """A value as JSON data that tells apart whatever differs: unlike a serializer, which may leave out or mask."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, BaseModel):
        return [kind, _faithful({**vars(value), **(value.model_extra or {})})]
    if dataclasses.is_dataclass(value):
        return [kind, [_faithful(getattr(value, item.name, None)) for item in dataclasses.fields(value)]]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return [kind, _sorted([_faithful(key), _faithful(held)] for key, held in pairs)]
    if isinstance(value, (set, frozenset)):
        return [kind, _sorted(map(_faithful, cast("Iterable[Any]", value)))]
    if isinstance(value, (list, tuple, deque)):
        return [kind, [_faithful(item) for item in cast("Iterable[Any]", value)]]
    secret = getattr(value, "get_secret_value", None)
    return [kind, _faithful(secret()) if secret else repr(value)]


def _sorted(items: Iterable[Json]) -> list[Json]:
    return sorted(items, key=repr)
