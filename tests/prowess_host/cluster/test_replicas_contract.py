"""The cases of the contract table that need a host, by two replicas: each request goes to one of them. About 4 s."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest
from tests.contracts.test_wire import (
    SKILL,
    test_a_long_line_is_served,
    test_a_ping_is_answered,
    test_an_exception_of_a_command,
    test_an_unknown_tool,
    test_wrong_arguments,
)
from tests.prowess_host.http.test_contract_table import OverHttp
from web import Answer, Web, served_over_http

from prowess_host.cluster.local import LocalEngine

__all__ = [
    "test_a_long_line_is_served",
    "test_a_ping_is_answered",
    "test_an_exception_of_a_command",
    "test_an_unknown_tool",
    "test_wrong_arguments",
]


class Proxy:
    """Hands each request to a replica, at random."""

    def __init__(self, *webs: Web) -> None:
        self._webs = webs

    def ask(self, *request: Any) -> Answer:
        return random.choice(self._webs).ask(*request)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, engine: LocalEngine) -> Generator[Proxy]:
    root: Path = tmp_path_factory.mktemp("words")
    (root / "skills").mkdir()
    (root / "skills/words.py").write_text(dedent(SKILL).lstrip())
    told = {"PROWESS_CLUSTER__URL": engine.url, "PROWESS_CLUSTER__NAME": "words", "PROWESS_SERVE__SESSIONS": "false"}
    with served_over_http(root, env=told) as one, served_over_http(root, env=told) as other:
        yield Proxy(one, other)


@pytest.fixture
def client(words: Proxy) -> OverHttp:
    """A client that has shaken hands with one of them."""
    client = OverHttp(cast("Web", words))
    client.initialize()
    return client
