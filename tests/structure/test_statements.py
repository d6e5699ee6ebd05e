"""The gate of statements sees what ran and what did not, in every process, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hits
import pytest
import statements

SOURCE = '''"""A module with something of everything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import json

class Form(Protocol):
    def call(self) -> None: ...

class Counter:
    """It counts."""
    count = 0

    def add(self, number):
        """Add a number."""
        global LAST
        LAST = number
        if number < 0:
            raise ValueError(number)
        for each in range(number):
            self.count += each
        else:
            self.count += 1
        try:
            (0, 1)[number]
        except IndexError:
            return lambda: self.count
        except ValueError:  # pragma: no cover - luck
            print("no luck")
            print("at all")
        finally:
            self.count += 1
        match number:
            case 1:
                return None
            case _:  # pragma: no cover - likewise
                print("no luck")
        if number > 2:  # pragma: no cover - luck
            print("no luck")
        else:
            print("counted")
        print(  # counted where it begins
            "more"
        )
'''

BRANCHES = """
def go(number, repeat=False):
    rest = number
    if number > 0:
        yield "positive"
    if number:
        yield "if"
    else:
        yield "else"
    if number == 7:
        yield "seven"
    elif number == 8:
        yield "eight"
    for each in range(number):
        yield "each"
        if repeat:
            break
    while rest:
        rest -= 1
    while True:
        break
    match number:
        case 0 if repeat:
            yield "zero and repeat"
        case [_, *_]:  # pragma: no cover - luck
            yield "luck"
    match number:
        case 0:
            yield "zero"
        case _:
            yield "more"
    if repeat or number != 8:  # pragma: no branch - it goes one way
        yield "one way"
    try:
        yield "try"
    except ValueError:  # pragma: no cover - luck
        yield "luck"
    else:
        yield "no luck"
    if rest == 0:
        yield "none left"
    else:  # pragma: no cover - luck
        yield "luck"
"""

EVERYTHING = {"least": 100, "branches": False}
"""Settings that let nothing be missed."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Sources of a package, where one module was never imported."""
    package = tmp_path / "sources" / "measured_one"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "counter.py").write_text(SOURCE)
    (package / "lost.py").write_text("import os\n")
    (package / "__main__.py").write_text("print('main')\n")
    return package


def lines_missing(folder: Path) -> dict[str, list[int]]:
    return {path.name: lines for path, _, lines in statements.missing(folder)}


def run(package: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that is measured; the folder of the measurement is beside the package."""
    folder = package.parent.parent / "measurement"
    if not folder.exists():
        statements.begin(folder, package.parent)
    environ = {**os.environ, hits.FOLDER: str(folder), "PYTHONPATH": str(package.parent)}
    start = f"import sys; sys.path.append({str(statements.ROOT / 'tests')!r}); import hits; hits.measure()"
    return subprocess.run(
        [sys.executable, "-S", "-c", f"{start}\n{code}", *options],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def line(text: str) -> int:
    """The number of the line with this text."""
    [number] = [number for number, each in enumerate(SOURCE.splitlines(), 1) if each.strip() == text]
    return number


def test_what_did_not_run_is_told(package: Path):
    """Also of a module that nothing imported; what is excluded counts neither way."""
    done = run(package, "from measured_one.counter import Counter\nCounter().add(0)")
    assert (0, "no luck\ncounted\nmore\n") == (done.returncode, done.stdout), done.stderr

    unrun = ["raise ValueError(number)", "self.count += each", "return lambda: self.count", "return None"]
    missing = lines_missing(package.parent.parent / "measurement")
    assert [*map(line, unrun)] == sorted(missing.pop("counter.py"))
    assert {"__main__.py": [1], "lost.py": [1]} == missing


@pytest.mark.parametrize(
    "calls, missing",
    [
        (
            "list(go(1, True))",
            """past if number > 0:|yield "else"|yield "seven"|yield "eight"|past for each in range(number):|past if repeat:
            |yield "zero and repeat"|yield "zero\"""",
        ),
        (
            "list(go(0, True))",
            """yield "positive"|yield "if"|yield "seven"|yield "eight"|yield "each"|if repeat:|past if repeat:|break|rest -= 1
            |past match number:|yield "more\"""",
        ),
        ("[list(go(number, repeat)) for number in (0, 1, 7) for repeat in (False, True)]", 'yield "eight"'),
    ],
    ids=["one", "none", "nearly all"],
)
def test_each_way_of_a_branch_counts(package: Path, calls: str, missing: str):
    """Also the one where nothing is written: that has the negative line of its branch."""
    (package / "branches.py").write_text(BRANCHES)
    statements.begin(package.parent.parent / "measurement", package.parent, branches=True)
    done = run(package, f"from measured_one.branches import go\n{calls}")
    assert 0 == done.returncode, done.stderr
    source, found = BRANCHES.splitlines(), lines_missing(package.parent.parent / "measurement")["branches.py"]
    assert {each.strip() for each in missing.split("|")} == {
        ("past " if line < 0 else "") + source[abs(line) - 1].strip() for line in found
    }


def test_processes_add_to_each_other(package: Path):
    """Each does what the others did not."""
    for number in (0, 1, 2):
        run(package, f"from measured_one.counter import Counter\nCounter().add({number})")
    assert [line("raise ValueError(number)")] == lines_missing(package.parent.parent / "measurement")["counter.py"]


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_what_ran_counts_however_its_process_ended(package: Path, end: str):
    """Forked processes end abruptly, and tests kill many."""
    code = f"import os\nfrom measured_one.counter import Counter\nif os.fork() == 0:\n    Counter().add(0)\n    {end}\nos.wait()"
    assert 0 == run(package, code).returncode
    assert 4 == len(lines_missing(package.parent.parent / "measurement")["counter.py"])


def test_a_module_that_runs_as_a_program_is_measured(package: Path):
    done = run(package, "import runpy; runpy.run_module('measured_one', run_name='__main__')")
    assert "main\n" == done.stdout, done.stderr
    assert [] == lines_missing(package.parent.parent / "measurement")["__main__.py"]


def test_a_traceback_shows_the_lines_of_the_source(package: Path):
    done = run(package, "from measured_one.counter import Counter\nCounter().add(-1)")
    assert f'counter.py", line {line("raise ValueError(number)")}, in add' in done.stderr


def told(package: Path, capsys: pytest.CaptureFixture[str], **more: Any) -> tuple[int, str]:
    """What the report says of a run of nearly everything."""
    for number in (0, 1, 2):
        run(
            package,
            f"import measured_one.__main__, measured_one.lost\nfrom measured_one.counter import *\nCounter().add({number})",
        )
    capsys.readouterr()
    code = statements.report(package.parent.parent / "measurement", package.parent, {**EVERYTHING, **more})
    return code, capsys.readouterr().out


def test_room_that_falls_short_fails(package: Path, capsys: pytest.CaptureFixture[str]):
    """What did not run is named."""
    code, text = told(package, capsys)
    assert 1 == code
    assert "measured_one: 95.2 % of 21 statements ran, and 100 % have to" in text
    assert f"counter.py:{line('raise ValueError(number)')}: raise ValueError(number)\n" in text
    assert "lost.py:" not in text
    assert 1 == told(package, capsys, least=96)[0]
    assert 0 == told(package, capsys, least=95)[0]


def test_each_room_is_judged_by_itself(package: Path, capsys: pytest.CaptureFixture[str]):
    """A large one that is well tested does not make up for a small one."""
    room = package / "room"
    room.mkdir()
    (room / "small.py").write_text("import os\n")
    code, text = told(package, capsys, least=90)
    assert (1, True) == (code, "measured_one/room: 0.0 % of 1 statements ran" in text)
    assert "counter.py" not in text
    assert 0 == told(package, capsys, least=90, unjudged=["measured_one/room"])[0]


def test_nothing_measured_is_no_success(tmp_path: Path):
    (tmp_path / "sources").mkdir()
    statements.begin(tmp_path / "measurement", tmp_path / "sources")
    assert 1 == statements.report(tmp_path / "measurement", tmp_path / "sources", EVERYTHING)


def test_what_only_older_pythons_run_is_not_asked_for():
    """The gate holds on each supported Python."""
    minor = sys.version_info.minor
    source = f"def old():  # pragma: before 3.{minor}\n    a()\n\ndef new():  # pragma: before 3.{minor + 1}\n    b()\n"
    assert [4, 5] == sorted(statements.compiled(source, "m.py", statements.patterns())[1])
