"""The engine that hosts and agents of a cluster share: a NATS server. The only module that knows nats-py.

It connects in the background and again for ever. Every request has a bound, and while the engine is gone it fails at once
with an `EngineError`: nothing is kept for later. What is published may be lost when the connection is.
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
from prowess_host.cluster.errors import EngineError, NobodyThere

__all__ = ["Bucket", "Engine", "Entry", "Log", "Message", "Subscription"]

T = TypeVar("T")
_log = logging.getLogger("prowess.cluster")
_PATIENCE: Final = 5.0
"""Seconds in which the engine has to answer. If it does not, the connection counts as lost."""
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0
"""Seconds between two attempts to connect."""
_PING: Final = 5
"""Seconds between two looks at whether the engine still answers; two silences are one too many."""
_MOST_WAITING: Final = 64 * 1024 * 1024
"""Bytes that wait for an engine that does not read."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WRONG_LAST: Final = (10071, 10164)
"""What the engine calls a key that has changed, or exists already."""
_OTHER_CONFIG: Final = 10058
_AT_ONCE: Final = 100
"""Messages of a log that are asked for at the same time."""
_KEPT: Final = 7 * 86400.0
"""Seconds that an object is kept. Whoever brought it brings it again."""
_TTL: Final = "Nats-TTL"
_LAST_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"


class Message(NamedTuple):
    """What came for a subscription. Answer it by publishing to `reply`, if there is one."""

    subject: str
    data: bytes
    reply: str


class Entry(NamedTuple):
    """A value of a bucket, with the revision that `Bucket.update` wants to know."""

    value: bytes
    revision: int


class Subscription:
    """Hears messages until it is cancelled, over all connections. Several with one `queue` share the messages."""

    def __init__(self, engine: Engine, subject: str, heard: Callable[[Message], None], queue: str) -> None:
        self.subject = subject
        self.queue = queue
        self._engine = engine
        self._heard = heard

    def cancel(self) -> None:
        """Hear nothing more."""
        self._engine.unsubscribe(self)

    async def hear(self, message: Msg) -> None:
        """Called by nats-py, for one message after the other."""
        try:
            self._heard(Message(message.subject, message.data, message.reply))
        except Exception:  # noqa: BLE001 - a fault with one message must not end the others
            _log.exception("a message to %s could not be read", message.subject)


class Engine:
    """The connection of one process. `start` it in a running event loop, and `close` it at the end."""

    def __init__(self, settings: Settings, *, url: str = "") -> None:
        """The table `[cluster]` says where it is, unless `url` does. Raises `SettingsError` for what cannot be used."""
        own = settings.own.cluster
        self._servers = [each.strip() for each in (url or own.url or "").split(",") if each.strip()]
        if not self._servers:
            raise SettingsError('cluster.url must be the address of a NATS server, like "nats://127.0.0.1:4222"')
        if not _NAME.fullmatch(own.name):
            raise SettingsError(f"cluster.name must be letters, digits, - and _, not {own.name!r}")
        self.name = own.name
        """The cluster: those with another name on the same engine hear nothing of each other."""
        self.place = ", ".join(map(_without_secrets, self._servers))
        """Where it is, for people."""
        self._options = _options(settings)
        self._client: Client | None = None
        self._running: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._known = asyncio.Event()
        self._subscriptions: dict[Subscription, Any] = {}
        """With what nats-py knows of them on this connection."""
        self._open: set[asyncio.Timeout] = set()
        """The bounds of the requests that wait for the engine."""
        self._listeners: list[Callable[[], None]] = []
        self._ensured: set[str] = set()
        self._writing: set[asyncio.Task[Any]] = set()
        self.reason = "not connected yet"
        """Why it is gone."""
        self.since = time.monotonic()
        """Since when it is up or gone, by the monotonic clock."""
        self.connections = 0
        """How often it was connected: what happened on an earlier connection may have been lost."""

    # The connection

    @property
    def up(self) -> bool:
        """Whether it can be asked something."""
        return self._client is not None

    @property
    def state(self) -> str:
        """Up or gone, and for how long, for people."""
        seconds = time.monotonic() - self.since
        return f"up for {seconds:.0f} s" if self.up else f"gone for {seconds:.0f} s: {self.reason}"

    @property
    def most(self) -> int:
        """Bytes of the largest message."""
        return self._client.max_payload if self._client is not None else 0

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return self._client.pending_data_size if self._client is not None else 0

    def start(self) -> None:
        """Connect, in the background."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call this whenever the engine has come up, or is gone. The returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def ready(self, seconds: float = _PATIENCE) -> bool:
        """Wait for the first connection, at most so long. Gives whether it is up."""
        self.start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._known.wait(), seconds)
        return self.up

    async def close(self) -> None:
        """Leave, with what was published last."""
        running, self._running = self._running, None
        while running is not None and not running.done():  # nats-py may swallow a cancellation
            running.cancel()
            await asyncio.wait({running}, timeout=_FIRST_WAIT)

    async def _run(self) -> None:
        wait = _FIRST_WAIT
        while self._running is not None:
            client = Client()
            self._lost.clear()
            try:
                if await self._connect(client):
                    wait = _FIRST_WAIT
                    await self._lost.wait()
            finally:
                self._set(None)
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(client.close(), _PATIENCE)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads hosts that lost it together
            wait = min(2 * wait, _LONGEST_WAIT)

    async def _connect(self, client: Client) -> bool:
        async def lost() -> None:
            self._lose("the connection was lost", client)

        async def failed(error: Exception) -> None:
            self.reason = _told(error)

        try:
            async with asyncio.timeout(3 * _PATIENCE):
                await client.connect(
                    list(self._servers), allow_reconnect=False, closed_cb=lost, error_cb=failed, **self._options
                )
                for subscription in list(self._subscriptions):
                    await self._listen(client, subscription)
        except (OSError, ssl.SSLError, nats.errors.Error, TimeoutError) as error:
            if not isinstance(error, nats.errors.NoServersError):  # else `failed` has heard the reason
                self.reason = _told(error)
            return False
        if client.is_connected:
            self._set(client)
        return client.is_connected

    def _set(self, client: Client | None) -> None:
        was, self._client = self.up, client
        if client is not None:
            self.connections += 1
            self._known.set()
        if was == self.up:
            return
        self.since = time.monotonic()
        self._ensured.clear()
        for limit in self._open:  # nobody answers them any more
            if not limit.expired():
                limit.reschedule(0)
        if client is None:
            self._subscriptions = dict.fromkeys(self._subscriptions)
        for listener in list(self._listeners):
            try:
                listener()
            except Exception:  # noqa: BLE001 - a fault of one listener is not the others'
                _log.exception("the state of the engine could not be passed on")

    def _lose(self, reason: str, client: Client) -> None:
        """This connection is over, and what comes next is another one."""
        if client is self._client:
            self.reason = reason
            self._set(None)
        self._lost.set()

    # Messages

    def subject(self, *parts: str) -> str:
        """A subject of this cluster. Parts must be words of letters, digits, - and _."""
        return ".".join(("prowess", self.name, *parts))

    def publish(self, subject: str, data: bytes, *, reply: str = "") -> None:
        """Send a message to whoever listens, in order. Returns at once; it may be lost if the connection is."""
        client = self._connected()
        if client.pending_data_size > _MOST_WAITING:
            raise EngineError(self.place, f"{client.pending_data_size} bytes wait for it to read")
        sending = client.publish(subject, data, reply)
        try:
            sending.send(None)  # it waits for nothing: there is no bound on what is pending but ours
        except StopIteration:
            return
        except nats.errors.Error as error:
            raise EngineError(self.place, _told(error)) from error
        sending.close()

    def subscribe(self, subject: str, heard: Callable[[Message], None], *, queue: str = "") -> Subscription:
        """Hear the messages to a subject, from now on and on every later connection."""
        subscription = Subscription(self, subject, heard, queue)
        self._subscriptions[subscription] = None
        if self._client is not None:
            self._soon(self._listen(self._client, subscription))
        return subscription

    async def _listen(self, client: Client, subscription: Subscription) -> None:
        with contextlib.suppress(nats.errors.Error):
            known = await client.subscribe(subscription.subject, subscription.queue, subscription.hear)  # pyright: ignore[reportUnknownMemberType] - as nats-py is
            if subscription in self._subscriptions:
                self._subscriptions[subscription] = known
            else:
                await known.unsubscribe()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Called by a subscription that is cancelled."""
        known = self._subscriptions.pop(subscription, None)
        if known is not None and self._client is not None:
            self._soon(known.unsubscribe())

    def _soon(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(_forgiving(work))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def flush(self) -> None:
        """Return when the engine has taken everything so far, subscriptions included."""
        await asyncio.gather(*self._writing)
        await self._ask(lambda client: client.flush())

    async def request(self, subject: str, data: bytes = b"", *, seconds: float = _PATIENCE) -> bytes:
        """Ask whoever listens to a subject, and return the first answer. `NobodyThere` comes at once."""
        answer = await self._ask(lambda client: client.request(subject, data, timeout=2 * seconds), seconds, ours=False)
        return answer.data

    # What the engine keeps

    def bucket(self, name: str, *, seconds: float = 0.0, most_bytes: int = -1, memory: bool = True) -> Bucket:
        """A store of keys and values: what is older than `seconds` goes, and the oldest beyond `most_bytes`.

        In `memory` it ends with the engine.
        """
        return Bucket(self, name, seconds, most_bytes, memory=memory)

    def log(self, name: str, *, seconds: float, most_bytes: int) -> Log:
        """A list of messages that grows: what is older than `seconds` goes, and the oldest beyond `most_bytes`."""
        return Log(self, name, seconds, most_bytes)

    async def store(self, name: str, data: bytes) -> None:
        """Keep data of any size under a name, in the object store of the cluster."""

        async def put(client: Client) -> None:
            objects = await self._objects(client)
            await objects.put(name, data)

        await self._ask(put, _PATIENCE + len(data) / 1_000_000)

    async def fetch(self, name: str, *, seconds: float = 12 * _PATIENCE) -> bytes | None:
        """The data that is kept under a name; `None` if there is none."""

        async def get(client: Client) -> bytes | None:
            objects = await self._objects(client)
            try:
                return (await objects.get(name)).data or b""
            except ObjectNotFoundError:
                return None

        return await self._ask(get, seconds, ours=False)

    async def _objects(self, client: Client) -> ObjectStore:
        name, js = f"prowess-{self.name}-objects", _jetstream(client)
        if name not in self._ensured:
            with _existing_is_fine():
                await js.create_object_store(name, ttl=_KEPT)  # pyright: ignore[reportUnknownMemberType] - as nats-py is
            self._ensured.add(name)
        return ObjectStore(name, f"OBJ_{name}", js)

    def ensure(self, stream: api.StreamConfig) -> None:
        """Have a stream on every connection, without anybody asking for what is in it."""

        def make() -> None:
            if self.up:
                self._soon(self.kept(stream, lambda js: js.stream_info(str(stream.name))))

        self.on_change(make)
        make()

    async def kept(self, stream: api.StreamConfig, work: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """Work with a stream, which is made if this connection has not seen it."""

        async def run(client: Client) -> T:
            js, name = _jetstream(client), str(stream.name)
            if name not in self._ensured:
                with _existing_is_fine():
                    await js.add_stream(stream)  # pyright: ignore[reportUnknownMemberType] - as nats-py is
                self._ensured.add(name)
            try:
                return await work(js)
            except (NoStreamResponseError, nats.errors.NoRespondersError):
                self._ensured.discard(name)  # somebody deleted it: the next one makes it again
                raise

        return await self._ask(run)

    # Bounds

    def _connected(self) -> Client:
        if self._client is None:
            raise EngineError(self.place, self.state)
        return self._client

    async def _ask(self, work: Callable[[Client], Awaitable[T]], seconds: float = _PATIENCE, *, ours: bool = True) -> T:
        """Let the engine do something, or fail. If it is silent to what is `ours` to ask, the connection is over."""
        client, limit = self._connected(), asyncio.timeout(seconds)
        try:
            async with limit:
                self._open.add(limit)
                return await work(client)
        except nats.errors.NoRespondersError:
            raise NobodyThere(self.place, "nobody listens") from None
        except TimeoutError:
            if ours and client is self._client:
                self._lose(f"no answer within {seconds:g} s", client)
            reason = f"no answer within {seconds:g} s" if self.up else self.state
            raise EngineError(self.place, reason) from None
        except (OSError, nats.errors.Error) as error:
            raise EngineError(self.place, _told(error)) from error
        finally:
            self._open.discard(limit)


class Bucket:
    """Keys and values that the engine keeps. Keys are letters, digits, - _ = / and dots."""

    def __init__(self, engine: Engine, name: str, seconds: float, most_bytes: int, *, memory: bool) -> None:
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

    async def get(self, key: str) -> Entry | None:
        """The value of a key, if there is one."""

        async def work(js: JetStreamContext) -> Entry | None:
            try:
                found = await js.get_msg(self._name, subject=f"{self._prefix}{key}", direct=True)
            except NotFoundError:
                return None
            return Entry(found.data or b"", found.seq or 0)

        return await self._engine.kept(self._stream, work)

    async def put(self, key: str, value: bytes, *, seconds: int = 0) -> int:
        """Set a key, for so many seconds if they are given. Returns the revision."""
        return await self._write(key, value, {}, seconds) or 0

    async def create(self, key: str, value: bytes, *, seconds: int = 0) -> int | None:
        """Set a key unless it exists. Returns the revision, or `None`."""
        return await self.update(key, value, 0, seconds=seconds)

    async def update(self, key: str, value: bytes, revision: int, *, seconds: int = 0) -> int | None:
        """Set a key if it still has this revision. Returns the new one, or `None`."""
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

    async def delete(self, key: str) -> None:
        """Forget a key."""
        await self._engine.kept(self._stream, lambda js: js.purge_stream(self._name, subject=f"{self._prefix}{key}"))

    async def keys(self, pattern: str = ">") -> list[str]:
        """The keys that fit a pattern of subjects, in order."""

        async def work(js: JetStreamContext) -> list[str]:
            found = (await js.stream_info(self._name, f"{self._prefix}{pattern}")).state.subjects or {}
            return sorted(subject.removeprefix(self._prefix) for subject in found)

        return await self._engine.kept(self._stream, work)

    @property
    def _name(self) -> str:
        return str(self._stream.name)


class Log:
    """Messages in their order, kept on disk."""

    def __init__(self, engine: Engine, name: str, seconds: float, most_bytes: int) -> None:
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
        """Add a message. Returns at once; it may be lost if the engine is gone a moment later."""
        self._engine.publish(self._subject, data)

    async def tail(self, most: int) -> list[bytes]:
        """The newest messages, the oldest of them first."""

        async def work(js: JetStreamContext) -> list[bytes]:
            name = str(self._stream.name)
            state = (await js.stream_info(name)).state
            numbers = range(max(state.first_seq, state.last_seq - most + 1), state.last_seq + 1)
            found: list[bytes] = []
            for first in range(0, len(numbers), _AT_ONCE):
                asked = (js.get_msg(name, seq=number, direct=True) for number in numbers[first : first + _AT_ONCE])
                told = await asyncio.gather(*asked, return_exceptions=True)
                found += [each.data or b"" for each in told if not isinstance(each, BaseException)]
            return found

        return await self._engine.kept(self._stream, work)


def _options(settings: Settings) -> dict[str, Any]:
    """What nats-py is told: who we are, and how to be certain who the engine is."""
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
            raise SettingsError(f"cluster.credentials: there is no file {root / own.credentials}")
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


def _without_secrets(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _told(error: BaseException) -> str:
    return (message_of(error) or type(error).__name__).removeprefix("nats: ")


def _jetstream(client: Client) -> JetStreamContext:
    return client.jetstream(timeout=2 * _PATIENCE)  # pyright: ignore[reportUnknownMemberType] - our bound ends first


class _existing_is_fine(contextlib.AbstractContextManager[None]):  # noqa: N801 - reads as what it says
    """Somebody else made the store, with bounds of another release or other settings: those hold."""

    def __exit__(self, _: object, error: object, __: object) -> bool:
        return isinstance(error, APIError) and error.err_code == _OTHER_CONFIG


async def _forgiving(work: Awaitable[Any]) -> None:
    with contextlib.suppress(nats.errors.Error, OSError, EngineError):
        await work
