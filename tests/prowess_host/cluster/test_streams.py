"""A conversation over an engine that loses messages: each arrives once and in order. Without processes, in 3 s."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from patience import PATIENCE
from piped import until

from prowess_host.cluster.engine import Message
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.streams import EngineStream


class Lossy:
    """An engine in memory that loses a part of what it is given, by a seed."""

    def __init__(self, seed: int, loss: float) -> None:
        self._random = random.Random(seed)
        self.loss = loss
        self.up = True
        self._heard: dict[str, Callable[[Message], None]] = {}
        self._changed: list[Callable[[], None]] = []

    def subscribe(self, subject: str, heard: Callable[[Message], None]) -> Any:
        self._heard[subject] = heard
        return type("Subscription", (), {"cancel": lambda _: self._heard.pop(subject, None)})()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._changed.append(listener)
        return lambda: self._changed.remove(listener)

    def publish(self, subject: str, data: bytes) -> None:
        if not self.up:
            raise EngineError("memory", "gone")
        if self._random.random() >= self.loss:
            asyncio.get_running_loop().call_soon(self._pass, subject, data)

    def _pass(self, subject: str, data: bytes) -> None:
        if subject in self._heard:
            self._heard[subject](Message(data, ""))

    def set_up(self, *, up: bool) -> None:
        self.up = up
        for listener in list(self._changed):
            listener()


class End:
    """One end, and what it heard."""

    def __init__(self, engine: Lossy, own: str, other: str, silence: float = 1000.0) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.silent = asyncio.Event()
        self.stream = EngineStream(
            engine,  # type: ignore[arg-type]
            own=own,
            other=other,
            silence=silence,
            on_message=lambda kind, data: self.heard.append((kind, data)),
            on_silence=self.silent.set,
        )
        self.stream._interval = 0.01
        self.stream.start()


@pytest.mark.parametrize("loss", [0.0, 0.25])
@pytest.mark.parametrize("seed", range(3))
async def test_every_message_arrives_once_and_in_order(seed: int, loss: float) -> None:
    """Both ways at the same time, whatever is lost."""
    engine = Lossy(seed, loss)
    one, other = End(engine, "a", "b"), End(engine, "b", "a")
    said = [(1 + number % 3, b"%d" % number) for number in range(100)]
    for kind, data in said:
        one.stream.send(kind, data)
        other.stream.send(kind, data)
        await asyncio.sleep(0)
    await until(lambda: len(one.heard) >= 100 and len(other.heard) >= 100)
    assert [said, said] == [one.heard, other.heard]
    for end in (one, other):
        end.stream.close()


@pytest.mark.parametrize("loss", [0.0, 0.25])
async def test_numbers_of_messages_may_start_again(loss: float) -> None:
    """A stream lasts longer than the numbers in its headers, which have 32 bits."""
    engine = Lossy(1, loss)
    ends = End(engine, "a", "b"), End(engine, "b", "a")
    for end in ends:
        end.stream.sent = end.stream._received = end.stream.departed = 2**32 - 50
    said = [(7, b"%d" % number) for number in range(100)]
    for kind, data in said:
        for end in ends:
            end.stream.send(kind, data)
        await asyncio.sleep(0)
    await until(lambda: all(len(end.heard) >= 100 and not end.stream.size for end in ends))
    assert [said, said] == [end.heard for end in ends]
    assert {2**32 + 50} == {end.stream.departed for end in ends}
    for end in ends:
        end.stream.close()


async def test_large_message_arrives_in_parts_that_are_whole_together() -> None:
    engine = Lossy(1, 0.2)
    one, other = End(engine, "a", "b"), End(engine, "b", "a")
    data = bytes(range(256)) * 50_000
    one.stream.send(7, data)
    assert one.stream.full
    await until(lambda: sum(len(part) for _, part in other.heard) == len(data))
    assert data == b"".join(part for _, part in other.heard)
    await until(lambda: not one.stream.full)
    for end in (one, other):
        end.stream.close()


class Slow(Lossy):
    """An engine in memory behind a slow line, which passes one message to `b` in the time of several heartbeats."""

    def __init__(self) -> None:
        super().__init__(1, 0.0)
        self.line: list[bytes] = []
        self.passed = 0

    def publish(self, subject: str, data: bytes) -> None:
        if subject == "b":
            self.line.append(data)
        else:
            super().publish(subject, data)

    async def carry(self) -> None:
        while True:
            await asyncio.sleep(0.03)
            if self.line:
                data = self.line.pop(0)
                self.passed += len(data)
                self._pass("b", data)


async def test_slow_network_carries_everything_once() -> None:
    """What has not arrived yet is on its way: sending it again would make the network slower still."""
    engine = Slow()
    one, other = End(engine, "a", "b"), End(engine, "b", "a")
    carrying = asyncio.ensure_future(engine.carry())
    data = bytes(3_000_000)
    one.stream.send(7, data)
    await until(lambda: sum(len(part) for _, part in other.heard) == len(data))
    assert engine.passed + sum(map(len, engine.line)) < 1.1 * len(data)
    carrying.cancel()
    for end in (one, other):
        end.stream.close()


async def test_what_was_said_while_the_engine_was_gone_arrives_when_it_is_back() -> None:
    engine = Lossy(1, 0.0)
    one, other = End(engine, "a", "b"), End(engine, "b", "a")
    engine.set_up(up=False)
    one.stream.send(1, b"meanwhile")
    assert (1, 0) == (one.stream.sent, one.stream.departed)
    engine.set_up(up=True)
    await until(lambda: other.heard)
    assert [(1, b"meanwhile")] == other.heard
    assert 1 == one.stream.departed
    for end in (one, other):
        end.stream.close()


@pytest.mark.parametrize("seed", range(3))
async def test_end_that_heard_nothing_for_a_while_is_late_until_all_has_arrived(seed: int) -> None:
    """What was sent meanwhile arrives before that is over, however much is lost."""
    engine = Lossy(seed, 0.25)
    one, other = End(engine, "a", "b"), End(engine, "b", "a")
    said = [(1, b"%d" % number) for number in range(20)]
    heard: list[int] = []
    other.stream._probe, other.stream.on_current = 7, lambda: heard.append(len(other.heard))
    other.stream._heard -= 1.0
    for kind, data in said:
        one.stream.send(kind, data)
    await until(lambda: heard and not other.stream.is_late)
    assert said == other.heard
    assert 20 == heard[-1]
    assert (7, b"") in one.heard


async def test_silence_is_noticed_and_whoever_is_given_up_hears_of_it() -> None:
    """Also when it speaks again long afterwards."""
    engine = Lossy(1, 1.0)
    one, other = End(engine, "a", "b", silence=0.1), End(engine, "b", "a")
    with anyio.fail_after(PATIENCE):
        await one.silent.wait()
        one.stream.abandon()
        engine.loss = 0.0
        other.stream.send(1, b"still here")
        await other.silent.wait()
    assert [] == one.heard
    for end in (one, other):
        end.stream.close()


async def test_end_is_over_when_its_last_words_have_arrived() -> None:
    engine = Lossy(3, 0.5)
    one, other = End(engine, "a", "b"), End(engine, "b", "a")
    over = asyncio.Event()
    one.stream.send(9, b"last words")
    one.stream.finish(over.set)
    with anyio.fail_after(PATIENCE):
        await over.wait()
    assert [(9, b"last words")] == other.heard
    for end in (one, other):
        end.stream.close()


async def test_nonsense_is_no_message() -> None:
    engine = Lossy(1, 0.0)
    end = End(engine, "a", "b")
    for data in (b"", b"\x01", b"\x01\x00\x00\x00\x09\x00\x00\x00\x00data"):
        engine.publish("a", data)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [] == end.heard
    end.stream.close()
