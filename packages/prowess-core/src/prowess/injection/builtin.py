"""The injectables of Prowess itself, as an ordinary plugin."""

from __future__ import annotations

from typing import Any

from prowess.hookspecs import hookimpl
from prowess.results.content import text_block

__all__ = ["BuiltIn"]


class BuiltIn:
    """The built-in plugin."""

    @hookimpl(trylast=True)
    def prowess_render(self, value: Any) -> Any:
        """Objects that carry `success`, `data` and `error`, as older skill systems return them: the data, or a failure."""
        if isinstance(value, type) or not all(hasattr(value, name) for name in ("success", "data", "error")):
            return None
        if value.success:
            return "" if value.data is None else value.data
        return {"content": [text_block(str(value.error or value))], "isError": True}
