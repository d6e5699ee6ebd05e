"""Access tokens of an authorization server: JSON Web Tokens, checked with the keys that it publishes.

The only module that imports joserfc (extra `oauth`). Messages and logs never contain tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from http.client import HTTPException
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from prowess.errors import SettingsError
from prowess.jsontypes import JsonObject
from prowess.settings.credentials import Caller
from prowess_host.http.guard import is_loopback

__all__ = ["TokenReader", "metadata_urls", "protected_resource", "require_safe"]

_log = logging.getLogger("prowess.host")
_ALGORITHMS: Final = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]
"""Signatures with a private key. With a shared secret, every reader of the keys could forge tokens."""
_FRESH: Final = 3600.0
"""Seconds after which keys are fetched again."""
_STALE: Final = 24 * 3600.0
"""Seconds after which keys that cannot be fetched again are no longer trusted: one of them may be revoked."""
_AGAIN: Final = 30.0
"""Seconds between two requests for keys at least, even if many tokens name unknown keys."""
_MOST_KEYS: Final = 10
"""Keys that are tried on a token that names none."""
_SECONDS: Final = 10.0
_WRONG: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError, JoseError)
"""Raised for keys and tokens that are not as they should be."""
_MOST: Final = 1024 * 1024
_LEEWAY: Final = 30
"""The tolerated difference of two clocks in seconds."""


class TokenReader:
    """Reads tokens of one issuer for one audience."""

    def __init__(
        self,
        issuer: str,
        audiences: frozenset[str],
        jwks_url: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._issuer = issuer
        self._audiences = audiences
        self._jwks_url = jwks_url
        self._now = now
        self._keys: KeySet | None = None
        self._fetched = float("-inf")
        self._asked = float("-inf")
        self._fetching = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def caller(self, token: str) -> Caller | None:
        """The subject and the scopes of a token; `None` if it is invalid."""
        keys = await self._fresh_keys()
        claims = self._claims(token, keys) if keys is not None else None
        if claims is None and await self._may_be_signed_by_a_new_key(token, keys):
            keys = self._keys
            claims = self._claims(token, keys) if keys is not None else None
        if claims is None:
            return None
        subject = claims.get("sub") or claims.get("client_id") or claims.get("azp") or ""
        return Caller(scopes=_scopes_of(claims), subject=f"{self._issuer} {subject}")

    def _claims(self, token: str, keys: KeySet) -> JsonObject | None:
        """The claims of a token with a valid signature, issuer, audience and times."""
        claims = next(filter(None, (_verified(token, each) for each in _candidates(token, keys))), None)
        if claims is None:
            return None
        now = self._now()
        expires, not_before = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires, (int, float)) or not now < expires + _LEEWAY:  # written so that NaN fails
            return None
        if not isinstance(not_before, (int, float)) or not now >= not_before - _LEEWAY:
            return None
        sent = claims.get("aud")
        audiences = cast("list[Any]", sent) if isinstance(sent, list) else [sent]
        if claims.get("iss") != self._issuer or not self._audiences.intersection(filter(_is_text, audiences)):
            return None
        return claims

    async def _fresh_keys(self) -> KeySet | None:
        """The keys. If fetching new ones fails, the old ones are used for up to a day."""
        age = self._now() - self._fetched
        if not 0 <= age <= _STALE:  # nobody knows the age if the clock was set back
            self._keys = None
            await self._fetch()
        elif age > _FRESH and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._fetch())
        return self._keys

    async def _may_be_signed_by_a_new_key(self, token: str, keys: KeySet | None) -> bool:
        """Fetch the keys again if a token names an unknown one. Returns whether there are new keys."""
        if keys is None or _key_id(token) in {key.kid for key in keys.keys}:
            return False
        await self._fetch()
        return self._keys is not keys

    async def _fetch(self) -> None:
        async with self._fetching:
            if 0 <= self._now() - self._asked < _AGAIN:
                return
            self._asked = self._now()
            try:
                self._keys = await asyncio.to_thread(self._download)
                self._fetched = self._asked
            except (*_WRONG, OSError, HTTPException, SettingsError) as error:
                _log.warning("the keys of %s cannot be fetched: %s", self._issuer, error)

    def _download(self) -> KeySet:
        if self._jwks_url is None:
            self._jwks_url = self._discover()
        return _read_keys(_get(self._jwks_url))

    def _discover(self) -> str:
        """The URL of the keys, from the metadata of the authorization server."""
        split = urlsplit(self._issuer)
        path = split.path.rstrip("/")
        places = [
            f"/.well-known/oauth-authorization-server{path}",
            f"/.well-known/openid-configuration{path}",
            f"{path}/.well-known/openid-configuration",
        ]
        for place in dict.fromkeys(places):
            try:
                found = _get(urlunsplit((split.scheme, split.netloc, place, "", "")))
            except urllib.error.HTTPError:
                continue
            if found.get("issuer") == self._issuer and isinstance(found.get("jwks_uri"), str):
                require_safe(found["jwks_uri"])
                return found["jwks_uri"]
        raise ValueError("it publishes no metadata with this issuer and a jwks_uri; set serve.oauth_jwks")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to a safe address (see `require_safe`), and never from https to http."""

    def redirect_request(  # noqa: PLR0917 - the signature of urllib
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request for the other address."""
        require_safe(newurl, https=req.type == "https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _get(url: str) -> JsonObject:
    end = time.monotonic() + _SECONDS
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see `require_safe`
    try:
        answer = urllib.request.build_opener(_SafeRedirects).open(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise
    with answer:
        text = b""
        while part := answer.read1(_MOST - len(text)):
            text += part
            if time.monotonic() > end:
                raise TimeoutError(f"{url} did not answer within {_SECONDS:g} seconds")
        found: Any = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError(f"{url} is not a JSON object")
    return cast("JsonObject", found)


def require_safe(url: str, *, https: bool = False) -> None:
    """Raise `SettingsError` for an address whose answers could be forged: only https is safe, and loopback unless `https`."""
    split = urlsplit(url)
    if split.scheme == "https" or (not https and split.scheme == "http" and is_loopback(split.hostname or "")):
        return
    raise SettingsError(f"{url} must be https, because anyone who can change its content decides who may call")


def _read_keys(published: JsonObject) -> KeySet:
    """The keys of an authorization server for signatures. Keys of unknown kinds are skipped, as RFC 7517 asks."""
    keys: list[Any] = []
    for each in published["keys"]:
        with contextlib.suppress(*_WRONG):
            if each.get("kty") != "oct" and each.get("use", "sig") == "sig":
                keys += KeySet.import_key_set({"keys": [each]}).keys
    if not keys:
        raise ValueError("it publishes no key that can be used here")
    return KeySet(keys)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _candidates(token: str, keys: KeySet) -> Iterable[KeySet]:
    """The key that a token names; a few of the keys if it names none, as servers with one key do."""
    if len(keys.keys) == 1 or _key_id(token) is not None:
        return (keys,)
    return (KeySet([each]) for each in keys.keys[:_MOST_KEYS])


def _verified(token: str, keys: KeySet) -> JsonObject | None:
    try:
        return jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
    except _WRONG:
        return None


def _key_id(token: str) -> str | None:
    import base64

    try:
        head = token.partition(".")[0]
        named: Any = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).get("kid")
    except (ValueError, AttributeError, RecursionError):
        return None
    return named if isinstance(named, str) else None


def _scopes_of(claims: JsonObject) -> frozenset[str]:
    sent = claims.get("scope", claims.get("scp", ""))
    if isinstance(sent, str):
        return frozenset(sent.split())
    return frozenset(filter(_is_text, cast("list[Any]", sent))) if isinstance(sent, list) else frozenset()


# Metadata for clients


def metadata_urls(resource: str) -> tuple[str, str]:
    """The paths of RFC 9728 at which the metadata of a resource is found."""
    path = urlsplit(resource).path.rstrip("/")
    return f"/.well-known/oauth-protected-resource{path}", "/.well-known/oauth-protected-resource"


def protected_resource(resource: str, issuer: str, scopes: list[str], name: str) -> JsonObject:
    """The metadata of RFC 9728."""
    document: JsonObject = {
        "resource": resource,
        "authorization_servers": [issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": name,
    }
    return {**document, "scopes_supported": scopes} if scopes else document
