"""Access tokens of an authorization server: JSON Web Tokens, checked with the keys that it publishes.

The only module that imports joserfc, which the extra `oauth` brings. Tokens are in no message and in no log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
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
"""Signatures with a private key. One with a shared secret would let whoever reads the keys forge tokens."""
_FRESH: Final = 3600.0
"""Seconds for which fetched keys are cached."""
_AGAIN: Final = 30.0
"""The least seconds between two requests for keys, however many tokens name unknown keys."""
_SECONDS: Final = 10.0
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
        try:
            claims: JsonObject = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
        except (JoseError, ValueError, TypeError, KeyError):
            return None
        now = self._now()
        expires, not_before = claims.get("exp"), claims.get("nbf", 0)
        if not isinstance(expires, (int, float)) or not now < expires + _LEEWAY:  # asked so that NaN fails
            return None
        if not isinstance(not_before, (int, float)) or not now >= not_before - _LEEWAY:
            return None
        sent = claims.get("aud")
        audiences = cast("list[Any]", sent) if isinstance(sent, list) else [sent]
        if claims.get("iss") != self._issuer or not self._audiences.intersection(filter(_is_text, audiences)):
            return None
        return claims

    async def _fresh_keys(self) -> KeySet | None:
        if self._now() - self._fetched > _FRESH:
            await self._fetch()
        return self._keys

    async def _may_be_signed_by_a_new_key(self, token: str, keys: KeySet | None) -> bool:
        """Ask for the keys again where a token names one that is not among them. Gives whether there are others now."""
        if keys is None or _key_id(token) in {key.kid for key in keys.keys}:
            return False
        await self._fetch()
        return self._keys is not keys

    async def _fetch(self) -> None:
        async with self._fetching:
            if self._now() - self._asked < _AGAIN:
                return
            self._asked = self._now()
            try:
                self._keys = await asyncio.to_thread(self._download)
                self._fetched = self._asked
            except (OSError, ValueError, TypeError, KeyError, JoseError) as error:
                _log.warning("the keys of %s cannot be fetched: %s", self._issuer, error)

    def _download(self) -> KeySet:
        if self._jwks_url is None:
            self._jwks_url = self._discover()
        return KeySet.import_key_set(cast("Any", _get(self._jwks_url)))

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


def _get(url: str) -> JsonObject:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see `require_safe`
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - as above
        found: Any = json.loads(answer.read(_MOST))
    if not isinstance(found, dict):
        raise TypeError(f"{url} is not a JSON object")
    return cast("JsonObject", found)


def require_safe(url: str) -> None:
    """Raise `SettingsError` for an address that somebody on the way could answer for."""
    split = urlsplit(url)
    if split.scheme == "https" or (split.scheme == "http" and is_loopback(split.hostname or "")):
        return
    raise SettingsError(f"{url} must be https: whoever can change what it says decides who may call")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


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


# What clients are told


def metadata_urls(resource: str) -> tuple[str, str]:
    """The paths of RFC 9728 at which the metadata of a resource is found."""
    path = urlsplit(resource).path.rstrip("/")
    return f"/.well-known/oauth-protected-resource{path}", "/.well-known/oauth-protected-resource"


def protected_resource(resource: str, issuer: str, scopes: list[str], name: str) -> JsonObject:
    """The metadata of RFC 9728."""
    told: JsonObject = {
        "resource": resource,
        "authorization_servers": [issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": name,
    }
    return {**told, "scopes_supported": scopes} if scopes else told
