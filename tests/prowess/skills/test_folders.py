"""Trees with links in them: every folder once, nothing above, and an end in every case."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import cast

import pytest

from prowess.skills import folders as tree
from prowess.skills.discovery import survey
from prowess.skills.folders import walk


def everything(_path: str) -> bool:
    return True


def paths(top: Path) -> list[str]:
    """The folders of a tree, relative to its top."""
    return [os.path.relpath(folder.path, top) for folder in walk(str(top), everything).folders]


def test_every_folder_is_found_with_what_lies_in_it(tmp_path: Path) -> None:
    """In the order of names; files are whatever is no folder."""
    (tmp_path / "b/c").mkdir(parents=True)
    (tmp_path / "b/f.py").touch()
    (tmp_path / "b/a.py").touch()
    os.mkfifo(tmp_path / "b/pipe.py")
    (tmp_path / "b/nowhere.py").symlink_to("none")
    found = walk(str(tmp_path), everything)
    assert {".", "b", "b/c"} == set(paths(tmp_path))
    assert found.whole
    (folder,) = (folder for folder in found.folders if folder.path.endswith("/b"))
    assert ("a.py", "f.py", "nowhere.py", "pipe.py") == folder.files


def test_links_that_lead_up_are_left_out(tmp_path: Path) -> None:
    """To the folder itself, to those above, and to the root of everything."""
    (tmp_path / "skills/a").mkdir(parents=True)
    for number in range(3):
        (tmp_path / f"skills/a/up{number}").symlink_to("..")
    (tmp_path / "skills/a/project").symlink_to(tmp_path)
    (tmp_path / "skills/a/everything").symlink_to("/")
    (tmp_path / "skills/a/self").symlink_to(".")
    assert [".", "a"] == paths(tmp_path / "skills")


def test_folders_that_link_to_each_other_are_found_once(tmp_path: Path) -> None:
    """However many ways there are between them, and under their own names."""
    names = [f"n{number}" for number in range(12)]
    for name in names:
        (tmp_path / name).mkdir()
        for other in names:
            (tmp_path / name / f"to_{other}").symlink_to(tmp_path / other)
    assert {".", *names} == set(paths(tmp_path))


def test_link_to_a_folder_elsewhere_is_followed_once(tmp_path: Path) -> None:
    """Also where two links lead there, or the folder there leads back."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "back").symlink_to(tmp_path / "skills")
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/one").symlink_to(elsewhere)
    (tmp_path / "skills/two").symlink_to(elsewhere)
    assert [".", "one"] == paths(tmp_path / "skills")


def test_very_large_and_very_deep_trees_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that is said."""
    deep = tmp_path / "deep"
    deep.joinpath(*["d"] * 70).mkdir(parents=True)
    assert 65 == len(walk(str(deep), everything).folders)
    assert not walk(str(deep), everything).whole
    monkeypatch.setattr(tree, "_MOST", 10)
    assert 10 == len(walk(str(deep), everything).folders)


def test_what_cannot_be_looked_at_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has gone, and a link of which one may not know where it leads."""
    assert () == walk(str(tmp_path / "none"), everything).folders
    (tmp_path / "a").mkdir()
    (tmp_path / "a/loop").symlink_to("loop")
    assert [".", "a"] == paths(tmp_path)
    assert ["."] == [os.path.relpath(folder.path, tmp_path) for folder in walk(str(tmp_path), lambda _: False).folders]

    class Unknown:
        name = path = "x"

        def is_dir(self) -> bool:
            raise PermissionError

    assert not tree._is_folder(cast("os.DirEntry[str]", Unknown()))


def test_folders_that_cannot_be_opened_for_lack_of_files_are_not_empty(tmp_path: Path) -> None:
    """All skills would seem to be gone."""
    (tmp_path / "skills/a/scripts").mkdir(parents=True)
    (tmp_path / "skills/a/x.py").write_text("import prowess\n")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for look in (lambda: walk(str(tmp_path / "skills"), everything), lambda: survey([tmp_path / "skills"])):
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            with pytest.raises(OSError, match="open files"):
                look()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
