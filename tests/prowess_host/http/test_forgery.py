"""What clients send never becomes a line of its own, or a sequence for the terminal, in what people read about it; and the
labels of metrics are a fixed set. One server for all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator

import pytest
from piped import make_project
from web import JSON, Web, initialize, served_over_http

EVIL = "evil\nprowess: forged\r\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2028\x00\x7f"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
SKILL = '''
    @skill_command
    def fail(text: str = "") -> str:
        """Always fails."""
        raise SkillError(text)

    @skill_command
    def crash(text: str = "") -> str:
        """Always crashes."""
        raise ValueError(text)

    @skill_command
    def say(text: str = "") -> str:
        """Log."""
        import logging
        logging.getLogger("x").warning(text)
        return "said"
'''


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Generator[Web]:
    """A server to which hostile texts were sent in every place."""
    root = make_project(tmp_path_factory.mktemp("forgery"), t=SKILL)
    with served_over_http(root, env={"PROWESS_CACHE_DIR": str(root / "cache")}) as web:
        info = {CLIENT_INFO: {"name": EVIL, "version": EVIL}}
        web.stateless("tools/call", name=EVIL.encode("unicode_escape").decode(), arguments={})
        for name in ("t_fail", "t_crash", "t_say"):
            web.stateless("tools/call", name=name, arguments={"text": EVIL}, _meta=info)
            web.stateless("tools/call", name=name, arguments={EVIL: EVIL}, _meta=info)
        fields = initialize(web, client={"name": EVIL, "version": EVIL})
        for method in ("tools/call", "prompts/get", "resources/read", EVIL):
            params = {"name": EVIL, "uri": EVIL, "arguments": {EVIL: EVIL}}
            web.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": EVIL, "method": method, "params": params}, fields)
        envelope = {"version": "1.0.0", "timestamp": "2026-01-01T00:00:00Z", "payload": {"text": EVIL}}
        for tool in ("t.fail", "t.crash", "t.say", "t.unknown", EVIL):
            sent = {**envelope, "id": EVIL, "trace_id": EVIL, "tool": tool}
            web.ask("POST", "/v1/invoke", sent, JSON)
            web.ask("POST", "/v1/invoke", {**sent, EVIL: EVIL, "metadata": {"handle": EVIL}}, JSON)
        web.ask("POST", "/v1/commands/t.%0aprowess:%20forged%1b[2J", {}, JSON)
        web.ask("GET", "/%0aprowess:%20forged%1b[2J")
        yield web


def clean(text: str) -> None:
    """Fail for characters that act on terminals, and for forged lines."""
    assert not {"\x1b", "\x07", "\x9b", "\r", "\x00", "\x7f", "\u202e", "\u2028"} & set(text), repr(text)
    assert not [line for line in text.split("\n") if line.startswith(("prowess: forged", "forged"))], text


def test_log_of_the_server_shows_no_forged_lines(attacked: Web) -> None:
    """Everything is there, as escapes or on indented lines."""
    text = attacked.errors.read_bytes().decode()
    assert "\\x1b[2J" in text
    assert "\n[t.crash]   prowess: forged" in text
    clean(text)


@pytest.mark.parametrize(
    "arguments",
    [["logs"], ["logs", "--failed"], ["logs", "--json"], ["logs", "1"], ["doctor"], ["list"], ["status"]],
    ids=" ".join,
)
def test_record_shows_no_forged_lines(attacked: Web, arguments: list[str]) -> None:
    """The commands that people use to look at calls."""
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", *arguments]
    environ = {**os.environ, "PROWESS_CACHE_DIR": str(attacked.root / "cache")}
    done = subprocess.run(command, capture_output=True, cwd=attacked.root, env=environ, check=False)
    clean(done.stdout.decode())
    clean(done.stderr.decode())
    assert done.stdout or done.stderr


def test_labels_of_metrics_are_a_fixed_set(attacked: Web) -> None:
    """However many names of tools, clients, paths and methods are sent."""
    text = attacked.ask("GET", "/metrics").body.decode()
    clean(text)
    assert "evil" not in text
    assert set() == _labels_after(attacked, "b") - _labels_after(attacked, "a")


def _labels_after(web: Web, mark: str) -> set[str]:
    """The names and labels of all metrics, after some requests with names that nobody knows."""
    for number in range(10):
        name = f"{mark}{number}"
        web.stateless("tools/call", name=name, arguments={}, _meta={CLIENT_INFO: {"name": name, "version": name}})
        web.ask("GET", f"/{name}")
        web.ask(name, "/mcp")
        web.ask("POST", f"/v1/commands/t.{name}", {}, JSON)
        web.ask("GET", f"/schemas/{name}", headers={"User-Agent": name, "Origin": name})
        web.ask("GET", "/metrics")
    return {line.rpartition(" ")[0] for line in web.ask("GET", "/metrics").body.decode().splitlines()}
