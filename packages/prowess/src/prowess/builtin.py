"""What Prowess itself adds, as a plugin like any other."""

from __future__ import annotations

from typing import Any

from prowess.content import text_block
from prowess.hookspecs import hookimpl

__all__ = ["BuiltIn"]


class BuiltIn:
    """The built-in plugin."""

    @hookimpl(trylast=True)
    def prowess_render(self, value: Any) -> Any:
        """Objects that carry `success` and `data`, as older skill systems return them: the data, or a failure."""
        if isinstance(value, (dict, type)) or not (hasattr(value, "success") and hasattr(value, "data")):
            return None
        if value.success:
            return "" if value.data is None else value.data
        return {"content": [text_block(str(getattr(value, "error", None) or value))], "isError": True}
