"""Memory shared by host and worker: which calls have begun or are withdrawn, a beat, and what is imported.

Light, as a host makes a board before it imports anything else.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

__all__ = ["Board", "Importing"]


class Importing(NamedTuple):
    """A running import of one file of a skill."""

    since_ns: int
    skill: str
    file: str


class Board:
    """Memory that host and worker share, so that neither has to wait for the other to agree which calls have begun.

    A worker marks a call before it starts the call. A host can withdraw one call, or retire the worker, which withdraws
    all of them. Each side writes its own mark before it reads the other's. So calls without a mark of the worker have not
    started, and only these can be given to another worker without running twice.

    After the marks, there is a counter that a thread of the worker advances, and a note of the running imports, which
    survives a worker that an import ends.
    """

    SLOTS: Final = 65536

    def __init__(self, fd: int | None = None) -> None:
        self._fd = fd if fd is not None else _shared_file(_SIZE_OF_BOARD)
        self._memory = mmap.mmap(self._fd, _SIZE_OF_BOARD)

    @property
    def fd(self) -> int:
        """The descriptor that a worker inherits."""
        return self._fd

    def start(self, number: int) -> bool:
        """Worker: mark a call as begun. Returns whether it may start."""
        slot, memory = 1 + number % _NUMBERS, self._memory
        memory[slot] = _STARTED
        return not memory[0] and not memory[_WITHDRAWN + slot]

    def pause(self, number: int) -> None:
        """Worker: remove the mark of a call that waits for its turn. `start` is called again before it runs."""
        self._memory[self.slot(number)] = 0

    def retire(self) -> None:
        """Host: forbid all calls that have not begun. Afterwards, `started` is final for every call."""
        self._memory[0] = 1
        time.sleep(_VISIBLE)

    def withdraw(self, numbers: Collection[int]) -> None:
        """Host: forbid these calls if they have not begun, or wait for their turn later. Afterwards, `started` is final for them."""
        for number in numbers:
            self._memory[_WITHDRAWN + self.slot(number)] = 1
        if not all(map(self.started, numbers)):
            time.sleep(_VISIBLE)

    def started(self, number: int) -> bool:
        """Whether the worker may have begun a call."""
        return self._memory[self.slot(number)] == _STARTED

    def forget(self, number: int) -> None:
        """Free the slot of a call that is over."""
        slot, memory = 1 + number % _NUMBERS, self._memory
        memory[slot] = memory[_WITHDRAWN + slot] = 0

    def beat(self) -> None:
        """Worker: advance the counter in a thread, to show that the process runs and its interpreter is free."""
        self._memory[_BEATS] = self._memory[_BEATS] % 255 + 1

    @property
    def beats(self) -> int:
        """A number that changes with every beat; 0 before the first one."""
        return self._memory[_BEATS]

    def note(self, imports: Iterable[Importing]) -> None:
        """Worker: note the running imports, cut to the available space."""
        kept = list(imports)
        while len(text := json.dumps(kept)) >= _NOTE:
            kept.pop()
        # The host reads this for every call, so a single byte shows that there is no import.
        self._memory[_NOTES:] = (text if kept else "").encode().ljust(_NOTE, b"\0")

    @property
    def noted(self) -> tuple[Importing, ...]:
        """The running imports, or those that ran when the worker ended."""
        if self._memory[_NOTES] == 0:
            return ()
        try:
            noted = json.loads(self._memory[_NOTES:].partition(b"\0")[0])
            return tuple(Importing(int(since), str(skill), str(file)) for since, skill, file in noted)
        except (
            RecursionError,
            TypeError,
            ValueError,
        ):  # the worker is writing, has ended while writing, or writes invalid data
            return ()

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        os.close(self._fd)

    @classmethod
    def slot(cls, number: int) -> int:
        """The slot of a call. Two calls in flight must not share a slot."""
        return 1 + number % _NUMBERS


_NUMBERS: Final = Board.SLOTS - 1
"""Numbers in a row that have different slots. The first byte is the mark of the host."""
_STARTED: Final = 1
_WITHDRAWN: Final = Board.SLOTS
_BEATS: Final = 2 * Board.SLOTS
_NOTES: Final = _BEATS + 1
_NOTE: Final = 65536
"""Bytes for the note of running imports: names of skills, and paths of files."""
_SIZE_OF_BOARD: Final = _NOTES + _NOTE
_VISIBLE: Final = 50e-6
"""Seconds after which every processor sees a write of another one, with a large margin."""


def _shared_file(size: int) -> int:
    """A file in memory if the system has them, so that a full disk does not stop a worker."""
    if hasattr(os, "memfd_create"):
        import fcntl  # it is not on every system

        fd = os.memfd_create("prowess", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(fd, size)
        except OSError:  # files may not be that large here
            os.close(fd)
            raise
        # If a worker truncated it, the next access would crash the host.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    else:  # pragma: no cover - on systems without memfd
        import tempfile  # 3 ms at the start of every host

        fd, name = tempfile.mkstemp(prefix="prowess-")
        os.unlink(name)  # noqa: PTH108 - only the descriptor is needed
        os.truncate(fd, size)
    return fd
