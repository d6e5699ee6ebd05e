"""A client's configuration file as an editable text: adds or removes one entry and verifies the result.

After every edit, the text is parsed again and compared with the expected data. An edit that would change anything else is
refused, and the file stays as it was.
"""

from __future__ import annotations

import copy
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess_host.clients import jsonc, toml_sections, yaml_blocks
from prowess_host.clients.text_edits import Unreadable

__all__ = ["ClientFileError", "Document", "entries_at", "read_document"]

_FORMATS: Final[Mapping[str, ModuleType]] = {"json": jsonc, "toml": toml_sections, "yaml": yaml_blocks}
_BOM: Final = b"\xef\xbb\xbf"


class ClientFileError(ProwessError):
    """A client's file cannot be read or edited. It was left as it is."""

    def __init__(self, file: Path, reason: str, remedy: str, line: int | None = None) -> None:
        place = f"{file}:{line}" if line else str(file)
        super().__init__(f"{place}: {reason}. The file was left as it is; {remedy}")


@frozen
class Document:
    """The text of a file, and its data."""

    file: Path
    format: str
    text: str
    data: Any
    has_bom: bool = False
    exists: bool = True

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return (_BOM if self.has_bom else b"") + self.text.encode()

    def entry(self, path: Sequence[str]) -> Any:
        """The entry at a path, or `None`."""
        return entries_at(self.data, path)

    def put(self, path: Sequence[str], value: Mapping[str, Any]) -> Document:
        """The document with an entry at a path."""
        expected = copy.deepcopy(self.data)
        node: Any = expected
        for name in path[:-1]:
            if not isinstance(node.get(name), dict):
                if node.get(name) is not None:
                    raise self._refused(f"{name!r} must be a table of entries, not {_kind(node[name])}")
                node[name] = {}
            node = node[name]
        node[path[-1]] = dict(value)
        return self._edited("put", expected, path, value)

    def drop(self, path: Sequence[str], *, empty: bool = False) -> Document:
        """The document without the entry at a path; with `empty`, also without a table that became empty."""
        expected = copy.deepcopy(self.data)
        table = entries_at(expected, path[:-1])
        if not isinstance(table, dict) or path[-1] not in table:
            return self
        del table[path[-1]]
        if empty and not table and len(path) > 1:
            return self.drop(path[:-1])
        return self._edited("drop", expected, path)

    def _edited(self, method: str, expected: Any, path: Sequence[str], *value: Any) -> Document:
        editor = _FORMATS[self.format]
        try:
            text: str = getattr(editor, method)(self.text, path, *value)
        except Unreadable as error:
            raise self._refused(error.reason, error.line) from None
        try:
            data: Any = editor.parse(text)
        except Unreadable:  # its line is one of the edited text, which nobody sees
            data = None
        if data is None or _without_empty(data, path[:-1]) != _without_empty(expected, path[:-1]):
            raise self._refused(f"{'.'.join(path)!r} is written in a form that cannot be edited safely")
        return replace(self, text=text, data=data)

    def _refused(self, reason: str, line: int | None = None) -> ClientFileError:
        return ClientFileError(self.file, reason, "fix it or edit it by hand, then run the command again", line)


def _without_empty(data: Any, path: Sequence[str]) -> Any:
    """The data without an empty table at a path, because TOML and YAML lose a table with its last entry."""
    if path and not entries_at(data, path) and isinstance(entries_at(data, path[:-1]), dict):
        data = copy.deepcopy(data)
        cast("dict[str, Any]", entries_at(data, path[:-1])).pop(path[-1], None)
    return data


def entries_at(data: Any, path: Sequence[str]) -> Any:
    """The value at a path of nested tables, or `None`."""
    for name in path:
        if not isinstance(data, dict):
            return None
        data = cast("dict[str, Any]", data).get(name)
    return data


def read_document(file: Path, form: str) -> Document:
    """Read a file; a missing file is an empty document. Raises `ClientFileError`."""
    try:
        raw = _content(file)
    except FileNotFoundError:
        return Document(file, form, "", {}, exists=False)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise ClientFileError(file, reason, "check its path and its permissions") from error
    has_bom = raw.startswith(_BOM)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ClientFileError(file, "not UTF-8", "save it as UTF-8, then run the command again", line) from None
    try:
        data = _FORMATS[form].parse(text)
    except Unreadable as error:
        reason = f"not valid {form.upper()}: {error.reason}"
        remedy = "correct that line, then run the command again"
        raise ClientFileError(file, reason, remedy, error.line) from None
    if not isinstance(data, dict):
        raise ClientFileError(file, f"must be a table of settings, not {_kind(data)}", "fix it by hand", 1)
    return Document(file, form, text, data, has_bom)


def _content(file: Path) -> bytes:
    """The bytes of a file. A pipe is refused, because reading it would wait for a writer."""
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise ClientFileError(file, f"it is {kind}", "move it away, then run the command again")
    return file.read_bytes()


def _kind(value: Any) -> str:
    kinds = {"dict": "a table", "list": "a list", "str": "a string", "bool": "true or false", "NoneType": "null"}
    return kinds.get(type(value).__name__, "a number")
