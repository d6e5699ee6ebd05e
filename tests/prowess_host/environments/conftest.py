"""Wheels and a cache of uv, shared by the tests of this folder: an environment is made in half a second, without a network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from wheelhouse import installed, small


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = installed(tmp_path_factory.mktemp("wheels"), "prowess-core")
    for version in ("1.0", "2.0"):
        small(folder, "tinypackage", version)
    small(folder, "fickle", "1.0", "pydantic<2")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _uv(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No configuration of this machine, and a cache that all tests share."""
    for name in [name for name in os.environ if name.startswith("UV_")]:
        del os.environ[name]
    os.environ["UV_CACHE_DIR"] = str(tmp_path_factory.mktemp("uv"))
    os.environ["UV_NO_CONFIG"] = "1"
    os.environ["UV_LINK_MODE"] = "hardlink"
