"""Host and worker agree on which calls have begun."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prowess.worker.board import Board


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    yield made
    made.close()


def test_a_withdrawn_call_does_not_begin(board: Board):
    board.withdraw([1, 2])
    assert not board.start(1)
    assert board.start(3)


def test_a_begun_call_that_is_withdrawn_does_not_begin_again_after_it_has_waited(board: Board):
    assert board.start(1)
    board.withdraw([1])
    assert board.started(1)
    board.pause(1)
    assert not board.start(1)
    board.forget(1)
    assert board.start(1)
