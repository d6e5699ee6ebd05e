"""Regular expressions that are compiled when they are first used: compiling takes longer than importing the module around them."""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["lazy_pattern"]


class _Pattern:
    """Becomes a `re.Pattern` in everything that is asked of it."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Asked once for each attribute."""
        found = getattr(re.compile(self._text, self._flags), name)  # `re` keeps what it has compiled
        setattr(self, name, found)
        return found


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression for a module that is imported at every start."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
