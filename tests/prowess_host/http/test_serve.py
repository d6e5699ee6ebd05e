"""`prowess serve` as a process: what it says, how it leaves, several processes, several instances, and load."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from certificates import make_certificate
from patience import PATIENCE
from piped import make_project
from web import JSON, SERVE, Answer, Web, initialize, served_over_http, stateless

CALL = "tools/call"
ABLE = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}}


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def run(root: Path, *options: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """A server that is expected to end by itself."""
    code = f"{before}\nfrom prowess_host.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", "--project", str(root), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


# What it says


def test_a_taken_port_is_named(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(root, "--port", str(port))
    assert 2 == done.returncode
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("missing", "options", "told"),
    [
        ("uvicorn", [], "pip install 'prowess[http]'"),
        ("httptools", [], "pip install 'prowess[http]'"),
        ("joserfc", ["--set", "serve.oauth_issuer=https://x.example.com"], "pip install 'prowess[oauth]'"),
    ],
)
def test_a_missing_extra_is_named(root: Path, missing: str, options: list[str], told: str) -> None:
    done = run(root, *options, before=f"import sys; sys.modules[{missing!r}] = None")
    assert 2 == done.returncode
    assert missing in done.stderr
    assert told in done.stderr


def test_it_says_where_it_serves_and_how_to_connect(root: Path) -> None:
    """Nothing else stands there."""
    command = [*SERVE, "--project", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.terminate()
        rest, errors = process.communicate(timeout=PATIENCE)
    address = lines[0].split(" at ")[1].split(";")[0]
    assert f"claude mcp add --transport http prowess {address}\n" in lines[1]
    assert (0, "", "") == (process.returncode, rest, errors)


# How it leaves


def test_it_finishes_what_runs(root: Path) -> None:
    """New connections are refused meanwhile; who only listens is let go."""
    with served_over_http(root, forked=False) as web:
        fields = initialize(web)
        standing = web.stream("GET", headers=fields)
        listening = web.stream(
            "POST", "/mcp", *stateless("subscriptions/listen", notifications={"toolsListChanged": True})
        )
        assert listening.message()
        body, headers = stateless(CALL, name="t_hold", arguments={"mark": "last", "loud": True})
        body["params"]["_meta"]["progressToken"] = 1
        held = web.stream("POST", "/mcp", body, headers)
        assert held.message()
        web.process.terminate()
        assert [] == [each for each in standing if each.get("data")]
        assert {} != listening.message().get("result", {})
        until(lambda: _is_refused(web))
        (root / "last").touch()
        assert "held" == held.message()["result"]["content"][0]["text"]
        assert 0 == web.process.wait(PATIENCE)


def _is_refused(web: Web) -> bool:
    try:
        web.ask("GET", "/healthz")
    except ConnectionError:
        return True
    return False


def test_what_takes_too_long_is_cancelled(root: Path) -> None:
    """Every door says that the call was lost, and that it may have taken effect."""
    with served_over_http(root, "--set", "serve.drain=0.2", forked=False) as web:
        session, (body, fields) = initialize(web), stateless(CALL, name="t_hold", arguments={"mark": "endless"})
        in_session = {**body, "params": {"name": "t_hold", "arguments": {"mark": "endless-session"}}}
        envelope = {"id": "r", "version": "1.0.0", "timestamp": "2026-01-31T12:00:00Z", "tool": "t.hold"}
        asked = [
            ("/mcp", body, fields, "endless"),
            ("/mcp", in_session, session, "endless-session"),
            ("/v1/commands/t.hold", {"mark": "endless-path"}, JSON, "endless-path"),
            ("/v1/invoke", {**envelope, "payload": {"mark": "endless-envelope"}}, JSON, "endless-envelope"),
        ]
        connections: list[http.client.HTTPConnection] = []
        for path, request, headers, mark in asked:
            connections.append(http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE))
            connections[-1].request("POST", path, json.dumps(request), headers)
            until((root / f"{mark}.begun").exists)
        web.process.terminate()
        assert 0 == web.process.wait(PATIENCE)
        for connection, status in zip(connections, [200, 200, 500, 500], strict=True):
            answer = connection.getresponse()
            assert status == answer.status
            assert b"t.hold was lost: the host is shutting down. It may have taken effect" in answer.read()
            connection.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once(root: Path, number: signal.Signals, code: int) -> None:
    with served_over_http(root, code=code, forked=False) as web:
        body, headers = stateless(CALL, name="t_hold", arguments={"mark": f"twice{number}", "loud": True})
        body["params"]["_meta"]["progressToken"] = 1
        held = web.stream("POST", "/mcp", body, headers)
        assert held.message()
        web.process.send_signal(number)
        until(lambda: _is_refused(web))
        web.process.send_signal(number)
        assert code == web.process.wait(PATIENCE)


# TLS


def test_it_speaks_tls(root: Path, tmp_path: Path) -> None:
    """With a certificate and a key in files; and says so in its address."""
    pytest.importorskip("cryptography")
    certificate, key = make_certificate(tmp_path)
    command = [*SERVE, "--project", str(root), "--port", "0"]
    command += ["--set", f"serve.tls_cert={certificate}", "--set", f"serve.tls_key={key}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].split("/mcp")[0]
        try:
            assert url.startswith("https://127.0.0.1:")
            with urllib.request.urlopen(
                f"{url}/healthz", context=ssl.create_default_context(cafile=certificate)
            ) as told:
                assert {"status": "ok"} == json.load(told)
        finally:
            process.terminate()
        assert 0 == process.wait(PATIENCE)


def test_who_begins_no_tls_is_hung_up_on(root: Path, tmp_path: Path) -> None:
    """As who sends no request. asyncio would wait a minute."""
    pytest.importorskip("cryptography")
    certificate, key = make_certificate(tmp_path)
    for_ever = "import asyncio.constants; asyncio.constants.SSL_HANDSHAKE_TIMEOUT = 1e6; "
    options = ("--set", f"serve.tls_cert={certificate}", "--set", f"serve.tls_key={key}", "--set", "serve.patience=1")
    with served_over_http(root, *options, before=for_ever) as web:
        assert b"" == web.raw()


def test_bodies_in_many_records_of_tls_arrive_as_they_were_sent(root: Path, tmp_path: Path) -> None:
    """Requests of other clients, whose bytes have been in the same buffer, have no part in them."""
    pytest.importorskip("cryptography")
    certificate, key = make_certificate(tmp_path)
    options = ("--set", f"serve.tls_cert={certificate}", "--set", f"serve.tls_key={key}")
    context = ssl.create_default_context(cafile=certificate)
    with served_over_http(root, *options) as web:
        for letter in "abcde":
            connection = http.client.HTTPSConnection("127.0.0.1", web.port, timeout=PATIENCE, context=context)
            body, headers = stateless(CALL, name="t_echo", arguments={"text": letter * 60_000})
            connection.request("POST", "/mcp", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
            assert letter * 60_000 == answer["result"]["content"][0]["text"]
            connection.close()


def test_who_does_not_read_is_hung_up_on_over_tls_too(root: Path, tmp_path: Path) -> None:
    """The answer is larger than what the system keeps on the way."""
    pytest.importorskip("cryptography")
    certificate, key = make_certificate(tmp_path)
    for_ever = "import prowess_host.http.http1 as http1; http1._KEEP_ALIVE = 1e6; "
    options = ("--set", f"serve.tls_cert={certificate}", "--set", f"serve.tls_key={key}", "--set", "serve.patience=1")
    context = ssl.create_default_context(cafile=certificate)
    with served_over_http(root, *options, before=for_ever) as web, socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", web.port))
        with context.wrap_socket(silent, server_hostname="127.0.0.1") as secure:
            body, headers = stateless(CALL, name="t_big", arguments={"size": 20_000_000})
            connection = http.client.HTTPConnection("127.0.0.1", web.port)
            connection.sock = secure
            connection.request("POST", "/mcp", json.dumps(body), headers)
            hung_up = select.poll()
            hung_up.register(secure, 0)
            assert hung_up.poll(PATIENCE * 1000)


# Several processes


def test_several_processes_serve_one_port(root: Path) -> None:
    """One that is killed is replaced; clients of both eras are served by any, without sessions."""
    with served_over_http(root, "--workers", "2", forked=False) as web:
        children = until(lambda: _two(web.process.pid))
        until(lambda: _is_served(web))
        asked = web.stateless(CALL, name="t_sure", arguments={}, **ABLE).json["result"]
        os.kill(children[0], signal.SIGKILL)
        until(lambda: len(set(_two(web.process.pid)) | set(children)) == 3)
        answers = {"inputResponses": {"sure": {"action": "accept", "content": {"value": True}}}}
        again = {**answers, "requestState": asked["requestState"], **ABLE}
        done = _patiently(lambda: web.stateless(CALL, name="t_sure", arguments={}, **again))
        assert "accept True" == done.text, "the state is good in every process of this user"
        call = {"jsonrpc": "2.0", "id": 1, "method": CALL, "params": {"name": "t_echo", "arguments": {"text": "x"}}}
        assert "x" == _patiently(lambda: web.ask("POST", "/mcp", call, JSON)).text


def test_several_processes_count_and_tell_as_one(tmp_path: Path) -> None:
    """Whichever process is asked for the metrics, and whichever hears of a change. Counters outlive a process."""
    skill = (
        SKILL
        + """
    from prowess import resource

    @resource("note://{name}")
    def note(name: str) -> str:
        return name

    @skill_command
    def change(ctx: Context) -> str:
        ctx.updated("note://a")
        return "changed"
    """
    )
    wanted = {"notifications": {"resourceSubscriptions": ["note://a"]}}
    with served_over_http(make_project(tmp_path, t=skill), "--workers", "2") as web:
        until(lambda: _is_served(web))
        children = until(lambda: _two(web.process.pid))
        until(lambda: web.call("t_echo", text="both").text == "both")
        body, fields = stateless("subscriptions/listen", **wanted)
        streams = [web.stream("POST", "/mcp", body, fields) for _ in range(6)]
        until(lambda: _metric(web, "prowess_subscriptions") == 6)
        for stream in streams:
            stream.message()
        assert "changed" == web.call("t_change").text
        told = [stream.message()["params"]["uri"] for stream in streams]
        assert ["note://a"] * 6 == told
        for stream in streams:
            stream.close()
        for _ in range(10):
            web.ask("GET", "/healthz")
        healthz = 'prowess_http_requests_total{route="healthz",method="GET",status="200"}'
        until(lambda: _metric_without(children[0], web, healthz) == 10)  # it has saved what it counted
        os.kill(children[0], signal.SIGKILL)
        until(lambda: len(set(_two(web.process.pid)) | set(children)) == 3)
        until(lambda: _metric(web, healthz) == 10)


def _metric(web: Web, name: str) -> float:
    text = _patiently(lambda: web.ask("GET", "/metrics")).body.decode()
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} ")), -1.0)


def _metric_without(process: int, web: Web, name: str) -> float:
    """What the others say while one process stands still."""
    os.kill(process, signal.SIGSTOP)
    try:
        until(lambda: Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].startswith("T"))
        return _metric(web, name)
    finally:
        os.kill(process, signal.SIGCONT)


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """A connection may belong to a process that was just killed."""
    while True:
        with contextlib.suppress(ConnectionError):
            return ask()


def _is_served(web: Web) -> bool:
    with contextlib.suppress(ConnectionError):
        return web.ask("GET", "/readyz").status == 200
    return False


def _two(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children] if len(children) == 2 else []


def test_settings_that_no_process_can_serve_with_end_all(root: Path, tmp_path: Path) -> None:
    """Instead of one start after the other, for ever."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    options = ("--workers", "2", "--set", f"serve.tls_cert={broken}", "--set", f"serve.tls_key={broken}")
    with pytest.raises(AssertionError, match="cannot be used"), served_over_http(root, *options, code=2, forked=False):
        pass


@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
async def test_no_request_of_many_hangs_while_processes_die(tmp_path: Path) -> None:
    """Each is answered, or its connection ends, and is answered when it is sent again."""
    clients, calls = 16, 8
    with served_over_http(make_project(tmp_path, t=SKILL), "--workers", "2", forked=False) as web:
        await asyncio.to_thread(until, lambda: _is_served(web))
        done = 0

        def client(number: int) -> None:
            nonlocal done
            for step in range(calls):
                text = f"{number}-{step}"
                assert text == _patiently(lambda text=text: web.call("t_echo", text=text)).text
                done += 1

        def reap() -> None:
            for death in range(3):
                until(lambda death=death: done >= clients * calls * (death + 1) // 5)
                os.kill(until(lambda: _two(web.process.pid))[death % 2], signal.SIGKILL)
                until(lambda death=death: web.errors.read_text().count("another takes its place") > death)

        with fail_after(PATIENCE):
            await asyncio.gather(
                asyncio.to_thread(reap), *(asyncio.to_thread(client, number) for number in range(clients))
            )
        assert clients * calls == done


def test_processes_do_not_outlive_whoever_started_them(root: Path) -> None:
    """Also where it had no time to say a word."""
    with served_over_http(root, "--workers", "2", code=-9, forked=False) as web:
        children = until(lambda: _two(web.process.pid))
        until(lambda: _is_served(web))
        web.process.kill()
        until(lambda: not any(Path(f"/proc/{child}/cmdline").exists() and _lives(child) for child in children))


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# Several instances


@contextlib.asynccontextmanager
async def dealing(ports: list[int], dice: random.Random) -> AsyncGenerator[int]:
    """A proxy that deals connections at random to those that can be reached. Gives its port."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in dice.sample(ports, len(ports)):
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            await asyncio.gather(pipe(reader, back), pipe(there, writer))
            return
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_stateless_clients_do_not_notice_that_an_instance_is_gone(tmp_path: Path) -> None:
    """Two instances with one key for states behind a proxy: a question of one is answered by the other, and one is killed."""
    skill = '''
    @skill_command
    async def sure(ctx: Context) -> str:
        """Ask."""
        answer = await ctx.ask("sure", "Sure?", bool)
        return f"{answer.action} {os.getpid()}"
    '''
    env = {"PROWESS_AUTH__STATE_KEY": "k" * 32}
    roots = [make_project(tmp_path / name, t=skill) for name in ("one", "two")]
    dice = random.Random(11)
    with (
        served_over_http(roots[0], env=env, code=-9, forked=False) as first,
        served_over_http(roots[1], env=env, forked=False) as second,
    ):
        async with dealing([first.port, second.port], dice) as port:
            client = Web(first.process, f"http://127.0.0.1:{port}")

            def whole(_: int) -> str:
                asked = client.stateless(CALL, name="t_sure", arguments={}, **ABLE).json["result"]
                given = {"sure": {"action": "accept", "content": {"value": True}}}
                again = {"inputResponses": given, "requestState": asked["requestState"], **ABLE}
                return client.stateless(CALL, name="t_sure", arguments={}, **again).text

            with fail_after(PATIENCE):
                before = await asyncio.gather(*(asyncio.to_thread(whole, number) for number in range(12)))
                first.process.kill()
                first.process.wait()
                after = await asyncio.gather(*(asyncio.to_thread(whole, number) for number in range(12)))
    assert all(text.startswith("accept ") for text in before + after)
    assert 2 == len(set(before)), "both have served"
    assert 1 == len(set(after))


# Load


SKILL = '''
    @skill_command
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @skill_command(idempotent=True)
    def sync(text: str) -> str:
        """The same in a thread."""
        time.sleep(0.001)
        return text

    @skill_command
    async def steps(ctx: Context, text: str) -> str:
        """Report progress."""
        for step in range(3):
            ctx.progress(step + 1, 3, text)
            await asyncio.sleep(0)
        return text

    @skill_command
    async def die() -> str:
        """End the worker."""
        os._exit(3)
'''


async def test_no_answer_is_lost_or_doubled_under_load(tmp_path: Path) -> None:
    """Many clients call mixed commands while workers die under them: each gets its own answer, once."""
    clients, calls = int(os.environ.get("LOAD_CLIENTS", "40")), int(os.environ.get("LOAD_CALLS", "6"))
    told: list[tuple[str, Any]] = []
    total, deaths = clients * calls, 3
    with served_over_http(make_project(tmp_path, t=SKILL), "--set", "host.restart_limit=1000", forked=False) as web:
        web.call("t_echo", text="ready")

        async def client(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
            try:
                for step in range(calls):
                    name = ("t_echo", "t_sync", "t_steps")[(number + step) % 3]
                    text = f"c{number}-{step}"
                    told.append(
                        (
                            text,
                            await _exchange(
                                reader, writer, port=web.port, name=name, text=text, number=number * 1000 + step
                            ),
                        )
                    )
                    if len(told) % (total // (deaths + 1)) == 0 and len(told) < total:
                        await asyncio.to_thread(web.call, "t_die")
            finally:
                writer.close()

        with fail_after(PATIENCE):
            await asyncio.gather(*(client(number) for number in range(clients)))
    assert total == len({text for text, _ in told}) == len(told)
    lost = [result for _, result in told if result.get("isError")]
    assert all("worker_lost" == result["_meta"]["prowess/kind"] for result in lost)
    assert len(lost) <= deaths * clients, "a death costs the calls in its worker, and no others"
    assert all(text == result["content"][0]["text"] for text, result in told if not result.get("isError"))


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, port: int, name: str, text: str, number: int
) -> Any:
    body, fields = stateless(CALL, name=name, arguments={"text": text})
    body["id"] = number
    if name == "t_steps":
        body["params"]["_meta"]["progressToken"] = number
    data = json.dumps(body).encode()
    lines = [
        f"{key}: {value}" for key, value in {**fields, "Host": f"127.0.0.1:{port}", "Content-Length": len(data)}.items()
    ]
    writer.write("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + data)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert " 200 " in head.split("\r\n")[0], head
    if "content-length: " in head:
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        messages = [json.loads(await reader.readexactly(size))]
    else:
        answered = b""
        while size := int(await reader.readline(), 16):
            answered += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        messages = Answer(200, {}, answered).messages
    answers = [each for each in messages if "id" in each]
    assert [number] == [each["id"] for each in answers], "one answer, to this request"
    assert all(each["params"]["progressToken"] == number for each in messages if "method" in each)
    return answers[0]["result"]
