"""The health of the processes under soak, by what the operating system knows: memory, descriptors, children, who is left."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MARK", "Health", "health", "of_mark", "workers"]

MARK = "SOAK_MARK"


@dataclass(frozen=True, slots=True)
class Health:
    """One look at a host. Sizes are in KiB."""

    own: int
    """What no file stands behind. Unlike PSS it does not depend on who else runs the same Python."""
    pss: int
    descriptors: int
    threads: int
    zombies: int
    children: int
    """Without those that a skill has left behind and that call themselves `sleep`."""

    def __str__(self) -> str:
        return (
            f"{self.own / 1024:.1f} MB ({self.pss / 1024:.1f} PSS), {self.descriptors} fds, {self.threads} threads, "
            f"{self.children} children"
        )


def health(pid: int) -> Health:
    """How a process is."""
    place = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    rollup = (place / "smaps_rollup").read_text().splitlines()[1:]
    memory = dict(line.split(":", 1) for line in rollup)
    children = [_state(child) for child in _children(pid) if not _command(child).startswith(b"sleep")]
    return Health(
        _number(status["RssAnon"]),
        _number(memory["Pss"]),
        len(list((place / "fd").iterdir())),
        _number(status["Threads"]),
        children.count("Z"),
        len(children),
    )


def workers(pid: int) -> list[int]:
    """The workers of a host."""
    return [child for child in _children(pid) if b"prowess.worker" in _command(child)]


def of_mark(mark: str, *, bare: bool = True) -> dict[int, str]:
    """All processes that come from a host, by the variable or the argument they inherited: how they were started.

    Those with the argument alone, which have no environment, only if `bare`.
    """
    wanted, tag = f"{MARK}={mark}\0".encode(), str(int(mark, 16)).encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                command = _command(int(folder.name))
                if wanted in (folder / "environ").read_bytes() or (bare and tag in command):
                    found[int(folder.name)] = command.replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def _number(text: str) -> int:
    return int(text.split(maxsplit=1)[0])


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                own = Path(f"/proc/{task.name}/task/{task.name}/children")  # as the host does, and for its reason
                found += map(int, own.read_text().split())
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return "gone"


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
