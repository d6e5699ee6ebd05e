"""`prowess agent`: owns worker processes for hosts elsewhere, with the supervision of this machine.

A host asks for a worker by content. The agent lays out the code, makes the environment, sets the limits, starts the process,
and relays its frames and prints. It kills a worker when its host says so or is silent, and all of them at its own end.
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
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from prowess.errors import ProwessError
from prowess.settings.limits import limits_of
from prowess.settings.settings import Settings
from prowess.skills.discovery import survey
from prowess.skills.stamps import digest_of
from prowess.worker.link import Frame, FrameReader, encode_frame
from prowess.worker.messages import Kind, hello, mismatch
from prowess.worker.polling import processors
from prowess_host.cluster.code import check_approved, lay_out
from prowess_host.cluster.engine import Engine, Message
from prowess_host.cluster.errors import EngineError
from prowess_host.cluster.streams import Stream
from prowess_host.cluster.talk import FULL, Said, agent_subject, beats_subject, blob_name, stream_subjects, who_subject
from prowess_host.confinement.grants import Grant
from prowess_host.workers.launch import Launched
from prowess_host.workers.placement import OWN, Placement
from prowess_host.workers.process import WorkerProcess

__all__ = ["Agent", "Blobs", "facts_of_machine"]

_log = logging.getLogger("prowess.agent")
_NAME: Final = re.compile(r"[0-9a-f]{16}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_UNSAFE: Final = re.compile(r"PATH|PYTHON.*|LD_.*|DYLD_.*")
"""Variables that bring code."""
_KEPT: Final = 30 * 86400.0
"""Seconds that a file is kept after it was brought."""
_BEAT: Final = 1.0
"""Seconds between two beats of an agent."""
_LEAST_SLOTS: Final = 4
"""Most workers wait most of the time."""
_MOST_FRAME: Final = 256 * 1024 * 1024
"""Bytes of a frame that a limited worker may send."""
_LAST_WORDS: Final = 2.0
"""Seconds in which hosts hear of the end of their workers when the agent ends."""


class Agent:
    """One agent. `run` it until it is told to `stop`."""

    def __init__(
        self, engine: Engine, settings: Settings, cache: Path, *, locked: Collection[str] | None = None
    ) -> None:
        """`locked` are the keys of those who approve code; `None` runs all code that a host of the cluster brings."""
        self.engine = engine
        self.settings = settings
        self.own = settings.own.agent
        self.cache = cache
        self.locked = locked
        self.id = os.urandom(8).hex()
        self.name = self.own.name or socket.gethostname()
        self.slots = self.own.slots or max(2 * processors(), _LEAST_SLOTS)
        self.labels = sorted({*self.own.labels, "any", self.name})
        self.tenants: dict[str, _Tenant] = {}
        """The workers by incarnation."""
        self.builds: Any = None
        self.folder = cache / "agent" / "running" / self.id
        """Where the code of its workers is laid out."""
        self._lock = self._claim()
        self._facts = facts_of_machine()
        self._stopped = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._subscriptions = [
            engine.subscribe(agent_subject(engine, self.id), self._ordered),
            engine.subscribe(who_subject(engine), lambda _: self.tell()),
        ]
        engine.on_change(self.tell)

    def _claim(self) -> int:
        """Lock our folder. Remove what killed agents have left behind, and files that were brought long ago."""
        self.folder.mkdir(parents=True)
        for other in self.folder.parent.iterdir():
            with contextlib.suppress(OSError):
                descriptor = os.open(other, os.O_RDONLY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if other != self.folder:
                        shutil.rmtree(other, ignore_errors=True)
                finally:
                    os.close(descriptor)
        self.blobs.remove_before(time.time() - _KEPT)
        descriptor = os.open(self.folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    async def run(self) -> None:
        """Serve until `stop`."""
        self._tick()
        await self._stopped.wait()
        if self._timer is not None:
            self._timer.cancel()
        for subscription in self._subscriptions:
            subscription.cancel()
        self.tell()
        for tenant in list(self.tenants.values()):
            tenant.end("its agent ended")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await asyncio.gather(*(tenant.over.wait() for tenant in list(self.tenants.values())))
        if self.builds is not None:
            self.builds.close()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
        os.close(self._lock)

    def stop(self) -> None:
        """End all workers, tell their hosts, and leave."""
        self._stopped.set()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_BEAT, self._tick)
        self.tell()

    def tell(self) -> None:
        """Say that it is there, or that it leaves."""
        told = {"id": self.id, "name": self.name, "labels": self.labels, "slots": self.slots, "busy": len(self.tenants)}
        told |= {**hello(), **self._facts, "locked": self.locked is not None}
        if self._stopped.is_set():
            told["left"] = True
        with contextlib.suppress(EngineError):
            self.engine.publish(beats_subject(self.engine), json.dumps(told).encode())

    # Orders

    def _ordered(self, message: Message) -> None:
        try:
            answer = self._answer(json.loads(message.data))
        except (ProwessError, OSError) as error:
            answer = {"refused": str(error)}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            answer = {"refused": f"the order cannot be read: {type(error).__name__}: {error}"}
        with contextlib.suppress(EngineError):  # the host asks another agent
            self.engine.publish(message.reply, json.dumps(answer).encode())

    def _answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        why_not = mismatch(order, hello(), sys.executable)
        if why_not:
            return {"refused": why_not.replace("host and worker", "host and agent").replace("the worker", "the agent")}
        if self._stopped.is_set():
            return {"refused": "it is leaving"}
        if len(self.tenants) >= self.slots:
            return {"refused": FULL}
        if not _NAME.fullmatch(order["incarnation"]) or not _DIGEST.fullmatch(order["code"]):
            raise ValueError("a name is not what a host makes")  # they are names of files here
        if self.locked is not None:
            check_approved(order["code"], order["approved"], self.locked)
        missing = self.blobs.missing(order["code"])
        if missing and not order.get("stored"):
            return {"missing": missing}
        self.tenants[order["incarnation"]] = _Tenant(self, order)
        return {"accepted": True}

    @property
    def blobs(self) -> Blobs:
        """The files that it has by digest."""
        return Blobs(self.cache / "agent" / "blobs")


class Blobs:
    """Files by digest, in the cache of an agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, digest: str) -> bytes:
        """The content of a file. A damaged one is an error of whoever compares it with its digest."""
        return (self._folder / digest).read_bytes()

    def missing(self, index: str) -> list[str]:
        """What of an index is not there; the index itself, if that is all that is known."""
        try:
            text = self.read(index)
        except OSError:
            return [index]
        wanted = set(json.loads(text).values())
        try:
            return sorted(wanted.difference(os.listdir(self._folder)))  # noqa: PTH208 - names are all that is needed
        except OSError:
            return sorted(wanted)

    def remove_before(self, when: float) -> None:
        """Delete what was brought before that. Whoever needs it brings it again."""
        with contextlib.suppress(OSError):
            for file in self._folder.iterdir():
                if file.stat().st_mtime < when:
                    file.unlink()

    def keep(self, digest: str, data: bytes) -> None:
        """Keep a file, if it is what its digest says."""
        if digest_of(data) != digest:
            raise ValueError(f"the engine has something else under {digest}")
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{digest}.{os.urandom(4).hex()}"
        draft.write_bytes(data)
        draft.replace(self._folder / digest)


class _Tenant:
    """One worker that a host has here, from the order to its end."""

    def __init__(self, agent: Agent, order: Mapping[str, Any]) -> None:
        self._agent = agent
        self._order = order
        self.incarnation: str = order["incarnation"]
        self._folder = agent.folder / self.incarnation
        self._root = self._folder / "0"
        other, own = stream_subjects(agent.engine, self.incarnation)
        self.stream = Stream(
            agent.engine,
            own=own,
            other=other,
            silence=float(order["silence"]),
            hear=self._hear,
            on_silence=lambda: self.end("its host is silent"),
        )
        self.stream.start()
        self._reader = FrameReader()
        self._worker: _Relayed | None = None
        self._reason = ""
        self.over = asyncio.Event()
        self._starting = asyncio.get_running_loop().create_task(self._start())

    def end(self, reason: str) -> None:
        """Kill the worker."""
        self._reason = self._reason or reason
        if self._worker is not None:
            self._worker.kill()
        else:
            self._starting.cancel()

    def _hear(self, kind: int, data: bytes) -> None:
        if kind == Said.KILL:
            self.end("")
        elif kind == Said.FRAMES:
            for about, number, head, body in self._reader.feed(data):
                if self._agent.locked is not None and about == Kind.SOURCE:
                    continue  # nobody brings code by another way
                is_first = self._agent.locked is not None and about == Kind.BEGIN
                if self._worker is not None:
                    self._worker.link.send(Kind(about), number, self._approved(head) if is_first else head, body)

    def _approved(self, head: bytes) -> bytes:
        """How a worker of approved code begins: with no folders but those of the code, and nothing that brings more."""
        told = json.loads(head)
        told["flags"] = {**told["flags"], "skills": [str(self._folder / path) for path in self._order["folders"]]}
        told["environ"] = {name: text for name, text in told.get("environ", {}).items() if not _UNSAFE.fullmatch(name)}
        return json.dumps({**told, "written": None}).encode()

    async def _start(self) -> None:
        try:
            await self._lay_out()
            placement = await self._placement()
            python = placement.python or self._agent.settings.own.python or sys.executable
            self._worker = worker = _Relayed(python, self._root, placement, self.stream, self._ended)
        except asyncio.CancelledError:
            self._say_end(None, self._reason)
        except (ProwessError, OSError, ValueError) as error:
            self._say_end(None, refusal=str(error))
        else:
            if placement.limits is not None:
                worker.link.bound(_MOST_FRAME, lambda size: self.end(f"it sent a frame of {size} bytes"))
            self.stream.send(Said.STARTED, json.dumps({"pid": worker.pid, "at": str(self._folder)}).encode())

    async def _lay_out(self) -> None:
        blobs, code = self._agent.blobs, self._order["code"]
        for _ in range(2):  # the index, and then what it names
            for digest in await asyncio.to_thread(blobs.missing, code):
                data = await self._agent.engine.fetch(blob_name(digest))
                if data is None:
                    raise ValueError("the engine has lost the code meanwhile; call again")
                await asyncio.to_thread(blobs.keep, digest, data)
        await asyncio.to_thread(lay_out, blobs.read(code), self._folder, blobs.read)

    async def _placement(self) -> Placement:
        grant, python = self._grant(), None
        skill = self._order["environment"]
        if skill:
            python = await self._environment(skill, limited=grant is not None)
        return Placement(python, grant) if python or grant else OWN

    def _grant(self) -> Grant | None:
        told = self._order.get("grant")
        if told is None:
            return None
        from prowess_host.confinement.confine import check  # skills without limits pay nothing for it

        limits = limits_of((told["limits"], "the order of the host"))
        grant = Grant(
            str(told["skill"]),
            limits,
            self._root,
            own=tuple(self._folder / path for path in told["own"]),
            listed=tuple(self._folder / path for path in told["listed"]),
            unenforced=bool(told["unenforced"]),
            package=bool(told["package"]),
            variables=tuple((str(name), str(text)) for name, text in told["variables"]),
        )
        check(grant)
        return grant

    async def _environment(self, skill: str, *, limited: bool) -> str:
        """The interpreter of the environment that a skill declares, made here by the settings of this machine."""
        from prowess_host.environments.builds import Builds, Needed
        from prowess_host.environments.declared import declared_by

        folders = [self._folder / path for path in self._order["folders"]]
        source = next((it for it in survey(folders).sources if it.name == skill), None)
        declared = declared_by(source) if source is not None else None
        if source is None or declared is None:
            raise ValueError(f"{skill} declares no environment in the code that the host has brought")
        agent = self._agent
        needed = Needed.by(source, declared, agent.settings.own, self._root, limited=limited)
        agent.builds = agent.builds or Builds(agent.cache)
        return await agent.builds.ready(needed, self._tell_preparing)

    def _tell_preparing(self, line: str) -> None:
        self.stream.send(Said.PREPARING, f"preparing the environment on {self._agent.name}: {line}".encode())

    def _ended(self) -> None:
        assert self._worker is not None  # noqa: S101 - it has ended
        self._say_end(self._worker.exit_code, self._reason)

    def _say_end(self, code: int | None, reason: str = "", refusal: str = "") -> None:
        told = {"code": code, "reason": reason, "refusal": refusal}
        self.stream.send(Said.EXITED, json.dumps(told).encode())
        self._agent.tenants.pop(self.incarnation, None)
        self._agent.tell()
        self.stream.finish(self._close)
        self._removing = asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, self._folder, True)

    def _close(self) -> None:
        self.stream.close()
        self.over.set()


class _Relayed(WorkerProcess):
    """A worker process whose frames and prints go to its host."""

    relays = True

    def __init__(
        self, python: str, root: Path, placement: Placement, stream: Stream, on_exit: Callable[[], None]
    ) -> None:
        self._stream = stream
        launched = Launched(python, root, shared=False, placement=placement)
        super().__init__(
            python, root, b"", placement=placement, on_frame=self._relay, on_exit=on_exit, launched=launched
        )
        self._lines = self  # pyright: ignore[reportAttributeAccessIssue] - the host cuts the lines

        stream.on_room = self._go_on
        self._holds = False

    def _relay(self, frame: Frame) -> None:
        self._stream.send(Said.FRAMES, encode_frame(Kind(frame.kind), *frame[1:]))
        self._hold_if_full()

    def _hold_if_full(self) -> None:
        """The worker waits for a network that is slower than it is."""
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
        """Pass on what it printed."""
        self._stream.send(Said.PRINTED, data)
        self._hold_if_full()
        return []

    def close(self) -> list[bytes]:
        """The host has half a line as well."""
        return []


def facts_of_machine() -> dict[str, Any]:
    """What this machine has."""
    found: dict[str, Any] = {"processors": processors(), "system": f"{sys.platform} {platform.machine()}"}
    with contextlib.suppress(ValueError, OSError):
        found["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = sum(name.name[6:].isdigit() for name in Path("/dev").glob("nvidia*"))
    return {**found, "gpus": gpus}
