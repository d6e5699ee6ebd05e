"""What Prowess itself adds, through the door that is open to every plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from prowess import Runtime, skill_command


@dataclass
class CommandResult:
    success: bool
    data: Any = None
    error: str | None = None


@dataclass
class Report:
    success: bool
    data: int


class Element:
    """As those of BeautifulSoup: what it does not find is `None`."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


async def shown(value: Any) -> dict[str, Any]:
    async with Runtime.open("nowhere"):

        @skill_command
        async def run():
            return value

        return await run()


@pytest.mark.parametrize(
    ("data", "text"),
    [({"a": 1}, '{"a": 1}'), (None, ""), ("x", "x"), ([1], "[1]")],
    ids=["M-26", "M-27", "str", "list"],
)
async def test_success_gives_its_data(data: Any, text: str) -> None:
    """A result object of an older system is what it carries; nothing is an empty success."""
    payload = await shown(CommandResult(success=True, data=data))
    assert ([{"type": "text", "text": text}], False) == (payload["content"], payload["isError"])


@pytest.mark.parametrize(
    ("error", "text"), [("boom", "boom"), (None, "CommandResult(success=False, data=None, error=None)")]
)
async def test_no_success_gives_its_error(error: str | None, text: str) -> None:
    """M-26: the failure that it tells of is the call's."""
    payload = await shown(CommandResult(success=False, error=error))
    assert ([{"type": "text", "text": text}], True) == (payload["content"], payload["isError"])


async def test_data_that_only_resembles_a_result_stays_whole() -> None:
    """What has no place for an error is data; neither the class itself is a result, nor an object with an attribute of every name."""
    assert {"success": False, "data": 1} == (await shown(Report(success=False, data=1)))["structuredContent"]
    for value in (CommandResult, Element()):
        assert "cannot be written as JSON" in (await shown(value))["content"][0]["text"]
