"""The profile of `sandbox-exec` for a limited worker on macOS. Written from Apple's own profiles, and untested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prowess.errors import SettingsError
from prowess.settings.limits import Limits

__all__ = ["profile_for"]

_SYSTEM: Final = (
    "/usr",
    "/bin",
    "/sbin",
    "/System",
    "/Library",
    "/opt/homebrew",
    "/private/etc",
    "/private/var/db/timezone",
)

_SERVICES: Final = ("com.apple.system.opendirectoryd.libinfo", "com.apple.system.notification_center")
"""The services of the system that every Python asks. Others would open pages, read the clipboard or the keychain."""
_RESOLVING: Final = ("com.apple.dnssd.service", "com.apple.SystemConfiguration.configd", "com.apple.trustd.agent")


def profile_for(limits: Limits, readable: Iterable[str], listed: Iterable[str], writable: Iterable[str]) -> str:
    """The rules in the language of the sandbox. Everything that is not allowed is denied."""
    writes = list(writable)
    rules = [
        "(version 1)",
        "(deny default)",
        '(import "system.sb")',
        "(allow process-exec sysctl-read)",
        _services(_SERVICES),
        "(allow file-read-metadata)",
        "(allow signal (target same-sandbox))",
        *(_paths("file-read*", [*_SYSTEM, *readable, *writes])),
        *(f"(allow file-read-data (literal {_quoted(path)}))" for path in listed),
        *(_paths("file-write*", writes)),
        '(allow file-read* file-write-data (literal "/dev/null") (literal "/dev/urandom") (literal "/dev/random"))',
    ]
    if limits.processes:
        rules.append("(allow process-fork)")
    if limits.network is True:
        rules += ["(allow network* system-socket)", _services(_RESOLVING)]
    elif limits.network:
        # Two filters in one rule are alternatives: a local address would allow every remote one.
        rules += ["(allow system-socket)", '(allow network-outbound (remote ip "localhost:*"))']
    return "\n".join(rules)


def _services(names: Iterable[str]) -> str:
    return f"(allow mach-lookup {' '.join(f'(global-name {_quoted(name)})' for name in names)})"


def _paths(action: str, paths: Iterable[str]) -> list[str]:
    return [f"(allow {action} (subpath {_quoted(path)}))" for path in paths]


def _quoted(path: str) -> str:
    if not path.isprintable():
        raise SettingsError(f"{path!r} has characters that a profile of sandbox-exec cannot name: rename it")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
