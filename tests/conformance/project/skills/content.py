"""One command for each kind of content a result can have."""

from __future__ import annotations

import base64
from typing import Any

from prowess import Audio, File, Image, SkillError, skill_command

RED_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
SILENCE = base64.b64decode("UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==")


@skill_command(read_only=True)
def test_simple_text() -> str:
    """Return a line of text."""
    return "This is a simple text response for testing."


@skill_command(read_only=True)
def test_image_content() -> Image:
    """Return a PNG image."""
    return Image(RED_PIXEL)


@skill_command(read_only=True)
def test_audio_content() -> Audio:
    """Return a WAV recording."""
    return Audio(SILENCE)


@skill_command(read_only=True)
def test_embedded_resource() -> File:
    """Return a file as an embedded resource."""
    return File(b"This is an embedded resource content.", uri="test://embedded-resource", mime_type="text/plain")


@skill_command(read_only=True)
def test_multiple_content_types() -> list[dict[str, Any] | Image | File]:
    """Return text, an image and a file in one result."""
    return [
        {"type": "text", "text": "Multiple content types test:"},
        Image(RED_PIXEL),
        File(b'{"test": "data", "value": 123}', uri="test://mixed-content-resource", mime_type="application/json"),
    ]


@skill_command(read_only=True)
def test_error_handling() -> str:
    """Fail, on purpose."""
    raise SkillError("This tool intentionally returns an error for testing")
