"""The tests of a room are where its name says: `tests/<package>/<room>` holds those of `<package>/<room>`, in every package."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {path.name: path for path in sorted(ROOT.glob("packages/*/src/*")) if (path / "__init__.py").is_file()}


def with_files(folder: Path, pattern: str) -> set[str]:
    """The folders in a folder that hold such files."""
    return {path.parent.name for path in folder.glob(f"*/{pattern}")}


def test_every_package_is_found() -> None:
    """The guard below is worth what it can see."""
    assert {"prowess", "prowess_host", "prowess_testkit"} == PACKAGES.keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_has_a_folder_of_tests(package: str) -> None:
    """And no folder of tests outlives its room."""
    assert with_files(PACKAGES[package], "__init__.py") == with_files(ROOT / "tests" / package, "test_*.py")
