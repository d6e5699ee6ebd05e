"""A proxy between a process and the engine whose two directions can be cut and mended."""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["Proxy"]


class Proxy:
    """Listens on loopback, and passes bytes on. `await start` gives its address."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._pipes: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._open = asyncio.Event()
        self._open.set()
        self._upwards = asyncio.Event()
        self._upwards.set()
        self._downwards = asyncio.Event()
        self._downwards.set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """All connections end, and new ones stay silent, until `mend`."""
        self._open.clear()
        for pipe in self._pipes:
            for end in pipe:
                end.transport.abort()
        self._pipes.clear()

    def hush(self) -> None:
        """What the process says does not arrive, until `mend`; what it is told does."""
        self._upwards.clear()

    def deafen(self) -> None:
        """What the process is told does not arrive, until `mend`; what it says does."""
        self._downwards.clear()

    def mend(self) -> None:
        self._open.set()
        self._upwards.set()
        self._downwards.set()

    async def close(self) -> None:
        self.cut()
        self.mend()
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        with contextlib.suppress(OSError):
            beyond, up = await asyncio.open_connection("127.0.0.1", self._port)
            self._pipes.append((writer, up))
            await asyncio.gather(self._pass(reader, up, self._upwards), self._pass(beyond, writer, self._downwards))
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await allowed.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
