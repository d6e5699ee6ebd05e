"""A real host, started as each client starts it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from prowess_host.clients.launches import Launch, host_launch
from prowess_host.clients.machine import Machine
from prowess_host.clients.session import SessionResult, run_session
from prowess_host.clients.table import CLIENTS
from prowess_host.clients.trial import Trial, environment_of, try_connection

SKILL = '''\
from prowess import skill_command


@skill_command(read_only=True)
def add(first: int, second: int = 1) -> int:
    """Add two numbers."""
    return first + second
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "home" / "project"
    (root / "skills").mkdir(parents=True)
    (root / "skills/sums.py").write_text(SKILL, encoding="utf-8")
    return root


def machine(project: Path, **environ: str) -> Machine:
    home = project.parent
    usual = {"HOME": str(home), "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(home / "cache")}
    return Machine("linux", home, {**usual, **environ})


async def trial_of(client: str, project: Path, launch: Launch | None = None, **more: Any) -> Trial:
    given = more.pop("environ", {})
    needed = more.pop("needed", ())
    launch = launch or host_launch(project, flags=[f"cache_dir={project.parent / 'cache'}"])
    here = machine(project, **given)
    return await try_connection(CLIENTS[client], "prowess", launch, project, here, needed=needed, patience=PATIENCE)


@pytest.mark.parametrize("client", CLIENTS)
async def test_every_client_gets_the_tools(client: str, project: Path) -> None:
    """With its own environment and working directory; an ordinary project has no problem in any client."""
    trial = await trial_of(client, project)

    assert trial.works, trial
    assert ["sums_add"] == [tool["name"] for tool in trial.session.tools]
    assert trial.session.initialized is not None
    assert trial.session.listed is not None
    assert trial.session.initialized <= trial.session.listed
    assert 0 < trial.tokens < 200
    assert set() == {each.rule for each in trial.problems} - {"slow"}


async def test_module_in_the_working_directory_shadows_nothing(project: Path) -> None:
    """A client starts the host in the project, where a file may be called like a module of the standard library."""
    (project / "json.py").write_text("raise SystemExit('the wrong json')")

    trial = await trial_of("claude-code", project)

    assert trial.works, trial


async def test_interpreter_that_is_gone_is_said(project: Path) -> None:
    trial = await trial_of("zed", project, host_launch(project, python="/gone/python"))

    assert not trial.works
    [problem] = trial.problems
    assert ("error", "start") == (problem.level, problem.rule)
    assert "the host cannot be started: /gone/python: No such file or directory" == problem.message
    assert "prowess doctor" in problem.remedy


async def test_host_that_ends_is_said_with_its_last_words(project: Path) -> None:
    (project / "prowess.toml").write_text("timeout = 'soon'")

    trial = await trial_of("cursor", project)

    [problem] = trial.problems
    assert "the host ended before it answered initialize (exit code 2)" in problem.message
    assert "timeout must be" in problem.message


async def test_output_that_is_no_message_is_shown(tmp_path: Path) -> None:
    session = await run_session(Launch(sys.executable, ("-c", "print('hello')")), {}, tmp_path, patience=PATIENCE)

    assert "wrote something to its output that is not an MCP message: 'hello'" == session.failure


async def test_server_that_answers_with_an_error_is_quoted(tmp_path: Path) -> None:
    answer = '{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"not today"}}'

    session = await run_session(Launch("/bin/echo", (answer,)), {}, tmp_path, patience=PATIENCE)

    assert "answered initialize with an error: not today" == session.failure


async def test_server_that_says_nothing_is_given_up_and_killed(tmp_path: Path) -> None:
    launch = Launch(sys.executable, ("-c", "import time; time.sleep(3600)"))

    session = await run_session(launch, {}, tmp_path, patience=0.5)

    assert "no list of tools in 0.5 seconds" == session.failure


async def test_all_pages_of_a_list_are_read(tmp_path: Path) -> None:
    script = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        page = {"tools": [{"name": "b"}]} if "cursor" in asked["params"] else {"tools": [{"name": "a"}], "nextCursor": "x"}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message"}))
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": page}), flush=True)
"""

    session = await run_session(Launch(sys.executable, ("-c", script)), {}, tmp_path, patience=PATIENCE)

    assert ["a", "b"] == [tool["name"] for tool in session.tools]


async def test_skill_that_cannot_be_loaded_is_said(project: Path) -> None:
    (project / "skills/broken.py").write_text("from prowess import skill_command\nimport missing_module\n")

    trial = await trial_of("vscode", project)

    assert trial.works
    assert any("missing_module" in each.message for each in trial.problems)


async def test_project_without_commands_is_a_warning(project: Path) -> None:
    (project / "skills/sums.py").unlink()

    trial = await trial_of("gemini", project)

    assert "no-tools" in {each.rule for each in trial.problems}


async def test_rules_of_the_client_are_applied_to_what_it_was_listed(project: Path) -> None:
    """Cursor loses tools whose name is too long with the server's, and those above forty."""
    long = "def " + "x" * 56 + "() -> None: ..."
    many = "\n".join(f"@skill_command\ndef f{number}() -> None: ..." for number in range(40))
    (project / "skills/many.py").write_text(f"from prowess import skill_command\n@skill_command\n{long}\n{many}\n")

    trial = await trial_of("cursor", project)

    found = {each.rule: each for each in trial.problems}
    assert {"name-length", "tool-count"} <= set(found)
    assert "error" == found["name-length"].level
    assert "--name" in found["name-length"].remedy
    assert "hide" in found["tool-count"].remedy


async def test_variable_that_the_client_drops_is_named_with_the_way_out(project: Path) -> None:
    """Codex passes on what is listed, Gemini hides what looks like a secret, the desktop never saw the shell."""
    environ, needed = {"PROWESS_API__KEY": "secret"}, ["PROWESS_API__KEY", "OTHER"]

    async def said(client: str) -> dict[str, str]:
        trial = await trial_of(client, project, environ=environ, needed=needed)
        assert "secret" not in str(trial.problems)
        return {each.message: each.remedy for each in trial.problems if each.rule == "variable"}

    unset = {"the variable OTHER, which the project uses, is not set": "put OTHER into .env in the project"}
    assert unset == await said("claude-code")
    remedy = "connect again with --env PROWESS_API__KEY, or put PROWESS_API__KEY into .env in the project"
    assert remedy == (await said("codex"))["Codex does not pass on PROWESS_API__KEY"]
    assert remedy == (await said("gemini"))["Gemini CLI does not pass on PROWESS_API__KEY"]
    message = "Claude Desktop is started from the desktop and does not see PROWESS_API__KEY of your shell"
    assert "put PROWESS_API__KEY into .env in the project" == (await said("claude-desktop"))[message]


async def test_command_without_a_path_is_a_warning(project: Path) -> None:
    trial = await trial_of("claude-code", project, Launch("prowess-nowhere", ("host",)))

    assert ["path", "start"] == [each.rule for each in trial.problems]


def test_environment_of_uvx_is_a_warning(project: Path) -> None:
    from prowess_host.clients.trial import _of_command

    [problem] = _of_command(Launch("/home/me/.cache/uv/archive-v0/Ab3/bin/python"))

    assert "uv tool install prowess" in problem.remedy
    assert [] == _of_command(Launch("C:\\py\\python.exe"))


def test_slow_start_and_large_definitions_are_held_against_the_limits() -> None:
    from prowess_host.clients.trial import _of_session, _of_size

    tools = ({"name": "a"},)
    [slow] = _of_session(CLIENTS["claude-code"], SessionResult(tools, 31.0, 31.0))
    [late] = _of_session(CLIENTS["codex"], SessionResult(tools, 2.0, 2.0))
    [large] = _of_size(CLIENTS["claude-code"], 30_000)

    assert ("error", "warning") == (slow.level, late.level)
    assert "Claude Code waits 30 s" in slow.message
    assert "after 1 s Codex begins a turn without them" in late.message
    assert "30,000 tokens" in large.message
    assert [] == _of_size(CLIENTS["zed"], 10**9)


ENVIRON = {"HOME": "/h", "PATH": "/mine", "EDITOR": "vi", "MY_TOKEN": "t", "PROWESS_A": "1", "LC_TIME": "C"}


@pytest.mark.parametrize(
    "client, expected",
    [
        ("claude-code", set(ENVIRON)),
        ("opencode", set(ENVIRON)),
        ("codex", {"HOME", "PATH"}),
        ("cline", {"HOME", "PATH"}),
        ("gemini", set(ENVIRON) - {"MY_TOKEN"}),
        ("claude-desktop", {"HOME", "PATH"}),
        ("cursor", {"HOME", "PATH", "LC_TIME"}),
    ],
)
def test_clients_pass_on_different_parts_of_the_environment(client: str, expected: set[str]) -> None:
    linux, windows = Machine("linux", Path("/h"), ENVIRON), Machine("win32", Path("/h"), ENVIRON)
    row = CLIENTS[client]

    environ = environment_of(row, Launch("x"), linux)

    assert expected == set(environ)
    assert (environ["PATH"] == "/mine") == (not row.environment.desktop)
    assert "/mine" == environment_of(row, Launch("x"), windows)["PATH"]
    assert ("MY_TOKEN" not in expected) == row.environment.drops("MY_TOKEN")


def test_variables_that_an_entry_names_reach_the_host() -> None:
    here = Machine("linux", Path("/h"), ENVIRON)

    def given(client: str, name: str) -> str | None:
        row = CLIENTS[client]
        return environment_of(row, Launch("x").needing([name], row.reference), here).get(name)

    assert ["t"] * 5 == [given(name, "MY_TOKEN") for name in ("claude-code", "gemini", "codex", "goose", "opencode")]
    assert "" == given("cursor", "MY_TOKEN")
    assert "t" == given("vscode", "MY_TOKEN")
    assert None is given("goose", "UNSET")
    literal = Launch("x", env={"A": "${MY_TOKEN}"})
    assert "${MY_TOKEN}" == environment_of(CLIENTS["zed"], literal, here)["A"]


async def test_trial_as_data_holds_no_values_of_variables(project: Path) -> None:
    trial = await trial_of("claude-code", project, environ={"PROWESS_API__KEY": "secret"})

    told = trial.to_json()
    assert {
        "works",
        "failure",
        "server",
        "seconds_to_initialize",
        "seconds_to_tools",
        "tools",
        "tokens",
        "problems",
    } == set(told)
    assert (True, 1) == (told["works"], told["tools"])
    assert "secret" not in str(told)
