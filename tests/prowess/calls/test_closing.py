"""How long something closes objects."""

from __future__ import annotations

from patience import PATIENCE

from prowess.calls.closing import allow_closing, closing, end_closing, is_closing


def test_what_closes_objects_has_some_seconds_for_that():
    """A clean-up may call a command, which closes objects in the same task: afterwards the first seconds count again."""
    assert not is_closing("task")
    with closing("task", PATIENCE):
        assert is_closing("task")
        with closing("task", 0):
            assert not is_closing("task")
        assert is_closing("task")
    assert not is_closing("task")
    allow_closing("thread", PATIENCE)
    assert is_closing("thread")
    for _ in range(2):
        end_closing("thread")
        assert not is_closing("thread")
