"""A small authorization server on loopback: Authlib issues tokens for clients with a secret, and publishes its keys."""

# ruff: noqa: ARG002 - the signatures are Authlib's

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, grants
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload, OAuth2Request
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from joserfc import jwt
from joserfc.jwk import RSAKey

__all__ = ["Issuer", "issuing"]


class _Client(ClientMixin):
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == "its secret"

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return True

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"


class _Request(OAuth2Request):
    @property
    def form(self) -> dict[str, str]:
        return self.payload.data


class _Grant(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_post",)


class Issuer(AuthorizationServer):
    """The server, and tokens that it would never issue."""

    def __init__(self) -> None:
        super().__init__()
        self.key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"}, private=True)
        self.published = [self.key]
        self.url = ""
        self.fetched = 0
        self.redirect = ""
        """Where somebody is sent who asks for the keys."""
        self.beside: list[Any] = []
        """Further entries in the list of keys."""

    def query_client(self, client_id: str) -> _Client:
        return _Client(client_id)

    def save_token(self, token: Any, request: Any) -> None:
        pass

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass

    def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> tuple[int, Any]:
        return status, body

    def token(self, audience: str, scope: str = "") -> str:
        """A token as a client gets one: by a request over HTTP."""
        form = {"grant_type": "client_credentials", "client_id": "agent", "client_secret": "its secret"}
        data = urllib.parse.urlencode({**form, "scope": scope, "resource": audience}).encode()
        with urllib.request.urlopen(f"{self.url}/token", data) as answer:
            return json.load(answer)["access_token"]

    def forged(self, audience: str, *, key: Any = None, alg: str = "RS256", **claims: Any) -> str:
        """A token with other claims, or signed by another key."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": audience, "exp": now + 600, "iat": now, "sub": "agent", "scope": "tools"}
        signing = key or self.key
        told = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode({"alg": alg, "kid": signing.kid, "typ": "at+jwt"}, told, signing, algorithms=[alg])

    def rotate(self) -> None:
        """Sign with a new key from now on, and publish both."""
        self.key = RSAKey.generate_key(2048, {"kid": "second", "use": "sig"}, private=True)
        self.published.append(self.key)

    def stolen(self, audience: str) -> str:
        """A token signed with what everybody knows, as if it were a shared secret."""
        payload = self.forged(audience).split(".")[1]
        fields = json.dumps({"alg": "HS256", "kid": self.key.kid}).encode()
        signed = base64.urlsafe_b64encode(fields).rstrip(b"=") + b"." + payload.encode()
        signature = hmac.digest(self.key.as_pem(private=False), signed, "sha256")
        return f"{signed.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    def respond(self, path: str, form: dict[str, str] | None) -> tuple[int, Any]:
        if path == "/.well-known/oauth-authorization-server":
            return 200, {"issuer": self.url, "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys"}
        if path == "/keys" and self.redirect:
            return 302, {"location": self.redirect}
        if path.startswith("/keys"):
            self.fetched += 1
            return 200, {"keys": [*self.beside, *(key.as_dict(private=False) for key in self.published)]}
        if path == "/token" and form is not None:
            request = _Request("POST", f"{self.url}/token", headers={})
            request.payload = BasicOAuth2Payload(form)
            return self.create_token_response(request)
        return 404, {}


class _Tokens(JWTBearerTokenGenerator):
    def __init__(self, issuer: Issuer) -> None:
        super().__init__(issuer.url)
        self._issuer = issuer

    def get_jwks(self) -> Any:
        return self._issuer.key

    def get_audiences(self, client: Any, user: Any, scope: str) -> str:
        return self._issuer.audience  # type: ignore[attr-defined]


@contextlib.contextmanager
def issuing() -> Generator[Issuer]:
    """The server, at `url`."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = dict(urllib.parse.parse_qsl(body))
            issuer.audience = form.get("resource", "")  # type: ignore[attr-defined]
            self._answer(form)

        def _answer(self, form: dict[str, str] | None) -> None:
            status, body = issuer.respond(self.path, form)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            if status == 302:
                self.send_header("Location", body["location"])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        issuer.register_grant(_Grant)
        issuer.register_token_generator("default", _Tokens(issuer))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
