"""The settings of a running host, which are read again after each save."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from prowess.errors import SettingsError
from prowess.jsontypes import JsonObject
from prowess.settings.files import Written
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.skills.stamps import ABSENT, stamp

__all__ = ["SavedSettings"]

_log = logging.getLogger("prowess.host")


class SavedSettings:
    """The settings in use, and those in the files."""

    def __init__(self, paths: ConfigPaths, settings: Settings, flags: JsonObject, environ: Mapping[str, str]) -> None:
        self._flags = flags
        self._environ = environ
        self.paths = paths
        self.current = settings
        """The settings in use."""
        self.own = settings.own
        """Prowess's own ones among them."""
        self._warned: set[str] = set()
        """Warnings that were already given."""
        self._warn()

    def read(self) -> Settings:
        """The settings in the files. Raises a `SettingsError`, also for a file that seems to be half saved."""
        settings = Settings.load(self.paths.project_root, environ=self._environ, flags=self._flags)
        if _is_emptied(self.current.written, settings.written):
            raise SettingsError(f"{self.current.written.file} is empty; to remove all settings, delete the file")
        return settings

    def are_current(self) -> bool:
        """Whether the files are as they were when the settings in use were read."""
        try:
            return self.read().written == self.current.written
        except SettingsError:
            return False

    def use(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self.paths = ConfigPaths.of(settings, self._environ)
        self.current, self.own = settings, settings.own
        self._warn()

    def _warn(self) -> None:
        for warning in self.current.warnings:
            if warning not in self._warned:
                _log.warning("%s", warning)
        self._warned = set(self.current.warnings)


def _is_emptied(before: Written, now: Written) -> bool:
    """Whether the settings file is empty, as in the middle of a save. Without its settings, skills would lose their limits."""
    if not before.text.strip() or now.text.strip():
        return False
    seen = stamp(before.file)
    return now.file == before.file or (seen != ABSENT and not seen.size)
