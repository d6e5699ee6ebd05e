"""Nested tables of settings: looking up, merging and flattening them. Names match in any case, with `-` or `_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard, cast

from prowess.settings import keychain

__all__ = ["Table", "is_free", "is_table", "leaves", "match", "normal", "normal_path", "plain", "put"]

Table = dict[str, Any]


def normal(name: str) -> str:
    """A name in the form for comparisons: environment variables have no lower case and no dashes."""
    return name.lower().replace("-", "_")


def normal_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """A path in that form."""
    return tuple(map(normal, path))


def match(table: Table, name: str) -> str | None:
    """The key of a table for a name: an exact match, else one in normal form."""
    if name in table:
        return name
    return next((key for key in table if normal(key) == normal(name)), None)


def put(table: Table, name: str, value: Any) -> None:
    """Set a value; tables are merged, everything else is replaced."""
    if not is_table(value):
        table[name] = value
        return
    if not is_table(table.get(name)):
        table[name] = {}
    for key, item in value.items():
        put(table[name], key, item)


def leaves(table: Table, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that is not a table, with its path."""
    for name, value in table.items():
        if is_table(value) and not keychain.is_reference(value):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def plain(value: Any) -> Any:
    """Mappings as dicts and sequences as lists, as TOML gives them."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[object, Any]", value).items()}
    return [plain(item) for item in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value


def is_table(value: object) -> TypeGuard[Table]:
    """Whether a value is a table."""
    return isinstance(value, dict)


def is_free(value: object) -> bool:
    """Whether a value of an unknown name belongs to a skill: a table, or an array of tables."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return bool(items) and all(map(is_table, items))
    return is_table(value)
