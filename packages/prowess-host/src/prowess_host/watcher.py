"""Notices that files were saved, and waits until the saving is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from prowess.paths import ConfigPaths

__all__ = ["Watcher"]

_SETTLE: Final = 100
"""Milliseconds without a further change after which saving is over. An editor's write and rename take a few."""
_STORM: Final = 1000
"""Milliseconds after which a storm of changes is looked at, although it goes on."""
_CONFIG: Final = frozenset({"prowess.toml", "pyproject.toml"})


class Watcher:
    """Calls `on_change` after files that matter have changed; one call at a time, none forgotten."""

    def __init__(self, paths: ConfigPaths, on_change: Callable[[], Awaitable[None]]) -> None:
        self._paths = paths
        self._on_change = on_change

    async def run(self) -> None:
        """Watch until cancelled."""
        from watchfiles import awatch  # noqa: PLC0415 - loaded after the first answer

        stop = asyncio.Event()
        folders = [folder for folder in self._paths.skills_dirs if folder.is_dir()]
        root = self._paths.project_root
        try:
            async for changes in awatch(
                *(folders or [root]),
                watch_filter=lambda _, path: self._matters(Path(path)),
                step=_SETTLE,
                debounce=_STORM,
                stop_event=stop,
                recursive=bool(folders),
                ignore_permission_denied=True,
            ):
                if changes:
                    await self._on_change()
        finally:
            stop.set()

    def _matters(self, path: Path) -> bool:
        if path.name in _CONFIG:
            return path.parent == self._paths.project_root
        hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts[-3:])
        return not hidden and path.suffix in ("", ".py", ".md", ".json", ".toml")
