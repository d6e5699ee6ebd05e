"""Jobs: calls on their way through the workers, and the callbacks that receive their frames.

A call is a sequence of bytes here, independent of the client's protocol.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from prowess.contracts.contract import Contract
from prowess.jsontypes import JsonObject, encodable, json_bytes
from prowess.worker.link import Frame
from prowess.worker.messages import LAST, Kind, LogHead, ProgressHead, RestHead, UnaskedHead, UrlDoneHead
from prowess_host.workers.queue import FairQueue, Node, Path

__all__ = [
    "DELIVER",
    "NEVER",
    "NOT_SAID",
    "Job",
    "Listener",
    "Results",
    "Slots",
    "Witness",
    "answer_busy",
    "answer_lost",
    "answer_timeout",
    "deliver",
    "failed_body",
    "leave_place",
    "lost_meta",
    "lost_text",
    "report_waiting",
    "take_place",
]

_log = logging.getLogger("prowess.host")
NEVER: Final = float("inf")
_STEP: Final = 1e-9
"""Progress has to increase, and that of the command begins afterwards."""
NOT_SAID: Final = "the question cannot be sent to the client in this form"
_UNBEGUN: Final = "It never began, so trying again is safe."
_LOST: Final = b'{"prowess/kind":"worker_lost"}'
"""The facts of a lost call."""
_LOST_SAFELY: Final = b'{"prowess/kind":"worker_lost","prowess/retry_after":0}'
"""The same if trying again is safe, which programs read from the seconds."""
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

    def unasked(self, keys: Collection[str]) -> None:
        """The run no longer waits for the answers to these questions."""
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
    """Results of cached commands, shared with other hosts."""

    def find(self, worker: Any, number: int, key: str, /) -> None:
        """Answer a worker that asks for a result with FOUND, perhaps later."""
        ...

    def keep(self, worker: Any, number: int, head: bytes, body: bytes, /) -> None:
        """Share the result of a worker that got an empty answer before."""
        ...

    def gone(self, worker: Any, /) -> None:
        """Forget a worker that has ended."""
        ...


class Slots(Protocol):
    """The concurrency limits of commands, over all hosts."""

    def admits(self, contract: Contract, job: object, /) -> bool:
        """Whether a job may begin now. If not, `Admission.release` is called when to ask again."""
        ...

    def over(self, contract: Contract, job: object, /) -> None:
        """Note that a job has ended, or will not begin."""
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
    remaining: float = NEVER
    """The remaining seconds while the clock is stopped."""
    deaths: int = 0
    """The number of workers that have ended before they began it."""
    moves: int = 0
    """The number of workers it was taken from, for any reason."""
    alone: bool = False
    """Whether its skill was imported in a worker that ended, so that the next one imports nothing else."""
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
    """The caller, and which of the caller's clients. Places are divided between them."""
    place: tuple[FairQueue[Job], Node[Job]] | None = None
    """The queue and the node that count its place, while places are few."""
    queue: FairQueue[Job] | None = None
    """The queue in which it waits for a place."""

    @property
    def path(self) -> Path:
        """Its path in the queue: caller, client and command."""
        return (*self.client, self.contract.id)


# Places, while they are few


def take_place(job: Job, queue: FairQueue[Job], places: float = math.inf) -> bool:
    """Give a job a place. Returns whether there was one."""
    place = queue.start(job.path, places)
    if place is None:
        return False
    job.place = queue, place
    return True


def leave_place(job: Job) -> None:
    """Free the place of a job that has ended or moved to a worker that counts separately."""
    if job.place is not None:
        queue, place = job.place
        job.place = None
        queue.end(place)


# Answers of the host


def report_waiting(job: Job, message: str) -> None:
    """Report that it waits for its placement, as a progress below that of the command."""
    job.waited += _STEP
    _call(job, job.listener.progress, job.waited, None, message)


def answer_timeout(job: Job, *, may_have_begun: bool) -> None:
    """Answer that the call timed out."""
    text = f"{job.contract.id} timed out after {job.seconds:g} s"
    if not may_have_begun:
        text = f"{text}. {_UNBEGUN}"
    _call(job, job.listener.result, b'{"prowess/kind":"timeout"}', failed_body(text))


def answer_lost(job: Job, reason: str, *, started: bool) -> None:
    """Answer that its worker is lost."""
    may_repeat = job.contract.hints.may_repeat
    text = lost_text(job.contract.id, reason, may_repeat=may_repeat, started=started)
    _call(job, job.listener.result, lost_meta(may_repeat=may_repeat or not started), failed_body(text))


def lost_text(command: str, reason: str, *, may_repeat: bool, started: bool = True) -> str:
    """The message for the caller of a lost command."""
    advice = "It may have taken effect before it was lost: check before trying again."
    if not started:
        advice = _UNBEGUN
    elif may_repeat:
        advice = "Trying again is safe."
    return f"{command} was lost: {reason}. {advice}"


def lost_meta(*, may_repeat: bool) -> bytes:
    """The `_meta` of the answer to a lost call."""
    return _LOST_SAFELY if may_repeat else _LOST


def answer_busy(job: Job, waiting: int, seconds: int) -> None:
    """Answer that too many calls wait already."""
    text = (
        f"{job.contract.id} was not run, because {waiting} calls wait already (the setting host.max_waiting). "
        f"It never began: try again in {seconds} s."
    )
    meta = b'{"prowess/kind":"busy","prowess/retry_after":%d}' % seconds
    _call(job, job.listener.result, meta, failed_body(text))


def failed_body(text: str) -> bytes:
    """A failed result."""
    return json_bytes({"content": [{"type": "text", "text": encodable(text)}], "isError": True})


# Frames of workers


def deliver(job: Job, frame: Frame) -> bool:
    """Pass a frame to the listener. What cannot be read or passed on must not break the link to the worker.

    Returns whether it succeeded. The caller is answered in any case.
    """
    if _call(job, DELIVER[frame.kind], job.listener, frame):
        return True
    if frame.kind == Kind.RESULT:
        text = f"{job.contract.id}: the result cannot be passed on; see the log of the host"
        _call(job, job.listener.result, b'{"prowess/kind":"output"}', failed_body(text))
    elif frame.kind in LAST:
        message = NOT_SAID if frame.kind == Kind.INPUT_REQUIRED else _UNREADABLE
        _call(job, job.listener.refused, {"kind": "failed", "message": message})
    return False


def _deliver_result(listener: Listener, frame: Frame) -> None:
    listener.result(frame.head, frame.body)


def _deliver_rest(listener: Listener, frame: Frame) -> None:
    head: RestHead = json.loads(frame.head)
    listener.rest(head["token"], frame.body)


def _deliver_input_required(listener: Listener, frame: Frame) -> None:
    listener.input_required(json.loads(frame.head))


def _deliver_refused(listener: Listener, frame: Frame) -> None:
    listener.refused(json.loads(frame.head))


def _deliver_questions(listener: Listener, frame: Frame) -> None:
    listener.questions(json.loads(frame.head))


def _deliver_unasked(listener: Listener, frame: Frame) -> None:
    head: UnaskedHead = json.loads(frame.head)
    listener.unasked(head["keys"])


def _deliver_url_done(listener: Listener, frame: Frame) -> None:
    head: UrlDoneHead = json.loads(frame.head)
    listener.url_done(head["key"])


def _deliver_background(listener: Listener, _: Frame) -> None:
    listener.background()


def _deliver_progress(listener: Listener, frame: Frame) -> None:
    head: ProgressHead = json.loads(frame.head)
    listener.progress(head["done"], head["total"], head["message"])


def _deliver_log(listener: Listener, frame: Frame) -> None:
    head: LogHead = json.loads(frame.head)
    listener.log(head["level"], head["data"])


def _call(job: Job, listener: Callable[..., None], *args: Any) -> bool:
    """Call a listener. Its exceptions must not break the link to the worker."""
    try:
        listener(*args)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("a message of %s could not be passed on", job.contract.id)
        return False
    return True


DELIVER: Final[dict[int, Callable[[Listener, Frame], None]]] = {
    Kind.RESULT: _deliver_result,
    Kind.REST: _deliver_rest,
    Kind.INPUT_REQUIRED: _deliver_input_required,
    Kind.REFUSED: _deliver_refused,
    Kind.QUESTIONS: _deliver_questions,
    Kind.UNASKED: _deliver_unasked,
    Kind.URL_DONE: _deliver_url_done,
    Kind.BACKGROUND: _deliver_background,
    Kind.PROGRESS: _deliver_progress,
    Kind.LOG: _deliver_log,
}
"""Functions that pass a frame to the listener, by kind."""
