"""The life of a worker as a table: states, events, and the actions for each pair.

The pool, the timeouts and the reload send events; the pool carries out the actions. The table itself touches no process.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

__all__ = ["ENDING", "GETS_CALLS", "TABLE", "Action", "Event", "State", "Step", "step"]


class State(Enum):
    """The states of a worker."""

    STARTING = auto()
    """Its process was started, but READY has not arrived. It may have calls already."""
    READY = auto()
    """It answers and gets calls."""
    SILENT = auto()
    """It has not answered for a while, for an unknown reason."""
    IMPORTING = auto()
    """It does not answer because an import holds its interpreter. Until that ends, it gets only calls that need the import."""
    RETIRING = auto()
    """It gets no new calls and finishes its begun ones."""
    STUCK = auto()
    """It gets no new calls and does not answer. Its begun calls may still end."""
    DRAINING = auto()
    """A cancelled or overdue call in it does not end. Its other calls get the grace, then it is killed."""
    LEAVING = auto()
    """It was told to quit, and is killed if it does not exit in time."""
    KILLED = auto()
    """It was killed; its exit is still to be reported."""
    GONE = auto()
    """Its process has ended."""


class Event(Enum):
    """The events in the life of a worker."""

    UP = auto()
    """READY has arrived."""
    FRAME = auto()
    """Another frame has arrived."""
    START_OVERDUE = auto()
    """READY has not arrived in time."""
    UNFIT = auto()
    """It speaks another version of the link."""
    UNANSWERED = auto()
    """A ping has not been answered for a good part of the stall limit."""
    IMPORT_HOLDS = auto()
    """A ping has not been answered for most of the stall limit, and the board shows an import."""
    IMPORT_ENDED = auto()
    """The board no longer shows an import."""
    BLOCKED = auto()
    """A ping has not been answered for most of the stall limit, and the board shows no import."""
    IMPORT_OVERDUE = auto()
    """An import takes longer than the import limit."""
    CALL_HOLDS = auto()
    """A cancelled or overdue call still runs, and the worker is silent for far longer than the stall limit during an import:
    the call may hold the interpreter, so that the import cannot end."""
    LINGERS = auto()
    """A cancelled or overdue call still runs after its grace, or the worker does not say whether it does."""
    RETIRE = auto()
    """Another worker replaces it, or it is no longer needed."""
    EMPTY = auto()
    """It has no calls."""
    ABANDONED = auto()
    """It has only cancelled or overdue calls, which may still run."""
    DISCARD = auto()
    """It is no longer needed, and its results do not matter."""
    HOST_LEAVES = auto()
    """The host ends, and the worker has no calls, or only cancelled ones that get a moment to clean up."""

    EXITED = auto()
    """Its process has ended."""


class Action(Enum):
    """The actions of the pool, carried out in the order of the row."""

    REPLACE = auto()
    """Give it no new calls, and start another worker if one is needed."""
    MOVE_CALLS = auto()
    """Forbid it to begin calls, and give its unbegun calls to other workers."""
    MOVE_OTHERS = auto()
    """The same for calls that do not need the skills that it is importing."""
    ANSWER_IMPORT = auto()
    """Answer the calls that wait for the overdue import."""
    WARN_IMPORT = auto()
    """Log which import holds the worker."""
    WARN_BLOCKED = auto()
    """Log what blocks the worker."""
    END_STAND_INS = auto()
    """End the workers that served in its place."""
    QUIT = auto()
    """Tell it to quit, and kill it after the grace."""
    QUIT_SOON = auto()
    """Tell it to quit, and kill it after a moment, because the host ends."""
    KILL_LATER = auto()
    """Kill it after the grace."""
    KILL = auto()
    """Kill it and its children."""
    REPORT = auto()
    """Report its exit, so that its calls are answered or moved."""


class Step(NamedTuple):
    """A row of the table."""

    state: State
    """The next state."""
    actions: tuple[Action, ...] = ()


_S, _E, _A = State, Event, Action
_RETIRE: Final = (_A.REPLACE, _A.MOVE_CALLS)
_DRAIN: Final = (_A.REPLACE, _A.MOVE_CALLS, _A.KILL_LATER)
_ANSWER: Final = (_A.ANSWER_IMPORT, _A.REPLACE, _A.MOVE_CALLS, _A.KILL_LATER)

TABLE: Final[Mapping[State, Mapping[Event, Step]]] = {
    _S.STARTING: {
        _E.UP: Step(_S.READY),
        _E.FRAME: Step(_S.STARTING),  # perhaps the reason why it cannot start
        _E.START_OVERDUE: Step(
            _S.KILLED, (_A.KILL,)
        ),  # not replaced here: its exit counts as a death, and deaths are limited
        _E.UNFIT: Step(_S.KILLED, (_A.KILL,)),  # as above
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, _ANSWER),
        _E.RETIRE: Step(_S.STUCK, _RETIRE),  # it would not read QUIT
        _E.LINGERS: Step(_S.DRAINING, _DRAIN),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.KILLED, (_A.KILL,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.READY: {
        _E.FRAME: Step(_S.READY),
        _E.UNANSWERED: Step(_S.SILENT),
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, _ANSWER),  # its loop runs, but a thread hangs in an import
        _E.LINGERS: Step(_S.DRAINING, _DRAIN),
        _E.RETIRE: Step(_S.RETIRING, _RETIRE),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.LEAVING, (_A.QUIT_SOON,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.SILENT: {
        _E.FRAME: Step(_S.READY),
        _E.IMPORT_HOLDS: Step(_S.IMPORTING, (_A.WARN_IMPORT, _A.MOVE_OTHERS)),
        _E.BLOCKED: Step(_S.STUCK, (_A.WARN_BLOCKED, *_RETIRE)),
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, _ANSWER),
        _E.LINGERS: Step(_S.DRAINING, (_A.WARN_BLOCKED, *_DRAIN)),
        _E.RETIRE: Step(_S.STUCK, _RETIRE),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.KILLED, (_A.KILL,)),  # it would not read that it should quit
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.IMPORTING: {
        _E.FRAME: Step(
            _S.IMPORTING
        ),  # a large import releases the interpreter now and then: calls must not move back and forth
        _E.IMPORT_ENDED: Step(_S.READY, (_A.END_STAND_INS,)),
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, _ANSWER),
        _E.CALL_HOLDS: Step(_S.DRAINING, _DRAIN),
        _E.LINGERS: Step(_S.IMPORTING),  # it cannot say whether a call still runs: ask again after the import
        _E.RETIRE: Step(_S.STUCK, _RETIRE),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.KILLED, (_A.KILL,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.RETIRING: {
        _E.FRAME: Step(_S.RETIRING),
        _E.BLOCKED: Step(_S.STUCK, (_A.WARN_BLOCKED,)),
        _E.IMPORT_HOLDS: Step(_S.STUCK),  # no call waits for this import: unbegun calls have moved
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, (_A.ANSWER_IMPORT, _A.KILL_LATER)),
        _E.LINGERS: Step(_S.DRAINING, (_A.KILL_LATER,)),
        _E.EMPTY: Step(_S.LEAVING, (_A.QUIT,)),
        _E.ABANDONED: Step(_S.KILLED, (_A.KILL,)),  # cancelled calls must have no effect while the worker closes
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.LEAVING, (_A.QUIT_SOON,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.STUCK: {
        _E.UP: Step(_S.RETIRING),  # it was retired before READY, and had just begun a call
        _E.FRAME: Step(_S.RETIRING),
        _E.START_OVERDUE: Step(_S.KILLED, (_A.KILL,)),
        _E.UNFIT: Step(_S.KILLED, (_A.KILL,)),
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, (_A.ANSWER_IMPORT, _A.KILL_LATER)),
        _E.CALL_HOLDS: Step(_S.DRAINING, (_A.KILL_LATER,)),  # asked during the import, before it was retired
        _E.LINGERS: Step(_S.DRAINING, (_A.KILL_LATER,)),
        _E.EMPTY: Step(_S.KILLED, (_A.KILL,)),  # it would not read that it should quit
        _E.ABANDONED: Step(_S.KILLED, (_A.KILL,)),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.KILLED, (_A.KILL,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.DRAINING: {
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, (_A.ANSWER_IMPORT,)),
        _E.EMPTY: Step(_S.KILLED, (_A.KILL,)),
        _E.ABANDONED: Step(_S.KILLED, (_A.KILL,)),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.KILLED, (_A.KILL,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.LEAVING: {
        _E.LINGERS: Step(_S.KILLED, (_A.KILL,)),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.LEAVING, (_A.QUIT_SOON,)),  # its grace may be longer than the time that the host has
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.KILLED: {_E.EXITED: Step(_S.GONE, (_A.REPORT,))},  # frames that it sent before may still be read
    _S.GONE: {},
}
"""The steps by state and event. An event without a row is ignored in that state: for example, a timer may fire late."""

GETS_CALLS: Final = frozenset({_S.STARTING, _S.READY, _S.SILENT, _S.IMPORTING})
"""The states in which a worker gets new calls."""
ENDING: Final = frozenset({_S.RETIRING, _S.STUCK, _S.DRAINING})
"""The states of retired workers, which get EMPTY or ABANDONED as soon as they have no calls."""


def step(state: State, event: Event) -> Step:
    """The step for an event in a state."""
    return TABLE[state].get(event, Step(state))
