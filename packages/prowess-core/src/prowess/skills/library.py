"""The skills of one runtime: finds them, imports each on demand, makes its commands callable, and resolves names."""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from cachetools import LRUCache

from prowess.contracts.catalog import PROFILE, Catalog, Failure
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import LOADING, NAME, Declaration, note_of
from prowess.contracts.names import Names, assign
from prowess.errors import InjectionError, LoadError, did_you_mean, message_of
from prowess.frozen import frozen
from prowess.injection.builtin import Libraries, OldSkills
from prowess.injection.provided import Key
from prowess.installed import Installed, installed
from prowess.profiles.profile import Profile, no_profile
from prowess.settings.limits import normal_name
from prowess.settings.paths import ConfigPaths
from prowess.skills.closure import Closure, closure
from prowess.skills.description import Description, SkillFacts, View, environment_of, seen_all, site_folders
from prowess.skills.discovery import Source, Survey, candidates, needs_of, survey
from prowess.skills.entry import Entry, Services
from prowess.skills.fingerprint import fingerprint
from prowess.skills.import_locks import ImportLocks
from prowess.skills.loading import Given, Modules, imported, package_files, project_files
from prowess.skills.skill import OURS, Skill, compiled
from prowess.telemetry.switch import telemetry_of

__all__ = ["Library", "Share"]

_MOST_STRANGERS: Final = 1024
"""Compiled commands outside of skills that are kept: enough for any test suite, but bounded for commands made in a loop."""

_TURN: Final = 0.001
"""Seconds between two checks whether all threads that wait for a command have got it."""
_MOST_TURNS: Final = 1000
"""After so many checks, a description continues, because the import may hang."""
_HALF_IMPORTED: Final = "partially initialized module"
"""Python's message about modules that import each other. With two threads, each may find the other's module half imported."""


@frozen
class Share:
    """The skills that this worker imports; other workers may import the rest."""

    only: Collection[str] | None = None
    """Import only these skills, without the shared providers of the project."""
    without: Collection[str] = ()
    sent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data of the project's providers, by name."""
    packages: Mapping[str, bool] | None = None
    """Whether the allowed installed packages are imported here, or by other workers. All others are refused. `None` imports all
    packages."""

    def imports(self, package: str) -> bool | None:
        """Whether an installed package is imported here; `None` if the owner has not decided."""
        if self.only is not None:
            return package in self.only
        return True if self.packages is None else self.packages.get(normal_name(package))

    def has(self, skill: str) -> bool:
        """Whether a skill is imported here."""
        return skill not in self.without if self.only is None else skill in self.only


class Library:
    """The skills of a runtime, loaded as late as possible. Thread-safe."""

    def __init__(  # noqa: PLR0915 - one line for each thing it remembers
        self,
        services: Services,
        folders: Iterable[Path],
        on_import: Callable[[str, str], None] | None = None,
        share: Share = Share(),  # noqa: B008 - it never changes
    ) -> None:
        self._services = services
        self._share = share
        services.injectables.isolated = share.only is not None
        services.injectables.receive(share.sent)
        services.fingerprint = self.fingerprint
        self._on_import = on_import or _ignore_import
        self._folders = list(folders)
        self._modules = Modules(services.root)
        self._lock = threading.RLock()
        """Protects everything except imports, which can take long."""
        self._imports = ImportLocks()
        self._strangers_lock = threading.Lock()
        self._wanting: set[int] = set()
        """Threads that wait for a single command."""
        self._survey = Survey()
        self._sources: dict[str, Source] = {}
        self._skills: dict[str, Skill] = {}
        self._names = Names()
        self._entries: dict[str, Entry] = {}
        """The entries by all their names."""
        self.loaded: Mapping[str, tuple[Contract, ...]] = {}
        """The contracts of the skills whose commands can be called; another object after each change.

        A skill that another thread is importing is not among them yet.
        """
        self._compiled_for: object = None
        self._declared: dict[int, Entry] = {}
        """The entries of the skills, by the id of their declaration."""
        self._strangers: LRUCache[int, Entry] = LRUCache(_MOST_STRANGERS)
        self._owned: set[str] = set()
        """The modules of skills. A module that imports a command from there does not register it."""
        self._given: dict[str, Given] = {}
        """Skills that are imported from given sources instead of their files."""
        self._new_given: deque[Given] = deque()
        """New sources that are not processed yet. They come from a thread that must not wait."""
        self._prepared = False
        self._settled = True
        """Whether all imported commands can be called."""
        self._environment = ""
        """A digest of the packages that were installed before the first import."""
        self._since_ns = 0
        """The time of that digest."""
        self._elsewhere: set[str] = set()
        """Installed packages that other workers import."""
        self._trees: dict[Path, ast.AST] = {}
        services.plugins.register(Libraries(), f"{OURS}:libraries")
        services.plugins.register(OldSkills(), f"{OURS}:old-skills")
        if (telemetry := telemetry_of(services.settings, services.root)) is not None:
            services.plugins.register(telemetry, f"{OURS}:telemetry")

    # Look-up

    def find(self, name: str, *, everywhere: bool = True) -> Entry | None:
        """The command with an id, a wire name or an alias. Loads as little as possible.

        Without `everywhere`, only the skill at the beginning of the name is searched, which is enough for ids.
        """
        name = name.replace("/", ".")
        if (entry := self.known(name)) is not None:
            return entry
        with self._as_urgent():
            self._load(lambda: self._candidates(name))
            if everywhere and name not in self._entries:
                self._load(lambda: self._sources)
            return self._entries.get(name)

    def known(self, name: str) -> Entry | None:
        """A loaded command that certainly has this name, or `None`."""
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        entry = self._entries.get(name)
        if entry is None:
            return None
        if self._new_given and any(given.source.name == entry.contract.skill for given in list(self._new_given)):
            return None
        return entry if entry.contract.id == name or self._is_settled(name, entry) else None

    def _is_settled(self, name: str, entry: Entry) -> bool:
        """Whether no command that is not loaded yet can have a name as its own, which would take precedence over an alias."""
        skill, dot, _ = name.partition(".")
        if not dot:
            return name == entry.contract.wire_name or all(each in self._skills for each in self._candidates(name))
        return skill in self._skills or skill not in self._sources

    def catalog(self) -> Catalog:
        """All contracts and all failures; loads everything."""
        self._load(lambda: self._sources)
        with self._lock:
            contracts = {contract.id: contract for contract in self._names.contracts.values()}
            failures = [*self._survey.failures, *self._names.clashes]
            failures.extend(failure for skill in self._skills.values() for failure in skill.failures)
            failures.sort(key=lambda item: (item.source, item.file or "", item.line or 0, item.reason))
            return Catalog(tuple(contracts[key] for key in sorted(contracts)), tuple(failures))

    def module(self, name: str) -> ModuleType:
        """The module of a skill, or one in a folder skill, by its dotted name."""
        skill, _, inner = name.partition(".")
        self._load(lambda: [skill])
        with self._lock:
            source = self._sources.get(skill)
            if source is None:
                places = ", ".join(map(str, self._all_folders()))
                known = sorted(self._sources)
                raise LoadError(f"there is no skill {skill!r} in {places}{did_you_mean(skill, known)}")
            found = self._modules.name(source, source.path)
        with self._as_loading():
            return importlib.import_module(f"{found}.{inner}" if inner else found)

    def describe(self, known: Collection[str] = (), most: int | None = None) -> Description:
        """Describe all skills except the known ones, each with its files.

        If these are more than `most`, only the imported ones are described.
        """
        with self._lock:
            self._prepare()
            missing = [name for name in self._sources if name not in {*known, *self._skills} and self._share.has(name)]
        if most is None or len(missing) <= most:
            self._import_all(missing)
        with self._lock:
            self._settle()
            kept = {name for name, given in self._given.items() if given.kept}
            return self._description({name: skill for name, skill in self._skills.items() if name not in kept})

    def describe_part(self, names: Collection[str]) -> Description:
        """Describe only these skills, without the common fields that take time."""
        with self._lock:
            self._prepare()
        self._import_all(names)
        with self._lock:
            self._settle()
            skills = {name: self._skills[name] for name in names if name in self._skills}
            return self._description(skills, whole=False)

    def _import_all(self, names: Iterable[str]) -> None:
        for name in names:
            self._let_others_go_first()
            self._import(name)

    def give(self, given: Given) -> None:
        """Import a skill from these sources from now on. Does not wait, and does not import yet."""
        if not self._is_better(given):
            return
        self._new_given.append(given)

    def texts_of(self, files: Iterable[str]) -> dict[str, bytes]:
        """The texts of files at the time of their import, else their current texts."""
        return self._modules.texts_of(files)

    def reasons(self, command: str) -> list[str]:
        """Why a command cannot be found: the failures of the skill that would have it."""
        skills = [self._skills[name] for name in self._candidates(command) if name in self._skills]
        return [str(failure) for skill in skills for failure in skill.failures]

    def fingerprint(self, skill: str) -> str:
        """A digest of the code that the results of a skill depend on; empty if that is unknown."""
        with self._lock:
            skills = [each for each in self._skills.values() if each.name == skill or _has_hooks(each)]
            folders, root = self._all_folders(), self._services.root
            own = [file for each in skills if each.source is not None for file in each.source.files]
        if self._services.settings.own.inject.container is not None:
            return ""  # the skill may import any file
        parts = closure(own, folders, root)
        if parts.is_open:
            return ""
        installed = [file for each in skills if each.source is None for file in package_files(each.package)]
        texts = self._modules.texts_of(map(str, {*parts.present, *own, *installed}))
        if self._share.sent:
            texts = {**texts, "data of the project": json.dumps(self._share.sent, sort_keys=True).encode()}
        return fingerprint(texts, root, site_folders())

    def _description(self, skills: Mapping[str, Skill], *, whole: bool = True) -> Description:
        folders = self._all_folders()
        self._trees.clear()  # each file is parsed once for all skills
        facts = {name: self._facts(skill, folders) for name, skill in sorted(skills.items())}
        self._trees.clear()
        possible = [str(path) for path in candidates(folders)] if whole else []
        imported = project_files(self._services.root)
        paths = {path for each in facts.values() for path in each.files}.union(possible)
        return Description(
            skills=facts,
            names=tuple(sorted({*self._sources, *self._skills, *self._elsewhere})),
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
        parts = Closure(own, ()) if source is None else closure(own, folders, self._services.root, self._trees)
        needs = _present([] if source is None else needs_of(source))
        has_hooks = source is None or source.has_hooks
        settings = self._settings_files() if has_hooks else Closure((), ())
        failures = list(skill.failures)
        views = self._views(skill, failures)
        return SkillFacts(
            contracts=tuple(entry.contract for entry in skill.entries),
            failures=tuple(failures),
            # some of its own files may have been deleted since
            files=tuple(
                sorted({*map(str, parts.present.union(own, settings.present, needs.present)), *self._unseen(parts)})
            ),
            absent=tuple(sorted(map(str, parts.absent.difference(own).union(settings.absent, needs.absent)))),
            has_hooks=has_hooks,
            views=views,
            place="" if source is None else str(source.path),
            own=() if source is None else tuple(map(str, source.files)),
            sent=skill.sent,
        )

    def _unseen(self, parts: Closure) -> Collection[str]:
        """The files that a skill may have imported by computed names."""
        return project_files(self._services.root, self._modules.package) if parts.is_open else ()

    def _settings_files(self) -> Closure:
        """The files of settings, because hooks get the settings and may depend on them."""
        return _present(ConfigPaths.of(self._services.settings, os.environ).settings_files)

    def _views(self, skill: Skill, failures: list[Failure]) -> dict[str, View]:
        """The schemas for clients. If a profile cannot show a command, a failure is added."""
        views: dict[str, View] = {}
        profiles, settings = self._services.profiles, self._services.settings
        usual = settings.own.profile
        if skill.entries and usual not in profiles:  # the same failure for every skill, which the catalog shows once
            reason = f"{settings.origin_of('profile')}: {no_profile(usual, profiles)}"
            failures.append(Failure(PROFILE, reason))
        for contract in (entry.contract for entry in skill.entries):
            name = contract.profile or usual
            if contract.is_tool and name not in profiles:
                continue
            try:
                views[contract.id] = _view(contract, name, profiles)
            except Exception as error:  # noqa: BLE001 - the steps of a plugin
                reason = f"cannot be shown to clients: {message_of(error) or type(error).__name__}"
                failures.append(Failure(contract.id, reason, contract.source))
        return views

    def entry_of(self, declared: Declaration) -> Entry:
        """The entry of a decorated function, which need not belong to a skill of this runtime."""
        if LOADING.get() is not None:  # perhaps in another thread than that of the import, which holds the lock
            return self._entry_of(declared)
        with self._lock:
            self._prepare()
            return self._entry_of(declared)

    def _entry_of(self, declared: Declaration) -> Entry:
        known = self._declared.get(id(declared)) or self._strangers.get(id(declared))
        if known is None:
            module = declared.function.__module__.rpartition(".")[2].strip("_") or "main"
            known = Entry(compiled(declared, module, self._services), self._services)
            with self._strangers_lock:  # a module may call this during its import, without the other lock
                self._strangers[id(declared)] = known
        return known

    def check_override(self, key: Key) -> None:
        """Raise an error if an override replaces nothing. Loads everything if what is loaded does not say that it does."""
        injectables = self._services.injectables
        with self._lock:
            self._prepare()
        if injectables.replaces(key, self._asked()):
            return
        self._settled = False  # a command that lacked the value failed to load, and no longer does
        failures = self.catalog().failures
        if injectables.replaces(key, self._asked()):
            return
        reason, is_slip = injectables.why_unused(key, self._asked(strangers=False))
        if reason and (is_slip or not self._strangers):  # where Python code adds commands, the next one may ask for it
            failed = f". This could not be loaded: {failures[0]}" if failures else ""
            raise InjectionError(f"{reason}{failed}")

    def _asked(self, *, strangers: bool = True) -> set[Key]:
        """The keys that the commands of the skills ask for, and those of `strangers`."""
        with self._lock:
            entries = [*self._entries.values(), *(self._strangers.values() if strangers else ())]
        return {need.key for entry in entries for need in entry.plan.needs if need.source == "provider"}

    # Loading

    def _prepare(self) -> None:
        """Load what every command needs: installed packages, and the skills with hooks."""
        if self._prepared:
            if self._new_given:
                self._take_given()
            return
        self._take_given()
        self._environment, self._since_ns = environment_of(sys.executable, site_folders()), time.time_ns()
        packages = {f"package:{entry.name}:{entry.distribution}": entry for entry in installed()}
        self._owned.update(entry.module for entry in packages.values())
        for key, entry in packages.items():
            here = self._share.imports(entry.name)
            if here is False:
                self._elsewhere.add(key)
            if key not in self._skills and here is not False:
                self._skills[key] = self._adopted(entry, key) if here else self._refused(entry)
        container = self._services.settings.own.inject.container
        if container is not None and self._share.only is None and "inject.container" not in self._skills:
            self._skills["inject.container"] = self._with_container(container)
        self._scan()
        self._settle()
        self._prepared = True

    def _take_given(self) -> None:
        """Process new given sources. The former version of such a skill is dropped."""
        taken = [self._new_given.popleft() for _ in range(len(self._new_given))]
        fresh = [given for given in taken if self._is_better(given)]  # a skill may have been imported since
        for given in fresh:
            name = given.source.name
            if name in self._skills:  # it was imported from files that fail to load
                given = replace(given, kept=True)
                self._skills.pop(name).unplug()
            self._given[name] = given
            self._modules.give(given)
        if fresh and self._prepared:
            self._scan()
            self._settle()

    def _is_better(self, given: Given) -> bool:
        """Whether a skill has to be imported from these sources, even if it was imported before."""
        skill = self._skills.get(given.source.name)
        return skill is None or given.kept or bool(skill.failures)

    def _scan(self) -> None:
        """Find the skills, and load those with hooks, which may add folders."""
        seen: list[list[Path]] = []
        # A plugin may clash with a skill in a folder that it adds itself. It is removed with that folder, and not tried again.
        while (folders := self._all_folders()) not in seen:
            seen.append(folders)
            self._survey = survey(folders)
            self._sources = {source.name: source for source in self._survey.sources}
            self._sources |= {name: given.source for name, given in self._given.items()}
            self._owned |= {self._modules.name(each, file) for each in self._sources.values() for file in each.files}
            self._prune()
            for source in self._sources.values():
                if source.has_hooks and source.name not in self._skills and self._share.has(source.name):
                    self._skills[source.name] = self._imported(source)

    def _prune(self) -> None:
        """Drop the skills that no longer exist."""
        gone = [name for name, skill in self._skills.items() if skill.source is not None and name not in self._sources]
        for name in gone:
            self._skills.pop(name).unplug()

    def _all_folders(self) -> list[Path]:
        return [*self._folders, *(folder for skill in self._skills.values() for folder in skill.folders)]

    def _candidates(self, name: str) -> Iterator[str]:
        """The possible skills of a command, by its id or wire name."""
        ids = {wire_name: command for command, wire_name in self._services.settings.own.wire_names.items()}
        for each in {name, ids.get(name, name)}:
            for skill in self._sources:
                if each.startswith(f"{skill}.") or ("." not in each and each.startswith(f"{skill}_")):
                    yield skill

    def _let_others_go_first(self) -> None:
        """Wait for the threads that need a single command, but not for an import that hangs."""
        for _ in range(_MOST_TURNS):
            if not self._wanting:
                return
            time.sleep(_TURN)

    @contextlib.contextmanager
    def _as_urgent(self) -> Generator[None]:
        """Mark this thread as waiting for a single command, so that a thread that imports all skills lets it go first."""
        thread = threading.get_ident()
        self._wanting.add(thread)
        try:
            yield
        finally:
            self._wanting.discard(thread)

    def _load(self, names: Callable[[], Iterable[str]]) -> None:
        """Import skills, and make their commands callable."""
        with self._lock:
            self._prepare()
            missing = [name for name in names() if name not in self._skills]
        for name in missing:
            self._import(name)
        with self._lock:
            if not self._settled:
                self._settle()

    def _import(self, name: str) -> None:
        """Import one skill once. Other threads can import other skills at the same time."""
        if self._modules.takes_modules_out(name):
            self._import_alone(name)
            return
        with self._imports.one(name) as mine:
            source = self._missing(name) if mine else None
            if source is None:
                return
            skill = self._imported(source)
            if not (self._imports.overlapped(name) and _found_half_imported(skill)):
                self._publish(source, skill)
                return
            self._unplug(skill)
        self._import_alone(name)

    def _import_alone(self, name: str) -> None:
        with self._imports.alone(name) as mine:
            source = self._missing(name) if mine else None
            if source is not None:
                self._publish(source, self._imported(source))

    def _missing(self, name: str) -> Source | None:
        """The files of a skill that is not imported yet, or `None`."""
        with self._lock:
            return self._sources.get(name) if name not in self._skills and self._share.has(name) else None

    def _publish(self, source: Source, skill: Skill) -> None:
        with self._lock:
            self._skills[source.name] = skill
            self._settled = False

    def _unplug(self, skill: Skill) -> None:
        with self._lock:
            skill.unplug()

    def _imported(self, source: Source) -> Skill:
        """Import every file of a skill. A failure is noted in the skill, and the other files are still imported."""
        skill = Skill(source.name, self._services, self._modules.package, source)
        try:
            with self._as_loading():
                for file in source.files:
                    self._on_import(source.name, str(file))
                    with self._modules.as_given(source.name):
                        skill.attempt(partial(self._adopt, skill, source, file), str(file))
            skill.check_made()
        except BaseException:
            self._unplug(skill)
            raise
        finally:
            self._on_import(source.name, "")
        return skill

    def _adopt(self, skill: Skill, source: Source, file: Path) -> None:
        module = self._modules.load(source, file)
        package = self._modules.name(source, source.path)
        with self._lock:
            skill.adopt(module, package, self._is_owned)

    @contextlib.contextmanager
    def _as_loading(self) -> Generator[None]:
        token = LOADING.set(self._is_owned)
        try:
            yield
        finally:
            LOADING.reset(token)

    def _is_owned(self, module: str) -> bool:
        """Whether a module is a skill, or was one before it broke."""
        return module in self._owned or self._modules.usual_name(module) in self._owned

    def _adopted(self, entry: Installed, key: str) -> Skill:
        """Import an installed package."""
        skill = Skill(entry.name, self._services, entry.package)
        with self._as_loading():
            skill.attempt(lambda: self._adopt_installed(skill, entry, key))
            skill.check_made()
        return skill

    def _refused(self, entry: Installed) -> Skill:
        """The failure for an installed package that the owner has not allowed to run."""
        skill = Skill(entry.name, self._services, entry.package)
        reason = (
            f"it belongs to the installed package {entry.distribution}, and is not allowed to run: "
            f"`prowess trust {entry.name}` shows its commands and limits, and asks"
        )
        skill.fail(LoadError(reason))
        return skill

    def _adopt_installed(self, skill: Skill, entry: Installed, key: str) -> None:
        if not NAME.fullmatch(entry.name):
            raise LoadError(f"the name of the entry point does not match {NAME.pattern}")
        plugin = entry.load()
        if isinstance(plugin, ModuleType):
            skill.adopt(plugin, plugin.__name__, self._is_owned)
        elif note_of(plugin):
            skill.register(plugin)
        elif isinstance(plugin, (FunctionType, partial)):
            raise LoadError(
                f"the entry point leads to {plugin!r}, which must be a command; put @skill_command on top of its decorators"
            )
        else:
            skill.plug(plugin, key)

    def _with_container(self, name: str) -> Skill:
        """Import the project's dependency-injector container, which has providers like a plugin."""
        settings = self._services.settings
        skill = Skill("inject.container", self._services, name.partition(":")[0].partition(".")[0])
        with self._as_loading():
            skill.attempt(
                lambda: skill.provide(imported(name, self._services.root)),
                str(settings.config_file) if settings.config_file else None,
            )
        return skill

    def _settle(self) -> None:
        """Make the loaded commands callable if their dependencies exist, and assign names."""
        self._settled = True
        self._forget_broken()
        services = self._services
        provided = (
            services.injectables.keys,
            set(services.profiles),
            services.plugins.has("prowess_render", beside=f"{OURS}:"),
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
        self.loaded = {name: tuple(entry.contract for entry in skill.entries) for name, skill in self._skills.items()}

    def _forget_broken(self) -> None:
        while broken := self._services.injectables.broken():
            for skill in self._skills.values():
                skill.forget(broken)
            self._services.injectables.forget(broken)

    def close(self) -> None:
        """Remove the modules from the interpreter."""
        self._modules.close()


def _view(contract: Contract, name: str, profiles: Mapping[str, Profile]) -> View:
    if not contract.is_tool:  # profiles apply only to tools
        return View(contract.input_schema, None, None)
    profile = profiles[name]
    boxed, bare = profile.output_schema(contract), profile.output_schema(contract, boxed=False)
    return View(profile.input_schema(contract), boxed, bare)


def _present(files: Collection[Path]) -> Closure:
    """Existing files, and files that may appear later."""
    return Closure(filter(Path.is_file, files), itertools.filterfalse(Path.is_file, files))


def _has_hooks(skill: Skill) -> bool:
    """Whether a skill may affect the results of other skills, as every installed package may."""
    return skill.source is None or skill.source.has_hooks


def _found_half_imported(skill: Skill) -> bool:
    """Whether a skill failed because a module that it imports was half imported."""
    return any(_HALF_IMPORTED in failure.reason for failure in skill.failures)


def _ignore_import(_skill: str, _file: str) -> None:
    """The default of `on_import`."""
