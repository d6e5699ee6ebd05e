"""Files of a folder: those that may be read, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prowess_host.files.folders import list_files, read_file, read_pattern


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("docs/**/*.md", "a.md", True),
        ("docs/**/*.md", "a/b/c.md", True),
        ("docs/**/*.md", "a.mdx", False),
        ("docs/*.md", "a/b.md", False),
        ("docs/?.md", "a.md", True),
        ("docs/a?b", "a/b", False),
        ("docs/[ab].md", "b.md", True),
        ("docs/[!ab].md", "b.md", False),
        ("docs/**", "a/b", True),
        ("docs/readme.md", "readme.md", True),
        ("readme.md", "readme.md", True),
        ("a.b*", "aXb", False),
        ("docs/[[a]", "[", True),
        ("docs/[a!^]", "^", True),
        ("docs/[^a]", "b", False),
        ("docs/[a&&a~~a||]", "|", True),
    ],
)
def test_a_pattern_says_which_files(pattern: str, path: str, *, fits: bool) -> None:
    """Of its folder, which is the part without signs."""
    assert fits == bool(read_pattern(pattern).matches(path))


@pytest.mark.parametrize("pattern", ["", "/etc/*", "../x/*", "a/../b/*", ".git/*", "a//b", "a\\b", "a\0b", "./a/*"])
def test_a_pattern_stays_in_the_project(pattern: str) -> None:
    """It neither leads upwards nor to what is hidden."""
    with pytest.raises(ValueError, match="it must"):
        read_pattern(pattern)


def made(tmp_path: Path) -> Path:
    """A folder with a file, and a secret beside it."""
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("a")
    (folder / "sub/b.md").write_text("b")
    (tmp_path / "secret.md").write_text("secret")
    return folder


def test_only_plain_files_are_listed(tmp_path: Path) -> None:
    """No links, nothing hidden, no pipes, no caches."""
    folder = made(tmp_path)
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "linked").symlink_to(tmp_path)
    (folder / ".hidden.md").write_text("x")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/c.md").write_text("x")
    os.mkfifo(folder / "pipe.md")
    assert ["a.md", "sub/b.md"] == [found.path for found in list_files(str(folder), lambda _: True)]
    assert ["a.md"] == [found.path for found in list_files(str(folder), lambda _: True, most=1)]
    assert [] == list_files(str(folder / "nowhere"), lambda _: True)


@pytest.mark.parametrize(
    "path",
    ["../secret.md", "sub/../a.md", "/etc/passwd", "", ".", "sub", "a.md/x", "a\0.md", ".hidden.md", "sub//b.md"],
)
def test_a_path_leads_to_no_other_file(tmp_path: Path, path: str) -> None:
    """Whatever it is made of."""
    folder = made(tmp_path)
    (folder / ".hidden.md").write_text("x")
    with pytest.raises(OSError):
        read_file(str(folder), path)
    assert b"b" == read_file(str(folder), "sub/b.md")


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither that of a file nor that of a folder on the way, also if it came after the list was made."""
    folder = made(tmp_path)
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "linked").symlink_to(tmp_path)
    for path in ("link.md", "linked/secret.md"):
        with pytest.raises(OSError):
            read_file(str(folder), path)


def test_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    """It is no file."""
    folder = made(tmp_path)
    os.mkfifo(folder / "pipe.md")
    with pytest.raises(FileNotFoundError):
        read_file(str(folder), "pipe.md")


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    """It says how large one may be."""
    folder = made(tmp_path)
    (folder / "a.md").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_file(str(folder), "a.md", most=10)
