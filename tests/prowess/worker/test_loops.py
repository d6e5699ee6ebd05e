"""A loop calls readers while it waits, and otherwise behaves like any loop of asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import selectors
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import pytest
from anyio import fail_after
from patience import PATIENCE

from prowess.worker import loops
from prowess.worker.loops import new_loop, processors

T = TypeVar("T")


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def run(main: Callable[[], Coroutine[Any, Any, T]], *, debug: bool = False, limited: bool = True) -> tuple[T, int]:
    """The result of a coroutine in a loop of ours, and the number of turns that the loop took. A limit is a timer."""

    async def with_limit() -> T:
        with fail_after(PATIENCE):
            return await main()

    turns = 0
    with asyncio.Runner(loop_factory=new_loop, debug=debug) as runner:
        loop: Any = runner.get_loop()
        once = loop._run_once

        def counted() -> None:
            nonlocal turns
            turns += 1
            once()

        loop._run_once = counted
        return runner.run(with_limit() if limited else main()), turns


async def read(ours: socket.socket, theirs: socket.socket, messages: int) -> list[bytes]:
    """Read messages, each of which brings about the next one, by a reader of the loop."""
    loop, got, done = asyncio.get_running_loop(), list[bytes](), asyncio.Event()

    def on_readable() -> None:
        got.append(ours.recv(100))
        if len(got) < messages:
            theirs.send(b"%d" % len(got))
        else:
            loop.remove_reader(ours)
            done.set()

    loop.add_reader(ours, on_readable)
    theirs.send(b"0")
    await done.wait()
    return got


@pytest.mark.parametrize("has_timer", [False, True])
def test_messages_take_no_turn_of_the_loop(has_timer: bool, pair: tuple[socket.socket, socket.socket]):
    """Whether or not a timer is set."""
    got, turns = run(lambda: read(*pair, 100), limited=has_timer)
    assert [b"%d" % number for number in range(100)] == got
    assert turns < 50


def test_a_loop_of_an_unknown_kind_takes_turns(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
):
    """A future Python may keep its state in another way. So does a loop that measures slow callbacks."""
    _, turns = run(lambda: read(*pair, 100), debug=True)
    assert turns > 100
    monkeypatch.setattr(loops, "_STATE", {"_renamed"})
    got, turns = run(lambda: read(*pair, 100))
    assert (100, True) == (len(got), turns > 100)


def test_what_a_reader_schedules_runs_before_the_loop_waits_again(pair: tuple[socket.socket, socket.socket]):
    """Callbacks, and timers that are earlier than the one that ends the wait."""
    ours, theirs = pair

    async def main() -> list[str]:
        loop, ran = asyncio.get_running_loop(), list[str]()
        done = asyncio.Event()

        def on_readable() -> None:
            told = ours.recv(100).decode()
            if told == "soon":
                loop.call_soon(lambda: (ran.append("soon"), theirs.send(b"later")))
            else:
                loop.call_later(0.001, lambda: (ran.append("later"), done.set()))

        loop.call_later(1000, print)
        loop.add_reader(ours, on_readable)
        theirs.send(b"soon")
        await done.wait()
        return ran

    assert ["soon", "later"] == run(main)[0]


def test_timers_fire_while_messages_keep_coming(pair: tuple[socket.socket, socket.socket]):
    """Each message brings about another one at once, so that there is always something to read."""
    ours, theirs = pair

    async def main() -> bool:
        fired = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: theirs.send(ours.recv(100)))
        theirs.send(b"x")
        loop.call_later(0.01, fired.set)
        return await fired.wait()

    assert run(main)[0]


def test_a_reader_may_stop_the_loop(pair: tuple[socket.socket, socket.socket]):
    ours, theirs = pair
    loop = new_loop()
    loop.add_reader(ours, loop.stop)
    theirs.send(b"x")
    loop.run_forever()
    loop.close()


def test_readers_keep_their_context_and_their_errors_are_reported(pair: tuple[socket.socket, socket.socket]):
    """As in a turn of the loop."""
    ours, theirs = pair
    variable = contextvars.ContextVar("variable", default="none")

    async def main() -> tuple[list[str], list[str]]:
        loop, seen, errors = asyncio.get_running_loop(), list[str](), list[str]()
        done = asyncio.Event()
        loop.set_exception_handler(lambda _, context: (errors.append(str(context["exception"])), done.set()))

        def on_readable() -> None:
            ours.recv(100)
            seen.append(variable.get())
            raise ValueError("broken")

        variable.set("its own")
        loop.add_reader(ours, on_readable)
        variable.set("another")
        theirs.send(b"x")
        await done.wait()
        return seen, errors

    assert (["its own"], ["broken"]) == run(main)[0]


def test_a_reader_that_another_one_has_removed_is_not_called(pair: tuple[socket.socket, socket.socket]):
    """Both descriptors are ready in the same wait."""
    ours, theirs = pair

    async def main() -> list[str]:
        loop, called = asyncio.get_running_loop(), list[str]()
        done = asyncio.Event()

        def on_readable(name: str) -> None:
            called.append(name)
            for sock in pair:
                loop.remove_reader(sock)
            done.set()

        ours.send(b"x")
        theirs.send(b"x")
        loop.add_reader(ours, on_readable, "one of them")
        loop.add_reader(theirs, on_readable, "one of them")
        await done.wait()
        await asyncio.sleep(0)
        return called

    assert ["one of them"] == run(main)[0]


def test_a_reader_that_another_one_has_replaced_is_called(pair: tuple[socket.socket, socket.socket]):
    """Both descriptors are ready in the same wait: the event of the former reader must not remove the new one."""
    ours, theirs = pair

    async def main() -> list[str]:
        loop, called = asyncio.get_running_loop(), list[str]()
        done = asyncio.Event()

        def on_readable(me: socket.socket, other: socket.socket) -> None:
            called.append("first" if not called else "replaced")
            loop.remove_reader(me)
            if len(called) == 1:
                loop.remove_reader(other)
                loop.add_reader(other, on_readable, other, me)
            else:
                done.set()

        ours.send(b"x")
        theirs.send(b"x")
        loop.add_reader(ours, on_readable, ours, theirs)
        loop.add_reader(theirs, on_readable, theirs, ours)
        await done.wait()
        return called

    assert ["first", "replaced"] == run(main)[0]


def test_writers_threads_and_tasks_work_as_in_any_loop(pair: tuple[socket.socket, socket.socket]):
    """A descriptor may be written and read at the same time."""
    ours, theirs = pair
    theirs.setblocking(False)

    async def main() -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        size = 3_000_000
        sending = asyncio.create_task(loop.sock_sendall(ours, b"x" * size))
        answering = asyncio.create_task(loop.sock_recv(ours, 10))
        got = 0
        while got < size:
            got += len(await loop.sock_recv(theirs, 1_000_000))
        await sending
        await loop.sock_sendall(theirs, b"x")
        await answering
        return got, await asyncio.to_thread(lambda: threading.current_thread().name[:7])

    assert (3_000_000, "asyncio") == run(main)[0]


def test_the_selector_of_a_loop_can_be_used_without_one(pair: tuple[socket.socket, socket.socket]):
    """Then it calls nobody."""
    ours, theirs = pair
    with loops._Selector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        theirs.send(b"x")
        assert [ours] == [key.fileobj for key, _ in selector.select()]


def test_there_is_a_processor(monkeypatch: pytest.MonkeyPatch):
    """Also where a sandbox does not let a process ask."""
    assert processors() > 0
    monkeypatch.setattr("os.sched_getaffinity", refuse, raising=False)
    assert processors() > 0


def refuse(_pid: int) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")
