"""The host: one client on one wire, its session, what it is offered, and the workers behind it. It never imports a skill."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from prowess.errors import did_you_mean
from prowess.jsontypes import JsonObject
from prowess.memory import LARGE, give_back_soon
from prowess.paths import ConfigPaths
from prowess.settings import Settings
from prowess_host.codec import decode, dumps
from prowess_host.jobs import Job
from prowess_host.learning import Learner
from prowess_host.lines import LineSplitter, Oversized
from prowess_host.offer import DIAGNOSTICS, Offer
from prowess_host.routing import Action, Answered, Cancelled, Group, Reply, route
from prowess_host.rpc import EncodeError, RpcError
from prowess_host.server import Server
from prowess_host.session import Call, Session
from prowess_host.tasks import Sealing, ToolCall, load_key
from prowess_host.wire import Claim, Reader, Writer

__all__ = ["Host", "serve"]

_log = logging.getLogger("prowess.host")
_FLUSH: Final = 0.5
_LOOK_AGAIN: Final = 0.25
"""Seconds until a client that does not read is looked after again."""
_MOST_NOTICES: Final = 1024 * 1024
"""Bytes that may wait for a client before progress and logs are dropped: they are of the moment, answers are not."""
_KEEPING: Final = 1.0
"""Seconds that writing the manifest may take when the host leaves."""
_NOT_YET: Final = 10.0
"""Seconds that the first answers are waited for at end of input, when the worker is still coming up."""


class Host:
    """Serves one client until it leaves."""

    def __init__(
        self, wire: Claim, settings: Settings, server: Server, flags: JsonObject, environ: Mapping[str, str]
    ) -> None:
        self._session = Session(server)
        self._writer = Writer(wire.writing, self._broken)
        self._reader = Reader(wire.reading, self._on_bytes)
        self._splitter = LineSplitter(settings.own.host.max_line)
        paths = ConfigPaths.of(settings, environ)
        self._learner = Learner(paths, settings, flags, environ, self._show)
        self._supervisor = self._learner.supervisor
        self._sealing = Sealing(lambda: load_key(paths.get_cache_dir), time.time)
        self._offer = Offer.nothing()
        self._awaiting_offer: list[Call] = []
        self._jobs: dict[Call, tuple[ToolCall, Job]] = {}
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._broke = False
        self.exit_code = 0

    async def run(self) -> int:
        """Serve; gives the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled, number)
        self._reader.start()
        learning = self._loop.create_task(self._learn())
        await self._ended.wait()
        await self._drain()
        learning.cancel()
        await self._leave()
        return self.exit_code

    async def _learn(self) -> None:
        try:
            await self._learner.run()
        except Exception:  # noqa: BLE001 - a fault of ours: what is offered by now goes on
            _log.exception("the skills are no longer watched")
            self._show(self._offer.failing("the skills are no longer watched, because of a fault in the host"))

    # Input

    def _on_bytes(self, data: bytes) -> None:
        lines = self._splitter.feed(data) if data else self._splitter.close()
        now = self._loop.time()
        for line in lines:
            if isinstance(line, Oversized) or len(line) >= LARGE:
                give_back_soon()
            try:
                self._act(route(decode(line), self._session, now))
            except Exception:  # noqa: BLE001 - a fault of ours costs one message, never the ones after it
                _log.exception("a message could not be served")
        if not data:
            self._ended.set()
        elif self._writer.full:
            self._reader.pause()
            self._loop.call_later(_LOOK_AGAIN, self._resume_reading)

    def _resume_reading(self) -> None:
        """Read on when the client has read, or has left."""
        if self._ended.is_set():
            return
        if self._writer.full and not self._reader.left:
            self._loop.call_later(_LOOK_AGAIN, self._resume_reading)
        else:
            self._reader.start()

    def _act(self, action: Action) -> None:
        if isinstance(action, Call):
            self._serve(action)
        elif isinstance(action, Reply):
            self._writer.write(action.line)
        elif isinstance(action, Cancelled):
            self._cancel(action)
        elif isinstance(action, Answered):
            self._answered(action)
        elif isinstance(action, Group):
            for each in action.actions:
                self._act(each)

    def _serve(self, call: Call) -> None:
        tools = self._offer.tools
        listing = call.method == "tools/list"
        if tools is None and (listing or self._offer[call.params["name"]] is None):
            self._awaiting_offer.append(call)
            return
        try:
            if tools is not None and listing:
                body = tools.page(call.params.get("cursor"), call.revision)
                self._writer.write(self._session.answer(call, body))
            else:
                self._invoke(call)
            self._learner.asked.set()
        except RpcError as error:
            self._writer.write(self._session.refuse(call, error))
        except EncodeError as error:
            self._say(call, f"Invalid arguments: {error}", is_error=True)
        except Exception:  # noqa: BLE001 - as above, and whoever asked is told
            _log.exception("%s could not be served", call.method)
            self._writer.write(self._session.refuse(call, RpcError.internal("see the log of the host")))

    def _invoke(self, call: Call) -> None:
        name: str = call.params["name"]
        contract = self._offer[name]
        if contract is None:
            self._invoke_unknown(call, name)
            return
        task = ToolCall(
            call, contract, self._session, self._supervisor, self._write_for(call), self._notify, self._sealing
        )
        own = self._learner.own
        seconds = contract.policies.timeout if contract.policies.timeout is not None else own.timeout
        job = task.job(own.profile, seconds)
        self._jobs[call] = (task, job)
        self._supervisor.submit(job)

    def _invoke_unknown(self, call: Call, name: str) -> None:
        """Say what is broken, where that is asked for, or where nothing is known because of it."""
        failures = self._offer.catalog.failures
        text = "\n".join(map(str, failures))
        if name == DIAGNOSTICS and failures:
            self._say(call, text)
        elif failures and not self._offer.catalog.contracts:
            self._say(call, f"{name} cannot be called, because nothing could be loaded:\n{text}", is_error=True)
        else:
            raise RpcError.unknown_tool(name, did_you_mean(name, self._offer.names))

    def _say(self, call: Call, text: str, *, is_error: bool = False) -> None:
        text = text.encode("utf-8", "backslashreplace").decode()
        body = dumps({"content": [{"type": "text", "text": text}], "isError": is_error})
        self._writer.write(self._session.answer(call, body))

    def _write_for(self, call: Call) -> Callable[[bytes], None]:
        def write(line: bytes) -> None:
            self._writer.write(line, more=len(self._jobs) > 1)
            if not self._session.is_open(call):
                self._jobs.pop(call, None)

        return write

    def _notify(self, line: bytes) -> None:
        if self._writer.backlog < _MOST_NOTICES:
            self._writer.write(line)

    def _cancel(self, cancelled: Cancelled) -> None:
        self._writer.write(cancelled.line)
        held = self._jobs.pop(cancelled.call, None)
        if held is not None:
            self._supervisor.cancel(held[1])

    def _answered(self, answered: Answered) -> None:
        held = self._jobs.get(answered.call)
        if held is not None:
            task, job = held
            task.answered(job, answered.question, answered.result, answered.error)

    # The offer

    def _show(self, offer: Offer) -> None:
        """Offer this from now on; clients hear of it only if what they can see has changed."""
        before, self._offer = self._offer.tools, offer
        waiting, self._awaiting_offer = self._awaiting_offer, []
        for call in waiting:
            if self._session.is_open(call):
                self._serve(call)
        if before is not None and offer.tools is not None and before.digest != offer.tools.digest:
            for line in self._session.list_changed():
                self._writer.write(line)

    # Leaving

    def _signalled(self, number: int) -> None:
        """Leave in good order; at a second signal, or when we are leaving already, at once."""
        self.exit_code = 128 + number
        if self._ended.is_set():
            os._exit(self.exit_code)  # the guards of the workers see to the rest
        self._ended.set()

    def _broken(self) -> None:
        """The client does not read any more."""
        self._broke = True
        self._ended.set()

    async def _drain(self) -> None:
        """No new requests; what runs may finish, within bounds."""
        self._reader.pause()
        if not self.exit_code:
            await self._until(lambda: self._offer.tools is not None, _NOT_YET)
        await self._until(lambda: not self._supervisor.busy, self._learner.own.host.drain)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while self._session.in_flight and not done() and not self._broke and self._loop.time() < deadline:  # noqa: ASYNC110 - once in a session
            await asyncio.sleep(0.005)

    async def _leave(self) -> None:
        """Everything ends."""
        for line in self._session.end_subscriptions():
            self._writer.write(line)
        await self._supervisor.close()
        for call in list(self._session.in_flight.values()):
            self._writer.write(self._session.refuse(call, RpcError.internal("the host is leaving")))
        self._writer.flush(0.0 if self._broke else _FLUSH)
        await self._learner.close(_KEEPING)


async def serve(wire: Claim, settings: Settings, version: str, flags: JsonObject, environ: Mapping[str, str]) -> int:
    """Serve the client at a claimed wire; gives the exit code."""
    name = settings.root.name.encode("utf-8", "replace").decode() or "prowess"
    return await Host(wire, settings, Server(name, version), flags, environ).run()
