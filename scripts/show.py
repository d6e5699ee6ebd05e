"""Shows Prowess doing its main job: starts the host as an IDE would, and has a session with it over stdio."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOST = [str(Path(sys.executable).parent / "prowess"), "host", "--project", str(ROOT)]
CALL = ("text_search", {"pattern": "@skill_command", "globs": ["skills/**/*.py"], "max_results": 3})
PROTOCOL = "2025-11-25"


class Session:
    """A client of one host: a request goes out as a line, its answer comes back as one."""

    def __init__(self, command: list[str]) -> None:
        self._started = time.perf_counter()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params or {}})
        for line in self._process.stdout or ():
            message = json.loads(line)
            if message.get("id") == self._number:
                return message["result"]
        sys.exit(f"the host ended with exit code {self._process.wait()}")

    def notify(self, method: str) -> None:
        self._send({"method": method})

    def milliseconds(self) -> int:
        return round((time.perf_counter() - self._started) * 1000)

    def close(self) -> int:
        if self._process.stdin and self._process.stdout:
            self._process.stdin.close()
            self._process.stdout.close()
        return self._process.wait()

    def _send(self, message: dict[str, Any]) -> None:
        if self._process.stdin:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()


def main() -> None:
    """One session, from the handshake to the end of input, and how to have the same in an IDE."""
    session = Session(HOST)
    info = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "show", "version": "1"}}
    greeted = session.request("initialize", info)
    print(f"initialize   answered {session.milliseconds()} ms after the start, protocol {greeted['protocolVersion']}")
    session.notify("notifications/initialized")
    tools = session.request("tools/list")["tools"]
    print(f"tools/list   answered {session.milliseconds()} ms after the start: {len(tools)} tools\n")
    table(tools)
    name, arguments = CALL
    print(f"\ntools/call   {name} {json.dumps(arguments)}")
    result = session.request("tools/call", {"name": name, "arguments": arguments})
    print(json.dumps(result, indent=2, ensure_ascii=False))
    print(f"\nend of input: exit code {session.close()}\n")
    if result["isError"]:
        sys.exit("the call failed")
    print("To have this in an IDE:\n")
    print(f"  {shlex.join([HOST[0], 'connect', 'claude-code'])}    # or another client: without a name, it lists them")


def table(tools: list[dict[str, Any]]) -> None:
    """Print the tools with their hints and the first line of what they do."""
    rows = [(tool["name"], hints(tool), tool["description"].splitlines()[0]) for tool in tools]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for row in rows:
        print(f"  {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}")


def hints(tool: dict[str, Any]) -> str:
    return " ".join(name.removesuffix("Hint") for name, value in tool.get("annotations", {}).items() if value is True)


if __name__ == "__main__":
    main()
