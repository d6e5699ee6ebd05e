"""Keeps the last good source of every skill in the host, so that any worker can serve it while the files are broken.

A source is the text of the skill and of the project modules that it imports, from the time when its contracts were made.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from prowess.contracts.catalog import Failure
from prowess.frozen import frozen
from prowess.skills.description import Description, SkillFacts
from prowess.skills.discovery import may_be_skill
from prowess.skills.parsing import parse
from prowess.skills.stamps import digest_of, read
from prowess.skills.texts import pack
from prowess.worker.messages import SourceHead

__all__ = ["Good", "Parts", "Sources"]

_log = logging.getLogger("prowess.host")
_MOST_OF_ONE: Final = 8 << 20
_MOST: Final = 64 << 20
"""Bytes that are kept for one skill, and for all. Files that skills share are counted once."""


@frozen
class Parts:
    """The places of a project's code, for workers on other machines."""

    root: Path
    folders: tuple[Path, ...]
    """The folders of skills, with all their files."""
    files: Collection[str]
    """Files that skills import."""
    patterns: tuple[str, ...]
    """Further files, by patterns of the owner."""
    without: Collection[str]
    """Files that must stay on this machine: settings, which may hold secrets."""


@frozen
class Good:
    """A version of a skill that loads."""

    skill: str
    place: str
    own: tuple[str, ...]
    has_hooks: bool
    texts: Mapping[str, bytes]
    digests: Mapping[str, str]
    """The digests of the texts."""

    def body(self) -> bytes:
        """The texts in the form that a worker reads."""
        return pack(self.texts)

    def head(self, *, kept: bool) -> bytes:
        """The head of the message to a worker. `kept` says that the files have changed since."""
        head: SourceHead = {
            "skill": self.skill,
            "place": self.place,
            "own": list(self.own),
            "has_hooks": self.has_hooks,
            "kept": kept,
        }
        return json.dumps(head).encode()


class Sources:
    """The kept versions, by skill."""

    def __init__(self) -> None:
        self._good: dict[str, Good] = {}
        self._shared: dict[tuple[str, str], bytes] = {}
        """Every kept text, by path and digest."""
        self._size = 0
        self._lock = threading.Lock()
        """A thread reads sources, so that the first answers do not wait."""

    def __getitem__(self, skill: str) -> Good | None:
        return self._good.get(skill)

    def hold(self, description: Description, besides: Collection[str]) -> None:
        """Keep the skills that a worker has just described, except those of which an earlier version stays."""
        for skill, facts in description.skills.items():
            if skill in besides or (facts.failures and not facts.contracts):
                continue
            texts = {path: description.texts[path] for path in _files(facts) if path in description.texts}
            self._hold(skill, facts, texts)

    def replace_outdated(self, description: Description, besides: Collection[str]) -> None:
        """Replace the versions that the description was not made from, except those of skills that stay at an earlier version.

        A skill may have been described while an earlier version stayed, and stand as described without being described again.
        """
        sightings = description.sightings
        for skill, good in list(self._good.items()):
            if skill in besides or skill not in description.skills:
                continue
            if any(sightings[path].digest != digest for path, digest in good.digests.items() if path in sightings):
                del self._good[skill]
                self.read(description, skill)

    def read(self, description: Description, skill: str) -> None:
        """Keep a skill from the manifest, if its files are unchanged since it was described."""
        facts = description.skills.get(skill)
        if facts is None or facts.failures or skill in self._good:
            return
        texts: dict[str, bytes] = {}
        for path in _files(facts):
            seen = description.sightings.get(path)
            try:
                text = read(path)
            except OSError:
                return
            if seen is None or digest_of(text) != seen.digest:
                return
            texts[path] = text
        self._hold(skill, facts, texts)

    def forget_all_but(self, skills: Collection[str]) -> None:
        """Keep only these skills: no others can be called."""
        for skill in list(self._good):
            if skill not in skills:
                self._good.pop(skill, None)
        with self._lock:
            used = {id(text) for good in self._good.values() for text in good.texts.values()}
            self._shared = {key: text for key, text in self._shared.items() if id(text) in used}
            self._size = sum(map(len, self._shared.values()))

    @property
    def hooks(self) -> list[str]:
        """The skills that every worker imports first."""
        return sorted(skill for skill, good in list(self._good.items()) if good.has_hooks)

    def broken_plugins(self, description: Description) -> set[str]:
        """Plugins with a last good version that do not load now. Without commands, the catalog would not show the loss."""
        return {
            skill
            for skill in self.hooks
            if (facts := description.skills.get(skill)) and any(failure.source == skill for failure in facts.failures)
        }

    def missed(self, description: Description) -> list[Failure]:
        """Skills that are no longer found although their files exist, each with the probable reason.

        The file may be half saved: it no longer mentions Prowess, and is empty or cannot be parsed. It may have been half saved
        when a worker read it, and be complete by now: the description of that save is still to come. Or the plugin that
        provides its folder is broken.
        """
        broken = sorted(self.broken_plugins(description))
        found: list[Failure] = []
        for skill, good in sorted(self._good.items()):
            facts = description.skills.get(skill)
            is_empty = facts is not None and not facts.contracts and not facts.failures
            if (skill in description.names and not is_empty) or not os.path.exists(good.place):
                continue
            failure = None if is_empty else _torn(skill, good.own)
            if failure is None and os.path.dirname(good.place) in description.folders:
                failure = _saved_meanwhile(skill, good.own, description)
            elif failure is None and broken:
                reason = f"its folder is unknown because a plugin is broken: {', '.join(broken)}"
                failure = Failure(skill, reason, good.place)
            if failure is not None:
                found.append(failure)
        return found

    def _hold(self, skill: str, facts: SkillFacts, texts: dict[str, bytes]) -> None:
        self._good.pop(skill, None)
        if not facts.place or not texts.keys() >= set(facts.own):
            return
        keys = {path: (path, digest_of(text)) for path, text in texts.items()}
        with self._lock:
            more = sum(len(text) for path, text in texts.items() if keys[path] not in self._shared)
            if sum(map(len, texts.values())) > _MOST_OF_ONE or self._size + more > _MOST:
                _log.info("the source of %s is too large to keep, so a broken save leaves no version to call", skill)
                return
            self._size += more
            known = {path: self._shared.setdefault(keys[path], text) for path, text in texts.items()}
            digests = {path: digest for path, (_, digest) in keys.items()}
            self._good[skill] = Good(skill, facts.place, facts.own, facts.has_hooks, known, digests)


def _files(facts: SkillFacts) -> list[str]:
    return [path for path in facts.files if path.endswith(".py")]


def _torn(skill: str, files: Iterable[str]) -> Failure | None:
    for file in files:
        try:
            text = read(file)
        except OSError:
            continue
        if not text.strip():
            return Failure(skill, "the file is empty; to remove the skill, delete the file", file)
        try:
            parse(text)
        except SyntaxError as error:
            return Failure(skill, f"SyntaxError: {error.msg}", file, error.lineno)
        except (ValueError, RecursionError, MemoryError) as error:
            return Failure(skill, f"{type(error).__name__}: {error}", file)
    return None


def _saved_meanwhile(skill: str, files: Iterable[str], description: Description) -> Failure | None:
    """The failure of a skill that was read half saved, and whose file is a skill again by now."""
    for file in files:
        try:
            text = read(file)
        except OSError:
            continue
        seen = description.sightings.get(file)
        if may_be_skill(text) and (seen is None or seen.digest != digest_of(text)):
            return Failure(skill, "the file changed while it was read", file)
    return None
