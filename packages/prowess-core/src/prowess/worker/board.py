"""Memory shared by host and worker: which calls have begun or are withdrawn, a beat, and what is imported.

Light, as a host makes a board before it imports anything else.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["Board", "Importing"]


class Importing(NamedTuple):
    """A running import of one file of a skill."""

    since_ns: int
    skill: str
    file: str


class Board:
    """Memory that host and worker share, so that neither has to wait for the other to agree on one thing.

    A worker marks a call before it starts the call. A host can withdraw one call, or retire the worker, which withdraws
    all of them. Each side writes its own mark before it reads the other's. So the calls without a mark of the worker
    were never started: those, and only those, can be given to another worker without being run twice.

    Behind the marks there is a counter that a thread of the worker advances, and a note of what is being imported. The
    note outlives a worker that an import ends.
    """

    SLOTS: Final = 65536

    def __init__(self, fd: int | None = None) -> None:
        self._fd = fd if fd is not None else _shared_file(_SIZE_OF_BOARD)
        self._memory = mmap.mmap(self._fd, _SIZE_OF_BOARD)

    @property
    def fd(self) -> int:
        """What a worker inherits."""
        return self._fd

    def start(self, number: int) -> bool:
        """The worker asks: may this call start?"""
        slot = self.slot(number)
        self._memory[slot] = _STARTED
        return not self._memory[0] and not self._memory[_WITHDRAWN + slot]

    def pause(self, number: int) -> None:
        """The worker says: this call waits for its turn, and has to ask again before anything of it runs."""
        self._memory[self.slot(number)] = 0

    def retire(self) -> None:
        """The host says: start nothing more. After this `started` gives the final word on every call."""
        self._memory[0] = 1
        time.sleep(_VISIBLE)

    def withdraw(self, numbers: Iterable[int]) -> None:
        """The host says: do not start these calls. After this `started` gives the final word on them."""
        for number in numbers:
            self._memory[_WITHDRAWN + self.slot(number)] = 1
        time.sleep(_VISIBLE)

    def started(self, number: int) -> bool:
        """Whether the worker may have begun a call."""
        return self._memory[self.slot(number)] == _STARTED

    def forget(self, number: int) -> None:
        """Free the slot of a call that is over."""
        slot = self.slot(number)
        self._memory[slot] = self._memory[_WITHDRAWN + slot] = 0

    def beat(self) -> None:
        """A thread of the worker says: this process runs, and nothing holds its interpreter."""
        self._memory[_BEATS] = self._memory[_BEATS] % 255 + 1

    @property
    def beats(self) -> int:
        """A number that changes with every beat; 0 before the first one."""
        return self._memory[_BEATS]

    def note(self, imports: Iterable[Importing]) -> None:
        """The worker says: these imports are going on. They are cut to what fits."""
        kept = list(imports)
        while len(text := json.dumps(kept)) >= _NOTE:
            kept.pop()
        # The host looks here with every call: where nothing is imported, one byte has to say so.
        self._memory[_NOTES:] = (text if kept else "").encode().ljust(_NOTE, b"\0")

    @property
    def noted(self) -> tuple[Importing, ...]:
        """The imports that are going on, or were when the worker ended."""
        if self._memory[_NOTES] == 0:
            return ()
        try:
            noted = json.loads(self._memory[_NOTES:].partition(b"\0")[0])
            return tuple(Importing(int(since), str(skill), str(file)) for since, skill, file in noted)
        except (
            RecursionError,
            TypeError,
            ValueError,
        ):  # the worker is writing just now, or was when it ended; or it writes nonsense
            return ()

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
        os.close(self._fd)

    @classmethod
    def slot(cls, number: int) -> int:
        """Where a call is marked. Two calls in flight must not share a slot."""
        return 1 + number % (cls.SLOTS - 1)


_STARTED: Final = 1
_WITHDRAWN: Final = Board.SLOTS
_BEATS: Final = 2 * Board.SLOTS
_NOTES: Final = _BEATS + 1
_NOTE: Final = 65536
"""Bytes for the imports that go on at one time: names of skills, and paths of files."""
_SIZE_OF_BOARD: Final = _NOTES + _NOTE
_VISIBLE: Final = 50e-6
"""Seconds after which a processor has certainly seen what another one wrote, and they are a thousand times too many."""


def _shared_file(size: int) -> int:
    """A file in memory, where there is such a thing: a full disk must not stop a worker."""
    if hasattr(os, "memfd_create"):
        import fcntl  # it is not on every system

        fd = os.memfd_create("prowess", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, size)
        # A worker that made it shorter would end the host with the next look at it.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    else:  # pragma: no cover - where there is no such thing
        import tempfile  # 3 ms at the start of every host

        fd, name = tempfile.mkstemp(prefix="prowess-")
        os.unlink(name)  # noqa: PTH108 - the name was never wanted
        os.truncate(fd, size)
    return fd
