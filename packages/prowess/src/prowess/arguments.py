"""Arguments of a call: read by the declared types, every problem found at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from prowess.adapters import Adapter
from prowess.errors import InputError
from prowess.jsontypes import Json, Schema
from prowess.problems import problem_lines
from prowess.profiles import decode_arguments
from prowess.schemas.explicit import validate as validate_explicit

__all__ = ["ArgumentReader"]


@dataclass(frozen=True, slots=True)
class ArgumentReader:
    """Turns what a caller sent into what the function takes."""

    command: str
    adapter: Adapter
    allowed: tuple[str, ...]
    injected: tuple[str, ...]
    schema: Schema
    """The canonical input schema."""
    explicit: bool = False
    open: bool = False
    """Whether unknown names are passed on, to `**kwargs`."""
    fills_nulls: bool = False
    """Whether a missing key may stand for `None` somewhere."""
    factories: Mapping[str, Callable[[], Any]] | None = None

    def from_json(self, arguments: object) -> dict[str, Any]:
        """Arguments as a client sends them: JSON data."""
        if not isinstance(arguments, Mapping):
            raise InputError(self.command, [f"arguments: expected an object, got {type(arguments).__name__}"])
        sent = cast("Mapping[str, Any]", arguments)
        try:
            text = to_json(sent, by_alias=True, bytes_mode="base64", inf_nan_mode="constants")
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise InputError(self.command, [f"arguments: not JSON ({error})"]) from error
        return self._read(sent, lambda: self.adapter.read_json(text))

    def from_python(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as Python code passes them: instances are welcome."""
        return self._read(arguments, lambda: self.adapter.read(arguments))

    def _read(self, sent: Mapping[str, Any], read: Callable[[], Any]) -> dict[str, Any]:
        problems = self._refused(sent)
        if self.explicit and not problems:
            problems = validate_explicit(self.schema, dict(sent))
        if problems:
            raise InputError(self.command, problems)
        try:
            values = read()
        except ValidationError as error:
            values = self._again(sent, error)
        except RecursionError as error:
            raise InputError(self.command, ["arguments: nested too deeply"]) from error
        return self._with_made_defaults(values)

    def _refused(self, sent: Mapping[str, Any]) -> list[str]:
        """Injected names: a closed schema refuses them as unknown, an open one would let them through."""
        if not (self.open and self.injected):
            return []
        errors = [
            {"type": "extra_forbidden", "loc": (name,), "msg": "", "input": sent[name]}
            for name in self.injected
            if name in sent
        ]
        return self._lines(errors, sent)

    def _again(self, sent: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
        """Once more with the nulls that a client may leave out, or the problems."""
        if self.fills_nulls:
            decoded = decode_arguments(self.schema, dict(sent))
            try:
                return self.adapter.read(decoded)
            except ValidationError:
                pass  # the problems with what was sent are the ones to show
        errors = cast("list[Any]", error.errors(include_url=False))
        raise InputError(self.command, self._lines(errors, sent)) from error

    def _lines(self, errors: list[Any], sent: Mapping[str, Any]) -> list[str]:
        return problem_lines(errors, sent, allowed=self.allowed, injected=self.injected)

    def _with_made_defaults(self, values: dict[str, Any]) -> dict[str, Any]:
        for name, factory in (self.factories or {}).items():
            if name not in values:
                values[name] = factory()
        return values

    def canonical(self, values: dict[str, Any], defaults: Mapping[str, Any]) -> Json:
        """Validated arguments as JSON data, defaults filled in: equal calls give equal data."""
        return self.adapter.dump({**defaults, **values})


def positional(names: Sequence[str], values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split values for a function whose first `names` can only be passed by position.

    A gap ends the positional part: later ones then keep their defaults.
    """
    rest = dict(values)
    args: list[Any] = []
    for name in names:
        if name not in rest:
            break
        args.append(rest.pop(name))
    return args, {name: value for name, value in rest.items() if name not in names}
