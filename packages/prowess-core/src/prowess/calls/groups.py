"""Mends `asyncio.TaskGroup` before Python 3.13.

A group that fails while its task waits for it cancels that task, and forgets to take that back. The call of that task would
count as cancelled from then on: no retry, and `ctx.cancelled` is true. Python has mended it in gh-116720. Only workers take the
fix, because programs that open a `Runtime` of their own may rely on their Python as it is.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

__all__ = ["mend"]


def mend() -> None:  # pragma: before 3.13
    """Take the fix of Python 3.13. Call it once."""
    if sys.version_info >= (3, 13):  # pragma: no cover - there is nothing to mend
        return
    group: Any = asyncio.TaskGroup
    leave = group.__aexit__

    async def mended(self: Any, *raised: Any) -> Any:
        before = self._parent_cancel_requested
        try:
            return await leave(self, *raised)
        finally:
            if self._parent_cancel_requested and not before:
                self._parent_task.uncancel()

    group.__aexit__ = mended
