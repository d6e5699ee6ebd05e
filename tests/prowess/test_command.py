"""`skill_command`: what a decorated function is, and the effect of each parameter on what clients see."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from patience import PATIENCE

from prowess import (
    ConfigPaths,
    Context,
    Runtime,
    Settings,
    get_script_config,
    get_tool_annotations,
    is_skill_command,
    skill_command,
)
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import declaration_of
from prowess.errors import DeclarationError, SchemaError
from prowess.mcp_schema import validate


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Runtime]:
    """The runtime that direct calls run in."""
    async with Runtime.open(tmp_path) as runtime:
        yield runtime


def contract_of(runtime: Runtime, command: Any) -> Contract:
    declared = declaration_of(command)
    assert declared is not None
    return runtime.entry_of(declared).contract


@skill_command
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@skill_command(name="wait")
async def wait_a_bit(text: str) -> str:
    """Wait, then answer."""
    await asyncio.sleep(0)
    return text


@skill_command
def count(n: int) -> Iterator[int]:
    yield from range(n)


@skill_command(description="Count")
async def count_async(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


# --- the decorated object


def test_a_command_is_dressed_as_its_function():
    """Documentation tools, tests and debuggers see the function."""

    def double(a: int, *, b: str = "x") -> int:
        """Double it."""
        return a * 2

    command = skill_command(title="Double")(double)
    assert command.raw is double
    assert inspect.signature(double) == inspect.signature(command)
    same = ("__doc__", "__module__", "__name__", "__qualname__", "__annotations__")
    assert [getattr(double, name) for name in same] == [getattr(command, name) for name in same]
    assert 4 == command.raw(2)


def test_the_function_itself_is_left_alone():
    """The note is left on the command."""

    def double(a: int) -> int:
        return a * 2

    skill_command(double)
    assert {} == vars(double)
    assert not is_skill_command(double)


@pytest.mark.parametrize("command", [add, count])
def test_sync_stays_sync(command: Any):
    """Whoever called the function can call the command."""
    assert not inspect.iscoroutinefunction(command)
    assert not inspect.isgeneratorfunction(command)


@pytest.mark.parametrize("command", [wait_a_bit, count_async])
def test_async_stays_async(command: Any):
    """An async generator is awaited: its payload is one."""
    assert inspect.iscoroutinefunction(command)


@pytest.mark.usefixtures("here")
async def test_a_call_gives_a_payload():
    """Of whatever kind the function is."""
    payloads = [
        (add(1, b="2"), "3", {"result": 3}),
        (await wait_a_bit("hi"), "hi", None),
        (count(2), "[0, 1]", {"result": [0, 1]}),
        (await count_async(n=2), "[0, 1]", {"result": [0, 1]}),
    ]
    for payload, text, structured in payloads:
        validate(payload)
        expected = {"content": [{"type": "text", "text": text}], "isError": False}
        assert (expected if structured is None else {**expected, "structuredContent": structured}) == payload


@pytest.mark.usefixtures("here")
async def test_a_call_with_bad_arguments_gives_a_payload():
    """A direct call never raises, as no other call does."""
    payload = add(1, 2, 3)
    validate(payload)
    assert payload["isError"]
    assert "takes at most 2 positional arguments, got 3" in payload["content"][0]["text"]


@pytest.mark.usefixtures("here")
async def test_an_exception_becomes_a_payload():
    """With `isError`, and without a traceback."""

    @skill_command
    def fail() -> None:
        raise KeyError("k")

    payload = fail()
    validate(payload)
    assert payload["isError"]
    assert payload["content"][0]["text"].startswith("KeyError: 'k'")


@pytest.mark.usefixtures("here")
async def test_positional_arguments_are_bound_like_in_python():
    """Also those that stand before and behind `*args`."""

    @skill_command
    def rest(a: int, *more: int, b: int = 0) -> list[Any]:
        return [a, more, b]

    @skill_command
    def named(a: int, *, b: int = 0) -> list[Any]:
        return [a, b]

    assert {"result": [1, [2, 3], 4]} == rest(1, 2, 3, b=4)["structuredContent"]
    assert {"result": [1, [], 0]} == rest(a=1)["structuredContent"]
    assert {"result": [1, 2]} == named(1, b=2)["structuredContent"]
    assert "takes at most 1 positional arguments, got 2" in named(1, 2)["content"][0]["text"]


@pytest.mark.usefixtures("here")
async def test_instances_reach_the_function_as_they_are():
    """Python code passes Python objects; nobody copies them."""
    received = []

    @skill_command
    def keep(path: Path) -> None:
        received.append(path)

    path = Path("/somewhere")
    assert not keep(path)["isError"]
    assert received[0] is path


def test_a_decorator_below_ours_is_kept(runtime: Runtime):
    """It runs; name, signature and annotations are those of the innermost function."""

    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) * 2

        return wrapper

    @skill_command
    @doubled
    def five(path: Path) -> int:
        return 5

    assert {"type": "string", "format": "path"} == contract_of(runtime, five).input_schema["properties"]["path"]
    entry = runtime.entry_of(declaration_of(five))
    assert 10 == asyncio.run(entry.call({"path": "/"})).value


# --- bare and with arguments


def test_parentheses_make_no_difference(runtime: Runtime):
    """`@skill_command` and `@skill_command()` mean the same."""

    def tell() -> str:
        return "x"

    assert contract_of(runtime, skill_command(tell)) == contract_of(runtime, skill_command()(tell))


def test_help_shows_every_parameter():
    """The signature that editors and `help` show is the one that counts."""
    parameters = inspect.signature(skill_command).parameters
    shown = {name: parameter.default for name, parameter in parameters.items()}
    defaults = {
        **dict.fromkeys(("name", "description", "title", "timeout", "concurrency", "thread", "profile", "meta")),
        **dict.fromkeys(("read_only", "destructive", "idempotent", "open_world", "inject_settings", "retry_on")),
        **dict.fromkeys(("max_attempts", "output", "output_field", "input_schema", "output_schema", "tags", "icons")),
        "category": "general",
        "run_on": "",
        "inject_root": False,
        "autowire": True,
        "cache_ttl": 0.0,
        "aliases": (),
        "force": False,
    }
    assert defaults == shown


# --- parameters that show in the contract


def tell(text: str = "x") -> str:
    """Tell it.

    And more.
    """
    return text


def test_name_category_and_title(runtime: Runtime):
    """By default: the name of the function, `general`, and no title."""
    plain = contract_of(runtime, skill_command(tell))
    assert ("tell", "general", None) == (plain.name, plain.category, plain.title)
    named = contract_of(runtime, skill_command(name="say", category="talk", title="Say it")(tell))
    assert ("say", "talk", "Say it") == (named.name, named.category, named.title)
    assert ("test_command.say", "test_command_say") == (named.id, named.wire_name)


def test_the_description_is_the_docstring(runtime: Runtime):
    """Whole and cleaned; its first line is the summary. What is given wins, also when it is empty."""
    plain = contract_of(runtime, skill_command(tell))
    assert ("Tell it.\n\nAnd more.", "Tell it.") == (plain.description, plain.summary)
    given = contract_of(runtime, skill_command(description="Say.\n\nLoud.")(tell))
    assert ("Say.\n\nLoud.", "Say.") == (given.description, given.summary)
    assert "" == contract_of(runtime, skill_command(description="")(tell)).description


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    "hint, shown",
    [
        ("read_only", "readOnlyHint"),
        ("destructive", "destructiveHint"),
        ("idempotent", "idempotentHint"),
        ("open_world", "openWorldHint"),
    ],
)
def test_declared_hints_are_shown_and_no_others(runtime: Runtime, hint: str, shown: str, value: bool):
    """Each under its name in MCP."""
    command = skill_command(**{hint: value})(tell)
    assert {shown: value} == contract_of(runtime, command).hints.to_mcp()
    assert {shown: value} == get_tool_annotations(command)


def test_the_title_is_an_annotation():
    """As MCP 2025-03-26 has it."""
    assert {"title": "Tell", "readOnlyHint": True} == get_tool_annotations(
        skill_command(title="Tell", read_only=True)(tell)
    )


def test_tags_icons_meta_and_profile(runtime: Runtime):
    """They are written to the contract as they are given."""
    icon = {"src": "data:image/png;base64,AAAA", "mimeType": "image/png"}
    command = skill_command(tags=["a", "b"], icons=[icon], meta={"x": {"y": [1]}}, profile="full")(tell)
    contract = contract_of(runtime, command)
    assert (("a", "b"), (icon,), {"x": {"y": [1]}}, "full") == (
        contract.tags,
        contract.icons,
        contract.meta,
        contract.profile,
    )
    plain = contract_of(runtime, skill_command(tell))
    assert ((), (), {}, None) == (plain.tags, plain.icons, plain.meta, plain.profile)


async def test_a_pinned_profile_shows_in_the_payload(tmp_path: Path):
    """Whatever profile the client has."""
    async with Runtime.open(tmp_path) as runtime:
        entry = runtime.entry_of(declaration_of(skill_command(profile="omni")(tell)))
        assert "structuredContent" not in (await entry.call({})).payload("full")


def test_an_unknown_profile_is_refused(runtime: Runtime):
    """At load, when plugins have registered theirs."""
    with pytest.raises(SchemaError, match=r"test_command.py:\d+: there is no profile 'nope'; known: full, omni"):
        contract_of(runtime, skill_command(profile="nope")(tell))


def test_policies_show_in_the_contract(runtime: Runtime):
    """So that a reader of the catalog knows what to expect."""
    command = skill_command(
        retry_on=(OSError, KeyError), max_attempts=5, cache_ttl=60, timeout=9, concurrency=2, thread=False, run_on="gpu"
    )(tell)
    policies = contract_of(runtime, command).policies
    assert (("OSError", "KeyError"), 5, 60, 9, 2, False, "gpu") == (
        policies.retry_on,
        policies.max_attempts,
        policies.cache_ttl,
        policies.timeout,
        policies.concurrency,
        policies.thread,
        policies.run_on,
    )


def written(root: Path, source: str) -> Path:
    (root / "skills").mkdir(exist_ok=True)
    (root / "skills" / "web.py").write_text("from prowess import skill_command\n" + source)
    return root


async def test_aliases_answer_to_further_names(tmp_path: Path):
    """With a dot or a slash, however they were written."""
    source = '@skill_command(aliases=["search/web", "find"])\ndef get() -> str:\n    return "found"\n'
    async with Runtime.open(written(tmp_path, source)) as runtime:
        (contract,) = runtime.catalog()
        assert ("search.web", "find") == contract.aliases
        for name in ("web.get", "web_get", "search/web", "search.web", "find"):
            assert "found" == (await runtime.call(name)).value
        assert "unknown" == (await runtime.call("web")).kind


async def test_a_refused_decorator_is_a_failure_of_its_command(tmp_path: Path):
    """With file, line and reason in the catalog. The other commands of the file are served, and may use the function."""
    source = (
        "@skill_command(cache_ttl=-1)\ndef get() -> str:\n    return 'got'\n"
        "@skill_command\ndef use() -> str:\n    return get.raw()\n"
        "@skill_command\ndef call() -> dict:\n    return get()\n"
    )
    async with Runtime.open(written(tmp_path, source)) as runtime:
        (failure,) = runtime.catalog().failures
        assert "got" == (await runtime.call("web.use")).value
        assert "cache_ttl=-1 must be" in (await runtime.call("web.call")).text
    assert "web.get" == failure.source
    assert str(tmp_path / "skills" / "web.py") == failure.file
    assert 2 == failure.line
    assert "cache_ttl=-1 must be a number of seconds, 0 or more" in failure.reason


@pytest.mark.parametrize("kind", ["skill_command", "resource", "prompt"])
async def test_a_refused_name_is_a_failure_under_the_name_of_the_function(tmp_path: Path, kind: str):
    """Each decorator reports every command of the file at once."""
    uri = "'notes://today', " if kind == "resource" else ""
    source = (
        f"from prowess import {kind}\n@{kind}({uri}name='a b')\ndef one() -> str: ...\n"
        f"@{kind}({uri}name='two', nmae='x')\ndef other() -> str: ...\n"
    )
    async with Runtime.open(written(tmp_path, source)) as runtime:
        failures = runtime.catalog().failures
    assert ["web.one", "web.two"] == sorted(failure.source for failure in failures)


# --- what can be asked of a command


@skill_command(name="search_code", description="Search for patterns in code files", read_only=True, idempotent=True)
def search_code(
    query: str,
    *,
    file_pattern: str = "*.py",
    case_sensitive: bool = False,
    max_results: int = 100,
    encoding: Literal["utf-8", "gbk"] = "utf-8",
    exclude_patterns: list[str] | None = None,
    settings: Settings | None = None,
    paths: ConfigPaths | None = None,
) -> str:
    """Search for patterns in code."""
    return query


@pytest.mark.usefixtures("here")
async def test_the_configuration_is_what_the_omni_guide_documents():
    """The guide's own example."""
    config = get_script_config(search_code)
    assert config is not None
    assert list(config) == [
        "name",
        "description",
        "category",
        "annotations",
        "input_schema",
        "output_schema",
        "execution",
    ]
    assert "search_code" == config["name"]
    assert "Search for patterns in code files" == config["description"]
    assert "general" == config["category"]
    assert {"readOnlyHint": True, "idempotentHint": True} == config["annotations"]
    properties = config["input_schema"]["properties"]
    assert ["query"] == config["input_schema"]["required"]
    assert ["query", "file_pattern", "case_sensitive", "max_results", "encoding", "exclude_patterns"] == list(
        properties
    )
    assert {"type": "string"} == properties["query"]
    assert ("string", "*.py") == (properties["file_pattern"]["type"], properties["file_pattern"]["default"])
    assert ["utf-8", "gbk"] == properties["encoding"]["enum"]
    assert ("array", {"type": "string"}) == (
        properties["exclude_patterns"]["type"],
        properties["exclude_patterns"]["items"],
    )
    assert config["output_schema"] is None


@pytest.mark.usefixtures("here")
async def test_the_configuration_tells_how_a_command_is_run():
    """As it was declared."""

    @skill_command(
        inject_root=True, inject_settings=["api.key"], retry_on=OSError, cache_ttl=5, timeout=3, autowire=False
    )
    def run(project_root: Path, api_key: str = "") -> None: ...

    config = get_script_config(run)
    assert config is not None
    assert config["execution"] == {
        "inject_root": True,
        "inject_settings": ["api.key"],
        "autowire": False,
        "retry_on": (OSError,),
        "max_attempts": 3,
        "cache_ttl": 5,
        "timeout": 3,
        "concurrency": None,
        "thread": None,
    }
    assert {} == config["input_schema"]["properties"]
    assert config["output_schema"] is None


@pytest.mark.parametrize("value", [tell, None, 5, Context])
def test_what_is_no_command_has_no_configuration(value: object):
    """So that a loader can ask about everything it finds."""
    assert (False, None, None) == (is_skill_command(value), get_script_config(value), get_tool_annotations(value))


def test_a_command_is_known_as_one():
    """Whoever made it."""
    assert is_skill_command(add)
    assert not is_skill_command(add.raw)


# --- the implicit runtime


def test_a_command_can_be_called_without_a_runtime(tmp_path: Path):
    """An implicit runtime serves the project of the working directory, and does not keep the process alive."""
    (tmp_path / "prowess.toml").write_text("")
    (tmp_path / "script.py").write_text(
        "from __future__ import annotations\n"
        "from pathlib import Path\n"
        "from prowess import skill_command\n"
        "@skill_command(inject_root=True)\n"
        "def where(project_root: Path) -> str:\n"
        "    return str(project_root)\n"
        "print(where()['content'][0]['text'], where(project_root='x')['content'][0]['text'])\n"
    )
    environ = {**os.environ, "PYTHONPATH": ":".join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert f"{tmp_path.resolve()} x" == done.stdout.strip()


def test_a_refusal_is_raised_at_decoration():
    """Not at the first call."""
    with pytest.raises(DeclarationError):
        skill_command(max_attempts=0)(tell)


def test_a_schema_of_the_author_may_change_for_the_next_command(runtime: Runtime):
    """Each command keeps the data that it was decorated with."""
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    meta = {"x/y": {"z": 1}}

    @skill_command(input_schema=schema, output_schema=schema, meta=meta)
    def first(a: int = 1) -> dict[str, int]:
        return {"a": a}

    schema["properties"]["b"] = {}
    meta["x/y"]["z"] = 2
    declared = declaration_of(first)
    assert declared is not None
    contract = runtime.entry_of(declared).contract
    assert {"a"} == contract.input_schema["properties"].keys()
    assert contract.output.schema is not None
    assert {"a"} == contract.output.schema["properties"].keys()
    assert {"x/y": {"z": 1}} == contract.meta


@pytest.mark.parametrize("options", [{}, {"input_schema": {"type": "object", "properties": {"a": {}}}}])
def test_a_configuration_may_be_changed(options: dict[str, Any]):
    """It is a copy of what is served."""

    def f(a: int = 1) -> dict[str, int]:
        return {"a": a}

    command = skill_command(**options)(f)
    for _ in range(2):
        config = get_script_config(command)
        assert config is not None
        assert {"a"} == config["input_schema"]["properties"].keys()
        assert "x" not in config["input_schema"]["properties"]["a"]
        assert "x" not in config["output_schema"]["additionalProperties"]
        config["input_schema"]["properties"]["a"]["x"] = config["output_schema"]["additionalProperties"]["x"] = 5
