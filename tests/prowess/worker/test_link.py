"""Frames survive any cut, and the board agrees across processes."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from anyio import fail_after
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE

from prowess.worker.board import Board, Importing
from prowess.worker.link import Frame, FrameReader, Link, encode_frame, receive
from prowess.worker.messages import Kind

FRAMES = st.lists(
    st.tuples(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=50), st.binary(max_size=50))
)


@given(FRAMES, st.lists(st.integers(1, 40)))
def test_frames_arrive_whole_however_the_bytes_are_cut(sent: list, cuts: list[int]):
    """In order, with nothing lost or left."""
    data = b"".join(encode_frame(*frame) for frame in sent)
    reader, got = FrameReader(), []
    for cut in cuts:
        got += reader.feed(data[:cut])
        data = data[cut:]
    got += reader.feed(data)
    assert [Frame(*frame) for frame in sent] == got
    assert [] == reader.feed(b"")


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(1, 400_000)), st.booleans())
def test_large_frames_arrive_whole_as_well(sizes: list[int], cuts: list[int], in_place: bool):
    """Whether they are received in their places or cut from what has arrived."""
    sent = [Frame(Kind.RESULT, number, b"{}" * size, b"x" * size * 60_000) for number, size in enumerate(sizes)]
    data = b"".join(encode_frame(Kind.RESULT, *frame[1:]) for frame in sent)
    reader, got = FrameReader(), list[Frame]()
    for cut in [*cuts, *[300_000] * len(sizes) * 2]:
        if in_place and reader.room:
            with reader.room as room:
                part = data[: min(cut, len(room))]
                room[: len(part)] = part
            got += reader.fill(len(part))
        else:
            part = data[:cut]
            got += reader.feed(part)
        data = data[len(part) :]
    assert (sent, b"") == (got, data)
    assert not reader.room


def test_what_belongs_to_a_large_frame_may_also_come_with_the_next_one():
    """So in a connection without a place for it."""
    sent = [Frame(Kind.RESULT, 1, b"{}", b"x" * 200_000), Frame(Kind.PING, 2, b"", b"")]
    data = b"".join(encode_frame(Kind(frame.kind), *frame[1:]) for frame in sent)
    reader = FrameReader()
    assert [] == reader.feed(data[:5])
    assert [] == reader.feed(data[5:1000])
    assert 199_000 < len(reader.room)
    assert [] == reader.feed(data[1000:100_000])
    assert sent == reader.feed(data[100_000:])
    assert not reader.room


def test_no_room_is_made_for_what_is_only_announced():
    """A worker in another language may write anything."""
    reader = FrameReader()
    assert [] == reader.feed(encode_frame(Kind.RESULT)[:5] + b"\x00" * 4 + b"\xff" * 4)
    assert 2**32 - 1 == reader.announced
    assert not reader.room


async def linked() -> tuple[list, Link, Link, asyncio.Event]:
    """Two ends of a link, what the second one heard, and whether it was lost."""
    loop = asyncio.get_running_loop()
    heard: list[Frame] = []
    lost = asyncio.Event()
    one, other = Link(lambda _: None, lambda: None), Link(heard.append, lost.set)
    one.send(Kind.PING, 1, b"early")
    ours, theirs = socket.socketpair()
    await loop.create_connection(lambda: one, sock=ours)
    await loop.create_connection(lambda: other, sock=theirs)
    return heard, one, other, lost


async def test_a_link_passes_on_what_was_sent_before_it_was_made_and_after():
    """Also what is larger than any buffer."""
    heard, one, _, lost = await linked()
    one.send(Kind.RESULT, 7, b"{}", b"x" * 3_000_000)
    one.close()
    with fail_after(PATIENCE):
        await lost.wait()
    assert [(Kind.PING, 1), (Kind.RESULT, 7)] == [frame[:2] for frame in heard]
    assert 3_000_000 == len(heard[1].body)


async def test_large_frames_keep_their_places():
    """Those that are sent before the link is made too, and after frames that are held back."""
    heard: list[Frame] = []
    lost = asyncio.Event()
    one, other = Link(lambda _: None, lambda: None), Link(heard.append, lost.set)
    one.send(Kind.RESULT, 1, b"{}", b"x" * 300_000)
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: one, sock=ours)
    await asyncio.get_running_loop().create_connection(lambda: other, sock=theirs)
    one.send(Kind.RESULT, 2, more=True)
    one.send(Kind.RESULT, 3, b"{}", b"y" * 300_000, more=True)
    one.send(Kind.RESULT, 4, b"z" * 300_000)
    one.close()
    one.send(Kind.RESULT, 5, b"{}", b"x" * 300_000)  # too late
    with fail_after(PATIENCE):
        await lost.wait()
    assert [1, 2, 3, 4] == [frame.number for frame in heard]
    assert [b"x", b"", b"y", b"z"] == [(frame.body or frame.head)[-1:] for frame in heard]


async def test_an_end_may_let_the_other_one_wait():
    """What was sent meanwhile arrives later."""
    heard, one, other, lost = await linked()
    for end in (other, Link(heard.append, lost.set)):  # one without a connection has nobody to wait for it
        end.hold()
    one.send(Kind.RESULT, 7, b"{}", b"x" * 3_000_000)
    assert one.full
    one.close()
    await asyncio.sleep(0)
    assert not lost.is_set()
    for end in (other, Link(heard.append, lost.set)):
        end.go_on()
    with fail_after(PATIENCE):
        await lost.wait()
    assert [(Kind.PING, 1), (Kind.RESULT, 7)] == [frame[:2] for frame in heard]


async def test_a_frame_that_is_announced_too_long_ends_the_reading():
    """What came before it counts, and what comes after it does not."""
    heard, one, other, lost = await linked()
    sizes: list[int] = []
    other.bound(5_000_000, sizes.append)
    one.send(Kind.RESULT, 7, b"{}", b"x" * 5_000_000)
    one.send(Kind.RESULT, 8, b"{}", b"x" * 4_999_998)
    one.send(Kind.RESULT, 9)
    with fail_after(PATIENCE):
        await lost.wait()
    assert ([5_000_002], [(Kind.PING, 1)]) == (sizes, [frame[:2] for frame in heard])
    one.close()


def test_nothing_is_heard_after_a_frame_that_is_announced_too_long():
    """Even if it has arrived by then. A part of a header announces nothing yet."""
    heard: list[Frame] = []
    sizes: list[int] = []
    link = Link(heard.append, lambda: None)
    link.bound(100, sizes.append)
    too_long = encode_frame(Kind.RESULT, 7, b"{}", b"x" * 100)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(too_long[:2])
        link.drain(ours)
        assert [] == sizes
        theirs.sendall(too_long[2:50])
        link.drain(ours)
        assert [102] == sizes
        theirs.sendall(too_long[50:] + encode_frame(Kind.PING, 2))
        link.drain(ours)
    assert ([102], []) == (sizes, heard)


@pytest.mark.parametrize(("size", "is_known"), [(5, False), (20, True), (25, False)])
def test_a_frame_that_has_arrived_in_part_is_known(size: int, is_known: bool):
    """By the number of its call, which its header tells."""
    link = Link(lambda _: None, lambda: None)
    link._chunk[:size] = encode_frame(Kind.RESULT, 7, b"{}", b"x" * 10)[:size]
    link.buffer_updated(size)
    assert (is_known, False) == (link.is_receiving(7), link.is_receiving(8))


async def test_frames_that_go_together_keep_their_places():
    """Before whatever is sent later, also where that goes at once or is the end."""
    heard, one, _, lost = await linked()
    for number, size in ((2, 1), (3, 1), (4, 100_000), (5, 1), (6, 1)):
        one.send(Kind.RESULT, number, b"{}", b"x" * size, more=True)
    await asyncio.sleep(0)
    one.send(Kind.RESULT, 7, more=True)
    one.send(Kind.RESULT, 8)
    one.send(Kind.RESULT, 9, more=True)
    one.close()
    one.send(Kind.RESULT, 10, more=True)
    with fail_after(PATIENCE):
        await lost.wait()
    assert list(range(1, 10)) == [frame.number for frame in heard]


async def test_the_other_end_gets_work_while_frames_are_held_back():
    """Sixteen go together, without a turn of the loop between them."""
    link = Link(lambda _: None, lambda: None)
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    for number in range(40):
        link.send(Kind.RESULT, number, more=True)
    assert list(range(32)) == [receive(theirs).number for _ in range(32)]
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        receive(theirs)
    link.close()
    theirs.settimeout(PATIENCE)
    assert list(range(32, 40)) == [receive(theirs).number for _ in range(8)]
    theirs.close()


def as_if_blocked(one: Link) -> None:
    """Send what is held back from another thread, while this one, which is the loop's, waits."""
    thread = threading.Thread(target=one.release_from_thread)
    thread.start()
    thread.join()


async def test_what_is_held_back_leaves_while_something_blocks_the_loop():
    """What the system does not take stays, in its place."""
    link = Link(lambda _: None, lambda: None)
    as_if_blocked(link)  # nothing is connected yet
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    as_if_blocked(link)
    link.send(Kind.RESULT, 1, more=True)
    link.send(Kind.RESULT, 2, more=True)
    as_if_blocked(link)
    assert [1, 2] == [receive(theirs).number for _ in range(2)]
    many = range(3, 103)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    for number in many:
        link.send(Kind.RESULT, number, b"{}", b"x" * 10_000, more=True)
    as_if_blocked(link)
    assert link._held
    with fail_after(PATIENCE):
        assert list(many) == await asyncio.to_thread(lambda: [receive(theirs).number for _ in many])
    theirs.close()
    link.close()
    as_if_blocked(link)


def test_what_has_arrived_can_be_taken_without_a_loop(monkeypatch: pytest.MonkeyPatch):
    """All of it, and no more than so many chunks; then the end, or nothing for now."""
    heard: list[Frame] = []
    link = Link(heard.append, lambda: None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        link.drain(ours)
        theirs.sendall(encode_frame(Kind.PING, 1) + encode_frame(Kind.PING, 2))
        link.drain(ours)
        assert [1, 2] == [frame.number for frame in heard]
        theirs.sendall(encode_frame(Kind.PING, 3))
        monkeypatch.setattr("prowess.worker.link._MOST_CHUNKS", 1)
        link.drain(ours)
        assert 3 == heard[-1].number
        theirs.close()
        link.drain(ours)
    assert 3 == len(heard)


async def test_sending_to_nobody_does_nothing():
    """Its owner hears of the end elsewhere."""
    _, one, other, lost = await linked()
    other.close()
    one.close()
    one.send(Kind.PING)
    with fail_after(PATIENCE):
        await lost.wait()
    Link(lambda _: None, lambda: None).close()  # also before there was a connection


@pytest.mark.skipif(sys.platform != "linux", reason="memfd")
def test_a_board_without_room_is_refused_and_leaves_nothing_open() -> None:
    import resource  # not on every system

    before, (soft, hard) = len(list(Path("/proc/self/fd").iterdir())), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            Board()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert before == len(list(Path("/proc/self/fd").iterdir()))


def test_the_board_is_one_for_both_sides():
    """What the host forgets or retires, the worker sees; what the worker starts, the host."""
    host = Board()
    worker = Board(os.dup(host.fd))
    assert not host.started(5)
    assert worker.start(5)
    assert (True, False) == (host.started(5), host.started(6))
    host.forget(5)
    assert not worker.started(5)
    host.retire()
    assert not worker.start(6)
    assert host.started(6)  # as far as the host must fear
    for board in (host, worker):
        board.close()


def test_a_note_on_the_board_outlives_who_wrote_it():
    """As far as it fits, in whatever letters a path may have."""
    host = Board()
    worker = Board(os.dup(host.fd))
    one, other = Importing(1, "one", "/a/\udcff.py"), Importing(2, "other", "/b.py")
    assert () == host.noted
    worker.note([one, other])
    worker.close()
    assert (one, other) == host.noted
    host.note([one, Importing(3, "long", "x" * 100_000)])
    assert (one,) == host.noted
    host.note([])
    assert () == host.noted
    host.close()


def test_a_note_that_is_half_written_says_nothing():
    """The host may read it just then, and a worker may end just then."""
    host = Board()
    host.note([Importing(1, "one", "/a.py")])
    host._memory[-60000:] = bytes(60000)
    host._memory[2 * Board.SLOTS + 10] = 0
    assert () == host.noted
    host.close()


def test_a_call_that_is_withdrawn_does_not_start():
    """The others do, and once it is forgotten its slot is free for another one."""
    host = Board()
    worker = Board(os.dup(host.fd))
    host.withdraw([5, 6])
    assert not worker.start(5)
    assert worker.start(7)
    assert [True, False, True] == [host.started(number) for number in (5, 6, 7)]
    host.forget(5)
    assert worker.start(5)
    for board in (host, worker):
        board.close()


def test_a_beat_changes_what_the_other_end_sees():
    """However many there were; and it is 0 only before the first one."""
    host = Board()
    worker = Board(os.dup(host.fd))
    seen = [host.beats]
    for _ in range(600):
        worker.beat()
        seen.append(host.beats)
    assert 0 == seen[0]
    assert all(one != other for one, other in pairwise(seen))
    assert 0 not in seen[1:]
    for board in (host, worker):
        board.close()


async def test_a_frame_can_be_waited_for_without_a_loop():
    """However it is cut; and the other end may go in the midst of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frame = encode_frame(Kind.CALL, 7, b"head", b"body" * 100_000)
        with fail_after(PATIENCE):
            sending = asyncio.to_thread(ours.sendall, frame + frame[:20])
            receiving = asyncio.to_thread(receive, theirs)
            got, _ = await asyncio.gather(receiving, sending)
        assert Frame(Kind.CALL, 7, b"head", b"body" * 100_000) == got
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs)


def test_numbers_share_slots_only_when_they_are_far_apart():
    """And none has the slot that says that the worker is retired."""
    slots = {Board.slot(number) for number in range(Board.SLOTS - 1)}
    assert Board.SLOTS - 1 == len(slots)
    assert 0 not in slots
    assert Board.slot(1) == Board.slot(Board.SLOTS)


async def test_what_the_other_end_sent_before_it_was_gone_arrives_although_something_is_sent_to_it():
    """A worker that ends may have answered and begun calls. Sending it another one must not lose that."""
    got, lost = list[Frame](), asyncio.Event()
    link = Link(got.append, lost.set)
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    theirs.sendall(encode_frame(Kind.BEGUN, 1) + encode_frame(Kind.RESULT, 1))
    theirs.close()
    link.send(Kind.CALL, 2)
    with fail_after(PATIENCE):
        await lost.wait()
    assert [Kind.BEGUN, Kind.RESULT] == [frame.kind for frame in got]


async def test_an_end_whose_other_end_is_gone_holds_no_buffers():
    """Not even half a frame: whoever looks after dead processes may hold it for a while."""
    loop, lost = asyncio.get_running_loop(), asyncio.Event()
    half = encode_frame(Kind.RESULT, 1, b"", b"x" * 2_000_000)[:-1]
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    tracemalloc.start()
    try:
        link = Link(lambda _: None, lost.set)
        await loop.create_connection(lambda: link, sock=theirs)
        with ours, fail_after(PATIENCE):
            await loop.sock_sendall(ours, half)
        with fail_after(PATIENCE):
            await lost.wait()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no file in memory here")
def test_a_worker_cannot_shorten_the_board():
    """The host would end with the next look at it."""
    board = Board()
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(board.fd, size)
    assert not board.started(1)
    board.close()


@pytest.mark.parametrize("note", [b"5", b"[5]", b'[["x", "skill", "file"]]', b"[[1, 2]]", b"{", b"\xff"])
def test_nonsense_on_the_board_is_no_import(note: bytes):
    """A worker may write there what it likes."""
    board = Board()
    board._memory[2 * Board.SLOTS + 1 : 2 * Board.SLOTS + 1 + len(note)] = note
    assert board.noted == ()
    board.close()
