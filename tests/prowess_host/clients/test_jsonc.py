from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess_host.clients.jsonc import drop, parse, put
from prowess_host.clients.text_edits import Unreadable

ENTRY = {"command": "py", "args": ["-m", "x"]}


def test_text_is_read_as_json_with_comments_and_trailing_commas() -> None:
    text = """
    // first
    {"a": [1, 2.5, null, true,], /* in
    between */ "b": {"c": "d\\u00e9 // no comment",}, // last
    }
    """

    assert {"a": [1, 2.5, None, True], "b": {"c": "dé // no comment"}} == parse(text)


@pytest.mark.parametrize("text", ["", "  \n", "// nothing yet\n", "/* a */"])
def test_text_without_a_value_is_an_empty_object(text: str) -> None:
    assert {} == parse(text)
    assert {"a": {"b": 1}} == parse(put(text, ["a", "b"], 1))
    assert put(text, ["a"], 1).startswith(text)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{\n"a": 1\n"b": 2}', 3, 'a comma or } was expected, not "\\""'),
        ('{\n"a" 1}', 2, 'a colon was expected after "a", not "1"'),
        ("{a: 1}", 1, 'a name in double quotes was expected, not "a"'),
        ('{"a": 1', 1, "a comma or } was expected, not the end of the file"),
        ('{"a": }', 1, 'a value was expected, not "}"'),
        ('{"a": nope}', 1, 'a value was expected, not "n"'),
        ('{"a": "x\n"}', 1, 'a string that ends in its line was expected, not "\\""'),
        ('{"a": "\\q"}', 1, "a string that is not valid JSON: Invalid \\escape: line 1 column 2 (char 1)"),
        ("[1 2]", 1, 'a comma or ] was expected, not "2"'),
        ("{}\n{}", 2, 'the end of the file was expected, not "{"'),
        ("{} /* x", 1, "the comment is never closed: write */ at its end"),
        ("[" * 300, 1, "more than 200 levels of objects and lists"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse(text)

    assert (line, reason) == (caught.value.line, caught.value.reason)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", '{\n  "s": {\n    "x": 1\n  }\n}'),
        ('{"s": {}}', '{"s": {\n  "x": 1\n}}'),
        ('{"s": {"a": 2}}', '{"s": {"a": 2, "x": 1}}'),
        ('{"s": {"a": 2,}}', '{"s": {"a": 2, "x": 1}}'),
        ('{\n\t"s": {\n\t\t"a": 2\n\t}\n}\n', '{\n\t"s": {\n\t\t"a": 2,\n\t\t"x": 1\n\t}\n}\n'),
        ('{\n   "s": {\n      "a": 2, // why\n   },\n}', '{\n   "s": {\n      "a": 2, // why\n      "x": 1,\n   },\n}'),
        (
            '{\r\n  "s": {\r\n    "a": 2 /* b */ // c\r\n  }\r\n}',
            '{\r\n  "s": {\r\n    "a": 2, /* b */ // c\r\n    "x": 1\r\n  }\r\n}',
        ),
        ('{\n  "s": {\n    // none yet\n  }\n}', '{\n  "s": {\n    // none yet\n    "x": 1\n  }\n}'),
        ('{\n  "other": 1\n}', '{\n  "other": 1,\n  "s": {\n    "x": 1\n  }\n}'),
    ],
)
def test_member_is_put_in_as_the_file_is_written(text: str, expected: str) -> None:
    """Indentation, line ends, comments and a trailing comma are those of the file."""
    assert expected == put(text, ["s", "x"], 1)


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"s": {\n\t\t"a": 2\n\t}\n}\n',
        '{\n   "s": {\n      "a": 2, // why\n   },\n}',
        '{\r\n  "s": {\r\n    "a": 2 /* b */ // c\r\n  }\r\n}',
        '{\n  "s": {\n    // none yet\n  }\n}',
        '{"s": {"a": 2}}',
        '{"s": {}}',
    ],
)
def test_member_that_was_put_in_is_taken_out_without_a_trace(text: str) -> None:
    assert text == drop(put(text, ["s", "x"], ENTRY), ["s", "x"])


def test_member_between_others_is_taken_out_with_its_line() -> None:
    text = '{\n  // of a\n  "a": 1, // a\n  // of b\n  "b": {\n    "c": 1\n  }, // b\n  // of d\n  "d": 2\n}'

    assert '{\n  // of a\n  "a": 1, // a\n  // of b\n  // of d\n  "d": 2\n}' == drop(text, ["b"])
    assert '{\n  // of a\n  // of b\n  "b": {\n    "c": 1\n  }, // b\n  // of d\n  "d": 2\n}' == drop(text, ["a"])
    assert '{"a": 1, "d": 2}' == drop('{"a": 1, "b": 0, "d": 2}', ["b"])
    assert '{"b": 0}' == drop('{"a": 1, "b": 0}', ["a"])
    assert '{"a": 1}' == drop('{"a": 1, "b": 0}', ["b"])


def test_only_what_differs_in_an_object_is_written_anew() -> None:
    text = '{"x": {\n    "args": ["a",   "b"], // mine\n    "old": 1,\n    "command": "py"\n}}'

    assert text == put(text, ["x"], {"args": ["a", "b"], "old": 1, "command": "py"})
    assert text.replace('"py"', '"py3"') == put(text, ["x"], {"args": ["a", "b"], "old": 1, "command": "py3"})
    assert '["c"], // mine' in put(text, ["x"], {"args": ["c"], "old": 1, "command": "py"})
    assert '"old"' not in put(text, ["x"], {"args": ["a", "b"], "command": "py"})


def test_path_through_something_else_is_refused_with_its_line() -> None:
    with pytest.raises(Unreadable, match='line 2: "s" must be an object in braces'):
        put('{\n"s": []}', ["s", "x"], 1)
    with pytest.raises(Unreadable, match="the whole file must be an object"):
        put("[]", ["s", "x"], 1)


def test_what_is_not_there_is_not_taken_out() -> None:
    assert '{"a": 1}' == drop('{"a": 1}', ["b"]) == drop('{"a": 1}', ["b", "c"])


def test_of_two_members_with_one_name_the_last_counts() -> None:
    assert '{"a": 1, "a": 3}' == put('{"a": 1, "a": 2}', ["a"], 3)


_NAMES = st.text("abc", min_size=1, max_size=2)
_DATA = st.dictionaries(
    _NAMES,
    st.recursive(st.integers() | st.text(), lambda inner: st.dictionaries(_NAMES, inner, max_size=3), max_leaves=6),
)


@given(_DATA, st.sampled_from([None, 1, "\t", 4]), _NAMES, _NAMES)
def test_editing_changes_one_entry_and_undoing_it_changes_nothing(
    data: dict[str, object], indent: int | str | None, table: str, name: str
) -> None:
    """Whatever the file holds and however it is indented."""
    text = json.dumps(data, indent=indent)
    if not isinstance(data.get(table, {}), dict):
        return
    servers = dict(data.get(table, {}))  # type: ignore[call-overload]

    edited = put(text, [table, name], ENTRY)

    assert {**data, table: {**servers, name: ENTRY}} == parse(edited)
    if name not in servers and servers:
        assert text == drop(edited, [table, name])
