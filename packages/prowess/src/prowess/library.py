"""The skills of one runtime: found, imported one by one on demand, made callable, named, and reloaded."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

from cachetools import LRUCache

from prowess.builtin import BuiltIn
from prowess.catalog import Catalog, Failure
from prowess.closure import Closure, closure
from prowess.contract import Contract
from prowess.declaration import NAME, Declaration, declaration_of
from prowess.description import Description, SkillFacts, View, environment_of, seen_all, site_folders
from prowess.discovery import Source, Survey, candidates, survey
from prowess.entry import Entry, Services
from prowess.errors import LoadError, SchemaError, message_of
from prowess.loading import Modules, package_files, project_files
from prowess.names import Names, assign
from prowess.plugins import Installed, installed
from prowess.profiles import Profile
from prowess.settings import CONFIG_FILES
from prowess.skill import OURS, Skill, compiled

__all__ = ["Library"]

_MOST_STRANGERS: Final = 1024
"""Commands outside of the skills that are kept compiled: enough for any test suite, and an end to those made in a loop."""

_TURN: Final = 0.001
"""Seconds after which it is looked again whether all who wanted a command have had their turn."""

_loading: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("prowess_loading", default=False)
"""Whether the code is called, in whatever thread, by a skill that is being imported: its thread holds the lock."""


class Library:
    """Everything that can be called, loaded as late as possible. Safe to use from several threads."""

    def __init__(
        self, services: Services, folders: Iterable[Path], on_import: Callable[[str, str], None] | None = None
    ) -> None:
        self._services = services
        self._on_import = on_import or _not_noted
        self._folders = list(folders)
        self._modules = Modules()
        self._lock = threading.RLock()
        self._wanting: set[int] = set()
        """Threads that wait for one command."""
        self._survey = Survey()
        self._sources: dict[str, Source] = {}
        self._skills: dict[str, Skill] = {}
        self._names = Names()
        self._entries: dict[str, Entry] = {}
        """By every name they answer to."""
        self._compiled_for: object = None
        self._declared: dict[int, Entry] = {}
        """The commands of the skills, by what they were declared with."""
        self._strangers: LRUCache[int, Entry] = LRUCache(_MOST_STRANGERS)
        self._owned: set[str] = set()
        """The modules that are skills themselves: who imports a command from there does not register it."""
        self._prepared = False
        self._settled = True
        """Whether all that is imported can be called."""
        self._environment = ""
        """What was installed before the first import."""
        self._since_ns = 0
        """When that was."""
        services.plugins.register(BuiltIn(), OURS)

    # Looking up

    def find(self, name: str, *, everywhere: bool = True) -> Entry | None:
        """The command that answers to an id, a wire name or an alias; loads as little as it can.

        Not `everywhere` is to look only into the skill that the name begins with: ids need no more.
        """
        name = name.replace("/", ".")
        if (entry := self.known(name)) is not None:
            return entry
        with self._urgently():
            self._prepare()
            self._load(self._candidates(name))
            if everywhere and name not in self._entries:
                self._load(self._sources)
            return self._entries.get(name)

    def known(self, name: str) -> Entry | None:
        """A command that is loaded already, and surely the one of this name."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        entry = self._entries.get(name)
        return entry if entry is None or entry.contract.id == name or self._is_settled(name) else None

    def _is_settled(self, name: str) -> bool:
        """Whether a name cannot be the id of a command that is not loaded yet: then it would be nobody's alias."""
        skill, dot, _ = name.partition(".")
        return not dot or skill in self._skills or skill not in self._sources

    def catalog(self) -> Catalog:
        """All contracts and all failures; loads everything."""
        with self._lock:
            self._prepare()
            self._load(self._sources)
            contracts = {contract.id: contract for contract in self._names.contracts.values()}
            failures = [*self._survey.failures, *self._names.clashes]
            failures.extend(failure for skill in self._skills.values() for failure in skill.failures)
            failures.sort(key=lambda item: (item.source, item.file or "", item.line or 0, item.reason))
            return Catalog(tuple(contracts[key] for key in sorted(contracts)), tuple(failures))

    def describe(self, known: Collection[str] = ()) -> Description:
        """All skills but the known ones, each by itself, with the files that they are made of."""
        with self._lock:
            self._prepare()
            wanted = [name for name in self._sources if name not in known]
        for name in wanted:
            while self._wanting:
                time.sleep(_TURN)
            with self._lock:
                self._import([name])
        with self._lock:
            self._settle()
            return self._description(self._skills)

    @property
    def loaded(self) -> Collection[str]:
        """The skills that have been imported, now and whenever one looks."""
        return self._skills.keys()

    def contracts_of(self, skill: str) -> tuple[Contract, ...]:
        """What an imported skill promises."""
        return tuple(entry.contract for entry in self._skills[skill].entries)

    def _description(self, skills: Mapping[str, Skill]) -> Description:
        folders = self._all_folders()
        facts = {name: self._facts(skill, folders) for name, skill in sorted(skills.items())}
        possible = [str(path) for path in candidates(folders)]
        imported = project_files(self._services.root)
        paths = {path for each in facts.values() for path in each.files}.union(possible)
        return Description(
            skills=facts,
            names=tuple(sorted({*self._sources, *self._skills})),
            failures=self._survey.failures,
            folders=tuple(str(folder) for folder in folders),
            candidates=tuple(possible),
            sightings=seen_all(paths, self._modules.read, self._since_ns),
            imported=imported,
            interpreter=sys.executable,
            sites=site_folders(),
            environment=self._environment,
        )

    def _facts(self, skill: Skill, folders: list[Path]) -> SkillFacts:
        source = skill.source
        own = package_files(skill.package) if source is None else source.files
        parts = Closure(own, ()) if source is None else closure(own, folders, self._services.root)
        has_hooks = source is None or source.has_hooks
        settings = self._settings_files() if has_hooks else Closure((), ())
        failures = list(skill.failures)
        views = self._views(skill, failures)
        return SkillFacts(
            contracts=tuple(entry.contract for entry in skill.entries),
            failures=tuple(failures),
            # of its own files some may have gone by now
            files=tuple(sorted({*map(str, parts.present.union(own, settings.present)), *self._unseen(parts)})),
            absent=tuple(sorted(map(str, parts.absent.difference(own).union(settings.absent)))),
            has_hooks=has_hooks,
            views=views,
        )

    def _unseen(self, parts: Closure) -> Collection[str]:
        """What a skill may have imported without saying so."""
        return project_files(self._services.root, self._modules.package) if parts.is_open else ()

    def _settings_files(self) -> Closure:
        """Where settings may stand: hooks are given them, and may do with them what they like."""
        files = [self._services.root / name for name in CONFIG_FILES]
        return Closure(filter(Path.is_file, files), itertools.filterfalse(Path.is_file, files))

    def _views(self, skill: Skill, failures: list[Failure]) -> dict[str, View]:
        """What clients are shown. Of a command that a profile cannot show, the reason is noted."""
        views: dict[str, View] = {}
        profiles = self._services.profiles
        for contract in (entry.contract for entry in skill.entries):
            name = contract.profile or self._services.settings.own.profile
            try:
                views[contract.id] = _view(contract, name, profiles)
            except Exception as error:  # noqa: BLE001 - the steps of a plugin
                reason = f"cannot be shown to clients: {message_of(error) or type(error).__name__}"
                failures.append(Failure(contract.id, reason, contract.source))
        return views

    def entry_of(self, declared: Declaration) -> Entry:
        """The entry of a decorated function, whether or not it belongs to a skill of this runtime."""
        if _loading.get():
            return self._entry_of(declared)
        with self._lock:
            self._prepare()
            return self._entry_of(declared)

    def _entry_of(self, declared: Declaration) -> Entry:
        known = self._declared.get(id(declared)) or self._strangers.get(id(declared))
        if known is None:
            module = declared.function.__module__.rpartition(".")[2].strip("_") or "main"
            known = Entry(compiled(declared, module, self._services), self._services)
            self._strangers[id(declared)] = known
        return known

    # Loading

    def _prepare(self) -> None:
        """What must be there before the first command: installed packages, and the skills with hooks."""
        if self._prepared:
            return
        self._environment, self._since_ns = environment_of(sys.executable, site_folders()), time.time_ns()
        packages = {f"package:{entry.name}:{entry.distribution}": entry for entry in installed()}
        self._owned.update(entry.module for entry in packages.values())
        for key, entry in packages.items():
            if key not in self._skills:
                self._skills[key] = self._adopted(entry, key)
        self._scan()
        self._settle()
        self._prepared = True

    def _scan(self) -> None:
        """See which skills there are, and load those with hooks: they may know further folders."""
        known: list[Path] | None = None
        while known != (folders := self._all_folders()):
            known = folders
            self._survey = survey(folders)
            self._sources = {source.name: source for source in self._survey.sources}
            self._owned |= {self._modules.name(it, file) for it in self._survey.sources for file in it.files}
            self._prune()
            for source in self._survey.sources:
                if source.has_hooks and source.name not in self._skills:
                    self._skills[source.name] = self._imported(source)

    def _prune(self) -> None:
        """Forget the skills that are not there any more."""
        gone = [name for name, skill in self._skills.items() if skill.source is not None and name not in self._sources]
        for name in gone:
            self._skills.pop(name).unplug()

    def _all_folders(self) -> list[Path]:
        return [*self._folders, *(folder for skill in self._skills.values() for folder in skill.folders)]

    def _candidates(self, name: str) -> Iterator[str]:
        """The skills that a command may be in, by its id or its wire name."""
        ids = {wire_name: command for command, wire_name in self._services.settings.own.wire_names.items()}
        for each in {name, ids.get(name, name)}:
            for skill in self._sources:
                if each.startswith(f"{skill}.") or ("." not in each and each.startswith(f"{skill}_")):
                    yield skill

    @contextlib.contextmanager
    def _urgently(self) -> Generator[None]:
        """Before those who want to know everything: locks go to whoever comes first, and that is who has it."""
        thread = threading.get_ident()
        self._wanting.add(thread)
        try:
            with self._lock:
                self._wanting.discard(thread)
                yield
        finally:
            self._wanting.discard(thread)

    def _load(self, names: Iterable[str]) -> None:
        self._import(names)
        if not self._settled:
            self._settle()

    def _import(self, names: Iterable[str]) -> None:
        for source in [self._sources[name] for name in names if name in self._sources and name not in self._skills]:
            self._skills[source.name] = self._imported(source)
            self._settled = False

    def _imported(self, source: Source) -> Skill:
        """Import every file of a skill. What fails is noted in it, and the rest of it goes on."""
        skill = Skill(source.name, self._services, self._modules.package, source)
        try:
            with _as_loading():
                for file in source.files:
                    self._on_import(source.name, str(file))
                    skill.attempt(partial(self._adopt, skill, source, file), str(file))
        except BaseException:
            skill.unplug()
            raise
        finally:
            self._on_import("", "")
        return skill

    def _adopt(self, skill: Skill, source: Source, file: Path) -> None:
        module = self._modules.load(source, file)
        package = self._modules.name(source, source.path)
        skill.adopt(module, package, self._owned.__contains__)

    def _adopted(self, entry: Installed, key: str) -> Skill:
        """Import an installed package."""
        skill = Skill(entry.name, self._services, entry.package)
        with _as_loading():
            skill.attempt(lambda: self._adopt_installed(skill, entry, key))
        return skill

    def _adopt_installed(self, skill: Skill, entry: Installed, key: str) -> None:
        if not NAME.fullmatch(entry.name):
            raise LoadError(f"the name of the entry point does not match {NAME.pattern}")
        plugin = entry.load()
        if isinstance(plugin, ModuleType):
            skill.adopt(plugin, plugin.__name__, self._owned.__contains__)
        elif declaration_of(plugin):
            skill.register(plugin)
        else:
            skill.plug(plugin, key)

    def _settle(self) -> None:
        """Make the commands of all that is loaded callable, as far as what it needs is there, and give them names."""
        self._settled = True
        self._forget_broken()
        services = self._services
        provided = (
            services.injectables.keys,
            set(services.profiles),
            services.plugins.has("prowess_render", beside=OURS),
        )
        for skill in self._skills.values():
            if provided != self._compiled_for or not skill.is_compiled:
                skill.compile()
        self._compiled_for = provided
        entries = [entry for skill in self._skills.values() for entry in skill.entries]
        self._declared = {id(entry.plan.declaration): entry for entry in entries}
        self._names = assign((entry.contract for entry in entries), services.settings.own.hide, services.root)
        owners = {id(entry.contract): entry for entry in entries}
        self._entries = {name: owners[id(contract)] for name, contract in self._names.contracts.items()}

    def _forget_broken(self) -> None:
        while broken := self._services.injectables.broken():
            for skill in self._skills.values():
                skill.forget(broken)
            self._services.injectables.forget(broken)

    # Reloading

    def reload(self) -> None:
        """See what was added, changed, renamed or deleted. A skill that no longer loads keeps its last good version."""
        with self._lock:
            if self._prepared:
                self._reload()

    def close(self) -> None:
        """Take the modules out of the interpreter again."""
        self._modules.close()

    def _reload(self) -> None:
        importlib.invalidate_caches()  # something may have been installed
        stale = self._modules.stale()
        now = {source.name: source for source in survey(self._all_folders()).sources}
        old = [
            _Old(name, skill, skill.source, frozenset(skill.gives))
            for name, skill in self._skills.items()
            if skill.source is not None and _is_touched(skill, now.get(name), stale)
        ]
        for one in old:
            self._skills.pop(one.name).unplug()
        dropped = self._modules.drop(stale.union(*(one.skill.kept for one in old)))
        self._scan()
        for one in old:
            if one.name in self._sources and one.name not in self._skills:
                self._skills[one.name] = self._imported(self._sources[one.name])
        self._forget_broken()
        if self._keep_good(old, dropped):
            self._scan()  # what is kept may know further folders
        self._settle()

    def _keep_good(self, old: list[_Old], dropped: Mapping[str, ModuleType]) -> bool:
        """Go on with the last good version of every skill that fails and gives less than it did."""
        kept = False
        for one in old:
            new = self._skills.get(one.name)
            if new is None:
                continue
            new.entries = one.skill.entries
            new.compile()
            if new.failures and not one.gave <= new.gives:
                new.unplug()
                elsewhere = {file for other in old if other is not one for file in other.source.files}
                mine = {name: it for name, it in dropped.items() if Path(str(it.__file__)) not in elsewhere}
                one.skill.keep(new, self._modules.restore(mine, one.source.files))
                self._skills[one.name] = one.skill
                kept = True
        return kept


@dataclass(frozen=True, slots=True)
class _Old:
    """A skill that is loaded anew, as it was."""

    name: str
    skill: Skill
    source: Source
    gave: frozenset[str]


def _view(contract: Contract, name: str, profiles: Mapping[str, Profile]) -> View:
    if name not in profiles:
        raise SchemaError(f"there is no profile {name!r}; known: {', '.join(sorted(profiles))}")
    profile = profiles[name]
    boxed, bare = profile.output_schema(contract), profile.output_schema(contract, boxed=False)
    return View(profile.input_schema(contract), boxed, bare)


def _not_noted(_skill: str, _file: str) -> None:
    """Nobody wants to know what is being imported."""


@contextlib.contextmanager
def _as_loading() -> Generator[None]:
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


def _is_touched(skill: Skill, source: Source | None, stale: set[Path]) -> bool:
    """Whether a skill has to be loaded anew. One that failed is always tried again: what it lacks may be elsewhere."""
    return source is None or source != skill.source or bool(skill.failures) or not stale.isdisjoint(source.files)
