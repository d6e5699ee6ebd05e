"""What a result depends on besides its arguments: sources, installed packages and settings, as one fingerprint.

Two hosts may share a result if theirs are equal. Settings are part of it as a digest, secrets included.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from prowess.settings.settings import Settings

__all__ = ["fingerprint"]

_OF_HOSTS: Final = frozenset({"serve", "host", "record", "otel", "cluster", "agent"})
"""Tables of settings that say how a host serves, and not what a command answers."""


def fingerprint(texts: Mapping[str, bytes], root: Path, settings: Settings, sites: Iterable[str]) -> str:
    """A digest of sources, wherever the project lies, of the settings, and of what is installed in some folders."""
    sources = sorted((_place(path, root), hashlib.sha256(text).hexdigest()) for path, text in texts.items())
    told = {name: value for name, value in settings.as_dict().items() if name not in _OF_HOSTS}
    installed = sorted(name for site in sites for name in os.listdir(site) if name.endswith(".dist-info"))  # noqa: PTH208 - names suffice
    parts = [sources, told, sorted(settings.dotenv.items()), installed, platform.python_version(), platform.machine()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


def _place(path: str, root: Path) -> str:
    file = Path(path)
    return str(file.relative_to(root)) if file.is_relative_to(root) else file.name
