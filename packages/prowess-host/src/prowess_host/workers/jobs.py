"""Jobs: calls on their way through the workers, and the callbacks that receive their frames.

A call is a sequence of bytes here, independent of the client's protocol.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from prowess.contracts.contract import Contract
from prowess.jsontypes import JsonObject
from prowess.worker.link import Frame
from prowess.worker.messages import Kind, LogHead, ProgressHead, RestHead, UrlDoneHead
from prowess_host.workers.queue import FairQueue, Node, Path

__all__ = [
    "LAST",
    "NEVER",
    "NOT_SAID",
    "TELLING",
    "Job",
    "Listener",
    "Results",
    "Slots",
    "Witness",
    "leave_place",
    "take_place",
    "tell_busy",
    "tell_lost",
    "tell_timeout",
    "tell_waiting",
]

_log = logging.getLogger("prowess.host")
NEVER: Final = float("inf")
_STEP: Final = 1e-9
"""Progress has to increase, and that of the command begins afterwards."""
NOT_SAID: Final = "the question cannot be sent to the client as it is"
_UNREADABLE: Final = "the worker refused the call, and its reason cannot be read"


class Listener(Protocol):
    """The callbacks of a job. Exactly one of `result`, `input_required` and `refused` is called."""

    def result(self, meta: bytes, body: bytes) -> None:
        """The encoded payload: `_meta` and the rest."""
        ...

    def rest(self, token: str, text: bytes) -> None:
        """The whole text of a result that is too large for the client. The result itself comes next."""
        ...

    def input_required(self, questions: JsonObject) -> None:
        """The run has ended with questions. The client repeats the call with the answers."""
        ...

    def refused(self, facts: JsonObject) -> None:
        """There is no result; the facts have a `kind` and a `message`."""
        ...

    def questions(self, questions: JsonObject) -> None:
        """The run waits for answers."""
        ...

    def url_done(self, key: str) -> None:
        """The person has finished on the page of a question."""
        ...

    def background(self) -> None:
        """The call continues in the background."""
        ...

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """The command reports progress."""
        ...

    def log(self, level: str, data: Any) -> None:
        """The command logs a message."""
        ...


class Witness(Protocol):
    """Records jobs. Its methods never raise or block."""

    def watch(self, job: Job) -> None:
        """A job is submitted. The witness may wrap its listener."""
        ...

    def cancelled(self, job: Job) -> None:
        """The job was cancelled."""
        ...

    def printed(self, job: Job | None, number: int, line: bytes) -> None:
        """A call printed a line. If it is over, only its number is known."""
        ...

    def keep_out(self, secrets: list[str], /) -> None:
        """Injected secrets, which must not be recorded."""
        ...


class Results(Protocol):
    """Results of cached commands that other hosts have."""

    def find(self, worker: Any, number: int, key: str, /) -> None:
        """A worker asks for one. It is sent FOUND, sooner or later."""
        ...

    def keep(self, worker: Any, number: int, head: bytes, body: bytes, /) -> None:
        """A worker tells what came of a question that found nothing."""
        ...

    def gone(self, worker: Any, /) -> None:
        """A worker has ended."""
        ...


class Slots(Protocol):
    """Room for calls of limited commands, over all hosts."""

    def admits(self, contract: Contract, job: object, /) -> bool:
        """Whether a job may begin now; else the supervisor is told when to ask again."""
        ...

    def over(self, contract: Contract, job: object, /) -> None:
        """A job has ended, or will not begin."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """One call on its way through the workers."""

    contract: Contract
    head: bytes
    arguments: bytes
    listener: Listener
    seconds: float
    number: int = 0
    worker: int = 0
    """The process that has it or had it last."""
    due: float = NEVER
    """The time at which the host answers instead of the worker."""
    left: float = NEVER
    """The remaining seconds while the clock is stopped."""
    deaths: int = 0
    """The number of workers that have ended before they began it."""
    moves: int = 0
    """The number of workers it was taken from, for any reason."""
    was_broken: bool = False
    """A worker has refused it because the skill did not load there."""
    failure: str = ""
    """Why it fails instead of moving to another worker, if its worker has not begun it."""
    over: bool = False
    waited: float = 0.0
    """The progress that was reported while it waited for its placement."""
    is_private: bool = False
    """Whether it is not recorded, because it only completes a word that a person types."""
    client: tuple[Hashable, ...] = ()
    """Who wants it: the caller, and which of the caller's clients. Places are shared out between them."""
    place: tuple[FairQueue[Job], Node[Job]] | None = None
    """Where its place is counted, if places have become few."""
    queue: FairQueue[Job] | None = None
    """Where it waits for a place."""

    @property
    def path(self) -> Path:
        """Under what it waits for a place."""
        return (*self.client, self.contract.id)


# Its place, where places are few


def take_place(job: Job, queue: FairQueue[Job], places: float = math.inf) -> bool:
    """Give it a place. Returns whether there was one."""
    place = queue.start(job.path, places)
    if place is None:
        return False
    job.place = queue, place
    return True


def leave_place(job: Job) -> None:
    """It has ended, or runs where it does not count any more."""
    if job.place is not None:
        queue, place = job.place
        job.place = None
        queue.end(place)


# Answers of the host


def tell_waiting(job: Job, message: str) -> None:
    """Report that it waits for its placement, as a progress below that of the command."""
    job.waited += _STEP
    _tell(job, job.listener.progress, job.waited, None, message)


def tell_timeout(job: Job) -> None:
    """Answer that the call timed out."""
    text = f"{job.contract.id} timed out after {job.seconds:g} s"
    _tell(job, job.listener.result, b'{"prowess/kind":"timeout"}', _error_body(text))


def tell_lost(job: Job, reason: str, *, started: bool) -> None:
    """Answer that its worker is lost."""
    text = f"{job.contract.id} was lost: {reason}. {_advice(job.contract, started=started)}"
    _tell(job, job.listener.result, b'{"prowess/kind":"worker_lost"}', _error_body(text))


def tell_busy(job: Job, waiting: int, seconds: int) -> None:
    """Too much waits already."""
    text = (
        f"{job.contract.id} was not run, because {waiting} calls wait already (the setting host.max_waiting). "
        f"It never began: try again in {seconds} s."
    )
    meta = b'{"prowess/kind":"busy","prowess/retry_after":%d}' % seconds
    _tell(job, job.listener.result, meta, _error_body(text))


def _error_body(text: str) -> bytes:
    text = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps({"content": [{"type": "text", "text": text}], "isError": True}, ensure_ascii=False).encode()


def _advice(contract: Contract, *, started: bool) -> str:
    hints = contract.hints
    if not started:
        return "It never began, so trying again is safe."
    if hints.may_repeat:
        return "Trying again is safe."
    return "It may have taken effect before it was lost: check before trying again."


# Frames of workers


def _tell_result(job: Job, frame: Frame) -> bool:
    return _tell(job, job.listener.result, frame.head, frame.body)


def _tell_rest(job: Job, frame: Frame) -> bool:
    told: RestHead = json.loads(frame.head)
    return _tell(job, job.listener.rest, told["token"], frame.body)


def _tell_input_required(job: Job, frame: Frame) -> bool:
    told = _tell(job, job.listener.input_required, json.loads(frame.head))
    return told or _tell(job, job.listener.refused, {"kind": "failed", "message": NOT_SAID})


def _tell_refused(job: Job, frame: Frame) -> bool:
    told = _tell(job, job.listener.refused, json.loads(frame.head))
    return told or _tell(job, job.listener.refused, {"kind": "failed", "message": _UNREADABLE})


def _tell_questions(job: Job, frame: Frame) -> bool:
    return _tell(job, job.listener.questions, json.loads(frame.head))


def _tell_url_done(job: Job, frame: Frame) -> bool:
    told: UrlDoneHead = json.loads(frame.head)
    return _tell(job, job.listener.url_done, told["key"])


def _tell_background(job: Job, _: Frame) -> bool:
    return _tell(job, job.listener.background)


def _tell_progress(job: Job, frame: Frame) -> bool:
    told: ProgressHead = json.loads(frame.head)
    return _tell(job, job.listener.progress, told["done"], told["total"], told["message"])


def _tell_log(job: Job, frame: Frame) -> bool:
    told: LogHead = json.loads(frame.head)
    return _tell(job, job.listener.log, told["level"], told["data"])


def _tell(job: Job, heard: Callable[..., None], *args: Any) -> bool:
    """Call a listener. Its exceptions must not break the link to the worker."""
    try:
        heard(*args)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("a message of %s could not be passed on", job.contract.id)
        return False
    return True


TELLING: Final[dict[int, Callable[[Job, Frame], bool]]] = {
    Kind.RESULT: _tell_result,
    Kind.REST: _tell_rest,
    Kind.INPUT_REQUIRED: _tell_input_required,
    Kind.REFUSED: _tell_refused,
    Kind.QUESTIONS: _tell_questions,
    Kind.URL_DONE: _tell_url_done,
    Kind.BACKGROUND: _tell_background,
    Kind.PROGRESS: _tell_progress,
    Kind.LOG: _tell_log,
}
"""Functions that pass a frame to the listener, by kind. Each returns whether that succeeded."""
LAST: Final[frozenset[int]] = frozenset({Kind.RESULT, Kind.INPUT_REQUIRED, Kind.REFUSED})
"""The kinds that end a job."""
