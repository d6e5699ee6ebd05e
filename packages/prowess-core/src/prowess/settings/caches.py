"""The folder for caches of this platform. Light, because a host looks into it before it imports anything else."""

# ruff: noqa: PTH117, PTH118 - pathlib takes milliseconds to import

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["cache_folder"]


def cache_folder(environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """The folder of Prowess for data that can be made again, or `None` for a user without a home."""
    given = environ.get("LOCALAPPDATA" if platform == "win32" else "XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # by the XDG specification, a relative path is ignored
        return os.path.join(given, "prowess")
    home = environ.get("HOME")
    if not home:
        return None
    return os.path.join(home, "Library/Caches" if platform == "darwin" else ".cache", "prowess")
