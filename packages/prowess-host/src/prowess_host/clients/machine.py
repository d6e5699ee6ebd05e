"""The machine that clients run on: its system, the user's folders and the environment.

Passed as a value, so that tests can simulate every system.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from prowess.frozen import frozen

__all__ = ["Machine"]


@frozen
class Machine:
    """A user's account on a system."""

    platform: str
    """The value of `sys.platform`: `linux`, `darwin` or `win32`."""
    home: Path
    environ: Mapping[str, str]

    @classmethod
    def this(cls) -> Machine:
        """This machine."""
        return cls(sys.platform, Path.home(), dict(os.environ))

    @property
    def is_windows(self) -> bool:
        """Whether the system is Windows."""
        return self.platform == "win32"

    def folder(self, variable: str, *usual: str) -> Path:
        """The folder that a variable names, else a usual one below the home."""
        given = self.environ.get(variable, "")
        return Path(given) if given and Path(given).is_absolute() else self.home.joinpath(*usual)

    @property
    def xdg_config(self) -> Path:
        """The folder for settings of programs that follow the XDG specification, on every system."""
        return self.folder("XDG_CONFIG_HOME", ".config")

    @property
    def app_config(self) -> Path:
        """The folder for settings of desktop programs, which differs between the three systems."""
        if self.is_windows:
            return self.folder("APPDATA", "AppData", "Roaming")
        return self.home / "Library/Application Support" if self.platform == "darwin" else self.xdg_config

    @property
    def own_state(self) -> Path:
        """Our state folder: the ledger of connections, and backups."""
        if self.is_windows:
            return self.folder("LOCALAPPDATA", "AppData", "Local") / "prowess"
        if self.platform == "darwin":
            return self.home / "Library/Application Support/prowess"
        return self.folder("XDG_STATE_HOME", ".local", "state") / "prowess"
