"""The frame of the command line: the table of commands, help, mistakes, exit codes, completion."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import click
import pytest
import shell
from patience import PATIENCE

from prowess_host.cli import commands
from prowess_host.cli.commands import COMMANDS, run

MAIN = "from prowess_host.cli.main import main; main()"
SKILL = """
from prowess import skill_command

@skill_command
def find(query: str) -> list[str]:
    '''Find something.'''
    return [query]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "shop.py").write_text(SKILL, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_command_of_click(name: str) -> None:
    """With help of its own, and one line in the table that fits on a terminal."""
    command = commands.prowess.get_command(click.Context(commands.prowess), name)
    assert isinstance(command, click.Command)
    assert name == command.name
    assert command.help
    assert 80 >= len(COMMANDS[name].help) + len("  completion  ")


def test_groups_stand_together() -> None:
    """Each is one section of the help."""
    groups = [entry.group for entry in COMMANDS.values()]
    assert len(set(groups)) == 1 + sum(one != other for one, other in pairwise(groups))


def test_help_is_grouped_and_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command stands there. Without a command the help is what is needed."""
    assert 0 == run(["--help"])
    told = capsys.readouterr().out
    assert all(f"\n  {name} " in told for name in COMMANDS)
    assert "Examples:" in told
    assert 2 == run([])
    assert told == capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["--version"])
    assert "prowess 0.1.0\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lits"], "There is no command 'lits'; did you mean \"list\"?"),
        (["zzz"], "There is no command 'zzz'"),
        (["list", "--jso"], "--json"),
        (["--project", ".", "list"], "Write options after the command: `prowess list --project …`"),
        (["call"], "Missing argument"),
        (["completion", "tcsh"], "'bash', 'zsh', 'fish'"),
    ],
)
def test_mistakes_are_explained(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of wrong use, and where to read on."""
    assert 2 == run(words)
    err = capsys.readouterr().err
    assert told in err
    assert "--help`." in err


def test_a_command_imports_what_it_needs(project: Path) -> None:
    """No other command, and rich only for a terminal."""
    code = (
        "import sys; from prowess_host.cli.commands import run; run(['list']);"
        "print(*(name for name in sys.modules if name.startswith('prowess_host.cli.') or name == 'rich'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    loaded = set(done.stdout.splitlines()[-1].split())
    modules = set(map(commands.module_of, COMMANDS))
    assert {"prowess_host.cli.list"} == loaded & modules
    assert "rich" not in loaded


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each names the variable by which it asks."""
    assert 0 == run(["completion", shell])
    assert f"{commands.COMPLETE}={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("prowess li", ["list"]),
        ("prowess completion z", ["zsh"]),
        ("prowess call sh", ["shop.find"]),
        ("prowess call zz", []),
        ("prowess call --project /nowhere sh", []),
        ("prowess call --set nonsense sh", []),
    ],
)
def test_completion_of_commands_and_ids(
    words: str, offered: list[str], project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ids come from what is known of the project: no skill is imported for them."""
    assert 0 == run(["list"])
    (project / "skills" / "shop.py").write_text("1 / 0", "utf-8")
    capsys.readouterr()
    monkeypatch.setenv(commands.COMPLETE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert 0 == run([])
    assert offered == [line.removeprefix("plain,") for line in capsys.readouterr().out.split()]


def test_bash_itself_completes(project: Path) -> None:
    """The script and the program understand each other."""
    program = project / "prowess"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{MAIN}" "$@"\n', "utf-8")
    program.chmod(0o755)
    script = (
        'eval "$(./prowess completion bash)"; COMP_WORDS=(./prowess bui); COMP_CWORD=1; '
        '_prowess_completion ./prowess; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=project, timeout=PATIENCE, check=False
    )
    assert "build" == done.stdout.strip(), done.stderr


def test_reader_that_leaves_is_no_error(project: Path) -> None:
    """As in `prowess list --json | head -1`."""
    line = f"'{sys.executable}' -c '{MAIN}' list --json | :"
    script = f"{line}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ("141\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["call", "shop.find", "query=x"]], ids="-".join)
def test_full_disk_is_reported_without_a_traceback(words: list[str], project: Path) -> None:
    assert 0 == run(["list"])  # then the next one is printed from the manifest
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        argv = [sys.executable, "-c", MAIN, *words]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert 2 == done.returncode
    assert "prowess: the output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["package", "--output", "file/below"],
        ["test-from", "last", "--to", "file/below/test_x.py"],
        ["build", "--output", "file/below/catalog.json"],
        ["new", "--project", "file/below"],
        ["approve", "--new-key", "file/below/key"],
    ],
    ids=lambda words: words[0],
)
def test_place_that_cannot_be_written_is_named(
    words: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == run(["call", "shop.find", "query=x"])
    (project / "file").touch()
    assert 2 == run(words)
    assert "file/below" in capsys.readouterr().err


def test_another_error_of_the_system_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: list[str]) -> int:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(commands, "_run", fail)
    with pytest.raises(PermissionError):
        run(["list"])


@pytest.mark.parametrize(
    "words", [["check"], ["build"], ["status"], ["package"], ["dev", "--plain"], ["connect", "zed"]], ids="-".join
)
def test_folder_that_is_no_project_is_named(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert 2 == run(words)
    told = capsys.readouterr().err
    assert f"prowess: {tmp_path} is not a project" in told
    assert "prowess new --project" in told


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system has no such names")
@pytest.mark.parametrize(
    "words", [["list"], ["connect", "zed"], ["new", "--project"], ["host"]], ids=lambda words: words[0]
)
def test_a_project_in_a_folder_whose_name_is_no_text_is_refused(words: list[str], tmp_path: Path) -> None:
    """No client and no worker could get its path, and the message was about JSON."""
    folder = tmp_path / os.fsdecode(b"odd\xff")
    folder.mkdir()
    (folder / "skills").mkdir()
    project = [str(folder)] if words[0] == "new" else ["--project", str(folder)]
    done = shell.prowess(*words, *project)
    assert 2 == done.returncode
    assert "the path of a project must be Unicode text: rename " in done.stderr
    assert [folder / "skills"] == list(folder.iterdir())


def test_a_name_that_python_reads_as_ascii_is_told_with_the_way_out(tmp_path: Path) -> None:
    """The locale of a client may leave Python no UTF-8. What needs no such name in a file works."""
    project = tmp_path / "prüf"
    (project / "skills").mkdir(parents=True)
    (project / "skills/t.py").write_text("from prowess import skill_command\n@skill_command\ndef go(): ...\n")
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": str(tmp_path)}
    for words, code in (
        (["list"], 0),
        (["build"], 0),
        (["connect", "zed", "--no-try"], 2),
        (["package", "--name", "x"], 2),
    ):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *words],
            env={**os.environ, **narrow},
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert code == done.returncode, done.stderr
        assert "Traceback" not in done.stderr
        assert ("set PYTHONUTF8=1" in done.stderr) is (code == 2)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["call", "shop.find", "query=\udcff"], r"'query=\udcff' is not Unicode text"),
        (["call", "shop.find", "--json", '{"query": "\\ud800"}'], "the arguments cannot be sent: "),
        (["call", "shop.find", "--json", '{"query": NaN}'], "the arguments cannot be sent: "),
        (["replay", "\udcff"], r"'\udcff' is not Unicode text"),
    ],
)
def test_a_word_that_is_no_text_is_wrong_use(
    project: Path, capsys: pytest.CaptureFixture[str], argv: list[str], reason: str
) -> None:
    """A shell may pass any bytes, and JSON may escape half of a character."""
    assert 0 == run(["call", "shop.find", "query=x"])  # the record has a call
    capsys.readouterr()
    assert 2 == run(argv)
    assert reason in capsys.readouterr().err


def test_another_error_about_a_text_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: list[str]) -> int:
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(commands, "_run", fail)
    with pytest.raises(UnicodeEncodeError):
        run(["list"])
