"""A small HTTP/1.1 server on loopback for one browser. Independent of routes and projects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.parse
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any, Final

from prowess_host.dev.messages import Handler, PageRequest, PageResponse, PageStream, text_response

__all__ = ["HEADERS", "serving"]

_log = logging.getLogger("prowess.host")
_LOOPBACK: Final = "127.0.0.1"
_MOST_HEAD: Final = 32 * 1024
_MOST_BODY: Final = 16 * 1024 * 1024
_PATIENCE: Final = 60.0
"""Seconds for a request to arrive, and for an idle connection."""
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response. No other page may load or embed it or learn its address, and it loads nothing from elsewhere."""


@contextlib.asynccontextmanager
async def serving(handler: Handler, port: int = 0) -> AsyncGenerator[int]:
    """Serve on loopback inside the block, and yield the port. Raises `OSError` if the port is taken."""
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio starts one for each connection
        connections.add(task)
        try:
            await _serve(reader, writer, handler)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError):
            pass  # the browser has disconnected, or the server ends
        except Exception:  # noqa: BLE001 - a fault costs one connection
            _log.exception("a request of the page could not be served")
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, _LOOPBACK, port, limit=_MOST_HEAD)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Serve one connection, one request at a time."""
    while True:
        async with asyncio.timeout(_PATIENCE):
            try:
                request = await _read(reader)
            except ValueError as error:
                await _write(writer, text_response(400, str(error)), keep=False)
                return
        if request is None:
            return
        answer = await _answered(reader, handler, request)
        if answer is None:
            return
        if isinstance(answer, PageStream):
            await _stream(reader, writer, answer)
            return
        keep = request.headers.get("connection", "").lower() != "close"
        await _write(writer, answer, keep=keep, head_only=request.method == "HEAD")
        if not keep:
            return


async def _read(reader: asyncio.StreamReader) -> PageRequest | None:
    """Read the next request; `None` at the end of the connection. Raises `ValueError` for a malformed one."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise ValueError("the head of the request is too long") from None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise ValueError("not a request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip() or name.lower() in headers:
            raise ValueError("a header of the request is malformed or comes twice")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise ValueError("the request must have a Content-Length")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length) > _MOST_BODY:
        raise ValueError("the body of the request is too long, or of unknown length")
    body = await reader.readexactly(int(length))
    path = urllib.parse.urlsplit(parts[1]).path
    return PageRequest(parts[0], urllib.parse.unquote(path), headers, body)


async def _answered(
    reader: asyncio.StreamReader, handler: Handler, request: PageRequest
) -> PageResponse | PageStream | None:
    """Run the handler. If the browser disconnects first, cancel it and return `None`."""
    work = asyncio.ensure_future(handler(request))
    gone = asyncio.ensure_future(_gone(reader))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        for task in (work, gone):
            task.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


async def _gone(reader: asyncio.StreamReader) -> None:
    """Wait until the browser disconnects. It sends nothing before it has its response."""
    while not reader.at_eof():  # noqa: ASYNC110 - a reader tells nobody
        await asyncio.sleep(0.1)


async def _stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: PageStream) -> None:
    _head(writer, 200, {"Content-Type": "text/event-stream", "Connection": "close"})
    await writer.drain()
    gone = asyncio.ensure_future(_gone(reader))
    parts = aiter(answer.parts)
    part: asyncio.Future[bytes] | None = None
    try:
        while not gone.done():
            part = asyncio.ensure_future(anext(parts))
            await asyncio.wait([part, gone], return_when=asyncio.FIRST_COMPLETED)
            if not part.done():
                return
            writer.write(part.result())
            await writer.drain()
    except StopAsyncIteration:
        pass
    finally:
        waiting: list[asyncio.Future[Any]] = [gone] if part is None else [gone, part]
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await answer.parts.aclose()


async def _write(writer: asyncio.StreamWriter, answer: PageResponse, *, keep: bool, head_only: bool = False) -> None:
    length = {"Content-Length": str(len(answer.body))}
    _head(
        writer, answer.status, {"Content-Type": answer.type, **length, "Connection": "keep-alive" if keep else "close"}
    )
    if not head_only:
        writer.write(answer.body)
    await writer.drain()


def _head(writer: asyncio.StreamWriter, status: int, headers: dict[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in {**HEADERS, **headers}.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
