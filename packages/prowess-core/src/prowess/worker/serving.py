"""The process that imports skills and runs commands for a host: `python -P -m prowess.worker`.

It reads frames and calls a runtime, independent of the client's protocol. It exits when the host does.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import json
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Hashable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic_core import from_json, to_json

from prowess.calls import groups
from prowess.calls.arguments import JsonText
from prowess.calls.channel import Channel, Questions, Withdrawn
from prowess.calls.closing import is_closing
from prowess.calls.deadline import TIMED_OUT, prepare
from prowess.calls.outcome import META_KIND, Outcome, write_outcome
from prowess.errors import AskError, UnknownCommand, message_of
from prowess.frozen import frozen
from prowess.installed import skip_search_of_pydantic
from prowess.jsontypes import JsonObject, encodable
from prowess.logs import log_to_stderr
from prowess.results.oversize import cut
from prowess.runtime import Runtime
from prowess.settings.files import Written
from prowess.settings.layers import PREFIX
from prowess.settings.settings import Settings
from prowess.skills.description import Description, digest_of
from prowess.skills.discovery import Source
from prowess.skills.entry import Entry
from prowess.skills.library import Share
from prowess.skills.loading import Given, distrust_bytecode_of
from prowess.skills.texts import pack, unpack
from prowess.worker import output
from prowess.worker.board import Board, Importing
from prowess.worker.eager import start
from prowess.worker.heap import LARGE, give_back_soon, share_one_heap
from prowess.worker.link import Frame, Link, receive
from prowess.worker.loops import new_loop
from prowess.worker.messages import (
    AnswersHead,
    BeginHead,
    CallHead,
    CancelHead,
    DescribeHead,
    FailedHead,
    Kind,
    LiveHead,
    LogHead,
    ProgressHead,
    ReadyHead,
    RefusedHead,
    RestHead,
    SecretsHead,
    SourceHead,
    UnaskedHead,
    UpdatedHead,
    UrlDoneHead,
    hello,
    mismatch,
)
from prowess.worker.shared import LinkedResults
from prowess.worker.stream import Stream
from prowess.worker.watchdog import Watchdog

__all__ = ["Imports", "LinkServer", "can_import_project", "main", "serve", "serve_begun"]

_log = logging.getLogger("prowess.worker")
_OF_ONE_CALL: Final = frozenset(
    {
        *("answers", "call_id", "context", "metadata", "request", "trace", "trace_context", "uri"),
    }
)
_OF_CHANNEL: Final = {
    **{
        name: name
        for name in ("capabilities", "metadata", "context", "wire", "trace_context", "answers", "uri", "scopes")
    },
    "client": "client_name",
    "trace": "trace_id",
    "request": "request_id",
}
"""The fields of a head that a `Channel` has too, with their names there."""
_LISTENING: Final = frozenset({"asks", "asks_for", "background", "progress", "log"})
_TOO_LATE: Final = "the call ended before its question was answered; await the tasks that ask"
_MOST_HEADS: Final = 1024
_AGAIN: Final = 0.3
"""Seconds after which a call that has swallowed its cancellation, or cleans up, is cancelled again. Soon after that it is stuck
for the host."""
_MOST_SECRETS: Final = 1000
"""Injected texts that the worker remembers as sent. Some calls have new ones each time."""
_QUIET: Final = 0.05
"""Seconds after the start until a waiting request of the host has arrived."""
_LEAVING: Final = 3.0
"""Seconds that singletons get to close. The host ends the worker earlier if it could run all that time."""
_STOPPING: Final = 0.3
"""Seconds before that in which cancelled calls may stop."""
_GUARD: Final = 20.0
"""Seconds in which the guard of a worker whose host is gone kills everything, also on a busy machine."""
_LOOK: Final = 0.02
"""Seconds between two looks for children, or for calls that were given up."""
_LAST_WORDS: Final = 3.0
"""Seconds that the host gets to read some of the last output. On a busy machine it may get no processor for that long."""


@frozen
class _Head:
    """The head of a call, and what follows from it for every call with that head."""

    how: CallHead
    of_channel: Mapping[str, Any]
    listens: bool
    """Whether the client wants to hear of the call before its end."""

    @classmethod
    def of(cls, how: CallHead) -> _Head:
        """What a head says."""
        of_channel = {_OF_CHANNEL[name]: value for name, value in how.items() if name in _OF_CHANNEL}
        return cls(how, of_channel, bool(how.keys() & _LISTENING))


class LinkServer:
    """The worker's end of the link, and the runtime behind it."""

    lost = False
    """Whether the host has left without a word."""

    def __init__(  # noqa: PLR0915 - one line for each thing that it knows
        self,
        runtime: Runtime,
        board: Board | Stream,
        watchdog: Watchdog | None = None,
        mark: str = "",
        shares: str = "",
    ) -> None:
        """`mark` is the first part of call ids, which the host knows too.

        `shares` is a digest of the settings, if hosts share results.
        """
        self._mark = mark
        self._runtime = runtime
        self._board = board
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, asyncio.Task[Any]] = {}
        self._watchdog = watchdog or Watchdog()
        self._watchdog.busy = lambda: bool(self._calls or self._background)
        self._heads: dict[bytes, _Head] = {}
        """Parsed heads of calls that other calls will probably repeat."""
        self._given_up: set[asyncio.Task[Any]] = set()
        """Cancelled calls that still run."""
        self._abandoned = runtime.abandoned
        self._reported_left: set[Hashable] = set()
        """Those of them that the host has heard of."""
        self._look: asyncio.TimerHandle | None = None
        self._asking: dict[int, dict[asyncio.Future[Mapping[str, JsonObject]], Questions]] = {}
        """The open questions by call; several tasks of a call may ask."""
        self._background: set[asyncio.Task[Any]] = set()
        self._loaded: Mapping[str, object] = {}
        """The loaded skills at the last comparison with the reported ones."""
        self._reported: set[str] = set()
        """Loaded skills whose digests were sent to the host."""
        self.gone = asyncio.Event()
        self.link = board if isinstance(board, Stream) else Link(self._on_frame, self._on_lost)
        self.link.on_room = self._send_progress
        if isinstance(self.link, Link):
            self._watchdog.stuck = self.link.release_from_thread
        self._progress_held: dict[int, bytes] = {}
        """The newest progress of each call, held back while the host reads too slowly."""
        self._logs_lost = 0
        self._shared = LinkedResults(self.link.send, shares) if shares else None
        self._secrets: set[str] = set()
        """The secrets that the host already knows."""

    async def listen(self, sock: socket.socket) -> None:
        """Send READY first, then handle frames."""
        link = self.link
        ready: ReadyHead = {**hello(), "pid": os.getpid()}
        link.send(Kind.READY, 0, to_json(ready))
        if isinstance(link, Stream):
            link.listen(self._on_frame, self._on_lost)
        else:
            await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
        self._spawn(self._prepare())

    async def _prepare(self) -> None:
        """Prepare for the first call while the worker is idle."""
        await asyncio.sleep(_QUIET)
        prepare()

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == Kind.CALL:
            self._begin(frame)
        elif frame.kind == Kind.PING:
            asyncio.get_running_loop().call_soon(self._pong)  # calls that were cancelled just now get to end first
        elif frame.kind == Kind.CANCEL:
            self._cancel(frame.number, _reason(frame))
        elif frame.kind == Kind.ANSWERS:
            self._answered(frame)
        elif frame.kind == Kind.DESCRIBE:
            self._spawn(self._describe(from_json(frame.head)))
        elif frame.kind == Kind.SOURCE:
            self._runtime.give(_given(frame))
        elif frame.kind == Kind.FOUND and self._shared is not None:
            self._shared.found(frame)
        elif frame.kind == Kind.QUIT:
            self.gone.set()

    def _on_lost(self) -> None:
        self.lost = True
        self.gone.set()

    def _pong(self) -> None:
        self._report_left()
        self.link.send(Kind.PONG, self._lingering())

    # Calls

    def _begin(self, frame: Frame) -> None:
        self._watchdog.wake()
        start(self._loop, self._serve(frame))

    def _ended(self, number: int) -> None:
        """Clean up after a call that has ended, or was cancelled before it began."""
        task = self._calls.pop(number, None)
        if task is None:
            return
        if self._given_up:
            self._given_up.discard(task)
        if self._asking:
            self._give(number, {"error": _TOO_LATE})  # to tasks and threads that the call has left behind
        if self._abandoned or self._reported_left:
            self._loop.call_soon(self._report_left)  # calls that were cancelled just now get to end first

    def _report_left(self) -> None:
        """Report what calls have left behind. Of a call that times out, the host does not know whether it left something."""
        before, self._reported_left = self._reported_left, {*_running(self._abandoned)}
        if self._reported_left - before:
            self.link.send(Kind.LINGERING, self._lingering())
        if self._look is None and len(self._reported_left) < len(self._abandoned):
            self._look = self._loop.call_later(_AGAIN, self._look_again)

    def _look_again(self) -> None:
        """Look whether what closed objects has had its time for that."""
        self._look = None
        self._report_left()

    def _cancel(self, number: int, reason: str | None) -> None:
        """Cancel a call, and repeat that while it runs and does not close its objects."""
        task = self._calls.get(number)
        if task is None:
            return
        if task not in self._given_up:
            self._given_up.add(task)
            task.add_done_callback(lambda _: self._ended(number))  # it may never begin, and so never end by itself
            if not task.cancelling() and not is_closing(task):
                task.cancel(reason)  # without respect for shields, unlike a deadline
        elif not is_closing(task):
            self.link.send(Kind.LINGERING, self._lingering())  # when the host asked, it may have closed objects
            task.cancel(reason)
        asyncio.get_running_loop().call_later(_AGAIN, self._cancel, number, reason)

    async def end_calls(self) -> None:
        """Wait until calls that were given up have ended and closed their objects. One that does not stop is left behind."""
        until = self._loop.time() + _STOPPING
        while self._given_up or self._abandoned:
            if self._lingering() and self._loop.time() >= until:
                return
            await asyncio.sleep(_LOOK)

    def _lingering(self) -> int:
        return len(_running(self._given_up)) + len(_running(self._abandoned))

    async def _serve(self, frame: Frame) -> None:
        """Serve a call and return the answer. The command begins as late as possible, so that waiting calls can move."""
        number = frame.number
        self._calls[number] = asyncio.current_task(self._loop)  # pyright: ignore[reportArgumentType] - a cast costs a call
        try:
            kind, head, body = await self._answer_to(number, frame.head, frame.body)
            if number in self._progress_held:
                self._send_progress()
            self.link.send(kind, number, head, body, more=len(self._calls) > 1)
        finally:
            self._ended(number)
            if len(frame.body) >= LARGE:
                give_back_soon()

    async def _answer_to(self, number: int, head: bytes, text: bytes) -> tuple[Kind, bytes, bytes]:
        command = "a call"
        try:
            parsed = self._heads.get(head) or self._parsed(head)
            how = parsed.how
            command = how["command"]
            output.command.set(output.label_of_call(number, command))
            entry = self._runtime.known(command) or await self._found(command)
            if self._runtime.loaded is not self._loaded:
                self._send_loaded()
            if not self._board.start(number):  # withdrawn, or retired: the host gives this call to another worker
                return Kind.UNBEGUN, b"", b""  # it may have seen the mark and think that the call has begun
            if entry is None:
                return self._unknown(command)
            if (argument := how.get("completes")) is not None:
                outcome = await entry.complete(argument, _read(text), self._channel(number, parsed))
            else:
                channel = self._channel(number, parsed)
                if entry.may_wait:
                    channel.waits, channel.goes_on = (
                        partial(self._board.pause, number),
                        partial(self._board.start, number),
                    )
                outcome = await entry.call(JsonText(text), channel)
            return self._written(number, outcome, how)
        except Withdrawn:
            return Kind.UNBEGUN, b"", b""
        except asyncio.CancelledError:
            if self._calls[number] in self._given_up:
                raise
            return _failure("crashed", f"{command} was cancelled from inside")
        except BaseException as error:  # noqa: BLE001 - an exit raised by a provider or validator ends only its call
            _log.exception("%s crashed", command)
            return _failure("crashed", f"{type(error).__name__}: {message_of(error)}")

    def _parsed(self, text: bytes) -> _Head:
        """Parse the head of a call. Most heads of a client are equal, so they are kept."""
        head = _Head.of(_read(text))
        if len(self._heads) < _MOST_HEADS and not head.how.keys() & _OF_ONE_CALL:
            self._heads[text] = head
        return head

    async def _found(self, command: str) -> Entry | None:
        """Import the skill of a command. The import continues if the call is cancelled, so that the next call can use it."""
        finding = asyncio.get_running_loop().create_task(self._runtime.find(command, everywhere=False))
        self._background.add(finding)
        finding.add_done_callback(self._end_of_background)
        return await asyncio.shield(finding)

    def _written(self, number: int, outcome: Outcome, how: CallHead) -> tuple[Kind, bytes, bytes]:
        """The frame that answers a call."""
        try:
            answer = _answer(outcome, how)
            most = how.get("most")
            if not most or len(answer[2]) <= most:
                return answer
            return self._cut(number, outcome, how, most) or answer
        except Exception as error:  # noqa: BLE001 - a payload may hold data that is not JSON
            _log.exception("%s returned a result that cannot be sent", how["command"])
            return _failure("output", f"{how['command']}: the result cannot be sent: {message_of(error)}")

    def _unknown(self, command: str) -> tuple[Kind, bytes, bytes]:
        """Refuse an unknown command: it was just removed, or its skill failed to load."""
        reasons = self._runtime.reasons(command)
        message = "; ".join([str(UnknownCommand(command)), *reasons])
        head: RefusedHead = {"kind": "unknown", "message": encodable(message), "broken": bool(reasons)}
        return Kind.REFUSED, to_json(head), b""

    def _cut(self, number: int, outcome: Outcome, how: CallHead, most: int) -> tuple[Kind, bytes, bytes] | None:
        """Cut a result that is too large, and send the whole text to the host. `None` if it fits."""
        profile, boxed = how.get("profile"), how.get("boxed", True)
        payload = outcome.payload(profile, boxed=boxed)
        promised = outcome.shows_schema(profile, boxed=boxed)
        part = cut(payload, most, how.get("kept", 0), promised=promised)
        if part is None:
            return None
        if part.text:
            rest: RestHead = {"token": part.token}
            self.link.send(Kind.REST, number, to_json(rest), part.text)
        return Kind.RESULT, to_json({**payload.get("_meta", {}), **part.meta}), to_json(part.payload)

    # During a call

    def _channel(self, number: int, head: _Head) -> Channel:
        how = head.how
        channel = Channel(
            call_id=how.get("call_id") or (self._mark and f"{self._mark}{number:x}"),
            secrets=self._send_secrets,
            updated=self._send_updated,
            shared=self._shared,
            **head.of_channel,
        )
        if head.listens:
            self._listen_to(number, how, channel)
        return channel

    def _listen_to(self, number: int, how: CallHead, channel: Channel) -> None:
        """Send the client what it wants to hear of the call."""
        if how.get("asks"):
            channel.ask = partial(self._ask, number)
        if "asks_for" in how:
            channel.asks = frozenset(how["asks_for"])
            channel.url_done = partial(self._url_done, number)
        if how.get("background"):
            channel.background = partial(self._go_into_background, number, channel)
        if how.get("progress"):
            channel.progress = partial(self._progress, number)
        if how.get("log"):
            channel.log = partial(self._send_log, number)

    def _progress(self, number: int, done: float, total: float | None, message: str | None) -> None:
        so_far = _number(done)
        if so_far is None:
            return
        text = message if message is None else encodable(str(message))
        head: ProgressHead = {"done": so_far, "total": _number(total), "message": text}
        self._progress_held[number] = to_json(head)
        if not self.link.full:
            self._send_progress()

    def _send_progress(self) -> None:
        """Send the progress that was held back: the newest of each call."""
        for number in list(self._progress_held):
            self.link.send(Kind.PROGRESS, number, self._progress_held.pop(number))

    def _send_log(self, number: int, level: str, data: Any) -> None:
        try:
            text = to_json(_log_head(level, data), fallback=repr, inf_nan_mode="constants")
            from_json(text, allow_inf_nan=False)
        except ValueError:
            text = to_json(_log_head(level, encodable(repr(data))))
        if self.link.full:
            self._logs_lost += 1
            return
        if self._logs_lost:
            lost, self._logs_lost = self._logs_lost, 0
            note = f"{lost} log messages were dropped: they came faster than the host could read"
            self.link.send(Kind.LOG, number, to_json(_log_head("warning", note)))
        self.link.send(Kind.LOG, number, text)

    def _send_secrets(self, texts: list[str]) -> None:
        """Send new injected texts before the command begins. Most calls get the same ones as earlier calls."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._secrets]
        if fresh:
            if len(self._secrets) > _MOST_SECRETS:
                self._secrets.clear()
            self._secrets.update(fresh)
            head: SecretsHead = {"texts": fresh}
            self.link.send(Kind.SECRETS, 0, json.dumps(head).encode())

    def _send_updated(self, uri: str) -> None:
        head: UpdatedHead = {"uri": encodable(uri)}
        self.link.send(Kind.UPDATED, 0, to_json(head))

    async def _ask(self, number: int, questions: Questions) -> Mapping[str, JsonObject]:
        future: asyncio.Future[Mapping[str, JsonObject]] = asyncio.get_running_loop().create_future()
        waiting = self._asking.setdefault(number, {})
        waiting[future] = questions
        self.link.send(Kind.QUESTIONS, number, to_json(questions))
        try:
            return await future
        except BaseException:
            if number in self._calls and self._calls[number] not in self._given_up:
                head: UnaskedHead = {"keys": list(questions)}
                self.link.send(Kind.UNASKED, number, to_json(head))
            raise
        finally:
            del waiting[future]
            if not waiting:
                self._asking.pop(number, None)

    def _url_done(self, number: int, key: str) -> None:
        head: UrlDoneHead = {"key": encodable(key)}
        self.link.send(Kind.URL_DONE, number, to_json(head))

    def _go_into_background(self, number: int, channel: Channel) -> None:
        """The call continues in the background, so it waits for the answers to its questions."""
        channel.ask = partial(self._ask, number)
        self.link.send(Kind.BACKGROUND, number)

    def _answered(self, frame: Frame) -> None:
        head: AnswersHead
        try:
            head = _read(frame.head)
        except (RecursionError, ValueError) as error:
            head = {"error": f"the answer cannot be read: {error}"}
        self._give(frame.number, head)

    def _give(self, number: int, head: AnswersHead) -> None:
        """Pass answers to the task that asked for all of their keys, or an error to all tasks that wait."""
        for future, questions in list(self._asking.get(number, {}).items()):
            if future.done():
                continue
            if "answers" not in head:
                future.set_exception(AskError(str(head.get("error"))))
            elif questions.keys() <= head["answers"].keys():
                future.set_result(head["answers"])

    # The catalog

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._watchdog.wake()
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._end_of_background)

    def _end_of_background(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        _ = task.cancelled() or task.exception()  # retrieves the exception, in case no task waits

    async def _describe(self, request: DescribeHead) -> None:
        try:
            description, sources = await asyncio.to_thread(self._described, request)
            self._reported.update(description.skills)
            text = json.dumps(description.to_json())  # pydantic refuses file names that are not Unicode
            self.link.send(Kind.CATALOG, 0, text.encode(), sources)
            prepare()  # while the host and its client read the list, and before they call
        except BaseException as error:  # noqa: BLE001 - the host must not wait for ever
            _log.exception("the catalog could not be made")
            self.link.send(Kind.FAILED, 0, _failed(f"{type(error).__name__}: {message_of(error)}"))

    def _described(self, request: DescribeHead) -> tuple[Description, bytes]:
        """Describe the requested skills, with their sources."""
        only = request.get("only")
        if only is not None:
            description = self._runtime.describe_part(only)
        else:
            description = self._runtime.describe(request["known"], most=request.get("most"))
        files = {path for facts in description.skills.values() if facts.place for path in facts.files}
        return description, pack(self._runtime.texts_of(path for path in sorted(files) if path.endswith(".py")))

    def _send_loaded(self) -> None:
        """Send the digests of newly imported skills, which the host compares with its manifest."""
        self._loaded = loaded = self._runtime.loaded
        fresh = loaded.keys() - self._reported
        if fresh:
            self._reported |= fresh
            head: LiveHead = {"digests": {skill: digest_of(loaded[skill]) for skill in fresh}}
            self.link.send(Kind.LIVE, 0, to_json(head))


def _running(left: Iterable[Hashable]) -> list[Hashable]:
    """The tasks and threads that still run, without those that close the objects of their call."""
    return [each for each in (*left,) if not (is_closing(each) or (isinstance(each, asyncio.Task) and each.done()))]


def _read(text: bytes) -> Any:
    """JSON with data of a client. pydantic refuses what is nested more than 200 deep, which clients may send."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _reason(frame: Frame) -> str | None:
    """The message of a cancellation, from the reason of the host."""
    head: CancelHead | None = from_json(frame.head) if frame.head else None
    return TIMED_OUT if head and head["late"] else None


def _given(frame: Frame) -> Given:
    """The sources of a skill in a SOURCE frame."""
    head: SourceHead = json.loads(frame.head)
    source = Source(head["skill"], Path(head["place"]), tuple(map(Path, head["own"])), head["has_hooks"])
    return Given(source, unpack(frame.body), head["kept"])


def _answer(outcome: Outcome, how: CallHead) -> tuple[Kind, bytes, bytes]:
    """An outcome as a frame."""
    if outcome.kind == "input_required":
        return Kind.INPUT_REQUIRED, to_json(outcome.questions), b""
    if outcome.missing_capability is not None and how.get("answers") is not None:
        head: RefusedHead = {"kind": "missing_capability", "name": outcome.missing_capability, "message": outcome.text}
        return Kind.REFUSED, to_json(head), b""
    if how.get("outcome"):
        facts, body = write_outcome(outcome)
        return Kind.RESULT, to_json(facts), to_json(body)
    payload = outcome.payload(how.get("profile"), boxed=how.get("boxed", True))
    meta = payload.pop("_meta", None)
    return Kind.RESULT, to_json(meta) if meta else b"{}", to_json(payload)


def _failure(kind: str, text: str) -> tuple[Kind, bytes, bytes]:
    payload = {"content": [{"type": "text", "text": encodable(text)}], "isError": True}
    return Kind.RESULT, to_json({META_KIND: kind}), to_json(payload)


def _failed(message: str) -> bytes:
    head: FailedHead = {**hello(), "message": encodable(message)}
    return to_json(head)


def _log_head(level: str, data: Any) -> LogHead:
    return {"level": level, "data": data}


def _number(value: Any) -> int | float | None:
    """A number that JSON can express, or `None`."""
    if type(value) is int:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


async def serve(sock: socket.socket, shared: Board | None, root: Path, *, guarded: bool = False) -> int:
    """Serve one host until it is gone, and return the exit code. Without a shared board, frames replace it.

    `guarded` says whether a guard kills this process and its children after the host has ended.
    """
    try:
        begin = receive(sock)
    except EOFError:  # the host is already gone
        return 0
    return await serve_begun(sock, shared or Stream(sock), root, begin.head, guarded=guarded)


async def serve_begun(
    sock: socket.socket, board: Board | Stream, root: Path, head: bytes, *, guarded: bool = False
) -> int:
    """The same after reading the first frame."""
    try:
        begin: BeginHead = from_json(head)
        _check_version(begin)
        settings = _settings(root, begin)
        share = Share(begin.get("only"), begin.get("without", ()), begin.get("sent", {}), settings.sandbox.packages())
        runtime = Runtime(root, settings=settings, on_import=Imports(board), share=share)
        watchdog = Watchdog(runtime.settings.own.host.stall_limit, board.beat)
        watchdog.start()
    except Exception as error:  # noqa: BLE001 - reported to the host
        _log.error("%s", message_of(error))
        await _fail(sock, message_of(error))
        return 1
    worker = LinkServer(runtime, board, watchdog, begin.get("mark", ""), begin.get("shares", ""))
    with runtime.as_current():  # for every call, whose context is a copy of this one
        await worker.listen(sock)
    await worker.gone.wait()
    with anyio.move_on_after(_LEAVING):
        await worker.end_calls()
        await runtime.aclose()
    if guarded and worker.lost:
        await _wait_for_guard()
    return 0


async def _wait_for_guard() -> None:
    """Stay while there are children: the guard finds them through this process, and kills them with it."""
    with anyio.move_on_after(_GUARD):
        while _has_children():  # noqa: ASYNC110 - nothing tells of the end of a stranger's child
            await asyncio.sleep(_LOOK)


def _has_children() -> bool:
    """Whether this process has children that have not ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _check_version(begin: BeginHead) -> None:
    """Check the version of the host. The host checks ours too, except hosts older than that check."""
    why = mismatch(begin, hello(), sys.executable)
    if why:
        raise ChildProcessError(why)


def _settings(root: Path, begin: BeginHead) -> Settings:
    """The settings of the host, even if the files have changed since."""
    settings = Settings.read_again(root, Written(*(begin["written"] or ())), environ=os.environ, flags=begin["flags"])
    for name, value in {
        **settings.dotenv,
        **begin.get("environ", {}),
    }.items():  # for libraries that read the environment
        if not name.upper().startswith(PREFIX):
            os.environ.setdefault(name, value)
    return settings


class Imports:
    """Keeps the list of running imports on the board. Several threads may import different skills at once."""

    def __init__(self, board: Board | Stream) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._going_on: dict[str, Importing] = {}

    def __call__(self, skill: str, file: str) -> None:
        """Note that the import of a file begins; an empty file means that the skill is imported."""
        output.importing.set(skill if file else "")
        with self._lock:
            self._going_on.pop(skill, None)
            if file:
                self._going_on[skill] = Importing(time.time_ns(), skill, file)
            self._board.note(self._going_on.values())


async def _fail(sock: socket.socket, reason: str) -> None:
    link = Link(lambda _: None, lambda: None)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
    link.send(Kind.FAILED, 0, _failed(reason))


def main(argv: list[str] | None = None) -> None:
    """Run a worker. The descriptors and the project come as arguments, everything else over the link."""
    share_one_heap()
    link, board, root, *more = argv if argv is not None else sys.argv[1:]
    finish = output.label_output() if more else _no_labels
    faulthandler.enable(2)
    log_to_stderr()
    shared = None if board == "-" else Board(int(board))
    _keep_from_children(int(link), *([] if shared is None else [shared.fd]))
    can_import_project(root)
    skip_search_of_pydantic()
    groups.mend()
    os.environ.setdefault("MPLBACKEND", "agg")  # a worker has no window for plots
    code = 1
    try:
        # The loop is never closed: abandoned tasks and threads must not delay the exit.
        serving = serve(socket.socket(fileno=int(link)), shared, Path(root), guarded=bool(more))
        code = asyncio.Runner(loop_factory=new_loop).run(serving)
    except BaseException:  # noqa: BLE001 - logged here, because the process ends at once
        _log.exception("the worker failed")
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        sys.stdout.flush()  # pragma: no cover - measuring has ended as well
        finish(_LAST_WORDS)  # pragma: no cover - as above
    os._exit(code)  # pragma: no cover - see above


def can_import_project(root: str) -> None:
    """Let skills import modules of the project, which come after all installed ones."""
    if root not in sys.path:
        sys.path.append(root)
    distrust_bytecode_of(Path(root))


def _no_labels(_seconds: float) -> None:
    """Replaces the function of `label_output` in a worker whose output has no labels."""


def _keep_from_children(*fds: int) -> None:
    """Replace these descriptors by the null device in forked children, which must not write to them or keep them open."""

    def part() -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            os.dup2(nothing, fd, inheritable=False)
        os.close(nothing)

    for fd in fds:
        os.set_inheritable(fd, False)
    os.register_at_fork(after_in_child=part)
