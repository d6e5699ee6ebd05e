"""The host: one client on one wire, its session, the catalog, and the supervisor behind it. It never imports a skill."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from pathlib import Path
from typing import Any, Final

from prowess.catalog import Catalog, Failure
from prowess.contract import Contract
from prowess.errors import did_you_mean
from prowess.jsontypes import JsonObject
from prowess.paths import ConfigPaths
from prowess.profiles import BUILT_IN
from prowess.settings import Settings
from prowess_host.codec import decode, dumps
from prowess_host.lines import LineSplitter
from prowess_host.routing import Action, Answered, Cancelled, Group, Reply, route
from prowess_host.rpc import RpcError
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
_RESUME_BELOW: Final = 0.5


class Host:
    """Serves one client until it leaves."""

    def __init__(self, wire: Claim, settings: Settings, paths: ConfigPaths, server: Server, flags: JsonObject) -> None:
        own = settings.own
        self._own = own
        self._paths = paths
        self._session = Session(server)
        self._writer = Writer(wire.writing, self._broken)
        self._reader = Reader(wire.reading, self._on_bytes)
        self._splitter = LineSplitter(own.host.max_line)
        self._supervisor = Supervisor(paths.project_root, own, flags)
        self._sealing = Sealing(lambda: load_key(paths.get_cache_dir), time.time)
        self._catalog: Catalog | None = None
        self._tools: ToolList | None = None
        self._names: dict[str, Contract] = {}
        self._awaiting_catalog: list[Call] = []
        self._jobs: dict[Call, tuple[ToolCall, Job]] = {}
        self._ended = asyncio.Event()
        self._broke = False
        self._watcher = Watcher(paths, self._renew)
        self.exit_code = 0

    async def run(self) -> int:
        """Serve; gives the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        self._supervisor.start()
        self._reader.start()
        describing = loop.create_task(self._describe())
        await self._ended.wait()
        await self._drain()
        describing.cancel()
        await self._leave()
        return self.exit_code

    # Input

    def _on_bytes(self, data: bytes) -> None:
        lines = self._splitter.feed(data) if data else self._splitter.close()
        now = time.monotonic()
        for line in lines:
            self._act(route(decode(line), self._session, now))
        if not data:
            self._ended.set()
        elif self._writer.full:
            self._reader.pause()
            asyncio.get_running_loop().call_later(_RESUME_BELOW, self._resume_reading)

    def _resume_reading(self) -> None:
        if self._ended.is_set():
            return
        if self._writer.full:
            asyncio.get_running_loop().call_later(_RESUME_BELOW, self._resume_reading)
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

    def _invoke(self, call: Call) -> None:
        name: str = call.params["name"]
        contract = self._names.get(name) or self._names.get(name.replace("/", "."))
        if contract is None:
            if name == _DIAGNOSTICS and self._failures():
                self._writer.write(self._session.answer(call, dumps(_text("\n".join(map(str, self._failures()))))))
                return
            raise RpcError.unknown_tool(name, did_you_mean(name, self._names))
        task = ToolCall(call, contract, self._session, self._supervisor, self._write_for(call), self._sealing)
        seconds = contract.policies.timeout if contract.policies.timeout is not None else self._own.timeout
        job = task.job(self._own.profile, seconds)
        self._jobs[call] = (task, job)
        self._supervisor.submit(job)

    def _write_for(self, call: Call) -> Any:
        def write(line: bytes) -> None:
            self._writer.write(line)
            if not self._session.is_open(call):
                self._jobs.pop(call, None)

        return write

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
        try:
            self._publish(await self._supervisor.describe())
        except ChildProcessError as error:
            self._publish(Catalog(failures=(Failure("worker", str(error)),)))
        await self._watcher.run()

    async def _renew(self) -> None:
        """Something was saved: a new generation, if it can be had."""
        try:
            successor = await self._supervisor.next_generation()
        except ChildProcessError as error:
            _log.warning("the new version cannot be loaded, the last good one goes on: %s", error)
            return
        old = self._catalog or Catalog()
        kept = _last_good(old, successor.catalog)
        self._supervisor.adopt(successor, {contract.skill for contract in kept})
        for failure in set(successor.catalog.failures) - set(old.failures):
            _log.warning("%s", failure)
        contracts = sorted((*successor.catalog.contracts, *kept), key=lambda contract: contract.id)
        self._publish(Catalog(tuple(contracts), successor.catalog.failures))

    def _publish(self, catalog: Catalog) -> None:
        """Show a catalog from now on; clients hear of it only if what they can see has changed."""
        before = self._tools
        self._catalog = catalog
        self._names = {}
        for contract in catalog.contracts:
            for name in (*contract.aliases, contract.id, contract.wire_name):
                self._names[name] = contract
        self._tools = self._tool_list(catalog)
        waiting, self._awaiting_catalog = self._awaiting_catalog, []
        for call in waiting:
            if self._session.is_open(call):
                self._serve(call)
        if before is not None and before.digest != self._tools.digest:
            for line in self._session.list_changed():
                self._writer.write(line)

    def _tool_list(self, catalog: Catalog) -> ToolList:
        extra = [_diagnostics_tool()] if catalog.failures else []
        return ToolList(
            [self._definition(contract, boxed=True) for contract in catalog.contracts] + extra,
            [self._definition(contract, boxed=False) for contract in catalog.contracts] + extra,
        )

    def _definition(self, contract: Contract, *, boxed: bool) -> JsonObject:
        profile = BUILT_IN[contract.profile or self._own.profile]
        return define_tool(contract, profile.input_schema(contract), profile.output_schema(contract, boxed=boxed))

    def _failures(self) -> tuple[Failure, ...]:
        return self._catalog.failures if self._catalog else ()

    # Leaving

    def _signalled(self, number: int) -> None:
        if self._ended.is_set():
            self.exit_code = 128 + number
            self._writer.flush(0)
            signal.raise_signal(signal.SIGKILL) if number == signal.SIGINT else None
        self.exit_code = 128 + number
        self._ended.set()

    def _broken(self) -> None:
        """The client does not read any more."""
        self._broke = True
        self._ended.set()

    async def _drain(self) -> None:
        """No new requests; what runs may finish, within bounds."""
        self._reader.pause()
        deadline = time.monotonic() + self._own.host.drain
        while (self._session.in_flight or self._supervisor.busy) and not self._broke and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    async def _leave(self) -> None:
        """Everything ends."""
        for line in self._session.end_subscriptions():
            self._writer.write(line)
        await self._supervisor.close()
        self._writer.flush(_FLUSH)


async def serve(wire: Claim, root: Path, settings: Settings, version: str, flags: JsonObject, environ: Any) -> int:
    """Serve the client at a claimed wire; gives the exit code."""
    paths = ConfigPaths.of(settings, environ)
    host = Host(wire, settings, paths, Server(root.name or "prowess", version), flags)
    return await host.run()


def _last_good(old: Catalog, new: Catalog) -> list[Contract]:
    """Commands that are gone because their skill is broken, and not because somebody took them away."""
    there = {contract.id for contract in new.contracts}
    broken = {failure.source.partition(".")[0] for failure in new.failures}
    return [contract for contract in old.contracts if contract.id not in there and contract.skill in broken]


def _diagnostics_tool() -> JsonObject:
    return {
        "name": _DIAGNOSTICS,
        "description": "Some skills of this server cannot be loaded. Says which, where and why.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    }


def _text(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}], "isError": False}
