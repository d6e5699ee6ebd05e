"""Jobs: calls on their way through the workers, and the callbacks that receive their frames.

A call is a sequence of bytes here, independent of the client's protocol.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from prowess.contracts.contract import Contract
from prowess.jsontypes import JsonObject
from prowess.worker.link import Frame
from prowess.worker.messages import Kind, LogHead, ProgressHead, RestHead, UrlDoneHead

__all__ = [
    "LAST",
    "NEVER",
    "NOT_SAID",
    "TELLING",
    "Job",
    "Listener",
    "Witness",
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
    """Whoever wants to know what becomes of a job. Exactly one of `result`, `input_required` and `refused` is called."""

    def result(self, meta: bytes, body: bytes) -> None:
        """The payload, ready-made: `_meta`, and the rest."""
        ...

    def rest(self, token: str, text: bytes) -> None:
        """The whole text of a result that is too large for the client. The result itself comes next."""
        ...

    def input_required(self, questions: JsonObject) -> None:
        """The run has ended with questions, and wants to be repeated with the answers."""
        ...

    def refused(self, facts: JsonObject) -> None:
        """There is no result, for a reason with a `kind` and a `message`."""
        ...

    def questions(self, questions: JsonObject) -> None:
        """The run waits for answers."""
        ...

    def url_done(self, key: str) -> None:
        """The page of a question has done its job."""
        ...

    def background(self) -> None:
        """The call goes on without a waiting client."""
        ...

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """The command is so far."""
        ...

    def log(self, level: str, data: Any) -> None:
        """The command has something to say."""
        ...


class Witness(Protocol):
    """Whoever keeps a record of jobs. Nothing of this may raise, or wait."""

    def watch(self, job: Job) -> None:
        """A job is submitted. It may be given another listener, which tells the first one everything."""
        ...

    def cancelled(self, job: Job) -> None:
        """Nobody wants to hear of it any more."""
        ...

    def printed(self, job: Job | None, number: int, line: bytes) -> None:
        """A call printed a line. It may be over by now, and then there is only its number."""
        ...

    def keep_out(self, secrets: list[str], /) -> None:
        """Texts that were injected: they must not be in any record."""
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
    """The process that has it, or had it last."""
    due: float = NEVER
    """When the host answers in the place of a worker that does not."""
    left: float = NEVER
    """Seconds until then, while the clock stands still."""
    deaths: int = 0
    """How many workers have ended before they began it."""
    moves: int = 0
    """How many workers it was taken from, for whatever reason."""
    was_broken: bool = False
    """A worker has refused it because the skill did not load there."""
    verdict: str = ""
    """Why it is not given to another worker, if this one says that it has not begun it."""
    over: bool = False
    waited: float = 0.0
    """The progress that it was told to have made while it waited for its placement."""
    is_private: bool = False
    """Whether it is left out of the record: half a word that somebody types is nobody's call."""


# What the host says itself


def tell_waiting(job: Job, message: str) -> None:
    """It waits for its placement. Whatever the command itself reports later is more than this."""
    job.waited += _STEP
    _tell(job, job.listener.progress, job.waited, None, message)


def tell_timeout(job: Job) -> None:
    """It took too long."""
    text = f"{job.contract.id} timed out after {job.seconds:g} s"
    _tell(job, job.listener.result, b'{"prowess/kind":"timeout"}', _error_body(text))


def tell_lost(job: Job, reason: str, *, started: bool) -> None:
    """No worker will answer it."""
    text = f"{job.contract.id} was lost: {reason}. {_advice(job.contract, started=started)}"
    _tell(job, job.listener.result, b'{"prowess/kind":"worker_lost"}', _error_body(text))


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


# What workers say


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
    """Whatever a listener does with the news, the link to the worker must not break over it."""
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
"""How to pass on what a worker says of a job, by the kind of the frame. Each tells whether that went well."""
LAST: Final[frozenset[int]] = frozenset({Kind.RESULT, Kind.INPUT_REQUIRED, Kind.REFUSED})
"""The kinds that end a job."""
