"""What all tests share: how hard property tests try, and the event loop of async tests."""

from __future__ import annotations

import os

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
