"""Keeps the listing up to date: from the manifest at start, from workers, and after every saved file.

Independent of protocol and sessions: a callback receives each new listing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess.errors import SettingsError
from prowess.jsontypes import JsonObject
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.skills.description import Description
from prowess_host.catalog.attempts import LaterAttempts, repeated
from prowess_host.catalog.isolated import IsolatedSkills, may_be_in
from prowess_host.catalog.known import KnownCatalog, described
from prowess_host.catalog.labels import NO_CLUSTER, labels_of_command
from prowess_host.catalog.listing import Listing
from prowess_host.catalog.manifest import Standing, skills_of
from prowess_host.catalog.published import PublishedCatalog
from prowess_host.catalog.saved_settings import SavedSettings
from prowess_host.catalog.sources import Parts
from prowess_host.catalog.trust import skill_of
from prowess_host.catalog.watcher import Watcher
from prowess_host.workers.describe import LostWorker
from prowess_host.workers.generations import Successor
from prowess_host.workers.placement import Placement, Unplaced
from prowess_host.workers.process import Spawn, WorkerProcess
from prowess_host.workers.supervisor import Supervisor

__all__ = ["CatalogUpdates"]

_log = logging.getLogger("prowess.host")
_LOADING: Final = 60.0
"""Seconds, counted while the workers could run, after which the tools are listed without the skills that are still loading."""
_LONG: Final = 5.0
"""The same, after which a first start looks for saves: one may mend the import that takes so long."""
_SOON: Final = 0.5
"""Seconds after which a worker starts, even if no client has asked for tools."""


class CatalogUpdates:
    """Keeps the listing of a running host up to date."""

    def __init__(  # noqa: PLR0915 - one line for each thing that it knows
        self,
        paths: ConfigPaths,
        settings: Settings,
        flags: JsonObject,
        environ: Mapping[str, str],
        show: Callable[[Listing], None],
        *,
        spawn: Spawn = WorkerProcess,
    ) -> None:
        self.saved = SavedSettings(paths, settings, flags, environ)
        """The settings, as last saved."""
        self._on_listing = show
        self._loop = asyncio.get_running_loop()
        self.supervisor = Supervisor(paths.project_root, settings, flags, spawn)
        self._generations = self.supervisor.generations
        self._generations.on_live = self._compare
        self._known = KnownCatalog(paths, settings.own)
        self._generations.hooks = lambda: self._known.sources.hooks
        self.isolated = IsolatedSkills(
            paths.cache_dir,
            describe=self._describe_isolated,
            report=self.supervisor.report_unplaced,
            on_change=self._isolated_changed,
        )
        """The skills with environments or limits of their own."""
        self._published = PublishedCatalog(self._known, self.isolated, self.supervisor.pools, self._show)
        self._generations.source_of = self._published.source_of
        self.supervisor.pools.placement_of = self.isolated.placement_of
        self.supervisor.pools.share_of = self.isolated.share_of
        self.supervisor.pools.elsewhere = self._elsewhere
        self._has_own_process = getattr(spawn, "has_own_process", True)
        self._publishes = False
        """Whether the first listing has been published."""
        self._listed = asyncio.Event()
        """Set when the skills of the project's own environment are listed or have failed."""
        self._watcher = Watcher(
            paths, self._take_save, lambda: {**self._known.files, **self.isolated.files}, self._notice
        )
        self._recalled: Standing | None = None
        self.asked = asyncio.Event()
        """Set when a client has listed or called tools."""
        self._one_at_a_time = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._later = LaterAttempts(lambda: self._in_background(self._try_again()))
        self._is_behind = False
        """Whether the last attempt to describe what has changed failed as a whole."""
        self._missed: set[str] = set()
        """Skills that are to be described again although their files say nothing of it. The next generation describes them."""
        self.settled = asyncio.Event()
        """Set when all skills are described or have failed, so that unlisted commands do not exist."""

    async def run(self) -> None:
        """Describe the skills after the first messages of the client are answered, then watch for changes."""
        await asyncio.sleep(0)
        standing = self._recall()
        self.isolated.expect(self._known.isolated)
        if standing.complete:
            await self._start_warm(standing.known)
        else:
            await self._start_cold((await self._first_look()).known)
        self._begin_to_publish()
        self._in_background(self._settle())  # while saves are noticed
        if not self.saved.are_current() or await self._found_more_isolated():  # saved before the watcher looked
            await self._renew()
        self._retry_later()
        await self._watcher.run()

    async def _settle(self) -> None:
        """Wait for environments, which can take minutes."""
        await self.isolated.settled()
        self.settled.set()

    async def _found_more_isolated(self) -> bool:
        """Whether a plugin has added a folder with skills that have environments of their own."""
        if set(self.searched) == set(self.saved.paths.skills_dirs):
            return False
        before = self.isolated.names
        await self._read_isolated()
        return self.isolated.names != before

    def _recall(self) -> Standing:
        """The valid part of the manifest, read once, at first use."""
        if self._recalled is None:
            self._recalled = self._known.recall()
        return self._recalled

    @property
    def remembered(self) -> Collection[str] | None:
        """The kinds in the manifest, if it is still valid."""
        if not self._recall().complete:
            return None
        return {contract.kind for contract in self._known.catalog().contracts}

    async def load(self, command: str = "", *, builds: bool = True) -> None:
        """Describe all skills, or until a command is known, without watching files. Fails as `Generations.describers` does.

        For a command, only environments of skills that may contain it are made. Without `builds`, a missing environment
        is a failure of its skills.
        """
        standing = self._known.recall()
        self._begin_to_publish()
        self.isolated.expect(self._known.isolated)
        await self._read_isolated()
        known = standing.known - self._known.doubtful
        unknown = self.isolated.names.difference(map(skill_of, known))
        if standing.complete and known == standing.known and not unknown:
            self.isolated.prepare((), build=False)
            self._published.publish(Listing(self._known.catalog(), self._known.views()))
            return
        self._published.publish(Listing(self._known.catalog(known), self._known.views(), complete=False))
        if self._published.listing[command] is None:
            if not standing.complete or known - self.isolated.names != standing.known - self.isolated.names:
                await self._describe(known | self.isolated.names)
            among = {skill for skill in unknown if may_be_in(skill, command)}
            self.isolated.prepare(among or unknown, others=not among, build=builds)
            self._assume_committed()
            self._published.publish_known()
            await self.isolated.settled()
        elif unknown:
            self.isolated.prepare((), build=False)

    async def describe_anew(self) -> Catalog:
        """Describe all skills from their current files, ignoring the manifest. Fails as `Generations.describers` does."""
        root = self.saved.paths.project_root
        await self._read_isolated()
        async with self._generations.describers() as ask:
            self._known.begin_anew(await described(ask, (), root))
        self.isolated.send(self._known.sent(), anew=False)
        self._begin_to_publish()
        self.isolated.prepare(self.isolated.names)
        await self.isolated.settled()
        return self._published.whole_catalog()

    def glance(self) -> Catalog:
        """The skills of the manifest, possibly outdated, without those whose files are gone."""
        unchanged, skills = self._recall().known, self._known.description.skills.items()
        there = (name for name, facts in skills if name in unchanged or not facts.place or Path(facts.place).exists())
        return self._known.catalog({*there})

    @property
    def searched(self) -> tuple[Path, ...]:
        """The folders that are searched for skills."""
        known = map(Path, self._known.description.folders)
        return tuple(dict.fromkeys((*self.saved.paths.skills_dirs, *known)))

    async def close(self, seconds: float) -> None:
        """Wait until the manifest is saved, up to this many seconds."""
        self._watcher.stop()
        self.isolated.close()
        self._later.cancel()
        for task in self._background:
            task.cancel()
        await self._known.kept(seconds)

    # The start

    async def _first_look(self) -> Standing:
        """Returns the valid part of what is known. From now on, every save is noticed: of what is read later, too."""
        self._watcher.start()
        await asyncio.to_thread(self._watcher.ready.wait)
        return await asyncio.to_thread(self._known.standing)

    async def _start_warm(self, known: Collection[str]) -> None:
        """Start with a valid manifest: answer first, start workers and watch files later."""
        self._published.publish(Listing(self._known.catalog(), self._known.views()))
        if not self._known.doubtful and not self.isolated.names:
            self.settled.set()
        if self.isolated.names:
            await self._read_isolated()
            self.isolated.prepare(self.isolated.names.difference(map(skill_of, known)))
            self._begin_to_publish()
            self.supervisor.placed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SOON):  # `wait_for` of Python 3.11 may swallow the cancellation of `close`
                await self.asked.wait()
        self.supervisor.start()
        await asyncio.to_thread(self._known.read_sources, known)
        if not (await self._first_look()).complete:  # something was saved before the watcher looked
            await self._renew()
        else:
            async with self._one_at_a_time:
                if await asyncio.to_thread(self._known.refresh):
                    self._known.keep()
            await self._describe_again(self._known.doubtful)

    async def _start_cold(self, known: Collection[str]) -> None:
        """Start without a valid manifest: describe skills. The known ones can be called at once."""
        await self._read_isolated()
        self.isolated.prepare(self.isolated.names.difference(map(skill_of, known)))
        self.supervisor.placed()
        self.supervisor.start()
        so_far = Listing(self._known.catalog(known), self._known.views(), complete=False)
        self._published.publish(so_far)
        await asyncio.to_thread(self._known.read_sources, known)
        learning = self._loop.create_task(self._describe(known))
        # retrieves the exception, in case no code awaits the task
        learning.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not await self._generations.within([learning], _LONG):
            self._watcher.poll()
        if not await self._generations.within([learning], _LOADING - _LONG):
            self._published.publish(so_far.failing(f"the skills take more than {_LOADING:g} s to load"))
        try:
            await learning
        except LostWorker:
            await self._renew()  # in a worker without calls: a call may have ended the other one
        except ChildProcessError as error:
            self._is_behind = True
            self._published.publish(so_far.failing(str(error)))
        else:
            self._published.keep(self._published.kept)
            self._listed.set()
            await self._generations.within(self.isolated.quick(), _LOADING)
            self._assume_committed()
            self._published.publish_known()

    async def _describe(self, known: Collection[str]) -> None:
        async with self._one_at_a_time, self._generations.describers() as ask:
            await self._known.learn(ask, self.isolated.names.union(known))

    # Skills with environments or limits of their own

    async def _read_isolated(self) -> None:
        """Read which skills have environments or limits of their own. Later workers get this list."""
        await self.isolated.read(self.searched, self.saved.current, self.saved.paths.project_root)
        self._known.isolated = tuple(sorted(self.isolated.names))
        self._known.limited = frozenset(self.isolated.limits)
        self.isolated.send(self._known.sent(), anew=False)

    async def _describe_isolated(self, placement: Placement, skills: Collection[str]) -> None:
        """Describe skills in their placement, adopt the description, and send new calls there."""
        is_package = placement.limits is not None and placement.limits.package
        describe = partial(self._generations.next_of, placement, None if is_package else skills)
        successor = await repeated(describe, imports=False)
        await self._listed.wait()
        async with self._one_at_a_time:
            # The description names one version of each file, so these would seem to be made from that of the others.
            others = set(map(skill_of, self._known.learn_isolated(successor.description, skills)))
            self._missed |= others - self.isolated.names
            self.isolated.prepare(others & self.isolated.names, others=False)
            self._published.keep((self._published.kept - set(skills)) | self._published.broken().intersection(skills))
            self._generations.adopt(successor, self._published.kept)

    def _isolated_changed(self) -> None:
        """Publish after an environment is ready or has failed."""
        if self._publishes:
            self._published.publish_known()
        self.supervisor.placed()
        if self.isolated.lost and not self._later.is_planned:
            self._retry_later()

    def _begin_to_publish(self) -> None:
        """From now on, publish every skill as soon as it is known."""
        self._listed.set()
        self._publishes = True

    def _assume_committed(self) -> None:
        """Use the committed catalog for skills that cannot be described before their environment is made."""
        unknown = self.isolated.names - self._known.description.skills.keys()
        if unknown:
            from prowess_host.review.committed import committed  # rare, so not imported at start

            self._known.assume(committed(self.saved.paths.project_root, unknown, self.saved.own.profile))

    # Changes

    def _notice(self, changed: Collection[str]) -> None:
        """Do not wait for imports of files that have just changed: they may hang, and the save may mend that."""
        folders = [str(folder) for folder in self.searched]
        inside = [path for path in changed if any(Path(path).is_relative_to(folder) for folder in folders)]
        of_all = len(inside) < len(changed)  # settings or modules of the project, which any skill may import
        self._generations.end_imports(None if of_all else skills_of(inside, folders))

    async def _take_save(self) -> None:
        await self._renew()
        self._retry_later(anew=True)

    async def _renew(self) -> None:
        """Start a new generation after a save, if it can be described."""
        async with self._one_at_a_time:
            try:
                await repeated(self._next_generation)
            except (SettingsError, ChildProcessError) as error:
                self._fall_behind(str(error))
            except Exception as error:  # noqa: BLE001 - without this, the host would notice no later save
                _log.exception("the skills could not be described")
                self._fall_behind(f"an internal error: {type(error).__name__}: {error}")
            else:
                self._is_behind = bool(self._missed)

    def _fall_behind(self, reason: str) -> None:
        self._is_behind = True
        self._published.publish(self._published.listing.failing(f"{reason} (the previous version stays in use)"))

    async def _next_generation(self) -> None:
        """Describe what has changed in a new worker, and send calls there."""
        successor: Successor | None = None

        async def ask(known: Collection[str]) -> Description:
            nonlocal successor
            if successor is not None:
                self._generations.discard(successor)
            successor = await self._generations.next_generation(known)
            return successor.description

        self._configure(self.saved.read())
        standing = await asyncio.to_thread(self._known.standing)
        await self._read_isolated()  # last, since a call would wake a skill that is not yet known to be outdated
        loaded = self.supervisor.pools.loaded  # import these again now, so that their next calls are fast
        stale = self.isolated.names.difference(map(skill_of, standing.known - self._known.doubtful))
        self.isolated.prepare(stale)
        missed = set(self._missed)
        known = standing.known - loaded - self._known.doubtful - missed
        try:
            await self._known.learn(ask, known | self.isolated.names)
        except BaseException:
            if successor is not None:
                self._generations.discard(successor)
            raise
        assert successor is not None  # noqa: S101 - else nothing was learned
        self._adopt(successor)
        self._missed -= missed

    def _adopt(self, successor: Successor) -> None:
        """Send calls to a new generation, and publish what it has described."""
        broken_plugins = self._known.sources.broken_plugins(self._known.description)
        kept = self._published.broken() | broken_plugins
        self._published.keep(kept)
        self.isolated.leave(kept)
        self._generations.adopt(successor, kept)
        self._assume_committed()
        self._published.publish_known()
        self.supervisor.placed()

    def _configure(self, settings: Settings) -> None:
        self.saved.use(settings)
        self._watcher.settings_files = self.saved.paths.settings_files
        self.supervisor.configure(settings)
        self._known.configure(settings.own)

    def _compare(self, digests: Mapping[str, str]) -> None:
        """Compare the contracts that a worker has imported with the known ones. The imported ones count."""
        differing = self._published.differing(digests)
        if differing:
            self._in_background(self._describe_again(differing))

    async def _describe_again(self, skills: Collection[str]) -> None:
        """Describe skills in the worker that runs them, and adopt the description."""
        isolated = self.isolated.names.intersection(skills)
        if isolated:
            self.isolated.prepare(isolated)
            skills = set(skills) - isolated
        if not skills:
            return
        fatal = self._known.fatal

        async def describe() -> None:
            if not await self._describe_current(skills):
                self._missed.update(skills)
                await self._renew()

        try:
            await repeated(describe)
        except ChildProcessError as error:
            _log.warning("%s could not be described again: %s", ", ".join(sorted(skills)), error)
            self._missed.update(skills)
            self._is_behind = True
        if self._is_behind or self._known.fatal - fatal:
            self._retry_later(anew=True)

    async def _describe_current(self, skills: Collection[str]) -> bool:
        """Describe skills in an active worker. Returns `False` if it may run with former files and settings."""
        async with self._one_at_a_time:
            if self._is_behind:
                return False
            kept = self._published.kept
            async with self._generations.describers() as ask:
                others = {*self._known.description.skills, *kept}.difference(skills)
                await self._known.learn(ask, others, kept.difference(skills))
            self._published.keep(kept | self._published.lost())
            self._published.publish_known()
            return True

    def _retry_later(self, *, anew: bool = False) -> None:
        """Schedule another attempt if a skill or a whole generation could not be described: no save may follow.

        With `anew`, the pauses start over.
        """
        is_lost = bool(self._known.fatal or self.isolated.lost)
        self._later.plan(is_behind=self._is_behind, is_lost=is_lost, anew=anew)

    async def _try_again(self) -> None:
        self._later.begin()
        self.isolated.prepare(self.isolated.lost, others=False)
        if self._is_behind:  # before anything else: an import may take long
            await self._renew()
        mended = await self._generations.importable(self._known.fatal) & self._known.fatal
        if mended & self._published.kept:  # a current worker may have imported the last good version
            self._missed |= mended
            await self._renew()
        elif not self._is_behind:
            await self._describe_again(mended)
        if not self._later.is_planned:  # otherwise a save has started over
            self._retry_later()

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._end_of_background)

    def _end_of_background(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("an update of the catalog failed in the background", exc_info=task.exception())

    def _elsewhere(self, contract: Contract) -> Placement | Unplaced | None:
        """The placement of a command that runs on agents, by the settings or its decorator."""
        own = self.saved.own
        labels = labels_of_command(contract, own) if own.run_on else contract.policies.run_on
        if not labels or not self._has_own_process:  # in a debugger, everything runs here
            return None
        if self.supervisor.pools.abroad is None:
            return Unplaced(NO_CLUSTER.format(labels=labels))
        return self.isolated.elsewhere(contract.skill, labels)

    def parts(self) -> Parts:
        """The files that workers on other machines need."""
        description, paths = self._known.description, self.saved.paths
        files = {path for facts in description.skills.values() for path in facts.files}
        secrets = frozenset(map(str, paths.settings_files))
        return Parts(paths.project_root, self.searched, files, self.saved.own.cluster.files, secrets)

    def _show(self, listing: Listing) -> None:
        self._watcher.folders = self.searched
        self._on_listing(listing)
