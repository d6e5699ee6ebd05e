"""The profile of `sandbox-exec` for a limited worker on macOS. Written from Apple's own profiles, and untested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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


def profile_for(limits: Limits, readable: Iterable[str], listed: Iterable[str], writable: Iterable[str]) -> str:
    """The rules in the language of the sandbox. Everything that is not allowed is denied."""
    writes = list(writable)
    rules = [
        "(version 1)",
        "(deny default)",
        '(import "system.sb")',
        "(allow process-exec sysctl-read mach-lookup)",
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
        rules.append("(allow network* system-socket)")
    elif limits.network:
        rules.append('(allow network* (local ip "localhost:*") (remote ip "localhost:*"))')
    return "\n".join(rules)


def _paths(action: str, paths: Iterable[str]) -> list[str]:
    return [f"(allow {action} (subpath {_quoted(path)}))" for path in paths]


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
