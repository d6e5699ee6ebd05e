"""`prowess call` for a person: on a terminal, with arguments of every type, with mistakes."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest
from on_a_terminal import Terminal, on_a_terminal
from terminal import plain

from prowess_host.cli.commands import run

SKILL = '''
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from prowess import Context, Image, skill_command

@dataclass
class Order:
    size: Literal["small", "large"]
    count: int
    note: str = ""

@skill_command
def order(ctx: Context) -> str:
    """Order something."""
    answer = ctx.ask("order", "What would you like?", Order)
    if not answer.accepted:
        return f"nothing: {answer.action}"
    return f"{answer.value.count} {answer.value.size} sure: {ctx.ask('sure', 'Really?', bool).value}"

@skill_command
def slow(ctx: Context, file: str) -> str:
    """Wait for a file."""
    ctx.progress(3, 4, "almost")
    ctx.info("I am here")
    while not Path(file).exists():
        time.sleep(0.02)
    return "done"

@skill_command
def loud(ctx: Context, file: str) -> str:
    """Print while it waits for a file."""
    ctx.progress(3, 4, "almost")
    while not Path(file + ".drawn").exists():
        time.sleep(0.02)
    print("printed")
    while not Path(file).exists():
        time.sleep(0.02)
    return "done"

@skill_command
def picture() -> Image:
    return Image(b"\\x89PNG\\r\\n\\x1a\\n")

@skill_command
def people() -> list[dict[str, str | int]]:
    """List people."""
    return [{"name": "Ada", "age": 36}, {"name": "Grace", "job": "admiral"}]

@skill_command
def many(ids: list[int], where: dict[str, str] | None = None, *, flag: bool = False, name: str = "x") -> dict[str, object]:
    """Take many types.

    Args:
        ids: The numbers that matter.
    """
    return {"ids": ids, "where": where, "flag": flag, "name": name}

@skill_command
def here() -> str:
    return str(Path.cwd())

@skill_command(retry_on=OSError, max_attempts=1)
def fails(how: Literal["crashes", "fails again", "is wrong"]) -> int:
    if how == "crashes":
        raise KeyError("gone")
    if how == "fails again":
        raise OSError("full")
    return how
'''


HELD = """
import asyncio
from prowess import hookimpl, skill_command

class Thing: ...

def thing():
    yield Thing()
    open("closed", "w").close()

@hookimpl
def prowess_injectables(provide):
    provide(Thing, thing, lifetime="call")

@skill_command
async def held(thing: Thing) -> None:
    print("it runs", flush=True)
    await asyncio.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prowess.toml").touch()
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "t.py").write_text(SKILL, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_person_is_asked_what_the_command_asks(project: Path) -> None:
    """A form, field by field; an answer that does not fit is asked for again; an empty line takes the default."""
    with on_a_terminal("call", "t.order", cwd=project) as terminal:
        terminal.wait_for("? What would you like?")
        terminal.wait_for("size (small, large): ")
        terminal.type("middle\n")
        terminal.wait_for("one of: small, large\n")
        terminal.type("large\n")
        terminal.wait_for("count (integer): ")
        terminal.type("many\n")
        terminal.wait_for("a whole number\n")
        terminal.type("2\n")
        terminal.wait_for('note (string, "" if empty): ')
        terminal.type("\n")
        terminal.wait_for("? Really?")
        terminal.type("y\n")
        assert 0 == terminal.finish()
    assert terminal.seen.rstrip().endswith("2 large sure: True")


def assert_nothing_is_drawn(terminal: Terminal) -> None:
    """The bar is gone, and the cursor is back."""
    assert "━" not in plain(terminal.raw)
    assert terminal.raw.count("\x1b[?25l") <= terminal.raw.count("\x1b[?25h")


def test_end_of_input_is_no_answer(project: Path) -> None:
    """Ctrl-D leaves the question; the command goes on as for a person who closes a form. Ctrl-C ends all."""
    with on_a_terminal("call", "t.order", cwd=project) as terminal:
        terminal.wait_for("size (")
        terminal.type("\x04")
        assert 0 == terminal.finish()
        assert terminal.seen.rstrip().endswith("nothing: cancel")
    with on_a_terminal("call", "t.order", cwd=project) as terminal:
        terminal.wait_for("size (")
        terminal.type("\x03")
        assert 130 == terminal.finish()
        assert "Traceback" not in terminal.seen
        assert terminal.seen.endswith("\n")
        assert_nothing_is_drawn(terminal)


def test_a_pipe_cannot_be_asked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the person is told what to do."""
    assert 1 == run(["call", "t.order"])
    assert "It asks a question: run it in a terminal" in capsys.readouterr().err


def test_progress_and_logs_are_seen_on_a_terminal(project: Path) -> None:
    """A bar with the message of the command; logs where they are asked for; nothing of it stays."""
    file = project / "file"
    with on_a_terminal("call", "t.slow", f"file={file}", "-v", cwd=project) as terminal:
        terminal.wait_for("info: I am here")
        terminal.wait_for("t.slow 3/4 almost")
        terminal.wait_for("75%")
        file.touch()
        assert 0 == terminal.finish()
    assert terminal.seen.rstrip().endswith("done")


def test_prints_of_a_command_stand_above_its_progress(project: Path) -> None:
    """On lines of their own."""
    file = project / "file"
    with on_a_terminal("call", "t.loud", f"file={file}", cwd=project) as terminal:
        terminal.wait_for("75%")
        Path(f"{file}.drawn").touch()
        terminal.wait_for("printed")
        file.touch()
        assert 0 == terminal.finish()
    assert ["[t.loud] printed", "done"] == plain(terminal.raw).split("\n")[:2]
    assert_nothing_is_drawn(terminal)


def test_call_that_is_interrupted_leaves_nothing_on_the_terminal(project: Path) -> None:
    with on_a_terminal("call", "t.slow", f"file={project / 'file'}", cwd=project) as terminal:
        terminal.wait_for("75%")
        terminal.type("\x03")
        assert 130 == terminal.finish()
    assert_nothing_is_drawn(terminal)


@pytest.mark.parametrize("words", ["call t.held", "call t.held -", "call t.held --in-process"])
def test_sigterm_ends_a_call_in_good_order(tmp_path: Path, words: str) -> None:
    """As Ctrl-C does: the call cleans up. So does a command that waits for its input."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/t.py").write_text(HELD)
    reads = words.endswith("-")
    with on_a_terminal(*words.split(), cwd=tmp_path) as terminal:
        terminal.wait_for("waiting for the arguments" if reads else "it runs")
        terminal.process.send_signal(signal.SIGTERM)
        assert 143 == terminal.finish(), terminal.seen
    assert reads != (tmp_path / "closed").exists()


def test_logs_are_silent_unless_asked_for(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also without a terminal."""
    (project / "file").touch()
    assert 0 == run(["call", "t.slow", "file=file"])
    assert "I am here" not in capfd.readouterr().err
    assert 0 == run(["call", "t.slow", "file=file", "-v"])
    assert "info: I am here" in capfd.readouterr().err


def test_a_list_of_objects_is_a_table_on_a_terminal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And JSON in a pipe, without the box that clients are shown."""
    with on_a_terminal("call", "t.people", cwd=project) as terminal:
        assert 0 == terminal.finish()
    assert "NAME   AGE  JOB\nAda    36\nGrace       admiral\n2 rows\n" in terminal.seen
    assert 0 == run(["call", "t.people"])
    assert [{"name": "Ada", "age": 36}, {"name": "Grace", "job": "admiral"}] == json.loads(capsys.readouterr().out)


def test_pictures_are_saved_and_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder of one's choice, or a new one; a file that is there stays."""
    assert [0, 0] == [run(["call", "t.picture", "--save", "out"]) for _ in range(2)]
    assert 0 == run(["call", "t.picture"])
    one, two, elsewhere = capsys.readouterr().out.splitlines()
    assert f"{Path('out/t.picture.png').absolute()} (image/png, 8 bytes)" == one
    assert "t.picture-2.png" in two
    assert b"\x89PNG\r\n\x1a\n" == Path(elsewhere.partition(" (")[0]).read_bytes()
    (project / "file").touch()
    assert 2 == run(["call", "t.picture", "--save", "file/out"])
    assert "nothing can be saved there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["ids=[1, 2]", 'where={"a": "b"}', "flag=true", "name=5"],
        ["ids=1", "ids=2", "--where", '{"a": "b"}', "--flag", "--name", "5"],
        ["--ids=[1,2]", '--where={"a": "b"}', "--flag", "--name=5"],
        ['{"ids": [1, 2], "where": {"a": "b"}, "flag": true}', "name=5"],
        ["-", "name=5"],
    ],
)
def test_arguments_may_be_written_as_one_likes(
    words: list[str], project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read as the schema wants it."""
    monkeypatch.setattr("sys.stdin", io.StringIO('{"ids": [1, 2], "where": {"a": "b"}, "flag": true}'))
    assert 0 == run(["call", "t.many", *words])
    assert {"ids": [1, 2], "where": {"a": "b"}, "flag": True, "name": "5"} == json.loads(capsys.readouterr().out)


def test_json_before_an_argument_is_only_a_flag(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json ids=1` prints JSON; `--raw` is the same word without arguments."""
    for words in (["--json", "ids=1"], ["ids=1", "--json"], ["--raw", "ids=1"]):
        assert 0 == run(["call", "t.many", *words])
        assert [1] == json.loads(capsys.readouterr().out)["structuredContent"]["ids"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ids=x"], ["expected an integer", "  ids='[1]'"]),
        (["ids=1", "where=x"], ["where", """  where='{"key": "value"}'"""]),
        (["idz=1"], ['did you mean "ids"', "`prowess call t.many --help`"]),
        (["--ids"], ["the option --ids needs a value", "prowess call t.many ids='[1]'"]),
        (["ids"], ["'ids' must have the form key=value"]),
        (["{"], ["the arguments must be JSON"]),
        (["--json", "[" * 20_000], ["--json must be JSON"]),
    ],
)
def test_wrong_values_are_told_with_right_ones(
    words: list[str], told: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are typed in a shell."""
    assert 2 == run(["call", "t.many", *words])
    err = capsys.readouterr().err
    for text in told:
        assert text in err


@pytest.mark.parametrize(
    ("how", "told"),
    [("crashes", "KeyError: 'gone' (call "), ("fails again", "OSError: full (call "), ("is wrong", "t.fails: the")],
)
def test_an_error_that_the_log_shows_with_more_is_what_a_client_gets(
    how: str, told: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log is on stderr, too: so the same words have to say what they are."""
    assert 1 == run(["call", "t.fails", f"how={how}"])
    logged, _, result = capfd.readouterr().err.partition("A client gets: ")
    assert all(line.startswith("[t.fails] ") for line in logged.splitlines())
    assert result.startswith(told)


@pytest.mark.parametrize(
    ("name", "advice"), [("t.oder", '; did you mean "t.order"?'), ("zzz", ". `prowess list` shows the commands")]
)
def test_unknown_command_says_what_to_type(
    name: str, advice: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(["call", name])
    assert f"prowess: Unknown command: {name}{advice}\n" == capsys.readouterr().err


def test_misspelt_option_before_the_command_is_no_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(["call", "--in-proces", "t.order"])
    err = capsys.readouterr().err
    assert "No such option '--in-proces'" in err
    assert "'--in-process'" in err


def test_help_of_a_command_shows_its_parameters(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the help of `call` is its own."""
    assert 0 == run(["call", "t.many", "--help"])
    told = capsys.readouterr().out
    assert "Usage: prowess call t.many" in told
    assert "ids        list of integer  required  The numbers that matter." in told
    assert "flag       boolean          false" in told
    assert 0 == run(["call", "--help"])
    assert "--in-process" in capsys.readouterr().out


def test_a_skill_that_failed_to_load_is_what_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And not that no command has this name, or a sibling."""
    (project / "skills" / "bad.py").write_text("from prowess import skill_command\n1 / 0\n", "utf-8")
    for words in (["call", "bad.many"], ["show", "bad.many"], ["call", "bad.many", "--help"]):
        assert 1 == run(words)
        told = capsys.readouterr().err
        assert "bad.many could not be loaded: bad (skills/bad.py:2): ZeroDivisionError" in told
        assert "did you mean" not in told
    assert 2 == run(["call", "t.mani"])
    assert 'did you mean "t.many"' in capsys.readouterr().err


def test_in_process_runs_in_the_folder_of_the_project(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a worker does, wherever the shell is."""
    (project / "below").mkdir()
    for way in ([], ["--in-process"]):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(project / "below")
            assert 0 == run(["call", "t.here", *way])
        assert f"{project}\n" == capsys.readouterr().out


def test_unknown_profile_is_an_error_in_words(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    (project / "prowess.toml").write_text('profile = "claude"', "utf-8")
    for words in (["call", "t.many", "ids=1"], ["list"], ["show", "t.many"]):
        assert 1 == run(words)
        told = "".join(capsys.readouterr())
        assert "there is no profile 'claude'" in told
        assert "portable" in told
        assert "Traceback" not in told
