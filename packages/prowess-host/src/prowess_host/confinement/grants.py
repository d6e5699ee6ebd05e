"""What one limited skill is given: its limits, and what its worker needs whatever they are. Plain data, light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from prowess.frozen import frozen
from prowess.settings.keys import own_keys
from prowess.settings.limits import TABLE, Limits
from prowess.settings.settings import Settings

__all__ = ["Grant", "told_settings", "told_variables"]


@frozen
class Grant:
    """The limits of one skill, as the key of its workers: no two limited skills share a process, or its memory."""

    skill: str
    limits: Limits
    root: Path
    """The project."""
    own: tuple[Path, ...] = ()
    """The files and folders of the skill, which it may read."""
    listed: tuple[Path, ...] = ()
    """Folders of which it may know the names in them: those with skills."""
    unenforced: bool = False
    """The owner lets it run although this system cannot enforce all of its limits."""
    package: bool = False
    """It is an installed package: its name in descriptions says more."""
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Variables of the project's `.env` that its limits name."""

    def describes(self, key: str) -> bool:
        """Whether a name in a description is that of this skill."""
        return key.startswith(f"package:{self.skill}:") if self.package else key == self.skill


def told_variables(settings: Settings, limits: Limits) -> tuple[tuple[str, str], ...]:
    """The variables of `.env` that limits name."""
    return tuple((name, settings.dotenv[name]) for name in limits.env if name in settings.dotenv)


def told_settings(settings: Settings, limits: Limits) -> dict[str, Any]:
    """The settings that a limited worker is told, by dotted key: those of Prowess itself, and those that its limits name."""
    everything = settings.as_dict()
    found: dict[str, Any] = {}
    for key in (*(each.name for each in own_keys()), *limits.settings):
        value: Any = everything
        for part in key.split("."):
            value = _item(value, part)
        if value is not None and key != TABLE:
            found[key] = list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
    return {**found, "env_file": ""}


def _item(table: Any, name: str) -> Any:
    """The value in a table, whose keys may be written with dashes or in upper case."""
    if not isinstance(table, Mapping):
        return None
    keys: Mapping[str, Any] = table  # pyright: ignore[reportUnknownVariableType] - settings are JSON
    return next((keys[key] for key in keys if key.lower().replace("-", "_") == name.lower().replace("-", "_")), None)
