"""`prowess list` and `prowess call`, as a person at a shell uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import shell
from patience import PATIENCE

SKILL = '''
from prowess import Image, SkillError, skill_command

@skill_command(read_only=True, open_world=False)
def add(a: int, b: int = 2) -> dict[str, int]:
    """Add two numbers."""
    print("noise")
    return {"sum": a + b}

@skill_command
def echo(text: str) -> str:
    """Say it again."""
    return text

@skill_command
def picture() -> Image:
    return Image(b"\\x89PNG\\r\\n\\x1a\\n")

@skill_command
def fail() -> str:
    raise SkillError("Not today.")
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "tools.py").write_text(SKILL, "utf-8")
    return tmp_path


def prowess(project: Path, *words: str, given: str = "") -> tuple[int, str, str]:
    done = shell.prowess(words[0], "--project", str(project), *words[1:], given=given)
    return done.returncode, done.stdout, done.stderr


def test_list_shows_commands_and_then_failures(project: Path) -> None:
    """With hints and sources; what could not be loaded comes last, with its reason."""
    (project / "skills" / "broken.py").write_text("import prowess\n1/0\n", "utf-8")
    code, shown, _ = prowess(project, "list")
    lines = shown.splitlines()
    assert 1 == code
    assert ["COMMAND", "SUMMARY", "HINTS", "SOURCE"] == lines[0].split()
    assert ["tools.add", "Add two numbers.", "read-only, closed-world", "skills/tools.py:4"] == lines[1].split("  ")[
        :1
    ] + [part.strip() for part in lines[1].split("  ")[1:] if part.strip()]
    assert "ZeroDivisionError: division by zero" in lines[-1]


def test_list_shows_what_authors_forgot(project: Path) -> None:
    """After the table; it is no failure."""
    (project / "skills/w.py").write_text("from prowess import skill_command\n@skill_command\ndef go(x): ...\n")
    shown = prowess(project, "list")[1]
    assert "warning: w.go (skills/w.py:2): parameter 'x' has no annotation" in shown
    assert json.loads(prowess(project, "list", "--json")[1])["commands"][-1]["warnings"]


def test_list_as_json_has_the_contracts(project: Path) -> None:
    """For machines."""
    code, shown, _ = prowess(project, "list", "--json")
    told = json.loads(shown)
    assert 0 == code
    assert ["tools.add", "tools.echo", "tools.fail", "tools.picture"] == [each["id"] for each in told["commands"]]
    assert [] == told["failures"]


def test_list_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    """It names the project and the folders that were searched, and is no success. A folder that is no project is wrong use."""
    code, shown, told = prowess(tmp_path, "list")
    assert (2, "") == (code, shown)
    assert f"There are no commands in the project {tmp_path}" in told
    assert f"{tmp_path / 'skills'} (there is no such folder)" in told
    assert "prowess new --project" in told
    assert [2, 2, 2] == [
        prowess(tmp_path, *words)[0] for words in (["list", "--json"], ["call", "a.b"], ["show", "a.b"])
    ]
    (tmp_path / "skills").mkdir()
    assert "no such folder" not in prowess(tmp_path, "list")[2]
    assert [1, 1, 1] == [
        prowess(tmp_path, *words)[0] for words in (["list", "--json"], ["call", "a.b"], ["show", "a.b"])
    ]


@pytest.mark.parametrize("folder", ["/nonexistent/folder", "prowess.toml"])
def test_folder_that_is_none_is_named(folder: str, project: Path, tmp_path: Path) -> None:
    """And no interpreter is blamed for it."""
    (project / "prowess.toml").touch()
    code, _, told = prowess(project / folder, "list")
    assert 2 == code
    assert f"--project {project / folder}: " in told


def test_home_is_expanded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An IDE that starts a program does not do that."""
    monkeypatch.setenv("HOME", str(project.parent))
    assert 0 == prowess(Path("~") / project.name, "list")[0]


CALLS = [
    (("tools.add", "a=1"), 0, ('{\n  "sum": 3\n}', "")),
    (("tools.fail",), 1, ("", "Not today.")),
    (("tools.add", "a=x"), 2, ("", 'a: expected an integer, got "x"')),
    (("tools.ad", "a=1"), 2, ("", 'did you mean "tools.add"')),
]
"""What it matters for where the command runs."""
MORE_CALLS = [
    (("tools_add", "a=1", "b=5"), 0, ('{\n  "sum": 6\n}', "")),
    (("tools/echo", "text=12"), 0, ("12", "")),
    (("tools.picture",), 0, ("tools.picture.png (image/png, 8 bytes)", "")),
    (("tools.add", "a"), 2, ("", "'a' must have the form key=value")),
    (("tools.add", "--json", "{"), 2, ("", "--json must be JSON")),
    (("tools.add", "--json", "[]"), 2, ("", "must be a JSON object")),
]


@pytest.mark.parametrize(
    ("words", "code", "told", "way"),
    [*((*call, ()) for call in CALLS), *((*call, ("--in-process",)) for call in CALLS + MORE_CALLS)],
)
def test_call(words: tuple[str, ...], code: int, told: tuple[str, str], way: tuple[str, ...], project: Path) -> None:
    """The result for people on stdout, failures on stderr, and an exit code for scripts, in a worker or in this process."""
    done = prowess(project, "call", *way, *words)
    assert code == done[0], done
    assert told[0] in done[1]
    assert told[1] in done[2]


def test_call_as_json_gives_the_payload(project: Path) -> None:
    """Arguments as JSON, from the command line or the input, and the whole payload back."""
    _, one, _ = prowess(project, "call", "tools.add", "--json", '{"a": 1}')
    _, other, _ = prowess(project, "call", "tools.add", "-", "--json", given='{"a": 1}')
    assert {"sum": 3} == json.loads(one)["structuredContent"] == json.loads(other)["structuredContent"]


@pytest.mark.parametrize("words", [["list"], ["call", "tools.add"], ["build"], ["check"], ["package"]], ids="-".join)
def test_project_that_cannot_be_loaded_is_told(project: Path, words: list[str]) -> None:
    """In one line, and not as a traceback of ours; with one exit code."""
    code, _, told = prowess(project, *words, "--set", "python=/nowhere/python")
    assert 1 == code
    assert "the project cannot be loaded" in told
    assert "Traceback" not in told


def test_wrong_setting_is_wrong_use(project: Path) -> None:
    """With the exit code of it."""
    code, _, told = prowess(project, "list", "--set", "timeot=5")
    assert 2 == code
    assert 'did you mean "timeout"' in told


def noting(project: Path, *names: str) -> None:
    """Skills that note each import of themselves, with the process that did it."""
    for name in names:
        note = f"import os\nwith open({str(project / 'imports')!r}, 'a') as file:\n    file.write('{name} ')\n"
        body = "from prowess import skill_command\n@skill_command\ndef go() -> int:\n    return os.getppid()\n"
        (project / "skills" / f"{name}.py").write_text(note + body, "utf-8")


def imports(project: Path) -> list[str]:
    """What was imported since the last look."""
    file = project / "imports"
    names = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return names


def test_list_and_call_start_from_the_manifest(project: Path) -> None:
    """The first one describes all; then `list` imports nothing, and `call` the skill that it calls."""
    noting(project, "a", "b")
    assert 0 == prowess(project, "list")[0]
    assert ["a", "b"] == imports(project)
    assert "a.go" in prowess(project, "list")[1]
    assert [] == imports(project)
    assert 0 == prowess(project, "call", "b.go")[0]
    assert ["b"] == imports(project)


def test_call_describes_no_other_skill_that_was_saved(project: Path) -> None:
    """It needs to know one command only; `list` needs them all."""
    noting(project, "a", "b")
    prowess(project, "list")
    noting(project, "a", "c")
    (project / "skills" / "a.py").write_text((project / "skills" / "a.py").read_text() + "#", "utf-8")
    imports(project)
    assert 0 == prowess(project, "call", "b.go")[0]
    assert ["b"] == imports(project)
    assert "c.go" in prowess(project, "list")[1]
    assert {"a", "c"} == set(imports(project))


def test_a_failure_that_was_mended_elsewhere_is_listed_no_more(project: Path) -> None:
    """What failed is tried again, also where nothing that is known of has changed."""
    flag = project / "flag"
    body = f"import os\nfrom prowess import skill_command\nassert os.path.exists({str(flag)!r}), 'no flag'\n"
    (project / "skills" / "late.py").write_text(f"{body}@skill_command\ndef go() -> None: ...\n", "utf-8")
    assert "no flag" in prowess(project, "list")[1]
    flag.touch()
    shown = prowess(project, "list")[1]
    assert "late.go" in shown
    assert "no flag" not in shown


DEBUGGED = """
import os, sys
from prowess import skill_command

@skill_command(timeout=600)
def process() -> int:
    return os.getpid()

@skill_command
async def stops() -> str:
    breakpoint()
    return "over"

@skill_command(timeout=0.2)
def slow() -> str:
    import time
    time.sleep(600)
    return "never"

@skill_command
def beside() -> str:
    import helper
    return helper.WORD
"""


def test_call_in_process_is_the_same_engine_in_this_process(project: Path) -> None:
    """The command runs here, imports what lies beside, and its time is up as in a worker, with the same answer."""
    (project / "skills" / "d.py").write_text(DEBUGGED, "utf-8")
    (project / "helper.py").write_text("WORD = 'here'\n", "utf-8")
    assert (0, "here\n") == prowess(project, "call", "--in-process", "d.beside")[:2]
    command = [sys.executable, "-c", "import os; print(os.getpid()); from prowess_host.cli.main import main; main()"]
    words = ["call", "--project", str(project), "--in-process", "d.process"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True, timeout=PATIENCE)
    here, there = done.stdout.split()
    assert here == there
    slow = [prowess(project, "call", *way, "d.slow", "--json") for way in ([], ["--in-process"])]
    assert [1, 1] == [code for code, _, _ in slow]
    one, other = (json.loads(shown) for _, shown, _ in slow)
    assert "timeout" == one["_meta"]["prowess/kind"]
    assert one == other


def test_a_debugger_has_the_terminal_and_all_the_time(project: Path) -> None:
    """A breakpoint on the event loop reads its input for longer than the limits that hold for workers."""
    (project / "skills" / "d.py").write_text(DEBUGGED, "utf-8")
    given = "p 6 * 7\nimport time; time.sleep(2)\nc\n"
    code, shown, told = prowess(project, "call", "--in-process", "d.stops", "--set", "timeout=600", given=given)
    assert 0 == code, told
    assert "42" in shown
    assert shown.rstrip().endswith("over")
    assert "blocks the event loop" not in told


def test_call_of_a_command_that_ends_its_process_is_answered(project: Path) -> None:
    """In a worker."""
    body = "import os\nfrom prowess import skill_command\n@skill_command\ndef go() -> None:\n    os._exit(9)\n"
    (project / "skills" / "leaves.py").write_text(body, "utf-8")
    code, _, told = prowess(project, "call", "leaves.go")
    assert 1 == code
    assert "exit code 9" in told


def test_agent_without_an_engine_is_told_the_option(project: Path) -> None:
    code, _, told = prowess(project, "agent")
    assert 2 == code
    assert "add --join nats://HOST:4222, or set cluster.url" in told


@pytest.mark.parametrize(
    ("missing", "words", "code"),
    [
        ("cryptography", ["approve", "--new-key", "approve.key"], 2),
        ("nats", ["status", "--set", "cluster.url=nats://127.0.0.1:1"], 2),
        ("nats", ["agent", "--join", "nats://127.0.0.1:1"], 2),
        ("nats", ["logs", "--cluster"], 2),
        ("nats", ["doctor", "--no-try", "--set", "cluster.url=nats://127.0.0.1:1"], 1),
    ],
)
def test_missing_extra_is_named(project: Path, missing: str, words: list[str], code: int) -> None:
    """A library that only an extra installs: with the line that installs it, and without a traceback."""
    program = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
from prowess_host.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=project,
        timeout=PATIENCE,
    )
    assert code == done.returncode
    said = done.stdout + done.stderr
    assert f"{missing}, which is not installed" in said or f"{missing} is not installed" in said
    assert "pip install 'prowess[cluster]'" in said
    assert "Traceback" not in said
    assert ("doctor" in words) == ("0 warnings" in said)


def started(project: Path, line: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in which `prowess` is the command line as a process of its own."""
    variables = {**os.environ, "PYTHON_OF_TESTS": sys.executable, **environ}
    return subprocess.run(
        ["sh", "-c", f'prowess() {{ "$PYTHON_OF_TESTS" -m prowess_host "$@"; }}; {line}'],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=project,
        env=variables,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    ("line", "code", "shown", "said"),
    [
        ("prowess call tools.echo text=hi <&-", 0, "hi\n", ""),
        ("prowess call tools.echo - <&-", 2, "", "the input must be JSON"),
        ("prowess invoke <&-", 0, "", ""),
        ("prowess list >&-", 0, "", ""),
        ("prowess doctor --no-try >&-", 0, "", ""),
        ("prowess call tools.fail 2>&-", 1, "", ""),
        ("prowess list <&- >&- 2>&-", 0, "", ""),
    ],
)
def test_standard_streams_may_be_closed(project: Path, line: str, code: int, shown: str, said: str) -> None:
    """As some programs close them that start others."""
    done = started(project, line)
    assert (code, shown) == (done.returncode, done.stdout)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
def test_characters_that_the_output_lacks_are_escapes(project: Path, encoding: str) -> None:
    """JSON stays JSON, and nothing ends with a traceback."""
    line = "prowess call tools.echo text=日😀 --json; prowess doctor --no-try; prowess logs"
    done = started(project, line, PYTHONIOENCODING=encoding)
    assert "" == done.stderr
    result, end = json.JSONDecoder().raw_decode(done.stdout)
    assert "日😀" == result["content"][0]["text"]
    assert "\\u2713 Python" in done.stdout[end:]


def test_folder_whose_name_is_not_text_is_shown_with_escapes(project: Path) -> None:
    folder = project / os.fsdecode(b"caf\xe9") / "skills"
    try:
        folder.mkdir(parents=True)
    except OSError:
        pytest.skip("the file system takes text only")
    done = started(project, "prowess doctor --no-try --project \"$(printf 'caf\\351')\"")
    assert 2 == done.returncode
    assert "caf\\udce9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk at hand")
def test_output_that_cannot_be_written_is_no_fault_of_the_files(project: Path) -> None:
    done = started(project, "prowess new orders >/dev/full", PYTHONUNBUFFERED="1")
    assert (2, "None" in done.stderr) == (done.returncode, False)
    assert "the output: No space left on device" in done.stderr


ON_WINDOWS = """
import sys
sys.platform = "win32"
sys.modules.update(dict.fromkeys(["fcntl", "resource", "termios", "pwd", "grp"]))
from prowess_host.cli.main import main
main(["host"])
"""


def test_on_windows_the_way_out_is_told():
    """No traceback of an import that fails there."""
    done = subprocess.run([sys.executable, "-c", ON_WINDOWS], capture_output=True, text=True, check=False)
    assert (1, "") == (done.returncode, done.stdout)
    assert "prowess: Prowess runs on Linux and macOS; on Windows, install and start it inside WSL\n" == done.stderr
