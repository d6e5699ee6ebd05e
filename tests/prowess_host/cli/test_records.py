"""`prowess logs`, `replay` and `test-from`, as a person uses them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
import shell
from on_a_terminal import on_a_terminal
from patience import PATIENCE
from piped import hosted, make_project

from prowess.errors import ProwessError
from prowess_host.cli.logs import since

SKILL = """
    from pathlib import Path
    from pydantic import SecretStr

    @skill_command
    def add(one: int, two: int = 2) -> int:
        print("adding")
        return one + two

    @skill_command
    def table(rows: int) -> list[dict[str, int]]:
        return [{"row": row} for row in range(rows)]

    @skill_command
    def read(path: str, ctx: Context) -> str:
        ctx.progress(1, 2, "reading")
        return Path(path).read_text()

    @skill_command
    def boom(text: str) -> None:
        raise ValueError(f"no {text}")

    @skill_command
    def refuse() -> None:
        raise SkillError("not today")

    @skill_command
    def login(password: SecretStr) -> str:
        return "in with " + password.get_secret_value()

    @skill_command(destructive=True)
    def wipe(path: str) -> str:
        Path(path).unlink()
        return "gone"
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which some calls were made, by a client and in a terminal."""
    root = make_project(tmp_path_factory.mktemp("used") / "project", t=SKILL)
    (root / "note.txt").write_text("first\nsecond\n")
    note = str(root / "note.txt")
    anyio.run(make_calls, root, [("t_add", {"one": 1}), ("t_table", {"rows": 2}), ("t_read", {"path": note})])
    prowess(root, "call", "t.boom", "text=pudding")
    secret = {"password": "pass-word-0815"}
    anyio.run(make_calls, root, [("t_refuse", {}), ("t_login", secret), ("t_add", {"one": "x"})])
    return root


async def make_calls(root: Path, calls: list[tuple[str, dict[str, Any]]]) -> None:
    async with hosted(root, forked=True) as host:
        for name, arguments in calls:
            await host.call(name, **arguments)


PROWESS = [sys.executable, "-c", "from prowess_host.cli.main import main; main()"]


def prowess(root: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return shell.prowess(*words, cwd=root, **options)


def logged(root: Path, *words: str) -> list[dict[str, Any]]:
    done = prowess(root, "logs", "--json", *words)
    assert 0 == done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def id_of(root: Path, command: str) -> str:
    return logged(root, "--command", command)[0]["id"]


def test_logs_show_all_calls(used: Path):
    """In a table, the newest last."""
    done = prowess(used, "logs")
    header, *lines = done.stdout.splitlines()
    assert ["TIME", "ID", "COMMAND", "CLIENT", "OUTCOME", "TOOK", "ARGUMENTS"] == header.split()
    assert ["t.add", "t.table", "t.read", "t.boom", "t.refuse", "t.login", "t.add"] == [
        line.split()[3] for line in lines[:7]
    ]
    assert "crashed" in lines[3]
    assert "prowess call" in lines[3]
    assert "text=pudding" in lines[3]
    assert "password=***" in lines[5]
    assert "pass-word" not in done.stdout


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        (["--failed", "--command", "t.[bra]*"], "t.boom t.refuse t.add"),
        (["--command", "t.table"], "t.table"),
        (["--client", "nobody"], ""),
        (["--since", "1h", "-n", "1", "--command", "t.boom"], "t.boom"),
    ],
)
def test_logs_are_filtered(used: Path, words: list[str], commands: str):
    assert commands.split() == [call["command"] for call in logged(used, *words)]


def test_a_call_is_told_with_its_whole_story(used: Path):
    done = prowess(used, "logs", id_of(used, "t.read"))
    assert "progress  1/2 reading" in done.stdout
    assert "note.txt" in done.stdout
    assert "  first\n  second\n" in done.stdout
    assert "in with ***" in prowess(used, "logs", id_of(used, "t.login")).stdout


def test_an_unknown_call_is_a_wrong_use(used: Path):
    done = prowess(used, "logs", "zzzzzz")
    assert (2, "") == (done.returncode, done.stdout)
    assert "no call 'zzzzzz'" in done.stderr


def test_an_empty_record_says_where_it_would_be(tmp_path: Path):
    done = prowess(make_project(tmp_path, t=SKILL), "logs")
    assert 0 == done.returncode
    assert "No calls yet" in done.stdout
    assert "cache/records/" in done.stdout


def test_a_call_of_an_empty_record_is_explained(tmp_path: Path):
    done = prowess(make_project(tmp_path, t=SKILL), "replay", "last")
    assert 2 == done.returncode
    assert "the record has no calls yet" in done.stderr


@pytest.mark.parametrize(("columns", "has_client"), [(80, False), (140, True)])
def test_narrow_terminal_has_room_for_arguments(columns: int, has_client: bool, used: Path):
    with on_a_terminal("logs", "--command", "t.add", cwd=used, columns=columns) as terminal:
        assert 0 == terminal.finish()
    header, *rows = terminal.seen.rstrip().splitlines()
    assert has_client == ("CLIENT" in header)
    assert all("one=" in row and len(row) <= columns for row in rows)


def test_long_ids_are_shown_by_their_beginning(used: Path):
    assert 0 == prowess(used, "replay", id_of(used, "t.add")).returncode
    long = max(logged(used), key=lambda call: len(call["id"]))["id"]
    shown = prowess(used, "logs").stdout
    assert (32, True, False) == (len(long), long[:9] in shown, long in shown)
    assert long in prowess(used, "logs", long[:9]).stdout
    assert f"test_t_add_{long[:9]}.py written" in prowess(used, "test-from", long).stdout


def test_nothing_that_fits_says_so(used: Path):
    assert "No recorded call matches.\n" == prowess(used, "logs", "--client", "nobody").stdout


def test_logs_follow_what_comes(used: Path):
    """Calls of other processes, as they happen."""
    command = [*PROWESS, "logs", "-f", "-n", "1", "--command", "t.table"]
    with subprocess.Popen(
        command, cwd=used, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        prowess(used, "call", "t.table", "rows=3")
        lines.append(process.stdout.readline())
        while "running" in lines[-1]:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(PATIENCE)
    assert "rows=3" in lines[-1]
    assert "ok" in lines[-1]


def test_a_time_is_so_long_ago_or_a_date():
    assert (940.0, 1000 - 2 * 3600, 1000 - 1.5 * 86400) == (since("1m", 1000), since("2 h", 1000), since("1.5d", 1000))
    assert since("2026-11-19T08:30", 0) == time.mktime((2026, 11, 19, 8, 30, 0, 0, 0, -1))
    with pytest.raises(ProwessError, match="not a time"):
        since("yesterday", 0)


# Again


def test_a_call_is_run_again_and_compared(used: Path):
    done = prowess(used, "replay", id_of(used, "t.add"))
    assert (0, True) == (done.returncode, "The result is the same." in done.stdout), done.stdout + done.stderr
    assert "prowess replay" == logged(used, "-n", "1")[0]["client"]


def test_a_difference_is_shown(used: Path):
    name = id_of(used, "t.read")
    done = prowess(used, "replay", name, f"path={used / 'prowess.toml'}")
    assert "-first\n-second\n+cache_dir" in done.stdout
    assert "rows is given twice" in prowess(used, "replay", id_of(used, "t.table"), "rows=3", "rows=4").stderr
    told = json.loads(prowess(used, "replay", id_of(used, "t.table"), "rows=3", "--json").stdout)
    assert {"rows": 3} == told["after"]["arguments"]
    assert '+    "row": 2' in told["difference"]


def test_a_failure_that_comes_again_is_the_same(used: Path):
    """But for the id of the call, which its text names."""
    done = prowess(used, "replay", id_of(used, "t.boom"))
    assert (1, True) == (done.returncode, "The result is the same." in done.stdout)


def test_a_secret_must_be_passed_again(used: Path):
    name = id_of(used, "t.login")
    done = prowess(used, "replay", name)
    assert 2 == done.returncode
    assert f"`prowess replay {name} password=...`" in done.stderr
    assert 0 == prowess(used, "replay", name, "password=pass-word-0815").returncode


def test_an_argument_of_another_form_is_refused(used: Path):
    done = prowess(used, "replay", id_of(used, "t.add"), "2")
    assert (2, True) == (done.returncode, "the argument '2' must have the form KEY=VALUE" in done.stderr)


def test_a_destructive_command_runs_again_only_where_that_is_wanted(used: Path):
    file = used / "victim"
    file.touch()
    prowess(used, "call", "t.wipe", f"path={file}")
    file.touch()
    name = id_of(used, "t.wipe")
    done = prowess(used, "replay", name)
    assert (2, True) == (done.returncode, file.exists())
    assert "--yes" in done.stderr
    assert 0 == prowess(used, "replay", name, "--yes").returncode
    assert not file.exists()


def test_a_command_that_is_gone_cannot_run_again(used: Path):
    (used / "skills" / "temp.py").write_text(
        "from prowess import skill_command\n@skill_command\ndef a() -> int: return 1\n"
    )
    prowess(used, "call", "temp.a")
    name = id_of(used, "temp.a")
    (used / "skills" / "temp.py").unlink()
    done = prowess(used, "replay", name)
    assert 2 == done.returncode
    assert "temp.a" in done.stderr


def test_a_command_that_no_longer_loads_is_told_with_its_reason(used: Path):
    """Before a call is repeated, and before a test of it is written."""
    skill = used / "skills" / "broken.py"
    skill.write_text("from prowess import skill_command\n@skill_command\ndef a() -> int: return 1\n")
    prowess(used, "call", "broken.a")
    name = id_of(used, "broken.a")
    skill.write_text("from prowess import skill_command\n1 / 0\n")
    for command in ("replay", "test-from"):
        done = prowess(used, command, name)
        assert 1 == done.returncode
        assert "broken.a could not be loaded: broken (skills/broken.py:2): ZeroDivisionError" in done.stderr
    skill.unlink()


# Tests


def test_tests_are_written_that_pass(used: Path):
    """And that fail when the commands give something else."""
    files: list[Path] = []
    ids = {call["command"]: call["id"] for call in reversed(logged(used))}
    for command in ("t.add", "t.table", "t.read", "t.boom", "t.refuse"):
        done = prowess(used, "test-from", ids[command])
        assert 0 == done.returncode, done.stderr
        files.append(Path(re.split(r" written", done.stdout)[0]))
        assert files[-1].is_relative_to(used / "tests")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)]
    options: dict[str, Any] = {"cwd": used, "capture_output": True, "text": True, "timeout": PATIENCE, "env": environ}
    passed = subprocess.run(run, check=False, **options)
    assert 0 == passed.returncode, passed.stdout
    skill = used / "skills" / "t.py"
    source = skill.read_text()
    try:
        skill.write_text(
            source.replace("one + two", "7")
            .replace("range(rows)", "[]")
            .replace(".read_text()", ".name")
            .replace('f"no ', 'f"yes ')
            .replace("not today", "never")
        )
        failed = subprocess.run(run, check=False, **options)
    finally:
        skill.write_text(source)
    assert 1 == failed.returncode, failed.stdout
    assert failed.stdout.strip().splitlines()[-1].startswith("5 failed in"), failed.stdout


def test_a_test_checks_the_value_and_not_its_box(used: Path):
    """Whatever the author called the field."""
    skill = used / "skills" / "boxed.py"
    skill.write_text(
        "from prowess import skill_command\n@skill_command(output_field='sum')\ndef a() -> int: return 7\n"
    )
    prowess(used, "call", "boxed.a")
    file = used / "boxed.py"
    done = prowess(used, "test-from", id_of(used, "boxed.a"), "--to", str(file))
    assert 0 == done.returncode, done.stderr
    assert "assert 7 == outcome.value" in file.read_text()
    skill.unlink()


def test_a_file_is_never_overwritten(used: Path):
    file = used / "mine.py"
    file.write_text("precious")
    done = prowess(used, "test-from", id_of(used, "t.add"), "--to", str(file))
    assert (2, "precious") == (done.returncode, file.read_text())
    assert "left as it is" in done.stderr


def test_a_test_does_not_hold_secrets_by_itself(used: Path):
    done = prowess(used, "test-from", id_of(used, "t.login"))
    assert 2 == done.returncode
    assert "password=..." in done.stderr
