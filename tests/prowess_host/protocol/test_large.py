"""Large requests are read by another parser, with the same outcome."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prowess_host.protocol import codec, large
from prowess_host.protocol.codec import Message, RpcRequest, decode
from prowess_host.protocol.large import LARGE

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HEAD = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x",'
TAILS = (
    b"}}",
    b',"_meta":{"progressToken":1}}}',
    b'},"id":"later"}',
    b" } \t}",
    b'},"method":"ping"}',
    b"}",
    b"}}}",
    b"",
)
ODD = (
    *(
        b"1e999",
        b"-1e400",
        b"9" * 400 + b".0",
        b"9" * 4300,
        b"9" * 5000,
        b"NaN",
        b"-Infinity",
        b"-0",
        b"01",
        b"1.",
        b"0.1e-400",
    ),
    *(
        b'"\\ud800"',
        b'"\\ud83d\\ude00"',
        b'"\\udc00x"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\x01"',
        b'"\\x"',
        b'"\\/"',
        b'"a',
    ),
    *(
        b"[" * 150 + b"]" * 150,
        b"[" * 300 + b"]" * 300,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":1,"a":[2]}',
        b"[1,]",
        b"}",
        b"{",
    ),
    *(b'{"arguments":{"x":1}}', b'"arguments"', b'"\\"arguments\\":{"', b"1}", b'1,"y":{}}}', b"\x0b1", b"tru"),
)


def read(line: bytes, least: int) -> Message:
    """A line, as if requests of so many bytes were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "LARGE", least)
        patch.setattr(large, "_MOST_MEMBERS", sys.maxsize)
        return decode(line)


def assert_same(line: bytes) -> None:
    """By either parser, also where something is wrong: numbers that are no numbers are equal to none."""
    assert repr(read(line, sys.maxsize)) == repr(read(line, 0))


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("value", ODD)
def test_odd_values_are_read_alike(value: bytes, tail: bytes) -> None:
    """Numbers beyond what JSON or Python can say, broken text, nesting, repeated names, and what ends too early."""
    for name in (b'"arguments"', b'"other":{},"arguments" ', b'"arguments":{},"arguments"'):
        assert_same(HEAD + name + b':{"v":' + value + b"}" + tail)


@given(JSON, st.sampled_from(TAILS), st.booleans(), st.data())
@example({"arguments": {"arguments": {}}}, b"}}", True, None)
def test_requests_are_read_alike(value: object, tail: bytes, plain: bool, data: st.DataObject | None) -> None:
    """Whatever the arguments are, and with a byte changed somewhere."""
    text = json.dumps(value, ensure_ascii=plain).encode("utf-8", "surrogatepass")
    line = HEAD + b'"arguments": {"v":' + text + b"}" + tail
    assert_same(line)
    if data is not None:
        at = data.draw(st.integers(0, len(line)))
        assert_same(line[:at] + data.draw(st.binary(max_size=2)) + line[at + data.draw(st.integers(0, 2)) :])


def test_a_large_request_keeps_the_bytes_of_its_arguments() -> None:
    """They are handed on as they came; what stands around them is read as ever."""
    arguments = b'{ "text": "%b" }' % (b"\xc3\xa4\\n" * (LARGE // 4))
    message = decode(HEAD + b'"arguments":' + arguments + b',"_meta":{"progressToken":3}}}')
    assert isinstance(message, RpcRequest)
    assert arguments == message.arguments
    assert json.loads(arguments) == message.params["arguments"]
    assert {"progressToken": 3} == message.params["_meta"]
