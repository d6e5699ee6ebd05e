"""A worker without shared memory tells the host what it begins, before it begins it, and gives back what it has not."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from patience import PATIENCE

from prowess.worker import stream
from prowess.worker.board import Importing
from prowess.worker.link import Frame, encode_frame, receive
from prowess.worker.messages import Kind, hello
from prowess.worker.serving import serve
from prowess.worker.stream import Stream


class Ends:
    """A stream, and the socket of its host."""

    def __init__(self) -> None:
        self.host, theirs = socket.socketpair()
        self.stream = Stream(theirs)
        self.heard: list[Frame] = []
        self.lost = asyncio.Event()
        self.stream.listen(self.heard.append, self.lost.set)

    def tell(self, kind: Kind, number: int = 0, told: Any = None) -> None:
        self.host.sendall(encode_frame(kind, number, json.dumps(told).encode()))

    async def until(self, count: int) -> list[tuple[int, int]]:
        """The frames that have come to the loop, once there are so many."""
        with fail_after(PATIENCE):
            while len(self.heard) < count:  # noqa: ASYNC110 - they come from a thread
                await asyncio.sleep(0.001)
        return [frame[:2] for frame in self.heard]

    async def told(self) -> Frame:
        with fail_after(PATIENCE):
            return await asyncio.to_thread(receive, self.host)


@pytest.fixture
async def ends() -> AsyncGenerator[Ends]:
    made = Ends()
    yield made
    made.host.close()
    with fail_after(PATIENCE):
        await made.lost.wait()


async def test_a_call_begins_once_and_the_host_hears_of_it_first(ends: Ends):
    for number in (1, 2):
        ends.tell(Kind.CALL, number)
    await ends.until(2)
    assert ends.stream.start(2)
    assert not ends.stream.start(2)
    assert not ends.stream.start(3)
    assert (Kind.BEGUN, 2) == (await ends.told())[:2]


async def test_what_has_not_begun_is_given_back_without_the_loop(ends: Ends):
    """It may be blocked. What has begun, has ended or never came is left alone."""
    for number in (1, 2, 3):
        ends.tell(Kind.CALL, number)
    ends.tell(Kind.CANCEL, 3)
    await ends.until(4)
    ends.stream.start(1)
    ends.tell(Kind.WITHDRAW, 0, {"numbers": [1, 2, 3, 4], "new": True})
    ends.tell(Kind.RETIRE)
    ends.tell(Kind.CALL, 5)
    told = [receive(ends.host)[:2] for _ in range(3)]  # while this thread blocks the loop
    assert [(Kind.BEGUN, 1), (Kind.UNBEGUN, 2), (Kind.UNBEGUN, 5)] == told
    assert not ends.stream.start(2)
    ends.tell(Kind.PING)
    assert (Kind.PING, 0) == (await ends.until(5))[-1]


async def test_a_retired_worker_gives_back_all_that_waits(ends: Ends):
    ends.tell(Kind.CALL, 1)
    await ends.until(1)
    ends.tell(Kind.RETIRE)
    assert (Kind.UNBEGUN, 1) == (await ends.told())[:2]
    assert not ends.stream.start(1)


async def test_a_call_that_waits_for_its_turn_can_be_given_back(ends: Ends):
    """It has begun and then waits, before anything of it ran; also where the worker is retired meanwhile."""
    for number in (1, 2, 3):
        ends.tell(Kind.CALL, number)
    await ends.until(3)
    assert all(ends.stream.start(number) for number in (1, 2, 3))
    assert [1, 2, 3] == [(await ends.told()).number for _ in range(3)]
    ends.stream.pause(1)
    assert ends.stream.start(1)
    ends.stream.pause(2)
    ends.tell(Kind.RETIRE)
    assert [(Kind.BEGUN, 1), (Kind.UNBEGUN, 2)] == [(await ends.told())[:2] for _ in range(2)]
    assert not ends.stream.start(2)
    ends.stream.pause(3)
    assert (Kind.UNBEGUN, 3) == (await ends.told())[:2]
    assert not ends.stream.start(3)


async def test_a_cancelled_call_does_not_start(ends: Ends):
    """Not after it has begun and then waits for its turn, nor if its end has arrived with it, before any thread could read it."""
    ends.tell(Kind.CALL, 1)
    ends.tell(Kind.CALL, 2)
    await ends.until(2)
    assert ends.stream.start(1)
    ends.tell(Kind.CANCEL, 1)
    ends.tell(Kind.CANCEL, 2)
    assert not ends.stream.start(2)
    ends.stream.pause(1)
    assert not ends.stream.start(1)
    assert (Kind.BEGUN, 1) == (await ends.told())[:2]


async def test_a_call_that_is_overdue_does_not_start(ends: Ends):
    """Its end may still be on the way. What is over leaves nothing behind."""
    for number, seconds in (1, -1.0), (2, PATIENCE), (3, PATIENCE):
        ends.tell(Kind.DUE, number, {"at": time.monotonic() + seconds})
        ends.tell(Kind.CALL, number)
    await ends.until(3)
    assert [False, True] == [ends.stream.start(number) for number in (1, 2)]
    assert (Kind.BEGUN, 2) == (await ends.told())[:2]
    ends.stream.send(Kind.UNBEGUN, 1)
    ends.stream.send(Kind.RESULT, 2)
    ends.tell(Kind.CANCEL, 3)
    await ends.until(4)
    assert {} == ends.stream._due


async def test_what_arrives_without_end_does_not_delay_a_call(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    """A call that starts looks at some of it."""
    ends.tell(Kind.CALL, 1)
    await ends.until(1)
    with ends.stream._reading:  # the thread waits
        monkeypatch.setattr(stream, "_CHUNK", 1)
        ends.tell(Kind.CALL, 2, "much longer than what is looked at")
    assert ends.stream.start(1)
    assert [1, 2] == [number for _, number in await ends.until(2)]


async def test_imports_and_beats_are_told(ends: Ends):
    ends.stream.note([Importing(1, "one", "/a/\udcff.py")])
    ends.stream.note([])
    ends.stream.beat()
    imports = [json.loads((await ends.told()).head)["imports"] for _ in range(2)]
    assert [[[1, "one", "/a/\udcff.py"]], []] == imports
    assert Kind.BEAT == (await ends.told()).kind


async def test_a_call_does_not_start_before_the_system_has_taken_its_begun(ends: Ends):
    """The host does not read: whatever was sent before it has to go first."""
    rooms = 0

    def room() -> None:
        nonlocal rooms
        rooms += 1

    ends.stream.on_room = room
    ends.tell(Kind.CALL, 1)
    await ends.until(1)
    ends.stream.send(Kind.RESULT, 9, b"{}", b"x" * 3_000_000)
    assert ends.stream.full
    started = threading.Event()
    threading.Thread(target=lambda: ends.stream.start(1) and started.set(), daemon=True).start()
    await asyncio.sleep(0.01)
    assert not started.is_set()
    assert 3_000_000 == len((await ends.told()).body)
    assert (Kind.BEGUN, 1) == (await ends.told())[:2]
    with fail_after(PATIENCE):
        await asyncio.to_thread(started.wait)
        while not rooms:  # noqa: ASYNC110 - a thread says so
            await asyncio.sleep(0.001)
    assert (1, False) == (rooms, ends.stream.full)


async def test_a_call_that_is_cancelled_before_the_system_has_taken_its_begun_does_not_start(ends: Ends):
    """The host does not read for a while. It hears of a beginning, and no command runs."""
    ends.tell(Kind.CALL, 1)
    await ends.until(1)
    ends.stream.send(Kind.RESULT, 9, b"{}", b"x" * 3_000_000)
    starting = asyncio.create_task(asyncio.to_thread(ends.stream.start, 1))
    with fail_after(PATIENCE):
        while 1 not in ends.stream._begun:  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.001)
    ends.tell(Kind.CANCEL, 1)
    await ends.until(2)
    assert [Kind.RESULT, Kind.BEGUN] == [(await ends.told()).kind for _ in range(2)]
    assert not await starting


async def test_a_host_that_leaves_keeps_nobody_waiting():
    """What was sent goes nowhere, and what is sent then neither."""
    ends = Ends()
    ends.tell(Kind.CALL, 1)
    await ends.until(1)
    ends.stream.send(Kind.RESULT, 9, b"{}", b"x" * 3_000_000)
    starting = asyncio.ensure_future(asyncio.to_thread(ends.stream.start, 1))
    await asyncio.sleep(0.01)
    ends.host.close()
    with fail_after(PATIENCE):
        await ends.lost.wait()
        assert await starting
    ends.stream.send(Kind.PONG)
    ends.stream.close()


async def test_sending_to_a_host_that_has_just_left_does_nothing():
    """Whoever reads finds out about it."""
    host, theirs = socket.socketpair()
    stream = Stream(theirs)
    host.close()
    stream.send(Kind.PONG)
    stream.send(Kind.PONG)
    theirs.close()


async def test_closing_sends_what_was_sent(ends: Ends):
    ends.stream.send(Kind.RESULT, 9, b"{}", b"x" * 3_000_000)
    ends.stream.close()
    ends.stream.send(Kind.RESULT, 10)
    assert 9 == (await ends.told()).number
    with fail_after(PATIENCE), pytest.raises(EOFError):
        await asyncio.to_thread(receive, ends.host)


async def test_a_worker_without_a_board_serves(tmp_path: Path):
    """From the first frame to the last one: READY, what it imports, what it begins, and the answer."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "t.py").write_text(
        "from prowess import skill_command\n@skill_command\ndef say(): return 7\n"
    )
    host, theirs = socket.socketpair()
    begin = {**hello(), "flags": {}, "written": None}
    host.sendall(encode_frame(Kind.BEGIN, 0, json.dumps(begin).encode()))
    host.sendall(encode_frame(Kind.CALL, 5, b'{"command":"t.say"}', b"{}"))
    serving = asyncio.ensure_future(serve(theirs, None, tmp_path))
    kinds: list[int] = []
    with fail_after(PATIENCE):
        while Kind.RESULT not in kinds:
            kinds.append((await asyncio.to_thread(receive, host)).kind)
        host.sendall(encode_frame(Kind.QUIT))
        assert 0 == await serving
    seen = [kind for kind in kinds if kind not in (Kind.BEAT, Kind.LIVE)]
    assert [Kind.READY, Kind.IMPORTING, Kind.IMPORTING, Kind.BEGUN, Kind.RESULT] == seen
    host.close()
    await asyncio.sleep(0)
