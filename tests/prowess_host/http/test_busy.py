"""One client that floods a server does not starve another one, and who is refused learns in every form when to try again."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from piped import make_project
from web import JSON, served_over_http, until

SKILL = """
    from pathlib import Path
    from prowess import resource

    @skill_command
    def hold(mark: str) -> str:
        Path(mark + ".begun").touch()
        while not Path(mark).exists():
            time.sleep(0.01)
        return "held"

    @skill_command
    def quick() -> str:
        return "quick"

    @resource("q://page")
    def page() -> str:
        return "page"
"""
SETTINGS = """
threads = 1
[host]
max_waiting = {}
[[auth.credentials]]
type = "bearer"
token = "ada"
[[auth.credentials]]
type = "bearer"
token = "bob"
"""
ADA, BOB = ({"Authorization": f"Bearer {name}"} for name in ("ada", "bob"))


def test_who_is_refused_learns_when_to_try_again(tmp_path: Path) -> None:
    """As a tool result, as the data of a JSON-RPC error, and in an envelope with its header."""
    root = make_project(tmp_path, SETTINGS.format(0), q=SKILL)
    with served_over_http(root) as web, ThreadPoolExecutor(1) as threads:
        running = threads.submit(web.call, "q_hold", ADA, mark=str(root / "mark"))
        until((root / "mark.begun").exists)

        tool = web.call("q_quick", ADA).json["result"]
        error = web.stateless("resources/read", {**ADA, "Mcp-Name": "q://page"}, uri="q://page").json["error"]
        response = web.ask("POST", "/v1/commands/q.quick", {}, {**JSON, **ADA})
        (root / "mark").touch()

        assert "held" == running.result().text
        assert (True, "busy") == (tool["isError"], tool["_meta"]["prowess/kind"])
        assert f"try again in {tool['_meta']['prowess/retry_after']} s" in tool["content"][0]["text"]
        assert (-32603, "busy") == (error["code"], error["data"]["prowess/kind"])
        assert f"try again in {error['data']['prowess/retry_after']} s" in error["message"]
        envelope = response.json
        assert (503, "retry", "busy") == (response.status, envelope["status"]["code"], envelope["errors"][0]["code"])
        assert response.headers["retry-after"] == str(envelope["headers"]["Retry-After"])
        for seconds in (tool["_meta"]["prowess/retry_after"], error["data"]["prowess/retry_after"]):
            assert 1 <= seconds <= 60


def test_flood_of_one_client_does_not_starve_another(tmp_path: Path) -> None:
    """The other one gets the next place, also where no room was left, and those calls go that came last."""
    root = make_project(tmp_path, SETTINGS.format(3), q=SKILL)
    with served_over_http(root) as web, ThreadPoolExecutor(8) as threads:
        web.call("q_quick", ADA)
        flood = [threads.submit(web.call, "q_hold", ADA, mark=str(root / f"mark{number}")) for number in range(6)]
        until(lambda: sum(each.done() for each in flood) == 2)
        quick = threads.submit(web.call, "q_quick", BOB)
        until(lambda: sum(each.done() for each in flood) == 3)
        (begun,) = until(lambda: list(root.glob("*.begun")))

        begun.with_suffix("").touch()

        assert "quick" == quick.result().text
        until(lambda: sum(each.done() for each in flood) == 4)
        for number in range(6):
            (root / f"mark{number}").touch()
        results = [each.result().json["result"] for each in flood]
        kinds = [result.get("_meta", {}).get("prowess/kind", "ok") for result in results]
        assert ["busy"] * 3 + ["ok"] * 3 == sorted(kinds), json.dumps(results)
