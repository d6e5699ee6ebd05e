"""Who calls: bearer tokens of the settings, or of an authorization server; and what a caller who is refused is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from prowess.settings.credentials import Caller, Credentials, Refused
from prowess_host.http.binding import Refused as Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess_host.catalog.listing import Listing
    from prowess_host.http.headers import Headers
    from prowess_host.http.oauth import TokenReader
    from prowess_host.protocol.codec import Request

__all__ = ["Access", "NotAllowed", "contract_named"]

_BEARER: Final = "bearer "


class NotAllowed(Exception):
    """A caller is refused: the response says why, and what would help."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


class Access:
    """The credentials that a server knows. Where there are none, anybody may call."""

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
        """Whether anybody may call."""
        return self._tokens is None and not self._credentials.known

    @property
    def leaves_it_to_envelopes(self) -> bool:
        """Whether an envelope may bring its own credentials instead of a header."""
        return self._tokens is None

    async def admit(self, headers: Headers) -> Caller:
        """The caller of a request; raises `NotAllowed`. The message never holds what was sent."""
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

    def require(self, caller: Caller, commands: Iterable[str]) -> None:
        """Raise `NotAllowed`, with all the scopes that are needed, where a caller lacks one for these commands."""
        if caller.scopes is None:
            return
        needed = self._scopes.union(*(self._credentials.needed_by(command) for command in commands))
        if not needed <= caller.scopes:
            raise self._refused(403, "insufficient_scope", needed)

    def challenge(self, status: int) -> tuple[tuple[bytes, bytes], ...]:
        """The fields of a response that refuses a caller for what an envelope says."""
        return self._refused(status, "insufficient_scope" if status == 403 else "").refusal.headers

    @property
    def all_scopes(self) -> list[str]:
        """Every scope that some command needs."""
        return sorted(self._scopes.union(*self._credentials.needed.values()))

    def _refused(self, status: int, error: str = "", scopes: frozenset[str] | None = None) -> NotAllowed:
        told = {"error": error, "resource_metadata": self._metadata_url}
        told["scope"] = " ".join(sorted(self._scopes if scopes is None else scopes))
        challenge = ", ".join(f'{name}="{value}"' for name, value in told.items() if value)
        header = f"Bearer {challenge}".rstrip().encode("latin-1")
        return NotAllowed(Refusal(status, headers=((b"www-authenticate", header),)))


def contract_named(request: Request, listing: Listing) -> Contract | None:
    """The command, the resource or the prompt that a request names, in whatever place its method has for that."""
    params = request.params
    place = params.get("ref", params)
    if not isinstance(place, dict):
        return None
    name, uri = (cast("JsonObject", place).get(member) for member in ("name", "uri"))
    if isinstance(name, str):
        return listing[name]
    return listing.template(uri) if isinstance(uri, str) else None
