"""Pauses between the attempts to import a skill that ends its worker."""

from __future__ import annotations

from prowess_host.workers.backoff import BackOff


def test_pauses_grow_up_to_a_limit():
    """The first failure costs none."""
    clock = [0.0]
    backoff = BackOff(lambda: clock[0])
    pauses: list[float] = []
    for _ in range(20):
        backoff.note("s", "it ended")
        start = clock[0]
        while backoff.refusal("s"):
            clock[0] += 0.5
        pauses.append(clock[0] - start)
    assert [0, 1, 2, 4, 8, 16, 32, 60, 60] == pauses[:9]
    assert {60} == set(pauses[7:])


def test_a_refusal_says_why_and_until_when():
    backoff = BackOff(lambda: 0.0)
    assert "" == backoff.refusal("s")
    backoff.note("s", "the import of s ended the worker")
    assert "" == backoff.refusal("s")
    backoff.note("s", "the import of s ended the worker")
    told = backoff.refusal("s")
    assert told.startswith("the import of s ended the worker, 2 times in a row; it is tried again in 1.0 s")
    assert "" == backoff.refusal("other")


def test_what_was_imported_is_forgiven():
    """By name, or altogether when the code has changed."""
    backoff = BackOff(lambda: 0.0)
    for skill in ("a", "b"):
        backoff.note(skill, "")
        backoff.note(skill, "")
    backoff.clear(["a", "c"])
    assert "" == backoff.refusal("a")
    assert backoff.refusal("b")
    backoff.clear_all()
    assert "" == backoff.refusal("b")
