"""Where a project keeps its things, and what lies inside it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from prowess.errors import SkillError
from prowess.settings.paths import ConfigPaths, find_project_root
from prowess.settings.settings import Settings


def paths(root: Path, environ: dict[str, str] | None = None, platform: str = "linux", **flags: Any) -> ConfigPaths:
    environ = environ or {}
    return ConfigPaths.of(Settings.load(root, environ=environ, flags=flags), environ, platform=platform)


@pytest.mark.parametrize("marker", ["prowess.toml", "pyproject.toml", "skills/"])
def test_the_project_root_is_the_nearest_folder_with_a_mark(tmp_path: Path, marker: str):
    """Settings or a folder of skills make a project; any folder or file below belongs to it."""
    if marker == "skills/":
        (tmp_path / "skills").mkdir()
    else:
        (tmp_path / marker).write_text("[tool.prowess]" if marker == "pyproject.toml" else "")
    below = tmp_path / "skills" / "git"
    below.mkdir(parents=True)
    (below / "log.py").touch()
    assert tmp_path == find_project_root(tmp_path)
    assert tmp_path == find_project_root(below)
    assert tmp_path == find_project_root(below / "log.py")


def test_a_folder_without_marks_above_is_its_own_root(tmp_path: Path):
    """A file named `skills` and a stranger's pyproject.toml are no marks."""
    (tmp_path / "skills").touch()
    (tmp_path / "pyproject.toml").write_text("[tool.other]")
    (tmp_path / "below").mkdir()
    assert tmp_path / "below" == find_project_root(tmp_path / "below")


def test_folders_of_a_project_follow_its_settings(tmp_path: Path):
    """Relative folders count from the root; nothing is created by asking where it would be."""
    (tmp_path / "prowess.toml").touch()
    found = paths(tmp_path, skills=["skills", "/opt/skills"], cache_dir="cache")
    assert tmp_path == found.project_root
    assert tmp_path / "prowess.toml" == found.config_file
    assert (tmp_path / "skills", Path("/opt/skills")) == found.skills_dirs
    assert (tmp_path / "cache", tmp_path / ".prowess") == (found.cache_dir, found.data_dir)
    assert [tmp_path / "prowess.toml"] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "environ, platform, expected",
    [
        ({"PROWESS_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "linux", "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "linux", "/x/prowess"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "darwin", "/x/prowess"),
        ({"XDG_CACHE_HOME": "x", "HOME": "/h"}, "linux", "/h/.cache/prowess"),
        ({"HOME": "/h"}, "linux", "/h/.cache/prowess"),
        ({"HOME": "/h"}, "darwin", "/h/Library/Caches/prowess"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/prowess"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    tmp_path: Path, environ: dict[str, str], platform: str, expected: str
):
    """PROWESS_CACHE_DIR, then XDG_CACHE_HOME (an absolute one), then the platform's own place."""
    assert Path(expected) == paths(tmp_path, environ, platform).cache_dir


def test_a_user_without_a_home_gets_a_cache_in_the_project(tmp_path: Path):
    """Containers run under users that have none."""
    assert tmp_path / ".prowess" / "cache" == paths(tmp_path).cache_dir


def test_folders_are_created_when_they_are_asked_for(tmp_path: Path):
    """Asking twice is fine."""
    found = paths(tmp_path)
    for _ in range(2):
        made = [found.get_cache_dir(), found.get_data_dir(), found.get_log_dir()]
    assert [tmp_path / ".prowess/cache", tmp_path / ".prowess", tmp_path / ".prowess/logs"] == made
    assert all(folder.is_dir() for folder in made)


def test_a_path_inside_the_project_is_resolved(tmp_path: Path):
    """Relative and absolute, existing or not, and through links that stay inside."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = paths(tmp_path)
    assert tmp_path / "a/b.txt" == found.inside("a/../a/b.txt")
    assert tmp_path / "a" == found.inside(tmp_path / "a")
    assert tmp_path / "real/x" == found.inside(Path("link/x"))
    assert tmp_path == found.inside("")


@pytest.mark.parametrize("path", ["..", "a/../../b", "/etc/passwd", "out/x", "out"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str):
    """Also through a link, and also where nothing exists."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(SkillError) as caught:
        paths(root).inside(path)
    assert (
        f"{path!r} leads out of the project; give a path inside {root} (or let the user set allow_outside_root = true)"
        == str(caught.value)
    )


def test_a_sibling_with_the_same_beginning_is_outside(tmp_path: Path):
    """`/project-secrets` is not inside `/project`."""
    with pytest.raises(SkillError):
        paths(tmp_path).inside(f"{tmp_path}-secrets/x")


def test_the_user_may_allow_paths_outside(tmp_path: Path):
    """`allow_outside_root` lifts the refusal, and nothing else."""
    found = paths(tmp_path, allow_outside_root=True)
    assert tmp_path.parent / "x" == found.inside("../x")
    with pytest.raises(SkillError):
        found.inside("a\0b")


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
def test_what_is_no_path_is_refused_in_words(tmp_path: Path, path: str):
    """A model sends odd strings; it reads what was wrong with them."""
    with pytest.raises(SkillError) as caught:
        paths(tmp_path).inside(path)
    assert f"{path!r} is not a usable path" == str(caught.value)


def test_a_link_to_itself_never_leads_out(tmp_path: Path):
    """Python before 3.13 refuses to resolve it, later ones give it as it is."""
    (tmp_path / "loop").symlink_to("loop")
    with contextlib.suppress(SkillError):
        assert tmp_path / "loop" == paths(tmp_path).inside("loop")
