"""Checks the options of a decorator and attaches them to the function. Annotations are resolved later."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, cast

from prowess.contracts.contract import TOOL, Hints
from prowess.contracts.kinds import KINDS, RESOURCE
from prowess.contracts.uris import parse_template
from prowess.errors import DeclarationError
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject, Schema

__all__ = [
    "ALIAS",
    "LOADING",
    "MOST",
    "NAME",
    "NOTE",
    "Declaration",
    "InjectedSetting",
    "Location",
    "Refusal",
    "attempts",
    "check",
    "check_function",
    "check_options",
    "declaration_of",
    "exception_types",
    "innermost",
    "is_async",
    "location_of",
    "made_in",
    "note_of",
    "parse_injected",
    "seconds",
    "take_note",
]

NOTE: Final = "__prowess__"
_MADE: Final = "__prowess_made__"
"""The global variable of a module with the declarations that were made during its import."""
LOADING: Final[ContextVar[Callable[[str], bool] | None]] = ContextVar("prowess_loading", default=None)
"""During the import of a skill, whether a module is a skill. There a refused option fails its command instead of the file."""
NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
ALIAS: Final = re.compile(r"[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*")
_DEFAULT_ATTEMPTS: Final = 3

_AS_A_FUNCTION = "Decorate a plain function, and call the method from there"
_WRAP_IT = "Write a function that calls it, and decorate that"
_USE_CACHE = "Use cache_ttl= in place of functools.cache, or write a function that calls it, and decorate that"

_Kinds: TypeAlias = "tuple[str, tuple[type, ...]]"
_TEXT: Final[_Kinds] = ("a string", (str,))
_FLAG: Final[_Kinds] = ("True or False", (bool,))
_WHOLE: Final[_Kinds] = ("a whole number", (int,))
_SECONDS: Final[_Kinds] = ("a number of seconds", (int, float))
_LIST: Final[_Kinds] = ("a list", (list, tuple))
_KINDS: Final[Mapping[str, _Kinds]] = {
    **dict.fromkeys(("name", "description", "category", "title", "output_field", "profile", "run_on"), _TEXT),
    **dict.fromkeys(("uri", "mime_type"), _TEXT),
    **dict.fromkeys(("read_only", "destructive", "idempotent", "open_world", "thread"), _FLAG),
    **dict.fromkeys(("inject_root", "autowire", "force"), _FLAG),
    **dict.fromkeys(("max_attempts", "concurrency"), _WHOLE),
    **dict.fromkeys(("cache_ttl", "timeout"), _SECONDS),
    **dict.fromkeys(("inject_settings", "aliases", "tags", "icons"), _LIST),
    **dict.fromkeys(("meta", "complete"), ("a dict", (dict,))),
}
"""The types of the options besides `None`, in words and as types."""
_MIME_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+(; *[\w.-]+=[^;\x00-\x1f]+)*")
_TEXTS: Final = ("inject_settings", "aliases", "tags")
MOST: Final = 2**31 - 1
"""The largest number of attempts, calls or seconds (68 years), beyond which clocks and other languages cannot count."""
_ENVIRONMENT: Final = "env:"
"""The prefix of an item of `inject_settings` that names an environment variable."""


@frozen
class Location:
    """The file and line of a function."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def innermost(function: Callable[..., Any]) -> FunctionType:
    """The function inside all wrappers. A wrapper around another object, as `functools.wraps(len)` makes it, is the last one."""
    try:
        return cast(
            "FunctionType", inspect.unwrap(function, stop=lambda outer: not inspect.isfunction(_wrapped(outer)))
        )
    except ValueError:  # the wrappers lead in a circle
        return cast("FunctionType", function)


def _wrapped(function: Any) -> object:
    return function.__wrapped__


def location_of(function: Callable[..., Any]) -> Location:
    """The file and the first line of a function, including its decorators."""
    code = innermost(function).__code__
    return Location(code.co_filename, code.co_firstlineno)


@dataclass(slots=True, repr=False)  # making one would take time at every start
class Declaration:
    """A function with the options of its decorator, with unresolved annotations."""

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
    run_on: str = ""
    output: Any = None
    output_field: str | None = None
    input_schema: Schema | Literal["any"] | None = None
    output_schema: Schema | Literal["any"] | None = None
    aliases: tuple[str, ...] = ()
    force: bool = False
    tags: tuple[str, ...] = ()
    icons: tuple[JsonObject, ...] = ()
    meta: JsonObject = field(default_factory=dict[str, Any])
    profile: str | None = None
    kind: str = TOOL
    uri: str = ""
    mime_type: str | None = None
    complete: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Completions by argument: the values, or a function that returns them."""
    frame: FrameType | None = None
    """The frame that decorated a nested function, because annotations may be its local names."""
    home: str = ""
    """The module whose code decorated the function."""
    refusal: DeclarationError | None = None
    """Why the decorator refused its options, if that was noted during the import of a skill."""
    command: Callable[..., Any] | None = field(default=None, compare=False)
    """The object that the decorator returned. A wrapper around it may have a copy of the note."""

    @property
    def location(self) -> Location:
        """The file and line of its function."""
        return location_of(self.function)

    @property
    def decorator(self) -> str:
        """The decorator as written above the function."""
        return f"@{KINDS[self.kind].decorator}"

    def local_names(self) -> Mapping[str, Any]:
        """Local names of the enclosing functions, for annotations."""
        function = innermost(self.function)
        names: dict[str, Any] = dict(self.frame.f_locals) if self.frame is not None else {}
        names.update({item.__name__: item for item in getattr(function, "__type_params__", ())})
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # the enclosing function has not assigned the name yet
                names[name] = cell.cell_contents
        return names


def take_note(declared: Declaration, command: Callable[..., Any], module: dict[str, Any]) -> None:
    """Attach a declaration to its command. `module` is the globals of the decorating code.

    During its import, a module also keeps a list of its declarations, so that the loader finds commands without a name in
    the module. Later declarations are not listed, because code may make commands at any time.
    """
    declared.command, declared.home = command, module.get("__name__", "")
    setattr(command, NOTE, declared)
    if getattr(module.get("__spec__"), "_initializing", False):
        module.setdefault(_MADE, []).append(declared)


def made_in(module: ModuleType) -> list[Declaration]:
    """The declarations that a module made during its import, in order."""
    return list(vars(module).get(_MADE, ()))


def note_of(value: object) -> Declaration | None:
    """The declaration on a command, or on a wrapper that has copied it, as `functools.wraps` does."""
    note = inspect.getattr_static(value, NOTE, None)
    return note if isinstance(note, Declaration) else None


def declaration_of(value: object) -> Declaration | None:
    """The declaration of a command, or `None`. A wrapper around a command is not a command."""
    note = note_of(value)
    return note if note is not None and note.command is value else None


class Refusal:
    """Raises `DeclarationError` for one command, on behalf of every check of the decorator."""

    def __init__(self, name: str, location: Location, kind: str = TOOL) -> None:
        self._name = name
        self._location = location
        self.decorator = KINDS[kind].decorator

    def __call__(self, problem: str, remedy: str) -> NoReturn:
        """Raise the error with the problem and the remedy."""
        raise DeclarationError(self._name, problem, remedy, file=self._location.file, line=self._location.line)


def check_function(function: object, location: Location, kind: str = TOOL) -> Callable[..., Any]:
    """Refuse everything except a plain function, with a remedy. `location` is that of the decorator."""
    noun = KINDS[kind].noun
    if (note := note_of(function)) is not None:
        refuse = Refusal(_name_of(function), location)
        refuse(
            f"it is already a {KINDS[note.kind].noun}",
            f"Decorate it once; for a second {noun}, decorate its .raw under another name",
        )
    if isinstance(function, (staticmethod, classmethod, MethodType)):
        method = cast("Any", function).__func__
        Refusal(method.__name__, location)(f"methods cannot be {noun}s", _AS_A_FUNCTION)
    if isinstance(function, str):
        refuse = Refusal(function, location, kind)
        refuse("its name is given by position", f"Write {refuse.decorator}(name={function!r})")
    if not inspect.isfunction(function):
        what = "a class" if isinstance(function, type) else f"an instance of {type(function).__name__}"
        remedy = _USE_CACHE if type(function).__name__ == "_lru_cache_wrapper" else _WRAP_IT
        Refusal(_name_of(function), location)(f"{what} cannot be a {noun}", remedy)
    owner = function.__qualname__.rpartition(".")[0]
    if owner and not owner.endswith("<locals>"):
        Refusal(function.__name__, location_of(function))(f"it is a method of {owner}", _AS_A_FUNCTION)
    return function


def _name_of(thing: object) -> str:
    """The name of a decorated object for messages, the same in every process."""
    return getattr(thing, "__name__", type(thing).__name__)


def check_options(given: Mapping[str, Any], refuse: Refusal) -> None:
    """Refuse options of a wrong type. A string instead of a list would count as a list of letters."""
    for option, (expected, kinds) in _KINDS.items():
        value = given.get(option)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            refuse(f"{option}={value!r} is not {expected}", f"See help({refuse.decorator})")
    for option in _TEXTS:
        if any(not isinstance(item, str) for item in given.get(option) or ()):
            refuse(f"{option}={given[option]!r} must be a list of strings", 'Write it like ["a", "b"]')


def check(declared: Declaration) -> None:
    """Refuse options that cannot work, are dangerous, or have no effect."""
    refuse = Refusal(declared.name, declared.location, declared.kind)
    _check_names(declared, refuse)
    _check_numbers(declared, refuse)
    _check_dangers(declared, refuse)
    _check_data(declared, refuse)
    _check_uri(declared, refuse)
    _check_completions(declared, refuse)


def _check_names(declared: Declaration, refuse: Refusal) -> None:
    if declared.name == "<lambda>":
        refuse("a lambda has no name", f'Give it one: {refuse.decorator}(name="...")')
    if not NAME.fullmatch(declared.name):
        refuse(
            f"the name {declared.name!r} does not match {NAME.pattern}",
            "Use letters, digits, underscores and hyphens",
        )
    for alias in declared.aliases:
        if not ALIAS.fullmatch(alias):
            refuse(f"the alias {alias!r} does not match {ALIAS.pattern}", 'Write it like "search/web" or "search.web"')
    aliases = [alias.replace("/", ".") for alias in declared.aliases]
    for alias in aliases:
        if aliases.count(alias) > 1:
            refuse(f"the alias {alias!r} is given twice", "Give it once: a slash and a dot mean the same")
    _check_settings(declared, refuse)


def _check_settings(declared: Declaration, refuse: Refusal) -> None:
    """Check that every setting fills its own parameter."""
    filled = {"project_root": "inject_root"} if declared.inject_root else {}
    for item in declared.inject_settings:
        source, key, parameter = parse_injected(item)
        if not key:
            refuse(
                f"inject_settings holds {item!r}, which lacks the name of a setting",
                'Write "api.key", or "api.key:parameter"; "env:NAME" for an environment variable',
            )
        what = f"the {source} {key!r}"
        if parameter in filled:
            refuse(
                f"the parameter {parameter!r} is filled twice, by {filled[parameter]} and by {what}",
                f'Drop one of them, or give each a parameter of its own: "{item.removesuffix(f":{parameter}")}:another_name"',
            )
        filled[parameter] = what


class InjectedSetting(NamedTuple):
    """One item of `inject_settings`: the source, and the parameter that it fills."""

    source: Literal["setting", "environment variable"]
    key: str
    parameter: str


def parse_injected(item: str) -> InjectedSetting:
    """Parse `"api.key"` (fills `api_key`), `"env:API_KEY"` (fills `api_key`), or either with `":parameter"` at the end."""
    source = "environment variable" if item.startswith(_ENVIRONMENT) else "setting"
    key, _, parameter = item.removeprefix(_ENVIRONMENT).partition(":")
    if not parameter:
        parameter = key.lower() if source != "setting" else key.replace(".", "_").replace("-", "_")
    return InjectedSetting(source, key, parameter)


def _check_numbers(declared: Declaration, refuse: Refusal) -> None:
    for option in ("max_attempts", "concurrency", "cache_ttl", "timeout"):
        if MOST < (getattr(declared, option) or 0) < math.inf:
            refuse(f"{option} is above {MOST}", "Give a smaller number")
    if not 0 <= declared.cache_ttl < math.inf:
        refuse(f"cache_ttl={declared.cache_ttl} must be a number of seconds, 0 or more", "Use 0 for no cache")
    if declared.max_attempts < 1:
        refuse(f"max_attempts={declared.max_attempts} is below 1", "It counts all calls: 1 means no retry")
    if declared.max_attempts > 1 and not declared.retry_on:
        refuse(
            f"max_attempts={declared.max_attempts} has no effect without retry_on",
            "Name the exceptions to retry: retry_on=(ConnectionError,)",
        )
    if declared.timeout is not None and not declared.timeout > 0:
        refuse(f"timeout={declared.timeout} must be greater than 0", "Give seconds, or leave it out for the default")
    if declared.concurrency is not None and declared.concurrency < 1:
        refuse(f"concurrency={declared.concurrency} must be at least 1", "Leave it out for no limit")
    if declared.thread is not None and is_async(declared.function):
        refuse("thread= is for sync functions, and this one is async", "Leave it out")


def _check_dangers(declared: Declaration, refuse: Refusal) -> None:
    hints = declared.hints
    if hints.read_only and hints.destructive:
        refuse("read_only and destructive contradict each other", "Keep the one that is true")
    is_safe = not hints.destructive or bool(hints.idempotent)
    if declared.force and (is_safe or not (declared.cache_ttl or declared.retry_on)):
        refuse(
            "force=True has no effect here",
            "Drop it: only cache_ttl or retry_on on a destructive command that is not idempotent needs it",
        )
    if is_safe or declared.force:
        return
    for option, value in (("cache_ttl", declared.cache_ttl), ("retry_on", declared.retry_on)):
        if value:
            refuse(
                f"{option} on a destructive command that is not idempotent could lose or repeat its effect",
                "Declare idempotent=True if running it twice is harmless, or force=True to take the risk",
            )


def _check_data(declared: Declaration, refuse: Refusal) -> None:
    for option, value in (("input_schema", declared.input_schema), ("output_schema", declared.output_schema)):
        if value is not None and value != "any" and not isinstance(value, dict):
            refuse(f"{option}={value!r} must be a JSON Schema", 'Give a dict, "any", or leave it out to infer it')
    if declared.output_field == "":
        refuse("output_field='' must be a name", 'Write it like "rows", or leave it out')
    for icon in declared.icons:
        if not isinstance(icon, dict) or not isinstance(icon.get("src"), str):  # pyright: ignore[reportUnnecessaryIsInstance]
            refuse(f"the icon {icon!r} has no src", 'Write it like {"src": "data:image/png;base64,..."}')
    for option, data in (("icons", list(declared.icons)), ("meta", declared.meta)):
        try:
            plain = json.loads(json.dumps(data, allow_nan=False)) == data
        except (TypeError, ValueError, RecursionError):
            plain = False
        if not plain:
            refuse(
                f"{option}={data!r} must be JSON data",
                "Use dicts with string keys, lists, strings, numbers, booleans and None",
            )
    for icon in declared.icons:
        sizes: Any = icon.get("sizes", [])
        texts: list[Any] = [icon.get("mimeType", ""), *(sizes if isinstance(sizes, list) else [None])]
        if any(not isinstance(text, str) for text in texts) or icon.get("theme", "light") not in ("light", "dark"):
            refuse(  # a strict client would reject the whole list of tools
                f"the icon {icon!r} has a mimeType, sizes or a theme that clients reject",
                'Write it like {"src": "...", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}',
            )


def _check_uri(declared: Declaration, refuse: Refusal) -> None:
    if declared.kind != RESOURCE:
        return
    try:
        parse_template(declared.uri)
    except ValueError as error:
        refuse(f"the URI {declared.uri!r} is invalid: {error}", 'Write it like "notes://today" or "notes://{id}"')
    if declared.mime_type is not None and not _MIME_TYPE.fullmatch(declared.mime_type):
        refuse(f"mime_type={declared.mime_type!r} is not a MIME type", 'Write it like "text/markdown"')


def _check_completions(declared: Declaration, refuse: Refusal) -> None:
    for argument, known in declared.complete.items():
        if inspect.isfunction(known):
            continue
        values = cast("Sequence[object]", known if isinstance(known, (list, tuple)) else ())
        if not values or any(not isinstance(value, str) for value in values):
            refuse(f"complete[{argument!r}] is {known!r}", 'Give a list like ["a", "b"], or a function that gives one')


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call has to be awaited or iterated asynchronously."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def exception_types(given: object, refuse: Refusal) -> tuple[type[Exception], ...]:
    """`retry_on` as a tuple. Refuses everything except subclasses of `Exception`."""
    if given is None:
        return ()
    types = cast("Sequence[object]", given) if isinstance(given, tuple) else (given,)
    checked: list[type[Exception]] = []
    for item in types:
        if not (isinstance(item, type) and issubclass(item, Exception)):
            refuse(
                f"retry_on holds {item!r}, which must be an Exception class",
                "Name exception classes, like OSError or (OSError, TimeoutError)",
            )
        if issubclass(item, BaseExceptionGroup):
            refuse(
                f"retry_on holds {item.__name__}, but Prowess retries on the exceptions inside a group",
                "Name the exceptions inside the group",
            )
        checked.append(item)
    return tuple(checked)


def attempts(given: int | None, retry_on: tuple[type[Exception], ...]) -> int:
    """`max_attempts`, or its default with `retry_on`."""
    if given is not None:
        return given
    return _DEFAULT_ATTEMPTS if retry_on else 1


def seconds(given: float | None) -> float | None:
    """`timeout`, where infinity is the largest number, because JSON has no infinity."""
    return MOST if given == math.inf else given
