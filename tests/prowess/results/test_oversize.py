"""Results that are too large for a client: the beginning is shown, nothing is lost, and promises are kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prowess.results.oversize import cut

IMAGE = {"type": "image", "data": "A" * 1000, "mimeType": "image/png"}


def payload(*blocks: Any, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {"content": content, "isError": False, **more}


@pytest.mark.parametrize(
    "fits",
    [
        payload("x" * 100),
        payload("é" * 100),
        payload("x", IMAGE),
        payload(json.dumps({"a": "x" * 80}), structuredContent={"a": "x" * 80}),
        payload('"' + "x" * 90 + '"', structuredContent={"result": "x" * 90}),
        payload("x" * 90, structuredContent={"result": "x" * 90}),
        payload("x" * 90, structuredContent="x" * 90),
    ],
)
def test_what_fits_is_left_alone(fits: Any):
    """Characters count, not bytes; data that says the same as the text counts once; images do not count."""
    assert cut(fits, 100, 10_000, promised=True) is None


def test_the_beginning_is_shown_and_the_whole_is_handed_over():
    """One block is the exact beginning, one says how to go on."""
    part = cut(payload("é" * 101, IMAGE), 100, 10_000, promised=False)
    assert part is not None
    shown, image, told = part.payload["content"]
    assert ("é" * 100, IMAGE, ("é" * 101).encode()) == (shown["text"], image, part.text)
    cursor = f"{part.token}-200"
    assert (
        f"Above are the first 100 of 101 characters of this result. To read on, call prowess_read_more with the cursor '{cursor}'."
        == told["text"]
    )
    assert {"prowess/cut": {"characters": 101, "shown": 100, "cursor": cursor}} == part.meta
    assert not part.payload["isError"]


def test_texts_and_data_become_one_text():
    """Resources with text are text; data that no text says stands at the end."""
    resource = {"type": "resource", "resource": {"uri": "a:b", "text": "there"}}
    part = cut(payload("here", resource, structuredContent={"n": [1]}), 5, 10_000, promised=False)
    assert part is not None
    assert b'here\nthere\n{"n": [1]}' == part.text
    assert "structuredContent" not in part.payload
    assert "Its structured data is left out because of its size" in part.payload["content"][-1]["text"]
    alone = cut(payload(IMAGE, structuredContent=[1, 2, 3]), 5, 10_000, promised=False)
    assert alone is not None
    assert b"[1, 2, 3]" == alone.text


def test_a_promise_of_data_becomes_an_error():
    """A success without data would break the output schema; the model is told that nothing failed."""
    part = cut(payload("[1,2,3,4]", structuredContent=[1, 2, 3, 4]), 5, 10_000, promised=True)
    assert part is not None
    assert part.payload["isError"]
    assert "too_large" == part.meta["prowess/kind"]
    assert part.payload["content"][-1]["text"].startswith("The call itself succeeded, so do not repeat it")
    failed = cut(payload("x" * 9) | {"isError": True}, 5, 10_000, promised=True)
    assert failed is not None
    assert failed.payload["isError"]
    assert "prowess/kind" not in failed.meta


def test_what_nobody_can_keep_is_said():
    """Never a silent cut."""
    part = cut(payload("x" * 101), 100, 100, promised=False)
    assert part is not None
    assert b"" == part.text
    assert part.meta["prowess/cut"]["cursor"] is None
    assert "The rest (101 bytes) is too large to be kept: ask for less." in part.payload["content"][-1]["text"]
