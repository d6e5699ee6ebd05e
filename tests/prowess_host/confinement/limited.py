"""Runs programs under limits, as a worker is run, without the host."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

from prowess.settings.limits import Limits
from prowess_host.confinement.confine import Confinement, System, system
from prowess_host.confinement.grants import Grant

ATTACKS = Path(__file__).with_name("attacks.py")


def run(
    limits: Limits | None,
    root: Path,
    code: str,
    *args: str,
    on: System | None = None,
    before: Sequence[str] = (),
    passed: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a text of Python as the skill of a project would be run; without limits, as it is."""
    (root / "skills").mkdir(parents=True, exist_ok=True)
    file = root / "skills" / "hostile.py"
    file.write_text(code)
    command = [*before, sys.executable, "-P", str(file), *args]
    if limits is None:
        free = root.parent / "free"
        free.mkdir(exist_ok=True)
        return _run(command, root, {**os.environ, "TMPDIR": str(free)}, passed)
    confinement = Confinement(Grant("hostile", limits, root, (file,), (root / "skills",)), on=on or system())
    try:
        environ = confinement.environment({**os.environ, "NAMED": "n", "SECRET": "s"})
        return _run(confinement.command(command, sys.executable), root, environ, (*passed, *confinement.inherited))
    finally:
        confinement.close()


def _run(
    command: list[str], root: Path, environ: dict[str, str], passed: Sequence[int]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=root, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False, pass_fds=passed
    )


@contextlib.contextmanager
def targets(base: Path) -> Iterator[dict[str, Any]]:
    """What the attacks are aimed at: files, sockets, and another process of the same user."""
    outside = base / "outside"
    outside.mkdir(parents=True)
    (base / "project").mkdir()
    (base / "project" / ".env").write_text("KEY=secret")
    (base / "project" / "prowess.toml").write_text("")
    for name in ("secret", "old", "removable"):
        (outside / name).write_text(name)
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(outside / "secret", "user.note", b"private")
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        tag = f"\0prowess-{os.getpid()}-{id(stack)}"
        folder = stack.enter_context(_short_folder())
        named.bind(f"{folder}/n")
        named.listen()
        abstract.bind(tag)
        abstract.listen()
        datagrams.bind(f"{folder}/d")
        nothing = stack.enter_context(Path(os.devnull).open("rb"))
        victim = subprocess.Popen(
            ["sleep", str(PATIENCE * 4)], stdin=nothing, env={**os.environ, "OF": "victim"}, start_new_session=True
        )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        descriptor = os.open(outside / "secret", os.O_RDONLY)
        stack.callback(os.close, descriptor)
        yield {
            "outside": str(outside),
            "victim": victim.pid,
            "port": tcp.getsockname()[1],
            "unix": f"{folder}/n",
            "abstract": tag,
            "datagrams": f"{folder}/d",
            "descriptor": descriptor,
        }


@contextlib.contextmanager
def _short_folder() -> Iterator[str]:
    """The name of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="p") as folder:
        yield folder


def attack(
    limits: Limits | None, base: Path, *, on: System | None = None, before: Sequence[str] = ()
) -> dict[str, str]:
    """What became of each attack."""
    with targets(base) as where:
        passed = [where["descriptor"]]
        done = run(
            limits, base / "project", ATTACKS.read_text(), json.dumps(where), on=on, before=before, passed=passed
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found
