"""Makes a virtual environment ready for a purpose, with uv or with pip, and does nothing where it already is.

Standard library only: it runs before anything is installed. What was installed is noted in a stamp inside the
environment, keyed on the content of the pyproject files; where things come from is the business of uv's or pip's own settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
LOWER_BOUND = re.compile(r"^(?P<name>[\w.-]+)(\[[^]]*\])?>=(?P<version>[^,;\s]+)")
VERSION_OF = "import sys; print(*sys.version_info[:2], sep='.')"


@dataclass(frozen=True)
class Purpose:
    """What an environment is wanted for: its folder, the dependency groups in it, and whether versions are the lowest."""

    folder: str
    groups: tuple[str, ...]
    lowest: bool = False


PURPOSES = {
    "run": Purpose(".venv", ()),
    "test": Purpose(".venv", ("dev", "peers")),
    "check": Purpose(".venv", ("checks", "dev")),
    "lowest": Purpose(".venv-lowest", ("dev",), lowest=True),
}


def main() -> None:
    """Make the environment ready for the purpose named on the command line."""
    if len(sys.argv) != 2 or sys.argv[1] not in PURPOSES:
        sys.exit(f"usage: prepare.py {'|'.join(PURPOSES)}")
    purpose = PURPOSES[sys.argv[1]]
    environment = ROOT / purpose.folder
    python = environment / "bin" / "python"
    stamp = environment / ".ready.json"
    note = read_note(stamp)
    if reason := unfit(environment, python, note):
        create(environment, reason)
        note = {}
    key = content_key(python)
    groups = set(note["groups"]) if note.get("key") == key else None
    if groups is not None and groups >= set(purpose.groups):
        return
    wanted = sorted(set(purpose.groups) | (groups or set()))
    stamp.unlink(missing_ok=True)
    install(python, requirements(wanted), lowest=purpose.lowest)
    stamp.write_text(json.dumps({"key": key, "groups": wanted, "root": str(ROOT)}), encoding="utf-8")


def read_note(stamp: Path) -> dict[str, Any]:
    """What was installed here before; nothing where that is unknown."""
    try:
        note = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def unfit(environment: Path, python: Path, note: dict[str, Any]) -> str | None:
    """Why the environment has to be made anew, or `None`."""
    if not environment.exists():
        return "there is none yet"
    version = output_of(python, VERSION_OF)
    if version is None:
        return "its Python does not run"
    if note.get("root", str(ROOT)) != str(ROOT):
        return "it was made in another folder"
    asked = output_of(base_python(), VERSION_OF)
    if version != asked and (os.environ.get("PYTHON") or tuple(map(int, version.split("."))) < (3, 11)):
        return f"it has Python {version}, not {asked}"
    return None


def output_of(python: Path, code: str) -> str | None:
    """What the code prints, or `None` where it cannot run."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def base_python() -> Path:
    """The interpreter that runs this, outside of any virtual environment."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable)


def create(environment: Path, reason: str) -> None:
    """Make an empty environment in place of what may be there."""
    say(f"creating {environment.name}: {reason}")
    if environment.exists():
        shutil.rmtree(environment)
    if uv := shutil.which("uv"):
        run([uv, "venv", "--quiet", "--python", base_python(), environment])
    else:
        run([base_python(), "-m", "venv", environment])


def content_key(python: Path) -> str:
    """A fingerprint of all that decides what has to be installed."""
    key = hashlib.sha256((output_of(python, VERSION_OF) or "").encode())
    for path in [ROOT / "pyproject.toml", *(package / "pyproject.toml" for package in PACKAGES), Path(__file__)]:
        key.update(path.read_bytes())
    return key.hexdigest()


def requirements(groups: list[str]) -> list[str]:
    """The packages of the workspace, editable, and what the groups ask for."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    editable = [word for package in PACKAGES for word in ("--editable", f"./{package.relative_to(ROOT)}")]
    return editable + [requirement for group in groups for requirement in table[group]]


def install(python: Path, wanted: list[str], *, lowest: bool) -> None:
    """Install with uv, where there is one and it can; else with pip, which may be configured where uv is not."""
    environment = python.parent.parent
    if lowest:
        constraints = environment / "lowest.txt"
        constraints.write_text("".join(f"{line}\n" for line in lowest_versions()), encoding="utf-8")
        wanted = [*wanted, "--constraint", f"./{constraints.relative_to(ROOT)}"]
    if uv := shutil.which("uv"):
        say(f"installing into {environment.name} with uv")
        if run([uv, "pip", "install", "--quiet", "--python", python, *wanted], check=False) == 0:
            return
        say("uv could not; trying pip")
    say(f"installing into {environment.name} with pip (a minute or two, the first time)")
    if output_of(python, "import pip") is None:
        run([python, "-m", "ensurepip"])
    run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted])


def lowest_versions() -> Iterator[str]:
    """Each direct dependency of the packages at the lowest version it allows."""
    for package in PACKAGES:
        project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for requirement in project.get("dependencies", []):
            if bound := LOWER_BOUND.match(requirement):
                yield f"{bound['name']}=={bound['version']}"


def run(command: list[str | Path], *, check: bool = True) -> int:
    """Run a command at the root, its output shown. A failure ends everything, unless the caller wants to know."""
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if check and code:
        sys.exit(f"prepare: this failed: {' '.join(map(str, command))}")
    return code


def say(text: str) -> None:
    """Tell the person waiting what takes so long."""
    print(f"prepare: {text}", flush=True)


if __name__ == "__main__":
    main()
