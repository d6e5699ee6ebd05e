"""`prowess invoke`: reads request envelopes and writes response envelopes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import IO, Any, Final

import click

from prowess.jsontypes import JsonObject
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import opened

__all__ = ["command"]

_SUCCEEDED: Final = ("success", "accepted")


@click.command("invoke")
@project_options
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Requests to run at once. Responses keep the order of the requests.",
)
def command(where: ProjectOptions, *, jobs: int) -> int:
    """Answer request envelopes from stdin: one, or one per line."""
    return asyncio.run(_invoke(where, jobs))


async def _invoke(where: ProjectOptions, jobs: int) -> int:
    """Answer requests. Only responses reach stdout."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    from prowess.envelopes.envelope import finish, invoke  # imports pydantic

    succeeded = True
    async with opened(where, client="prowess invoke") as project:
        project.start()
        async for response in _in_order(_requests(sys.stdin.buffer), jobs, partial(invoke, project)):
            succeeded = succeeded and response["status"]["code"] in _SUCCEEDED
            out.write(json.dumps(response, ensure_ascii=False) + "\n")
            out.flush()
        await finish(project)
    return DONE if succeeded else FAILED


async def _in_order(requests: Iterator[bytes], jobs: int, serve: Any) -> AsyncGenerator[JsonObject]:
    """Serve up to `jobs` requests at once, and yield the responses in order. Reads at most `jobs` requests ahead."""
    running: list[asyncio.Task[JsonObject]] = []
    loop = asyncio.get_running_loop()
    while True:
        request = await loop.run_in_executor(None, next, requests, None)
        if request is None:
            break
        running.append(asyncio.ensure_future(serve(request)))
        if len(running) >= jobs:
            yield await running.pop(0)
    for task in running:
        yield await task


def _requests(source: IO[bytes]) -> Iterator[bytes]:
    """The requests in an input: one per line, or one over all lines if the first line is incomplete."""
    first = b""
    for line in source:
        if line.strip():
            first = line
            break
    if first and not _is_whole(first):
        rest = source.read()
        if _is_whole(first + rest) or not _looks_like_lines(rest):
            yield first + rest
            return
        yield first
        yield from (line for line in rest.splitlines() if line.strip())
        return
    if first:
        yield first
    for line in source:
        if line.strip():
            yield line


def _is_whole(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _looks_like_lines(rest: bytes) -> bool:
    """Whether the lines after an invalid first line are requests of their own."""
    return any(_is_whole(line) and line.lstrip().startswith(b"{") for line in rest.splitlines())
