"""The cases of the contract table that need a host, with every command on an agent. Costs 3 s."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from tests.contracts.conftest import Wire
from tests.contracts.test_wire import (
    SKILL,
    test_a_long_line_is_served,
    test_a_ping_is_answered,
    test_a_second_handshake,
    test_an_exception_of_a_command,
    test_an_unknown_tool,
    test_every_line_has_one_answer_or_none,
    test_wrong_arguments,
)

from prowess_host.cluster.local import LocalEngine

__all__ = [
    "test_a_long_line_is_served",
    "test_a_ping_is_answered",
    "test_a_second_handshake",
    "test_an_exception_of_a_command",
    "test_an_unknown_tool",
    "test_every_line_has_one_answer_or_none",
    "test_wrong_arguments",
]


@pytest.fixture(scope="module")
def host(engine: LocalEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A host over a pipe, and three agents for all that it runs."""
    root: Path = tmp_path_factory.mktemp("words")
    (root / "skills").mkdir()
    (root / "skills/words.py").write_text(dedent(SKILL).lstrip())
    caches = [tmp_path_factory.mktemp(f"agent-{number}") for number in range(3)]
    told = {"PROWESS_CLUSTER__URL": engine.url, "PROWESS_CLUSTER__NAME": "contracts", "PROWESS_CLUSTER__PATIENCE": "60"}
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", "agent"]
    with pytest.MonkeyPatch.context() as patch:
        for name, text in told.items():
            patch.setenv(name, text)
        agents = [
            subprocess.Popen(
                [*command, "--project", str(cache)],
                env={**os.environ, "PROWESS_CACHE_DIR": str(cache)},
                stdout=subprocess.DEVNULL,
            )
            for cache in caches
        ]
        patch.setenv("PROWESS_RUN_ON", '{"*" = "any"}')
        host = Wire(root)
    yield host
    assert 0 == host.close()
    for agent in agents:
        agent.terminate()
    assert [0, 0, 0] == [agent.wait() for agent in agents]
    assert any((cache / "agent/blobs").is_dir() for cache in caches), "nothing ran on an agent"


@pytest.fixture
def client(host: Wire) -> Wire:
    """A client that has shaken hands."""
    host.initialize()
    return host
