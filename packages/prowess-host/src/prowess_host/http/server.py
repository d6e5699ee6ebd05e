"""Runs the application on uvicorn: listening socket, TLS, signals, and a shutdown that lets calls finish."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import uvicorn

from prowess.errors import SettingsError, extra_command
from prowess.frozen import frozen
from prowess.settings.credentials import Credentials
from prowess.worker.heap import GARBAGE
from prowess_host.http.access import Access
from prowess_host.http.app import MCP_PATH, App
from prowess_host.http.guard import Guard, is_loopback
from prowess_host.http.http1 import http1
from prowess_host.http.proxies import Proxies
from prowess_host.project import Project
from prowess_host.tool_calls import shared_key
from prowess_host.workers.process_tree import end_remaining, reap_orphans

if TYPE_CHECKING:
    from prowess.jsontypes import JsonObject
    from prowess.settings.keys import ServeSettings
    from prowess.settings.settings import Settings
    from prowess_host.http.siblings import Siblings

__all__ = ["Address", "address_of", "bind", "check_safe", "is_open", "serve_http"]

_log = logging.getLogger("prowess.host")
_BACKLOG: Final = 2048
_OTHER_FILES: Final = 500
"""Open files besides connections: pipes of workers, skills, and the record of calls."""
_WAY_OUT: Final = """\
{host} can be reached from other machines, so callers must authenticate.
Set a token that clients send, in the environment or in prowess.toml:
  PROWESS_AUTH__TOKEN=…             any secret text of yours
or name an authorization server: serve.oauth_issuer. Or serve only this machine: --host 127.0.0.1"""


@frozen
class Address:
    """The addresses of a server."""

    url: str
    """Without a path and a trailing slash."""

    @property
    def mcp(self) -> str:
        """The MCP endpoint."""
        return f"{self.url}{MCP_PATH}"

    @property
    def host(self) -> str:
        """The name or address in the URL, which may have a port and a path."""
        return urlsplit(self.url).hostname or ""


def check_safe(settings: Settings) -> None:
    """Refuse to serve other machines without credentials, or with unusable settings. Raises `SettingsError` with the remedy."""
    own = settings.own.serve
    if not is_loopback(own.host) and is_open(settings):
        raise SettingsError(_WAY_OUT.format(host=own.host))
    shared_key(settings)
    if own.url is not None and not _is_url(own.url):
        raise SettingsError(f"serve.url {own.url!r} is not a URL; write one like https://tools.example.com")
    Proxies(own.trusted_proxies)
    if own.oauth_issuer is not None:
        try:
            from prowess_host.http.oauth import require_safe
        except ModuleNotFoundError as error:
            raise SettingsError(f"serve.oauth_issuer needs {error.name}: {extra_command('prowess[oauth]')}") from None
        for url in filter(None, (own.oauth_issuer, own.oauth_jwks)):
            require_safe(url)
    if (own.tls_cert is None) != (own.tls_key is None):
        raise SettingsError("serve.tls_cert and serve.tls_key belong together: set both, or neither")
    if own.tls_cert is not None and own.tls_key is not None:
        _tls(settings.root / own.tls_cert, settings.root / own.tls_key)


def _is_url(text: str) -> bool:
    try:
        split = urlsplit(text)
    except ValueError:
        return False
    return split.scheme in ("http", "https") and bool(split.hostname) and not (split.query or split.fragment)


def is_open(settings: Settings) -> bool:
    """Whether calls need no credentials."""
    return not settings.own.serve.oauth_issuer and not Credentials.of(settings).known


def bind(own: ServeSettings) -> socket.socket:
    """Open a listening socket. Raises `SettingsError` if the address is not available."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            own.host, own.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise SettingsError(f"serve.host {own.host!r} is not an address of this machine: {error.strerror}") from None
    listening = socket.socket(family, kind, number)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(
                f"port {own.port} of {own.host} is in use by another program. Choose another with --port, or 0 for any"
            ) from None
        raise SettingsError(f"{own.host}:{own.port} cannot be used for listening: {error.strerror}") from None
    listening.setblocking(False)
    return listening


def address_of(own: ServeSettings, listening: socket.socket) -> Address:
    """The addresses under which clients reach a socket."""
    if own.url:
        return Address(own.url.rstrip("/"))
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return Address(f"{'https' if own.tls_cert else 'http'}://{shown}:{port}")


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which `_Leaving` replaces, and with a time limit for the handshake of TLS."""

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self._patience = patience

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is None:
            await super().startup(sockets)
            return
        loop: Any = asyncio.get_running_loop()
        loop.create_server = partial(loop.create_server, ssl_handshake_timeout=self._patience)  # uvicorn has no option
        try:
            await super().startup(sockets)
        finally:
            del loop.create_server

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _limited(own: ServeSettings) -> ServeSettings:
    """The settings with as many connections as this process may have files, whose number it raises if the system lets it.

    Without room for other files, no worker could be started, and new clients would wait instead of being refused.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited, needed = resource.RLIM_INFINITY, own.max_connections + _OTHER_FILES
    if soft == unlimited or soft >= needed:
        return own
    wished = needed if hard == unlimited else min(needed, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS has a lower bound, which it does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (wished, hard))
        soft = wished
    most = max(soft - _OTHER_FILES, soft // 2)
    if most >= own.max_connections:
        return own
    _log.warning(
        "this system allows %d open files, so at most %d connections are served: raise `ulimit -n`", soft, most
    )
    return replace(own, max_connections=most)


def _config(app: App, own: ServeSettings, root: Path) -> uvicorn.Config:
    config = uvicorn.Config(
        cast("Any", app),
        http=cast("Any", http1(app.serve, _limited(own))),
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=own.drain,  # type: ignore[arg-type]  # a float does as well
    )
    config.load()
    if own.tls_cert is not None and own.tls_key is not None:
        config.ssl = _tls(root / own.tls_cert, root / own.tls_key)
    return config


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"serve.tls_cert {certificate} and serve.tls_key {key} cannot be used: {error}") from None
    return context


def _access(settings: Settings, address: Address) -> tuple[Access, dict[str, JsonObject]]:
    """The rules for access, and the documents that tell clients where to get a token."""
    own, credentials = settings.own.serve, Credentials.of(settings)
    if own.oauth_issuer is None:
        return Access(credentials), {}
    from prowess_host.http.oauth import TokenReader, metadata_urls, protected_resource

    resource = own.oauth_audience or address.mcp
    reader = TokenReader(own.oauth_issuer, frozenset({resource}), own.oauth_jwks)
    paths = metadata_urls(address.mcp)
    access = Access(credentials, reader, metadata_url=f"{address.url}{paths[0]}", scopes=own.oauth_scopes)
    document = protected_resource(resource, own.oauth_issuer, access.all_scopes, settings.root.name)
    return access, dict.fromkeys(paths, document)


def _guard(own: ServeSettings, address: Address) -> Guard:
    hosts = {own.host, *own.allowed_hosts, *([address.host] if own.url else [])}
    return Guard(
        frozenset(host.lower() for host in hosts),
        frozenset(origin.lower().rstrip("/") for origin in own.allowed_origins),
        addresses=not is_loopback(own.host),
    )


async def serve_http(
    settings: Settings,
    version: str,
    flags: JsonObject,
    environ: Mapping[str, str],
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    lifeline: int | None = None,
    siblings: Siblings | None = None,
) -> int:
    """Serve a project on a socket until a signal or the end of the `lifeline`, and return the exit code.

    `siblings` are the other processes that do the same.

    `ready` is called once the signal handlers are set.
    """
    own = settings.own.serve
    address = address_of(own, listening)
    access, documents = _access(settings, address)
    project = Project(settings, flags, environ)
    project.offers_tasks = own.sessions or settings.own.cluster.url is not None
    server = project.server(version)
    app = App(project, server, own, access=access, guard=_guard(own, address), documents=documents, siblings=siblings)
    running = _Server(_config(app, own, settings.root), own.patience)
    leaving = _Leaving(app, running)
    leaving.listen(lifeline)
    ready()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # hides messages about malformed requests
    gc.collect()
    gc.freeze()  # excludes the imported modules from garbage collections
    gc.set_threshold(*GARBAGE)
    project.start()
    project.warm_up()
    app.start()
    try:
        await running.serve([listening])
    finally:
        if siblings is not None:
            await siblings.close()
        await project.close()  # answers the calls that still run
        await app.close()
    return leaving.exit_code


class _Leaving:
    """Stops the server at a signal, or at the end of the pipe from its supervisor."""

    def __init__(self, app: App, running: uvicorn.Server) -> None:
        self._app = app
        self._running = running
        self.exit_code = 1

    def listen(self, lifeline: int | None) -> None:
        """Stop the server at a signal, or when the lifeline ends."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave, 0)
        loop.add_signal_handler(signal.SIGINT, self._leave, 128 + signal.SIGINT)
        loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
        if lifeline is not None:
            loop.add_reader(lifeline, self._abandoned, lifeline)

    def _leave(self, code: int) -> None:
        if self._running.should_exit:
            end_remaining()
            os._exit(code)  # a second signal: exit at once
        self.exit_code = code
        self._app.leave()
        self._running.should_exit = True

    def _abandoned(self, lifeline: int) -> None:
        """The lifeline is readable, which means that it has ended: nothing is ever written to it."""
        asyncio.get_running_loop().remove_reader(lifeline)
        self._leave(0)
