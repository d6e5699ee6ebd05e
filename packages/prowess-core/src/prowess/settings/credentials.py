"""Authenticates callers and checks their scopes, by the credentials in the settings. The only module that compares secrets."""

from __future__ import annotations

import base64
import fnmatch
import hmac
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, cast
from urllib.parse import unquote, unquote_plus

from prowess.errors import SettingsError
from prowess.frozen import frozen
from prowess.settings.settings import Settings

__all__ = ["Caller", "Credentials", "Refused"]

_TYPES: Final = ("bearer", "api_key", "basic")


class Refused(Exception):
    """The caller is refused. The message never contains what the caller sent."""

    def __init__(self, code: str, http: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.http = http


@frozen
class _Credential:
    type: str
    secret: bytes = field(repr=False)
    scopes: frozenset[str] | None


@frozen
class Caller:
    """A caller: the number of its credential, and the granted scopes; `None` stands for all.

    A client that gets a token with other scopes remains the same caller.
    """

    number: int = 0
    scopes: frozenset[str] | None = field(default=None, compare=False)
    subject: str = ""
    """The subject of a token from an authorization server."""

    @property
    def is_anybody(self) -> bool:
        """Whether the caller is unknown."""
        return not self.number and not self.subject

    @property
    def partition(self) -> str:
        """The scopes as a string, empty if unlimited. Callers with different scopes share no cached results."""
        return "" if self.scopes is None else json.dumps(sorted(self.scopes))

    def __str__(self) -> str:
        """The identity without the scopes."""
        return f"{self.number} {self.subject}"


@frozen
class Credentials:
    """The configured credentials, and the scopes that commands need. Without credentials, everybody may call everything."""

    known: tuple[_Credential, ...] = ()
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    @classmethod
    def of(cls, settings: Settings) -> Credentials:
        """Read the settings: `auth.token`, a bearer token with all scopes; `[[auth.credentials]]` with type, token (or
        user and password) and scopes; and `[auth.scopes]`, which maps command ids, URIs, or patterns of either to the scopes they need.
        """
        token = settings.get("auth.token", None)
        listed = settings.get("auth.credentials", [])
        if not isinstance(listed, list):
            raise SettingsError("auth.credentials must be a list of tables: write [[auth.credentials]]")
        known = tuple(_credential(item, number) for number, item in enumerate(cast("list[Any]", listed), 1))
        if token is not None:
            known += (_all_powerful(token),)
        scopes = settings.get("auth.scopes", {})
        if not isinstance(scopes, Mapping):
            raise SettingsError('auth.scopes must be a table, like "notes.*" = ["notes:read"]')
        named = cast("Mapping[str, Any]", scopes)
        return cls(known, {pattern: _scopes(value, f"auth.scopes.{pattern}") for pattern, value in named.items()})

    def authenticate(self, auth: object) -> Caller:
        """The caller for the `auth` of a request, which may hold anything. Raises `Refused`."""
        if not self.known:
            return Caller()
        caller = self._match(cast("Mapping[str, Any]", auth if isinstance(auth, Mapping) else {}))
        if caller is None:
            raise Refused("unauthenticated", 401, "auth: no configured credential matches")
        return caller

    def authorize(self, caller: Caller, command: str, requested: frozenset[str] | None) -> None:
        """Raise `Refused` for a command that needs more scopes than the caller has, or than the caller asks for.

        A request may narrow the scopes of its credential, down to none, and never widen them.
        """
        needed = self.needed_by(command)
        missing = {scope for scope in needed if not all(of is None or scope in of for of in (caller.scopes, requested))}
        if missing:
            raise Refused("forbidden", 403, f"auth: {command} needs the scope {', '.join(sorted(missing))}")

    def _match(self, auth: Mapping[str, Any]) -> Caller | None:
        """The matching credential. All of them are compared, so that the time reveals nothing."""
        sent = _sent(auth)
        found: Caller | None = None
        for number, credential in enumerate(self.known, 1):
            same = hmac.compare_digest(credential.secret, sent)
            if same and credential.type == auth.get("type"):
                found = Caller(number, credential.scopes)
        return found

    def needed_by(self, name: str) -> frozenset[str]:
        """The scopes that a command or the URI of a resource needs. URIs are compared in decoded form."""
        forms = {name, unquote(name), unquote_plus(name)}
        fitting = (
            scopes
            for pattern, scopes in self.needed.items()
            if any(fnmatch.fnmatchcase(form, written) for form in forms for written in {pattern, unquote(pattern)})
        )
        return frozenset[str]().union(*fitting)


def _sent(auth: Mapping[str, Any]) -> bytes:
    """The secret of a request; for basic authentication, `user:password` with or without its base64."""
    token = str(auth.get("token", "")).encode("utf-8", "surrogatepass")
    if auth.get("type") != "basic" or b":" in token:
        return token
    try:
        return base64.b64decode(token, validate=True)
    except ValueError:
        return token


def _credential(item: object, number: int) -> _Credential:
    place = f"auth.credentials, entry {number}"
    if not isinstance(item, Mapping):
        raise SettingsError(f"{place}: must be a table")
    table = cast("Mapping[str, Any]", item)
    kind = table.get("type")
    if kind not in _TYPES:
        raise SettingsError(f"{place}: type must be one of {', '.join(_TYPES)}")
    names = ("user", "password") if kind == "basic" else ("token",)
    parts = [table.get(name) for name in names]
    if not all(isinstance(part, str) and part for part in parts):
        raise SettingsError(f"{place}: {kind} needs {' and '.join(names)}, as text")
    secret = ":".join(cast("list[str]", parts)).encode()
    return _Credential(cast("str", kind), secret, _scopes(table.get("scopes", []), f"{place}, scopes"))


def _all_powerful(token: object) -> _Credential:
    if not isinstance(token, str) or not token:
        raise SettingsError("auth.token must be a non-empty string")
    return _Credential("bearer", token.encode(), None)


def _scopes(value: object, place: str) -> frozenset[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise SettingsError(f'{place}: must be a list of strings, like ["notes:read"]')
    return frozenset(cast("list[str]", value))
