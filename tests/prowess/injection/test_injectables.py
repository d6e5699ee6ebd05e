"""Who provides an injected parameter, and for how long it lives."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from dependency_injector import providers
from patience import PATIENCE
from tests.prowess.embedded import call, injectables

from prowess import ConfigPaths, Context, Inject, Runtime, Settings, SkillError, skill_command
from prowess.command import Command
from prowess.contracts.declaration import declaration_of
from prowess.errors import InjectionError

AT_ONCE = {"retry": {"initial": 0.0}}


@dataclass
class Db:
    """A thing to be injected."""

    name: str = "real"
    uses: list[str] = field(default_factory=list)


class Clock:
    """Another one."""


class Repository:
    """One that needs others."""

    def __init__(self, db: Db, clock: Clock | None, retries: int = 3) -> None:
        self.db = db
        self.clock = clock
        self.retries = retries


# How a parameter asks


def a_closure() -> Command:
    """A command in a function, with postponed annotations of local names."""

    class Local(Db):
        pass

    @skill_command
    async def using(local: Local, n: int) -> str:
        return f"{type(local).__name__} {n}"

    using.local = Local  # type: ignore[attr-defined]
    return using


@skill_command
async def by_type(db: Db) -> str:
    return db.name


@skill_command
async def by_optional_type(db: Db | None) -> str:
    return db.name


@skill_command
async def by_default(db: Db = Inject()) -> str:  # noqa: B008 - a marker
    return db.name


@skill_command
async def by_mark(db: Annotated[Db, Inject()]) -> str:
    return db.name


@skill_command
async def by_marked_option(db: Annotated[Db, Inject()] | None = None) -> str:
    return db.name


@skill_command
async def by_name(db: Annotated[Any, Inject("the_db")]) -> str:
    return db.name


@skill_command
async def by_default_name(db: Any = Inject("the_db")) -> str:  # noqa: B008 - a marker
    return db.name


@skill_command(autowire=False)
async def by_mark_alone(db: Annotated[Db, Inject()]) -> str:
    return db.name


@pytest.mark.parametrize(
    "command",
    [
        by_type,
        by_optional_type,
        by_default,
        by_mark,
        by_marked_option,
        by_name,
        by_default_name,
        by_mark_alone,
    ],
    ids=lambda command: command.__name__,
)
async def test_a_parameter_is_injected_in_all_its_forms(tmp_path: Path, command: Command):
    """By type or by name; a client can neither see nor send it."""
    async with Runtime.open(tmp_path, overrides={Db: Db(), "the_db": Db()}) as runtime:
        assert "real" == (await call(runtime, command)).value
        contract = runtime.entry_of(declaration_of(command)).contract
        assert {} == contract.input_schema["properties"]
        assert ("db",) == contract.injected
        assert "input" == (await call(runtime, command, {"db": {"name": "sent"}})).kind


async def test_local_types_are_injected_in_closures(tmp_path: Path):
    """Postponed annotations find the names of the enclosing function."""
    command = a_closure()
    async with Runtime.open(tmp_path, overrides={command.local: command.local()}) as runtime:  # type: ignore[attr-defined]
        assert "Local 3" == (await call(runtime, command, {"n": 3})).value


async def test_without_autowiring_a_type_is_an_argument(tmp_path: Path):
    """And an option that nobody provides keeps its default."""

    @skill_command(autowire=False)
    async def sent(db: Db, clock: Annotated[Clock | None, Inject()] = None) -> list[Any]:
        return [db.name, clock]

    async with Runtime.open(tmp_path, overrides={Db: Db()}) as runtime:
        assert ["sent", None] == (await call(runtime, sent, {"db": {"name": "sent"}})).value


async def test_an_option_keeps_its_default_when_its_provider_leaves(tmp_path: Path):
    """A marked parameter with a default asks for nothing that has to be there."""

    @skill_command
    async def optional(db: Annotated[Db | None, Inject()] = None) -> Any:
        return db and db.name

    async with Runtime.open(tmp_path) as runtime:
        with runtime.override(Db, Db("for a while")):
            assert "for a while" == (await call(runtime, optional)).value
        assert (await call(runtime, optional)).value is None


async def test_the_runtime_and_the_call_provide_their_own(tmp_path: Path):
    """Settings, paths, the context and a logger that is named after the command."""

    @skill_command(inject_root=True)
    async def own(settings: Settings, paths: ConfigPaths, ctx: Context, log: logging.Logger, project_root: Path):
        return [settings.get("a.b"), paths.project_root == project_root, bool(ctx.call_id), log.name]

    async with Runtime.open(tmp_path, flags={"a.b": 7}) as runtime:
        assert [7, True, True, "prowess.skill.test_injectables.own"] == (await call(runtime, own)).value


async def test_settings_fill_parameters(tmp_path: Path):
    """By their key, or under a name of their own; a default makes one optional."""

    @skill_command(inject_settings=["api.key", "api.url:where", "api.retry-count", "api.region"])
    async def configured(api_key: str, where: str, api_retry_count: int, api_region: str = "eu") -> list[Any]:
        return [api_key, where, api_retry_count, api_region]

    flags = {"api.key": "k", "api.url": "u", "api.retry-count": 2}
    async with Runtime.open(tmp_path, flags=flags) as runtime:
        assert ["k", "u", 2, "eu"] == (await call(runtime, configured)).value
        other = Settings.load(tmp_path, environ={}, flags={**flags, "api.region": "us"})
        with runtime.override(Settings, other):
            assert ["k", "u", 2, "us"] == (await call(runtime, configured)).value


async def test_a_missing_setting_opens_nothing(tmp_path: Path):
    """It is looked for before anything is opened, wherever its parameter stands."""
    opened: list[int] = []

    def open_db() -> Iterator[Db]:
        opened.append(1)
        yield Db()

    @skill_command(inject_settings=["api.key"])
    async def using(db: Db, api_key: str) -> None:
        """Never runs."""

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, open_db, lifetime="call")
        outcome = await call(runtime, using)
    assert ("failed", []) == (outcome.kind, opened)
    assert "setting 'api.key' is not set" in outcome.text


async def test_an_injected_text_is_a_secret(tmp_path: Path):
    """Whoever provides it; it is not shown in an error."""

    @skill_command
    async def leaking(token: Annotated[str, Inject("token")]):
        raise ValueError(token)

    async with Runtime.open(tmp_path, overrides={"token": "s3cr3t"}) as runtime:
        assert "s3cr3t" not in (await call(runtime, leaking)).text


@skill_command(inject_settings=["env:API_KEY", "env:API_COUNT:count"])
def keyed(api_key: str, count: int = 3) -> str:
    raise SkillError(f"{len(api_key)} {count + 1} {api_key}")


async def test_environment_variables_fill_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Under their own names in lower case, or others, read by the type, and masked; those of `.env` as well."""
    monkeypatch.setenv("API_KEY", "s3cr3t")
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, keyed)
        contract = runtime.entry_of(declaration_of(keyed)).contract
    assert ({}, ("env:API_KEY", "env:API_COUNT:count")) == (
        contract.input_schema["properties"],
        contract.inject_settings,
    )
    assert ("failed", "6 4 ***") == (outcome.kind, outcome.text)
    (tmp_path / ".env").write_text("API_KEY=ignored\nAPI_COUNT=7")
    async with Runtime.open(tmp_path) as runtime:
        assert "6 8 ***" == (await call(runtime, keyed)).text


async def test_a_missing_environment_variable_fails_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By its name, with the ways to set it; and one of the wrong type without its value."""
    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, keyed)
        monkeypatch.setenv("API_KEY", "k")
        monkeypatch.setenv("API_COUNT", "s3cr3t")
        wrong = await call(runtime, keyed)
    assert ("failed", "failed") == (outcome.kind, wrong.kind)
    assert "the environment variable API_KEY is not set. Set it where your client starts the host" in outcome.text
    assert "the environment variable 'API_COUNT' does not fit the parameter 'count'" in wrong.text
    assert "s3cr3t" not in wrong.text


# Lifetimes


class Life:
    """Providers of a `Db`, in every form, that note when they open and close."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def generator(self) -> Iterator[Db]:
        self.seen.append("open")
        try:
            yield Db()
        except BaseException as error:
            self.seen.append(error)
            raise
        finally:
            self.seen.append("close")

    async def async_generator(self) -> AsyncIterator[Db]:
        with contextlib.contextmanager(self.generator)() as db:
            yield db

    def manager(self) -> Any:
        return contextlib.contextmanager(self.generator)()

    def async_manager(self) -> Any:
        return contextlib.asynccontextmanager(self.async_generator)()

    async def coroutine(self) -> Any:
        return contextlib.contextmanager(self.generator)()

    def provider(self) -> Any:
        return providers.Factory(contextlib.contextmanager(self.generator))


FORMS = pytest.mark.parametrize(
    "form", [Life.generator, Life.async_generator, Life.manager, Life.async_manager, Life.coroutine]
)
BODIES = pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])


def using(body: Callable[[Db], Any], *, is_async: bool, **options: Any) -> Command:
    """A command with a body that uses a database."""
    if is_async:

        @skill_command(**options)
        async def on_loop(db: Db):
            return body(db)

        return on_loop

    @skill_command(**options)
    def in_thread(db: Db):
        return body(db)

    return in_thread


@FORMS
@BODIES
async def test_what_lives_for_a_call_is_opened_and_closed_with_it(tmp_path: Path, form: Any, is_async: bool):
    """Each call has its own."""
    life = Life()

    def body(db: Db) -> str:
        life.seen.append(db)
        return db.name

    command = using(body, is_async=is_async)
    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, form.__get__(life), lifetime="call")
        for _ in range(2):
            assert "real" == (await call(runtime, command)).value
    first, second = life.seen[1], life.seen[4]
    assert ["open", first, "close", "open", second, "close"] == life.seen
    assert first is not second


@FORMS
async def test_what_lives_for_good_is_opened_once_and_closed_at_the_end(tmp_path: Path, form: Any):
    """Shared by concurrent calls; opened at its first use."""
    life, dbs = Life(), []
    command = using(dbs.append, is_async=True)
    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, form.__get__(life))
        runtime.entry_of(declaration_of(command))
        assert [] == life.seen
        await asyncio.gather(*(call(runtime, command) for _ in range(10)))
        assert ["open"] == life.seen
    assert ["open", "close"] == life.seen
    assert (10, 1) == (len(dbs), len({id(db) for db in dbs}))


@FORMS
@BODIES
async def test_a_resource_sees_the_exception_of_the_body(tmp_path: Path, form: Any, is_async: bool):
    """Itself, so that it can roll back; the outcome stays that of the body."""
    life, error = Life(), KeyError("body")

    def body(db: Db) -> None:
        raise error

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, form.__get__(life), lifetime="call")
        outcome = await call(runtime, using(body, is_async=is_async))
    assert ["open", error, "close"] == life.seen
    assert "KeyError: 'body'" in outcome.text


@FORMS
async def test_a_resource_sees_a_result_that_breaks_the_contract(tmp_path: Path, form: Any):
    """What cannot be answered should not be committed either."""
    life = Life()

    @skill_command
    async def wrong(db: Db) -> int:
        return "no number"  # type: ignore[return-value]

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, form.__get__(life), lifetime="call")
        assert "output" == (await call(runtime, wrong)).kind
    assert ["open", "OutputError", "close"] == [x if isinstance(x, str) else type(x).__name__ for x in life.seen]


async def test_a_resource_lives_through_all_attempts(tmp_path: Path):
    """Retry is inside."""
    life, attempts = Life(), []

    def body(db: Db) -> None:
        attempts.append(db)
        raise ValueError

    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        injectables(runtime).provide(Db, life.generator, lifetime="call")
        outcome = await call(runtime, using(body, is_async=True, retry_on=ValueError))
    assert (3, 3, 1) == (outcome.attempts, len(attempts), len({id(db) for db in attempts}))
    assert ["open", "close"] == [item for item in life.seen if isinstance(item, str)]


async def test_what_a_provider_raises_is_not_retried(tmp_path: Path):
    """Only the command is; and an exit of a provider is a crash like any other."""
    tried: list[int] = []

    def failing() -> Db:
        tried.append(1)
        raise (ValueError("no database") if len(tried) == 1 else SystemExit(3))

    command = using(lambda db: None, is_async=True, retry_on=ValueError)
    async with Runtime.open(tmp_path, flags=AT_ONCE) as runtime:
        injectables(runtime).provide(Db, failing, lifetime="call")
        outcomes = [await call(runtime, command) for _ in range(2)]
    assert ["crashed", "crashed"] == [outcome.kind for outcome in outcomes]
    told = [f"{error} (while Db was being provided)" for error in ("ValueError: no database", "SystemExit: 3")]
    assert told == [outcome.text.partition(" (call")[0] for outcome in outcomes]


async def test_a_close_that_fails_changes_no_outcome(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It is logged with the command, without secrets, and the next one is closed all the same."""
    life = Life()

    def careless(db: Db, token: Annotated[str, Inject("token")]) -> Iterator[Clock]:
        yield Clock()
        raise RuntimeError(token)

    @skill_command
    async def both(clock: Clock, token: Annotated[str, Inject("token")]) -> int:
        return 7

    async with Runtime.open(tmp_path, overrides={"token": "s3cr3t"}) as runtime:
        injectables(runtime).provide(Db, life.generator, lifetime="call")
        injectables(runtime).provide(Clock, careless, lifetime="call")
        assert 7 == (await call(runtime, both)).value
    assert ["open", "close"] == life.seen
    assert "closing what was provided for test_injectables.both failed" in caplog.text
    assert "RuntimeError: ***" in caplog.text


async def test_resources_close_in_reverse(tmp_path: Path):
    """Those that were opened last, and may need the others, first."""
    seen: list[str] = []

    def database() -> Iterator[Db]:
        yield Db()
        seen.append("db")

    async def clock(db: Db) -> AsyncIterator[Clock]:
        yield Clock()
        seen.append("clock")

    def repository(clock: Clock, db: Db) -> Iterator[Repository]:
        yield Repository(db, clock)
        seen.append("repository")

    @skill_command
    async def all_of_them(repository: Repository, db: Db, clock: Clock) -> bool:
        return repository.db is db and repository.clock is clock

    async with Runtime.open(tmp_path) as runtime:
        for type_, factory in ((Repository, repository), (Clock, clock), (Db, database)):
            injectables(runtime).provide(type_, factory, lifetime="call")
        assert {} == injectables(runtime).broken()
        assert (await call(runtime, all_of_them)).value is True
    assert ["repository", "clock", "db"] == seen


@pytest.mark.parametrize("is_async", [True, False])
async def test_opening_counts_as_time(tmp_path: Path, is_async: bool):
    """A provider that hangs is answered at the deadline, and named."""
    go_on = threading.Event()

    async def hanging_async() -> Db:
        await anyio.sleep_forever()
        return Db()

    def hanging() -> Db:
        go_on.wait(PATIENCE)
        return Db()

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, hanging_async if is_async else hanging, lifetime="call")
        outcome = await call(runtime, using(lambda db: None, is_async=True, timeout=0.5))
    assert ("timeout", True) == (outcome.kind, outcome.text.endswith("; Db was still being provided"))
    go_on.set()


async def test_concurrent_calls_never_share_what_lives_for_a_call(tmp_path: Path):
    """Not even when they wait for one another."""
    dbs, all_here = [], anyio.Event()

    @skill_command
    async def meeting(db: Db):
        dbs.append(db)
        if len(dbs) == 5:
            all_here.set()
        await all_here.wait()

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, Db, lifetime="call")
        await asyncio.gather(*(call(runtime, meeting) for _ in range(5)))
    assert 5 == len({id(db) for db in dbs})


# Factories


class CallableFactory:
    """A factory that is an object."""

    def __call__(self, db: Db) -> Repository:
        return Repository(db, None)


class AsyncCallableFactory:
    """The async form."""

    async def __call__(self, db: Db) -> Repository:
        return Repository(db, None)


def with_marks(it: Annotated[Any, Inject("the_db")], other: Db = Inject(), *args: int, **more: int) -> Repository:  # noqa: B008 - a marker
    assert other.name == "real"
    return Repository(it, None)


async def async_factory(db: Db) -> Repository:
    return Repository(db, None)


class WithContext:
    """A context manager that gives something else than itself."""

    def __init__(self, db: Db) -> None:
        self.db = db

    def __enter__(self) -> Repository:
        return Repository(self.db, None)

    def __exit__(self, *_: object) -> None:
        self.db.uses.append("closed")


@pytest.mark.parametrize("lifetime", ["singleton", "call"])
@pytest.mark.parametrize(
    "factory",
    [
        Repository,
        CallableFactory(),
        AsyncCallableFactory(),
        with_marks,
        async_factory,
        functools.partial(Repository, clock=None),
        WithContext,
        lambda: Repository(Db(), None),
        providers.Factory(Repository, db=providers.Singleton(Db), clock=None),
        providers.Singleton(Repository, db=Db(), clock=None),
        providers.Callable(lambda: Repository(Db(), None)),
        providers.Coroutine(async_factory, db=Db()),
        providers.Object(Repository(Db(), None)),
    ],
)
async def test_many_things_are_factories(tmp_path: Path, factory: Any, lifetime: Any):
    """Classes, functions, callables, partials, and providers of dependency-injector; their own needs are injected."""

    @skill_command
    async def get(repository: Repository) -> str:
        return repository.db.name

    async with Runtime.open(tmp_path, overrides={"the_db": Db()}) as runtime:
        injectables(runtime).provide(Clock, Clock)
        injectables(runtime).provide(Db, Db)
        injectables(runtime).provide(Repository, factory, lifetime=lifetime)
        assert {} == injectables(runtime).broken()
        assert ["real", "real"] == [(await call(runtime, get)).value for _ in range(2)]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_resource_of_dependency_injector_is_shut_down(tmp_path: Path, is_async: bool):
    """In both of its forms."""
    life = Life()
    resource = providers.Resource(life.async_generator if is_async else life.generator)
    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, resource)
        assert "real" == (await call(runtime, using(lambda db: db.name, is_async=True))).value
        assert ["open"] == life.seen
    assert ["open", "close"] == life.seen


async def test_a_builtin_without_a_signature_needs_nothing(tmp_path: Path):
    """It is called as it is."""

    @skill_command
    async def get(it: Annotated[Any, Inject("it")]) -> Any:
        return it

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(dict, dict, name="it")
        assert {} == (await call(runtime, get)).value


async def test_a_part_may_be_given_or_overridden(tmp_path: Path):
    """Settings, or whatever the test put in its place, for things of either lifetime."""

    def make(settings: Settings, clock: Clock) -> Db:
        return Db(f"{settings.get('a.b')} {type(clock).__name__}")

    class Fake(Clock):
        pass

    for lifetime in ("singleton", "call"):
        async with Runtime.open(tmp_path, overrides={Clock: Fake()}, flags={"a.b": 1}) as runtime:
            injectables(runtime).provide(Clock, Clock, lifetime="call")
            injectables(runtime).provide(Db, make, lifetime=lifetime)  # type: ignore[arg-type]
            assert {} == injectables(runtime).broken()
            assert "1 Fake" == (await call(runtime, using(lambda db: db.name, is_async=True))).value


async def test_the_call_s_own_things_are_parts_too(tmp_path: Path):
    """A provider may speak to the client, and log under the command's name."""

    def make(ctx: Context, log: logging.Logger) -> Db:
        return Db(f"{ctx.call_id} {log.name}")

    command = using(lambda db: db.name, is_async=True)
    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, make, lifetime="call")
        outcome = await call(runtime, command)
    assert f"{outcome.call_id} prowess.skill.test_injectables.on_loop" == outcome.value


async def test_what_is_made_once_may_need_what_is_made_once(tmp_path: Path):
    """And what belongs to the event loop makes belong to it whatever needs it."""
    life = Life()

    @skill_command
    async def get(repository: Repository, db: Db) -> bool:
        return repository.db is db

    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Clock, Clock)
        injectables(runtime).provide(Db, life.async_generator)
        injectables(runtime).provide(Repository, Repository)
        assert (await call(runtime, get)).value is True
        assert (await injectables(runtime).singleton(injectables(runtime).recipe(Repository)))[1] is True
    assert ["open", "close"] == life.seen


# Refusals


def check(runtime: Runtime) -> dict[Any, str]:
    return {key: error.reason for key, error in injectables(runtime).broken().items()}


async def test_a_recipe_that_cannot_work_is_named_with_its_reason(tmp_path: Path):
    """Needing what nobody provides, itself, or something that lives shorter."""

    class A:
        def __init__(self, b: B) -> None:
            pass

    class B:
        def __init__(self, a: Annotated[Any, Inject("a")]) -> None:
            pass

    class Lonely:
        def __init__(self, clocks: Clock) -> None:
            pass

    class Long:
        def __init__(self, db: Db, ctx: Context) -> None:
            pass

    A.__init__.__annotations__["b"] = B
    async with Runtime.open(tmp_path) as runtime:
        provide = injectables(runtime).provide
        provide(A, A, name="a")
        provide(B, B)
        provide(Lonely, Lonely)
        provide(Db, Db, lifetime="call")
        provide(Long, Long)
        reasons = check(runtime)
    name = "test_a_recipe_that_cannot_work_is_named_with_its_reason.<locals>"
    assert f"providers depend on each other in a circle: a -> {name}.B -> a" == reasons["a"]
    assert f"providers depend on each other in a circle: {name}.B -> a -> {name}.B" == reasons[B]
    assert reasons[Lonely].startswith(
        f"{name}.Lonely (parameter 'clocks' of its provider): there is no provider for Clock"
    )
    told = f"which is made for each call, but {name}.Long is a singleton; give {name}.Long lifetime='call'"
    assert f"{name}.Long (parameter 'db' of its provider) is Db, {told}" == reasons[Long]
    assert {"a", B, Lonely, Long} == set(reasons)


async def test_a_provider_is_taken_once(tmp_path: Path):
    """For whatever somebody provides already, the runtime and the call included; a name makes room."""
    async with Runtime.open(tmp_path) as runtime:
        provide = injectables(runtime).provide
        provide(Db, Db)
        provide(Db, Db, name="another")
        for key in (Db, Settings, Context):
            with pytest.raises(InjectionError, match="already has a provider; give this one a name"):
                provide(key, Db)
        with pytest.raises(InjectionError, match="another already has a provider"):
            provide(Clock, Clock, name="another")
        with pytest.raises(InjectionError, match="lifetime is 'singleton' or 'call', not 'session'"):
            provide(Clock, Clock, lifetime="session")  # type: ignore[arg-type]


async def test_a_recipe_can_be_taken_back_and_replaced(tmp_path: Path):
    """What is then provided is another thing; the old one closes at the end."""
    old, new = Life(), Life()
    command = using(id, is_async=True)
    async with Runtime.open(tmp_path) as runtime:
        injectables(runtime).provide(Db, old.generator)
        first = (await call(runtime, command)).value
        injectables(runtime).forget([Db, Clock])
        assert not injectables(runtime).knows(Db)
        injectables(runtime).provide(Db, new.generator)
        assert first != (await call(runtime, command)).value
    assert ["open", "close"] == old.seen == new.seen


async def test_nobody_names_the_nearest_provider(tmp_path: Path):
    """Or all there are."""
    async with Runtime.open(tmp_path) as runtime:
        assert "there is no provider for ConfigPath; the nearest is ConfigPaths" in injectables(runtime).why_missing(
            "ConfigPath"
        )
        assert "there is no provider for Settings; another class of the same name has one" in injectables(
            runtime
        ).why_missing(type("Settings", (), {}))
        assert "there are ConfigPaths, Context, Logger, Settings" in injectables(runtime).why_missing("Zzz")

        @skill_command
        async def asking(clock: Annotated[Clock, Inject()]) -> None:
            """Never runs."""

        with pytest.raises(InjectionError, match="parameter 'clock': there is no provider for Clock"):
            await asking()


# Overrides


async def test_overrides_win_for_a_while(tmp_path: Path):
    """One line in a test; nested ones come off in order, and what was provided is there again."""
    command = using(lambda db: db.name, is_async=True)
    async with Runtime.open(tmp_path, overrides={Clock: Clock()}) as runtime:
        injectables(runtime).provide(Db, Db)
        with runtime.override(Db, Db("outer")):
            with runtime.override(Db, Db("inner")):
                assert "inner" == (await call(runtime, command)).value
            assert "outer" == (await call(runtime, command)).value
        assert "real" == (await call(runtime, command)).value


async def test_an_override_is_not_opened(tmp_path: Path):
    """It is used as it is given: opening and closing is the test's business."""
    life = Life()
    manager = life.manager()
    command = using(lambda db: db is manager, is_async=True)
    async with Runtime.open(tmp_path, overrides={Db: manager}) as runtime:
        assert (await call(runtime, command)).value is True
    assert [] == life.seen


@pytest.mark.parametrize(("text", "value"), [("false", False), ("1", True), ("perhaps", None)])
async def test_setting_becomes_what_the_parameter_is_annotated_as(
    text: str, value: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the environment everything is text, and the text "false" is true. What does not fit is told without its value."""
    monkeypatch.setenv("PROWESS_API__STRICT", text)
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "s.py").write_text(
        "from prowess import skill_command\n\n@skill_command(inject_settings=['api.strict'])\n"
        "def strict(api_strict: bool) -> bool:\n    return api_strict\n",
        "utf-8",
    )
    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.call("s.strict")
    assert (value, value is not None) == (outcome.value, outcome.ok)
    if value is None:
        assert "the setting 'api.strict' does not fit the parameter 'api_strict'" in outcome.text
        assert "perhaps" not in outcome.text


@pytest.mark.parametrize(
    ("hosts", "limits", "problem"),
    [
        ('["a", "b"]', '{"calls": 3}', ""),
        ("a, b", '{"calls": 3}', "the setting 'api.hosts' does not fit the parameter 'api_hosts': Input should be a"),
        ('["a"]', '{"calls": "many"}', "the environment variable 'LIMITS' does not fit the parameter 'limits'"),
    ],
)
async def test_lists_and_tables_are_json_in_the_environment(
    hosts: str, limits: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a variable can replace what a file sets."""
    monkeypatch.setenv("PROWESS_API__HOSTS", hosts)
    monkeypatch.setenv("LIMITS", limits)
    (tmp_path / "prowess.toml").write_text("[api]\nhosts = ['x']\n", "utf-8")

    @skill_command(inject_settings=["api.hosts", "env:LIMITS"])
    def show(api_hosts: list[str], limits: dict[str, int]) -> str:
        return f"{api_hosts} {limits}"

    async with Runtime.open(tmp_path) as runtime:
        outcome = await call(runtime, show)
    assert problem in outcome.text if problem else "['a', 'b'] {'calls': 3}" == outcome.text


async def test_setting_for_a_parameter_without_a_type_is_given_as_it_is(tmp_path: Path) -> None:
    """There is nothing to make of it."""
    (tmp_path / "prowess.toml").write_text("[api]\nstrict = 'x'\n", "utf-8")
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "s.py").write_text(
        "from prowess import skill_command\n\n@skill_command(inject_settings=['api.strict', 'api.more'])\n"
        "def strict(api_strict, api_more: int | None = None) -> list:\n    return [api_strict, api_more]\n",
        "utf-8",
    )
    async with Runtime.open(tmp_path) as runtime:
        assert ["x", None] == (await runtime.call("s.strict")).value
