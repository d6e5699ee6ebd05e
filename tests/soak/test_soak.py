"""The short form of the soak: forty saves, and everything that costs a worker its life. `make soak` is the long one."""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("mcp_types")
if sys.platform != "linux":
    pytest.skip("it looks into /proc", allow_module_level=True)

from soak import SHORT, soak
from workload import HARM


def test_no_promise_is_broken_in_chaos(capsys: pytest.CaptureFixture[str]):
    """Every request has one answer, only calls beside a crash are lost, no version goes back, and nothing is left behind."""
    report = soak(SHORT, int(os.environ.get("SOAK_SEED", "7")))
    with capsys.disabled():
        if os.environ.get("SOAK_SEED"):
            print(report)
    assert sum(report.saves.values()) >= SHORT.saves
    assert all(report.clients[f"trouble: {how}"] for how in HARM)
    assert report.clients["lost"] > 0
