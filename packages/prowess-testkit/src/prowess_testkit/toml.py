"""Writes settings as TOML: one line for each value, under its dotted key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any, Final, cast

from prowess_testkit.errors import ProjectError

__all__ = ["toml", "toml_value"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml(tables: Mapping[str, Any]) -> str:
    """Nested tables as the text of a TOML file. A value of `None` is left out."""
    return "".join(f"{line}\n" for line in _lines(tables, ()))


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for name, value in table.items():
        place = (*path, name)
        if isinstance(value, Mapping):
            yield from _lines(cast("Mapping[str, Any]", value), place)
        elif value is not None:
            yield f"{'.'.join(map(_key, place))} = {_value(value, place)}"


def toml_value(value: Any, key: str) -> str:
    """One value as TOML. `key` is its name in errors."""
    return _value(value, (key,))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any, place: tuple[str, ...]) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bool, int)):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item, place) for item in cast('list[Any]', value))}]"
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return f"{{{', '.join(f'{_key(name)} = {_value(item, place)}' for name, item in items)}}}"
    raise ProjectError(f"setting {'.'.join(place)}: {value!r} cannot be written as TOML; give text, numbers or lists")


def _text(text: str) -> str:
    """A TOML string: JSON escapes all that TOML needs, except DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
