"""A served project over HTTP: a real process, and requests by hand, down to the bytes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from patience import PATIENCE
from piped import CAPABILITIES_KEY, STATELESS, VERSION_KEY
from shell import Command

__all__ = [
    "ACCEPT",
    "JSON",
    "READ_AND_WRITE",
    "Answer",
    "Events",
    "Web",
    "bearer",
    "initialize",
    "served_over_http",
    "until",
]

ACCEPT = "application/json, text/event-stream"
JSON = {"Content-Type": "application/json", "Accept": ACCEPT}
READ_AND_WRITE = '''
    @skill_command
    def read() -> str:
        """Read."""
        return "read"

    @skill_command
    def write() -> str:
        """Write."""
        return "written"
'''
"""A skill with two commands, whose callers may need scopes."""
SERVE = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "serve"]


def bearer(token: str) -> dict[str, str]:
    """The header of a request with a token."""
    return {"Authorization": f"Bearer {token}"}


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The answer, which is the last event of a stream if it took long."""
        is_stream = self.headers.get("content-type", "").startswith("text/event-stream")
        return self.messages[-1] if is_stream else json.loads(self.body)

    @property
    def messages(self) -> list[Any]:
        """The messages of a stream of events."""
        return [json.loads(line[6:]) for line in self.body.decode().split("\n") if line.startswith("data: {")]

    @property
    def text(self) -> str:
        return self.json["result"]["content"][0]["text"]


class Events:
    """A stream of events that is read as it comes."""

    left_open: ClassVar[list[Events]] = []
    """Those that a test has not closed."""

    def __init__(self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self._response = response
        self._connection = connection
        self.left_open.append(self)

    def __iter__(self) -> Iterator[dict[str, str]]:
        event: dict[str, str] = {}
        while line := self._response.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name.rstrip(":") == "" and line == b"\n":
                if event:
                    yield event
                event = {}
            elif name.rstrip(":"):
                event[name.rstrip(":")] = value

    def next(self) -> dict[str, str]:
        return next(iter(self))

    def message(self) -> Any:
        """The next message; events without one are passed over."""
        return next(json.loads(event["data"]) for event in self if event.get("data"))

    def close(self) -> None:
        if self not in self.left_open:
            return
        self.left_open.remove(self)
        if self._response.fp is None:
            self._connection.close()
            return
        sock = self._connection.sock or self._response.fp.raw._sock  # noqa: SLF001 - http.client gives it away
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        self._response.close()
        self._connection.close()


class Forked(Command):
    """A command in the background, like one that `subprocess.Popen` started, with a pipe for what it prints."""

    def __init__(self, *words: str, environ: dict[str, str], log: int) -> None:
        reading, writing = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            super().__init__(*words, cwd=Path.cwd(), environ=environ, fds=(nothing.fileno(), writing, log))
        os.close(writing)
        self.stdout = os.fdopen(reading)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stdout.close()
        self.wait()


class Web:
    """One server."""

    def __init__(self, process: subprocess.Popen[str] | Forked, url: str) -> None:
        self.process = process
        self.url = url
        self.port = int(url.rpartition(":")[2].partition("/")[0])
        self.errors: Path
        self.root: Path
        self.address = "127.0.0.1"
        """From where requests are sent."""

    def open(
        self, method: str, path: str = "/mcp", body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, PATIENCE, (self.address, 0))
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        return connection.getresponse(), connection

    def ask(self, method: str, path: str = "/mcp", body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        response, connection = self.open(method, path, body, headers)
        with contextlib.closing(connection):
            return Answer(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )

    def stream(
        self, method: str, path: str = "/mcp", body: Any = None, headers: dict[str, str] | None = None
    ) -> Events:
        return Events(*self.open(method, path, body, headers))

    def stateless(self, method: str, headers: dict[str, str] | None = None, **params: Any) -> Answer:
        """One request of the stateless era."""
        body, fields = stateless(method, **params)
        return self.ask("POST", "/mcp", body, {**fields, **(headers or {})})

    def call(self, name: str, /, headers: dict[str, str] | None = None, **arguments: Any) -> Answer:
        return self.stateless("tools/call", headers, name=name, arguments=arguments)

    def raw(self, *parts: bytes) -> bytes:
        """Everything that is answered to some bytes, until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            for part in parts:
                connection.sendall(part)
            answered = b""
            with contextlib.suppress(ConnectionResetError):
                while data := connection.recv(65536):
                    answered += data
            return answered


def stateless(method: str, /, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers of a stateless request."""
    meta = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}, **params.pop("_meta", {})}
    fields = {**JSON, "MCP-Protocol-Version": STATELESS, "Mcp-Method": method}
    if "name" in params:
        fields["Mcp-Name"] = params["name"]
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}, fields


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def initialize(
    web: Web,
    version: str = "2025-11-25",
    headers: dict[str, str] | None = None,
    client: dict[str, str] | None = None,
) -> dict[str, str]:
    """The headers of a new session."""
    params = {
        "protocolVersion": version,
        "capabilities": {"elicitation": {}},
        "clientInfo": client or {"name": "w", "version": "1"},
    }
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    opened = web.ask("POST", "/mcp", request, {**JSON, **(headers or {})})
    assert opened.status == 200, opened
    fields = {
        **JSON,
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "MCP-Protocol-Version": version,
        **(headers or {}),
    }
    ready = web.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, fields)
    assert (ready.status, ready.body) == (202, b"")
    return fields


@contextlib.contextmanager
def served_over_http(
    root: Path,
    *options: str,
    env: dict[str, str] | None = None,
    code: int = 0,
    before: str = "",
    forked: bool = True,
) -> Generator[Web]:
    """A server of a project, which leaves at the end with this exit code. It runs the code `before` it starts.

    It lacks only the start (`shell`) where it can be forked: without such code, and without processes of its own.
    """
    errors = root / f"stderr-{len(list(root.glob('stderr-*')))}"
    options = ("--project", str(root), "--port", "0", *options)
    environ = {**os.environ, **(env or {})}
    with errors.open("w") as log:
        if before or not forked or "--workers" in options:
            python, c, code_of_main, serve = SERVE
            command = [python, c, before + code_of_main, serve, *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environ)
        else:
            process = Forked("serve", *options, environ=environ, log=log.fileno())
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " at " not in line:
            raise AssertionError(errors.read_text())
        web = Web(process, line.split(" at ")[1].split(";")[0].split(",")[0].removesuffix("/mcp"))
        web.errors, web.root = errors, root
        try:
            yield web
        finally:
            process.terminate()
            left = process.wait(PATIENCE)
        assert code == left, errors.read_text()
