"""The host: one client on one wire, its session, the catalog, and the supervisor behind it. It never imports a skill."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prowess.catalog import Catalog, Failure
from prowess.contract import Contract
from prowess.errors import SettingsError, did_you_mean
from prowess.jsontypes import JsonObject
from prowess.memory import LARGE, give_back_soon
from prowess.paths import ConfigPaths
from prowess.profiles import BUILT_IN
from prowess.settings import Settings
from prowess_host.codec import decode, dumps
from prowess_host.lines import LineSplitter, Oversized
from prowess_host.routing import Action, Answered, Cancelled, Group, Reply, route
from prowess_host.rpc import EncodeError, RpcError
from prowess_host.server import Server
from prowess_host.session import Call, Session
from prowess_host.supervisor import Job, Supervisor
from prowess_host.tasks import Sealing, ToolCall, load_key
from prowess_host.tools import ToolList, define_tool
from prowess_host.watcher import Watcher
from prowess_host.wire import Claim, Reader, Writer

__all__ = ["Host", "serve"]

_log = logging.getLogger("prowess.host")
_FLUSH: Final = 0.5
_DIAGNOSTICS: Final = "prowess_diagnostics"
_LOOK_AGAIN: Final = 0.25
"""Seconds until a client that does not read is looked after again."""
_MOST_NOTICES: Final = 1024 * 1024
"""Bytes that may wait for a client before progress and logs are dropped: they are of the moment, answers are not."""
_LOADING: Final = 60.0
"""Seconds after which the tools are listed without the skills that are still being loaded."""
_NOT_YET: Final = 10.0
"""Seconds that the first answers are waited for at end of input, when the worker is still coming up."""


class Host:
    """Serves one client until it leaves."""

    def __init__(
        self, wire: Claim, settings: Settings, server: Server, flags: JsonObject, environ: Mapping[str, str]
    ) -> None:
        self._own = settings.own
        self._flags = flags
        self._environ = environ
        self._paths = ConfigPaths.of(settings, environ)
        self._session = Session(server)
        self._writer = Writer(wire.writing, self._broken)
        self._reader = Reader(wire.reading, self._on_bytes)
        self._splitter = LineSplitter(self._own.host.max_line)
        self._supervisor = Supervisor(self._paths.project_root, self._own, flags)
        self._sealing = Sealing(lambda: load_key(self._paths.get_cache_dir), time.time)
        self._catalog = Catalog()
        self._tools: ToolList | None = None
        self._names: dict[str, Contract] = {}
        self._awaiting_catalog: list[Call] = []
        self._jobs: dict[Call, tuple[ToolCall, Job]] = {}
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._broke = False
        self._watcher = Watcher(self._paths, self._renew, lambda: self._supervisor.files)
        self.exit_code = 0

    async def run(self) -> int:
        """Serve; gives the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled, number)
        self._supervisor.start()
        self._watcher.start()
        self._reader.start()
        describing = self._loop.create_task(self._describe())
        await self._ended.wait()
        await self._drain()
        describing.cancel()
        await self._leave()
        return self.exit_code

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
        if self._tools is None:
            self._awaiting_catalog.append(call)
            return
        try:
            if call.method == "tools/list":
                body = self._tools.page(call.params.get("cursor"), call.revision)
                self._writer.write(self._session.answer(call, body))
            else:
                self._invoke(call)
        except RpcError as error:
            self._writer.write(self._session.refuse(call, error))
        except EncodeError as error:
            self._say(call, f"Invalid arguments: {error}", is_error=True)
        except Exception:  # noqa: BLE001 - as above, and whoever asked is told
            _log.exception("%s could not be served", call.method)
            self._writer.write(self._session.refuse(call, RpcError.internal("see the log of the host")))

    def _invoke(self, call: Call) -> None:
        name: str = call.params["name"]
        contract = self._names.get(name) or self._names.get(name.replace("/", "."))
        if contract is None:
            self._invoke_unknown(call, name)
            return
        task = ToolCall(
            call, contract, self._session, self._supervisor, self._write_for(call), self._notify, self._sealing
        )
        seconds = contract.policies.timeout if contract.policies.timeout is not None else self._own.timeout
        job = task.job(self._own.profile, seconds)
        self._jobs[call] = (task, job)
        self._supervisor.submit(job)

    def _invoke_unknown(self, call: Call, name: str) -> None:
        """Say what is broken, where that is asked for, or where nothing is known because of it."""
        failures = self._catalog.failures
        text = "\n".join(map(str, failures))
        if name == _DIAGNOSTICS and failures:
            self._say(call, text)
        elif failures and not self._catalog.contracts:
            self._say(call, f"{name} cannot be called, because nothing could be loaded:\n{text}", is_error=True)
        else:
            raise RpcError.unknown_tool(name, did_you_mean(name, self._names))

    def _say(self, call: Call, text: str, *, is_error: bool = False) -> None:
        text = text.encode("utf-8", "backslashreplace").decode()
        body = dumps({"content": [{"type": "text", "text": text}], "isError": is_error})
        self._writer.write(self._session.answer(call, body))

    def _write_for(self, call: Call) -> Callable[[bytes], None]:
        def write(line: bytes) -> None:
            self._writer.write(line)
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

    # The catalog

    async def _describe(self) -> None:
        """The first catalog, then watching for changes of it."""
        describing = self._loop.create_task(self._supervisor.describe())
        describing.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # nobody may be there to hear it
        await asyncio.wait([describing], timeout=_LOADING)
        if not describing.done():
            self._publish(Catalog(failures=(Failure("worker", f"the skills take more than {_LOADING:g} s to load"),)))
        try:
            self._publish(await describing)
        except ChildProcessError as error:
            self._publish(Catalog(failures=(Failure("worker", str(error)),)))
        await self._watcher.run()

    async def _renew(self) -> None:
        """Something was saved: a new generation, if it can be had."""
        old = self._catalog
        try:
            self._configure(Settings.load(self._paths.project_root, environ=self._environ, flags=self._flags))
            successor = await self._supervisor.next_generation()
        except (SettingsError, ChildProcessError) as error:
            reason = f"{error} (what was there before goes on)"
            self._publish(Catalog(old.contracts, (*_of_skills(old.failures), Failure("worker", reason))))
            return
        new = successor.catalog
        kept = _last_good(old, new)
        self._supervisor.adopt(successor, kept)
        contracts = [contract for contract in new.contracts if contract.skill not in kept]
        contracts += [contract for contract in old.contracts if contract.skill in kept]
        contracts.sort(key=lambda contract: contract.id)
        self._publish(Catalog(tuple(contracts), new.failures))

    def _configure(self, settings: Settings) -> None:
        self._own = settings.own
        self._supervisor.configure(settings.own)

    def _publish(self, catalog: Catalog) -> None:
        """Show a catalog from now on; clients hear of it only if what they can see has changed."""
        for failure in catalog.failures:
            if failure not in self._catalog.failures:
                _log.warning("%s", failure)
        before = self._tools
        self._tools = self._tool_list(catalog)
        waiting, self._awaiting_catalog = self._awaiting_catalog, []
        for call in waiting:
            if self._session.is_open(call):
                self._serve(call)
        if before is not None and before.digest != self._tools.digest:
            for line in self._session.list_changed():
                self._writer.write(line)

    def _tool_list(self, catalog: Catalog) -> ToolList:
        """The tools of a catalog. A contract that no client could be shown counts as a failure."""
        contracts: list[Contract] = []
        failures = list(catalog.failures)
        handshake: list[JsonObject] = []
        stateless: list[JsonObject] = []
        for contract in catalog.contracts:
            try:
                both = self._definition(contract, boxed=True), self._definition(contract, boxed=False)
                dumps(both, "its definition")
            except (EncodeError, KeyError, RecursionError) as error:
                failures.append(Failure(contract.id, f"cannot be shown to clients: {error}", contract.source))
                continue
            contracts.append(contract)
            handshake.append(both[0])
            stateless.append(both[1])
        self._catalog = Catalog(tuple(contracts), tuple(failures))
        self._names = {name: contract for contract in contracts for name in _names(contract)}
        extra = [_diagnostics_tool()] if failures else []
        return ToolList(handshake + extra, stateless + extra)

    def _definition(self, contract: Contract, *, boxed: bool) -> JsonObject:
        profile = BUILT_IN[contract.profile or self._own.profile]
        return define_tool(contract, profile.input_schema(contract), profile.output_schema(contract, boxed=boxed))

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
            await self._until(lambda: self._tools is not None, _NOT_YET)
        await self._until(lambda: not self._supervisor.busy, self._own.host.drain)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while self._session.in_flight and not done() and not self._broke and self._loop.time() < deadline:  # noqa: ASYNC110 - once in a session
            await asyncio.sleep(0.005)

    async def _leave(self) -> None:
        """Everything ends."""
        self._watcher.stop()
        for line in self._session.end_subscriptions():
            self._writer.write(line)
        await self._supervisor.close()
        for call in list(self._session.in_flight.values()):
            self._writer.write(self._session.refuse(call, RpcError.internal("the host is leaving")))
        self._writer.flush(0.0 if self._broke else _FLUSH)


async def serve(wire: Claim, settings: Settings, version: str, flags: JsonObject, environ: Mapping[str, str]) -> int:
    """Serve the client at a claimed wire; gives the exit code."""
    name = settings.root.name.encode("utf-8", "replace").decode() or "prowess"
    return await Host(wire, settings, Server(name, version), flags, environ).run()


def _names(contract: Contract) -> Iterable[str]:
    return (*contract.aliases, contract.id, contract.wire_name)


def _last_good(old: Catalog, new: Catalog) -> set[str]:
    """Skills that lost commands because they are broken, and not because somebody took them away."""
    there = {contract.id for contract in new.contracts}
    broken = {failure.source.partition(".")[0] for failure in new.failures}
    return {contract.skill for contract in old.contracts if contract.id not in there and contract.skill in broken}


def _of_skills(failures: Iterable[Failure]) -> list[Failure]:
    return [failure for failure in failures if failure.source != "worker"]


def _diagnostics_tool() -> JsonObject:
    return {
        "name": _DIAGNOSTICS,
        "description": "Some skills of this server cannot be loaded. Says which, where and why.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    }
