"""Soaks the stdio host in chaos: skills, saves, clients and the machine all do what they should not.

    .venv/bin/python tests/soak/soak.py --minutes 30 --seed 7

Several hosts serve one project with one cache. Every request has one answer, which belongs to it, or is cancelled; only
calls beside a crash are lost; clients hear of changes, and no version answers that is older than what they were told;
and when all is over, memory is where it was, no process is left, and no file of anybody else was touched. What went wrong
is printed with the seed, and the logs stay. A seed gives the same mix again, though never the same timing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from clients import BATCHES, PATIENCE, STATELESS, Client, Gone, Habits
from expectations import Expect, text_of, value
from files import differences, footprint
from health import Health, health, of_mark, workers
from http_clients import WebClient
from machine import Machine
from saves import Project
from workload import HARM, Mix

__all__ = ["LONG", "SHORT", "Faulty", "Plan", "Report", "soak"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How hard, and how long."""

    versions: tuple[str, ...]
    """One client that stays for each; `+` marks one that speaks both eras, `HTTP` one with a server over HTTP."""
    saves: int = 200
    minutes: float = 0.0
    """Go on at least so long, saving all the time."""
    rounds: int = 2
    """After each, everything comes to rest and is measured."""
    width: int = 8
    pause: float = 0.02
    slack: int = 3 * 1024
    """KiB that do not count. A host has 15 to 18 MB of its own at rest, with what waits for the garbage collector."""
    settling: float = 3.0
    """Seconds of quiet after which a host has given back what large messages have taken."""
    spin: float = math.inf
    """Seconds of processor time that each process takes at most that keeps a core busy."""


HTTP = "HTTP"
SHORT = Plan((BATCHES, STATELESS), saves=40, settling=0.0, slack=20 * 1024, spin=2.0)
LONG = Plan(("2024-11-05", BATCHES, "2025-06-18", "2025-11-25+", STATELESS, STATELESS, HTTP), rounds=10)
HABITS = (Habits(), Habits(reads_stderr=False), Habits(reads="slowly"), Habits(reads="never", reads_stderr=False))
OURS = re.compile(r"cache/manifests/|cache/records/|cache/request-state\.key$|(.*/)?__pycache__/")
"""The files that a host, or Python itself, may make in a project."""
THREADS = 3
"""How many threads of its pool a host may begin late."""
MOST = 64 * 1024
"""KiB that no host of ours has of its own at rest, whatever went through it."""

UNREAD = 10 * 1024
"""KiB that may wait for a client that does not read stderr: 8 MiB of lines, each an object."""

T = TypeVar("T")


class Faulty(AssertionError):
    """What was wrong."""


@dataclass(slots=True)
class Report:
    """What happened."""

    seed: int
    clients: Counter[str] = field(default_factory=Counter[str])
    lost: list[int] = field(default_factory=list[int])
    killed: int = 0
    saves: dict[str, int] = field(default_factory=dict[str, int])
    hosts: int = 0
    disturbances: dict[str, int] = field(default_factory=dict[str, int])
    partings: Counter[str] = field(default_factory=Counter[str])
    health: dict[str, list[Health]] = field(default_factory=dict[str, list[Health]])
    faults: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        told = [f"seed {self.seed}: {self.hosts} hosts, {sum(self.saves.values())} saves {self.saves}"]
        told += [f"  {name:<44} {count}" for name, count in sorted(self.clients.items())]
        told.append(f"  {'workers killed from outside':<44} {self.killed}")
        spread = ", ".join(f"{calls} calls: {deaths} times" for calls, deaths in sorted(Counter(self.lost).items()))
        told.append(f"  {'lost with one worker':<44} {spread}")
        told.append(f"  {'the machine':<44} {self.disturbances}")
        told.append(f"  {'how short sessions ended':<44} {dict(self.partings)}")
        for name, series in self.health.items():
            told += [f"  {name} at rest {number}: {each}" for number, each in enumerate(series, 1)]
        return "\n".join([*told, *(f"FAULT {fault}" for fault in self.faults)])


class Soak:
    """One run."""

    def __init__(self, plan: Plan, seed: int, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._rng = random.Random(seed)
        self.report = Report(seed)
        self._project = Project(_made(folder / "a project"), self._derived())
        self._machine = Machine(folder, self._derived(), plan.spin)
        self._elsewhere = {name: _made(folder / name) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR", "cwd")}
        """Folders where nothing of ours belongs, since the project has a cache of its own."""
        for place in self._elsewhere.values():
            (place / "theirs.txt").write_text("theirs", "utf-8")
        self._before = footprint(*self._elsewhere.values())
        self._harm: list[str] = []
        self._clients: list[Client] = []
        self._mixes: list[Mix] = []
        self._began = asyncio.get_running_loop().time()

    def _derived(self) -> random.Random:
        """A generator of its own for everybody, so that the order in which they draw does not matter."""
        return random.Random(self._rng.getrandbits(64))

    # The run

    async def run(self) -> None:
        """Everything. Faults are in the report."""
        try:
            await self._meet()
            for number in range(self._plan.rounds):
                await self._hammer(number)
                await self._rest()
            for client in self._clients:
                await self._see_changes(client)
            await self._part()
            self._see_files()
        except (Gone, TimeoutError) as error:
            faults = [
                f"{client.name} ({client.version}): {fault}" for client in self._clients for fault in client.faults
            ]
            self.report.faults = [*dict.fromkeys([*self.report.faults, *faults, f"the run ended early: {error!r}"])]
        finally:
            self._close()

    async def _meet(self) -> None:
        for number, version in enumerate(self._plan.versions):
            client = await self._join(f"c{number}", version, HABITS[(number + 1) % 3])
            await client.open()
            if client.version == STATELESS and not client.is_web:
                listen = {"notifications": {"toolsListChanged": True}}
                client.request("subscriptions/listen", listen, f"listen-{number}")
                await until(lambda client=client: client.listening, "the subscription is acknowledged")
            width, pause = self._plan.width, self._plan.pause
            mix = Mix(client, self._project, self._derived(), width=width, pause=pause, harm=self._harm)
            self._mixes.append(mix)
            await self._in_step(client)
            # What a host imports with its first large message counts for what it has at rest.
            await _call(client, "steady_measure", text="é" * 1_500_000)
        self._project.plant()

    async def _join(self, name: str, version: str, habits: Habits) -> Client:
        if version == HTTP:
            client = WebClient(name, STATELESS, self._folder)
        else:
            client = Client(name, version.removesuffix("+"), self._folder, mixed=version.endswith("+"), habits=habits)
        places = {name: str(place) for name, place in self._elsewhere.items() if name.isupper()}
        await client.start(self._project.root, {**places, **self._machine.environment}, self._elsewhere["cwd"])
        self._clients.append(client)
        self.report.hosts += 1
        return client

    async def _hammer(self, number: int) -> None:
        """One round of everything at once."""
        for mix in self._mixes:
            mix.go_on() if number else mix.start()
        over = asyncio.Event()
        restless = asyncio.create_task(self._come_and_go(number, over))
        await self._save(number)
        over.set()
        await restless
        self._machine.rest()
        for mix in self._mixes:
            await mix.calm()
        self._judge()

    def _judge(self) -> None:
        found = [f"{client.name} ({client.version}): {fault}" for client in self._clients for fault in client.faults]
        if found:
            self.report.faults += found
            raise Gone

    @property
    def _faulty(self) -> bool:
        return any(client.faults for client in self._clients)

    async def _save(self, number: int) -> None:
        """Saves, in bursts, as editors and git do it."""
        rng = self._derived()
        share = (number + 1) / self._plan.rounds
        loop = asyncio.get_running_loop()
        until_when = self._began + self._plan.minutes * 60 * share
        pace = max(0.4, self._plan.minutes * 60 / (self._plan.saves / 5))
        while not self._faulty and (
            self._project.saves < self._plan.saves * share
            or loop.time() < until_when
            or not (number + 1 < self._plan.rounds or self._is_complete)
        ):
            await self._disturb(rng)
            enough = self._project.saves >= self._plan.saves * share and loop.time() >= until_when
            for _ in range(1 if enough else rng.choice([1, 1, 2, 4, 8, 14])):
                done = self._project.step()
                for client in self._clients:
                    client.note(f"saved: {done}")
                await asyncio.sleep(rng.choice([0, 0, 0.005, 0.03]))
            await asyncio.sleep(rng.random() * 2 * min(pace, 1.0))

    async def _disturb(self, rng: random.Random) -> None:
        if (luck := rng.random()) < 0.1:
            await self._machine.send_to_sleep(of_mark(rng.choice(self._staying).mark))
        elif luck < 0.4:
            self._machine.disturb()

    @property
    def _is_complete(self) -> bool:
        """Whether everything has happened that costs a worker its life."""
        done = sum((client.counts for client in self._clients), self.report.clients)
        return all(done[f"trouble: {how}"] for how in HARM)

    # At rest

    async def _rest(self) -> None:
        """Mend everything, wait until every host has seen it, and measure."""
        self._project.mend()
        for client in self._staying:
            await self._in_step(client)
        self._project.settings_were_broken = False
        for client in self._staying:
            await until(lambda client=client: _is_at_rest(client), f"{client.name} is at rest")
        await asyncio.sleep(self._plan.settling)
        for client in self._staying:
            series = self.report.health.setdefault(client.name, [])
            series.append(health(client.process.pid))
        self._judge()

    @property
    def _staying(self) -> list[Client]:
        return [mix.client for mix in self._mixes]

    async def _in_step(self, client: Client) -> None:
        """Until a host serves the files as they are: the right tools, and the right versions behind them."""
        wanted = self._project.names()

        async def right() -> bool:
            names = {name for name in await _names(client) if not name.startswith("steady")}
            client.note(f"lists {sorted(names ^ wanted)} other than it should")
            return names == wanted

        await until_true(right, f"{client.name} lists what there is", client)
        for name, version in self._project.versions().items():  # the right names may have been there before as well
            expect = value(version=version)

            async def current(name: str = name, expect: Expect = expect) -> bool:
                answer = await _answers(client, f"{name}_value")
                return answer is not None and not expect(answer)

            await until_true(current, f"{client.name} serves {name} in version {version}", client)

    async def _see_changes(self, client: Client) -> None:
        """A change is told, and can be seen from then on; what is broken is told as well, and only as long as it is."""
        name = f"z{client.name}"
        before = client.changes
        self._project.add(name)
        if client.told:
            await until(lambda: client.changes > before, f"{client.name} hears of {name}")
        await self._in_step(client)
        self._project.spoil("m0")

        async def told() -> bool:
            return "prowess_diagnostics" in await _names(client)

        async def healed() -> bool:
            return not await told()

        await until_true(told, f"{client.name} is told of what is broken", client)
        answer = await client.ask("tools/call", name="prowess_diagnostics", arguments={})
        if "m0" not in text_of(answer):
            client.fault(f"the diagnosis does not name what is broken: {answer}")
        if wrong := value(version=self._project.versions()["m0"])(await _call(client, "m0_value")):
            client.fault(f"a broken edit has cost the last good version: {wrong}")
        self._project.mend()
        await until_true(healed, f"{client.name} is told that all is well", client)
        await self._in_step(client)
        self._judge()

    # Short sessions, in every way they end

    async def _come_and_go(self, turn: int, over: asyncio.Event) -> None:
        """One after another, for as long as the round lasts."""
        rng = self._derived()
        number = 0
        while not over.is_set():
            number += 1
            version = rng.choice(["2024-11-05", BATCHES, "2025-06-18", "2025-11-25+", STATELESS])
            await self._short_session(f"s{turn}x{number}", version, rng)

    async def _short_session(self, name: str, version: str, rng: random.Random) -> None:
        client = await self._join(name, version, rng.choice(HABITS))
        mix = Mix(client, self._project, self._derived(), width=4, fresh=True, harm=self._harm)
        how = rng.choice(["end of input", "in flight", "SIGTERM", "SIGINT", "SIGKILL", "at once"])
        if client.habits.reads == "never" and how in {"end of input", "at once"}:
            how = "unread"
        try:
            with contextlib.suppress(Gone):
                await self._live(client, mix, how, rng)
            expected = {"SIGTERM": 128 + signal.SIGTERM, "SIGINT": 128 + signal.SIGINT, "SIGKILL": -signal.SIGKILL}
            await self._leave(client, how, expected.get(how, 0))
        finally:
            await mix.stop()
            self._collect(mix)
            client.release()
            if not client.faults:
                self._clients.remove(client)

    async def _live(self, client: Client, mix: Mix, how: str, rng: random.Random) -> None:
        opened = asyncio.ensure_future(client.open())
        if how == "at once":
            await asyncio.sleep(0)  # the first request is sent
            client.close_input()
            return await opened
        await opened
        if client.habits.reads == "never":
            mix.start()
            await asyncio.sleep(rng.random() * 2)
            return None
        await asyncio.sleep(rng.random())
        if "steady_echo" in await _names(client):  # a fresh host may find files that it cannot load
            mix.start()
            await asyncio.sleep(rng.random() * 2)
        if how == "end of input":
            await mix.calm()
        return None

    async def _leave(self, client: Client, how: str, expected: int) -> None:
        client.leaving = True
        if how == "SIGKILL" or client.habits.reads != "at once":  # a host leaves in bounded time
            client.may_miss_some = True
        if how.startswith("SIG"):
            client.process.send_signal(signal.Signals[how])
        elif how != "at once":
            client.close_input()
        code = await client.ended()
        if code == 2 and self._project.settings_were_broken and not client.counts["answered"]:
            how, expected = "refused to start", 2
        self.report.partings[how] += 1
        if code != expected:
            client.fault(f"left with {code} after {how}, not with {expected}")
        if expected == 0 and client.owed() and not client.may_miss_some:
            client.fault(f"left without an answer to {client.owed()}")
        if how == "SIGKILL" and client.journal.killers:
            await self._alone_but_for_orphans(client)
        await self._alone(client)

    async def _alone_but_for_orphans(self, client: Client) -> None:
        """A host that is killed just after its worker leaves an orphan without environment, by which nothing could tell it."""
        await until(lambda: not of_mark(client.mark, bare=False), f"no process of {client.name} is left", client)
        for pid in of_mark(client.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # The end

    async def _part(self) -> None:
        """Everybody leaves, nothing stays."""
        for mix in self._mixes:
            await mix.stop()
        for client in self._staying:
            await self._leave_for_good(client)
        for client in self._staying:
            unread = 0 if client.habits.reads_stderr else UNREAD
            self._compare(self.report.health[client.name], self._plan.slack + unread // 2)
        self._judge()

    async def _leave_for_good(self, client: Client) -> None:
        client.close_input()
        code = await client.ended()
        if code:
            client.fault(f"left with exit code {code}")
        if client.owed():
            client.fault(f"left without an answer to {client.owed()}")
        await self._alone(client)
        if not client.habits.reads_stderr:
            return
        log = client.log.read_text("utf-8", "replace")
        for words in ("could not be served", "could not be passed on", "never retrieved", "Exception in callback"):
            if words in log:
                client.fault(f"its log says: {words}")

    async def _alone(self, client: Client) -> None:
        await until(lambda: not of_mark(client.mark), f"no process of {client.name} is left", client)

    def _see_files(self) -> None:
        """Nobody has touched what is not theirs."""
        if changed := differences(self._before, footprint(*self._elsewhere.values())):
            self.report.faults.append(f"files elsewhere have changed: {changed}")
        root = self._project.root
        there = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for path, content in self._project.written.items():
            if there.pop(path, None) != content:
                self.report.faults.append(f"{path} is not as it was saved")
        if strange := [path for path in there if not OURS.match(path)]:
            self.report.faults.append(f"files have come that nobody saved: {strange}")

    def _compare(self, series: list[Health], slack: int) -> None:
        """What leaks is higher in all of the second half than ever in the first; what is held on to shows at once."""
        warm, last = series[0], series[-1]
        first, second = series[: len(series) // 2], series[len(series) // 2 :]
        before, after = max(first, key=_own), min(second, key=_own)
        if after.own > before.own + slack:
            self.report.faults.append(f"memory has grown from {before} to {after}")
        most = max(series, key=_own)
        if most.own > warm.own + 2 * slack:
            self.report.faults.append(f"memory was held, first {warm} and then {most}")
        if most.own > MOST:
            self.report.faults.append(f"too much memory is held: {most}")
        if last.descriptors > warm.descriptors:
            self.report.faults.append(f"descriptors have leaked, from {warm} to {last}")
        if last.threads > warm.threads + THREADS:
            self.report.faults.append(f"threads have leaked, from {warm} to {last}")

    def _collect(self, mix: Mix) -> None:
        self.report.clients += mix.client.counts
        self.report.lost += mix.lost.values()
        self.report.killed += mix.killed

    def _close(self) -> None:
        self._machine.rest()
        self.report.disturbances = {
            "clock set": self._machine.jumps,
            "kept busy": self._machine.busy,
            "asleep": self._machine.naps,
        }
        for mix in self._mixes:
            self._collect(mix)
        for client in self._clients:
            for pid in of_mark(client.mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            client.release()
        done = self._project.done
        self.report.saves = {**done, "at rest": self._project.saves - sum(done.values())}


def _own(look: Health) -> int:
    return look.own


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _is_at_rest(client: Client) -> bool:
    """One worker, its guard, and nobody else."""
    now = health(client.process.pid)
    return now.children == 2 and not now.zombies and len(workers(client.process.pid)) == 1


async def _names(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.ask("tools/list"))["tools"]]


async def _call(client: Client, name: str, **arguments: object) -> dict[str, object]:
    token = client.token()
    return await client.ask("tools/call", name=name, arguments={"token": token, **arguments})


async def _answers(client: Client, name: str) -> dict[str, object] | None:
    """The result of a command that may still be in the hands of a worker that is about to die."""
    result = await _call(client, name)
    return None if result.get("isError") else result


async def until(condition: Callable[[], object], what: str, client: Client | None = None) -> None:
    """Wait for what must come."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - processes and hosts send no events
                await asyncio.sleep(0.02)
    except TimeoutError:
        left = of_mark(client.mark) if client else ""
        raise TimeoutError(f"it never came that {what} {left}") from None


async def until_true(ask: Callable[[], Awaitable[T]], what: str, client: Client) -> T:
    """What is answered, as soon as it is true."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := await ask()):  # noqa: ASYNC110 - it is the host's answer that counts
                await asyncio.sleep(0.05)
            return found
    except TimeoutError:
        client.fault(f"it never came that {what}")
        client.autopsy()
        await asyncio.sleep(1)  # until the log has it
        raise Gone from None


def soak(plan: Plan, seed: int) -> Report:
    """Run; a `Faulty` says what was wrong and where the logs are."""
    folder = Path(tempfile.mkdtemp(prefix="prowess-soak-"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # many crash on purpose

    async def run() -> Report:
        one = Soak(plan, seed, folder)
        await one.run()
        return one.report

    report = asyncio.run(run())
    if report.faults:
        events = "\n".join(_events(path) for path in sorted(folder.glob("*.events")))
        raise Faulty(f"{events}\n{report}\nThe logs are in {folder}; again: --seed {seed}")
    shutil.rmtree(folder)
    return report


def _events(path: Path) -> str:
    lines = path.read_text("utf-8").splitlines()[-30:]
    return "\n".join([f"== before the first fault of {path.stem}", *lines])


def main(argv: Sequence[str] | None = None) -> int:
    """The long form."""
    parser = argparse.ArgumentParser(description="Soak the stdio host.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long")
    parser.add_argument("--saves", type=int, default=200, help="how many saves at least")
    parser.add_argument("--seed", type=int, default=None, help="the same mix again")
    parser.add_argument("--short", action="store_true", help="what the test does")
    given = parser.parse_args(argv)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    plan = SHORT if given.short else Plan(LONG.versions, given.saves, given.minutes, LONG.rounds)
    print(f"seed {seed}", flush=True)
    try:
        print(soak(plan, seed))
    except Faulty as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
