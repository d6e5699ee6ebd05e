"""The release is written down where reading the metadata would be slow; it is the same everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from prowess.worker.messages import RELEASE
from prowess_host.cli.main import VERSION

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("project", sorted(ROOT.glob("packages/*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_packages_share_one_release(project: Path):
    """A host compares its release with that of a worker."""
    assert RELEASE == tomllib.loads(project.read_text("utf-8"))["project"]["version"]


def test_command_line_shows_the_release():
    assert RELEASE == VERSION
