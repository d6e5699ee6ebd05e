"""Questions of a worker for results of other hosts: each is answered, taken back, or told of."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from prowess.worker.link import Frame
from prowess.worker.messages import Kind
from prowess.worker.shared import LinkedResults


class Host:
    """What a host hears."""

    def __init__(self, settings: str = "settings") -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.results = LinkedResults(self._send, settings)

    def _send(self, kind: Kind, number: int, head: bytes, body: bytes = b"") -> None:
        self.heard.append((kind, number, json.loads(head), body))

    def found(self, number: int, body: bytes = b"") -> None:
        self.results.found(Frame(Kind.FOUND, number, b"", body))


async def asking(host: Host, key: str = "k") -> asyncio.Task[bytes]:
    task = asyncio.ensure_future(host.results.find(key))
    await asyncio.sleep(0)
    return task


async def test_found_result_ends_the_question() -> None:
    host = Host()
    task = await asking(host)
    host.found(1, b"result")

    assert b"result" == await task
    ((kind, number, told, _),) = host.heard
    assert (Kind.FIND, 1, 64) == (kind, number, len(told["key"]))
    host.results.keep("k", b"unreadable", 60)
    assert 1 == len(host.heard)


async def test_host_hears_what_came_of_a_question_without_a_result() -> None:
    host = Host()
    task = await asking(host)
    host.found(1)
    assert b"" == await task
    host.results.keep("k", b"result", 60)

    assert (Kind.KEEP, 1, {"seconds": 60}, b"result") == host.heard[-1]


@pytest.mark.parametrize("body, told", [(b"", True), (b"result", False)])
@pytest.mark.parametrize("when", ["before", "just after"])
async def test_host_hears_that_nobody_runs_what_was_given_up(body: bytes, told: bool, when: str) -> None:
    """Also where the answer and the cancellation cross."""
    host = Host()
    task = await asking(host)
    if when == "before":
        task.cancel()
        await asyncio.sleep(0)
        host.found(1, body)
    else:
        host.found(1, body)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert told is ((Kind.KEEP, 1, {"seconds": 0}, b"") in host.heard)


async def test_key_for_all_hosts_differs_with_the_settings() -> None:
    keys = set()
    for settings, key in (("a", "k"), ("b", "k"), ("a", "l"), ("a", "k")):
        host = Host(settings)
        (await asking(host, key)).cancel()
        keys.add(host.heard[0][2]["key"])

    assert 3 == len(keys)
