"""The cases of the contract table that need a host, over HTTP: the same tests as over a pipe, with another client."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from piped import VERSION_KEY
from tests.contracts.test_wire import (
    CLIENT,
    SKILL,
    test_a_long_line_is_served,
    test_a_ping_is_answered,
    test_a_second_handshake,
    test_an_exception_of_a_command,
    test_an_unknown_tool,
    test_every_line_has_one_answer_or_none,
    test_wrong_arguments,
)
from web import JSON, Answer, Web, served_over_http, stateless

__all__ = [
    "test_a_long_line_is_served",
    "test_a_ping_is_answered",
    "test_a_second_handshake",
    "test_an_exception_of_a_command",
    "test_an_unknown_tool",
    "test_every_line_has_one_answer_or_none",
    "test_wrong_arguments",
]


class OverHttp:
    """What `tests.contracts.conftest.Wire` is over a pipe: each message is a request, and its answer comes with the response."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._session: dict[str, str] = {}
        self._unread: list[Answer] = []
        self._last = 0

    def write(self, line: bytes) -> None:
        self._unread.append(self._web.ask("POST", "/mcp", line, {**JSON, **self._session}))

    def read(self) -> Any:
        answer = self._unread.pop(0)
        return answer.messages[-1] if "event-stream" in answer.headers["content-type"] else answer.json

    def notify(self, method: str) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode())
        assert (202, b"") == (self._unread[-1].status, self._unread.pop().body)

    def ask(self, method: str, **params: Any) -> Any:
        if VERSION_KEY in params.get("_meta", {}):
            body, fields = stateless(method, **params)
            return self._web.ask("POST", "/mcp", body, fields).json
        self._last += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}).encode())
        answer = self.read()
        assert (self._last, "2.0") == (answer.get("id"), answer["jsonrpc"])
        assert ("result" in answer) != ("error" in answer)
        return answer

    def initialize(self) -> Any:
        self._session = {}
        self._last += 1
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
        request = {"jsonrpc": "2.0", "id": self._last, "method": "initialize", "params": params}
        self.write(json.dumps(request).encode())
        identity = self._unread[-1].headers.get("mcp-session-id")  # replicas have no sessions
        self._session = {"MCP-Protocol-Version": "2025-11-25"} | ({"Mcp-Session-Id": identity} if identity else {})
        answer = self.read()
        self.notify("notifications/initialized")
        return answer


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Generator[Web]:
    root: Path = tmp_path_factory.mktemp("words")
    (root / "skills").mkdir()
    (root / "skills/words.py").write_text(dedent(SKILL).lstrip())
    with served_over_http(root) as web:
        yield web


@pytest.fixture
def client(words: Web) -> OverHttp:
    """A client that has shaken hands with the server of this module."""
    client = OverHttp(words)
    client.initialize()
    return client
