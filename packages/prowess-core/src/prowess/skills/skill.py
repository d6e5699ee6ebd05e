"""One skill of a runtime: its modules as plugins, its commands and hooks, and its failures. `loading` imports the modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from prowess.calls.failures import failure_of, is_interrupt
from prowess.contracts.catalog import Failure
from prowess.contracts.declaration import Declaration, declaration_of, made_in, note_of
from prowess.contracts.hidden import hidden_of
from prowess.errors import DeclarationError, InjectionError, LoadError, SchemaError
from prowess.hookspecs import hookimpl
from prowess.injection.provided import Key
from prowess.profiles.profile import Profile
from prowess.skills.compile import Plan, compile_command
from prowess.skills.discovery import Source
from prowess.skills.entry import Entry, Services

__all__ = ["OURS", "ModuleCommands", "Skill", "compiled"]

OURS: Final = "prowess"
"""What the names of the built-in plugins begin with."""
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
            note = note_of(value)
            if note is None or not self._belongs(note, name in listed):
                continue
            own = note.home == self._module.__name__
            if not own or (note.command is value and _usurper(note) is None):
                register(value)  # whatever of the module's own is left out, `check_made` tells why

    def _belongs(self, note: Declaration, listed: bool) -> bool:
        homes = {note.home, note.function.__module__}
        if self._module.__name__ in homes:
            return True
        within = any(home.startswith(f"{self._package}.") for home in homes)
        return not any(map(self._owned, homes)) and (listed or within)


def _below(note: Declaration) -> str:
    return f"Clients would bypass it: put that decorator below {note.decorator}, next to the def"


def _namespace(note: Declaration) -> dict[str, Any]:
    """What the names mean in the module that decorated a function."""
    module = sys.modules.get(note.home)
    return {} if module is None else vars(module)


def _usurper(note: Declaration) -> Any:
    """What the name of a function means in its module, where that is no command any more and not the function itself.

    Usually another decorator made it of the command. That is then what the author wants to run, even where a second
    name still leads to the command.
    """
    name = note.function.__name__
    if note.function.__qualname__ != name:
        return None
    value = _namespace(note).get(name)
    return None if value is note.function or declaration_of(value) is not None else value


def _replacement(note: Declaration) -> Any:
    """What stands in the place of a command in its module: what carries a copy of its note, or what has its name."""
    copies = [value for value in _namespace(note).values() if note_of(value) is note and value is not note.command]
    return copies[0] if copies else _usurper(note)


def _unregistered(note: Declaration) -> DeclarationError:
    """Why nobody can call a command that a module has made."""
    name, names = note.function.__name__, _namespace(note)
    taken_by = _replacement(note)
    if isinstance(taken_by, FunctionType) and taken_by.__qualname__ == name and not hasattr(taken_by, "__wrapped__"):
        what = f"the name {name!r} is given to another function in line {taken_by.__code__.co_firstlineno}"
        remedy = "Give each function a name of its own"
    elif taken_by is not None:
        what, remedy = f"another decorator stands above {note.decorator} and gives {_kind(taken_by)}", _below(note)
    elif (other := declaration_of(names.get(name))) is not None:
        what = f"the name {name!r} is given to another command in line {other.place.line}"
        remedy = "Give each function a name of its own"
    else:
        what = "no name of the module leads to it"
        remedy = "Bind it to a name of its own in the module, or register it in the hook prowess_commands"
    return _refused(note, what, remedy)


def _refused(note: Declaration, problem: str, remedy: str) -> DeclarationError:
    return DeclarationError(note.name, problem, remedy, file=note.place.file, line=note.place.line)


def _kind(value: object) -> str:
    kind = type(value)
    return "a function" if kind is FunctionType else f"an object of type {kind.__module__}.{kind.__qualname__}"


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
        self.is_compiled = False
        self._services = services
        self._failures: list[Failure] = []
        self._refused: list[Failure] = []
        self._plugins: dict[str, object] = {}
        self._commands: list[Declaration] = []
        self._modules: list[ModuleType] = []
        self._provided: dict[Key, tuple[str | None, int | None]] = {}
        """What can be injected, each with the place where it was provided."""
        self._profiles: list[str] = []

    @property
    def failures(self) -> list[Failure]:
        """What could not be loaded of it."""
        return [*self._failures, *self._refused]

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
        self._modules.append(module)

    def check_made(self) -> None:
        """Refuse the commands that its modules have made and nobody registered. Every module and hook has had its turn.

        The modules below an installed package may keep commands to themselves: of those only the replaced ones count.
        """
        registered = {id(declared) for declared in self._commands}
        parts = tuple(f"{module.__name__}." for module in self._modules)
        below = [module for name, module in list(sys.modules.items()) if name.startswith(parts)]
        for module in dict.fromkeys((*self._modules, *below)):
            for note in made_in(module):
                if id(note) not in registered and (module in self._modules or _replacement(note) is not None):
                    self.fail(_unregistered(note))

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
            note = note_of(command)
            if note is not None:
                raise _refused(
                    note, f"what was registered is {_kind(command)} made of it by another decorator", _below(note)
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
                raise LoadError(f"prowess_skill_folders gave {str(folder)!r}, which must be an existing folder")
            self.folders.append(self._services.root / folder)

    def provide(self, container: Any) -> None:
        """Take the providers of a container of dependency-injector."""
        keys = self._services.injectables.adopt(container)
        self._provided.update(dict.fromkeys(keys, (None, None)))

    def _provided_by_hook(self, type_: Any, factory: Callable[..., Any] | None = None, **options: Any) -> None:
        caller = sys._getframe(1)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        place = (caller.f_code.co_filename, caller.f_lineno)
        try:
            keys = self._services.injectables.provide(type_, factory, **options)
        except InjectionError as error:  # the others that the plugin provides are there all the same
            self.fail(error if error.file else InjectionError(error.reason, file=place[0], line=place[1]))
        else:
            self._provided.update(dict.fromkeys(keys, place))

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
        rendered=services.plugins.has("prowess_render", beside=f"{OURS}:"),
    )
    contract, place = plan.contract, declared.place
    hidden = hidden_of(contract)
    if hidden:
        reason = f"{contract.id}: {hidden}. Models read this character, but people do not see it: remove it"
        raise LoadError(reason, file=place.file, line=place.line)
    if len(contract.wire_name) > _WIRE_NAME_LIMIT:
        reason = f"the wire name {contract.wire_name!r} is longer than {_WIRE_NAME_LIMIT} characters; clients refuse it"
        raise LoadError(reason, file=place.file, line=place.line)
    if contract.profile is not None and contract.profile not in services.profiles:
        known = ", ".join(sorted(services.profiles))
        raise SchemaError(f"there is no profile {contract.profile!r}; known: {known}", file=place.file, line=place.line)
    if contract.profile is not None and contract.output.field and not services.profiles[contract.profile].structured:
        problem = f"output_field={contract.output.field!r} does nothing: the profile {contract.profile!r} shows no data"
        raise SchemaError(f"{problem}. Drop one of them", file=place.file, line=place.line)
    return plan
