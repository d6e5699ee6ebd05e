"""The addresses of clients behind proxies, from `X-Forwarded-For`. Only the addresses that trusted proxies have added count."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

from prowess.errors import SettingsError

__all__ = ["Proxies"]

_Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


class Proxies:
    """The trusted proxies."""

    def __init__(self, trusted: Iterable[str]) -> None:
        """`trusted` names addresses and networks. Raises `SettingsError` for other texts."""
        self._networks = [_network(each) for each in trusted]

    def client(self, peer: str, forwarded: str | None) -> str:
        """The nearest address that is not a trusted proxy. Each proxy adds its client at the end, so the beginning may be forged."""
        client = peer
        while forwarded and self._trusts(client):
            forwarded, _, nearest = forwarded.rpartition(",")
            address = _parsed(nearest.strip(" \t"))
            if address is None:
                break
            client = str(address)
        return client

    def _trusts(self, address: str) -> bool:
        found = _parsed(address)
        return found is not None and any(found in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise SettingsError(
            f'serve.trusted_proxies must be addresses or networks, like "10.0.0.5" or "10.0.0.0/8", not {text!r}: {error}'
        ) from None


def _parsed(text: str) -> _Address | None:
    """An address; `None` for anything else, such as one with a port."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return found if mapped is None else mapped
