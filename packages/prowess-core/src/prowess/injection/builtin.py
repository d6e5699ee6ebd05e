"""The built-in plugins."""

from __future__ import annotations

from typing import Any

from prowess.hookspecs import hookimpl
from prowess.results.content import text_block
from prowess.results.libraries import rendered

__all__ = ["Libraries", "OldSkills"]


class Libraries:
    """Shows values of well-known libraries. Plugins of a project come first."""

    @hookimpl(trylast=True)
    def prowess_render(self, value: Any) -> Any:
        """A frame as a table, a figure or an image as PNG, an array as lists."""
        return rendered(value)


class OldSkills:
    """Shows results of older skill systems."""

    @hookimpl(trylast=True)
    def prowess_render(self, value: Any) -> Any:
        """Objects with `success`, `data` and `error`, as in older skill systems: the data, or a failure."""
        if isinstance(value, type) or not all(hasattr(value, name) for name in ("success", "data", "error")):
            return None
        if not isinstance(value.success, bool):  # an element of a page, a stub: it has an attribute of every name
            return None
        if value.success:
            return "" if value.data is None else value.data
        return {"content": [text_block(str(value.error or value))], "isError": True}
