"""Tokens of a real authorization server: who is let in with them, and who is not."""

from __future__ import annotations

import base64
import json
import sys
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from piped import make_project
from web import READ_AND_WRITE, Answer, Web, bearer, initialize, served_over_http

from prowess.errors import SettingsError

pytest.importorskip("authlib")
sys.path.append(str(Path(__file__).parent))  # importlib mode puts nothing there

if TYPE_CHECKING:
    from authorization_server import Issuer

SCOPES = '[auth.scopes]\n"t.write" = ["notes:write", "notes:read"]\n'


@pytest.fixture(scope="module")
def issuer() -> Generator[Issuer]:
    from authorization_server import issuing

    with issuing() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def web(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Generator[Web]:
    """A server that accepts its tokens."""
    root = make_project(tmp_path_factory.mktemp("oauth"), settings=SCOPES, t=READ_AND_WRITE)
    options = ("--set", f"serve.oauth_issuer={issuer.url}", "--set", 'serve.oauth_scopes=["tools"]')
    with served_over_http(root, *options) as web:
        yield web


def resource(web: Web) -> str:
    return f"{web.url}/mcp"


def test_clients_learn_where_to_get_a_token(web: Web, issuer: Issuer) -> None:
    """By what a refusal names, and by the well-known paths."""
    refused = web.stateless("tools/list")
    assert 401 == refused.status
    told = refused.headers["www-authenticate"]
    place = f"{web.url}/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{place}"' in told
    assert 'scope="tools"' in told
    assert "error=" not in told
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
        metadata = web.ask("GET", path).json
        assert (resource(web), [issuer.url]) == (metadata["resource"], metadata["authorization_servers"])
        assert ["notes:read", "notes:write", "tools"] == metadata["scopes_supported"]


def test_an_issued_token_lets_in(web: Web, issuer: Issuer) -> None:
    token = issuer.token(resource(web), "tools")
    assert "read" == web.call("t_read", bearer(token)).text
    fields = initialize(web, headers=bearer(token))
    assert 200 == web.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, fields).status


def test_scopes_are_those_of_the_token(web: Web, issuer: Issuer) -> None:
    """A refusal names all that the call needs."""
    few = web.call("t_write", bearer(issuer.token(resource(web), "tools notes:read")))
    assert 403 == few.status
    told = few.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in told
    assert 'scope="notes:read notes:write tools"' in told
    assert "resource_metadata=" in told
    enough = issuer.token(resource(web), "tools notes:read notes:write")
    assert "written" == web.call("t_write", bearer(enough)).text
    assert 403 == web.call("t_read", bearer(issuer.token(resource(web), "notes:read"))).status


def test_tokens_that_do_not_hold_are_refused(web: Web, issuer: Issuer) -> None:
    """Each for one reason; the same claims without it are accepted."""
    from joserfc import jws
    from joserfc.jwk import RSAKey

    audience, now = resource(web), int(time.time())
    assert 200 == web.stateless("tools/list", bearer(issuer.forged(audience))).status
    assert 200 == web.stateless("tools/list", bearer(issuer.forged([audience, "other"]))).status  # type: ignore[arg-type]
    stranger = RSAKey.generate_key(2048, {"kid": "first"}, private=True)
    good = issuer.forged(audience)
    head, payload, signature = good.split(".")
    bad = {
        "audience": issuer.forged("https://elsewhere.example.com/mcp"),
        "prefix of the audience": issuer.forged(f"{audience}/more"),
        "no audience": issuer.forged(audience, aud=None),
        "issuer": issuer.forged(audience, iss="https://evil.example.com"),
        "expired": issuer.forged(audience, exp=now - 60),
        "never expires": issuer.forged(audience, exp=None),
        "text as time": issuer.forged(audience, exp="9999999999"),
        "not yet": issuer.forged(audience, nbf=now + 600),
        "another key": issuer.forged(audience, key=stranger),
        "a shared secret": issuer.stolen(audience),
        "no signature": f"{head}.{payload}.",
        "changed": f"{head}.{payload[:-2]}AA.{signature}",
        "no algorithm": f"eyJhbGciOiJub25lIn0.{payload}.",
        "garbage": "a.b.c",
        "nothing": "x",
        "no number as time": issuer.forged(audience, exp=float("nan")),
        "no number as the first time": issuer.forged(audience, nbf=float("nan")),
        "a list as key": f"{_part({'alg': 'RS256', 'kid': ['first']})}.{payload}.{signature}",
        "a list as algorithm": f"{_part({'alg': ['RS256']})}.{payload}.{signature}",
        "a list as head": f"{_part(['RS256'])}.{payload}.{signature}",
        "a deep head": f"{_part('[' * 5_000)}.{payload}.{signature}",
        "deep claims": jws.serialize_compact({"alg": "RS256"}, b"[" * 5_000, issuer.key, ["RS256"]),
        "a critical extension": f"{_part({'alg': 'RS256', 'kid': 'first', 'crit': {}})}.{payload}.{signature}",
        "letters beyond ASCII": "\xe9.\xe9.\xe9",
        "many parts": "a." * 3_000,
    }
    for reason, token in bad.items():
        refused = web.stateless("tools/list", bearer(token))
        assert (401, True) == (refused.status, 'error="invalid_token"' in refused.headers["www-authenticate"]), reason


def _part(value: object) -> str:
    """A part of a token."""
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_keys_may_change(web: Web, issuer: Issuer) -> None:
    """A token of a key that is not known yet makes the server ask, and not more often than now and then."""
    assert 200 == web.stateless("tools/list", bearer(issuer.forged(resource(web)))).status
    fetched = issuer.fetched
    assert 1 <= fetched <= 2, "strangers' keys do not make the server ask all the time"


def test_an_issuer_must_be_safe(tmp_path: Path) -> None:
    """Whoever can change what is sent over plain HTTP would decide who may call."""
    root = make_project(tmp_path, t=READ_AND_WRITE)
    options = ("--set", "serve.oauth_issuer=http://login.example.com")
    with pytest.raises(AssertionError, match="must be https"), served_over_http(root, *options, code=2):
        pass


def test_a_session_goes_on_with_another_token_of_its_client(web: Web, issuer: Issuer) -> None:
    """Clients get one with more scopes when they are asked for more; each request has the scopes of its own token."""
    few, many = (bearer(issuer.token(resource(web), f"tools{more}")) for more in ("", " notes:read notes:write"))
    fields = initialize(web, headers=few)

    def call(headers: dict[str, str]) -> Answer:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t_write", "arguments": {}}}
        return web.ask("POST", "/mcp", body, {**fields, **headers})

    assert 403 == call(few).status
    assert "written" == call(many).text
    assert 403 == call(few).status
    stranger = bearer(issuer.forged(resource(web), sub="another", scope="tools notes:read notes:write"))
    assert 404 == call(stranger).status


async def test_a_reader_of_tokens_fetches_new_keys(issuer: Issuer) -> None:
    """After half a minute at the earliest, or when its clock was set back, since nobody knows how long ago it asked."""
    from prowess_host.http.oauth import TokenReader

    later = 0.0
    steps = (31.0, -7200.0)
    readers = {
        step: TokenReader(issuer.url, frozenset({"a"}), now=lambda step=step: time.time() + later * step)
        for step in steps
    }
    for reader in readers.values():
        assert (await reader.caller(issuer.forged("a"))) is not None
    issuer.rotate()
    assert (await readers[31].caller(issuer.forged("a"))) is None
    later = 1.0
    for reader in readers.values():
        caller = await reader.caller(issuer.forged("a"))
        assert caller is not None
        assert (frozenset({"tools"}), f"{issuer.url} agent") == (caller.scopes, caller.subject)
    nameless = issuer.token("a", "tools")
    assert "kid" not in json.loads(base64.urlsafe_b64decode(nameless.partition(".")[0] + "=="))
    assert (await readers[31].caller(nameless)) is not None, "one of two keys fits"


async def test_keys_that_are_not_understood_are_skipped(issuer: Issuer) -> None:
    """A new kind of key, or a broken one, beside the others locks nobody out; a shared secret is never a key."""
    from prowess_host.http.oauth import TokenReader

    known = issuer.published[0].as_dict(private=False)
    odd = [
        None,
        "x",
        {},
        {"kty": "RSA"},
        {"kty": ["RSA"]},
        {"kty": "AKP", "kid": "first", "alg": "ML-DSA-44", "pub": "x"},
        {"kty": "EC", "kid": "first", "crv": "P-999", "x": "a", "y": "b"},
        {"kty": "RSA", "kid": "first", "n": "!", "e": "AQAB"},
        {"kty": "oct", "kid": "first", "k": "aGFsbG8"},
        {**known, "kid": 5},
        {**known, "use": "enc"},
    ]
    try:
        for each in [[one] for one in odd] + [odd]:
            issuer.beside = each
            reader = TokenReader(issuer.url, frozenset({"a"}))
            assert (await reader.caller(issuer.forged("a"))) is not None, each
            assert (await reader.caller(issuer.stolen("a"))) is None
    finally:
        issuer.beside = []


async def test_keys_come_from_where_nobody_else_can_answer(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    """A redirect leads to another such place, and never from https to http."""
    from prowess_host.http.oauth import TokenReader, require_safe

    def reader() -> TokenReader:
        return TokenReader(issuer.url, frozenset({"a"}), f"{issuer.url}/keys")

    try:
        issuer.redirect = f"{issuer.url}/keys/elsewhere"
        assert (await reader().caller(issuer.forged("a"))) is not None
        for unsafe in ("http://keys.example.com/keys", "ftp://127.0.0.1/keys", "file:///etc/passwd"):
            issuer.redirect = unsafe
            caplog.clear()
            assert (await reader().caller(issuer.forged("a"))) is None
            assert "cannot be fetched" in caplog.text
    finally:
        issuer.redirect = ""
    with pytest.raises(SettingsError):
        require_safe("http://127.0.0.1/keys", https=True)


def test_a_redirect_from_https_stays_there(tmp_path: Path) -> None:
    """Also one to this machine: what comes over https was meant to stay secret on the way."""
    from prowess_host.http import oauth

    handler = oauth._SafeRedirects()
    request = urllib.request.Request("https://login.example.com/keys")
    for unsafe in ("http://login.example.com/keys", "http://127.0.0.1/keys"):
        with pytest.raises(SettingsError, match="must be https"):
            handler.redirect_request(request, None, 302, "Found", {}, unsafe)
    onward = handler.redirect_request(request, None, 302, "Found", {}, "https://keys.example.com/")
    assert onward is not None
    assert "https://keys.example.com/" == onward.full_url


async def test_keys_outlive_an_outage_for_a_day(issuer: Issuer) -> None:
    """Nobody waits for the authorization server meanwhile; after that a key that was revoked would be trusted too long."""
    from prowess_host.http.oauth import TokenReader

    seconds = time.time()
    reader = TokenReader(issuer.url, frozenset({"a"}), f"{issuer.url}/keys", now=lambda: seconds)
    token = issuer.forged("a", exp=int(seconds) + 10**6)
    assert (await reader.caller(token)) is not None
    try:
        issuer.redirect = "http://gone.example.com/"
        seconds += 2 * 3600
        assert (await reader.caller(token)) is not None
        seconds += 24 * 3600
        assert (await reader.caller(token)) is None
    finally:
        issuer.redirect = ""
    seconds += 31
    assert (await reader.caller(token)) is not None
