"""Which environment variables reach a server that a client starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from prowess.frozen import frozen

__all__ = ["SAFE", "PassedEnvironment"]

SAFE: Final = frozenset(
    "HOME LOGNAME PATH SHELL TERM USER "
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE PROGRAMFILES "
    "SYSTEMDRIVE SYSTEMROOT TEMP TMP USERNAME USERPROFILE".split()
)
"""The variables that the official TypeScript SDK passes on by default, and so do many clients."""

_DESKTOP: Final = re.compile(
    r"HOME|LOGNAME|USER|SHELL|LANG|LC_\w+|TZ|TMPDIR|DISPLAY|WAYLAND_DISPLAY|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK|XDG_\w+"
)
_DESKTOP_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@frozen
class PassedEnvironment:
    """The part of its own environment that a client passes on."""

    only: frozenset[str] | None = None
    """These variables and no others; `None` for all of them."""
    hidden: re.Pattern[str] | None = None
    """Variables whose name matches are left out."""
    desktop: bool = False
    """The program is started from the desktop, so it lacks the variables of a shell and has a short PATH."""

    def given(self, environ: Mapping[str, str], *, windows: bool = False) -> dict[str, str]:
        """The variables that reach a server. On Windows, desktop programs have the user's variables too."""
        return {name: value for name, value in self.seen(environ, windows=windows).items() if self._passes(name)}

    def seen(self, environ: Mapping[str, str], *, windows: bool = False) -> dict[str, str]:
        """The client's own variables, which can replace references."""
        if not self.desktop or windows:
            return dict(environ)
        known = {name: value for name, value in environ.items() if _DESKTOP.fullmatch(name)}
        return {**known, "PATH": _DESKTOP_PATH}

    def _passes(self, name: str) -> bool:
        if self.only is not None and name.upper() not in self.only:
            return False
        return self.hidden is None or self.hidden.search(name) is None

    def drops(self, name: str, *, windows: bool = False) -> bool:
        """Whether a variable of the shell does not reach a server."""
        return name not in self.given({name: ""}, windows=windows)
