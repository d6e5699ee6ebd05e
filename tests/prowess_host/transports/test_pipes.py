"""The client's ends of the pipes: nothing blocks the loop, nothing is lost, and a client that is gone is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from anyio import fail_after
from patience import PATIENCE
from piped import until
from refused import no_more_threads

from prowess_host.cli.main import _LAST_WORDS
from prowess_host.stderr import Complaints
from prowess_host.transports.pipes import Reader, Writer


@contextlib.contextmanager
def pipe():
    """Both ends of a pipe, closed at the end whatever became of them."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for fd in ends:
            with contextlib.suppress(OSError):
                os.close(fd)


async def test_a_reader_hands_over_what_arrives_and_then_nothing():
    """An empty chunk is the end."""
    with pipe() as (reading, writing):
        got: asyncio.Queue[bytes] = asyncio.Queue()
        reader = Reader(reading, got.put_nowait)
        reader.start()
        reader.start()  # reading already
        os.write(writing, b"one")
        with fail_after(PATIENCE):
            assert b"one" == await got.get()
            os.close(writing)
            assert b"" == await got.get()
        reader.start()  # over
        assert got.empty()


async def test_a_paused_reader_knows_when_the_client_has_left():
    """Although what it said has not been read."""
    with pipe() as (reading, writing):
        got: asyncio.Queue[bytes] = asyncio.Queue()
        reader = Reader(reading, got.put_nowait)
        os.write(writing, b"unread")
        assert not reader.has_left
        os.close(writing)
        assert reader.has_left
        reader.start()
        with fail_after(PATIENCE):
            assert b"unread" == await got.get()


@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="only Linux tells the capacity of a pipe")
async def test_a_long_line_makes_the_pipe_larger():
    """Client and host change less often then. Many short lines do not need that."""
    with pipe() as (reading, writing):
        usual = fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ)
        got: list[bytes] = []
        reader = Reader(reading, got.append)
        for data, is_larger in ((b"x\n" * (usual // 2), False), (b"x" * usual, True), (b"x" * 2 * usual, True)):
            os.write(writing, data)
            reader._read()
            assert data == got.pop()
            assert is_larger == (fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ) > usual)


async def test_a_long_line_may_come_by_a_socket():
    """Whose buffers are not those of a pipe."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        got = bytearray()
        reader = Reader(ours.fileno(), got.extend)
        sent = b"x" * 500_000
        thread = threading.Thread(target=theirs.sendall, args=(sent,))
        thread.start()
        while len(got) < len(sent):
            reader._read()
        thread.join()
    assert sent == got


async def test_a_non_blocking_end_without_anything_to_read_is_no_end():
    with pipe() as (reading, _):
        os.set_blocking(reading, False)
        got: list[bytes] = []
        Reader(reading, got.append)._read()
        assert [] == got


async def test_an_end_that_cannot_be_read_is_the_end(tmp_path: Path):
    """Whatever the reason."""
    fd = os.open(tmp_path, os.O_RDONLY)  # a folder
    got: list[bytes] = []
    Reader(fd, got.append)._read()
    os.close(fd)
    assert [b""] == got


async def test_a_paused_file_is_not_read(tmp_path: Path):
    (tmp_path / "session").write_bytes(b"x" * 600_000)
    fd = os.open(tmp_path / "session", os.O_RDONLY)
    got: list[bytes] = []
    reader = Reader(fd, lambda data: (got.append(data), reader.pause()))
    reader.start()
    await until(lambda: got)
    for _ in range(5):
        await asyncio.sleep(0)
    assert 1 == len(got)
    reader.start()
    reader.start()
    await until(lambda: len(got) == 2)
    os.close(fd)


async def test_a_writer_keeps_the_order_of_small_and_large():
    """What does not fit waits, and everything after it."""
    with pipe() as (reading, writing):
        writer = Writer(writing, lambda: None)
        assert writer.flush(0)
        lines = [b"a" * size + b"\n" for size in (1, 300_000, 5, 70_000, 1)]
        for line in lines:
            writer.write(line)
        writer.write(b"")
        assert writer.backlog > 0
        assert not writer.full
        with fail_after(PATIENCE):
            got = b""
            while len(got) < sum(map(len, lines)):
                got += await asyncio.to_thread(os.read, reading, 65536)
            assert b"".join(lines) == got
            assert await asyncio.to_thread(writer.flush, 5)


async def test_a_client_that_reads_slowly_gets_everything_at_the_end():
    """As long as it goes on reading; one that has stopped is not waited for."""
    with pipe() as (reading, writing):
        writer = Writer(writing, lambda: None)
        writer.write(b"x" * 300_000)
        writer.write(b"y" * 300_000)
        flushing = asyncio.create_task(asyncio.to_thread(writer.flush, 5))
        got = 0
        while got < 600_000:
            got += len(await asyncio.to_thread(os.read, reading, 8192))
        assert await flushing
    with pipe() as (reading, writing):
        writer = Writer(writing, lambda: None)
        writer.write(b"x" * 300_000)
        assert not await asyncio.to_thread(writer.flush, 0.01)


async def test_a_client_that_reads_slowly_gets_everything_without_a_thread():
    """Now and then the loop writes what there is room for. At the end, one that has stopped is not waited for."""
    sizes = (300_000, 10, 200_000)
    with pipe() as (reading, writing), no_more_threads():
        os.set_blocking(reading, False)
        writer = Writer(writing, lambda: None)
        for size in sizes:
            writer.write(b"x" * size)
        got = 0
        with fail_after(PATIENCE):
            while got < 400_000:
                await asyncio.sleep(0.001)
                with contextlib.suppress(BlockingIOError):
                    got += len(os.read(reading, 65536))
        assert not writer.flush(0.0)
        while got < sum(sizes):
            writer.flush(0.01)
            got += len(os.read(reading, 65536))
        assert writer.flush(0.0)


async def test_what_goes_together_is_written_at_the_end_of_the_turn():
    """In one piece, and in its place before whatever comes later."""
    with pipe() as (reading, writing):
        os.set_blocking(reading, False)
        writer = Writer(writing, lambda: None)
        writer.write(b"1\n", more=True)
        writer.write(b"2\n", more=True)
        with pytest.raises(BlockingIOError):
            os.read(reading, 100)
        await asyncio.sleep(0)
        assert b"1\n2\n" == os.read(reading, 100)
        writer.write(b"3\n", more=True)
        writer.write(b"4\n")
        assert b"3\n4\n" == os.read(reading, 100)
        writer.write(b"5\n", more=True)
        assert writer.flush(0)
        assert b"5\n" == os.read(reading, 100)


async def test_what_is_large_is_not_held_back():
    """To copy it once more would cost more than to write it alone."""
    with pipe() as (reading, writing):
        writer = Writer(writing, lambda: None)
        writer.write(b"1\n", more=True)
        writer.write(b"x" * 20_000, more=True)
        assert b"1\n" + b"x" * 20_000 == os.read(reading, 65536)


async def test_a_writer_without_a_reader_says_so_once():
    """Also where it finds out in its thread."""
    with pipe() as (reading, writing):
        broken: list[bool] = []
        writer = Writer(writing, lambda: broken.append(True))
        writer.write(b"x" * 300_000)
        assert not await asyncio.to_thread(writer.flush, 0)
        os.close(reading)
        await until(lambda: broken)
        writer.write(b"x")
        assert [True] == broken


async def test_a_writer_to_a_file_writes_everything(tmp_path: Path):
    with (tmp_path / "out").open("wb") as file:
        writer = Writer(file.fileno(), lambda: None)
        writer.write(b"one\n")
        writer.write(b"two\n")
        assert await asyncio.to_thread(writer.flush, 5)
    assert b"one\ntwo\n" == (tmp_path / "out").read_bytes()


def test_complaints_that_nobody_reads_are_dropped():
    """Whoever complains does not wait."""
    with pipe() as (reading, writing):
        complaints = Complaints(writing, 1_000_000)
        text = "é" * 1_000_000
        assert len(text) == complaints.write(text)
        assert len(text) == complaints.write(text)
        assert complaints.writable()
        os.close(reading)
        assert 1 == complaints.write("\ud800")
        complaints.finish(PATIENCE)  # else it writes to whatever has this descriptor next


@pytest.mark.parametrize("over", ["pipe", "socket"])
def test_how_much_was_dropped_is_told_on_a_line_of_its_own(over: str):
    """Also after a line of which only the beginning was written. The newest lines are kept."""
    ends = os.pipe() if over == "pipe" else [end.detach() for end in socket.socketpair()]
    complaints = Complaints(ends[1], 1000)
    complaints.send(b"x" * 1_000_000 + b"\n")
    for number in range(1000):
        complaints.send(b"%d\n" % number)
    got = b""
    while not got.endswith(b"\n999\n"):
        got += os.read(ends[0], 65536)
    complaints.finish(PATIENCE)
    torn, *told = got.decode().splitlines()
    notes = [int(line.split()[1]) for line in told if line.endswith("lines were dropped: nobody read stderr")]
    kept = [int(line) for line in told if not line.startswith("prowess: ")]
    assert {"x"} == set(torn)
    assert 1001 == sum(notes) + len(kept)  # the long line counts: it is torn
    assert (sorted(kept), 999) == (kept, kept[-1])
    for fd in ends:
        os.close(fd)


def test_a_reader_that_is_slow_for_ever_learns_how_many_lines_it_will_not_get():
    """The end waits as long as something is read, within bounds; what was said and what was read add up."""
    with pipe() as (reading, writing):
        complaints = Complaints(writing)
        for number in range(100_000):
            complaints.send(b"%d\n" % number)
        turn = threading.Semaphore(0)
        got = bytearray()

        def read_by_turns() -> None:
            while turn.acquire() and b"nobody read stderr" not in got:
                got.extend(os.read(reading, 8192))

        reader = threading.Thread(target=read_by_turns)
        reader.start()
        waits, seconds = complaints._changed.wait_for, list[float]()

        def wait_for(_ready: Callable[[], bool], patience: float) -> bool:
            """The reader has one turn, and something is written, before the patience ends."""
            seconds.append(patience)
            before = complaints._taken
            turn.release()
            while complaints._draining and complaints._taken == before:
                waits(lambda: not complaints._draining, 0.01)
            return not complaints._draining

        complaints._changed.wait_for = wait_for  # type: ignore[method-assign]
        complaints.finish(0.5)
        complaints._changed.wait_for = waits  # type: ignore[method-assign]
        turn.release(1000)
        reader.join()
        *kept, note = got.decode().splitlines()
        whole = [line for number, line in enumerate(kept) if line == str(number)]
        assert [0.5] * 11 == seconds
        assert f"prowess: {100_000 - len(whole)} lines were dropped: nobody read stderr" == note
        assert len(kept) - len(whole) <= 1  # the one that is torn


def test_the_end_waits_for_a_reader_that_takes_all():
    """Nothing is dropped, whoever is quicker."""
    with pipe() as (reading, writing):
        complaints = Complaints(writing)
        for number in range(50_000):
            complaints.send(b"%d\n" % number)
        got = bytearray()

        def read() -> None:
            while not got.endswith(b"\n49999\n"):
                got.extend(os.read(reading, 65536))

        reader = threading.Thread(target=read)
        reader.start()
        complaints.finish(PATIENCE)
        reader.join()
        assert [str(number) for number in range(50_000)] == got.decode().splitlines()


LEAVES = """
from prowess_host.cli.main import leave
from prowess_host.stderr import complaints
complaints().send(b"".join(b"%d\\n" % number for number in range(60_000)))
leave(3)
"""


def test_a_host_that_leaves_has_patience_with_a_slow_reader():
    """It waits much longer than for one that reads nothing, as long as it is read now and then: nothing is lost."""
    with subprocess.Popen([sys.executable, "-c", LEAVES], stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stderr is not None
        got, began, longest = b"", time.monotonic(), 0.0
        while data := process.stderr.read(20_000):
            got += data
            pausing = time.monotonic()
            time.sleep(0.2)
            longest = max(longest, time.monotonic() - pausing)
        took = time.monotonic() - began
    lines = got.decode().splitlines()
    assert 3 == process.returncode
    assert took > 2 * _LAST_WORDS  # it would have left without its reader
    if longest < _LAST_WORDS / 2:  # else this machine did not let the reader read
        assert [str(number) for number in range(60_000)] == lines


def test_a_socket_and_a_terminal_are_never_waited_for():
    """A terminal may be halted, so a thread writes to it."""
    one, other = socket.socketpair()
    with one, other:
        Complaints(other.fileno()).send(b"one\n")
        assert b"one\n" == one.recv(9)
    master, slave = os.openpty()
    complaints = Complaints(slave)
    complaints.send(b"one\n")
    assert b"one\r\n" == os.read(master, 9)
    complaints.finish(PATIENCE)
    os.close(master)
    os.close(slave)


def test_complaints_go_to_files_whole(tmp_path: Path):
    with (tmp_path / "log").open("w") as file:
        Complaints(file.fileno()).write("é\ud800\n")
    assert "é\\ud800\n" == (tmp_path / "log").read_text()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_claiming_bears_what_is_closed_already(tmp_path: Path, closed: str):
    """What is opened later does not take the place of what was closed."""
    script = (
        "from prowess_host.transports.claim import claim; import os; wire = claim();"
        "file = os.open('f', os.O_CREAT | os.O_RDWR); os.write(1, b'printed'); print(os.read(0, 9));"
        "os.write(file, repr((min(wire) > 2, file > 2)).encode())"
    )
    subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", script],
        cwd=tmp_path,
        check=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert "(True, True)" == (tmp_path / "f").read_text()


async def test_what_was_written_is_let_go_of():
    """Also the last message, although the thread that wrote it waits for another."""
    with pipe() as (reading, writing):
        writer = Writer(writing, lambda: None)
        line = b"x" * 300_000 + b"\n"
        held = sys.getrefcount(line)
        writer.write(line)
        rest = len(line)
        while rest:
            rest -= len(await asyncio.to_thread(os.read, reading, rest))
        await until(lambda: not writer.backlog and sys.getrefcount(line) == held)
        assert writer.flush(5)
