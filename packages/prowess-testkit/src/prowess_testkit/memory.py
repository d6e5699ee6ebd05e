"""A client without a host process: it calls a runtime and sees what a client on the wire would see."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from prowess.calls.channel import Channel
from prowess.calls.outcome import Outcome
from prowess.errors import parts_of_capability
from prowess.runtime import Runtime
from prowess.skills.description import View
from prowess_host.catalog.listing import Listing
from prowess_host.protocol.eras import REVISIONS, takes_tasks
from prowess_host.protocol.eras import ClientInfo as Declared
from prowess_host.protocol.questions import askable, kind_of, read_answer, request_of, require_asking
from prowess_host.protocol.rpc import RpcError
from prowess_host.protocol.session import RequestInFlight as Request
from prowess_host.served_calls import ServedTarget, complete, error_of, find, unknown
from prowess_testkit.client import ABLE, CLIENT_NAME, HANDSHAKE, Client, Log, Payload, Progress
from prowess_testkit.errors import ProtocolError
from prowess_testkit.listing import listed_tools
from prowess_testkit.person import Person
from prowess_testkit.project import Project

__all__ = ["MemoryClient", "connect"]


_ANSWERED: Final = ("resources/read", "prompts/get", "completion/complete")


@contextlib.asynccontextmanager
async def connect(
    project: Project | Runtime | Path | str,
    *,
    version: str = HANDSHAKE,
    person: Person | None = None,
    capabilities: Mapping[str, Any] | None = None,
    client_name: str = CLIENT_NAME,
) -> AsyncGenerator[Client]:
    """A client in this process: it is fast, and a test can override and debug what it calls.

    A `Runtime` stays open, anything else is closed at the end. `capabilities` are those that the client declares, by
    default that it can ask a person; `client_name` is its name.
    """
    declared = ABLE if capabilities is None else capabilities
    if isinstance(project, Runtime):
        yield MemoryClient(lambda: project, version, person, declared, client_name)
        return
    own = project if isinstance(project, Project) else Project(project)
    try:
        yield MemoryClient(lambda: own.runtime, version, person, declared, client_name)
    finally:
        await own.aclose()


class MemoryClient(Client):
    """Calls a runtime, which is made at the first call, so that a test can write files before."""

    def __init__(
        self,
        runtime: Callable[[], Runtime],
        version: str,
        person: Person | None,
        capabilities: Mapping[str, Any],
        client_name: str,
    ) -> None:
        super().__init__(version, person)
        self._runtime = runtime
        self._revision = REVISIONS[version]
        self._client_name = client_name
        self._capabilities = dict(capabilities)
        self._declared = Declared({}, self._capabilities)
        self._asks = frozenset(askable(self._declared, self._revision))
        self._answers: dict[str, Any] = {}
        self._kinds: dict[str, str] = {}
        """The kinds of the questions that ended runs of this call, by key."""

    async def tools(self) -> list[dict[str, Any]]:
        """The definitions of all tools, as a host would list them."""
        return listed_tools(self._runtime(), version=self.version)

    async def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The answer of a host to a request for resources, prompts or completions. Files are not served."""
        runtime, own = self._runtime(), self._runtime().settings.own
        catalog = runtime.catalog()
        listing = Listing(catalog, {each.id: View(each.input_schema, None, None) for each in catalog})
        call = Request(0, method, params, None, self._revision, self._declared)
        try:
            if method in listing.lists:
                return json.loads(listing.lists[method].page(params.get("cursor"), self._revision))
            if method not in _ANSWERED:
                raise RpcError.method_not_found(method)
            target = find(call, listing)
            if target is None:
                raise unknown(call, listing)
            known = complete(target) if target.completes is not None else None
            if known is not None:
                return json.loads(known)
            outcome = await self._outcome(runtime, target)
            if not outcome.ok:
                raise error_of(target, outcome.kind, outcome.text, {}, stateless=self._revision.stateless)
        except RpcError as error:
            raise _protocol_error(error) from error
        return outcome.payload(own.profile)

    async def _outcome(self, runtime: Runtime, target: ServedTarget) -> Outcome:
        channel = self._channel(asks=bool(self._asks), uri=target.uri)
        arguments = json.loads(json.dumps(target.arguments))
        if target.completes is None:
            return await runtime.call(target.contract.id, arguments, channel=channel)
        entry = await runtime.find(target.contract.id)
        assert entry is not None  # noqa: S101 - it is in the catalog
        return await entry.complete(target.completes, arguments, channel)

    def _channel(self, *, asks: bool, **more: Any) -> Channel:
        return Channel(
            client_name=self._client_name,
            capabilities=self._capabilities,
            progress=self._report,
            log=self._log,
            ask=self._ask if asks else None,
            asks=self._asks,
            **more,
        )

    async def _run(
        self, command: str, arguments: Mapping[str, Any], answers: Mapping[str, Any] | None, state: str | None
    ) -> Payload | tuple[dict[str, Any], str]:
        runtime = self._runtime()
        self._answers = {**self._answers, **(answers or {})} if state is not None else {}
        recorded: dict[str, Any] | None = None
        if answers is not None:
            recorded = {key: read_answer(each, key, self._kinds[key]) for key, each in self._answers.items()}
        channel = self._channel(asks=answers is None and bool(self._asks), answers=recorded)
        if takes_tasks(self._declared, self._revision):
            channel.background = functools.partial(self._go_into_background, channel)
        outcome = await runtime.call(command, json.loads(json.dumps(arguments)), channel=channel)
        if outcome.kind == "unknown":
            why = outcome.text.removeprefix(f"Unknown command: {command}")
            raise _protocol_error(RpcError.unknown_tool(command, why))
        if outcome.kind == "input_required":
            self._kinds |= {key: kind_of(asked) for key, asked in outcome.questions.items()}
            try:
                require_asking(self._declared, self._revision, self._kinds.values())
            except RpcError as error:
                raise _protocol_error(error) from error
            asked = {key: request_of(asked, self._revision) for key, asked in outcome.questions.items()}
            return asked, "the answers so far"
        if outcome.missing_capability is not None and self._revision.stateless:
            raise _protocol_error(RpcError.missing_capability(_nested(outcome.missing_capability)))
        profile = runtime.settings.own.profile
        return Payload(outcome.payload(profile, boxed=not self._revision.any_output))

    def _go_into_background(self, channel: Channel) -> None:
        """Let questions no longer end the run. The client still waits for the call."""
        channel.ask = self._ask

    async def _ask(self, questions: Mapping[str, Any]) -> Mapping[str, Any]:
        answers: dict[str, Any] = {}
        for key, question in questions.items():
            request = request_of(question, self._revision, key)
            answers[key] = read_answer(self._asked(request["method"], request["params"]), key, kind_of(question))
        return answers

    def _report(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append(Progress(done, total, message))

    def _log(self, level: str, data: Any) -> None:
        self.logs.append(Log(level, data))


def _protocol_error(error: RpcError) -> ProtocolError:
    return ProtocolError(error.code, error.message, error.data)


def _nested(dotted: str) -> dict[str, Any]:
    """A capability such as `elicitation.url` as a client declares it."""
    declared: dict[str, Any] = {}
    for name in reversed(parts_of_capability(dotted)):
        declared = {name: declared}
    return declared
