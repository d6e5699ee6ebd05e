"""The connection to the engine, the NATS server that the hosts and agents of a cluster share. The only module that imports nats-py.

It connects in the background, and reconnects for as long as it is open. Every request has a time limit, and fails at once
with an `EngineError` while the engine is down: nothing is queued. A published message may be lost with the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ObjectNotFoundError
from nats.js.object_store import ObjectStore

from prowess.errors import SettingsError, message_of
from prowess.settings.settings import Settings
from prowess_host.cluster.errors import EngineError, NoSubscriber

__all__ = ["Bucket", "BucketEntry", "EngineConnection", "EngineSubscription", "Log", "Message"]

T = TypeVar("T")
_log = logging.getLogger("prowess.cluster")
_PATIENCE: Final = 5.0
"""Seconds that the engine has to answer a request, after which the connection counts as lost."""
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0
"""Seconds between two attempts to connect: the first and the longest pause."""
_TICKS: Final = 5
"""Parts of a time limit."""
_NEVER_FIRST: Final = 3600
"""The time limits of nats-py, which our own ones end first."""
_PING: Final = 5
"""Seconds between two pings. After two without an answer, the connection counts as lost."""
_MOST_WAITING: Final = 64 * 1024 * 1024
"""Bytes that may wait to be sent."""
_LEAST_PAYLOAD: Final = 1024 * 1024
"""The smallest usable `max_payload` of an engine, in bytes: the default of NATS. Larger data is sent in parts."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WRONG_LAST: Final = (10071, 10164)
"""The error codes of the engine for a key that has changed, or exists already."""
_OTHER_CONFIG: Final = 10058
"""The error code of the engine for a stream that exists with other settings."""
_AT_ONCE: Final = 100
"""Messages of a log that are requested at the same time."""
_PART: Final = 512 * 1024
"""Bytes of a part of a large value, because the engine limits messages to a megabyte."""
_DENIED: Final = "permissions violation"
"""The error of the engine for a subject that the user may not use. Such a request gets no answer."""
_REFUSED: Final = "Authorization"
"""The error of the engine for wrong credentials."""
_SLOWEST: Final = 50_000
"""Bytes per second of a slow network, for the time limits of transfers."""
_FRESH: Final = 6 * 86400.0
"""Seconds in which a stored object need not be stored again."""
_KEPT: Final = 7 * 86400.0
"""Seconds that an object is kept. Its owner stores it again when it is needed."""
_TTL: Final = "Nats-TTL"
_LAST_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"


class Message(NamedTuple):
    """A message that a subscription received. Answer it by publishing to `reply`, unless that is empty."""

    data: bytes
    reply: str


class BucketEntry(NamedTuple):
    """A value of a bucket, with the revision that `Bucket.update` takes."""

    value: bytes
    revision: int


class EngineSubscription:
    """Passes messages to `handler` until it is cancelled, also after a reconnect."""

    def __init__(self, engine: EngineConnection, subject: str, handler: Callable[[Message], None]) -> None:
        self.subject = subject
        self._engine = engine
        self._handler = handler

    def cancel(self) -> None:
        """Receive no more messages."""
        self._engine.unsubscribe(self)

    async def handle(self, message: Msg) -> None:
        """Handle one message. nats-py calls this for one message after the other."""
        await self._engine.usable.wait()  # the handler may publish an answer
        try:
            self._handler(Message(message.data, message.reply))
        except Exception:  # noqa: BLE001 - a fault with one message must not end the others
            _log.exception("a message to %s could not be handled", message.subject)


class _Client(Client):
    """A connection that is refused if the settings ask for TLS and the server offers none, and whose `flush` and end can be
    relied on.

    nats-py would continue without TLS, and expose the token to the network.
    """

    def __init__(self, *, wants_tls: bool) -> None:
        super().__init__()
        self._wants_tls = wants_tls
        self.on_end: Callable[[], object] = bool
        """Called once when the connection ends, however it ends."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Called at every end. nats-py would report it after it has sent what waits, which may fail, or take for ever."""
        if not self.is_closed:
            self.on_end()
        try:
            with contextlib.suppress(OSError):
                await super()._close(status, do_cbs)
        finally:
            for subscription in self._subs.values():  # nats-py does this last, and not after such a failure
                subscription._stop_processing()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - else its task waits for ever

    def abort(self) -> None:
        """Drop the connection with all that still waits."""
        writer: Any = getattr(self._transport, "_io_writer", None)  # nats-py offers nothing else
        if writer is not None:
            writer.transport.abort()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Called with the first message of the server, before we send our credentials."""
        if initial_connection and self._wants_tls and not info.get("tls_required"):
            raise nats.errors.Error("it offers no TLS, which cluster.url or cluster.tls_ca asks for")
        await super()._process_info(info, initial_connection)

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Called by `flush`. nats-py would send the ping before the messages that wait, and `flush` would confirm nothing."""
        self._pongs.append(asyncio.Future() if future is None else future)  # pyright: ignore[reportUnknownMemberType] - as nats-py is
        await self._send_command(b"PING\r\n")
        await self._flush_pending()


class EngineConnection:
    """The connection of one process. `start` it in a running event loop, and `close` it at the end."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError` for settings that cannot be used."""
        own = settings.own.cluster
        self._servers = _addresses(own.url or "")
        if not _NAME.fullmatch(own.name):
            raise SettingsError(f"cluster.name must be letters, digits, - and _, not {own.name!r}")
        self.name = own.name
        """The name of the cluster. Clusters with different names share an engine without seeing each other."""
        self.address = ", ".join(map(_shown, self._servers))
        """The addresses without secrets, for messages."""
        self._settings = settings
        self._options = _options(settings)
        self._client: Client | None = None
        self._running: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self.usable = asyncio.Event()
        """Set while it is up."""
        self._subscriptions: dict[EngineSubscription, Any] = {}
        """Each with its nats-py subscription on this connection."""
        self._open: dict[asyncio.Timeout, asyncio.TimerHandle] = {}
        """The time limits of the requests in progress, with their timers."""
        self._listeners: list[Callable[[], None]] = []
        self._ensured: set[str] = set()
        self._writing: set[asyncio.Task[Any]] = set()
        self._denied = ""
        self.reason = "not connected yet"
        """Why there is no connection."""
        self.since = time.monotonic()
        """When the connection last came up or was lost, by the monotonic clock."""
        self.connections = 0
        """The number of connections so far. Messages on earlier connections may have been lost."""

    # The connection

    @property
    def up(self) -> bool:
        """Whether it is connected, and has all subscriptions."""
        return self._client is not None

    @property
    def since_when(self) -> str:
        """Whether it is up or gone, and for how long."""
        return f"{'up' if self.up else 'gone'} for {time.monotonic() - self.since:.0f} s"

    @property
    def state(self) -> str:
        """The same with the reason, which may have internal addresses, for messages."""
        return self.since_when if self.up else f"{self.since_when}: {self.reason}"

    def start(self) -> None:
        """Connect, in the background."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the connection comes up or is lost. The returned function removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def ready(self, seconds: float = _PATIENCE) -> bool:
        """Wait for the connection. Returns whether the engine is up."""
        self.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.usable.wait()
        return self.up

    async def close(self) -> None:
        """Send what was published last, and disconnect."""
        running, self._running = self._running, None
        while running is not None and not running.done():  # nats-py may swallow a cancellation
            running.cancel()
            await asyncio.wait({running}, timeout=_FIRST_WAIT)

    async def _run(self) -> None:
        wait = _FIRST_WAIT
        while self._running is not None:
            with contextlib.suppress(SettingsError):  # certificates are renewed, and files may be half written
                self._options = _options(self._settings)
            client = _Client(
                wants_tls="tls" in self._options or any(server.startswith("tls:") for server in self._servers)
            )
            self._lost.clear()
            try:
                if await self._connect(client):
                    wait = _FIRST_WAIT
                    await self._lost.wait()
            finally:
                self._set(None)
                try:
                    with contextlib.suppress(Exception):
                        async with asyncio.timeout(_PATIENCE):
                            await client.close()
                finally:
                    client.abort()
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads hosts that lost it together
            wait = min(2 * wait, _LONGEST_WAIT)

    async def _connect(self, client: _Client) -> bool:
        client.on_end = lambda: self._lose("the connection was lost", client)

        async def failed(error: Exception) -> None:
            if isinstance(error, ConnectionResetError) and _REFUSED in self.reason:
                return  # it hung up before its refusal was read, and an earlier attempt has read it
            self.reason = _text_of(error)
            if _DENIED in self.reason.lower() and self.reason != self._denied:
                self._denied = self.reason
                _log.warning("the engine at %s: %s", self.address, self.reason)

        subscribed: set[EngineSubscription] = set()
        try:
            async with asyncio.timeout(3 * _PATIENCE):
                await client.connect(list(self._servers), allow_reconnect=False, error_cb=failed, **self._options)
                while missing := self._subscriptions.keys() - subscribed:
                    for subscription in missing:
                        await self._listen(client, subscription)
                    subscribed |= missing
                    await client.flush(_NEVER_FIRST)  # up means that the messages of others arrive
        except Exception as error:  # noqa: BLE001 - after any error, the next attempt may succeed
            if not isinstance(error, nats.errors.NoServersError):  # `failed` has set the reason
                self.reason = _text_of(error)
            return False
        if client.is_connected and client.max_payload < _LEAST_PAYLOAD:
            self.reason = f"its max_payload is {client.max_payload}, and must be at least {_LEAST_PAYLOAD}"
            return False
        if client.is_connected:
            self._set(client)
        return client.is_connected

    def _set(self, client: Client | None) -> None:
        was, self._client = self.up, client
        if client is not None:
            self.connections += 1
            self.usable.set()
        else:
            self.usable.clear()
        if was == self.up:
            return
        self.since = time.monotonic()
        self._ensured.clear()
        for limit in self._open:  # these requests get no answer any more
            if not limit.expired():
                limit.reschedule(0)
        if client is None:
            self._subscriptions = dict.fromkeys(self._subscriptions)
        for listener in list(self._listeners):
            try:
                listener()
            except Exception:  # noqa: BLE001 - a fault in one listener must not reach the others
                _log.exception("a listener failed to handle a change of the engine's state")

    def _lose(self, reason: str, client: Client) -> None:
        """Give up this connection, so that `_run` makes another one."""
        if client is self._client:
            self.reason = reason
            self._set(None)
        self._lost.set()

    # Messages

    def subject(self, *parts: str) -> str:
        """A subject of this cluster. Parts consist of letters, digits, - and _."""
        return ".".join(("prowess", self.name, *parts))

    def publish(self, subject: str, data: bytes) -> None:
        """Send a message to all subscribers, in order. Returns at once; the message may be lost with the connection."""
        client = self._connected()
        if client.pending_data_size > _MOST_WAITING:
            raise EngineError(self.address, f"{client.pending_data_size} bytes wait for it to read")
        sending = client.publish(subject, data)
        try:
            sending.send(None)  # it never waits, since nats-py has no limit of its own on pending bytes
        except StopIteration:
            return
        except nats.errors.Error as error:
            raise EngineError(self.address, _text_of(error)) from error
        sending.close()

    def subscribe(self, subject: str, handler: Callable[[Message], None]) -> EngineSubscription:
        """Receive the messages to a subject, on this connection and all later ones."""
        subscription = EngineSubscription(self, subject, handler)
        self._subscriptions[subscription] = None
        if self._client is not None:
            self._start_task(self._listen(self._client, subscription))
        return subscription

    async def _listen(self, client: Client, subscription: EngineSubscription) -> None:
        known = await client.subscribe(subscription.subject, cb=subscription.handle)  # pyright: ignore[reportUnknownMemberType] - as nats-py is
        if subscription in self._subscriptions:
            self._subscriptions[subscription] = known
        else:
            await known.unsubscribe()

    def unsubscribe(self, subscription: EngineSubscription) -> None:
        """Remove a subscription. `EngineSubscription.cancel` calls this."""
        known = self._subscriptions.pop(subscription, None)
        if known is not None:
            self._start_task(known.unsubscribe())

    def _start_task(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(_ignoring_errors(work))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def flush(self) -> None:
        """Wait until the engine has received all messages and subscriptions so far."""
        await asyncio.gather(*self._writing)
        await self._ask(lambda client: client.flush(_NEVER_FIRST))

    async def request(self, subject: str, data: bytes = b"", *, seconds: float = _PATIENCE) -> bytes:
        """Send a request to the subscribers of a subject, and return the first answer. Raises `NoSubscriber` at once."""
        answer = await self._ask(
            lambda client: client.request(subject, data, timeout=seconds + _NEVER_FIRST), seconds, ours=False
        )
        return answer.data

    # Buckets, logs and objects

    def bucket(self, name: str, *, seconds: float = 0.0, most_bytes: int = -1, memory: bool = True) -> Bucket:
        """A store of keys and values, which drops those older than `seconds`, and the oldest beyond `most_bytes`.

        With `memory`, it is lost when the engine stops.
        """
        return Bucket(self, name, seconds, most_bytes, memory=memory)

    def log(self, name: str, *, seconds: float, most_bytes: int) -> Log:
        """An append-only list of messages, which drops those older than `seconds`, and the oldest beyond `most_bytes`."""
        return Log(self, name, seconds, most_bytes)

    async def store(self, name: str, data: bytes, *, again: bool = False) -> None:
        """Store data of any size under a name, in the object store of the cluster.

        `again` replaces the stored data, which may be damaged.
        """

        async def put(client: Client) -> None:
            objects = await self._objects(client)
            if again or not await self._has(objects, name, len(data)):  # replacing it would disturb its readers
                await objects.put(name, data)

        await self._ask(put, self._bound(len(data)), ours=False)

    async def _has(self, objects: ObjectStore, name: str, size: int) -> bool:
        try:
            found = await objects.get_info(name)
            age = time.time() - datetime.fromisoformat(str(found.mtime)).timestamp()
        except (ObjectNotFoundError, ValueError):
            return False
        return found.size == size and age < _FRESH

    async def fetch(self, name: str) -> bytes | None:
        """The data stored under a name, or `None`."""

        async def size(client: Client) -> int | None:
            objects = await self._objects(client)
            try:
                return (await objects.get_info(name)).size or 0
            except ObjectNotFoundError:
                return None

        async def get(client: Client) -> bytes | None:
            objects = await self._objects(client)
            try:
                return (await objects.get(name)).data or b""
            except ObjectNotFoundError:
                return None

        found = await self._ask(size)
        return None if found is None else await self._ask(get, self._bound(found), ours=False)

    def _bound(self, size: int) -> float:
        """Seconds that a transfer of this many bytes may take on a slow network."""
        return 2 * _PATIENCE + size / _SLOWEST

    async def _objects(self, client: Client) -> ObjectStore:
        name, js = f"prowess-{self.name}-objects", _jetstream(client)
        if name not in self._ensured:
            with _keeping_existing():
                await js.create_object_store(name, ttl=_KEPT)  # pyright: ignore[reportUnknownMemberType] - as nats-py is
            self._ensured.add(name)
        return ObjectStore(name, f"OBJ_{name}", js)

    def ensure(self, stream: api.StreamConfig) -> None:
        """Create a stream after each connect, before its first use."""

        def make() -> None:
            if self.up:
                self._start_task(self.kept(stream, lambda js: js.stream_info(str(stream.name))))

        self.on_change(make)
        make()

    async def kept(self, stream: api.StreamConfig, work: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """Run `work` with a stream, which the first use on each connection creates."""

        async def run(client: Client) -> T:
            js, name = _jetstream(client), str(stream.name)
            if name not in self._ensured:
                with _keeping_existing():
                    await js.add_stream(stream)  # pyright: ignore[reportUnknownMemberType] - as nats-py is
                self._ensured.add(name)
            try:
                return await work(js)
            except (NoStreamResponseError, nats.errors.NoRespondersError):
                self._ensured.discard(name)  # it was deleted: the next use creates it again
                raise

        return await self._ask(run)

    # Time limits

    def _connected(self) -> Client:
        if self._client is None:
            raise EngineError(self.address, self.state)
        return self._client

    async def _ask(self, work: Callable[[Client], Awaitable[T]], seconds: float = _PATIENCE, *, ours: bool = True) -> T:
        """Run a request within a time limit. With `ours`, the engine itself answers it, so a timeout ends the connection."""
        client, limit = self._connected(), asyncio.timeout(None)
        try:
            async with limit:
                self._count(limit, seconds / _TICKS, _TICKS)
                try:
                    return await work(client)
                finally:
                    self._open.pop(limit).cancel()
        except nats.errors.NoRespondersError:
            raise NoSubscriber(self.address, "the subject has no subscriber") from None
        except TimeoutError:
            if ours and client is self._client and not self._denied:
                self._lose(f"no answer within {seconds:g} s", client)
            reason = self._denied or f"no answer within {seconds:g} s" if self.up else self.state
            raise EngineError(self.address, reason) from None
        except (OSError, nats.errors.Error) as error:
            raise EngineError(self.address, _text_of(error)) from error

    def _count(self, limit: asyncio.Timeout, tick: float, left: int) -> None:
        """Count down a time limit. A late tick does not count: the answer may have come while this process stood still."""
        loop = asyncio.get_running_loop()
        due = loop.time() + tick

        def ticked() -> None:
            self._count(limit, tick, left if loop.time() > due + tick else left - 1)

        if left:
            self._open[limit] = loop.call_at(due, ticked)
        elif not limit.expired():
            limit.reschedule(0)


class Bucket:
    """Keys and values in the engine. Keys consist of letters, digits, - _ = / and dots."""

    def __init__(self, engine: EngineConnection, name: str, seconds: float, most_bytes: int, *, memory: bool) -> None:
        self._engine = engine
        self._prefix = f"$KV.prowess-{engine.name}-{name}."
        self._stream = api.StreamConfig(
            name=f"KV_prowess-{engine.name}-{name}",
            subjects=[f"{self._prefix}>"],
            max_msgs_per_subject=1,
            max_age=seconds,
            max_bytes=most_bytes,
            discard=api.DiscardPolicy.OLD,
            duplicate_window=min(seconds, 120.0) or 120.0,
            storage=api.StorageType.MEMORY if memory else api.StorageType.FILE,
            allow_direct=True,
            allow_msg_ttl=True,
            allow_rollup_hdrs=True,
        )

    async def get(self, key: str) -> BucketEntry | None:
        """The value of a key, or `None`."""

        async def work(js: JetStreamContext) -> BucketEntry | None:
            try:
                found = await js.get_msg(self._name, subject=f"{self._prefix}{key}", direct=True)
            except NotFoundError:
                return None
            return BucketEntry(found.data or b"", found.seq or 0)

        return await self._engine.kept(self._stream, work)

    async def put(self, key: str, value: bytes, *, seconds: int = 0) -> int:
        """Set a key, and let it expire after `seconds` if given. Returns the revision."""
        return await self._write(key, value, {}, seconds) or 0

    async def create(self, key: str, value: bytes, *, seconds: int = 0) -> int | None:
        """Set a key that does not exist yet. Returns the revision, or `None` if it exists."""
        return await self.update(key, value, 0, seconds=seconds)

    async def update(self, key: str, value: bytes, revision: int, *, seconds: int = 0) -> int | None:
        """Set a key that still has this revision. Returns the new revision, or `None` if it changed."""
        return await self._write(key, value, {_LAST_SEQUENCE: str(revision)}, seconds)

    async def _write(self, key: str, value: bytes, headers: dict[str, str], seconds: int) -> int | None:
        if seconds:
            headers[_TTL] = str(seconds)

        async def work(js: JetStreamContext) -> int | None:
            try:
                return (await js.publish(f"{self._prefix}{key}", value, headers=headers or None)).seq
            except APIError as error:
                if error.err_code in _WRONG_LAST:
                    return None
                raise

        return await self._engine.kept(self._stream, work)

    async def put_large(self, key: str, value: bytes, *, seconds: int = 0) -> int:
        """Store a value of any size in parts. Returns their number for `get_large`."""
        starts = range(0, len(value), _PART)
        for number, start in enumerate(starts):
            await self.put(f"{key}.{number}", value[start : start + _PART], seconds=seconds)
        return len(starts)

    async def get_large(self, key: str, parts: int) -> bytes | None:
        """The value from its parts; `None` if one of them is gone."""
        found = [await self.get(f"{key}.{number}") for number in range(parts)]
        whole = [part.value for part in found if part is not None]
        return b"".join(whole) if len(whole) == parts else None

    async def delete(self, key: str) -> None:
        """Delete a key."""
        await self._engine.kept(self._stream, lambda js: js.purge_stream(self._name, subject=f"{self._prefix}{key}"))

    async def keys(self) -> list[str]:
        """The sorted keys."""

        async def work(js: JetStreamContext) -> list[str]:
            found = (await js.stream_info(self._name, f"{self._prefix}>")).state.subjects or {}
            return sorted(subject.removeprefix(self._prefix) for subject in found)

        return await self._engine.kept(self._stream, work)

    @property
    def _name(self) -> str:
        return str(self._stream.name)


class Log:
    """Messages in order, stored on disk."""

    def __init__(self, engine: EngineConnection, name: str, seconds: float, most_bytes: int) -> None:
        self._engine = engine
        self._subject = engine.subject("log", name)
        self._stream = api.StreamConfig(
            name=f"prowess-{engine.name}-{name}",
            subjects=[self._subject],
            max_age=seconds,
            max_bytes=most_bytes,
            discard=api.DiscardPolicy.OLD,
            storage=api.StorageType.FILE,
            allow_direct=True,
        )
        engine.ensure(self._stream)

    def append(self, data: bytes) -> None:
        """Add a message. Returns at once; the message may be lost with the connection."""
        self._engine.publish(self._subject, data)

    async def tail(self, most: int) -> list[bytes]:
        """The newest messages, oldest first."""

        async def work(js: JetStreamContext) -> list[bytes]:
            name = str(self._stream.name)
            state = (await js.stream_info(name)).state
            numbers = range(max(state.first_seq, state.last_seq - most + 1), state.last_seq + 1)
            found: list[bytes] = []
            for first in range(0, len(numbers), _AT_ONCE):
                requests = (js.get_msg(name, seq=number, direct=True) for number in numbers[first : first + _AT_ONCE])
                answers = await asyncio.gather(*requests, return_exceptions=True)
                found += [each.data or b"" for each in answers if not isinstance(each, BaseException)]
            return found

        return await self._engine.kept(self._stream, work)


def _options(settings: Settings) -> dict[str, Any]:
    """The options for nats-py: credentials, TLS and timing."""
    own, root = settings.own.cluster, settings.root
    options: dict[str, Any] = {
        "name": "prowess",
        "connect_timeout": _PATIENCE,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": _FIRST_WAIT,
        "ping_interval": _PING,
        "pending_size": 0,
    }
    if own.credentials is not None:
        if not (root / own.credentials).is_file():
            raise SettingsError(f"cluster.credentials names {root / own.credentials}, which does not exist")
        options["user_credentials"] = str(root / own.credentials)
    options |= {
        name: value
        for name, value in (("token", own.token), ("user", own.user), ("password", own.password))
        if value is not None
    }
    if own.tls_ca or own.tls_cert:
        options["tls"] = _tls(root, own.tls_ca, own.tls_cert, own.tls_key)
    return options


def _tls(root: Path, authority: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=root / authority if authority else None)
        if certificate:
            context.load_cert_chain(root / certificate, root / key if key else None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"cluster.tls_ca, tls_cert and tls_key cannot be used: {error}") from None
    return context


def _addresses(url: str) -> list[str]:
    servers = [each.strip() for each in url.split(",") if each.strip()]
    wrong = [_shown(each) for each in servers if not _is_address(each)]
    if wrong or not servers:
        found = f", not {wrong[0]!r}" if wrong else ""
        raise SettingsError(f'cluster.url must be the address of a NATS server, like "nats://127.0.0.1:4222"{found}')
    return servers


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(_full(url))
        (parts.hostname or "").encode("idna")
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"nats", "tls"} and bool(parts.hostname) and url.isprintable() and " " not in url


def _full(url: str) -> str:
    return url if "://" in url else f"nats://{url}"


def _shown(url: str) -> str:
    """An address without its secrets."""
    scheme, _, rest = _full(url).partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _text_of(error: BaseException) -> str:
    if isinstance(error, APIError):
        return error.description or "it has no JetStream: start nats-server with -js"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return (message_of(error) or type(error).__name__).removeprefix("nats: ").strip("'")


def _jetstream(client: Client) -> JetStreamContext:
    return client.jetstream(timeout=_NEVER_FIRST)  # pyright: ignore[reportUnknownMemberType] - our time limit ends first


class _keeping_existing(contextlib.AbstractContextManager[None]):  # noqa: N801 - a context manager, used like a function
    """Accept a stream that exists with the limits of another release or other settings."""

    def __exit__(self, _: object, error: object, __: object) -> bool:
        return isinstance(error, APIError) and error.err_code == _OTHER_CONFIG


async def _ignoring_errors(work: Awaitable[Any]) -> None:
    with contextlib.suppress(nats.errors.Error, OSError, EngineError):
        await work
