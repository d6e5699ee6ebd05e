"""The index of a project's files that are resources: lists, reads and watches them, in a thread."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from prowess.contracts.catalog import Failure
from prowess.contracts.visible import visible
from prowess.daemons import NO_THREAD, can_start_threads, start_thread
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess.worker.heap import share_one_heap
from prowess_host.files.folders import LARGEST, FoundFile, list_files, read_file, read_pattern
from prowess_host.files.skill_folders import LARGEST_SKILL, MOST_OF_SKILL, SkillFileProblem, digest, read_front_matter

__all__ = ["DIRECTORY", "FileSources", "Index", "ServedFile", "ServedFiles", "Trouble", "look"]

_log = logging.getLogger("prowess.host")
_SKILL_FILE: Final = "SKILL.md"
DIRECTORY: Final = "inode/directory"
_META: Final = "io.modelcontextprotocol.skills/"
_PAUSE: Final = 2.0
"""Seconds between two polls without a notification; more if a poll takes long."""
_SHARE: Final = 50
_SCHEME: Final = "+-."


class ServedFile(NamedTuple):
    """A file that can be read at a URI."""

    uri: str
    folder: str
    found: FoundFile
    definition: JsonObject


class Trouble(NamedTuple):
    """A file or pattern that cannot be served as intended, with its origin."""

    origin: str
    """The file and the line, or the setting."""
    reason: str
    fatal: bool = True
    """Whether the file is not served because of it."""

    def __str__(self) -> str:
        return f"{self.origin} {self.reason}"

    @property
    def failure(self) -> Failure:
        """The same as a failure of the catalog."""
        file, _, line = self.origin.rpartition(":")
        if not line.isdecimal():
            return Failure.of("files", str(self))
        return Failure.of(Path(file).parent.name, f"{_SKILL_FILE} {self.reason}", file, int(line))


@frozen
class FileSources:
    """Folders and patterns by scheme, and folders with skills."""

    root: Path
    patterns: Mapping[str, str]
    skills: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns) or any(True for _ in _skill_folders(self.skills))


@dataclass
class Index:
    """All served files at one time."""

    files: dict[str, ServedFile] = field(default_factory=dict[str, ServedFile])
    skills: dict[str, tuple[JsonObject, list[ServedFile]]] = field(default_factory=dict[str, Any])
    """The front matter and the files of each skill, by the URI of its `SKILL.md`."""
    problems: list[Trouble] = field(default_factory=list[Trouble])
    folders: list[str] = field(default_factory=list[str])
    """The searched folders."""

    @property
    def definitions(self) -> list[JsonObject]:
        """The entries of `resources/list`."""
        return [file.definition for file in self.files.values()]

    @cached_property
    def failures(self) -> list[Failure]:
        """The skill folders and patterns of which nothing is served, as failures of the catalog."""
        return [trouble.failure for trouble in self.problems if trouble.fatal]

    @cached_property
    def children(self) -> Mapping[str, list[JsonObject]]:
        """The entries of each folder, by its URI."""
        found: dict[str, dict[str, JsonObject]] = {}
        for uri, file in self.files.items():
            if not uri.startswith("skill://"):
                continue
            child: JsonObject = file.definition
            while (parent := uri.rpartition("/")[0]) not in ("skill:/", "skill:", ""):
                found.setdefault(parent, {}).setdefault(uri, child)
                uri, child = parent, {"uri": parent, "name": parent.rpartition("/")[2], "mimeType": DIRECTORY}
        return {uri: [held[name] for name in sorted(held)] for uri, held in found.items()}


def look(sources: FileSources) -> Index:
    """Build the index of the current files. Files that cannot be served are among its problems."""
    index = Index()
    for scheme, pattern in sources.patterns.items():
        try:
            _add_folder(index, sources.root, scheme, pattern)
        except ValueError as error:
            index.problems.append(Trouble(f"[resources] {scheme} = {pattern!r}", f"serves nothing: {error}"))
    for folder in _skill_folders(sources.skills):
        try:
            _add_skill(index, folder)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one skill, never the other files
            reason = f"could not be read: {type(error).__name__}: {error}; the skill is not offered to clients"
            index.problems.append(Trouble(f"{folder / _SKILL_FILE}:1", reason))
    return index


def _quoted(path: str) -> str:
    from urllib.parse import quote  # not on the way to the first answer

    return quote(path)


def _add_folder(index: Index, root: Path, scheme: str, text: str) -> None:
    letters = scheme.translate({ord(letter): None for letter in _SCHEME})
    if not (letters.isascii() and letters.isalnum() and scheme[0].isalpha() and scheme.islower()):
        raise ValueError(
            "its name becomes the scheme of URIs, so it must be of lowercase letters and digits, like docs"
        )
    if scheme in ("skill", "file", "http", "https"):
        raise ValueError(f"URIs with {scheme}: mean something else; choose another name")
    pattern = read_pattern(text)
    folder, real = root / pattern.folder, os.path.realpath(root)
    if not f"{os.path.realpath(folder)}{os.sep}".startswith(f"{real}{os.sep}"):
        raise ValueError("the folder leads out of the project")
    index.folders.append(str(folder))
    for found in list_files(os.path.realpath(folder), pattern.matches):
        uri = f"{scheme}://{_quoted(found.path)}"
        _add_file(
            index,
            uri,
            os.path.realpath(folder),
            found,
            name=found.path,
            description=f"The file {pattern.folder}/{found.path}.",
        )


def _add_file(index: Index, uri: str, folder: str, found: FoundFile, *, name: str, description: str) -> ServedFile:
    import mimetypes  # not on the way to the first answer

    mime_type = mimetypes.guess_type(found.path)[0]
    name, description = visible(name), visible(description)
    given: JsonObject = {
        "uri": uri,
        "name": name,
        "description": description,
        "mimeType": mime_type,
        "size": found.size,
    }
    definition = {key: value for key, value in given.items() if value is not None}
    file = index.files[uri] = ServedFile(uri, folder, found, definition)
    return file


def _skill_folders(folders: Iterable[Path]) -> Iterator[Path]:
    """The folders with a `SKILL.md`, without links."""
    for folder in folders:
        try:
            with os.scandir(folder) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                place = Path(entry.path)
                if os.path.isfile(place / _SKILL_FILE):  # `Path.is_file` raises where a folder may not be entered
                    yield place


def _add_skill(index: Index, folder: Path) -> None:
    index.folders.append(str(folder))
    found = list_files(str(folder), lambda _: True, MOST_OF_SKILL + 1)
    fields: JsonObject = {}
    try:
        fields, problems = read_front_matter(read_file(str(folder), _SKILL_FILE), folder.name)
    except OSError as error:
        problems = [SkillFileProblem(1, f"cannot be read: {error.strerror or error}")]
    if len(found) > MOST_OF_SKILL or sum(each.size for each in found) > LARGEST_SKILL:
        reason = f"has more than {MOST_OF_SKILL} files, or than {LARGEST_SKILL >> 20} MiB; clients refuse such a skill"
        problems.append(SkillFileProblem(1, reason))
    index.problems += [
        Trouble(
            f"{folder / _SKILL_FILE}:{problem.line}",
            f"{problem.reason}; the skill is not offered to clients" if problem.fatal else problem.reason,
            problem.fatal,
        )
        for problem in problems
    ]
    if any(problem.fatal for problem in problems):
        return
    name, files = folder.name, list[ServedFile]()
    for each in found:
        uri = f"skill://{name}/{_quoted(each.path)}"
        if each.path != _SKILL_FILE:
            files.append(
                _add_file(
                    index,
                    uri,
                    str(folder),
                    each,
                    name=f"{name}/{each.path}",
                    description=f"A file of the skill {name}.",
                )
            )
            continue
        file = _add_file(index, uri, str(folder), each, name=name, description=fields["description"])
        more = {f"{_META}{key}": value for key, value in fields.items() if key not in ("name", "description")}
        file.definition.update({"mimeType": "text/markdown"}, **({"_meta": more} if more else {}))
        files.append(file)
    index.skills[f"skill://{name}/{_SKILL_FILE}"] = fields, files


class ServedFiles:
    """Keeps the index up to date. `changed` is called in the loop with the new index and the URIs of changed files."""

    def __init__(self, sources: Callable[[], FileSources], changed: Callable[[Index, list[str]], None]) -> None:
        self._sources = sources
        self._changed = changed
        self._stop = threading.Event()
        self._started = False
        self._digests: dict[tuple[str, FoundFile], str] = {}
        self._lock = threading.Lock()
        self.index: Index | None = None
        """The index; `None` before the first poll."""
        self.is_used = bool(sources())
        """Whether the project has folders to serve."""

    @property
    def is_pending(self) -> bool:
        """Whether the first index is still to come."""
        return self.is_used and self.index is None

    @property
    def has_skills(self) -> bool:
        """Whether the index has skills."""
        if self.index is None:
            return self.is_used and any(True for _ in _skill_folders(self._sources().skills))
        return bool(self.index.skills)

    def get(self, uri: str) -> ServedFile | None:
        """The file at a URI."""
        return self.index.files.get(uri) if self.index is not None else None

    def start(self, call_soon: Callable[..., object]) -> None:
        """Start to watch, if there are folders. `tell` calls a function in the loop."""
        self.is_used = self.is_used or bool(self._sources())
        if self.is_used and not self._started:
            self._started = True
            share_one_heap()  # as in `Watcher.start`
            if start_thread("prowess-resources", self._watch, call_soon) is None:
                self._publish(look(self._sources()))
                _log.warning("changes of the project's files are not noticed: %s", NO_THREAD)

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()

    def _watch(self, call_soon: Callable[..., object]) -> None:
        wait: Callable[[float], object] = self._stop.wait
        watched: list[str] = []
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                index = look(self._sources())
            except Exception:  # noqa: BLE001 - the current index stays in use
                _log.exception("the files of the project could not be listed")
                index = self.index or Index()
            cost = time.monotonic() - begun
            try:
                call_soon(self._publish, index)
            except RuntimeError:  # the loop is closed
                return
            folders = _folders_of(index)
            if folders != watched:
                watched, wait = folders, self._notices(folders)
            wait(max(_PAUSE, cost * _SHARE))

    def _notices(self, folders: list[str]) -> Callable[[float], object]:
        try:
            from watchfiles import watch
        except ImportError:  # no build for this system: polling is enough
            return self._stop.wait

        def wait(seconds: float) -> object:
            if not can_start_threads():  # the library would end this process
                return self._stop.wait(seconds)
            try:
                changes = watch(
                    *folders,
                    watch_filter=None,
                    stop_event=self._stop,
                    rust_timeout=int(seconds * 1000),
                    yield_on_timeout=True,
                    recursive=False,
                    ignore_permission_denied=True,
                )
                return next(changes, None)
            except Exception:  # noqa: BLE001 - the system may refuse with any error
                return self._stop.wait(seconds)

        return wait if folders else self._stop.wait

    def _publish(self, index: Index) -> None:
        before = self.index
        known = before.files if before is not None else {}
        problems = before.problems if before is not None else []
        for problem in index.problems:
            if problem not in problems:
                _log.warning("%s", problem)
        changed = [uri for uri, file in known.items() if uri not in index.files or index.files[uri].found != file.found]
        if before is not None and not changed and index.files.keys() == known.keys() and index.skills == before.skills:
            return
        self.index = index
        self._changed(index, changed)

    # Reading: in any thread

    def contents(self, file: ServedFile) -> JsonObject:
        """Read a file for the result of `resources/read`. Raises `OSError`."""
        import base64

        data = read_file(file.folder, file.found.path, LARGEST)
        mime_type = file.definition.get("mimeType")
        try:
            held: JsonObject = {"text": data.decode()}
        except UnicodeDecodeError:
            held = {"blob": base64.b64encode(data).decode()}
        kind = mime_type or ("text/plain" if "text" in held else "application/octet-stream")
        return {"contents": [{"uri": file.uri, "mimeType": kind, **held}]}

    def entries(self) -> list[JsonObject]:
        """The entries of `skills/list`."""
        index = self.index or Index()
        return [each for uri in sorted(index.skills) if (each := self.entry(uri)) is not None]

    def entry(self, uri: str) -> JsonObject | None:
        """The entry of `skills/get` for the skill with this `SKILL.md`."""
        index = self.index or Index()
        if uri not in index.skills:
            return None
        fields, files = index.skills[uri]
        resources: list[JsonObject] = []
        for file in files:
            try:
                resources.append({"uri": file.uri, "digest": self._digest(file), "size": file.found.size})
            except OSError:  # just deleted: the next poll will notice
                continue
        return {"uri": uri, "frontmatter": fields, "resources": resources}

    def _digest(self, file: ServedFile) -> str:
        key = file.folder, file.found
        known = self._digests.get(key)
        if known is None:
            text = read_file(file.folder, file.found.path, LARGEST)
            if len(text) != file.found.size:
                raise OSError(file.uri)
            known = digest(text)
            with self._lock:
                self._digests[key] = known
        return known


def _folders_of(index: Index) -> list[str]:
    """The existing folders to watch: those with served files, and the searched ones."""
    folders = {os.path.dirname(os.path.join(file.folder, file.found.path)) for file in index.files.values()}
    return sorted(folder for folder in folders.union(index.folders) if os.path.isdir(folder))
