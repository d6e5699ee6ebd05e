"""What happens to arguments, errors and injected values, and how skills are found, loaded, reloaded and named."""

import email
import email.message
import enum
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel
from tests.contracts.conftest import Bench, Project, case, returning, row, text

from prowess import Context, Outcome, skill_command
from prowess.errors import DeclarationError


def ok(outcome: Outcome) -> Any:
    """The value of a success."""
    assert outcome.ok, outcome.text
    return outcome.value


def ids(runtime: Any) -> list[str]:
    return [contract.id for contract in runtime.catalog()]


# --- arguments and results ------------------------------------------------------------------------


@case("O-66", "an argument of the wrong type is an input error")
def test_an_argument_of_the_wrong_type(bench: Bench) -> None:
    def f(a: int) -> int:
        raise AssertionError

    outcome = bench.call(f, {"a": "x"})
    assert "input" == outcome.kind
    assert ['a: expected an integer, got "x"'] == list(outcome.problems)


@case("O-67", "a missing argument is named, and so is the command")
def test_a_missing_argument(bench: Bench) -> None:
    def t_missing(a: int): ...

    outcome = bench.call(t_missing, {})
    assert ("input", True) == (outcome.kind, outcome.payload()["isError"])
    assert [] == [word for word in ("t_missing", "- a: required") if word not in outcome.text]


@case("O-69", "an error result keeps all it has")
def test_a_whole_error_result(bench: Bench) -> None:
    result = CallToolResult(
        content=[TextContent(type="text", text="first"), TextContent(type="text", text="second")],
        structured_content={"code": 5},
        is_error=True,
    )
    outcome = bench.call(returning(..., result))
    payload = outcome.payload("openmcp")
    assert "failed" == outcome.kind
    assert ([text("first"), text("second")], True) == (payload["content"], payload["isError"])
    assert {"code": 5} == payload["structuredContent"]


@case("O-70", "a TypeError of the body is the body's")
def test_a_type_error_of_the_body(bench: Bench) -> None:
    def f(a: int):
        return a + "x"

    outcome = bench.call(f, {"a": 1})
    assert "crashed" == outcome.kind
    assert outcome.text.startswith("TypeError: unsupported operand")


def closed(q: str, ctx: Context):
    raise AssertionError


def open_to_more(q: str, ctx: Context | None = None, **rest: Any):
    raise AssertionError


@pytest.mark.parametrize(
    "function", [row("O-71", "a closed command", closed), row("O-71", "a command with **kwargs", open_to_more)]
)
def test_a_client_cannot_send_what_is_injected(bench: Bench, function: Callable[..., Any]) -> None:
    """It is refused by name, and the command does not run."""
    outcome = bench.call(function, {"q": "q", "ctx": "hacked"})
    assert ("input", True) == (outcome.kind, outcome.payload()["isError"])
    assert "ctx" in outcome.text


class Color(enum.Enum):
    RED = "red"


class User(BaseModel):
    name: str
    color: Color


@case("O-72", "a model arrives as a model")
def test_a_model_arrives_as_a_model(bench: Bench) -> None:
    def f(user: User):
        return [type(user).__name__, type(user.color).__name__, user.name]

    assert ["User", "Color", "n"] == ok(bench.call(f, {"user": {"name": "n", "color": "red"}}))


RESERVED = ("cmd_name", "skill_name", "skill_path", "metadata", "context", "cwd", "handler")


@case("M-42", "no parameter name is reserved")
@pytest.mark.parametrize(
    "name", [*RESERVED, "command", "arguments", "call", "channel", "function", "args", "kwargs", "self", "profile"]
)
def test_no_parameter_name_is_reserved(bench: Bench, name: str) -> None:
    """Also none that our own code uses on the way."""
    names: dict[str, Any] = {"__name__": "generated"}
    exec(f"def f({name}: str, other: int = 1):\n    return [{name}, other]", names)
    assert ["v", 1] == ok(bench.call(names["f"], {name: "v"}))


# --- time and further attempts --------------------------------------------------------------------


@case("M-45", "the limit is on the whole call")
def test_the_limit_is_on_the_whole_call(bench: Bench) -> None:
    """Progress does not prolong it: there is one deadline, and no other for being idle."""

    async def forever(ctx: Context):
        done = 0
        while True:
            done += 1
            ctx.progress(done)
            await anyio.lowlevel.checkpoint()

    outcome = bench.call(forever, timeout=0.5)
    assert ("timeout", True) == (outcome.kind, outcome.payload()["isError"])
    assert "forever timed out after 0.5 s" in outcome.text


@case("M-45", "a call may be idle up to its limit")
def test_an_idle_call(bench: Bench) -> None:
    async def idle():
        await anyio.sleep_forever()

    assert "timeout" == bench.call(idle, timeout=0.5).kind


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError("503")
        return "200"


@pytest.mark.parametrize("failures", [row("N-5", "the second attempt succeeds", 1), row("N-9", "a 503, then a 200", 1)])
def test_a_further_attempt(bench: Bench, failures: int) -> None:
    """One failure, one further call, success."""
    service = Flaky(failures)

    def fetch():
        return service()

    outcome = bench.call(fetch, retry_on=ConnectionError, max_attempts=2)
    assert "200" == ok(outcome)
    assert (2, 2) == (service.calls, outcome.attempts)


@pytest.mark.parametrize(
    (),
    [
        row("N-5", "failures close nothing"),
        row("N-6", "the very next call runs"),
        row("N-9", "no call is refused unasked"),
    ],
)
def test_there_is_no_circuit_breaker(bench: Bench) -> None:
    """Failed calls have no say in later ones."""
    service = Flaky(6)

    def fetch():
        return service()

    entry = bench.entry(fetch, retry_on=ConnectionError, max_attempts=2)
    kinds = [anyio.run(entry.call, {}).kind for _ in range(4)]
    assert ["retryable", "retryable", "retryable", "ok"] == kinds
    assert 7 == service.calls


@case("N-10", "malformed calls harm nobody")
def test_malformed_calls_harm_nobody(bench: Bench) -> None:
    """They are neither tried again nor counted."""
    service = Flaky(0)

    def fetch(a: int):
        return service()

    entry = bench.entry(fetch, retry_on=Exception, max_attempts=3)
    outcomes = [anyio.run(entry.call, {"a": "x"}) for _ in range(6)]
    assert {("input", 1)} == {(outcome.kind, outcome.attempts) for outcome in outcomes}
    assert 0 == service.calls
    assert "200" == ok(anyio.run(entry.call, {"a": 1}))


# --- what is injected -----------------------------------------------------------------------------

CLOCKS = """
    from prowess import hookimpl, skill_command

    made = []

    class Clock: ...

    class Diary:
        def __init__(self, clock: Clock):
            self.clock = clock

    class Once: ...

    class Broken: ...

    def broken() -> Broken:
        raise RuntimeError("no power")

    def clock() -> Clock:
        made.append(Clock())
        return made[-1]

    @hookimpl
    def prowess_injectables(provide):
        provide(Clock, clock, lifetime="call")
        provide(Diary, Diary, lifetime="call")
        provide(Once, Once)
        provide(Broken, broken, lifetime="call")

    @skill_command
    def shared(a: Clock, b: Clock, diary: Diary) -> list[bool | int]:
        return [a is b, diary.clock is a, len(made)]

    @skill_command
    def once(thing: Once) -> int:
        return id(thing)

    @skill_command
    def power(source: Broken) -> str:
        raise AssertionError
"""


@case("O-77", "what lives for a call is made once for it")
async def test_what_lives_for_a_call(project: Project) -> None:
    """And anew for the next; what lives longer is made once for all."""
    project.write("skills/clocks.py", CLOCKS)
    async with project.open() as runtime:
        assert [True, True, 1] == ok(await runtime.call("clocks.shared"))
        assert [True, True, 2] == ok(await runtime.call("clocks.shared"))
        assert ok(await runtime.call("clocks.once")) == ok(await runtime.call("clocks.once"))


@case("O-77", "a provider that fails is named")
async def test_a_provider_that_fails(project: Project) -> None:
    project.write("skills/clocks.py", CLOCKS)
    async with project.open() as runtime:
        outcome = await runtime.call("clocks.power")
        assert ("crashed", True) == (outcome.kind, outcome.payload()["isError"])
        assert [] == [word for word in ("Broken", "no power") if word not in outcome.text]


# --- which commands there are ---------------------------------------------------------------------

GIT = """
    from prowess import skill_command

    @skill_command
    def raw_x(): ...

    @skill_command
    def raw_ok(): ...

    @skill_command
    def status(): ...
"""


@case("M-44", "patterns hide commands")
async def test_patterns_hide_commands(project: Project) -> None:
    """The last pattern that fits decides."""
    project.write("skills/git.py", GIT)
    project.write("prowess.toml", 'hide = ["git.raw_*", "!git.raw_ok"]')
    async with project.open() as runtime:
        assert ["git.raw_ok", "git.status"] == ids(runtime)
        assert "unknown" == (await runtime.call("git.raw_x")).kind


@case("O-76", "what is shown is a setting of the project")
async def test_what_is_shown_is_a_setting(project: Project) -> None:
    """The same for whoever asks; a command has no switch of its own."""
    project.write("skills/git.py", GIT)
    project.write("prowess.toml", 'hide = ["git.*"]')
    async with project.open() as runtime:
        assert [] == ids(runtime)
        outcome = await runtime.call("git.status")
        assert ("unknown", True) == (outcome.kind, outcome.payload()["isError"])
    with pytest.raises(DeclarationError, match="enabled"):
        skill_command(enabled=lambda: False)(returning(..., 1))


def one(value: object) -> str:
    """A skill with one command, which returns the value and leaves a mark when its file is executed."""
    return f"""
        from pathlib import Path
        from prowess import skill_command

        with Path(__file__).with_suffix(".log").open("a") as log:
            log.write("x")

        @skill_command
        def one():
            return {value!r}
    """


@case("O-75", "commands come from files")
async def test_commands_come_from_files(project: Project) -> None:
    """Decorating a function at run time adds nothing; a new file does, in the next runtime."""
    project.write("skills/a.py", one(1))
    async with project.open() as runtime:
        skill_command(returning(..., 1))
        assert ["a.one"] == ids(runtime)
        project.write("skills/b.py", one(2))
    async with project.open() as runtime:
        assert ["a.one", "b.one"] == ids(runtime)
        assert 2 == ok(await runtime.call("b.one"))


NAMED = """
    from prowess import skill_command

    @skill_command(aliases=["search/duckduckgo"])
    def duckduckgo(query: str) -> str:
        return query
"""


@case("N-7", "dots and slashes are alike")
@pytest.mark.parametrize("name", ["research.duckduckgo", "research/duckduckgo", "research_duckduckgo"])
async def test_dots_and_slashes_are_alike(project: Project, name: str) -> None:
    """The catalog shows the one with the dot."""
    project.write("skills/research.py", NAMED)
    async with project.open() as runtime:
        assert "q" == ok(await runtime.call(name, {"query": "q"}))
        assert ["research.duckduckgo"] == ids(runtime)


@case("N-7", "names are told apart by case")
async def test_names_are_told_apart_by_case(project: Project) -> None:
    project.write("skills/research.py", NAMED)
    async with project.open() as runtime:
        outcome = await runtime.call("Research/DuckDuckGo", {"query": "q"})
        assert "unknown" == outcome.kind
        assert 'did you mean "research.duckduckgo"?' in outcome.text


@case("N-8", "a command answers to its aliases")
@pytest.mark.parametrize("name", ["search/duckduckgo", "search.duckduckgo"])
async def test_a_command_answers_to_its_aliases(project: Project, name: str) -> None:
    """They are part of its contract."""
    project.write("skills/research.py", NAMED)
    async with project.open() as runtime:
        assert "q" == ok(await runtime.call(name, {"query": "q"}))
        assert ("search.duckduckgo",) == runtime.catalog()["research.duckduckgo"].aliases


# --- loading ------------------------------------------------------------------------------------


def marks(project: Project, path: str) -> int:
    """How often a skill file was executed."""
    log = project.root / path
    return len(log.read_text()) if log.exists() else 0


@case("M-36", "two commands of one name are a clash that names both")
async def test_two_commands_of_one_name(project: Project) -> None:
    """Neither wins."""
    project.write("skills/dup/a.py", one(1))
    project.write("skills/dup/b.py", one(2))
    async with project.open() as runtime:
        assert [] == ids(runtime)
        first, second = runtime.catalog().failures
        assert [] == [name for name in ("dup/a.py", "dup/b.py") if name not in f"{first} {second}"]
        assert "dup/b.py" in f"{first.file} {first.reason}"
        assert "dup/a.py" in f"{first.file} {first.reason}"
        assert "unknown" == (await runtime.call("dup.one")).kind


@pytest.mark.parametrize(
    "source, line, reason",
    [
        row("M-37", "a syntax error", "from prowess import skill_command\ndef broken(:\n", 2, "SyntaxError"),
        row(
            "M-37", "a missing import", "import prowess\nimport there_is_no_such_module\n", 2, "there_is_no_such_module"
        ),
        row("M-37", "an exit", "import prowess\nraise SystemExit(3)\n", 2, "SystemExit"),
    ],
)
async def test_a_broken_file_hides_no_other(project: Project, source: str, line: int, reason: str) -> None:
    """It is reported with its place, and the rest is served; also the rest of its own skill."""
    broken = project.write("skills/mixed/broken.py", source)
    project.write("skills/mixed/good.py", one(1))
    project.write("skills/other.py", one(2))
    async with project.open() as runtime:
        assert ["mixed.one", "other.one"] == ids(runtime)
        (failure,) = runtime.catalog().failures
        assert (str(broken), line) == (failure.file, failure.line)
        assert reason in failure.reason


@case("M-38", "a broken edit is told with its place, until it is mended")
async def test_a_broken_edit(project: Project) -> None:
    """The last good version goes on where edits are noticed: in the host."""
    broken = project.write("skills/a.py", "from prowess import skill_command\ndef one(:\n")
    async with project.open() as runtime:
        assert [(str(broken), 2)] == [(failure.file, failure.line) for failure in runtime.catalog().failures]
    project.write("skills/a.py", one(2))
    async with project.open() as runtime:
        assert 2 == ok(await runtime.call("a.one"))
        assert () == runtime.catalog().failures


@case("M-39", "an edit in a folder below scripts is noticed")
async def test_an_edit_far_down(project: Project) -> None:
    project.write("skills/deep/scripts/sub/n.py", one(1))
    async with project.open() as runtime:
        assert 1 == ok(await runtime.call("deep.one"))
        project.write("skills/deep/scripts/sub/n.py", one(2))
    async with project.open() as runtime:
        assert 2 == ok(await runtime.call("deep.one"))


@case("M-40", "a file that is gone takes its commands along")
async def test_a_deleted_file(project: Project) -> None:
    gone = project.write("skills/deep/scripts/a.py", one(1))
    project.write("skills/b.py", one(2))
    async with project.open() as runtime:
        assert ["b.one", "deep.one"] == ids(runtime)
        gone.unlink()
    async with project.open() as runtime:
        assert ["b.one"] == ids(runtime)
        assert "unknown" == (await runtime.call("deep.one")).kind


@case("M-41", "a skill may be called like a module of the standard library")
@pytest.mark.parametrize("path", ["skills/email.py", "skills/email/scripts/message.py"])
async def test_a_skill_called_email(project: Project, path: str) -> None:
    """Neither gets in the way of the other."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "email"}
    places, search = list(email.__path__), list(sys.path)
    project.write(
        path,
        """
        import email.message
        from prowess import skill_command

        @skill_command
        def one() -> str:
            return email.message.EmailMessage.__module__
        """,
    )
    async with project.open() as runtime:
        assert "email.message" == ok(await runtime.call("email.one"))
        assert {} == {name: name for name, module in before.items() if sys.modules.get(name) is not module}
        assert (places, search) == (list(email.__path__), sys.path)


@case("M-43", "an unchanged file is executed once")
async def test_an_unchanged_file(project: Project) -> None:
    project.write("skills/a.py", one(1))
    async with project.open() as runtime:
        assert 1 == ok(await runtime.call("a.one"))
        assert 1 == ok(await runtime.call("a.one"))
        assert 1 == marks(project, "skills/a.log")


@case("M-46", "the first calls load a skill once")
async def test_the_first_calls_load_a_skill_once(project: Project) -> None:
    """However many they are."""
    project.write("skills/a.py", one(1))
    values: list[Any] = []

    async def call(runtime: Any) -> None:
        values.append(ok(await runtime.call("a.one")))

    async with project.open() as runtime, anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(call, runtime)
    assert [1] * 10 == values
    assert 1 == marks(project, "skills/a.log")
