"""Page cursors."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess_host.protocol.cursors import read_cursor, write_cursor
from prowess_host.protocol.rpc import INVALID_PARAMS, RpcError


@given(st.integers(1, 10**8), st.binary(min_size=1, max_size=8))
def test_a_cursor_is_read_back_without_any_memory(position: int, digest: bytes) -> None:
    """All it needs is in it."""
    assert position == read_cursor(write_cursor(position, digest.hex()), digest.hex(), position + 1)


@pytest.mark.parametrize("cursor", [None, ""])
def test_no_cursor_is_the_start(cursor: str | None) -> None:
    """An empty one was never given out, so it means the same as none."""
    assert 0 == read_cursor(cursor, "abc", 0)


@pytest.mark.parametrize(
    "cursor",
    [
        pytest.param("bogus", id="not ours"),
        pytest.param("é", id="not hexadecimal"),
        pytest.param("ff", id="not ASCII inside"),
        pytest.param(b"-1-abc".hex(), id="negative"),
        pytest.param(b"0-abc".hex(), id="the start"),
        pytest.param(b"1-abc-".hex(), id="something after it"),
        pytest.param(b"9999999999-abc".hex(), id="far too large"),
        pytest.param(write_cursor(3, "abc"), id="the end of the list"),
        pytest.param(write_cursor(2, "abd"), id="of a list that has changed"),
    ],
)
def test_a_cursor_that_was_not_given_out_for_this_list_is_refused(cursor: str) -> None:
    """Also one whose list has changed, since it would skip or repeat tools."""
    with pytest.raises(RpcError, match="list again without a cursor") as caught:
        read_cursor(cursor, "abc", 3)
    assert INVALID_PARAMS == caught.value.code


@given(st.text())
def test_no_text_breaks_the_reader(cursor: str) -> None:
    """A position in the list, or a refusal."""
    position = 0
    with suppress(RpcError):
        position = read_cursor(cursor, "abc", 3)
    assert 0 <= position < 3
