"""`prowess agent`: runs workers on this machine for hosts on other machines.

A host orders a worker by the digest of its code. The agent writes the files, builds the environment, sets the limits, starts
the process, and relays its frames and output. It kills a worker when the host asks for that or falls silent, and kills all
workers when it stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import platform
import re
import shutil
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from prowess.errors import ProwessError, SettingsError
from prowess.settings.limits import limits_of
from prowess.settings.settings import Settings
from prowess.settings.tables import normal
from prowess.skills.discovery import survey
from prowess.skills.stamps import digest_of
from prowess.worker.link import Frame, FrameReader, encode_frame
from prowess.worker.loops import processors
from prowess.worker.messages import Kind, hello, mismatch
from prowess_host.cluster.code import Damaged, check_approved, digests_in, lay_out, within
from prowess_host.cluster.deadlines import LIMIT, RemoteDeadlines
from prowess_host.cluster.engine import EngineConnection, Message
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.protocol import (
    FULL,
    WorkerMessage,
    agent_subject,
    beats_subject,
    blob_name,
    stream_subjects,
    who_subject,
)
from prowess_host.cluster.streams import EngineStream
from prowess_host.confinement.grants import Grant
from prowess_host.workers.clock import Clock
from prowess_host.workers.launch import Launched
from prowess_host.workers.placement import OWN, Placement
from prowess_host.workers.process import WorkerProcess

__all__ = ["Agent", "Blobs", "claim", "facts_of_machine"]

_log = logging.getLogger("prowess.agent")
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LABEL: Final = re.compile(r"[^\s,\x00-\x1f\x7f-\x9f]{1,200}")
_UNSAFE: Final = re.compile(r"PATH|PYTHON.*|LD_.*|DYLD_.*")
"""Variables that can make a worker run other code."""
_KEPT: Final = 30 * 86400.0
"""Seconds that the cache keeps a file after its download."""
_CLEANED: Final = 86400.0
"""Seconds between two removals of old files from the cache."""
_BEAT: Final = 1.0
"""Seconds between two heartbeats of an agent."""
_LEAST_SLOTS: Final = 4
"""Slots on a machine with one processor: most workers wait most of the time."""
_MOST_FRAME: Final = 256 * 1024 * 1024
"""Bytes of the largest frame that a limited worker may send."""
_STOPS: Final = "the agent is stopping"
_MOST_NAMED: Final = 5000
"""Files that an agent asks for by name. If it lacks more, it asks for all, because the answer must fit into one message."""
_AT_ONCE: Final = 8
"""Files fetched at the same time."""
_ATTEMPTS: Final = 3
"""Attempts to write the code to disk, if files of the cache turn out to be damaged."""
_REMEMBERED: Final = 10_000
"""Orders that an agent knows again. A worker that ran twice would run its calls twice."""
_CONFIRMED: Final = 2.0
"""Seconds that a stopping agent waits until the hosts know that their workers ended."""


def claim(folder: Path) -> int:
    """Make and lock the folder of an agent, and remove those of killed agents. Returns the descriptor that holds the lock."""
    running = folder.parent
    running.mkdir(parents=True, exist_ok=True)
    starting = os.open(running, os.O_RDONLY)
    try:
        # Else an agent that starts now would remove this folder before it is locked.
        fcntl.flock(starting, fcntl.LOCK_EX)
        folder.mkdir()
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for other in running.iterdir():
            with contextlib.suppress(OSError):
                lock = os.open(other, os.O_RDONLY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(other, ignore_errors=True)
                finally:
                    os.close(lock)
        return descriptor
    finally:
        os.close(starting)


class Agent:
    """One agent. `run` serves hosts until `stop` is called."""

    def __init__(
        self, engine: EngineConnection, settings: Settings, cache: Path, *, locked: Collection[str] | None = None
    ) -> None:
        """`locked` holds the public keys that may approve code; with `None`, the agent runs the code of every host in the cluster."""
        self.engine = engine
        self.settings = settings
        self.own = settings.own.agent
        self.cache = cache
        self.locked = locked
        self.id = os.urandom(8).hex()
        self.name = self.own.name or socket.gethostname()
        self.slots = self.own.slots or max(2 * processors(), _LEAST_SLOTS)
        self.labels = sorted({*self.own.labels, "any", self.name})
        for label in self.labels:
            if not _LABEL.fullmatch(label):
                raise SettingsError(
                    f"agent.labels and agent.name are words that run_on can ask for: {label!r} must have no comma, no "
                    "space and no control character"
                )
        self.tenants: dict[str, _Tenant] = {}
        """The running workers, by incarnation."""
        self._ordered_before: deque[str] = deque(maxlen=_REMEMBERED)
        self.builds: Any = None
        self.folder = cache / "agent" / "running" / self.id
        """Holds the code of the running workers."""
        self._lock = claim(self.folder)
        self._clean_at = 0.0
        self._facts = facts_of_machine()
        self.unconfirmed: set[_Tenant] = set()
        """The running workers, and those whose hosts do not know yet that they have ended."""
        self._stopped = asyncio.Event()
        self._hurried = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._subscriptions = [
            engine.subscribe(agent_subject(engine, self.id), self._ordered),
            engine.subscribe(who_subject(engine), lambda _: self.publish_heartbeat()),
        ]
        engine.on_change(self.publish_heartbeat)

    async def run(self) -> None:
        """Serve hosts until `stop` is called, then end all workers."""
        self._tick()
        await self._stopped.wait()
        await self._drain()
        if self._timer is not None:
            self._timer.cancel()
        for subscription in self._subscriptions:
            subscription.cancel()
        for tenant in list(self.tenants.values()):
            tenant.end("its agent ended")
        await self._emptied(_CONFIRMED)
        if self.builds is not None:
            self.builds.close()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
        os.close(self._lock)

    def stop(self) -> None:
        """Let `run` end when the calls have ended, after `agent.drain` seconds at most; at the second call, at once."""
        if self._stopped.is_set():
            self._hurried.set()
        self._stopped.set()

    async def _drain(self) -> None:
        """Accept no more workers. Let the hosts move calls that have not begun, and finish the others."""
        self.publish_heartbeat()
        for tenant in list(self.tenants.values()):
            tenant.leave()
        emptied = asyncio.ensure_future(self._emptied(self.own.drain))
        hurried = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait((emptied, hurried), return_when=asyncio.FIRST_COMPLETED)
        for waiting in (emptied, hurried):
            waiting.cancel()

    async def _emptied(self, seconds: float) -> None:
        """Wait up to `seconds` until all workers have ended and their hosts know it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(tenant.over.wait() for tenant in list(self.unconfirmed)))

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_BEAT, self._tick)
        self.publish_heartbeat()
        if self._loop.time() >= self._clean_at:
            self._clean_at = self._loop.time() + _CLEANED
            self._loop.run_in_executor(None, self.blobs.remove_before, time.time() - _KEPT)

    def publish_heartbeat(self) -> None:
        """Publish a heartbeat with the facts about this agent; the last one says that it leaves."""
        heartbeat = {
            "id": self.id,
            "name": self.name,
            "labels": self.labels,
            "slots": self.slots,
            "busy": len(self.tenants),
        }
        heartbeat |= {**hello(), **self._facts, "locked": self.locked is not None}
        if self._stopped.is_set():
            heartbeat["left"] = True
        with contextlib.suppress(EngineError):
            self.engine.publish(beats_subject(self.engine), json.dumps(heartbeat).encode())

    # Orders

    def _ordered(self, message: Message) -> None:
        try:
            answer = self._answer(json.loads(message.data))
        except (ProwessError, OSError) as error:
            answer = {"refused": str(error)}
        except Exception as error:  # noqa: BLE001 - the host must get an answer
            answer = {"refused": f"the order cannot be read: {type(error).__name__}: {error}"}
        with contextlib.suppress(EngineError):  # the host asks another agent
            self.engine.publish(message.reply, json.dumps(answer).encode())

    def _answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        why_not = mismatch(order, hello(), sys.executable)
        if why_not:
            return {"refused": why_not.replace("host and worker", "host and agent").replace("the worker", "the agent")}
        if self._stopped.is_set():
            return {"refused": _STOPS}
        if len(self.tenants) >= self.slots:
            return {"refused": FULL}
        if not _NAME.fullmatch(order["incarnation"]) or not _DIGEST.fullmatch(order["code"]):
            raise ValueError("`incarnation` or `code` is malformed")  # both become names of files
        if order["incarnation"] in self._ordered_before:
            raise ValueError("this worker was ordered before")
        for path in order["folders"]:
            within(self.folder, path)
        if self.locked is not None:
            check_approved(order["code"], order["approved"], self.locked)
        missing = self.blobs.missing(order["code"])
        if missing and not order.get("stored"):
            return {"missing": missing if len(missing) <= _MOST_NAMED else [order["code"]]}
        self._ordered_before.append(order["incarnation"])
        self.tenants[order["incarnation"]] = _Tenant(self, order)
        return {"accepted": True}

    @property
    def blobs(self) -> Blobs:
        """The cached files, by digest."""
        return Blobs(self.cache / "agent" / "blobs")


class Blobs:
    """Files by digest, in the cache of an agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, digest: str) -> bytes:
        """The content of a file. The caller compares it with the digest."""
        return (self._folder / digest).read_bytes()

    def missing(self, index: str) -> list[str]:
        """The digests that an index needs and the cache lacks; only that of the index while the index itself is missing."""
        try:
            text = self.read(index)
            if digest_of(text) != index:
                return [index]
            needed = digests_in(text)
        except (OSError, ValueError):
            return [index]
        try:
            return sorted(needed.difference(os.listdir(self._folder)))  # noqa: PTH208 - names are all that is needed
        except OSError:
            return sorted(needed)

    def drop(self, digest: str) -> None:
        """Delete a damaged file."""
        (self._folder / digest).unlink(missing_ok=True)

    def remove_before(self, when: float) -> None:
        """Delete files older than this time. A host that needs one sends it again."""
        with contextlib.suppress(OSError):
            for file in self._folder.iterdir():
                if file.stat().st_mtime < when:
                    file.unlink()

    def keep(self, digest: str, data: bytes) -> None:
        """Store a file. Raises `ValueError` if its content does not match the digest."""
        if digest_of(data) != digest:
            raise _Lost("the engine has different content for the code of this worker")
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{digest}.{os.urandom(4).hex()}"
        draft.write_bytes(data)
        draft.replace(self._folder / digest)


class _Lost(ValueError):
    """The engine lacks the code or has other content for it, so that the host has to store it again."""


class _Tenant:
    """One worker that runs here for a host, from the order to its end."""

    def __init__(self, agent: Agent, order: Mapping[str, Any]) -> None:
        self._agent = agent
        self._order = order
        self.incarnation: str = order["incarnation"]
        self._folder = agent.folder / self.incarnation
        self._root = self._folder / "0"
        other, own = stream_subjects(agent.engine, self.incarnation)
        self.stream = EngineStream(
            agent.engine,
            own=own,
            other=other,
            silence=float(order["silence"]),
            on_message=self._receive,
            on_silence=lambda: self.end("its host is silent"),
            probe=WorkerMessage.PROBE,
        )
        self.stream.on_current = self._release
        self._held: dict[int, tuple[bytes, bytes]] = {}
        """Calls that may be over: their CANCEL may be on the way."""
        self.stream.start()
        self._reader = FrameReader()
        self._worker: _Relayed | None = None
        clock = Clock(lambda: [] if self._worker is None else [self._worker], asyncio.get_running_loop().time)
        self._deadlines = RemoteDeadlines(agent.settings.own.host, self._ping, self.end, clock.read)
        self._reason = ""
        self.over = asyncio.Event()
        agent.unconfirmed.add(self)
        self._laying: asyncio.Future[None] | None = None
        """The thread that writes the code to disk."""
        self._starting = asyncio.get_running_loop().create_task(self._start())
        self._starting.add_done_callback(
            lambda starting: self._send_exit(None, self._reason) if starting.cancelled() else None
        )

    def end(self, reason: str) -> None:
        """Kill the worker."""
        self._reason = self._reason or reason
        if self._worker is not None:
            self._worker.kill()
        else:
            self._starting.cancel()

    def leave(self) -> None:
        """Tell its host to send no more calls. A worker that has not started is left to another agent."""
        if self._worker is not None:
            self.stream.send(WorkerMessage.LEAVING)
        else:
            self._starting.cancel(_STOPS)

    def _receive(self, kind: int, data: bytes) -> None:
        if kind == WorkerMessage.KILL:
            self.end("")
        elif kind == WorkerMessage.LIMIT:
            number, seconds = LIMIT.unpack(data)
            self._deadlines.limit(number, seconds)
            if self._worker is not None:
                self._worker.limit(number, seconds)
        elif kind == WorkerMessage.FRAMES:
            for frame_kind, number, head, body in self._reader.feed(data):
                if self._agent.locked is not None and frame_kind == Kind.SOURCE:
                    continue  # its code would bypass the approval
                is_first = self._agent.locked is not None and frame_kind == Kind.BEGIN
                if self._worker is not None:
                    self._deadlines.from_host(frame_kind, number)
                    if frame_kind == Kind.CALL and self.stream.is_late:
                        self._held[number] = head, body
                        continue
                    if frame_kind == Kind.CANCEL:
                        self._held.pop(number, None)
                    self._worker.link.send(Kind(frame_kind), number, self._approved(head) if is_first else head, body)

    def _release(self) -> None:
        """Pass on the calls that are not over."""
        held, self._held = self._held, {}
        for number, (head, body) in held.items():
            if self._worker is not None:
                self._worker.link.send(Kind.CALL, number, head, body)

    def _approved(self, head: bytes) -> bytes:
        """The BEGIN frame for approved code: only its own folders, and no variable that could load other code."""
        begin = json.loads(head)
        flags = {name: value for name, value in begin["flags"].items() if normal(name) != "skills"}
        begin["flags"] = {**flags, "skills": [str(within(self._folder, path)) for path in self._order["folders"]]}
        begin["environ"] = {
            name: text for name, text in begin.get("environ", {}).items() if not _UNSAFE.fullmatch(name)
        }
        return json.dumps({**begin, "written": None}).encode()

    async def _start(self) -> None:
        try:
            await self._lay_out()
            placement = await self._placement()
            python = placement.python or self._agent.settings.own.python or sys.executable
            on_received = self._deadlines.from_worker
            self._worker = worker = _Relayed(
                python, self._root, placement, self.stream, self._ended, on_received=on_received
            )
        except asyncio.CancelledError as error:
            self._send_exit(None, self._reason, refusal=" ".join(error.args))
        except (ProwessError, OSError, ValueError) as error:
            self._send_exit(None, refusal=str(error) or type(error).__name__, lost=isinstance(error, _Lost))
        except Exception as error:  # noqa: BLE001 - the calls of the worker must be answered
            _log.exception("a worker could not be started")
            self._send_exit(None, refusal=f"{type(error).__name__}, see the log of the agent")
        else:
            if placement.limits is not None:
                worker.link.bound(_MOST_FRAME, lambda size: self.end(f"it sent a frame of {size} bytes"))
            self.stream.send(WorkerMessage.STARTED, json.dumps({"pid": worker.pid, "at": str(self._folder)}).encode())

    async def _lay_out(self) -> None:
        blobs, code = self._agent.blobs, self._order["code"]
        for attempt in range(1, _ATTEMPTS + 1):
            for _ in range(2):  # first the index, then the files that it lists
                await self._fetch(await asyncio.to_thread(blobs.missing, code))
            loop = asyncio.get_running_loop()
            try:
                self._laying = loop.run_in_executor(None, lay_out, blobs.read(code), self._folder, blobs.read)
                await asyncio.shield(self._laying)
            except (Damaged, FileNotFoundError) as error:  # a machine that lost power leaves empty files
                if attempt == _ATTEMPTS:
                    raise
                if isinstance(error, Damaged):
                    blobs.drop(error.digest)
            else:
                return

    async def _fetch(self, digests: Collection[str]) -> None:
        at_once, blobs = asyncio.Semaphore(_AT_ONCE), self._agent.blobs

        async def bring(digest: str) -> None:
            async with at_once:
                data = await self._agent.engine.fetch(blob_name(digest))
                if data is None:
                    raise _Lost("the engine no longer has the code of this worker")
                await asyncio.to_thread(blobs.keep, digest, data)

        bringing = [asyncio.ensure_future(bring(digest)) for digest in digests]
        try:
            await asyncio.gather(*bringing)
        finally:
            for each in bringing:
                each.cancel()

    async def _placement(self) -> Placement:
        grant, python = self._grant(), None
        skill = self._order["environment"]
        if skill:
            python = await self._environment(skill, limited=grant is not None)
        return Placement(python, grant) if python or grant else OWN

    def _grant(self) -> Grant | None:
        order = self._order.get("grant")
        if order is None:
            return None
        from prowess_host.confinement.confine import check  # skills without limits pay nothing for it

        limits = limits_of((order["limits"], "the order of the host"))
        grant = Grant(
            str(order["skill"]),
            limits,
            self._root,
            own=tuple(self._folder / path for path in order["own"]),
            listed=tuple(self._folder / path for path in order["listed"]),
            unenforced=bool(order["unenforced"]),
            package=bool(order["package"]),
            variables=tuple((str(name), str(text)) for name, text in order["variables"]),
        )
        check(grant)
        return grant

    async def _environment(self, skill: str, *, limited: bool) -> str:
        """The interpreter of the environment that a skill declares, built here with the settings of this machine."""
        from prowess_host.environments.builds import Builds, Needed
        from prowess_host.environments.declared import declared_by

        folders = [within(self._folder, path) for path in self._order["folders"]]
        source = next((each for each in survey(folders).sources if each.name == skill), None)
        declared = declared_by(source) if source is not None else None
        if source is None or declared is None:
            raise ValueError(f"{skill} declares no environment in the code that the host sent")
        agent = self._agent
        needed = Needed.by(source, declared, agent.settings.own, self._root, limited=limited)
        agent.builds = agent.builds or Builds(agent.cache)
        return await agent.builds.ready(needed, self._report_preparing)

    def _ping(self) -> None:
        if self._worker is not None:
            self._worker.link.send(Kind.PING)

    def _report_preparing(self, line: str) -> None:
        self.stream.send(WorkerMessage.PREPARING, f"preparing the environment on {self._agent.name}: {line}".encode())

    def _ended(self) -> None:
        assert self._worker is not None  # noqa: S101 - it has ended
        self._send_exit(self._worker.exit_code, self._reason)

    def _send_exit(self, code: int | None, reason: str = "", refusal: str = "", *, lost: bool = False) -> None:
        outcome = {"code": code, "reason": reason, "refusal": refusal, "lost": lost}
        self._deadlines.close()
        self.stream.send(WorkerMessage.EXITED, json.dumps(outcome).encode())
        self._agent.tenants.pop(self.incarnation, None)
        self._agent.publish_heartbeat()
        self.stream.finish(self._close)
        self._removing = asyncio.get_running_loop().create_task(self._remove())

    async def _remove(self) -> None:
        """Delete the code, after the thread that writes it."""
        if self._laying is not None:
            await asyncio.wait({self._laying})
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _close(self) -> None:
        self.stream.close()
        self.over.set()
        self._agent.unconfirmed.discard(self)


class _Relayed(WorkerProcess):
    """A worker process whose frames and output go to its host."""

    relays = True

    def __init__(
        self,
        python: str,
        root: Path,
        placement: Placement,
        stream: EngineStream,
        on_exit: Callable[[], None],
        *,
        on_received: Callable[[int, int], bool],
    ) -> None:
        """`on_received` gets each frame, and returns whether it is for the host."""
        self._stream = stream
        self._on_received = on_received
        launched = Launched(python, root, shared=False, placement=placement)
        super().__init__(
            python, root, b"", placement=placement, on_frame=self._relay, on_exit=on_exit, launched=launched
        )
        self._lines = self  # pyright: ignore[reportAttributeAccessIssue] - the host splits the output into lines
        stream.on_room = self._go_on
        self._holds = False

    def _relay(self, frame: Frame) -> None:
        if self._on_received(frame.kind, frame.number):
            self._stream.send(WorkerMessage.FRAMES, encode_frame(Kind(frame.kind), *frame[1:]))
            self._hold_if_full()

    def _hold_if_full(self) -> None:
        """Stop reading from the worker while the network is slower than it."""
        if self._stream.full and not self._holds:
            self._holds = True
            self.link.hold()
            self._loop.remove_reader(self._output)

    def _go_on(self) -> None:
        if self._holds and not self._over:
            self._holds = False
            self.link.go_on()
            self._loop.add_reader(self._output, self._pass_on_output)

    def feed(self, data: bytes) -> list[bytes]:
        """Pass on output of the worker."""
        self._stream.send(WorkerMessage.PRINTED, data)
        self._hold_if_full()
        return []

    def close(self) -> list[bytes]:
        """Give nothing: the host keeps an unfinished line."""
        return []


def facts_of_machine() -> dict[str, Any]:
    """The processors, system, memory and GPUs of this machine."""
    found: dict[str, Any] = {"processors": processors(), "system": f"{sys.platform} {platform.machine()}"}
    with contextlib.suppress(ValueError, OSError):
        found["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = sum(name.name[6:].isdigit() for name in Path("/dev").glob("nvidia*"))
    return {**found, "gpus": gpus}
