"""The engine: messages, what it keeps, and that nothing waits for one that is gone. About 5 s, most of it patience for death."""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from certificates import make_certificate
from patience import PATIENCE
from proxy import Proxy
from tests.prowess_host.cluster.failing import FailingEngine

from prowess.errors import SettingsError
from prowess.settings.settings import Settings
from prowess_host.cluster import engine as engines
from prowess_host.cluster.engine import EngineConnection, Message
from prowess_host.cluster.errors import EngineError, NoSubscriber
from prowess_host.cluster.local import LocalEngine

Connect = Callable[..., Awaitable[EngineConnection]]


@pytest.fixture
def own_engine(tmp_path: Path):
    """A server that the test may kill."""
    with FailingEngine(tmp_path / "engine") as running:
        yield running


async def until(engine: EngineConnection, *, up: bool) -> None:
    changed = asyncio.Event()
    engine.on_change(changed.set)
    with anyio.fail_after(PATIENCE):
        while engine.up is not up:
            await changed.wait()
            changed.clear()


async def refused(engine: EngineConnection, why: str = "") -> None:
    engine.start()
    with anyio.fail_after(PATIENCE):
        while engine.reason == "not connected yet" or why not in engine.reason:  # noqa: ASYNC110 - nobody tells of reasons
            await anyio.sleep(0.01)


async def test_message_reaches_the_subscribers_of_its_cluster_in_order(connect: Connect) -> None:
    one, other, stranger = await connect(), await connect(), await connect(**{"cluster.name": "another"})
    heard: list[bytes] = []
    all_there = asyncio.Event()

    def hear(message: Message) -> None:
        heard.append(message.data)
        if len(heard) == 100:
            all_there.set()

    other.subscribe(other.subject("news"), hear)
    stranger.subscribe(stranger.subject("news"), lambda message: heard.append(b"overheard"))
    await other.flush()
    await stranger.flush()
    for number in range(100):
        one.publish(one.subject("news"), b"%d" % number)
    with anyio.fail_after(PATIENCE):
        await all_there.wait()

    assert [b"%d" % number for number in range(100)] == heard


async def test_request_that_nobody_hears_fails_at_once(connect: Connect) -> None:
    engine = await connect()

    with pytest.raises(NoSubscriber):
        await engine.request(engine.subject("nobody"), seconds=PATIENCE)


async def test_cancelled_subscription_hears_nothing_more(connect: Connect) -> None:
    engine = await connect()
    heard: list[bytes] = []
    engine.subscribe(engine.subject("news"), lambda message: heard.append(message.data)).cancel()
    await engine.flush()
    engine.publish(engine.subject("news"), b"late")
    await engine.flush()

    assert [] == heard


class SlowPings:
    """What an engine says that is slow to answer pings: whatever came before one must have been handled by then."""

    def __init__(self) -> None:
        self.received = b""
        self.pinged, self.answers = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","max_payload":1048576,"headers":true}\r\n')
        writer.write(b"PONG\r\n")  # for the ping of the greeting
        await reader.readuntil(b"PING\r\n")
        while line := await reader.readline():
            self.received += line
            if line == b"PING\r\n":
                self.pinged.set()
                await self.answers.wait()
                writer.write(b"MSG questions 1 answer 1\r\n?\r\nPONG\r\n")
        writer.close()


async def test_engine_is_up_when_it_has_all_subscriptions() -> None:
    """Another host may see at once that this one is back, and ask it. The question is answered, also if it comes early.

    And a flush confirms what was published before it.
    """
    slow = SlowPings()
    async with await asyncio.start_server(slow.serve, "127.0.0.1", 0) as listening:
        engine = EngineConnection(
            Settings.of({"cluster.url": f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"})
        )
        engine.subscribe("questions", lambda message: engine.publish(message.reply, b"!"))
        engine.start()
        with anyio.fail_after(PATIENCE):
            await slow.pinged.wait()
            assert (False, True) == (engine.up, b"SUB questions" in slow.received)
            slow.answers.set()
            assert await engine.ready(PATIENCE)
            while b"PUB answer" not in slow.received:  # noqa: ASYNC110 - the server has no event for it
                await anyio.sleep(0.01)
            engine.publish("news", b"")
            await engine.flush()
            assert slow.received.rindex(b"PUB news") < slow.received.rindex(b"PING")
        await engine.close()


async def test_bucket_keeps_values_and_compares_revisions(connect: Connect) -> None:
    one, other = (await connect()).bucket("kept"), (await connect()).bucket("kept")

    assert await one.get("a") is None
    revision = await one.create("a", b"1")
    assert await other.create("a", b"2") is None
    assert await other.update("a", b"3", revision or 0) is not None
    assert await one.update("a", b"4", revision or 0) is None
    kept = await one.get("a")
    assert kept is not None
    assert b"3" == kept.value
    await one.put("b.c", b"")
    assert ["a", "b.c"] == await other.keys()
    await one.delete("a")
    assert await other.get("a") is None
    assert await other.create("a", b"5") is not None


async def test_key_ends_with_its_seconds(connect: Connect) -> None:
    bucket = (await connect()).bucket("short")
    await bucket.put("a", b"1", seconds=1)

    with anyio.fail_after(PATIENCE):
        while await bucket.get("a") is not None:  # noqa: ASYNC110 - nobody tells of ends
            await anyio.sleep(0.1)


async def test_full_bucket_forgets_the_oldest(connect: Connect) -> None:
    bucket = (await connect()).bucket("small", most_bytes=10_000)
    for number in range(20):
        await bucket.put(str(number), b"x" * 1000)

    assert await bucket.get("0") is None
    assert await bucket.get("19") is not None


async def test_object_of_any_size_is_kept(connect: Connect) -> None:
    one, other = await connect(), await connect()
    data = bytes(range(256)) * 20_000
    await one.store("large", data)
    await one.store("empty", b"")

    assert data == await other.fetch("large")
    assert b"" == await other.fetch("empty")
    assert await other.fetch("missing") is None


async def test_everything_fails_at_once_while_the_engine_is_gone_and_goes_on_when_it_is_back(
    own_engine: FailingEngine,
) -> None:
    engine = EngineConnection(Settings.of({"cluster.url": own_engine.url}))
    heard = asyncio.Event()
    engine.subscribe("news", lambda _: heard.set())
    assert await engine.ready(PATIENCE)
    own_engine.kill()
    await until(engine, up=False)
    with pytest.raises(EngineError, match="gone for"):
        engine.publish("news", b"")
    for asked in (engine.request("ask"), engine.bucket("kept").get("a"), engine.store("a", b""), engine.flush()):
        with pytest.raises(EngineError, match="gone for"):
            await asked

    own_engine.start()
    await until(engine, up=True)
    await engine.bucket("kept").put("a", b"1")
    engine.publish("news", b"")
    with anyio.fail_after(PATIENCE):
        await heard.wait()
    await engine.close()
    assert not engine.up


async def test_request_in_flight_fails_when_the_engine_dies(own_engine: FailingEngine) -> None:
    engine = EngineConnection(Settings.of({"cluster.url": own_engine.url}))
    assert await engine.ready(PATIENCE)
    asked = asyncio.Event()
    engine.subscribe("ask", lambda _: asked.set())
    await engine.flush()
    request = asyncio.ensure_future(engine.request("ask", seconds=10 * PATIENCE))
    with anyio.fail_after(PATIENCE):
        await asked.wait()
        own_engine.kill()
        with pytest.raises(EngineError, match="gone for"):
            await request
    await engine.close()


async def test_engine_that_stops_answering_is_given_up(own_engine: FailingEngine) -> None:
    """A machine that hangs keeps its connections open."""
    engine = EngineConnection(Settings.of({"cluster.url": own_engine.url}))
    assert await engine.ready(PATIENCE)

    async def ask_on() -> None:
        while True:  # the system may let it answer once more before it freezes
            await engine.bucket("kept").get("a")

    own_engine.pause()
    with anyio.fail_after(PATIENCE):
        with pytest.raises(EngineError, match=r"no answer within|gone"):
            await ask_on()
    assert not engine.up
    own_engine.resume()
    await until(engine, up=True)
    await engine.close()


async def fill(engine: EngineConnection) -> None:
    """Publish until the network takes no more, and something waits behind that, or until the connection is given up."""
    assert engine._client is not None
    with anyio.fail_after(PATIENCE):
        while engine._client is not None and engine._client.pending_data_size < 4_000_000:
            engine.publish("filling", bytes(1_000_000))
            await anyio.lowlevel.checkpoint()


async def test_connection_that_is_lost_while_messages_wait_is_made_again(engine: LocalEngine) -> None:
    """nats-py says nothing of it: what waits cannot be sent any more."""
    proxy = Proxy(engine.url)
    connection = EngineConnection(Settings.of({"cluster.url": await proxy.start()}))
    assert await connection.ready(PATIENCE)
    proxy.hush()
    await fill(connection)
    proxy.cut()
    proxy.mend()
    with anyio.fail_after(PATIENCE):
        while connection.connections < 2:  # noqa: ASYNC110 - it may be too quick for a listener
            await anyio.sleep(0.01)
    await until(connection, up=True)
    await connection.close()
    await proxy.close()


async def test_connection_that_cannot_send_what_waits_leaves_no_task(connect: Connect) -> None:
    """Its subscriptions would wait for ever, and the log would say so each time."""
    connection, before = await connect(), asyncio.all_tasks()
    connection.subscribe(connection.subject("news"), lambda _: None)
    await connection.flush()
    client = connection._client
    connection.publish(connection.subject("other"), b"waits")
    client.abort()
    with anyio.fail_after(PATIENCE):
        await client.close()  # at once, before it tries to send
        await connection.close()
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)


async def test_engine_that_reads_nothing_is_given_up_while_messages_wait(
    own_engine: FailingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-py would wait until they are sent. Nobody asks anything here, as on an agent."""
    monkeypatch.setattr(engines, "_PING", 0.1)
    engine = EngineConnection(Settings.of({"cluster.url": own_engine.url}))
    assert await engine.ready(PATIENCE)
    own_engine.pause()
    await fill(engine)
    await until(engine, up=False)
    own_engine.resume()
    await until(engine, up=True)
    await engine.close()


async def test_answer_that_came_while_this_process_stood_still_is_in_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await connect()
    bucket = engine.bucket("kept")
    await bucket.put("a", b"1")
    monkeypatch.setattr(engines, "_PATIENCE", 0.1)
    asked = asyncio.ensure_future(bucket.get("a"))
    for _ in range(2):  # it asks, and the question is sent
        await anyio.lowlevel.checkpoint()
    assert engine._client is not None
    answered = select.select([engine._client._transport._io_writer.get_extra_info("socket")], [], [], PATIENCE)
    threading.Event().wait(0.2)

    assert [] != answered[0]
    entry = await asked
    assert entry is not None
    assert (b"1", True) == (entry.value, engine.up)


async def test_host_may_start_before_its_engine(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = EngineConnection(Settings.of({"cluster.url": f"nats://127.0.0.1:{port}"}))
    assert not await engine.ready(0.1)
    assert "gone" in engine.state
    await engine.close()


async def test_server_that_is_no_engine_is_no_reason_to_hang() -> None:
    """Whoever listens there speaks something else."""

    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(nonsense, "127.0.0.1", 0) as listening:
        engine = EngineConnection(
            Settings.of({"cluster.url": f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"})
        )
        await refused(engine)
        await engine.close()


async def test_token_is_needed_and_never_shown(tmp_path: Path) -> None:
    """Neither a wrong token nor a right one is in any message."""
    with LocalEngine(tmp_path, "--auth", "s3cret-token") as running:
        wrong = EngineConnection(Settings.of({"cluster.url": running.url, "cluster.token": "wrong-token"}))
        inside = EngineConnection(Settings.of({"cluster.url": running.url.replace("//", "//s3cret-token@")}))
        right = EngineConnection(Settings.of({"cluster.url": running.url, "cluster.token": "s3cret-token"}))
        assert await right.ready(PATIENCE)
        assert await inside.ready(PATIENCE)
        await refused(wrong, "Authorization")  # at first, the engine may hang up before that is read
        shown = [f"{each.state} {each.address}" for each in (wrong, right, inside)]
        for secret in ("wrong-token", "s3cret-token"):
            assert secret not in " ".join(shown)
        for each in (wrong, right, inside):
            await each.close()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "cluster.url must be"),
        ({"cluster.url": "nats://x", "cluster.name": "a.b"}, "cluster.name must be"),
        ({"cluster.url": "nats://x", "cluster.credentials": "none.creds"}, "which does not exist"),
        ({"cluster.url": "tls://x", "cluster.tls_ca": "none.pem"}, "cannot be used"),
    ],
    ids=["no address", "name", "credentials", "authority"],
)
def test_wrong_settings_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        EngineConnection(Settings.of(settings))


@pytest.mark.parametrize(
    "url",
    [
        "nats://[::1",
        "nats://a..b:4222",
        "nats://x:port",
        "nats://x:99999",
        "http://x",
        "nats://u:s3cret@",
        "nats://a b",
    ],
)
def test_text_that_is_no_address_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(SettingsError, match=r"must be the address of a NATS server.*, not '(nats|http):") as refused:
        EngineConnection(Settings.of({"cluster.url": f"nats://127.0.0.1:1, {url}"}))
    assert "s3cret" not in str(refused.value)


async def test_engine_without_tls_gets_no_token_if_tls_is_wanted() -> None:
    """Whoever stands between us and the engine could say that it has no TLS."""
    received: list[bytes] = []

    async def engine_without_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","max_payload":1048576,"auth_required":true}\r\n')
        try:
            received.append(await reader.read(1000))
        except ConnectionError:  # it has left
            received.append(b"")
        writer.close()

    async with await asyncio.start_server(engine_without_tls, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        engine = EngineConnection(Settings.of({"cluster.url": f"tls://127.0.0.1:{port}", "cluster.token": "s3cret"}))
        with anyio.fail_after(PATIENCE):
            while not received:
                await engine.ready(0.1)
        await refused(engine)
        await engine.close()
    assert "offers no TLS" in engine.state
    assert {b""} == set(received)


async def test_certificates_are_read_again_for_each_connection(tmp_path: Path) -> None:
    """They are renewed while a host runs."""
    pytest.importorskip("cryptography")
    certificate, key = make_certificate(tmp_path)
    options = ("--tls", "--tlscert", str(certificate), "--tlskey", str(key))
    with LocalEngine(tmp_path / "engine", *options) as running:
        engine = EngineConnection(Settings.of({"cluster.url": running.url, "cluster.tls_ca": str(certificate)}))
        assert await engine.ready(PATIENCE), engine.state
        running.stop()
        await until(engine, up=False)
        make_certificate(tmp_path)
        running.start()
        await until(engine, up=True)
        await engine.close()


@pytest.mark.parametrize(
    "config, words",
    [
        ("max_payload: 65536", "its max_payload is 65536, and must be at least 1048576"),
        ("jetstream {max_file_store: 100000}", "insufficient resources"),
        (
            'authorization {users: [{user: a, password: b, permissions: {publish: ["prowess.>"]}}]}',
            "permissions violation for publish",
        ),
    ],
    ids=["small messages", "full store", "missing rights"],
)
async def test_engine_that_cannot_serve_says_why(
    config: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stays connected if it serves anything."""
    monkeypatch.setattr(engines, "_PATIENCE", 1.0)
    (tmp_path / "conf").write_text(config)
    with LocalEngine(tmp_path / "engine", "-c", str(tmp_path / "conf")) as running:
        engine = EngineConnection(
            Settings.of({"cluster.url": running.url, "cluster.user": "a", "cluster.password": "b"})
        )
        if await engine.ready(3.0 if "payload" in config else PATIENCE):
            with pytest.raises(EngineError, match=words):
                await engine.store("large", b"x" * 200_000)  # the larger, the longer it waits for the engine
            assert 1 == engine.connections
        else:
            assert words in engine.state
        await engine.close()


async def test_engine_without_jetstream_says_so(tmp_path: Path) -> None:
    with LocalEngine(tmp_path, "-js=false") as running:
        engine = EngineConnection(Settings.of({"cluster.url": running.url}))
        assert await engine.ready(PATIENCE)
        with pytest.raises(EngineError, match="no JetStream"):
            await engine.store("large", b"x")
        await engine.close()


def test_local_engine_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Even if that is killed."""
    code = (
        "import os, sys; from pathlib import Path; from prowess_host.cluster.local import LocalEngine\n"
        "engine = LocalEngine(Path(sys.argv[1])); engine.start(); print(engine.url, flush=True); os.kill(os.getpid(), 9)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    port = int(run.stdout.strip().rpartition(":")[2])

    for _ in range(int(PATIENCE / 0.1)):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return
        threading.Event().wait(0.1)
    pytest.fail("the engine goes on")
