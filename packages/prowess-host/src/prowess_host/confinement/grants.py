"""The limits of one skill, with the files and settings that its worker needs in any case. Plain data, light to import."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from prowess.frozen import frozen
from prowess.settings.keys import PRIVATE, own_keys
from prowess.settings.limits import TABLE, Limits
from prowess.settings.settings import Settings

__all__ = ["Grant", "passed_settings", "passed_variables"]


@frozen
class Grant:
    """The limits of one skill, as the key of its workers: limited skills never share a process."""

    skill: str
    limits: Limits
    root: Path
    """The project."""
    own: tuple[Path, ...] = ()
    """The skill's own files and folders, which it may read."""
    listed: tuple[Path, ...] = ()
    """Folders that it may list but not read: those with skills."""
    guarded: tuple[Path, ...] = ()
    """Folders that it may never write, because their content runs without limits or defines limits."""
    unenforced: bool = False
    """The owner accepts that this system cannot enforce all of its limits."""
    package: bool = False
    """It is an installed package, which has a longer name in descriptions."""
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Variables of the project's `.env` that its limits name."""

    def describes(self, key: str) -> bool:
        """Whether a name in a description belongs to this skill."""
        return key.startswith(f"package:{self.skill}:") if self.package else key == self.skill

    def passed_texts(self, settings: Any) -> frozenset[str]:
        """The texts in the settings and variables that its worker gets."""
        named = (os.environ[name] for name in self.limits.env if name in os.environ)
        return frozenset((*_texts(settings), *named, *dict(self.variables).values()))


def passed_variables(settings: Settings, limits: Limits) -> tuple[tuple[str, str], ...]:
    """The variables of `.env` that limits name."""
    return tuple((name, settings.dotenv[name]) for name in limits.env if name in settings.dotenv)


def passed_settings(settings: Settings, limits: Limits) -> dict[str, Any]:
    """The settings that a limited worker gets, by dotted key: Prowess's own, and those in its limits."""
    everything = settings.as_dict()
    found: dict[str, Any] = {}
    for key in (*(each.name for each in own_keys() if each.name not in PRIVATE), *limits.settings):
        value: Any = everything
        for part in key.split("."):
            value = _item(value, part)
        if value is not None and key != TABLE:
            found[key] = list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
    return {**found, "env_file": ""}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType] - settings are JSON
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:  # pyright: ignore[reportUnknownVariableType] - as above
            yield from _texts(item)
    else:
        yield str(value)


def _item(table: Any, name: str) -> Any:
    """The value in a table. Keys may have dashes or upper case."""
    if not isinstance(table, Mapping):
        return None
    keys: Mapping[str, Any] = table  # pyright: ignore[reportUnknownVariableType] - settings are JSON
    return next((keys[key] for key in keys if key.lower().replace("-", "_") == name.lower().replace("-", "_")), None)
