"""The skill whose file never changes: whatever a command can do to the worker it runs in.

Copied into the project under soak as `skills/steady.py`. Each command first writes into the journal of its host that it has begun and in
which process, so that the driver knows what ran where, and that nothing ran twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from prowess import Context, SkillError, resource, skill_command

_JOURNAL = os.open(os.environ["SOAK_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_HELD: list[Any] = []
_TAG = f"0.{int(os.environ['SOAK_MARK'], 16)}"
"""Tells whose child a process is that has no environment: an argument of `sleep`, which adds them up."""


def _begin(token: str, kind: str = "call") -> None:
    os.write(_JOURNAL, f"{token} {os.getpid()} {kind}\n".encode())


# --- well behaved ---------------------------------------------------------------------------------


@skill_command(read_only=True)
async def echo(token: str, n: int = 0) -> dict[str, Any]:
    """At once, on the event loop."""
    _begin(token)
    return {"token": token, "n": n}


@skill_command(read_only=True)
def echo_sync(token: str, n: int = 0) -> dict[str, Any]:
    """At once, in a thread."""
    _begin(token)
    return {"token": token, "n": n}


@skill_command
async def slow(token: str, seconds: float) -> dict[str, Any]:
    """Takes its time, and can be cancelled."""
    _begin(token)
    await asyncio.sleep(seconds)
    return {"token": token}


@skill_command
def slow_sync(token: str, seconds: float) -> dict[str, Any]:
    """Takes its time in a thread, where nothing can cancel it."""
    _begin(token)
    time.sleep(seconds)
    return {"token": token}


@skill_command
def patient_sync(token: str, seconds: float, ctx: Context) -> dict[str, Any]:
    """Takes its time in a thread, and looks whether it is still wanted."""
    _begin(token)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ctx.cancelled:
        time.sleep(0.01)
    return {"token": token}


@skill_command
async def steps(token: str, n: int, ctx: Context) -> dict[str, Any]:
    """Says how far it is."""
    _begin(token)
    for number in range(1, n + 1):
        ctx.progress(number, n, token)
        await asyncio.sleep(0)
    return {"token": token, "n": n}


@skill_command
def yielding(token: str, n: int) -> Iterator[str]:
    """Says how far it is by what it yields."""
    _begin(token)
    for _ in range(n):
        yield token


@skill_command
def chatter(token: str, n: int, ctx: Context) -> dict[str, Any]:
    """Has a lot to say."""
    _begin(token)
    for number in range(n):
        ctx.log(("debug", "info", "warning")[number % 3], {"token": token, "number": number})
    return {"token": token, "n": n}


@skill_command
async def confirm(token: str, ctx: Context) -> dict[str, Any]:
    """Asks somebody."""
    _begin(token, "asks")
    answer = await ctx.ask("who", f"Who is it? {token}", str)
    return {"token": token, "action": answer.action, "value": answer.value}


@skill_command
def confirm_sync(token: str, ctx: Context) -> dict[str, Any]:
    """Asks somebody from a thread."""
    _begin(token, "asks")
    answer = ctx.ask("who", f"Who is it? {token}", str)
    return {"token": token, "action": answer.action, "value": answer.value}


@skill_command
def large(token: str, size: int) -> dict[str, Any]:
    """Gives much."""
    _begin(token)
    return {"token": token, "text": "ü" * (size // 2)}


@skill_command
async def measure(token: str, text: str) -> dict[str, Any]:
    """Takes much."""
    _begin(token)
    return {"token": token, "length": len(text), "ends": text[:8] + text[-8:]}


@resource("soak://{token}")
async def page(token: str) -> dict[str, Any]:
    """Is read by its address."""
    _begin(token)
    return {"token": token}


@skill_command
async def background(token: str, seconds: float, ctx: Context) -> dict[str, Any]:
    """Goes on after the client has got a handle."""
    _begin(token)
    ctx.background()
    await asyncio.sleep(seconds)
    return {"token": token}


@skill_command(cache_ttl=0.5, read_only=True)
async def cached(key: int) -> dict[str, Any]:
    """Is remembered for a while."""
    await asyncio.sleep(0.02)
    return {"key": key}


@skill_command(concurrency=2)
async def limited(token: str) -> dict[str, Any]:
    """Never runs more than twice at once in one host, across generations: there are two locks, and one is free."""
    _begin(token)
    lock = _free_lock()
    try:
        await asyncio.sleep(0.05)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # said aloud, since a forked child may hold the file open as well
        os.close(lock)
    return {"token": token}


def _free_lock() -> int:
    for number in (1, 2):
        lock = os.open(f"{os.environ['SOAK_JOURNAL']}.{number}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            os.close(lock)
    raise RuntimeError("concurrency=2, and a third call runs")


# --- badly behaved, and nobody else suffers --------------------------------------------------------


@skill_command
def fail(token: str) -> str:
    """Fails in the proper way."""
    _begin(token)
    raise SkillError(f"no luck with {token}")


@skill_command
async def boom(token: str, how: str) -> str:
    """Fails in improper ways."""
    _begin(token)
    if how == "exit":
        sys.exit(token)
    if how == "interrupt":
        raise KeyboardInterrupt(token)
    if how == "cancelled":
        raise asyncio.CancelledError(token)
    raise RuntimeError(token)


@skill_command
def flood(token: str, how: str) -> dict[str, Any]:
    """Writes to where the wire was."""
    _begin(token)
    line = '{"jsonrpc":"2.0","id":1,"result":{}}'
    if how == "print":
        print("\n".join([line] * 100), flush=True)
    elif how == "native":
        os.write(1, f"{line}\n".encode() * 100)
    else:
        subprocess.run(["/bin/sh", "-c", f"for i in 1 2 3 4; do echo '{line}'; done; cat"], check=True)
    return {"token": token}


@skill_command(timeout=600.0)
async def shout(token: str, lines: int) -> dict[str, Any]:
    """Says more than a pipe holds, from the event loop."""
    _begin(token)
    for number in range(lines):
        print(token, number, "x" * 100, file=sys.stderr if number % 2 else sys.stdout)
    return {"token": token}


@skill_command
def linger(token: str, how: str) -> dict[str, Any]:
    """Leaves a child behind."""
    _begin(token)
    if how == "fork":
        if not os.fork():
            signal.pause()
            os._exit(0)
    elif how == "daemon":
        _daemon()
    elif how == "session":
        _HELD.append(subprocess.Popen(["sleep", "3600"], start_new_session=True))
    elif how == "bare":
        _HELD.append(subprocess.Popen(["sleep", "3600", _TAG], start_new_session=True, env={}))
    else:
        _HELD.append(subprocess.Popen(["sleep", "3600"]))  # held, so that nothing complains of its being left
    return {"token": token}


def _daemon() -> None:
    """A grandchild in a session of its own, and an orphan."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        os.execvp("sleep", ["sleep", "3600", _TAG])
    os._exit(0)


# --- badly behaved, at the cost of the worker ------------------------------------------------------


@skill_command
def die(token: str, how: str) -> str:
    """Takes its worker down."""
    _begin(token, "kills")
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "fork":  # a child lives on, and holds open whatever it was born with
        if not os.fork():
            signal.pause()
        os._exit(3)
    os._exit(7)


@skill_command
async def die_async(token: str) -> str:
    """Takes its worker down from the event loop."""
    _begin(token, "kills")
    os._exit(9)


@skill_command(timeout=0.4)
def hang(token: str) -> str:
    """A thread that does not come back."""
    _begin(token, "kills")
    time.sleep(3600)
    return token


@skill_command(timeout=0.4)
async def block(token: str, seconds: float) -> str:
    """Holds the event loop."""
    _begin(token, "kills")
    time.sleep(seconds)  # noqa: ASYNC251 - the fault under test
    return token


@skill_command(timeout=0.4)
async def escape(token: str, how: str) -> str:
    """Leaves the process group of its worker, or the session, and holds the event loop."""
    _begin(token, "kills")
    with contextlib.suppress(PermissionError):  # it has left already
        os.setsid() if how == "session" else os.setpgid(0, 0)
    time.sleep(3600)  # noqa: ASYNC251 - the fault under test
    return token


@skill_command(timeout=0.4)
def ponder(token: str, how: str) -> str:
    """Holds the whole interpreter."""
    _begin(token, "kills")
    if how == "native":
        ctypes.PyDLL(None).usleep(3_600_000_000)
    re.match(r"(a+)+$", "a" * 64 + "b")
    return token


@skill_command
def seize(token: str, seconds: float) -> dict[str, Any]:
    """Holds the whole interpreter, and gives it back."""
    _begin(token, "call" if seconds < 1 else "kills")  # longer than the stall limit: its worker is replaced
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return {"token": token}
