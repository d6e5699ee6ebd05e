"""Everything over pipes: starting, calling, stopping. Each server is started as a client would start it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from client import Client, children_environment, memory_of, processor_time_of, tree_of
from effort import Effort
from projects import FLOOR, FUNCTION_COUNT, OURS, RELAY, Subject, many_skills, relay, without_record
from report import BUSY, Report

__all__ = ["Wire"]

_IDLE: Final = 0.3
"""Seconds of silence before the end of input of an idle server; and for a call to have begun before that of a busy one."""
_WRITTEN: Final = 0.6
"""Seconds after which the record of calls is surely on disk."""
_RECORDS: Final = 10_000
_TEXT: Final = 1_000_000
_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "take_text": {"text": '    total += price_of(article, "EUR")  # without tax\n' * 27_500},
    "take_records": {"records": [{"number": n, "name": f"record {n:08}", "comment": "x" * 40} for n in range(15_000)]},
}
"""1.5 MB of JSON each: a source file, and records."""
_NO_OPS: Final = {"async": "echo", "sync": "echo_sync"}
_SPIN: Final = "while True: pass"


@dataclass
class Wire:
    """The servers, and where the samples go."""

    folder: Path
    subjects: Mapping[str, Subject]
    effort: Effort
    report: Report
    prefix: str = ""
    """What stands before the keys of rows: the same is measured on a machine that is idle, and on a busy one."""
    _cache: Path = field(init=False)

    def __post_init__(self) -> None:
        self._cache = self.folder / "cache"

    def open(self, subject: Subject) -> Client:
        """A server that finds what an earlier one has left in the cache."""
        return Client(subject, children_environment(self._cache))

    @contextlib.contextmanager
    def cold(self, subject: Subject) -> Iterator[Client]:
        """A server that finds no cache of ours. Bytecode and the file system's cache are warm for all."""
        cache = self.folder / "cold"
        shutil.rmtree(cache, ignore_errors=True)
        with Client(subject, children_environment(cache)) as client:
            yield client

    @contextlib.contextmanager
    def all(self) -> Iterator[dict[str, Client]]:
        """All servers, up and warm."""
        with contextlib.ExitStack() as stack:
            clients = {key: stack.enter_context(self.open(subject)) for key, subject in self.subjects.items()}
            for client in clients.values():
                client.handshake()
                client.list_tools()
                client.time_calls("echo", {"value": 1}, 20)
                client.time_calls("echo_sync", {"value": 1}, 20)
            yield clients

    def _add(self, row: str, subject: str, *values: float) -> None:
        self.report.add(self.prefix + row, subject, *values)

    # From spawn to the answer

    def starts(self) -> None:
        """One session after the other: handshake, list, call, silence, end of input."""
        for number in range(self.effort.rehearsals + self.effort.starts):
            for key, subject in self.subjects.items():
                found = self._session(subject, FUNCTION_COUNT)
                if number >= self.effort.rehearsals:
                    for row, seconds in found.items():
                        self._add(row, key, seconds)
                if self.effort.rehearsals:
                    self._warm_start("list_warm", subject, count=number > 0)

    def _session(self, subject: Subject, tools: int) -> dict[str, float]:
        with self.cold(subject) as client:
            initialized = client.handshake()
            names, listed = client.list_tools()
            assert tools == len(names), (subject.key, names)
            called = self._first_call(client)
            time.sleep(_IDLE)
            return {
                "initialize": initialized,
                "list_cold": listed,
                "first_call": called,
                "exit_idle": client.close_input(),
            }

    def _first_call(self, client: Client, name: str = "echo") -> float:
        result, seconds = client.call(name, {"value": 1})
        assert not result.get("isError"), result
        return seconds

    def _warm_start(self, row: str, subject: Subject, *, count: bool) -> None:
        """A start after others: only ours remembers something of them."""
        with self.open(subject) as client:
            client.handshake()
            _, listed = client.list_tools()
        if count:  # the first fills the cache
            self._add(row, subject.key, listed)

    def many(self) -> None:
        """The same with many skills, some of which import something slow."""
        effort = self.effort
        subjects = many_skills(self.folder / "many", effort.skills, effort.slow, effort.slow_seconds)
        for number in range(effort.many + 1):
            for key, subject in subjects.items():
                with self.cold(subject) as client:
                    client.handshake()
                    names, listed = client.list_tools()
                    called = self._first_call(client, "add_0")
                assert effort.skills == len(names), (key, len(names))
                if number:  # the first writes bytecode
                    self._add("many_list_cold", key, listed)
                    self._add("many_call", key, called)
            self._warm_start("many_list_warm", subjects[OURS], count=number > 0)

    # Calls

    def calls(self) -> None:
        """Batches of calls, the servers in turn while all of them are up."""
        bare = relay(self.folder)
        with self.all() as clients, self.open(bare) as floor:
            families = {key: tree_of(client.process.pid) for key, client in clients.items()}
            floor.time_calls("echo", {"value": 1}, 20)
            for _ in range(self.effort.rounds):
                for key, client in clients.items():
                    self._one_at_a_time(key, client, families[key])
                    self._all_at_once(key, client, families[key])
                    self._large(key, client)
                self._one_at_a_time(RELAY, floor, tree_of(floor.process.pid), {"async": "echo"})

    def recording(self) -> None:
        """Calls with and without the record of calls, by turns. What a thread writes later counts as well.

        Two processes that do the same differ by more than the record costs, hence another pair of hosts in each round.
        """
        ours = self.subjects[OURS]
        for number in range(self.effort.recorders):
            with self.open(ours) as recorded, self.open(without_record(ours)) as bare:
                pair = ("recorded", recorded), ("unrecorded", bare)
                for _, client in pair:
                    client.handshake()
                    client.list_tools()
                    client.time_calls("echo", {"value": 1}, self.effort.recorded)
                for _ in range(2):
                    for row, client in pair if number % 2 else reversed(pair):
                        self._add(f"{row}_processor", OURS, self._recorded(client))

    def _recorded(self, client: Client) -> float:
        """Processor time of a call, with all that follows it."""
        family = tree_of(client.process.pid)
        before = processor_time_of(family)
        client.time_calls("echo", {"value": 1}, self.effort.recorded)
        time.sleep(_WRITTEN)
        return (processor_time_of(family) - before) / self.effort.recorded

    def _one_at_a_time(self, key: str, client: Client, family: list[int], rows: Mapping[str, str] = _NO_OPS) -> None:
        count = self.effort.calls
        for row, name in rows.items():
            before = processor_time_of(family)
            times = client.time_calls(name, {"value": 1}, count)
            self._add(f"{row}_processor", key, (processor_time_of(family) - before) / count)
            for each in ("p50", "usual_p50"):  # the best batch says most of a server, the usual one of a machine
                self._add(f"{row}_{each}", key, statistics.median(times))
            self._add(f"{row}_p99", key, statistics.quantiles(times, n=100)[98])

    def _all_at_once(self, key: str, client: Client, family: list[int]) -> None:
        count = self.effort.pipelined
        for row, name in {"pipelined": "echo", "pipelined_sync": "echo_sync"}.items():
            before = processor_time_of(family)
            speed = count / client.time_pipelined(name, {"value": 1}, count)
            self._add(f"{row}_processor", key, (processor_time_of(family) - before) / count)
            self._add(row, key, speed)
            if row == "pipelined":
                self._add("pipelined_best", key, speed)

    def _large(self, key: str, client: Client) -> None:
        for row, name, size in (("text", "size", _TEXT), ("records", "count", _RECORDS)):
            self._add(f"large_{row}", key, statistics.median(client.time_calls(row, {name: size}, self.effort.large)))
        for name, arguments in _ARGUMENTS.items():
            self._add(name, key, statistics.median(client.time_calls(name, arguments, self.effort.large)))

    def busy(self) -> None:
        """Starts and calls again, while something else keeps every core busy."""
        effort = dataclasses.replace(self.effort, rounds=self.effort.busy_rounds, starts=self.effort.busy_starts)
        other = dataclasses.replace(self, effort=effort, prefix=BUSY)
        with contextlib.ExitStack() as stack:
            for _ in range(os.cpu_count() or 1):
                spinning = stack.enter_context(subprocess.Popen([sys.executable, "-c", _SPIN]))
                stack.callback(spinning.kill)
            other.starts()
            other.calls()

    def memory(self) -> None:
        """One server at a time, since what two of them share would be counted half."""
        for _ in range(self.effort.memory):
            for key, subject in self.subjects.items():
                with self.open(subject) as client:
                    client.handshake()
                    client.list_tools()
                    client.time_calls("echo", {"value": 1}, 1000)
                    proportional, resident = memory_of(tree_of(client.process.pid))
                self.report.add("pss", key, proportional)
                self.report.add("rss", key, resident)

    def growth(self) -> None:
        """Memory of ours after many calls, by what it was after a tenth of them.

        Resident: the proportional one also moves when unrelated programs come and go.
        """
        tenth, part = self.effort.growth // 10, 1000
        with self.open(self.subjects[OURS]) as client:
            client.handshake()
            found: list[float] = []
            for done in range(part, self.effort.growth + 1, part):
                client.time_pipelined("echo", {"value": 1}, part)
                if done in (tenth, self.effort.growth):
                    found.append(memory_of(tree_of(client.process.pid))[1])
        self.report.add("growth", OURS, found[1] / found[0])

    # Stopping: all servers at once, as they mostly sleep

    def stopping(self) -> None:
        """End of input while something sleeps, and a deadline that passes."""
        watched = [subject for key, subject in self.subjects.items() if key != FLOOR]
        with ThreadPoolExecutor(2 * len(watched)) as pool:
            ends = [pool.submit(self._end_while_busy, subject) for subject in watched]
            lates = [pool.submit(self._overrun, subject) for subject in watched]
            for future in [*ends, *lates]:
                future.result()

    def _end_while_busy(self, subject: Subject) -> None:
        with self.open(subject) as client:
            client.handshake()
            self._first_call(client)
            client.send_call("sleep", {"seconds": self.effort.sleep})
            time.sleep(_IDLE)
            self.report.add("exit_busy", subject.key, client.close_input())

    def _overrun(self, subject: Subject) -> None:
        """The official SDK has no deadlines: it answers when the function is done, which is what its row says."""
        file = self.folder / f"late-{subject.key}"
        with self.open(subject) as client:
            client.handshake()
            self._first_call(client)
            began = time.perf_counter()
            client.call("write_late", {"seconds": self.effort.late, "path": str(file)})
            self.report.add("late_answer", subject.key, time.perf_counter() - began)
            time.sleep(max(0.0, began + self.effort.late + 1 - time.perf_counter()))
            self.report.add("late_written", subject.key, file.exists())
