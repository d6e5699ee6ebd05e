"""Measures Prowess beside the official SDK, FastMCP, a bare read loop and a bare relay, on the same functions, in one run.

python benchmarks/run.py [--short | --quick] [--only memory|start|many|calls|record|environments|limits|http|busy|stop] [--long] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from client import children_environment
from effort import FULL, QUICK, SHORT, Effort
from isolated import Isolated
from on_the_wire import Wire
from over_http import OverHttp
from projects import one_skill
from report import Report

_HERE: Final = Path(__file__).parent
_PARTS: Final = ("memory", "start", "many", "calls", "record", "environments", "limits", "http", "busy", "stop")
_DISTRIBUTIONS: Final = ("prowess", "mcp", "fastmcp", "pydantic", "anyio")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is asked for, and print it."""
    options = _options(argv)
    effort = QUICK if options.quick else SHORT if options.short else FULL
    note = "quick, not to be quoted" if options.quick else "short" if options.short else ""
    report = Report(_facts(note), dataclasses.asdict(effort))
    with tempfile.TemporaryDirectory(prefix="prowess-bench-", ignore_cleanup_errors=True) as folder:
        _measure(Path(folder).resolve(), effort, report, options)
    report.facts["load"] += f", {os.getloadavg()[0]:.1f} at the end"
    print(report.text())
    if options.json:
        Path(options.json).write_text(json.dumps(report.to_json(), indent=2, ensure_ascii=False), encoding="utf-8")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Prowess beside its peers.")
    parser.add_argument("--short", action="store_true", help="about three minutes on a machine that does little else")
    parser.add_argument("--quick", action="store_true", help="a minute's worth: to see that it runs, not to be quoted")
    parser.add_argument("--only", choices=_PARTS, action="append", help="only this part; may be given more than once")
    parser.add_argument("--long", action="store_true", help="also the memory after 100,000 calls")
    parser.add_argument("--json", metavar="FILE", help="write every sample to this file")
    return parser.parse_args(argv)


def _measure(folder: Path, effort: Effort, report: Report, options: argparse.Namespace) -> None:
    wire = Wire(folder, one_skill(folder), effort, report)
    parts: dict[str, tuple[Callable[[], None], ...]] = {
        "memory": (lambda: _in_memory(folder, effort, report),),
        "start": (wire.starts,),
        "many": (wire.many,),
        "calls": (wire.calls, wire.memory),
        "record": (wire.recording,),
        "environments": (Isolated(folder, "environments", effort, report).measure,),
        "limits": (Isolated(folder, "limits", effort, report).measure,),
        "http": (OverHttp(folder, wire.subjects, effort, report).calls,),
        "busy": (wire.busy,),
        "stop": (wire.stopping,),
    }
    for name in options.only or _PARTS:
        for part in parts[name]:
            _timed(name, part)
    if options.long:
        _timed("long", wire.growth)


def _timed(name: str, part: Callable[[], None]) -> None:
    before = time.perf_counter()
    part()
    print(f"# {name}: {time.perf_counter() - before:.0f} s", file=sys.stderr)


def _in_memory(folder: Path, effort: Effort, report: Report) -> None:
    command = [sys.executable, str(_HERE / "in_memory.py"), str(folder), json.dumps(dataclasses.asdict(effort))]
    environment = children_environment(folder / "cache")
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    report.merge(json.loads(done.stdout))


def _facts(effort: str) -> dict[str, Any]:
    """What a reader needs to place the numbers, and nothing that tells where they were taken."""
    versions = {name: importlib.metadata.version(name) for name in _DISTRIBUTIONS}
    load = f"{os.getloadavg()[0]:.1f} at the start"
    return {
        **({"effort": effort} if effort else {}),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": load,
        "Python": platform.python_version(),
        **versions,
    }


if __name__ == "__main__":
    main()
