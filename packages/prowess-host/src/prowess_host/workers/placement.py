"""Where workers run: on which interpreter, within which limits, on which machine. Skills of one placement share workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prowess.frozen import frozen

if TYPE_CHECKING:
    from prowess_host.confinement.grants import Grant


__all__ = ["OWN", "Placement", "Unplaced"]


@frozen
class Placement:
    """The key of a pool. Two skills with equal placements run in the same workers."""

    python: str | None = None
    """The interpreter of an environment; without one that of the project's workers."""
    limits: Grant | None = None
    """What the operating system lets the workers do; without limits, all that the user may do."""
    place: str = ""
    """Another machine; empty for this one."""


OWN: Final = Placement()
"""The placement of every skill that declares nothing: the project's own workers."""


@frozen
class Unplaced:
    """There is no placement now: it is being prepared, or cannot be had."""

    reason: str = ""
    """Why it cannot be had; empty while it is being prepared."""
