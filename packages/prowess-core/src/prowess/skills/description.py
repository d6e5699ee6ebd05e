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


_PACKAGES: Final = (".dist-info", ".egg-info", ".egg-link", ".pth", ".start")


class View(NamedTuple):
    """The schemas of a command for clients."""

    input_schema: Schema
    boxed_output: Schema | None
    output: Schema | None
    """The output schema without a box."""

    def to_json(self) -> list[Any]:
        """Plain data; most outputs are the same with and without a box."""
        return list(self[:2] if self.output == self.boxed_output else self)

    @classmethod
    def from_json(cls, data: list[Any]) -> View:
        """Read what `to_json` wrote."""
        return cls(data[0], data[1], data[-1])


@frozen
class SkillFacts:
    """One skill: its contracts, its failures and its files."""

    contracts: tuple[Contract, ...] = ()
    failures: tuple[Failure, ...] = ()
    files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Missing files that would be part of it."""
    has_hooks: bool = False
    views: Mapping[str, View] = field(default_factory=dict[str, View])
    """The schemas for clients, by command."""
    fatal: bool = False
    """Whether importing it ends the process."""
    place: str = ""
    """Its file or folder; empty for an installed package."""
    own: tuple[str, ...] = ()
    """The files with its commands and hooks."""
    sent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data that it provides for skills in other environments, by name."""

    @property
    def digest(self) -> str:
        """A fingerprint of its contracts."""
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
            **({"sent": dict(self.sent)} if self.sent else {}),
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> SkillFacts:
        """Read what `to_json` wrote."""
        return cls(
            contracts=tuple(Contract.from_json(item) for item in data["contracts"]),
            failures=tuple(Failure.of(*item) for item in data["failures"]),
            files=tuple(data["files"]),
            absent=tuple(data["absent"]),
            has_hooks=bool(data["has_hooks"]),
            views={command: View.from_json(view) for command, view in data["views"].items()},
            fatal=bool(data["fatal"]),
            place=str(data["place"]),
            own=tuple(data["own"]),
            sent=data.get("sent", {}),
        )


@frozen
class Description:
    """All skills of a project, or those that the caller does not know."""

    skills: Mapping[str, SkillFacts] = field(default_factory=dict[str, SkillFacts])
    names: tuple[str, ...] = ()
    """The names of all skills, described here or not."""
    failures: tuple[Failure, ...] = ()
    """Failures that belong to no single skill, such as two skills with one name."""
    folders: tuple[str, ...] = ()
    """The folders of skills."""
    candidates: tuple[str, ...] = ()
    """Every file in them that may be a skill."""
    sightings: Mapping[str, Seen] = field(default_factory=dict[str, Seen])
    """The state of every relevant file."""
    imported: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp])
    """Imported files of the project."""
    interpreter: str = ""
    sites: tuple[str, ...] = ()
    """The folders of the interpreter's packages."""
    environment: str = ""
    """A digest of the installed packages, see `environment_of`."""
    texts: Mapping[str, bytes] = field(default_factory=dict[str, bytes], compare=False, repr=False)
    """The texts of the skills' files at their import. The manifest omits them."""

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
        """Read the data of `to_json`. Raises `KeyError`, `TypeError` or `ValueError` for other data."""
        return cls(
            skills={name: SkillFacts.from_json(facts) for name, facts in data["skills"].items()},
            names=tuple(data["names"]),
            failures=tuple(Failure.of(*item) for item in data["failures"]),
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
        """The files that may shape every contract, each with its digest."""
        files = {path for facts in self.skills.values() if facts.has_hooks for path in facts.files}
        return frozenset((path, self.sightings[path].digest) for path in files & self.sightings.keys())

    def catalog(self, hide: Iterable[str], root: Path, yielding: Collection[str] = ()) -> Catalog:
        """The catalog. In a clash of names, skills in `yielding` lose."""
        names = assign((each for facts in self.skills.values() for each in facts.contracts), hide, root, yielding)
        contracts = {contract.id: contract for contract in names.contracts.values()}
        failures = [*self.failures, *names.clashes]
        failures.extend(failure for facts in self.skills.values() for failure in facts.failures)
        failures = list(dict.fromkeys(failures))  # a wrong setting is a failure of every skill
        failures.sort(key=lambda item: (item.source, item.file or "", item.line or 0, item.reason))
        return Catalog(tuple(contracts[key] for key in sorted(contracts)), tuple(failures))


def digest_of(contracts: Iterable[Contract]) -> str:
    """A fingerprint of contracts."""
    return hashlib.sha256("".join(contract.digest for contract in contracts).encode()).hexdigest()


def merged(older: Description, newer: Description) -> Description:
    """Merge an older description with a newer, partial one."""
    skills = {name: facts for name, facts in older.skills.items() if name in newer.names} | dict(newer.skills)
    needed = {path for facts in skills.values() for path in facts.files} | set(newer.candidates)
    carried = {path for name in skills.keys() - newer.skills.keys() for path in skills[name].files}
    then = {path: seen for path, seen in older.sightings.items() if path in carried}
    sightings = {path: seen for path, seen in {**newer.sightings, **then}.items() if path in needed}
    # If everything was described again, only the current imports count.
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
    """Combine parts that several processes described at the same time; `None` if they contradict each other.

    `first` has the common fields: the names of the skills, and everything that shapes all contracts.
    """
    skills, sightings, imported = dict(first.skills), dict(first.sightings), dict(first.imported)
    texts = dict(first.texts)
    own: dict[str, Seen] = {}
    """The states of imported files: `first` may have read them before their import."""
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
    """The states of files at their import, which was after `since_ns`. `read` has the digests of the imported texts.

    A file that has or may have changed since gets a state that forces another check.
    """
    now = time.time_ns()
    sightings: dict[str, Seen] = {}
    for path in paths:
        seen = look(path, now)
        if seen is not None:
            sightings[path] = as_imported(seen, read.get(path), since_ns)
    return sightings


def environment_of(interpreter: str, sites: Iterable[str]) -> str:
    """A digest of an interpreter and its packages: names contain versions, and times show a new installation."""
    now = stamp(interpreter)._replace(ctime_ns=0)  # it changes when conda links the file into another environment
    version = f"{interpreter} is missing" if now == ABSENT else f"{interpreter} {' '.join(map(str, now))}"
    return f"{version} {listing(sites, _PACKAGES)}"


def site_folders() -> tuple[str, ...]:
    """The existing folders of this interpreter's packages."""
    return tuple(sorted({str(Path(entry).resolve()) for entry in sys.path if entry and Path(entry).is_dir()}))


def _failure_to_json(failure: Failure) -> list[Any]:
    return [failure.source, failure.reason, failure.file, failure.line]
