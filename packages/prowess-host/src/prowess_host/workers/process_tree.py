"""Starts the processes of workers, finds all their descendants, and kills them. The only sender of SIGKILL.

A process can leave its process group with `os.setsid()`. So three signs show that a process comes from a worker: the tree
of parents and children, a mark in the inherited environment, and, where the host can adopt orphans, being an orphan that
the host did not start itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

__all__ = [
    "MARK",
    "adopt_orphans",
    "descendants",
    "descriptor",
    "end",
    "end_everything_of",
    "end_remaining",
    "end_tree",
    "family",
    "forget",
    "marked_environment",
    "reap_orphans",
    "spawn",
    "spawn_guard",
]

MARK: Final = "_PROWESS_WORKER"
"""The environment variable with the marks of a worker and of the workers around it: a skill may start a host itself."""
_PROC: Final = "/proc"
_SHELL: Final = "/bin/sh"
_AGAIN: Final = 0.01
"""Seconds between two searches for remaining processes of a worker."""
_PATIENCE: Final = 2.0
"""Seconds after which remaining processes are given up: the kernel may hold them, or they belong to another user."""
_LISTING: Final = 10.0
"""Seconds that `ps` gets, which is slow on a busy machine: without its list, descendants would live on."""
_PR_SET_CHILD_SUBREAPER: Final = 36

_GUARD: Final = r"""
mark=$1
trap '' HUP INT QUIT TERM
read -r worker
read -r _
kill -STOP "$worker"
all=
set -- $worker
while [ $# -gt 0 ]; do
    pid=$1 all="$1 $all"
    shift
    for list in /proc/"$pid"/task/*/children; do
        children=
        read -r children <"$list"
        set -- "$@" $children
    done
done
kill -KILL $all
marked() {
    if command -v grep >/dev/null; then
        grep -ls "$mark" /proc/[0-9]*/environ
        return
    fi
    for file in /proc/[0-9]*/environ; do
        while IFS= read -r line || [ "$line" ]; do
            case $line in *"$mark"*) echo "$file"; break ;; esac
        done <"$file"
    done
}
for round in 1 2 3 4 5; do
    all=
    for file in $(marked); do
        pid=${file#/proc/}
        all="$all ${pid%/*}"
    done
    [ "$all" ] || break
    kill -KILL $all
done
kill -KILL 0
"""
"""The script of the guard, which leads the process group of a worker. Its stdin closes when the host ends, for whatever
reason; a worker that is stuck in native code could not notice that. The guard then kills the process tree of the worker, all
processes with its mark, and the group."""

_lock: Final = threading.RLock()
"""Held while a process is started, so that no thread takes the new child for an orphan."""
_started: Final[set[int]] = set()
"""The children that this process has started and not yet reaped."""
_marks: Final[dict[str, int]] = {}
"""The marks of the workers that have not ended, and when each was started."""
_suspects: Final[dict[int, frozenset[str]]] = {}
"""For each adopted child, the marks of the workers that it may come from: they are older, and had not ended before it was seen."""
_wants_orphans = False
"""Whether adopting begins when the first process is started."""
_adopts = False
"""Whether orphaned descendants become children of this process."""


# Starting


def adopt_orphans() -> None:
    """Let orphaned descendants become children of this process, if the system supports it, so that none is lost.

    Only for a process that starts all its children with `spawn`: any other child counts as left behind by a worker.
    """
    global _wants_orphans  # noqa: PLW0603 - a process has one set of children
    _wants_orphans = True


def _begin_to_adopt() -> None:
    global _adopts, _wants_orphans  # noqa: PLW0603 - as above
    _wants_orphans = False
    with contextlib.suppress(ImportError, OSError, TypeError, AttributeError):  # no ctypes, or no such function
        import ctypes  # takes some milliseconds, so not before the first answer

        _adopts = _has_lists() and not ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def marked_environment(mark: str) -> dict[str, str]:
    """The environment for a worker, with a mark that its descendants inherit."""
    around = os.environ.get(MARK, "")
    return {**os.environ, MARK: f"{around} {mark}".strip()}


def spawn(command: Sequence[str], mark: str = "", **options: Any) -> subprocess.Popen[bytes]:
    """Start a process. Raises `OSError`. The caller reaps it and then calls `forget`."""
    with _lock:
        if _wants_orphans:
            _begin_to_adopt()
        process = subprocess.Popen[bytes](command, **options)
        _started.add(process.pid)
        if mark:
            _marks[mark] = _start_time(process.pid) if _adopts else 0
        return process


def forget(process: subprocess.Popen[bytes], mark: str = "") -> None:
    """Forget a reaped process, whose id may be used again."""
    with _lock:
        _started.discard(process.pid)
        _marks.pop(mark, None)


def spawn_guard(mark: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the leader of a new process group. Returns it with its lifeline, the pipe that it watches.

    The host writes the id of the worker to the lifeline. Without a shell, Python runs the guard.
    """
    reading, lifeline = os.pipe()
    options: dict[str, Any] = {
        "stdin": reading,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "process_group": 0,
    }
    try:
        try:
            leader = spawn([_SHELL, "-c", _GUARD, "prowess-guard", mark], **options)
        except OSError:
            leader = spawn([sys.executable, "-P", "-m", "prowess_host.workers.process_tree", mark], **options)
    except OSError:
        os.close(lifeline)
        raise
    finally:
        os.close(reading)
    return leader, lifeline


# Finding


def _has_lists() -> bool:
    """Whether the kernel lists the children of a process, as Linux does if /proc is mounted."""
    return os.path.exists("/proc/thread-self/children")  # noqa: PTH110 - half the time, and asked often


def _children(pid: int) -> list[int]:
    """The children of a process, from the lists of the kernel."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"{_PROC}/{pid}/task"):  # noqa: PTH208 - four times as fast, for many processes
            # Not below the folder of the process: see `prowess.worker.progress`.
            children = f"{_PROC}/{thread}/task/{thread}/children"
            with contextlib.suppress(OSError), open(children, encoding="ascii") as file:  # noqa: PTH123 - as in `launch`
                text = file.read()
                if os.path.exists(f"{_PROC}/{pid}/task/{thread}"):  # noqa: PTH110 - the number is not another's by now
                    found += map(int, text.split())
    return found


def _parents() -> dict[int, int]:
    """The parent of every process, from `ps`, for systems without lists of children."""
    try:
        output = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, timeout=_LISTING, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = (line.split() for line in output.decode("ascii", "replace").splitlines())
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}


def descendants(pid: int) -> list[int]:
    """The processes below one, parents before their children."""
    if _has_lists():
        children = _children
    else:
        below: defaultdict[int, list[int]] = defaultdict(list)
        for child, parent in _parents().items():
            below[parent].append(child)
        children = below.__getitem__
    found = [pid]
    for each in found:
        found += [child for child in children(each) if child not in found]
    return found[1:]


def family(pid: int, mark: str) -> list[int]:
    """A worker with its descendants, also those that have left its tree and were adopted."""
    return [each for root in (pid, *_orphans(mark)) for each in (root, *descendants(root))]


def _environment(pid: int) -> bytes:
    """The initial environment of a process; empty if it is hidden or the process has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - twice as fast, and done for every process
            return file.read()
    except OSError:
        return b""


def _marked(mark: str) -> list[int]:
    """The processes that were started with a mark in their environment."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - as above
    except OSError:
        return []
    variable = mark.encode()
    return [int(name) for name in names if name.isdigit() and variable in _environment(int(name))]


def _start_time(pid: int) -> int:
    """When a process was started, in ticks of the kernel; 0 if that is hidden or the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as in `_environment`
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _adopted() -> set[int]:
    """The children that this process has adopted."""
    if not _adopts:
        return set()
    with _lock:
        found = set(_children(os.getpid())) - _started
        for pid in found - _suspects.keys():
            started = _start_time(pid)
            _suspects[pid] = frozenset(mark for mark, earlier in _marks.items() if not started or earlier <= started)
        return found


def _orphans(mark: str) -> list[int]:
    """The adopted children that come from the worker with a mark.

    One without a readable environment is ended with the last of the workers that it may come from.
    """
    variable = mark.encode()
    with _lock:
        adopted = _adopted()
        others = _marks.keys() - {mark}
        return [pid for pid in adopted if not _suspects[pid] & others or variable in _environment(pid)]


# Ending


def descriptor(pid: int) -> int | None:
    """A descriptor of a process (pidfd), if the system has them: it never refers to a later process with the same id."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None


def end(pid: int, is_meant: Callable[[int], bool] = lambda _: True) -> None:
    """Kill one process, if `is_meant` confirms its id. The descriptor is opened before, so the id cannot change its owner."""
    fd = descriptor(pid)
    with contextlib.suppress(OSError):
        if is_meant(pid):
            if fd is None:
                os.kill(pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
    if fd is not None:
        os.close(fd)


def end_tree(pid: int) -> None:
    """Kill all descendants of a process, the leaves first, so that the tree stays intact meanwhile."""
    for each in reversed(descendants(pid)):
        end(each)


def end_everything_of(mark: str, seconds: float = _PATIENCE) -> None:
    """Kill all remaining processes of the worker with a mark, and wait until they are gone. Takes some milliseconds."""
    deadline = time.monotonic() + seconds
    variable = mark.encode()
    while found := {*_orphans(mark), *_marked(mark)} - {os.getpid()}:
        for pid in found:
            end_tree(pid)
            end(pid, lambda pid: variable in _environment(pid) or pid in _orphans(mark))
        reap_orphans()
        if time.monotonic() > deadline:
            return
        time.sleep(_AGAIN)


def end_remaining() -> None:
    """Kill everything below this process, which is about to end. Does nothing unless it adopts orphans.

    Workers that had too little time to end may have left orphans that bear no mark, and that no guard would find.
    """
    deadline = time.monotonic() + _PATIENCE
    while found := descendants(os.getpid()) if _adopts else []:
        for pid in reversed(found):
            end(pid)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            return
        time.sleep(_AGAIN)


def reap_orphans() -> None:
    """Reap adopted children that have ended."""
    with _lock:
        for pid in _adopted():
            with contextlib.suppress(OSError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del _suspects[pid]


def _guard() -> None:
    """The guard in Python, for systems without a shell."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    worker = sys.stdin.readline()
    sys.stdin.read()
    if worker:
        end_tree(int(worker))
        end(int(worker))
    end_everything_of(sys.argv[1])
    os.kill(0, signal.SIGKILL)


if __name__ == "__main__":
    _guard()
