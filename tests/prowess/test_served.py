"""`@resource` and `@prompt`: declared, compiled, called, and shown."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from prowess import Context, File, Image, Runtime, is_skill_command, prompt, resource, skill_command
from prowess.calls.channel import Channel
from prowess.contracts.kinds import KINDS
from prowess.errors import DeclarationError, SchemaError

PNG = b"\x89PNG\r\n\x1a\n rest"


@dataclass
class Note:
    id: int
    text: str


class Message(BaseModel):
    role: str
    content: Any


class Whole(BaseModel):
    messages: list[Message]
    description: str | None = None


class Size(enum.Enum):
    small = "s"
    large = "l"


def runtime(tmp_path: Path) -> Runtime:
    """A project without skills: what the tests decorate is compiled on demand."""
    return Runtime(tmp_path)


async def payload(tmp_path: Path, served: Any, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What a direct call gives."""
    async with Runtime.open(tmp_path):
        result = served(*args, **kwargs)
        return await result if hasattr(result, "__await__") else result


async def read(tmp_path: Path, give: Callable[[], Any], **options: Any) -> list[dict[str, Any]]:
    """The contents of a resource with this function."""
    return (await payload(tmp_path, resource("x://a", **options)(give)))["contents"]


# Declaring


def test_uri_may_be_given_by_its_name_and_a_name_only_so() -> None:
    """Both are written by people who come from other frameworks."""
    assert "<lambda>" == resource(uri="notes://today", name="today")(lambda: "").__name__
    with pytest.raises(DeclarationError, match=r"its name is given by position\. Write prompt\(name='x'\)"):
        prompt("x")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_resource_has_a_uri():
    """Without one the decorator says how it is written."""
    with pytest.raises(DeclarationError, match=r'a resource needs a URI.*@resource\("notes://today"\)'):

        @resource  # type: ignore[arg-type]
        def today() -> str:
            return ""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mimetype": "a/b"}, "resource has no parameter 'mimetype'; .*mime_type|resource has no parameter 'mimetype'"),
        ({"mime_type": "text"}, "mime_type='text' is not a MIME type"),
        ({"mime_type": 5}, r"mime_type=5 is not a string.*help\(resource\)"),
        ({"complete": ["a"]}, r"complete=\['a'\] is not a dict"),
        ({"complete": {"a": "b"}}, r"complete\['a'\] is 'b'"),
        ({"complete": {"a": []}}, r"complete\['a'\] is \[\]"),
        ({"complete": {"a": [1]}}, r"complete\['a'\] is \[1\]"),
        ({"complete": {"a": print}}, r"complete\['a'\] is <built-in"),
        ({"max_attempts": 2}, "has no effect without retry_on"),
        ({"read_only": True}, "resource has no parameter 'read_only'"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], problem: str):
    """By the same checks as those of commands."""
    with pytest.raises(DeclarationError, match=problem):
        resource("x://{a}", **options)(lambda_of_a)


def lambda_of_a(a: str) -> str:
    """A function to decorate."""
    return a


def test_a_uri_that_cannot_be_read_is_refused():
    """At decoration, with the reason."""
    with pytest.raises(DeclarationError, match=r"the URI 'today' is invalid: it must begin with a scheme"):
        resource("today")(lambda_of_a)


def test_what_is_decorated_once_is_not_decorated_again():
    """Whichever decorator was first, and the message names it."""

    @prompt
    def one() -> str:
        return ""

    with pytest.raises(DeclarationError, match=r"it is already a prompt.*for a second resource"):
        resource("x://a")(one)
    with pytest.raises(DeclarationError, match="a class cannot be a prompt"):
        prompt(Note)  # type: ignore[call-overload]


def test_neither_is_a_command():
    """So tools that look for commands pass them by."""
    assert not is_skill_command(prompt(lambda_of_a))
    assert KINDS["prompt"].noun == "prompt"


def test_the_function_itself_is_there():
    """For tests."""
    assert "x" == resource("x://{a}")(lambda_of_a).raw("x")
    assert lambda_of_a is prompt(lambda_of_a).raw


# Compiling


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("x://{b}", r"\{b\} of x://\{b\} is not a parameter of"),
        ("x://fixed", "parameter 'a' of .* is not a variable of x://fixed"),
        ("x://all{?a}", "parameter 'a' of .* is in the query of .* give it a default"),
    ],
)
async def test_the_variables_are_the_parameters(tmp_path: Path, uri: str, problem: str):
    """No more and no fewer."""
    with pytest.raises(SchemaError, match=problem):
        await payload(tmp_path, resource(uri)(lambda_of_a), "x")


async def test_a_resource_without_a_schema_says_the_way_out(tmp_path: Path):
    """`output=` is not one of its options."""

    @resource("x://a")
    def odd() -> SimpleNamespace:
        return SimpleNamespace()

    with pytest.raises(SchemaError, match="or return a string"):
        await payload(tmp_path, odd)


@pytest.mark.parametrize(
    ("complete", "problem"),
    [
        ({"b": ["x"]}, "names 'b', which is not an argument"),
        ({"a": lambda: ["x"]}, "takes nothing; it must take the text that was typed"),
        ({"a": lambda value, c: ["x"]}, "takes c; it must take"),
    ],
)
async def test_what_completes_an_argument_fits_it(tmp_path: Path, complete: dict[str, Any], problem: str):
    """Else the prompt is refused when it is loaded."""
    named = {key: _named(each) if callable(each) else each for key, each in complete.items()}
    with pytest.raises(SchemaError, match=problem):
        await payload(tmp_path, prompt(complete=named)(lambda_of_a), "x")


def _named(function: Any) -> Any:
    function.__name__ = "completes"
    return function


async def test_choices_complete_by_themselves(tmp_path: Path):
    """Literals, enums, truth values, also where nothing may be given."""

    @prompt(complete={"free": ["x", "y"]})
    def many(  # noqa: PLR0917 - one of each
        language: Literal["py", "js"],
        size: Size,
        sure: bool,
        perhaps: Literal[1, 2] | None = None,
        one: Literal["only"] = "only",
        free: str = "",
        none: str = "",
    ) -> str:
        return ""

    completions = runtime(tmp_path).entry_of(_note(many)).contract.completions
    assert {
        "language": ("py", "js"),
        "size": ("s", "l"),
        "sure": ("true", "false"),
        "perhaps": ("1", "2"),
        "one": ("only",),
        "free": ("x", "y"),
    } == dict(completions)


def _note(served: Any) -> Any:
    return served.__prowess__


@pytest.mark.parametrize(
    ("returns", "declared", "mime_type"),
    [
        (str, None, "text/plain"),
        (Note, None, "application/json"),
        (bytes, None, None),
        (str, "text/markdown; charset=utf-8", "text/markdown; charset=utf-8"),
    ],
)
async def test_the_type_of_what_is_read_is_known_before(
    tmp_path: Path, returns: Any, declared: str | None, mime_type: str | None
):
    """From the annotation, unless the author says it."""

    def give() -> Any: ...

    give.__annotations__["return"] = returns
    assert (
        mime_type == runtime(tmp_path).entry_of(_note(resource("x://a", mime_type=declared)(give))).contract.mime_type
    )


# Reading


@pytest.mark.parametrize(
    ("value", "options", "contents"),
    [
        ("text", {}, [{"uri": "x://a", "text": "text"}]),
        ("text", {"mime_type": "text/markdown"}, [{"uri": "x://a", "mimeType": "text/markdown", "text": "text"}]),
        ({"a": 1}, {}, [{"uri": "x://a", "text": '{"a": 1}'}]),
        (b"\xff", {}, [{"uri": "x://a", "mimeType": "application/octet-stream", "blob": "/w=="}]),
        (b"\xff", {"mime_type": "x/y"}, [{"uri": "x://a", "mimeType": "x/y", "blob": "/w=="}]),
        (PNG, {}, [{"uri": "x://a", "mimeType": "image/png", "blob": "iVBORw0KGgogcmVzdA=="}]),
        (
            [File(b"one", uri="x://1", mime_type="text/csv"), File(b"two"), "three"],
            {"mime_type": "text/x"},
            [
                {"uri": "x://1", "mimeType": "text/csv", "text": "one"},
                {"uri": "x://a", "mimeType": "text/x", "text": "two"},
                {"uri": "x://a", "mimeType": "text/x", "text": "three"},
            ],
        ),
        (
            {"type": "resource", "resource": {"uri": "y://", "text": "bare"}},
            {},
            [{"uri": "x://a", "text": "bare"}],
        ),
    ],
)
async def test_what_a_resource_returns_is_what_is_read(
    tmp_path: Path, value: Any, options: dict[str, Any], contents: list[Any]
):
    """A text, data, bytes, files."""

    def give():
        return value

    assert contents == await read(tmp_path, give, **options)


async def test_a_resource_runs_like_a_command(tmp_path: Path):
    """Sync or async, as a generator, with what is injected; and it knows what is read."""

    @resource("x://{a}/{b}")
    async def later(a: int, ctx: Context, b: str = "c") -> Note:
        return Note(a, ctx.uri + b)

    @resource("x://lines")
    def lines() -> Iterator[str]:
        yield "a"
        yield "b"

    @resource("x://more")
    async def more() -> AsyncIterator[int]:
        yield 1

    async with Runtime.open(tmp_path):
        assert '{"id": 7, "text": "x://7/dd"}' == (await later(7, b="d"))["contents"][0]["text"]
        assert '["a", "b"]' == lines()["contents"][0]["text"]
        assert "[1]" == (await more())["contents"][0]["text"]


async def test_nothing_at_a_uri_is_said(tmp_path: Path):
    """By `None`: the kind of the outcome is that of a name that nobody has."""

    @resource("x://{id}")
    def note(id: int) -> str | None:
        return None

    async with Runtime.open(tmp_path) as opened:
        outcome = await opened.entry_of(_note(note)).call({"id": "7"})
    assert ("unknown", "x://7") == (outcome.kind, outcome.uri)
    assert "no resource exists at this URI" in outcome.text
    assert outcome.payload()["isError"]


async def test_a_failure_looks_like_that_of_a_command(tmp_path: Path):
    """A link is no content, an argument must fit."""

    @resource("x://{id}")
    def linked(id: int) -> Any:
        return {"type": "resource_link", "uri": "y://", "name": "y"}

    async with Runtime.open(tmp_path):
        assert "return the content itself" in linked(1)["content"][0]["text"]
        assert linked("x")["isError"]


async def test_a_cached_resource_is_read_once(tmp_path: Path):
    """The facts stand in the `_meta` of the payload."""
    runs: list[int] = []

    @resource("x://{id}", cache_ttl=60)
    def slow(id: int) -> str:
        runs.append(id)
        return "x"

    async with Runtime.open(tmp_path):
        assert "_meta" not in slow(1)
        assert slow(1)["_meta"]["prowess/cached"]
    assert [1] == runs


# Prompts


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("Hi", [("user", "Hi")]),
        (["Hi", ("assistant", "Yes?")], [("user", "Hi"), ("assistant", "Yes?")]),
        (("assistant", "Yes?"), [("assistant", "Yes?")]),
        ({"role": "user", "content": "Hi"}, [("user", "Hi")]),
        (Message(role="assistant", content={"type": "text", "text": "Hi"}), [("assistant", "Hi")]),
        ({"role": "user", "content": ["a", Image(PNG)]}, [("user", "a"), ("user", "image")]),
        (Image(PNG), [("user", "image")]),
        ([Note(1, "x")], [("user", '{"id": 1, "text": "x"}')]),
        (Whole(messages=[Message(role="user", content={"type": "text", "text": "Hi"})]), [("user", "Hi")]),
    ],
)
async def test_what_a_prompt_returns_are_messages(tmp_path: Path, value: Any, messages: list[Any]):
    """A text, pairs, content, and what MCP libraries have."""

    @prompt
    def give() -> Any:
        """Say hello."""
        return value

    told = await payload(tmp_path, give)
    shown = [(each["role"], each["content"].get("text", each["content"]["type"])) for each in told["messages"]]
    assert messages == shown
    assert "Say hello." == told["description"]


async def test_a_prompt_may_describe_itself(tmp_path: Path):
    """A whole result has its own description."""

    @prompt
    def give() -> dict[str, Any]:
        return {"messages": ["Hi"], "description": "For you."}

    assert "For you." == (await payload(tmp_path, give))["description"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "at least one message"),
        ([], "at least one message"),
        (("system", "x"), "the role of a message is 'system'; use 'user' or 'assistant'"),
        ({"role": 5, "content": "x"}, "the role of a message is 5"),
    ],
)
async def test_what_is_no_message_fails_the_call(tmp_path: Path, value: Any, problem: str):
    """With what is wrong."""

    @prompt
    def give() -> Any:
        return value

    told = await payload(tmp_path, give)
    assert problem in told["content"][0]["text"]


# Completing


async def test_a_function_completes_an_argument(tmp_path: Path):
    """It gets what was typed, other arguments that it names, and what is injected; of many values the first are shown."""

    async def cities(value: str, ctx: Context, country: str, size: int = 1) -> list[str]:
        return [f"{country}{value}{size}{number}" for number in range(101)]

    @prompt(complete={"city": cities})
    def trip(city: str, country: str = "", size: int = 1) -> str:
        return ""

    async with Runtime.open(tmp_path) as opened:
        entry = opened.entry_of(_note(trip))
        assert {"city": None} == dict(entry.contract.completions)
        typed = {"value": "P", "arguments": {"country": "fr", "size": "2", "other": "x"}}
        shown = (await entry.complete("city", typed)).payload()["completion"]
        assert ("frP20", 100, 101, True) == (
            shown["values"][0],
            len(shown["values"]),
            shown["total"],
            shown["hasMore"],
        )
        assert "P10" == (await entry.complete("city", {"value": "P"})).payload()["completion"]["values"][0]


async def test_a_completion_that_gives_no_texts_fails(tmp_path: Path):
    """The prompt is not to blame."""

    def wrong(value: str) -> str:
        return value

    @prompt(complete={"city": wrong})
    def trip(city: str) -> str:
        return ""

    async with Runtime.open(tmp_path) as opened:
        outcome = await opened.entry_of(_note(trip)).complete("city", {"value": "P"})
    assert "a completion must return a list of strings" in outcome.text


# In a project


async def test_all_kinds_stand_in_the_catalog(tmp_path: Path):
    """Under ids that are unique over all kinds, and a URI belongs to one."""
    skills = tmp_path / "skills"
    skills.mkdir()
    (skills / "notes.py").write_text(
        "from prowess import prompt, resource, skill_command\n"
        "@skill_command\ndef add() -> None: ...\n"
        "@resource('notes://today')\ndef today() -> str: return 'x'\n"
        "@resource('notes://today', name='again')\ndef other() -> str: return 'x'\n"
        "@prompt\ndef review() -> str: return 'x'\n"
        "@prompt(name='add')\ndef another() -> str: return 'x'\n"
    )
    async with Runtime.open(tmp_path) as opened:
        catalog = opened.catalog()
        assert {"notes.review": "prompt"} == {each.id: each.kind for each in catalog}
        reasons = " ".join(failure.reason for failure in catalog.failures)
        assert "the name 'notes://today' is also claimed by" in reasons
        assert "the name 'notes.add' is also claimed by" in reasons


async def test_a_command_says_that_a_resource_has_changed(tmp_path: Path):
    """To whoever listens to the call; and a hook sees of what kind a call is."""
    seen: list[Any] = []
    told: list[str] = []

    @skill_command
    async def touch(ctx: Context) -> None:
        await ctx.updated("notes://7")

    async with Runtime.open(tmp_path) as opened:
        await opened.entry_of(_note(touch)).call({}, Channel(updated=told.append))
    assert ["notes://7"] == told

    skills = tmp_path / "skills"
    skills.mkdir()
    (skills / "audit.py").write_text(
        "from prowess import hookimpl, resource\n"
        "seen = []\n"
        "@hookimpl\ndef prowess_call_started(call): seen.append((call.kind, call.command, call.uri))\n"
        "@resource('notes://{id}')\ndef note(id: int) -> str: return 'x'\n"
    )
    async with Runtime.open(tmp_path) as opened:
        assert opened.catalog()["audit.note"].is_template
        assert () == opened.catalog().tools
        assert {"audit.note"} == opened.describe().skills["audit"].views.keys()
        outcome = await opened.call("audit.note", {"id": 7})
        seen = opened.module("audit").seen
    assert ("notes://7", [("resource", "audit.note", "notes://7")]) == (outcome.uri, seen)
