"""The short form of the soak: 200 saves. `make soak` is the long one."""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("mcp_types")
if sys.platform != "linux":
    pytest.skip("it looks into /proc", allow_module_level=True)

from soak import SHORT, soak


@pytest.mark.timeout(300)
def test_no_request_is_lost_whatever_is_saved_and_whatever_crashes(capsys: pytest.CaptureFixture[str]):
    """Every request has one answer, only calls beside a crash are lost, memory is flat, and nothing is left behind."""
    report = soak(SHORT, int(os.environ.get("SOAK_SEED", "7")))
    with capsys.disabled():
        if os.environ.get("SOAK_SEED"):
            print(report)
    assert sum(report.saves.values()) >= SHORT.saves
    assert report.clients["lost"] > 0
    assert report.clients["notifications/progress"] > 0
    assert report.clients["questions"] > 0
