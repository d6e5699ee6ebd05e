"""Renews the screens in the documentation: `make screens` runs each command in a terminal and keeps what it shows.

Every command is shown at 80 and at 140 columns: in colour as an SVG picture in docs/assets/screens, and without colour as
text in docs/screens.md.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from prowess_host.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from terminal import Terminal, coloured, plain  # noqa: E402 - found in tests/

PICTURES = ROOT / "docs/assets/screens"
PAGE = ROOT / "docs/screens.md"
WIDTHS = (80, 140)
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
BROKEN = '''from prowess import skill_command


@skill_command
def post(text: str, channel: Chanel) -> None:
    """Post a message."""
'''


LONG = '''from prowess import skill_command


@skill_command(read_only=True)
def summarise_all_open_invoices_of_one_customer(customer: str) -> str:
    """Say what a customer owes."""
    return customer
'''


class Screen(NamedTuple):
    """A command line, and what a reader sees in it."""

    line: str
    about: str
    skill: str = ""
    """One more skill, if the command is about what it does."""


SCREENS = {
    "list": Screen("prowess list", "all commands of a project, and a file that failed to load"),
    "show": Screen("prowess show text.search", "one command, as a person reads it"),
    "call": Screen("prowess call text.search pattern=open_world=True", "a call and its result"),
    "doctor": Screen(
        "prowess doctor --matrix --server company-data",
        "the rules of clients that a command breaks: here its name",
        LONG,
    ),
    "logs": Screen("prowess logs", "the calls of a project"),
}
INTRODUCTION = """# Screens

This page shows the output of some commands in terminals of 80 and 140 columns: pictures in colour, then the same output as text, with
`NO_COLOR=1`. The project is that of the repository of Prowess, with a skill whose import fails. `make screens` updates this page.
"""


def main() -> None:
    """Make a project, run every command that exists, and write the page."""
    shown = {name: screen for name, screen in SCREENS.items() if name in COMMANDS}
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        project = make_project(Path(scratch))
        parts = [INTRODUCTION, *(part(name, screen, project) for name, screen in shown.items())]
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(f"screens: {PAGE.relative_to(ROOT)} shows {', '.join(shown)}")


def make_project(scratch: Path) -> Path:
    """A project with the skills of this repository, and one that is broken."""
    project = scratch / "project"
    shutil.copytree(ROOT / "skills", project / "skills", ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    (project / "skills/chat.py").write_text(BROKEN, encoding="utf-8")
    return project


def part(name: str, screen: Screen, project: Path) -> str:
    """The section of one command: a picture and a text for each width."""
    lines = [f"## prowess {name}", "", f"`{screen.line}`: {screen.about}.", ""]
    if screen.skill:
        (project / "skills/reports.py").write_text(screen.skill, encoding="utf-8")
    for width in WIDTHS:
        coloured, bare = (run(screen.line, project, width, colour=colour) for colour in (True, False))
        picture = PICTURES / f"{name}-{width}.svg"
        picture.write_text(drawn(coloured, width, screen.line), encoding="utf-8")
        lines += [f"![{screen.line}, {width} columns](assets/screens/{picture.name})", ""]
        lines += [f"The same without colour, {width} columns:", "", f"```text\n{bare}\n```", ""]
    return "\n".join(lines)


def run(line: str, project: Path, width: int, *, colour: bool) -> str:
    """The output of a command in a terminal of that width."""
    with Terminal(project, environment(project.parent, colour=colour), columns=width) as terminal:
        _, output = terminal.enter(line)
    shown = coloured(output) if colour else plain(output)
    return shown.replace(str(project), "/home/ada/project").strip("\n")


def environment(scratch: Path, *, colour: bool) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"HOME": str(scratch), "LANG": "C.UTF-8", "PATH": path, **({} if colour else {"NO_COLOR": "1"})}


def drawn(output: str, width: int, title: str) -> str:
    """A terminal as an SVG picture, in the reader's own font."""
    console = Console(record=True, width=width, file=open(os.devnull, "w", encoding="utf-8"), color_system="truecolor")  # noqa: SIM115, PTH123 - the console keeps it
    console.print(Text.from_ansi(output), soft_wrap=False)
    return FONT.sub("", console.export_svg(title=title, unique_id=f"screen-{width}"))


if __name__ == "__main__":
    main()
