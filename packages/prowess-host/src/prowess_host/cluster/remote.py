"""The host's view of other machines: the agents of the cluster, and the workers that this host runs on them.

The host supervises such a worker like a local one. Two things differ: its frames travel through the engine, and if its
agent falls silent, it is unknown which calls had begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from prowess.errors import ProwessError, message_of
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
from prowess_host.cluster.code import APPROVED, ProjectCode, Snapshots, moved
from prowess_host.cluster.deadlines import LIMIT
from prowess_host.cluster.engine import EngineConnection, Message
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.placing import Candidate, Slowness, choose, labels_of, why_none
from prowess_host.cluster.protocol import (
    FULL,
    WorkerMessage,
    agent_subject,
    beats_subject,
    blob_name,
    code_ways,
    stream_subjects,
    who_subject,
)
from prowess_host.cluster.streams import EngineStream, beats
from prowess_host.stderr import complaints
from prowess_host.workers.linked import LinkedWorker
from prowess_host.workers.output import LabelledLines
from prowess_host.workers.placement import OWN, Placement

__all__ = ["Agents", "RemoteWorker", "SeenAgent"]

_log = logging.getLogger("prowess.cluster")
_STAYS: Final = ("python", "cache_dir", "env_file", "environments", "serve", "auth", "cluster", "agent", "record")
"""Settings about the machine of the host, which stay there."""
_SIZE: Final = 64
"""Letters of a digest."""
_DIGEST: Final = 4
"""The index of the digest in the version of a file that a worker reports."""
_ID: Final = re.compile(r"[0-9a-f]{16}")
_MOST_SLOTS: Final = 1_000_000
_ANSWER: Final = 10.0
"""Seconds that an agent gets to accept or refuse a worker."""
_ATTEMPTS: Final = 5
"""Attempts to store the code while files are being saved."""
_EXPIRES: Final = 3600.0
"""Seconds after which a stored file may have expired, and is stored again when an agent asks for it."""
_AT_ONCE: Final = 8
"""Files stored at the same time."""


class _Refused(ProwessError):
    """No agent takes the worker; its calls fail instead of waiting."""


@frozen
class SeenAgent:
    """An agent, as its last heartbeat describes it."""

    id: str
    name: str
    labels: frozenset[str]
    slots: int
    busy: int
    facts: Mapping[str, Any]
    """The whole heartbeat."""
    missed: int = 0
    """Heartbeats missed since the last one."""

    def candidate(self, slowness: float = 1.0) -> Candidate:
        """The agent as a candidate for the next worker."""
        return Candidate(self.id, self.labels, self.slots, self.busy, slowness)

    @property
    def is_sound(self) -> bool:
        """Whether the heartbeat is safe to use: its id becomes part of a subject, and people read the rest."""
        words = "".join((self.name, *self.labels, str(self.facts.get("processors", ""))))
        return (
            bool(_ID.fullmatch(self.id)) and words.isprintable() and 0 <= self.slots <= _MOST_SLOTS and self.busy >= 0
        )

    def in_words(self) -> str:
        """One line that describes the agent."""
        labels = f", labels {' '.join(sorted(self.labels - {'any', self.name}))}" if len(self.labels) > 2 else ""
        more = f", {self.facts['processors']} processors" if "processors" in self.facts else ""
        late = f", silent for {self.missed} beats" if self.missed > 1 else ""
        return f"agent {self.name}: {self.busy} of {self.slots} slots in use{labels}{more}{late}"


class Agents:
    """The agents of a cluster, and the workers that one host has on them."""

    def __init__(self, engine: EngineConnection, settings: Callable[[], Settings], parts: Callable[[], Parts]) -> None:
        """`settings` and `parts` give the current state of the project at each call."""
        self.engine = engine
        self.settings = settings
        self._parts = parts
        self._snapshots = Snapshots()
        self.seen: dict[str, SeenAgent] = {}
        self.changed = asyncio.Event()
        self.slowness = Slowness()
        self.on_joined: Callable[[], object] = bool
        """Called when an agent joins."""
        self._loop = asyncio.get_running_loop()
        self._draw = Random()  # noqa: S311 - to choose among equals
        self._subscription = engine.subscribe(beats_subject(engine), self._on_heartbeat)
        self._timer: asyncio.TimerHandle | None = None
        self._stored: set[str] = set()
        self._doubted: set[str] = set()
        """Files that an agent did not find in the engine, or not with this content."""
        self._since = (0, 0.0)
        self._forget = engine.on_change(self._ask_who)
        self._ask_who()
        self._tick()

    def close(self) -> None:
        """Stop listening to heartbeats."""
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

    def _on_heartbeat(self, message: Message) -> None:
        try:
            heartbeat = json.loads(message.data)
            labels = frozenset(map(str, heartbeat["labels"]))
            seen = SeenAgent(
                str(heartbeat["id"]),
                str(heartbeat["name"]),
                labels,
                int(heartbeat["slots"]),
                int(heartbeat["busy"]),
                heartbeat,
            )
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):  # another version or program
            return
        if not seen.is_sound:
            return
        if heartbeat.get("left"):
            self._forget_agent(seen.id)
        else:
            is_new = seen.id not in self.seen
            self.seen[seen.id] = seen
            if is_new:
                self.on_joined()
        self._notify()

    def _tick(self) -> None:
        """Forget silent agents. Counting ticks instead of time keeps them while this host itself gets no processor."""
        interval, most = beats(self.silence)
        self._timer = self._loop.call_later(interval, self._tick)
        self.seen = {name: replace(seen, missed=seen.missed + 1) for name, seen in self.seen.items()}
        for name in [name for name, seen in self.seen.items() if seen.missed > most]:
            self._forget_agent(name)

    def _forget_agent(self, name: str) -> None:
        self.seen.pop(name, None)
        self.slowness.forget(name)

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def in_words(self) -> list[str]:
        """One line about each agent."""
        return [seen.in_words() for seen in sorted(self.seen.values(), key=lambda seen: seen.name)]

    async def chosen(self, labels: str, avoid: Collection[str], seconds: float) -> SeenAgent:
        """The agent for a worker. Waits up to `seconds` for a free one, then raises `_Refused`."""
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
                gone = "" if self.engine.up else f"the engine {self.engine.address} is {self.engine.state}; "
                raise _Refused(f"{gone}{why_none([seen.candidate() for seen in self.seen.values()], needed)}")
            changed = self.changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()

    async def ask(self, agent: SeenAgent, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send an order to an agent, and return its answer."""
        data = json.dumps(order).encode()
        return json.loads(await self.engine.request(agent_subject(self.engine, agent.id), data, seconds=_ANSWER))

    def fill(self, agent: SeenAgent) -> None:
        """Mark an agent as full before its next heartbeat says so."""
        self.seen[agent.id] = replace(self.seen.get(agent.id, agent), busy=agent.slots)

    def taken(self, agent: SeenAgent) -> None:
        """Count a worker that an agent has accepted before its next heartbeat does."""
        seen = self.seen.get(agent.id)
        if seen is not None:
            self.seen[agent.id] = replace(seen, busy=seen.busy + 1)

    # Code

    async def snapshot(self) -> ProjectCode:
        """The code of the project as it is now."""
        return await asyncio.to_thread(self._snapshots.take, self._parts())

    def doubt(self, code: ProjectCode) -> None:
        """Store the code again when an agent asks for it, because the engine lost it or has other content."""
        self._doubted = {code.digest, *(entry[:_SIZE] for entry in code.files.values())}
        self._stored -= self._doubted

    async def store(self, code: ProjectCode, digests: Collection[str]) -> None:
        """Put code into the engine, where the agent gets it. Raises `ValueError` if a file was saved meanwhile."""
        since = self.engine.connections, self._loop.time() // _EXPIRES
        if self._since != since:  # the engine may have restarted, or dropped old files
            self._stored.clear()
            self._since = since
        paths = {entry[:_SIZE]: neutral for neutral, entry in code.files.items()}
        if code.digest in digests:
            digests = {*paths, code.digest}
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def bring(digest: str) -> None:
            async with at_once:
                data = code.index if digest == code.digest else await asyncio.to_thread(_read, code, paths[digest])
                if digest_of(data) != digest:
                    raise ValueError(f"{paths[digest]} was saved while it was read")
                await self.engine.store(blob_name(digest), data, again=digest in self._doubted)
                self._stored.add(digest)
                self._doubted.discard(digest)

        await asyncio.gather(*(bring(digest) for digest in digests if digest not in self._stored))


@frozen
class _Sent:
    """A call that was sent to an agent."""

    message: int
    """The number of the stream message that carries it, or of an earlier one."""
    command: str
    at: float


class RemoteWorker(LinkedWorker):
    """The host's end of a worker on an agent. Frames for it wait until the agent has started it."""

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
        """The calls in progress, by number."""
        self._limits: dict[int, float] = {}
        """The remaining seconds of calls that are not sent yet."""
        self._refused: dict[str, str] = {}
        """Why each agent refused it, by the id of the agent."""
        self._lost_at: set[str] = set()
        """The agents that have not found its code in the engine."""
        self._doubtful: set[int] = set()
        """Calls that may have begun before the agent fell silent."""
        self._waiting: list[tuple[Kind, int, bytes, bytes]] | None = []
        """Frames that wait for its start; `None` once it has started."""
        self._ways: tuple[tuple[str, str], ...] = ()
        """Pairs of a folder of the host and its copy on the agent."""
        self._pid = 0
        self._agent = self._agent_id = ""
        self._stream: EngineStream | None = None
        self._ended = asyncio.Event()
        self._code = ProjectCode({}, ())
        self._on_frame = on_frame
        super().__init__(begin, None, on_frame=self._receive_frame, on_exit=on_exit)
        self.only = placement.limits.skill if placement.limits is not None else ""
        self._make_lines = partial(LabelledLines, on_print=on_print, limited=self.only)
        self._lines = self._make_lines("worker")
        self._complaints = complaints()
        self._coming = self._loop.create_task(self._come_up())
        self._tasks = [self._loop.create_task(self._wait())]

    @property
    def pid(self) -> int:
        """Its process id on the other machine; 0 before it starts."""
        return self._pid

    def threads(self) -> Mapping[int, Thread] | None:
        """`None`: its threads are on another machine."""
        return None

    def send(self, kind: Kind, number: int = 0, head: bytes = b"", body: bytes = b"", *, more: bool = False) -> None:
        """Send a frame, or keep it until the worker has started."""
        if self._waiting is not None:
            self._waiting.append((kind, number, head, body))
        elif kind == Kind.SOURCE:
            head = json.dumps(moved(json.loads(head), self._ways)).encode()
            self.link.send(kind, number, head, pack(moved(unpack(body), self._ways)))
        else:
            if kind == Kind.CALL and self._stream is not None:
                seconds = self._limits.pop(number, math.inf)
                if seconds < math.inf:
                    self._stream.send(WorkerMessage.LIMIT, LIMIT.pack(number, seconds))
                command = json.loads(head)["command"]
                self._messages[number] = _Sent(self._stream.sent + 1, command, self._loop.time())
            self.link.send(kind, number, head, body, more=more)

    def limit(self, number: int, seconds: float) -> None:
        """Send the time limit of the next call to the agent, which enforces it while the network is cut."""
        self._limits[number] = seconds

    def forget(self, number: int) -> None:
        """Note the end of a call."""
        sent = self._messages.pop(number, None)
        if sent is not None:
            self._agents.slowness.note(self._agent_id, sent.command, self._loop.time() - sent.at)
        super().forget(number)

    @property
    def slowness(self) -> float:
        """The slowness of its agent."""
        return self._agents.slowness.of(self._agent_id)

    def may_have_begun(self, number: int) -> bool:
        """Whether the call has begun, or may have arrived before the agent fell silent."""
        return number in self._doubtful or super().may_have_begun(number)

    def kill(self) -> None:
        """Have the agent kill it, or cancel its start."""
        if self._waiting is not None:
            self._end(-signal.SIGKILL)
        elif self._stream is not None and not self._over:
            self._stream.send(WorkerMessage.KILL)

    def _unbegun(self, numbers: Collection[int]) -> list[int]:
        if self._waiting is None:
            return super()._unbegun(numbers)
        self._waiting = [frame for frame in self._waiting if frame[0] != Kind.CALL or frame[1] not in numbers]
        return list(numbers)

    # Coming up

    async def _come_up(self) -> None:
        try:
            await self._start()
        except Exception as error:  # noqa: BLE001 - its calls must be answered
            if not isinstance(error, ProwessError | OSError | ValueError):
                _log.exception("a worker could not be started on an agent")
            self.refusal = f"no agent runs it: {message_of(error) or type(error).__name__}"
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
                agent = await agents.chosen(self._placement.labels, refused, left)
            except _Refused as error:
                raise _Refused("; ".join(refused.values()) or str(error)) from None
            try:
                why_not = await self._ask(agent)
            except EngineError as error:
                why_not = str(error)
            if why_not is None or self._waiting is None:  # it has started, and the answer of the agent was lost
                if self._stream is not None:
                    self._stream.start()
                agents.taken(agent)
                return
            self._close()
            if why_not == FULL:  # only until its next heartbeat: a slot may become free
                agents.fill(agent)
            else:
                refused[agent.id] = f"{agent.name}: {why_not}"

    async def _ask(self, agent: SeenAgent) -> str | None:
        """Have an agent start it. Returns why it refuses, or `None`. Each attempt has a new incarnation, so none starts twice."""
        agents, incarnation = self._agents, os.urandom(8).hex()
        self._agent, self._agent_id = agent.name, agent.id
        own, other = stream_subjects(agents.engine, incarnation)
        self._stream = EngineStream(
            agents.engine, own=own, other=other, silence=agents.silence, on_message=self._receive, on_silence=self._lose
        )
        answer: Mapping[str, Any] = {}
        stored = False
        for _ in range(_ATTEMPTS):
            answer = await agents.ask(agent, {**self._order(incarnation), "stored": stored})
            if "missing" not in answer:
                break
            try:
                await agents.store(self._code, answer["missing"])
                stored = True
            except (ValueError, FileNotFoundError):  # a file was saved meanwhile: take its new version
                self._code = await agents.snapshot()
        if not answer.get("accepted"):
            return str(answer.get("refused", "the files of the project kept changing while they were read"))
        return None

    def _order(self, incarnation: str) -> dict[str, Any]:
        """The order for the agent."""
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

    # Messages from the agent

    def _receive(self, kind: int, data: bytes) -> None:
        try:
            self._take(kind, data)
        except Exception:  # noqa: BLE001 - after any message of an agent, the calls of its worker must end
            _log.exception("a message of the agent %s cannot be used", self._agent)
            self.verdict = f"the agent {self._agent} sent a message that cannot be used"
            self._end(None)

    def _take(self, kind: int, data: bytes) -> None:
        if kind == WorkerMessage.FRAMES:
            self._feed(data)
        elif kind == WorkerMessage.PRINTED:
            self.printed += len(data)
            self._print(self._lines.feed(data))
        elif kind == WorkerMessage.PREPARING:
            self.on_preparing(data.decode("utf-8", "replace"))
        elif kind == WorkerMessage.PROBE and self._stream is not None:
            self._stream.beat()
        elif kind == WorkerMessage.LEAVING:
            self.on_leaving()
        elif kind == WorkerMessage.STARTED and self._waiting is not None:
            self._started(json.loads(data))
        elif kind == WorkerMessage.EXITED:
            outcome = json.loads(data)
            if outcome.get("refusal") and self._waiting is not None:  # its start failed: try again, or another agent
                self._try_again(str(outcome["refusal"]), is_lost=bool(outcome.get("lost")))
                return
            self.verdict = str(outcome.get("reason", ""))
            self._end(None if outcome["code"] is None else int(outcome["code"]))

    def _try_again(self, refusal: str, *, is_lost: bool) -> None:
        """Start the worker on another agent, or again on the same one if only the code was lost."""
        if is_lost and self._agent_id not in self._lost_at:
            self._lost_at.add(self._agent_id)
            self._agents.doubt(self._code)
        else:
            self._refused[self._agent_id] = f"{self._agent}: {refusal}"
        self._close()
        self._coming.cancel()  # it may still wait for the answer of the agent, which was lost
        self._coming = self._loop.create_task(self._come_up())

    @property
    def _ways_back(self) -> tuple[tuple[str, str], ...]:
        return tuple((there, here) for here, there in self._ways)

    @property
    def importing(self) -> tuple[Importing, ...]:
        """The imports in progress, with the paths of this host."""
        return tuple(each._replace(file=moved(each.file, self._ways_back)) for each in super().importing)

    def _receive_frame(self, frame: Frame) -> None:
        if frame.kind == Kind.CATALOG:
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # the reader refuses it later
                frame = self._at_home(frame)
        self._on_frame(frame)

    def _at_home(self, frame: Frame) -> Frame:
        """A catalog frame with the paths of this host, and the status of its files that equal the described ones."""
        ways = self._ways_back
        catalog, now = moved(json.loads(frame.head), ways), time.time_ns()
        sightings: dict[str, Any] = {}
        for path, seen in catalog["sightings"].items():
            here = look(path, now)
            if here is not None:
                sightings[path] = as_imported(here, str(seen[_DIGEST]), 0)
        catalog["sightings"] = sightings
        catalog["imported"] = {path: stamp(path) for path in catalog["imported"] if stamp(path) != ABSENT}
        return frame._replace(head=json.dumps(catalog).encode(), body=pack(moved(unpack(frame.body), ways)))

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

    def _started(self, facts: Mapping[str, Any]) -> None:
        """Send the frames that waited for the start, with the paths of the agent."""
        assert self._stream is not None  # noqa: S101 - this came by it
        self._pid = facts["pid"]
        self._ways = code_ways(self._code.roots, facts["at"])
        self._lines = self._make_lines(f"worker {self._pid} on {self._agent}")
        self.is_preparing = False
        self.on_preparing("")
        self.link.connection_made(_Transport(self._stream, self.link))
        waiting, self._waiting = self._waiting or [], None
        for kind, number, head, body in waiting:
            if kind == Kind.BEGIN:
                head = self._begin_there(json.loads(head))
            self.send(kind, number, head, body)

    def _begin_there(self, begin: dict[str, Any]) -> bytes:
        """The BEGIN frame for the agent: all settings as flags, since the worker there reads no files."""
        settings = self._agents.settings()
        if self._placement.limits is None:
            begin["flags"] = _flags(settings)
            begin["environ"] = {name: text for name, text in settings.dotenv.items() if not name.startswith(PREFIX)}
        else:
            begin["flags"] = {
                name: value
                for name, value in begin["flags"].items()
                if normal(name.partition(".")[0]) not in {*_STAYS, TABLE}
            }
        folders = [str(self._root / folder) for folder in settings.own.skills]
        begin["flags"]["skills"] = moved(folders, self._ways)
        begin["flags"]["env_file"] = ""
        begin["written"] = None
        return json.dumps(begin).encode()

    # Its end

    def _lose(self) -> None:
        """End the worker after its agent fell silent. Calls that may have arrived there are doubtful."""
        if self._stream is not None and self._waiting is None:
            self._doubtful = {
                number for number, sent in self._messages.items() if sent.message <= self._stream.departed
            }
        self.verdict = f"the agent {self._agent} fell silent or gave the worker up"
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
    """Lets a link write to a stream."""

    def __init__(self, stream: EngineStream, link: Any) -> None:
        super().__init__()
        self._stream = stream
        self._link = link
        self._closing = False
        stream.on_room = link.resume_writing

    def write(self, data: Any) -> None:
        """Send bytes of the link."""
        if not self._closing:
            self._stream.send(WorkerMessage.FRAMES, data)
            if self._stream.full and not self._link.full:
                self._link.pause_writing()

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self._closing

    def close(self) -> None:
        """Send nothing more."""
        self._closing = True

    abort = close


def _flags(settings: Settings) -> dict[str, Any]:
    """All settings from files and variables, except those of this machine. Tables of skills stay whole."""
    found: dict[str, Any] = {}
    for key in settings.keys():  # noqa: SIM118 - it is a method of its own
        top = key.partition(".")[0]
        name = key if normal(top) in OWN_NAMES else top
        if normal(top) not in _STAYS and name not in found:
            found[name] = settings.get(name)
    return found


def _read(code: ProjectCode, neutral: str) -> bytes:
    number, _, path = neutral.partition("/")
    return read(f"{code.roots[int(number)]}{os.sep}{path}")


def _signatures(root: Path, digest: str) -> list[str]:
    try:
        lines = (root / APPROVED).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return []
    return [line.split()[1] for line in lines if line.startswith(f"{digest} ") and len(line.split()) > 1]
