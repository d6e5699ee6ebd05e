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
from prowess.settings.keys import OwnSettings
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.skills.description import environment_of
from prowess.skills.stamps import Stamp
from prowess_host.catalog.cache import _mark
from prowess_host.catalog.manifest import NOTHING, Manifest, Standing, read_manifest, write_manifest
from prowess_host.catalog.manifest_path import is_known, manifest_path, shape_now, shape_of

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
    imported = {**manifest.description.imported, str(root / "late.py"): Stamp(1, 2, 3, 4)}
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
        shape_of(replace(own, inject=replace(own.inject, container="shop:Container")), "python"),
        shape_of(own, "other"),
        shape_of(own, "python", "elsewhere"),
    ]
    assert 6 == len({shape_of(own, "python"), *different})


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
    assert {path.name, "CACHEDIR.TAG"} == {entry.name for entry in path.parent.iterdir()}


def test_folder_that_another_host_marks_meanwhile_is_ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have just started, and this one gets no processor for a moment."""
    path, is_there = manifest_path(root / "cache", root, SHAPE), os.path.lexists

    def marked_after(place: Path) -> bool:
        found = is_there(place)
        if not found and place.name == "CACHEDIR.TAG":
            _mark(place.parent)
        return found

    monkeypatch.setattr(os.path, "lexists", marked_after)
    assert write_manifest(path, made(root))
    assert path == manifest_path(root / "cache", root, SHAPE)


OURS = b"0" * 64 + b'\n{"form": 1}'
DRAFT = f"{'a' * 24}.{'b' * 16}"


def aged(path: Path, days: float, content: bytes = OURS) -> Path:
    path.write_bytes(content)
    os.utime(path, (time.time() - days * 86400,) * 2)
    return path


def test_writing_sweeps_up_what_hosts_have_left(root: Path) -> None:
    """What is old enough, has a name that a host gives, and begins as a host begins."""
    path = manifest_path(root / "cache", root, SHAPE)
    manifest = made(root)
    assert write_manifest(path, manifest)
    folder = path.parent
    gone = [
        aged(folder / f"{'a' * 24}.json", 91),
        aged(folder / DRAFT, 1),
        aged(folder / f"{'b' * 24}.{'b' * 16}", 1, b""),
        aged(folder / f"{'c' * 24}.{'b' * 16}", 1, OURS[:20]),
    ]
    kept = [
        aged(folder / f"{'d' * 24}.json", 80),
        aged(folder / f"{'d' * 24}.{'b' * 16}", 0.01),
        aged(folder / f"{'e' * 24}.json", 400, b'{"mine": true}'),
        aged(folder / f"{'e' * 24}.{'b' * 16}", 400, b"mine, and longer than what one could take for a torn draft" * 3),
        aged(folder / "deployment.yaml", 400),
        aged(folder / "old.json", 400),
        aged(folder / "old.0123", 400),
    ]
    (folder / f"{'f' * 24}.json").mkdir()
    os.mkfifo(folder / f"{'f' * 24}.{'b' * 16}")
    assert write_manifest(path, manifest)
    assert [] == [file for file in gone if file.exists()]
    assert [] == [file for file in kept if not file.exists()]
    assert (folder / f"{'f' * 24}.json").is_dir()


def test_link_is_never_followed_by_the_sweep(root: Path) -> None:
    """Neither a link among the manifests nor one in the place of their folder."""
    path = manifest_path(root / "cache", root, SHAPE)
    manifest = made(root)
    write_manifest(path, manifest)
    outside = root / "outside"
    outside.mkdir()
    aged(outside / f"{'a' * 24}.json", 400)
    (path.parent / f"{'c' * 24}.json").symlink_to(outside / f"{'a' * 24}.json")
    assert write_manifest(path, manifest)
    (root / "other").mkdir()
    (root / "other/manifests").symlink_to(outside)
    elsewhere = manifest_path(root / "other", root, SHAPE)
    assert write_manifest(elsewhere, manifest)
    assert "prowess-manifests" == elsewhere.parent.name
    assert [f"{'a' * 24}.json"] == [entry.name for entry in outside.iterdir()]


def test_folder_of_the_user_is_left_alone(root: Path) -> None:
    """Its name may be ours; the manifest goes to another one, and is found there."""
    (root / "manifests").mkdir()
    aged(root / "manifests/web.yaml", 400)
    aged(root / "manifests/old.json", 400)
    before = {file: file.read_bytes() for file in (root / "manifests").iterdir()}
    manifest = made(root)
    for _ in range(2):
        path = manifest_path(root, root, SHAPE)
        assert root / "prowess-manifests" == path.parent
        assert write_manifest(path, manifest)
        assert manifest == read_manifest(manifest_path(root, root, SHAPE))
    assert before == {file: file.read_bytes() for file in (root / "manifests").iterdir()}


def test_folder_that_turns_out_to_be_somebodys_takes_no_manifest(root: Path) -> None:
    """Where even the second name is taken, the next start describes again."""
    for name in ("manifests", "prowess-manifests"):
        (root / name).mkdir()
        (root / name / "mine").touch()
    manifest = made(root)
    assert not write_manifest(manifest_path(root, root, SHAPE), manifest)
    assert ["mine"] == [file.name for file in (root / "prowess-manifests").iterdir()]


def test_folder_without_a_mark_that_holds_only_manifests_is_ours(root: Path) -> None:
    """An earlier release did not mark it, and a host may be killed before it does."""
    (root / "cache/manifests").mkdir(parents=True)
    gone = aged(root / "cache/manifests" / f"{'a' * 24}.json", 91)
    path = manifest_path(root / "cache", root, SHAPE)
    assert write_manifest(path, made(root))
    assert (root / "cache/manifests", False) == (path.parent, gone.exists())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_manifest_of_another_user_is_not_believed(root: Path) -> None:
    """Its descriptions would be shown to a model."""
    path = manifest_path(root / "cache", root, SHAPE)
    write_manifest(path, made(root))
    os.chown(path, 12345, -1)
    assert read_manifest(path) is None
    os.chown(path.parent / "CACHEDIR.TAG", 12345, -1)
    assert "prowess-manifests" == manifest_path(root / "cache", root, SHAPE).parent.name


def test_a_project_is_known_when_it_has_a_manifest_for_its_settings(root: Path) -> None:
    """Whether or not that still holds."""

    def settings(**flags: str) -> Settings:
        return Settings.load(root, environ={}, flags={"cache_dir": "cache", **flags})

    own = settings().own
    paths = ConfigPaths.of(settings(), {})
    assert not is_known(paths, own)
    path = manifest_path(paths.cache_dir, paths.project_root, shape_now(own))
    assert write_manifest(path, made(root))
    assert is_known(paths, own)
    assert not is_known(paths, settings(names="dotted").own)
