"""What an author wrote on a decorator, checked for itself and noted down. Knows no schema and resolves no annotation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, Literal, NoReturn

from prowess.contract import Hints
from prowess.errors import DeclarationError
from prowess.jsontypes import JsonObject, Schema

__all__ = ["ALIAS", "NAME", "NOTE", "Declaration", "Place", "declaration_of", "place_of"]

NOTE: Final = "__prowess__"
NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
ALIAS: Final = re.compile(r"[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*")
_DEFAULT_ATTEMPTS: Final = 3

_AS_A_FUNCTION = "Decorate a plain function, and call the method from there"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def place_of(function: Callable[..., Any]) -> Place:
    """The file and the first line of a function, its decorators included."""
    code = inspect.unwrap(function).__code__
    return Place(code.co_filename, code.co_firstlineno)


@dataclass(slots=True)
class Declaration:
    """A function and everything its decorator said, unresolved."""

    function: Callable[..., Any]
    name: str
    description: str | None = None
    category: str = "general"
    title: str | None = None
    hints: Hints = field(default_factory=Hints)
    inject_root: bool = False
    inject_settings: tuple[str, ...] = ()
    autowire: bool = True
    retry_on: tuple[type[Exception], ...] = ()
    max_attempts: int = 1
    cache_ttl: float = 0.0
    timeout: float | None = None
    concurrency: int | None = None
    thread: bool | None = None
    output: Any = inspect.Parameter.empty
    output_field: str | None = None
    input_schema: Schema | Literal["any"] | None = None
    output_schema: Schema | Literal["any"] | None = None
    aliases: tuple[str, ...] = ()
    force: bool = False
    tags: tuple[str, ...] = ()
    icons: tuple[JsonObject, ...] = ()
    meta: JsonObject = field(default_factory=dict[str, Any])
    profile: str | None = None
    frame: FrameType | None = None
    """The function that was running when a nested function was decorated: its local names may be annotations."""

    @property
    def place(self) -> Place:
        return place_of(self.function)

    def local_names(self) -> Mapping[str, Any]:
        """Names of the enclosing functions that annotations may mean."""
        names: dict[str, Any] = {}
        if self.frame is not None:
            names.update(self.frame.f_locals)
        for name, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # a name that the enclosing function has not bound yet
                continue
        return names


def declaration_of(value: object) -> Declaration | None:
    """The note a decorator left on a command, or `None`."""
    note = getattr(value, NOTE, None)
    return note if isinstance(note, Declaration) else None


class Refusal:
    """Raises `DeclarationError` for one command; every check of the decorator speaks through it."""

    def __init__(self, name: str, place: Place) -> None:
        self._name = name
        self._place = place

    def __call__(self, problem: str, remedy: str) -> NoReturn:
        raise DeclarationError(self._name, problem, remedy, file=self._place.file, line=self._place.line)


def check_function(function: object) -> Callable[..., Any]:
    """Refuse everything that is not a plain function, and say what to do."""
    if isinstance(function, (staticmethod, classmethod)) or inspect.ismethod(function):
        inner: Any = function.__func__
        Refusal(inner.__name__, place_of(inner))("methods cannot be commands", _AS_A_FUNCTION)
    if not inspect.isfunction(function):
        Refusal(repr(function), Place("<unknown>", 0))(
            f"a {type(function).__name__} cannot be a command",
            "Wrap it: `@skill_command` then `def name(...)` that calls it",
        )
    refuse = Refusal(function.__name__, place_of(function))
    owner = function.__qualname__.rpartition(".")[0]
    if owner and not owner.endswith("<locals>"):
        refuse(f"it is a method of {owner}", _AS_A_FUNCTION)
    return function


def check(declared: Declaration) -> None:
    """Refuse what cannot work, is dangerous, or would silently do nothing."""
    refuse = Refusal(declared.name, declared.place)
    _check_names(declared, refuse)
    _check_numbers(declared, refuse)
    _check_dangers(declared, refuse)
    _check_schemas(declared, refuse)


def _check_names(declared: Declaration, refuse: Refusal) -> None:
    if declared.name == "<lambda>":
        refuse("a lambda has no name", 'Give it one: skill_command(name="...")')
    if not NAME.fullmatch(declared.name):
        refuse(
            f"the name {declared.name!r} does not match {NAME.pattern}",
            "Use letters, digits, underscores and hyphens",
        )
    for alias in declared.aliases:
        if not ALIAS.fullmatch(alias):
            refuse(f"the alias {alias!r} does not match {ALIAS.pattern}", 'Write it like "search/web" or "search.web"')
    for icon in declared.icons:
        if not isinstance(icon.get("src"), str):
            refuse(f"the icon {icon!r} has no src", 'Write it like {"src": "data:image/png;base64,..."}')


def _check_numbers(declared: Declaration, refuse: Refusal) -> None:
    if declared.cache_ttl < 0:
        refuse(f"cache_ttl={declared.cache_ttl} is negative", "Give seconds, or 0 for no cache")
    if declared.max_attempts < 1:
        refuse(f"max_attempts={declared.max_attempts} is below 1", "It counts all calls: 1 means no retry")
    if declared.max_attempts > 1 and not declared.retry_on:
        refuse(
            f"max_attempts={declared.max_attempts} without retry_on would do nothing",
            "Name the exceptions worth another attempt: retry_on=(ConnectionError,)",
        )
    if declared.timeout is not None and declared.timeout <= 0:
        refuse(f"timeout={declared.timeout} leaves no time at all", "Give seconds, or leave it out for the default")
    if declared.concurrency is not None and declared.concurrency < 1:
        refuse(f"concurrency={declared.concurrency} lets no call run", "Give at least 1, or leave it out")
    if declared.thread is not None and _is_async(declared.function):
        refuse("thread= is for sync functions, and this one is async", "Leave it out")


def _check_dangers(declared: Declaration, refuse: Refusal) -> None:
    hints = declared.hints
    if hints.read_only and hints.destructive:
        refuse("it is declared read_only and destructive", "Keep the one that is true")
    if not hints.destructive or hints.idempotent or declared.force:
        return
    for option, value in (("cache_ttl", declared.cache_ttl), ("retry_on", declared.retry_on)):
        if value:
            refuse(
                f"{option} on a destructive command that is not idempotent could lose or repeat its effect",
                "Declare idempotent=True if running it twice is harmless, or force=True to take the risk",
            )


def _check_schemas(declared: Declaration, refuse: Refusal) -> None:
    for option, value in (("input_schema", declared.input_schema), ("output_schema", declared.output_schema)):
        if value is not None and value != "any" and not isinstance(value, dict):
            refuse(f"{option}={value!r} is no JSON Schema", 'Give a dict, "any", or leave it out to infer it')


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def exception_types(given: object, refuse: Refusal) -> tuple[type[Exception], ...]:
    """`retry_on` as a tuple, refusing what is no ordinary exception."""
    if given is None:
        return ()
    types: Sequence[object] = given if isinstance(given, tuple) else (given,)  # pyright: ignore[reportUnknownVariableType]
    checked: list[type[Exception]] = []
    for item in types:
        if not (isinstance(item, type) and issubclass(item, Exception)):
            refuse(f"retry_on holds {item!r}, which is no Exception class", "Name exception classes, like OSError")
        checked.append(item)
    return tuple(checked)


def attempts(given: int | None, retry_on: tuple[type[Exception], ...]) -> int:
    """`max_attempts`, or the default that makes `retry_on` mean something."""
    if given is not None:
        return given
    return _DEFAULT_ATTEMPTS if retry_on else 1
