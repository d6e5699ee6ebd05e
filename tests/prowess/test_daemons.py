"""Threads of our own, where the system allows them."""

from __future__ import annotations

import queue

from patience import PATIENCE
from refused import no_more_threads

from prowess.daemons import can_start_threads, start_thread


def test_a_thread_runs_a_function_and_keeps_nothing_alive():
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    thread = start_thread("someone", said.put, "here")
    assert thread is not None
    assert ("here", "someone", True) == (said.get(timeout=PATIENCE), thread.name, thread.daemon)
    assert can_start_threads()


def test_a_refused_thread_is_no_thread():
    with no_more_threads():
        assert start_thread("nobody", bool) is None
        assert not can_start_threads()
