"""What a client receives of results, over real pipes: text as text, and content once."""

from __future__ import annotations

from pathlib import Path

import pytest
from piped import HANDSHAKE, STATELESS, hosted, make_project, result

SKILL = """
    from typing import Any
    from prowess import Image

    @skill_command
    def say() -> str:
        return 'two\\nlines and a "quote"'

    @skill_command
    def plots() -> dict[str, Any]:
        return {"title": "x", "plots": [{"image": Image(b"\\x89PNG\\r\\n\\x1a\\n")}]}

    @skill_command
    def circular() -> list:
        rows = []
        rows.append({"rows": rows})
        return rows

    @skill_command
    def unknown() -> dict[str, Any]:
        return {"rows": [{"mean": float("nan")}]}
"""
IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
MARK = "[image 1: image/png, 8 bytes]"


@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_results_arrive_as_they_were_meant(tmp_path: Path, version: str) -> None:
    """A text has no structured copy, an image is sent once, and a result that JSON cannot hold says where and why."""
    async with hosted(make_project(tmp_path, results=SKILL), version=version, forked=True) as client:
        listed = {tool["name"]: tool for tool in (await result(client.request("tools/list")))["tools"]}
        assert "outputSchema" not in listed["results_say"]
        assert "outputSchema" in listed["results_plots"]

        said = await client.call("results_say")
        assert [{"type": "text", "text": 'two\nlines and a "quote"'}] == said["content"]
        assert "structuredContent" not in said

        plots = await client.call("results_plots")
        data = {"title": "x", "plots": [{"image": MARK}]}
        assert (data, [IMAGE]) == (plots["structuredContent"], plots["content"][1:])
        assert ["text", "image"] == [block["type"] for block in plots["content"]]
        assert str(plots).count(IMAGE["data"]) == 1

        for name, place in (
            ("circular", "result[0].rows: refers to result, "),
            ("unknown", "result.rows[0].mean: JSON has"),
        ):
            failed = await client.call(f"results_{name}")
            assert failed["isError"]
            assert place in failed["content"][0]["text"]
