"""A project whose commands are hard on their workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from piped import make_project, result

SKILL = """
    import ctypes, re, signal
    from pathlib import Path

    @skill_command
    def say(text: str = "") -> str:
        return text

    @skill_command
    def worker() -> int:
        return os.getpid()

    @skill_command
    async def wait(started: str = "") -> str:
        if started:
            Path(started).touch()
        await asyncio.sleep(600)

    @skill_command
    async def block_until(gate: str, started: str) -> int:
        Path(started).touch()
        while not os.path.exists(gate):
            time.sleep(0.01)
        return os.getpid()

    @skill_command(timeout=0.3)
    def late(done: str) -> str:
        time.sleep(600)
        Path(done).touch()

    @skill_command(timeout=0.3)
    async def late_async(done: str) -> str:
        await asyncio.sleep(2)
        Path(done).touch()

    @skill_command(timeout=0.3)
    async def stubborn(done: str) -> str:
        try:
            await asyncio.sleep(600)
        except BaseException:
            time.sleep(0)
        while True:
            try:
                await asyncio.sleep(600)
                break
            except BaseException:
                pass
        Path(done).touch()

    CHILDREN = []

    @skill_command
    def have_child() -> int:
        CHILDREN.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return CHILDREN[0].pid

    @skill_command(timeout=0.3)
    def wait_for_child() -> None:
        CHILDREN[0].wait()

    @skill_command
    def obedient(started: str, ctx: Context) -> str:
        Path(started).touch()
        while not ctx.cancelled:
            time.sleep(0.01)
        Path(started).unlink()

    @skill_command
    def sleep(seconds: float, started: str = "") -> int:
        if started:
            Path(started).touch()
        time.sleep(seconds)
        return os.getpid()

    @skill_command
    async def block(seconds: float, started: str = "") -> int:
        if started:
            Path(started).touch()
        time.sleep(seconds)
        return os.getpid()

    @skill_command
    def hold(gate: str, started: str = "") -> int:
        if started:
            Path(started).touch()
        while not os.path.exists(gate):
            time.sleep(0.01)
        return os.getpid()

    @skill_command
    async def hold_loop(gate: str, started: str = "") -> int:
        return hold.raw(gate, started)

    @skill_command
    async def quick() -> int:
        return os.getpid()

    @skill_command(cache_ttl=600, idempotent=True)
    async def kept() -> int:
        return os.getpid()

    @skill_command(timeout=0.6)
    async def block_late(done: str) -> str:
        time.sleep(600)
        Path(done).touch()

    @skill_command(timeout=0.5)
    def ponder() -> str:
        re.match(r"(a+)+$", "a" * 64 + "b")

    @skill_command
    def die(how: str) -> str:
        if how == "exit":
            os._exit(9)
        elif how == "segfault":
            ctypes.string_at(0)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    @skill_command(read_only=True)
    def die_reading() -> str:
        os._exit(9)

    @skill_command
    def fork_and_die() -> str:
        if os.fork() == 0:
            time.sleep(600)
        os._exit(9)

    @skill_command(concurrency=2)
    async def two(gate: str, log: str) -> None:
        with open(log, "a") as file:
            file.write("+")
        while not os.path.exists(gate):
            await asyncio.sleep(0.01)
        with open(log, "a") as file:
            file.write("-")
"""


def make(tmp_path: Path, settings: str = "") -> Path:
    return make_project(tmp_path, settings or "[host]\ncancel_grace = 0.1\nstall_limit = 0.4\ngrace = 0.5\n", t=SKILL)


async def text(answer: asyncio.Future) -> str:
    return (await result(answer))["content"][0]["text"]
