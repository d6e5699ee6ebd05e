"""Everything over pipes: starting, calling, stopping. Each server is started as a client would start it."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from client import Client, children_environment, memory_of, tree_of
from effort import Effort
from projects import FLOOR, FUNCTION_COUNT, OURS, Subject, many_skills
from report import Report

__all__ = ["Wire"]

_IDLE: Final = 0.3
"""Seconds of silence before the end of input of an idle server; and for a call to have begun before that of a busy one."""
_RECORDS: Final = 10_000
_TEXT: Final = 1_000_000


@dataclass
class Wire:
    """The servers, and where the samples go."""

    folder: Path
    subjects: Mapping[str, Subject]
    effort: Effort
    report: Report
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

    # From spawn to the answer

    def starts(self) -> None:
        """One session after the other: handshake, list, call, silence, end of input."""
        for number in range(self.effort.starts + 1):
            for key, subject in self.subjects.items():
                found = self._session(subject, FUNCTION_COUNT)
                if number:  # the first writes bytecode
                    for row, seconds in found.items():
                        self.report.add(row, key, seconds)
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
            self.report.add(row, subject.key, listed)

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
                    self.report.add("many_list_cold", key, listed)
                    self.report.add("many_call", key, called)
            self._warm_start("many_list_warm", subjects[OURS], count=number > 0)

    # Calls

    def calls(self) -> None:
        """Batches of calls, the servers in turn while all of them are up."""
        with self.all() as clients:
            for _ in range(self.effort.rounds):
                for key, client in clients.items():
                    for row, name in {"async": "echo", "sync": "echo_sync"}.items():
                        times = client.time_calls(name, {"value": 1}, self.effort.calls)
                        for each in (
                            "p50",
                            "usual_p50",
                        ):  # the best batch says most of a server, the usual one of a machine
                            self.report.add(f"{row}_{each}", key, statistics.median(times))
                        self.report.add(f"{row}_p99", key, statistics.quantiles(times, n=100)[98])
                    for row, name in {"pipelined": "echo", "pipelined_sync": "echo_sync"}.items():
                        seconds = client.time_pipelined(name, {"value": 1}, self.effort.pipelined)
                        self.report.add(row, key, self.effort.pipelined / seconds)
                    self.report.merge({"pipelined_best": {key: self.report.samples["pipelined"][key][-1:]}})
                    for row, name, size in (("text", "size", _TEXT), ("records", "count", _RECORDS)):
                        times = client.time_calls(row, {name: size}, self.effort.large)
                        self.report.add(f"large_{row}", key, statistics.median(times))

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
