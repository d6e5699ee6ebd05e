"""What type checkers know of decorated functions, as a user writes them. Checked by pyright in strict mode, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, assert_type

from prowess import Runtime, Settings, get_script_config, is_skill_command, skill_command


@skill_command
def add(a: int, b: int = 1) -> int:
    """Sync, bare."""
    return a + b


@skill_command(read_only=True, retry_on=(OSError, KeyError), cache_ttl=60, tags=["math"], meta={"a": 1})
def subtract(a: int, settings: Settings) -> int:
    """Sync, with arguments and an injected parameter."""
    return a - settings.get("math.step", 1)


@skill_command
async def wait(seconds: float) -> str:
    """Async, bare."""
    return str(seconds)


@skill_command(name="later", timeout=3, input_schema={"type": "object"}, output_schema="any")
async def wait_longer(seconds: float) -> str:
    """Async, with arguments."""
    return str(seconds)


@skill_command(output=Path, output_field="file")
def count(n: int) -> Iterator[int]:
    """A generator."""
    yield from range(n)


@skill_command()
async def count_async(n: int) -> AsyncIterator[int]:
    """An async generator."""
    yield n


async def calls(runtime: Runtime) -> None:
    """Sync gives a payload, async a coroutine of one; what is injected may be left out."""
    assert_type(add(1, b=2), dict[str, Any])
    assert_type(subtract(1), dict[str, Any])
    assert_type(count(1), dict[str, Any])
    waiting = wait(1)
    _ = assert_type(waiting, Coroutine[Any, Any, dict[str, Any]])
    assert_type(await waiting, dict[str, Any])
    assert_type(await wait_longer(1), dict[str, Any])
    assert_type(await count_async(1), dict[str, Any])
    outcome = await runtime.call("math.add", {"a": 1})
    assert_type(outcome.ok, bool)


async def raw() -> None:
    """`.raw` has the types of the function."""
    assert_type(add.raw(1, b=2), int)
    assert_type(await wait.raw(1.5), str)
    assert_type(await wait_longer.raw(1.5), str)
    assert_type(list(count.raw(3)), list[int])
    async for item in count_async.raw(3):
        assert_type(item, int)
    add.raw("x")  # pyright: ignore[reportArgumentType]
    await wait.raw()  # pyright: ignore[reportCallIssue]


def names() -> None:
    """A command has a name and a module, and can be asked about."""
    assert_type(add.__name__, str)
    assert_type(get_script_config(add), dict[str, Any] | None)
    assert_type(is_skill_command(add), bool)


def passed_on(command: Callable[..., dict[str, Any]]) -> None:
    """A command is a callable like any other."""


passed_on(add)
passed_on(wait)  # pyright: ignore[reportArgumentType]


# What is refused at decoration is refused by type checkers before that.
skill_command(titel="x")  # pyright: ignore[reportCallIssue]
skill_command(read_only="yes")  # pyright: ignore[reportArgumentType]
skill_command(output_schema="none")  # pyright: ignore[reportArgumentType]
skill_command(retry_on=BaseException)  # pyright: ignore[reportArgumentType]
