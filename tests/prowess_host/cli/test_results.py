from __future__ import annotations

import base64
import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

from prowess.contracts.contract import Contract, OutputShape
from prowess_host.cli.results import Files, show_result

CONTRACT = Contract("t.x", "t_x", "t", "x", "", {})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns without colours."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return Terminal()


def show(
    terminal: Terminal, structured: Any = None, content: list[Any] | None = None, shape: OutputShape | None = None
) -> None:
    payload: dict[str, Any] = {"content": content or [], "isError": False}
    if structured is not None:
        payload["structuredContent"] = structured
    contract = Contract("t.x", "t_x", "t", "x", "", {}, shape or OutputShape())
    with contextlib.redirect_stdout(terminal):
        show_result(payload, contract, Files("t/x", None))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"result": "text"}, "text\n"),
        ({"result": [1, True, None, "a"]}, "1\nyes\n\na\n"),
        ({"result": []}, "(an empty list)\n"),
        ({"result": 5}, "5\n"),
        ({"result": [{"a": 1}, {"b": "x\ny"}]}, "A  B\n1\n   x y\n2 rows\n"),
        ({"result": [[1]]}, "[\n  [\n    1\n  ]\n]\n"),
        ({"a": 1, "long": "x"}, "a     1\nlong  x\n"),
        ({"a": "x\ny"}, "a\nx\ny\n"),
        ({"a": 1, "rows": [{"n": 1}]}, "a  1\n\nrows\nN\n1\n1 row\n"),
        ({}, "{}\n"),
    ],
)
def test_data(value: Any, expected: str, shown: Terminal) -> None:
    """Lists of objects are tables, objects are their fields, scalars are lines."""
    show(shown, value)
    assert expected == shown.getvalue()


def test_too_many_columns_are_no_table(shown: Terminal) -> None:
    """They would not fit."""
    show(shown, {"result": [{f"c{n}": n for n in range(13)}]})
    assert '"c12": 12' in shown.getvalue()


def test_an_object_of_the_command_is_not_taken_for_a_box(shown: Terminal) -> None:
    """Its one field may be called `result`."""
    show(shown, {"result": 1}, shape=OutputShape(schema={"type": "object"}))
    assert "result  1\n" == shown.getvalue()


def test_blocks(shown: Terminal, tmp_path: Path) -> None:
    """Text as it is, links with their titles, data in files."""
    data = base64.b64encode(b"abc").decode()
    blocks = [
        {"type": "text", "text": "# no Markdown\nonly a comment"},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "description": "A file."},
        {"type": "resource", "resource": {"uri": "x:1", "text": "inside"}},
        {"type": "new", "x": 1},
    ]
    show(shown, content=blocks)
    assert "# no Markdown\nonly a comment\na <file:///a> - A file.\ninside\n" in shown.getvalue()
    payload = {
        "content": [
            {"type": "audio", "data": data, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "x:2", "blob": data, "mimeType": "x/unknown"}},
        ]
    }
    with contextlib.redirect_stdout(shown):
        show_result(payload, CONTRACT, Files("t/x", tmp_path))
    assert {"t_x.wav": b"abc", "t_x.bin": b"abc"} == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_markdown_is_drawn_in_colour(shown: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are signs of it; without colours it stays as it is written."""
    text = "# Title\n\n## Part\n\n- **bold**\n"
    show(shown, content=[{"type": "text", "text": text}])
    assert f"{text}\n" == shown.getvalue()
    shown.truncate(0)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    show(shown, content=[{"type": "text", "text": text}])
    assert "**" not in shown.getvalue()
    assert "\x1b[1m" in shown.getvalue()
