"""One skill of a runtime: its modules as plugins, what they bring, and what of it failed. Imports nothing itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from prowess.catalog import Failure
from prowess.compile import Plan, compile_command
from prowess.declaration import Declaration, declaration_of
from prowess.discovery import Source
from prowess.entry import Entry, Services
from prowess.errors import InjectionError, LoadError, SchemaError
from prowess.failures import failure_of, is_interrupt
from prowess.hookspecs import hookimpl
from prowess.injection import Key
from prowess.profiles import Profile

__all__ = ["OURS", "ModuleCommands", "Skill", "compiled"]

OURS: Final = "prowess"
"""The name of the plugin that Prowess itself is."""
_WIRE_NAME_LIMIT: Final = 64


class ModuleCommands:
    """The plugin that a module of decorated functions is: it registers what is defined there, in the order of the file.

    A command that was imported belongs to where it was defined. It is registered here if that is no skill itself (`owned`
    says so) and it is part of the module's own package, or listed in its `__all__`.
    """

    def __init__(self, module: ModuleType, package: str, owned: Callable[[str], bool]) -> None:
        self._module = module
        self._package = package
        self._owned = owned

    @hookimpl
    def prowess_commands(self, register: Callable[[Any], None]) -> None:
        """Register the module's commands."""
        listed = getattr(self._module, "__all__", ())
        for name, value in list(vars(self._module).items()):
            if type(value) is FunctionType and declaration_of(value) and self._belongs(value, name in listed):
                register(value)

    def _belongs(self, command: FunctionType, listed: bool) -> bool:
        home = command.__module__
        if home == self._module.__name__:
            return True
        return not self._owned(home) and (listed or home.startswith(f"{self._package}."))


class Skill:
    """What one skill, or one installed package, brings. Whatever fails is noted, and the rest goes on."""

    def __init__(self, name: str, services: Services, package: str, source: Source | None = None) -> None:
        self.name = name
        self.source = source
        self.package = package
        """The package of its modules: lines in it are the author's own."""
        self.entries: list[Entry] = []
        self.folders: list[Path] = []
        """Further folders of skills."""
        self.kept: frozenset[Path] = frozenset()
        """The files that run on as they were, since they no longer load."""
        self.is_compiled = False
        self._services = services
        self._failures: list[Failure] = []
        self._refused: list[Failure] = []
        self._plugins: dict[str, object] = {}
        self._commands: list[Declaration] = []
        self._provided: dict[Key, tuple[str, int]] = {}
        """What can be injected, each with the place where it was provided."""
        self._profiles: list[str] = []

    @property
    def failures(self) -> list[Failure]:
        """What could not be loaded of it."""
        return [*self._failures, *self._refused]

    @property
    def gives(self) -> set[str]:
        """What others may rely on, by names that outlast a reload."""
        provided = {getattr(key, "__qualname__", str(key)) for key in self._provided}
        return {*(entry.contract.id for entry in self.entries), *self._plugins, *provided, *self._profiles}

    def attempt(self, step: Callable[[], object], file: str | None = None) -> None:
        """Do something that may fail, in whatever way an author's code can."""
        try:
            step()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.fail(error, file)

    def fail(self, error: BaseException, file: str | None = None) -> None:
        """Note a failure."""
        self._failures.append(failure_of(error, source=self.name, package=self.package, file=file))

    # Plugging in

    def adopt(self, module: ModuleType, package: str, owned: Callable[[str], bool]) -> None:
        """Register a module as a plugin, twice over: for its hooks, and for its decorated functions."""
        key, file = f"{self.name}:{module.__name__}", getattr(module, "__file__", None)
        self.plug(module, key, file)
        self.plug(ModuleCommands(module, package, owned), f"{key}:commands", file)

    def plug(self, plugin: object, key: str, file: str | None = None) -> None:
        """Register a plugin and take what it brings."""
        for problem in self._services.plugins.register(plugin, key):
            self.fail(problem, file)
        self._plugins[key] = plugin
        self._take(key, file)

    def register(self, command: object) -> None:
        """Take a command; the same one twice is one."""
        declared = declaration_of(command)
        if declared is None:
            raise LoadError(f"{command!r} is not a command: decorate it with @skill_command")
        if not any(known is declared for known in self._commands):
            self._commands.append(declared)

    def _take(self, key: str, file: str | None, *, commands: bool = True) -> None:
        services = self._services
        project: dict[str, Any] = {"project_root": services.root, "settings": services.settings}
        hooks: list[tuple[str, Callable[[Callable[..., Any]], object]]] = [
            ("prowess_skill_folders", lambda hook: self._add_folders(hook(**project))),
            ("prowess_injectables", lambda hook: hook(provide=self._provide)),
            ("prowess_profiles", lambda hook: hook(register=self._add_profile)),
        ]
        if commands:
            hooks.append(("prowess_commands", lambda hook: hook(register=self.register)))
        for name, use in hooks:
            for _, hook in services.plugins.each(name, plugin=key):
                self.attempt(partial(use, hook), file)

    def _add_folders(self, given: Iterable[Path | str] | Path | str | None) -> None:
        folders = [given] if isinstance(given, (str, Path)) else given or ()
        for folder in map(Path, folders):
            if not (self._services.root / folder).is_dir():
                raise LoadError(f"prowess_skill_folders gave {str(folder)!r}, which is no folder")
            self.folders.append(self._services.root / folder)

    def _provide(self, type_: Any, factory: Callable[..., Any], **options: Any) -> None:
        self._services.injectables.provide(type_, factory, **options)
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._provided[options.get("name") or type_] = (caller.f_code.co_filename, caller.f_lineno)

    def _add_profile(self, profile: Profile) -> None:
        profiles = self._services.profiles
        if not isinstance(profile, Profile):  # pyright: ignore[reportUnnecessaryIsInstance] - a stranger gave it
            raise LoadError(f"{profile!r} is not a Profile")
        if profile.name in profiles:
            raise LoadError(f"there already is a profile {profile.name!r}; choose another name")
        profiles[profile.name] = profile
        self._profiles.append(profile.name)

    def unplug(self) -> None:
        """Take back everything that was registered."""
        services = self._services
        for key in self._plugins:
            services.plugins.unregister(key)
        services.injectables.forget(self._provided)
        for name in self._profiles:
            del services.profiles[name]
        self._provided, self._profiles, self.folders = {}, [], []

    def keep(self, failed: Skill, files: frozenset[Path]) -> None:
        """Plug in again, in the place of a version that failed, and say why."""
        self.kept = files
        for key, plugin in self._plugins.items():
            self._services.plugins.register(plugin, key)
            self._take(key, None, commands=False)
        note = "the last good version goes on"
        self._failures = [Failure(it.source, f"{it.reason} ({note})", it.file, it.line) for it in failed.failures]
        self._refused = []
        self.source = failed.source

    def forget(self, broken: Mapping[Key, InjectionError]) -> None:
        """Take back the recipes that cannot work, and say why."""
        for key in self._provided.keys() & broken.keys():
            file, line = self._provided.pop(key)
            self._services.injectables.forget([key])
            self.fail(InjectionError(broken[key].reason, file=file, line=line))

    # Compiling

    def compile(self) -> None:
        """Make the commands callable. One that comes out as it was keeps its state: its cache, and who waits for it."""
        self.is_compiled = True
        before = {id(entry.plan.declaration): entry for entry in self.entries}
        self.entries, self._refused = [], []
        for declared in self._commands:
            try:
                plan = compiled(declared, self.name, self._services)
            except Exception as error:  # noqa: BLE001 - an annotation can run anything
                source = f"{self.name}.{declared.name}"
                failure = failure_of(error, source=source, package=self.package, file=declared.place.file)
                self._refused.append(failure)
            else:
                old = before.get(id(declared))
                self.entries.append(old if old and _is_same(old.plan, plan) else Entry(plan, self._services))


def _is_same(one: Plan, other: Plan) -> bool:
    return one.contract == other.contract and one.needs == other.needs


def compiled(declared: Declaration, skill: str, services: Services) -> Plan:
    """The plan of a command, fit for clients."""
    plan = compile_command(
        declared,
        skill=skill,
        injectables=services.injectables,
        settings=services.settings,
        root=services.root,
        rendered=services.plugins.has("prowess_render", beside=OURS),
    )
    contract, place = plan.contract, declared.place
    if len(contract.wire_name) > _WIRE_NAME_LIMIT:
        reason = f"the wire name {contract.wire_name!r} is longer than {_WIRE_NAME_LIMIT} characters; clients refuse it"
        raise LoadError(reason, file=place.file, line=place.line)
    if contract.profile is not None and contract.profile not in services.profiles:
        known = ", ".join(sorted(services.profiles))
        raise SchemaError(f"there is no profile {contract.profile!r}; known: {known}", file=place.file, line=place.line)
    return plan
