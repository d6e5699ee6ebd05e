"""What counts as a change, and that each is acted on once the saving is over."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after

from prowess.paths import ConfigPaths
from prowess.settings import Settings
from prowess_host.watcher import Watcher, look


class Watched:
    """A watcher, and how often it called."""

    def __init__(self, root: Path, imported: dict[str, Any] | None = None) -> None:
        self.root = root
        self.calls = 0
        self._news = asyncio.Event()
        told: dict[str, Any] = {}
        paths = ConfigPaths.of(Settings.load(root, environ={}, flags={}), {})
        self._watcher = Watcher(paths, self._renew, lambda: told)
        self._watcher.start()
        assert self._watcher.ready.wait(10)
        told.update(imported or {})
        self._task = asyncio.ensure_future(self._watcher.run())

    async def _renew(self) -> None:
        self.calls += 1
        self._news.set()

    async def changed(self) -> None:
        with fail_after(10):
            await self._news.wait()
        self._news.clear()

    async def stop(self) -> None:
        self._task.cancel()
        self._watcher.stop()
        await asyncio.gather(self._task, return_exceptions=True)


def stamp(file: Path) -> tuple[int, int, int]:
    state = file.stat()
    return (state.st_mtime_ns, state.st_size, state.st_ino)


CHANGES: list[tuple[str, Callable[[Path], Any]]] = [
    ("skill", lambda root: (root / "skills/a.py").write_text("new")),
    ("deep", lambda root: (root / "skills/b/scripts/c.py").write_text("new")),
    ("instructions", lambda root: (root / "skills/b/SKILL.md").write_text("new")),
    ("settings", lambda root: (root / "prowess.toml").write_text("")),
    ("imported", lambda root: (root / "module.py").write_text("new")),
    ("touched", lambda root: os.utime(root / "skills/a.py", (1, 1))),
    ("deleted", lambda root: (root / "skills/a.py").unlink()),
    ("folder", lambda root: (root / "skills/b").rename(root / "skills/c")),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "skills/b/scripts").mkdir(parents=True)
    (tmp_path / "skills/a.py").write_text("a")
    (tmp_path / "skills/b/scripts/c.py").write_text("c")
    (tmp_path / "module.py").write_text("m")
    return tmp_path


@pytest.mark.parametrize("change", [row[1] for row in CHANGES], ids=[row[0] for row in CHANGES])
async def test_what_matters_is_acted_on(root: Path, change: Callable[[Path], Any]):
    watched = Watched(root, {str(root / "module.py"): stamp(root / "module.py")})
    change(root)
    await watched.changed()
    await watched.stop()
    assert 1 == watched.calls


async def test_a_change_before_anybody_watched_is_noticed(root: Path):
    """What was imported may be old by the time it is told."""
    watched = Watched(root, {str(root / "module.py"): (0, 0, 1)})
    await watched.changed()
    await watched.stop()


async def test_without_notices_looking_is_enough(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A build without the extension, or a system that has no more watches to give."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    watched = Watched(root)
    (root / "skills/a.py").write_text("new")
    await watched.changed()
    await watched.stop()


def test_what_does_not_matter_is_not_looked_at(root: Path):
    """Data beside the code, caches, hidden files."""
    (root / "skills/__pycache__").mkdir()
    (root / "skills/.hidden").mkdir()
    for name in ("state.json", "__pycache__/a.py", ".hidden/a.py", "notes.md"):
        (root / "skills" / name).touch()
    seen = look(root, [root / "skills", root / "none"], [])
    assert {"a.py", "c.py", "prowess.toml", "pyproject.toml"} == {Path(path).name for path in seen}


def test_a_link_that_leads_in_a_circle_ends(root: Path):
    (root / "skills/b/again").symlink_to(root / "skills")
    assert len(look(root, [root / "skills"], [])) < 500
