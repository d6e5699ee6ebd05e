"""The description of the skills of a project, with the versions of all files it was made from. Plain data.

A worker makes it, a host keeps it in a manifest. Light: it needs contracts and files, and imports no skill.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from prowess.contracts.catalog import Catalog, Failure
from prowess.contracts.contract import Contract
from prowess.contracts.names import assign
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject, Schema
from prowess.skills.stamps import ABSENT, Seen, Stamp, as_imported, listing, look, stamp

__all__ = [
    "Description",
    "SkillFacts",
    "View",
    "combined",
    "digest_of",
    "environment_of",
    "merged",
    "seen_all",
    "site_folders",
]


_PACKAGES: Final = (".dist-info", ".egg-info", ".egg-link", ".pth")


class View(NamedTuple):
    """How clients are shown a command."""

    input_schema: Schema
    boxed_output: Schema | None
    output: Schema | None
    """The output where results need no box around them."""

    def to_json(self) -> list[Any]:
        """Plain data; most outputs are the same with and without a box."""
        return list(self[:2] if self.output == self.boxed_output else self)

    @classmethod
    def from_json(cls, data: list[Any]) -> View:
        """Read what `to_json` wrote."""
        return cls(data[0], data[1], data[-1])


@frozen
class SkillFacts:
    """One skill: what it promises, what of it failed, and which files it is made of."""

    contracts: tuple[Contract, ...] = ()
    failures: tuple[Failure, ...] = ()
    files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Files that would be part of it if they were there."""
    has_hooks: bool = False
    views: Mapping[str, View] = field(default_factory=dict[str, View])
    """What clients are shown of each command."""
    fatal: bool = False
    """Importing it ends the process."""
    place: str = ""
    """The file or the folder that it is, if it is not an installed package."""
    own: tuple[str, ...] = ()
    """The files with its commands and hooks."""

    @property
    def digest(self) -> str:
        """A fingerprint of what it promises."""
        return digest_of(self.contracts)

    def to_json(self) -> JsonObject:
        """Plain data that `from_json` reads back."""
        return {
            "contracts": [contract.to_json() for contract in self.contracts],
            "failures": [_failure_to_json(failure) for failure in self.failures],
            "files": list(self.files),
            "absent": list(self.absent),
            "has_hooks": self.has_hooks,
            "fatal": self.fatal,
            "place": self.place,
            "own": list(self.own),
            "views": {command: view.to_json() for command, view in self.views.items()},
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> SkillFacts:
        """Read what `to_json` wrote."""
        return cls(
            contracts=tuple(Contract.from_json(item) for item in data["contracts"]),
            failures=tuple(Failure.told(*item) for item in data["failures"]),
            files=tuple(data["files"]),
            absent=tuple(data["absent"]),
            has_hooks=bool(data["has_hooks"]),
            views={command: View.from_json(view) for command, view in data["views"].items()},
            fatal=bool(data["fatal"]),
            place=str(data["place"]),
            own=tuple(data["own"]),
        )


@frozen
class Description:
    """All skills of a project, or those that the caller did not know yet."""

    skills: Mapping[str, SkillFacts] = field(default_factory=dict[str, SkillFacts])
    names: tuple[str, ...] = ()
    """Every skill there is, described here or not."""
    failures: tuple[Failure, ...] = ()
    """What is wrong with no single skill, like two of one name."""
    folders: tuple[str, ...] = ()
    """Where skills are looked for."""
    candidates: tuple[str, ...] = ()
    """Every file in them that may be a skill."""
    sightings: Mapping[str, Seen] = field(default_factory=dict[str, Seen])
    """Every file that counts, as it was."""
    imported: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    """Files of the project that have been imported, however it came to that."""
    interpreter: str = ""
    sites: tuple[str, ...] = ()
    """Where the interpreter's packages are."""
    environment: str = ""
    """What was installed there, see `environment_of`."""
    texts: Mapping[str, bytes] = field(default_factory=dict[str, bytes], compare=False, repr=False)
    """What the files of the skills said when they were imported. It is not kept in a manifest."""

    def to_json(self) -> JsonObject:
        """Plain data that `from_json` reads back to an equal description."""
        return {
            "skills": {name: facts.to_json() for name, facts in self.skills.items()},
            "names": list(self.names),
            "failures": [_failure_to_json(failure) for failure in self.failures],
            "folders": list(self.folders),
            "candidates": list(self.candidates),
            "sightings": {path: list(seen) for path, seen in self.sightings.items()},
            "imported": {path: list(then) for path, then in self.imported.items()},
            "interpreter": self.interpreter,
            "sites": list(self.sites),
            "environment": self.environment,
        }

    @classmethod
    def from_json(cls, data: JsonObject, texts: Mapping[str, bytes] | None = None) -> Description:
        """Read what `to_json` wrote; foreign data is a `KeyError`, a `TypeError` or a `ValueError`."""
        return cls(
            skills={name: SkillFacts.from_json(facts) for name, facts in data["skills"].items()},
            names=tuple(data["names"]),
            failures=tuple(Failure.told(*item) for item in data["failures"]),
            folders=tuple(data["folders"]),
            candidates=tuple(data["candidates"]),
            sightings={path: Seen(*seen) for path, seen in data["sightings"].items()},
            imported={path: Stamp(*then) for path, then in data["imported"].items()},
            interpreter=data["interpreter"],
            sites=tuple(data["sites"]),
            environment=data["environment"],
            texts=texts or {},
        )

    @property
    def hooks(self) -> frozenset[tuple[str, str]]:
        """The files that may shape every contract, each with a digest of what it said."""
        files = {path for facts in self.skills.values() if facts.has_hooks for path in facts.files}
        return frozenset((path, self.sightings[path].digest) for path in files & self.sightings.keys())

    def catalog(self, hide: Iterable[str], root: Path, yielding: Collection[str] = ()) -> Catalog:
        """Who may be called, and everything that failed. Skills that are `yielding` take no name from others."""
        names = assign((each for facts in self.skills.values() for each in facts.contracts), hide, root, yielding)
        contracts = {contract.id: contract for contract in names.contracts.values()}
        failures = [*self.failures, *names.clashes]
        failures.extend(failure for facts in self.skills.values() for failure in facts.failures)
        failures.sort(key=lambda item: (item.source, item.file or "", item.line or 0, item.reason))
        return Catalog(tuple(contracts[key] for key in sorted(contracts)), tuple(failures))


def digest_of(contracts: Iterable[Contract]) -> str:
    """A fingerprint of all that contracts promise."""
    return hashlib.sha256("".join(contract.digest for contract in contracts).encode()).hexdigest()


def merged(older: Description, newer: Description) -> Description:
    """A whole description, of an older one and what was described since."""
    skills = {name: facts for name, facts in older.skills.items() if name in newer.names} | dict(newer.skills)
    needed = {path for facts in skills.values() for path in facts.files} | set(newer.candidates)
    carried = {path for name in skills.keys() - newer.skills.keys() for path in skills[name].files}
    then = {path: seen for path, seen in older.sightings.items() if path in carried or path not in newer.sightings}
    sightings = {path: seen for path, seen in {**newer.sightings, **then}.items() if path in needed}
    # Where all was described anew, what is imported now is all that counts.
    dropped = older.sightings.keys() - needed if skills.keys() - newer.skills.keys() else older.imported.keys()
    still = {path: then for path, then in older.imported.items() if path not in dropped}
    return Description(
        skills={name: skills[name] for name in sorted(skills)},
        names=newer.names,
        failures=newer.failures,
        folders=newer.folders,
        candidates=newer.candidates,
        sightings=sightings,
        imported={**still, **newer.imported},
        interpreter=newer.interpreter,
        sites=newer.sites,
        environment=newer.environment,
    )


def combined(first: Description, parts: Iterable[Description]) -> Description | None:
    """One description, of parts that several processes made at about the same time; `None` if they contradict each other.

    `first` has what is the same in all of them: which skills there are, and what shapes every contract.
    """
    skills, sightings, imported = dict(first.skills), dict(first.sightings), dict(first.imported)
    texts = dict(first.texts)
    own: dict[str, Seen] = {}
    """What was seen of files that were imported: `first` may have seen other files before they were."""
    for part in parts:
        if (part.environment, part.folders, part.names) != (first.environment, first.folders, first.names):
            return None
        if any(own.setdefault(path, seen).digest != seen.digest for path, seen in part.sightings.items()):
            return None
        if any(texts.setdefault(path, text) != text for path, text in part.texts.items()):
            return None
        if any(imported.setdefault(path, then) != then for path, then in part.imported.items()):
            return None
        skills.update(part.skills)
    sightings.update(own)
    return replace(
        first,
        skills={name: skills[name] for name in sorted(skills)},
        sightings=sightings,
        imported=imported,
        texts=texts,
    )


def seen_all(paths: Iterable[str], read: Mapping[str, str], since_ns: int) -> dict[str, Seen]:
    """The files as they were when they were imported, which was after `since_ns`. `read` has the digests of what was read.

    A file that says something else by now, or may do so, is noted so that it will be looked at again.
    """
    now = time.time_ns()
    sightings: dict[str, Seen] = {}
    for path in paths:
        seen = look(path, now)
        if seen is not None:
            sightings[path] = as_imported(seen, read.get(path), since_ns)
    return sightings


def environment_of(interpreter: str, sites: Iterable[str]) -> str:
    """An interpreter, and all that is installed for it: names hold versions, times tell of one installed anew."""
    now = stamp(interpreter)
    version = f"{interpreter} is not there" if now == ABSENT else f"{interpreter} {' '.join(map(str, now))}"
    return f"{version} {listing(sites, _PACKAGES)}"


def site_folders() -> tuple[str, ...]:
    """Where packages of this interpreter are, as far as they are folders."""
    return tuple(sorted({str(Path(entry).resolve()) for entry in sys.path if entry and Path(entry).is_dir()}))


def _failure_to_json(failure: Failure) -> list[Any]:
    return [failure.source, failure.reason, failure.file, failure.line]
