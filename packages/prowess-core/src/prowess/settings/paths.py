"""The folders of a project: its root, its skills, its data and the cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from prowess.errors import SkillError
from prowess.frozen import frozen
from prowess.settings.caches import cache_folder
from prowess.settings.files import CONFIG_FILES, is_configured
from prowess.settings.settings import Settings

__all__ = ["ConfigPaths", "find_project_root"]


def find_project_root(start: Path) -> Path:
    """The nearest folder, from `start` upwards, with settings for Prowess or a `skills` folder; else `start` itself."""
    start = start.resolve()
    folder = start.parent if start.is_file() else start
    return next((above for above in (folder, *folder.parents) if _is_project(above)), folder)


def _is_project(folder: Path) -> bool:
    return is_configured(folder) or os.path.isdir(folder / "skills")  # noqa: PTH112 - Path.is_dir raises without permission


@frozen
class ConfigPaths:
    """The folders of one project. The `get_*` methods create a folder, the attributes only name it."""

    project_root: Path
    config_file: Path | None
    settings_files: tuple[Path, ...]
    """The files that may hold settings, whether or not they exist."""
    skills_dirs: tuple[Path, ...]
    cache_dir: Path
    data_dir: Path
    allow_outside_root: bool = False

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str], *, platform: str = sys.platform) -> ConfigPaths:
        """The folders for these settings on this platform."""
        root = settings.root.resolve()
        own = settings.own
        data = root / ".prowess"
        platform_cache = cache_folder(environ, platform)
        cache = Path(platform_cache) if platform_cache else data / "cache"
        return cls(
            project_root=root,
            config_file=settings.config_file,
            settings_files=tuple(root / name for name in (*CONFIG_FILES, own.env_file) if name),
            skills_dirs=tuple(root / folder for folder in own.skills),
            cache_dir=root / Path(own.cache_dir).expanduser() if own.cache_dir else cache,
            data_dir=data,
            allow_outside_root=own.allow_outside_root,
        )

    def get_cache_dir(self) -> Path:
        """A folder for data that can be made again, shared by all projects of the user."""
        return _made(self.cache_dir)

    def get_data_dir(self) -> Path:
        """A folder for data that this project must keep."""
        return _made(self.data_dir)

    def get_log_dir(self) -> Path:
        """A folder for the logs of this project."""
        return _made(self.data_dir / "logs")

    def inside(self, path: str | os.PathLike[str]) -> Path:
        """The absolute form of a path from a caller, with links resolved. A relative path starts at the project root.

        Raises `SkillError` for a path outside the project, unless the setting `allow_outside_root` is true.
        """
        try:
            found = (self.project_root / path).resolve()
        except (OSError, RuntimeError, ValueError):  # in this order: unreadable, a loop of links, not a path at all
            raise SkillError(f"{os.fspath(path)!r} is not a usable path") from None
        if self.allow_outside_root or found.is_relative_to(self.project_root.resolve()):
            return found
        raise SkillError(
            f"{os.fspath(path)!r} leads out of the project; give a path inside {self.project_root} "
            "(or let the user set allow_outside_root = true)"
        )


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
