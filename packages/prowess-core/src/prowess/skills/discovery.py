"""Decides which files are skills, by their names and texts. Imports none of them."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from prowess.contracts.catalog import Failure
from prowess.frozen import frozen
from prowess.patterns import lazy_pattern
from prowess.skills.folders import Tree, leads_up, raise_shortage, walk

__all__ = [
    "PYPROJECT",
    "REQUIREMENTS",
    "Source",
    "Survey",
    "candidates",
    "is_reserved",
    "lock_of",
    "may_be_skill",
    "needs_of",
    "survey",
]

PYPROJECT: Final = "pyproject.toml"
REQUIREMENTS: Final = "requirements.txt"

_SKILL_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_SKIPPED_FILES: Final = ("test_*.py", "*_test.py", "conftest.py", "setup.py")
_SKIPPED_FOLDERS: Final = frozenset({"tests", "test", "node_modules", "site-packages", "venv"})
_MENTION: Final = b"prowess"
_HOOK_MENTION: Final = b"hookimpl"
_INIT: Final = "__init__.py"
_DECORATED: Final = lazy_pattern(r"^\s*@[\w.]*\b(?:skill_command|resource|prompt)\b", re.MULTILINE)


@frozen
class Source:
    """The files of one skill."""

    name: str
    path: Path
    """The file or the folder of the skill."""
    files: tuple[Path, ...]
    """The files with commands or hooks, in order."""
    has_hooks: bool = False

    @property
    def root(self) -> Path:
        """The folder of skills with this skill, which is the top of relative imports."""
        return self.path.parent

    @property
    def is_folder(self) -> bool:
        """Whether the skill is a folder instead of a file."""
        return self.files[0] != self.path


@frozen
class Survey:
    """The skills and failures in the folders of skills."""

    sources: tuple[Source, ...] = ()
    failures: tuple[Failure, ...] = ()


def survey(folders: Iterable[Path]) -> Survey:
    """Every skill in the folders, ordered by name. Two skills with one name are both failures."""
    found: dict[str, list[Source]] = {}
    failures: list[Failure] = []
    for folder in {folder.resolve(): folder for folder in folders}.values():
        for source in _in_folder(folder, failures):
            found.setdefault(source.name, []).append(source)
    sources: list[Source] = []
    for name in sorted(found):
        same = found[name]
        if len(same) == 1:
            sources.append(same[0])
        else:
            failures.extend(_same_name(name, same))
    return Survey(tuple(sources), tuple(failures))


def lock_of(path: Path, *, is_folder: bool) -> Path:
    """The lock file of a skill."""
    return path / "requirements.lock" if is_folder else path.with_name(f"{path.name}.lock")


def needs_of(source: Source) -> list[Path]:
    """The files beside the code that may declare dependencies, existing or not."""
    inside = [source.path / PYPROJECT, source.path / REQUIREMENTS] if source.is_folder else []
    return [*inside, lock_of(source.path, is_folder=source.is_folder)]


def may_be_skill(text: bytes) -> bool:
    """Whether a text mentions Prowess. Only such files are imported.

    A text with NUL bytes, as in UTF-16, counts too: Python rejects it, and the failure tells the author.
    """
    return _MENTION in text or b"\0" in text


def is_reserved(name: str) -> bool:
    """Whether a file or a folder with the name of a skill would not be one, because it belongs to tests or tools."""
    return name in _SKIPPED_FOLDERS or _is_skipped_file(f"{name}.py")


def candidates(folders: Iterable[Path]) -> list[Path]:
    """Every file that may be a skill or part of one, judged by its name."""
    found: set[Path] = set()
    for folder in {folder.resolve(): folder for folder in folders}.values():
        for path in _skills(folder):
            found.update(_files_of(path)[0])
    return sorted(found, key=str)


def _files_of(path: Path) -> tuple[list[Path], bool]:
    """The Python files of a skill, and whether the list is complete."""
    if path.is_dir():
        return _skill_files(path)
    return [path] if _is_skill_file(path) else [], True


def _in_folder(folder: Path, failures: list[Failure]) -> Iterator[Source]:
    init = folder / _INIT
    if init.is_file() and _DECORATED.search(_text(init, folder.name, failures).decode("utf-8", "replace")):
        reason = f"a command in the {_INIT} of a folder of skills belongs to no skill; move it to a file beside it"
        failures.append(Failure(folder.name, reason, str(init)))
    for path in _skills(folder):
        name = path.name if path.is_dir() else path.stem
        speaking: list[Path] = []
        has_hooks = False
        files, whole = _files_of(path)
        if not whole:
            reason = "has too many folders, or too deep ones, so the rest is skipped; look for links in it"
            failures.append(Failure(f"{name}/scripts", reason, str(path / "scripts")))  # the other files still load
        for file in files:
            text = _text(file, name, failures)
            if may_be_skill(text) and _can_be_named(file, path, files, name, failures):
                speaking.append(file)
                has_hooks = has_hooks or _HOOK_MENTION in text
        if speaking:
            yield Source(name, path, tuple(speaking), has_hooks)


def _skill_files(folder: Path) -> tuple[list[Path], bool]:
    """The Python files of a folder skill: at the top, and below `scripts`. Each folder is a package."""
    if _is_skipped(str(folder)):
        return [], True
    below = Tree(()) if _is_skipped(str(folder / "scripts")) else walk(str(folder / "scripts"), _enters)
    if leads_up(str(folder / "scripts"), str(folder)):
        below = Tree(())
    deep = [Path(folder.path, name) for folder in below.folders for name in folder.files if not _is_hidden(name)]
    return [*filter(_is_skill_file, _listed(folder)), *sorted(filter(_is_skill_file, deep))], below.whole


def _enters(path: str) -> bool:
    return not _is_hidden(os.path.basename(path)) and not _is_skipped(path)


def _is_skipped(folder: str) -> bool:
    return os.path.basename(folder) in _SKIPPED_FOLDERS or os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_")) and name != _INIT


def _skills(folder: Path) -> list[Path]:
    """The possible skills. A link to a parent folder does not count, because it would contain itself."""
    listed = [path for path in _listed(folder) if path.name != _INIT]
    return [path for path in listed if not path.is_symlink() or not leads_up(str(path), str(folder))]


def _listed(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
        return [folder / name for name in names if not _is_hidden(name)]
    except OSError as error:
        raise_shortage(error)
        return []


def _is_skill_file(path: Path) -> bool:
    """Whether a name can be that of a skill file. A broken link counts, so that it is reported."""
    named = path.suffix == ".py" and not _is_skipped_file(path.name)
    return named and (path.is_file() or not path.exists())


def _is_skipped_file(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in _SKIPPED_FILES)


def _text(file: Path, skill: str, failures: list[Failure]) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        failures.append(Failure(skill, f"cannot be read: {error.strerror}", str(file)))
        return b""


def _can_be_named(file: Path, path: Path, files: Collection[Path], skill: str, failures: list[Failure]) -> bool:
    """Whether the names of a file allow ids of commands and a module name."""
    if not _SKILL_NAME.fullmatch(skill):
        reason = f"the skill name {skill!r} does not match {_SKILL_NAME.pattern}; rename it"
        failures.append(Failure(skill, reason, str(file)))
        return False
    dotted = next((part for part in file.relative_to(path.parent).with_suffix("").parts if "." in part), None)
    if dotted is not None:
        failures.append(
            Failure(skill, f"{dotted!r} has a dot in its name and cannot be imported; rename it", str(file))
        )
        return False
    twin = file.parent.with_name(f"{file.parent.name}.py")
    if file.name == _INIT and twin in files:
        failures.append(Failure(skill, f"{twin.name} beside its folder is the same module; rename one", str(file)))
        return False
    return True


def _same_name(name: str, sources: list[Source]) -> Iterator[Failure]:
    for source in sources:
        others = ", ".join(str(other.path) for other in sources if other is not source)
        yield Failure(name, f"there is another skill of this name: {others}; rename one", str(source.path))
