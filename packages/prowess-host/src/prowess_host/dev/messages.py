"""Requests and responses of the page, independent of the HTTP server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from prowess.frozen import frozen

__all__ = ["Handler", "Request", "Response", "Stream", "json_response", "text_response"]


@frozen
class Request:
    """A request of the browser."""

    method: str
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """With lower-case names."""
    body: bytes = b""


@frozen
class Response:
    """A complete response."""

    status: int
    type: str = "text/plain; charset=utf-8"
    body: bytes = b""


@frozen
class Stream:
    """A response of server-sent events."""

    parts: AsyncGenerator[bytes]
    type: str = "text/event-stream"


Handler: TypeAlias = Callable[[Request], Awaitable["Response | Stream"]]
_JSON: Final = "application/json"


def json_response(data: Any, status: int = 200) -> Response:
    """Data as JSON."""
    text = json.dumps(data, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(status, _JSON, text)


def text_response(status: int, text: str) -> Response:
    """A plain text response."""
    return Response(status, body=text.encode())
