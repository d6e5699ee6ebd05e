"""The processes of one `prowess serve --workers N`: they exchange news of changes, and add up their counters.

They share a folder of their supervisor. Each process listens on a socket there, and saves its counters in a file. A process
that replaces another one continues with the saved counters.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from prowess.jsontypes import JsonObject

__all__ = ["Siblings"]

_log = logging.getLogger("prowess.host")
_SAVED: Final = 0.5
"""Seconds between two writes of the counters."""
_PATIENCE: Final = 10.0
"""Seconds that another process has to take news."""
_MOST: Final = 1024 * 1024


class Siblings:
    """This process among the others."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._counted: Callable[[], JsonObject] = dict
        self._missed: set[Path] = set()
        """The sockets of processes that could not take news, because they stand still."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def before(self) -> JsonObject:
        """The counters of the process that this one replaces."""
        return _read(self._folder / f"{self._number}.json")

    def start(self, on_news: Callable[[JsonObject], None], counted: Callable[[], JsonObject]) -> None:
        """Call `on_news` with the news of other processes, and save what `counted` returns."""
        self._counted = counted
        self._run(self._listen(on_news))
        self._run(self._save())

    async def close(self) -> None:
        """Receive no more news, and save the counters a last time."""
        for task in list(self._tasks):
            task.cancel()
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            self._write()

    def counts(self) -> list[JsonObject]:
        """The counters of all processes: of this one now, of the others as last saved."""
        others = (file for file in sorted(self._folder.glob("*.json")) if file.stem != str(self._number))
        return [self._counted(), *map(_read, others)]

    def broadcast(self, news: JsonObject) -> None:
        """Send news to all other processes."""
        for path in self._folder.glob("*.socket"):
            if path.stem != str(self._number):
                self._run(self._send(path, json.dumps(news).encode()))

    async def _send(self, path: Path, news: bytes) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                _, writer = await asyncio.open_unix_connection(path)
                writer.write(news + b"\n")
                writer.close()
                await writer.wait_closed()
        except (FileNotFoundError, ConnectionRefusedError):  # it has ended
            return
        except (OSError, TimeoutError):
            self._missed.add(path)

    async def _listen(self, on_news: Callable[[JsonObject], None]) -> None:
        async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                on_news(json.loads(await reader.readline()))
            except (OSError, ValueError):
                _log.exception("news of another process could not be read")
            finally:
                writer.close()

        path = self._folder / f"{self._number}.socket"
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(receive, path, limit=_MOST)

    async def _save(self) -> None:
        """Save the counters, and tell processes that could not take news that they have missed some."""
        while self._folder.exists():  # it goes with the supervisor
            with contextlib.suppress(OSError):  # a full disk: the next write may succeed
                self._write()
            missed, self._missed = self._missed, set()
            for path in missed:
                self._run(self._send(path, b'{"missed": true}'))
            await asyncio.sleep(_SAVED)

    def _write(self) -> None:
        draft = self._folder / f"{self._number}.draft"
        draft.write_bytes(json.dumps({**self._counted(), "process": os.getpid()}).encode())
        draft.replace(self._folder / f"{self._number}.json")

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _read(file: Path) -> JsonObject:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
