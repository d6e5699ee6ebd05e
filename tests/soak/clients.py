"""A client that trusts nothing: it owns one host, keeps count of every id, and checks every line.

`tests/prowess_host/piped.py` is the client of the other tests. This one differs in what a long run needs: it keeps nothing
for ever, writes batches, knows that an answer and a cancellation may cross, and goes on after a fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from health import MARK, workers
from journal import Journal
from mcp_types import jsonrpc, methods
from patience import PATIENCE

__all__ = ["ASKING", "BATCHES", "PATIENCE", "STATELESS", "Client", "Gone", "Habits", "Message", "Pending"]

STATELESS = "2026-07-28"
BATCHES = "2025-03-26"
ASKING = frozenset({"2025-06-18", "2025-11-25", STATELESS})
LIST_CHANGED = "notifications/tools/list_changed"
_PREFIX = "io.modelcontextprotocol"
_MOST_UNSENT = 4 * 1024 * 1024

Message = dict[str, Any]


class Gone(Exception):
    """The host has left before it answered."""


@dataclass(slots=True, eq=False)
class Pending:
    """A request that has no answer yet."""

    id: int | str
    method: str
    version: str
    token: str
    answer: asyncio.Future[Message | None]
    """`None` where it was cancelled and the host knew that in time."""
    reply: Message | None = None
    """What to answer when the host asks on behalf of this call."""
    batch: Batch | None = None
    cancelled: bool = False
    progress: float = 0.0


@dataclass(slots=True, eq=False)
class Batch:
    """Requests whose answers come in one array."""

    waiting: set[int | str] = field(default_factory=set[int | str])
    optional: set[int | str] = field(default_factory=set[int | str])
    """Cancelled ones: answered already, perhaps, when the host heard of that."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a client treats the two pipes that it should read."""

    reads: str = "at once"
    """Or `slowly`, through a pipe as small as can be, or `never`, once it has its first answer."""
    reads_stderr: bool = True


class _Lines(asyncio.Protocol):
    """Cuts what the host says into lines."""

    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._parts: list[bytes] = []
        self._rest = 0.0
        """Seconds between two reads."""
        self._transport: asyncio.ReadTransport

    def read_slowly(self, transport: asyncio.ReadTransport) -> None:
        self._rest, self._transport = 0.002, transport

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(self._rest, self._go_on)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._parts.append(line)
            whole = b"".join(self._parts)
            self._parts.clear()
            self._on_line(whole)
        if rest:
            self._parts.append(rest)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._on_end(b"".join(self._parts))


_READS_EVERYTHING = Habits()


class Client:
    """One host and everything it owes."""

    is_web = False
    """Whether it speaks HTTP, to a server of its own."""

    def __init__(
        self, name: str, version: str, folder: Path, *, mixed: bool = False, habits: Habits = _READS_EVERYTHING
    ) -> None:
        self.name = name
        self.habits = habits
        self.version = version
        self.mixed = mixed
        """Speaks both eras on one connection."""
        self.mark = uuid.uuid4().hex
        self.journal = Journal(folder / f"{name}.journal")
        self.log = folder / f"{name}.log"
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.pending: dict[int | str, Pending] = {}
        self.tokens: dict[str, Pending] = {}
        self.listening = False
        self.leaving = False
        self.may_miss_some = habits.reads == "never"
        """The host need not wait until this client has read everything."""
        self.changes = 0
        """How often the host said that the list of tools has changed."""
        self.on_list: Callable[[list[Message]], None] = lambda _: None
        """Told of every list of tools."""
        self.events: deque[str] = deque(maxlen=400)
        self._journal_path = folder / f"{name}.journal"
        self._number = 0
        self._listed: tuple[str, int] | None = None
        self._asked: set[int] = set()
        self._batches: dict[int | str, Batch] = {}
        self._complaints_due = 0
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # Beginning and end

    async def start(self, project: Path, environment: Mapping[str, str], folder: Path) -> None:
        """Start the host in a folder that is not the project's."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond
                [sys.executable, "-m", "prowess_host", "--project", str(project)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log if self.habits.reads_stderr else subprocess.PIPE,
                bufsize=0,
                cwd=folder,
                env={
                    **os.environ,
                    **environment,
                    MARK: self.mark,
                    "SOAK_JOURNAL": str(self._journal_path),
                    "PYTHONFAULTHANDLER": "1",
                },
            )
        lines = _Lines(self._on_line, self._on_end)
        self._reading, _ = await self._loop.connect_read_pipe(lambda: lines, self.process.stdout)
        if self.habits.reads == "slowly":
            fcntl.fcntl(self.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
            lines.read_slowly(self._reading)
        self._writing, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, self.process.stdin)
        self._writing.set_write_buffer_limits(high=1 << 40)

    async def open(self) -> None:
        """The handshake, or what stands for it."""
        if self.version != STATELESS:
            await self.ask(
                "initialize",
                protocolVersion=self.version,
                capabilities={"elicitation": {}},
                clientInfo={"name": self.name, "version": "1"},
            )
            self.notify("notifications/initialized")
        else:
            await self.ask("server/discover")
        if self.habits.reads == "never":
            self._reading.pause_reading()

    def close_input(self) -> None:
        """Say goodbye."""
        self.leaving = True
        self._event("-- end of input")
        self._writing.close()

    async def ended(self) -> int:
        """The exit code, when everything the host said is read."""
        async with asyncio.timeout(PATIENCE):
            code = await asyncio.to_thread(self.process.wait)
        if self.habits.reads == "never" and not self._reading.is_closing():
            self._reading.resume_reading()
        async with asyncio.timeout(PATIENCE):
            await self._ended.wait()
        self.journal.read()
        return code

    def release(self) -> None:
        """Let go of everything, also after a fault."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self._writing.is_closing():
            self._writing.abort()
        self._reading.close()
        self.journal.close()
        if self.process.stderr is not None:
            self.process.stderr.close()

    # Speaking

    def token(self) -> str:
        """What tells a call and all that belongs to it from any other."""
        self._number += 1
        return f"{self.name}-{self._number}"

    def prepare(self, method: str, params: Message, token: str = "", version: str = "") -> tuple[Pending, Message]:
        """A request that is about to be sent."""
        if self.leaving:
            raise Gone
        self._number += 1
        number: int | str = self._number if self._number % 3 else f"id {self._number} ü"
        version = version or self.version
        pending = Pending(number, method, version, token, self._loop.create_future())
        self.pending[number] = pending
        if token:
            self.tokens[token] = pending
        if version == STATELESS:
            params = {**params, "_meta": {**_envelope(self.name), **params.get("_meta", {})}}
        return pending, {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def request(self, method: str, params: Message, token: str = "", version: str = "") -> Pending:
        """Send a request."""
        pending, message = self.prepare(method, params, token, version)
        self.send(message)
        return pending

    def batch(self, requests: list[tuple[Pending, Message]], others: list[Message]) -> None:
        """Send requests and other messages in one array."""
        batch = Batch({pending.id for pending, _ in requests})
        for pending, _ in requests:
            pending.batch = batch
            self._batches[pending.id] = batch
        self.send([*(message for _, message in requests), *others])

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def send(self, message: Any) -> None:
        """Send one line."""
        data = json.dumps(message, ensure_ascii=False).encode()
        self.write(data)

    def write(self, line: bytes, *, complaint: bool = False) -> None:
        """Send one line of bytes, which the host may complain about without an id."""
        if self.leaving:
            raise Gone
        self._complaints_due += complaint
        self._event(f"> {line[:200]!r}")
        self._writing.write(line + b"\n")

    async def room(self) -> None:
        """Wait until the host has read most of what was sent."""
        while self._writing.get_write_buffer_size() > _MOST_UNSENT and not self._ended.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def settle(self, pending: Pending) -> Message | None:
        """The answer to a request; `None` if it was cancelled in time."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await pending.answer
        except TimeoutError:
            self.fault(f"no answer: {pending.method} {pending.id!r} {pending.token}")
            self.autopsy()
            raise Gone from None

    async def ask(self, method: str, **params: Any) -> Message:
        """The result of a request that succeeds."""
        answer = await self.settle(self.request(method, params))
        if answer is None or "result" not in answer:
            self.fault(f"{method} was refused: {answer}")
            raise Gone
        return answer["result"]

    async def cancel(self, pending: Pending) -> None:
        """Give up a request. When the host has read that, no answer comes any more."""
        pending.cancelled = True
        if pending.batch is not None:
            pending.batch.optional.add(pending.id)
        self.notify("notifications/cancelled", requestId=pending.id, reason="soak")
        await self.barrier()
        if not pending.answer.done():
            self._forget(pending)
            pending.answer.set_result(None)
            self.counts["cancelled"] += 1

    async def barrier(self) -> None:
        """Wait until the host has read everything that was sent."""
        await self.ask("server/discover" if self.version == STATELESS else "ping")

    async def stop_reading(self, seconds: float) -> None:
        """Be a client that is busy with something else."""
        self._reading.pause_reading()
        await asyncio.sleep(seconds)
        if not self._reading.is_closing():
            self._reading.resume_reading()

    # Listening

    def _on_line(self, line: bytes) -> None:
        self._event(f"< {line[:200]!r}")
        try:
            self._take(json.loads(line.decode()))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is a fault
            self.fault(f"{type(error).__name__}: {error} in {line[:500]!r}")

    def _on_end(self, rest: bytes) -> None:
        if rest and not self.may_miss_some:
            self.fault(f"an unfinished line: {rest[:200]!r}")
        self._event("-- end of output")
        self._ended.set()
        for pending in list(self.pending.values()):
            if not pending.answer.done():
                pending.answer.set_exception(Gone())
                pending.answer.exception()

    def _take(self, data: Any) -> None:
        self.counts["lines"] += 1
        if isinstance(data, list):
            self._take_batch(data)
        else:
            self._take_message(data)

    def _take_batch(self, messages: list[Message]) -> None:
        """Every array answers one batch of ours, whole."""
        ids = {message["id"] for message in messages if "id" in message}
        batch = next((self._batches[number] for number in ids if number in self._batches), None)
        assert batch is not None, f"an array that answers no batch: {ids}"
        for number in batch.waiting:
            del self._batches[number]
        assert batch.waiting - batch.optional <= ids <= batch.waiting, f"{batch.waiting} answered by {ids}"
        for message in messages:
            if message.get("id") in self.pending or message.get("id") not in batch.optional:
                self._take_message(message, batch)

    def _take_message(self, message: Message, batch: Batch | None = None) -> None:
        known = message if "id" in message or "method" in message else {**message, "id": None}
        jsonrpc.jsonrpc_message_adapter.validate_python(known)  # the types know null where the schemas leave the id out
        if "method" not in message:
            self._take_answer(message, batch)
        elif "id" in message:
            self._take_question(message)
        else:
            self._take_notification(message["method"], message.get("params", {}))

    def _take_answer(self, message: Message, batch: Batch | None) -> None:
        if "id" not in message:
            self._complaints_due -= 1
            assert self._complaints_due >= 0, f"a complaint about nothing: {message}"
            return
        pending = self.pending[message["id"]]  # a KeyError is an answer that nobody waits for, or the second one
        assert pending.batch is batch, "a batch is answered in one array, and nothing else is"
        if "result" in message and not _is_of_task(pending.method, message["result"]):
            methods.validate_server_result(pending.method, pending.version, message["result"])
        self._forget(pending)
        if pending.method == "tools/list" and "result" in message:
            self.on_list(message["result"]["tools"])
            self._compare_lists(pending, message)
        self.counts["answered"] += 1
        self.counts["crossed"] += pending.cancelled
        if not pending.answer.done():
            pending.answer.set_result(message)

    def _compare_lists(self, pending: Pending, message: Message) -> None:
        """Two lists differ only if we have been told between them."""
        if pending.version != self.version or not self.told:
            return
        tools = json.dumps(message["result"]["tools"], sort_keys=True)
        if self._listed is not None and self._listed[0] != tools:
            assert self.changes > self._listed[1], "the tools have changed without a word"
        self._listed = (tools, self.changes)

    @property
    def told(self) -> bool:
        """Whether this client should hear of changes."""
        return self.version != STATELESS or self.listening

    def owed(self) -> list[str]:
        """Requests that should have been answered by now. A subscription is answered when it ends."""
        waiting = [pending for pending in self.pending.values() if not pending.cancelled]
        lasting = not self._ended.is_set()
        return [
            f"{pending.method} {pending.id!r} {pending.token}"
            for pending in waiting
            if not (lasting and pending.method == "subscriptions/listen")
        ]

    def _forget(self, pending: Pending) -> None:
        del self.pending[pending.id]
        self.tokens.pop(pending.token, None)

    def _take_question(self, message: Message) -> None:
        """The host asks on behalf of a call."""
        methods.parse_server_request(message["method"], self.version, message["params"])
        assert message["method"] == "elicitation/create"
        assert message["id"] not in self._asked, "the same question twice"
        self._asked.add(message["id"])
        token = message["params"]["message"].rpartition(" ")[2]
        pending = self.tokens[token]
        self.counts["questions"] += 1
        if pending.reply is not None and not self.leaving:
            self.send({"jsonrpc": "2.0", "id": message["id"], **pending.reply})

    def _take_notification(self, method: str, params: Message) -> None:
        tag = f"{_PREFIX}/subscriptionId"
        tagged = tag in params.get("_meta", {})
        version = STATELESS if tagged else self.version
        methods.parse_server_notification(method, version, params or None)
        self.counts[method] += 1
        if method == "notifications/progress":
            self._take_progress(params)
        elif method == "notifications/message":
            if isinstance(params["data"], str):
                assert "log messages were dropped" in params["data"], "a log that no skill made"
            else:
                assert params["data"]["token"] in self.tokens, "a log of a call that is over"
        elif method == "notifications/subscriptions/acknowledged":
            self.listening = True
        elif method == LIST_CHANGED:
            assert tagged == (self.version == STATELESS), "told in the manner of the other era"
            self.changes += 1
        elif method == "notifications/cancelled":
            assert params["requestId"] in self._asked or self.leaving, "withdraws what was never asked"
        else:
            raise AssertionError(f"unexpected {method}")

    def _take_progress(self, params: Message) -> None:
        pending = self.tokens[params["progressToken"]]
        assert params["progress"] > pending.progress, "progress that goes back"
        pending.progress = params["progress"]

    # Faults

    def autopsy(self) -> None:
        """Have the workers write into the log where they are, which ends them."""
        for pid in workers(self.process.pid):
            self.note(f"autopsy of {pid}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)

    def fault(self, text: str) -> None:
        """Something is wrong. The run is told by the end of the round."""
        self._event(f"!! {text}")
        if len(self.faults) < 20:
            self.faults.append(text)
            if len(self.faults) == 1:
                trace = self.log.with_suffix(".events")
                with contextlib.suppress(OSError):
                    trace.write_text("\n".join(self.events), "utf-8")

    def note(self, text: str) -> None:
        """Remember what happened around."""
        self._event(f"-- {text}")

    def _event(self, text: str) -> None:
        self.events.append(f"{time.monotonic():.3f} {text}")


def _is_of_task(method: str, result: Message) -> bool:
    """Whether a result belongs to the extension of tasks, which the types do not know."""
    return method.startswith("tasks/") or result.get("resultType") == "task"


def _envelope(name: str) -> Message:
    return {
        f"{_PREFIX}/protocolVersion": STATELESS,
        f"{_PREFIX}/clientCapabilities": {"elicitation": {}},
        f"{_PREFIX}/clientInfo": {"name": name, "version": "1"},
    }
