"""The testkit's process client, with checks: one line is one valid message of the revision, every request has one answer,
and nothing is said to nobody. Every wait is bounded, and no process is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import textwrap
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from anyio import fail_after
from mcp_types import jsonrpc, methods
from patience import PATIENCE
from shell import run
from template import MARK, name_of

from prowess_testkit.client import HANDSHAKE, STATELESS
from prowess_testkit.process import CAPABILITIES_KEY, VERSION_KEY, HostProcess, Message

__all__ = [
    "CAPABILITIES_KEY",
    "HANDSHAKE",
    "MARK",
    "STATELESS",
    "VERSION_KEY",
    "Client",
    "Hosts",
    "Message",
    "error",
    "forked_host",
    "hosted",
    "make_project",
    "processes",
    "replace_worker",
    "result",
    "shared_hosts",
    "until",
    "write_skill",
]


Process = TypeVar("Process", bound=HostProcess)


def write_skill(project: Path, name: str, body: str) -> Path:
    """A skill file with the usual imports."""
    file = project / "skills" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "from __future__ import annotations\nimport asyncio, os, subprocess, sys, threading, time\n"
    file.write_text(f"{head}from prowess import Context, SkillError, skill_command\n{textwrap.dedent(body)}")
    return file


def make_project(root: Path, /, settings: str = "", **skills: str) -> Path:
    """A project with these skills, and a cache of its own."""
    (root / "skills").mkdir(parents=True, exist_ok=True)
    (root / "prowess.toml").write_text(f'cache_dir = "cache"\n{textwrap.dedent(settings)}')
    for name, body in skills.items():
        write_skill(root, f"{name}.py", body)
    return root


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What the condition gives as soon as it is true."""
    pause = 0.002
    with fail_after(patience):
        while not (found := condition()):
            await asyncio.sleep(pause)
            pause = min(1.3 * pause, 0.05)
        return found


async def replace_worker(host: Client) -> None:
    """Kill the workers, and wait until they are gone."""
    old = host.workers()
    for pid in old:
        with contextlib.suppress(ProcessLookupError):  # it was about to go by itself
            os.kill(pid, signal.SIGKILL)
    await until(lambda: not set(old) & set(host.workers()))


def processes(mark: str) -> dict[int, str]:
    """The living processes that come from a host, by id: how they were started."""
    found: dict[int, str] = {}
    wanted = f"{MARK}={mark}".encode()
    forked = {name_of("h", mark): "a forked host", name_of("w", mark): "a forked prowess.worker"}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                elif (name := (folder / "comm").read_text().rstrip("\n")) in forked and (
                    folder / "cmdline"
                ).read_bytes():
                    found[int(folder.name)] = forked[name]
    return found


class Client(HostProcess):
    """One host, and what it said, each message checked against the types of its revision."""

    client_name = "piped"

    def __init__(self, process: asyncio.subprocess.Process, version: str) -> None:
        super().__init__(process, version)
        self.mark = ""
        self.faults: list[str] = []
        self._expected: dict[Any, tuple[str, str]] = {}
        self._abandoned: set[Any] = set()

    # Reading

    def take_line(self, line: bytes) -> None:
        try:
            assert line.endswith(b"\n"), "an unfinished line"
            super().take_line(line)
        except Exception as error:  # noqa: BLE001 - told at the end
            self.faults.append(f"{error!r} in {line[:300]!r}")

    def take_message(self, message: Message) -> None:
        known = message if "id" in message or "method" in message else {**message, "id": None}
        jsonrpc.jsonrpc_message_adapter.validate_python(known)  # the types know null where the schemas leave the id out
        if "method" in message and "id" in message:
            methods.parse_server_request(message["method"], self.version, message.get("params"))
        elif "method" in message:
            tagged = message.get("params", {}).get("_meta", {})
            version = STATELESS if "io.modelcontextprotocol/subscriptionId" in tagged else self.version
            methods.parse_server_notification(message["method"], version, message.get("params"))
        super().take_message(message)

    def take_answer(self, message: Message) -> None:
        method, version = self._expected.pop(message["id"])
        assert message["id"] not in self._abandoned, "an answer to a cancelled request"
        super().take_answer(message)
        if "result" in message:
            methods.validate_server_result(method, version, message["result"])

    # Speaking

    def expect(
        self, request_id: Any, method: str = "tools/call", version: str | None = None
    ) -> asyncio.Future[Message]:
        """The answer to a request that is sent by hand."""
        self._expected[request_id] = method, version or self.version
        return super().expect(request_id, method)

    def cancel(self, answer: Any) -> None:
        """Give up a request."""
        self._abandoned.add(answer.number)
        self.notify("notifications/cancelled", requestId=answer.number)

    def start_call(self, name: str, /, *, progress: Any = None, extra: Message | None = None, **arguments: Any) -> Any:
        params: Message = {"name": name, "arguments": arguments, **(extra or {})}
        if progress is not None:
            params["_meta"] = {"progressToken": progress}
        return self.request("tools/call", **params)

    async def call(self, name: str, /, **arguments: Any) -> Message:
        """The result of a command."""
        return await result(self.start_call(name, **arguments))

    async def text(self, name: str, /, **arguments: Any) -> str:
        """The text of the result of a command."""
        return (await self.call(name, **arguments))["content"][0]["text"]

    async def tools(self) -> list[str]:
        """The names of all tools."""
        return [tool["name"] for tool in (await result(self.request("tools/list")))["tools"]]

    async def ask(self, method: str, **params: Any) -> Message:
        """The result of a request."""
        return await result(self.request(method, **params))

    async def noted(self, method: str, count: int = 1) -> Message:
        """The n-th notification of a method."""
        found = await self.news(lambda: [note for note in self.notes if note["method"] == method][count - 1 :])
        return found[0]

    async def question(self, count: int = 1) -> Message:
        """The n-th request of the host."""
        return (await self.news(lambda: self.asked[count - 1 :]))[0]

    async def heard(self, text: str) -> None:
        """Wait until stderr has said this."""
        await until(lambda: text in self.stderr)

    # Processes

    def workers(self) -> list[int]:
        """The worker processes."""
        return sorted(pid for pid, command in processes(self.mark).items() if "prowess.worker" in command)

    async def worker(self) -> int:
        """The one worker."""
        return (await until(lambda: len(found := self.workers()) == 1 and found))[0]

    async def barrier(self) -> None:
        """Everything sent so far has been read."""
        with fail_after(PATIENCE):
            await self.request("tools/list")

    # Leaving

    async def leave(self) -> int:
        """Close the input; gives the exit code."""
        self.close_input()
        return await self.ended()

    async def alone(self) -> None:
        """No process is left behind."""
        await until(lambda: not processes(self.mark))

    async def finish(self) -> None:
        """Leave if need be, and judge."""
        if not await self.stop():
            self.faults.append("the host did not leave at the end of its input")
        await self.alone()
        assert self.faults == [], f"{self.faults}\n{self.stderr}"


async def result(answer: asyncio.Future[Message]) -> Message:
    """The result of a request; an error is a failure."""
    with fail_after(PATIENCE):
        message = await answer
    assert "result" in message, message
    return message["result"]


async def error(answer: asyncio.Future[Message]) -> Message:
    """The error a request is answered with."""
    with fail_after(PATIENCE):
        message = await answer
    assert "error" in message, message
    return message["error"]


@contextlib.asynccontextmanager
async def hosted(
    project: Path,
    *options: str,
    version: str = HANDSHAKE,
    capabilities: Message | None = None,
    env: Mapping[str, str] | None = None,
    opened: bool = True,
    through: Sequence[str] = (),
    forked: bool | Literal["host"] = False,
) -> AsyncGenerator[Client]:
    """A host that serves a project, with the handshake done; `through` is a program that starts it.

    One that is forked, like its workers, lacks only the start (`shell`). With "host", its workers are started.
    """
    mark = uuid.uuid4().hex
    added = {MARK: mark, **(env or {})}
    if forked:
        client = await forked_host(
            Client, project, *options, version=version, env=added, forked_workers=forked != "host"
        )
    else:
        client = await Client.start(project, *options, version=version, env=added, through=through)
    client.mark = mark
    try:
        if opened:
            await client.open(capabilities)
        yield client
        await client.finish()
    except BaseException:
        print(client.stderr)  # pytest shows it with the failure
        raise
    finally:
        for pid in processes(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if client.process.returncode is None:
            await client.process.wait()


async def forked_host(
    of: type[Process],
    project: str | Path,
    *options: str,
    version: str = HANDSHAKE,
    env: Message | None = None,
    forked_workers: bool = True,
) -> Process:
    """What `HostProcess.start` gives, in a process that is forked."""
    environ = {**os.environ, **(env or {})}
    process = await run("host", "--project", str(project), *options, environ=environ, forked_workers=forked_workers)
    return of(cast("asyncio.subprocess.Process", process), version)


class Hosts:
    """Hosts of one project that tests use one after the other, since a host and its worker cost a third of a second.

    A test shakes hands anew, so that a session begins for the host as well. A host that a test has failed with is not used again.
    """

    def __init__(self, stack: contextlib.AsyncExitStack, project: Path, warm: str, *, forked: bool) -> None:
        self.project = project
        self._forked = forked
        self._stack = stack
        self._warm = warm
        self._free: dict[object, list[Client]] = {}
        """By the settings in the environment that they were started with."""

    @contextlib.asynccontextmanager
    async def __call__(
        self, *, version: str = HANDSHAKE, capabilities: Message | None = None
    ) -> AsyncGenerator[Client]:
        free = self._free.setdefault(frozenset(it for it in os.environ.items() if it[0].startswith("PROWESS_")), [])
        if free:
            host = free.pop()
        else:
            host = await self._stack.enter_async_context(hosted(self.project, opened=False, forked=self._forked))
        host.version = version
        host.notes.clear()
        host.asked.clear()
        host.stderr = ""
        await host.open(capabilities)
        if self._warm:
            await host.call(self._warm)
        yield host
        assert host.process.returncode is None, host.stderr
        assert host.faults == [], host.stderr
        free.append(host)


@contextlib.asynccontextmanager
async def shared_hosts(project: Path, warm: str = "", *, forked: bool = False) -> AsyncGenerator[Hosts]:
    """Hosts of a project for the tests of one module; each test may end their workers, and leaves the files as they are.

    `warm` is a command that is called before each test, so that its skill is imported already.
    """
    async with contextlib.AsyncExitStack() as stack:
        yield Hosts(stack, project, warm, forked=forked)
