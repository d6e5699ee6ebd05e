"""The skills of one runtime: found, imported one by one on demand, compiled, named, and reloaded."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from prowess.builtin import BuiltIn
from prowess.catalog import Catalog, Failure
from prowess.compile import compile_command
from prowess.contract import Contract
from prowess.declaration import Declaration, declaration_of
from prowess.discovery import Source, content_hash, survey
from prowess.entry import Entry, Services
from prowess.errors import ClashError, LoadError, SchemaError
from prowess.hookspecs import hookimpl
from prowess.loading import Modules, dependencies
from prowess.plugins import failure_of, installed
from prowess.profiles import Profile

__all__ = ["Library"]

_WIRE_NAME_LIMIT = 64


@dataclass(slots=True)
class _Skill:
    """One loaded skill: its commands, and what could not be loaded of it."""

    name: str
    source: Source | None = None
    version: str = ""
    entries: list[Entry] = field(default_factory=list[Entry])
    failures: list[Failure] = field(default_factory=list[Failure])
    plugins: list[str] = field(default_factory=list[str])
    provided: list[Any] = field(default_factory=list[Any])


class SkillModule:
    """The plugin that a module of decorated functions is: it registers those that were defined in it."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    @hookimpl
    def prowess_commands(self, register: Callable[[Any], None]) -> None:
        """Register the module's commands, in the order of the file."""
        commands = {id(value): value for value in vars(self._module).values() if declaration_of(value)}
        for command in commands.values():
            if command.__module__ == self._module.__name__:
                register(command)


class Library:
    """Everything that can be called, loaded as late as possible. Safe to use from several threads."""

    def __init__(self, services: Services, folders: Iterable[Path]) -> None:
        self._services = services
        self._folders = list(folders)
        self._modules = Modules()
        self._lock = threading.RLock()
        self._sources: dict[str, Source] = {}
        self._skills: dict[str, _Skill] = {}
        self._names: dict[str, Entry] = {}
        self._found: tuple[Failure, ...] = ()
        self._clashes: list[Failure] = []
        self._broken: dict[str, Failure] = {}
        self._prepared = self._complete = False

    # Looking up

    def find(self, name: str) -> Entry | None:
        """The command that answers to an id, a wire name or an alias; loads as little as it can."""
        name = name.replace("/", ".")
        if name in self._names:
            return self._names[name]
        with self._lock:
            self._prepare()
            for skill in self._candidates(name):
                self._load(skill)
            if name not in self._names:
                self._load_all()
            return self._names.get(name)

    def known(self, name: str) -> Entry | None:
        """A command that is loaded already."""
        return self._names.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]

    def catalog(self) -> Catalog:
        """All contracts and all failures; loads everything."""
        with self._lock:
            self._prepare()
            self._load_all()
            contracts = {entry.contract.id: entry.contract for entry in self._names.values()}
            failures = [*self._found, *self._clashes, *self._broken.values()]
            failures.extend(failure for skill in self._skills.values() for failure in skill.failures)
            failures.sort(key=lambda item: (item.source, item.file or "", item.line or 0, item.reason))
            return Catalog(tuple(contracts[key] for key in sorted(contracts)), tuple(failures))

    def entry_of(self, declared: Declaration) -> Entry:
        """The entry of a decorated function, whether or not it belongs to a skill of this runtime."""
        with self._lock:
            self._prepare()
            for skill in self._skills.values():
                for entry in skill.entries:
                    if entry.plan.declaration is declared:
                        return entry
            module = declared.function.__module__.rpartition(".")[2].strip("_") or "main"
            return self._compile(declared, module)

    # Loading

    def _prepare(self) -> None:
        """What must be there before the first command: built-ins, installed packages, and skills with hooks."""
        if self._prepared:
            return
        self._prepared = True
        self._services.plugins.register(BuiltIn(), "prowess:builtin")
        for name, load in installed():
            self._adopt_installed(name, load)
        self._scan()
        for source in self._sources.values():
            if source.has_hooks:
                self._load(source.name)
        self._collect_profiles()

    def _scan(self) -> None:
        services = self._services
        folders = list(self._folders)
        for name, give in services.plugins.each("prowess_skill_folders"):
            try:
                folders.extend(Path(item) for item in give(project_root=services.root, settings=services.settings))
            except Exception as error:  # noqa: BLE001 - a plugin's failure is an entry of the catalog
                self._broken[name] = failure_of(error, source=name)
        found = survey(folders)
        self._sources = {source.name: source for source in found.sources}
        self._found = found.failures

    def _candidates(self, name: str) -> Iterator[str]:
        for skill in self._sources:
            if name.startswith((f"{skill}.", f"{skill}_")):
                yield skill

    def _load_all(self) -> None:
        if not self._complete:
            for name in self._sources:
                self._load(name)
            self._complete = True

    def _load(self, name: str) -> None:
        if name not in self._skills and name in self._sources:
            self._skills[name] = self._loaded(self._sources[name])
            self._rename()

    def _loaded(self, source: Source) -> _Skill:
        """Import one skill. What fails is noted in it, and the rest of it goes on."""
        skill = _Skill(source.name, source, content_hash(dependencies(source)))
        for file in source.files:
            one = Source(source.name, source.folder, (file,))
            try:
                for module in self._modules.load(one):
                    self._adopt(skill, module)
            except BaseException as error:
                if not isinstance(error, (Exception, SystemExit)):
                    raise
                skill.failures.append(failure_of(error, source=source.name, file=str(file)))
        return skill

    def _adopt_installed(self, name: str, load: Callable[[], object]) -> None:
        skill = _Skill(name)
        try:
            plugin = load()
            if isinstance(plugin, ModuleType):
                self._adopt(skill, plugin)
            else:
                self._plug(skill, plugin, f"package:{name}")
        except BaseException as error:
            if not isinstance(error, (Exception, SystemExit)):
                raise
            skill.failures.append(failure_of(error, source=name))
        self._skills[name] = skill
        self._rename()

    def _adopt(self, skill: _Skill, module: ModuleType) -> None:
        """Register a module as a plugin, twice over: for its hooks and for its decorated functions."""
        self._plug(skill, module, f"hooks:{module.__name__}")
        self._plug(skill, SkillModule(module), f"skill:{module.__name__}")

    def _plug(self, skill: _Skill, plugin: object, name: str) -> None:
        plugins = self._services.plugins
        plugins.register(plugin, name)
        skill.plugins.append(name)
        for _, provide in plugins.each("prowess_injectables", plugin=name):
            self._provide(skill, provide)
        for _, give in plugins.each("prowess_commands", plugin=name):
            give(register=lambda command: self._register(skill, command))

    def _provide(self, skill: _Skill, hook: Callable[..., Any]) -> None:
        injectables = self._services.injectables
        before = injectables.keys
        try:
            hook(provide=injectables.provide)
            injectables.check()
        except Exception:
            injectables.forget(injectables.keys - before)
            raise
        skill.provided.extend(injectables.keys - before)

    def _register(self, skill: _Skill, command: object) -> None:
        declared = declaration_of(command)
        if declared is None:
            raise LoadError(f"{command!r} is not a command: decorate it with @skill_command")
        try:
            skill.entries.append(self._compile(declared, skill.name))
        except LoadError as error:
            skill.failures.append(failure_of(error, source=f"{skill.name}.{declared.name}"))

    def _compile(self, declared: Declaration, skill: str) -> Entry:
        services = self._services
        plan = compile_command(
            declared, skill=skill, injectables=services.injectables, settings=services.settings, root=services.root
        )
        _check_contract(plan.contract, services.profiles, declared)
        return Entry(plan, services)

    def _collect_profiles(self) -> None:
        def register(profile: Profile) -> None:
            self._services.profiles[profile.name] = profile

        for name, give in self._services.plugins.each("prowess_profiles"):
            try:
                give(register=register)
            except Exception as error:  # noqa: BLE001 - a plugin's failure is an entry of the catalog
                self._broken[name] = failure_of(error, source=name)

    # Naming

    def _rename(self) -> None:
        """Who answers to which name. A name that two commands claim is nobody's, unless it is the id of one of them."""
        claims: dict[str, list[Entry]] = {}
        entries = [entry for skill in self._skills.values() for entry in skill.entries if not self._hidden(entry)]
        for entry in entries:
            for name in {entry.contract.id, entry.contract.wire_name, *entry.contract.aliases}:
                claims.setdefault(name, []).append(entry)
        refused: dict[int, Failure] = {}
        for name in sorted(claims):
            for entry in _losers(name, claims[name]):
                others = [other for other in claims[name] if other is not entry]
                refused.setdefault(id(entry), _clash(name, entry, others))
        self._clashes = list(refused.values())
        self._names = {}
        for name, claimants in claims.items():
            for entry in claimants:
                if id(entry) not in refused:
                    self._names[name] = entry

    def _hidden(self, entry: Entry) -> bool:
        """Whether the setting `hide` takes a command away; the last pattern that fits decides."""
        hidden = False
        for pattern in self._services.settings.own.hide:
            if fnmatch.fnmatchcase(entry.contract.id, pattern.removeprefix("!")):
                hidden = not pattern.startswith("!")
        return hidden

    # Reloading

    def reload(self) -> None:
        """See what was added, changed, renamed or deleted. A skill that no longer loads keeps its last good version."""
        with self._lock:
            if not self._prepared:
                return
            self._scan()
            for name in [name for name, skill in self._skills.items() if skill.source and name not in self._sources]:
                self._drop(self._skills.pop(name))
            for name in [name for name in self._skills if name in self._sources]:
                self._refresh(name)
            self._complete = False
            self._rename()

    def _refresh(self, name: str) -> None:
        source, old = self._sources[name], self._skills[name]
        version = content_hash(dependencies(source))
        if version == old.version and source == old.source:
            return
        files = dependencies(source) | (dependencies(old.source) if old.source else set())
        dropped = self._modules.drop(files)
        self._drop(old)
        new = self._loaded(source)
        if new.failures and not old.failures:
            self._keep(old, new, dropped)
            new = old
        self._skills[name] = new

    def _keep(self, old: _Skill, new: _Skill, modules: dict[str, ModuleType]) -> None:
        """Go on with the last good version, and say why."""
        self._drop(new)
        self._modules.restore(modules)
        failures, version = new.failures, new.version
        old.failures = [Failure(item.source, f"{item.reason} (the last good version goes on)", item.file, item.line) for item in failures]
        old.version = version
        for name, module in modules.items():
            for plugin, key in ((module, f"hooks:{name}"), (SkillModule(module), f"skill:{name}")):
                if key in old.plugins:
                    self._services.plugins.register(plugin, key)

    def _drop(self, skill: _Skill) -> None:
        for plugin in skill.plugins:
            self._services.plugins.unregister(plugin)
        self._services.injectables.forget(skill.provided)

    def close(self) -> None:
        self._modules.close()


def _losers(name: str, claimants: list[Entry]) -> list[Entry]:
    """Those who may not have a name: all of several, but not the one whose id it is."""
    if len(claimants) == 1:
        return []
    owners = [entry for entry in claimants if entry.contract.id == name]
    return [entry for entry in claimants if len(owners) != 1 or entry is not owners[0]]


def _clash(name: str, entry: Entry, others: list[Entry]) -> Failure:
    places = ", ".join(f"{other.contract.id} ({other.contract.source})" for other in others)
    place = entry.plan.declaration.place
    error = ClashError(f"the name {name!r} is also claimed by {places}; rename one", file=place.file, line=place.line)
    return failure_of(error, source=entry.contract.id)


def _check_contract(contract: Contract, profiles: dict[str, Profile], declared: Declaration) -> None:
    place = declared.place
    if len(contract.wire_name) > _WIRE_NAME_LIMIT:
        reason = f"the wire name {contract.wire_name!r} is longer than {_WIRE_NAME_LIMIT} characters; clients refuse it"
        raise LoadError(reason, file=place.file, line=place.line)
    if contract.profile is not None and contract.profile not in profiles:
        known = ", ".join(sorted(profiles))
        raise SchemaError(f"there is no profile {contract.profile!r}; known: {known}", file=place.file, line=place.line)
