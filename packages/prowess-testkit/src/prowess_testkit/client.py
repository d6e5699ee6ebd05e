"""The test client for every wire: it lists tools, calls them, answers questions and keeps notifications."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from prowess_testkit.errors import ProtocolError, RerunForever
from prowess_testkit.person import Person

__all__ = [
    "ABLE",
    "CLIENT_NAME",
    "HANDSHAKE",
    "PATIENCE",
    "STATELESS",
    "WIRES",
    "Client",
    "Log",
    "Payload",
    "Progress",
    "decoded_result",
]

HANDSHAKE: Final = "2025-11-25"
"""The newest revision of MCP with a handshake: a question is a request to the client, and the command waits."""
STATELESS: Final = "2026-07-28"
"""The revision without a handshake: a question ends the run, and the command starts again with the answer."""
WIRES: Final = (HANDSHAKE, STATELESS)
"""Both eras, for `@pytest.mark.parametrize("wire", WIRES)`."""
CLIENT_NAME: Final = "prowess-testkit"
"""The name of the test clients."""
ABLE: Final[Mapping[str, Any]] = MappingProxyType({"elicitation": {"form": {}, "url": {}}})
"""The default capabilities of the clients: forms and pages."""
PATIENCE: Final = 240.0
"""Seconds until a client gives up: enough for a machine ten times slower than yours."""
_MOST_RUNS: Final = 32
"""Runs of one call, after which the command counts as one that asks a new question in every run."""


class Payload(dict[str, Any]):
    """The result of a tool as a client gets it: `content`, `isError`, and perhaps `structuredContent` and `_meta`."""

    @property
    def is_error(self) -> bool:
        """Whether the command failed."""
        return bool(self["isError"])

    @property
    def text(self) -> str:
        """All text blocks, joined by line ends."""
        return "\n".join(block["text"] for block in self["content"] if block["type"] == "text")

    @property
    def structured(self) -> Any:
        """The structured content, or `None`."""
        return self.get("structuredContent")


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of progress."""

    done: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """One log message."""

    level: str
    data: Any


class Client(ABC):
    """A client of one project. Open one with `connect` (in memory) or `serve` (a host process)."""

    def __init__(self, version: str, person: Person | None) -> None:
        self.version = version
        """The revision of MCP."""
        self.person = Person() if person is None else person
        """Answers questions."""
        self.progress: list[Progress] = []
        """The progress that calls reported, in order."""
        self.logs: list[Log] = []
        """The log messages of calls, in order."""
        self.runs = 0
        """How often the last call ran its command: once, and again after every question that ended a run."""
        self._fault: Exception | None = None

    # Resources and prompts

    @abstractmethod
    async def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result of a request. Raises `ProtocolError` if the answer is an error."""

    async def resources(self) -> list[dict[str, Any]]:
        """The definitions of all resources with a URI of their own."""
        return await self._listed("resources/list", "resources")

    async def templates(self) -> list[dict[str, Any]]:
        """The definitions of all resources whose URI has variables."""
        return await self._listed("resources/templates/list", "resourceTemplates")

    async def prompts(self) -> list[dict[str, Any]]:
        """The definitions of all prompts."""
        return await self._listed("prompts/list", "prompts")

    async def read(self, uri: str) -> list[dict[str, Any]]:
        """The contents at a URI, each with its text or blob."""
        return (await self.request("resources/read", uri=uri))["contents"]

    async def prompt(self, name: str, /, **arguments: str) -> list[dict[str, Any]]:
        """The messages of a prompt, by its wire name or its id."""
        return (await self.request("prompts/get", name=name, arguments=arguments))["messages"]

    async def complete(self, target: str, argument: str, value: str = "", /, **others: str) -> list[str]:
        """The completions of an argument of a prompt, or of a variable in the URI of a resource, given the other arguments."""
        kind, place = ("ref/resource", "uri") if ":" in target else ("ref/prompt", "name")
        result = await self.request(
            "completion/complete",
            ref={"type": kind, place: target},
            argument={"name": argument, "value": value},
            context={"arguments": others},
        )
        return result["completion"]["values"]

    async def _listed(self, method: str, member: str) -> list[dict[str, Any]]:
        """The items of all pages."""
        page = await self.request(method)
        items: list[dict[str, Any]] = page[member]
        while "nextCursor" in page:
            page = await self.request(method, cursor=page["nextCursor"])
            items += page[member]
        return items

    @abstractmethod
    async def tools(self) -> list[dict[str, Any]]:
        """The definitions of all tools, as the client sees them."""

    async def call(self, command: str, /, **arguments: Any) -> Payload:
        """Call a command by its wire name or its id. Raises `ProtocolError` if the answer is an error."""
        return await self._call(command, arguments, rerun=self.version == STATELESS)

    async def rerun(self, command: str, /, **arguments: Any) -> Payload:
        """Like `call`, but every question ends the run on both wires, and the command starts again from the top."""
        return await self._call(command, arguments, rerun=True)

    async def _call(self, command: str, arguments: Mapping[str, Any], *, rerun: bool) -> Payload:
        answers: dict[str, Any] | None = {} if rerun else None
        state: str | None = None
        for run in range(1, _MOST_RUNS + 1):
            self.runs = run
            result = await self._run(command, arguments, answers, state)
            self._raise_fault()
            if isinstance(result, Payload):
                return result
            questions, state = result
            answers = {key: self.person.answer(each["method"], each["params"]) for key, each in questions.items()}
        raise RerunForever(command, _MOST_RUNS, answers or ())

    def _asked(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The person's answer while a command waits for it.

        A failure of the script is kept for `_raise_fault`, so that it fails the test even if the command catches it.
        """
        try:
            return self.person.answer(method, params)
        except Exception as error:
            self._fault = error
            raise

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    @abstractmethod
    async def _run(
        self, command: str, arguments: Mapping[str, Any], answers: Mapping[str, Any] | None, state: str | None
    ) -> Payload | tuple[dict[str, Any], str]:
        """One run: a payload, or the questions that ended it with the state to send back.

        `answers` are those to the last questions; with `None`, a question does not end the run.
        """


def decoded_result(message: Mapping[str, Any]) -> dict[str, Any]:
    """The result in an answer. Raises `ProtocolError` for an error."""
    if "error" in message:
        error = cast("Mapping[str, Any]", message["error"])
        raise ProtocolError(error["code"], error["message"], error.get("data"))
    return message["result"]
