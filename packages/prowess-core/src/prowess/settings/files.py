"""The files of settings: `prowess.toml` or `[tool.prowess]` in `pyproject.toml`, and `.env`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prowess.errors import SettingsError
from prowess.patterns import lazy_pattern
from prowess.settings.dotenv import parse as parse_dotenv
from prowess.settings.tables import Table, is_table

__all__ = [
    "CONFIG_FILE",
    "CONFIG_FILES",
    "PYPROJECT",
    "PYPROJECT_TABLE",
    "ConfigFile",
    "Dotenv",
    "Written",
    "find",
    "is_configured",
    "read_before",
    "read_dotenv",
    "read_toml",
]

CONFIG_FILE = "prowess.toml"
PYPROJECT = "pyproject.toml"
CONFIG_FILES = (CONFIG_FILE, PYPROJECT)
PYPROJECT_TABLE = ("tool", "prowess")


class Written(NamedTuple):
    """The files that settings were read from, with their content at that time; empty for a missing file."""

    file: str = ""
    text: str = ""
    env_file: str = ""
    env_text: str = ""


def is_configured(folder: Path) -> bool:
    """Whether a folder has settings for Prowess. A broken file counts, so that loading it reports the error."""
    if _is_file(folder / CONFIG_FILE):
        return True
    try:
        return _find_in_pyproject(folder / PYPROJECT) is not None
    except SettingsError:
        return True


class ConfigFile(NamedTuple):
    """A file with settings: the part for Prowess, and the text, in which lines are found."""

    file: Path
    data: Any
    text: str
    table: tuple[str, ...] = ()

    def location(self, path: tuple[str, ...]) -> str:
        """The file, with the line of a setting or of its table if the text shows it."""
        for end in range(len(path), 0, -1):
            line = _line_of(self.text, (*self.table, *path[:end]))
            if line:
                return f"{self.file}:{line}"
        return str(self.file)


class Dotenv(NamedTuple):
    """A file of environment variables, with warnings about lines that could not be read."""

    file: Path
    text: str
    values: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: Path, text: str) -> Dotenv:
        """Parse the text of a file."""
        values, wrong = parse_dotenv(text)
        warnings = (
            f'{file}:{line}: this line is ignored: write NAME=value, or NAME="value with spaces"' for line in wrong
        )
        return cls(file, text, values, tuple(warnings))


def read_dotenv(root: Path, name: str) -> Dotenv | None:
    """The file of environment variables, if there is one. Errors in it are warnings, because other programs use it too."""
    file = root / Path(name).expanduser()
    if not name or not _is_file(file):
        return None
    try:
        return Dotenv.of(file, _read(file, "UTF-8"))
    except SettingsError as error:
        return Dotenv(file, "", {}, (f"{error}; the file is ignored",))


def find(root: Path) -> ConfigFile | None:
    """The settings file of a project, if there is one."""
    own = root / CONFIG_FILE
    if not _is_file(own):
        return _find_in_pyproject(root / PYPROJECT)
    try:
        other = _find_in_pyproject(root / PYPROJECT)
    except SettingsError:
        other = None  # prowess.toml counts even if pyproject.toml is broken
    if other is not None:
        raise SettingsError(f"{own} and [tool.prowess] in {other.file} both hold settings: remove one of them")
    text = _read(own)
    return ConfigFile(own, _parse(own, text), text)


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises in a folder without permission


def _find_in_pyproject(file: Path) -> ConfigFile | None:
    """`[tool.prowess]`, if there is one. Parsing is skipped if the file never mentions Prowess."""
    if not _is_file(file):
        return None
    text = _read(file)
    return _in_pyproject(file, text) if "prowess" in text else None


def _in_pyproject(file: Path, text: str) -> ConfigFile | None:
    data: Any = _parse(file, text)
    for name in PYPROJECT_TABLE:
        data = data.get(name) if is_table(data) else None
    return None if data is None else ConfigFile(file, data, text, PYPROJECT_TABLE)


def read_before(written: Written) -> ConfigFile | None:
    """A settings file from the text that another process read."""
    file = Path(written.file)
    if file.name == PYPROJECT:
        return _in_pyproject(file, written.text)
    return ConfigFile(file, _parse(file, written.text), written.text)


def read_toml(file: Path) -> Table:
    """The content of a TOML file. Raises `SettingsError` if it cannot be read."""
    return _parse(file, _read(file))


def _read(file: Path, format_: str = "UTF-8, as TOML must be") -> str:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")  # editors of Windows write a byte order mark
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{file}:{line}: not {format_}") from None


def _parse(file: Path, text: str) -> Table:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # an overlong number is a plain ValueError in tomllib
        found = re.search(r"\(at line (\d+)", str(error))
        line = int(found[1]) if found else text.rstrip("\n").count("\n") + 1
        raise SettingsError(f"{file}:{line}: not valid TOML: {error}") from None


_TABLE_LINE = lazy_pattern(r"\s*\[\[?\s*([^\]=]+?)\s*\]")
_KEY_LINE = lazy_pattern(r"\s*([\w.\"' -]+?)\s*=")


def _line_of(text: str, path: tuple[str, ...]) -> int | None:
    """The first line with a table header or a key at or below a path."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TABLE_LINE.match(line):
            here = table = _written_path(header[1])
        elif key := _KEY_LINE.match(line):
            here = (*table, *_written_path(key[1]))
        else:
            continue
        if here[: len(path)] == path:
            return number
    return None


def _written_path(text: str) -> tuple[str, ...]:
    return tuple(part.strip(" \t\"'") for part in text.split("."))
