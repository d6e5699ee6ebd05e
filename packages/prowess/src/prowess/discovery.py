"""Which files are skills. Looks at names and at the text of files; imports nothing."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prowess.catalog import Failure

__all__ = ["Source", "Survey", "survey"]

_SKILL_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_SKIPPED_FILES: Final = ("test_*.py", "*_test.py", "conftest.py", "__init__.py", "setup.py")
_SKIPPED_FOLDERS: Final = frozenset({"tests", "test", "node_modules", "site-packages", "references", "assets"})
_MENTION: Final = b"prowess"
_HOOK_MENTION: Final = b"hookimpl"


@dataclass(frozen=True, slots=True)
class Source:
    """The files of one skill."""

    name: str
    folder: Path
    """What relative imports start from: the skill's own folder, or for a single file the one it lies in."""
    files: tuple[Path, ...]
    """The files with commands or hooks, in order."""
    has_hooks: bool = False

    @property
    def single(self) -> bool:
        """Whether the skill is one file."""
        return self.files[0].stem == self.name and self.files[0].parent == self.folder

    def owns(self, file: Path) -> bool:
        return file in self.files


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in the skill folders."""

    sources: tuple[Source, ...] = ()
    failures: tuple[Failure, ...] = ()


def survey(folders: Iterable[Path]) -> Survey:
    """Every skill in the folders, ordered by name. Two skills of one name are both a failure."""
    found: dict[str, list[Source]] = {}
    failures: list[Failure] = []
    for folder in folders:
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


def content_hash(files: Iterable[Path]) -> str:
    """A digest of what files say; a file that is gone counts as empty."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(str(file).encode("utf-8", "surrogateescape") + b"\0")
        try:
            digest.update(file.read_bytes())
        except OSError:
            continue
    return digest.hexdigest()


def _in_folder(folder: Path, failures: list[Failure]) -> Iterator[Source]:
    for path in _listed(folder):
        files = _skill_files(path) if path.is_dir() else [path] if _is_skill_file(path) else []
        speaking = [(file, text) for file in files if _MENTION in (text := _text(file))]
        if not speaking:
            continue
        name = path.name if path.is_dir() else path.stem
        if not _SKILL_NAME.fullmatch(name):
            reason = f"the skill name {name!r} does not match {_SKILL_NAME.pattern}; rename it"
            failures.append(Failure(name, reason, str(path)))
            continue
        has_hooks = any(_HOOK_MENTION in text for _, text in speaking)
        base = path if path.is_dir() else folder
        yield Source(name, base, tuple(file for file, _ in speaking), has_hooks)


def _skill_files(folder: Path) -> list[Path]:
    """The Python files of a folder skill: at its top, and anywhere below `scripts`."""
    if folder.name in _SKIPPED_FOLDERS or (folder / "pyvenv.cfg").exists():
        return []
    files = [path for path in _listed(folder) if path.is_file() and _is_skill_file(path)]
    return files + list(_below(folder / "scripts"))


def _below(folder: Path) -> Iterator[Path]:
    if folder.name in _SKIPPED_FOLDERS or (folder / "pyvenv.cfg").exists():
        return
    for path in _listed(folder):
        if path.is_dir():
            yield from _below(path)
        elif _is_skill_file(path):
            yield path


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))
    except OSError:
        return []


def _is_skill_file(path: Path) -> bool:
    return path.suffix == ".py" and not any(fnmatch.fnmatch(path.name, pattern) for pattern in _SKIPPED_FILES)


def _text(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _same_name(name: str, sources: list[Source]) -> Iterator[Failure]:
    places = [str(source.files[0] if source.single else source.folder) for source in sources]
    for place in places:
        others = ", ".join(other for other in places if other != place)
        yield Failure(name, f"there is another skill of this name: {others}; rename one", place)
