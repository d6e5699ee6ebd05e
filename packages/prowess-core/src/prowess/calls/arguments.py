"""Reads the arguments of a call by the declared types, and reports all problems at once."""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import PurePath
from typing import Any, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json, to_jsonable_python

from prowess.calls.jsontext import decode_object, decode_texts
from prowess.errors import InputError
from prowess.frozen import frozen
from prowess.jsontypes import Json, Schema, encodable, uncollected
from prowess.profiles.profile import decode_arguments
from prowess.schemas.adapters import Adapter
from prowess.schemas.explicit import validate as validate_explicit
from prowess.schemas.problems import problem_lines, shown

__all__ = ["ArgumentReader", "JsonText", "changeable", "copies", "positional"]

K = TypeVar("K")
_Read: TypeAlias = "Callable[[dict[str, Any]], dict[str, Any]]"
_LARGE = 256 * 1024
"""Bytes from which arguments are read without garbage collections."""
_MOST_UNKNOWN = 1000
"""Unknown names of one call that are looked at."""
_MOST_ERRORS = 10_000
"""Problems of one call that are all looked at."""


class JsonText(bytes):
    """Arguments as JSON text that was checked to be strict JSON, without NaN and infinities."""

    __slots__ = ()


@frozen
class ArgumentReader:
    """Converts the arguments of a caller to the parameters of the function."""

    command: str
    adapter: Adapter
    allowed: tuple[str, ...]
    injected: tuple[str, ...]
    schema: Schema
    """The canonical input schema."""
    renamed: tuple[str, ...] = ()
    """The names of parameters with an alias."""
    explicit: bool = False
    open: bool = False
    """Whether unknown names are passed on, to `**kwargs`."""
    fills_nulls: bool = False
    """Whether a missing key may mean `None` somewhere."""
    gaps: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Defaults of positional parameters, which cannot be omitted before another one."""

    def from_json(self, arguments: object, decoded: list[str] | None = None) -> dict[str, Any]:
        """Read arguments of a client, which are JSON data. Adds the paths of decoded JSON texts to `decoded`.

        Texts are decoded only if the arguments are invalid otherwise, so a valid text is never changed.
        """
        paths = [] if decoded is None else decoded
        if isinstance(arguments, JsonText):
            values = self._from_bytes(arguments)
            if values is not None:
                return values
            arguments = self._parsed(arguments)
        opened = decode_object(arguments) if isinstance(arguments, str) else None
        if opened is not None:
            paths.append("arguments")
            arguments = opened
        if not isinstance(arguments, Mapping):
            raise InputError(self.command, [f"arguments: expected an object, got {shown(arguments)}"])
        sent = dict(cast("Mapping[str, Any]", arguments))
        unread = self._leave_out(sent)
        try:
            return self._from_json(sent, unread)
        except InputError as misfit:
            opened, found = decode_texts(self.schema, sent)
            if not found:
                raise
            return self._from_decoded(opened, misfit, paths, found, unread)

    def _leave_out(self, sent: dict[str, Any]) -> int:
        """Remove most of very many unknown names, each of which costs microseconds. Returns their number."""
        if self.open or self.explicit or len(sent) <= len(self.allowed) + _MOST_UNKNOWN:
            return 0
        more = [name for name in sent if name not in self.allowed][_MOST_UNKNOWN:]
        for name in more:
            del sent[name]
        return len(more)

    def _from_bytes(self, text: JsonText) -> dict[str, Any] | None:
        """The values, if the text is valid as it is; `None` if `_read` has to report or decode something."""
        if self.explicit or self.adapter.repeats_matter or (self.open and (self.injected or self.renamed)):
            return None
        try:
            if len(text) < _LARGE:
                values = self.adapter.read_json(text)
            else:
                with uncollected():
                    values = self.adapter.read_json(text)
        except ValidationError:
            return None
        return self._with_gaps(values) if self.gaps else values

    def _parsed(self, text: bytes) -> Any:
        try:
            return from_json(text)
        except ValueError as error:  # nested too deeply
            raise InputError(self.command, [f"arguments: {error}"]) from error

    def _from_decoded(
        self, opened: dict[str, Any], misfit: InputError, paths: list[str], found: list[str], unread: int
    ) -> dict[str, Any]:
        try:
            values = self._from_json(opened, unread)
        except InputError:
            raise
        except Exception:  # noqa: BLE001 - a validator of the author may accept only strings: its first message counts
            raise misfit from None
        paths.extend(found)
        return values

    def _from_json(self, sent: dict[str, Any], unread: int) -> dict[str, Any]:
        return self._read(sent, self._from_text, self._refusals(sent) if self.open else [], unread)

    def from_python(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Read arguments of Python code, which may be instances."""
        return self._read(arguments, self.adapter.read, [])

    def _read(self, sent: dict[str, Any], read: _Read, errors: list[Any], unread: int = 0) -> dict[str, Any]:
        """The values. Raises `InputError` with all problems; `errors` are already known ones, `unread` is the number of others."""
        self._check_explicit(sent)
        values: dict[str, Any] = {}
        try:
            values = self._with_nulls(sent, read)
        except ValidationError as error:
            refused = {item["loc"] for item in errors}
            count, error = error.error_count(), self._shortened(error, sent) if read == self._from_text else error
            unread += count - error.error_count()
            found = [item for item in error.errors(include_url=False) if item["loc"][:1] not in refused]
            errors = [*found, *errors]
        if errors:
            problems = problem_lines(errors, sent, allowed=self.allowed, injected=self.injected, unread=unread)
            raise InputError(self.command, problems)
        return self._with_gaps(values)

    def _shortened(self, error: ValidationError, sent: dict[str, Any]) -> ValidationError:
        """The error with the first problem of each array, if there are very many: listing a million takes seconds."""
        if error.error_count() > _MOST_ERRORS:
            try:
                self.adapter.read_until_first(to_json(sent, bytes_mode="base64"))
            except ValidationError as shorter:
                return shorter
        return error

    def _with_gaps(self, values: dict[str, Any]) -> dict[str, Any]:
        if not self.gaps:
            return values
        return {**copies({name: value for name, value in self.gaps.items() if name not in values}), **values}

    def _with_nulls(self, sent: dict[str, Any], read: _Read) -> dict[str, Any]:
        """The values, if necessary with the nulls that a client may omit."""
        try:
            return read(sent)
        except ValidationError:
            if not self.fills_nulls:
                raise
        return read(decode_arguments(self.schema, sent))

    def _from_text(self, sent: dict[str, Any]) -> dict[str, Any]:
        text = self._converted(to_json, sent, bytes_mode="base64")
        values = self.adapter.read_json(text)
        if b"NaN" in text or b"Infinity" in text:  # pydantic accepts them where the type is `Any`
            self._converted(from_json, text, allow_inf_nan=False)
        return values

    def _refusals(self, sent: dict[str, Any]) -> list[Any]:
        """Errors for injected names. A closed schema rejects them as unknown, an open one would accept them."""
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
        except Exception as error:  # a foreign object may raise anything when it is serialised
            text = encodable(str(error))
            raise InputError(self.command, [f"arguments: cannot be read as JSON ({text})"]) from error

    def canonical(self, values: dict[str, Any], defaults: Mapping[str, Any], unlike: list[str] | None = None) -> Json:
        """Validated arguments with defaults as JSON data, which is equal only for equal arguments.

        An object that cannot be compared equals none. `unlike` gets the name of its class.
        """
        return _Canonical([] if unlike is None else unlike).of({**defaults, **values})


def positional(names: Sequence[str], values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split values for a function whose first `names` can only be passed by position."""
    if not names:
        return [], values
    return [values[name] for name in names if name in values], {
        name: value for name, value in values.items() if name not in names
    }


def changeable(value: Any) -> bool:
    """Whether a function can change a value, judged by plain data, models and dataclasses."""
    if isinstance(value, tuple):
        return any(changeable(item) for item in cast("tuple[Any, ...]", value))
    if isinstance(value, BaseModel):
        return True
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return True
    return isinstance(value, (bytearray, deque, dict, list, set))


def copies(values: Mapping[K, Any]) -> dict[K, Any]:
    """Copies of values for one attempt, so that its changes do not reach other attempts and calls."""
    return {name: _copy(value) if changeable(value) else value for name, value in values.items()}


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - what cannot be copied, like a lock, is shared as Python does
        return value


class _Canonical:
    """Writes values as JSON data without loss. A serializer may omit or mask something."""

    def __init__(self, unlike: list[str]) -> None:
        self._unlike = unlike

    def of(self, value: Any) -> Json:
        if value is None or type(value) in (bool, int, float, str):
            return value
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, BaseModel):
            private = getattr(value, "__pydantic_private__", None)
            # A function that asks which fields were sent, as by `exclude_unset`, sees whether a default was.
            return [kind, *map(self.of, (vars(value), value.model_extra, private, value.model_fields_set))]
        if dataclasses.is_dataclass(value):
            fields = {item.name: getattr(value, item.name, None) for item in dataclasses.fields(value)}
            return [kind, self.of({**fields, **getattr(value, "__dict__", {})})]
        if isinstance(value, Mapping):
            pairs = [[self.of(key), self.of(held)] for key, held in cast("Mapping[Any, Any]", value).items()]
            return [kind, pairs if isinstance(value, OrderedDict) else _sorted(pairs)]
        if isinstance(value, (set, frozenset)):
            return [kind, _sorted(map(self.of, cast("Iterable[Any]", value)))]
        if isinstance(value, (list, tuple, deque)):
            return [kind, [self.of(item) for item in cast("Iterable[Any]", value)]]
        if isinstance(value, PurePath):  # its pickled state keeps how it was spelled, on some versions of Python
            return [kind, str(value)]
        secret = getattr(value, "get_secret_value", None)
        return [kind, self.of(secret()) if secret else self._pickled(value)]

    def _pickled(self, value: Any) -> str:
        """The state of an object. Its `repr` may be shortened, or name an address that the next object gets again."""
        text = io.BytesIO()
        try:
            _pickler()(text).dump(value)
        except Exception:  # noqa: BLE001 - the object of an author may raise anything
            self._unlike.append(type(value).__qualname__)
            return os.urandom(16).hex()  # nothing can tell it from others, so it equals none
        return text.getvalue().hex()


@functools.cache
def _pickler() -> Callable[[io.BytesIO], Any]:
    """A pickler for classes of any scope. Nothing is read again."""
    import pickle  # needed by few commands

    class Pickler(pickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if not isinstance(obj, type) or obj.__module__ == "builtins":
                return NotImplemented
            return str, (f"{obj.__module__}.{obj.__qualname__}",)

    return Pickler


def _sorted(items: Iterable[Json]) -> list[Json]:
    return sorted(items, key=repr)
