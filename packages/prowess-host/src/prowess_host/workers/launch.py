"""Starts the processes of a worker without an event loop. Light, so that a host can do it before its other imports.

Even `pathlib` would take milliseconds here and in the modules that this one imports.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from typing import TYPE_CHECKING, Final

from prowess.worker.board import Board
from prowess_host.workers import process_tree

if TYPE_CHECKING:
    from pathlib import Path

    from prowess_host.confinement.confine import Confinement
    from prowess_host.workers.placement import Placement

__all__ = ["Launched"]

_BUFFER: Final = 1024 * 1024
"""The requested buffer of the link in bytes, as far as the system allows it. With a smaller one, a large message would cost two
context switches for each filling."""


class Launched:
    """A started worker, its guard, and the host's ends of their pipes. Raises `OSError`."""

    def __init__(self, python: str, root: Path | str, *, shared: bool, placement: Placement | None = None) -> None:
        """`shared` says whether it gets a board in shared memory. `placement` may wrap the command in limits."""
        self._wanted = (python, str(root), shared)
        self.mark = os.urandom(16).hex()
        with contextlib.ExitStack() as undo:
            self.confinement = confinement = _confinement(placement)
            if confinement is not None:
                undo.callback(confinement.close)
            self.board = _board() if shared else None
            if self.board is not None:
                undo.callback(self.board.close)
            inherited = () if self.board is None else (self.board.fd,)
            self.link, theirs = socket.socketpair()
            for end in (self.link, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            undo.callback(self.link.close)
            self.output, writing = os.pipe()
            undo.callback(os.close, self.output)
            with theirs, open(writing, "wb", buffering=0) as output:  # noqa: PTH123 - it is a descriptor
                self.guard, self._lifeline = process_tree.spawn_guard(self.mark)
                undo.callback(self.end_guard)
                fds = (theirs.fileno(), *inherited)
                command, environ = _command(python, root, *fds), process_tree.marked_environment(self.mark)
                more: tuple[int, ...] = ()
                if confinement is not None:
                    command, environ = confinement.command(command, python, fds), confinement.environment(environ)
                    more = confinement.inherited
                self.process = process_tree.spawn(
                    command,
                    self.mark,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=root,
                    env=environ,
                    pass_fds=(*fds, *more),
                    process_group=self.guard.pid,
                )
            undo.pop_all()
        with contextlib.suppress(BrokenPipeError):  # the guard was killed already: continue without it
            os.write(self._lifeline, b"%d\n" % self.process.pid)

    def is_for(self, python: str, root: Path, *, shared: bool) -> bool:
        """Whether it was started with these options."""
        return self._wanted == (python, str(root), shared)

    def end_guard(self) -> None:
        """End the guard, which has nothing left to watch."""
        self.guard.kill()
        os.close(self._lifeline)
        self.guard.wait()
        process_tree.forget(self.guard)

    def discard(self) -> None:
        """End an unneeded worker before it has begun a call."""
        self.process.kill()
        self.process.wait()
        process_tree.forget(self.process, self.mark)
        self.end_guard()
        self.link.close()
        os.close(self.output)
        if self.board is not None:
            self.board.close()


def _board() -> Board | None:
    """A board, or none where the system has no memory to share, as under a small limit of file sizes: frames replace it."""
    try:
        return Board()
    except OSError:
        return None


def _confinement(placement: Placement | None) -> Confinement | None:
    """The confinement of a worker whose skill has limits."""
    if placement is None or placement.limits is None:
        return None
    from prowess_host.confinement.confine import Confinement  # only for skills with limits

    return Confinement(placement.limits)


def _command(python: str, root: Path | str, link: int, board: int | str = "-") -> list[str]:
    return [python, "-P", "-m", "prowess.worker", str(link), str(board), str(root), "labelled"]
