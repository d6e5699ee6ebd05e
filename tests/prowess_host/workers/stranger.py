"""A worker written from docs/link.md alone: the standard library, and nothing of Prowess. One skill, one command."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

BEGIN, CALL, DESCRIBE, PING, QUIT = 7, 1, 4, 5, 6
READY, RESULT, REFUSED, PROGRESS, CATALOG, PONG, FAILED, BEGUN = 21, 22, 25, 26, 28, 29, 31, 35
HEADER = struct.Struct("!BIII")
HELLO = {"link": [1, 0], "release": "stranger 1.0"}

INPUT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
OUTPUT = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
CONTRACT = {
    "id": "tiny.add",
    "wire_name": "tiny_add",
    "skill": "tiny",
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": INPUT,
    "output": {},
    "hints": {"read_only": True},
    "policies": {"retry_on": []},
    **{name: [] for name in ("aliases", "tags", "icons", "injected", "inject_settings", "warnings")},
}
SKILL = {
    "contracts": [CONTRACT],
    "failures": [],
    "files": [],
    "absent": [],
    "own": [],
    "has_hooks": False,
    "fatal": False,
    "place": "",
    "views": {"tiny.add": [INPUT, OUTPUT]},
}
DESCRIPTION = {
    "skills": {"tiny": SKILL},
    "names": ["tiny"],
    "failures": [],
    "folders": [],
    "candidates": [],
    "sightings": {},
    "imported": {},
    "interpreter": "",
    "environment": "",
    "sites": [],
}


def exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


def read(link: socket.socket) -> tuple:
    kind, number, head, body = HEADER.unpack(exactly(link, HEADER.size))
    return kind, number, json.loads(exactly(link, head) or b"{}"), exactly(link, body)


def send(link: socket.socket, kind: int, number: int = 0, head: object = None, body: bytes = b"") -> None:
    text = json.dumps(head).encode() if head is not None else b""
    link.sendall(HEADER.pack(kind, number, len(text), len(body)) + text + body)


def call(link: socket.socket, number: int, how: dict, arguments: bytes) -> None:
    if how["command"] != "tiny.add":
        send(link, REFUSED, number, {"kind": "unknown", "message": f"there is no {how['command']}"})
        return
    send(link, BEGUN, number)
    given = json.loads(arguments)
    if given["a"] == 0:
        os._exit(3)
    if how.get("progress"):
        send(link, PROGRESS, number, {"done": 1, "total": 2, "message": "half"})
    total = given["a"] + given["b"]
    result = {
        "content": [{"type": "text", "text": str(total)}],
        "structuredContent": {"result": total},
        "isError": False,
    }
    send(link, RESULT, number, {}, json.dumps(result).encode())


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[4]))
    kind, _, begin, _ = read(link)
    assert kind == BEGIN
    if begin["link"][0] != 1:
        send(link, FAILED, 0, {**HELLO, "message": f"the host speaks link {begin['link']}, this worker [1, 0]"})
        sys.exit(1)
    send(link, READY, 0, {**HELLO, "pid": os.getpid()})
    while True:
        kind, number, head, body = read(link)
        if kind == CALL:
            call(link, number, head, body)
        elif kind == DESCRIBE:
            send(link, CATALOG, 0, DESCRIPTION)
        elif kind == PING:
            send(link, PONG)
        elif kind == QUIT:
            sys.exit(0)


main()
