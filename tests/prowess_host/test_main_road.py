"""The way of one call, from the client's bytes to the answer's: `docs/design.md` writes it down, and this holds it to that."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from memory import clients, served
from piped import make_project

import prowess
import prowess_host
from prowess_host.workers.in_process import InProcessWorker

MOST = 10
"""Files of one side that a call passes. Those that it only asks are named below the table."""
PACKAGES = (prowess_host, prowess)
TEXT = (Path(__file__).parents[2] / "docs/design.md").read_text("utf-8")
WALKS = TEXT.partition("## The walks")[2].partition("\n## ")[0]
CALL = WALKS.partition("### A call")[2].partition("###")[0]
ROW = re.compile(r"^\| (?:([HW]) \| )?`([\w/]+\.py)` \| (`.*`) \| .* \|$", re.MULTILINE)
BESIDE = {"timeouts", "in_process", "known", "updates", "manifest", "sources", "cache", "watcher", "describe"}
"""What runs beside a call: timers, the catalog that is kept, and the end of the worker that this test has in its process."""


def names(path: str) -> list[tuple[str, ...]]:
    """A file of a walk as parts of a module's name, in every package that has it."""
    parts = path.removesuffix(".py").split("/")
    return [(package.__name__, *parts) for package in PACKAGES if (Path(str(package.__file__)).parent / path).exists()]


async def modules_of(work: Coroutine[Any, Any, Any]) -> set[str]:
    """The files of ours whose code runs meanwhile on this loop."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        await work
    finally:
        sys.setprofile(before)
    roots = [Path(str(package.__file__)).parent for package in PACKAGES]
    return {str(Path(path).relative_to(root)) for path in seen for root in roots if Path(path).is_relative_to(root)}


async def test_a_call_passes_no_file_that_the_walk_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real call, through a connection, the engine and a worker in this process."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # the worker adds the project
    root = make_project(tmp_path, t="@skill_command\nasync def say(text: str) -> str:\n    return text\n")
    async with served(root, InProcessWorker) as project:
        (client, _) = await clients(project, 2)
        for _ in range(3):
            assert "x" == await client.text("t_say", text="x")
        # What the loop does beside a call, like preparing or giving memory back, is not done with each of them.
        seen = set[str].intersection(*[await modules_of(client.text("t_say", text="y")) for _ in range(5)])
    named = set(re.findall(r"`([\w/]+\.py)`", CALL))
    assert [] == sorted(path for path in seen - named if Path(path).stem not in BESIDE)
    assert {"connection.py", "workers/supervisor.py", "skills/entry.py"} <= seen


@pytest.mark.parametrize("side", ["H", "W"])
def test_a_call_passes_few_files(side: str) -> None:
    """Ten on each side."""
    passed = {path for where, path, _ in ROW.findall(CALL) if where == side}
    assert 0 < len(passed) <= MOST


@pytest.mark.parametrize(
    ("path", "functions"), sorted({(path, functions) for _, path, functions in ROW.findall(WALKS)})
)
def test_a_walk_names_what_is_there(path: str, functions: str) -> None:
    """Files and functions, in whichever package has such a file."""
    (module,) = [importlib.import_module(".".join(parts)) for parts in names(path)]
    for function in re.findall(r"`([\w.]+)`", functions):
        found: Any = module
        for name in function.split("."):
            found = getattr(found, name)
