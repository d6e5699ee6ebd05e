"""One worker process: started with everything it needs, watched until it exits, and killed with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prowess.worker.link import Frame
from prowess_host.confinement import FAILED
from prowess_host.stderr import complaints
from prowess_host.threads import in_own_thread
from prowess_host.workers import process_tree
from prowess_host.workers.launch import Launched
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.output import LabelledLines
from prowess_host.workers.placement import OWN, Placement

if TYPE_CHECKING:
    from prowess_host.confinement.confine import Confinement

__all__ = ["STARTING", "Spawn", "WorkerProcess", "describe_exit", "spawner"]

STARTING: Final = 60.0
"""Seconds that a worker gets to start, and again to describe its skills. Skills with large imports take ten."""
_LOOK: Final = 1.0
"""Seconds between two checks of the temporary files of a limited worker."""
_CHUNK: Final = 64 * 1024
"""Bytes of output that are read at once: the capacity of a pipe."""
_LAST_OUTPUT: Final = 64
"""Chunks of output that are read after the end of a worker, because a child that survives may print for ever."""


class WorkerProcess(LinkedWorker):
    """A worker in its own process. Raises `OSError` if it cannot be started.

    `on_print` is called with the number of a call and a line that it printed.
    """

    def __init__(
        self,
        python: str,
        root: Path,
        begin: bytes,
        *,
        shared: bool = True,
        placement: Placement = OWN,
        on_frame: Callable[[Frame], None],
        on_exit: Callable[[], None],
        on_print: Callable[[int, bytes], None] | None = None,
        launched: Launched | None = None,
    ) -> None:
        """`shared` says whether it gets a board in shared memory. `placement` may wrap the command in limits.

        `launched` is a worker that was started before, with the same arguments.
        """
        self._launched = launched = launched or Launched(python, root, shared=shared, placement=placement)
        super().__init__(begin, launched.board, on_frame=on_frame, on_exit=on_exit)
        self._process, self._output = launched.process, launched.output
        self.only = placement.limits.skill if placement.limits is not None else ""
        self._lines = LabelledLines(f"worker {self.pid}", on_print, limited=self.only)
        self._complaints = complaints()
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._pass_on_output)
        self._tasks = [self._loop.create_task(self._connect(launched.link)), self._loop.create_task(self._wait())]
        if launched.confinement is not None:
            self._watching = self._loop.create_task(self._watch_files(launched.confinement))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the worker and all its descendants."""
        if self.exit_code is None:  # after that, another process may have its id
            process_tree.end_tree(self.pid)  # before it loses its root
            process_tree.end(self.pid)  # it may have left the group
            self._kill_group()

    async def _watch_files(self, confinement: Confinement) -> None:
        """Kill a limited worker that uses too much disk. The kernel limits only single files."""
        while not self._over:
            await asyncio.sleep(_LOOK)
            processes = (
                process_tree.family(self.pid, self._launched.mark) if confinement.limits.processes else [self.pid]
            )
            why = await in_own_thread(confinement.overfull, processes)
            if why and not self._over:
                self.verdict = why
                self.kill()

    async def _wait(self) -> None:
        """Wait for the exit of the process: the end of the link alone proves nothing, because a child may hold it open."""
        await _exited(self._process.pid)
        self._kill_group()
        self.exit_code = self._process.wait()
        await self._read_last_frames()
        await in_own_thread(process_tree.end_everything_of, self._launched.mark)
        process_tree.forget(self._process, self._launched.mark)
        if self._launched.confinement is not None:
            self._watching.cancel()
            self.verdict = self.verdict or self._launched.confinement.why_killed()
            await in_own_thread(self._launched.confinement.close)
        self._launched.end_guard()
        self._end_output()
        self._report_end()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._launched.guard.pid, signal.SIGKILL)

    # Output

    def _pass_on_output(self) -> bool:
        """Pass on printed output. Returns whether there was any."""
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.printed += len(data)
            self._print(self._lines.feed(data))
        else:  # it has closed both of its descriptors
            self._loop.remove_reader(self._output)
        return bool(data)

    def _end_output(self) -> None:
        """Pass on the last output, including an unfinished line."""
        for _ in range(_LAST_OUTPUT):
            if not self._pass_on_output():
                break
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._print(self._lines.close())

    def _print(self, lines: list[bytes]) -> None:
        self.last_line = lines[-1] if lines else self.last_line
        self._complaints.send(b"".join(lines))


Spawn: TypeAlias = "Callable[..., LinkedWorker]"
"""Starts a worker. Takes what `WorkerProcess` takes."""


def spawner(ahead: Launched | None) -> Spawn:
    """A function that starts workers. `ahead` is used for the first one that needs the same arguments."""

    def spawn(
        python: str,
        root: Path,
        begin: bytes,
        *,
        shared: bool = True,
        placement: Placement = OWN,
        **callbacks: Any,
    ) -> WorkerProcess:
        nonlocal ahead
        launched = None
        if ahead is not None and placement == OWN:
            launched, ahead = ahead, None
            if not launched.is_for(python, root, shared=shared):
                launched.discard()
                launched = None
        return WorkerProcess(python, root, begin, shared=shared, placement=placement, launched=launched, **callbacks)

    return spawn


def describe_exit(code: int | None) -> str:
    """The end of a process in words."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"killed by {name}{_OF_LIMITS.get(name, '')}"
    return f"exit code {code}{_OF_LIMITS.get(code, '')}"


_OF_LIMITS: Final[Mapping[object, str]] = {
    "SIGXCPU": ", because it had used the processor time of its limits: allow more with `cpu`",
    "SIGSYS": ", because it made a system call of another kind of processor, which its limits refuse",
    FAILED: ", because the limits of the skill could not be set: see the log",
}
"""The likely reasons for exits of limited workers."""


def _wait_by_kqueue(pid: int) -> None:
    """Wait for a child to end on macOS before Python 3.13, which has no `os.waitid` there. Untested."""
    system: Any = select
    with contextlib.closing(system.kqueue()) as queue:
        # For a child that has ended already, the system reports an error at once, as an event.
        flags = system.KQ_EV_ADD | system.KQ_EV_ONESHOT
        queue.control([system.kevent(pid, system.KQ_FILTER_PROC, flags, system.KQ_NOTE_EXIT)], 1)


async def _exited(pid: int) -> None:
    """Wait for a child to end, without reaping it."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    fd = process_tree.descriptor(pid)
    if fd is None:
        threading.Thread(target=_wait_for, args=(pid, loop, done), name="prowess-exit", daemon=True).start()
        await done.wait()
        return
    loop.add_reader(fd, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _wait_for(pid: int, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    else:
        _wait_by_kqueue(pid)
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(done.set)
