"""Who gets the next place, when clients without credentials share an address. About 2 s: one server."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from piped import make_project
from web import Web, initialize, served_over_http, until

SKILL = """
    @skill_command
    def mark(file: str, name: str, wait: bool = False) -> str:
        with open(file, "a") as marks:
            marks.write(name + " ")
        while wait and not os.path.exists(file + ".go"):
            time.sleep(0.01)
        return name
"""


def test_sessions_behind_one_address_get_places_in_turn(tmp_path: Path) -> None:
    """Although they have no credentials, and their clients have the same name."""
    marks = tmp_path / "marks"
    with served_over_http(make_project(tmp_path / "p", t=SKILL), "--set", "threads=1") as web:
        busy, quiet = initialize(web), initialize(web)
        threads: list[threading.Thread] = []

        def call(session: dict[str, str], name: str) -> None:
            before = in_flight(web)
            arguments = {"file": str(marks), "name": name, "wait": name == "first"}
            params = {"name": "t_mark", "arguments": arguments}
            body = {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}
            threads.append(threading.Thread(target=web.raw, args=(whole(web, body, session),)))
            threads[-1].start()
            until(lambda: in_flight(web) == before + 1)

        call(busy, "first")
        until(marks.exists)
        for number in range(4):
            call(busy, f"busy{number}")
        call(quiet, "quiet")
        Path(f"{marks}.go").touch()
        for thread in threads:
            thread.join()
    assert "quiet" in marks.read_text().split()[1:3], "it waits for one turn of the other client at most"


def whole(web: Web, body: dict[str, Any], fields: dict[str, str]) -> bytes:
    """A request in one piece. One whose body comes later is in flight before the host knows of its call."""
    data = json.dumps(body).encode()
    fields = {**fields, "Host": f"127.0.0.1:{web.port}", "Content-Length": str(len(data)), "Connection": "close"}
    lines = (f"{name}: {value}" for name, value in fields.items())
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + data


def in_flight(web: Web) -> int:
    text = web.ask("GET", "/metrics").body.decode()
    return int(next(line for line in text.splitlines() if line.startswith("prowess_requests_in_flight ")).split()[1])
