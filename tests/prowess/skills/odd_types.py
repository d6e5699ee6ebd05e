"""Types that several tests of the compiler use."""

from __future__ import annotations

import enum

from pydantic import BaseModel, Field


class Color(enum.Enum):  # noqa: D101 - it would be the description in its schema
    RED = "red"


class Described(BaseModel):
    """Not a word of this is for the client's title."""

    title: str = Field(title="Shown")
    default: int = 3


class Foreign:
    """A class without a schema."""
