"""What large messages have cost goes back to the system, in the host and in its worker, when they are over."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import random
import sqlite3
from pathlib import Path

import pytest
from piped import Client, hosted, make_project, result, until
from web import served_over_http

if platform.libc_ver()[0] != "glibc":
    pytest.skip("it is this allocator that has to be told", allow_module_level=True)

SKILL = """
    _open = None

    @skill_command
    async def wait(text: str) -> int:
        '''Until somebody opens.'''
        global _open
        _open = _open or asyncio.Event()
        await _open.wait()
        return len(text)

    @skill_command
    async def open() -> None:
        '''Let them go.'''
        _open.set()

    @skill_command
    def give_sync(size: int) -> str:
        '''Much, from a thread.'''
        return "x" * size

    @skill_command
    async def give(size: int) -> str:
        '''Much.'''
        return "x" * size

    @skill_command
    async def take(text: str) -> int:
        '''Much.'''
        return len(text)

    @skill_command
    def take_sync(text: str) -> int:
        '''Much, in a thread.'''
        return len(text)
"""
SIZES = (150_000, 400_000, 900_000, 1_500_000, 3_000_000)
MOST_KEPT = 4 * 1024
"""KiB more than before the first large message: some of it is what is loaded late, and the calls that wait."""
COMMANDS = ("big_give", "big_give_sync", "big_take", "big_take_sync")


def memory(pid: int) -> int:
    """KiB of memory that no file stands behind."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split(maxsplit=1)[0])


def recorded(project: Path) -> bool:
    """Whether the record of calls holds some."""
    for file in project.glob("cache/records/*.sqlite"):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(file)) as store:
            return bool(store.execute("SELECT count(*) FROM calls").fetchone()[0])
    return False


async def exchange(client: Client, rounds: int) -> list[asyncio.Future]:
    """Large messages both ways, several at a time, and small ones between them that stay; gives those."""
    rng = random.Random(7)
    staying: list[asyncio.Future] = []
    for _ in range(rounds):
        staying += [client.start_call("big_wait", text="w" * rng.randrange(600, 3000)) for _ in range(2)]
        at_once = [call(client, name, rng.choice(SIZES)) for name in COMMANDS]
        await asyncio.gather(*map(result, at_once))
    return staying


def call(client: Client, name: str, size: int) -> asyncio.Future:
    """Take or give so much."""
    return client.start_call(name, **({"size": size} if "give" in name else {"text": "ü" * (size // 6)}))


async def test_memory_after_many_large_messages_is_what_it_was_before(tmp_path: Path):
    """Although small blocks that live on lie between the large ones, and although none of this is ever at its end."""
    project = make_project(tmp_path, big=SKILL)
    async with hosted(project) as client:
        await asyncio.gather(*(result(call(client, name, 60)) for name in COMMANDS * 10))
        await result(call(client, "big_take", max(SIZES)))  # what reads large arguments counts as there before,
        await until(lambda: recorded(project))  # and what the record loads
        pids = client.pid, await client.worker()
        before = [memory(pid) for pid in pids]
        staying = await exchange(client, 60)
        for pid, least in zip(pids, before, strict=True):
            await until(lambda pid=pid, least=least: memory(pid) <= least + MOST_KEPT)
        await client.call("big_open")
        for answer in staying:
            await result(answer)


def test_memory_of_a_server_after_large_responses_is_what_it_was_before(tmp_path: Path):
    """No response is kept until the garbage collector comes by."""
    with served_over_http(make_project(tmp_path, big=SKILL), forked=False) as web:
        for _ in range(3):
            web.call("big_give", size=max(SIZES))  # what is loaded and recorded for the first ones
        before = memory(web.process.pid)
        for _ in range(12):
            web.call("big_give", size=max(SIZES))
        asyncio.run(until(lambda: memory(web.process.pid) <= before + MOST_KEPT))
