"""The tutorial, followed to the letter: from built wheels, in an empty folder, in a terminal, up to a call by a real client.

The steps are read from docs/tutorial.md. A console block is typed, a block with a title is saved as that file, and what the
page shows must appear on the screen. `pip install` finds our wheels instead of the index, and our dependencies where the
tests have them.
"""

from __future__ import annotations

import doctest
import json
import os
import site
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from documents import FLAGS, Block, blocks, steps
from patience import PATIENCE
from terminal import Terminal, plain

pytest.importorskip("hatchling")
pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/tutorial.md"
OURS = ("prowess", "__editable__", "_prowess")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of our packages, as they would be published."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml")):
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
        subprocess.run(command, cwd=package, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with pip. What our packages depend on is there; nothing of ours is."""
    folder = tmp_path_factory.mktemp("person")
    libraries = folder / "libraries"
    libraries.mkdir()
    for installed in filter(Path.is_dir, map(Path, site.getsitepackages())):  # Debian names folders that need not exist
        for entry in installed.iterdir():
            if not entry.name.startswith(OURS) and entry.suffix != ".pth" and not (libraries / entry.name).exists():
                (libraries / entry.name).symlink_to(entry)
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    program = folder / "venv/bin/pytest"  # what pip would write beside the library
    program.write_text(f"#!{folder}/venv/bin/python\nimport pytest\nraise SystemExit(pytest.console_main())\n", "utf-8")
    program.chmod(0o755)
    return folder / "venv/bin/python"


@dataclass
class Follower:
    """A person who follows the page: types what it shows, and compares."""

    terminal: Terminal
    folder: Path

    def follow(self, block: Block) -> None:
        if block.title:
            file = self.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command, expected in steps(block):
                code, screen = self.terminal.enter(command.partition("  #")[0])
                shown = plain(screen)
                place = f"{TUTORIAL.name}:{block.line}: $ {command}\n{shown}"
                assert 0 == code, place
                assert not expected or doctest.OutputChecker().check_output(expected, shown, FLAGS), place


def test_tutorial_leads_to_a_skill_that_a_real_client_calls(wheels: Path, python: Path, tmp_path: Path) -> None:
    """Every step of the page works as shown, and its last one leaves a project that the official client can use."""
    folder, home = tmp_path / "hello-prowess", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    environment = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([str(python.parent), os.defpath]),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_INDEX": "1",
        "USER": "ada",
    }
    with Terminal(folder, environment) as terminal:
        follower = Follower(terminal, folder)
        for block in blocks(TUTORIAL.read_text(encoding="utf-8")):
            follower.follow(block)

    assert "Hello, Ada!" in anyio.run(greeting, folder, home)


async def greeting(folder: Path, home: Path) -> str:
    """What a client gets that starts what the tutorial connected: with its command line, and with hardly any environment."""
    server = json.loads((folder / ".mcp.json").read_text(encoding="utf-8"))["mcpServers"]["prowess"]
    environment = {"HOME": str(home), "PATH": os.defpath, **server.get("env", {})}
    parameters = StdioServerParameters(
        command=server["command"], args=server["args"], env=environment, cwd=server.get("cwd", folder)
    )
    with anyio.fail_after(PATIENCE):
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            assert "hello_greet" in tools
            result = await session.call_tool("hello_greet", {"name": "Ada"})
            return str(result.content)
