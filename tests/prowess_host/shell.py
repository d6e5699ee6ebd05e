"""`prowess` as at a shell, in a process that is forked from one that has imported the command line (`shell_template`).

It has its own process, arguments, environment, folder, descriptors and exit code, and lacks only the start, which costs a
third of a second of processor time. The start is tested in `test_start.py` and `tests/structure/test_lightness.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from forked import ask, started
from patience import PATIENCE

__all__ = ["Command", "Running", "prowess", "run"]


@functools.cache
def template() -> socket.socket:
    """The process that commands are forked from."""
    return started("shell_template.py")


class Command:
    """A command that runs. It gets one descriptor, of a terminal, or three."""

    def __init__(
        self, *words: str, cwd: Path, environ: Mapping[str, str], fds: tuple[int, ...], forked_workers: bool = True
    ) -> None:
        told = {"words": words, "folder": str(cwd), "environ": dict(environ), "forked_workers": forked_workers}
        self.pid, self.ending = ask(template(), told, *fds)
        self.returncode: int | None = None

    def wait(self, timeout: float = PATIENCE) -> int:
        """Until it has ended; gives its exit code."""
        if self.returncode is None:
            if not select.select([self.ending], [], [], timeout)[0]:
                self.kill()
                raise subprocess.TimeoutExpired("prowess", timeout)
            self.returncode = int(os.read(self.ending, 100))
            os.close(self.ending)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and nobody has asked for its exit code yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Running:
    """A command with pipes, like one that `asyncio.create_subprocess_exec` started."""

    def __init__(self, command: Command, stdin: asyncio.StreamWriter, *outputs: asyncio.StreamReader) -> None:
        self.stdin = stdin
        self.stdout, self.stderr = outputs
        self.pid, self.kill, self.send_signal = command.pid, command.kill, command.send_signal
        self._command = command

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    @property
    def returncode(self) -> int | None:
        """`None` while nobody has waited for its end."""
        return self._command.returncode

    async def wait(self) -> int:
        """Until it has ended; gives its exit code."""
        if self.returncode is None:
            ended, loop = asyncio.Event(), asyncio.get_running_loop()
            ending = os.dup(self._command.ending)  # several may wait
            loop.add_reader(ending, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(ending)
                os.close(ending)
        return self._command.wait()


async def run(*words: str, environ: Mapping[str, str], forked_workers: bool = True) -> Running:
    """Have a command run in the background."""
    loop = asyncio.get_running_loop()
    pipes = [os.pipe() for _ in range(3)]
    (typed, typing), *written = pipes
    fds = (typed, *(end for _, end in written))
    command = Command(*words, cwd=Path.cwd(), environ=environ, fds=fds, forked_workers=forked_workers)
    for fd in (typed, *(end for _, end in written)):
        os.close(fd)
    outputs: list[asyncio.StreamReader] = []
    for fd, _ in written:
        outputs.append(asyncio.StreamReader(limit=1 << 28))
        protocol = asyncio.StreamReaderProtocol(outputs[-1])
        await loop.connect_read_pipe(lambda protocol=protocol: protocol, os.fdopen(fd, "rb", 0))
    transport, control = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(typing, "wb", 0)
    )
    return Running(command, asyncio.StreamWriter(transport, control, None, loop), *outputs)


def prowess(
    *words: str, cwd: Path | None = None, given: str | bytes = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with `given` as its input."""
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as complained:
        reading, writing = os.pipe()
        fds = (reading, told.fileno(), complained.fileno())
        command = Command(*words, cwd=cwd or Path.cwd(), environ=os.environ if env is None else env, fds=fds)
        os.close(reading)
        typing = threading.Thread(target=_type, args=(writing, given.encode() if isinstance(given, str) else given))
        typing.start()
        code = command.wait()
        typing.join()
        for file in (told, complained):
            file.seek(0)
        return subprocess.CompletedProcess(["prowess", *words], code, told.read().decode(), complained.read().decode())


def _type(fd: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(fd, "wb", buffering=0) as file:
        file.write(data)
