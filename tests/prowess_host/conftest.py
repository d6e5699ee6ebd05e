"""Lets the tests of this folder share `piped`, a real client over real pipes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # importlib mode puts nothing there


@pytest.fixture(params=["shared", "sent"])
def board(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Host and workers agree on what has begun in shared memory, or by frames: whatever is promised holds for both."""
    monkeypatch.setenv("PROWESS_HOST__SHARED_MEMORY", "true" if request.param == "shared" else "false")
    return request.param
