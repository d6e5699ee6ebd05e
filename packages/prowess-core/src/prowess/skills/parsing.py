"""Parses source files in silence: Python warns about them when it imports them."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    import ast

__all__ = ["parse"]

_NAME: Final = "<parsed by Prowess>"
_ONLY_AST: Final = 0x400
"""`ast.PyCF_ONLY_AST`, without the import of `ast`."""

warnings.filterwarnings("ignore", module=re.escape(_NAME))  # a filter for a while would change those of all threads


def parse(text: bytes) -> ast.Module:
    """The syntax tree of a source. Raises `SyntaxError`, `ValueError`, `RecursionError` or `MemoryError`."""
    return cast("ast.Module", compile(text, _NAME, "exec", _ONLY_AST, dont_inherit=True))
