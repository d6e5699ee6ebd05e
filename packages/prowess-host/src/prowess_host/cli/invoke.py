"""`prowess invoke`: reads request envelopes and writes response envelopes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import IO, Any, Final

import click

from prowess.jsontypes import JsonObject
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import opened
from prowess_host.cli.terminal import complain
from prowess_host.stderr import complaints
from prowess_host.threads import in_own_thread

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
    sys.stdout = sys.stderr = complaints()
    from prowess.envelopes.envelope import finish, invoke  # imports pydantic

    succeeded = True
    async with opened(where, client="prowess invoke") as project:
        project.start()
        requests = _requests(os.fdopen(os.dup(0), "rb"))  # its own: a thread may still read from it at the end
        if sys.stdin.isatty():
            complain("waiting for requests on stdin, one per line (Ctrl-D ends it)")
        async for response in _in_order(requests, jobs, partial(invoke, project)):
            succeeded = succeeded and response["status"]["code"] in _SUCCEEDED
            await in_own_thread(_write, response, out)
        await finish(project)
    return DONE if succeeded else FAILED


async def _in_order(requests: Iterator[bytes], jobs: int, serve: Any) -> AsyncGenerator[JsonObject]:
    """Serve up to `jobs` requests at once, and yield the responses in order, each as soon as it is there.

    A program may wait for a response before it sends the next request.
    """
    running: deque[asyncio.Task[JsonObject]] = deque()
    reading: asyncio.Task[bytes | None] | None = None
    is_over = False
    while running or not is_over:
        if reading is None and not is_over and len(running) < jobs:
            reading = asyncio.ensure_future(in_own_thread(next, requests, None))
        awaited = [task for task in (reading, next(iter(running), None)) if task is not None]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if reading is not None and reading.done():
            request, reading = reading.result(), None
            if request is None:
                is_over = True
            else:
                running.append(asyncio.ensure_future(serve(request)))
        while running and running[0].done():
            yield running.popleft().result()


# Reading and writing may take for ever: calls go on, and end, meanwhile, and nothing waits for the threads when Ctrl-C comes.


def _write(response: Any, out: IO[str]) -> None:
    print(json.dumps(response, ensure_ascii=False), file=out, flush=True)


def _requests(source: IO[bytes]) -> Iterator[bytes]:
    """The requests in an input: one per line, or one over all lines if the first line is incomplete."""
    first = b""
    for line in source:
        if line.strip():
            first = line
            break
    if first and not _is_whole(first) and not _is_hopeless(first):
        rest = source.read()
        if _is_whole(first + rest) or not _looks_like_lines(rest):
            yield first + rest
            return
        yield first
        yield from (line for line in rest.splitlines() if line.strip())
        return
    if not first:
        return  # a terminal has an end of input each time that it is typed
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


def _is_hopeless(line: bytes) -> bool:
    """Whether no further line makes a request of it: then a program may be waiting for the answer to this one."""
    text = line.strip()
    if text.startswith(b"{") and not text.endswith(b"}"):
        return False  # the first line of a request over several lines may have a mistake
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos < len(error.doc)
    except (ValueError, RecursionError):
        return False
    return True


def _looks_like_lines(rest: bytes) -> bool:
    """Whether the lines after an invalid first line are requests of their own."""
    return any(_is_whole(line) and line.lstrip().startswith(b"{") for line in rest.splitlines())
