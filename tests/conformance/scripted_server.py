"""A stdio server without any knowledge of MCP, for tests of the bridge: each method is something a server may do."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Message = dict[str, Any]
cancelled: list[Any] = []


def write(message: Message) -> None:
    """Send one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def notify(method: str, **params: Any) -> None:
    """Send a notification."""
    write({"method": method, "params": params})


def read() -> Message:
    """The next message; leaves at the end of the input."""
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)


def perform(method: str, params: Message, meta: Message, request_id: Any) -> Any:
    """Do what a method stands for; what it answers, or `None` for no answer."""
    match method:
        case "initialize":
            return {"protocolVersion": params["protocolVersion"]}
        case "pid":
            return os.getpid()
        case "work":
            notify("notifications/progress", progressToken=meta["progressToken"], progress=1)
            notify("notifications/message", level="info", data="working")
            return {"seen": meta["progressToken"]}
        case "subscriptions/listen":
            tag = {"io.modelcontextprotocol/subscriptionId": request_id}
            notify("notifications/subscriptions/acknowledged", _meta=tag)
        case "cancelled":
            return cancelled
        case "ask":
            write({"id": 1, "method": "elicitation/create", "params": {}})
            return read()["result"]
        case "babble":
            print("good morning", flush=True)
            return {}
        case "twice":
            write({"id": request_id, "result": {}})
            return {}
        case "die":
            os._exit(3)
    return None


def main() -> None:
    """Serve until the input ends."""
    while True:
        message = read()
        params = message.get("params", {})
        if message["method"] == "fail":
            write({"id": message["id"], "error": {"code": params["code"], "message": "as you wish"}})
        elif message["method"] == "notifications/cancelled":
            cancelled.append(params["requestId"])
        elif "id" in message:
            result = perform(message["method"], params, params.get("_meta", {}), message["id"])
            if result is not None:
                write({"id": message["id"], "result": result})


main()
