"""Opening and closing: in which order, where, and what becomes of errors."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE
from tests.prowess.embedded import until

from prowess.calls.threads import Raised, Threads
from prowess.injection import scopes as module
from prowess.injection.scopes import Resources


def resources() -> Resources:
    return Resources("the test", Threads(8))


class Note:
    """A context manager, sync or async, that notes what happens to it."""

    def __init__(self, seen: list[Any], name: str = "") -> None:
        self.seen = seen
        self.name = name

    def opened(self) -> Note:
        self.seen.append(f"open {self.name}".strip())
        return self

    def closed(self, error: BaseException | None) -> None:
        self.seen.append(f"close {self.name}".strip() if error is None else error)


class SyncNote(Note):
    def __enter__(self) -> Note:
        return self.opened()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.closed(error)


class AsyncNote(Note):
    async def __aenter__(self) -> Note:
        return self.opened()

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.closed(error)


class BothNote(AsyncNote, SyncNote):
    """Like a client session that refuses plain `with`."""

    def __enter__(self) -> Note:
        raise TypeError("use async with")


def generator(seen: list[Any]) -> Iterator[Note]:
    note = Note(seen)
    try:
        yield note.opened()
    except BaseException as error:
        note.closed(error)
        raise
    note.closed(None)


async def async_generator(seen: list[Any]) -> AsyncIterator[Note]:
    note = Note(seen)
    try:
        yield note.opened()
    except BaseException as error:
        note.closed(error)
        raise
    note.closed(None)


async def async_factory(seen: list[Any]) -> SyncNote:
    return SyncNote(seen)


async def async_factory_of_async(seen: list[Any]) -> AsyncNote:
    return AsyncNote(seen)


FORMS: list[tuple[Callable[[list[Any]], Any], bool]] = [
    (SyncNote, False),
    (generator, False),
    (contextlib.contextmanager(generator), False),
    (AsyncNote, True),
    (BothNote, True),
    (async_generator, True),
    (contextlib.asynccontextmanager(async_generator), True),
    (async_factory, True),
    (async_factory_of_async, True),
    (partial(async_factory), True),
    (lambda seen: async_generator(seen), True),  # noqa: PLW0108 - a function that returns one is none
]


@pytest.mark.parametrize(
    "form, bound, blocks",
    [(form, bound, blocks) for form, bound in FORMS for blocks in (True, False) if bound or blocks],
)
async def test_whatever_can_be_opened_is_opened_and_closed(form: Callable[..., Any], bound: bool, blocks: bool):
    """In each of its forms; what is async belongs to the event loop, and can do without a thread."""
    seen: list[Any] = []
    opened = resources()
    value, is_bound = await opened.open(lambda: form(seen), on_loop=not blocks)
    assert isinstance(value, Note)
    assert (["open"], bound) == (seen, is_bound)
    assert opened
    await opened.close()
    assert ["open", "close"] == seen
    assert not opened


@pytest.mark.parametrize("form", [form for form, _ in FORMS])
@pytest.mark.parametrize("error", [ValueError("body"), SystemExit(1), asyncio.CancelledError()])
async def test_what_is_opened_sees_the_error_of_its_owner(
    form: Callable[..., Any], error: BaseException, caplog: pytest.LogCaptureFixture
):
    """To roll back. Raising the same on is not worth a word."""
    seen: list[Any] = []
    opened = resources()
    await opened.open(lambda: form(seen))
    await opened.close(error)
    assert ["open", error] == seen
    assert [] == caplog.records


async def test_raising_the_same_error_on_is_no_failure_to_close(caplog: pytest.LogCaptureFixture):
    """Also for a context manager that does it by hand."""

    class Passing(SyncNote):
        def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
            assert error is not None
            raise error

    opened = resources()
    await opened.open(lambda: Passing([]))
    await opened.close(Raised(ValueError("body")))
    assert [] == caplog.records


@pytest.mark.parametrize("make", [lambda: 7, lambda: None, lambda: Path("a"), threading.Lock, asyncio.Lock, anyio.Lock])
async def test_other_things_are_taken_as_they_are(make: Callable[[], Any]):
    """A lock that was entered would be held for good, and a path has nothing to open."""
    opened = resources()
    value, bound = await opened.open(make)
    assert not opened
    assert not bound
    if hasattr(value, "locked"):
        assert not value.locked()


async def test_closing_goes_in_reverse_and_on(caplog: pytest.LogCaptureFixture):
    """One that fails, by whatever, stops no other; each sees the owner's error, and not that of its neighbour."""
    seen: list[Any] = []
    opened = resources()
    errors = {"b": ValueError("b"), "c": SystemExit(3), "d": KeyboardInterrupt()}

    @contextlib.contextmanager
    def sync(name: str):
        try:
            yield
        except LookupError:
            seen.append(name)
        raise errors[name]

    @contextlib.asynccontextmanager
    async def async_(name: str):
        try:
            yield
        except LookupError:
            seen.append(name)
        raise errors[name]

    await opened.open(lambda: SyncNote(seen, "a"))
    await opened.open(lambda: sync("b"))
    await opened.open(lambda: sync("c"))
    await opened.open(lambda: async_("d"))
    await opened.open(lambda: AsyncNote(seen, "e"))
    error = KeyError("owner")
    await opened.close(error)
    assert ["open a", "open e", error, "d", "c", "b", error] == seen
    assert 3 == len(caplog.records)
    assert "closing what was provided for the test failed" in caplog.text


async def test_what_opening_raises_is_carried():
    """An exit of a provider ends nothing but the call it was for."""

    def fail() -> None:
        raise SystemExit(1)

    async def fail_async() -> None:
        raise KeyboardInterrupt

    for make, kind in ((fail, SystemExit), (fail_async, KeyboardInterrupt)):
        opened = resources()
        with pytest.raises(Raised) as caught:
            await opened.open(make)
        assert kind is type(caught.value.error)
        assert not opened


async def test_opening_can_be_cancelled():
    """What a thread then opens all the same is closed there."""
    seen: list[Any] = []
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow(SyncNote):
        def __enter__(self) -> Note:
            begun.set()
            go_on.wait(PATIENCE)
            return self.opened()

        def __exit__(self, *raised: Any) -> None:
            super().__exit__(*raised)
            closed.set()

    opened = resources()
    task = asyncio.ensure_future(opened.open(lambda: Slow(seen)))
    await until(begun.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(closed.wait, PATIENCE)
    assert ["open", "close"] == seen
    assert not opened


@pytest.mark.parametrize("late", [lambda: 7, lambda: async_factory([])])
async def test_what_comes_too_late_and_was_not_opened_is_let_go(late: Callable[[], Any]):
    """Without a coroutine that nobody awaits."""
    threads = Threads(1)
    opened = Resources("the test", threads)
    begun, go_on = threading.Event(), threading.Event()

    def make() -> Any:
        begun.set()
        go_on.wait(PATIENCE)
        return late()

    task = asyncio.ensure_future(opened.open(make))
    await until(begun.is_set)
    task.cancel()
    await asyncio.wait([task])
    go_on.set()
    await until(lambda: not threads.abandoned)


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_does_not_close_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_async: bool
):
    """After a while, so that no answer waits for it for ever; the rest is closed."""
    monkeypatch.setattr(module, "_CLOSING", 1.0)
    seen: list[Any] = []
    may_end = threading.Event()

    class Stuck(SyncNote):
        def __exit__(self, *_: Any) -> None:
            monkeypatch.setattr(module, "_CLOSING", PATIENCE)  # the next one may need its time on a busy machine
            may_end.wait(PATIENCE)

    class AsyncStuck(AsyncNote):
        async def __aexit__(self, *_: Any) -> None:
            monkeypatch.setattr(module, "_CLOSING", PATIENCE)  # as above
            await anyio.sleep_forever()

    opened = resources()
    await opened.open(lambda: SyncNote(seen, "a"))
    await opened.open(lambda: (AsyncStuck if is_async else Stuck)(seen, "b"))
    with anyio.fail_after(PATIENCE):
        await opened.close()
    may_end.set()
    assert ["open a", "open b", "close a"] == seen
    assert [f"closing what was provided for the test took more than {PATIENCE:g} s"] == caplog.messages


async def test_closing_is_shielded_and_ends_before_a_cancellation_goes_on():
    """Neither a cancelled scope nor a cancelled task leaves anything open."""
    seen: list[Any] = []
    closing = anyio.Event()

    class Slow(AsyncNote):
        async def __aexit__(self, *raised: Any) -> None:
            closing.set()
            await asyncio.sleep(0)
            await super().__aexit__(*raised)

    opened = resources()
    await opened.open(lambda: AsyncNote(seen, "a"))
    await opened.open(lambda: Slow(seen, "b"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await opened.close()
    assert ["open a", "open b", "close b", "close a"] == seen

    closing = anyio.Event()
    await opened.open(lambda: AsyncNote(seen, "c"))
    await opened.open(lambda: Slow(seen, "d"))
    task = asyncio.ensure_future(opened.close())
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "close c" == seen[-1]


@pytest.mark.parametrize("is_async", [True, False])
async def test_something_may_be_done_at_the_end(is_async: bool):
    """Also where it has to be awaited."""
    seen: list[Any] = []

    async def end_async() -> None:
        seen.append("end")

    opened = resources()
    opened.add(end_async if is_async else lambda: seen.append("end"), on_loop=is_async)
    await opened.open(lambda: SyncNote(seen))
    await opened.close()
    assert ["open", "close", "end"] == seen


# What comes after a bare `yield`


def bare(seen: list[Any]) -> Iterator[Note]:
    error = yield Note(seen)
    seen.append(("cleaned up", error))


async def bare_async(seen: list[Any]) -> AsyncIterator[Note]:
    error = yield Note(seen)
    seen.append(("cleaned up", error))


def delegating(seen: list[Any]) -> Iterator[Note]:
    yield from bare(seen)
    seen.append("and here")


def after_a_try(seen: list[Any]) -> Iterator[Note]:
    try:
        int("no number")
    except ValueError:
        error = yield Note(seen)
    seen.append(("cleaned up", error))


def in_a_finally(seen: list[Any]) -> Iterator[Note]:
    try:
        pass
    finally:
        error = yield Note(seen)
        seen.append(("cleaned up", error))


BARE: list[Callable[[list[Any]], Any]] = [
    bare,
    bare_async,
    after_a_try,
    in_a_finally,
    contextlib.contextmanager(bare),
    contextlib.asynccontextmanager(bare_async),
]


@pytest.mark.parametrize("form", BARE)
@pytest.mark.parametrize("on_loop", [True, False])
@pytest.mark.parametrize("error", [None, ValueError("body"), SystemExit(1), asyncio.CancelledError()])
async def test_what_follows_a_bare_yield_is_run(
    form: Callable[..., Any], on_loop: bool, error: BaseException | None, caplog: pytest.LogCaptureFixture
):
    """Whatever its owner came to: nothing is thrown where nothing would catch it; the `yield` gives the error."""
    seen: list[Any] = []
    opened = resources()

    async def made() -> Any:
        return form(seen)

    await opened.open(made if on_loop else lambda: form(seen), on_loop=on_loop)
    await opened.close(error)
    assert [("cleaned up", error)] == seen
    assert [] == caplog.records


async def test_a_generator_that_delegates_is_as_bare_as_what_it_delegates_to():
    """One `try` anywhere along the way is enough to throw."""
    for form, expected in ((delegating, [("cleaned up", "error"), "and here"]), (delegating_to_a_try, ["caught"])):
        seen: list[Any] = []
        opened = resources()
        error = ValueError("body")
        await opened.open(lambda form=form, seen=seen: form(seen))
        await opened.close(error)
        assert expected == [("cleaned up", "error") if item == ("cleaned up", error) else item for item in seen]


def delegating_to_a_try(seen: list[Any]) -> Iterator[Note]:
    yield from guarded(seen)


def guarded(seen: list[Any]) -> Iterator[Note]:
    try:
        yield Note(seen)
    except ValueError:
        seen.append("caught")


async def test_a_with_around_the_yield_sees_the_error():
    """So that a transaction is rolled back, and never committed because a command failed."""
    seen: list[Any] = []
    error = ValueError("body")

    def transaction() -> Iterator[Note]:
        with SyncNote(seen) as note:
            yield note

    async def transaction_async() -> AsyncIterator[Note]:
        async with AsyncNote(seen) as note:
            yield note

    opened = resources()
    await opened.open(transaction)
    await opened.open(transaction_async)
    await opened.close(error)
    assert ["open", "open", error, error] == seen


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_factory_that_yields_twice_is_told_so(is_async: bool, caplog: pytest.LogCaptureFixture):
    """And does not run on."""
    seen: list[Any] = []

    def twice() -> Iterator[int]:
        yield 1
        yield 2
        seen.append("never")

    async def twice_async() -> AsyncIterator[int]:
        yield 1
        yield 2
        seen.append("never")

    opened = resources()
    await opened.open(twice_async if is_async else twice)
    await opened.close(ValueError("body"))
    assert [] == seen
    assert "a factory must yield once; this one yields again" in caplog.text


async def test_a_generator_that_has_ended_is_left_alone(caplog: pytest.LogCaptureFixture):
    """Somebody else may have closed it."""
    generators: list[Any] = []

    def generator() -> Iterator[int]:
        yield 1

    def make() -> Any:
        generators.append(generator())
        return generators[-1]

    opened = resources()
    await opened.open(make)
    generators[0].close()
    await opened.close(ValueError("body"))
    assert [] == caplog.records


async def test_an_iterator_without_code_is_given_the_error():
    """Nobody can see what stands around its `yield`."""
    seen: list[Any] = []

    class Foreign:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            return 1

        def throw(self, *error: Any) -> None:
            seen.append(error[0])
            raise StopIteration

    def generator() -> Iterator[int]:
        yield from Foreign()

    opened = resources()
    await opened.open(generator)
    await opened.close(ValueError("body"))
    assert 1 == len(seen)


async def test_what_ends_on_the_loop_need_not_be_awaited() -> None:
    seen: list[str] = []
    opened = resources()
    opened.add(lambda: seen.append("ended"), on_loop=True)
    await opened.close()
    assert ["ended"] == seen
