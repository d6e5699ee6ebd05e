from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
import shell
from on_a_terminal import on_a_terminal
from patience import PATIENCE

from prowess_host.cli.terminal import Style, has_colours, table, width

PLAIN = Style(colours=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing of colours."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_colours_only_where_they_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, unless it is asked to do without."""
    assert "\x1b[1ma\x1b[0m" == Style.of(Terminal())("a", "bold")
    assert "\x1b[1;31ma\x1b[0m" == Style.of(Terminal())("a", "bold", "red")
    assert "a" == Style.of(io.StringIO())("a", "bold")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "a" == Style.of(Terminal())("a", "bold")


def test_dumb_terminal_gets_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would show the codes. An empty `NO_COLOR` asks for nothing."""
    monkeypatch.setenv("NO_COLOR", "")
    assert has_colours(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(Terminal())


def test_table_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column gives way, down to what can still be read."""
    rows = [("A", "B", "C"), ("one", "x" * 50, "three")]
    assert ["A    B" + " " * 51 + "C", "one  " + "x" * 50 + "  three"] == table(rows, 80, style=PLAIN)
    assert "one  " + "x" * 27 + "…  three" == table(rows, 40, style=PLAIN)[1]
    assert "one  " + "x" * 23 + "…  three" == table(rows, 36, style=PLAIN)[1]
    longer = [(*row[:2], row[2].ljust(9, "e")) for row in rows]
    assert "one  " + "x" * 22 + "…  thr…" == table(longer, 34, style=PLAIN)[1]
    monkeypatch.setenv("COLUMNS", "57")
    assert 57 == width(Terminal())
    assert 160 == width(io.StringIO())


def test_table_that_wraps_puts_its_texts_below_on_a_narrow_terminal() -> None:
    rows = [("NAME", "TYPE", "ABOUT"), ("first", "integer", "some words about it"), ("second", "text", "")]
    expected = ["NAME    TYPE", "first   integer", "    some words", "    about it", "second  text"]
    assert expected == table(rows, 16, yields=2, wraps=True, style=PLAIN)


def test_wide_letters_take_two_columns() -> None:
    """And combining ones none."""
    rows = [("A", "B", "C"), ("日本", "e\u0301", "."), ("a", "日" * 30, ".")]
    lines = table(rows, 40, style=PLAIN)
    assert "日本  e\u0301" + " " * 32 + "." == lines[1]
    assert "a     " + "日" * 15 + "…" + "  ." == lines[2]


def test_looks_do_not_change_the_columns() -> None:
    """Codes take no place on a terminal."""
    rows = [("A", "B"), ("one", "x")]
    header, body = table(rows, 80, looks=(("bold",), ()), style=Style(colours=True))
    assert "\x1b[2mA    B\x1b[0m" == header
    assert "\x1b[1mone\x1b[0m  x" == body


TOUCHY = """
from prowess import skill_command

@skill_command(destructive=True)
def erase(name: str) -> str:
    return name
"""


@pytest.mark.parametrize(
    ("words", "prompt", "key", "code"),
    [
        ("invoke", "waiting for requests on stdin", "\x03", 130),
        ("invoke", "waiting for requests on stdin", "\x04", 0),
        ("call touchy.erase -", "waiting for the arguments as a JSON object on stdin", "\x03", 130),
        ("call touchy.erase -", "waiting for the arguments as a JSON object on stdin", '{"name": "x"}\n\x04', 0),
        ("replay last", "Run it again with", "\x03", 130),
        ("replay last", "Run it again with", "\x04", 130),
    ],
)
def test_what_waits_for_a_person_ends_at_a_key(tmp_path: Path, words: str, prompt: str, key: str, code: int) -> None:
    """Ctrl-C at once, Ctrl-D as the end of the input; and what it waits for is said."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/touchy.py").write_text(TOUCHY)
    if words.startswith("replay"):
        assert 0 == shell.prowess("call", "touchy.erase", "name=x", cwd=tmp_path).returncode
    with on_a_terminal(*words.split(), cwd=tmp_path) as terminal:
        terminal.wait_for(prompt)
        terminal.type(key)
        assert code == terminal.finish(), terminal.seen
    assert "Traceback" not in terminal.seen


UNNOTICED = """
import os, signal, threading
from prowess_host.cli.terminal import interruptible

def interrupt():
    # This thread takes the signal, so that the read of the main thread goes on: as if it had come just before the read.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

with interruptible():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Timer(0.1, lambda: (signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT]), interrupt())).start()
    try:
        os.read(os.pipe()[0], 1)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_that_a_read_does_not_notice_ends_it_all_the_same() -> None:
    """It may come just before the read blocks."""
    done = subprocess.run([sys.executable, "-c", UNNOTICED], check=True, capture_output=True, timeout=PATIENCE)
    assert b"interrupted\n" == done.stdout
