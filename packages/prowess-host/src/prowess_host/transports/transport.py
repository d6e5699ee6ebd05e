"""What a connection needs of a transport."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Transport"]


class Transport(Protocol):
    """Writes to a client. Its members never block or raise, even when the client is gone.

    It may have an `owner`, the authenticated caller: only the owner of a task may ask for it.
    """

    @property
    def backlog(self) -> int:
        """The number of bytes that the client has not read."""
        ...

    def write(self, line: bytes, *, more: bool = False) -> None:
        """Send whole lines. `more` says that others probably follow at once, so that the transport can join them."""
        ...
