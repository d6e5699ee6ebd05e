"""What the operating system knows of the processes under soak: memory, descriptors, children, who is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MARK", "Health", "Journal", "health", "of_mark", "workers"]

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
    children = [_state(child) for child in _children(pid)]
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


def of_mark(mark: str) -> dict[int, str]:
    """All processes that come from a host, by the variable they inherit: how they were started."""
    wanted = f"{MARK}={mark}\0".encode()
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes():
                    found[int(folder.name)] = _command(int(folder.name)).replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def _number(text: str) -> int:
    return int(text.split(maxsplit=1)[0])


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
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


class Journal:
    """What has begun in the workers of one host, as they wrote it down themselves."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self.began: dict[str, int] = {}
        """Where each call that is not settled runs, or ran."""
        self.killers: set[int] = set()
        """Workers that something happened to which costs them their life, at once or soon."""
        self.twice: list[str] = []
        self._times = bytearray()
        self._rest = b""

    def read(self) -> None:
        """Read on. All that has begun by now is there."""
        for token, pid, kind in self._entries():
            if kind == "kills":
                self.killers.add(pid)
            if token == "-":
                continue
            self.began[token] = pid
            if kind != "asks" and not self._is_first(int(token.rpartition("-")[2])):
                self.twice.append(token)

    def _entries(self) -> Iterator[tuple[str, int, str]]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            token, pid, kind = line.decode().split()
            yield token, int(pid), kind

    def _is_first(self, number: int) -> bool:
        if number >= len(self._times):
            self._times.extend(bytes(number - len(self._times) + 4096))
        self._times[number] += 1
        return self._times[number] == 1

    def close(self) -> None:
        self._file.close()
