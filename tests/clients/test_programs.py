"""The clients' own programs list what `prowess connect` wrote. `make programs` fetches them; without them this is skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

SKILL = "from prowess import skill_command\n\n\n@skill_command\ndef add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
FOLDER = os.environ.get("CLIENT_PROGRAMS", "")
LISTS = {
    "claude-code": ["claude", "mcp", "list"],
    "codex": ["codex", "mcp", "list"],
    "copilot": ["copilot", "mcp", "list"],
    "gemini": ["gemini", "mcp", "list"],
    "opencode": ["opencode", "mcp", "list"],
}
# The clients that start the server to list it, and what they say then; the others show the file alone.
STARTED = {
    ("claude-code", "user"): "Connected",
    ("claude-code", "project"): "Pending approval",
    ("gemini", "user"): "Connected",
    ("gemini", "project"): "Connected",
    ("opencode", "user"): "connected",
    ("opencode", "project"): "connected",
}

pytestmark = pytest.mark.skipif(not FOLDER, reason="needs the clients' programs: make programs")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a project that every client trusts."""
    root = tmp_path / "project"
    (root / "skills").mkdir(parents=True)
    (root / "skills/sums.py").write_text(SKILL, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    trusted = {
        ".gemini/trustedFolders.json": json.dumps({str(root): "TRUST_FOLDER"}),
        ".copilot/config.json": json.dumps({"trusted_folders": [str(root)]}),
        ".codex/config.toml": f'# mine\n[projects."{root}"]\ntrust_level = "trusted"\n',
    }
    for name, text in trusted.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def ran(command: list[str], home: Path) -> str:
    path = os.pathsep.join([str(Path(FOLDER).resolve()), os.environ["PATH"]])
    environ = {"HOME": str(home), "PATH": path, "TERM": "dumb", "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=home / "project", env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr  # Gemini lists on stderr


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize("client", LISTS)
def test_own_list_of_a_client_shows_us(client: str, scope: str, home: Path) -> None:
    """After connecting, and not any more after disconnecting."""
    prowess = [sys.executable, "-c", "from prowess_host.cli.main import main; main()"]
    name = f"prowess-{scope}"

    ran([*prowess, "connect", client, "--scope", scope, "--name", name], home)

    [line] = [line for line in ran(LISTS[client], home).splitlines() if name in line]
    assert STARTED.get((client, scope), "") in line
    ran([*prowess, "disconnect", client], home)
    assert name not in ran(LISTS[client], home)
