"""Before a host has read any settings, it guesses whether it has served the project before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess_host.catalog.manifest_names import seems_new
from prowess_host.catalog.manifest_path import manifest_path, shape_now


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder.resolve()


def test_project_is_new_until_it_has_a_manifest(root: Path, environ: dict[str, str]):
    """For whatever settings. The cache folder need not exist, and other projects do not count."""
    assert seems_new(str(root), environ)
    settings = Settings.load(root, environ=environ)
    paths = ConfigPaths.of(settings, environ)
    for project in (root.parent / "another", root):
        assert seems_new(str(root), environ)
        path = manifest_path(paths.cache_dir, project, shape_now(settings.own))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert not seems_new(str(root), environ)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("prowess.toml", 'cache_dir = "."'),
        ("pyproject.toml", "[tool.prowess]\ncache_dir = '.'"),
        (".env", "PROWESS_CACHE_DIR=."),
    ],
)
def test_nothing_is_guessed_where_settings_may_name_another_cache_folder(
    file: str, text: str, root: Path, environ: dict[str, str]
):
    """They are read later."""
    (root / file).write_text(text)
    assert not seems_new(str(root), environ)


def test_nothing_is_guessed_where_settings_cannot_be_read_twice(root: Path, environ: dict[str, str]):
    """Programs that keep secrets serve `.env` as a pipe."""
    os.mkfifo(root / ".env")
    assert not seems_new(str(root), environ)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_nothing_is_guessed_where_settings_cannot_be_read(root: Path, environ: dict[str, str]):
    (root / "prowess.toml").touch(0)
    assert not seems_new(str(root), environ)


def test_nothing_is_guessed_without_a_cache_folder_or_a_project(root: Path, environ: dict[str, str]):
    assert not seems_new(str(root), {})
    assert seems_new(str(root), environ, ["names=dotted"])
    assert not seems_new(str(root), environ, ["cache_dir=."])
    assert not seems_new(str(root), {**environ, "PROWESS_CACHE_DIR": "."})
    assert not seems_new(str(root / "missing"), environ)
