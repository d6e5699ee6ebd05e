"""Cutting bytes into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess_host.protocol.lines import MAX_LINE, LineSplitter, Oversized


def split(*chunks: bytes, limit: int = MAX_LINE) -> list[bytes | Oversized]:
    """All lines of a stream that arrives in these chunks and then ends."""
    splitter = LineSplitter(limit)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.close()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"{}\n{}\n"], [b"{}", b"{}"], id="two lines in one chunk"),
        pytest.param([b'{"a"', b":", b"1}\n"], [b'{"a":1}'], id="row-8 message split over writes"),
        pytest.param([b"{}\r\n"], [b"{}"], id="row-8 CRLF"),
        pytest.param([b"{}\r", b"\n"], [b"{}"], id="row-8 CRLF split between its bytes"),
        pytest.param([b"{}\n", b"[]\n", b"1\r\n"], [b"{}", b"[]", b"1"], id="one line in each chunk"),
        pytest.param(
            [b"{}\n", b"\n", b" \r\n", b"{}\n"], [b"{}", b"{}"], id="row-7 a blank line in a chunk of its own"
        ),
        pytest.param([b"{}\n", b"[", b"]\n", b"{}\n"], [b"{}", b"[]", b"{}"], id="one line between pieces"),
        pytest.param([b"{}"], [b"{}"], id="row-8 no newline before the end"),
        pytest.param([b"\n \t \r\n\n"], [], id="row-7 empty and blank lines"),
        pytest.param([b"\xef\xbb\xbf{}\n"], [b"{}"], id="row-9 byte order mark first"),
        pytest.param([b"\xef", b"\xbb\xbf{", b"}\n"], [b"{}"], id="row-9 byte order mark in pieces"),
        pytest.param([b"{}\n\xef\xbb\xbf{}\n"], [b"{}", b"\xef\xbb\xbf{}"], id="a byte order mark later is not ours"),
        pytest.param(["\u2028\u0085\x0b".encode() + b"\n"], ["\u2028\u0085\x0b".encode()], id="only \\n ends a line"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_stream_is_cut_at_newlines_only(chunks: list[bytes], lines: list[bytes]) -> None:
    """A line is what stands between two line feeds, without spaces around it; blank lines are not lines."""
    assert lines == split(*chunks)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b"x" * 11 + b"\n{}\n"], id="in one chunk"),
        pytest.param([b"xxxx", b"xxxx", b"xxxx", b"xxxx", b"\n{}\n"], id="in many chunks"),
        pytest.param([b" \n", b"x" * 11 + b"\n", b"{}\n"], id="in a chunk of its own"),
        pytest.param([b" \n", b"x" * 11, b"\n", b"{}\n"], id="in a chunk without its end"),
    ],
)
def test_row_14_a_line_over_the_limit_is_reported_once_and_skipped_to_its_end(chunks: list[bytes]) -> None:
    """The limit costs the one line that breaks it."""
    assert [Oversized(10), b"{}"] == split(*chunks, limit=10)


def test_row_14_a_line_of_just_the_limit_is_read() -> None:
    """The limit is the length of the longest line that passes."""
    assert [b"x" * 10] == split(b"x" * 10 + b"\n", limit=10)


def test_row_14_an_oversized_line_is_reported_before_it_ends_and_is_not_kept() -> None:
    """Somebody may be waiting for the error, and memory must not grow meanwhile."""
    splitter = LineSplitter(10)
    assert [Oversized(10)] == splitter.feed(b"x" * 11)
    assert [] == splitter.feed(b"x" * 1000)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_row_14_the_ends_of_an_oversized_object_are_kept(size: int) -> None:
    """It is reported at its end, since its id may stand there; however it arrives, the ends are the same."""
    line = b' {"id":1,' + b"x" * 10_000 + b',"end":2}'
    stream = line + b"\n{}\n"
    found = split(*(stream[at : at + size] for at in range(0, len(stream), size)), limit=10)
    assert [Oversized(10), b"{}"] == found
    (first, _) = found
    assert isinstance(first, Oversized)
    assert first.head.startswith(b'{"id":1,')
    assert first.tail.endswith(b',"end":2}')
    assert max(len(first.head), len(first.tail)) <= 4096


def test_row_15_a_long_line_without_newline_and_then_the_end() -> None:
    """The end of the stream ends the last line, whatever it is."""
    assert [Oversized(10)] == split(b"x" * 50, limit=10)


def test_the_default_limit_is_64_mib() -> None:
    """Large enough for a file as an argument, small enough for any machine."""
    assert 64 * 1024 * 1024 == MAX_LINE


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 40))
def test_how_a_stream_is_chunked_changes_nothing(chunks: list[bytes], limit: int) -> None:
    """Only the bytes count, not how they arrive."""
    stream = b"".join(chunks)
    whole = split(stream, limit=limit)
    assert whole == split(*chunks, limit=limit)
    assert whole == split(*[bytes([each]) for each in stream], limit=limit)
