"""Finds the limits of skills: reads their declarations and the owner's settings, and checks whether this system can enforce them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from prowess.contracts.catalog import Failure
from prowess.errors import SettingsError
from prowess.frozen import frozen
from prowess.settings.limits import TABLE, declared, normal_name
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.skills.discovery import Source
from prowess.skills.stamps import read
from prowess_host.confinement.grants import Grant, passed_variables

__all__ = ["Limited", "read_limits"]

_MENTION: Final = TABLE.encode()
_Said: TypeAlias = tuple[dict[str, Any], str]
"""A table of limits and its file."""


@frozen
class Limited:
    """The skills with limits."""

    grants: Mapping[str, Grant]
    """The granted limits by skill."""
    broken: Mapping[str, Failure]
    """The reasons by skill why it cannot run within its limits."""


def read_limits(sources: Iterable[Source], folders: Iterable[Path], settings: Settings, root: Path) -> Limited:
    """The limits of the skills in some folders, and of installed packages that are allowed within limits."""
    grants: dict[str, Grant] = {}
    broken: dict[str, Failure] = {}
    listed = tuple(folders)
    names: set[str] = set()
    for source in sources:
        names.add(normal_name(source.name))
        said: _Said | None = None
        try:
            said = _said(source)
            grant = _grant(source.name, said, settings, root)
            if grant is not None:
                grants[source.name] = _checked(replace(grant, own=(source.path,), listed=listed))
        except Exception as error:  # noqa: BLE001 - a fault in one declaration must not stop other skills
            file = said[1] if said is not None else settings.sandbox.origin
            broken[source.name] = Failure(source.name, _in_words(error), file)
    for name in settings.sandbox.verdicts.keys() - names:  # these may be installed packages
        try:
            grant = _grant(name, None, settings, root)
            if grant is not None:
                grants[name] = _checked(replace(grant, listed=listed, package=True))
        except Exception as error:  # noqa: BLE001 - as above
            broken[name] = Failure(name, _in_words(error), settings.sandbox.origin)
    return Limited(grants, broken)


def _in_words(error: Exception) -> str:
    if isinstance(error, (SettingsError, OSError)):
        return str(error)
    return f"its limits cannot be read, because of an internal error: {type(error).__name__}: {error}"


def _said(source: Source) -> _Said | None:
    """The declared limits of a skill. Declarations in several of its files must be equal."""
    files = [source.path / "SKILL.md", *source.files] if source.is_folder else source.files
    found: _Said | None = None
    for file in files:
        try:
            raw = read(str(file))
        except OSError:
            continue
        one = declared(raw.decode("utf-8", "replace"), str(file)) if _MENTION in raw else None
        if one is not None and found is not None and one[0] != found[0]:
            raise SettingsError(f"{one[1]} declares other limits than {found[1]}; declare the same limits in both")
        found = found or one
    return found


def _grant(name: str, said: _Said | None, settings: Settings, root: Path) -> Grant | None:
    limits = settings.sandbox.limits(name, said)
    if limits is None:
        return None
    variables = passed_variables(settings, limits)
    guarded = _guarded(settings) if limits.write else ()
    return Grant(name, limits, root, guarded=guarded, unenforced=settings.sandbox.unenforced, variables=variables)


def _guarded(settings: Settings) -> tuple[Path, ...]:
    """The manifest, environments and the record; the interpreter of the workers."""
    python = settings.own.python
    folders = [ConfigPaths.of(settings, os.environ).cache_dir, *([Path(python).parent.parent] if python else [])]
    return tuple(folder for folder in folders if folder != Path(folder.anchor) and folder != Path("/usr"))


def _checked(grant: Grant) -> Grant:
    from prowess_host.confinement.confine import check  # only for skills with limits

    check(grant)
    return grant
