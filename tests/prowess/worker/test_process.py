"""A worker as a process: how it starts, refuses, serves and ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from anyio import fail_after
from patience import PATIENCE
from tests.prowess.embedded import write

from prowess.errors import install_command
from prowess.worker.board import Board
from prowess.worker.link import encode_frame, receive
from prowess.worker.messages import RELEASE, VERSION, Kind, hello
from prowess.worker.serving import serve


def begin(flags: dict | None = None, written: tuple[str, ...] | None = None, **more: Any) -> bytes:
    """What a host sends first."""
    told = {**hello(), "flags": flags or {}, "written": written, **more}
    return encode_frame(Kind.BEGIN, 0, json.dumps(told).encode())


def started(
    root: Path, flags: dict | None = None, *, at: str = "", labelled: bool = False, **more: Any
) -> tuple[subprocess.Popen, socket.socket, Board]:
    """A worker process, and our end of its link."""
    ours, theirs = socket.socketpair()
    board = Board()
    ours.sendall(begin(flags, **more))
    command = [sys.executable, "-P", "-m", "prowess.worker", str(theirs.fileno()), str(board.fd)]
    process = subprocess.Popen(
        [*command, at or str(root), *(["labelled"] if labelled else [])],
        pass_fds=(theirs.fileno(), board.fd),
        stderr=subprocess.PIPE,
        cwd=root,
    )
    theirs.close()
    return process, ours, board


async def until_answered(sock: socket.socket) -> bytes:
    """What the worker has sent once there is a result in it."""
    with fail_after(PATIENCE):
        while b"isError" not in (got := await asyncio.to_thread(sock.recv, 65536, socket.MSG_PEEK)):  # noqa: ASYNC110 - peeking waits only for the first byte
            await asyncio.sleep(0.01)
        return got


async def finished(process: subprocess.Popen, sock: socket.socket, board: Board) -> tuple[int, bytes, str]:
    """Its exit code, what it sent, and what it complained of."""

    def read() -> bytes:
        with sock:
            return b"".join(iter(lambda: sock.recv(65536), b""))

    with fail_after(PATIENCE):
        sent = await asyncio.to_thread(read)
        _, complaints = await asyncio.to_thread(process.communicate)
    board.close()
    return process.returncode, sent, complaints.decode()


async def test_a_process_serves_until_it_is_told_to_go(tmp_path: Path):
    """Then what was to be done at the end is done; and the project is importable, but last."""
    (tmp_path / "shop.py").write_text("import sys\nPLACE = sys.path[-1]\n")
    skill = """
        import atexit
        from pathlib import Path
        from prowess import skill_command
        import shop
        atexit.register(Path("left").touch)

        @skill_command
        def place() -> str:
            return shop.PLACE
    """
    process, sock, board = started(write(tmp_path, t=skill))
    sock.sendall(encode_frame(Kind.CALL, 1, b'{"command":"t.place"}', b"{}"))
    got = await until_answered(sock)
    assert str(tmp_path).encode() in got
    sock.sendall(encode_frame(Kind.QUIT))
    assert 0 == (await finished(process, sock, board))[0]
    assert (tmp_path / "left").exists()


async def test_a_process_that_has_described_is_prepared_for_the_first_call(tmp_path: Path):
    """The asyncio part of anyio is there before the call that comes next: the skill that it imports finds it."""
    skill = """
        import sys
        from prowess import skill_command
        PREPARED = "anyio._backends._asyncio" in sys.modules

        @skill_command
        def prepared() -> bool:
            return PREPARED
    """
    process, sock, board = started(write(tmp_path, t=skill))
    sock.sendall(encode_frame(Kind.DESCRIBE, 0, b'{"known":["t"]}'))
    with fail_after(PATIENCE):
        while (await asyncio.to_thread(receive, sock)).kind != Kind.CATALOG:
            pass
    sock.sendall(encode_frame(Kind.CALL, 1, b'{"command":"t.prepared"}', b"{}"))
    assert b'"result":true' in await until_answered(sock)
    sock.shutdown(socket.SHUT_WR)
    assert 0 == (await finished(process, sock, board))[0]


async def test_a_worker_that_is_asked_nothing_prepares_for_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    prepared = asyncio.Event()
    monkeypatch.setattr("prowess.worker.serving.prepare", prepared.set)
    ours, theirs = socket.socketpair()
    board = Board()
    ours.sendall(begin())
    serving = asyncio.ensure_future(serve(theirs, board, write(tmp_path)))
    with fail_after(PATIENCE):
        await prepared.wait()
        ours.close()
        assert 0 == await serving
    board.close()


async def test_a_process_goes_with_its_host(tmp_path: Path):
    """The end of the link is the end."""
    process, sock, board = started(write(tmp_path))
    sock.shutdown(socket.SHUT_WR)
    assert 0 == (await finished(process, sock, board))[0]


async def test_a_process_whose_host_is_gone_stays_until_its_children_are_killed(tmp_path: Path):
    """Its guard finds them through it, and may need a while on a busy machine."""
    skill = """
        import subprocess
        from pathlib import Path
        from prowess import hookimpl, skill_command

        class Service:
            pass

        def service():
            yield Service()
            Path("closed").touch()

        @hookimpl
        def prowess_injectables(provide):
            provide(Service, service)

        @skill_command
        async def start(service: Service) -> int:
            return subprocess.Popen(["sleep", "600"], env={}, start_new_session=True).pid
    """
    process, sock, board = started(write(tmp_path, t=skill), labelled=True)
    sock.sendall(encode_frame(Kind.CALL, 1, b'{"command":"t.start"}', b"{}"))
    child = int(re.search(rb'"result":(\d+)', await until_answered(sock))[1])  # type: ignore[index]
    sock.shutdown(socket.SHUT_WR)
    with fail_after(PATIENCE):
        while not (tmp_path / "closed").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", ""], check=True)  # long enough to end in
    assert process.poll() is None
    os.kill(child, signal.SIGKILL)
    with fail_after(PATIENCE):
        assert 0 == await asyncio.to_thread(process.wait)
    sock.close()
    process.communicate()
    board.close()


async def test_a_child_does_not_hold_the_link(tmp_path: Path):
    """A fork finds nothing where the link was."""
    skill = """
        import os
        from prowess import skill_command

        @skill_command
        async def fork(link: int) -> int:
            child = os.fork()
            if not child:
                os._exit(0 if os.path.samefile(f"/dev/fd/{link}", os.devnull) else 1)
            return os.waitpid(child, 0)[1]
    """
    process, sock, board = started(write(tmp_path, t=skill))
    link = int(process.args[5])  # type: ignore[index, arg-type]
    sock.sendall(encode_frame(Kind.CALL, 1, b'{"command":"t.fork"}', json.dumps({"link": link}).encode()))
    got = await until_answered(sock)
    assert b'"result":0' in got
    sock.shutdown(socket.SHUT_WR)
    assert 0 == (await finished(process, sock, board))[0]


async def test_settings_that_are_wrong_are_told_to_the_host(tmp_path: Path):
    """And the process ends with 1."""
    process, sock, board = started(write(tmp_path), {"timeuot": 1})
    code, sent, complaints = await finished(process, sock, board)
    assert (1, True, True) == (code, b"timeuot" in sent, "timeuot" in complaints)


async def test_a_process_that_cannot_serve_at_all_says_why(tmp_path: Path):
    """A link that is none: there is nobody but stderr to tell."""
    command = [sys.executable, "-P", "-m", "prowess.worker", "0", "-", str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE
    )
    assert (1, True) == (done.returncode, b"Traceback" in done.stderr)


async def test_serving_ends_with_the_host_and_closes_the_runtime(tmp_path: Path):
    """In this loop, as in a process."""
    ours, theirs = socket.socketpair()
    board = Board()
    ours.sendall(begin())
    serving = asyncio.ensure_future(serve(theirs, board, write(tmp_path)))
    with fail_after(PATIENCE):
        await asyncio.to_thread(ours.recv, 100)
        ours.close()
        assert 0 == await serving
    board.close()


async def test_serving_wrong_settings_is_a_failure(tmp_path: Path):
    ours, theirs = socket.socketpair()
    ours.sendall(begin({"timeuot": 1}))
    with fail_after(PATIENCE):
        assert 1 == await serve(theirs, Board(), write(tmp_path))
        assert b"timeuot" in await asyncio.to_thread(ours.recv, 1000)
    ours.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("link", [[2, 0], [0, 9], [], "1.0", [True], None])
async def test_a_host_with_another_version_of_the_link_is_refused(tmp_path: Path, link: Any):
    """With both versions and the remedy, and before anything of the project is read."""
    ours, theirs = socket.socketpair()
    ours.sendall(begin({"timeuot": 1}, link=link, release="9.9.9"))
    board = Board()
    with fail_after(PATIENCE):
        assert 1 == await serve(theirs, board, tmp_path / "missing")
        frame = await asyncio.to_thread(receive, ours)
    failed = json.loads(frame.head)
    assert (Kind.FAILED, list(VERSION), RELEASE) == (frame.kind, failed["link"], failed["release"])
    version = ".".join(map(str, VERSION))
    assert f"(release 9.9.9), the worker link {version} (release 0.1.0)" in failed["message"]
    assert f"`{install_command('prowess-core==9.9.9')}`" in failed["message"]
    ours.close()
    board.close()


async def test_a_host_with_a_newer_minor_version_is_served(tmp_path: Path):
    """Unknown fields and unknown kinds are ignored."""
    ours, theirs = socket.socketpair()
    ours.sendall(begin(link=[VERSION[0], 99], other={"a": 1}))
    ours.sendall(encode_frame(cast("Kind", 250), 7, b"?", b"?"))
    ours.sendall(encode_frame(Kind.PING))
    board = Board()
    serving = asyncio.ensure_future(serve(theirs, board, write(tmp_path)))
    with fail_after(PATIENCE):
        kinds = [(await asyncio.to_thread(receive, ours)).kind for _ in range(2)]
        ours.close()
        assert 0 == await serving
    assert [Kind.READY, Kind.PONG] == kinds
    board.close()


async def test_a_worker_process_refuses_a_host_with_another_version(tmp_path: Path):
    """And ends with 1; the reason stands on stderr, too."""
    process, sock, board = started(write(tmp_path), link=[9, 1])
    code, sent, complaints = await finished(process, sock, board)
    assert (1, True, True) == (code, b"link 9.1" in sent, "link 9.1" in complaints)


async def test_serving_goes_by_the_settings_of_the_host(tmp_path: Path):
    """Whatever the file says by now: it may just be broken."""
    (
        write(tmp_path, t="from prowess import skill_command\n@skill_command\ndef say(): ...\n") / "prowess.toml"
    ).write_text("[[")
    ours, theirs = socket.socketpair()
    board = Board()
    ours.sendall(begin(written=(str(tmp_path / "prowess.toml"), 'names = "dotted"\n')))
    ours.sendall(encode_frame(Kind.DESCRIBE, 0, b'{"known":[]}'))
    serving = asyncio.ensure_future(serve(theirs, board, tmp_path))
    with fail_after(PATIENCE):
        assert Kind.READY == (await asyncio.to_thread(receive, ours)).kind
        told = json.loads((await asyncio.to_thread(receive, ours)).head)
        assert "t.say" == told["skills"]["t"]["contracts"][0]["wire_name"]
        ours.close()
        assert 0 == await serving
    board.close()


async def test_serving_puts_the_file_of_the_environment_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """For libraries that read the environment. What is there already stays, and our own settings do not belong there."""
    monkeypatch.setenv("THERE_ALREADY", "here")
    monkeypatch.delenv("FROM_THE_FILE", raising=False)
    text = "FROM_THE_FILE=file\nTHERE_ALREADY=file\nPROWESS_NAMES=dotted\n"
    ours, theirs = socket.socketpair()
    board = Board()
    ours.sendall(begin(written=("", "", str(tmp_path / ".env"), text)))
    serving = asyncio.ensure_future(serve(theirs, board, tmp_path))
    with fail_after(PATIENCE):
        assert Kind.READY == (await asyncio.to_thread(receive, ours)).kind
        ours.close()
        assert 0 == await serving
    board.close()
    assert ("file", "here", None) == tuple(map(os.environ.get, ("FROM_THE_FILE", "THERE_ALREADY", "PROWESS_NAMES")))
    monkeypatch.delenv("FROM_THE_FILE")


async def test_serving_a_host_that_has_gone_already_is_over(tmp_path: Path):
    """There is nobody to tell."""
    ours, theirs = socket.socketpair()
    ours.close()
    board = Board()
    assert 0 == await serve(theirs, board, tmp_path)
    board.close()
    theirs.close()


async def test_root_is_on_the_path_only_once(tmp_path: Path):
    """Where the environment has put it there already."""
    root = write(tmp_path)
    command = [sys.executable, "-m", "prowess.worker", "0", "-", str(root), "{}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, env=env
    )
    assert 1 == done.returncode
