"""Wheels and a cache of uv, shared by all tests: an environment is made in half a second, without a network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from parallel import folder_of_all
from wheelhouse import cache_in, shared


@pytest.fixture
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small packages in two versions, one with other needs than Prowess, and what Prowess needs."""
    return shared(folder_of_all(tmp_path_factory))


@pytest.fixture(autouse=True)
def _uv(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of this machine, and a cache that all tests share."""
    for name in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(cache_in(folder_of_all(tmp_path_factory))))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
