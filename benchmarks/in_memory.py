"""Everything without a wire. Runs as a process of its own, so that the runner stays small: memory it shared with a server
would be counted half.

    python in_memory.py FOLDER EFFORT    prints the samples as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import fastmcp
import mcp
import pydantic
import pydantic_core
from effort import Effort
from fastmcp.tools import FunctionTool
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult
from projects import FASTMCP, OURS, SDK

from prowess import Outcome, Runtime, get_script_config, skill_command
from prowess.results.normalize import normalize

Samples = dict[str, dict[str, list[float]]]
Run = Callable[[], Awaitable[object]]
VALUES = ("nothing", "words", "number", "mapping", "integers", "model", "data_class", "picture")


class Options(pydantic.BaseModel):
    """How to search."""

    ignore_case: bool = False
    context: int = 2


class Match(pydantic.BaseModel):
    """What was found."""

    file: str
    line: int
    text: str
    before: list[str] = []


def simple():
    async def echo(value: int) -> int:
        """Give a number back."""
        return value

    return echo


def rich():
    async def search(
        pattern: str,
        paths: list[str] | None = None,
        limit: Annotated[int, pydantic.Field(ge=1, le=100)] = 10,
        mode: Literal["fast", "exact"] = "fast",
        options: Options | None = None,
    ) -> list[Match]:
        """Search files.

        Args:
            pattern: What to look for
            paths: Where
            limit: The most matches to give
            mode: How
            options: More of how
        """
        return [Match(file=str((paths, mode, options)), line=limit, text=pattern)]

    return search


class Bench:
    """Times things, the subjects in turn, and keeps the samples."""

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self.samples: Samples = {}

    async def compare(self, row: str, runs: Mapping[str, Run]) -> None:
        """Seconds per run, one sample from each batch."""
        counts = {subject: await self._count(run) for subject, run in runs.items()}
        for _ in range(self.effort.batches):
            for subject, run in runs.items():
                seconds = await _batch(run, counts[subject])
                self.samples.setdefault(row, {}).setdefault(subject, []).append(seconds / counts[subject])

    async def _count(self, run: Run) -> int:
        """How many runs make a batch, found out while warming up."""
        count = 1
        while (seconds := await _batch(run, count)) < self.effort.batch_seconds / 4:
            count *= 2
        return max(1, round(count * self.effort.batch_seconds / seconds))


async def _batch(run: Run, count: int) -> float:
    before = time.perf_counter()
    for _ in range(count):
        await run()
    return time.perf_counter() - before


# Contracts


async def contracts(bench: Bench) -> None:
    """From a function that nobody knows to what a client is told of it."""
    sdk, fast = MCPServer("bench"), fastmcp.FastMCP("bench")

    def runs(make: Callable[[], Any]) -> dict[str, Run]:
        async def ours() -> object:
            return get_script_config(skill_command(make()))

        async def official() -> object:
            return Tool.from_function(make())

        async def theirs() -> object:
            return FunctionTool.from_function(make())

        return {OURS: ours, SDK: official, FASTMCP: theirs}

    config = get_script_config(skill_command(rich()))
    sdk.add_tool(rich())
    fast.tool(rich())
    listed = [
        *(tool.input_schema for tool in await sdk.list_tools()),
        *(tool.parameters for tool in await fast.list_tools()),
    ]
    assert all(config["input_schema"]["properties"].keys() == schema["properties"].keys() for schema in listed)
    await bench.compare("contract_simple", runs(simple))
    await bench.compare("contract_rich", runs(rich))


# Calls


async def calls(bench: Bench, folder: Path, runtime: Runtime) -> None:
    """A call with one int that gives it back, in each way there is."""
    sdk, fast = (_module(folder / key / "server.py", key).server for key in (SDK, FASTMCP))
    async with mcp.Client(sdk) as sdk_client, fastmcp.Client(fast) as fast_client:
        for row, tool in {"async": "echo", "sync": "echo_sync"}.items():
            ours = _ours(runtime, f"bench.{tool}")
            clients = {SDK: sdk_client.call_tool, FASTMCP: fast_client.call_tool}
            await bench.compare(f"memory_{row}", {OURS: ours, **_peers(clients, tool)})
            servers = {SDK: sdk.call_tool, FASTMCP: fast.call_tool}
            await bench.compare(f"direct_{row}", {OURS: ours, **_peers(servers, tool)})
            theirs = await sdk.call_tool(tool, {"value": 7})
            assert (await ours())["structuredContent"] == theirs.structured_content


def _ours(runtime: Runtime, command: str) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def call() -> dict[str, Any]:
        return (await runtime.call(command, {"value": 7})).payload()

    return call


def _peers(functions: Mapping[str, Callable[..., Awaitable[object]]], tool: str) -> dict[str, Run]:
    return {subject: (lambda call=call: call(tool, {"value": 7})) for subject, call in functions.items()}


# Values


async def values(bench: Bench, folder: Path) -> None:
    """From what a function returned to the JSON of a tool result."""
    sdk, fast = (_module(folder / "values" / key / "server.py", f"values_{key}") for key in (SDK, FASTMCP))
    async with Runtime.open(folder / "values" / OURS) as runtime:
        for name in VALUES:
            runs = {
                OURS: await _our_writer(runtime, name),
                SDK: _sdk_writer(getattr(sdk, name)),
                FASTMCP: _fastmcp_writer(await fast.server.get_tool(name)),
            }
            told = {subject: json.loads(run()) for subject, run in runs.items()}
            _compare_content(name, told)
            await bench.compare(f"value_{name}", {subject: _asynchronous(run) for subject, run in runs.items()})


def _compare_content(name: str, told: Mapping[str, Any]) -> None:
    data = {subject: result.get("structuredContent") for subject, result in told.items()}
    if name == "words":  # we send a text once; the peers send a structured copy as well
        assert {result["content"][0]["text"] for result in told.values()} == {data[SDK]["result"]}, told
    else:
        assert name == "nothing" or data[OURS] == data[SDK], data
    kinds = [[block["type"] for block in result["content"]][:1] for result in told.values()]
    assert name == "nothing" or kinds[0] == kinds[1] == kinds[2], kinds


async def _our_writer(runtime: Runtime, name: str) -> Callable[[], bytes]:
    entry = await runtime.find(f"values.{name}")
    assert entry
    output, contract = entry.plan.output, entry.contract
    value = entry.plan.declaration.function()

    def write() -> bytes:
        return pydantic_core.to_json(Outcome(contract.id, "ok", normalize(value, output), contract).payload())

    return write


def _sdk_writer(function: Callable[[], Any]) -> Callable[[], bytes]:
    convert, value = Tool.from_function(function).fn_metadata.convert_result, function()
    return lambda: _dumped(convert(value))


def _fastmcp_writer(tool: Any) -> Callable[[], bytes]:
    value = tool.fn()

    def write() -> bytes:
        told = tool.convert_result(value).to_mcp_result()
        if isinstance(told, CallToolResult):
            return _dumped(told)
        content, data = told if isinstance(told, tuple) else (told, None)
        return _dumped(CallToolResult(content=content, structured_content=data))

    return write


def _dumped(result: CallToolResult) -> bytes:
    return result.model_dump_json(by_alias=True, exclude_none=True).encode()


def _asynchronous(run: Callable[[], object]) -> Run:
    async def running() -> object:
        return run()

    return running


def _module(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.asynccontextmanager
async def _runtime(folder: Path) -> AsyncGenerator[Runtime]:
    async with Runtime.open(folder / OURS) as runtime:
        failures = runtime.catalog().failures
        assert not failures, failures
        yield runtime


async def main(folder: Path, effort: Effort) -> Samples:
    """All rows."""
    bench = Bench(effort)
    async with _runtime(folder) as runtime:
        await contracts(bench)
        await calls(bench, folder, runtime)
    await values(bench, folder)
    return bench.samples


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), Effort(**json.loads(sys.argv[2]))))))
