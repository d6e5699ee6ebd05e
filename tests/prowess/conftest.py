"""What the tests of the core share: a runtime of an empty project, and functions compiled in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prowess import Runtime, skill_command
from prowess.contracts.declaration import declaration_of
from prowess.skills.entry import Entry


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    runtime = Runtime(tmp_path)
    yield runtime
    runtime.close()


@pytest.fixture
def entry(runtime: Runtime) -> Callable[..., Entry]:
    """A function decorated with options, compiled."""

    def make(function: Callable[..., Any], **options: Any) -> Entry:
        declared = declaration_of(skill_command(**options)(function))
        assert declared is not None
        return runtime.entry_of(declared)

    return make
