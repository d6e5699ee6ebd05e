"""What a stdio server has to bear: every row of the table of robustness, over real pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from patience import PATIENCE
from piped import CAPABILITIES_KEY, STATELESS, VERSION_KEY, Client, error, hosted, make_project, result

SKILL = """
    @skill_command
    def say(text: str = "", times: int = 1) -> str:
        return text * times

    @skill_command
    def size(text: str) -> int:
        return len(text)

    @skill_command
    def shout(how: str) -> str:
        if how == "print":
            print("SHOUT")
        elif how == "write":
            sys.stdout.write("SHOUT\\n")
        elif how == "original":
            sys.__stdout__.write("SHOUT\\n"); sys.__stdout__.flush()
        elif how == "native":
            os.write(1, b"SHOUT\\n")
        elif how == "system":
            os.system("echo SHOUT")
        elif how == "child":
            subprocess.run(["echo", "SHOUT"], check=True)
        return "quiet"

    @skill_command
    def listen() -> str:
        return repr(sys.stdin.read()) + repr(subprocess.run(["cat"], stdout=subprocess.PIPE).stdout)

    @skill_command
    def leave_child() -> int:
        return subprocess.Popen(["sleep", "600"]).pid

    @skill_command
    def crash() -> str:
        raise RuntimeError("on purpose")

    @skill_command
    def leave() -> str:
        sys.exit(7)

    @skill_command
    async def leave_async() -> str:
        sys.exit(7)

    @skill_command
    async def interrupt() -> str:
        raise KeyboardInterrupt

    @skill_command
    def surrogate() -> str:
        return "\\ud800"

    @skill_command
    def surrogate_error() -> str:
        raise SkillError("\\ud800")

    @skill_command
    def not_a_number() -> float:
        return float("nan")

    @skill_command(output=int)
    def broken_promise():
        return "three"

    @skill_command
    async def wait() -> None:
        await asyncio.sleep(600)
"""
NOISE = """
    print("SHOUT at import")
    os.write(1, b"SHOUT at import\\n")
    os.system("echo SHOUT at import")
"""


@pytest.fixture(scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    """One host for all rows that leave it as it was."""
    project = make_project(tmp_path_factory.mktemp("rows"), t=SKILL, noise=NOISE)
    async with hosted(project, "--set", "host.max_line=250000", forked=True) as client:
        yield client


async def last_complaint(host: Client, *lines: bytes) -> dict:
    """The error without an id that these lines are answered by; the host serves on."""
    before = len(host.errors_without_id)
    for line in lines:
        host.write(line + b"\n")
    await host.barrier()
    assert len(lines) == len(host.errors_without_id) - before
    return host.errors_without_id[-1]["error"]


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 100_000
UNREADABLE = [
    ("1-malformed", -32700, b"{oops"),
    ("1-text", -32700, b"hello there"),
    ("1-scalar", -32600, b"42"),
    ("3-null", -32600, b'{"jsonrpc":"2.0","id":null,"method":"ping"}'),
    ("3-fraction", -32600, b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}'),
    ("3-whole-float", -32600, b'{"jsonrpc":"2.0","id":2.0,"method":"ping"}'),
    ("3-true", -32600, b'{"jsonrpc":"2.0","id":true,"method":"ping"}'),
    ("3-object", -32600, b'{"jsonrpc":"2.0","id":{},"method":"ping"}'),
    ("6-bare-bytes", -32700, b"\xfe\xff\x00"),
    ("13-deep", None, DEEP),
    ("14-long", -32600, b"x" * 300_000),
    ("23-batch", -32600, b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'),
    ("23-empty-batch", -32600, b"[]"),
]


@pytest.mark.parametrize("code, line", [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
async def test_what_cannot_be_read_is_refused_and_serving_goes_on(host: Client, code: int | None, line: bytes):
    """Without an id, as there is none that could be echoed; nothing of it is run."""
    complaint = await last_complaint(host, line)
    assert complaint["code"] in ((code,) if code else (-32700, -32600))


BROKEN = [
    (
        "5-invalid-utf-8",
        -32700,
        b'{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"t_say","x":"\xff"}}',
    ),
    ("11-nan", -32602, b'{"jsonrpc":"2.0","id":"b","method":"ping","params":{"x":NaN}}'),
    (
        "13-deep",
        -32600,
        b'{"method":"ping","params":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b'},"jsonrpc":"2.0","id":"b"}',
    ),
    ("14-long", -32600, b'{"jsonrpc":"2.0","id":"b","method":"ping","params":{"x":"' + b"x" * 300_000 + b'"}}'),
    ("14-long-id-last", -32600, b'{"method":"ping","params":{"x":"' + b"x" * 300_000 + b'"},"jsonrpc":"2.0","id":"b"}'),
]


@pytest.mark.parametrize("code, line", [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_what_cannot_be_decoded_is_answered_to_its_id(host: Client, code: int, line: bytes):
    """Whoever sent it does not wait for a timeout."""
    answer = host.expect("b", "ping")
    host.write(line + b"\n")
    assert code == (await error(answer))["code"]
    await host.barrier()


NUMBERS = {
    "9" * 5000: "times: expected an integer of fewer digits, got one of 5000",
    "NaN": "times: expected a finite number, got NaN, which is not JSON",
    "-Infinity": "times: expected a finite number, got -Infinity, which is not JSON",
    "1e999": "times: expected a number that fits into 64 bits",
}


@pytest.mark.parametrize("number", NUMBERS, ids=["digits", "nan", "infinity", "1e999"])
async def test_a_number_that_cannot_be_read_is_an_error_of_that_call(host: Client, number: str):
    """The model that sent it is told which argument it is."""
    answer = host.expect("n")
    host.write(
        b'{"jsonrpc":"2.0","id":"n","method":"tools/call","params":{"name":"t_say","arguments":{"times":%b}}}\n'
        % number.encode()
    )
    refused = await result(answer)
    assert refused["isError"]
    assert "input" == refused["_meta"]["prowess/kind"]
    assert NUMBERS[number] in refused["content"][0]["text"]


async def test_the_limit_of_digits_holds_whatever_the_environment_says(tmp_path: Path):
    """Without it a line of digits would keep the host busy for hours: the time grows with their square."""
    async with hosted(make_project(tmp_path), env={"PYTHONINTMAXSTRDIGITS": "0"}, forked=True) as client:
        answer = client.expect("n", "ping")
        client.write(b'{"jsonrpc":"2.0","id":"n","method":"ping","params":{"x":%b}}\n' % (b"9" * 10_000_000))
        assert "one of 10000000; send it" in (await error(answer))["message"]


SHAPES = [
    ("2-no-jsonrpc", -32600, {"method": "ping"}),
    ("2-wrong-jsonrpc", -32600, {"jsonrpc": "1.0", "method": "ping"}),
    ("2-method-is-no-text", -32600, {"jsonrpc": "2.0", "method": 5}),
    ("2-params-is-a-list", -32602, {"jsonrpc": "2.0", "method": "ping", "params": [1]}),
    ("2-no-method", -32600, {"jsonrpc": "2.0"}),
    ("10-lone-surrogate", -32602, {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "\ud800"}}),
    ("16-unknown-method", -32601, {"jsonrpc": "2.0", "method": "no/such"}),
    ("18-no-params", -32602, {"jsonrpc": "2.0", "method": "tools/call"}),
    ("18-no-name", -32602, {"jsonrpc": "2.0", "method": "tools/call", "params": {"arguments": {}}}),
    (
        "18-arguments-is-a-list",
        -32602,
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "t_say", "arguments": []}},
    ),
    ("18-name-is-a-number", -32602, {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": 5}}),
    ("20-unknown-tool", -32602, {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "t_sya"}}),
    (
        "53-capabilities",
        -32602,
        {"jsonrpc": "2.0", "method": "tools/list", "params": {"_meta": {VERSION_KEY: STATELESS, CAPABILITIES_KEY: 5}}},
    ),
    (
        "53-client-info",
        -32602,
        {
            "jsonrpc": "2.0",
            "method": "tools/list",
            "params": {
                "_meta": {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}, "io.modelcontextprotocol/clientInfo": "x"}
            },
        },
    ),
    (
        "51-unknown-version",
        -32022,
        {
            "jsonrpc": "2.0",
            "method": "tools/list",
            "params": {"_meta": {VERSION_KEY: "2099-01-01", CAPABILITIES_KEY: {}}},
        },
    ),
    (
        "52-request-state",
        -32602,
        {
            "jsonrpc": "2.0",
            "method": "tools/call",
            "params": {"name": "t_say", "requestState": "x", "_meta": {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}}},
        },
    ),
]


@pytest.mark.parametrize("code, message", [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES])
async def test_a_request_that_does_not_fit_is_refused_by_its_id(host: Client, code: int, message: dict):
    """So that nobody waits for ever."""
    request_id = f"shape {code} {id(message)}"
    answer = host.expect(request_id)
    host.send({**message, "id": request_id})
    assert code == (await error(answer))["code"]


@pytest.mark.parametrize("request_id", ["", -1, 10**30, "x" * 1000], ids=["4-empty", "4-negative", "4-huge", "4-long"])
async def test_odd_ids_are_echoed(host: Client, request_id: object):
    """As they came."""
    assert {} == await result(host.request("ping", request_id))


async def test_row_7_and_8_lines_may_be_blank_split_or_end_in_any_way(host: Client):
    """Only a line feed ends a message."""
    answer = host.expect("split", "ping")
    host.write(b"\n \t\r\n\n")
    whole = json.dumps({"jsonrpc": "2.0", "id": "split", "method": "ping"}).encode()
    for piece in (whole[:7], whole[7:20], whole[20:], b"\r\n"):
        host.write(piece)
        await host.process.stdin.drain()
    assert {} == await result(answer)


async def test_row_12_the_last_of_equal_keys_counts(host: Client):
    answer = host.expect(11, "ping")
    host.write(b'{"jsonrpc":"2.0","id":10,"id":11,"method":"ping"}\n')
    assert {} == await result(answer)


async def test_row_13_arguments_nested_beyond_reason_are_an_error_of_that_call(host: Client):
    """Deeper than the worker reads, not so deep that the host could not: its worker lives on."""
    answer = host.expect("deep")
    nested = "[" * 400 + "]" * 400
    host.write(
        b'{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":{"name":"t_say","arguments":{"text":%b}}}\n'
        % nested.encode()
    )
    refused = await result(answer)
    assert refused["isError"]
    assert "input" == refused["_meta"]["prowess/kind"]


async def test_arguments_may_be_json_text(host: Client):
    """As some clients send them; the result says so. Any other text is refused as before."""
    told = await host.ask("tools/call", name="t_say", arguments='{"text":"hi"}')
    assert "hi" == told["content"][0]["text"]
    assert ["arguments"] == told["_meta"]["prowess/decoded"]
    told = await host.ask("tools/call", name="t_say", arguments='{"text":')
    assert (True, "input") == (told["isError"], told["_meta"]["prowess/kind"])
    assert -32602 == (await error(host.request("tools/call", name="t_say", arguments="text")))["code"]


async def test_row_17_what_wants_no_answer_gets_none(host: Client):
    """Unknown notifications, bad cancellations, responses to nothing."""
    host.notify("notifications/unknown")
    host.notify("notifications/cancelled", requestId=99999)
    host.notify("notifications/cancelled")
    host.send({"jsonrpc": "2.0", "id": 77, "result": {}})
    host.send({"jsonrpc": "2.0", "id": 78, "error": {"code": 1, "message": "x"}})
    await host.barrier()


@pytest.mark.parametrize("arguments", [{}, {"arguments": None}], ids=["19-missing", "19-null"])
async def test_arguments_may_be_left_out(host: Client, arguments: dict):
    assert "" == (await host.ask("tools/call", name="t_say", **arguments))["content"][0]["text"]


ARGUMENTS = [
    ("21-missing", {}, "text"),
    ("21-wrong", {"text": 5}, "text"),
    ("22-extra", {"text": "x", "txet": 1}, "txet"),
]


@pytest.mark.parametrize("arguments, named", [row[1:] for row in ARGUMENTS], ids=[row[0] for row in ARGUMENTS])
async def test_arguments_that_do_not_fit_are_named_tersely(host: Client, arguments: dict, named: str):
    """For a model, which has no use for links into pydantic's documentation."""
    refused = await host.call("t_size", **arguments)
    assert refused["isError"]
    assert named in refused["content"][0]["text"]
    assert "pydantic" not in refused["content"][0]["text"]


async def test_row_24_an_id_in_flight_is_not_free(host: Client):
    """The second request is refused by the id, and the first one goes on."""
    first = host.request("tools/call", "twice", name="t_wait")
    second = host.expect("twice")
    host.send({"jsonrpc": "2.0", "id": "twice", "method": "ping"})
    assert -32600 == (await error(second))["code"]
    host.expect("twice")
    host.cancel(first)
    await host.barrier()


@pytest.mark.parametrize("how", "print write original native system child".split())
async def test_row_27_what_a_command_prints_is_not_on_the_wire(host: Client, how: str):
    """It is on stderr."""
    before = host.stderr.count("SHOUT\n")
    assert "quiet" == await host.text("t_shout", how=how)
    await host.barrier()
    assert [] == host.faults
    if how not in ("print", "write"):  # those are flushed when Python sees fit
        await host.heard("SHOUT\n")
        assert before <= host.stderr.count("SHOUT\n")


async def test_row_28_what_is_printed_at_import_is_not_on_the_wire(host: Client):
    await host.barrier()
    await host.heard("SHOUT at import")


async def test_row_29_commands_and_their_children_read_nothing_from_the_wire(host: Client):
    assert "''b''" == await host.text("t_listen")


async def test_row_31_an_exception_is_an_error_result(host: Client):
    """Class and message for the model, the traceback on stderr."""
    crashed = await host.call("t_crash")
    assert crashed["isError"]
    assert "on purpose" in crashed["content"][0]["text"]
    assert "Traceback" not in crashed["content"][0]["text"]
    await host.heard("Traceback")


@pytest.mark.parametrize("name", ["t_leave", "t_leave_async", "t_interrupt"], ids=["32-sync", "32-async", "33"])
async def test_an_exit_in_a_command_is_its_failure_only(host: Client, name: str):
    worker = host.workers()
    assert (await host.call(name))["isError"]
    assert worker == host.workers()


@pytest.mark.parametrize(
    "name",
    ["t_surrogate", "t_surrogate_error", "t_not_a_number", "t_broken_promise"],
    ids=["35", "35-error", "36", "37"],
)
async def test_a_result_that_cannot_be_sent_is_an_error_of_that_call(host: Client, name: str):
    assert (await host.call(name))["isError"]
    assert "x" == await host.text("t_say", text="x")


async def test_row_49_a_stateless_request_is_served_in_a_session(host: Client):
    """Each message says itself which era it is of."""
    answer = host.expect("modern", "tools/list", STATELESS)
    meta = {VERSION_KEY: STATELESS, CAPABILITIES_KEY: {}}
    host.send({"jsonrpc": "2.0", "id": "modern", "method": "tools/list", "params": {"_meta": meta}})
    assert "complete" == (await result(answer))["resultType"]


# Rows that need a host of their own


async def test_row_9_a_byte_order_mark_may_come_first(tmp_path: Path):
    async with hosted(make_project(tmp_path), opened=False, forked=True) as host:
        answer = host.expect(1, "ping")
        host.write(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert {} == await result(answer)


async def test_rows_25_26_50_51_before_the_handshake(tmp_path: Path):
    """Garbage, notifications, a request too early, a probe, a stateless request; then the handshake works."""
    async with hosted(make_project(tmp_path, t=SKILL), opened=False, forked=True) as host:
        host.write(b"garbage\n")
        for _ in range(20):
            host.notify("notifications/early")
        assert {} == await result(host.request("ping"))
        assert -32601 == (await error(host.request("no/such")))["code"]
        early = await error(host.request("tools/list"))
        assert -32602 == early["code"]
        assert "initialize" in early["message"]
        probe = host.request("tools/list", _meta={VERSION_KEY: "2099-01-01", CAPABILITIES_KEY: {}})
        refused = await error(probe)
        assert -32022 == refused["code"]
        assert "2025-11-25" in refused["data"]["supported"]
        host.version = STATELESS
        assert "t_say" in await host.tools()
        host.version = "2025-11-25"
        await host.open()
        assert "t_say" in await host.tools()


async def test_row_1_a_flood_of_garbage_is_no_flood_of_errors(tmp_path: Path):
    async with hosted(make_project(tmp_path), forked=True) as host:
        host.write(b"garbage\n" * 5000)
        await host.barrier()
        assert 100 <= len(host.errors_without_id) < 1000


async def test_rows_14_and_15_large_lines(tmp_path: Path):
    """What fits is served; what does not end is thrown away, and the end of input is the end."""
    async with hosted(make_project(tmp_path, t=SKILL), "--set", "host.max_line=12000000", forked=True) as host:
        assert str(8_000_000) == await host.text("t_size", text="x" * 8_000_000)
        big = await host.call("t_say", text="0123456789", times=300_000)
        assert 3_000_000 == len(big["content"][0]["text"])
        for _ in range(5):
            host.write(b"x" * 10_000_000)
        assert 0 == await host.leave()
        assert 1 == len(host.errors_without_id)


async def test_batches_are_served_where_the_revision_has_them(tmp_path: Path):
    """One array for all answers, also of calls; nothing for notifications alone."""
    async with hosted(make_project(tmp_path, t=SKILL), version="2025-03-26", forked=True) as host:
        answers = [host.expect("a"), host.expect("b", "ping"), host.expect("c")]
        call = {
            "jsonrpc": "2.0",
            "id": "a",
            "method": "tools/call",
            "params": {"name": "t_say", "arguments": {"text": "x"}},
        }
        odd = {"jsonrpc": "2.0", "id": "c", "method": 5}
        host.send([call, {"jsonrpc": "2.0", "method": "notifications/x"}, {**call, "id": "b", "method": "ping"}, odd])
        assert "x" == (await result(answers[0]))["content"][0]["text"]
        assert {} == await result(answers[1])
        assert -32600 == (await error(answers[2]))["code"]
        host.send([{"jsonrpc": "2.0", "method": "notifications/x"}])
        await host.barrier()


async def test_row_30_a_child_that_is_left_running_holds_nothing_open(tmp_path: Path):
    """And goes with its worker."""
    async with hosted(make_project(tmp_path, t=SKILL), forked=True) as host:
        await host.text("t_leave_child")
        assert 0 == await host.leave()
        await host.alone()


def test_rows_27_and_28_hold_without_stderr(tmp_path: Path):
    """Whoever starts the host may have closed it: what is printed then goes nowhere."""
    project = make_project(tmp_path, t=SKILL, noise=NOISE)
    command = [sys.executable, "-m", "prowess_host", "--project", str(project)]
    lines = [
        {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            },
        },
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "t_shout", "arguments": {"how": "native"}},
        },
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert [0, 1] == sorted(json.loads(line)["id"] for line in done.stdout.splitlines())
