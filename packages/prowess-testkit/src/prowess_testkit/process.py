"""A client of a real host process, over its pipes.

`HostProcess` handles bytes, lines and JSON-RPC ids. `ProcessClient` makes calls and keeps notifications.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, cast

import anyio

from prowess_testkit.client import (
    ABLE,
    CLIENT_NAME,
    HANDSHAKE,
    PATIENCE,
    STATELESS,
    Client,
    Log,
    Payload,
    Progress,
    decoded_result,
)
from prowess_testkit.errors import HostEnded
from prowess_testkit.person import Person
from prowess_testkit.project import Project
from prowess_testkit.toml import toml_value

__all__ = [
    "CAPABILITIES_KEY",
    "CLIENT_KEY",
    "LOG_LEVEL_KEY",
    "VERSION_KEY",
    "HostProcess",
    "Message",
    "ProcessClient",
    "serve",
]

Message: TypeAlias = dict[str, Any]

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
_SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
_LONGEST_LINE: Final = 1 << 28
_LAST_WORDS: Final = 30.0
"""Seconds to read the rest of stderr after the host has ended, since a remaining child may keep it open."""
_KNOWN_METHODS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
_UNKNOWN_METHOD: Final = -32601
_SCRIPT_FAILED: Final = -32000
_POLL: Final = 0.02
"""Seconds between two polls of a task, shorter than the host suggests, for fast tests."""


class HostProcess:
    """A running host: its messages so far, and the pending requests."""

    client_name = CLIENT_NAME
    """The name that the client sends."""

    def __init__(self, process: asyncio.subprocess.Process, version: str) -> None:
        self.process = process
        self.version = version
        self.capabilities: Message = {}
        """The capabilities that `open` declares, or every request of the stateless era."""
        self.opened: Message = {}
        """The result of the handshake."""
        self.notes: list[Message] = []
        """The notifications, in order."""
        self.asked: list[Message] = []
        """The requests of the host, in order."""
        self.errors_without_id: list[Message] = []
        self.stderr = ""
        self.on_message: Callable[[Message], None] = _ignore
        """Called with every notification and request as it arrives."""
        self._numbers = itertools.count(1)
        self._waiting: dict[Any, tuple[str, asyncio.Future[Message]]] = {}
        self._news = asyncio.Condition()
        self._has_ended = False
        self._readers = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._read_stderr())]

    @classmethod
    async def start(
        cls,
        project: str | Path,
        *options: str,
        version: str = HANDSHAKE,
        env: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> Self:
        """Start a host for a project, with `env` added to the environment; `through` is a command that starts it."""
        process = await asyncio.create_subprocess_exec(
            *(*through, sys.executable, "-m", "prowess_host", "--project", str(project), *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=_LONGEST_LINE,
            env={**os.environ, **(env or {})},
        )
        return cls(process, version)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    # Reading

    async def _read(self) -> None:
        stream = cast("asyncio.StreamReader", self.process.stdout)
        broken: Exception | None = None
        try:
            while line := await stream.readline():
                self.take_line(line)
                await self._notify()
        except Exception as error:  # noqa: BLE001 - raised in all tasks that wait for an answer
            broken = error
        await self.process.wait()
        await asyncio.wait([self._readers[1]], timeout=_LAST_WORDS)
        self._has_ended = True
        await self._notify()
        for method, future in self._waiting.values():
            if not future.done():
                future.set_exception(broken or self._ended_before(method))
                future.exception()  # silences the warning if no task waits

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _ended_before(self, what: str) -> HostEnded:
        return HostEnded(what, self.process.returncode, self.stderr)

    async def _read_stderr(self) -> None:
        stream = cast("asyncio.StreamReader", self.process.stderr)
        while data := await stream.read(65536):
            self.stderr += data.decode("utf-8", "replace")

    def take_line(self, line: bytes) -> None:
        """Handle one line of the host: a message, or an array of them."""
        data = json.loads(line)
        for message in cast("list[Message]", data) if isinstance(data, list) else [cast("Message", data)]:
            self.take_message(message)

    def take_message(self, message: Message) -> None:
        """Handle one message of the host."""
        if "method" in message:
            (self.asked if "id" in message else self.notes).append(message)
            self.on_message(message)
        elif message.get("id") is None:
            self.errors_without_id.append(message)
        else:
            self.take_answer(message)

    def take_answer(self, message: Message) -> None:
        """Handle the answer to a request."""
        _, future = self._waiting.pop(message["id"])
        if not future.done():
            future.set_result(message)

    async def news(self, find: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Wait until `find` returns something true, and return that. It is called again after every message."""
        with anyio.fail_after(patience):
            async with self._news:
                while not (found := find()):
                    if self._has_ended:
                        raise self._ended_before("with the expected message")
                    await self._news.wait()
                return found

    # Writing

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        cast("asyncio.StreamWriter", self.process.stdin).write(data)

    def send(self, message: Any) -> None:
        """Write one message as a line."""
        self.write(json.dumps(message).encode() + b"\n")

    def expect(self, request_id: Any, method: str = "tools/call") -> asyncio.Future[Message]:
        """A future for the answer to a request that the test writes itself."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._has_ended:
            raise self._ended_before(method)
        self._waiting[request_id] = (method, future)
        return future

    def request(self, method: str, request_id: Any = None, /, **params: Any) -> asyncio.Future[Message]:
        """Send a request in the form of the revision. Returns a future for the answer."""
        number = next(self._numbers) if request_id is None else request_id
        future = self.expect(number, method)
        self.send(self.message(number, method, params))
        future.number = number  # type: ignore[attr-defined]
        return future

    def message(self, number: Any, method: str, params: Mapping[str, Any]) -> Message:
        """A request in the form of the revision."""
        if self.version == STATELESS:
            params = self.in_envelope(params)
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}

    def in_envelope(self, params: Mapping[str, Any]) -> Message:
        """Parameters with the facts about the client that every request of the stateless era carries."""
        info = {"name": self.client_name, "version": "1"}
        envelope = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: self.capabilities, CLIENT_KEY: info}
        return {**params, "_meta": {**envelope, **params.get("_meta", {})}}

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def open(self, capabilities: Mapping[str, Any] | None = None, patience: float = PATIENCE) -> None:
        """Do the handshake if the revision has one."""
        self.capabilities = dict(capabilities or {})
        if self.version == STATELESS:
            return
        info = {"name": self.client_name, "version": "1"}
        answer = self.request(
            "initialize", protocolVersion=self.version, capabilities=self.capabilities, clientInfo=info
        )
        with anyio.fail_after(patience):
            self.opened = decoded_result(await answer)
        self.notify("notifications/initialized")

    # The end

    def close_input(self) -> None:
        """Close the host's stdin: it finishes running calls and exits."""
        cast("asyncio.StreamWriter", self.process.stdin).close()

    async def ended(self, patience: float = PATIENCE) -> int:
        """Wait until the host has exited and its output is read. Returns the exit code."""
        with anyio.fail_after(patience):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return code

    async def stop(self, patience: float = PATIENCE) -> bool:
        """Close stdin and wait for the exit. Kills a host that does not exit, and returns whether it exited by itself."""
        left = True
        with anyio.CancelScope(shield=True):
            self.close_input()
            with anyio.move_on_after(patience):
                await self.process.wait()
            if self.process.returncode is None:
                left = False
                self.process.kill()
            await self.ended(patience)
        return left


class ProcessClient(Client):
    """A client of a host process. `host` gives access to raw requests, notifications, stderr and the process."""

    def __init__(self, host: HostProcess, person: Person | None, patience: float) -> None:
        super().__init__(host.version, person)
        self.host = host
        self._patience = patience
        self.tasks: list[str] = []
        """The ids of the calls in the background."""
        host.on_message = self._on_message

    @property
    def stderr(self) -> str:
        """The stderr of the host and its workers so far."""
        return self.host.stderr

    @property
    def notifications(self) -> list[Message]:
        """All notifications of the host in order, including progress and logs."""
        return self.host.notes

    async def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send a request, and return its result. Raises `ProtocolError` if the answer is an error."""
        return await self._result(method, self.host.request(method, **params))

    async def notified(self, method: str, count: int = 1) -> Message:
        """Wait for a notification, and return its parameters. `count` selects the first, second, … of this method."""
        find = lambda: [note for note in self.notifications if note["method"] == method][count - 1 :]  # noqa: E731
        found = await self.host.news(find, self._patience)
        return found[0].get("params", {})

    async def tools(self) -> list[dict[str, Any]]:
        """The definitions of all tools, from all pages."""
        return await self._listed("tools/list", "tools")

    async def _run(
        self, command: str, arguments: Mapping[str, Any], answers: Mapping[str, Any] | None, state: str | None
    ) -> Payload | tuple[dict[str, Any], str]:
        host, number = self.host, f"call-{next(_call_numbers)}"
        params: Message = {"name": command, "arguments": dict(arguments), "_meta": {"progressToken": number}}
        if state is not None:
            params.update(inputResponses=answers, requestState=state)
        if answers is not None:
            params["_meta"][LOG_LEVEL_KEY] = "debug"
            params = host.in_envelope(params)
        answer = host.expect(number)
        host.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        result = await self._result(f"tools/call of {command}", answer)
        if result.get("resultType") == "task":
            result = await self._finished(result)
        if result.pop("resultType", None) == "input_required":
            return result["inputRequests"], result["requestState"]
        meta = {key: value for key, value in result.pop("_meta", {}).items() if key != _SERVER_KEY}
        return Payload({**result, "_meta": meta} if meta else result)

    async def _finished(self, task: Message) -> Message:
        """Poll a call in the background and answer its questions until it has a result."""
        answered: set[str] = set()
        task_id = task["taskId"]
        self.tasks.append(task_id)
        with anyio.fail_after(self._patience):
            while "result" not in task and "error" not in task and task["status"] != "cancelled":
                questions = {key: each for key, each in task.get("inputRequests", {}).items() if key not in answered}
                if questions:
                    answered |= questions.keys()
                    given = {key: self._asked(each["method"], each["params"]) for key, each in questions.items()}
                    await self.request("tasks/update", taskId=task_id, inputResponses=given)
                elif "resultType" in task and task["resultType"] != "task":
                    await anyio.sleep(_POLL)
                task = await self.request("tasks/get", taskId=task_id)
        return decoded_result(
            task if "error" in task else {"result": task.get("result", {"content": [], "isError": True})}
        )

    async def _result(self, what: str, answer: asyncio.Future[Message]) -> Message:
        try:
            with anyio.fail_after(self._patience):
                return decoded_result(await answer)
        except TimeoutError:
            raise TimeoutError(
                f"no answer to {what} in {self._patience:g} s; stderr of the host:\n{self.stderr}"
            ) from None

    def _on_message(self, message: Message) -> None:
        params = message.get("params", {})
        if "id" in message:
            self.host.send({"jsonrpc": "2.0", "id": message["id"], **self._answer(message["method"], params)})
        elif message["method"] == "notifications/progress":
            self.progress.append(Progress(params["progress"], params.get("total"), params.get("message")))
        elif message["method"] == "notifications/message":
            self.logs.append(Log(params["level"], params["data"]))

    def _answer(self, method: str, params: Message) -> Message:
        if method not in _KNOWN_METHODS:
            return {"error": {"code": _UNKNOWN_METHOD, "message": f"a test client does not know {method}"}}
        try:
            return {"result": self._asked(method, params)}
        except Exception as error:  # noqa: BLE001 - raised by the call, see `Client._asked`
            return {"error": {"code": _SCRIPT_FAILED, "message": str(error)}}


_call_numbers = itertools.count(1)


def _ignore(_: Message) -> None:
    """Ignore a message."""


@contextlib.asynccontextmanager
async def serve(
    project: Project | Path | str,
    *,
    version: str = HANDSHAKE,
    person: Person | None = None,
    capabilities: Mapping[str, Any] | None = None,
    client_name: str = CLIENT_NAME,
    env: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> AsyncGenerator[ProcessClient]:
    """Start a real host for a project, and connect a client to it. The host ends with the block.

    `capabilities` are those that the client declares, by default that it can ask a person; `client_name` is its name.
    `patience` limits each wait, in seconds. An exception in the block carries the stderr of the host as a note.
    """
    declared = ABLE if capabilities is None else capabilities
    with contextlib.ExitStack() as scratch:
        flags: dict[str, Any] = dict(project.flags) if isinstance(project, Project) else {}
        if "cache_dir" not in flags:  # keeps the user's cache clean
            flags["cache_dir"] = scratch.enter_context(tempfile.TemporaryDirectory())
        host = await HostProcess.start(os.fspath(project), *_options(flags), version=version, env=env)
        host.client_name = client_name
        client = ProcessClient(host, person, patience)
        try:
            await host.open(declared, patience)
            yield client
        except BaseException as error:
            if host.stderr:
                error.add_note(f"stderr of the host:\n{host.stderr}")
            raise
        finally:
            await host.stop(patience)


def _options(flags: Mapping[str, Any]) -> list[str]:
    """Settings as options of the command line."""
    options: list[str] = []
    for key, value in flags.items():
        if value is not None:
            text = value if isinstance(value, str) else toml_value(value, key)
            options += ["--set", f"{key}={text}"]
    return options
