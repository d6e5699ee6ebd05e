"""Results that are too large for a client are read on in parts, over real pipes; and the store behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from inside import inside
from piped import HANDSHAKE, STATELESS, Client, error, make_project, result

from prowess_host.long_results import EXPIRY, Pages, UnknownCursor

SKILL = """
    from prowess import Image
    ALPHABET = "aé€😀\\n"

    @skill_command
    def text(n: int) -> str:
        return (ALPHABET * n)[:n]

    @skill_command
    def listed(n: int) -> list[int]:
        return list(range(n))

    @skill_command
    def loose(n: int):
        return {"a": "x" * n}

    @skill_command
    def failing(n: int) -> str:
        raise SkillError("x" * n)

    @skill_command
    def picture() -> Image:
        return Image(data=b"\\x89PNG\\r\\n\\x1a\\n" + b"x" * 200_000, mime_type="image/png")

    @skill_command(meta={"anthropic/maxResultSizeChars": 90_000})
    def larger(n: int) -> str:
        return "x" * n
"""
READ_MORE = "prowess_read_more"


async def read_on(host: Client, told: dict[str, Any]) -> str:
    """The whole text of a result, part by part."""
    parts = [told["content"][0]["text"]]
    while cursor := told["_meta"]["prowess/cut"]["cursor"]:
        assert cursor in told["content"][-1]["text"]
        told = await host.call(READ_MORE, cursor=cursor)
        assert not told["isError"]
        parts.append(told["content"][0]["text"])
    assert "This is the end." in told["content"][-1]["text"]
    return "".join(parts)


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_ten_megabytes_are_read_to_the_end(tmp_path: Path, version: str):
    """The parts are the exact text, whatever its characters take; other calls go on beside it."""
    async with inside(make_project(tmp_path, "max_result = 500_000\n", t=SKILL), version=version) as host:
        assert READ_MORE in await host.tools()
        long, short = host.start_call("t_text", n=4_200_000), host.start_call("t_text", n=5)
        assert "aé€😀\n" == (await result(short))["content"][0]["text"]
        told = await result(long)
        assert 500_000 == len(told["content"][0]["text"])
        assert 4_200_000 == told["_meta"]["prowess/cut"]["characters"]
        whole = await read_on(host, told)
        assert len(whole.encode()) > 9_000_000
        assert ("aé€😀\n" * 4_200_000)[:4_200_000] == whole
        assert "aé€😀\n" == await host.text("t_text", n=5)


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_what_was_promised_is_kept_or_an_error(tmp_path: Path, version: str):
    """A result with an output schema has data that conforms, or it is an error; without one the data is left out."""
    async with inside(make_project(tmp_path, "max_result = 1000\n", t=SKILL), version=version) as host:
        fits = await host.call("t_listed", n=10)
        assert not fits["isError"]
        assert "structuredContent" in fits
        promised = await host.call("t_listed", n=1000)
        assert promised["isError"]
        assert "structuredContent" not in promised
        assert "too_large" == promised["_meta"]["prowess/kind"]
        assert list(range(1000)) == json.loads(await read_on(host, promised))
        loose = await host.call("t_loose", n=2000)
        assert not loose["isError"]
        assert {"a": "x" * 2000} == json.loads(await read_on(host, loose))
        failing = await host.call("t_failing", n=2000)
        assert (True, "failed") == (failing["isError"], failing["_meta"]["prowess/kind"])
        assert "x" * 2000 == await read_on(host, failing)
        assert "image" == (await host.call("t_picture"))["content"][0]["type"]


async def test_a_cursor_that_leads_nowhere_is_an_error(tmp_path: Path):
    """It says what to do; nothing else is shown."""
    async with inside(make_project(tmp_path, "max_result = 1000\n", t=SKILL)) as host:
        told = await host.call("t_text", n=2000)
        good: str = told["_meta"]["prowess/cut"]["cursor"]
        token, _, position = good.partition("-")
        forged, beyond, between = f"{token[::-1]}-{position}", f"{token}-99999999", f"{token}-2"
        cursors: list[Any] = ["", "x", "0123456789abcdef-0", 5, forged, beyond, between]
        for arguments in ({}, *({"cursor": cursor} for cursor in cursors)):
            refused = await host.call(READ_MORE, **arguments)
            assert refused["isError"], arguments
            assert "is unknown" in refused["content"][0]["text"]
            assert "Call the command again" in refused["content"][0]["text"]
        as_text = await host.ask("tools/call", name=READ_MORE, arguments=json.dumps({"cursor": good}))
        assert not as_text["isError"]
        assert (await host.ask("tools/call", name=READ_MORE, arguments="{"))["isError"]


async def test_limits_are_those_of_the_client(tmp_path: Path):
    """By the name it gives in its handshake, unless the setting says so. An author may ask for more."""
    project = make_project(tmp_path, t=SKILL)
    for name, limit in (("claude-code", 60_000), ("other", None)):
        async with inside(project, opened=False) as host:
            told = {"capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
            await host.ask("initialize", protocolVersion=HANDSHAKE, **told)
            assert (limit is not None) == (READ_MORE in await host.tools())
            assert len(await host.text("t_text", n=70_000)) == (limit or 70_000)
            assert 70_000 == len(await host.text("t_larger", n=70_000))
            if limit is None:
                assert -32602 == (await error(host.start_call(READ_MORE, cursor="x")))["code"]


@pytest.mark.parametrize("settings", ["max_result = 0\n", ""])
async def test_without_a_limit_everything_is_sent(tmp_path: Path, settings: str):
    """Also to a client that names itself without a handshake: there only the setting counts."""
    async with inside(make_project(tmp_path, settings, t=SKILL), version=STATELESS) as host:
        assert READ_MORE not in await host.tools()
        assert 100_000 == len(await host.text("t_text", n=100_000))


async def test_a_command_of_that_name_stays_what_it_is(tmp_path: Path):
    """Then nothing is cut, since nothing could be read on."""
    mine = "@skill_command\ndef read_more(n: int) -> str:\n    return 'x' * n\n"
    async with inside(make_project(tmp_path, "max_result = 10\n", prowess=mine)) as host:
        assert [READ_MORE] == await host.tools()
        assert 100 == len(await host.text(READ_MORE, n=100))


async def test_what_cannot_be_kept_is_said(tmp_path: Path):
    """The first part comes all the same."""
    settings = "max_result = 1000\nkept_results = 1500\n"
    async with inside(make_project(tmp_path, settings, t=SKILL)) as host:
        told = await host.call("t_larger", n=90_001)
        assert told["_meta"]["prowess/cut"]["cursor"] is None
        assert "too large to be kept: ask for less" in told["content"][-1]["text"]


# The store


def test_texts_are_dropped_when_they_are_old_or_too_many():
    """The one that was looked at last stays longest."""
    now = [0.0]
    pages = Pages(lambda: now[0])
    a, b, c = ("0" * 15 + letter for letter in "abc")
    pages.keep(a, b"a" * 10, 25)
    pages.keep(b, b"b" * 10, 25)
    assert ("aaa", f"{a}-3") == (pages.page(f"{a}-0", 3, 25).text, pages.page(f"{a}-0", 3, 25).cursor)
    pages.keep(c, b"c" * 10, 25)
    with pytest.raises(UnknownCursor, match="up to 25 bytes"):
        pages.page(f"{b}-0", 3, 25)
    now[0] = EXPIRY / 2
    assert "aaaaaaa" == pages.page(f"{a}-3", 30, 25).text
    now[0] = EXPIRY + 1
    with pytest.raises(UnknownCursor):
        pages.page(f"{c}-0", 3, 25)
    assert pages.page(f"{a}-9", 3, 25).cursor is None
    pages.close()
    with pytest.raises(UnknownCursor):
        pages.page(f"{a}-0", 3, 25)


def test_a_full_disk_loses_the_rest_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    """The cursor then leads nowhere, and says so."""
    import tempfile

    class Full:
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda max_size: Full())
    pages = Pages(lambda: 0.0)
    pages.keep("0" * 16, b"text", 100)
    with pytest.raises(UnknownCursor):
        pages.page("0" * 16 + "-0", 3, 100)
