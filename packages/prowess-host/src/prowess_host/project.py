"""A served project: its catalog, its workers, its settings and its signing key, shared by every client.

Every entrance uses a `Project`: clients through a `Connection`, the command line and envelopes through `call`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import TOOL, Contract
from prowess.contracts.kinds import RESOURCE
from prowess.errors import SettingsError, UnknownCommand, extra_command
from prowess.jsontypes import JsonObject
from prowess.settings.keys import OwnSettings
from prowess.settings.limits import Limits
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess_host.catalog.instructions import details_of, instructions_of
from prowess_host.catalog.listing import Listing
from prowess_host.catalog.sources import Parts
from prowess_host.catalog.updates import CatalogUpdates
from prowess_host.files.served_files import FileSources, Index, ServedFiles
from prowess_host.long_results import PagesOfCallers, ResultPage, UnknownCursor
from prowess_host.protocol.identity import Server
from prowess_host.protocol.kinds import ROWS, SKILLS, KindRow
from prowess_host.protocol.rpc import RpcError
from prowess_host.records.recording import Recorder, StateWriter
from prowess_host.tool_calls import Sealing, load_key, shared_key
from prowess_host.workers.process import Spawn, WorkerProcess

if TYPE_CHECKING:
    from prowess.calls.channel import Channel
    from prowess.calls.outcome import Outcome
    from prowess.settings.credentials import Caller
    from prowess_host.cluster.engine import EngineConnection
    from prowess_host.cluster.handles import AcceptedEnvelopes
    from prowess_host.cluster.remote import Agents
    from prowess_host.cluster.sharing import ClusterSharing
    from prowess_host.direct_calls import Audience
    from prowess_host.records.redaction import Redactor
    from prowess_host.tasks import Tasks

__all__ = ["NotifiedClient", "Project"]

_log = logging.getLogger("prowess.host")
_KINDS: Final = frozenset(row.kind for row in ROWS)
_SAVING: Final = 10.0
"""Seconds for saving the manifest when the project is closed. It takes milliseconds unless the disk hangs."""
_RECORDING: Final = 10.0
"""Seconds for saving the last calls of the record. It takes milliseconds, too, unless the disk hangs."""
_PARTING: Final = 1.0
"""Seconds for telling the other hosts that this one leaves. They notice it anyway."""
_CLOSING: Final = 30.0
"""Seconds that the workers get to end. A process that is stuck in the kernel survives even a kill; others need that long only
if they get no processor."""


class NotifiedClient(Protocol):
    """A client that a project notifies. A class that inherits from this ignores what it does not override."""

    def show(self, before: Listing, after: Listing) -> None:
        """Called when the listing has changed."""

    def lists_changed(self, rows: Collection[KindRow]) -> None:
        """Called when lists have changed, here or in another process that serves the project."""

    def resource_updated(self, uri: str) -> None:
        """Called when a resource has changed."""

    def updates_missed(self) -> None:
        """Called when any of its subscribed resources may have changed."""

    def close(self) -> None:
        """Called when the project is closed: answer the open requests."""


class Project:
    """One project and its workers. Make it in a running event loop, and close it at the end."""

    def __init__(  # noqa: PLR0915 - one line for each thing that clients share
        self,
        settings: Settings,
        flags: JsonObject,
        environ: Mapping[str, str],
        spawn: Spawn = WorkerProcess,
        *,
        client: str = "",
    ) -> None:
        """`spawn` starts a worker: a process, or for debuggers a task in this one.

        `client` is the name of the caller in the record, for clients that send no name.
        """
        self.settings = settings
        self._paths = ConfigPaths.of(settings, environ)
        self._updates = CatalogUpdates(self._paths, settings, flags, environ, self._publish, spawn=spawn)
        self.saved = self._updates.saved
        """The settings, as last saved."""
        self.workers = self._updates.supervisor
        self.sealing = Sealing(lambda: shared_key(settings) or load_key(self._paths.get_cache_dir), time.time)
        self.listing = Listing.nothing()
        """The current listing."""
        self._declared: set[str] = set()
        self.shelf = ServedFiles(self.file_sources, self._on_files)
        """The files served as resources."""
        self.workers.on_updated = self._updated
        self.pages = PagesOfCallers(time.monotonic)
        """Long results of clients without a session."""
        self.broadcast: Callable[[JsonObject], None] = _no_others
        """Sends news to the other hosts or processes of the project, where `receive_news` handles it."""
        self.sharing: ClusterSharing | None = None
        """The state shared with other hosts, if `cluster.url` is set."""
        self._recorder = self._made_recorder(client, environ) if settings.own.record.on else None
        self.workers.witness = self._recorder
        self.hears_all = self._recorder is not None and self._recorder.keeps_output
        """Whether the record keeps progress and logs, even if the client asks for none."""
        self.heads: dict[tuple[object, ...], bytes] = {}
        """Encoded heads of calls by clients without a session."""
        self._tasks: Tasks | None = None
        self.is_warm = False
        """Whether a client has listed or called tools, so that workers start."""
        self.offers_tasks = True
        """Whether calls may become tasks. False if several processes serve, because another one may be asked for the task."""
        self.agents = self._joined() if settings.own.cluster.url else None
        """The agents of the cluster."""
        self._clients: dict[NotifiedClient, None] = {}
        self._watching: asyncio.Task[None] | None = None

    def _joined(self) -> Agents:
        try:
            from prowess_host.cluster.engine import EngineConnection  # projects without a cluster pay nothing for it
        except ModuleNotFoundError as error:
            raise SettingsError(f"cluster.url needs {error.name}: {extra_command('prowess[cluster]')}") from None
        from prowess_host.cluster.remote import Agents
        from prowess_host.cluster.sharing import ClusterSharing

        engine = EngineConnection(self.settings)
        engine.start()
        key = shared_key(self.settings)
        self.sharing = sharing = ClusterSharing(
            engine, self.settings, key, self.workers.admission.release, self._answer_other, on_news=self.receive_news
        )
        self.workers.results, self.workers.admission.slots = sharing.results, sharing.slots
        sharing.start()
        self.broadcast = sharing.broadcast
        engine.on_change(self._announce_lists)
        agents = Agents(engine, lambda: self._updates.saved.current, self.parts)
        self.workers.pools.abroad = agents.spawn
        agents.on_joined = self._updates.isolated.retry_on_agents
        return agents

    def parts(self) -> Parts:
        """The files that agents need."""
        return self._updates.parts()

    @property
    def own(self) -> OwnSettings:
        """Prowess's own settings, as last saved."""
        return self.saved.own

    def _made_recorder(self, client: str, environ: Mapping[str, str]) -> Recorder:
        settings, mark = self.settings, self.workers.mark

        def open_book() -> StateWriter:
            from prowess_host.records.record_path import record_path
            from prowess_host.records.writing import RecordWriter  # imports sqlite3, after the first answer

            on_rows = self.sharing.record if self.sharing is not None else None
            return RecordWriter(record_path(self._paths), settings, environ, mark=mark, client=client, on_rows=on_rows)

        own = settings.own.record

        @cache
        def redactor() -> Redactor:
            from prowess_host.records.redaction import Redactor  # only for large arguments

            return Redactor(own.secrets)

        def is_dropped(contract: Contract, arguments: bytes) -> bool:
            return len(arguments) > own.max_value and redactor().is_harmless(contract)

        return Recorder(open_book, is_dropped, keeps_output=own.output)

    def server(self, version: str) -> Server:
        """The identity of the project for clients."""
        own = self.own.identity
        name = own.name or os.fsencode(self.settings.root.name).decode("utf-8", "replace") or "prowess"
        details: JsonObject = {}
        try:
            details = details_of(own, self.settings.root)
        except SettingsError as error:  # serve without the icon
            _log.warning("%s", error)
        return Server(name, version, instructions=self._instructions, details=details)

    def _instructions(self) -> str | None:
        """The instructions in the settings, else generated from the commands known so far, without waiting."""
        written = self.own.identity.instructions
        if written is not None:
            return written
        return instructions_of(self.listing.catalog if self.listing.complete else self._updates.glance())

    @property
    def tasks(self) -> Tasks:
        """The calls in the background, made when the first one needs them."""
        if self._tasks is None:
            from prowess_host.tasks import Tasks  # a host without tasks starts faster

            self._tasks = Tasks(self.mark, self.sharing and self.sharing.handles)
        return self._tasks

    # Other hosts of the same project

    async def _leave(self, engine: EngineConnection) -> None:
        try:
            if self.sharing is not None:
                await self.sharing.close()
        finally:
            await engine.close()

    @property
    def mark(self) -> str:
        """The beginning of the handles of this host; empty without a cluster."""
        return self.sharing.mark if self.sharing is not None else ""

    @property
    def others(self) -> AcceptedEnvelopes | None:
        """The other hosts, for background work of envelopes."""
        this = weakref.proxy(self)  # the envelopes must not keep the project alive
        return self.sharing and self.sharing.accepted(lambda command: this.listing[command])

    def elsewhere(self, handle: object) -> str:
        """The other host that made a handle; empty if none did."""
        return self.sharing.host_of(handle) if self.sharing is not None else ""

    async def _answer_other(self, question: JsonObject, caller: Caller | None) -> JsonObject:
        """Answer a request about a handle of this host that another host received."""
        if "envelope" in question:
            from prowess.envelopes.envelope import invoke

            return {"response": await invoke(self, question["envelope"], caller)}
        if "cursor" in question:
            try:
                return {"page": self.pages.of(caller).page(question["cursor"], question["most"], self.own.kept_results)}
            except UnknownCursor:
                return {}
        if self.sharing is not None:
            await self.sharing.handles.settle(question["params"].get("taskId"))
        try:
            return {"body": self.tasks.answer(question["method"], question["params"], caller).decode()}
        except RpcError as error:
            return {"error": [error.code, error.message, error.data]}

    async def ask_other(self, host: str, question: JsonObject, caller: object, handle: str = "") -> JsonObject:
        """The answer of another host about one of its handles; empty if it is gone, or has other settings for callers."""
        from prowess_host.cluster.errors import EngineError, NoSubscriber

        if self.sharing is None:
            return {}
        try:
            return await self.sharing.ask(host, question, caller, handle)
        except NoSubscriber:
            return {}
        except EngineError as error:  # which has an internal address
            raise RpcError.internal("another host has this task and cannot be reached; try again") from error

    async def page_elsewhere(self, cursor: str, most: int, caller: object) -> ResultPage | None:
        """The next part of a long result that another host keeps. Raises an `RpcError` if one cannot be asked."""
        from prowess_host.cluster.errors import EngineError

        if self.sharing is None:
            return None
        try:
            hosts = [host for host in await self.sharing.replicas.alive() if self.sharing.host_of(f"{host}-")]
        except EngineError as error:
            raise RpcError.internal("another host may have the rest and cannot be reached; try again") from error
        question: JsonObject = {"cursor": cursor, "most": most}

        async def ask(host: str) -> JsonObject | RpcError:
            try:
                return await self.ask_other(host, question, caller)
            except RpcError as error:
                return error

        asking = [asyncio.ensure_future(ask(host)) for host in hosts]
        fault: RpcError | None = None
        try:
            for each in asyncio.as_completed(asking):  # the answer of a host that has just died takes long
                answer = await each
                if isinstance(answer, RpcError):
                    fault = answer
                elif "page" in answer:
                    return ResultPage(*answer["page"])
        finally:
            for each in asking:
                each.cancel()
        if fault is not None:
            raise fault
        return None

    def note_unknown(self, name: str, why: str, client: str = "") -> None:
        """Record a call of an unknown command."""
        if self._recorder is not None:
            self._recorder.unknown(name, why, client)

    # The catalog

    @property
    def kinds(self) -> Collection[str]:
        """The kinds that the server declares to clients: those in the listing, or all possible ones before it is complete.

        A declared kind stays declared, because clients read it only once.
        """
        listing = self.listing
        if listing.complete:
            self._declared.update(listing.kinds)
        elif self._watching is not None:
            remembered = self._updates.remembered
            self._declared.update(_KINDS if remembered is None else remembered)
        if self.shelf.is_used:
            self._declared.add(RESOURCE)
        if self.own.skill_files and (SKILLS in self._declared or self.shelf.has_skills):
            self._declared.add(SKILLS)
        return self._declared | {TOOL}

    def file_sources(self) -> FileSources:
        """The folders of the files served as resources."""
        own = self.own
        return FileSources(self._paths.project_root, own.resources, self._updates.searched if own.skill_files else ())

    def _on_files(self, _index: Index, changed: list[str]) -> None:
        self._publish(self.listing)
        for uri in changed:
            self.resource_updated(uri)

    def resource_updated(self, uri: str, skill: str = "") -> None:
        """Notify the subscribers of a changed resource; with a `skill`, only if the resource is one of that skill."""
        found = self.listing.resource(uri) if skill else None
        if skill and (found is None or found[0].skill != skill):
            return
        for client in list(self._clients):
            _notify(client.resource_updated, uri)

    def _updated(self, uri: str, skill: str = "") -> None:
        self.resource_updated(uri, skill)
        self.broadcast({"updated": uri, "skill": skill})

    def _announce_lists(self) -> None:
        if self.listing.complete:
            self.broadcast({"lists": self.listing.digests})

    def receive_news(self, news: JsonObject) -> None:
        """Pass news of another host or process on to the clients, whose next request may go there."""
        if "updated" in news:
            self.resource_updated(str(news["updated"]), str(news.get("skill", "")))
        if "missed" in news:
            for client in list(self._clients):
                _notify(client.updates_missed)
        digests: JsonObject = news.get("lists") or {}
        mine = self.listing.digests if digests and self.listing.complete else digests
        rows = [row for row in ROWS if digests.get(row.kind) != mine.get(row.kind)]
        for client in list(self._clients) if rows else ():
            _notify(client.lists_changed, rows)

    def start(self) -> None:
        """Describe the skills and watch for changes."""
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(self._watch())
        self.shelf.start(loop.call_soon_threadsafe)

    async def _watch(self) -> None:
        try:
            await self._updates.run()
        except Exception:  # noqa: BLE001 - after a fault of ours, the current listing stays
            _log.exception("the skills are no longer watched")
            self._publish(
                self.listing.failing("the host no longer notices saved files, because of an internal error; restart it")
            )
        finally:
            self._updates.settled.set()

    async def load(self, command: str = "", *, builds: bool = True) -> None:
        """Describe all commands, or at least this one, without watching for changes. Raises `ChildProcessError`.

        Without `builds`, a missing environment is a failure of its skills.
        """
        await self._updates.load(command, builds=builds)

    def prepares(self, command: str) -> bool:
        """Whether an environment that may contain a command is being prepared."""
        return self._updates.isolated.prepares(command)

    def environments(self) -> list[str]:
        """One line about each skill with an environment or limits."""
        return self._updates.isolated.in_words()

    @property
    def limits(self) -> Mapping[str, Limits]:
        """The limits of all limited skills."""
        return self._updates.isolated.limits

    async def describe(self) -> Catalog:
        """Import and describe all skills. Raises `ChildProcessError`."""
        return await self._updates.describe_anew()

    def warm_up(self) -> None:
        """Let workers start, because a client lists or calls tools."""
        self.is_warm = True
        self._updates.asked.set()

    def _publish(self, listing: Listing) -> None:
        if self.shelf.index is not None:
            listing = listing.with_files(self.shelf.index.definitions, self.shelf.index.failures)
        before, self.listing = self.listing, listing
        if self._watching is not None:
            self.shelf.start(asyncio.get_running_loop().call_soon_threadsafe)
            for failure in listing.catalog.failures:
                if failure not in before.catalog.failures:
                    _log.warning("%s", failure)
            if listing.serves_nothing and not (before.serves_nothing or self.own.resources or self.shelf.has_skills):
                _log.warning("%s", self.where_it_looked())
            for warning in listing.catalog.warnings:
                if warning not in before.catalog.warnings:
                    _log.warning("%s", warning)
        for client in list(self._clients):
            _notify(client.show, before, listing)
        if self.sharing is not None and (listing.changed(before) or not before.complete):
            self._announce_lists()

    # Clients

    def connect(self, client: NotifiedClient) -> None:
        """Notify this client of changes from now on."""
        self._clients[client] = None

    def disconnect(self, client: NotifiedClient) -> None:
        """Stop notifying a client."""
        self._clients.pop(client, None)

    def where_it_looked(self) -> str:
        """The message about a project without commands: its folder, and the searched folders."""
        root = self._paths.project_root
        folders = [
            f"{folder}{'' if folder.is_dir() else ' (there is no such folder)'}" for folder in self._updates.searched
        ]
        return f"There are no commands in the project {root}. Folders that were searched: {', '.join(folders)}."

    # Direct calls: envelopes and the command line

    def catalog(self) -> Catalog:
        """The current commands and failures."""
        return self.listing.catalog

    async def contract_of(self, command: str) -> Contract | None:
        """The contract of the command with a name, once the listing is complete enough to say whether it exists."""
        self.warm_up()
        if self.listing[command] is None and self._watching is not None:
            await self._updates.settled.wait()
            await self._updates.isolated.settled(command)
        return self.listing[command]

    async def call(
        self,
        command: str,
        arguments: Any = None,
        *,
        channel: Channel | None = None,
        audience: Audience | None = None,
    ) -> Outcome:
        """Call a command by id, wire name or alias, with JSON arguments. Like `Runtime.call`, but in a worker."""
        from prowess_host.direct_calls import (  # imports pydantic
            SILENT,
            Way,
            call_outcome,
            unknown_outcome,
        )

        contract = await self.contract_of(command)
        if contract is None:
            outcome = unknown_outcome(command, self.listing.catalog)
            self.note_unknown(command, outcome.text, channel.client_name if channel is not None else "")
            return outcome
        caller = channel.caller if channel is not None else None
        way = Way(self.workers, self.own.profile, self.seconds_of(contract), self.hears_all, caller)
        return await call_outcome(way, contract, arguments, channel, audience or SILENT)

    async def payload(self, command: str, arguments: Any, audience: Audience | None = None) -> JsonObject:
        """Call a command and return the payload in the project's profile."""
        from prowess_host.direct_calls import SILENT, Way, call_payload  # imports pydantic

        contract = await self.contract_of(command)
        if contract is None:
            catalog = self.listing.catalog
            raise UnknownCommand(command, [each.id for each in catalog], catalog.reasons(command))
        way = Way(self.workers, self.own.profile, self.seconds_of(contract), self.hears_all)
        return await call_payload(way, contract, arguments, audience or SILENT)

    def seconds_of(self, contract: Contract) -> float:
        """The timeout of a command in seconds."""
        return contract.policies.timeout if contract.policies.timeout is not None else self.own.timeout

    # The end

    async def close(self) -> None:
        """End the workers, answer all clients, and save the manifest."""
        self.shelf.stop()
        if self._watching is not None:
            self._watching.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await self.workers.close()
        for client in list(self._clients):
            _notify(client.close)
        await self._updates.close(_SAVING)
        self.pages.close()
        if self._recorder is not None:
            await self._recorder.close(_RECORDING)
        if self.agents is not None:
            self.agents.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PARTING):
                    await self._leave(self.agents.engine)


def _no_others(_news: JsonObject) -> None:
    """The default: there is one process."""


def _notify(listener: Callable[..., None], *news: Any) -> None:
    """Call a client. An exception must not stop the notification of the others."""
    try:
        listener(*news)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("a client could not be notified of a change")
