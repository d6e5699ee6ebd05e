"""Plugins: what each hook does, and that one broken hook, plugin or package never hides another."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE

from prowess import Runtime
from prowess.calls.channel import Channel

HEAD = "from __future__ import annotations\nfrom prowess import hookimpl, skill_command\n"
COMMAND = "@skill_command\ndef run() -> int:\n    return 1\n"


def write(root: Path, **files: str) -> Path:
    """Skill files by name, `__` for a slash."""
    for name, text in files.items():
        path = root / "skills" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + textwrap.dedent(text))
    return root


async def value(runtime: Runtime, command: str, **arguments: Any) -> Any:
    outcome = await runtime.call(command, arguments)
    assert outcome.ok, outcome.text
    return outcome.value


def ids(runtime: Runtime) -> list[str]:
    return [contract.id for contract in runtime.catalog()]


def told(runtime: Runtime) -> list[tuple[str, str, int | None, str]]:
    """Source, file name, line and reason of every failure."""
    return [(it.source, Path(it.file or "").name, it.line, it.reason) for it in runtime.catalog().failures]


CLOCK = """
class Clock:
    def now(self): return {0!r}
@hookimpl
def prowess_injectables(provide):
    provide(Clock, Clock)
"""
USES_CLOCK = """
from .clock import Clock
@skill_command
def now(clock: Clock) -> str:
    return clock.now()
"""


# What each hook does


async def test_commands_hook_registers_commands_from_anywhere(tmp_path: Path) -> None:
    """Also those of an unknown module; the same one twice is one."""
    text = """
    def made(n):
        @skill_command(name=f"made{n}")
        def command() -> int:
            return n
        return command
    @skill_command
    def own() -> int: return 0
    @hookimpl
    def prowess_commands(register):
        register(made(1)); register(made(2)); register(own); register(own)
    """
    async with Runtime.open(write(tmp_path, a=text)) as runtime:
        assert ["a.made1", "a.made2", "a.own"] == ids(runtime)
        assert [] == told(runtime)
        assert 2 == await value(runtime, "a.made2")


async def test_injectables_hook_provides_to_every_skill(tmp_path: Path) -> None:
    """Whatever the order of the names: hooks come before commands, also between plugins that need each other."""
    database = """
    from .clock import Clock
    class Database:
        def __init__(self, clock: Clock): self.clock = clock
    @hookimpl
    def prowess_injectables(provide): provide(Database, Database)
    @skill_command
    def when(database: Database) -> str: return database.clock.now()
    """
    write(tmp_path, clock=CLOCK.format("noon"), a_database=database, b=USES_CLOCK)
    async with Runtime.open(tmp_path) as runtime:
        assert ["noon", "noon"] == [await value(runtime, "b.now"), await value(runtime, "a_database.when")]
        assert [] == told(runtime)


async def test_folders_that_are_not_there_are_a_failure(tmp_path: Path) -> None:
    """Nothing is passed over in silence; `None` is no folder, and fine."""
    write(
        tmp_path,
        bad="@hookimpl\ndef prowess_skill_folders():\n    yield 'gone'\n",
        none="@hookimpl\ndef prowess_skill_folders(): ...\n",
    )
    async with Runtime.open(tmp_path) as runtime:
        assert [
            ("bad", "bad.py", None, "prowess_skill_folders returned 'gone', which must be an existing folder")
        ] == told(runtime)


async def test_refused_calls_failed_attempts_and_the_end_are_told(tmp_path: Path) -> None:
    """What an observer raises changes nothing, and hides nothing from the next one."""
    text = """
    told = []
    @hookimpl
    def prowess_call_refused(call, outcome): told.append(("refused", call.wire_name, dict(call.arguments), outcome.kind))
    @hookimpl
    def prowess_call_retried(call, attempt, error): told.append((call.command, attempt, repr(error)))
    @hookimpl
    def prowess_closing(): told.append("closing")
    left = [1, 2]
    @skill_command(retry_on=KeyError)
    def run(n: int) -> int:
        if left: raise KeyError(left.pop())
        return n
    """
    failing = """
    @hookimpl
    def prowess_call_refused(): 1 / 0
    @hookimpl
    def prowess_call_retried(): 1 / 0
    @hookimpl
    def prowess_closing(): raise SystemExit
    """
    write(tmp_path, a=failing, b=text)
    (tmp_path / "prowess.toml").write_text("retry = { initial = 0, maximum = 0 }")
    async with Runtime.open(tmp_path) as runtime:
        runtime.catalog()
        told_of = runtime.module("b").told
        assert 3 == await value(runtime, "b.run", n=3)
        assert "input" == (await runtime.call("b.run", {"n": "x"})).kind

    assert [
        ("b.run", 1, "KeyError(2)"),
        ("b.run", 2, "KeyError(1)"),
        ("refused", "b_run", {}, "input"),
        "closing",
    ] == told_of


async def test_profiles_hook_adds_profiles(tmp_path: Path) -> None:
    """A command may be pinned to it wherever it stands, and a plugin that leaves takes it along."""
    plug = """
    from prowess.profiles.profile import Profile
    @hookimpl
    def prowess_profiles(register): register(Profile("bare", box=None))
    """
    write(tmp_path, a="@skill_command(profile='bare')\ndef run() -> int: return 1\n", z=plug)
    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.call("a.run")
        assert {"content": [{"type": "text", "text": "1"}], "isError": False} == outcome.payload()
    (tmp_path / "skills/z.py").unlink()
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run"] == [source for source, *_ in told(runtime)]


async def test_profiles_hook_refuses_what_is_none_and_what_is_taken(tmp_path: Path) -> None:
    """The built-in ones stay what they are."""
    write(
        tmp_path,
        a="@hookimpl\ndef prowess_profiles(register):\n    register('mine')\n",
        b="from prowess.profiles.profile import Profile\n@hookimpl\ndef prowess_profiles(register):\n    register(Profile('full'))\n",
    )
    async with Runtime.open(tmp_path) as runtime:
        assert [
            ("a", "a.py", 5, "'mine' is not a Profile"),
            ("b", "b.py", 6, "there already is a profile 'full'; choose another name"),
        ] == told(runtime)


FRAME = """
class DataFrame:
    def __init__(self, rows): self.rows = rows
    def __iter__(self): return iter(["column", "names"])
class Figure: ...
class Table(DataFrame): ...
"""


async def test_renderer_that_fails_inside_data_is_named(tmp_path: Path) -> None:
    """With what it raised, wherever the value stands."""
    plug = """
    class Odd: ...
    @hookimpl
    def prowess_render(value):
        raise ZeroDivisionError("odd")
    @skill_command
    def inside(): return {"a": [Odd()]}
    @skill_command
    def declared() -> dict: return {"a": [Odd()]}
    """
    write(tmp_path, plug=plug)
    async with Runtime.open(tmp_path) as runtime:
        for command in ("plug.inside", "plug.declared"):
            said = (await runtime.call(command)).text
            assert "could not render a Odd: ZeroDivisionError: odd" in said


async def test_renderer_teaches_a_type(tmp_path: Path) -> None:
    """Data, content, or a whole result; at the top, in a list, and inside data. The first who answers is heard."""
    renderer = """
    from prowess import Image
    from .frames import DataFrame, Figure, Table
    @hookimpl
    def prowess_render(value):
        if isinstance(value, Figure): return Image(b"\\x89PNG\\r\\n\\x1a\\n")
        if isinstance(value, Table): return {"content": [{"type": "text", "text": "table"}], "isError": False}
        return value.rows if isinstance(value, DataFrame) else None
    """
    late = "@hookimpl(trylast=True)\ndef prowess_render(value): return 'late'\n"
    uses = """
    from .frames import DataFrame, Figure, Table
    @skill_command
    def frame(): return DataFrame([{"a": 1}])
    @skill_command
    def nested(): return {"frame": DataFrame([1]), "n": 1}
    @skill_command
    def figures(): return [Figure(), "and", Figure()]
    @skill_command
    def table(): return Table([])
    @skill_command
    def other(): return object()
    """
    write(tmp_path, frames=FRAME, renderer=renderer, uses=uses)
    png = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    async with Runtime.open(tmp_path) as runtime:
        assert [{"a": 1}] == await value(runtime, "uses.frame")
        assert {"frame": [1], "n": 1} == await value(runtime, "uses.nested")
        content = (await runtime.call("uses.figures")).payload()["content"]
        assert [png, {"type": "text", "text": "and"}, png] == content
        assert [{"type": "text", "text": "table"}] == (await runtime.call("uses.table")).payload()["content"]
        assert "an object of the type object cannot be written as JSON" in (await runtime.call("uses.other")).text
    write(tmp_path, late=late)
    async with Runtime.open(tmp_path) as runtime:
        assert "late" == await value(runtime, "uses.other") or "late" == (await runtime.call("uses.other")).text
        assert [{"a": 1}] == await value(runtime, "uses.frame")


async def test_renderer_that_raises_fails_the_call(tmp_path: Path) -> None:
    """And says which plugin it was."""
    write(
        tmp_path,
        bad="@hookimpl\ndef prowess_render(value): 1 / 0\n",
        a="@skill_command\ndef run(): return object()\n@skill_command\ndef plain(): return {'a': [1]}\n",
    )
    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.call("a.run")
        assert "output" == outcome.kind
        assert "could not render a object: ZeroDivisionError: division by zero" in outcome.text
        assert "plugin bad:" in outcome.text
        assert {"a": [1]} == await value(runtime, "a.plain")


async def test_calls_are_observed_and_wrapped_in_the_order_of_names(tmp_path: Path) -> None:
    """The first plugin is the outermost; who raises in an observer changes nothing."""
    note = """
    from ._seen import seen
    @hookimpl{2}
    def prowess_call_started(call): seen.append("{0} started " + call.command)
    @hookimpl{2}
    async def prowess_wrap_call(proceed):
        seen.append("{0} before")
        outcome = await proceed()
        seen.append("{0} after")
        return outcome
    @hookimpl{2}
    def prowess_call_finished(outcome, call): seen.append("{0} " + outcome.kind); {1}
    """
    write(
        tmp_path,
        _seen="seen = []\n",
        b=note.format("b", "1 / 0", ""),
        a=note.format("a", "", ""),
        z=note.format("z", "", "(tryfirst=True)"),
        run="from ._seen import seen\n@skill_command\ndef run() -> list: return seen\n",
    )
    async with Runtime.open(tmp_path) as runtime:
        before = ["z started run.run", "a started run.run", "b started run.run", "z before", "a before", "b before"]
        assert before == await value(runtime, "run.run")
        after = ["b after", "a after", "z after", "z ok", "a ok", "b ok"]
        assert [*before, *after] == (await value(runtime, "run.run"))[:12]


async def test_a_wrapper_may_run_a_call_again(tmp_path: Path) -> None:
    """One after the other or at once, each with its own time and its own objects. Progress only grows."""
    write(
        tmp_path,
        again="""
        import asyncio
        from prowess import Context

        class Thing: ...
        events = []

        def thing():
            yield Thing()
            events.append("closed")

        @hookimpl
        def prowess_injectables(provide): provide(Thing, thing, lifetime="call")

        @hookimpl
        async def prowess_wrap_call(call, proceed):
            await proceed()
            return (await asyncio.gather(proceed(), proceed()))[0]

        @skill_command(concurrency=2, timeout=60)
        def run(thing: Thing, ctx: Context) -> list:
            ctx.progress(1)
            return list(events)
        """,
    )
    progress: list[float] = []
    channel = Channel(progress=lambda done, *_: progress.append(done))
    async with Runtime.open(tmp_path) as runtime:
        with anyio.fail_after(PATIENCE):
            outcome = await runtime.call("again.run", channel=channel)
    assert ("ok", 1) == (outcome.kind, outcome.attempts)
    assert "closed" in outcome.value
    assert [1] == progress


# One broken hook, one broken plugin


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (
            "@hookimpl\ndef prowess_rendr(value): ...\n",
            'there is no hook prowess_rendr; did you mean "prowess_render"?',
        ),
        (
            "@hookimpl\ndef prowess_render(vaule): ...\n",
            'prowess_render takes vaule, but prowess_render passes value; did you mean "value"?',
        ),
        (
            "@hookimpl(specname='prowess_render')\ndef mine(x): ...\n",
            "mine takes x, but prowess_render passes value",
        ),
        (
            "@hookimpl(wrapper=True)\ndef prowess_render(value): yield\n",
            "prowess_render is a hook wrapper, which Prowess ignores; use prowess_wrap_call to wrap a call",
        ),
        (
            "@hookimpl\nasync def prowess_render(value): ...\n",
            "prowess_render is async, but Prowess calls prowess_render without await; make it a plain function",
        ),
        (
            "def prowess_render(value): ...\n",
            "prowess_render has the name of a hook but lacks @hookimpl; add the decorator",
        ),
    ],
)
async def test_wrong_hook_is_a_failure_at_its_line(tmp_path: Path, hook: str, reason: str) -> None:
    """The good hooks and the commands of the same file work."""
    good = "@hookimpl\ndef prowess_injectables(provide):\n    provide(dict, lambda: {}, name='d')\n"
    uses = "from prowess import Inject\n@skill_command\ndef use(d: dict = Inject('d')) -> int: return len(d)\n"
    write(tmp_path, a=f"\n\n{hook}{good}{COMMAND}{uses}", b=COMMAND)
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run", "a.use", "b.run"] == ids(runtime)
        assert [("a", "a.py", 5, reason)] == told(runtime)
        assert 0 == await value(runtime, "a.use")


async def test_hooks_that_only_look_odd_are_fine(tmp_path: Path) -> None:
    """Defaults, fewer arguments, any arguments, another name, an optional hook, and what is only imported."""
    text = """
    from prowess.hookspecs import prowess_call_started
    prowess_call_finished = "no function"
    @hookimpl
    def prowess_render(value=None, cache={}, *rest): return cache or (value and "rendered")
    @hookimpl
    def prowess_injectables(): ...
    @hookimpl(specname="prowess_commands")
    def mine(register, **more): register(made)
    @hookimpl(optionalhook=True)
    def of_another_program(x): ...
    @skill_command
    def made(): return object()
    """
    async with Runtime.open(write(tmp_path, a=text)) as runtime:
        assert [] == told(runtime)
        assert ["a.made"] == ids(runtime)
        assert "rendered" == (await runtime.call("a.made")).text


@pytest.mark.parametrize(
    "hook", ["injectables(provide)", "commands(register)", "profiles(register)", "skill_folders()"]
)
async def test_raising_hook_hides_nothing(tmp_path: Path, hook: str) -> None:
    """It is a failure at its line; what the file brings besides is there."""
    write(tmp_path, a=f"@hookimpl\ndef prowess_{hook}:\n    1 / 0\n{COMMAND}", b=COMMAND)
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run", "b.run"] == ids(runtime)
        assert [("a", "a.py", 5, "ZeroDivisionError: division by zero")] == told(runtime)


async def test_hook_that_raises_halfway_keeps_what_it_gave(tmp_path: Path) -> None:
    """One provider that fails does not take back the one before."""
    text = """
    class One: ...
    @hookimpl
    def prowess_injectables(provide):
        provide(One, One)
        provide(One, One)
    @skill_command
    def run(one: One) -> str: return type(one).__name__
    """
    async with Runtime.open(write(tmp_path, a=text)) as runtime:
        assert "One" == await value(runtime, "a.run")
        assert [("a", 8)] == [(source, line) for source, _, line, _ in told(runtime)]
        assert "One already has a provider" in told(runtime)[0][3]


async def test_provider_that_lacks_something_is_a_failure_where_it_is_provided(tmp_path: Path) -> None:
    """So is who needs it in turn; other providers work."""
    text = """
    class Missing: ...
    class One:
        def __init__(self, missing: Missing): ...
    class Two:
        def __init__(self, one: One): ...
    class Three: ...
    @hookimpl
    def prowess_injectables(provide):
        provide(One, One)
        provide(Two, Two)
        provide(Three, Three)
    @skill_command
    def two(two: Two): ...
    @skill_command
    def three(three: Three) -> int: return 3
    """
    async with Runtime.open(write(tmp_path, a=text)) as runtime:
        assert 3 == await value(runtime, "a.three")
        assert [("a", 12), ("a", 13), ("a.two", 15)] == [(source, line) for source, _, line, _ in told(runtime)]
        assert "there is no provider for Missing" in told(runtime)[0][3]


async def test_command_that_is_none_is_a_failure_where_it_is_registered(tmp_path: Path) -> None:
    """The line is the plugin's."""
    text = "@hookimpl\ndef prowess_commands(register):\n    register(print)\n"
    async with Runtime.open(write(tmp_path, a=text)) as runtime:
        reason = "<built-in function print> is not a command: decorate it with @skill_command, @resource or @prompt"
        assert [("a", "a.py", 5, reason)] == told(runtime)


# Reload


# Installed packages

PROGRAM = """
import asyncio, sys
from prowess import Runtime
async def main():
    async with Runtime.open(sys.argv[1]) as runtime:
        for contract in runtime.catalog():
            outcome = await runtime.call(contract.id)
            print(contract.id, outcome.text)
        for failure in runtime.catalog().failures:
            print("FAILED", failure)
asyncio.run(main())
"""


PLUGIN = """
from acme.commands import run
class Plugin:
    @hookimpl
    def prowess_commands(self, register): register(run)
    @property
    def lazy(self): raise RuntimeError
plugin = Plugin()
"""


def install(site: Path, distribution: str, entry_points: str, modules: dict[str, str] | None = None) -> None:
    """A distribution as it would lie in site-packages."""
    info = site / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[prowess.skills]\n{textwrap.dedent(entry_points)}")
    for name, text in (modules or {}).items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + textwrap.dedent(text))


def run_with(site: Path, project: Path) -> list[str]:
    """What a fresh process with these packages finds."""
    environment = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    command = [sys.executable, "-c", environment + PROGRAM, str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines()


def test_installed_packages_bring_skills_and_broken_ones_hide_nobody(tmp_path: Path) -> None:
    """Modules, packages that show commands of theirs, single commands and plugin objects; each failure tells why."""
    site = tmp_path / "site"
    install(
        site,
        "good",
        """
        acme = acme
        beta = beta.inner
        gamma = beta.inner:single
        plug = plug:plugin
        """,
        {
            "acme/__init__.py": "from acme.commands import run\nfrom beta.inner import single\n",
            "acme/commands.py": COMMAND,
            "beta/inner.py": "@skill_command\ndef single() -> str: return 'single'\n",
            "plug.py": PLUGIN,
        },
    )
    install(
        site,
        "bad",
        """
        broken = broken
        gone = gone_module
        lost = acme:nothing
        kind = plug:Plugin
        odd name = acme
        sane = broken.deep
        """,
        {"broken/__init__.py": "\n\nraise SystemExit(1)\n"},
    )
    install(site, "zeta", "beta = acme\nzeta = plug:plugin\n")
    project = write(tmp_path / "project", local=COMMAND)
    lines = run_with(site, project)

    assert ["acme.run 1", "beta.single single", "gamma.single single", "local.run 1", "plug.run 1"] == [
        line for line in lines if not line.startswith("FAILED")
    ]
    assert [
        "FAILED beta: this plugin is registered already, as acme:acme",
        f"FAILED broken ({site}/broken/__init__.py:5): SystemExit: 1",
        "FAILED gone: ModuleNotFoundError: No module named 'gone_module'",
        "FAILED kind: the plugin Plugin is a class; give an instance of it",
        "FAILED lost: AttributeError: module 'acme' has no attribute 'nothing'",
        r"FAILED odd name: the name of the entry point does not match [A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*",
        f"FAILED sane ({site}/broken/__init__.py:5): SystemExit: 1",
        "FAILED zeta: this plugin is registered already, as package:plug:good",
    ] == [line.partition(". Skills run in")[0] for line in lines if line.startswith("FAILED")]


async def test_plugin_that_clashes_with_a_skill_of_its_own_folder_is_refused(tmp_path: Path) -> None:
    """Like any two skills of one name. Taking it out takes the folder out, in which there is then no clash."""
    hook = "from prowess import hookimpl, skill_command\n@hookimpl\ndef prowess_skill_folders(): return ['more']\n"
    project = write(tmp_path, plug=f"{hook}@skill_command\ndef one(): ...\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/plug.py").write_text("from prowess import skill_command\n@skill_command\ndef two(): ...\n")
    async with Runtime.open(project) as runtime:
        catalog = runtime.catalog()
    assert [] == [contract.id for contract in catalog]
    assert ["plug", "plug"] == [failure.source for failure in catalog.failures]
    assert all("there is another skill of this name" in failure.reason for failure in catalog.failures)


def test_installed_package_and_project_with_one_command_refuse_each_other(tmp_path: Path) -> None:
    """Neither is hidden in silence."""
    install(tmp_path / "site", "acme", "git = acme_git\n", {"acme_git.py": COMMAND})
    lines = run_with(tmp_path / "site", write(tmp_path / "project", git=COMMAND))

    assert 2 == len(lines)
    assert all("the name 'git.run' is also claimed by git.run (" in line for line in lines)


async def test_folders_hook_adds_skills(tmp_path: Path) -> None:
    """A plugin in such a folder may name further ones, relative to the project, and settings may say which."""
    write(
        tmp_path,
        plug="""
        @hookimpl
        def prowess_skill_folders(project_root, settings):
            return [project_root / settings.get("mine.more")]
        """,
    )
    write(
        tmp_path / "more",
        inner="""
        @hookimpl
        def prowess_skill_folders():
            return "most/skills"
        """,
        a=COMMAND,
    )
    write(tmp_path / "most", b=COMMAND)
    async with Runtime.open(tmp_path, flags={"mine": {"more": "more/skills"}}) as runtime:
        assert 1 == await value(runtime, "b.run")
        assert ["a.run", "b.run"] == ids(runtime)
        (tmp_path / "skills/plug.py").unlink()
    async with Runtime.open(tmp_path) as runtime:
        assert [] == ids(runtime)


async def test_renderer_lets_a_command_be_annotated_with_its_type(tmp_path: Path) -> None:
    """Without one, a type that has no schema fails at load; an explicit schema holds for what was rendered."""
    uses = """
    from .frames import DataFrame
    @skill_command
    def frame() -> DataFrame: return DataFrame([1])
    @skill_command(output_schema={"type": "array", "items": {"type": "integer"}})
    def checked(text: bool = False) -> DataFrame: return DataFrame(["x"] if text else [1])
    """
    renderer = """
    from .frames import DataFrame
    @hookimpl
    def prowess_render(value): return value.rows if isinstance(value, DataFrame) else None
    """
    write(tmp_path, frames=FRAME, uses=uses)
    async with Runtime.open(tmp_path) as runtime:
        assert ["uses.checked"] == ids(runtime)
        assert "the return type of uses.frame has no JSON Schema" in told(runtime)[0][3]
        write(tmp_path, renderer=renderer)
    async with Runtime.open(tmp_path) as runtime:
        assert [] == told(runtime)
        assert [[1], [1]] == [await value(runtime, name) for name in ("uses.frame", "uses.checked")]
        assert "output" == (await runtime.call("uses.checked", {"text": True})).kind


SHARED = """
import sys
from pathlib import Path
from prowess import Runtime
from prowess.skills.library import Share
share = Share(only=["bb"]) if sys.argv[2:] else Share(packages={"aa": True, "bb": False})
runtime = Runtime(Path(sys.argv[1]), share=share)
for contract in runtime.catalog():
    print(contract.id)
for failure in runtime.catalog().failures:
    print("FAILED", failure)
print(*[name for name in runtime.describe().names if "bb" in name])
"""


def test_packages_are_imported_by_whom_the_owner_says(tmp_path: Path) -> None:
    """Here, by other workers, or by nobody: then it is a failure that says what to type."""
    for name in ("aa", "bb", "c-c"):
        module = name.replace("-", "_")
        body = {f"{module}.py": "@skill_command\ndef run(): ...\n"}
        install(tmp_path / "site", f"dist_{module}", f"{name} = {module}\n", body)
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n{SHARED}"

    def told(*args: str) -> list[str]:
        command = [sys.executable, "-c", program, str(tmp_path), *args]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.splitlines()

    refused = "it belongs to the installed package dist_c_c, and is not allowed to run: `prowess trust c-c` shows"
    here, failure, names = told()
    assert ("aa.run", "package:bb:dist_bb") == (here, names)
    assert failure.startswith(f"FAILED c-c: {refused}")
    assert "bb.run" == told("bb")[0]
    assert not [line for line in told("bb") if "aa" in line]
