"""A client on raw pipes, the same for every server: it adds a system call or two to what is measured, and little else."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from projects import Subject

__all__ = ["Client", "children_environment", "memory_of", "processor_time_of", "tree_of"]

PROTOCOL: Final = "2025-11-25"
_CHUNK: Final = 1024 * 1024
_PATIENCE: Final = 60.0
_PROCESSOR_TIME: Final = 2
"""`CPUCLOCK_SCHED` of the kernel: beside the id of a process, the name of its clock."""
_HIDDEN: Final = ("PYTHON", "COVERAGE_", "FASTMCP_", "PROWESS_", "MCP_")


def children_environment(cache: Path) -> dict[str, str]:
    """Ours without what would favour or burden anybody: no switch of Python's, so that bytecode is cached for all."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)}
    return {**kept, "XDG_CACHE_HOME": str(cache)}


class Client:
    """One server, started and talked to."""

    def __init__(self, subject: Subject, environment: Mapping[str, str]) -> None:
        self.subject = subject
        self._buffer = bytearray()
        self._number = 0
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            subject.command,
            cwd=subject.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        os.set_blocking(self._in.fileno(), False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._in.close()
        self._out.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    # Requests

    def handshake(self) -> float:
        """Shake hands; gives the seconds from the start to the answer."""
        info = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        _, seconds = self._ask("initialize", info)
        self._write(_line({"method": "notifications/initialized"}))
        return seconds

    def list_tools(self) -> tuple[list[str], float]:
        """The names of the tools, and the seconds from the start to the (first) answer."""
        told, seconds = self._ask("tools/list", {})
        names = [tool["name"] for tool in told["tools"]]
        while told.get("nextCursor"):
            told, _ = self._ask("tools/list", {"cursor": told["nextCursor"]})
            names += [tool["name"] for tool in told["tools"]]
        return names, seconds

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        """A result, and the seconds from the start of the server to it."""
        return self._ask("tools/call", self._params(name, arguments))

    def send_call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call, and do not wait."""
        self._number += 1
        params = self._params(name, arguments)
        self._write(_line({"id": self._number, "method": "tools/call", "params": params}))

    def time_calls(self, name: str, arguments: Mapping[str, Any], count: int) -> list[float]:
        """Seconds of each of `count` calls, one after the other."""
        params = self._params(name, arguments)
        times: list[float] = []
        for _ in range(count):
            self._number += 1
            line = _line({"id": self._number, "method": "tools/call", "params": params})
            before = time.perf_counter()
            self._write(line)
            answer, after = self._answer_to(self._number)
            times.append(after - before)
            _check(answer)
        return times

    def time_pipelined(self, name: str, arguments: Mapping[str, Any], count: int) -> float:
        """Seconds until `count` calls that were all sent at once are answered."""
        params = self._params(name, arguments)
        numbers = range(self._number + 1, self._number + count + 1)
        self._number += count
        lines = b"".join(_line({"id": number, "method": "tools/call", "params": params}) for number in numbers)
        before = time.perf_counter()
        answers = self._exchange(lines, count)
        seconds = time.perf_counter() - before
        told = [json.loads(answer) for answer in answers]
        for answer in told:
            _check(answer)
        assert set(numbers) == {answer["id"] for answer in told}
        return seconds

    # The end

    def close_input(self, patience: float = _PATIENCE) -> float:
        """End of input; gives the seconds until the process and all that it had started are gone."""
        family = tree_of(self.process.pid)
        before = time.perf_counter()
        self._in.close()
        while self.process.poll() is None:  # nobody reads any more, but nothing may be stuck because of that
            if select.select([self._out], [], [], 0.001)[0]:
                os.read(self._out.fileno(), _CHUNK)
            if time.perf_counter() - before > patience:
                raise TimeoutError(f"{self.subject.key} did not end")
        while any(_is_alive(pid) for pid in family[1:]):
            time.sleep(0.001)
        return time.perf_counter() - before

    # Bytes

    def _params(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"name": self.subject.prefix + name, "arguments": arguments}

    def _ask(self, method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        self._number += 1
        self._write(_line({"id": self._number, "method": method, "params": params}))
        answer, at = self._answer_to(self._number)
        return _check(answer), at - self.started

    def _answer_to(self, number: int) -> tuple[dict[str, Any], float]:
        """The answer, and when its line was complete; what else the server says is passed over."""
        while True:
            line = self._line()
            at = time.perf_counter()
            message = json.loads(line)
            if message.get("id") == number:
                return message, at

    def _line(self) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _fill(self) -> None:
        if not select.select([self._out], [], [], _PATIENCE)[0]:
            raise TimeoutError(f"{self.subject.key} does not answer")
        data = os.read(self._out.fileno(), _CHUNK)
        if not data:
            raise EOFError(f"{self.subject.key} ended with exit code {self.process.wait()}")
        self._buffer += data

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            select.select([], [self._in], [], _PATIENCE)
            rest = rest[os.write(self._in.fileno(), rest) :]

    def _exchange(self, data: bytes, count: int) -> list[bytes]:
        """Write, and read meanwhile, until so many answers have come."""
        rest, answers = memoryview(data), list[bytes]()
        while len(answers) < count:
            readable, writable, _ = select.select([self._out], [self._in] if rest else [], [], _PATIENCE)
            if writable:
                rest = rest[os.write(self._in.fileno(), rest[:65536]) :]
            if readable:
                self._fill()
                *lines, last = self._buffer.split(b"\n")
                self._buffer = last
                answers += [line for line in lines if b'"id"' in line]
            if not readable and not writable:
                raise TimeoutError(f"{self.subject.key} answered {len(answers)} of {count} calls")
        return answers


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _check(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise RuntimeError(f"the server answered {answer['error']}")
    return answer.get("result", {})  # a relay sends back what it was sent


# Processes


def tree_of(pid: int) -> list[int]:
    """A process and all that descend from it, as far as they can be seen."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in table.splitlines())}
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def memory_of(pids: list[int]) -> tuple[float, float]:
    """Proportional and resident memory of processes together, in MB; where the first is not known, the second twice."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup") for pid in pids]
    if all(file.exists() for file in rollups):
        texts = [file.read_text() for file in rollups]
        return sum(_kilobytes(text, "Pss:") for text in texts) / 1024, sum(
            _kilobytes(text, "Rss:") for text in texts
        ) / 1024
    listed = subprocess.run(
        ["ps", "-o", "rss=", "-p", ",".join(map(str, pids))], capture_output=True, text=True, check=True
    )
    resident = sum(map(int, listed.stdout.split())) / 1024
    return resident, resident


def processor_time_of(pids: list[int]) -> float:
    """Seconds that processes have spent on processors together, in their own code and in the kernel."""
    if sys.platform == "linux":
        return sum(map(_clock_of, pids))
    listed = subprocess.run(
        ["ps", "-o", "time=", "-p", ",".join(map(str, pids))], capture_output=True, text=True, check=True
    )
    return sum(_seconds(told) for told in listed.stdout.split())


def _clock_of(pid: int) -> float:
    """The clock of a process and all its threads, to the nanosecond. `/proc` counts in steps of 10 ms."""
    return time.clock_gettime(~pid << 3 | _PROCESSOR_TIME)


def _seconds(told: str) -> float:
    """The seconds in `[[days-]hours:]minutes:seconds`."""
    total = 0.0
    for factor, part in zip((1, 60, 3600, 86400), reversed(told.replace("-", ":").split(":")), strict=False):
        total += factor * float(part)
    return total


def _kilobytes(text: str, name: str) -> int:
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
