"""Makes names of fields from names of types."""

from __future__ import annotations

import re

__all__ = ["camel_case"]

_LEADING_CAPITALS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]")


def camel_case(type_name: str) -> str:
    """The name of a type as the name of a field: `HTTPServer` is `httpServer`.

    Only the first word changes; a run of capitals is one word. The parameters of a generic (`Page[int]`) are left out.
    """
    name = type_name.partition("[")[0]
    return _LEADING_CAPITALS.sub(lambda match: match[0].lower(), name, count=1) if name[:1].isupper() else name
