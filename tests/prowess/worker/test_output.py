"""What is printed in a worker: told apart by label, in order, and never in the way of the event loop."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context

import pytest
from patience import PATIENCE
from refused import no_more_threads

from prowess.worker import output
from prowess.worker.output import Outlet, Printer


class Pipe:
    """A pipe whose other end is read when the test says so."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.got = b""

    def fill(self) -> None:
        """Leave no room in it."""
        os.set_blocking(self.writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writing, b" " * 4096)
        os.set_blocking(self.writing, True)

    def read(self, end: bytes) -> bytes:
        """What was written, up to this end."""
        while not self.got.endswith(end):
            self.got += os.read(self.reading, 65536)
        return self.got.lstrip(b" ")

    def records(self, last: bytes) -> list[tuple[str, str]]:
        """The labels and the texts, up to a text with this end."""
        return parsed(self.read(last + output.END))


def parsed(data: bytes) -> list[tuple[str, str]]:
    return re.findall("\x1e([^\x1f]*)\x1f([^\x1d]*)\x1d", data.decode())


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for fd in (made.reading, made.writing):
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.fixture(params=[True, False], ids=["opened anew", "asked for room"])
def outlet(request: pytest.FixtureRequest, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> Outlet:
    """On a system that can open a pipe anew, and on one that cannot."""
    if not request.param:
        monkeypatch.setattr(output, "_OPEN_PIPES", "/no/such/folder")
    return Outlet(pipe.writing)


def stream(outlet: Outlet) -> io.TextIOWrapper:
    return io.TextIOWrapper(Printer(outlet, 1), encoding="utf-8", newline="\n", write_through=True)


def test_lines_bear_the_label_of_whoever_prints(outlet: Outlet, pipe: Pipe):
    """A skill that is being imported, for whatever command; else the command."""
    out = stream(outlet)

    def print_as(command: str, skill: str) -> None:
        output.command.set(command)
        output.importing.set(skill)
        print("from", repr(command), file=out)

    for command, skill in (("", ""), ("t.say", ""), ("t.say", "other")):
        copy_context().run(print_as, command, skill)
    assert [("", "from ''\n"), ("t.say", "from 't.say'\n"), ("other", "from 't.say'\n")] == pipe.records(
        b"from 't.say'\n"
    )


def test_half_a_line_waits_for_its_end_or_a_flush(outlet: Outlet, pipe: Pipe):
    """Those of two commands are not mixed."""
    out = stream(outlet)

    def print_as(command: str, text: str, *, flush: bool = False) -> None:
        output.command.set(command)
        print(text, end="", file=out, flush=flush)

    for command, text in (("a", "one "), ("b", "uno "), ("a", "two\nthree"), ("b", "due\n")):
        copy_context().run(print_as, command, text)
    copy_context().run(print_as, "a", " four", flush=True)
    copy_context().run(print_as, "a", "", flush=True)  # there is nothing to flush
    assert [("a", "one two\n"), ("b", "uno due\n"), ("a", "three four")] == pipe.records(b"four")


def test_at_the_end_half_lines_are_let_go_of(outlet: Outlet, pipe: Pipe):
    printer = Printer(outlet, 2)
    printer.write(b"half")
    printer.finish()
    assert [("", "half")] == pipe.records(b"half")
    assert ("<stderr>", 2, True) == (printer.name, printer.fileno(), printer.writable())
    printer.close()
    printer.flush()  # of no effect


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_long_line_goes_in_pieces_of_which_the_pipe_takes_each_whole(outlet: Outlet, pipe: Pipe, end: str):
    """Also one without an end: it is not kept."""
    Printer(outlet, 1).write(b"x" * 10_000 + end.encode())
    data = pipe.read(b"x" + end.encode() + output.END)
    assert "x" * 10_000 + end == "".join(text for _, text in parsed(data))
    assert max(map(len, data.split(output.END))) < 4096


def test_what_parts_records_is_taken_out_of_texts_and_labels(outlet: Outlet, pipe: Pipe):
    def print_it() -> None:
        output.command.set("a\x1f\x1db" * 1000)
        Printer(outlet, 1).write(b"\x1eone\x1d\n")

    copy_context().run(print_it)
    [(label, text)] = pipe.records(b"one\n")
    assert (True, "one\n") == (set(label) == {"a", "b"} and len(label) <= 512, text)


def test_what_does_not_fit_waits_and_keeps_its_order(outlet: Outlet, pipe: Pipe):
    """The one that prints, which may be the event loop, does not wait."""
    pipe.fill()
    printer = Printer(outlet, 1)
    for number in range(20_000):
        printer.write(b"%d\n" % number)
    texts = [text for _, text in pipe.records(b"19999\n")]
    assert [f"{number}\n" for number in range(20_000)] == texts
    outlet.flush(PATIENCE)


def test_no_skill_closes_what_others_print_to(outlet: Outlet, pipe: Pipe):
    """Not as the end of a `with`, nor by wrapping the bytes below it in another text stream, which ends the first one."""
    out = stream(outlet)
    with out:
        out.write("one\n")
    out.write("two\n")
    out = io.TextIOWrapper(out.buffer, encoding="utf-8", write_through=True)
    gc.collect()
    out.write("three\n")
    assert ["one\n", "two\n", "three\n"] == [text for _, text in pipe.records(b"three\n")]


def test_a_flush_gives_up_where_nobody_reads_and_says_what_was_dropped(outlet: Outlet, pipe: Pipe):
    pipe.fill()
    for _ in range(1000):
        Printer(outlet, 1).write(b"one\n")
    outlet.flush(0.01, notice=0.01)
    assert [("prowess", "1000 pieces of output were lost: the host did not read them in time\n")] == pipe.records(
        b"in time\n"
    )
    outlet.flush(PATIENCE)


def test_a_flush_goes_on_while_somebody_reads(outlet: Outlet, pipe: Pipe):
    """However slowly: what counts is that something is read again and again."""
    pipe.fill()
    printer = Printer(outlet, 1)
    for number in range(20_000):
        printer.write(b"%d\n" % number)
    turn = threading.Semaphore(0)
    told = threading.Thread(target=_read_by_turns, args=(pipe, turn, b"19999\n"))
    told.start()
    waits = outlet._changed.wait_for

    def wait_for(ready: Callable[[], bool], seconds: float) -> bool:
        """A turn of the reader for each wait, which is as long as the flush is told to wait."""
        turn.release()
        waited.append(seconds)
        return waits(ready, PATIENCE)

    waited: list[float] = []
    outlet._changed.wait_for = wait_for  # type: ignore[method-assign]
    outlet.flush(0.001, PATIENCE)
    turn.release(1000)
    told.join()
    assert [f"{number}\n" for number in range(20_000)] == [text for _, text in parsed(pipe.got.lstrip(b" "))]
    assert (True, 0.001) == (len(waited) > 1, max(waited))


def _read_by_turns(pipe: Pipe, turn: threading.Semaphore, end: bytes) -> None:
    while not pipe.got.endswith(end + output.END):
        turn.acquire()
        pipe.got += os.read(pipe.reading, 65536)


def test_a_flush_of_what_never_ends_is_bounded_and_the_numbers_add_up(outlet: Outlet, pipe: Pipe):
    pipe.fill()
    printer = Printer(outlet, 1)
    for number in range(20_000):
        printer.write(b"%d\n" % number)
    outlet.flush(0.01, 0.0, 0.01)
    *kept, last = pipe.records(b"in time\n")
    assert [f"{number}\n" for number in range(len(kept))] == [text for _, text in kept]
    assert f"{20_000 - len(kept)} pieces of output were lost: the host did not read them in time\n" == last[1]


def test_what_the_event_loop_cannot_keep_is_lost_and_that_is_told(pipe: Pipe):
    """Once nobody has read for a moment, nobody waits again."""
    pipe.fill()
    outlet = Outlet(pipe.writing, most=100, patience=PATIENCE, loop_patience=0.01)
    for number in range(1000):
        outlet.send(b"\x1et\x1f%04d\n\x1d" % number)
    told = pipe.records(b"in time\n")
    kept = len(told) - 1
    assert [*(("t", f"{number:04d}\n") for number in range(kept))] == told[:-1]
    assert ("prowess", f"{1000 - kept} pieces of output were lost: the host did not read them in time\n") == told[-1]


def test_a_note_about_lost_output_that_is_lost_itself_counts_for_what_it_tells(pipe: Pipe):
    """The numbers add up, although nobody read for long."""
    pipe.fill()
    outlet = Outlet(pipe.writing, most=150, patience=0.0, loop_patience=0.0)
    for size, count in (
        (100, 11),
        (1, 1),
    ):  # of the eleven, the first is kept; the last fits after the note about the others
        for _ in range(count):
            outlet.send(b"\x1et\x1f%b\n\x1d" % (b"x" * size))
    outlet.flush(0.01, 0.0, 0.01)
    assert [("prowess", "12 pieces of output were lost: the host did not read them in time\n")] == pipe.records(
        b"in time\n"
    )


def test_what_is_lost_is_told_where_it_is_missing(pipe: Pipe):
    """Before what is printed after it."""
    pipe.fill()
    outlet = Outlet(pipe.writing, most=100, patience=0.0, loop_patience=0.0)
    for number in range(50):
        outlet.send(b"\x1et\x1f%04d\n\x1d" % number)
    pipe.records(b"in time\n")
    pipe.got = b""
    outlet.send(b"\x1et\x1flast\n\x1d")
    assert [("t", "last\n")] == pipe.records(b"last\n")


def test_a_record_that_fits_again_comes_after_what_is_said_of_the_lost_ones(pipe: Pipe):
    pipe.fill()
    outlet = Outlet(pipe.writing, most=100, patience=0.0, loop_patience=0.0)
    outlet.send(b"\x1et\x1f%b\n\x1d" % (b"a" * 60))
    outlet.send(b"\x1et\x1f%b\n\x1d" % (b"b" * 60))
    outlet.send(b"\x1et\x1fc\n\x1d")
    assert ["a" * 60 + "\n", "1 pieces", "c\n"] == [text.partition(" of")[0] for _, text in pipe.records(b"c\n")]


def test_what_no_thread_can_wait_with_is_lost_and_that_is_told(pipe: Pipe):
    pipe.fill()
    outlet = Outlet(pipe.writing)
    with no_more_threads():
        outlet.send(b"\x1et\x1flost\n\x1d")
    outlet.send(b"\x1et\x1fkept\n\x1d")
    told = [text.partition(" of")[0] for _, text in pipe.records(b"kept\n")]
    assert ["1 pieces", "kept\n"] == told


def test_a_thread_waits_for_room(pipe: Pipe):
    """So that a sync command loses nothing while the host reads, however slowly."""
    pipe.fill()
    outlet = Outlet(pipe.writing, most=100, patience=PATIENCE)

    def send() -> None:
        for number in range(1000):
            outlet.send(b"\x1et\x1f%04d\n\x1d" % number)

    thread = threading.Thread(target=send)
    thread.start()
    assert [f"{number:04d}\n" for number in range(1000)] == [text for _, text in pipe.records(b"0999\n")]
    thread.join()


def test_when_the_host_is_gone_output_goes_nowhere(outlet: Outlet, pipe: Pipe):
    pipe.fill()
    printer = Printer(outlet, 1)
    printer.write(b"one\n")
    os.close(pipe.reading)
    outlet.flush(PATIENCE)
    printer.write(b"two\n")
    outlet.flush(PATIENCE)


def run(script: str) -> list[tuple[str, str]]:
    """The records that a process prints."""
    command = [sys.executable, "-c", "import os, sys\nfrom prowess.worker import output\n" + textwrap.dedent(script)]
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=PATIENCE, check=True)
    return parsed(done.stderr)


def test_both_streams_are_one_so_that_the_order_is_kept():
    told = run(
        """
        finish = output.label_output()
        output.command.set("t.say")
        for number in range(3):
            print("out", number)
            print("err", number, "\\ud800", file=sys.stderr)
        print("half", end="")
        finish(60)
        os._exit(0)
        """
    )
    whole = [text for number in range(3) for text in (f"out {number}\n", f"err {number} \\ud800\n")]
    assert [("t.say", text) for text in [*whole, "half"]] == told


def test_a_forked_child_does_not_repeat_what_its_parent_has_begun():
    told = run(
        """
        finish = output.label_output()
        print("begun by the parent, ", end="")
        if not os.fork():
            print("the child")
            finish(60)
            os._exit(0)
        os.wait()
        print("ended by the parent")
        finish(60)
        os._exit(0)
        """
    )
    assert ["the child\n", "begun by the parent, ended by the parent\n"] == [text for _, text in told]
