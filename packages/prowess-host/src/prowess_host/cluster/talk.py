"""What hosts and agents say to each other: subjects, kinds of messages, and the ways of paths. Knows neither."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, unique

from prowess_host.cluster.engine import Engine

__all__ = ["FULL", "Said", "agent_subject", "beats_subject", "blob_name", "code_ways", "stream_subjects", "who_subject"]

FULL = "all its slots are in use"
"""The refusal of an agent that may have a free slot soon."""


@unique
class Said(IntEnum):
    """The messages about one worker. The first two go to the agent, and FRAMES both ways."""

    FRAMES = 1
    """Bytes of the link, cut anywhere."""
    KILL = 2
    PREPARING = 11
    """How far its code and environment are."""
    STARTED = 12
    """`pid`, and the folder `at` which its code is."""
    PRINTED = 13
    """What it printed."""
    EXITED = 14
    """`code`, and perhaps a `reason`, or a `refusal` if it was never started."""


def beats_subject(engine: Engine) -> str:
    """Where agents say that they are there."""
    return engine.subject("agents")


def who_subject(engine: Engine) -> str:
    """Where hosts ask for that."""
    return engine.subject("who")


def agent_subject(engine: Engine, agent: str) -> str:
    """Where one agent is asked to start a worker."""
    return engine.subject("agent", agent)


def stream_subjects(engine: Engine, incarnation: str) -> tuple[str, str]:
    """Where the host and the agent of one worker listen."""
    return engine.subject("worker", incarnation, "host"), engine.subject("worker", incarnation, "agent")


def blob_name(digest: str) -> str:
    """The name of a file in the object store."""
    return f"code-{digest}"


def code_ways(roots: Sequence[str], at: str) -> tuple[tuple[str, str], ...]:
    """From the folders of a host to where an agent has laid them out; the most precise first."""
    prefix = f"{at}/" if at else ""
    ways = [(root, f"{prefix}{number}") for number, root in enumerate(roots)]
    return tuple(sorted(ways, key=lambda way: -len(way[0])))
