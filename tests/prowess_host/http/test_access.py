"""Who is let in: hosts, origins, tokens, scopes. Each rule has a request that it alone refuses."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from piped import CAPABILITIES_KEY, make_project
from web import JSON, READ_AND_WRITE, Answer, Web, bearer, initialize, served_over_http, stateless

from prowess.settings.keys import ServeSettings
from prowess_host.http.guard import Guard, is_loopback
from prowess_host.http.headers import Headers
from prowess_host.http.server import address_of

OWNER, READER = "0wner-t0ken", "reader-t0ken"
SETTINGS = f"""
[auth]
token = "{OWNER}"

[[auth.credentials]]
type = "bearer"
token = "{READER}"
scopes = ["read"]

[[auth.credentials]]
type = "api_key"
token = "an-api-key"

[auth.scopes]
"t.read" = ["read"]
"t.write" = ["read", "write"]
"t.secret_*" = ["admin"]
"docs://private/*" = ["admin"]
"skill://payroll/*" = ["admin"]
"free://closed room/*" = ["admin"]

[resources]
docs = "docs/**/*.md"
"""
SKILL = f'''{READ_AND_WRITE}
    from prowess import prompt, resource

    @skill_command
    def free() -> str:
        """Needs nothing."""
        return "free"

    @skill_command
    async def sure(ctx: Context) -> str:
        """Ask."""
        return (await ctx.ask("sure", "Sure?", bool)).action

    @prompt
    def secret_prompt() -> str:
        """Tell nobody."""
        return "secret"

    @resource("secret://{{name}}")
    def secret_resource(name: str) -> str:
        """Tell nobody."""
        return name

    @resource("free://{{name}}")
    def z_free(name: str) -> str:
        """Needs nothing."""
        return name

    @resource("free://{{+path}}")
    def secret_path(path: str) -> str:
        """Comes first where both fit."""
        return path
'''


@pytest.fixture(scope="module")
def guarded_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_project(tmp_path_factory.mktemp("guarded"), settings=SETTINGS, t=SKILL)
    skill = "---\nname: {0}\ndescription: About {0}.\n---\nSecret: {0}.\n"
    for name in ("payroll", "welcome"):
        (root / "skills" / name / "more").mkdir(parents=True)
        (root / "skills" / name / "SKILL.md").write_text(skill.format(name))
        (root / "skills" / name / "more" / "x y.md").write_text(name)
    (root / "docs" / "private").mkdir(parents=True)
    (root / "docs" / "private" / "a b.md").write_text("private")
    (root / "docs" / "open.md").write_text("open")
    return root


@pytest.fixture(scope="module")
def guarded(guarded_root: Path) -> Generator[Web]:
    """A server that knows its callers."""
    with served_over_http(guarded_root, "--set", "host.import_limit=60") as web:
        yield web


# Hosts and origins


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "localhost.evil.example.com",
        "127.0.0.1.evil.com",
        "10.0.0.1",
        "",
        "a b",
        "local\thost",
        "[::1]evil.com",
        "[::1%25evil.com]",
        "::1",
        "localhost..",
        "localhost:99999",
        "localhost:+80",
        "localhost:8_0",
        "localhost?",
        "localhost#x",
        "evil.com@localhost",
        "localhost, evil.com",
        "0177.0.0.1",
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/nothing"])
def test_other_hosts_are_refused(web: Web, host: str, path: str) -> None:
    """A page whose name leads to this machine must not get in."""
    answered = web.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answered.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}", "127.9.9.9", "localhost."]
)
def test_loopback_has_many_names(web: Web, host: str) -> None:
    assert 200 == web.ask("GET", "/healthz", headers={"Host": host.format(port=web.port)}).status


def test_a_second_host_is_refused(web: Web) -> None:
    answered = web.raw(
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example.com\r\nConnection: close\r\n\r\n"
    )
    assert answered.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.com",
        "null",
        "file://",
        "http://localhost.evil.com",
        "http://[x",
        "http://localhost\t.evil.com",
        "http://[::1]evil.com",
        "http://localhost?",
        "http://localhost#x",
        "http://localhost:99999",
        "http://evil.com@127.0.0.1",
        "http://127.0.0.1@evil.com",
        "http://localhost, http://evil.com",
        "javascript://localhost",
        "https://127.0.0.1/path",
        "localhost",
    ],
)
def test_other_origins_are_refused(web: Web, origin: str) -> None:
    """Also where the host is right: any page may send requests to this machine."""
    body, fields = stateless("tools/list")
    refused = web.ask("POST", "/mcp", body, {**fields, "Origin": origin})
    assert 403 == refused.status
    assert "id" not in refused.json
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:5"])
def test_pages_of_this_machine_may_call(web: Web, origin: str) -> None:
    """And their browser is told so."""
    body, fields = stateless("tools/list")
    served = web.ask("POST", "/mcp", body, {**fields, "Origin": origin})
    assert (200, origin) == (served.status, served.headers["access-control-allow-origin"])
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    preflight = web.ask("OPTIONS", "/mcp", headers=asked)
    assert 204 == preflight.status
    assert "mcp-session-id" in preflight.headers["access-control-allow-headers"]


def test_pages_may_send_what_repeats_their_arguments(web: Web) -> None:
    """The names of those headers are names of parameters, so what is asked for is granted, and nothing else."""
    asked = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    names = "mcp-method, Mcp-Param-Region,mcp-param-a.b, x-evil, mcp-param-, mcp-param-a b"
    preflight = web.ask("OPTIONS", "/mcp", headers={**asked, "Access-Control-Request-Headers": names})
    allowed = preflight.headers["access-control-allow-headers"].split(", ")
    assert ["mcp-param-region", "mcp-param-a.b"] == [each for each in allowed if each.startswith("mcp-param")]
    assert "x-evil" not in allowed


def test_names_may_be_added() -> None:
    """Hosts and origins of the settings; literal addresses where other machines may call."""

    def refused(guard: Guard, **fields: str) -> int | None:
        found = guard.refusal(Headers([(name.encode(), value.encode()) for name, value in fields.items()]))
        return None if found is None else found.status

    guard = Guard(frozenset({"tools.example.com"}), frozenset({"https://app.example.com"}), addresses=True)
    assert refused(guard, host="Tools.Example.com:8000") is None
    assert refused(guard, host="10.1.2.3:80") is None
    assert refused(guard, host="[fd00::1]") is None
    assert 403 == refused(guard, host="other.example.com")
    assert refused(guard, host="localhost", origin="https://APP.example.com") is None
    assert refused(guard, host="tools.example.com", origin="http://tools.example.com") is None
    assert 403 == refused(guard, host="tools.example.com", origin="http://tools.example.com:81")
    assert 400 == refused(guard)
    assert 403 == refused(guard, host="user@localhost")
    assert 403 == refused(guard, host="localhost:x")
    assert [True, True, True, False, False] == [
        is_loopback(x) for x in ("localhost", "127.1.2.3", "::1", "0.0.0.0", "x")
    ]


# Tokens


@pytest.mark.parametrize("path", ["/mcp", "/v1/commands", "/v1/commands/t.read", "/openapi.json", "/metrics"])
@pytest.mark.parametrize(
    "sent",
    [
        {},
        bearer("wrong"),
        bearer(""),
        {"Authorization": OWNER},
        {"Authorization": f"Basic {OWNER}"},
        bearer("an-api-key"),
    ],
)
def test_without_a_token_nothing_is_told(guarded: Web, path: str, sent: dict[str, str]) -> None:
    """Only a bearer token that was configured as one lets anybody in."""
    refused = guarded.ask("GET", path, headers={"Accept": "text/event-stream", **sent})
    assert (401, b"") == (refused.status, refused.body)
    assert refused.headers["www-authenticate"].startswith("Bearer")
    body, fields = stateless("tools/list")
    assert 401 == guarded.ask("POST", "/mcp", body, {**fields, **sent}).status


def test_the_health_of_a_server_is_no_secret(guarded: Web) -> None:
    assert 200 == guarded.ask("GET", "/healthz").status
    assert 200 == guarded.ask("GET", "/schemas/request.schema.json").status


def test_a_token_lets_in(guarded: Web) -> None:
    assert 200 == guarded.stateless("tools/list", bearer(OWNER)).status
    assert 200 == guarded.stateless("tools/list", {"authorization": f"bearer  {READER} "}).status
    assert "written" == guarded.call("t_write", bearer(OWNER)).text


def test_a_token_may_come_once(guarded: Web) -> None:
    fields = f"Host: localhost\r\nAuthorization: Bearer {OWNER}\r\nAuthorization: Bearer x\r\nConnection: close"
    assert guarded.raw(f"GET /metrics HTTP/1.1\r\n{fields}\r\n\r\n".encode()).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("method", "params", "status"),
    [
        ("tools/call", {"name": "t_read"}, 200),
        ("tools/call", {"name": "t_free"}, 200),
        ("tools/call", {"name": "t_write"}, 403),
        ("tools/call", {"name": "t.write"}, 403),
        ("tools/call", {"name": "t/write"}, 403),
        ("prompts/get", {"name": "t_secret_prompt"}, 403),
        ("resources/read", {"uri": "secret://x"}, 403),
    ],
)
def test_commands_need_their_scopes(guarded: Web, method: str, params: dict[str, Any], status: int) -> None:
    """By whatever name they are called, and with whatever method; all that is needed is named at once."""
    body, fields = stateless(method, **params)
    if "uri" in params:
        fields["Mcp-Name"] = params["uri"]
    done = guarded.ask("POST", "/mcp", body, {**fields, **bearer(READER)})
    assert status == done.status
    if params.get("name") == "t_write":
        told = done.headers["www-authenticate"]
        assert ('error="insufficient_scope"', 'scope="read write"') == (
            told.split(", ")[0].split(" ", 1)[1],
            told.split(", ")[1],
        )


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "t_write", "ref": {}}),
        ("tools/call", {"name": "t_write", "ref": "x"}),
        ("tools/call", {"name": "t_write", "ref": {"name": "t_free"}}),
        ("tools/call", {"name": "t_write", "uri": "free://x"}),
        ("resources/read", {"uri": "secret://x", "name": "t_free"}),
        ("resources/read", {"uri": "free://{name}"}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "t_secret_prompt"},
                "argument": {"name": "x", "value": ""},
                "name": "t_free",
            },
        ),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "secret://{name}", "name": "t_free"},
                "argument": {"name": "name", "value": ""},
            },
        ),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["free://x", "secret://x"]}}),
    ],
)
def test_nothing_beside_a_name_hides_it(guarded: Web, method: str, params: dict[str, Any]) -> None:
    """Members that a method ignores, and templates that are read by their own spelling, are no way around the scopes."""
    body, fields = stateless(method, **params)
    if method == "resources/read":
        fields["Mcp-Name"] = params["uri"]
    assert 403 == guarded.ask("POST", "/mcp", body, {**fields, **bearer(READER)}).status


@pytest.mark.parametrize(
    ("open_uri", "closed_uri"),
    [
        ("docs://open.md", "docs://private/a%20b.md"),
        ("skill://welcome/SKILL.md", "skill://payroll/SKILL.md"),
        ("skill://welcome/more/x%20y.md", "skill://payroll/more/x%20y.md"),
        ("free://open%20room/a", "free://closed%20room/a"),
        ("free://open+room/a", "free://clo%73ed%20room/a"),
    ],
)
def test_files_and_uris_need_their_scopes(guarded: Web, open_uri: str, closed_uri: str) -> None:
    """However a URI is encoded: files of the project, of Agent Skills, and what a template stands for."""
    by_uri = (
        ("resources/read", {"uri": closed_uri}),
        ("resources/subscribe", {"uri": closed_uri}),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": [open_uri, closed_uri]}}),
    )
    session = initialize(guarded, headers=bearer(READER))
    for method, params in by_uri:
        named = {"Mcp-Name": closed_uri, **bearer(READER)}
        if method != "resources/subscribe":
            refused = guarded.stateless(method, named, **params)
            assert (403, True) == (refused.status, 'scope="admin"' in refused.headers["www-authenticate"]), method
        if method != "subscriptions/listen":
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            assert 403 == guarded.ask("POST", "/mcp", body, session).status
    if not open_uri.startswith("free:"):  # which needs another scope in any case
        read = guarded.stateless("resources/read", {"Mcp-Name": open_uri, **bearer(READER)}, uri=open_uri)
        assert "contents" in read.json["result"]
    read = guarded.stateless("resources/read", {"Mcp-Name": closed_uri, **bearer(OWNER)}, uri=closed_uri)
    assert "contents" in read.json["result"]


def test_skills_need_their_scopes(guarded: Web) -> None:
    """Their list shows those that the caller may read."""

    def ask(method: str, who: str, **params: str) -> Answer:
        return guarded.stateless(method, bearer(who), **params)

    def listed(who: str) -> list[str]:
        return [each["uri"] for each in ask("skills/list", who).json["result"]["skills"]]

    assert (["skill://welcome/SKILL.md"], 2) == (listed(READER), len(listed(OWNER)))
    assert "skill" in ask("skills/get", READER, uri="skill://welcome/SKILL.md").json["result"]
    assert 403 == ask("skills/get", READER, uri="skill://payroll/SKILL.md").status
    for folder in ("skill://payroll", "skill://payroll/more"):
        assert 403 == ask("resources/directory/read", READER, uri=folder).status
        assert "resources" in ask("resources/directory/read", OWNER, uri=folder).json["result"]


def test_scopes_hold_from_the_first_request_on(guarded_root: Path) -> None:
    """Before it is known which commands there are, nobody gets by."""
    with served_over_http(guarded_root, "--set", "cache_dir=other-cache") as web:
        assert 403 == web.call("t_write", bearer(READER)).status


def test_scopes_hold_in_sessions_and_batches(guarded: Web) -> None:
    fields = initialize(guarded, "2025-03-26", bearer(READER))
    calls = [
        {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": f"t_{n}"}} for n in ("read", "write")
    ]
    assert 200 == guarded.ask("POST", "/mcp", calls[0], fields).status
    assert 403 == guarded.ask("POST", "/mcp", calls[1], fields).status
    assert 403 == guarded.ask("POST", "/mcp", calls, fields).status


def test_a_session_belongs_to_its_caller(guarded: Web) -> None:
    """Whoever learns its id needs the token as well."""
    fields = initialize(guarded, headers=bearer(OWNER))
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert 404 == guarded.ask("POST", "/mcp", ping, {**fields, **bearer(READER)}).status
    assert 404 == guarded.ask("GET", headers={**fields, **bearer(READER)}).status
    assert 404 == guarded.ask("DELETE", headers={**fields, **bearer(READER)}).status
    assert 200 == guarded.ask("POST", "/mcp", ping, fields).status


def test_a_question_is_answered_by_whoever_was_asked(guarded: Web) -> None:
    """The state of one caller is worth nothing to another."""
    able = {"_meta": {CAPABILITIES_KEY: {"elicitation": {}}}}
    asked = guarded.stateless("tools/call", bearer(OWNER), name="t_sure", **able).json["result"]
    answers = {"inputResponses": {"sure": {"action": "decline"}}, "requestState": asked["requestState"], **able}
    refused = guarded.stateless("tools/call", bearer(READER), name="t_sure", **answers)
    assert 400 == refused.status
    assert "belongs to another call" in refused.json["error"]["message"]
    assert "decline" == guarded.stateless("tools/call", bearer(OWNER), name="t_sure", **answers).text


def test_a_state_is_worth_nothing_elsewhere(guarded: Web) -> None:
    """For another command, with other arguments, or changed. For its own call it is good again: it is no permission, since
    a client may send answers without a state as well.
    """
    able = {"_meta": {CAPABILITIES_KEY: {"elicitation": {}}}}
    asked = guarded.stateless("tools/call", bearer(OWNER), name="t_sure", **able).json["result"]
    state: str = asked["requestState"]
    answered = {"inputResponses": {"sure": {"action": "decline"}}, **able}

    def again(state: str, name: str = "t_sure", **arguments: Any) -> Answer:
        sent = {**answered, "requestState": state, "name": name, "arguments": arguments}
        return guarded.stateless("tools/call", bearer(OWNER), **sent)

    assert ["decline", "decline"] == [again(state).text for _ in range(2)]
    text, _, signature = state.partition(".")
    flipped = text[:-2] + ("A" if text[-2] != "A" else "B") + text[-1]
    changed = [
        f"{flipped}.{signature}",
        f"{text}.{signature[:-1]}",
        f"{text}.{'0' * len(signature)}",
        text,
        f".{signature}",
    ]
    for each in (*changed, "", ".", "x", "é.ü", state + state, state.swapcase(), "x" * 100_000):
        refused = again(each)
        assert (400, -32602) == (refused.status, refused.json["error"]["code"]), each
    assert 400 == again(state, "t_write").status
    assert 400 == again(state, more=1).status


def test_envelopes_bring_their_credentials_in_either_place(guarded: Web) -> None:
    envelope = {"id": "1", "version": "1.0.0", "timestamp": "2026-01-31T12:00:00Z", "tool": "t.write", "payload": {}}
    assert 200 == guarded.ask("POST", "/v1/invoke", envelope, {**JSON, **bearer(OWNER)}).status
    known = {**envelope, "auth": {"type": "bearer", "token": OWNER}}
    assert 200 == guarded.ask("POST", "/v1/invoke", known, JSON).status
    for body, headers, status in [
        (envelope, {}, 401),
        (envelope, bearer("wrong"), 401),
        (known, bearer("wrong"), 401),
        (envelope, bearer(READER), 403),
        ({**known, "auth": {"type": "bearer", "token": READER}}, {}, 403),
    ]:
        refused = guarded.ask("POST", "/v1/invoke", body, {**JSON, **headers})
        assert status == refused.status
        assert "Bearer" in refused.headers["www-authenticate"]
    for arguments in ({}, {"wrong": 1}):  # scopes come before arguments
        assert 403 == guarded.ask("POST", "/v1/commands/t.write", arguments, {**JSON, **bearer(READER)}).status, (
            arguments
        )
    assert 422 == guarded.ask("POST", "/v1/commands/t.write", {"wrong": 1}, {**JSON, **bearer(OWNER)}).status
    assert 401 == guarded.ask("POST", "/v1/commands/t.write", {}, JSON).status


def test_tokens_are_in_no_log_and_no_record(guarded: Web, guarded_root: Path) -> None:
    """Whatever was refused or served before this."""
    guarded.call("t_write", bearer(OWNER))
    guarded.call("t_write", bearer("a-wrong-t0ken"))
    told = guarded.errors.read_bytes() + guarded.ask("GET", "/metrics", headers=bearer(OWNER)).body
    for path in guarded_root.rglob("*"):
        if path.is_file() and path.name != "prowess.toml":
            told += path.read_bytes()
    assert [] == re.findall(rb"[\w-]*t0ken", told)


# Serving others


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "PROWESS_AUTH__TOKEN"),
        (["--host", "::"], "PROWESS_AUTH__TOKEN"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--set", "serve.tls_cert=x"], "serve.tls_key"),
        (["--set", "auth.state_key=short"], "at least 32"),
        (["--set", "serve.url=tools.example.com"], "is not a URL"),
        (["--set", "serve.url=https:///mcp"], "is not a URL"),
        (["--set", "serve.url=https://[x"], "is not a URL"),
    ],
)
def test_an_unsafe_server_does_not_start(root: Path, options: list[str], told: str) -> None:
    """It says what would help."""
    with pytest.raises(AssertionError, match=told), served_over_http(root, *options, code=2):
        pass


def test_a_server_with_a_token_serves_others(root: Path) -> None:
    """By any address of this machine, and by the name in its URL."""
    env = {"PROWESS_AUTH__TOKEN": OWNER}
    with served_over_http(root, "--host", "0.0.0.0", env=env) as web:
        for host, status in [("10.0.0.1", 401), ("evil.example.com", 403)]:
            assert status == web.ask("GET", "/v1/commands", headers={"Host": host}).status
        assert 200 == web.ask("GET", "/v1/commands", headers={"Host": "10.0.0.1", **bearer(OWNER)}).status


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://tools.example.com", "tools.example.com"),
        ("https://tools.example.com/tools", "tools.example.com"),
        ("https://tools.example.com/a:b", "tools.example.com"),
        ("https://Tools.example.com:8443/", "tools.example.com"),
        ("http://[fd00::1]", "fd00::1"),
    ],
)
def test_host_of_a_server_is_the_one_in_its_url(url: str, host: str) -> None:
    """Requests for it are served. The URL may have a port, and the path at which a proxy offers the server."""
    with socket.socket() as listening:
        assert host == address_of(ServeSettings(url=url), listening).host


def test_a_refusal_says_nothing_of_what_was_sent(guarded: Web) -> None:
    refused = guarded.call("t_write", bearer("s3cret-and-wrong"))
    assert "s3cret" not in json.dumps(refused.headers) + refused.body.decode()
