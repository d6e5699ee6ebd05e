"""Prints the result of a call: tables, text, Markdown, and files for content that a terminal cannot show.

In a pipe, results are plain text, and data is JSON.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from prowess.contracts.contract import Contract
from prowess.contracts.visible import visible
from prowess.errors import ProwessError
from prowess.jsontypes import Json, JsonObject
from prowess.schemas.walk import is_list, is_schema
from prowess_host.cli.terminal import Style, console, pretty, table, width

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Files", "show_result", "unboxed"]

_MARKDOWN: Final = re.compile(r"^(#{2,6} \S|```|\|?[ :]*-{3,}[ :]*\|)", re.MULTILINE)
"""Signs of Markdown that are rare in plain text and code."""
_EXTENSIONS: Final = {"image/jpeg": ".jpg", "text/plain": ".txt", "audio/wav": ".wav", "audio/mpeg": ".mp3"}
_LEAST: Final = 12
_MOST_COLUMNS: Final = 12


class Files:
    """Saves images and other binary content of one call. Overwrites nothing."""

    def __init__(self, command: str, folder: Path | None) -> None:
        """Without a folder, a new temporary one is made at the first file."""
        self._command = re.sub(r"[^\w.-]", "_", command)
        self._folder = folder

    def save(self, data: bytes, media_type: str) -> Path:
        """Save content and return its file."""
        try:
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="prowess-"))
            self._folder.mkdir(parents=True, exist_ok=True)
            ending = _EXTENSIONS.get(media_type) or mimetypes.guess_extension(media_type) or ".bin"
            for number in range(1, sys.maxsize):
                file = self._folder / f"{self._command}{f'-{number}' if number > 1 else ''}{ending}"
                try:
                    with file.open("xb") as opened:
                        opened.write(data)
                except FileExistsError:
                    continue
                return file
        except OSError as error:
            raise ProwessError(f"{self._folder}: nothing can be saved there ({error.strerror})") from error
        raise AssertionError


def show_result(payload: JsonObject, contract: Contract, files: Files) -> None:
    """Print the result of a call that succeeded. On a terminal, no text of it has an effect."""
    if sys.stdout.isatty():
        payload = visible(payload)
    structured = payload.get("structuredContent")
    if isinstance(structured, dict) and not contract.output.content:
        _show_data(unboxed(cast("Json", structured), contract))
        return
    for block in payload["content"]:
        _show_block(block, files)


def unboxed(structured: Json, contract: Contract) -> Json:
    """The value without its box."""
    schema = contract.output.schema or {}
    if not isinstance(structured, dict) or len(structured) != 1:
        return structured
    is_boxed = not contract.output.explicit and schema.get("type") != "object"
    if is_boxed and next(iter(structured)) in ("result", contract.output.field) and "$ref" not in schema:
        return next(iter(structured.values()))
    return structured


# --- data -----------------------------------------------------------------------------------------


def _show_data(value: Json) -> None:
    if isinstance(value, str):
        print(value)
    elif not sys.stdout.isatty():
        print(pretty(value))
    elif isinstance(value, list) and value and all(is_schema(item) and item for item in value):
        _show_rows(cast("list[JsonObject]", value))
    elif isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        print("\n".join(map(_cell, value)) if value else _quiet("(an empty list)"))
    elif isinstance(value, dict) and value:
        _show_object(value)
    else:
        _show_json(value)


def _show_rows(rows: Sequence[JsonObject]) -> None:
    """Print objects as a table, in which the widest column is cut; as JSON if there are too many columns."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if len(columns) > _MOST_COLUMNS or width(sys.stdout) < _LEAST * len(columns):
        _show_json(list(rows))
        return
    cells = [[_cell(row.get(name, "")) for name in columns] for row in rows]
    sizes = [max(len(row[column]) for row in cells) for column in range(len(columns))]
    style = Style.of(sys.stdout)
    heads = [column.upper() for column in columns]
    print("\n".join(table([heads, *cells], width(sys.stdout), yields=sizes.index(max(sizes)), style=style)))
    print(_quiet(f"{len(rows)} row{'' if len(rows) == 1 else 's'}"))


def _show_object(value: JsonObject) -> None:
    """Print the fields of an object, and lists of objects in it as tables."""
    style = Style.of(sys.stdout)
    plain = {name: item for name, item in value.items() if not (is_schema(item) or is_list(item)) or not item}
    longest = max(map(len, plain), default=0)
    for name, item in plain.items():
        lines = _cell(item, flat=False).splitlines() or [""]
        if len(lines) == 1:
            print(f"{style(name.ljust(longest), 'bold')}  {lines[0]}")
        else:
            print(style(name, "bold"), *lines, sep="\n")
    for name, item in value.items():
        if name not in plain:
            print(f"\n{style(name, 'bold')}")
            _show_data(item)


def _cell(value: Json, *, flat: bool = True) -> str:
    """A value as one line, for a cell of a table."""
    if isinstance(value, str):
        return " ".join(value.split()) if flat else value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False)


def _show_json(value: Any) -> None:
    text = pretty(value)
    if not Style.of(sys.stdout).colours:
        print(text)
        return
    from rich.json import JSON

    _draw(JSON(text))


# --- content --------------------------------------------------------------------------------------


def _show_block(block: JsonObject, files: Files) -> None:
    kind = block["type"]
    if kind == "text":
        _show_text(block["text"])
    elif kind in ("image", "audio"):
        _save(base64.b64decode(block["data"]), block["mimeType"], files)
    elif kind == "resource_link":
        print(" ".join(_parts(block)))
    elif kind == "resource" and "text" in block["resource"]:
        _show_text(block["resource"]["text"])
    elif kind == "resource" and "blob" in block["resource"]:
        _save(base64.b64decode(block["resource"]["blob"]), block["resource"].get("mimeType", ""), files)
    else:
        _show_json(block)


def _show_text(text: str) -> None:
    if Style.of(sys.stdout).colours and _MARKDOWN.search(text):
        from rich.markdown import Markdown

        _draw(Markdown(text))
    else:
        print(text)


def _save(data: bytes, media_type: str, files: Files) -> None:
    print(f"{files.save(data, media_type)} ({media_type or 'data'}, {len(data):,} bytes)")


def _parts(block: JsonObject) -> Iterator[str]:
    yield str(block.get("title") or block.get("name") or "")
    yield f"<{block['uri']}>"
    if block.get("description"):
        yield f"- {block['description']}"


def _draw(drawn: RenderableType) -> None:
    console().print(drawn)


def _quiet(text: str) -> str:
    return Style.of(sys.stdout)(text, "dim")
