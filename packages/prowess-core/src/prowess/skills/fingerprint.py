"""The code that a result depends on, as one fingerprint: sources, installed packages, the version of Python."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["fingerprint"]


def fingerprint(texts: Mapping[str, bytes], root: Path, sites: Iterable[str]) -> str:
    """A digest of sources, independent of the project's folder, and of the packages installed in `sites`."""
    sources = sorted((_place(path, root), hashlib.sha256(text).hexdigest()) for path, text in texts.items())
    installed = sorted(name for site in sites for name in os.listdir(site) if name.endswith(".dist-info"))  # noqa: PTH208 - names suffice
    parts = [sources, installed, platform.python_version(), platform.machine()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _place(path: str, root: Path) -> str:
    file = Path(path)
    return str(file.relative_to(root)) if file.is_relative_to(root) else file.name
