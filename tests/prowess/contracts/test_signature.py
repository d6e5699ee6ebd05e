"""Signatures as data: annotations are resolved wherever their names live, and what cannot be resolved says so."""

from __future__ import annotations

import sys
import typing
from collections import abc
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import pytest
import typing_extensions
from pydantic import BaseModel

from prowess import Runtime, skill_command
from prowess.contracts.declaration import Declaration, declaration_of
from prowess.contracts.signature import ABSENT, MISSING, metadata, read, without_none
from prowess.errors import SchemaError

if TYPE_CHECKING:
    from decimal import Decimal


def declared(function: Callable[..., Any], **options: Any) -> Declaration:
    found = declaration_of(skill_command(**options)(function))
    assert found is not None
    return found


def annotations(function: Callable[..., Any]) -> list[Any]:
    return [parameter.annotation for parameter in read(declared(function)).parameters]


# --- parameters


def test_a_signature_becomes_data():
    """Names, annotations, defaults, and how each may be passed."""

    def function(a: int, /, b: str = "x", *, c: None = None, d, e=1) -> None: ...

    signature = read(declared(function))
    expected = [
        ("a", int, MISSING, "by position"),
        ("b", str, "x", "either way"),
        ("c", type(None), None, "by name"),
        ("d", Any, MISSING, "by name"),
        ("e", Any, 1, "by name"),
    ]
    assert expected == [(item.name, item.annotation, item.default, item.passed) for item in signature.parameters]
    assert (("a", "b"), ("a",)) == (signature.positional, signature.positional_only)
    assert ("", MISSING) == (signature.takes_args, signature.extra)


def test_variadic_parameters_are_no_parameters():
    """What stands before `*args` must be passed by position, or it would be passed twice."""

    def function(a: int, b: int = 2, *rest: str, c: int = 3, **more: float) -> None: ...

    signature = read(declared(function))
    assert ["a", "b", "c"] == [item.name for item in signature.parameters]
    assert ("rest", str, float) == (signature.takes_args, signature.each_arg, signature.extra)
    assert (("a", "b"), ("a", "b")) == (signature.positional, signature.positional_only)


def test_untyped_keywords_take_anything():
    """`**kwargs` without an annotation."""

    def function(**more) -> None: ...

    assert Any is read(declared(function)).extra


class Base(typing_extensions.TypedDict, total=False):
    a: typing.Required[int]
    b: str


class Options(Base):
    c: typing.NotRequired[Annotated[int, "the c"]]
    d: typing_extensions.ReadOnly[typing.Required[Later]]


T = typing.TypeVar("T")


class OldOptions(typing.TypedDict, total=False):
    a: typing.Required[int]
    b: str


class Bad(typing_extensions.TypedDict):
    key: Nowhere  # noqa: F821


@pytest.mark.parametrize("unpack", [typing.Unpack, typing_extensions.Unpack])
@pytest.mark.parametrize("options", [Options, OldOptions])
def test_an_unpacked_typed_dict_stands_for_parameters(unpack: Any, options: Any):
    """Each key becomes one, required or not as the TypedDict says, also under postponed annotations."""

    def function(z: int, **more) -> None: ...

    function.__annotations__["more"] = unpack[options]
    signature = read(declared(function))
    expected = [("z", int, MISSING), ("a", int, MISSING), ("b", str, ABSENT)]
    if options is Options:
        expected += [("c", Annotated[int, "the c"], ABSENT), ("d", Later, MISSING)]
    assert expected == [(item.name, item.annotation, item.default) for item in signature.parameters]
    assert MISSING is signature.extra
    assert ("z",) == signature.positional


class Later(BaseModel):
    x: int


class Page(typing.TypedDict, typing.Generic[T], total=False):
    first: typing.Required[T]
    more: "list[T] | None"
    note: Annotated[T, "a note"]
    size: int


@pytest.mark.parametrize(("page", "item"), [(Page[int], int), (Page, T)])
def test_type_variables_of_an_unpacked_typed_dict_are_replaced(page: Any, item: Any):
    """Without a type for them, they stay."""

    def function(**more) -> None: ...

    function.__annotations__["more"] = typing.Unpack[page]
    assert [item, list[item] | None, Annotated[item, "a note"], int] == annotations(function)


@pytest.mark.parametrize("other", [int, Later, dict[str, int]])
def test_only_a_typed_dict_can_be_unpacked(other: Any):
    """Anything else has no keys, and a number would be a command without parameters."""

    def function(**more) -> None: ...

    function.__annotations__["more"] = typing.Unpack[other]
    with pytest.raises(SchemaError, match="only a TypedDict can be unpacked into parameters; write the type without"):
        read(declared(function))


def test_a_key_of_an_unpacked_typed_dict_has_to_resolve():
    """The error names the TypedDict and the name."""

    def function(**more: typing.Unpack[Bad]) -> None: ...

    with pytest.raises(SchemaError, match=r"a key of Bad cannot be resolved \(name 'Nowhere' is not defined\)"):
        read(declared(function))


# --- annotations


def test_names_defined_later_in_the_module_resolve():
    """Nothing is resolved before the module body has run."""

    def function(a: Later, b: list[Later], c: Later | None, d: list["Later"]) -> Later: ...

    assert [Later, list[Later], Later | None, list[Later]] == annotations(function)
    assert Later is read(declared(function)).returns


def test_local_names_resolve():
    """Those of the function around, also when they are defined after the command."""

    @dataclass
    class Before:
        x: int

    @skill_command
    def function(a: Before, b: list[After] | None = None) -> None: ...

    @dataclass
    class After:
        x: int

    signature = read(declaration_of(function))
    assert [Before, list[After] | None] == [item.annotation for item in signature.parameters]


def test_local_names_of_a_closure_resolve():
    """Names that the body uses are found in its closure."""

    def outer() -> Callable[..., Any]:
        @dataclass
        class Inner:
            x: int

        def decorate(function: Callable[..., Any]) -> Any:
            return skill_command(function)

        def function(a: Inner) -> Inner:
            return Inner(a.x)

        return decorate(function)

    assert "Inner" == read(declaration_of(outer())).parameters[0].annotation.__name__


def test_type_parameters_resolve():
    """`def f[T](...)`, on Pythons that have it."""
    if sys.version_info < (3, 12):
        pytest.skip("the syntax is of Python 3.12")
    module = ModuleType("generic")
    source = "from __future__ import annotations\ndef function[T: int](a: T, b: list[T]) -> T: ...\n"
    exec(source, vars(module))
    (parameter,) = module.function.__type_params__
    assert [parameter, list[parameter]] == annotations(module.function)


def test_old_and_new_spellings_mean_the_same():
    """PEP 484, 585 and 604."""

    def function(a: Optional[int], b: Union[int, str], c: typing.List[int], d: "int | None") -> None: ...

    assert [int | None, int | str, typing.List[int], int | None] == annotations(function)


def problem(function: Callable[..., Any], **options: Any) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        read(declared(function, **options))
    return caught.value


def test_a_name_imported_for_type_checkers_only_is_an_error():
    """Loud, with file, line, parameter, and the way out; there is no schema to guess."""

    def function(a: int, price: Decimal) -> None: ...

    error = problem(function)
    assert (__file__, function.__code__.co_firstlineno) == (error.file, error.line)
    assert "parameter 'price': the annotation 'Decimal' cannot be resolved (name 'Decimal' is not defined)" in str(
        error
    )
    assert "import or define the name in this module, outside of `if TYPE_CHECKING:`" in str(error)


def test_an_unresolvable_return_type_is_an_error():
    """It says so; and `output=` is the way out, also for a text."""

    def function() -> Decimal: ...

    assert "the return type: the annotation 'Decimal' cannot be resolved" in str(problem(function))
    assert Later is read(declared(function, output=Later)).returns
    assert list[Later] == read(declared(function, output="list[Later]")).returns


@pytest.mark.parametrize(
    "annotation",
    ["int[", "1 +", "typing.ClassVar[int]", "typing.Nothing", "int['x']", typing.ClassVar[int], typing.Final[int]],
)
def test_what_is_no_type_is_an_error(annotation: object):
    """Whatever evaluating it raises."""

    def function(a: int) -> None: ...

    function.__annotations__["a"] = annotation
    assert f"parameter 'a': the annotation {annotation!r} cannot be resolved" in str(problem(function))
    assert "write a type there" in str(problem(function))


async def test_an_unresolvable_annotation_fails_its_command_and_no_other(tmp_path: Path):
    """The catalog has the failure, and the rest of the file."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "two.py").write_text(
        "from __future__ import annotations\n"
        "from prowess import skill_command\n"
        "@skill_command\n"
        "def bad(a: Nowhere): ...\n"
        "@skill_command\n"
        "def good(a: int): ...\n"
    )
    async with Runtime.open(tmp_path) as runtime:
        catalog = runtime.catalog()
    assert ["two.good"] == [contract.id for contract in catalog]
    (failure,) = catalog.failures
    assert (str(tmp_path / "skills" / "two.py"), 3) == (failure.file, failure.line)
    assert "parameter 'a': the annotation 'Nowhere' cannot be resolved" in failure.reason


POSTPONED = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
"""What postpones annotations: nothing, where the language does it."""


async def test_a_postponed_annotation_may_have_a_name_that_is_defined_later_or_nowhere(tmp_path: Path):
    """In the module, inside a function, in a hook and in a factory. Only where the name is needed is it an error."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "late.py").write_text(
        f"""{POSTPONED}
import typing
from prowess import hookimpl, skill_command

if typing.TYPE_CHECKING:
    from nowhere import Nowhere


class Named(typing.Protocol):
    name: str


class Db:
    name: str

    def __init__(self, spare: Nowhere = None) -> None:
        self.name = "db"


def opened(spare: Nowhere = None) -> typing.Iterator[Db]:
    yield Db()


@hookimpl
def prowess_injectables(provide: Nowhere) -> Nowhere:
    provide(Db, opened)


@skill_command
def read(what: Later, db: Named) -> str: ...


def outer() -> Nowhere:
    @skill_command
    def nested(what: Inner) -> int: ...

    Inner = list[int]
    return nested


nested = outer()


@skill_command(output=int)
def replaced() -> Nowhere: ...


@skill_command
def bad(what: list[Nowhere]) -> int: ...


class Later(typing.NamedTuple):
    many: int
"""
    )
    async with Runtime.open(tmp_path) as runtime:
        catalog = runtime.catalog()
    wanted = {contract.id: list(contract.input_schema["properties"]) for contract in catalog}
    assert {"late.nested": ["what"], "late.read": ["what"], "late.replaced": []} == wanted, catalog.failures
    (failure,) = catalog.failures
    annotation = "list['Nowhere']" if sys.version_info >= (3, 14) else "'list[Nowhere]'"
    assert f"parameter 'what': the annotation {annotation} cannot be resolved (name 'Nowhere'" in failure.reason


# --- results


Rows = typing_extensions.TypeAliasType("Rows", Iterator[int])
Whole = typing_extensions.TypeAliasType("Whole", int)
Same = typing_extensions.TypeAliasType("Same", "Same")


@pytest.mark.parametrize(
    "written, result",
    [
        (int, int),
        (None, type(None)),
        (Iterator[int], list[int]),
        (Iterable[int], list[int]),
        (typing.Iterator[int], list[int]),
        (typing.Iterator, list[Any]),
        (abc.Iterator, list[Any]),
        (AsyncIterator[int], list[int]),
        (AsyncIterable[int], list[int]),
        (AsyncGenerator[int, None], list[int]),
        (Generator[int, None, None], list[int]),
        (Generator[int, None, str], str),
        (Awaitable[int], int),
        (Coroutine[Any, Any, AsyncIterator[int]], list[int]),
        (Awaitable, Any),
        (Generator[int, None, dict[str, int]], dict[str, int]),
        (Generator, list[Any]),
        (typing.Generator, list[Any]),
        (list[Iterator[int]], list[Iterator[int]]),
        (Annotated[Iterator[int], "rows"], Annotated[list[int], "rows"]),
        (Annotated[Generator[int, None, str], "a", "b"], Annotated[str, "a", "b"]),
        (Annotated[Awaitable[Annotated[Iterator[int], "a"]], "b"], Annotated[list[int], "a", "b"]),
        (Rows, list[int]),
        (Annotated[int, "a"], Annotated[int, "a"]),
        (Whole, Whole),
        (Same, Same),
    ],
)
def test_what_is_yielded_is_a_list(written: Any, result: Any):
    """A generator that returns something returns that, and an awaitable gives what is awaited."""

    def function() -> Any: ...

    function.__annotations__["return"] = written
    assert result == read(declared(function)).returns


def test_an_unannotated_result_is_missing():
    """Nothing is promised of it."""

    def function(): ...

    assert MISSING is read(declared(function)).returns


@pytest.mark.parametrize(
    "written, final",
    [
        (Generator[int, None, str | None], True),
        (Annotated[Generator[int, None, str], "a"], True),
        (Coroutine[Any, Any, Generator[int, None, str]], True),
        (Generator[int, None, None], False),
        (Generator[int, None, Any], False),
        (Generator[int], False),
        (Generator, False),
        (Rows, False),
        (str, False),
    ],
)
def test_the_type_of_a_generator_says_whether_its_return_value_is_the_result(written: Any, final: bool):
    def function() -> Any: ...

    function.__annotations__["return"] = written
    assert final is read(declared(function)).final


async def an_async_function() -> None: ...


async def an_async_generator() -> Any:
    yield 1


def a_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    "function, style",
    [
        (test_an_unannotated_result_is_missing, "sync"),
        (an_async_function, "async"),
        (a_generator, "generator"),
        (an_async_generator, "async generator"),
    ],
)
def test_the_style_is_how_a_function_is_called(function: Callable[..., Any], style: str):
    """Told from its code, not from its annotations."""
    assert style == read(declared(function)).style


# --- looking into annotations


@pytest.mark.parametrize(
    "annotation, expected",
    [
        (int | None, int),
        (Optional[int], int),
        (Annotated[int, "x"], int),
        (Annotated[int | None, "x"], int),
        (Annotated[int, "x"] | None, int),
        (int | str | None, int | str | None),
        (int, int),
    ],
)
def test_none_is_taken_out_of_an_optional(annotation: Any, expected: Any):
    """Of one with a single other choice."""
    assert expected == without_none(annotation)


@pytest.mark.parametrize(
    "annotation, expected",
    [
        (int, ()),
        (Annotated[int, "x", 5], ("x", 5)),
        (Annotated[int, "x"] | None, ("x",)),
        (Annotated[int | None, "x"], ("x",)),
        (list[Annotated[int, "x"]], ()),
    ],
)
def test_metadata_is_what_stands_beside_the_type(annotation: Any, expected: tuple[Any, ...]):
    """Not what stands deeper inside."""
    assert expected == metadata(annotation)
