"""How a host comes to know what it can offer: from what it remembers, from workers, and again after every save.

Knows no wire and no session; whoever shows the offer is told when there is another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Final

from prowess.description import Description
from prowess.errors import SettingsError
from prowess.jsontypes import JsonObject
from prowess.paths import ConfigPaths
from prowess.settings import Settings
from prowess_host.describing import LostWorker
from prowess_host.knowledge import Knowledge
from prowess_host.offer import Offer
from prowess_host.supervisor import Successor, Supervisor
from prowess_host.watcher import Watcher

__all__ = ["Learner"]

_log = logging.getLogger("prowess.host")
_LOADING: Final = 60.0
"""Seconds after which the tools are listed without the skills that are still being loaded."""
_SOON: Final = 0.5
"""Seconds after which a worker is started although nobody has asked for tools."""


class Learner:
    """Keeps one offer true for as long as a host runs."""

    def __init__(
        self,
        paths: ConfigPaths,
        settings: Settings,
        flags: JsonObject,
        environ: Mapping[str, str],
        show: Callable[[Offer], None],
    ) -> None:
        self._paths = paths
        self._flags = flags
        self._environ = environ
        self._show = show
        self._loop = asyncio.get_running_loop()
        self.own, self._written = settings.own, settings.written
        self.supervisor = Supervisor(paths.project_root, settings, flags)
        self.supervisor.on_live = self._compare
        self._knowledge = Knowledge(paths, settings.own)
        self._watcher = Watcher(paths, self._renew, lambda: self._knowledge.files)
        self._offer = Offer.nothing()
        self._kept: set[str] = set()
        """Skills that no longer load, and are served by the last good version, as far as a worker has it."""
        self._proven: set[str] = set()
        """Skills that have been imported since the start, so that losing them is news."""
        self.asked = asyncio.Event()
        """Somebody wanted to know of tools, or to use one."""
        self._one_at_a_time = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Come to know the skills, as soon as what the client has sent already is answered; then see to changes."""
        await asyncio.sleep(0)
        standing = self._knowledge.recall()
        if standing.complete:
            await self._start_knowing()
        else:
            await self._start_learning(standing.known)
        if not self._goes_by_what_is_written():  # saved before the watcher looked
            await self._renew()
        await self._watcher.run()

    async def close(self, seconds: float) -> None:
        """Let what was learned be written down, but wait no longer than that."""
        self._watcher.stop()
        await self._knowledge.kept(seconds)

    # The start

    async def _start_knowing(self) -> None:
        """Nothing has changed since the last time: what costs time comes after the first answer."""
        self._publish(Offer(self._knowledge.catalog(), self._knowledge.views()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.asked.wait(), _SOON)
        self.supervisor.start()
        self._watcher.start()
        await asyncio.to_thread(self._watcher.ready.wait)
        standing = await asyncio.to_thread(self._knowledge.standing)
        if not standing.complete:  # something was saved before the watcher looked
            await self._renew()
        else:
            async with self._one_at_a_time:
                if await asyncio.to_thread(self._knowledge.refresh):
                    self._knowledge.keep()
            await self._look_again(self._knowledge.doubtful)

    async def _start_learning(self, known: Collection[str]) -> None:
        """The first offer. What is known can be called at once."""
        self._watcher.start()
        self.supervisor.start()
        partial = Offer(self._knowledge.catalog(known), self._knowledge.views(), complete=False)
        self._publish(partial)
        learning = self._loop.create_task(self._learn(known))
        learning.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be there to hear it
        await asyncio.wait([learning], timeout=_LOADING)
        if not learning.done():
            self._publish(partial.failing(f"the skills take more than {_LOADING:g} s to load"))
        try:
            await learning
        except LostWorker:
            await self._renew()  # apart from calls: one of them may have ended the worker
        except ChildProcessError as error:
            self._publish(partial.failing(str(error)))
        else:
            self._adopt_knowledge()

    async def _learn(self, known: Collection[str]) -> None:
        async with self._one_at_a_time:
            await self._knowledge.learn(self.supervisor.describe, known)

    # Changes

    async def _renew(self) -> None:
        """Something was saved: a new generation, if it can be had."""
        async with self._one_at_a_time:
            await self._next_generation()

    async def _next_generation(self) -> None:
        successor: Successor | None = None

        async def ask(known: Collection[str]) -> Description:
            nonlocal successor
            if successor is not None:
                self.supervisor.discard(successor)
            successor = await self.supervisor.next_generation(known)
            return successor.description

        try:
            self._configure(self._settings())
            standing = await asyncio.to_thread(self._knowledge.standing)
            loaded = (
                self.supervisor.loaded
            )  # imported anew before it is needed: so it is as warm, and has a last good version
            await self._knowledge.learn(ask, standing.known - loaded - self._knowledge.doubtful)
        except (SettingsError, ChildProcessError) as error:
            self._publish(self._offer.failing(f"{error} (what was there before goes on)"))
            return
        assert successor is not None  # noqa: S101 - else nothing was learned
        self._kept = self._offer.last_good(self._knowledge.catalog())
        self.supervisor.adopt(successor, self._kept)
        self._adopt_knowledge()

    def _settings(self) -> Settings:
        return Settings.load(self._paths.project_root, environ=self._environ, flags=self._flags)

    def _goes_by_what_is_written(self) -> bool:
        try:
            return self._settings().written == self._written
        except SettingsError:
            return False

    def _configure(self, settings: Settings) -> None:
        self._paths = ConfigPaths.of(settings, self._environ)
        self.own, self._written = settings.own, settings.written
        self.supervisor.configure(settings)
        self._knowledge.configure(settings.own)

    def _compare(self, digests: Mapping[str, str]) -> None:
        """A worker has imported skills. What they promise now counts, not what they promised before."""
        differing = self._knowledge.differing(digests) - self._kept
        self._proven |= digests.keys() - differing
        if differing:
            self._in_background(self._look_again(differing))

    async def _look_again(self, skills: Collection[str]) -> None:
        """Have some skills described by the worker that runs them, and go by that."""
        if not skills:
            return
        try:
            await self._learn(self._knowledge.description.skills.keys() - skills)
        except ChildProcessError as error:
            _log.warning("%s could not be looked at again: %s", ", ".join(sorted(skills)), error)
        else:
            lost = self._offer.last_good(self._knowledge.catalog()) & self._proven
            self._kept |= lost
            self.supervisor.give_up(lost)
            self._adopt_knowledge()

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._end_of_background)

    def _end_of_background(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("what was learned in the background is lost", exc_info=task.exception())

    # The offer

    def _adopt_knowledge(self) -> None:
        """Offer what is known, with the last good version of what no longer loads, and keep it for the next start."""
        new = self._knowledge.catalog()
        self._proven |= {contract.skill for contract in new.contracts} & self.supervisor.loaded
        self._publish(self._offer.replaced(new, self._knowledge.views(), self._kept))
        self._knowledge.keep()

    def _publish(self, offer: Offer) -> None:
        known = map(Path, self._knowledge.description.folders)
        self._watcher.folders = tuple(dict.fromkeys((*self._paths.skills_dirs, *known)))
        for failure in offer.catalog.failures:
            if failure not in self._offer.catalog.failures:
                _log.warning("%s", failure)
        self._offer = offer
        self._show(offer)
