"""How lines become responses, without a server: JSON or events, what is kept, and how a stream goes on."""

from __future__ import annotations

import gc
import weakref

from prowess_host.http.headers import AcceptedTypes
from prowess_host.http.replies import SSE_HEADERS, History, PendingResponse, PostReply, SessionStream

BOTH = AcceptedTypes(json=True, sse=True)
ONLY_JSON = AcceptedTypes(json=True, sse=False)
ONLY_SSE = AcceptedTypes(json=False, sse=True)
NOTE = b'{"jsonrpc":"2.0","method":"note"}\n'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
ERROR = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}\n'


class Case:
    """A reply, and what its client gets. It owes as many answers as it is told."""

    def __init__(
        self, accepted: AcceptedTypes = BOTH, history: History | None = None, retry: int | None = None
    ) -> None:
        self.owed = 1
        self.told = 0
        self.outlet = PendingResponse(self.tell)
        self.reply = PostReply(self.outlet, accepted, stateless=history is None, history=history, retry=retry)
        self.reply.owes = self.owes

    def owes(self, _: PostReply) -> bool:
        return self.owed > 0

    def tell(self) -> None:
        self.told += 1

    def note(self) -> None:
        self.reply.write(NOTE)

    def answer(self, line: bytes = ANSWER) -> None:
        self.owed -= 1
        self.reply.write(line)

    @property
    def status(self) -> int | None:
        return self.outlet.head and self.outlet.head.status


def event(line: bytes, name: str = "") -> bytes:
    head = f"id: {name}\n" if name else ""
    return head.encode() + b"event: message\ndata: " + line[:-1] + b"\n\n"


def test_an_answer_alone_is_json() -> None:
    case = Case()
    case.answer()
    assert case.outlet.head is not None
    assert (200, ANSWER[:-1], True) == (case.status, case.outlet.head.body, case.outlet.ended)
    assert case.told


def test_what_comes_before_the_answer_makes_it_a_stream() -> None:
    case = Case()
    case.note()
    assert case.outlet.head is not None
    assert (200, SSE_HEADERS, False) == (case.status, case.outlet.head.headers, case.outlet.ended)
    case.answer()
    assert case.outlet.ended
    assert event(NOTE) + event(ANSWER) == case.outlet.take()
    case.note()
    assert b"" == case.outlet.take(), "nothing follows the answer"


def test_a_client_that_reads_no_events_gets_the_answer_alone() -> None:
    case = Case(ONLY_JSON)
    case.note()
    assert case.status is None
    case.answer(NOTE + ANSWER)
    assert case.outlet.head is not None
    assert ANSWER[:-1] == case.outlet.head.body


def test_a_client_that_reads_no_json_gets_events() -> None:
    """But for errors, whose status says more."""
    case = Case(ONLY_SSE)
    case.answer()
    assert event(ANSWER) == case.outlet.take()
    refused = Case(ONLY_SSE)
    refused.answer(ERROR)
    assert 404 == refused.status


def test_silence_makes_it_a_stream() -> None:
    """So that nobody on the way gives up; an error comes as an event then."""
    case = Case()
    case.reply.stream()
    case.reply.stream()
    assert 200 == case.status
    case.answer(ERROR)
    assert event(ERROR) == case.outlet.take()


def test_several_answers_belong_to_one_post() -> None:
    case = Case()
    case.owed = 2
    case.answer()
    assert not case.outlet.ended
    case.answer()
    assert case.outlet.ended
    assert 2 * event(ANSWER) == case.outlet.take()


def test_a_cancelled_call_ends_its_response_without_an_answer() -> None:
    case = Case()
    case.answer(b"")
    assert (200, True, b"") == (case.status, case.outlet.ended, case.outlet.take())


def test_a_client_comes_back_where_it_was() -> None:
    """What it missed is sent again, and what comes later follows; the response before ends."""
    history = History(10_000)
    case = Case(history=history, retry=500)
    case.note()
    assert b"id: 1-1\nretry: 500\ndata: \n\n" + event(NOTE, "1-2") == case.outlet.take()
    case.reply.detach(case.outlet)
    case.note()
    again = PendingResponse(case.tell)
    assert case.reply.resume(again, 2)
    assert event(NOTE, "1-3") == again.take()
    third = PendingResponse(case.tell)
    assert case.reply.resume(third, 1)
    assert again.ended
    case.answer()
    assert event(NOTE, "1-2") + event(NOTE, "1-3") + event(ANSWER, "1-4") == third.take()
    late = PendingResponse(case.tell)
    assert case.reply.resume(late, 3)
    assert (event(ANSWER, "1-4"), True) == (late.take(), late.ended)


def test_a_response_that_was_left_is_not_the_one_that_follows_it() -> None:
    """The server may notice late that a client has left, when it is back already."""
    case = Case(history=History(10_000))
    case.note()
    again = PendingResponse(case.tell)
    case.reply.resume(again, 1)
    case.reply.detach(case.outlet)
    assert case.reply.attached
    case.answer()
    assert event(ANSWER, "1-2") == again.take()


def test_history_is_bounded() -> None:
    """The oldest events go first, and a stream that lost some cannot go on there."""
    history = History(250)
    first, second = Case(history=history), Case(history=history)
    for _ in range(3):
        first.note()
        second.note()
    assert not first.reply.resume(PendingResponse(first.tell), 1)
    assert second.reply.resume(PendingResponse(second.tell), 2)
    history.forget(2)
    assert [] == history.after(2, 0)


def test_many_sessions_share_the_room_for_histories() -> None:
    """So that their number times what one keeps is never needed. What fits is kept."""
    sizes: list[list[bytes] | None] = []
    history = History(1000)
    for number in range(1, 11):
        history.keep(1, number, b"x" * 100)
    sizes += [history.after(1, 0)]
    history.limit(300)
    sizes += [history.after(1, 7), history.after(1, 6)]
    assert [10, 3, None] == [None if each is None else len(each) for each in sizes]


def test_without_a_history_nothing_goes_on() -> None:
    case = Case()
    case.note()
    assert not case.reply.resume(PendingResponse(case.tell), 0)


def test_a_standing_stream_keeps_what_nobody_reads() -> None:
    """For the next one who does; only one reads at a time."""
    standing = SessionStream(History(10_000), 500)
    standing.write(NOTE)
    first, second = PendingResponse(lambda: None), PendingResponse(lambda: None)
    standing.attach(first)
    assert event(NOTE, "1-1") + b"id: 1-2\nretry: 500\ndata: \n\n" == first.take()
    standing.attach(second)
    assert first.ended
    standing.write(NOTE)
    assert event(NOTE, "1-4") == second.take()[-len(event(NOTE, "1-4")) :]
    standing.detach(first)
    assert standing.attached
    standing.detach(second)
    assert not standing.attached
    standing.write(NOTE)
    third = PendingResponse(lambda: None)
    standing.attach(third)
    assert event(NOTE, "1-5") in third.take()
    standing.end()
    assert third.ended


def test_a_reply_that_is_over_lets_go_of_its_connection() -> None:
    """They refer to each other: a cycle for each request would leave its memory to the garbage collector."""
    case = Case()
    gone = weakref.ref(case)
    case.answer()
    case.outlet.news = lambda: None  # it referred to the case as well
    gc.disable()
    try:
        del case
        assert gone() is None
    finally:
        gc.enable()
