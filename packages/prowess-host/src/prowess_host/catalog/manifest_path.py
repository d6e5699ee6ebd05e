"""The path of the manifest of a project. Light to import, so that the host checks at once whether the manifest exists."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prowess_host.catalog.cache import folder_in
from prowess_host.catalog.manifest_names import name_of_root

if TYPE_CHECKING:
    from prowess.settings.keys import OwnSettings
    from prowess.settings.paths import ConfigPaths

__all__ = ["is_known", "manifest_path", "shape_now", "shape_of"]


def is_known(paths: ConfigPaths, own: OwnSettings) -> bool:
    """Whether a manifest exists, valid or not."""
    path = manifest_path(paths.cache_dir, paths.project_root, shape_now(own))
    return os.path.exists(path)  # noqa: PTH110 - `Path.exists` raises in a folder without permission


def shape_now(own: OwnSettings) -> str:
    """The shape of a catalog with these settings, in this process."""
    return shape_of(own, own.python or sys.executable, os.environ.get("PYTHONPATH", ""))


def shape_of(own: OwnSettings, python: str, path: str = "") -> str:
    """A digest of the settings that shape a catalog, with the `PYTHONPATH`. It contains no secrets."""
    shaping = [own.skills, own.names, own.profile, own.describe_results, dict(own.wire_names), python, path]
    shaping += [own.sandbox] if own.sandbox else []
    shaping += [own.inject.container] if own.inject.container else []
    return hashlib.sha256(json.dumps(shaping, sort_keys=True, default=str).encode()).hexdigest()


def manifest_path(folder: Path, root: Path, shape: str) -> Path:
    """The path of the manifest of a project. Hosts with different settings have one each."""
    name = hashlib.sha256(f"{root}\0{shape}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return folder_in(folder) / f"{name_of_root(str(root))}{name}.json"
