"""Sessions, and what their clients miss between two streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from inside import inside
from piped import make_project, write_skill
from web import initialize, served_over_http, until

from prowess.settings.credentials import Caller
from prowess_host.http.sessions import Sessions
from prowess_host.protocol.identity import Server

IDLE = 3600.0
STEPS = """
    @skill_command
    async def steps(ctx: Context, text: str) -> str:
        ctx.progress(1, 2, text)
        return text
"""


async def test_time_in_which_the_host_stood_still_ends_no_session(tmp_path: Path) -> None:
    """The client may have sent a request meanwhile, which is read only then."""
    async with inside(make_project(tmp_path)) as host:
        now = 0.0
        sessions = Sessions(
            host.project, Server("inside", "1"), lambda: now, most=9, most_of_one=9, idle=IDLE, kept=1000
        )
        session = sessions.open(Caller(), "client", lambda *_: True)
        now += 2 * IDLE
        sessions.sweep()
        assert session is sessions.find(session.id, Caller())
        for _ in range(int(IDLE / sessions.often) + 1):
            now += sessions.often
            sessions.sweep()
        assert 0 == len(sessions)


@pytest.mark.parametrize("resumes", [True, False])
def test_client_hears_of_a_change_although_the_notification_is_no_longer_kept(tmp_path: Path, resumes: bool) -> None:
    """It came while the client was between two streams, and the results of calls have taken its room."""
    project = make_project(tmp_path, t=STEPS)
    with served_over_http(project, "--set", "serve.kept_events=1500") as web:
        web.call("t_steps", text="ready")
        fields = initialize(web)
        stream = web.stream("GET", headers=fields)
        last = stream.next()["id"]
        stream.close()
        until(lambda: b'method="GET",status="200"} 1\n' in web.ask("GET", "/metrics").body)
        write_skill(project, "later.py", "@skill_command\ndef new() -> str:\n    return 'new'\n")
        until(lambda: "later_new" in str(web.stateless("tools/list").json))
        params = {"name": "t_steps", "arguments": {"text": "x" * 1000}, "_meta": {"progressToken": 1}}
        for number in range(2):
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            assert 200 == web.ask("POST", "/mcp", call, fields).status
        if resumes:
            assert 400 == web.ask("GET", headers={**fields, "Last-Event-ID": last}).status
        again = web.stream("GET", headers=fields)
        assert "notifications/tools/list_changed" == again.message()["method"]
        again.close()
