"""What is served beside MCP: envelopes, commands, the description, the schemas, the state of the server."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from piped import make_project
from web import JSON, READ_AND_WRITE, Web, served_over_http

ENVELOPE = {"id": "1", "version": "1.0.0", "timestamp": "2026-01-31T12:00:00Z"}
SCHEMAS = Path(__file__).parents[3] / "schemas"


def envelope(tool: str, payload: Any = None, **more: Any) -> dict[str, Any]:
    return {**ENVELOPE, "tool": tool, "payload": payload or {}, **more}


def valid(answer: Any) -> Any:
    schema = json.loads((SCHEMAS / "response.schema.json").read_text())
    Draft7Validator(schema).validate(answer.json)
    assert answer.status == answer.json["status"]["http"]
    return answer.json


@pytest.mark.parametrize(
    ("tool", "payload", "status"),
    [
        ("t.echo", {"text": "hi"}, 200),
        ("t/echo", {"text": "hi"}, 200),
        ("t.echo", {"txt": "hi"}, 422),
        ("t.nothing", {}, 404),
        ("t.fail", {}, 500),
        ("t.busy", {}, 503),
    ],
)
def test_an_envelope_is_answered_with_its_status(web: Web, tool: str, payload: Any, status: int) -> None:
    """As the envelope itself says it."""
    done = web.ask("POST", "/v1/invoke", envelope(tool, payload), JSON)
    assert status == valid(done)["status"]["http"]
    if status == 503:
        assert "7" == done.headers["retry-after"]
    if status == 200:
        assert "hi" == done.json["output"]


def test_what_is_no_envelope_is_answered_as_one(web: Web) -> None:
    assert 422 == valid(web.ask("POST", "/v1/invoke", b"{", JSON))["status"]["http"]
    assert 422 == valid(web.ask("POST", "/v1/invoke", {"id": "7"}, JSON))["status"]["http"]
    assert 415 == web.ask("POST", "/v1/invoke", envelope("t.echo"), {"Content-Type": "text/plain"}).status
    packed = web.ask("POST", "/v1/invoke", envelope("t.echo"), {**JSON, "Content-Encoding": "gzip"})
    assert (415, "identity") == (packed.status, packed.headers["accept-encoding"])
    assert 'Content-Encoding "gzip" is not supported' in packed.json["error"]["message"]
    plain = web.ask("POST", "/v1/invoke", envelope("t.echo", {"text": "x"}), {**JSON, "Content-Encoding": "identity"})
    assert 200 == plain.status
    assert (405, "POST") == ((got := web.ask("GET", "/v1/invoke")).status, got.headers["allow"])


def test_work_may_be_accepted_and_fetched_later(web: Web, root: Path) -> None:
    """The handle leads to the response; the client that asked may be gone meanwhile."""
    accepted = valid(
        web.ask("POST", "/v1/invoke", envelope("t.hold", {"mark": "later"}, metadata={"wait": False}), JSON)
    )
    assert ("accepted", 202) == (accepted["status"]["code"], accepted["status"]["http"])
    again = envelope("t.hold", metadata={"handle": accepted["output"]["handle"]})
    assert 202 == valid(web.ask("POST", "/v1/invoke", again, JSON))["status"]["http"]
    (root / "later").touch()
    while (done := valid(web.ask("POST", "/v1/invoke", again, JSON)))["status"]["http"] == 202:
        time.sleep(0.02)
    assert "held" == done["output"]
    assert 404 == web.ask("POST", "/v1/invoke", envelope("t.hold", metadata={"handle": "x"}), JSON).status


def test_a_client_that_leaves_cancels_its_envelope(web: Web, root: Path) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", web.port)
    connection.request("POST", "/v1/invoke", json.dumps(envelope("t.hold", {"mark": "gone"})), JSON)
    while not (root / "gone.begun").exists():
        time.sleep(0.01)
    connection.close()
    while not (root / "gone.cancelled").exists():
        time.sleep(0.01)


def test_each_command_has_a_path(web: Web) -> None:
    """With its contract, and to call it."""
    assert "hi" == valid(web.ask("POST", "/v1/commands/t.echo", {"text": "hi"}, JSON))["output"]
    assert 422 == valid(web.ask("POST", "/v1/commands/t.add", {"a": "x"}, JSON))["status"]["http"]
    assert 422 == valid(web.ask("POST", "/v1/commands/t.add", [1], JSON))["status"]["http"]
    assert 422 == web.ask("POST", "/v1/commands/t.add", {"a": False}, JSON).status, "what is described is meant"
    assert 200 == web.ask("POST", "/v1/invoke", envelope("t.add", {"a": "1"}), JSON).status, "envelopes are lenient"
    assert 400 == web.ask("POST", "/v1/commands/t.add", b"{", JSON).status
    shown = web.ask("GET", "/v1/commands/t.add").json
    assert ("t.add", "t_add", ["a"]) == (shown["id"], shown["name"], shown["inputSchema"]["required"])
    listed = web.ask("GET", "/v1/commands").json
    assert shown in listed["commands"]
    assert [] == listed["failures"]
    assert 404 == web.ask("GET", "/v1/commands/nothing").status


def test_a_body_cannot_keep_the_host_busy(tmp_path: Path) -> None:
    """A pattern that Python's engine never ends with, a long list, a deep body: all are answered, and so is everybody else."""
    skill = """
        from typing import Annotated, Any
        from pydantic import BaseModel, Field

        class Tree(BaseModel):
            leaf: "Tree | None" = None

        @skill_command
        def match(text: Annotated[str, Field(pattern="^(a+)+$")]) -> str:
            return text

        @skill_command
        def unique(items: Annotated[list[dict[str, int]], Field(json_schema_extra={"uniqueItems": True})]) -> int:
            return len(items)

        @skill_command
        def grow(tree: Tree) -> str:
            return "grown"

        LOOKS = {"type": "string", "pattern": "^(?=a)(a+)+$"}
        SCHEMA = {"type": "object", "properties": {"text": LOOKS}, "required": ["text"]}

        @skill_command(input_schema=SCHEMA)
        def look(text: str) -> str:
            return text

        @skill_command(timeout=1, input_schema=SCHEMA)
        def look_briefly(text: str) -> str:
            return text
    """
    deep: Any = None
    for _ in range(300):
        deep = {"leaf": deep}
    with served_over_http(make_project(tmp_path, t=skill)) as web:
        for name, body, status in [
            ("match", {"text": "a" * 60 + "!"}, 422),
            ("match", {"text": "a" * 60}, 200),
            ("unique", {"items": [{"n": n} for n in range(50_000)]}, 200),
            ("unique", {"items": [{"n": 1}, {"n": 1}]}, 422),
            ("grow", {"tree": deep}, 422),
            ("grow", {"tree": {"leaf": {"leaf": None}}}, 200),
            ("look", {"text": "aaa"}, 200),
            (
                "look_briefly",
                {"text": "a" * 60 + "!"},
                504,
            ),  # matched by Python, in the worker, until the call times out
            ("match", {"text": "a" * 60}, 200),
        ]:
            done = web.ask("POST", f"/v1/commands/t.{name}", body, JSON)
            assert (name, status) == (name, done.status), done.body[:300]
        assert "Traceback" not in web.errors.read_text()


def test_the_description_is_valid_and_whole(web: Web) -> None:
    """One operation for each command; every reference leads somewhere."""
    validator = pytest.importorskip("openapi_spec_validator")
    document = web.ask("GET", "/openapi.json").json
    validator.validate(document)
    ids = [each["id"] for each in web.ask("GET", "/v1/commands").json["commands"]]
    assert set(ids) == {path[13:] for path in document["paths"] if path.startswith("/v1/commands/")}
    operations = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(operations)) == len(operations)
    for reference in set(re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(document))):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def test_operations_have_names_of_their_own_whatever_commands_are_called(tmp_path: Path) -> None:
    """Generators of clients refuse a description in which two have one."""
    names = '[wire_names]\n"t.read" = "invoke"\n"t.write" = "invoke__contract"\n'
    with served_over_http(make_project(tmp_path / "p", names, t=READ_AND_WRITE)) as web:
        web.call("invoke")
        paths = web.ask("GET", "/openapi.json").json["paths"]
        operations = [each["operationId"] for path in paths.values() for each in path.values()]
        assert len(set(operations)) == len(operations)
        assert "invoke" == paths["/v1/commands/t.read"]["post"]["operationId"]


def test_the_schemas_are_served_by_their_names(web: Web) -> None:
    """A reference from one to another leads to a served one."""
    for path in SCHEMAS.glob("*.schema.json"):
        served = web.ask("GET", f"/schemas/{path.name}")
        assert (200, path.read_bytes()) == (served.status, served.body)
        assert path.name == served.json["$id"]
    assert 404 == web.ask("GET", "/schemas/../prowess.toml").status


def test_the_state_of_the_server_is_told(web: Web) -> None:
    assert {"status": "ok"} == web.ask("GET", "/healthz").json == web.ask("GET", "/readyz").json
    head = web.ask("HEAD", "/healthz")
    assert (200, b"") == (head.status, head.body)
    web.call("t_echo", text="x")
    told = web.ask("GET", "/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = told.body.decode().splitlines()
    assert any(
        line.startswith('prowess_http_requests_total{route="mcp",method="POST",status="200"} ') for line in lines
    )
    assert all(re.fullmatch(r'# (HELP|TYPE) .+|[a-z_]+(\{([a-z]+="[^"\\]*",?)+\})? [0-9.e+-]+', line) for line in lines)
    buckets = [
        int(line.split()[-1]) for line in lines if line.startswith('prowess_http_request_seconds_bucket{route="mcp"')
    ]
    assert sorted(buckets) == buckets


def test_paths_that_do_not_exist_are_counted_together(web: Web) -> None:
    """Or whoever asks for many would fill the memory."""
    for number in range(3):
        assert 404 == web.ask("GET", f"/nothing/{number}").status
    assert b"nothing" not in web.ask("GET", "/metrics").body


def test_a_tool_against_the_description_finds_nothing(web: Web, tmp_path: Path) -> None:
    """Schemathesis sends what the description allows and what it forbids, and compares the answers with it."""
    pytest.importorskip("schemathesis")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{web.port}/openapi.json"]
    options = [
        "--max-examples",
        "15",
        "--seed",
        "1",
        "--exclude-path-regex",
        "t\\.(fail|busy|hold|sure|big|where|steps|later)$",
    ]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout[-6000:]
