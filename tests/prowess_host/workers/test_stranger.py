"""docs/link.md is enough to write a worker, and leaves no frame and no field out."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import pytest
from patience import PATIENCE
from piped import hosted, make_project, result

from prowess.worker import messages
from prowess.worker.board import Board, Importing
from prowess.worker.link import encode_frame
from prowess.worker.messages import VERSION, Kind

PAGE = Path(__file__).resolve().parents[3].joinpath("docs/link.md").read_text("utf-8")
STRANGER = Path(__file__).with_name("stranger.py")


def strange_project(tmp_path: Path, edit: str = "", settings: str = "") -> Path:
    """A project whose worker is the stranger, in an interpreter that could not import Prowess."""
    script = tmp_path / "stranger.py"
    script.write_text(edit or STRANGER.read_text("utf-8"), "utf-8")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{script}" "$@"\n', "utf-8")
    python.chmod(0o755)
    return make_project(tmp_path, f'python = "{python}"\n{settings}\n[host]\nshared_memory = false\n')


async def test_a_worker_that_was_written_from_the_page_serves(tmp_path: Path):
    """It describes its command, answers calls with progress, ends when it is told to, and is replaced when it dies."""
    async with hosted(strange_project(tmp_path), forked=True) as host:
        assert ["tiny_add"] == await host.tools()
        answer = await result(host.start_call("tiny_add", progress="p", a=2, b=3))
        assert {"result": 5} == answer["structuredContent"]
        progress = (await host.noted("notifications/progress"))["params"]
        assert (1, 2, "half") == (progress["progress"], progress["total"], progress["message"])
        first = await host.worker()
        lost = await result(host.start_call("tiny_add", a=0, b=0))
        assert "Trying again is safe" in lost["content"][0]["text"]
        assert "7" == await host.text("tiny_add", a=3, b=4)
        assert first not in host.workers()
    assert "Traceback" not in host.stderr


async def test_heads_are_json_also_without_a_time_limit(tmp_path: Path):
    """`Infinity` is none, and other languages refuse it."""
    strict = STRANGER.read_text("utf-8").replace('or b"{}")', 'or b"{}", parse_constant=int)', 1)
    assert "parse_constant" in strict
    async with hosted(strange_project(tmp_path, strict, "timeout = inf"), forked=True) as host:
        assert "3" == await host.text("tiny_add", a=1, b=2)
    assert "Infinity" not in host.stderr


async def test_a_stopped_stranger_loses_no_call_that_it_did_not_begin(tmp_path: Path):
    """The host believes what it said, and it said nothing of these."""
    async with hosted(strange_project(tmp_path), forked=True) as host:
        await host.text("tiny_add", a=1, b=1)
        old = await host.worker()
        os.kill(old, signal.SIGSTOP)
        answers = [host.start_call("tiny_add", a=1, b=number) for number in range(5)]
        await host.barrier()
        os.kill(old, signal.SIGKILL)
        assert [1, 2, 3, 4, 5] == [(await result(each))["structuredContent"]["result"] for each in answers]


async def test_a_description_that_cannot_be_read_is_a_diagnosis(tmp_path: Path):
    """The worker is at fault, and the client is told so."""
    broken = STRANGER.read_text("utf-8").replace('    "names": ["tiny"],\n', "")
    async with hosted(strange_project(tmp_path, broken), forked=True) as host:
        assert ["prowess_diagnostics"] == await host.tools()
        assert "described the skills in a way that cannot be read: KeyError: 'names'" in await host.text(
            "prowess_diagnostics"
        )


def test_the_stranger_refuses_another_version(tmp_path: Path):
    """As the page says: FAILED, and exit code 1."""
    ours, theirs = socket.socketpair()
    ours.sendall(encode_frame(Kind.BEGIN, 0, b'{"link": [2, 0], "release": "9"}'))
    command = [sys.executable, "-I", "-S", str(STRANGER), "-P", "-m", "prowess.worker", str(theirs.fileno()), "-", "/"]
    done = subprocess.run(command, pass_fds=[theirs.fileno()], timeout=PATIENCE, check=False)
    theirs.close()
    kind, _, size, _ = struct.unpack("!BIII", ours.recv(13))
    assert (1, Kind.FAILED, [1, 0]) == (done.returncode, kind, json.loads(ours.recv(size))["link"])
    ours.close()


# The page


def rows() -> dict[str, tuple[int, str]]:
    """The number and the head of each frame."""
    found = re.findall(r"^\| ([A-Z_]+) \| (\d+) \| (.*?) \|", PAGE, re.MULTILINE)
    return {name: (int(number), head) for name, number, head in found}


def test_the_page_names_every_frame():
    assert {kind.name: kind.value for kind in Kind} == {name: number for name, (number, _) in rows().items()}
    assert f"version **{'.'.join(map(str, VERSION))}**" in PAGE


@pytest.mark.parametrize("name", [name for name in messages.__all__ if name.endswith("Head")])
def test_the_page_names_every_field(name: str):
    head: Any = getattr(messages, name)
    assert is_typeddict(head)
    frame = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Head")).upper()
    fields = set(get_type_hints(head))
    if frame == "CALL":
        section = PAGE.partition("**CALL**")[2].partition("**CANCEL**")[0]
        told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))))
    else:
        told = set(re.findall(r"`(\w+)`", rows()[frame][1]))
    assert fields == told


def test_the_page_shows_the_board_as_it_is():
    """By writing to one, and looking at the bytes."""
    offsets = [int(each) for each in re.findall(r"^\| (\d+) \| \d+ \| (?:host|worker) \|", PAGE, re.MULTILINE)]
    retired, begun, withdrawn, beat, notes = offsets
    board = Board()
    number = 70_000
    slot = number % 65535
    assert board.start(number)
    board.withdraw([number])
    board.beat()
    importing = Importing(1, "skill", "/file.py")
    board.note([importing])
    memory = board._memory[:]
    assert (0, 1, 1, 1) == (memory[retired], memory[begun + slot], memory[withdrawn + slot], memory[beat])
    assert [list(importing)] == json.loads(memory[notes:].partition(b"\0")[0])
    board.retire()
    assert 1 == board._memory[retired]
    board.close()
