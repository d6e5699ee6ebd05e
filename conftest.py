"""What all tests share: how hard property tests try, and the event loop of async tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# No deadlines: how long an example takes says more of the machine than of the code.
settings.register_profile("quick", max_examples=100, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None, print_blob=True)  # what `make property` asks for
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Prowess runs on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What hosts remember of projects that are soon gone is not left with the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
