"""Checks hosts and origins, so that web pages cannot call the server.

In DNS rebinding, the owner of a page points its name at 127.0.0.1; the browser then sends that name as `Host`. Any page
sends its own `Origin`. Both are compared with the allowed names. A literal address as `Host` cannot come from rebinding.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from prowess_host.http.binding import RefusedRequest
from prowess_host.protocol.rpc import RpcError, shown

if TYPE_CHECKING:
    from prowess_host.http.headers import Headers

__all__ = ["Guard", "is_loopback"]

_LOCALHOST: Final = "localhost"
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{0,5}))?")
_LAST_PORT: Final = 65535
_MOST_KNOWN: Final = 100
"""Values of `Host` that are remembered as allowed."""


def is_loopback(host: str) -> bool:
    """Whether a host is loopback."""
    address = _address(host)
    return host == _LOCALHOST if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host_of(authority: str) -> str | None:
    """The host in a header `Host`, in lower case and without its port; `None` for anything but a host and a port.

    `urlsplit` is too lenient: it drops tabs, and any text after a bracket.
    """
    found = _AUTHORITY.fullmatch(authority)
    if found is None or int(found[2] or 0) > _LAST_PORT:
        return None
    return found[1].lower().strip("[]").removesuffix(".") or None


class Guard:
    """The allowed hosts and origins."""

    def __init__(self, hosts: frozenset[str], origins: frozenset[str], *, addresses: bool) -> None:
        """`hosts` are names in lower case, besides those of loopback.

        `addresses` allows any literal address, for servers that other machines reach.
        """
        self._hosts = hosts
        self._origins = origins
        self._addresses = addresses
        self._known = set[str]()

    def refusal(self, headers: Headers) -> RefusedRequest | None:
        """The reason for rejecting a request, or `None`."""
        sent = headers.get("host")
        if sent is None or "host" in headers.repeated:
            return RefusedRequest(400, RpcError.invalid_request("the header Host is required, once"))
        if not self._serves(sent):
            reason = f"Host {shown(sent)} is not served here; add the name to serve.allowed_hosts"
            return RefusedRequest(403, RpcError.invalid_request(reason))
        origin = headers.get("origin")
        if origin is not None and ("origin" in headers.repeated or not self.allows(origin, sent)):
            reason = f"Origin {shown(origin)} may not call this server; add it to serve.allowed_origins"
            return RefusedRequest(403, RpcError.invalid_request(reason))
        return None

    def _serves(self, authority: str) -> bool:
        """Whether the host of a header `Host` is served. The answers for frequent values are remembered."""
        known = authority in self._known
        if not known:
            host = _host_of(authority)
            known = host is not None and self._serves_host(host)
            if known and len(self._known) < _MOST_KNOWN:
                self._known.add(authority)
        return known

    def _serves_host(self, host: str) -> bool:
        return host in self._hosts or is_loopback(host) or (self._addresses and _address(host) is not None)

    def allows(self, origin: str, host: str) -> bool:
        """Whether pages of an origin may call: those of this machine, of this server, and configured ones."""
        if origin.lower() in self._origins:
            return True
        scheme, _, authority = origin.lower().partition("://")
        named = _host_of(authority)
        return scheme in ("http", "https") and named is not None and (is_loopback(named) or authority == host.lower())
