"""The runtime as an embedder sees it."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE
from tests.prowess.embedded import until

from prowess import Catalog, Runtime, Settings, skill_command
from prowess.contracts.declaration import declaration_of
from prowess.errors import LoadError
from prowess.runtime import current_runtime


def skill(root: Path, name: str, text: str) -> None:
    (root / "skills").mkdir(exist_ok=True)
    (root / "skills" / f"{name}.py").write_text("from prowess import skill_command\n" + textwrap.dedent(text))


CLOCK = """
@skill_command(aliases=["time"])
async def now(style: str = "iso") -> str:
    return style
"""


async def test_commands_are_called_by_id_wire_name_or_alias(tmp_path: Path):
    """With JSON arguments, or with none."""
    skill(tmp_path, "clock", CLOCK)
    async with Runtime.open(tmp_path) as runtime:
        for name in ("clock.now", "clock_now", "time"):
            outcome = await runtime.call(name, {"style": "rfc"})
            assert ("ok", "rfc", "clock.now") == (outcome.kind, outcome.value, outcome.command)
        assert "iso" == (await runtime.call("clock.now")).value
        assert "iso" == (await runtime.call("clock.now", {})).value
        assert "input" == (await runtime.call("clock.now", [])).kind


async def test_what_is_wrong_with_settings_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It stops nothing."""
    (tmp_path / ".env").write_text("no such line\n")
    async with Runtime.open(tmp_path):
        assert [f"{tmp_path}/.env:1: this line is ignored" in record.getMessage() for record in caplog.records] == [
            True
        ]


@pytest.mark.parametrize("name", ["clock.noww", "", "other.thing", 7, None, ["clock.now"], "\ud800"])
async def test_an_unknown_command_is_an_outcome(tmp_path: Path, name: Any):
    """Whatever it is that is no name; the nearest one is named."""
    skill(tmp_path, "clock", CLOCK)
    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.call(name)
        assert await runtime.find(name) is None
        assert await runtime.contract_of(name) is None
    assert ("unknown", True) == (outcome.kind, outcome.payload()["isError"])
    outcome.text.encode()
    if name == "clock.noww":
        assert 'Unknown command: clock.noww; did you mean "clock.now"?' == outcome.text


async def test_the_catalog_has_contracts_and_failures(tmp_path: Path):
    """One broken file hides no other."""
    skill(tmp_path, "clock", CLOCK)
    skill(tmp_path, "broken", "1 / 0\n")
    async with Runtime.open(tmp_path) as runtime:
        catalog = runtime.catalog()
        assert isinstance(catalog, Catalog)
        assert ["clock.now"] == [contract.id for contract in catalog]
        assert ["broken"] == [failure.source for failure in catalog.failures]
        assert (await runtime.find("clock.now")).contract is catalog["clock.now"]
        assert await runtime.contract_of("clock_now") is catalog["clock.now"]


async def test_skills_are_described_one_by_one(tmp_path: Path):
    """But for those that are known; and which have been imported is known, too."""
    skill(tmp_path, "clock", CLOCK)
    skill(tmp_path, "broken", "1 / 0\n")
    async with Runtime.open(tmp_path) as runtime:
        assert not runtime.loaded
        assert ["broken"] == list(runtime.describe({"clock"}).skills)
        assert {"broken"} == set(runtime.loaded)
        assert (await runtime.call("clock.now")).ok
        assert {"broken", "clock"} == set(runtime.loaded)
        assert ["clock.now"] == [contract.id for contract in runtime.loaded["clock"]]


async def test_skill_is_loaded_once_its_commands_can_be_called(tmp_path: Path):
    """Not before: the host would compare contracts that are not there yet with those that it knows."""
    skill(tmp_path, "clock", CLOCK)
    skill(tmp_path, "later", CLOCK)
    begun, may_end = threading.Event(), threading.Event()

    def wait(name: str, file: str) -> None:
        if name == "later" and file:
            begun.set()
            assert may_end.wait(PATIENCE)

    runtime = Runtime(tmp_path, on_import=wait)
    describing = threading.Thread(target=runtime.catalog)
    describing.start()
    assert begun.wait(PATIENCE)
    assert not runtime.loaded, "clock is imported"
    may_end.set()
    describing.join(PATIENCE)
    assert {"clock", "later"} == set(runtime.loaded)
    assert ["clock.now"] == [contract.id for contract in runtime.loaded["clock"]]
    await runtime.aclose()


async def test_who_wants_to_hears_what_is_about_to_be_imported(tmp_path: Path):
    """And that it is over, also when it failed."""
    skill(tmp_path, "clock", CLOCK)
    skill(tmp_path, "broken", "1 / 0\n")
    heard: list[tuple[str, str]] = []
    runtime = Runtime(tmp_path, on_import=lambda name, file: heard.append((name, file)))
    runtime.catalog()
    await runtime.aclose()
    skills = tmp_path / "skills"
    assert [("broken", f"{skills}/broken.py"), ("broken", ""), ("clock", f"{skills}/clock.py"), ("clock", "")] == heard


async def test_who_wants_one_command_goes_before_those_who_want_everything(tmp_path: Path):
    """And does not wait for the import that is going on."""
    order: list[str] = []
    found: list[threading.Thread] = []

    def on_import(name: str, file: str) -> None:
        order.extend([name] * bool(file))
        if name == "a" and file:  # somebody comes while this one is imported
            found.append(threading.Thread(target=runtime._library.find, args=("c.run",)))
            found[0].start()
            found[0].join(PATIENCE)

    for name in ("a", "b", "c"):
        skill(tmp_path, name, "from prowess import skill_command\n@skill_command\ndef run(): ...\n")
    runtime = Runtime(tmp_path, on_import=on_import)
    assert {"a", "b", "c"} == set(runtime.describe().skills)
    await runtime.aclose()
    assert ["a", "c", "b"] == order


async def test_what_was_imported_to_be_described_can_be_called_before_the_rest_is_described(tmp_path: Path):
    """It is there although nobody has asked for it by itself."""
    found: list[object] = []
    asking: list[threading.Thread] = []

    def on_import(name: str, file: str) -> None:
        if name == "b" and file:
            asking.append(
                threading.Thread(target=lambda: found.append(runtime._library.find("a.run", everywhere=False)))
            )
            asking[0].start()
            asking[0].join(PATIENCE)

    for name in ("a", "b", "c"):
        skill(tmp_path, name, "from prowess import skill_command\n@skill_command\ndef run(): ...\n")
    runtime = Runtime(tmp_path, on_import=on_import)
    runtime.describe()
    await runtime.aclose()
    assert found
    assert None not in found


async def test_a_call_does_not_wait_for_an_import_once_it_is_cancelled(tmp_path: Path):
    """The import goes on in its thread, and the next call finds what it came to."""
    begun, go_on = threading.Event(), threading.Event()
    gates[str(tmp_path)] = begun, go_on
    skill(
        tmp_path,
        "slow",
        f"""
        import sys
        begun, go_on = sys.modules[{__name__!r}].gates[{str(tmp_path)!r}]
        begun.set()
        go_on.wait({PATIENCE})
        @skill_command
        async def it() -> int:
            return 7
        """,
    )
    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            task = asyncio.ensure_future(runtime.call("slow.it"))
            await until(begun.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            assert 7 == (await runtime.call("slow.it")).value


gates: dict[str, Any] = {}


async def test_a_failure_of_ours_while_finding_is_not_hidden(tmp_path: Path):
    """It arrives as it was raised, and not carried."""
    async with Runtime.open(tmp_path) as runtime:
        with pytest.raises(ZeroDivisionError):
            await runtime._in_thread(lambda: 1 // 0)


async def test_a_flag_wins_over_files_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In the order of the settings: file, environment, flags."""
    (tmp_path / "prowess.toml").write_text('[a]\nx = "file"\ny = "file"\nz = "file"\n')
    monkeypatch.setenv("PROWESS_A__Y", "environment")
    monkeypatch.setenv("PROWESS_A__Z", "environment")
    async with Runtime.open(tmp_path, flags={"a.z": "flag"}) as runtime:
        settings: Settings = runtime.settings
        assert ["file", "environment", "flag"] == [settings.get(f"a.{key}") for key in "xyz"]
        assert tmp_path == runtime.root == runtime.paths.project_root


async def test_what_is_no_setting_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It may be somebody else's, and stops nothing."""
    (tmp_path / ".env").write_text("PROWESS_HOME=hush")
    async with Runtime.open(tmp_path):
        assert f"{tmp_path}/.env: PROWESS_HOME is ignored: unknown setting 'home'" in caplog.text
        assert "hush" not in caplog.text


# Which runtime


async def test_an_open_runtime_is_the_current_one(tmp_path: Path):
    """Inside its block and inside its calls; the nearest one counts."""
    seen = []

    @skill_command
    def which():
        seen.append(current_runtime())

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with Runtime.open(tmp_path / "a") as outer:
        async with Runtime.open(tmp_path / "b") as inner:
            assert inner is current_runtime()
            await outer.entry_of(declaration_of(which)).call({})
            await outer.call_direct(declaration_of(which), (), {})
            await asyncio.to_thread(outer.call_direct_sync, declaration_of(which), (), {})
        assert outer is current_runtime()
    assert [inner, outer, outer] == seen


async def test_a_runtime_may_be_closed_in_another_context(tmp_path: Path):
    """As some test runners do with fixtures."""
    opened = Runtime.open(tmp_path)
    await asyncio.get_running_loop().create_task(opened.__aenter__(), context=contextvars.copy_context())
    await asyncio.get_running_loop().create_task(opened.__aexit__(None, None, None), context=contextvars.Context())


async def test_a_runtime_may_be_closed_twice(tmp_path: Path):
    """The second time does nothing."""
    async with Runtime.open(tmp_path) as runtime:
        await runtime.aclose()
    assert "the runtime was closed before the call of a.b" in (await runtime.call("a.b")).text


async def test_a_cancelled_owner_closes_everything(tmp_path: Path):
    """Singletons as well as the loop in the background."""
    seen: list[str] = []

    class Db:
        def __enter__(self) -> Db:
            return self

        def __exit__(self, *_: object) -> None:
            seen.append("closed")

    @skill_command
    def using(db: Db) -> int:
        return 7

    async def own() -> None:
        async with Runtime.open(tmp_path) as runtime:
            runtime._services.injectables.provide(Db, Db)
            assert 7 == using()["structuredContent"]["result"]
            scope.cancel()
            await anyio.sleep_forever()

    before = set(threading.enumerate())
    with anyio.CancelScope() as scope:
        await own()
    assert ["closed"] == seen
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if "portal" in name]


# Modules of skills, and the runtime that is current


FOLDER = {
    "__init__": "",
    "commands": "from prowess import skill_command\nfrom .words import WORD\n\n@skill_command\ndef say() -> str:\n    return WORD\n",
    "words": "WORD = 'hello'\n",
}


def test_module_of_a_skill_is_the_one_that_runs(tmp_path: Path):
    """What a test changes in it, calls see; a file in a folder has a dotted name."""
    skills = tmp_path / "skills"
    (skills / "text").mkdir(parents=True)
    for name, text in FOLDER.items():
        (skills / "text" / f"{name}.py").write_text(text)
    (skills / "one.py").write_text(
        "from prowess import skill_command\n\n@skill_command\ndef it() -> int:\n    return 1\n"
    )
    runtime = Runtime(tmp_path)
    try:
        commands = runtime.module("text.commands")
        commands.WORD = "bye"

        assert "bye" == asyncio.run(runtime.call("text.say")).value
        assert "hello" == runtime.module("text.words").WORD
        assert commands is runtime.module("text").commands
        assert 1 == runtime.module("one").it.raw()
    finally:
        runtime.close()


def test_module_of_no_skill_is_refused(tmp_path: Path):
    """With the nearest skill, and where it was looked for."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/notes.py").write_text("from prowess import skill_command\n")
    runtime = Runtime(tmp_path)
    try:
        with pytest.raises(LoadError) as caught:
            runtime.module("note")
    finally:
        runtime.close()
    assert f"there is no skill 'note' in {tmp_path / 'skills'}; did you mean \"notes\"?" == str(caught.value)


def test_module_that_does_not_load_raises_what_it_raises(tmp_path: Path):
    """The catalog notes it; a test wants the traceback."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/notes.py").write_text("import prowess\n1 / 0\n")
    runtime = Runtime(tmp_path)
    try:
        with pytest.raises(ZeroDivisionError):
            runtime.module("notes")
    finally:
        runtime.close()


def test_direct_calls_run_in_the_current_runtime_until_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A context may outlive its runtime: a closed one is never current."""
    monkeypatch.chdir(tmp_path)
    runtime = Runtime(tmp_path / "elsewhere")
    with runtime.as_current():
        assert runtime is current_runtime()
        runtime.close()
        assert tmp_path.resolve() == current_runtime().root


def test_profiles_of_a_runtime_are_public():
    """By name."""
    runtime = Runtime(Path())
    assert {"portable", "full"} <= set(runtime.profiles)
    runtime.close()


def eager(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """`asyncio.eager_task_factory`, which Python has since 3.12: a task begins at once."""
    if sys.version_info >= (3, 12):
        return asyncio.eager_task_factory(loop, coroutine, **options)
    steps: list[Any] = []
    loop.call_soon = lambda step, *_, context: steps.append((step, context))  # type: ignore[method-assign]
    try:
        task = asyncio.Task(coroutine, loop=loop, **options)
    finally:
        del loop.call_soon
    current = asyncio.current_task()
    asyncio.tasks._leave_task(loop, current)
    try:
        for step, context in steps:
            context.run(step)
    finally:
        asyncio.tasks._enter_task(loop, current)
    return task


async def test_a_program_may_begin_its_tasks_at_once(tmp_path: Path):
    """A cached result still expires, and a shared object is made without a deadlock."""
    text = """
        import itertools
        from prowess import hookimpl

        class Numbers(itertools.count): ...

        @hookimpl
        def prowess_injectables(provide):
            provide(Numbers)

        @skill_command(cache_ttl=10)
        async def number(numbers: Numbers) -> int:
            return next(numbers)
    """
    skill(tmp_path, "n", text)
    now = 0.0
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    async with Runtime.open(tmp_path, timer=lambda: now) as runtime:
        loop.set_task_factory(eager)
        try:
            with anyio.fail_after(PATIENCE):
                assert [0, 0] == [(await runtime.call("n.number")).value for _ in range(2)]
                now = 11.0
                assert 1 == (await runtime.call("n.number")).value
        finally:
            loop.set_task_factory(factory)
