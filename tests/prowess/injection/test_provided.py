"""Which provider a type means: generics, protocols, subclasses, aliases; and what is refused."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NewType, Optional, Protocol, TypeVar

import pytest
import typing_extensions
from pydantic import BaseModel
from tests.prowess.embedded import call, injectables

from prowess import Context, Inject, Runtime, skill_command
from prowess.errors import InjectionError
from prowess.injection.provided import ancestors, annotations_of, implements, key_of, names_of, result_type, shown

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")
K = TypeVar("K")


class User: ...


class Order: ...


class Repo(Generic[T]):
    name = "open"


class Users(Repo[User]):
    name = "users"


class Pairs(Generic[K, T]): ...


class UserPairs(Pairs[User, T]): ...


class OrderPairs(UserPairs[Order]):
    name = "order pairs"


class Mailer(Protocol):
    name: str

    def send(self, text: str) -> None: ...


class Empty(Protocol): ...


class Smtp:
    name: str

    def __init__(self) -> None:
        self.name = "smtp"

    def send(self, text: str) -> None: ...


class Declared(Mailer):
    name = "declared"

    def send(self, text: str) -> None: ...


class Saver(Protocol[T]):
    def save(self, item: T) -> None: ...


class UserSaver(Saver[User]):
    name = "user saver"

    def save(self, item: User) -> None: ...


class OrderSaver(Saver[Order]):
    name = "order saver"

    def save(self, item: Order) -> None: ...


class Db:
    name = "db"


class Postgres(Db):
    name = "postgres"


Main = NewType("Main", Db)
Alias = typing_extensions.TypeAliasType("Alias", Db)
Nested = typing_extensions.TypeAliasType("Nested", Optional[Alias])


def named(name: str) -> Callable[[], Any]:
    """A factory of something with a name."""

    def make() -> Any:
        thing = Smtp()
        thing.name = name
        return thing

    return make


async def found(tmp_path: Path, annotation: Any, *provided: tuple[Any, Any]) -> str:
    """The name of what a parameter of some type is filled with."""

    @skill_command
    async def asking(it):  # type: ignore[no-untyped-def]
        return it.name

    asking.raw.__annotations__["it"] = annotation
    async with Runtime.open(tmp_path) as runtime:
        for type_, factory in provided:
            injectables(runtime).provide(type_, factory)
        assert {} == injectables(runtime).broken()
        outcome = await call(runtime, asking)
        assert outcome.ok, outcome.text
        return outcome.value


@pytest.mark.parametrize(
    ("annotation", "provided", "name"),
    [
        (Repo[User], [(Repo[User], named("users")), (Repo[Order], named("orders"))], "users"),
        (Repo[Order], [(Repo[User], named("users")), (Repo[Order], named("orders"))], "orders"),
        (Repo[User], [(Users, Users), (Repo[Order], named("orders"))], "users"),
        (Repo[User] | None, [(Users, Users)], "users"),
        (Repo, [(Users, Users)], "users"),
        (Repo, [(Repo[Order], named("orders"))], "orders"),
        (Pairs[User, Order], [(OrderPairs, OrderPairs)], "order pairs"),
        (UserPairs[Order], [(OrderPairs, OrderPairs), (Users, Users)], "order pairs"),
        (Db, [(Postgres, Postgres)], "postgres"),
        (Db, [(Postgres, Postgres), (Db, Db)], "db"),
        (Mailer, [(Smtp, Smtp), (Db, Db)], "smtp"),
        (Mailer, [(Smtp, Smtp), (Declared, Declared)], "declared"),
        (Mailer, [(Mailer, named("itself")), (Smtp, Smtp)], "itself"),
        (Saver[User], [(UserSaver, UserSaver), (OrderSaver, OrderSaver)], "user saver"),
        (Main, [(Main, named("main")), (Db, Db)], "main"),
        (Alias, [(Db, Db)], "db"),
        (Nested, [(Db, Db)], "db"),
        (Db, [(Alias, named("by alias"))], "by alias"),
        (Annotated[Db, "spare"], [(Annotated[Db, "spare"], named("spare")), (Db, Db)], "spare"),
        (Annotated[Db, "spare"] | None, [(Annotated[Db, "spare"], named("spare")), (Db, Db)], "spare"),
        (Annotated[Db, "other"], [(Annotated[Db, "spare"], named("spare")), (Db, Db)], "db"),
        (Annotated[Db, ["unhashable"]], [(Db, Db)], "db"),
        (Annotated[str, Inject("token")], [(Annotated[str, Inject("token")], named("by mark"))], "by mark"),
        (Annotated[Any, Inject("token")], [("token", named("by name"))], "by name"),
        (Callable[[str], int], [(Callable[[str], int], named("a function"))], "a function"),
        (Repo[Literal["a"]], [(Repo[Literal["a"]], named("of literals"))], "of literals"),
    ],
)
async def test_what_a_type_means(tmp_path: Path, annotation: Any, provided: Any, name: str):
    """The very type first, then what derives from it, then what has all that a protocol asks for."""
    assert name == await found(tmp_path, annotation, *provided)


async def test_a_factory_asks_in_the_same_ways(tmp_path: Path):
    """Its parameters are found like those of commands."""

    class Service:
        def __init__(self, users: Repo[User], mailer: Mailer, db: Nested) -> None:
            self.name = f"{users.name} {mailer.name} {db.name}"

    provided = (Service, Service), (Users, Users), (Smtp, Smtp), (Postgres, Postgres)
    assert "users smtp postgres" == await found(tmp_path, Service, *provided)


@pytest.mark.parametrize(
    ("annotation", "provided", "reason"),
    [
        (Db, [(Postgres, Postgres), (Main, Db), ("x", Db), (type("Other", (Db,), {}), Db)], "Db matches several providers: Other, Postgres"),
        (Repo, [(Repo[User], Users), (Repo[Order], Users)], r"Repo matches several providers: Repo\[Order\], Repo\[User\]"),
        (Mailer, [(Smtp, Smtp), (type("Pop", (Smtp,), {}), Smtp)], "Mailer matches several providers: Pop, Smtp; ask for one of them"),
    ],
)  # fmt: skip
async def test_what_could_be_several_is_none(tmp_path: Path, annotation: Any, provided: Any, reason: str):
    """For a command, and for a factory: the candidates are named, and what to do."""

    @skill_command
    async def asking(it):  # type: ignore[no-untyped-def]
        """Never runs."""

    class Needing:
        def __init__(self, it: Any) -> None: ...

    asking.raw.__annotations__["it"] = Needing.__init__.__annotations__["it"] = annotation
    async with Runtime.open(tmp_path) as runtime:
        for type_, factory in provided:
            injectables(runtime).provide(type_, factory)
        with pytest.raises(InjectionError, match=f"parameter 'it': {reason}"):
            await call(runtime, asking)
        injectables(runtime).provide(Needing, Needing)
        broken = injectables(runtime).broken()
    assert [Needing] == list(broken)
    assert broken[Needing].reason.startswith(f"{shown(Needing)} (parameter 'it' of its provider): ")


class Account(BaseModel):
    name: str = "account"


class Admin(Account):
    name: str = "admin"


@dataclass
class Place:
    name: str = "place"


class Home(Place): ...


class Row(typing_extensions.TypedDict):
    name: str


class WideRow(Row):
    more: str


@pytest.mark.parametrize(
    ("sent", "derived"), [(Account, Admin), (Place, Home), (Row, WideRow), (Account | None, Admin)]
)
async def test_data_is_not_taken_from_clients_by_what_derives_from_it(tmp_path: Path, sent: Any, derived: Any):
    """Only a provider or an override of the very class fills such a parameter, or a mark that asks for it."""

    @skill_command
    async def asking(it):  # type: ignore[no-untyped-def]
        return it["name"] if isinstance(it, dict) else it.name

    async def answers(*provided: Any, arguments: Any = None, overrides: Any = None) -> Any:
        async with Runtime.open(tmp_path, overrides=overrides) as runtime:
            for type_ in provided:
                made = functools.partial(dict, name="made") if issubclass(type_, dict) else type_
                injectables(runtime).provide(type_, made)
            return (await call(runtime, asking, arguments)).value

    asking.raw.__annotations__["it"] = sent
    bare = key_of(sent)
    instance = {"name": "over"} if bare is Row else bare(name="over")
    assert "sent" == await answers(derived, arguments={"it": {"name": "sent"}})
    assert "over" == await answers(derived, overrides={bare: instance})
    assert "over" == await answers(derived, overrides={bare.__name__: instance})
    assert await answers(bare) in ("account", "place", "made")
    asking.raw.__annotations__["it"] = Annotated[sent, Inject()]
    assert await answers(derived) in ("admin", "place", "made")


async def test_what_is_everybody_s_is_not_found_by_what_derives_from_it(tmp_path: Path):
    """Nor is an empty protocol, or a protocol in the place of a thing: nobody asked for that."""

    class Stamp(datetime): ...

    class Table(Mapping[str, int]): ...

    async with Runtime.open(tmp_path) as runtime:
        for kind in (Stamp, Table, Smtp):
            injectables(runtime).provide(kind, kind)
        for key in (object, datetime, Mapping[str, int], Empty, Repo, Exception):
            assert not injectables(runtime).knows(key)
        assert not implements(Mailer, Empty)
        assert not implements(Mailer, Mailer)
        assert not implements(Main, Mailer)


@pytest.mark.parametrize(
    "kind",
    [str, int, bytes, bool, list, dict[str, int], list[User], datetime, Path, Any, Optional[str], str | int,
     Literal["a"], object, Mapping[str, int], T],
)  # fmt: skip
async def test_plain_data_is_provided_by_name_only(tmp_path: Path, kind: Any):
    """By type it would take every such parameter of every skill."""
    async with Runtime.open(tmp_path) as runtime:
        with pytest.raises(
            InjectionError, match=r'would fill every parameter .* give it a name, provide\(.*name="..."'
        ):
            injectables(runtime).provide(kind, lambda: None)
        injectables(runtime).provide(kind, lambda: None, name="it")


@pytest.mark.parametrize(
    ("kind", "factory", "reason"),
    [
        (7, Db, "7 is not a type that can be provided"),
        (None, Db, "None is not a type that can be provided"),
        (Db | User, Db, "would fill every parameter"),
        (Db, Db(), "Db: <.*> must be a factory: a class, a function or a provider"),
        (Repo[Literal[["no hash"]]], Db, "is not a type that can be provided"),
    ],
)
async def test_what_cannot_be_provided_is_refused(tmp_path: Path, kind: Any, factory: Any, reason: str):
    """With the reason, at once."""
    async with Runtime.open(tmp_path) as runtime:
        with pytest.raises(InjectionError, match=reason):
            injectables(runtime).provide(kind, factory)


async def test_a_type_is_its_own_factory(tmp_path: Path):
    """If nothing else is given."""
    async with Runtime.open(tmp_path) as runtime:
        assert [Db] == injectables(runtime).provide(Db)


# The names that annotations use


def only_for_checkers(db: Db, rate: Decimal | None = None) -> Iterator[Decimal]:
    assert rate is None
    yield db  # type: ignore[misc]


def needing_a_checker(rate: Decimal) -> Db:
    raise AssertionError


@dataclass
class Generated:
    db: Db
    rate: Decimal | None = None

    @property
    def name(self) -> str:
        return self.db.name


class Callable_:
    def __call__(self, db: Db, rate: Decimal | None = None) -> Any:
        return db


class Methods:
    def make(self, db: Db, rate: Decimal | None = None) -> Any:
        return db


def local_factory() -> Any:
    class Local(Db):
        name = "local"

    def make(local: Local, rate: Decimal | None = None) -> Any:
        assert isinstance(local, Local)
        assert "later" in make.__code__.co_freevars
        return local if local.name else later

    if not Local.name:
        later = None  # a name that is never bound
    return Local, make


@pytest.mark.parametrize(
    "factory",
    [only_for_checkers, Generated, Callable_(), Methods().make, functools.partial(only_for_checkers), functools.partial(Generated, rate=None)],
    ids=["function", "class", "object", "method", "partial function", "partial class"],
)  # fmt: skip
async def test_names_for_type_checkers_harm_no_factory(tmp_path: Path, factory: Any):
    """Where nobody has to provide what they name."""
    assert "db" == await found(tmp_path, User, (User, factory), (Db, Db))


async def test_local_names_are_found(tmp_path: Path):
    """Of the function in which the factory was written."""
    local, make = local_factory()
    assert "local" == await found(tmp_path, User, (User, make), (local, local))


async def test_a_name_for_type_checkers_that_is_needed_is_named(tmp_path: Path):
    """With the factory, its place and the way out."""
    async with Runtime.open(tmp_path) as runtime:
        with pytest.raises(InjectionError) as caught:
            injectables(runtime).provide(Db, needing_a_checker)
    error = caught.value
    assert error.reason.startswith("the factory needing_a_checker needs parameter 'rate', and its annotation 'Decimal'")
    assert "import the name outside of `if TYPE_CHECKING:`" in error.reason
    assert (__file__, needing_a_checker.__code__.co_firstlineno) == (error.file, error.line)


PLUGIN = """
    from __future__ import annotations
    from typing import TYPE_CHECKING, Annotated
    from prowess import Inject, hookimpl, skill_command
    if TYPE_CHECKING:
        from nowhere import Rate

    class Clock: ...
    class Diary: ...

    def bad(rate: Rate) -> Clock: ...
    def good(rate: Rate | None = None) -> Rate:
        return Diary()

    @hookimpl
    def prowess_injectables(provide):
        provide(Clock, bad)
        provide(str, lambda: "x")
        provide(Diary, good)

    @skill_command
    def note(text: str, diary: Diary) -> str:
        return f"{text} {type(diary).__name__}"
"""


async def test_one_bad_provider_leaves_the_others_of_its_plugin(tmp_path: Path):
    """It is a failure with the line where it stands, and a text is still a text."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/diary.py").write_text(dedent(PLUGIN), "utf-8")
    async with Runtime.open(tmp_path) as runtime:
        failures = runtime.catalog().failures
        assert "milk Diary" == (await runtime.call("diary.note", {"text": "milk"})).value
    assert [10, 17] == [
        dedent(PLUGIN).split("\n").index(line)
        for line in ("def bad(rate: Rate) -> Clock: ...", '    provide(str, lambda: "x")')
    ]
    assert [(str(tmp_path / "skills/diary.py"), 11), (str(tmp_path / "skills/diary.py"), 18)] == [
        (it.file, it.line) for it in failures
    ]
    assert "annotation 'Rate' cannot be resolved" in failures[0].reason
    assert "a provider of str would fill every parameter" in failures[1].reason


# Overriding, from a test that cannot import the skill's class as the skill does


CLOCKS = """
    from prowess import hookimpl, skill_command

    class Clock:
        def now(self):
            return "now"

    class Diary:
        def __init__(self, clock: Clock):
            self.clock = clock

    @hookimpl
    def prowess_injectables(provide):
        provide(Clock)
        provide(Diary)

    @skill_command
    def now(clock: Clock, diary: Diary) -> list[str]:
        return [clock.now(), diary.clock.now()]
"""


class Fake:
    def now(self) -> str:
        return "then"


@pytest.mark.parametrize("way", ["Clock", "clocks.Clock", "imported"])
async def test_a_test_overrides_by_name_or_by_a_class_of_the_same_file(tmp_path: Path, way: str, monkeypatch: Any):
    """In one line, also what was made before; a skill has a module of its own that nobody else can import."""
    (tmp_path / "skills").mkdir()
    file = tmp_path / "skills/clocks.py"
    file.write_text(dedent(CLOCKS), "utf-8")
    key: Any = way
    if way == "imported":
        monkeypatch.syspath_prepend(str(tmp_path / "skills"))
        import clocks  # type: ignore[import-not-found]

        key = clocks.Clock
        monkeypatch.delitem(__import__("sys").modules, "clocks", raising=False)
        monkeypatch.setitem(__import__("sys").modules, "clocks", clocks)
    async with Runtime.open(tmp_path, overrides={key: Fake()}) as runtime:
        assert ["then", "then"] == (await runtime.call("clocks.now")).value
    async with Runtime.open(tmp_path) as runtime:
        with runtime.override(key, Fake()):
            assert ["then", "then"] == (await runtime.call("clocks.now")).value
        assert ["now", "now"] == (await runtime.call("clocks.now")).value
        with runtime.override(key, Fake()), runtime.override("Logger", Fake()):
            assert ["then", "then"] == (await runtime.call("clocks.now")).value
        assert ["now", "now"] == (await runtime.call("clocks.now")).value


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("Clok", "did you mean 'Clock'?"),
        ("clocks.Diry", "did you mean 'Diary'?"),
        ("zzz", "there are Clock, ConfigPaths, Context, Diary, Logger, Settings"),
        (Db, "the override of 'Db' replaces nothing: it has no provider, and nothing asks for it"),
        (type("Clock", (), {}), "another class of that name has one"),
        (str, "an override of str would replace every parameter of that type in every skill; override a name"),
    ],
)
@pytest.mark.parametrize("early", [True, False])
async def test_an_override_that_replaces_nothing_is_refused(tmp_path: Path, key: Any, said: str, early: bool):
    """A slip in a name would leave the real thing in place."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/clocks.py").write_text(dedent(CLOCKS), "utf-8")

    async def overridden() -> None:
        async with Runtime.open(tmp_path, overrides={key: 1} if early else {}) as runtime:
            with runtime.override(key, 1):
                pass

    with pytest.raises(InjectionError, match=re.escape(said)):
        await overridden()
    async with Runtime.open(tmp_path) as runtime:
        with contextlib.suppress(InjectionError), runtime.override(key, 1):
            pass
        assert ["now", "now"] == (await runtime.call("clocks.now")).value


async def test_an_override_may_fill_what_only_a_command_asks_for(tmp_path: Path):
    """A skill that is not loaded yet, the factory of a provider, or a command that Python code brings later."""
    (tmp_path / "skills").mkdir()
    for name in ("asking", "other"):
        source = f"""
            from typing import Annotated
            from prowess import Inject, hookimpl, skill_command

            @skill_command
            def token(it: Annotated[str, Inject("{name}_token")]) -> str:
                return it
            """
        (tmp_path / f"skills/{name}.py").write_text(dedent(source), "utf-8")
    async with Runtime.open(tmp_path, overrides={"other_token": "y"}) as runtime:
        assert "y" == (await runtime.call("other.token")).value
        with (
            pytest.raises(InjectionError, match=r"This could not be loaded: asking\.token"),
            runtime.override("tokens", 1),
        ):
            pass
        with runtime.override("asking_token", "x"):
            assert "x" == (await runtime.call("asking.token")).value

        with pytest.raises(InjectionError, match="there are"), runtime.override(Db, Db()):
            pass

        @skill_command
        async def plain() -> int:
            return 1

        @skill_command
        async def needy(db: Db) -> str:
            return db.name

        assert 1 == (await call(runtime, plain)).value
        with runtime.override(Db, Db()):
            assert "db" == (await call(runtime, needy)).value


async def test_a_command_that_lost_its_provider_says_so(tmp_path: Path):
    """It was compiled while a test provided for it."""

    @skill_command
    async def asking(db: Db) -> str:
        return db.name

    async with Runtime.open(tmp_path) as runtime:
        with runtime.override(Db, Db()):
            assert "db" == (await call(runtime, asking)).value
        assert "there is no provider for Db" in (await call(runtime, asking)).text


# The pieces


def test_ancestors_have_their_arguments_filled_in():
    """Through several classes, and to the open ones."""
    assert {OrderPairs, UserPairs[Order], UserPairs, Pairs[User, Order], Pairs} <= set(ancestors(OrderPairs))
    assert [Main] == list(ancestors(Main))


def test_names_of_a_type():
    assert ["Db", "test_provided.Db"] == list(names_of(Db))[:2]
    assert "Repo[User]" == shown(Repo[User])
    assert "Repo[User] | Db" == shown(Repo[User] | Db)
    assert "7" == shown(7)


def test_keys_look_through_what_only_names_them():
    assert Db is key_of(Nested) is key_of(Annotated[Alias, "x"] | None)


def test_the_type_of_a_result():
    """By annotation, also through iterators and awaitables; nobody has to say."""

    def iterator() -> Iterator[Repo[User]]: ...

    async def later() -> Db: ...

    def coroutine() -> typing_extensions.Coroutine[Any, Any, Db]: ...

    def silent(): ...  # type: ignore[no-untyped-def]

    def unresolved() -> Decimal: ...

    assert [Repo[User], Db, Db, None, None, Db] == [
        result_type(it) for it in (iterator, later, coroutine, silent, unresolved, Db)
    ]
    assert Context is result_type(Context)


class WithoutPython:
    """Its signature is written by hand: there is no function whose names its annotations could use."""

    __signature__ = inspect.Signature([inspect.Parameter("db", inspect.Parameter.KEYWORD_ONLY, annotation=Db)])


def test_a_factory_that_is_no_function_of_python_says_what_it_needs():
    assert [Db] == [resolve() for _, resolve in annotations_of(WithoutPython)]
