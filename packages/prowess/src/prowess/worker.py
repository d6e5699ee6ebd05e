"""The process that imports skills and runs commands for a host: `python -P -m prowess.worker`.

Knows frames and a runtime; knows no protocol of any client. Leaves when the host does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic_core import from_json, to_json

from prowess.call import Channel, Questions
from prowess.errors import AskError
from prowess.jsontypes import JsonObject
from prowess.link import Board, Frame, Kind, Link
from prowess.outcome import Outcome
from prowess.runtime import Runtime

__all__ = ["Worker", "main"]

_log = logging.getLogger("prowess.worker")
_WATCH: Final = 0.25
_LEAVING: Final = 1.0
"""Seconds that singletons get to close."""


class Worker:
    """One end of the link, and the runtime behind it."""

    def __init__(self, runtime: Runtime, board: Board) -> None:
        self._runtime = runtime
        self._board = board
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, asyncio.Future[Mapping[str, JsonObject]]] = {}
        self._lingering = 0
        self._background: set[asyncio.Task[None]] = set()
        self.gone = asyncio.Event()
        self.link = Link(self._on_frame, self.gone.set)

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == Kind.CALL:
            self._begin(frame)
        elif frame.kind == Kind.PING:
            self.link.send(Kind.PONG, frame.number)
        elif frame.kind == Kind.CANCEL:
            task = self._calls.get(frame.number)
            if task is not None:
                task.cancel()
        elif frame.kind == Kind.ANSWERS:
            self._answered(frame)
        elif frame.kind == Kind.DESCRIBE:
            self._spawn(self._describe())
        elif frame.kind == Kind.QUIT:
            self.gone.set()

    def _begin(self, frame: Frame) -> None:
        if not self._board.start(frame.number):
            return  # retired: the host gives this call to another worker
        task = asyncio.ensure_future(self._call(frame))
        self._calls[frame.number] = task
        task.add_done_callback(lambda _: self._calls.pop(frame.number, None))

    def _spawn(self, coroutine: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Calls

    async def _call(self, frame: Frame) -> None:
        how: JsonObject = from_json(frame.head)
        channel = self._channel(frame.number, how)
        try:
            arguments = from_json(frame.body, allow_inf_nan=False)
            outcome = await self._runtime.call(how["command"], arguments, channel=channel)
            self._send_outcome(frame.number, outcome, how)
        finally:
            self._report_lingering()

    def _send_outcome(self, number: int, outcome: Outcome, how: JsonObject) -> None:
        missing = getattr(outcome, "missing_capability", None)
        if outcome.kind == "input_required":
            self.link.send(Kind.INPUT_REQUIRED, number, to_json(outcome.questions))
        elif outcome.kind == "unknown":
            self.link.send(Kind.REFUSED, number, to_json({"kind": "unknown", "message": outcome.text}))
        elif missing is not None:
            facts = {"kind": "missing_capability", "name": missing, "message": outcome.text}
            self.link.send(Kind.REFUSED, number, to_json(facts))
        else:
            payload = outcome.payload(how.get("profile"), boxed=how.get("boxed", True))
            meta = payload.pop("_meta", None)
            self.link.send(Kind.RESULT, number, to_json(meta) if meta else b"{}", to_json(payload))

    def _channel(self, number: int, how: JsonObject) -> Channel:
        send = self.link.send

        def progress(done: float, total: float | None, message: str | None) -> None:
            send(Kind.PROGRESS, number, json.dumps([done, total, message]).encode())

        def log(level: str, data: Any) -> None:
            send(Kind.LOG, number, to_json([level, data], fallback=repr))

        async def ask(questions: Questions) -> Mapping[str, JsonObject]:
            return await self._ask(number, questions)

        channel = Channel(
            client_name=how.get("client", ""),
            capabilities=how.get("capabilities", {}),
            trace_id=how.get("trace", ""),
            answers=how.get("answers"),
        )
        if how.get("asks"):
            channel.ask = ask
        if how.get("progress"):
            channel.progress = progress
        if how.get("log"):
            channel.log = log
        return channel

    async def _ask(self, number: int, questions: Questions) -> Mapping[str, JsonObject]:
        future: asyncio.Future[Mapping[str, JsonObject]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self.link.send(Kind.QUESTIONS, number, to_json(questions))
        try:
            return await future
        finally:
            del self._waiting[number]

    def _answered(self, frame: Frame) -> None:
        future = self._waiting.get(frame.number)
        if future is None or future.done():
            return
        told: JsonObject = from_json(frame.head)
        if "error" in told:
            future.set_exception(AskError(str(told["error"])))
        else:
            future.set_result(told["answers"])

    def _report_lingering(self) -> None:
        """Tell the host when threads run on that nobody waits for, and when they have ended after all."""
        lingering = self._runtime.abandoned_threads
        if lingering != self._lingering:
            self._lingering = lingering
            self.link.send(Kind.LINGERING, lingering)
        if lingering:
            asyncio.get_running_loop().call_later(_WATCH / 5, self._report_lingering)

    # The catalog

    async def _describe(self) -> None:
        catalog = await asyncio.to_thread(self._runtime.catalog)
        told = {
            "contracts": [contract.to_json() for contract in catalog.contracts],
            "failures": [[item.source, item.reason, item.file, item.line] for item in catalog.failures],
        }
        self.link.send(Kind.CATALOG, 0, to_json(told))


async def serve(sock: socket.socket, board: Board, root: Path, flags: JsonObject) -> None:
    """Serve one host until it is gone."""
    loop = asyncio.get_running_loop()
    runtime = Runtime(root, flags=flags)
    worker = Worker(runtime, board)
    await loop.create_connection(lambda: worker.link, sock=sock)
    worker.link.send(Kind.READY, os.getpid())
    _watch_loop(loop)
    await worker.gone.wait()
    with anyio.move_on_after(_LEAVING):
        await runtime.aclose()


def _watch_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Say on stderr where the loop is when something blocks it. The host decides what becomes of the worker."""
    beat = [time.monotonic()]
    limit = float(os.environ.get("PROWESS__STALL_LIMIT", "1.0"))
    main_thread = threading.get_ident()

    def tick() -> None:
        beat[0] = time.monotonic()
        loop.call_later(_WATCH, tick)

    def watch() -> None:
        told = 0.0
        while True:
            time.sleep(_WATCH)
            if time.monotonic() - beat[0] > limit and told != beat[0]:
                told = beat[0]
                frame = sys._current_frames().get(main_thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
                if frame is not None:
                    _log.warning("the event loop is blocked at %s:%s", frame.f_code.co_filename, frame.f_lineno)

    tick()
    threading.Thread(target=watch, name="prowess-watch", daemon=True).start()


def main(argv: list[str] | None = None) -> None:
    """Entry point: the descriptors and the project come as arguments."""
    link_fd, board_fd, root, flags = (argv if argv is not None else sys.argv[1:])[:4]
    logging.basicConfig(level=logging.WARNING, format="prowess: %(message)s", stream=sys.stderr)
    for fd in (int(link_fd), int(board_fd)):
        os.set_inheritable(fd, False)  # noqa: FBT003 - positional in the standard library
    sock = socket.socket(fileno=int(link_fd))
    board = Board(int(board_fd))
    if root not in sys.path:
        sys.path.append(root)
    try:
        asyncio.run(serve(sock, board, Path(root), json.loads(flags)))
    finally:
        sys.stderr.flush()
        os._exit(0)  # threads that nobody waits for must not hold the process


if __name__ == "__main__":
    main()
