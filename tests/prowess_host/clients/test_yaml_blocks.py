from __future__ import annotations

import pytest

from prowess_host.clients.text_edits import Unreadable
from prowess_host.clients.yaml_blocks import drop, parse, put

PATH = ["extensions", "prowess"]
ENTRY = {
    "cmd": "/usr/bin/py",
    "args": ["-m", "a: b # c"],
    "envs": {},
    "enabled": True,
    "env_keys": [],
    "more": {"a": 1},
}
OTHERS = """\
# my settings
GOOSE_MODEL: "x"   # good

extensions:
    developer:   # built in
        enabled: true
        args: [a,   b]
        note: |
            several
            lines

# about the rest
last: ~
"""


@pytest.mark.parametrize(
    "text",
    [
        OTHERS,
        OTHERS.replace("\n", "\r\n"),
        OTHERS.split("\n# about", maxsplit=1)[0],
        "a: 1\nextensions:\n  x: {a: 1}",
        "extensions:\n- x\n".replace("- x", "  x: [1,\n    2]"),
    ],
)
def test_member_is_put_in_behind_the_others_and_taken_out_without_a_trace(text: str) -> None:
    edited = put(text, PATH, ENTRY)

    expected = parse(text)
    expected["extensions"]["prowess"] = ENTRY
    assert expected == parse(edited)
    assert list(expected["extensions"]) == list(parse(edited)["extensions"])
    assert text.rstrip() == drop(edited, PATH).rstrip()
    assert ("\r" in text) == ("\r" in edited)


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "a: 1\n", "extensions:\n", "extensions: {}\nb: 1\n", "a: 1\nextensions:"]
)
def test_table_is_made_where_there_is_none(text: str) -> None:
    edited = put(text, PATH, ENTRY)

    assert {**parse(text), "extensions": {"prowess": ENTRY}} == parse(edited)
    assert {**parse(text), "extensions": {}} == parse(drop(edited, PATH))


def test_member_is_replaced_where_it_stands() -> None:
    text = "extensions:\n  prowess:\n    cmd: old # mine\n\n  # of z\n  z:\n    a: 1\n"

    assert 'extensions:\n  prowess:\n    cmd: "new"\n\n  # of z\n  z:\n    a: 1\n' == put(text, PATH, {"cmd": "new"})
    assert "extensions:\n\n  # of z\n  z:\n    a: 1\n" == drop(text, PATH)


def test_what_cannot_be_edited_by_lines_is_refused_with_its_line() -> None:
    with pytest.raises(Unreadable, match='line 2: "extensions" is written in braces: write it as lines of its own'):
        put("a: 1\nextensions: {x: 1}\n", PATH, ENTRY)
    with pytest.raises(Unreadable, match='line 1: "extensions" must be a mapping'):
        put("extensions: [1]\n", PATH, ENTRY)


@pytest.mark.parametrize(("text", "line"), [("a: 1\n b: 2\n", 2), ("a: [1\n", 2), ("a: 1\na: 2\n", 2), ("\x01", 1)])
def test_what_is_no_yaml_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(Unreadable) as caught:
        parse(text)

    assert line == caught.value.line


def test_what_is_not_there_is_not_taken_out() -> None:
    assert "a: 1\n" == drop("a: 1\n", PATH)
    assert "" == drop("", PATH)
    assert "extensions:\n  x: 1\n" == drop("extensions:\n  x: 1\n", PATH)
