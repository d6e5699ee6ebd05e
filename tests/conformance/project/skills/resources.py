"""The resources that the suite reads."""

from __future__ import annotations

import base64
from typing import Any

from prowess import resource

RED_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A PNG image."""
    return RED_PIXEL


@resource("test://template/{id}/data", mime_type="application/json", complete={"id": ["123", "456"]})
def template(id: str) -> dict[str, Any]:
    """Data of one id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@resource("test://watched-resource")
def watched_resource() -> str:
    """A text to subscribe to."""
    return "Watched resource content"
