"""Asking a person in both eras."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess_host.protocol import questions
from prowess_host.protocol.eras import REVISIONS, ClientInfo
from prowess_host.protocol.questions import STATE_LIFETIME, Answers, Occasion
from prowess_host.protocol.rpc import INVALID_PARAMS, MISSING_CLIENT_CAPABILITY, EncodeError, RpcError

KEY = b"k" * 32
NOW = 1_800_000_000.0
OCCASION = Occasion("files.delete", "c1", questions.digest_arguments({"a": 1}))
MODERN = REVISIONS["2026-07-28"]
YES = {"action": "accept", "content": {"ok": True}}
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def sealed(given_answers: dict[str, Any] | None = None, asked: tuple[str, ...] = ("ok",), kind: str = "form") -> str:
    """A state as this server gives it out."""
    return questions.seal(Answers(given_answers or {}, dict.fromkeys(asked, kind)), OCCASION, key=KEY, now=NOW)


def resumed(occasion: Occasion = OCCASION, *, key: bytes = KEY, now: float = NOW, **params: Any) -> Answers:
    """What a repeated call brings along."""
    return questions.resume(params, occasion, key=key, now=now)


# Who can be asked


@pytest.mark.parametrize(
    ("version", "declared", "can"),
    [
        ("2026-07-28", {"elicitation": {}}, True),
        ("2026-07-28", {"elicitation": {"form": {}}}, True),
        ("2026-07-28", {"elicitation": {"url": {}}}, False),
        ("2026-07-28", {"elicitation": {"url": {}, "form": {}}}, True),
        ("2026-07-28", {}, False),
        ("2026-07-28", {"elicitation": True}, False),
        ("2025-11-25", {"elicitation": {}}, True),
        ("2025-06-18", {"elicitation": {}}, True),
        ("2025-03-26", {"elicitation": {}}, False),
        ("2024-11-05", {"elicitation": {}}, False),
    ],
)
def test_a_client_is_asked_if_it_declared_forms_in_a_revision_that_has_them(
    version: str, declared: dict[str, Any], *, can: bool
) -> None:
    """Empty means forms."""
    assert can == questions.can_ask(ClientInfo({}, declared), REVISIONS[version])


def test_a_stateless_request_that_cannot_be_asked_is_refused() -> None:
    """With what it would have to declare, as an object."""
    questions.require_asking(ClientInfo({}, {"elicitation": {}}), MODERN, ["form"])
    with pytest.raises(RpcError) as caught:
        questions.require_asking(ClientInfo({}, {}), MODERN, ["form", "url", "sample", "roots"])
    assert MISSING_CLIENT_CAPABILITY == caught.value.code
    needed = {"elicitation": {"url": {}}, "sampling": {}, "roots": {}}
    assert {"requiredCapabilities": needed} == caught.value.data


@pytest.mark.parametrize(("version", "mode"), [("2025-06-18", None), ("2025-11-25", "form"), ("2026-07-28", "form")])
def test_a_question_names_its_mode_where_there_are_modes(version: str, mode: str | None) -> None:
    """An older client does not know the field."""
    params = questions.request_of({"message": "Sure?", "schema": FORM}, REVISIONS[version])["params"]
    assert mode == params.pop("mode", None)
    assert {"message": "Sure?", "requestedSchema": FORM} == params


@pytest.mark.parametrize(
    ("version", "declared", "kinds"),
    [
        ("2026-07-28", {}, []),
        ("2026-07-28", {"elicitation": {}, "sampling": {}, "roots": {}}, ["form", "sample", "roots"]),
        ("2026-07-28", {"elicitation": {"url": {}}}, ["url"]),
        ("2026-07-28", {"elicitation": {"url": True}, "sampling": True, "roots": []}, []),
        (
            "2025-11-25",
            {"elicitation": {"url": {}, "form": {}}, "roots": {"listChanged": True}},
            ["form", "url", "roots"],
        ),
        ("2025-06-18", {"elicitation": {"url": {}, "form": {}}}, ["form"]),
        ("2024-11-05", {"elicitation": {}, "sampling": {}, "roots": {}}, ["sample", "roots"]),
    ],
)
def test_a_client_is_asked_only_for_what_it_declared(version: str, declared: dict[str, Any], kinds: list[str]) -> None:
    """And only what its revision has."""
    assert kinds == questions.askable(ClientInfo({}, declared), REVISIONS[version])


@pytest.mark.parametrize(("version", "named"), [("2025-11-25", {"elicitationId": "p1"}), ("2026-07-28", {})])
def test_a_page_has_a_name_where_its_end_is_told(version: str, named: dict[str, str]) -> None:
    """The stateless era has no such notification."""
    question = {"ask": "url", "message": "Log in", "url": "https://example.org"}
    params = {"mode": "url", "message": "Log in", "url": "https://example.org", **named}
    assert {"method": "elicitation/create", "params": params} == questions.request_of(
        question, REVISIONS[version], "p1"
    )


@pytest.mark.parametrize(
    ("question", "request_"),
    [
        ({"ask": "sample", "params": {"maxTokens": 5}}, ("sampling/createMessage", {"maxTokens": 5})),
        ({"ask": "roots"}, ("roots/list", {})),
    ],
)
def test_the_deprecated_questions_are_requests_of_their_own(question: Any, request_: tuple[str, Any]) -> None:
    """Alike in both eras."""
    assert dict(zip(("method", "params"), request_, strict=True)) == questions.request_of(question, MODERN)


def test_a_question_of_an_unknown_kind_is_not_asked() -> None:
    """A newer worker may know some."""
    with pytest.raises(ValueError, match="unknown kind of question 'mood'"):
        questions.request_of({"ask": "mood"}, MODERN)


# Answers


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (YES, YES),
        ({**YES, "_meta": {}}, YES),
        ({"action": "accept"}, {"action": "accept", "content": {}}),
        ({"action": "accept", "content": None}, {"action": "accept", "content": {}}),
        ({"action": "decline", "content": {"ok": True}}, {"action": "decline"}),
        ({"action": "cancel"}, {"action": "cancel"}),
    ],
)
def test_an_answer_is_an_action_and_its_content(value: Any, answer: dict[str, Any]) -> None:
    """Nothing else is kept, and no content of what was not accepted."""
    assert answer == questions.read_answer(value, "result")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "result must be an object, not null"),
        ("yes", "result must be an object"),
        ({}, "result.action must be accept, decline or cancel, not null"),
        ({"action": "maybe"}, '"maybe"'),
        ({"action": ["accept"]}, "result.action"),
        ({"action": "accept", "content": 5}, "result.content must be an object, not 5"),
    ],
)
def test_a_malformed_answer_is_refused_with_its_place(value: Any, named: str) -> None:
    """It was said by the client, not by the person."""
    with pytest.raises(RpcError) as caught:
        questions.read_answer(value, "result")
    assert INVALID_PARAMS == caught.value.code
    assert named in caught.value.message


# The round trip


def test_the_result_that_asks() -> None:
    """Requests without ids, and the state."""
    body = questions.input_required({"ok": {"message": "Sure?", "schema": FORM}}, MODERN, "state")
    params = {"mode": "form", "message": "Sure?", "requestedSchema": FORM}
    requests = {"ok": {"method": "elicitation/create", "params": params}}
    assert {"inputRequests": requests, "requestState": "state"} == json.loads(body)


def test_a_question_that_is_no_json_cannot_be_asked() -> None:
    """Its maker is told."""
    with pytest.raises(EncodeError, match="a question"):
        questions.input_required({"ok": {"message": "\ud800", "schema": FORM}}, MODERN, "state")


def test_answers_gather_over_the_rounds() -> None:
    """The state carries the earlier ones; a later one to the same key wins."""
    state = sealed({"first": YES}, ("second",))
    answers = resumed(requestState=state, inputResponses={"second": {"action": "decline"}})
    assert Answers({"first": YES, "second": {"action": "decline"}}, {"second": "form"}) == answers


@pytest.mark.parametrize("responses", [{}, None, {"other": 5}])
def test_a_missing_response_is_asked_for_again_and_a_surplus_one_ignored(responses: Any) -> None:
    """However malformed the surplus is."""
    assert Answers({"first": YES}, {"ok": "form"}) == resumed(
        requestState=sealed({"first": YES}), inputResponses=responses
    )


def test_a_malformed_response_is_refused_by_its_key() -> None:
    """Only if it was asked for."""
    with pytest.raises(RpcError, match=r"params\.inputResponses\.ok must be an object"):
        resumed(requestState=sealed(), inputResponses={"ok": 5})


@pytest.mark.parametrize("params", [{}, {"requestState": None}])
def test_without_a_state_and_responses_there_are_no_answers(params: dict[str, Any]) -> None:
    """The first run of a call has been told nothing."""
    assert Answers({}) == resumed(**params)


def test_responses_without_a_state_count() -> None:
    """A client may keep what its user answered, and call from the top with all of it."""
    assert YES == resumed(inputResponses={"ok": YES}).given["ok"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("sample", {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "_meta": {}}),
        ("roots", {"roots": [{"uri": "file:///x"}]}),
    ],
)
def test_an_answer_is_read_as_what_was_asked(kind: str, value: Any) -> None:
    """The state knows what that was; without a state the answer shows it."""
    content = {key: each for key, each in value.items() if key != "_meta"}
    answer = {"action": "accept", "content": content}
    assert answer == resumed(requestState=sealed(kind=kind), inputResponses={"ok": value}).given["ok"]
    assert answer == resumed(inputResponses={"ok": value}).given["ok"]
    with pytest.raises(RpcError, match=r"params\.inputResponses\.ok\."):
        resumed(requestState=sealed(kind=kind), inputResponses={"ok": {"action": "decline"}})


def test_a_changed_contract_asks_everything_again() -> None:
    """The question may mean something else now."""
    changed = OCCASION._replace(contract="c2")
    state = sealed({"first": YES})
    assert Answers({}, stale=True) == resumed(changed, requestState=state, inputResponses={"ok": YES})


@pytest.mark.parametrize(
    ("occasion", "key", "now", "reason"),
    [
        pytest.param(OCCASION._replace(command="files.list"), KEY, NOW, "another call", id="another command"),
        pytest.param(OCCASION._replace(arguments="x"), KEY, NOW, "another call", id="other arguments"),
        pytest.param(OCCASION._replace(caller="x"), KEY, NOW, "another call", id="another caller"),
        pytest.param(OCCASION, b"other", NOW, "was not issued by this server", id="another key"),
        pytest.param(OCCASION, KEY, NOW + STATE_LIFETIME, "expired", id="an hour later"),
    ],
)
def test_a_state_is_good_for_one_call_one_key_and_one_hour(
    occasion: Occasion, key: bytes, now: float, reason: str
) -> None:
    """Anything else is refused, and the refusal says how to go on."""
    with pytest.raises(RpcError, match=reason) as caught:
        resumed(occasion, key=key, now=now, requestState=sealed())
    assert INVALID_PARAMS == caught.value.code
    assert "call again without it" in caught.value.message


def test_a_state_is_good_until_its_last_second() -> None:
    """And for another process with the same key."""
    assert {"ok": "form"} == resumed(now=NOW + STATE_LIFETIME - 1, requestState=sealed()).asked


@pytest.mark.parametrize(
    "state", ["", ".", "garbage", "a.b", "é.é", "e30=.", f"{sealed()}x", f"x{sealed()}", sealed()[:-4]]
)
def test_row_52_a_forged_state_is_refused(state: str) -> None:
    """It is the client's word until the signature says otherwise."""
    with pytest.raises(RpcError, match="was not issued by this server"):
        resumed(requestState=state)


@given(st.integers(0, len(sealed()) - 1), st.characters(codec="ascii"))
def test_no_character_of_a_state_may_change(position: int, character: str) -> None:
    """Whichever it is."""
    state = sealed()
    forged = state[:position] + character + state[position + 1 :]
    if forged != state:
        with pytest.raises(RpcError):
            resumed(requestState=forged)


def test_the_digest_of_arguments_depends_on_their_values_only() -> None:
    """Not on the order of their names."""
    digest = questions.digest_arguments
    assert digest({"a": 1, "b": "\ud800é"}) == digest({"b": "\ud800é", "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


def test_arguments_nested_too_deeply_are_refused() -> None:
    """Rather than counted."""
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(RpcError, match="nested too deeply"):
        questions.digest_arguments(deep)
