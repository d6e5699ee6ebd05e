"""Finds uv or fetches it, runs pip, and tells the person who waits what they are at. Standard library only.

uv makes an environment in seconds where pip takes a minute. Where there is none on PATH, pip fetches it from the package
index into `.cache/`, and hands it its settings, since it knows where packages come from. Where that fails, pip does it all.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
OUR_UV = ROOT / ".cache" / "uv"
PIP_STEP = re.compile(r"\s*((Collecting|Downloading|Building|Installing) [^:(]+)")
PIP_SETTING = re.compile(r"(?P<source>global|install|:env:)\.(?P<key>[a-z-]+)=(?P<value>.*)")
SECONDS_BETWEEN_LINES = 5
SETTINGS_OF_UV = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
"""How uv calls what pip is told about indexes, and what stands between two values there."""


@functools.cache
def find_uv() -> Path | None:
    """The uv on PATH, else one of our own; `None` where none can be had."""
    if found := shutil.which("uv"):
        return Path(found)
    uv = OUR_UV / "bin" / "uv"
    if runs(uv):
        return uv
    python = base_python()
    if output_of(python, "import pip") is None:
        return None
    say("fetching uv, which installs in seconds what takes pip a minute")
    shutil.rmtree(OUR_UV, ignore_errors=True)
    code, _ = pip(python, "install", "--only-binary", ":all:", "--no-compile", "--target", OUR_UV, "uv>=0.8")
    if code or not runs(uv):
        say("uv cannot be had: pip installs everything")
        return None
    return uv


def runs(program: Path) -> bool:
    """Whether a program is there and starts here."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def environment_of_uv(uv: Path) -> dict[str, str]:
    """The variables that uv starts with: a uv of our own gets the indexes of pip, one from PATH has settings of its own."""
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    if uv.is_relative_to(OUR_UV):
        environment["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # all indexes count alike, as with pip
        environment |= {name: value for name, value in pip_settings().items() if name not in os.environ}
    cache = Path(environment.get("UV_CACHE_DIR") or environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = next(it for it in (cache, *cache.parents) if it.exists())
    if cache.stat().st_dev != ROOT.stat().st_dev:
        environment.setdefault("UV_LINK_MODE", "copy")  # no hard link leads to another disk; uv would warn of that
    return environment


def pip_settings() -> dict[str, str]:
    """What pip is configured to, in uv's words. A variable of the environment beats a file."""
    command = [base_python(), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    matches = [match for line in listed.splitlines() if (match := PIP_SETTING.fullmatch(line))]
    found: dict[str, str] = {}
    for match in sorted(matches, key=lambda it: ("global", "install", ":env:").index(it["source"])):
        if match["key"] in SETTINGS_OF_UV:
            name, separator = SETTINGS_OF_UV[match["key"]]
            found[name] = separator.join(str(ast.literal_eval(match["value"])).split())
    return found


def pip(python: Path, *words: str | Path) -> tuple[int, str]:
    """Run pip; gives its exit code and what it said. Whoever waits sees which package it is at."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    said: list[str] = []
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with process, Progress() as progress:
        for line in process.stdout or ():
            said.append(line)
            if step := PIP_STEP.match(line):
                progress.show(step[1].strip().lower())
    return process.returncode, "".join(said)


def base_python() -> Path:
    """The interpreter that runs this, outside of any virtual environment."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable)


def output_of(python: Path, code: str) -> str | None:
    """What the code prints, or `None` where it cannot run."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


class Progress:
    """Shows what is going on: on one line that is written over, or in a line every few seconds where that is no terminal."""

    def __init__(self, step: str = "working") -> None:
        self.began = time.monotonic()
        self.step = step
        self.over = threading.Event()

    def __enter__(self) -> Self:
        if not sys.stdout.isatty():
            threading.Thread(target=self.tell, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if sys.stdout.isatty():
            print("\r\033[K", end="", flush=True)

    def show(self, step: str) -> None:
        self.step = step
        if sys.stdout.isatty():
            print(f"\r\033[K{step[:76]}", end="", flush=True)

    def tell(self) -> None:
        while not self.over.wait(SECONDS_BETWEEN_LINES):
            say(f"{self.step} ({time.monotonic() - self.began:.0f} s)")


def say(text: str) -> None:
    """Tell the person waiting what takes so long."""
    print(f"prepare: {text}", flush=True)
