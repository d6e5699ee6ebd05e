"""Skills with environments of their own, over one wire, with real processes, uv, and wheels from a folder."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from importlib.metadata import requires
from pathlib import Path

import pytest
from anyio import fail_after, run_process
from patience import PATIENCE
from piped import Client, hosted, make_project, result, until, write_skill
from wheelhouse import starts

UV = shlex.quote(pytest.importorskip("uv").find_uv_bin())

REAL = os.path.realpath
CHANGED = "notifications/tools/list_changed"
TINY = """
import tinypackage
@skill_command
def version() -> str:
    return tinypackage.version
"""
AS_ANYBODY = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-all"] if os.geteuid() == 0 else []
"""Starts a program for which the modes of files count: for root they do not."""
PLAIN = """
@skill_command
def version() -> str:
    return "none"
"""


def block(*dependencies: str, requires: str = "", more: str = "") -> str:
    """A block of inline metadata."""
    lines = [f"requires-python = {json.dumps(requires)}"] if requires else []
    lines += [f"dependencies = {json.dumps(list(dependencies))}", *more.splitlines()]
    return "\n".join(["# /// script", *(f"# {line}" if line else "#" for line in lines), "# ///", ""])


def settings(wheels: Path, more: str = "") -> str:
    return f'[environments]\nindex = ""\noffline = true\nfind_links = [{json.dumps(str(wheels))}]\n{more}'


def project(root: Path, wheels: Path, more: str = "", **skills: str) -> Path:
    return make_project(root, settings(wheels, more), **skills)


async def until_listed(host: Client, names: set[str]) -> None:
    """Wait until these tools are listed."""
    count = 0
    while set(await host.tools()) != names:
        count += 1
        await host.noted(CHANGED, count)


async def until_text(host: Client, wanted: str, name: str) -> None:
    """Call until a saved version answers."""
    with fail_after(PATIENCE):
        while await host.text(name) != wanted:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.05)


async def until_told(host: Client, wanted: str) -> str:
    """The diagnostics, as soon as they say something."""
    with fail_after(PATIENCE):
        while wanted not in (told := await host.text("prowess_diagnostics")):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    return told


def program(file: Path, script: str) -> dict[str, str]:
    """A program in the place of uv."""
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PROWESS_ENVIRONMENTS__UV": str(file)}


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache with environments that several tests use."""
    return {"PROWESS_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}


async def test_skills_with_incompatible_dependencies_share_a_wire(tmp_path: Path, wheels: Path):
    """Two need two versions of one package, a third needs nothing. The second start lists all at once, from the manifest."""
    one, two = block("tinypackage==1.0"), block("tinypackage==2.0")
    made = project(tmp_path, wheels, one=f"{one}{TINY}", two=f"{two}{TINY}", plain=PLAIN)
    async with hosted(made, forked=True) as host:
        assert "plain_version" in await host.tools()
        await until_listed(host, {"one_version", "plain_version", "two_version"})
        assert ["1.0", "2.0", "none"] == [await host.text(f"{name}_version") for name in ("one", "two", "plain")]
    async with hosted(made, forked=True) as host:
        assert ["one_version", "plain_version", "two_version"] == await host.tools()
        assert "2.0" == await host.text("two_version")
        assert 2 == len(host.workers())


async def test_an_edited_dependency_is_there_at_the_next_call(tmp_path: Path, wheels: Path, shared: dict[str, str]):
    """The skill gets another environment; one that cannot be had leaves the last good version in use, and says why."""
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}")
    async with hosted(made, env=shared, forked=True) as host:
        await until_listed(host, {"tiny_version"})
        assert "1.0" == await host.text("tiny_version")
        write_skill(made, "tiny.py", f"{block('tinypackage==2.0')}{TINY}")
        await until_text(host, "2.0", "tiny_version")
        write_skill(made, "tiny.py", f"{block('tinypackage==3.0')}{TINY}")
        await until_listed(host, {"prowess_diagnostics", "tiny_version"})
        assert "tinypackage==3.0" in (told := await host.text("prowess_diagnostics"))
        assert "uv says" in told
        assert "the last good version stays in use" in told
        assert "2.0" == await host.text("tiny_version")
        write_skill(made, "tiny.py", f"{block('tinypackage==1.0')}{TINY}")
        await until_text(host, "1.0", "tiny_version")
        assert {"tiny_version"} == set(await host.tools())


async def test_a_block_that_comes_and_goes_moves_a_skill(tmp_path: Path, wheels: Path, shared: dict[str, str]):
    made = project(tmp_path, wheels, plain=PLAIN)
    async with hosted(made, env=shared, forked=True) as host:
        assert "none" == await host.text("plain_version")
        write_skill(made, "plain.py", f"{block('tinypackage==1.0')}{TINY}")
        await until_text(host, "1.0", "plain_version")
        write_skill(made, "plain.py", PLAIN)
        await until_text(host, "none", "plain_version")


async def test_needs_that_cannot_be_met_are_a_failure_of_that_skill(
    tmp_path: Path, wheels: Path, shared: dict[str, str]
):
    """With the words of uv, also where the needs of Prowess itself are in the way. The others are listed at once."""
    bad = {
        "lost": block("tinypackage==9"),
        "fickle": block("fickle"),
        "torn": "# /// script\n# dependencies = [\n# ///\n",
    }
    made = project(tmp_path, wheels, plain=PLAIN, **{name: f"{text}{TINY}" for name, text in bad.items()})
    async with hosted(made, env=shared, forked=True) as host:
        await until_listed(host, {"plain_version", "prowess_diagnostics"})
        for wanted in ("tinypackage==9", "pydantic<2", "not valid TOML"):
            told = await until_told(host, wanted)
        assert f"lost ({made}/skills/lost.py): its environment cannot be made: uv says:" in told
        assert "none" == await host.text("plain_version")


async def test_without_uv_the_remedy_is_told(tmp_path: Path, wheels: Path):
    """Where it is named and missing. A call of a tool from the committed catalog fails with that."""
    made = project(tmp_path, wheels, 'uv = "/nowhere/uv"\n', tiny=f"{block('tinypackage==1.0')}{TINY}")
    commit(made, "tiny")
    async with hosted(made, forked=True) as host:
        assert "tiny_version" in await host.tools()
        failed = await host.call("tiny_version")
        assert failed["isError"]
        assert "/nowhere/uv, the setting environments.uv, is not an executable program" in failed["content"][0]["text"]
        assert "It never began" in failed["content"][0]["text"]


async def test_a_missing_environment_delays_nothing_but_the_calls_that_need_it(tmp_path: Path, wheels: Path):
    """The tools come from the committed catalog; the call waits, hears how far it is, and answers."""
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}", plain=PLAIN)
    commit(made, "tiny")
    held = program(
        tmp_path / "held", f'while [ ! -e {shlex.quote(str(tmp_path))}/go ]; do sleep 0.05; done; exec {UV} "$@"'
    )
    async with hosted(made, env=held, forked=True) as host:
        waiting = host.start_call("tiny_version", progress="p")
        assert {"plain_version", "tiny_version"} == set(await host.tools())
        assert "none" == await host.text("plain_version")
        first = (await host.noted("notifications/progress"))["params"]
        assert "preparing the environment of tiny" == first["message"]
        (tmp_path / "go").touch()
        assert "1.0" == (await result(waiting))["content"][0]["text"]
        told = [note["params"] for note in host.notes if note["method"] == "notifications/progress"]
        assert any("preparing the environment of tiny: Resolved" in note["message"] for note in told)
        steps = [note["progress"] for note in told]
        assert sorted(set(steps)) == steps


async def test_saves_count_while_an_environment_is_made(tmp_path: Path, wheels: Path):
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}", plain=PLAIN)
    held = program(
        tmp_path / "held", f'while [ ! -e {shlex.quote(str(tmp_path))}/go ]; do sleep 0.05; done; exec {UV} "$@"'
    )
    async with hosted(made, env=held, forked=True) as host:
        assert "none" == await host.text("plain_version")
        waiting = host.start_call("tiny_version")  # nobody knows yet that there is such a tool
        write_skill(made, "plain.py", PLAIN.replace("none", "saved"))
        await until_text(host, "saved", "plain_version")
        (tmp_path / "go").touch()
        assert "1.0" == (await result(waiting))["content"][0]["text"]


async def test_a_crash_and_a_timeout_cost_no_other_skill(tmp_path: Path, wheels: Path, shared: dict[str, str]):
    body = """
    @skill_command
    def crash() -> str:
        os.kill(os.getpid(), 9)

    @skill_command(timeout=0.5)
    def hang() -> str:
        time.sleep(600)
    """
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}{textwrap.dedent(body)}", plain=PLAIN)
    async with hosted(made, env=shared, forked=True) as host:
        await until_listed(host, {"plain_version", "tiny_crash", "tiny_hang", "tiny_version"})
        assert "SIGKILL" in await host.text("tiny_crash")
        assert "timed out" in await host.text("tiny_hang")
        assert ["1.0", "none"] == [await host.text("tiny_version"), await host.text("plain_version")]


async def test_workers_that_nobody_calls_end(tmp_path: Path, wheels: Path, shared: dict[str, str]):
    """Those of an environment; the next call starts one."""
    more = "[host]\npool_idle = 0.2\n"
    made = project(tmp_path, wheels, more, tiny=f"{block('tinypackage==1.0')}{TINY}", plain=PLAIN)
    async with hosted(made, env=shared, forked=True) as host:
        await until_listed(host, {"plain_version", "tiny_version"})
        for _ in range(2):
            assert "1.0" == await host.text("tiny_version")
            await host.worker()
        assert "none" == await host.text("plain_version")


async def test_what_the_project_provides_does_not_cross(tmp_path: Path, wheels: Path, shared: dict[str, str]):
    """Settings do, and what the skill provides itself."""
    provider = """
    class Client: ...

    @hookimpl
    def prowess_injectables(provide):
        provide(Client)
    """
    uses = """
    from prowess import hookimpl
    import tinypackage

    class Own:
        text = "own"

    @hookimpl
    def prowess_injectables(provide):
        provide(Own)

    @skill_command(inject_settings=["tiny.name"], inject_root=True)
    def good(tiny_name: str, project_root: object, own: Own) -> str:
        return f"{tiny_name} {own.text} {type(project_root).__name__}"
    """
    asks = "from .provider import Client\n@skill_command\ndef bad(client: Client) -> str:\n    return ''\n"
    made = project(tmp_path, wheels, '[tiny]\nname = "crossed"\n')
    write_skill(made, "provider.py", f"from prowess import hookimpl\n{textwrap.dedent(provider)}")
    write_skill(made, "tiny.py", f"{block('tinypackage==1.0')}{textwrap.dedent(uses)}")
    write_skill(made, "asks.py", f"{block('tinypackage==1.0')}{asks}")
    async with hosted(made, env=shared, forked=True) as host:
        await until_listed(host, {"prowess_diagnostics", "tiny_good"})
        assert "crossed own PosixPath" == await host.text("tiny_good")
        assert "this skill runs in its own process" in await host.text("prowess_diagnostics")


async def test_a_folder_says_what_it_needs_in_files(tmp_path: Path, wheels: Path, shared: dict[str, str]):
    """`requirements.txt` or `pyproject.toml`; a change of them counts."""
    made = project(tmp_path, wheels)
    for name in ("one", "two"):
        write_skill(made, f"{name}/main.py", TINY)
    (made / "skills/one/requirements.txt").write_text("# what it needs\ntinypackage==1.0  # exactly\n")
    (made / "skills/two/pyproject.toml").write_text('[project]\nname = "two"\ndependencies = ["tinypackage==2.0"]\n')
    async with hosted(made, env=shared, forked=True) as host:
        await until_listed(host, {"one_version", "two_version"})
        assert ["1.0", "2.0"] == [await host.text("one_version"), await host.text("two_version")]
        (made / "skills/one/requirements.txt").write_text("tinypackage>=2\n")
        await until_text(host, "2.0", "one_version")


async def test_files_that_requirements_name_count(tmp_path: Path, wheels: Path, shared: dict[str, str]):
    """Also those that these name, wherever they are."""
    made = project(tmp_path, wheels)
    write_skill(made, "one/main.py", TINY)
    (made / "skills/one/requirements.txt").write_text("-r ../../base.txt\n")
    (made / "base.txt").write_text("--constraint=exact.txt  # versions\ntinypackage\n")
    (made / "exact.txt").write_text("tinypackage==1.0\n")
    async with hosted(made, env=shared, forked=True) as host:
        await until_listed(host, {"one_version"})
        assert "1.0" == await host.text("one_version")
        (made / "exact.txt").write_text("tinypackage==2.0\n")
        await until_text(host, "2.0", "one_version")


async def test_a_deleted_environment_is_made_again(tmp_path: Path, wheels: Path):
    """By one of the next calls, although the host has used it and holds its lock."""
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}")
    async with hosted(made, forked=True) as host:
        await until_listed(host, {"tiny_version"})
        assert "1.0" == await host.text("tiny_version")
        (environment,) = (each for each in (made / "cache/environments").iterdir() if each.is_dir())
        shutil.rmtree(environment)
        with fail_after(PATIENCE):
            while not await asyncio.to_thread((environment / "bin/python").exists):
                assert "1.0" == await host.text("tiny_version")


async def test_equal_needs_share_workers_and_an_environment(tmp_path: Path, wheels: Path):
    text = block("tinypackage==1.0")
    made = project(tmp_path, wheels, one=f"{text}{TINY}", two=f"{text}{TINY}")
    async with hosted(made, forked=True) as host:
        await until_listed(host, {"one_version", "two_version"})
        assert ["1.0", "1.0"] == [await host.text("one_version"), await host.text("two_version")]
        await until(lambda: len(host.workers()) == 2)  # and that of the project
    assert 1 == len([each for each in (made / "cache/environments").iterdir() if each.is_dir()])


async def test_two_hosts_make_one_environment(tmp_path: Path, wheels: Path):
    """At the same time, for two projects with one cache."""
    env = {"PROWESS_CACHE_DIR": str(tmp_path / "cache")}
    skill = f"{block('tinypackage==1.0')}{TINY}"
    first, second = (project(tmp_path / name, wheels, tiny=skill) for name in ("a", "b"))
    async with hosted(first, env=env) as one, hosted(second, env=env, forked=True) as two:
        await until_listed(one, {"tiny_version"})
        await until_listed(two, {"tiny_version"})
        assert ["1.0", "1.0"] == [await one.text("tiny_version"), await two.text("tiny_version")]
    assert 1 == len([each for each in (tmp_path / "cache/environments").iterdir() if each.is_dir()])


async def test_a_build_that_is_killed_leaves_nothing_that_counts(tmp_path: Path, wheels: Path):
    """Its draft is cleared away by the next one."""
    script = 'for it; do case $it in */environments/*) mkdir "$it" "$it/bin";; esac; done; sleep 600'
    stuck = program(tmp_path / "stuck", script)
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}")
    folder = made / "cache/environments"
    async with hosted(made, env=stuck, forked=True) as host:
        await until(lambda: list(folder.glob("*.*/bin")))
        host.process.send_signal(signal.SIGKILL)
        await host.ended()
        await host.alone()
    assert [] != list(folder.glob("*.*/bin"))
    async with hosted(made, forked=True) as host:
        await until_listed(host, {"tiny_version"})
        assert "1.0" == await host.text("tiny_version")
    assert [] == list(folder.glob("*.*/bin"))


async def test_a_cache_that_cannot_be_written_serves_what_is_in_it(tmp_path: Path, wheels: Path):
    """What is missing is a failure that names the folder."""
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}")
    async with hosted(made, forked=True) as host:
        await until_listed(host, {"tiny_version"})
    write_skill(made, "more.py", f"{block('tinypackage==2.0')}{TINY}")
    locked = made / "cache/environments"
    locked.chmod(0o555)
    try:
        async with hosted(made, through=AS_ANYBODY) as host:
            await until_listed(host, {"prowess_diagnostics", "tiny_version"})
            assert "1.0" == await host.text("tiny_version")
            assert f"{locked} cannot be written" in await host.text("prowess_diagnostics")
    finally:
        locked.chmod(0o755)


async def test_an_environment_without_prowess_says_how_to_mend_it(tmp_path: Path, wheels: Path):
    made = project(tmp_path, wheels, tiny=f"{block('tinypackage==1.0')}{TINY}")
    async with hosted(made, forked=True) as host:
        await until_listed(host, {"tiny_version"})
    for pth in (made / "cache/environments").glob("*/lib/*/site-packages/_prowess_source.pth"):
        pth.unlink()
    async with hosted(made, forked=True) as host:
        assert "has no Prowess; make the environment again with `prowess sync --rebuild`" in await host.text(
            "tiny_version"
        )


async def test_a_skill_may_have_another_interpreter(tmp_path: Path, wheels: Path):
    """One that stands for another version: of a real one the wheels are not here."""
    other = next((it for it in ("/usr/bin/python3.11", "/usr/bin/python3") if is_other(it)), None)
    if other is None:
        pytest.skip("there is no other interpreter of this version")
    body = "@skill_command\ndef which() -> str:\n    return os.path.realpath(sys.executable)\n"
    text = block(more=f'[tool.prowess]\npython = "{other}"')
    async with hosted(project(tmp_path, wheels, other=f"{text}{body}", own=body), forked=True) as host:
        await until_listed(host, {"other_which", "own_which"})
        assert [REAL(other), REAL(sys.executable)] == [await host.text("other_which"), await host.text("own_which")]


def is_other(python: str) -> bool:
    """Whether there is an interpreter for the same wheels at another place."""
    if not Path(python).exists() or REAL(python) == REAL(sys.executable):
        return False
    asked = [python, "-c", "import sys; print(tuple(sys.version_info[:2]))"]
    return (
        str(tuple(sys.version_info[:2]))
        == subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    )


def python_of(version: str) -> str:
    """An interpreter of another version on this machine; without one the test is skipped."""
    there = [shutil.which(f"python{version}"), *Path("~/.pyenv/versions").expanduser().glob(f"{version}*/bin/python")]
    for each in filter(None, there):
        asked = [each, "-c", "import sys; print('.'.join(map(str, sys.version_info[:2])))"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return str(each)
    pytest.skip(f"there is no Python {version} on this machine")


def wheels_for(python: str, folder: Path) -> Path:
    """What Prowess needs, for another interpreter, from wherever its pip installs; the test is skipped if that has none."""
    needs = [line for line in requires("prowess-core") or () if "extra ==" not in line]
    command = [python, "-m", "pip", "download", "--only-binary", ":all:", "--dest", str(folder), "--quiet", *needs]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        pytest.skip(f"the packages that Prowess needs cannot be had for {python}: {done.stderr.strip()[-200:]}")
    return folder


async def test_a_skill_may_run_on_another_version_of_python(tmp_path: Path, wheels: Path):
    """Beside one on the project's own, on one wire, each with its version of one package."""
    version = next(each for each in ("3.13", "3.12") if each != ".".join(map(str, sys.version_info[:2])))
    other = python_of(version)
    folder = wheels_for(other, tmp_path / "other")
    more = f"find_links = [{json.dumps(str(folder))}, {json.dumps(str(wheels))}]"
    text = settings(wheels).partition("find_links")[0] + more
    body = f"{TINY}@skill_command\ndef python() -> str:\n    return '.'.join(map(str, sys.version_info[:2]))\n"
    one = block("tinypackage==1.0", more=f"[tool.prowess]\npython = {json.dumps(version)}")
    two = block("tinypackage==2.0")
    made = make_project(tmp_path / "p", text, one=f"{one}{body}", two=f"{two}{body}")
    async with hosted(made, env={"PATH": f"{Path(other).parent}{os.pathsep}{os.environ['PATH']}"}, forked=True) as host:
        await until_listed(host, {"one_python", "one_version", "two_python", "two_version"})
        assert [version, "1.0"] == [await host.text("one_python"), await host.text("one_version")]
        assert "2.0" == await host.text("two_version")
        assert version != await host.text("two_python")


def commit(root: Path, skill: str) -> None:
    """A committed catalog with one tool."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    command = {
        "id": f"{skill}.version",
        "wire_name": f"{skill}_version",
        "category": "general",
        "description": "The version.",
        "input": {"schema": schema},
        "output": {"schema": {"type": "string"}, "text": True},
    }
    data = {"$schema": "urn:prowess:catalog.v1", "title": "t", "profiles": ["portable"], "commands": [command]}
    (root / "schemas").mkdir()
    (root / "schemas/catalog.json").write_text(json.dumps(data))


def evil(folder: Path, mark: Path) -> Path:
    """A package that leaves a mark when it is built."""
    folder.mkdir(parents=True)
    (folder / "setup.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).write_text('built')\nfrom setuptools import setup\nsetup(name='evil')\n"
    )
    return folder


LIMITED = "[tool.prowess.sandbox]\nnetwork = false"


@pytest.mark.parametrize(
    ("dependencies", "more", "words"),
    [
        (["evil @ file://{evil}"], LIMITED, "must be the name of a package with versions"),
        (["{evil}"], LIMITED, "must be the name of a package with versions"),
        (["x==${{HOME}}"], LIMITED, "must be the name of a package with versions"),
        (["-e {evil}"], LIMITED, "is an option"),
        (["evil"], f'{LIMITED}\n[tool.uv.sources]\nevil = {{{{ path = "{{evil}}" }}}}', "settings of uv"),
        (["tinypackage"], f'[tool.prowess]\npython = "{{evil}}/python"\n{LIMITED}', "must be a version of Python"),
    ],
    ids=["address", "path", "variable", "option", "settings of uv", "interpreter"],
)
async def test_limits_hold_while_an_environment_is_made(
    tmp_path: Path, wheels: Path, dependencies: list[str], more: str, words: str
) -> None:
    """The program uv runs outside of them: it would build packages of the skill, and run an interpreter of it."""
    mark = tmp_path / "mark"
    folder = evil(tmp_path / "evil", mark)
    (folder / "python").write_text(f"#!/bin/sh\necho ran > {mark}\n")
    (folder / "python").chmod(0o755)
    told = block(*(each.format(evil=folder) for each in dependencies), more=more.format(evil=folder))
    root = project(tmp_path / "p", wheels, hostile=told + PLAIN, free=PLAIN)
    async with hosted(root, forked=True) as host:
        assert "none" == await host.text("free_version")
        assert words in await host.text("prowess_diagnostics")
    for command in ("sync", "lock"):
        line = f"from prowess_host.cli.commands import run; run([{command!r}, '--project', {str(root)!r}])"
        done = await run_process([sys.executable, "-c", line], check=False)
        assert words in done.stderr.decode(), done
    assert not mark.exists()


async def test_package_of_a_limited_skill_runs_nothing_outside_its_limits(tmp_path: Path, wheels: Path) -> None:
    """Sources are not built, and what a package has for the start of Python runs within the limits alone."""
    mark = tmp_path / "mark"
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    starts(shelf, "starter", "1.0", f"import os; open({str(mark)!r}, 'a').close()\n")
    more = f"find_links = [{json.dumps(str(wheels))}, {json.dumps(str(shelf))}]"
    text = settings(wheels).partition("find_links")[0] + more
    body = "@skill_command\ndef version() -> str:\n    import starter\n    return starter.version\n"
    root = make_project(tmp_path / "p", text, hostile=block("starter", more=LIMITED) + body)
    async with hosted(root, forked=True) as host:
        await until_listed(host, {"hostile_version"})
        assert "1.0" == await host.text("hostile_version")
    assert not mark.exists()


async def test_data_of_the_project_crosses_where_its_provider_says_so(
    tmp_path: Path, wheels: Path, shared: dict[str, str]
):
    """By name, as what the parameter is annotated as; a saved provider counts. What is no data is a failure at load."""
    provider = """
    from prowess import hookimpl, skill_command

    class Client: ...

    @hookimpl
    def prowess_injectables(provide):
        provide(dict, lambda: {"most": 5, "names": ["a"]}, name="rules", sendable=True)
        provide(Client, Client, name="client", sendable=True)
    """
    uses = """
    from dataclasses import dataclass
    from typing import Annotated
    from prowess import Inject
    import tinypackage

    @dataclass
    class Rules:
        most: int
        names: list[str]

    @skill_command
    def most(rules: Annotated[Rules, Inject("rules")]) -> str:
        return f"{rules.most} {rules.names} {tinypackage.version}"
    """
    asks = """
    from typing import Annotated
    from prowess import Inject
    @skill_command
    def bad(client: Annotated[object, Inject("client")]) -> str:
        return ""
    """
    made = project(tmp_path, wheels)
    saved = textwrap.dedent(provider)
    write_skill(made, "provider.py", saved)
    write_skill(made, "tiny.py", f"{block('tinypackage==1.0')}{textwrap.dedent(uses)}")
    write_skill(made, "asks.py", f"{block('tinypackage==1.0')}{textwrap.dedent(asks)}")
    async with hosted(made, env=shared, forked=True) as host:
        await until_text(host, "5 ['a'] 1.0", "tiny_most")
        await until_told(host, "client cannot be sent to other environments: Unable to serialize unknown type")
        write_skill(made, "provider.py", saved.replace('"most": 5', '"most": 6'))
        await until_text(host, "6 ['a'] 1.0", "tiny_most")
    async with hosted(made, env=shared, forked=True) as host:
        assert "6 ['a'] 1.0" == await host.text("tiny_most")
