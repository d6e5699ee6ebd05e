"""Hold an MCP server against the official conformance suite: `python run.py [--set 2026-07-28] [-- server command]`.

The suite speaks HTTP only: `prowess serve` is run as it is, and a server on stdio stands behind bridge.py. The suite judges the scenarios that count; this
script judges all of them by the same rule, prints every verdict with its reason, and exits 0 if all is as expected.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

sys.path.append(str(Path(__file__).resolve().parents[1]))
import npm

__all__ = ["Expected", "Scenario", "main", "read_expected", "read_results"]

HERE = Path(__file__).resolve().parent
SUITE = npm.FOLDER / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
IMPATIENT, PATIENT = ",2,1500,", ",2,120000,"
"""How long the suite waits for two frames of a subscription, in its code: 1.5 s for a reload is a matter of the machine."""
EXPECTED_FAILURES = HERE / "expected-failures.yml"
REQUIREMENT_SETS = ("2025-11-25", "2026-07-28")
OF_EXTENSIONS = {"2026-07-28": tuple(f"sep-2640-skills-{part}" for part in ("directory", "enumeration", "manifest"))}
"""The scenarios of extensions that the host has."""
SERVER = [sys.executable, "-m", "prowess_host", "--project", "{project}"]
WEB_SERVER = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "serve", "--port", "0"]
AS_EXPECTED = {"passed", "expected", "nothing"}


@dataclass(frozen=True)
class Expected:
    """One line of expected-failures.yml: a scenario, or one check of it, and why it fails."""

    scenario: str
    check: str | None
    why: str
    scored: bool = True
    """Whether the scenario counts for a revision. The suite reads no others."""


OF_HTTP = (
    Expected("server-stateless", "sep-2575-http-server-header-mismatch-400", "HTTP: stdio has no headers to compare"),
    Expected("http-custom-header-server-validation", None, "HTTP: stdio has no headers to compare", scored=False),
    Expected("http-header-validation", None, "HTTP: stdio has no headers to compare", scored=False),
    Expected("tasks-request-headers", None, "HTTP: stdio has no headers to compare", scored=False),
    Expected("server-sse-polling", None, "HTTP: stdio has no streams to come back to", scored=False),
)
"""What the specification asks of HTTP alone. Over HTTP all of it counts."""


@dataclass(frozen=True)
class Scenario:
    """What the suite found: the checks that passed, once or more often, and those that did not."""

    name: str
    passed: Counter[str]
    failed: frozenset[str]

    def verdict(self, expected: list[Expected]) -> tuple[str, str]:
        """One of `AS_EXPECTED`, `FAILED` or `STALE`, and what there is to say about it."""
        entries = [entry for entry in expected if entry.scenario == self.name]
        excused = {entry.check for entry in entries}
        surprises = self.failed - excused if None not in excused else frozenset[str]()
        if surprises:
            return "FAILED", ", ".join(sorted(surprises))
        stale = [entry.check or self.name for entry in entries if self._passes(entry)]
        if stale:
            return "STALE", f"passes now, remove the entry: {', '.join(stale)}"
        if self.failed:
            return "expected", "; ".join(dict.fromkeys(entry.why for entry in entries))
        return ("passed", "") if self.passed else ("nothing", "no check applied")

    def _passes(self, entry: Expected) -> bool:
        if entry.check is None:
            return not self.failed
        return entry.check in self.passed and entry.check not in self.failed


def read_expected(path: Path) -> list[Expected]:
    """Every entry: those of `server`, which the suite reads too, and those of `unscored`, which are ours."""
    entries: list[Expected] = []
    scored = True
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if entry := re.fullmatch(r"  - ([\w/.-]+)(?::([\w/.-]+))?  # (.+)", line):
            entries.append(Expected(entry[1], entry[2], entry[3], scored))
        elif line in {"server:", "unscored:"}:
            scored = line == "server:"
        elif not re.fullmatch(r"(server:|unscored:| *#.*|)", line):
            raise SystemExit(f"{path}:{number}: an entry is '  - scenario[:check]  # why it fails', not {line!r}")
    return entries


def write_expected(path: Path, entries: list[Expected]) -> None:
    """The list for the suite, which judges the scenarios that count."""
    names = [f"{each.scenario}:{each.check}" if each.check else each.scenario for each in entries if each.scored]
    path.write_text(f"server: {json.dumps(names)}\n")


def read_results(folder: Path) -> list[Scenario]:
    """One scenario for each checks.json. A warning is a failure, as it is to the suite where a list excuses some."""
    scenarios: list[Scenario] = []
    for path in sorted(folder.glob("server-*/checks.json")):
        checks = json.loads(path.read_text())
        name = re.sub(r"^server-(.+)-\d{4}-\d\d-\d\dT.*$", r"\1", path.parent.name)
        passed = Counter(check["id"] for check in checks if check["status"] == "SUCCESS")
        failed = frozenset(check["id"] for check in checks if check["status"] in {"FAILURE", "WARNING"})
        scenarios.append(Scenario(name, passed, failed))
    return scenarios


def patient_suite() -> Path:
    """The suite, which waits longer for an event that is bound to come. What must not come is waited for as before."""
    text = SUITE.read_text()
    if text.count(IMPATIENT) != 2:
        raise SystemExit(f"{SUITE} waits for subscriptions in another way now; adapt {Path(__file__).name}")
    patient = SUITE.with_name("patient.js")
    patient.write_text(text.replace(IMPATIENT, PATIENT))
    return patient


@contextmanager
def bridged(command: list[str], log: TextIO) -> Generator[tuple[str, list[str]]]:
    """A bridge before a server: its address, and a list that holds the server's faults once it is closed."""
    bridge = [sys.executable, str(HERE / "bridge.py"), "--port", "0", "--", *command]
    process = subprocess.Popen(bridge, stdout=subprocess.PIPE, stderr=log, text=True)
    faults: list[str] = []
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), faults
    finally:
        process.terminate()
        if process.wait(timeout=60):
            faults += [line for line in Path(log.name).read_text().splitlines() if line.startswith("bridge: ")]
            faults += [] if faults else [f"bridge: ended with exit code {process.returncode}"]


@contextmanager
def served(project: Path, log: TextIO) -> Generator[tuple[str, list[str]]]:
    """The fixture over HTTP: its address, and a list that says at the end whether the server left as it should."""
    command = [*WEB_SERVER, "--project", str(project)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    faults: list[str] = []
    try:
        assert process.stdout is not None
        yield process.stdout.readline().partition(" at ")[2].partition(";")[0], faults
    finally:
        process.terminate()
        if process.wait(timeout=60):
            faults.append(f"the server ended with exit code {process.returncode}")


def run_set(
    revision: str, command: list[str] | None, node: Path, output: Path, expected: list[Expected]
) -> tuple[int, list[str]]:
    """One requirement set against fresh processes and a fresh copy of the fixture: the suite's exit code, and faults.

    Without a command it is `prowess serve`.
    """
    project = output / "project"
    shutil.copytree(HERE / "project", project)
    excuses = output / EXPECTED_FAILURES.name
    write_expected(excuses, expected)
    suite = [str(node), str(patient_suite()), "server", "--requirements", revision, "--output-dir", str(output)]
    with (output / "server.log").open("w") as log, (output / "suite.log").open("w") as talk:
        replaced = [part.replace("{project}", str(project)) for part in command or ()]
        with bridged(replaced, log) if replaced else served(project, log) as (url, faults):
            options = ["--url", url, "--expected-failures", str(excuses)]
            code = subprocess.run([*suite, *options], stdout=talk, stderr=subprocess.STDOUT, check=False).returncode
            for name in OF_EXTENSIONS.get(revision, ()):  # no requirement set has them
                one = [
                    "server",
                    "--scenario",
                    name,
                    "--spec-version",
                    revision,
                    "--force",
                    "--output-dir",
                    str(output),
                    *options[:2],
                ]
                again = [*suite[:2], *one]
                code |= subprocess.run(again, stdout=talk, stderr=subprocess.STDOUT, check=False).returncode
        return code, faults


def show(scenarios: list[Scenario], expected: list[Expected]) -> bool:
    """Print the table of one set; whether every scenario came out as expected."""
    verdicts = [scenario.verdict(expected) for scenario in scenarios]
    width = max((len(scenario.name) for scenario in scenarios), default=0)
    for scenario, (verdict, reason) in zip(scenarios, verdicts, strict=True):
        checks = f"{scenario.passed.total():3} ok {len(scenario.failed):2} not"
        print(f"  {scenario.name:{width}}  {checks}  {verdict:8}  {reason}".rstrip())
    counts = Counter(verdict for verdict, _ in verdicts)
    total = sum(scenario.passed.total() for scenario in scenarios)
    print(f"  {len(scenarios)} scenarios: {', '.join(f'{counts[word]} {word}' for word in sorted(counts))}; ", end="")
    print(f"{total} checks passed")
    return bool(scenarios) and counts.keys() <= AS_EXPECTED


def main() -> int:
    """Run the sets, and say whether all is as expected."""
    parser = argparse.ArgumentParser(description="Run the official MCP conformance suite against a server.")
    parser.add_argument("--over", action="append", choices=("stdio", "http"), help="a transport; both by default")
    parser.add_argument("--set", action="append", choices=REQUIREMENT_SETS, help="a requirement set; both by default")
    parser.add_argument("--output", type=Path, help="a new folder for results and logs; a temporary one by default")
    parser.add_argument("command", nargs="*", help="another stdio server; {project} becomes the fixture")
    arguments = parser.parse_args()
    node, expected = npm.node(), read_expected(EXPECTED_FAILURES)
    if node is None:
        raise SystemExit("Node is needed to run the conformance suite: `make check` brings one")
    npm.installed()
    output = arguments.output or Path(tempfile.mkdtemp(prefix="prowess-conformance-"))
    good = True
    transports = arguments.over or (["stdio"] if arguments.command else ["stdio", "http"])
    for transport, revision in itertools.product(transports, arguments.set or REQUIREMENT_SETS):
        folder = output / transport / revision
        folder.mkdir(parents=True)
        on_stdio = transport == "stdio"
        excused = [*expected, *OF_HTTP] if on_stdio else expected
        command = (arguments.command or SERVER) if on_stdio else None
        code, faults = run_set(revision, command, node, folder, excused)
        print(f"\n{revision} over {transport}")
        good &= show(read_results(folder), excused) and code == 0 and not faults
        print(f"  the suite's own exit code: {code}; results and logs: {os.path.relpath(folder)}")
        print("".join(f"  {fault}\n" for fault in faults), end="")
    print("\nas expected" if good else "\nNOT as expected")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
