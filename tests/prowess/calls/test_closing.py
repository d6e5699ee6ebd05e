"""How long something closes objects."""

from __future__ import annotations

from patience import PATIENCE

from prowess.calls.closing import closing, is_closing


def test_what_closes_objects_has_some_seconds_for_that():
    """A clean-up may call a command, which closes objects in the same task: afterwards the first seconds count again."""
    assert not is_closing("task")
    with closing(PATIENCE, "task", "thread"):
        assert is_closing("task")
        with closing(0, "task"):
            assert (False, True) == (is_closing("task"), is_closing("thread"))
        assert is_closing("task")
    assert (False, False) == (is_closing("task"), is_closing("thread"))
