"""Turns a signature into data, with every annotation resolved. The only module that reflects on functions."""

from __future__ import annotations

import collections.abc
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, Union, get_args, get_origin

import typing_extensions

from prowess.contracts.declaration import Declaration, Location, innermost
from prowess.errors import SchemaError
from prowess.frozen import frozen

__all__ = [
    "ABSENT",
    "MISSING",
    "Parameter",
    "Passed",
    "Signature",
    "Style",
    "annotations_on",
    "is_union",
    "metadata",
    "read",
    "signature_of",
    "style_of",
    "without_none",
    "written_as",
]

MISSING: Any = inspect.Parameter.empty
ABSENT: Any = object()
"""The default of an optional key of an unpacked TypedDict, for which nothing is passed."""
Style: TypeAlias = Literal["sync", "async", "generator", "async generator"]
Passed: TypeAlias = Literal["by position", "by name", "either way"]

_ITERATORS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_ALIASES = tuple(
    {getattr(module, "TypeAliasType", typing_extensions.TypeAliasType) for module in (typing, typing_extensions)}
)
_AWAITABLES = (collections.abc.Awaitable, collections.abc.Coroutine)
_NO_VALUE = ((), (None,), (type(None),), (Any,))
"""The return types of generators whose result is what they yield."""
_PASSED: dict[Any, Passed] = {
    inspect.Parameter.POSITIONAL_ONLY: "by position",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either way",
    inspect.Parameter.KEYWORD_ONLY: "by name",
}
_QUALIFIERS: dict[Any, bool | None] = {
    typing_extensions.Required: True,
    typing_extensions.NotRequired: False,
    typing_extensions.ReadOnly: None,
}
"""Qualifiers of keys in a TypedDict, and whether they make the key required."""
_POSTPONED: dict[str, Any] = (
    {"annotation_format": typing_extensions.Format.FORWARDREF} if sys.version_info >= (3, 14) else {}
)
"""Since Python 3.14, `inspect.signature` evaluates annotations, and raises an error for a name that does not exist."""


@frozen
class Parameter:
    """One named parameter. `annotation` is `Any` without an annotation, `default` is `MISSING` if it is required."""

    name: str
    annotation: Any
    default: Any = MISSING
    passed: Passed = "by name"
    is_annotated: bool = True


@frozen
class Signature:
    """A function as data. `parameters` excludes variadic ones."""

    parameters: tuple[Parameter, ...]
    returns: Any
    style: Style
    takes_args: str = ""
    """The name of `*args`, or empty."""
    each_arg: Any = Any
    """The annotation of `*args`."""
    extra: Any = MISSING
    """The annotation of `**kwargs`, or `MISSING`."""
    annotated: Any = Any
    """The annotated return type, which `output=` may have replaced in `returns`."""
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Local names for annotations."""
    final: bool = False
    """Whether the result is what a generator returns, even if that is `None`, and not what it yields."""

    @property
    def positional(self) -> tuple[str, ...]:
        """Parameters that may be passed by position."""
        return tuple(item.name for item in self.parameters if item.passed != "by name")

    @property
    def positional_only(self) -> tuple[str, ...]:
        """Parameters that must be passed by position. With `*args`, these are all before it."""
        only = tuple(item.name for item in self.parameters if item.passed == "by position")
        return self.positional if self.takes_args else only


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function, with forward references for names that do not exist, or not yet."""
    return inspect.signature(function, **_POSTPONED)


def annotations_on(it: Any) -> dict[str, Any]:
    """The annotations of a function or a class, with forward references for names that do not exist, or not yet."""
    return typing_extensions.get_annotations(it, format=typing_extensions.Format.FORWARDREF) if callable(it) else {}


def read(declared: Declaration) -> Signature:
    """The signature of a declared function. Raises an error that names an unresolvable annotation."""
    names = _Names(innermost(declared.function).__globals__, declared.local_names(), declared.location)
    written = signature_of(declared.function)
    parameters: list[Parameter] = []
    takes_args, each_arg, extra = "", Any, MISSING
    for parameter in written.parameters.values():
        annotation = names.resolve(parameter.annotation, f"parameter {parameter.name!r}")
        if parameter.kind is parameter.VAR_POSITIONAL:
            takes_args, each_arg = parameter.name, annotation
        elif parameter.kind is parameter.VAR_KEYWORD:
            options = _unpacked(annotation)
            extra = annotation if options is None else MISSING
            parameters.extend(names.keys_of(options) if options else ())
        else:
            known = parameter.annotation is not MISSING
            passed = _PASSED[parameter.kind]
            parameters.append(Parameter(parameter.name, annotation, parameter.default, passed, is_annotated=known))
    returns = written.return_annotation if declared.output is None else declared.output
    if returns is not MISSING:
        returns = names.resolve(returns, "the return type")
    final = _is_final(returns)
    returns = annotated = _result_type(returns)
    if declared.output is not None:
        annotated = _annotated(written.return_annotation, names)
    style = style_of(declared.function)
    return Signature(
        tuple(parameters), returns, style, takes_args, each_arg, extra, annotated, names.local_names, final
    )


def _annotated(annotation: Any, names: _Names) -> Any:
    """The annotated return type; `Any` if it cannot be resolved, because `output=` replaces it."""
    try:
        return _result_type(names.resolve(annotation, "the return type"))
    except SchemaError:
        return Any


def style_of(function: Callable[..., Any]) -> Style:
    """The style in which a function must be called."""
    if inspect.isasyncgenfunction(function):
        return "async generator"
    if inspect.iscoroutinefunction(function):
        return "async"
    return "generator" if inspect.isgeneratorfunction(function) else "sync"


@frozen
class _Names:
    """The names for the annotations of one function."""

    global_names: dict[str, Any]
    local_names: Mapping[str, Any]
    location: Location

    def resolve(self, annotation: Any, what: str) -> Any:
        """An annotation as a type, with forward references resolved; `Any` without an annotation."""
        if annotation is MISSING:
            return Any
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        try:
            hints = typing.get_type_hints(holder, self.global_names, dict(self.local_names), include_extras=True)
        except Exception as error:
            raise self.unresolved(f"{what}: the annotation {written_as(annotation)}", error) from error
        hint = hints["it"]
        if get_origin(hint) in (ClassVar, Final):  # since Python 3.14, evaluating it is no error
            raise self.unresolved(f"{what}: the annotation {written_as(annotation)}", TypeError("it is for classes"))
        return hint

    def keys_of(self, options: Any) -> Iterator[Parameter]:
        """The parameters of a TypedDict in `**options: Unpack[Options]`."""
        kind = get_origin(options) or options
        if not typing_extensions.is_typeddict(kind):
            reason = f"Unpack[{written_as(options)}]: only a TypedDict can be unpacked into parameters; write the type without Unpack"
            raise SchemaError(reason, file=self.location.file, line=self.location.line)
        try:
            hints = typing.get_type_hints(kind, localns=dict(self.local_names), include_extras=True)
        except Exception as error:
            raise self.unresolved(f"a key of {kind.__name__}", error) from error
        meanings = dict(zip(getattr(kind, "__parameters__", ()), get_args(options), strict=False))
        for name, hint in hints.items():
            required, annotation = _unqualified(hint, required=name in kind.__required_keys__)
            yield Parameter(name, _filled(annotation, meanings), MISSING if required else ABSENT)

    def unresolved(self, what: str, error: Exception) -> SchemaError:
        remedy = "import or define the name in this module, outside of `if TYPE_CHECKING:`"
        if not isinstance(error, NameError):
            remedy = "write a type there"
        return SchemaError(
            f"{what} cannot be resolved ({error}); {remedy}", file=self.location.file, line=self.location.line
        )


def written_as(annotation: Any) -> str:
    """An annotation for messages: a forward reference, also inside another type, as the string in it."""
    text = getattr(annotation, "__forward_arg__", annotation)
    return repr(text) if isinstance(text, str) else re.sub(r"ForwardRef\(('[^']*')[^)]*\)", r"\1", str(text))


def _unpacked(annotation: Any) -> Any:
    """`Options` in `**options: Unpack[Options]`, or `None`."""
    unpacks = get_origin(annotation) in (typing.Unpack, typing_extensions.Unpack)
    return get_args(annotation)[0] if unpacks else None


def _filled(annotation: Any, meanings: Mapping[Any, Any]) -> Any:
    """A type with its type variables replaced."""
    if isinstance(annotation, typing.TypeVar):
        return meanings.get(annotation, annotation)
    variables = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not variables:  # a generic class alone leaves its own variables open
        return annotation
    return annotation[tuple(meanings.get(each, each) for each in variables)]


def _unqualified(hint: Any, *, required: bool) -> tuple[bool, Any]:
    """Whether a key of a TypedDict is required, and its type without qualifiers."""
    while get_origin(hint) in _QUALIFIERS:
        by_qualifier = _QUALIFIERS[get_origin(hint)]
        required = required if by_qualifier is None else by_qualifier
        (hint,) = get_args(hint)
    return required, hint


def _result_type(returns: Any) -> Any:
    """The type of the collected result: a list of yielded items, the return value of a generator, or what is awaited."""
    returns, notes = _awaited(returns)
    item, _, final = (*(get_args(returns) or (Any,)), None, None)[:3]
    kind = get_origin(returns) or returns
    if kind is collections.abc.Generator:
        returns = list[item] if final in (None, type(None)) else final
    elif kind in _ITERATORS:
        returns = list[item]
    return Annotated[(returns, *notes)] if notes else returns


def _is_final(returns: Any) -> bool:
    """Whether a generator is annotated with the type of its return value."""
    returns, _ = _awaited(returns)
    return get_origin(returns) is collections.abc.Generator and get_args(returns)[2:] not in _NO_VALUE


def _awaited(returns: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type of what is awaited, because a plain function may return what an async one made; other types unchanged.

    Also the metadata around a generator or an awaitable, which hides it like a type alias.
    """
    inner, notes = returns, ()
    seen: set[int] = set()
    while id(inner) not in seen and (get_origin(inner) is Annotated or isinstance(inner, _ALIASES)):
        seen.add(id(inner))  # an alias may mean itself
        if isinstance(inner, _ALIASES):
            inner = inner.__value__
        else:
            inner, *more = get_args(inner)
            notes = (*more, *notes)
    kind = get_origin(inner) or inner
    if kind in _AWAITABLES:
        inner, more = _awaited((get_args(inner) or (Any,))[-1])
        return inner, (*more, *notes)
    return (inner, notes) if kind is collections.abc.Generator or kind in _ITERATORS else (returns, ())


def is_union(annotation: Any) -> bool:
    """Whether an annotation is a union, in either notation."""
    return get_origin(annotation) in (Union, types.UnionType)


def without_none(annotation: Any) -> Any:
    """`T` for `T | None` and `Optional[T]`, also inside `Annotated`; other annotations unchanged."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if is_union(annotation):
        rest = [item for item in get_args(annotation) if item is not type(None)]
        if len(rest) == 1:
            return without_none(rest[0])
    return annotation


def metadata(annotation: Any) -> tuple[Any, ...]:
    """The metadata in `Annotated`, also inside `Annotated[T, ...] | None`."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1:]
    if is_union(annotation):
        return tuple(item for part in get_args(annotation) for item in metadata(part))
    return ()
