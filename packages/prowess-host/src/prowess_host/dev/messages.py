"""Requests and responses of the page, independent of the HTTP server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from prowess.frozen import frozen
from prowess.jsontypes import json_bytes

__all__ = ["Handler", "PageRequest", "PageResponse", "PageStream", "json_response", "text_response"]


@frozen
class PageRequest:
    """A request of the browser."""

    method: str
    path: str
    """Decoded, without the query."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """With lower-case names."""
    body: bytes = b""


@frozen
class PageResponse:
    """A complete response."""

    status: int
    type: str = "text/plain; charset=utf-8"
    body: bytes = b""


@frozen
class PageStream:
    """A response of server-sent events."""

    parts: AsyncGenerator[bytes]


Handler: TypeAlias = Callable[[PageRequest], Awaitable["PageResponse | PageStream"]]
_JSON: Final = "application/json"


def json_response(data: Any, status: int = 200) -> PageResponse:
    """Data as JSON."""
    return PageResponse(status, _JSON, json_bytes(data))


def text_response(status: int, text: str) -> PageResponse:
    """A plain text response."""
    return PageResponse(status, body=text.encode())
