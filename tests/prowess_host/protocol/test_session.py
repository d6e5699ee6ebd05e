"""The state of one connection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prowess_host.protocol.codec import ABSENT, RpcRequest
from prowess_host.protocol.eras import REVISIONS, SUBSCRIPTION_KEY, ClientInfo
from prowess_host.protocol.identity import Server
from prowess_host.protocol.kinds import ROWS
from prowess_host.protocol.routing import Reply, route
from prowess_host.protocol.rpc import INTERNAL_ERROR, EncodeError, RpcError
from prowess_host.protocol.session import Allowance, RequestInFlight, Session, Together

LATEST = REVISIONS["2025-11-25"]
MODERN = REVISIONS["2026-07-28"]
NOBODY = ClientInfo({}, {})
BODY = b'{"content":[]}'


def opened(version: str = "2025-11-25") -> Session:
    """A session after the handshake."""
    session = Session(Server("s", "1"))
    session.handshake(REVISIONS[version], NOBODY)
    return session


def begun(session: Session, request_id: Any = 1, version: str = "2025-11-25", **more: Any) -> RequestInFlight:
    """A call in flight."""
    call = RequestInFlight(request_id, "tools/call", {"name": "x"}, b"{}", REVISIONS[version], NOBODY, **more)
    session.begin(call)
    return call


def read(line: bytes) -> list[Any]:
    """The messages of one or more lines."""
    return [json.loads(each) for each in line.splitlines()]


# Answers


def test_a_call_is_answered_by_ready_made_bytes() -> None:
    """They are spliced in as they are."""
    session = opened()
    assert b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n' == session.answer(begun(session), BODY)
    assert b'{"jsonrpc":"2.0","id":2,"result":{"content":[],"_meta":{"a":1}}}\n' == session.answer(
        begun(session, 2), BODY, meta=b'{"a":1}'
    )


def test_a_stateless_call_is_answered_in_the_dress_of_its_revision() -> None:
    """Whatever the session has settled on."""
    session = opened()
    (answer,) = read(session.answer(begun(session, version="2026-07-28"), BODY, result_type="input_required"))
    assert "input_required" == answer["result"]["resultType"]


@pytest.mark.parametrize("again", ["answer", "refuse"])
def test_a_call_is_answered_once(again: str) -> None:
    """Whoever comes second writes nothing."""
    session = opened()
    call = begun(session)
    assert session.answer(call, BODY)
    second = session.answer(call, BODY) if again == "answer" else session.refuse(call, RpcError.internal("x"))
    assert b"" == second


@pytest.mark.parametrize("body", [b"", b"[]", b"{}\n{}", b'{"a":1}\n', b"null"])
def test_bytes_that_are_no_object_on_one_line_never_reach_the_wire(body: bytes) -> None:
    """A broken worker costs one answer."""
    session = opened()
    (answer,) = read(session.answer(begun(session), body))
    assert (1, INTERNAL_ERROR) == (answer["id"], answer["error"]["code"])


def test_an_answered_id_may_be_used_again() -> None:
    """The answer to the first call never closes the second."""
    session = opened()
    first = begun(session)
    session.answer(first, BODY)
    assert not session.is_waiting(1)
    second = begun(session)
    assert b"" == session.refuse(first, RpcError.internal("x"))
    assert session.is_open(second)


def test_row_24_an_id_in_flight_is_refused() -> None:
    """Until it is answered; 1 and "1" are two ids, and a subscription holds its id too."""
    session = opened()
    begun(session)
    session.subscriptions.listen("L", MODERN, {})
    assert not session.is_waiting("1")
    for request_id in (1, "L"):
        again = route(RpcRequest(request_id, "tools/list", {}), session, 0.0)
        assert isinstance(again, Reply)
        assert b"still in flight; use a fresh id" in again.line


# Cancellation


@pytest.mark.parametrize(
    ("request_id", "requested"), [(1, 1), (1, "1"), ("1", 1), ("-7", -7), ("x", "x"), (10**30, str(10**30))]
)
def test_a_call_is_cancelled_by_its_id_in_either_writing(request_id: Any, requested: Any) -> None:
    """And gets no answer any more."""
    session = opened()
    call = begun(session, request_id)
    assert (call, b"") == session.cancel(requested)
    assert b"" == session.answer(call, BODY)


@pytest.mark.parametrize("requested", [2, "2", "01", "+1", "1.0", "", None, True, 1.0, {}, [], "9" * 5000])
def test_row_17_a_cancellation_of_nothing_is_no_fault(requested: Any) -> None:
    """The answer may have crossed it."""
    session = opened()
    call = begun(session)
    assert (None, b"") == session.cancel(requested)
    assert session.is_open(call)


def test_the_exact_id_is_cancelled_before_the_one_that_is_written_the_same() -> None:
    """Both may be waited for at once."""
    session = opened()
    begun(session, "1")
    session.subscriptions.listen(1, MODERN, {"toolsListChanged": True})
    assert (None, b"") == session.cancel(1)
    assert [] == session.list_changed(ROWS[:1])
    assert ["1"] == list(session.in_flight)


# Progress


def test_progress_goes_out_under_the_token_and_only_forwards() -> None:
    """The token keeps its type; a value that is no step forward is dropped."""
    session = opened()
    call = begun(session, progress_token="7")
    (sent,) = read(session.report_progress(call, 1, 10, "one"))
    assert "notifications/progress" == sent["method"]
    assert {"progressToken": "7", "progress": 1, "total": 10, "message": "one"} == sent["params"]
    assert b"" == session.report_progress(call, 1)
    assert b"" == session.report_progress(call, 0.5)
    assert {"progressToken": "7", "progress": 1.5} == read(session.report_progress(call, 1.5))[0]["params"]


@pytest.mark.parametrize("progress", [float("nan"), float("inf"), 10**400])
def test_progress_that_json_cannot_say_is_dropped(progress: float) -> None:
    """So is such a total, but not the progress with it."""
    session = opened()
    call = begun(session, progress_token=1)
    assert b"" == session.report_progress(call, progress)
    assert {"progressToken": 1, "progress": 1} == read(session.report_progress(call, 1, progress))[0]["params"]


def test_progress_stops_with_the_answer_and_needs_a_token() -> None:
    """Nobody listens otherwise."""
    session = opened()
    call = begun(session, progress_token=1)
    session.answer(call, BODY)
    assert b"" == session.report_progress(call, 1)
    assert b"" == session.report_progress(begun(session), 1)


def test_progress_has_no_message_where_the_revision_knows_none() -> None:
    """The first revision had only numbers."""
    session = opened("2024-11-05")
    sent = session.report_progress(begun(session, version="2024-11-05", progress_token=1), 1, message="one")
    assert {"progressToken": 1, "progress": 1} == read(sent)[0]["params"]


# Logs


@pytest.mark.parametrize(("level", "sent"), [("debug", False), ("info", True), ("emergency", True), ("nonsense", True)])
def test_a_handshake_session_logs_from_its_level_on(level: str, *, sent: bool) -> None:
    """Which is info until the client says otherwise."""
    session = opened()
    assert sent == bool(session.report_log(begun(session), level, "x"))


def test_a_log_message_as_it_goes_out() -> None:
    """A level of no name counts as info."""
    session = opened()
    (sent,) = read(session.report_log(begun(session), "nonsense", {"a": 1}, "me"))
    assert "notifications/message" == sent["method"]
    assert {"level": "info", "logger": "me", "data": {"a": 1}} == sent["params"]


def test_a_stateless_call_logs_only_at_the_level_it_asked_for() -> None:
    """And not at all if it named none, whatever the session has."""
    session = opened()
    silent, loud = begun(session, 1, "2026-07-28"), begun(session, 2, "2026-07-28", log_level="warning")
    assert b"" == session.report_log(silent, "emergency", "x")
    assert b"" == session.report_log(loud, "notice", "x")
    assert session.report_log(loud, "warning", "x")
    session.answer(loud, BODY)
    assert b"" == session.report_log(loud, "warning", "x")


def test_a_log_message_that_is_no_json_is_refused_to_its_maker() -> None:
    """Nobody on the wire waits for it."""
    session = opened()
    with pytest.raises(EncodeError):
        session.report_log(begun(session), "info", float("nan"))


# Questions to a handshake client


def test_questions_have_ids_of_their_own() -> None:
    """The spaces of the two directions do not touch."""
    session = opened()
    call = begun(session, 1)
    question, line = session.ask_client(call, "elicitation/create", {"message": "?"})
    assert {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": "?"}} == read(line)[0]
    assert (1, 2) == (question, session.ask_client(call, "elicitation/create", {})[0])


@pytest.mark.parametrize("response_id", [1, "1"])
def test_a_question_is_answered_once(response_id: Any) -> None:
    """A second response is to nothing."""
    session = opened()
    call = begun(session)
    session.ask_client(call, "elicitation/create", {})
    assert (1, call) == session.take_question(response_id)
    assert session.take_question(response_id) is None
    assert b"" == session.withdraw_question(1)


def test_a_response_without_a_usable_id_answers_nothing() -> None:
    """Clients complain that way."""
    assert opened().take_question(ABSENT) is None


@pytest.mark.parametrize("end", ["answer", "refuse", "cancel"])
def test_what_a_call_has_asked_is_withdrawn_when_it_ends(end: str) -> None:
    """Nobody should answer a question that no longer matters; the withdrawal comes before the answer."""
    session = opened()
    call = begun(session)
    session.ask_client(call, "elicitation/create", {})
    session.ask_client(call, "elicitation/create", {})
    ends = {
        "answer": lambda: session.answer(call, BODY),
        "refuse": lambda: session.refuse(call, RpcError.internal("x")),
    }
    line = ends.get(end, lambda: session.cancel(1)[1])()
    withdrawn = [each["params"]["requestId"] for each in read(line) if each.get("method") == "notifications/cancelled"]
    assert [1, 2] == withdrawn
    assert session.take_question(1) is None


def test_a_stateless_or_finished_call_cannot_ask_this_way() -> None:
    """That would be a request nobody may send."""
    session = opened()
    finished = begun(session, 1)
    session.answer(finished, BODY)
    for call in (finished, begun(session, 2, "2026-07-28")):
        with pytest.raises(ValueError, match="elicitation/create cannot be sent"):
            session.ask_client(call, "elicitation/create", {})


def test_a_question_that_is_no_json_is_not_asked() -> None:
    """And leaves nothing waiting."""
    session = opened()
    call = begun(session)
    with pytest.raises(EncodeError):
        session.ask_client(call, "elicitation/create", {"a": float("nan")})
    assert set() == call.questions


# Changes and the end


def test_a_change_is_told_in_both_eras() -> None:
    """To the session once it is ready, and to each subscription that asked."""
    session = opened()
    assert [] == session.list_changed(ROWS[:1])
    session.ready = True
    session.subscriptions.listen("L", MODERN, {"toolsListChanged": True})
    tagged, plain = (json.loads(line) for line in session.list_changed(ROWS[:1]))
    assert {"_meta": {SUBSCRIPTION_KEY: "L"}} == tagged["params"]
    assert {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"} == plain


def test_row_44_an_open_subscription_ends_with_its_result() -> None:
    """Each by its own id, and only once."""
    session = opened()
    session.subscriptions.listen("L", MODERN, {})
    result, notice = (json.loads(line) for line in session.end_subscriptions())
    assert ("L", "complete", "L") == (
        result["id"],
        result["result"]["resultType"],
        result["result"]["_meta"][SUBSCRIPTION_KEY],
    )
    assert ("notifications/cancelled", "L") == (notice["method"], notice["params"]["requestId"])
    assert [] == session.end_subscriptions()


def test_a_second_handshake_starts_anew() -> None:
    """Calls in flight go on as they began."""
    session = opened()
    session.ready, session.log_level = True, "error"
    call = begun(session)
    session.handshake(REVISIONS["2024-11-05"], ClientInfo({"name": "c"}, {}))
    assert (False, "info") == (session.ready, session.log_level)
    assert LATEST == call.revision
    assert session.is_open(call)


# Small parts


def test_the_answers_of_a_batch_wait_for_each_other() -> None:
    """One array, once."""
    together = Together(waiting=1)
    together.add(b"{}\n")
    assert b"" == together.flush()
    together.waiting = 0
    assert b"[{}]\n" == together.flush()
    assert b"" == together.flush()


def test_an_allowance_is_used_up_and_comes_back_with_time() -> None:
    """Never more than the burst."""
    allowance = Allowance(burst=2, per_second=1)
    assert [True, True, False] == [allowance.take(100.0) for _ in range(3)]
    assert [True, False] == [allowance.take(101.0) for _ in range(2)]
    assert [True, True, False] == [allowance.take(1000.0) for _ in range(3)]


def test_the_arguments_of_a_call() -> None:
    """Missing and null mean none."""
    session = opened()
    call = begun(session)
    assert {} == call.arguments
    call.params["arguments"] = None
    assert {} == call.arguments
    call.params["arguments"] = {"a": 1}
    assert {"a": 1} == call.arguments
