"""The placement of workers: interpreter, limits and machine. Skills of one placement share workers."""

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
    """The interpreter of an environment; `None` for that of the project's workers."""
    limits: Grant | None = None
    """The limits of the workers; `None` for all permissions of the user."""
    labels: str = ""
    """The labels of the agents that its workers run on; empty for this machine."""

    @property
    def is_common(self) -> bool:
        """Whether its workers run the skills without an environment and limits, on any machine."""
        return self.python is None and self.limits is None


OWN: Final = Placement()
"""The placement of every skill that declares nothing: the project's own workers."""


@frozen
class Unplaced:
    """No placement is available: it is being prepared, or its preparation failed."""

    reason: str = ""
    """The reason of the failure; empty during the preparation."""
