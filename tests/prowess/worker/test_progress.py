"""How much of a time a process could use."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from prowess.worker.progress import Progress, Thread, threads_of


class Process:
    """What a system might say about one."""

    def __init__(self, *threads: Thread) -> None:
        self.now: Mapping[int, Thread] | None = dict(enumerate(threads))
        self.beats = 0
        self.progress = Progress(lambda: self.now, lambda: self.beats)
        self.progress.start()

    def usable(self, seconds: float, *threads: Thread) -> float:
        self.now = dict(enumerate(threads))
        return self.progress.usable(seconds)


IDLE = Thread(0.0, 0.0, runnable=False)
STOPPED = Thread(0.0, 0.0, runnable=False, stopped=True)


@pytest.mark.parametrize(
    "before, after, usable",
    [
        (IDLE, IDLE, 1.0),  # it sleeps: that is its own business
        (Thread(0, 0, runnable=True), Thread(1, 0, runnable=True), 1.0),  # it had a processor all the time
        (Thread(0, 0, runnable=True), Thread(0.25, 0, runnable=True), 0.25),  # it waits, which is not counted yet
        (IDLE, Thread(0, 0.75, runnable=False), 0.25),  # it has waited
        (IDLE, Thread(0, 5, runnable=False), 0.0),  # it had waited for long, and that is counted only now
        (IDLE, Thread(0, 0, runnable=True), 1.0),  # nobody knows since when it waits
        (IDLE, STOPPED, 0.1),  # it cannot do anything, and may stay so
        (STOPPED, STOPPED, 0.1),
        (STOPPED, IDLE, 0.1),
        (IDLE, Thread(0.5, 0, runnable=False, stopped=True), 0.55),  # it ran before
    ],
)
def test_what_a_thread_waited_for_a_processor_does_not_count(before: Thread, after: Thread, usable: float):
    assert usable == pytest.approx(Process(before).usable(1.0, after))


def test_thread_that_waited_longest_counts():
    """The others may wait for it. Threads that are new have waited since they began."""
    process = Process(IDLE)
    assert 0.5 == process.usable(1.0, IDLE, Thread(0.1, 0.5, runnable=False), Thread(0, 0.25, runnable=False))
    assert 1.0 == process.usable(1.0, IDLE, Thread(0.1, 0.5, runnable=False), Thread(1, 0.25, runnable=False))


def test_system_that_says_nothing_has_the_beats_decide():
    """A process that has never beaten is judged by the clock, one that has stopped is judged ten times as slowly."""
    process = Process()
    process.now = None
    assert 1.0 == process.progress.usable(1.0)
    process.beats = 1
    assert 1.0 == process.progress.usable(1.0)
    assert 0.1 == process.progress.usable(1.0)
    assert not process.progress.is_exact
    process.usable(1.0, IDLE)
    assert process.progress.is_exact


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux tells")
def test_linux_tells_of_every_thread():
    """And nothing of a process that is not there."""
    told = threads_of(os.getpid())
    assert told is not None
    assert threading.get_native_id() in told
    assert told[threading.get_native_id()].runnable
    assert told[threading.get_native_id()].ran > 0
    assert threads_of(2**22 + 1) is None


def test_figures_that_cannot_be_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A thread may end while it is read, and a kernel may keep no such figures.

    Each thread has its own folder, where it is read: what was read below that of the process makes its end expensive.
    """
    whole = "5000000000 1000000000 3"
    for number, figures, state in (("1", whole, "S"), ("2", "", "S"), ("3", "", "S"), ("4", whole, "T")):
        (tmp_path / "9/task" / number).mkdir(parents=True)
        folder = tmp_path / number / "task" / number
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(figures)
        (folder / "stat").write_text(f"{number} (a) b) {state} 1 2")
    (tmp_path / "3/task/3/schedstat").unlink()
    monkeypatch.setattr("prowess.worker.progress._FOLDER", f"{tmp_path}/{{}}/task")
    found = {1: Thread(5.0, 1.0, runnable=False), 4: Thread(5.0, 1.0, runnable=False, stopped=True)}
    assert found == threads_of(9)
