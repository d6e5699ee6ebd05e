"""Lets the tests of this folder share `piped`, a real client over real pipes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prowess_testkit.process import HostProcess

sys.path.append(str(Path(__file__).parent))  # importlib mode puts nothing there


@pytest.fixture(params=["shared", "sent"])
def board(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Host and workers agree on what has begun in shared memory, or by frames: whatever is promised holds for both."""
    monkeypatch.setenv("PROWESS_HOST__SHARED_MEMORY", "true" if request.param == "shared" else "false")
    return request.param


@pytest.fixture
def forked_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts of the testkit's `serve` are forked: for what they answer, not how they start and end."""
    from piped import forked_host

    monkeypatch.setattr(HostProcess, "start", classmethod(forked_host))
