"""A project's own container of dependency-injector, and single providers of it."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any, Generic, Protocol, TypeVar

import pytest
from dependency_injector import containers, providers, resources
from pydantic import BaseModel
from tests.prowess.embedded import call, injectables

from prowess import ConfigPaths, Inject, Runtime, Settings, skill_command
from prowess.command import Command
from prowess.errors import InjectionError

PATIENCE = 60
numbers = itertools.count(1)


class Clock:
    """Something that others need."""

    def now(self) -> str:
        return "now"


class FakeClock(Clock):
    def now(self) -> str:
        return "then"


class Db:
    def __init__(self, clock: Clock, url: str = "") -> None:
        self.clock = clock
        self.url = url


class Session:
    """Made for each call, and closed with it."""

    seen: list[str]

    def __init__(self, db: Db) -> None:
        self.db = db
        self.thread = threading.get_ident()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.thread == threading.get_ident()
        self.seen.append("close")


class User(BaseModel):
    name: str


def make_report(db: Db) -> Report:
    return Report(db)


class Report:
    def __init__(self, db: Db) -> None:
        self.db = db


def container_class() -> Any:
    """A class of its own for each test: providers that are declared are shared."""

    class Gateways(containers.DeclarativeContainer):
        config = providers.Configuration()
        clock = providers.Singleton(Clock)
        db = providers.Singleton(Db, clock=clock, url=config.url)

    class Container(containers.DeclarativeContainer):
        config = providers.Configuration(default={"db": {"url": "default", "size": 3}})
        settings = providers.Dependency(instance_of=Settings)
        paths = providers.Dependency(instance_of=ConfigPaths)
        gateways = providers.Container(Gateways, config=config.db)
        session = providers.Factory(Session, gateways.db)
        report = providers.ThreadSafeSingleton(make_report, db=gateways.db)
        user = providers.Factory(User, name="Ada")
        answer = providers.Object(42)
        texts = providers.List("a", config.db.url)
        root = providers.Callable(lambda settings, paths: [settings.root, paths.project_root], settings, paths)

    return Container


@skill_command
def by_type(db: Db, report: Report, clock: Clock) -> list[Any]:
    return [db.url, report.db is db, db.clock is clock, clock.now()]


@skill_command
async def by_type_async(db: Db, report: Report, clock: Clock) -> list[Any]:
    return [db.url, report.db is db, db.clock is clock, clock.now()]


@skill_command
def by_name(  # noqa: PLR0917 - one parameter for each kind of provider
    db: Annotated[Db, Inject("gateways.db")],
    user: Annotated[Any, Inject("user")],
    answer: Annotated[int, Inject("answer")],
    texts: Annotated[list[str], Inject("texts")],
    size: Annotated[dict[str, Any], Inject("config")],
    root: Annotated[list[Path], Inject("root")],
) -> list[Any]:
    return [db.url, user.name, answer, texts, size["db"]["size"], root[0] == root[1]]


@pytest.mark.parametrize("command", [by_type, by_type_async], ids=["sync", "async"])
async def test_providers_of_a_container_are_found_by_type(tmp_path: Path, command: Command):
    """Configured by the settings, over its own defaults, and each thing once."""
    async with Runtime.open(tmp_path, flags={"db.url": "set"}) as runtime:
        injectables(runtime).provide(container_class())
        assert [["set", True, True, "now"]] * 2 == [(await call(runtime, command)).value for _ in range(2)]


async def test_providers_of_a_container_are_found_by_dotted_name(tmp_path: Path):
    """All of them, also those that make plain data; what Prowess knows itself fills dependencies."""
    async with Runtime.open(tmp_path, flags={"db.url": "set"}) as runtime:
        injectables(runtime).provide(container_class())
        assert ["set", "Ada", 42, ["a", "set"], 3, True] == (await call(runtime, by_name)).value


async def test_plain_data_and_models_of_a_container_are_not_taken_from_clients(tmp_path: Path):
    """A parameter of such a type is an argument as before."""

    @skill_command
    def greet(user: User, answer: int) -> str:
        return f"{user.name} {answer}"

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(container_class())
        assert "Eve 7" == (await call(runtime, greet, {"user": {"name": "Eve"}, "answer": 7})).value


async def test_what_a_factory_gives_lives_for_the_call(tmp_path: Path):
    """Each call has its own, in its thread, and it is closed with the call."""
    Session.seen = []

    @skill_command
    def using(session: Session, again: Annotated[Session, Inject("session")]) -> list[Any]:
        assert threading.get_ident() == session.thread
        return [session is again, session.db.url]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(container_class())
        outcomes = await asyncio.gather(*(call(runtime, using) for _ in range(10)))
    assert [[True, "default"]] * 10 == [outcome.value for outcome in outcomes]
    assert ["close"] * 10 == Session.seen


async def test_containers_may_have_names(tmp_path: Path):
    """Two of one kind are told apart; by type alone neither is meant."""
    container = container_class()

    @skill_command
    def both(one: Annotated[Db, Inject("one.gateways.db")], two: Annotated[Db, Inject("two.gateways.db")]) -> list[Any]:
        return [one is two, two.url]

    @skill_command
    def either(db: Db) -> None:
        """Never runs."""

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(container, name="one")
        injectables(runtime).provide(container(), name="two")
        assert [False, "default"] == (await call(runtime, both)).value
        with pytest.raises(InjectionError) as caught:
            await call(runtime, either)
        with runtime.override("one.gateways.db", Db(Clock(), "fake")):
            assert [False, "default"] == (await call(runtime, both)).value
    assert "parameter 'db': Db matches several providers: one.gateways.db, two.gateways.db; ask for one of them" in str(
        caught.value
    )


@pytest.mark.parametrize("key", [Clock, "gateways.clock", "Clock"], ids=str)
@pytest.mark.parametrize("value", [FakeClock(), providers.Factory(FakeClock)], ids=["value", "provider"])
async def test_an_override_reaches_what_was_made_before_and_takes_back_what_was_made_inside(
    tmp_path: Path, key: Any, value: Any
):
    """In the container, and in what a plugin provides with parts of it."""

    class Shop:
        def __init__(self, report: Report) -> None:
            self.clock = report.db.clock

    @skill_command
    def look(report: Report, shop: Shop) -> list[Any]:
        return [report.db.clock.now(), shop.clock is report.db.clock, id(report), id(shop)]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(container_class())
        injectables(runtime).provide(Shop, Shop)
        before = (await call(runtime, look)).value
        with runtime.override(key, value):
            inside = [(await call(runtime, look)).value for _ in range(2)]
        after = (await call(runtime, look)).value
    assert ["now", True] == before[:2]
    assert before == after
    assert ["then", True] == inside[0][:2]
    assert inside[0][2:] == inside[1][2:]
    assert set(before[2:]).isdisjoint(inside[0][2:])


async def test_overrides_reach_what_comes_later(tmp_path: Path):
    """Those of the runtime, and those that are there while a plugin loads."""
    async with Runtime.open(tmp_path, overrides={Clock: FakeClock()}) as runtime:
        injectables(runtime).provide(container_class())
        assert ["default", True, True, "then"] == (await call(runtime, by_type)).value
    async with Runtime.open(tmp_path) as runtime:
        with runtime.override(Clock, FakeClock()):
            injectables(runtime).provide(container_class())
            assert ["default", True, True, "then"] == (await call(runtime, by_type)).value
        assert ["default", True, True, "now"] == (await call(runtime, by_type)).value


async def test_what_is_kept_is_made_once_by_many_at_once(tmp_path: Path):
    """Whatever kind of singleton it is, and in however many threads."""
    made: list[int] = []
    meet = threading.Barrier(8)

    class Slow:
        def __init__(self) -> None:
            time.sleep(0)
            made.append(1)

    class Using:
        def __init__(self, slow: Slow) -> None:
            self.slow = slow

    class Container(containers.DeclarativeContainer):
        slow = providers.Singleton(Slow)
        using = providers.Factory(Using, slow)

    @skill_command
    def use(using: Using, slow: Slow) -> int:
        meet.wait(PATIENCE)
        return id(using.slow) if using.slow is slow else 0

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Container)
        outcomes = await asyncio.gather(*(call(runtime, use) for _ in range(8)))
    assert (1, 1) == (len(made), len({outcome.value for outcome in outcomes}))


class Pool:
    def __init__(self, name: str) -> None:
        self.name = name


class Life:
    """Resources in all forms, that note what happens."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def sync(self) -> Iterator[Pool]:
        self.seen.append("open sync")
        yield Pool("sync")
        self.seen.append("close sync")

    async def on_loop(self, inner: Any = None) -> AsyncIterator[Pool]:
        self.seen.append("open async")
        yield Pool("async")
        self.seen.append("close async")

    def outer(self, pool: Pool) -> Iterator[Db]:
        self.seen.append("open outer")
        yield Db(Clock(), pool.name)
        self.seen.append("close outer")


async def test_resources_close_with_the_runtime(tmp_path: Path):
    """Those first that need others; and those that took their place while something was overridden."""
    life = Life()

    class Container(containers.DeclarativeContainer):
        pool = providers.Resource(life.sync)
        outer = providers.Resource(life.outer, pool)

    @skill_command
    def url(db: Annotated[Db, Inject("outer")], pool: Pool) -> str:
        return f"{db.url} {pool.name}"

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Container)
        assert ["sync sync"] * 2 == [(await call(runtime, url)).value for _ in range(2)]
        assert ["open sync", "open outer"] == life.seen
        with runtime.override(Pool, Pool("fake")):
            assert "fake fake" == (await call(runtime, url)).value
        assert ["open sync", "open outer", "open outer"] == life.seen
    assert ["close outer", "close outer", "close sync"] == sorted(life.seen[3:5]) + life.seen[5:]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_async_resources_live_on_the_loop(tmp_path: Path, is_async: bool):
    """And so does whatever needs them, for commands of either kind."""
    life = Life()

    class Needing:
        def __init__(self, pool: Pool) -> None:
            self.pool = pool

    class Async(resources.AsyncResource):
        async def init(self, pool: Pool) -> Db:  # type: ignore[override]
            return Db(Clock(), pool.name)

        async def shutdown(self, resource: Db) -> None:
            life.seen.append(f"close {resource.url}")

    async def made(pool: Pool) -> Report:
        return Report(Db(Clock(), pool.name))

    class Container(containers.DeclarativeContainer):
        pool = providers.Resource(life.on_loop)
        needing = providers.Singleton(Needing, pool)
        db = providers.Resource(Async, pool)
        report = providers.Coroutine(made, pool)

    if is_async:

        @skill_command
        async def name(needing: Needing, db: Db, report: Report) -> list[str]:
            return [needing.pool.name, db.url, report.db.url]

    else:

        @skill_command
        def name(needing: Needing, db: Db, report: Report) -> list[str]:
            return [needing.pool.name, db.url, report.db.url]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Container)
        outcomes = await asyncio.gather(*(call(runtime, name) for _ in range(5)))
    assert [["async"] * 3] * 5 == [outcome.value for outcome in outcomes]
    assert ["open async", "close async", "close async"] == life.seen


async def test_a_sync_resource_class_is_found_by_what_it_gives(tmp_path: Path):
    """Its `init` says so; and a provider that provides another one is what that is."""

    class Sync(resources.Resource):
        def init(self) -> Pool:  # type: ignore[override]
            return Pool("class")

    class Container(containers.DeclarativeContainer):
        pool = providers.Resource(Sync)
        clock = providers.Factory(providers.Factory(FakeClock))

    @skill_command
    def name(pool: Pool, clock: Clock) -> str:
        return f"{pool.name} {clock.now()}"

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Container)
        assert "class then" == (await call(runtime, name)).value


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_provider_that_fails_is_named_and_tried_again(tmp_path: Path, is_async: bool):
    """By the next call."""
    tried: list[int] = []

    def connect() -> Pool:
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionError("no route")
        return Pool("at last")

    async def connect_async() -> Pool:
        return connect()

    provider = providers.Coroutine(connect_async) if is_async else providers.Singleton(connect)

    @skill_command
    def name(pool: Pool) -> str:
        return pool.name

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Pool, provider)
        first, second = [await call(runtime, name) for _ in range(2)]
    assert ("crashed", "at last") == (first.kind, second.value)
    assert "ConnectionError: no route (while Pool was being provided)" in first.text


class Lonely(containers.DeclarativeContainer):
    clock = providers.Dependency(instance_of=Clock)
    db = providers.Singleton(Db, clock)


def clock_of(db: Db) -> Clock:
    return db.clock


async def test_a_container_with_gaps_is_refused(tmp_path: Path):
    """What nobody provides is named; so is a name that is taken."""

    class Untyped(containers.DeclarativeContainer):
        anything = providers.Dependency(instance_of=str)

    async with Runtime.open(tmp_path) as runtime:
        with pytest.raises(
            InjectionError, match=r'the container cannot be used: .*undefined dependencies.*"Untyped.anything"'
        ):
            injectables(runtime).provide(Untyped)
        injectables(runtime).provide(Db, name="clock")
        with pytest.raises(InjectionError, match="clock already has a provider"):
            injectables(runtime).provide(Lonely(clock=providers.Factory(Clock)))


async def test_a_container_may_depend_on_what_plugins_provide(tmp_path: Path):
    """In either direction, sync or async; each thing is made once, and an override reaches what was made with it."""

    async def make_clock():
        yield FakeClock()

    class Shop:
        def __init__(self, db: Db) -> None:
            self.db = db

    class Container(Lonely):
        report = providers.Factory(make_report, Lonely.db)

    @skill_command
    def look(db: Db, shop: Shop, clock: Clock, report: Report) -> list[Any]:
        return [clock.now(), db.clock is clock, shop.db is db, report.db is db, id(db)]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Container)
        injectables(runtime).provide(Shop)
        injectables(runtime).provide(Clock, make_clock)
        assert {} == injectables(runtime).broken()
        before = (await call(runtime, look)).value
        assert ["then", True, True, True] == before[:4]
        with runtime.override(Clock, Clock()):
            inside = (await call(runtime, look)).value
            assert ["now", True, True, True] == inside[:4]
        assert before == (await call(runtime, look)).value
    assert before[4] != inside[4]


@pytest.mark.parametrize(
    ("provide", "reason"),
    [
        (lambda given: None, "(dependency 'Lonely.clock' of its provider): there is no provider for Clock"),
        (
            lambda given: given.provide(Clock, lifetime="call"),
            "is Clock, which is made for each call, and a container can only use singletons",
        ),
        (lambda given: given.provide(Clock, clock_of), "depend on each other in a circle"),
    ],
    ids=["nobody", "per call", "circle"],
)
async def test_a_dependency_that_cannot_be_filled_is_named_at_load(tmp_path: Path, provide: Any, reason: str):
    """With all that needs it."""
    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Lonely)
        provide(injectables(runtime))
        broken = injectables(runtime).broken()
    assert {"clock", "db"} <= set(broken)
    assert reason in str(broken["db"])


T = TypeVar("T")


class Store(Generic[T]):
    name: str

    def __init__(self, name: str = "store") -> None:
        self.name = name


class Named(Protocol):
    name: str


class UserStore(Store[User]):
    """The same as a class."""


@pytest.mark.parametrize("provides", [Store[User], UserStore], ids=["alias", "subclass"])
async def test_generics_and_protocols_of_a_container_are_found_by_type(tmp_path: Path, provides: Any):
    """What a provider makes is known with its arguments."""

    class Container(containers.DeclarativeContainer):
        store = providers.Singleton(provides, "users")

    @skill_command
    def look(store: Store[User], named: Named) -> list[str]:
        return [store.name, named.name]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Container)
        assert ["users", "users"] == (await call(runtime, look)).value


# By the setting


MODULE = """
    from dependency_injector import containers, providers

    class Clock:
        def now(self):
            return "shop time"

    class Gateways(containers.DeclarativeContainer):
        clock = providers.Singleton(Clock)

    class Container(containers.DeclarativeContainer):
        gateways = providers.Container(Gateways)
"""
SKILL = """
    from typing import Annotated, Any
    from prowess import Inject, skill_command

    @skill_command
    def now(clock: Annotated[Any, Inject("gateways.clock")]) -> str:
        return clock.now()
"""


class Project:
    """A project with a package of its own, under a name that no other test has imported."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = f"shop{next(numbers)}"
        self.write(f"{self.package}/containers.py", MODULE)
        self.write("skills/clock.py", SKILL)
        self.name("Container")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(dedent(text), "utf-8")

    def name(self, name: str) -> None:
        self.write("prowess.toml", f'[inject]\ncontainer = "{self.package}.containers:{name}"\n')


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Containr", 'has no Containr; did you mean "Container"?'),
        ("Container.gateway", 'has no Container.gateway; did you mean "gateways"?'),
        ("Clock", "is not a container of dependency-injector"),
    ],
)
async def test_a_container_that_is_not_there_is_a_failure_with_its_file(tmp_path: Path, name: str, reason: str):
    """And the commands that need it say what they miss."""
    project = Project(tmp_path)
    project.name(name)
    async with Runtime.open(tmp_path) as runtime:
        command, container = sorted(runtime.catalog().failures, key=lambda failure: failure.source)
    assert ("clock.now", "inject.container") == (command.source, container.source)
    assert reason in container.reason
    assert str(tmp_path / "prowess.toml") == container.file
    assert "parameter 'clock': there is no provider for gateways.clock" in command.reason


async def test_a_container_that_cannot_be_imported_is_a_failure_with_its_line(tmp_path: Path, monkeypatch: Any):
    """Wherever it was named: a line of the project, or a name that is nothing."""
    project = Project(tmp_path)
    project.write(f"{project.package}/containers.py", "\n1 / 0\n")
    async with Runtime.open(tmp_path) as runtime:
        failure = max(runtime.catalog().failures, key=lambda failure: failure.source)
    assert ("ZeroDivisionError: division by zero", 2) == (failure.reason, failure.line)
    assert str(tmp_path / project.package / "containers.py") == failure.file

    (tmp_path / "prowess.toml").unlink()
    for name, reason in (("nowhere", "must name a container"), ("nowhere:Container", "No module named 'nowhere'")):
        monkeypatch.setenv("PROWESS_INJECT__CONTAINER", name)
        async with Runtime.open(tmp_path) as runtime:
            failure = max(runtime.catalog().failures, key=lambda failure: failure.source)
        assert reason in failure.reason
        assert failure.file is None


async def test_a_container_is_named_by_a_setting(tmp_path: Path):
    """It is imported from the project, whose folder is not left on the path."""
    project = Project(tmp_path)
    path = list(sys.path)
    async with Runtime.open(tmp_path) as runtime:
        assert () == runtime.catalog().failures
        assert "shop time" == (await runtime.call("clock.now")).value
        assert path == sys.path
        with runtime.override("Clock", FakeClock()):
            assert "then" == (await runtime.call("clock.now")).value
        description = runtime.describe()
        assert str(tmp_path / project.package / "containers.py") in description.skills["inject.container"].files


async def test_a_plugin_brings_a_container_and_takes_it_along(tmp_path: Path):
    """By the hook; its providers leave with it."""
    project = Project(tmp_path)
    (tmp_path / "prowess.toml").unlink()
    plugin = tmp_path / "skills/plug.py"
    project.write("skills/plug.py", f"{MODULE}\n    from prowess import hookimpl\n    @hookimpl\n"
                  "    def prowess_injectables(provide): provide(Container)\n")  # fmt: skip
    async with Runtime.open(tmp_path) as runtime:
        assert "shop time" == (await runtime.call("clock.now")).value
    plugin.unlink()
    async with Runtime.open(tmp_path) as runtime:
        assert ["clock.now"] == [failure.source for failure in runtime.catalog().failures]
