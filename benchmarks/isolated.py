"""Skills with an environment or with limits of their own, beside a plain skill and the same plain skill alone."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from client import Client, children_environment, processor_time_of, tree_of
from effort import Effort
from projects import OURS, Subject
from report import Report

__all__ = ["Isolated"]

_ROOT: Final = Path(__file__).resolve().parents[1]
_SKILL: Final = '''from prowess import skill_command


@skill_command
async def echo(value: int) -> int:
    """Give a number back."""
    return value
'''
_BLOCKS: Final = {
    "environments": '# /// script\n# dependencies = ["tenacity"]\n# ///\n',
    "limits": "# /// script\n# [tool.prowess.sandbox]\n# network = false\n# ///\n",
}
"""The declarations that isolate a skill. The package is one that Prowess needs anyway, so no index is asked."""


@dataclass
class Isolated:
    """The two projects of one part, and where the samples go."""

    folder: Path
    part: str
    effort: Effort
    report: Report

    def measure(self) -> None:
        """Starts, and then calls, the plain project and the mixed one in turn."""
        alone, mixed = self._project("alone"), self._project("mixed", isolated=_BLOCKS[self.part] + _SKILL)
        if self.part == "environments":
            self._make(mixed)
        for number in range(self.effort.rehearsals + self.effort.starts):
            for row, folder, skill in _turns(alone, mixed):
                with self._open(folder) as client:
                    client.handshake()
                    names, listed = client.list_tools()
                    while (
                        f"{skill}_echo" not in names
                    ):  # a first start describes what is isolated after its first answer
                        time.sleep(0.05)
                        names, _ = client.list_tools()
                    _, called = client.call(f"{skill}_echo", {"value": 1})
                if number >= self.effort.rehearsals:
                    if row != "own":  # the list is that of the mixed project
                        self._add(f"{row}_list", listed)
                    self._add(f"{row}_first", called)
        self._calls(alone, mixed)

    def _calls(self, alone: Path, mixed: Path) -> None:
        with ExitStack() as stack:
            rows: list[tuple[str, Client, str]] = []
            for row, folder, skill in _turns(alone, mixed):
                name = f"{skill}_echo"
                client = stack.enter_context(self._open(folder))
                client.handshake()
                client.list_tools()
                client.time_calls(name, {"value": 1}, 20)
                rows.append((row, client, name))
            families = {row: tree_of(client.process.pid) for row, client, _ in rows}
            for _ in range(self.effort.rounds):
                for row, client, name in rows:
                    before = processor_time_of(families[row])
                    times = client.time_calls(name, {"value": 1}, self.effort.calls)
                    spent = processor_time_of(families[row]) - before
                    self._add(f"{row}_p50", statistics.median(times))
                    self._add(f"{row}_processor", spent / self.effort.calls)

    def _make(self, project: Path) -> None:
        """Make the environment twice, if there are rehearsals: the second finds all packages in uv's cache, as most do."""
        wheels = self.folder / "wheels"
        subprocess.run([sys.executable, str(_ROOT / "tests" / "wheelhouse.py"), str(wheels)], check=True)
        settings = f'[environments]\nindex = ""\noffline = true\nfind_links = [{json.dumps(str(wheels))}]\n'
        (project / "prowess.toml").write_text(settings, encoding="utf-8")
        code = "import sys; from prowess_host.cli.commands import run; sys.exit(run(sys.argv[1:]))"
        for options in ((), ("--rebuild",))[not self.effort.rehearsals :]:
            command = [sys.executable, "-c", code, "sync", "--project", str(project), *options]
            before = time.perf_counter()
            subprocess.run(command, env=self._environment(), check=True, stdout=subprocess.DEVNULL)
            if options:
                self._add("made", time.perf_counter() - before)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in children_environment(self.folder / "cache").items() if name[:3] != "UV_"}
        return {**kept, "UV_CACHE_DIR": str(self.folder / "uv"), "UV_NO_CONFIG": "1"}

    def _project(self, name: str, **skills: str) -> Path:
        folder = self.folder / self.part / name
        (folder / "skills").mkdir(parents=True)
        for skill, text in {"plain": _SKILL, **skills}.items():
            (folder / "skills" / f"{skill}.py").write_text(text, encoding="utf-8")
        return folder

    def _open(self, folder: Path) -> Client:
        command = [sys.executable, "-m", "prowess_host", "--project", str(folder)]
        return Client(Subject(OURS, command, folder, ""), self._environment())

    def _add(self, row: str, value: float) -> None:
        self.report.add(f"{self.part}_{row}", OURS, value)


def _turns(alone: Path, mixed: Path) -> tuple[tuple[str, Path, str], ...]:
    """The rows: what they are called, the project, and the skill."""
    return ("alone", alone, "plain"), ("plain", mixed, "plain"), ("own", mixed, "isolated")
