"""The terminal of our tests shows what a real one would show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from terminal import Terminal, coloured, plain


@pytest.mark.parametrize(
    ("shown", "written"),
    [
        ("one\ntwo", "one\r\ntwo"),
        ("two", "one\rtwo"),
        ("twoe", "none\rtwo"),
        ("done", "\x1b[?25l\x1b[33m|\x1b[0m working\r\x1b[2K\x1b[?25hdone"),
        ("a\nc\n", "a\r\nb\r\n\x1b[1A\x1b[2Kc"),
        ("a\n  c", "a\r\nb\x1b[1K\r\x1b[2K  c"),
        ("a", "a\r\nb\r\nc\x1b[2A\r\x1b[1B\x1b[1A\ra\x1b[0J"),
        ("title", "\x1b]0;name\x07title"),
    ],
)
def test_screen_after_a_text(shown: str, written: str) -> None:
    assert shown == plain(written)


def test_colours_are_kept() -> None:
    assert "\x1b[0m\x1b[31mred\x1b[0m plain\x1b[0m" == coloured("x\r\x1b[31mred\x1b[0m plain")


def test_shell_has_a_width_and_gives_exit_codes(tmp_path: Path) -> None:
    """A command sees a terminal of the width that was asked for."""
    with Terminal(tmp_path, {"PATH": os.defpath}, columns=77) as terminal:
        code, output = terminal.enter("stty size; test -t 1 && echo yes")
        assert (0, "40 77\nyes\n") == (code, plain(output))
        assert 3 == terminal.enter("(exit 3)")[0]
