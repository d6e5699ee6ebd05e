"""The small server: requests that are well-formed, and those that are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from anyio import fail_after
from patience import PATIENCE

from prowess_host.dev import server
from prowess_host.dev.messages import PageRequest, PageResponse, PageStream, json_response
from prowess_host.dev.server import serving


async def echo(request: PageRequest) -> PageResponse:
    """What arrived."""
    return json_response([request.method, request.path, request.headers.get("x", ""), request.body.decode()])


async def talk(port: int, data: bytes) -> str:
    """All that comes back until the connection ends."""
    with fail_after(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        if writer.can_write_eof():
            writer.write_eof()
        answer = (await reader.read()).decode()
        writer.close()
        return answer


async def test_requests_are_answered_one_after_the_other():
    """On one connection."""
    async with serving(echo) as port:
        first = b"POST /a%20b?c=%26&d=2 HTTP/1.1\r\nHost: x\r\nX:  y \r\nContent-Length: 2\r\n\r\nhi"
        with fail_after(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                writer.write(first)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                assert b"Content-Security-Policy: default-src 'none'" in head
                body = b'["POST", "/a b", "y", "hi"]'
                assert body == await reader.readexactly(len(body))
            writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"Connection: close\r\n\r\n")
            writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_refused(data: bytes):
    """And ends the connection: whatever follows cannot be told apart."""
    async with serving(echo) as port:
        assert (await talk(port, data)).startswith("HTTP/1.1 400 ")
        assert "HTTP/1.1 200" in await _get(port)


async def _get(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    with fail_after(PATIENCE):
        answer = (await reader.read()).decode()
    writer.close()
    return answer


@pytest.mark.parametrize("data", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_browser_may_leave_at_any_time(data: bytes):
    async with serving(echo) as port:
        assert "" == await talk(port, data)


async def test_a_handler_is_cancelled_when_the_browser_leaves():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(_: PageRequest) -> PageResponse:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        return PageResponse(200)

    async with serving(wait) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with fail_after(PATIENCE):
            await begun.wait()
            writer.close()
            await ended.wait()


async def test_a_stream_goes_on_until_somebody_leaves():
    closed = asyncio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        try:
            for number in range(10**9):
                yield b"%d\n" % number
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    async def stream(_: PageRequest) -> PageStream:
        return PageStream(parts())

    async with serving(stream) as port:
        with fail_after(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
            assert b"0\n" == await reader.readline()
            assert b"1\n" == await reader.readline()
            writer.close()
            await closed.wait()


async def test_a_stream_may_end():
    async def parts() -> AsyncGenerator[bytes]:
        yield b"all"

    async def stream(_: PageRequest) -> PageStream:
        return PageStream(parts())

    async with serving(stream) as port:
        assert (await _get(port)).endswith("\r\n\r\nall")


async def test_a_fault_of_a_handler_costs_one_connection(caplog: pytest.LogCaptureFixture):
    async def fail(request: PageRequest) -> PageResponse:
        return await echo(request) if request.path == "/" else PageResponse(1 // 0)

    async with serving(fail) as port:
        assert "" == await talk(port, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert "200 OK" in await _get(port)
    assert "ZeroDivisionError" in caplog.text


async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_PATIENCE", 0.01)
    async with serving(echo) as port:
        with fail_after(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert b"" == await reader.read()
            writer.close()


async def test_only_loopback_is_served_and_a_taken_port_is_an_error():
    async with serving(echo) as port:
        with pytest.raises(OSError):
            async with serving(echo, port):
                pass
