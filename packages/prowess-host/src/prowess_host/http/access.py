"""Authenticates callers, by tokens of the settings or of an authorization server, and limits requests at once.

Also makes the responses that refuse a caller.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import time
from collections.abc import Generator, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from prowess.settings.credentials import Caller, Credentials, Refused
from prowess_host.http.binding import RefusedRequest as Refusal
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
    from prowess_host.protocol.codec import RpcRequest

__all__ = ["Access", "InFlight", "NotAllowed", "busy", "client_of", "names_in"]

_BEARER: Final = "bearer "
_SOON: Final = 1
"""Seconds after which a client that was refused at a limit may try again."""
_HOST_BITS: Final = 64
"""Bits of an IPv6 address that its owner chooses freely, so that one client has many addresses."""


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
        """`tokens` reads tokens of an authorization server; clients find that server at `metadata_url`."""
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
        if sent is None or "authorization" in headers.repeated or sent[: len(_BEARER)].lower() != _BEARER:
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

    def admit_by_envelope(self, auth: object) -> Caller:
        """The caller of an envelope with these credentials; raises `Refused`."""
        return self._credentials.authenticate(auth)

    def require(self, caller: Caller, named: Iterable[str]) -> None:
        """Raise `NotAllowed`, with all required scopes, if a caller lacks one for these commands and URIs."""
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
        fields = {"error": error, "resource_metadata": self._metadata_url}
        fields["scope"] = " ".join(sorted(self._scopes if scopes is None else scopes))
        challenge = ", ".join(f'{name}="{value}"' for name, value in fields.items() if value)
        header = f"Bearer {challenge}".rstrip().encode("latin-1")
        return NotAllowed(Refusal(status, headers=((b"www-authenticate", header),)))


def busy(reason: str, status: int = 503, seconds: int = _SOON) -> Refusal:
    """The refusal at a limit, with a time to try again. The status 429 means the limit of the client itself."""
    error = RpcError(INTERNAL_ERROR, f"{reason}; try again in {seconds} s", {"prowess/retry_after": seconds})
    return Refusal(status, error, headers=((b"retry-after", b"%d" % seconds),))


def client_of(caller: Caller | None, address: str) -> Hashable:
    """The client that a request counts for: its caller, or its address on a server without credentials."""
    return _client_at(address) if caller is None or caller.is_anybody else caller


@functools.lru_cache(maxsize=1000)
def _client_at(address: str) -> Hashable:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found if found.version == 4 else found.ipv4_mapped
    return str(mapped) if mapped is not None else int(found) >> _HOST_BITS  # a text, since addresses hash slowly


class InFlight:
    """Counts running requests, in total and for each client. Raises `NotAllowed` beyond either limit."""

    def __init__(self, most: int, most_of_one: int, things: str = "requests are already running") -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._things = things
        self.number = 0
        self._of: dict[Hashable, int] = {}
        self._half = (min(most, most_of_one) + 1) // 2
        self._since = 0.0
        """When the count last reached half of the limit."""
        self._ended = 0
        """The number that have ended since."""

    def is_full(self, client: Hashable) -> bool:
        """Whether another one of this client would exceed a limit."""
        return self.number >= self._most or self._of.get(client, 0) >= self._most_of_one

    def refuse(self, client: Hashable) -> NoReturn:
        """Raise `NotAllowed` with the exceeded limit."""
        own = self._of.get(client, 0)
        seconds = retry_after(self.number, self.number, self._ended, time.monotonic() - self._since)
        if own >= self._most_of_one:
            raise NotAllowed(busy(f"{own} {self._things} for you", 429, seconds))
        raise NotAllowed(busy(f"{self.number} {self._things}", seconds=seconds))

    @contextlib.contextmanager
    def one(self, client: Hashable) -> Generator[None]:
        """Count one within the block. Raises `NotAllowed` at a limit."""
        self.enter(client)
        try:
            yield
        finally:
            self.leave(client)

    def enter(self, client: Hashable) -> None:
        """Count one more. Raises `NotAllowed` at a limit."""
        if self.is_full(client):
            self.refuse(client)
        self.stay(client)

    def stay(self, client: Hashable, number: int = 1) -> None:
        """Count calls without checking the limit: those that continue without their response, or all of a batch."""
        before = self.number
        self.number += number
        self._of[client] = self._of.get(client, 0) + number
        if before < self._half <= self.number:
            self._since, self._ended = time.monotonic(), 0

    def leave(self, client: Hashable, number: int = 1) -> None:
        """Count one or several less."""
        self.number -= number
        self._ended += number
        self._of[client] -= number
        if not self._of[client]:
            del self._of[client]


def names_in(request: RpcRequest, listing: Listing) -> Iterator[str]:
    """All names and URIs in a request, also in members that its method ignores."""
    for place in (request.params, request.params.get("ref")):
        if isinstance(place, dict):
            name, uri = (cast("JsonObject", place).get(member) for member in ("name", "uri"))
            if isinstance(name, str):
                yield from _ids(listing[name])
            if isinstance(uri, str):
                yield from _resources_at(uri, listing)
    notifications = request.params.get("notifications")
    uris = cast("JsonObject", notifications).get(RESOURCES) if isinstance(notifications, dict) else None
    for uri in cast("list[Any]", uris) if isinstance(uris, list) else ():
        if isinstance(uri, str):
            yield from _resources_at(uri, listing)


def _resources_at(uri: str, listing: Listing) -> Iterator[str]:
    """A URI, also as that of a folder, with the resource for it and the template with this spelling."""
    yield uri
    yield f"{uri}/"
    read = listing.resource(uri)
    yield from _ids(listing.template(uri), None if read is None else read[0])


def _ids(*found: Contract | None) -> Iterator[str]:
    return (contract.id for contract in found if contract is not None)
