"""Who calls: bearer tokens of the settings, or of an authorization server; how many at once; and what who is refused is told."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import time
from collections.abc import Generator, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from prowess.settings.credentials import Caller, Credentials, Refused
from prowess_host.http.binding import Refused as Refusal
from prowess_host.protocol.rpc import INTERNAL_ERROR, RpcError
from prowess_host.protocol.subscriptions import RESOURCES
from prowess_host.workers.queue import retry_after

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess_host.catalog.listing import Listing
    from prowess_host.http.headers import Headers
    from prowess_host.http.oauth import TokenReader
    from prowess_host.protocol.codec import Request

__all__ = ["Access", "InFlight", "NotAllowed", "busy", "client_of", "names_in"]

_BEARER: Final = "bearer "
_SOON: Final = 1
"""Seconds after which a client that was refused for want of room may try again."""
_HOST_BITS: Final = 64
"""Bits of an address of IPv6 that its owner chooses freely: a client has as many addresses as it likes."""


class NotAllowed(Exception):
    """A rejected caller; the response has the reason and the remedy."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


class Access:
    """The credentials of a server. Without credentials, anyone may call."""

    def __init__(
        self,
        credentials: Credentials,
        tokens: TokenReader | None = None,
        *,
        metadata_url: str = "",
        scopes: tuple[str, ...] = (),
    ) -> None:
        """`tokens` reads those of an authorization server; `metadata_url` is where clients learn which one that is."""
        self._credentials = credentials
        self._tokens = tokens
        self._metadata_url = metadata_url
        self._scopes = frozenset(scopes)

    @property
    def is_open(self) -> bool:
        """Whether calls need no credentials."""
        return self._tokens is None and not self._credentials.known

    @property
    def leaves_it_to_envelopes(self) -> bool:
        """Whether an envelope may have its own credentials instead of a header."""
        return self._tokens is None

    async def admit(self, headers: Headers) -> Caller:
        """The caller of a request; raises `NotAllowed`. The message never contains the credentials."""
        if self.is_open:
            return Caller()
        sent = headers.get("authorization")
        if sent is None or b"authorization" in headers.repeated or sent[: len(_BEARER)].lower() != _BEARER:
            raise self._refused(401)
        token = sent[len(_BEARER) :].strip()
        caller = self._known(token)
        if caller is None and self._tokens is not None:
            caller = await self._tokens.caller(token)
        if caller is None:
            raise self._refused(401, "invalid_token")
        if caller.scopes is not None and not self._scopes <= caller.scopes:
            raise self._refused(403, "insufficient_scope", self._scopes)
        return caller

    def _known(self, token: str) -> Caller | None:
        if not self._credentials.known:
            return None
        try:
            return self._credentials.authenticate({"type": "bearer", "token": token})
        except Refused:
            return None

    def require(self, caller: Caller, named: Iterable[str]) -> None:
        """Raise `NotAllowed`, with all the scopes that are needed, where a caller lacks one for these commands and URIs."""
        needed = self._scopes.union(*map(self._credentials.needed_by, named))
        if caller.scopes is not None and not needed <= caller.scopes:
            raise self._refused(403, "insufficient_scope", needed)

    def allows(self, caller: Caller, *named: str) -> bool:
        """Whether a caller has the scopes for these commands and URIs."""
        return caller.scopes is None or all(self._credentials.needed_by(each) <= caller.scopes for each in named)

    def challenge(self, status: int) -> tuple[tuple[bytes, bytes], ...]:
        """The headers of a response that refuses the credentials in an envelope."""
        return self._refused(status, "insufficient_scope" if status == 403 else "").refusal.headers

    @property
    def all_scopes(self) -> list[str]:
        """All scopes that commands need."""
        return sorted(self._scopes.union(*self._credentials.needed.values()))

    def _refused(self, status: int, error: str = "", scopes: frozenset[str] | None = None) -> NotAllowed:
        told = {"error": error, "resource_metadata": self._metadata_url}
        told["scope"] = " ".join(sorted(self._scopes if scopes is None else scopes))
        challenge = ", ".join(f'{name}="{value}"' for name, value in told.items() if value)
        header = f"Bearer {challenge}".rstrip().encode("latin-1")
        return NotAllowed(Refusal(status, headers=((b"www-authenticate", header),)))


def busy(reason: str, status: int = 503, seconds: int = _SOON) -> Refusal:
    """There is no room: trying again later helps. With 429, it is the client itself who takes the room."""
    error = RpcError(INTERNAL_ERROR, f"{reason}; try again in {seconds} s", {"prowess/retry_after": seconds})
    return Refusal(status, error, headers=((b"retry-after", b"%d" % seconds),))


def client_of(caller: Caller | None, address: str) -> Hashable:
    """Whom a request counts for: its caller, or where anybody may call its address."""
    return caller if caller is not None and (caller.number or caller.subject) else _client_at(address)


@functools.lru_cache(maxsize=1000)
def _client_at(address: str) -> Hashable:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return found
    return found.ipv4_mapped or int(found) >> _HOST_BITS


class InFlight:
    """What goes on now, at every door: all of it, and that of each client. Beyond either bound, `NotAllowed` is raised."""

    def __init__(self, most: int, most_of_one: int, things: str = "requests are already running") -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._things = things
        self.number = 0
        self._of: dict[Hashable, int] = {}
        self._half = (min(most, most_of_one) + 1) // 2
        self._since = 0.0
        """When half of the room was taken."""
        self._ended = 0
        """How many have ended since."""

    def is_full(self, client: Hashable) -> bool:
        """Whether there is no room for another one of a client."""
        return self.number >= self._most or self._of.get(client, 0) >= self._most_of_one

    def refuse(self, client: Hashable) -> NoReturn:
        """Raise `NotAllowed` that says so."""
        own = self._of.get(client, 0)
        seconds = retry_after(self.number, self.number, self._ended, time.monotonic() - self._since)
        if own >= self._most_of_one:
            raise NotAllowed(busy(f"{own} {self._things} for you", 429, seconds))
        raise NotAllowed(busy(f"{self.number} {self._things}", seconds=seconds))

    @contextlib.contextmanager
    def one(self, client: Hashable) -> Generator[None]:
        """Count one of a client for as long as it takes; raises `NotAllowed` where there is no room."""
        self.enter(client)
        try:
            yield
        finally:
            self.leave(client)

    def enter(self, client: Hashable) -> None:
        """Count one more; raises `NotAllowed` where there is no room."""
        if self.is_full(client):
            self.refuse(client)
        self.stay(client)

    def stay(self, client: Hashable, number: int = 1) -> None:
        """Count one more that goes on, although nobody waits for its response, or as many as a batch has."""
        before = self.number
        self.number += number
        self._of[client] = self._of.get(client, 0) + number
        if before < self._half <= self.number:
            self._since, self._ended = time.monotonic(), 0

    def leave(self, client: Hashable, number: int = 1) -> None:
        """Count one less, or so many."""
        self.number -= number
        self._ended += number
        self._of[client] -= number
        if not self._of[client]:
            del self._of[client]


def names_in(request: Request, listing: Listing) -> Iterator[str]:
    """Whatever a request could mean by a name or a URI, wherever it stands: a member that its method ignores hides nothing."""
    for place in (request.params, request.params.get("ref")):
        if isinstance(place, dict):
            name, uri = (cast("JsonObject", place).get(member) for member in ("name", "uri"))
            if isinstance(name, str):
                yield from _ids(listing[name])
            if isinstance(uri, str):
                yield from _resources_at(uri, listing)
    wanted = request.params.get("notifications")
    uris = cast("JsonObject", wanted).get(RESOURCES) if isinstance(wanted, dict) else None
    for uri in cast("list[Any]", uris) if isinstance(uris, list) else ():
        if isinstance(uri, str):
            yield from _resources_at(uri, listing)


def _resources_at(uri: str, listing: Listing) -> Iterator[str]:
    """A URI, as that of a folder too, the resource that is read at it, and the template that is spelled so."""
    yield uri
    yield f"{uri}/"
    read = listing.resource(uri)
    yield from _ids(listing.template(uri), None if read is None else read[0])


def _ids(*found: Contract | None) -> Iterator[str]:
    return (contract.id for contract in found if contract is not None)
