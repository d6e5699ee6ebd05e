"""The protocol between hosts and agents: subjects, kinds of messages, and paths on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, unique

from prowess_host.cluster.engine import EngineConnection

__all__ = [
    "FULL",
    "WorkerMessage",
    "agent_subject",
    "beats_subject",
    "blob_name",
    "code_ways",
    "stream_subjects",
    "who_subject",
]

FULL = "all its slots are in use"
"""The refusal of an agent that may have a free slot soon."""


@unique
class WorkerMessage(IntEnum):
    """The kinds of messages about one worker. FRAMES go both ways, KILL to the agent, the others to the host."""

    FRAMES = 1
    """Bytes of the link."""
    KILL = 2
    LIMIT = 3
    """The number of the next call, and its remaining seconds."""
    PREPARING = 11
    """A line about the progress of its environment."""
    STARTED = 12
    """JSON: its `pid`, and `at`, the folder of its code."""
    PRINTED = 13
    """Output of the worker."""
    EXITED = 14
    """JSON: the exit `code`, with a `reason` if the agent ended it, or a `refusal` if it was not started."""
    LEAVING = 15
    """The agent stops: send the worker no more calls, and let it finish the begun ones."""
    PROBE = 16
    """Asks for a heartbeat, which shows that nothing older is on the way."""


def beats_subject(engine: EngineConnection) -> str:
    """The subject of the heartbeats of agents."""
    return engine.subject("agents")


def who_subject(engine: EngineConnection) -> str:
    """The subject on which hosts ask for heartbeats."""
    return engine.subject("who")


def agent_subject(engine: EngineConnection, agent: str) -> str:
    """The subject of orders to one agent."""
    return engine.subject("agent", agent)


def stream_subjects(engine: EngineConnection, incarnation: str) -> tuple[str, str]:
    """The subjects to which the host and the agent of one worker subscribe."""
    return engine.subject("worker", incarnation, "host"), engine.subject("worker", incarnation, "agent")


def blob_name(digest: str) -> str:
    """The name of a file of code in the object store."""
    return f"code-{digest}"


def code_ways(roots: Sequence[str], at: str) -> tuple[tuple[str, str], ...]:
    """Pairs of a folder of the host and its copy on the agent, the longest path first."""
    prefix = f"{at}/" if at else ""
    ways = [(root, f"{prefix}{number}") for number, root in enumerate(roots)]
    return tuple(sorted(ways, key=lambda way: -len(way[0])))
