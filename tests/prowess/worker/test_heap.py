"""The allocator is told what to do where it understands that, and by us only where nobody else does."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
from anyio import fail_after, sleep
from patience import PATIENCE

from prowess.worker import heap as memory


def run(code: str, *args: str, **env: str) -> str:
    """What a fresh interpreter says."""
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True, env={**os.environ, **env}
    ).stdout.strip()


def test_another_library_is_let_be():
    """Where there is no such function nothing is called."""
    assert memory._function("no_such_function", "c_int") is None


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_whoever_has_tuned_the_allocator_knows_better(name: str):
    """Then it is not even looked for."""
    code = "import prowess.worker.heap, sys; prowess.worker.heap.share_one_heap(); print('ctypes' in sys.modules)"
    assert "False" == run(code, **{name: "glibc.malloc.arena_max=4" if name == "GLIBC_TUNABLES" else "4"})
    assert "True" == run(code)


async def test_what_comes_while_a_trim_is_due_has_one_after_it(monkeypatch: pytest.MonkeyPatch):
    """The last message is over before the last trim."""
    monkeypatch.setattr(memory, "_due", None)  # the timer of a loop that is gone
    with fail_after(PATIENCE):
        memory.give_back_soon()
        first = memory._due
        memory.give_back_soon()
        assert memory._due is first
        while memory._due is first:  # noqa: ASYNC110 - a timer tells nobody
            await sleep(0.01)
        assert memory._due is not None
        while memory._due is not None:  # noqa: ASYNC110 - as above
            await sleep(0.01)
    assert not memory._again


THREADS = """
import ctypes, sys, threading
import prowess.worker.heap
if sys.argv[1:] != ["not"]:
    prowess.worker.heap.share_one_heap()
barrier = threading.Barrier(4)
threads = [threading.Thread(target=lambda: (bytes(50_000), barrier.wait())) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is this allocator that has several heaps")
def test_all_threads_share_one_heap():
    """The others would not be trimmed to their end."""
    assert 1 < run(THREADS, "not").count("<heap ")
    assert 1 == run(THREADS).count("<heap ")
