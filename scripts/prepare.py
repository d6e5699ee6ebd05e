"""Makes a virtual environment ready for a purpose, with uv or with pip, and does nothing where it already is.

Standard library only: it runs before anything is installed. What was installed is noted in a stamp inside the
environment, keyed on the content of the files that decide; where things come from is the business of uv's or pip's own settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installers import ROOT, Progress, base_python, environment_of_uv, find_uv, output_of, pip, say

PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
LOWER_BOUND = re.compile(r"^(?P<name>[\w.-]+)(\[[^]]*\])?>=(?P<version>[^,;\s]+)")
VERSION_OF = "import sys; print(*sys.version_info[:2], sep='.')"


@dataclass(frozen=True)
class Purpose:
    """What an environment is wanted for: its folder, the dependency groups in it, whether versions are the lowest, and
    whether our own packages are installed too.
    """

    folder: str
    groups: tuple[str, ...]
    lowest: bool = False
    packages: bool = True


PURPOSES = {
    "run": Purpose(".venv", ("skills",)),
    "test": Purpose(".venv", ("data", "dev", "peers", "skills")),
    "check": Purpose(".venv", ("checks", "dev", "skills")),
    "all": Purpose(".venv", ("checks", "data", "dev", "peers", "skills")),
    "lowest": Purpose(".venv-lowest", ("dev", "skills"), lowest=True),
    "docs": Purpose(".venv-docs", ("docs",), packages=False),
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
    install(python, requirements(wanted, packages=purpose.packages), lowest=purpose.lowest)
    if "peers" in wanted:
        fetch_schemas(python, environment / "share" / "mcp-schemas")
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


def create(environment: Path, reason: str) -> None:
    """Make an empty environment in place of what may be there."""
    say(f"creating {environment.name}: {reason}")
    if environment.exists():
        if not (environment / "pyvenv.cfg").is_file():
            sys.exit(f"prepare: {environment} is not a virtual environment; move it away")
        shutil.rmtree(environment)
    if uv := find_uv():
        run([uv, "venv", "--quiet", "--python", base_python(), environment])
    else:
        run([base_python(), "-m", "venv", environment])


def content_key(python: Path) -> str:
    """A fingerprint of all that decides what has to be installed."""
    key = hashlib.sha256((output_of(python, VERSION_OF) or "").encode())
    for path in [ROOT / "pyproject.toml", *(package / "pyproject.toml" for package in PACKAGES), Path(__file__)]:
        key.update(path.read_bytes())
    return key.hexdigest()


def requirements(groups: list[str], *, packages: bool) -> list[str]:
    """What the groups ask for, and the packages of the workspace, editable."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    wanted = PACKAGES if packages else []
    editable = [word for package in wanted for word in ("--editable", f"./{package.relative_to(ROOT)}")]
    return editable + [requirement for group in groups for requirement in table[group]]


def install(python: Path, wanted: list[str], *, lowest: bool) -> None:
    """Install with uv, where there is one and it can; else with pip."""
    environment = python.parent.parent
    if lowest:
        constraints = environment / "lowest.txt"
        constraints.write_text("".join(f"{line}\n" for line in lowest_versions()), encoding="utf-8")
        wanted = [*wanted, "--constraint", f"./{constraints.relative_to(ROOT)}"]
    if uv := find_uv():
        say(f"installing into {environment.name} with uv")
        command = [uv, "pip", "install", "--python", python, *wanted]
        with Progress("installing"):
            code = subprocess.run(command, cwd=ROOT, check=False, env=environment_of_uv(uv)).returncode
        if code == 0:
            return
        say("uv could not install them; trying pip")
    say(f"installing into {environment.name} with pip (half a minute to a few minutes, the first time)")
    # Compiling everything ahead takes longer than installing it; what is imported is compiled then, and only that.
    pip_or_exit(python, "install", "--no-compile", *wanted)


def pip_or_exit(python: Path, *words: str | Path) -> None:
    """Run pip in an environment, which may have been made without it. A failure ends everything, and shows what it said."""
    if output_of(python, "import pip") is None:
        run([python, "-m", "ensurepip"])
    code, said = pip(python, *words)
    if code:
        sys.exit(f"{said}prepare: this failed: pip {' '.join(map(str, words))}")


def fetch_schemas(python: Path, folder: Path) -> None:
    """Put the official MCP schemas where the tests find them. They come with the sources of the official SDK."""
    version = output_of(python, "import importlib.metadata as m; print(m.version('mcp'))")
    say(f"fetching the official MCP schemas, from the sources of mcp {version}")
    with tempfile.TemporaryDirectory() as scratch:
        loader = python if output_of(base_python(), "import pip") is None else base_python()
        pip_or_exit(loader, "download", "--no-deps", "--no-binary", "mcp", "--dest", scratch, f"mcp=={version}")
        with tarfile.open(next(Path(scratch).glob("mcp-*.tar.gz"))) as archive:
            schemas = [
                it for it in archive.getmembers() if re.fullmatch(r"[^/]+/schema/\d{4}-\d\d-\d\d\.json", it.name)
            ]
            folder.mkdir(parents=True, exist_ok=True)
            for schema in schemas:
                (folder / Path(schema.name).name).write_bytes(content_of(archive, schema))
    if not schemas:
        sys.exit(f"prepare: the sources of mcp {version} hold no schema/<revision>.json any more")


def content_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The bytes of a file in an archive, which is not extracted: before Python 3.11.4, `extract` has no filters."""
    content = archive.extractfile(member)
    if content is None:
        sys.exit(f"prepare: {member.name} in the sources of mcp is not a file")
    with content:
        return content.read()


def lowest_versions() -> Iterator[str]:
    """Each direct dependency of the packages at the lowest version it allows."""
    for package in PACKAGES:
        project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for requirement in project.get("dependencies", []):
            if bound := LOWER_BOUND.match(requirement):
                yield f"{bound['name']}=={bound['version']}"


def run(command: list[str | Path]) -> None:
    """Run a command at the root, its output shown. A failure ends everything."""
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(f"prepare: this failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
