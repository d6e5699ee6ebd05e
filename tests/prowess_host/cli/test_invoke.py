"""`prowess invoke`: envelopes through a real pipe."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from patience import PATIENCE
from shell import prowess, run

SKILL = """
import os, threading
from prowess import skill_command

first = threading.Event()

@skill_command
def echo(text: str) -> str:
    print("noise", text)
    os.write(1, b"more noise")
    return text

@skill_command
def waits(text: str) -> str:
    first.wait(240)
    return text

@skill_command
def opens(text: str) -> str:
    first.set()
    return text
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "tools.py").write_text(SKILL, "utf-8")
    return tmp_path


def request(text: str, tool: str = "tools/echo", **more: Any) -> dict[str, Any]:
    return {
        "id": text,
        "version": "1.0.0",
        "timestamp": "2026-01-31T12:00:00Z",
        "tool": tool,
        "payload": {"text": text},
        **more,
    }


def invoke(project: Path, given: bytes, *options: str) -> tuple[int, list[dict[str, Any]]]:
    done = prowess("invoke", "--project", str(project), *options, given=given)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def lines(*requests: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in requests)


def test_one_request_gives_one_response(project: Path) -> None:
    """However it is laid out, and whatever the skill prints."""
    code, (response,) = invoke(project, json.dumps(request("a"), indent=2).encode())
    assert (0, "a") == (code, response["output"])


def test_lines_give_lines_in_order(project: Path) -> None:
    """Also those that are no request; then not everything succeeded."""
    given = lines(request("a")) + b"{broken\n\n" + lines(request("b"))
    code, responses = invoke(project, given)
    assert 1 == code
    assert ["success", "error", "success"] == [response["status"]["code"] for response in responses]
    assert ["a", "", "b"] == [response["id"] for response in responses]


def test_a_broken_first_line_does_not_take_the_rest_along(project: Path) -> None:
    """It is answered like any other line."""
    code, responses = invoke(project, b"{broken\n" + lines(request("a"), request("b")))
    assert (1, ["", "a", "b"]) == (code, [response["id"] for response in responses])


def test_jobs_are_served_at_once_and_keep_their_order(project: Path) -> None:
    """The first one can only end because the second one runs beside it."""
    given = lines(request("a", "tools.waits"), request("b", "tools.opens"), request("c"))
    code, responses = invoke(project, given, "--jobs", "2")
    assert (0, ["a", "b", "c"]) == (code, [response["output"] for response in responses])


def test_accepted_work_is_finished_before_the_end(project: Path) -> None:
    """The process does not take it along."""
    given = lines(request("a", "tools.waits", metadata={"wait": False}), request("b", "tools.opens"))
    code, responses = invoke(project, given)
    assert (0, ["accepted", "success"]) == (code, [response["status"]["code"] for response in responses])


@pytest.mark.parametrize("given", [b"", b"\n\n"])
def test_no_request_gives_no_response(given: bytes, project: Path) -> None:
    """Nothing went wrong, either."""
    assert (0, []) == invoke(project, given)


def test_what_is_no_json_at_all_gives_one_error(project: Path) -> None:
    """One mess is one request."""
    code, responses = invoke(project, b"{\n broken\n}")
    assert (1, ["not_json"]) == (code, [response["errors"][0]["code"] for response in responses])


@pytest.mark.parametrize("first", [b"hello\n", b'{"id": "a",}\n', b"{} {}\n", lines(request("a"))])
async def test_a_program_that_waits_for_each_answer_gets_it(first: bytes, project: Path) -> None:
    """Also with room for more requests, and after a first line that no other line completes."""
    command = await run("invoke", "--project", str(project), "--jobs", "3", environ=os.environ)
    with anyio.fail_after(PATIENCE):
        for line in (first, lines(request("b"))):
            command.stdin.write(line)
            assert json.loads(await command.stdout.readline())["id"] in ("", "a", "b")
        command.stdin.close()
        await command.wait()


@pytest.mark.parametrize("jobs", ["0", "x"])
def test_wrong_use_is_refused(jobs: str, project: Path) -> None:
    """With the exit code of wrong use."""
    assert (2, []) == invoke(project, b"", "--jobs", jobs)


# The promises of the wire


HARMFUL = """
import os, time
from pathlib import Path
from prowess import Context, skill_command

@skill_command
def echo(text: str) -> str:
    return text

@skill_command
def leaves(text: str) -> str:
    os._exit(9)

@skill_command(read_only=True)
def leaves_again(text: str) -> str:
    os._exit(9)

@skill_command(timeout=0.5)
def slow(text: str) -> str:
    time.sleep(600)
    Path(text).touch()
    return text

@skill_command
def process(text: str) -> int:
    return os.getpid()

@skill_command
def told(ctx: Context, text: str) -> list:
    return [ctx.metadata["mine"], ctx.trace_id]
"""


@pytest.fixture
def harmful(project: Path) -> Path:
    (project / "skills" / "tools.py").write_text(HARMFUL, "utf-8")
    return project


def test_a_command_that_ends_its_process_costs_its_own_call(harmful: Path) -> None:
    """It is answered, and so is the next request."""
    code, (lost, next_one) = invoke(harmful, lines(request("a", "tools.leaves"), request("b")))
    assert (1, "b") == (code, next_one["output"])
    assert ("a", 500, "worker_lost") == (lost["id"], lost["status"]["http"], lost["errors"][0]["code"])
    assert "exit code 9" in lost["errors"][0]["message"]
    assert lost["metadata"]["call_id"]
    _, (safe,) = invoke(harmful, lines(request("a", "tools.leaves_again")))
    assert ("retry", 503, "0") == (safe["status"]["code"], safe["status"]["http"], safe["headers"]["Retry-After"])


def test_a_command_whose_time_is_up_has_no_effect_afterwards(harmful: Path) -> None:
    """The process that runs it is gone before the file would have been written."""
    file = harmful / "file"
    given = lines(request(str(file), "tools.slow"), *(request(str(number)) for number in range(3)))
    code, responses = invoke(harmful, given)
    assert (1, [504, 200, 200, 200]) == (code, [each["status"]["http"] for each in responses])
    assert "timeout" == responses[0]["errors"][0]["code"]
    assert not file.exists()
    assert not [command for command in commands() if str(harmful) in command]


def commands() -> list[str]:
    """How the living processes were started."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                found.append((folder / "cmdline").read_bytes().decode("utf-8", "replace"))
    return found


@pytest.mark.parametrize("is_known", [False, True])
def test_a_skill_that_hangs_when_it_is_imported_is_answered(harmful: Path, *, is_known: bool) -> None:
    """Within the import limit, whether it hung when it was described, or was described before it began to hang."""
    hangs = harmful / "hangs"
    body = f"import os, time\nfrom prowess import skill_command\nwhile os.path.exists({str(hangs)!r}):\n    time.sleep(0.02)\n"
    (harmful / "skills" / "stuck.py").write_text(
        f"{body}\n@skill_command\ndef go(text: str) -> str:\n    return text\n", "utf-8"
    )
    if is_known:
        assert 0 == invoke(harmful, lines(request("a", "stuck.go")))[0]
    hangs.touch()
    given = lines(request("a", "stuck.go"), request("b"))
    code, (stuck, good) = invoke(harmful, given, "--set", "host.import_limit=2")
    assert (1, "b") == (code, good["output"])
    assert "takes more than 2 s" in stuck["errors"][0]["message"]


def test_requests_are_served_by_a_worker_and_told_of_their_caller(harmful: Path) -> None:
    """All in one process, which is not the one that reads them."""
    more = {"trace_id": "t-1", "metadata": {"mine": 7}}
    given = lines(request("a", "tools.process"), request("b", "tools.process"), request("c", "tools.told", **more))
    code, (one, other, told) = invoke(harmful, given)
    assert (0, one["output"]) == (code, other["output"])
    assert [7, "t-1"] == told["output"]


def test_a_request_sees_a_save_between_two_others(harmful: Path) -> None:
    """The project is followed as long as requests come."""
    command = [
        sys.executable,
        "-c",
        "from prowess_host.cli.main import main; main()",
        "invoke",
        "--project",
        str(harmful),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(tool: str) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(lines(request("a", tool)))
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        assert 404 == ask("more.new")["status"]["http"]
        (harmful / "skills" / "more.py").write_text(
            "from prowess import skill_command\n@skill_command\ndef new(text: str) -> str:\n    return text\n", "utf-8"
        )
        while ask("more.new")["status"]["http"] != 200:
            pass
        process.stdin.close()
