"""Records calls while they run: listens to every job, and passes the events to a thread that writes them.

A call pays for a few assignments. The thread does everything else a moment later: it makes rows without secrets and writes
them. A failure there loses records and logs one warning, but never affects a call.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, Protocol

from prowess.contracts.contract import Contract
from prowess.daemons import NO_THREAD, start_thread
from prowess.jsontypes import JsonObject, encodable
from prowess.worker.heap import LARGE, give_back_soon, share_one_heap
from prowess_host.records.events import Events
from prowess_host.threads import in_own_thread

if TYPE_CHECKING:
    from prowess_host.workers.jobs import Job, Listener

__all__ = ["CallState", "Recorder", "Recording", "StateWriter"]

_log = logging.getLogger("prowess.host")
_SOON: Final = 0.2
"""Seconds after which events are passed to the thread, in one batch."""
_LATE: Final = 1.0
"""Seconds after its end in which prints of a call still belong to it, up to twice as long."""
_MOST_RECENT: Final = 1000
"""The same as a number of calls that end after it. Keeping more makes every call slower."""
_MOST_KEPT: Final = 4 * 1024 * 1024
"""The same as bytes of the calls that end after it."""
_MOST_WAITING: Final = 32 * 1024 * 1024
"""Bytes of arguments and results that may wait to be written. Beyond that, only the facts of a call are kept."""
_MOST_SHOWN: Final = 200
"""Calls in one batch that are written as running. Each is written again at its end."""
_MOST_CALLS: Final = 20_000
"""Calls that may wait. Beyond that, calls are not recorded, because the disk hangs."""
_MOST_UNKNOWN: Final = 1000
"""Calls of unknown commands in one batch that are kept, so that a client in a loop does not displace other calls."""
_MOST_NAME: Final = 200
"""Characters that are kept of an unknown name."""
_MOST_WHY: Final = 8 * 1024
"""Characters that are kept of the reason why a command is unknown."""


class CallState:
    """The state of a call at one moment, for the thread.

    The defaults belong to the class, so that a call sets only what is different.
    """

    kind = "running"
    number = worker = 0
    meta = b"{}"
    head = b""
    contract: Contract | None = None
    arguments: bytes | None = None
    body: bytes | None = None
    duration: float | None = None
    facts: JsonObject | None = None
    """The result as data, if it was never encoded."""
    events: Events | None = None
    size = 0
    """The bytes of its arguments and its result."""
    waiting = 0
    """Its bytes that count as waiting."""

    def __init__(self, serial: int, since: float) -> None:
        self.serial = serial
        self.since = since

    def note_job(self, job: Job) -> None:
        """Take the data of the job."""
        self.contract, self.head, self.arguments = job.contract, job.head, job.arguments
        self.number, self.worker = job.number, job.worker
        self.size = len(job.arguments)


class Recording(CallState):
    """A listener that notes the events of a job and passes them on to another listener."""

    def __init__(self, recorder: Recorder, job: Job, serial: int) -> None:
        self.serial = serial
        self.since = time.monotonic()
        self._recorder = recorder
        self._listener: Any = job.listener
        self.job: Job | None = job

    # Events for listeners

    def result(self, meta: bytes, body: bytes) -> None:
        """The call has ended with a payload."""
        self._end("result", meta, body).result(meta, body)
        self._listener = None

    def input_required(self, questions: JsonObject) -> None:
        """The call has ended with questions."""
        self.facts = questions
        self._end("input_required").input_required(questions)
        self._listener = None

    def refused(self, facts: JsonObject) -> None:
        """The call has ended without a result."""
        self.facts = facts
        self._end("refused").refused(facts)
        self._listener = None

    def rest(self, token: str, text: bytes) -> None:
        """Not recorded: the record keeps the part that the client got."""
        self._listener.rest(token, text)

    def questions(self, questions: JsonObject) -> None:
        """The call waits for a person."""
        self.note("asked", {key: question.get("message", question.get("ask")) for key, question in questions.items()})
        self._listener.questions(questions)

    def unasked(self, keys: Collection[str]) -> None:
        """Not recorded."""
        self._listener.unasked(keys)

    def url_done(self, key: str) -> None:
        """Not recorded."""
        self._listener.url_done(key)

    def background(self) -> None:
        """Not recorded: the call continues."""
        self._listener.background()

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Note progress. Of several in a row, the newest is enough."""
        self.note("progress", [done, total, message])
        self._listener.progress(done, total, message)

    def log(self, level: str, data: Any) -> None:
        """A message for the client."""
        self.note("log", [level, data])
        self._listener.log(level, data)

    # For the recorder

    def cancelled(self) -> None:
        """The call was cancelled."""
        self._end("cancelled")
        self._listener = None

    def note(self, kind: str, data: Any) -> None:
        """Note an event during the call, or just after it."""
        recorder = self._recorder
        if not recorder.keeps_output:
            return
        if self.events is None:
            self.events = Events()
        before = self.events.size
        self.events.add(time.monotonic() - self.since, kind, data)
        recorder.touch(self, self.events.size - before)

    def _end(self, kind: str, meta: bytes = b"{}", body: bytes | None = None) -> Listener:
        """Note the end of the call, and return the listener.

        The recording is kept for a moment longer than the call, so the callers let go of the listener, which holds much: once
        the listener has taken the end, because it gets another one if it cannot.
        """
        job = self.job
        if job is not None:
            self.job = None  # breaks a reference cycle
            self.duration = time.monotonic() - self.since
            self.kind, self.meta, self.body = kind, meta, body
            self.note_job(job)
            self._recorder.end(self)
        return self._listener

    def state(self) -> CallState:
        """The current state; a copy while the call runs."""
        job = self.job
        if job is None:
            return self
        copy = CallState(self.serial, self.since)
        copy.note_job(job)
        copy.events = self.events
        return copy


class _Amount:
    """A count of bytes and calls."""

    __slots__ = ("bytes", "calls")

    def __init__(self) -> None:
        self.bytes = self.calls = 0


class StateWriter(Protocol):
    """Stores the states of calls. The thread alone uses it."""

    def write(self, states: list[CallState], secrets: list[str], /) -> None:
        """Store the states of some calls. The secrets are never stored."""

    def close(self) -> None:
        """Called after the last batch."""


class Recorder:
    """Records the jobs of a project.

    `open_book` is called in the thread with the first batch. `is_dropped` returns whether valid arguments of a call are neither
    stored nor searched for secrets.
    """

    def __init__(
        self, open_book: Callable[[], StateWriter], is_dropped: Callable[[Contract, bytes], bool], *, keeps_output: bool
    ) -> None:
        self.keeps_output = keeps_output
        self._is_dropped = is_dropped
        self._open_book = open_book
        self._secrets: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._serial = 0
        self._fresh: list[Recording] = []
        """Calls that the thread has not seen while they ran; some have ended meanwhile."""
        self._ended: list[Recording] = []
        self._unknown: deque[CallState] = deque(maxlen=_MOST_UNKNOWN)
        """Calls of unknown commands."""
        self._touched: dict[Recording, None] = {}
        """Calls with new events that have not just ended."""
        self._recent: dict[int, Recording] = {}
        self._before: dict[int, Recording] = {}
        """Recently ended calls by number, because their prints may arrive after their result."""
        self._recent_size = self._before_size = 0
        """The bytes of these calls."""
        self._turning = False
        self._due = False
        self._closed = False
        self._batches: deque[tuple[list[CallState], list[str]] | None] = deque()
        self._news = threading.Semaphore(0)
        """Counts the batches."""
        self._thread: threading.Thread | None = None
        self._given = _Amount()
        self._written = _Amount()
        """The amounts that were passed to the thread and written. Each is changed by one thread only."""
        self._lost = False

    # Events of jobs

    def watch(self, job: Job) -> None:
        """Listen to a job."""
        self._serial += 1
        recording = job.listener = Recording(self, job, self._serial)
        self._fresh.append(recording)
        if not self._due:
            self._schedule()

    def cancelled(self, job: Job) -> None:
        """A job has ended without a result."""
        if isinstance(job.listener, Recording):
            job.listener.cancelled()

    def unknown(self, name: str, why: str, client: str) -> None:
        """Record a call of an unknown command, without arguments, because no contract says which are secret."""
        head = json.dumps({"client": encodable(client[:_MOST_NAME])}).encode()
        self._serial += 1
        state = CallState(self._serial, time.monotonic())
        state.head = head
        state.kind, state.duration = "refused", 0.0
        state.facts = {
            "kind": "unknown",
            "command": encodable(name[:_MOST_NAME]),
            "message": encodable(why[:_MOST_WHY]),
        }
        self._unknown.append(state)
        if not self._due:
            self._schedule()

    def printed(self, job: Job | None, number: int, line: bytes) -> None:
        """Note a line that a call has printed."""
        recording = job.listener if job is not None else self._recent.get(number) or self._before.get(number)
        if isinstance(recording, Recording):
            recording.note("print", line.decode("utf-8", "replace"))

    def keep_out(self, secrets: list[str], /) -> None:
        """Never write these texts."""
        self._secrets.extend(secrets)

    # From recordings

    def touch(self, recording: Recording, size: int) -> None:
        """Note that a call has new events, of this many bytes."""
        self._touched[recording] = None
        if recording.job is None:
            self._recent_size += size
        if not self._due:
            self._schedule()

    def end(self, recording: Recording) -> None:
        """Note that a call has ended."""
        body, events = recording.body, recording.events
        size = recording.size = recording.size + (len(body) if body is not None else 0)
        if size >= LARGE and body is not None and recording.meta == b"{}":
            contract = recording.contract
            if contract is not None and self._is_dropped(contract, recording.arguments or b""):
                recording.arguments = None  # frees the memory for the next call
                size = recording.size = len(body)
        held = size if events is None else size + events.size
        if self._given.bytes + held - self._written.bytes > _MOST_WAITING:
            recording.body = recording.arguments = recording.events = None
            recording.size = held = 0
        else:
            self._given.bytes += held
            recording.waiting = held
        self._ended.append(recording)
        self._recent[recording.number] = recording
        self._recent_size += held
        if self._recent_size > _MOST_KEPT or len(self._recent) > _MOST_RECENT:
            self._drop_earlier()
        if not self._turning:
            self._turning = True
            self._loop.call_later(_LATE, self._turn)
        if not self._due:
            self._schedule()

    # The thread

    def _schedule(self) -> None:
        if not self._closed:
            self._due = True
            self._loop.call_later(_SOON, self._hand_over)

    def _hand_over(self) -> None:
        """Pass new states to the thread: those of new calls, and of calls with new events."""
        self._due = False
        now = time.monotonic()
        ended, self._ended = dict.fromkeys(self._ended), []
        touched, self._touched = self._touched, {}
        running = self._just_running(now)
        unknown = list(self._unknown)
        self._unknown.clear()
        others = (each.state() for each in dict.fromkeys([*touched, *running]) if each not in ended)
        self._give([*ended, *others, *unknown])
        if self._fresh:
            self._schedule()

    def _drop_earlier(self) -> None:
        """Drop the earlier half of the recent calls."""
        if self._before_size >= LARGE:
            give_back_soon()
        self._before, self._recent = self._recent, {}
        self._before_size, self._recent_size = self._recent_size, 0

    def _turn(self) -> None:
        """Drop calls that ended a while ago."""
        self._drop_earlier()
        self._turning = bool(self._before) and not self._closed
        if self._turning:
            self._loop.call_later(_LATE, self._turn)

    def _just_running(self, now: float) -> list[Recording]:
        """The calls that have been running for a moment and are not written yet. Most calls are shorter."""
        fresh, self._fresh = self._fresh, []
        shown: list[Recording] = []
        for recording in fresh:
            if recording.job is None:
                continue
            if now - recording.since < _SOON or len(shown) == _MOST_SHOWN:
                self._fresh.append(recording)
            else:
                shown.append(recording)
        return shown

    def _give(self, states: list[CallState]) -> None:
        if not states:
            return
        if self._given.calls + len(states) - self._written.calls > _MOST_CALLS:
            if not self._lost:
                self._lost = True
                _log.warning("calls come faster than they can be recorded: the record has gaps")
            for state in states:
                self._given.bytes -= state.waiting
                state.waiting = 0
            return
        self._given.calls += len(states)
        secrets, self._secrets = self._secrets, []
        self._put((states, secrets))
        if self._thread is None:
            share_one_heap()  # another heap would keep the memory of large results
            self._thread = start_thread("prowess-records", self._run)
            if self._thread is None and not self._lost:
                self._lost = True
                _log.warning("calls cannot be recorded at the moment: %s", NO_THREAD)

    def _put(self, batch: tuple[list[CallState], list[str]] | None) -> None:
        self._batches.append(batch)
        self._news.release()

    def _run(self) -> None:
        book: StateWriter | None = None
        while True:
            self._news.acquire()
            batch = self._batches.popleft()
            if batch is None:
                break
            try:
                book = book or self._open_book()
                book.write(*batch)
            except Exception:  # noqa: BLE001 - a fault of ours costs records, never the thread
                _log.exception("calls could not be recorded")
            self._let_go(batch[0])
            del batch  # it may be large, and the next batch may come much later
        if book is not None:
            book.close()

    def _let_go(self, states: list[CallState]) -> None:
        """Mark states as no longer waiting."""
        self._written.calls += len(states)
        for state in states:
            if state.waiting:
                self._written.bytes += state.waiting
                state.waiting = 0

    async def close(self, seconds: float) -> None:
        """Write everything, but wait at most this many seconds."""
        self._closed = True
        self._hand_over()
        if self._thread is not None:
            self._put(None)
            await in_own_thread(self._thread.join, seconds)
