"""One skill of a runtime: its modules as plugins, its commands and hooks, and its failures. `loading` imports the modules."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from prowess.calls.failures import failure_of, is_interrupt
from prowess.contracts.catalog import Failure
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import Declaration, declaration_of, made_in, note_of
from prowess.contracts.hidden import hidden_of
from prowess.errors import DeclarationError, InjectionError, LoadError, SchemaError
from prowess.hookspecs import hookimpl
from prowess.injection.provided import Key
from prowess.profiles.profile import Profile, no_profile
from prowess.skills.compile import Plan, compile_command
from prowess.skills.discovery import Source
from prowess.skills.entry import Entry, Services

__all__ = ["OURS", "ModuleCommands", "Skill", "compiled"]

OURS: Final = "prowess"
"""The prefix of the names of built-in plugins."""
_WIRE_NAME_LIMIT: Final = 64
_MOST_DIGITS: Final = 4300
"""Digits of the longest integer that Python reads, unless the author has lifted that limit."""


class ModuleCommands:
    """The plugin for a module with decorated functions. It registers them in the order of the file.

    An imported command belongs to the module that defines it. It is registered here if that module is not a skill (`owned`)
    and is in the same package, or if `__all__` lists the command.
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
            note = note_of(value)
            if note is None or not self._belongs(note, name in listed):
                continue
            own = note.home == self._module.__name__
            if not own or (note.command is value and _outer_object(note) is None):
                register(value)  # `check_made` reports the commands of this module that are not registered

    def _belongs(self, note: Declaration, listed: bool) -> bool:
        homes = {note.home, note.function.__module__}
        if self._module.__name__ in homes:
            return True
        within = any(home.startswith(f"{self._package}.") for home in homes)
        return not any(map(self._owned, homes)) and (listed or within)


def _below(note: Declaration) -> str:
    return f"Clients would bypass it: put that decorator below {note.decorator}, next to the def"


def _namespace(note: Declaration) -> dict[str, Any]:
    """The global names of the module that decorated a function."""
    module = sys.modules.get(note.home)
    return {} if module is None else vars(module)


def _outer_object(note: Declaration) -> Any:
    """The object that has replaced a command under its name in its module, or `None`.

    Usually another decorator has wrapped the command. The author then wants to run that object, even if another name still
    refers to the command.
    """
    name = note.function.__name__
    if note.function.__qualname__ != name:
        return None
    value = _namespace(note).get(name)
    is_plain = getattr(value, "__code__", None) is note.function.__code__  # perhaps of a later turn of a loop
    return None if is_plain or declaration_of(value) is not None else value


def _replacement(note: Declaration) -> Any:
    """The object that replaces a command in its module: one with a copy of its declaration, or with its name."""
    copies = [value for value in _namespace(note).values() if note_of(value) is note and value is not note.command]
    return copies[0] if copies else _outer_object(note)


def _unregistered(note: Declaration) -> DeclarationError:
    """The error for a command of a module that is not registered."""
    name, names = note.function.__name__, _namespace(note)
    taken_by = _replacement(note)
    if isinstance(taken_by, FunctionType) and taken_by.__qualname__ == name and not hasattr(taken_by, "__wrapped__"):
        what = f"the name {name!r} is given to another function in line {taken_by.__code__.co_firstlineno}"
        remedy = "Give each function a name of its own"
    elif taken_by is not None:
        what, remedy = f"another decorator is above {note.decorator} and returns {_kind(taken_by)}", _below(note)
    elif (other := declaration_of(names.get(name))) is not None:
        what = f"the name {name!r} is given to another command in line {other.location.line}"
        remedy = "Give each function a name of its own"
    else:
        what = "no name in the module refers to it"
        remedy = "Bind it to a name of its own in the module, or register it in the hook prowess_commands"
    return _refused(note, what, remedy)


def _refused(note: Declaration, problem: str, remedy: str) -> DeclarationError:
    return DeclarationError(note.name, problem, remedy, file=note.location.file, line=note.location.line)


def _kind(value: object) -> str:
    kind = type(value)
    return "a function" if kind is FunctionType else f"an object of type {kind.__module__}.{kind.__qualname__}"


class Skill:
    """The commands, hooks and providers of a skill or an installed package. A failure is noted and does not stop the rest."""

    def __init__(self, name: str, services: Services, package: str, source: Source | None = None) -> None:
        self.name = name
        self.source = source
        self.package = package
        """The package of its modules, which contains the author's code."""
        self.entries: list[Entry] = []
        self.folders: list[Path] = []
        """Further folders of skills."""
        self.is_compiled = False
        self._services = services
        self._failures: list[Failure] = []
        self._refused: list[Failure] = []
        self._plugins: dict[str, object] = {}
        self._commands: list[Declaration] = []
        self._modules: list[ModuleType] = []
        self._provided: dict[Key, tuple[str | None, int | None]] = {}
        """Provided types, each with the location of its provider."""
        self._profiles: list[str] = []

    @property
    def failures(self) -> list[Failure]:
        """Its failures."""
        return [*self._failures, *self._refused]

    def attempt(self, step: Callable[[], object], file: str | None = None) -> None:
        """Run a step, and note any exception of the author's code."""
        try:
            step()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.fail(error, file)

    def fail(self, error: BaseException, file: str | None = None) -> None:
        """Note a failure."""
        self._failures.append(failure_of(error, source=self.name, package=self.package, file=file))

    # Registration

    def adopt(self, module: ModuleType, package: str, owned: Callable[[str], bool]) -> None:
        """Register a module as two plugins: for its hooks, and for its decorated functions."""
        key, file = f"{self.name}:{module.__name__}", getattr(module, "__file__", None)
        self.plug(module, key, file)
        self.plug(ModuleCommands(module, package, owned), f"{key}:commands", file)
        self._modules.append(module)

    def check_made(self) -> None:
        """Report the commands of its modules that are not registered, after all modules and hooks.

        Submodules of an installed package may have private commands, so only replaced ones are reported there.
        """
        registered = {id(declared) for declared in self._commands}
        parts = tuple(f"{module.__name__}." for module in self._modules)
        # a copy is made in one step; a list of the items may be interrupted by an import in another thread
        below = [module for name, module in sys.modules.copy().items() if name.startswith(parts)]
        for module in dict.fromkeys((*self._modules, *below)):
            for note in made_in(module):
                if id(note) not in registered and (module in self._modules or _replacement(note) is not None):
                    self.fail(_unregistered(note))

    def plug(self, plugin: object, key: str, file: str | None = None) -> None:
        """Register a plugin, and collect its folders, commands and providers."""
        for problem in self._services.plugins.register(plugin, key):
            self.fail(problem, file)
        self._plugins[key] = plugin
        self._take(key, file)

    def register(self, command: object) -> None:
        """Add a command, once."""
        declared = declaration_of(command)
        if declared is None:
            note = note_of(command)
            if note is not None:
                raise _refused(
                    note, f"the registered object is {_kind(command)}, which another decorator made of it", _below(note)
                )
            raise LoadError(f"{command!r} is not a command: decorate it with @skill_command, @resource or @prompt")
        if not any(known is declared for known in self._commands):
            self._commands.append(declared)

    def _take(self, key: str, file: str | None) -> None:
        services = self._services
        project: dict[str, Any] = {"project_root": services.root, "settings": services.settings}
        hooks: list[tuple[str, Callable[[Callable[..., Any]], object]]] = [
            ("prowess_skill_folders", lambda hook: self._add_folders(hook(**project))),
            ("prowess_injectables", lambda hook: hook(provide=self._provided_by_hook)),
            ("prowess_profiles", lambda hook: hook(register=self._add_profile)),
            ("prowess_commands", lambda hook: hook(register=self.register)),
        ]
        for name, use in hooks:
            for _, hook in services.plugins.each(name, plugin=key):
                self.attempt(partial(use, hook), file)

    def _add_folders(self, given: Iterable[Path | str] | Path | str | None) -> None:
        folders = [given] if isinstance(given, (str, Path)) else given or ()
        for folder in map(Path, folders):
            if not (self._services.root / folder).is_dir():
                raise LoadError(f"prowess_skill_folders returned {str(folder)!r}, which must be an existing folder")
            self.folders.append(self._services.root / folder)

    def provide(self, container: Any) -> None:
        """Add the providers of a dependency-injector container."""
        keys = self._services.injectables.adopt(container)
        self._provided.update(dict.fromkeys(keys, (None, None)))

    def _provided_by_hook(self, type_: Any, factory: Callable[..., Any] | None = None, **options: Any) -> None:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        location = (caller.f_code.co_filename, caller.f_lineno)
        try:
            keys = self._services.injectables.provide(type_, factory, **options)
        except InjectionError as error:  # its other providers stay
            self.fail(error if error.file else InjectionError(error.reason, file=location[0], line=location[1]))
        else:
            self._provided.update(dict.fromkeys(keys, location))

    def _add_profile(self, profile: Profile) -> None:
        profiles = self._services.profiles
        if not isinstance(profile, Profile):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a plugin
            raise LoadError(f"{profile!r} is not a Profile")
        if profile.name in profiles:
            raise LoadError(f"there already is a profile {profile.name!r}; choose another name")
        profiles[profile.name] = profile
        self._profiles.append(profile.name)

    @property
    def sent(self) -> dict[str, Any]:
        """The data that it provides for skills in other environments, by name."""
        sendable = self._services.injectables.sendable
        return {str(key): sendable[key] for key in self._provided if key in sendable}

    def unplug(self) -> None:
        """Remove everything that was registered."""
        services = self._services
        for key in self._plugins:
            services.plugins.unregister(key)
        services.injectables.forget(self._provided)
        for name in self._profiles:
            del services.profiles[name]
        self._provided, self._profiles, self.folders = {}, [], []

    def forget(self, broken: Mapping[Key, InjectionError]) -> None:
        """Remove the recipes that cannot work, and note the reasons."""
        for key in self._provided.keys() & broken.keys():
            file, line = self._provided.pop(key)
            self._services.injectables.forget([key])
            self.fail(InjectionError(broken[key].reason, file=file, line=line))

    # Compiling

    def compile(self) -> None:
        """Make the commands callable. An unchanged command keeps its cache and its waiting calls."""
        before = {id(entry.plan.declaration): entry for entry in self.entries}
        entries: list[Entry] = []
        refused: list[Failure] = []
        for declared in self._commands:
            try:
                plan = compiled(declared, self.name, self._services)
            except BaseException as error:  # an annotation can run anything
                if is_interrupt(error):
                    raise
                source = f"{self.name}.{declared.name}"
                failure = failure_of(error, source=source, package=self.package, file=declared.location.file)
                refused.append(failure)
            else:
                old = before.get(id(declared))
                entries.append(old if old and _is_same(old.plan, plan) else Entry(plan, self._services))
        self.entries, self._refused, self.is_compiled = entries, refused, True


def _is_same(one: Plan, other: Plan) -> bool:
    return one.contract == other.contract and one.needs == other.needs


def compiled(declared: Declaration, skill: str, services: Services) -> Plan:
    """The plan of a command, checked for clients."""
    plan = compile_command(
        declared,
        skill=skill,
        injectables=services.injectables,
        settings=services.settings,
        root=services.root,
        rendered=services.plugins.has("prowess_render", beside=f"{OURS}:"),
    )
    contract, location = plan.contract, declared.location
    unwritable = _unwritable(contract)
    if unwritable:
        reason = f"the definition of {contract.id} cannot be written as JSON: {unwritable}"
        raise LoadError(reason, file=location.file, line=location.line)
    hidden = hidden_of(contract)
    if hidden:
        reason = f"{contract.id}: {hidden}. People do not see this character: remove it"
        raise LoadError(reason, file=location.file, line=location.line)
    if len(contract.wire_name) > _WIRE_NAME_LIMIT:
        reason = f"the wire name {contract.wire_name!r} is longer than {_WIRE_NAME_LIMIT} characters; clients refuse it"
        raise LoadError(reason, file=location.file, line=location.line)
    if contract.profile is not None and contract.profile not in services.profiles:
        raise SchemaError(no_profile(contract.profile, services.profiles), file=location.file, line=location.line)
    if contract.profile is not None and contract.output.field and not services.profiles[contract.profile].structured:
        problem = (
            f"output_field={contract.output.field!r} has no effect: the profile {contract.profile!r} shows no data"
        )
        raise SchemaError(f"{problem}. Drop one of them", file=location.file, line=location.line)
    return plan


def _unwritable(contract: Contract) -> str:
    """Why the host and clients could not read the definition, if so: such a command must not hide all others."""
    try:
        text = json.dumps((contract.input_schema, contract.output.schema, contract.meta))
        if not 0 < sys.get_int_max_str_digits() <= _MOST_DIGITS:
            json.loads(text, parse_int=_read_integer)
    except ValueError as error:
        return str(error).partition(";")[0]
    return ""


def _read_integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer has {len(digits)} digits, more than {_MOST_DIGITS}")
    return int(digits)
