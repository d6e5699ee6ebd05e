"""A machine that is busy, that is sent to sleep, and whose wall clock jumps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CLOCK", "Machine"]

CLOCK = "SOAK_CLOCK"
_SPIN = """\
import os, sys, threading, time
def wait():
    sys.stdin.read()
    os._exit(0)
waiting = threading.Thread(target=wait)
waiting.start()
most = float(sys.argv[1])
while time.process_time() < most:
    pass
waiting.join()
"""
"""Ends with the driver, however that ends."""
_HOUR, _YEAR = 3600.0, 365 * 86400.0


class Machine:
    """What happens beside the hosts, and to all of their processes."""

    def __init__(self, folder: Path, rng: random.Random, spin: float) -> None:
        """`spin` is how many seconds of processor time each process takes at most that keeps a core busy."""
        self._rng = rng
        self._spin_for = spin
        self._clock = folder / "clock"
        self._clock.write_bytes(struct.pack("d", 0.0))
        self.jumps = 0
        """How often the wall clock was set."""
        self.busy = 0
        """How often the processors were taken away."""
        self.naps = 0
        """How often a host and what belongs to it, or a part of that, was stopped for a while."""
        self._spinners: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Lets every Python process that inherits this go by our wall clock."""
        paths = [str(Path(__file__).with_name("clock")), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {CLOCK: str(self._clock), "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def disturb(self) -> None:
        """Set the clock, or begin or end to keep the processors busy."""
        if self._rng.random() < 0.5:
            self._set_clock(self._rng.choice([-_YEAR, -_HOUR, -5.0, 0.0, 5.0, _HOUR, _YEAR]))
        elif self._spinners:
            self.rest()
        else:
            self._spin()

    def _set_clock(self, shift: float) -> None:
        with self._clock.open("r+b") as file:  # in place: the processes have it in their memory
            file.write(struct.pack("d", shift))
        self.jumps += 1

    def _spin(self) -> None:
        self.busy += 1
        command = [sys.executable, "-S", "-c", _SPIN, str(self._spin_for)]
        for _ in range(os.cpu_count() or 1):
            self._spinners.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    async def send_to_sleep(self, pids: Iterable[int]) -> None:
        """Stop these processes for a while, as a laptop does whose lid is closed; or some of them, which get no processor."""
        self.naps += 1
        pids = sorted(pids)
        if self._rng.random() < 0.5:
            pids = self._rng.sample(pids, self._rng.randint(min(1, len(pids)), len(pids)))
        try:
            _send(pids, signal.SIGSTOP)
            await asyncio.sleep(self._rng.choice([0.3, 1.5, 2.5]))
        finally:
            _send(pids, signal.SIGCONT)

    def rest(self) -> None:
        """Nothing runs beside."""
        for spinner in self._spinners:
            spinner.kill()
            spinner.communicate()
        self._spinners.clear()


def _send(pids: list[int], number: signal.Signals) -> None:
    """To those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
