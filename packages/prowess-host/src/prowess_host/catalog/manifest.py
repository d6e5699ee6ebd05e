"""The saved description of a project, and the check whether it is still valid. Imports no skill and no heavy module.

A manifest is a file in the user's cache. An entry is valid while the files it was made from are unchanged: the host
compares times and sizes, and the content if these are inconclusive. Whatever is wrong with a manifest, from a torn write to
a full disk, the host describes the skills again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from prowess.frozen import frozen
from prowess.skills.description import Description, environment_of
from prowess.skills.discovery import candidates
from prowess.skills.stamps import changed, refreshed, stamp
from prowess_host.catalog.cache import put, read_own

__all__ = ["NOTHING", "Manifest", "Standing", "read_manifest", "skills_of", "write_manifest"]

_FORM: Final = 5


@frozen
class Manifest:
    """A description, and the circumstances it was made in."""

    description: Description
    shape: str
    """Digest of the settings that shape a catalog, see `prowess_host.catalog.manifest_path`."""
    isolated: tuple[str, ...] = ()
    """The skills with environments."""

    def standing(self, shape: str) -> Standing:
        """The valid part."""
        description = self.description
        if shape != self.shape or description.environment != environment_of(description.interpreter, description.sites):
            return NOTHING
        if any(stamp(path) != then for path, then in description.imported.items() if path not in description.sightings):
            return NOTHING  # an imported module has changed, and it is not recorded which skills imported it
        gone = changed(description.sightings) | self._unseen()
        there = {str(path) for path in candidates(Path(folder) for folder in description.folders)}
        added = there - set(description.candidates)
        came = set(filter(os.path.exists, {path for facts in description.skills.values() for path in facts.absent}))
        stale = {
            name
            for name, facts in description.skills.items()
            if not gone.isdisjoint(facts.files) or not came.isdisjoint(facts.absent)
        }
        stale |= skills_of({*added, *gone}, description.folders)
        if any(facts.has_hooks and name in stale for name, facts in description.skills.items()):
            return NOTHING  # a hook may shape everything
        touched = added or gone or there != set(description.candidates)
        return Standing(frozenset(description.skills) - stale, complete=not touched and not stale)

    def _unseen(self) -> set[str]:
        """Files that could not be read, and now can be or are gone."""
        description = self.description
        paths = {*description.candidates, *(path for facts in description.skills.values() for path in facts.files)}
        unseen = paths - description.sightings.keys()
        return {path for path in unseen if os.access(path, os.R_OK) or not os.path.lexists(path)}

    def refreshed(self) -> Manifest:
        """The same with newer stamps for unchanged files, so that the next start need not read them."""
        fresh = refreshed(self.description.sightings, time.time_ns())
        return replace(self, description=replace(self.description, sightings=fresh))


@frozen
class Standing:
    """The valid part of a manifest."""

    known: frozenset[str]
    """Skills that need not be described again."""
    complete: bool
    """Whether these are all skills."""


NOTHING: Final = Standing(frozenset(), complete=False)


def read_manifest(path: Path) -> Manifest | None:
    """The manifest at a path, or `None` if it is missing, torn or not ours."""
    try:
        checksum, _, body = read_own(path).partition(b"\n")
        if checksum.decode("ascii") != _checksum(body):
            return None
        data = json.loads(body)
        if data["form"] != _FORM:
            return None
        return Manifest(Description.from_json(data["description"]), data["shape"], tuple(data["isolated"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def write_manifest(path: Path, manifest: Manifest) -> bool:
    """Save a manifest in one step. Returns whether that worked."""
    data = {
        "form": _FORM,
        "shape": manifest.shape,
        "isolated": manifest.isolated,
        "description": manifest.description.to_json(),
    }
    try:
        body = json.dumps(data, ensure_ascii=True).encode()
        put(path, _checksum(body).encode("ascii") + b"\n" + body)
    except (OSError, ValueError):
        return False
    return True


def skills_of(paths: Iterable[str], folders: Iterable[str]) -> set[str]:
    """The skills that files belong to, or would belong to."""
    names: set[str] = set()
    for path in paths:
        for folder in folders:
            inside = path.removeprefix(f"{folder}{os.sep}")
            if inside != path:
                first = inside.split(os.sep)[0]
                names.add(first.removesuffix(".py"))
    return names


def _checksum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
