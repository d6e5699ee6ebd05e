"""Decorated functions, called from Python like functions."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from patience import PATIENCE

from prowess import Context, Inject, Runtime, mcp_schema, skill_command
from prowess.command import Command


def value(payload: Any) -> Any:
    """What a command gave, which it has to have."""
    mcp_schema.validate(payload)
    assert payload["isError"] is False, payload["content"]
    if "structuredContent" not in payload:
        return payload["content"][0]["text"]
    return payload["structuredContent"]["result"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own as the working directory."""
    (tmp_path / "prowess.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@skill_command
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@skill_command
async def async_add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


# Sync and async, here and there


def test_sync_stays_sync(project: Path):
    """The payload comes at once."""
    assert 3 == value(add(1))
    assert 5 == value(add(1, b=4))
    assert 5 == add.raw(1, 4)


async def test_async_stays_async(project: Path):
    """It has to be awaited."""
    assert inspect.iscoroutinefunction(async_add)
    assert 3 == value(await async_add(1))
    assert 5 == await async_add.raw(1, 4)


async def test_a_sync_command_can_be_called_inside_a_running_loop(project: Path):
    """It blocks that loop, as any sync function does, and no other."""
    assert 3 == value(add(1))


def test_several_event_loops_one_after_the_other(project: Path):
    """Nothing is bound to the first one."""

    @skill_command(cache_ttl=60, concurrency=1)
    async def limited(n: int) -> int:
        return n

    assert [0, 1, 0] == [value(asyncio.run(limited(n))) for n in (0, 1, 0)]


@pytest.mark.parametrize("is_async", [True, False])
def test_several_threads_at_once(project: Path, is_async: bool):
    """All of them use one runtime."""
    results: list[int] = []

    def work(n: int) -> None:
        results.append(value(asyncio.run(async_add(n)) if is_async else add(n)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert list(range(2, 12)) == sorted(results)


def test_errors_are_payloads(project: Path):
    """Of the arguments as well as of the body."""

    @skill_command
    def failing():
        raise ValueError("no")

    for payload, kind in (
        (add("x"), "input"),
        (add(), "input"),
        (add(1, 2, 3), "input"),
        (add(1, a=1), "input"),
        (add(1, c=1), "input"),
        (failing(), "crashed"),
    ):
        mcp_schema.validate(payload)
        assert (True, kind) == (payload["isError"], payload["_meta"]["prowess/kind"])
    assert "takes at most 2 positional arguments, got 3" in add(1, 2, 3)["content"][0]["text"]
    assert "a: given twice" in add(1, a=1)["content"][0]["text"]


def test_arguments_are_bound_as_python_binds_them(project: Path):
    """By position, by name, and further ones."""

    @skill_command
    def bound(a: int, *rest: int, b: int = 0, **more: int) -> list[Any]:
        return [a, rest, b, more]

    @skill_command
    def named(a: int, *, b: int) -> int:
        return a - b

    assert [1, [2, 3], 4, {"c": 5}] == value(bound(1, 2, 3, b=4, c=5))
    assert [1, [], 0, {}] == value(bound(a=1))
    assert 1 == value(named(3, b=2))
    assert named(3, 2)["isError"] is True


@skill_command(retry_on=ValueError)
def keep(first: int, *more: list[int]) -> list[list[int]]:
    """Fail once for each call."""
    for each in more:
        each.append(first)
        if len(ATTEMPTS) % 2 == 0:
            ATTEMPTS.append(first)
            raise ValueError
    ATTEMPTS.clear()
    return list(more)


ATTEMPTS: list[int] = []


@skill_command
def ask_each(*answers: Callable[[], int], default: int = 0) -> int:
    """Add the answers up."""
    return sum([answer() for answer in answers], default)


def test_further_positional_arguments_are_arguments(project: Path):
    """They are read by their annotation if it has a schema, and each attempt gets its own copy."""
    given = [1]
    assert [[1, 3], [2, 3]] == value(keep(3, given, ("2",)))
    assert [1] == given
    assert [] == value(keep(3))
    assert "more[1]: expected an array, got 5" in keep(3, [1], 5)["content"][0]["text"]
    assert 3 == value(ask_each(lambda: 1, lambda: 2))


def test_instances_are_welcome(project: Path):
    """They are checked like anything else."""

    @dataclass
    class Point:
        x: int

    @skill_command
    def get(point: Point) -> int:
        return point.x

    assert 1 == value(get(Point(1)))
    assert 1 == value(get({"x": 1}))
    assert get(Point("one"))["isError"] is True  # type: ignore[arg-type]


# Nested


def nested(*threads: bool | None) -> Command:
    """Commands in a row, each calling the next; `None` stands for an async one, which calls a sync one by blocking."""
    inner: Callable[[int], Any] = add
    for at, thread in enumerate(reversed(threads)):
        inner = _calling(inner, f"level{at}", thread)
    return inner  # type: ignore[return-value]


def _calling(inner: Callable[[int], Any], name: str, thread: bool | None) -> Any:
    def result(payload: Any) -> int:
        return value(asyncio.run(payload) if inspect.iscoroutine(payload) else payload)

    if thread is None:

        @skill_command(name=name)
        async def on_loop(n: int) -> int:
            payload = inner(n)
            return value(await payload) if inspect.iscoroutine(payload) else value(payload)

        return on_loop

    @skill_command(name=name, thread=thread)
    def sync(n: int) -> int:
        payload = inner(n)
        return value(_elsewhere(payload)) if inspect.iscoroutine(payload) else value(payload)

    return sync


def _elsewhere(coroutine: Any) -> Any:
    """A coroutine, run in a thread of its own: there may be a loop in this one."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(coroutine)))
    thread.start()
    thread.join(PATIENCE)
    return results[0]


KINDS = [True, False, None]


@pytest.mark.parametrize("kinds", [(a, b, c) for a in KINDS for b in KINDS for c in KINDS], ids=str)
async def test_commands_call_one_another(project: Path, kinds: tuple[bool | None, ...]):
    """In a thread, on the loop, async: in whatever order, nobody waits for ever."""
    command = nested(*kinds)
    with anyio.fail_after(PATIENCE):
        if kinds[0] is None:
            assert 3 == value(await command(1))
        else:
            assert 3 == value(await asyncio.to_thread(command, 1))
            assert 3 == value(command(1))


async def test_nested_calls_use_the_runtime_of_the_outer_one(tmp_path: Path):
    """Whatever its overrides are, they count all the way down."""

    class Db:
        name = "real"

    fake = Db()
    fake.name = "fake"

    @skill_command
    def inner(db: Db) -> str:
        return db.name

    @skill_command
    def outer() -> str:
        return value(inner())

    async with Runtime.open(tmp_path, overrides={Db: fake}):
        assert "fake" == value(outer())


# Injection


async def test_an_injected_argument_that_is_passed_wins(tmp_path: Path):
    """By name or by position: that is how a unit test substitutes one. It is not checked, and nothing is opened for it."""
    opened: list[int] = []

    class Db:
        name = "real"

    class Fake:
        name = "fake"

    def open_db():
        opened.append(1)
        yield Db()

    @skill_command
    async def using(db: Db, n: int, ctx: Context | None = None) -> str:
        return f"{db.name} {n} {ctx is not None}"

    async with Runtime.open(tmp_path) as runtime:
        runtime._services.injectables.provide(Db, open_db, lifetime="call")
        assert "fake 1 True" == value(await using(db=Fake(), n=1))
        assert "fake 1 True" == value(await using(Fake(), 1))
        assert [] == opened
        assert "real 1 True" == value(await using(n=1))
        assert "fake 1 False" == value(await using(Fake(), 1, None))


async def test_a_passed_text_is_a_secret_like_a_provided_one(tmp_path: Path):
    """It takes the place of one."""

    @skill_command
    async def leaking(token: Annotated[str, Inject("token")]):
        raise ValueError(token)

    async with Runtime.open(tmp_path, overrides={"token": "provided"}):
        assert "passed" not in str(await leaking(token="s3cr3t-passed"))


# The implicit runtime


def run(project: Path, code: str, **environ: str) -> list[str]:
    """A program in a process of its own; gives the lines it printed."""
    (project / "program.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "" == done.stderr
    assert 0 == done.returncode
    return done.stdout.splitlines()


PLUGIN = """
from prowess import hookimpl

class Db:
    pass

class Pool:
    pass

def open_db():
    print("open db")
    yield Db()
    print("close db")

async def open_pool(db: Db):
    print("open pool")
    yield Pool()
    print("close pool")

@hookimpl
def prowess_injectables(provide):
    provide(Db, open_db, name="db")
    provide(Db, open_db)
    provide(Pool, open_pool, name="pool")
"""


def with_plugin(project: Path) -> Path:
    (project / "skills").mkdir()
    (project / "skills" / "plugin.py").write_text(PLUGIN)
    return project


@pytest.mark.parametrize("style", ["sync", "async", "both", "thread"])
def test_an_implicit_runtime_is_closed_at_exit(project: Path, style: str):
    """What was opened for good is closed, and the process ends; what belongs to a loop is closed with it."""
    code = f"""
        import asyncio, threading
        from typing import Annotated, Any
        from prowess import Inject, skill_command

        @skill_command
        def sync(db: Annotated[Any, Inject("db")]) -> None:
            print("sync")

        @skill_command
        async def async_(pool: Annotated[Any, Inject("pool")]) -> None:
            print("async")

        style = {style!r}
        if style in ("sync", "both"):
            sync()
        if style in ("async", "both"):
            asyncio.run(async_())
        if style == "thread":
            thread = threading.Thread(target=sync)
            thread.start()
            thread.join()
        print("end")
    """
    printed = run(with_plugin(project), code)
    expected = {
        "sync": ["open db", "sync", "end", "close db"],
        "async": ["open db", "open pool", "async", "close pool", "end", "close db"],
        "both": [
            "open db", "sync", "open db", "open pool", "async", "close pool", "end", "close db", "close db",
        ],
        "thread": ["open db", "sync", "end", "close db"],
    }  # fmt: skip
    assert expected[style] == printed


def test_an_abandoned_thread_does_not_hold_the_process(project: Path):
    """A sync command that never ends was answered at its deadline; the program ends when it is done."""
    code = """
        import threading
        from prowess import skill_command

        @skill_command(timeout=0.5)
        def endless() -> None:
            threading.Event().wait()

        print(endless()["_meta"]["prowess/kind"])
    """
    assert ["timeout"] == run(project, code)


def test_ctrl_c_ends_a_sync_call_and_the_program(project: Path):
    """The command that runs on is left behind."""
    code = """
        import signal, threading
        from prowess import skill_command

        @skill_command
        def endless() -> None:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            threading.Event().wait()

        try:
            endless()
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert ["interrupted"] == run(project, code)


def test_a_module_that_calls_a_command_while_it_is_imported(project: Path):
    """Is not locked out by its own import."""
    (project / "skills").mkdir()
    (project / "skills" / "early.py").write_text(
        textwrap.dedent(
            """
            from prowess import skill_command

            @skill_command
            def base() -> int:
                return 7

            BASE = base()["structuredContent"]["result"]

            @skill_command
            def get() -> int:
                return BASE
            """
        )
    )
    code = """
        import asyncio
        from prowess import Runtime

        async def main():
            async with Runtime.open(".") as runtime:
                print((await runtime.call("early.get")).value)

        asyncio.run(main())
    """
    assert ["7"] == run(project, code)


def test_there_is_one_implicit_runtime_for_each_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """That of the working directory, wherever below its root."""
    from prowess.runtime import current_runtime

    found = []
    for name in ("a", "a/deep", "b"):
        (tmp_path / name).mkdir()
        if len(name) == 1:
            (tmp_path / name / "prowess.toml").touch()
        monkeypatch.chdir(tmp_path / name)
        found += [current_runtime(), current_runtime()]
    assert found[0] is found[1] is found[2] is found[3]
    assert found[4] is found[5]
    assert found[0] is not found[4]
    assert [tmp_path / "a", tmp_path / "b"] == [found[0].root, found[4].root]
