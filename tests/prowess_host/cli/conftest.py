"""Commands that run in the test itself (`run([...])`) have workers that are forked, like those of `shell.prowess`."""

from __future__ import annotations

import pytest
from forked import spawn

from prowess_host.project import Project


@pytest.fixture(autouse=True)
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Project.__init__, "__defaults__", (spawn,))
