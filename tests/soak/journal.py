"""What the workers of one host have begun, as they wrote it down themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["Journal"]


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
