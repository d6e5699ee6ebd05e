"""The path of the record of a project. Light, so that a host can use it at start."""

from __future__ import annotations

import hashlib
from pathlib import Path

from prowess.settings.paths import ConfigPaths

__all__ = ["record_path"]


def record_path(paths: ConfigPaths) -> Path:
    """The database in the user's cache, outside the project. It can be deleted at any time."""
    name = hashlib.sha256(str(paths.project_root).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return paths.cache_dir / "records" / f"{name}.sqlite"
