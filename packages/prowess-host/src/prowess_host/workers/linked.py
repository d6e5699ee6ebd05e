"""The host's end of the link to a worker of any kind, and its knowledge of which calls the worker has begun."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from prowess.worker.board import Board, Importing
from prowess.worker.link import Frame, Link
from prowess.worker.messages import DueHead, ImportingHead, Kind, WithdrawHead
from prowess.worker.progress import Thread, threads_of

__all__ = ["FrameBoard", "LinkedWorker"]

_LAST_FRAMES: Final = 0.2
"""Seconds for reading the link of a worker that has ended. A child that it forked may hold the link open for ever."""


class FrameBoard:
    """Replaces the board in shared memory by the frames of the worker.

    While the worker lives, a call without a BEGUN frame may just have begun. After the worker has ended and all its frames
    are read, it is certain.
    """

    def __init__(self, send: Callable[[Kind, int, bytes], None]) -> None:
        self._send = send
        self._begun: set[int] = set()
        self.noted: tuple[Importing, ...] = ()
        """The running imports, or those that ran when the worker ended."""
        self.beats = 0
        """A number that changes with every beat; 0 before the first one."""

    def read(self, frame: Frame) -> bool:
        """Read a frame. Returns whether it replaces the board."""
        if frame.kind == Kind.BEGUN:
            if len(self._begun) < Board.SLOTS:  # no worker has more calls
                self._begun.add(frame.number)
        elif frame.kind == Kind.IMPORTING:
            with contextlib.suppress(AttributeError, KeyError, RecursionError, TypeError, ValueError):
                head: ImportingHead = json.loads(frame.head)
                self.noted = tuple(Importing(int(at), str(skill), str(file)) for at, skill, file in head["imports"])
        elif frame.kind == Kind.BEAT:
            self.beats += 1
        else:
            return False
        return True

    def retire(self) -> None:
        """Tell the worker to begin no more calls."""
        self._send(Kind.RETIRE, 0, b"")

    def withdraw(self, numbers: Iterable[int]) -> None:
        """Tell the worker not to begin these calls."""
        head: WithdrawHead = {"numbers": list(numbers)}
        self._send(Kind.WITHDRAW, 0, json.dumps(head).encode())

    def started(self, number: int) -> bool:
        """Whether BEGUN has arrived for a call."""
        return number in self._begun

    def forget(self, number: int) -> None:
        """Forget a call that is over."""
        self._begun.discard(number)

    def close(self) -> None:
        """Does nothing: there is no memory to release."""


class LinkedWorker(ABC):
    """A worker and its link. Frames can be sent at once; the worker reads them after its start.

    `begin` is the head of the first frame. `on_exit` is called once, after the last frame.
    """

    has_own_process = True
    """Whether it has its own interpreter."""
    is_preparing = False
    """Whether its code and environment are being copied to another machine, which does not count as its start."""
    refusal = ""
    """Why it could not be started; the answer to its calls."""
    relays = False
    """Whether it only relays frames, both ways, for another process that begins the calls."""
    verdict = ""
    """Why it ended, if its exit code does not say it."""
    last_line = b""
    """The last line that it printed, if its output is read."""
    only = ""
    """The only skill that it may import, if it has limits. Its statements about other skills are ignored."""
    printed = 0
    """The number of printed bytes, if its output is read."""

    def __init__(
        self,
        begin: bytes,
        board: Board | FrameBoard | None,
        *,
        on_frame: Callable[[Frame], None],
        on_exit: Callable[[], None],
    ) -> None:
        """Without shared memory there is no `board`."""
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.exit_code: int | None = None
        if board is None:
            board = FrameBoard(self.send)
        self.on_leaving: Callable[[], None] = _stays
        """Called when its machine is about to stop, so that it should get no more calls."""
        self.on_preparing: Callable[[str], None] = _ignore_progress
        """Called with the progress of the preparation; an empty text means that it is done."""
        if isinstance(board, FrameBoard) and not self.relays:
            self.link = Link(_beside(board, on_frame), self._lost.set)
        else:
            self.link = Link(on_frame, self._lost.set)
        self._board = board
        self.shows_begun = isinstance(board, Board)
        """Whether shared memory shows at any time which calls it has not begun."""
        if not self.relays:
            self.send(Kind.BEGIN, 0, begin)

    @property
    @abstractmethod
    def pid(self) -> int:
        """The id of its process."""

    def threads(self) -> Mapping[int, Thread] | None:
        """The states of its threads; `None` if this system does not show them."""
        return threads_of(self.pid)

    @abstractmethod
    def kill(self) -> None:
        """End it at once."""

    def limit(self, number: int, seconds: float) -> None:
        """Forbid it to begin the next call after these seconds. Without shared memory, CANCEL may arrive much later than CALL."""
        if seconds < math.inf:
            head: DueHead = {"at": time.monotonic() + seconds}
            self.send(Kind.DUE, number, json.dumps(head).encode())

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"", *, more: bool = False) -> None:
        """Send a frame. Has no effect if the worker is gone."""
        self.link.send(kind, number, head, body, more=more)

    # Begun and forbidden calls. Do not use these methods after `on_exit`.

    def has_begun(self, number: int) -> bool:
        """Whether a call has begun, as far as known. After the end of the worker, this is certain."""
        return self._board.started(number)

    @property
    def slowness(self) -> float:
        """Its run times in relation to other workers: 2.0 if calls take twice as long."""
        return 1.0

    def may_have_begun(self, number: int) -> bool:
        """Whether a call may have begun, after the end of the worker."""
        return self.has_begun(number)

    def retire(self, numbers: Collection[int]) -> list[int]:
        """Forbid it to begin any call. Returns those of these calls that it will certainly not begin.

        For each other call that it has not begun, it sends UNBEGUN, unless it ends before.
        """
        if not self._over:
            self._board.retire()
        return self._unbegun(numbers)

    def withdraw(self, numbers: Collection[int]) -> list[int]:
        """Forbid it to begin these calls. Otherwise like `retire`."""
        if not self._over and numbers:
            self._board.withdraw(numbers)
        return self._unbegun(numbers)

    def _unbegun(self, numbers: Collection[int]) -> list[int]:
        is_certain = self.shows_begun or self._over
        return [number for number in numbers if not self._board.started(number)] if is_certain else []

    @property
    def importing(self) -> tuple[Importing, ...]:
        """What it is importing, or was when it ended."""
        noted = self._board.noted
        return (
            tuple(each._replace(skill=self.only, file=_printable(each.file)) for each in noted[:1])
            if self.only
            else noted
        )

    @property
    def beats(self) -> int:
        """A number that changes while its threads get a processor."""
        return 0 if self._over else self._board.beats

    def forget(self, number: int) -> None:
        """Forget a call that is over, so that its number can be used again."""
        if not self._over:
            self._board.forget(number)

    # Lifetime

    async def _connect(self, sock: socket.socket) -> None:
        self._sock = sock
        await self._loop.create_connection(lambda: self.link, sock=sock)

    async def wait(self) -> None:
        """Wait until it has ended and its end is reported."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read_last_frames(self) -> None:
        """Read the frames that it sent before its end, so that its begun calls are known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_FRAMES):
                await self._lost.wait()
        if not self._lost.is_set():
            self.link.drain(self._sock)
        self._over = True

    def _report_end(self) -> None:
        self.link.close()
        try:
            self._on_exit()
        finally:
            self._board.close()


def _stays() -> None:
    """The default: workers on this machine end with the host."""


def _ignore_progress(_line: str) -> None:
    """The default: workers on this machine need no preparation."""


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _beside(board: FrameBoard, on_frame: Callable[[Frame], None]) -> Callable[[Frame], None]:
    def receive(frame: Frame) -> None:
        if not board.read(frame):
            on_frame(frame)

    return receive
