from __future__ import annotations

import datetime as dt

import pytest

from prowess_host.clients.text_edits import Unreadable
from prowess_host.clients.toml_sections import drop, parse, put

PATH = ["mcp_servers", "prowess"]
OTHERS = '''# my settings
model = "o5"   # good

[mcp_servers.other] # keep
command = "x"

# of the next table
[projects."/a.b"]
trust_level = "trusted"
text = """
[mcp_servers.prowess]
"""
nested = [
  ["a"],
  ["b", "]"],
]
[[list]]
a = 1
'''


@pytest.mark.parametrize("text", [OTHERS, OTHERS.replace("\n", "\r\n"), "", "a = 1", "\n"])
def test_table_goes_to_the_end_and_is_taken_out_without_a_trace(text: str) -> None:
    edited = put(text, PATH, {"command": 'a "b" \\ c', "args": ["-m", "x"], "env": {"A": "1"}})

    assert edited.startswith(text)
    assert {"command": 'a "b" \\ c', "args": ["-m", "x"], "env": {"A": "1"}} == parse(edited)["mcp_servers"]["prowess"]
    assert text.rstrip() == drop(edited, PATH).rstrip()
    assert "\r" in text or "\r" not in edited


def test_table_is_replaced_where_it_stands() -> None:
    text = (
        'a = 1\n\n[mcp_servers.prowess]\ncommand = "old"\n[mcp_servers.prowess.env]\nA = "1"\n\n# next\n[z]\n'
        '[mcp_servers."prowess".more]\nb = 2\n'
    )

    assert 'a = 1\n\n[mcp_servers.prowess]\ncommand = "new"\n\n# next\n[z]\n' == put(text, PATH, {"command": "new"})
    assert "a = 1\n\n# next\n[z]\n" == drop(text, PATH)


def test_first_table_of_a_file_is_taken_out() -> None:
    assert "[z]\n" == drop("[mcp_servers.prowess]\na = 1\n\n[z]\n", PATH)
    assert "" == drop("['mcp_servers'.prowess]\na = 1\n", PATH)


def test_every_kind_of_value_is_written_so_that_it_is_read_again() -> None:
    value = {
        "text": "é\n\t\x01\x7f\\",
        "yes": True,
        "number": 2,
        "part": 0.5,
        "date": dt.date(2026, 1, 1),
        "list": [1, [True, "x"]],
        "inline": [{"a": 1, "b c": "d"}],
        "a key": {"deep": {"x": 1}},
    }

    assert value == parse(put("", PATH, value))["mcp_servers"]["prowess"]


def test_what_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(Unreadable, match="line 2: ") as caught:
        parse("a = 1\nb = [\n")
    assert 2 == caught.value.line
    with pytest.raises(Unreadable, match="line 3: "):
        parse("a = 1\nb = 2\nc ? 3\n")
