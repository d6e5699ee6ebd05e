"""The life of a worker as a table: states, events, and the actions for each pair.

The pool, the timeouts and the reload send events; the pool carries out the actions. The table itself touches no process.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

__all__ = ["ENDING", "GETS_CALLS", "TABLE", "Action", "Event", "State", "Step", "step"]


class State(Enum):
    """What a worker is at."""

    STARTING = auto()
    """Its process was started and has not said yet that it is up. It may have calls already."""
    READY = auto()
    """It answers, and gets calls."""
    SILENT = auto()
    """It has not answered for a while. Nobody knows why yet."""
    IMPORTING = auto()
    """It did not answer because an import holds its interpreter. Until that ends it gets only calls that need it."""
    RETIRING = auto()
    """It gets no new calls, and finishes those that it has begun."""
    STUCK = auto()
    """It gets no new calls, and does not answer. What it has begun may still end."""
    DRAINING = auto()
    """It runs something that nobody waits for and that does not end. The rest gets a moment; then it is killed."""
    LEAVING = auto()
    """It was told to quit, and is killed if it does not."""
    KILLED = auto()
    """It was killed, and its exit is not reported yet."""
    GONE = auto()
    """Its process has ended."""


class Event(Enum):
    """What can happen to a worker."""

    UP = auto()
    """It says that it can serve."""
    HEARD = auto()
    """It says something else."""
    START_OVERDUE = auto()
    """It has not come up in time."""
    UNFIT = auto()
    """It has come up, and speaks another version of the link."""
    UNANSWERED = auto()
    """A ping has not been answered for a good part of the stall limit."""
    IMPORT_HOLDS = auto()
    """A ping has not been answered for most of the stall limit, and the board shows an import."""
    IMPORT_ENDED = auto()
    """The board shows no import any more."""
    BLOCKED = auto()
    """A ping has not been answered for most of the stall limit, and nothing is imported."""
    IMPORT_OVERDUE = auto()
    """An import takes longer than the import limit."""
    LINGERS = auto()
    """A call that was given up goes on after its grace, or the worker does not answer whether it does."""
    RETIRE = auto()
    """Another worker takes its place, or nobody needs it any more."""
    EMPTY = auto()
    """It has no calls."""
    ABANDONED = auto()
    """It has no calls that somebody waits for, but some that were given up may go on."""
    DISCARD = auto()
    """It is not wanted, and whatever it does counts for nothing."""
    HOST_LEAVES = auto()
    """The host ends, and the worker has no calls."""
    EXITED = auto()
    """Its process has ended."""


class Action(Enum):
    """What the pool does about it, in the order of the row."""

    REPLACE = auto()
    """Give it no new calls, and have another worker come up where one is needed."""
    MOVE_CALLS = auto()
    """Forbid it to begin anything, and give the calls that it has not begun to other workers."""
    MOVE_OTHERS = auto()
    """The same for the calls that do not need the skills that it is importing."""
    ANSWER_IMPORT = auto()
    """Answer the calls that wait for an import that is overdue."""
    WARN_IMPORT = auto()
    """Log which import holds the worker."""
    WARN_BLOCKED = auto()
    """Log what blocks the worker."""
    END_STAND_INS = auto()
    """Let the workers go that served in its place."""
    QUIT = auto()
    """Tell it to quit, and kill it if it has not ended after the grace."""
    QUIT_SOON = auto()
    """Tell it to quit, and kill it if it has not ended after a moment: the host leaves."""
    KILL_LATER = auto()
    """Kill it after the grace."""
    KILL = auto()
    """Kill it and its children."""
    REPORT = auto()
    """Answer for its calls."""


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
        _E.HEARD: Step(_S.STARTING),  # it may say why it cannot come up
        _E.START_OVERDUE: Step(
            _S.KILLED, (_A.KILL,)
        ),  # not replaced: its exit counts as a death, and those are limited
        _E.UNFIT: Step(_S.KILLED, (_A.KILL,)),  # as above
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, _ANSWER),
        _E.RETIRE: Step(_S.STUCK, _RETIRE),  # nobody would read that it should quit
        _E.LINGERS: Step(_S.DRAINING, _DRAIN),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.KILLED, (_A.KILL,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.READY: {
        _E.HEARD: Step(_S.READY),
        _E.UNANSWERED: Step(_S.SILENT),
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, _ANSWER),  # its loop runs, and a thread of it hangs in an import
        _E.LINGERS: Step(_S.DRAINING, _DRAIN),
        _E.RETIRE: Step(_S.RETIRING, _RETIRE),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.LEAVING, (_A.QUIT_SOON,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.SILENT: {
        _E.HEARD: Step(_S.READY),
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
        _E.HEARD: Step(
            _S.IMPORTING
        ),  # a large import lets go of the interpreter now and then: calls must not go to and fro
        _E.IMPORT_ENDED: Step(_S.READY, (_A.END_STAND_INS,)),
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, _ANSWER),
        _E.LINGERS: Step(_S.IMPORTING),  # it cannot say whether a call goes on: it is asked again after the import
        _E.RETIRE: Step(_S.STUCK, _RETIRE),
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.KILLED, (_A.KILL,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.RETIRING: {
        _E.HEARD: Step(_S.RETIRING),
        _E.BLOCKED: Step(_S.STUCK, (_A.WARN_BLOCKED,)),
        _E.IMPORT_HOLDS: Step(_S.STUCK),  # nothing waits for this import: calls that had not begun have moved
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, (_A.ANSWER_IMPORT, _A.KILL_LATER)),
        _E.LINGERS: Step(_S.DRAINING, (_A.KILL_LATER,)),
        _E.EMPTY: Step(_S.LEAVING, (_A.QUIT,)),
        _E.ABANDONED: Step(_S.KILLED, (_A.KILL,)),  # what was given up must not take effect while the worker closes
        _E.DISCARD: Step(_S.KILLED, (_A.KILL,)),
        _E.HOST_LEAVES: Step(_S.LEAVING, (_A.QUIT_SOON,)),
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.STUCK: {
        _E.UP: Step(_S.RETIRING),  # it was retired before it was up, and has begun a call just before that
        _E.HEARD: Step(_S.RETIRING),
        _E.START_OVERDUE: Step(_S.KILLED, (_A.KILL,)),
        _E.UNFIT: Step(_S.KILLED, (_A.KILL,)),
        _E.IMPORT_OVERDUE: Step(_S.DRAINING, (_A.ANSWER_IMPORT, _A.KILL_LATER)),
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
        _E.HOST_LEAVES: Step(_S.LEAVING, (_A.QUIT_SOON,)),  # it may have been given more time than the host has
        _E.EXITED: Step(_S.GONE, (_A.REPORT,)),
    },
    _S.KILLED: {_E.EXITED: Step(_S.GONE, (_A.REPORT,))},  # what it said before it died may still be read
    _S.GONE: {},
}
"""What is done, by state and event. An event without a row means nothing in that state: for example, everybody who held a
timer for a worker may send its event late."""

GETS_CALLS: Final = frozenset({_S.STARTING, _S.READY, _S.SILENT, _S.IMPORTING})
"""The states of workers that are not retired."""
ENDING: Final = frozenset({_S.RETIRING, _S.STUCK, _S.DRAINING})
"""The states of retired workers that are told as soon as they have no calls."""


def step(state: State, event: Event) -> Step:
    """What an event does in a state."""
    return TABLE[state].get(event, Step(state))
