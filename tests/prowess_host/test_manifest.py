"""Manifests: believed as far as nothing has changed, and never wrong."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from prowess import Runtime
from prowess.description import environment_of
from prowess.settings import OwnSettings
from prowess_host.manifest import NOTHING, Manifest, Standing, manifest_path, read_manifest, shape_of, write_manifest

SHAPE = "shape"
COMMAND = "from prowess import skill_command\n@skill_command\ndef run(): ...\n"
HOOKS = "from prowess import hookimpl\n@hookimpl\ndef prowess_render(value): ...\n"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, "utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "skills/one.py", COMMAND)
    write(tmp_path, "skills/two.py", "from . import _part\nimport lib\n" + COMMAND)
    write(tmp_path, "skills/_part.py", "")
    write(tmp_path, "skills/folder/main.py", "try:\n    from . import extra\nexcept ImportError: ...\n" + COMMAND)
    write(tmp_path, "skills/plain.py", "")
    write(tmp_path, "lib.py", "")
    return tmp_path


def made(root: Path) -> Manifest:
    """Of files that are older than the grain of their times: younger ones are looked at again on principle."""
    newest = max(path.stat().st_ctime_ns for path in root.rglob("*"))
    while time.time_ns() - newest < 50_000_000:
        time.sleep(0.001)
    sys.path.append(str(root))
    runtime = Runtime(root)
    try:
        return Manifest(runtime.describe(), SHAPE)
    finally:
        runtime.close()
        sys.path.remove(str(root))
        sys.modules.pop("lib", None)


ALL = frozenset({"one", "two", "folder"})


def test_nothing_changed(root: Path) -> None:
    """Everything is known, and that is all there is."""
    assert Standing(ALL, complete=True) == made(root).standing(SHAPE)


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        (lambda root: write(root, "skills/one.py", COMMAND + "#"), {"one"}),
        (lambda root: write(root, "skills/_part.py", "#"), {"two"}),
        (lambda root: write(root, "lib.py", "#"), {"two"}),
        (lambda root: write(root, "skills/folder/extra.py", ""), {"folder"}),
        (lambda root: write(root, "skills/folder/more.py", COMMAND), {"folder"}),
        (lambda root: (root / "skills/one.py").unlink(), {"one"}),
        (lambda root: (root / "skills/one.py").rename(root / "skills/uno.py"), {"one"}),
        (lambda root: write(root, "skills/one/main.py", COMMAND), {"one"}),
        (lambda root: write(root, "skills/three.py", COMMAND), set()),
        (lambda root: write(root, "skills/plain.py", COMMAND), set()),
    ],
    ids=["edit", "helper", "project module", "missing", "in folder", "delete", "rename", "same name", "add", "becomes"],
)
def test_only_what_changed_is_stale(root: Path, change: Callable[[Path], object], stale: set[str]) -> None:
    """Every other skill stays known."""
    manifest = made(root)
    change(root)
    assert Standing(ALL - stale, complete=False) == manifest.standing(SHAPE)


def test_saving_as_it_was_changes_nothing(root: Path) -> None:
    """The content decides."""
    manifest = made(root)
    write(root, "skills/one.py", COMMAND)
    assert manifest.standing(SHAPE).complete


def test_edit_of_the_same_size_and_time_is_seen(root: Path) -> None:
    """Within the grain of the clock nothing is believed."""
    manifest = made(root)
    before = (root / "skills/one.py").stat()
    write(root, "skills/one.py", COMMAND.replace("run", "ran"))
    os.utime(root / "skills/one.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Standing(ALL - {"one"}, complete=False) == manifest.standing(SHAPE)


def test_changed_hook_shapes_everything(root: Path) -> None:
    """What it does to others nobody can know."""
    write(root, "skills/plug.py", HOOKS)
    manifest = made(root)
    assert manifest.standing(SHAPE).complete
    write(root, "skills/plug.py", HOOKS + "#")
    assert Standing(frozenset(), complete=False) == manifest.standing(SHAPE)


def elsewhere(manifest: Manifest, interpreter: str, site: Path) -> Manifest:
    """The same, made with another interpreter and other packages."""
    environment = environment_of(interpreter, (str(site),))
    description = replace(manifest.description, interpreter=interpreter, sites=(str(site),), environment=environment)
    return Manifest(description, SHAPE)


def test_other_settings_interpreter_or_packages_make_everything_stale(root: Path, tmp_path: Path) -> None:
    """They may shape any contract."""
    manifest = made(root)
    assert not manifest.standing("other").known
    site = tmp_path / "site"
    site.mkdir()
    changed = elsewhere(manifest, sys.executable, site)
    assert changed.standing(SHAPE).complete
    (site / "new-1.0.dist-info").mkdir()
    assert not changed.standing(SHAPE).known
    gone = elsewhere(manifest, str(tmp_path / "python"), site)
    assert gone.standing(SHAPE).complete
    (tmp_path / "python").touch()
    assert not gone.standing(SHAPE).known


def test_dynamic_import_that_changes_makes_everything_stale(root: Path) -> None:
    """Nobody can see which skills it came by."""
    manifest = made(root)
    (root / "late.py").touch()
    imported = {**manifest.description.imported, str(root / "late.py"): (1, 2, 3)}
    assert NOTHING == Manifest(replace(manifest.description, imported=imported), SHAPE).standing(SHAPE)
    (root / "late.py").unlink()
    assert NOTHING == Manifest(replace(manifest.description, imported=imported), SHAPE).standing(SHAPE)


def test_shape_is_made_of_what_shapes_a_catalog() -> None:
    """And of no secret."""
    own = OwnSettings()
    assert shape_of(own, "python") == shape_of(replace(own, timeout=1), "python")
    different = [
        shape_of(replace(own, names="dotted"), "python"),
        shape_of(replace(own, wire_names={"a.b": "c"}), "python"),
        shape_of(own, "other"),
        shape_of(own, "python", "elsewhere"),
    ]
    assert 5 == len({shape_of(own, "python"), *different})


def test_manifest_is_read_as_it_was_written(root: Path) -> None:
    """Contracts and all."""
    path = manifest_path(root / "cache", root, SHAPE)
    manifest = made(root)
    assert write_manifest(path, manifest)
    assert manifest == read_manifest(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"run", b"ran", 1),
        lambda data: b"\xff" * 100,
        lambda data: b'{"form": 1}',
        lambda data: data + b"x",
    ],
    ids=["empty", "truncated", "altered", "garbage", "without checksum", "longer"],
)
def test_damaged_manifest_is_none(root: Path, damage: Callable[[bytes], bytes]) -> None:
    """It is described anew, as if there had been none."""
    path = manifest_path(root / "cache", root, SHAPE)
    write_manifest(path, made(root))
    path.write_bytes(damage(path.read_bytes()))
    assert read_manifest(path) is None


@pytest.mark.parametrize("text", ["[]", "5", '{"form": 2}', '{"form": 1}', '{"form": 1, "description": {"skills": 5}}'])
def test_foreign_manifest_is_none(tmp_path: Path, text: str) -> None:
    """Also one that is whole."""
    from hashlib import sha256

    path = tmp_path / "m.json"
    path.write_text(f"{sha256(text.encode()).hexdigest()}\n{text}", "utf-8")
    assert read_manifest(path) is None
    assert read_manifest(tmp_path / "none.json") is None


def test_place_that_cannot_be_written_is_no_fault(root: Path, tmp_path: Path) -> None:
    """The host starts without a manifest next time."""
    (tmp_path / "file").touch()
    manifest = made(root)
    assert not write_manifest(tmp_path / "file" / "manifests" / "m.json", manifest)
    (tmp_path / "m.json").mkdir()
    assert not write_manifest(tmp_path / "m.json", manifest)
    assert [] == list(tmp_path.glob("m*.json?*"))


def test_writers_at_once_leave_a_whole_manifest(root: Path) -> None:
    """Whoever comes last wins, and readers never see half of one."""
    path = manifest_path(root / "cache", root, SHAPE)
    manifest = made(root)
    write_manifest(path, manifest)
    torn: list[bool] = []

    def read() -> None:
        torn.extend(read_manifest(path) != manifest for _ in range(20))

    threads = [threading.Thread(target=write_manifest, args=(path, manifest)) for _ in range(8)]
    threads += [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(torn)
    assert [path] == list(path.parent.iterdir())


def test_writing_sweeps_up_what_others_have_left(root: Path) -> None:
    """What is old enough; nothing else is touched."""
    path = manifest_path(root / "cache", root, SHAPE)
    path.parent.mkdir(parents=True)
    ages = {"old.json": 91 * 86400, "young.json": 80 * 86400, "old.0123": 7200, "young.0123": 60}
    for name, age in ages.items():
        (path.parent / name).touch()
        os.utime(path.parent / name, (time.time() - age,) * 2)
    assert write_manifest(path, made(root))
    assert {path.name, "young.json", "young.0123"} == {entry.name for entry in path.parent.iterdir()}
