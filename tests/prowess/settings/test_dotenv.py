"""The dialect of `.env` files."""

from __future__ import annotations

import pytest

from prowess.settings.dotenv import parse


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=1\nB = two words \n\n# a comment\n  C=3 # why\n", {"A": "1", "B": "two words", "C": "3"}),
        ("export A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("\ufeffA=1", {"A": "1"}),
        ("A=\nB=''\nC=\"\" # none\nD= # none", {"A": "", "B": "", "C": "", "D": ""}),
        ("A=a#b\nB=#b", {"A": "a#b", "B": ""}),
        ('A=\'a # \\n $B\'#c\nB="a # \\n\\"\\$" # c', {"A": "a # \\n $B", "B": 'a # \n"$'}),
        ("A='one\ntwo'\nB=\"one\ntwo\"", {"A": "one\ntwo", "B": "one\ntwo"}),
        ("A=$B\nA=${B}=2", {"A": "${B}=2"}),
        ("", {}),
    ],
)
def test_what_is_written_is_read(text: str, values: dict[str, str]):
    """As python-dotenv and Docker read it, but nothing is expanded."""
    assert (values, []) == parse(text)


@pytest.mark.parametrize("line", ["just words", "1A=1", "=1", "A", "'A'=1", 'A="open', "A='1' more", "if [ x = y ]"])
def test_a_line_that_is_no_assignment_is_counted(line: str):
    """And the rest is read."""
    assert ({"X": "1", "Y": "2"}, [2]) == parse(f"X=1\n{line}\nY=2")
