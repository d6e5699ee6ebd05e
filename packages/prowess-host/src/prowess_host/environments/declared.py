"""The declared dependencies of a skill: a block of inline metadata (PEP 723), or a `pyproject.toml` or `requirements.txt` in its folder.

Only reads files. A skill without a declaration, or whose needs the project's interpreter meets, shares the project's
environment.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, cast

from prowess.frozen import frozen
from prowess.skills.discovery import PYPROJECT, REQUIREMENTS, Source, lock_of
from prowess.skills.stamps import Stamp, read, stamp
from prowess_host.environments.errors import NeedsError

__all__ = ["Declared", "check_limited", "declared_by", "satisfies"]

_MENTION: Final = b"# /// script"
_BLOCK: Final = re.compile(r"(?m)^# /// script[ \t]*\r?\n(?P<content>(?:^#(?:| .*)\r?\n)+?)^# ///[ \t]*\r?$")
"""The pattern of PEP 723."""
_OTHER_FILE: Final = re.compile(r"\s*(?:-r|--requirement|-c|--constraint)[ =]*([^\s#]+)")
_MOST_NAMED: Final = 100
_LONGEST_NAMED: Final = 1024 * 1024
"""Files that requirements may name, and bytes of one, because foreign declarations may name anything."""
_CLAUSE: Final = re.compile(r"\s*(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")


_NAMED: Final = re.compile(r"[A-Za-z0-9][\w\s.,<>=!~*+()\[\]-]*(;[\w\s.,<>=!~*+()\[\]'\"-]*)?")
"""A requirement with a package name, versions and conditions, without URL, path, option or variable."""
_VERSION: Final = re.compile(r"[\w\s.,<>=!~*+@-]*")


@frozen
class Declared:
    """The dependencies of one skill."""

    file: str
    """The file with the declaration."""
    dependencies: tuple[str, ...] = ()
    """Requirements in order, without those that uv reads itself."""
    requires_python: str = ""
    python: str = ""
    """The requested interpreter: a version or a path."""
    by_file: str = ""
    """A digest of the file if uv reads it itself, because it has settings for uv or options of pip."""
    lock: str = ""
    """The file with the exact versions, or empty."""
    locked: str = ""
    """The content of the lock file."""
    named: Mapping[str, Stamp] = field(default_factory=dict[str, Stamp], compare=False)
    """Other files that the file names, existing or not, as they were just before they were read."""

    @property
    def digest(self) -> str:
        """A fingerprint of the needs, without the lock."""
        place = str(Path(self.file).parent) if self.by_file else ""  # paths in the file are relative to it
        return _digest([sorted(self.dependencies), self.requires_python, self.python, self.by_file, place])


def declared_by(source: Source) -> Declared | None:
    """The declared dependencies of a skill; `None` if it shares the project's environment. Raises `NeedsError`."""
    found = _of_folder(source.path) if source.is_folder else None
    if found is None:
        found = _of_scripts(source.files)
    if found is None or _is_nothing(found):
        return None
    lock = lock_of(source.path, is_folder=source.is_folder)
    locked = _text(lock)
    return _with_lock(found, lock, locked) if locked is not None else found


def check_limited(found: Declared) -> None:
    """Refuse needs with which a limited skill could run its code, or read files, while its environment is made.

    uv runs without limits, and so do the build systems of packages and the requested interpreter.
    """
    file = Path(found.file)
    if found.by_file:
        raise NeedsError(
            file, "has options, paths or settings of uv, which are not allowed for a skill with limits: name packages"
        )
    locked = [line for line in found.locked.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line, place in (*((each, file) for each in found.dependencies), *((each, Path(found.lock)) for each in locked)):
        if _NAMED.fullmatch(line) is None:
            raise NeedsError(
                place,
                f"{line!r} must be the name of a package with versions, because the skill has limits",
            )
    for each in (found.python, found.requires_python):
        if _VERSION.fullmatch(each) is None:
            raise NeedsError(file, f"{each!r} must be a version of Python, because the skill has limits")


def satisfies(version: tuple[int, ...], specifier: str) -> bool:
    """Whether a Python version meets a `requires-python`; false if that cannot be parsed."""
    clauses = specifier.split(",") if specifier.strip() else []
    return all(_meets(version, clause) for clause in clauses)


def _meets(version: tuple[int, ...], clause: str) -> bool:
    found = _CLAUSE.fullmatch(clause)
    if found is None:
        return False
    how, number, star = found.groups()
    given = tuple(map(int, number.split(".")))
    if star or how == "~=":
        prefix = given if star else given[:-1]
        same = version[: len(prefix)] == prefix
        return (same and (star is not None or version >= given)) if how in ("==", "~=") else not same
    size = max(len(given), len(version))
    left, right = _padded(version, size), _padded(given, size)
    return {
        "==": left == right,
        "!=": left != right,
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right,
        ">": left > right,
    }[how]


def _padded(version: tuple[int, ...], size: int) -> tuple[int, ...]:
    return (*version, *[0] * (size - len(version)))


def _is_nothing(found: Declared) -> bool:
    """Whether the project's environment is enough."""
    needs = found.dependencies or found.by_file or found.python
    return not needs and satisfies(sys.version_info[:3], found.requires_python)


def _of_folder(folder: Path) -> Declared | None:
    file = folder / PYPROJECT
    text = _text(file)
    if text is not None:
        data = _parsed(file, text)
        project = data.get("project")
        if isinstance(project, dict):
            return _of_table(file, cast("dict[str, Any]", project), data, text)
    file = folder / REQUIREMENTS
    text = _text(file)
    if text is None:
        return None
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    plain = tuple(line for line in lines if line and not line.startswith("#"))
    if any(line.startswith(("-", ".", "/", "file:")) or line.endswith("\\") for line in plain):  # options, and paths
        named, stamps = _named_by(file, text)
        return Declared(str(file), by_file=_digest([text, named] if named else text), named=stamps)
    return Declared(str(file), plain)


def _named_by(file: Path, text: str) -> tuple[dict[str, str | None], dict[str, Stamp]]:
    """The files that requirements name (`-r`, `-c`), and those that these name, with their content and their stamps."""
    found: dict[str, str | None] = {}
    stamps: dict[str, Stamp] = {}
    waiting = [(file, text)]
    while waiting and len(found) < _MOST_NAMED:
        of, text = waiting.pop()
        for line in text.splitlines():
            option = _OTHER_FILE.match(line)
            if option is None or "://" in option[1]:
                continue
            other = of.parent / option[1]
            if str(other) not in found:
                stamps[str(other)] = stamp(str(other))
                inside = found[str(other)] = _text(other) if _is_short(other) else None
                waiting.append((other, inside or ""))
    return found, stamps


def _is_short(file: Path) -> bool:
    try:
        return file.stat().st_size <= _LONGEST_NAMED
    except OSError:
        return False


def _of_scripts(files: Iterable[Path]) -> Declared | None:
    """The declarations in the blocks of Python files. Several must be equal, because a skill runs in one environment."""
    found: Declared | None = None
    for file in files:
        try:
            raw = read(str(file))
        except OSError:
            continue
        if _MENTION not in raw:
            continue
        one = _of_script(file, raw.decode("utf-8-sig", "replace"))
        if one is not None and found is not None and one.digest != found.digest:
            raise NeedsError(
                file, f"declares other dependencies than {found.file}; declare the same dependencies in both"
            )
        found = found or one
    return found


def _of_script(file: Path, text: str) -> Declared | None:
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return None
    if len(blocks) > 1:
        raise NeedsError(file, "has more than one block `# /// script`; keep one")
    lines = blocks[0]["content"].splitlines()
    content = "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    data = _parsed(file, content)
    return _of_table(file, data, data, content)


def _of_table(file: Path, table: Mapping[str, Any], data: Mapping[str, Any], text: str) -> Declared:
    """The needs in a table with `dependencies` and `requires-python`, in a document with possible settings for uv and Prowess."""
    dependencies: object = table.get("dependencies", [])
    requires: object = table.get("requires-python", "")
    tools: object = data.get("tool")
    tool = cast("dict[str, Any]", tools) if isinstance(tools, dict) else {}
    ours: object = tool.get("prowess")
    python: object = cast("dict[str, Any]", ours).get("python", "") if isinstance(ours, dict) else ""
    items = cast("list[object]", dependencies) if isinstance(dependencies, list) else [None]
    if not all(isinstance(item, str) for item in items):
        raise NeedsError(file, "dependencies must be a list of strings")
    if not isinstance(requires, str) or not isinstance(python, str):
        raise NeedsError(file, 'requires-python and python must be strings, such as ">=3.12" and "3.13"')
    dynamic: object = table.get("dynamic")
    reads = "uv" in tool or (isinstance(dynamic, list) and "dependencies" in dynamic)
    requirements = tuple(" ".join(str(item).split()) for item in items)
    for each in requirements:
        if each.startswith("-"):
            raise NeedsError(
                file, f"{each!r} in its dependencies is an option; options may be in {REQUIREMENTS} of a folder"
            )
    return Declared(str(file), requirements, requires.strip(), python.strip(), _digest(text) if reads else "")


def _with_lock(found: Declared, lock: Path, locked: str) -> Declared:
    return Declared(
        *(found.file, found.dependencies, found.requires_python, found.python, found.by_file),
        *(str(lock), locked, found.named),
    )


def _parsed(file: Path, text: str) -> dict[str, Any]:
    import tomllib  # only for skills with an environment

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise NeedsError(file, f"not valid TOML in the declaration of its dependencies: {error}") from None


def _text(file: Path) -> str | None:
    try:
        text = read(str(file)).decode("utf-8-sig", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NeedsError(file, f"cannot be read: {error.strerror}") from error
    if "\0" in text:  # as in UTF-16, which a redirection of PowerShell writes
        raise NeedsError(file, "not text in UTF-8: save it in that encoding")
    return text


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data).encode("utf-8", "surrogatepass")).hexdigest()
