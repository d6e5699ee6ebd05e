"""What counts as a change, and that each is acted on once the saving is over."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import until

from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.skills.stamps import Stamp, stamp
from prowess_host.catalog import watcher
from prowess_host.catalog.watcher import Sight, Watcher, look


class Watched:
    """A watcher, and how often it called."""

    def __init__(self, root: Path, imported: dict[str, Any] | None = None) -> None:
        self.root = root
        self.calls = 0
        self.noticed: set[str] = set()
        self._news = asyncio.Event()
        told: dict[str, Any] = {}
        paths = ConfigPaths.of(Settings.load(root, environ={}, flags={}), {})
        self._watcher = Watcher(paths, self._renew, lambda: told, self.noticed.update)
        self._watcher.start()
        assert self._watcher.ready.wait(PATIENCE)
        told.update(imported or {})
        self._task = asyncio.ensure_future(self._watcher.run())

    async def _renew(self) -> None:
        self.calls += 1
        self._news.set()

    async def changed(self) -> None:
        with fail_after(PATIENCE):
            await self._news.wait()
        self._news.clear()

    async def stop(self) -> None:
        self._task.cancel()
        self._watcher.stop()
        await asyncio.gather(self._task, return_exceptions=True)


CHANGES: list[tuple[str, Callable[[Path], Any]]] = [
    ("skill", lambda root: (root / "skills/a.py").write_text("new")),
    ("deep", lambda root: (root / "skills/b/scripts/c.py").write_text("new")),
    ("instructions", lambda root: (root / "skills/b/SKILL.md").write_text("new")),
    ("settings", lambda root: (root / "prowess.toml").write_text("")),
    ("dotenv", lambda root: (root / ".env").write_text("")),
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
    watched = Watched(root, {str(root / "module.py"): stamp(str(root / "module.py"))})
    change(root)
    await watched.changed()
    await watched.stop()
    assert 1 == watched.calls


async def test_a_change_before_anybody_watched_is_noticed(root: Path):
    """What was imported may be old by the time it is told."""
    watched = Watched(root, {str(root / "module.py"): Stamp(0, 0, 1, 0)})
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
    seen = look([root / "prowess.toml", root / ".env"], [root / "skills", root / "none"], [])
    assert {"a.py", "c.py", "prowess.toml", ".env"} == {Path(path).name for path in seen}


def test_a_link_that_leads_in_a_circle_ends(root: Path):
    (root / "skills/b/again").symlink_to(root / "skills")
    assert len(look([], [root / "skills"], [])) < 500


async def test_without_watches_polling_goes_on_and_that_is_said(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The system has a limit of watches. A generator that has failed comes back at once: it is not asked again."""
    asked: list[int] = []

    def refusing(*_folders: str, **_options: object) -> Iterator[set[object]]:
        asked.append(1)
        raise OSError(errno.ENOSPC, "OS file watch limit reached")
        yield set()

    monkeypatch.setattr("watchfiles.watch", refusing)
    watched = Watched(root)
    for text in ("new", "newer"):
        (root / "skills/a.py").write_text(text)
        await watched.changed()
    await watched.stop()
    assert 1 == len(asked)
    (warning,) = (record.getMessage() for record in caplog.records if "polling" in record.getMessage())
    assert "fs.inotify.max_user_watches" in warning


async def test_a_folder_that_comes_later_is_watched(root: Path):
    """And one that takes the place of another."""
    watched = Watched(root)
    (root / "skills/new").mkdir()
    (root / "skills/new/c.py").write_text("new")
    await watched.changed()
    (root / "skills/new").rename(root / "old")
    (root / "skills/new").mkdir()
    (root / "skills/new/c.py").write_text("newer")
    await watched.changed()
    await watched.stop()


@pytest.mark.parametrize("mishap", ["pause", "error"])
async def test_what_befalls_one_poll_hides_no_later_save(root: Path, monkeypatch: pytest.MonkeyPatch, mishap: str):
    """A pause of the whole process, like that of a closed lid, makes no poll expensive; an error of ours is logged."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setattr(watcher, "_PAUSE", 0.01)
    monkeypatch.setattr(watcher, "_SHARE", 1000)
    sight, befallen = watcher._sight, threading.Event()

    def mishandled(*asked: Any) -> Sight:
        seen = sight(*asked)
        if watched and not befallen.is_set():
            if mishap == "pause":
                time.sleep(0.5)
            befallen.set()
            if mishap == "error":
                raise RuntimeError("a mishap")
        return seen

    watched: list[Watched] = []
    monkeypatch.setattr(watcher, "_sight", mishandled)
    watched.append(Watched(root))
    await until(befallen.is_set)
    (root / "skills/a.py").write_text("new")
    await watched[0].changed()
    await watched[0].stop()


async def test_a_process_that_can_open_no_files_says_so_and_catches_up(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Folders that cannot be listed are not empty: no save is lost, and none seems to be one."""
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setattr(watcher, "_PAUSE", 0.01)
    watched, limits = Watched(root), resource.getrlimit(resource.RLIMIT_NOFILE)
    file = os.open(root / "skills/a.py", os.O_WRONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        await until(lambda: "saves are not noticed at the moment: [Errno 24]" in caplog.text)
        os.write(file, b"newer")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(file)
    await watched.changed()
    await watched.stop()
    assert {str(root / "skills/a.py")} == watched.noticed
    assert 1 == caplog.text.count("`ulimit -n`")


async def test_after_a_first_look_that_failed_everything_counts_as_changed(root: Path, monkeypatch: pytest.MonkeyPatch):
    """What was saved before the next one is not known."""
    below, mishaps = watcher._below, [OSError(errno.EIO, "a mishap")]

    def listed(folders: Any) -> Any:
        if mishaps:
            raise mishaps.pop()
        return below(folders)

    monkeypatch.setattr(watcher, "_below", listed)
    watched = Watched(root)
    await watched.changed()
    await watched.stop()
    assert str(root / "skills/a.py") in watched.noticed
