"""Finds values with two entries of one name in JSON, like `{1: …, "1": …}`, of which JSON data would keep only the last.

Almost no value can have such entries. One that may is written as text, which has all of its entries.
"""

from __future__ import annotations

import dataclasses
import json
from collections import ChainMap, Counter, UserDict, deque
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Final, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from prowess.contracts.signature import is_union
from prowess.results.unsendable import SCALARS, first_inside, path_text

__all__ = ["fields_may_meet", "keys_may_meet", "lost_entry"]

_MAPPINGS: Final = (ChainMap, MappingProxyType, UserDict, dict)
"""Classes whose keys are cheap to read. Other mappings are written as text without a look at their keys."""
_DISTINCT: Final = (bool, date, datetime, int)


def keys_may_meet(entries: Iterable[Any]) -> bool:
    """Whether two keys may be written alike: not if all are strings, or of one type that is always written differently."""
    try:
        "".join(entries)  # the quickest look at all keys
    except TypeError:
        kinds = set(map(type, entries))
        return len(kinds) > 1 or kinds.isdisjoint(_DISTINCT)
    return False


def fields_may_meet(values: Iterable[Any]) -> bool:
    """Whether two entries in the fields of models and dataclasses among these values may get the same name."""
    kinds: dict[type[Any], _Kind] = {}
    seen: set[int] = set()
    waiting: list[Any] = list(values)
    while waiting:
        held = waiting.pop()
        cls = cast("type[Any]", type(held))
        kind = kinds.get(cls)
        if kind is None:
            kind = kinds[cls] = _kind_of(cls)
        if kind.leads_nowhere or id(held) in seen:
            continue
        seen.add(id(held))
        if kind.is_mapping:
            if keys_may_meet(held):
                return True
            waiting.extend(held.values())
        elif kind.is_sequence:
            waiting.extend(held)
        else:
            if kind.meet:
                return True
            waiting.extend([getattr(held, name, None) for name in kind.fields])
            if kind.is_open and (extra := held.__pydantic_extra__):
                if not kind.names.isdisjoint(extra):
                    return True
                waiting.extend(extra.values())
    return False


@dataclasses.dataclass(slots=True)
class _Kind:
    """Facts about a class."""

    fields: tuple[str, ...] = ()
    """The fields that may hold objects with any keys."""
    names: frozenset[str] = frozenset()
    meet: bool = False
    """Whether two of its fields have the same name in JSON, or may have it."""
    is_open: bool = False
    """Whether it has further fields."""
    is_mapping: bool = False
    is_sequence: bool = False
    leads_nowhere: bool = False


_known: Final[WeakKeyDictionary[type[Any], _Kind]] = WeakKeyDictionary()


def _kind_of(cls: type[Any]) -> _Kind:
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = _read(cls)
    return found


def _read(cls: type[Any]) -> _Kind:
    if issubclass(cls, _MAPPINGS):
        return _Kind(is_mapping=True)
    if issubclass(cls, (list, tuple, deque)):
        return _Kind(is_sequence=True)
    if issubclass(cls, Mapping):
        return _Kind(meet=True)
    if issubclass(cls, BaseModel):
        names = [info.serialization_alias or name for name, info in cls.model_fields.items()]
        names += [computed.alias or name for name, computed in cls.model_computed_fields.items()]
        fields = tuple(name for name, info in cls.model_fields.items() if not _has_plain_keys(info.annotation))
        meet, is_open = len(set(names)) < len(names), cls.model_config.get("extra") == "allow"
        return _Kind(fields, frozenset(names), meet, is_open, leads_nowhere=not (fields or meet or is_open))
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    fields = tuple(field.name for field in fields if not _has_plain_keys(field.type))
    return _Kind(fields, leads_nowhere=not fields)


def _has_plain_keys(annotation: Any) -> bool:
    """Whether the values of a type certainly hold no objects with keys other than strings."""
    parts = [part for part in get_args(annotation) if part is not Ellipsis]
    origin = get_origin(annotation) or annotation
    if origin in _CONTAINERS or is_union(annotation):
        return bool(parts) and all(map(_has_plain_keys, parts)) and (origin is not dict or parts[0] is str)
    return annotation in _LEAVES


_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
_LEAVES: Final = (*SCALARS, datetime, date, *(kind.__name__ for kind in SCALARS))  # names: annotations as texts


class _Doubled:
    """An object of JSON text with two entries of one name."""

    def __init__(self, name: str) -> None:
        self.name = name


def _name_twice(held: Any) -> str | None:
    return held.name if isinstance(held, _Doubled) else None


def lost_entry(text: bytes) -> str | None:
    """The message for JSON text with two entries of one name; `None` for other text."""

    def opened(entries: list[tuple[str, Any]]) -> Any:
        counts = Counter(name for name, _ in entries)
        return _Doubled(counts.most_common(1)[0][0]) if len(counts) < len(entries) else dict(entries)

    found = first_inside(json.loads(text, object_pairs_hook=opened), _name_twice)
    if found is None:
        return None
    name = json.dumps(found[1], ensure_ascii=False)
    return (
        f"{path_text(found[0])}: two entries are both written under the name {name}, so one of them would be lost. "
        "Use keys that differ as text, or return a list of pairs"
    )
