"""Locks for imports of skills by several threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

__all__ = ["ImportLocks"]


class ImportLocks:
    """A lock for each skill, and exclusive imports."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._importing: dict[str, int] = {}
        """The importing thread, by skill."""
        self._overlapped: set[str] = set()
        """Skills whose import overlapped with another one."""
        self._alone: int | None = None
        """The thread that imports exclusively. It may import further skills."""

    @contextlib.contextmanager
    def one(self, skill: str) -> Generator[bool]:
        """Lock the import of a skill. Yields false if this thread already imports it, because the skill needs itself."""
        thread = threading.get_ident()
        if self._importing.get(skill) == thread:
            yield False
            return
        with self._changed:
            self._changed.wait_for(lambda: skill not in self._importing and self._alone in (None, thread))
            self._importing[skill] = thread
            if len(self._importing) > 1:
                self._overlapped.update(self._importing)
        try:
            yield True
        finally:
            with self._changed:
                del self._importing[skill]
                self._overlapped.discard(skill)
                self._changed.notify_all()

    def overlapped(self, skill: str) -> bool:
        """Whether another skill was imported at the same time."""
        return skill in self._overlapped

    @contextlib.contextmanager
    def alone(self, skill: str) -> Generator[bool]:
        """The same, while no other thread imports."""
        thread = threading.get_ident()
        if self._importing.get(skill) == thread:
            yield False
            return
        with self._changed:
            self._changed.wait_for(lambda: {*self._importing.values(), self._alone} <= {None, thread})
            before, self._alone = self._alone, thread
            self._importing[skill] = thread
        try:
            yield True
        finally:
            with self._changed:
                del self._importing[skill]
                self._alone = before
                self._changed.notify_all()
