"""Writes what is measured: the same functions, once as a project of Prowess and once as a server of each peer.

Every subject gets a folder of its own, so that none sees the files of another.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

__all__ = [
    "FASTMCP",
    "FLOOR",
    "FUNCTION_COUNT",
    "NAMES",
    "OURS",
    "RELAY",
    "SDK",
    "Subject",
    "many_skills",
    "one_skill",
    "relay",
    "without_record",
]

OURS: Final = "ours"
SDK: Final = "sdk"
FASTMCP: Final = "fastmcp"
FLOOR: Final = "floor"
RELAY: Final = "relay"
NAMES: Final = {OURS: "Prowess", SDK: "official SDK", FASTMCP: "FastMCP", FLOOR: "read loop", RELAY: "relay"}

FUNCTIONS: Final = '''

@tool
async def echo(value: int) -> int:
    """Give a number back."""
    return value


@tool
def echo_sync(value: int) -> int:
    """Give a number back, from a thread where there is one."""
    return value


@tool
async def text(size: int) -> str:
    """A text of so many characters."""
    return "x" * size


@tool
async def records(count: int) -> list[dict[str, int | str]]:
    """So many records of about 100 bytes of JSON."""
    return [{"number": n, "name": f"record {n:08}", "comment": "x" * 40} for n in range(count)]


@tool
async def take_text(text: str) -> int:
    """Count characters."""
    return len(text)


@tool
async def take_records(records: list[dict[str, int | str]]) -> int:
    """Count records."""
    return len(records)


@tool
def sleep(seconds: float) -> str:
    """Sleep, in a way that nothing can interrupt."""
    time.sleep(seconds)
    return "slept"


@timed
def write_late(seconds: float, path: str) -> str:
    """Sleep, and then write a file."""
    time.sleep(seconds)
    pathlib.Path(path).write_text("written")
    return "written"
'''

FUNCTION_COUNT: Final = FUNCTIONS.count("def ")

VALUES: Final = """

class Line(pydantic.BaseModel):
    article: str
    count: int
    price: float


class Customer(pydantic.BaseModel):
    name: str
    email: str | None = None


class Order(pydantic.BaseModel):
    number: int
    customer: Customer
    lines: list[Line]


@dataclasses.dataclass
class Place:
    name: str
    latitude: float
    longitude: float
    tags: list[str]


@tool
def nothing() -> None:
    return None


@tool
def words() -> str:
    return "The quick brown fox jumps over the lazy dog."


@tool
def number() -> int:
    return 42


@tool
def mapping() -> dict[str, int]:
    return {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


@tool
def integers() -> list[int]:
    return list(range(1000))


@tool
def model() -> Order:
    lines = [Line(article=f"article {n}", count=n, price=n * 1.5) for n in range(10)]
    return Order(number=7, customer=Customer(name="Ada", email="ada@example.org"), lines=lines)


@tool
def data_class() -> Place:
    return Place("Greenwich", 51.48, 0.0, ["meridian", "observatory"])


@tool
def picture() -> Image:
    return png(data=b"\\x89PNG\\r\\n\\x1a\\n" + bytes(10_000))
"""

_IMPORTS: Final = (
    "from __future__ import annotations\n\nimport dataclasses\nimport functools\nimport pathlib\nimport time\n\n"
)

_OURS: Final = "from prowess import skill_command\n\ntool = skill_command\ntimed = skill_command(timeout=1)\n"
_SDK: Final = """from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")
tool = server.tool()
timed = tool  # it has no timeout
"""
_FASTMCP: Final = """from fastmcp import FastMCP

server = FastMCP("bench")
tool = server.tool
timed = server.tool(timeout=1)
"""
_FLOOR: Final = """import json
import sys

TOOLS = {}


def tool(function):
    TOOLS[function.__name__] = function
    return function


timed = tool


def call(name, arguments):
    result = TOOLS[name](**arguments)
    if hasattr(result, "send"):
        try:
            result.send(None)
        except StopIteration as stop:
            result = stop.value
    text = result if isinstance(result, str) else json.dumps(result)
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"result": result}, "isError": False}


def answer(method, params):
    if method == "tools/call":
        return call(params["name"], params["arguments"])
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    server = {"name": "floor", "version": "1"}
    return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}


def serve():
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params"))
            told = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            sys.stdout.buffer.write(json.dumps(told).encode() + b"\\n")
            sys.stdout.buffer.flush()
"""

_RELAY: Final = """import asyncio
import os
import socket
import subprocess
import sys


async def relay(*ways):
    \"\"\"Writes what it reads, until an input ends. Transports of asyncio would take a new buffer of 256 kB for each message.\"\"\"
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def pass_on(source, target):
        data = os.read(source, 65536)
        while data:
            data = data[os.write(target, data) :]
            if not data:
                return
        over.set()

    for source, target in ways:
        loop.add_reader(source, pass_on, source, target)
    await over.wait()


def first():
    ours, theirs = socket.socketpair()
    with theirs:
        second = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    asyncio.run(relay((0, ours.fileno()), (ours.fileno(), 1)))
    ours.close()
    second.wait()


if sys.argv[1:]:
    asyncio.run(relay((int(sys.argv[1]), int(sys.argv[1]))))
else:
    first()
"""

_MAIN: Final = '\n\nif __name__ == "__main__":\n    {run}\n'
_RUN: Final = {SDK: 'server.run("stdio")', FASTMCP: "server.run(show_banner=False)", FLOOR: "serve()"}
_PNG: Final = '\npng = functools.partial(Image, format="png")\n'
_VALUE_IMPORTS: Final = {
    OURS: "import pydantic\n\nfrom prowess import Image\n\npng = Image\n",
    SDK: "import pydantic\nfrom mcp.server.mcpserver import Image\n" + _PNG,
    FASTMCP: "import pydantic\nfrom fastmcp.utilities.types import Image\n" + _PNG,
}


@dataclass(frozen=True)
class Subject:
    """Something to start and to talk to."""

    key: str
    command: list[str]
    folder: Path
    prefix: str
    """What stands before the name of each function on the wire."""


def one_skill(folder: Path) -> dict[str, Subject]:
    """All the functions in one file, for each subject."""
    subjects = {OURS: _host(folder / OURS, "bench_")}
    _write(folder / OURS / "skills" / "bench.py", _IMPORTS + _OURS + FUNCTIONS)
    _write(folder / "values" / OURS / "skills" / "values.py", _IMPORTS + _VALUE_IMPORTS[OURS] + _OURS + VALUES)
    for key, dressing in {SDK: _SDK, FASTMCP: _FASTMCP, FLOOR: _FLOOR}.items():
        server = folder / key / "server.py"
        _write(server, _IMPORTS + dressing + FUNCTIONS + _MAIN.format(run=_RUN[key]))
        subjects[key] = Subject(key, [sys.executable, str(server)], server.parent, "")
        if key in _VALUE_IMPORTS:
            _write(folder / "values" / key / "server.py", _IMPORTS + _VALUE_IMPORTS[key] + dressing + VALUES)
    return subjects


def relay(folder: Path) -> Subject:
    """The floor of two processes: one hands lines to another, which sends them back, and neither reads them."""
    file = folder / RELAY / "relay.py"
    _write(file, _RELAY)
    return Subject(RELAY, [sys.executable, str(file)], file.parent, "")


def without_record(ours: Subject) -> Subject:
    """A host that keeps no record of calls."""
    return replace(ours, command=[*ours.command, "--set", "record.on=false"])


def many_skills(folder: Path, count: int, slow: int, seconds: float) -> dict[str, Subject]:
    """`count` files of one command each, of which every `count / slow`-th imports a module that takes its time."""
    every = count // slow
    for key, header in {OURS: _OURS, FASTMCP: "from fastmcp.tools import tool\n"}.items():
        place = folder / key
        for number in range(count):
            imports = f"import slow_{number}\n" if number % every == 0 else ""
            _write(place / "skills" / f"skill_{number:03}.py", imports + header + _command(number))
        for number in range(0, count, every):
            _write(place / f"slow_{number}.py", f"import time\n\ntime.sleep({seconds})\n")
    _write(
        folder / FASTMCP / "server.py",
        "from pathlib import Path\n\nfrom fastmcp import FastMCP\nfrom fastmcp.server.providers import FileSystemProvider\n\n"
        'server = FastMCP("bench", providers=[FileSystemProvider(Path(__file__).parent / "skills")])\n'
        + _MAIN.format(run=_RUN[FASTMCP]),
    )
    command = [sys.executable, str(folder / FASTMCP / "server.py")]
    return {OURS: _host(folder / OURS, "skill_000_"), FASTMCP: Subject(FASTMCP, command, folder / FASTMCP, "")}


def _host(project: Path, prefix: str) -> Subject:
    return Subject(OURS, [sys.executable, "-m", "prowess_host", "--project", str(project)], project, prefix)


def _command(number: int) -> str:
    body = f'    """Add {number}."""\n    return value + {number}\n'
    return f"\n\n@tool\nasync def add_{number}(value: int, comment: str | None = None) -> int:\n{body}"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
