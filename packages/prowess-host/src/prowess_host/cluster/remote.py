"""Workers on other machines, as a host sees them: the agents that are there, and the host's end of a worker on one of them.

The host keeps its own supervision. A worker on an agent differs from others in how its frames travel, and in that nobody
knows what it did last if its agent falls silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess.settings.keys import OWN_NAMES
from prowess.settings.layers import PREFIX
from prowess.settings.limits import TABLE
from prowess.settings.settings import Settings
from prowess.settings.tables import normal
from prowess.skills.stamps import ABSENT, as_imported, digest_of, look, read, stamp
from prowess.skills.texts import pack, unpack
from prowess.worker.board import Importing
from prowess.worker.link import Frame
from prowess.worker.messages import BeginHead, Kind, hello
from prowess.worker.progress import Thread
from prowess_host.catalog.sources import Parts
from prowess_host.cluster.code import APPROVED, Code, Snapshots, moved
from prowess_host.cluster.engine import Engine, Message
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.placing import Candidate, Slowness, choose, labels_of, why_none
from prowess_host.cluster.streams import Stream, beats
from prowess_host.cluster.talk import (
    FULL,
    Said,
    agent_subject,
    beats_subject,
    blob_name,
    code_ways,
    stream_subjects,
    who_subject,
)
from prowess_host.stderr import complaints
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.output import LabelledLines
from prowess_host.workers.placement import OWN, Placement

__all__ = ["Agents", "RemoteWorker", "Seen"]

_STAYS: Final = ("python", "cache_dir", "env_file", "environments", "serve", "cluster", "agent", "record")
"""Settings that are about the machine of the host."""
_DIGEST: Final = 4
"""Where the digest is in the version of a file that a worker tells."""
_ANSWER: Final = 10.0
"""Seconds that an agent gets to say whether it takes a worker."""
_ATTEMPTS: Final = 5
"""Times that code is brought again because somebody saves meanwhile."""
_BELIEVED: Final = 3600.0
"""Seconds after which a file is stored once more, if an agent wants it."""
_AT_ONCE: Final = 8
"""Files that are stored at the same time."""


class _Refused(ProwessError):
    """No agent takes the worker, and its calls need not wait for another one."""


@frozen
class Seen:
    """An agent, as its last beat says."""

    id: str
    name: str
    labels: frozenset[str]
    slots: int
    busy: int
    facts: Mapping[str, Any]
    """What else it says of itself."""
    missed: int = 0
    """Beats that it has missed."""

    def candidate(self, slowness: float = 1.0) -> Candidate:
        """The agent as a place for a worker."""
        return Candidate(self.id, self.labels, self.slots, self.busy, slowness)

    def in_words(self) -> str:
        """One line for people."""
        labels = f", labels {' '.join(sorted(self.labels - {'any', self.name}))}" if len(self.labels) > 2 else ""
        more = f", {self.facts['processors']} processors" if "processors" in self.facts else ""
        late = f", silent for {self.missed} beats" if self.missed > 1 else ""
        return f"agent {self.name}: {self.busy} of {self.slots} slots in use{labels}{more}{late}"


class Agents:
    """The agents of a cluster, and the workers that one host has on them."""

    def __init__(self, engine: Engine, settings: Callable[[], Settings], parts: Callable[[], Parts]) -> None:
        """Both give what is in force when they are called."""
        self.engine = engine
        self.settings = settings
        self._parts = parts
        self._snapshots = Snapshots()
        self.seen: dict[str, Seen] = {}
        self.changed = asyncio.Event()
        self.slowness = Slowness()
        self.on_joined: Callable[[], object] = bool
        """Called when another agent is there."""
        self._loop = asyncio.get_running_loop()
        self._draw = Random()  # noqa: S311 - to choose among equals
        self._subscription = engine.subscribe(beats_subject(engine), self._hear)
        self._timer: asyncio.TimerHandle | None = None
        self._stored: set[str] = set()
        self._since = (0, 0.0)
        self._forget = engine.on_change(self._ask_who)
        self._ask_who()
        self._tick()

    def close(self) -> None:
        """Hear of no agents any more."""
        self._forget()
        self._subscription.cancel()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def silence(self) -> float:
        """Seconds after which an agent counts as gone."""
        return self.settings().own.cluster.silence

    def spawn(self, _python: str, root: Path, begin: bytes, **how: Any) -> RemoteWorker:
        """Start a worker on an agent. Takes what `WorkerProcess` takes."""
        return RemoteWorker(self, root, begin, **how)

    # Who is there

    def _ask_who(self) -> None:
        if self.engine.up:
            self.engine.publish(who_subject(self.engine), b"")

    def _hear(self, message: Message) -> None:
        try:
            told = json.loads(message.data)
            labels = frozenset(map(str, told["labels"]))
            seen = Seen(str(told["id"]), str(told["name"]), labels, int(told["slots"]), int(told["busy"]), told)
        except (AttributeError, KeyError, TypeError, ValueError):  # of another version, or of no agent
            return
        if told.get("left"):
            self.seen.pop(seen.id, None)
        else:
            is_new = seen.id not in self.seen
            self.seen[seen.id] = seen
            if is_new:
                self.on_joined()
        self._tell()

    def _tick(self) -> None:
        """Forget the agents that are silent. Beats are counted, so that a starved host forgets nobody."""
        interval, most = beats(self.silence)
        self._timer = self._loop.call_later(interval, self._tick)
        late = (replace(seen, missed=seen.missed + 1) for seen in self.seen.values())
        self.seen = {seen.id: seen for seen in late if seen.missed <= most}

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def in_words(self) -> list[str]:
        """A line about each agent, for people."""
        return [seen.in_words() for seen in sorted(self.seen.values(), key=lambda seen: seen.name)]

    async def chosen(self, labels: str, avoid: Collection[str], seconds: float) -> Seen:
        """The agent for a worker, waited for within bounds. Raises `_Refused`."""
        needed = labels_of(labels)
        end = self._loop.time() + seconds
        while True:
            candidates = [
                seen.candidate(self.slowness.of(seen.id)) for seen in self.seen.values() if seen.id not in avoid
            ]
            found = choose(candidates, self._draw, needed)
            if found is not None:
                return self.seen[found.name]
            left = end - self._loop.time()
            if left <= 0:
                gone = "" if self.engine.up else f"the engine {self.engine.place} is {self.engine.state}; "
                raise _Refused(f"{gone}{why_none([seen.candidate() for seen in self.seen.values()], needed)}")
            changed = self.changed
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                continue

    async def ask(self, agent: Seen, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """What an agent answers to an order."""
        data = json.dumps(order).encode()
        return json.loads(await self.engine.request(agent_subject(self.engine, agent.id), data, seconds=_ANSWER))

    def fill(self, agent: Seen) -> None:
        """An agent has no free slot, which its last beat did not say."""
        self.seen[agent.id] = replace(self.seen.get(agent.id, agent), busy=agent.slots)

    def taken(self, agent: Seen) -> None:
        """An agent has taken a worker, which its next beat will say."""
        seen = self.seen.get(agent.id)
        if seen is not None:
            self.seen[agent.id] = replace(seen, busy=seen.busy + 1)

    # Code

    async def snapshot(self) -> Code:
        """The code of the project as it is now."""
        return await asyncio.to_thread(self._snapshots.take, self._parts())

    async def store(self, code: Code, digests: Collection[str]) -> None:
        """Bring code to the engine, where the agent finds it. A file that was saved meanwhile is a `ValueError`."""
        since = self.engine.connections, self._loop.time() // _BELIEVED
        if self._since != since:  # it may have lost everything with its end, and forgets everything after a while
            self._stored.clear()
            self._since = since
        paths = {digest: neutral for neutral, digest in code.files.items()}
        if code.digest in digests:
            digests = {*paths, code.digest}
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def bring(digest: str) -> None:
            async with at_once:
                data = code.index if digest == code.digest else await asyncio.to_thread(_read, code, paths[digest])
                if digest_of(data) != digest:
                    raise ValueError(f"{paths[digest]} was saved while it was read")
                await self.engine.store(blob_name(digest), data)
                self._stored.add(digest)

        await asyncio.gather(*(bring(digest) for digest in digests if digest not in self._stored))


@frozen
class _Sent:
    """A call that was sent to an agent."""

    message: int
    """The number of the message that it went with, or of an earlier one."""
    command: str
    at: float


class RemoteWorker(LinkedWorker):
    """The host's end of a worker on an agent. What it is told waits until the agent has its code and has started it."""

    def __init__(
        self,
        agents: Agents,
        root: Path,
        begin: bytes,
        *,
        shared: bool = False,  # noqa: ARG002 - memory is shared on one machine only
        placement: Placement = OWN,
        on_frame: Callable[[Frame], None],
        on_exit: Callable[[], None],
        on_print: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self._agents = agents
        self._placement = placement
        self._root = root
        self._messages: dict[int, _Sent] = {}
        """What was sent of each call."""
        self._refused: dict[str, str] = {}
        """By agent: why it does not run it."""
        self._doubtful: set[int] = set()
        """Calls of which nobody knows whether they were begun, because the agent fell silent."""
        self._waiting: list[tuple[Kind, int, bytes, bytes]] | None = []
        """What it is to be told; `None` when it takes frames."""
        self._ways: tuple[tuple[str, str], ...] = ()
        """From folders of the host to those of the agent."""
        self._pid = 0
        self._agent = self._agent_id = ""
        self._stream: Stream | None = None
        self._ended = asyncio.Event()
        self._code = Code({}, ())
        self._on_frame = on_frame
        super().__init__(begin, None, on_frame=self._hear_frame, on_exit=on_exit)
        self.only = placement.limits.skill if placement.limits is not None else ""
        self._make_lines = partial(LabelledLines, on_print=on_print, limited=self.only)
        self._lines = self._make_lines("worker")
        self._complaints = complaints()
        self._coming = self._loop.create_task(self._come_up())
        self._tasks = [self._loop.create_task(self._wait())]

    @property
    def pid(self) -> int:
        """Its process id on the other machine; 0 before it runs."""
        return self._pid

    def threads(self) -> Mapping[int, Thread] | None:
        """Nothing: they are elsewhere."""
        return None

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"", *, more: bool = False) -> None:
        """Put a frame on its way, or keep it until the worker is there."""
        if self._waiting is not None:
            self._waiting.append((kind, number, head, body))
        elif kind == Kind.SOURCE:
            head = json.dumps(moved(json.loads(head), self._ways)).encode()
            self.link.send(kind, number, head, pack(moved(unpack(body), self._ways)))
        else:
            if kind == Kind.CALL and self._stream is not None:
                command = json.loads(head)["command"]
                self._messages[number] = _Sent(self._stream.sent + 1, command, self._loop.time())
            self.link.send(kind, number, head, body, more=more)

    def forget(self, number: int) -> None:
        """A call is over."""
        sent = self._messages.pop(number, None)
        if sent is not None:
            self._agents.slowness.note(self._agent_id, sent.command, self._loop.time() - sent.at)
        super().forget(number)

    @property
    def slowness(self) -> float:
        """The slowness of its agent."""
        return self._agents.slowness.of(self._agent_id)

    def may_have_begun(self, number: int) -> bool:
        """Whether it was begun, or the agent fell silent after the call may have arrived there."""
        return number in self._doubtful or super().may_have_begun(number)

    def kill(self) -> None:
        """Have the agent end it. One that is not there yet is not started."""
        if self._waiting is not None:
            self._end(-signal.SIGKILL)
        elif self._stream is not None and not self._over:
            self._stream.send(Said.KILL)

    def _unbegun(self, numbers: Collection[int]) -> list[int]:
        if self._waiting is None:
            return super()._unbegun(numbers)
        self._waiting = [it for it in self._waiting if it[0] != Kind.CALL or it[1] not in numbers]
        return list(numbers)

    # Coming up

    async def _come_up(self) -> None:
        try:
            await self._start()
        except (ProwessError, OSError, ValueError) as error:
            self.refusal = f"no agent runs it: {error}"
            self._end(None)

    async def _start(self) -> None:
        """Find an agent, and have it start the worker."""
        agents = self._agents
        self.is_preparing = True
        refused = self._refused
        end = self._loop.time() + agents.settings().own.cluster.patience
        self._code = await agents.snapshot()
        while True:
            left = max(end - self._loop.time(), 0) if not refused else 0.0
            try:
                agent = await agents.chosen(self._placement.place, refused, left)
            except _Refused as error:
                raise _Refused("; ".join(refused.values()) or str(error)) from None
            try:
                why_not = await self._ask(agent)
            except EngineError as error:
                why_not = str(error)
            if why_not is None:
                agents.taken(agent)
                return
            self._close()
            if why_not == FULL:  # until its next beat: a slot may become free
                agents.fill(agent)
            else:
                refused[agent.id] = f"{agent.name}: {why_not}"

    async def _ask(self, agent: Seen) -> str | None:
        """Have an agent start it; gives the reason if it does not. Each attempt has its own incarnation: none runs twice."""
        agents, incarnation = self._agents, os.urandom(8).hex()
        self._agent, self._agent_id = agent.name, agent.id
        own, other = stream_subjects(agents.engine, incarnation)
        self._stream = Stream(
            agents.engine, own=own, other=other, silence=agents.silence, hear=self._hear, on_silence=self._lose
        )
        told: Mapping[str, Any] = {}
        stored = False
        for _ in range(_ATTEMPTS):
            told = await agents.ask(agent, {**self._order(incarnation), "stored": stored})
            if "missing" not in told:
                break
            try:
                await agents.store(self._code, told["missing"])
                stored = True
            except (ValueError, FileNotFoundError):  # saved just now: the newest version will do
                self._code = await agents.snapshot()
        if not told.get("accepted"):
            return str(told.get("refused", "the files were saved again and again while they were read"))
        self._stream.start()
        return None

    def _order(self, incarnation: str) -> dict[str, Any]:
        """What the agent must know to start it."""
        limits, begin, code = self._placement.limits, self._begin(), self._code
        order = {
            **hello(),
            "incarnation": incarnation,
            "silence": self._agents.silence,
            "code": code.digest,
            "folders": list(code.folders),
            "approved": _signatures(self._root, code.digest),
            "environment": (begin.get("only") or [""])[0] if self._placement.python is not None else "",
        }
        if limits is not None:
            ways = code_ways(code.roots, "")
            order["grant"] = {
                "skill": limits.skill,
                "limits": limits.limits.to_json(),
                "own": moved([str(path) for path in limits.own], ways),
                "listed": moved([str(path) for path in limits.listed], ways),
                "unenforced": limits.unenforced,
                "package": limits.package,
                "variables": [list(each) for each in limits.variables],
            }
        return order

    def _begin(self) -> BeginHead:
        waiting = self._waiting or []
        return json.loads(next(head for kind, _, head, _ in waiting if kind == Kind.BEGIN))

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.abandon()
            self._stream = None

    # What the agent says

    def _hear(self, kind: int, data: bytes) -> None:
        if kind == Said.FRAMES:
            self._feed(data)
        elif kind == Said.PRINTED:
            self.printed += len(data)
            self._print(self._lines.feed(data))
        elif kind == Said.PREPARING:
            self.on_preparing(data.decode("utf-8", "replace"))
        elif kind == Said.STARTED:
            self._started(json.loads(data))
        elif kind == Said.EXITED:
            told = json.loads(data)
            if told.get("refusal") and self._waiting is not None:  # it could not start it: another agent may
                self._refused[self._agent_id] = f"{self._agent}: {told['refusal']}"
                self._close()
                self._coming = self._loop.create_task(self._come_up())
                return
            self.verdict = told.get("reason", "")
            self._end(told["code"])

    @property
    def _ways_back(self) -> tuple[tuple[str, str], ...]:
        return tuple((there, here) for here, there in self._ways)

    @property
    def importing(self) -> tuple[Importing, ...]:
        """What it is importing, by the names of our files."""
        return tuple(it._replace(file=moved(it.file, self._ways_back)) for it in super().importing)

    def _hear_frame(self, frame: Frame) -> None:
        if frame.kind == Kind.CATALOG:
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # refused later, as it is
                frame = self._at_home(frame)
        self._on_frame(frame)

    def _at_home(self, frame: Frame) -> Frame:
        """A description in terms of our files: their paths, and their status if they say what was described."""
        ways = self._ways_back
        told, now = moved(json.loads(frame.head), ways), time.time_ns()
        sightings: dict[str, Any] = {}
        for path, seen in told["sightings"].items():
            here = look(path, now)
            if here is not None:
                sightings[path] = as_imported(here, str(seen[_DIGEST]), 0)
        told["sightings"] = sightings
        told["imported"] = {path: stamp(path) for path in told["imported"] if stamp(path) != ABSENT}
        return frame._replace(head=json.dumps(told).encode(), body=pack(moved(unpack(frame.body), ways)))

    def _feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._over:
            buffer = memoryview(self.link.get_buffer(len(view)))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            self.link.buffer_updated(size)
            view = view[size:]

    def _print(self, lines: list[bytes]) -> None:
        self.last_line = lines[-1] if lines else self.last_line
        self._complaints.send(b"".join(lines))

    def _started(self, told: Mapping[str, Any]) -> None:
        """It runs: tell it what waited for that, in terms of the folders that it is in."""
        assert self._stream is not None  # noqa: S101 - this came by it
        self._pid = told["pid"]
        self._ways = code_ways(self._code.roots, told["at"])
        self._lines = self._make_lines(f"worker {self._pid} on {self._agent}")
        self.is_preparing = False
        self.on_preparing("")
        self.link.connection_made(_Transport(self._stream, self.link))
        waiting, self._waiting = self._waiting or [], None
        for kind, number, head, body in waiting:
            if kind == Kind.BEGIN:
                head = self._begin_there(json.loads(head))
            self.send(kind, number, head, body)

    def _begin_there(self, told: dict[str, Any]) -> bytes:
        """The settings as the agent's worker goes by them: all that are in force, and no files."""
        settings = self._agents.settings()
        if self._placement.limits is None:
            told["flags"] = _flags(settings)
            told["environ"] = {name: text for name, text in settings.dotenv.items() if not name.startswith(PREFIX)}
        else:
            told["flags"] = {
                name: value for name, value in told["flags"].items() if name.partition(".")[0] not in {*_STAYS, TABLE}
            }
        folders = [str(self._root / folder) for folder in settings.own.skills]
        told["flags"]["skills"] = moved(folders, self._ways)
        told["flags"]["env_file"] = ""
        told["written"] = None
        return json.dumps(told).encode()

    # Its end

    def _lose(self) -> None:
        """The agent is silent. What the worker did last is not known."""
        if self._stream is not None and self._waiting is None:
            self._doubtful = {number for number, sent in self._messages.items() if sent.message <= self._stream.left}
        self.verdict = f"the agent {self._agent} is silent, or has given it up"
        self._end(None)

    def _end(self, code: int | None) -> None:
        if not self._ended.is_set():
            self.exit_code = code
            self._ended.set()
            self._close()

    async def _wait(self) -> None:
        await self._ended.wait()
        self._coming.cancel()
        self._over = True
        self.is_preparing = False
        self._print(self._lines.close())
        self._report_end()


class _Transport(asyncio.Transport):
    """What a link writes to: a stream."""

    def __init__(self, stream: Stream, link: Any) -> None:
        super().__init__()
        self._stream = stream
        self._link = link
        self._closing = False
        stream.on_room = link.resume_writing

    def write(self, data: Any) -> None:
        """Send."""
        if not self._closing:
            self._stream.send(Said.FRAMES, data)
            if self._stream.full and not self._link.full:
                self._link.pause_writing()

    def is_closing(self) -> bool:
        """Whether nothing is sent any more."""
        return self._closing

    def close(self) -> None:
        """Send nothing more."""
        self._closing = True

    abort = close


def _flags(settings: Settings) -> dict[str, Any]:
    """All settings that were written anywhere, but for those of this machine. Tables of skills stay whole."""
    found: dict[str, Any] = {}
    for key in settings.keys():  # noqa: SIM118 - it is a method of its own
        top = key.partition(".")[0]
        name = key if normal(top) in OWN_NAMES else top
        if normal(top) not in _STAYS and name not in found:
            found[name] = settings.get(name)
    return found


def _read(code: Code, neutral: str) -> bytes:
    number, _, path = neutral.partition("/")
    return read(f"{code.roots[int(number)]}{os.sep}{path}")


def _signatures(root: Path, digest: str) -> list[str]:
    try:
        lines = (root / APPROVED).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return []
    return [line.split()[1] for line in lines if line.startswith(f"{digest} ") and len(line.split()) > 1]
