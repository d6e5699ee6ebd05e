"""What a limited worker says is checked before it is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from prowess.calls.outcome import Kind as Failing
from prowess.contracts.catalog import Failure
from prowess.contracts.contract import Contract, Hints, OutputShape, Policies
from prowess.settings.limits import Limits
from prowess.skills.description import Description, SkillFacts, View
from prowess.skills.texts import pack, unpack
from prowess.worker.link import Frame
from prowess.worker.messages import Kind
from prowess_host.confinement.grants import Grant
from prowess_host.workers.jobs import Job
from prowess_host.workers.linked import FrameBoard
from prowess_host.workers.mistrust import sound
from prowess_host.workers.shapes import KINDS_OF_OUTCOMES

OWN = Grant("own", Limits(), Path())


def said(kind: Kind, head: Any = None, body: bytes = b"") -> Frame | None:
    return sound(Frame(kind, 1, b"" if head is None else json.dumps(head).encode(), body), OWN)


def contract(name: str, skill: str = "own", description: str = "Does.") -> Contract:
    return Contract(f"{skill}.{name}", f"{skill}_{name}", skill, name, description, {})


def job(kind: str = "tool", **how: Any) -> Job:
    listener: Any = None
    return Job(Contract("own.a", "own_a", "own", "a", "", {}, kind=kind), json.dumps(how).encode(), b"{}", listener, 1)


def answered(payload: Any, meta: Any = None, kind: str = "tool", **how: Any) -> bool:
    """Whether a call of this kind may be answered so."""
    frame = Frame(Kind.RESULT, 1, json.dumps(meta or {}).encode(), json.dumps(payload).encode())
    return sound(frame, OWN, job(kind, **how)) is not None


def description(**skills: SkillFacts) -> dict[str, Any]:
    return Description(skills=skills, names=tuple(skills)).to_json()


@pytest.mark.parametrize(
    "body",
    [
        b'"content":[]}}\n{"jsonrpc":"2.0"',
        b'{"content":[]}\n{"jsonrpc":"2.0","method":"sampling/createMessage"}',
        b"[]",
        b"{",
        b'{"x": NaN}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_result_that_is_no_object_ends_the_worker(body: bytes) -> None:
    """Spliced into a response it could end it, and begin a message of its own."""
    assert said(Kind.RESULT, {}, body) is None


def test_result_is_written_anew() -> None:
    """On one line, whatever it holds."""
    frame = said(
        Kind.RESULT,
        {"prowess/kind": "failed"},
        b'{\n"content": [{"type": "text", "text": "\xe2\x80\xa8"}],\n"_meta": {"a": 1}}',
    )

    assert frame == Frame(
        Kind.RESULT, 1, b'{"prowess/kind":"failed"}', b'{"content":[{"type":"text","text":"\\u2028"}]}'
    )


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        (Kind.RESULT, [1]),
        (Kind.FAILED, {}),
        (Kind.REST, {}),
        (Kind.LIVE, {"digests": 5}),
        (Kind.CATALOG, {"skills": []}),
        (Kind.CATALOG, {"skills": {"own": {"contracts": [{}], "failures": []}}}),
        (Kind.IMPORTING, {"imports": [[1]]}),
        (Kind.PROGRESS, 5),
    ],
)
def test_nonsense_ends_the_worker(kind: Kind, head: Any) -> None:
    """What is missing or of another kind."""
    assert said(kind, head, b"{}") is None


def test_other_skills_are_none_of_its_business() -> None:
    """It describes itself, and tells of itself."""
    told = description(
        own=SkillFacts((contract("a"),), has_hooks=True, sent={"rules": 1}), other=SkillFacts((contract("b", "other"),))
    )

    frame = said(Kind.CATALOG, told)

    assert frame is not None
    found = Description.from_json(json.loads(frame.head))
    assert ["own"] == list(found.skills)
    assert not found.skills["own"].has_hooks
    assert {} == found.skills["own"].sent
    assert said(Kind.LIVE, {"digests": {"own": "1", "other": "2"}}) == Frame(
        Kind.LIVE, 1, b'{"digests":{"own":"1"}}', b""
    )
    assert said(Kind.IMPORTING, {"imports": [[1, "other", "f"]]}) == Frame(
        Kind.IMPORTING, 1, b'{"imports":[[1,"own","f"]]}', b""
    )


def test_commands_of_others_and_hidden_characters_are_failures() -> None:
    """Its own process may have skipped the check at load."""
    told = description(own=SkillFacts((contract("a"), contract("b", "other"), contract("c", description="x\u200b"))))

    frame = said(Kind.CATALOG, told)

    assert frame is not None
    facts = Description.from_json(json.loads(frame.head)).skills["own"]
    assert ["own.a"] == [each.id for each in facts.contracts]
    assert ["describes a command of another skill: other.b", "own.c: description has a hidden character"] == [
        each.reason.partition(": U+")[0] for each in facts.failures
    ]


def test_what_clients_are_shown_is_looked_at_too() -> None:
    """The worker makes it, of whatever it likes."""
    shown = {"type": "object"}
    views = {"own.a": View({**shown, "description": "x\u200b"}, None, None), "other.b": View(shown, None, None)}
    frame = said(Kind.CATALOG, description(own=SkillFacts((contract("a"), contract("c")), views=views)))

    assert frame is not None
    facts = Description.from_json(json.loads(frame.head)).skills["own"]
    assert ["own.c"] == [each.id for each in facts.contracts]
    assert {} == facts.views


def test_other_frames_pass() -> None:
    """They carry numbers and words that the host reads and writes itself."""
    assert said(Kind.PONG) == Frame(Kind.PONG, 1, b"{}", b"")
    assert said(Kind.FAILED, {"message": 5}) == Frame(Kind.FAILED, 1, b'{"message":"5"}', b"")
    assert said(Kind.REST, {"token": "t"}, b"text") == Frame(Kind.REST, 1, b'{"token":"t"}', b"text")


def test_what_is_no_json_for_every_client_does_not_pass() -> None:
    """Python reads 1e999 as infinite, and writes a word that no other language reads; halves of characters likewise."""
    infinite = b'{"content":[],"structuredContent":{"x":1e999}}'
    assert sound(Frame(Kind.RESULT, 1, b"{}", infinite), OWN) is None
    assert sound(Frame(Kind.LOG, 1, b'{"level":"info","data":1e999}', b""), OWN) is None

    found = said(Kind.LOG, {"level": "info", "data": ["\ud800", "\ud83d\ude00"]})

    assert found is not None
    assert ["\ufffd", "\U0001f600"] == json.loads(found.head)["data"]


@pytest.mark.parametrize("kind", [Kind.REFUSED, Kind.PROGRESS, Kind.LOG, Kind.SECRETS, Kind.UNASKED, Kind.URL_DONE])
def test_head_without_what_the_host_reads_is_nonsense(kind: Kind) -> None:
    """The call would have no answer."""
    assert said(kind, {}) is None


def test_words_of_failures_hide_nothing() -> None:
    """A terminal would obey them, and a model would read what people do not see."""
    failure = Failure("own", "\x1b[2J \u202e")
    frame = said(Kind.CATALOG, description(own=SkillFacts(failures=(failure,))))

    assert frame is not None
    (found,) = Description.from_json(json.loads(frame.head)).skills["own"].failures
    assert found.reason == "\\x1b[2J \\u202e"


TEXT = {"type": "text", "text": "x"}
BYTES = {"data": "eA==", "mimeType": "image/png"}
HELD = {"uri": "a://b", "text": "x"}
GOOD = [
    ("tool", {"content": [TEXT], "isError": False}, {}),
    ("tool", {"content": [], "structuredContent": {"a": 1}}, {}),
    ("tool", {"content": [], "structuredContent": [1]}, {"boxed": False}),
    ("tool", {"content": [{"type": "image", **BYTES}, {"type": "resource", "resource": HELD}], "isError": True}, {}),
    ("tool", {"content": [{"type": "resource_link", "uri": "a://b", "name": "n"}]}, {}),
    ("resource", {"contents": [HELD, {"uri": "a://b", "blob": "eA=="}]}, {}),
    ("resource", {"content": [TEXT], "isError": True}, {}),
    ("prompt", {"description": "d", "messages": [{"role": "user", "content": TEXT}]}, {}),
    ("prompt", {"completion": {"values": ["a"], "total": 1, "hasMore": False}}, {"completes": "x"}),
]
BAD = [
    ("tool", {}, {}),
    ("tool", {"content": "x"}, {}),
    ("tool", {"content": ["x"]}, {}),
    ("tool", {"content": [{"type": "text"}]}, {}),
    ("tool", {"content": [{"type": "text", "text": 5}]}, {}),
    ("tool", {"content": [{"type": "image", "data": "eA=="}]}, {}),
    ("tool", {"content": [{"type": "strange", "text": "x"}]}, {}),
    ("tool", {"content": [{"type": ["text"], "text": "x"}]}, {}),
    ("tool", {"content": [{"type": "resource", "resource": {"uri": "a://b"}}]}, {}),
    ("tool", {"content": [], "isError": "no"}, {}),
    ("tool", {"content": [], "structuredContent": [1]}, {}),
    ("tool", {"content": [], "resultType": "input_required", "inputRequests": {}}, {}),
    ("tool", {"contents": [HELD]}, {}),
    ("resource", {"contents": [{"text": "x"}]}, {}),
    ("resource", {"content": [TEXT], "isError": False}, {}),
    ("prompt", {"messages": [{"role": "system", "content": TEXT}]}, {}),
    ("prompt", {"completion": {"values": [1]}}, {"completes": "x"}),
]


@pytest.mark.parametrize(("kind", "payload", "how"), GOOD)
def test_results_of_the_shape_that_clients_know_pass(kind: str, payload: Any, how: Any) -> None:
    assert answered(payload, None, kind, **how)


@pytest.mark.parametrize(("kind", "payload", "how"), BAD)
def test_results_of_another_shape_end_the_worker(kind: str, payload: Any, how: Any) -> None:
    """A client may end the session over one, or take it for a question of the host."""
    assert not answered(payload, None, kind, **how)


def test_outcomes_are_looked_at_too() -> None:
    """The host reads these itself: `prowess call` and envelopes."""
    good = {"content": [TEXT], "isError": False, "result": {"text": "x", "value": 1, "meta": {}}}

    assert answered(good, {"prowess/kind": "ok"}, outcome=True)
    assert not answered(good, {}, outcome=True)
    assert not answered(good, {"prowess/kind": "fine"}, outcome=True)
    assert not answered(good, {"prowess/kind": "ok"}, "prompt", outcome=True)
    assert not answered({**good, "result": {"text": "x", "strange": 1}}, {"prowess/kind": "ok"}, outcome=True)
    assert not answered({**good, "result": {"text": "x", "blocks": [5]}}, {"prowess/kind": "ok"}, outcome=True)
    for facts in ({"prowess/attempts": "x"}, {"prowess/retry_after": []}, {"prowess/kind": ["ok"]}):
        assert not answered({"content": []}, facts)
    assert set(get_args(Failing)) == KINDS_OF_OUTCOMES


def test_contracts_with_everything_pass() -> None:
    """A new field has to be added to `shapes` as well: else no limited skill would be described any more."""
    policies = Policies(("ValueError",), 3, 1.5, 2.0, 1, thread=True, run_on="gpu")
    output = OutputShape({"type": "string"}, True, "f", "T", True, True)
    whole = replace(
        contract("a"),
        output=output,
        policies=policies,
        hints=Hints(True, True, True, True),
        icons=({"src": "x"},),
        completions={"a": ("x",), "b": None},
        source="x.py:1",
        kind="prompt",
    )
    told = description(own=SkillFacts((whole,), views={"own.a": View({"type": "object"}, None, None)}))

    assert said(Kind.CATALOG, told) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"description": 5},
        {"wire_name": "a b"},
        {"wire_name": ""},
        {"aliases": ["x" * 200]},
        {"input_schema": {"properties": {"a": 1}}},
        {"policies": {"retry_on": [], "timeout": -1}},
        {"policies": {"retry_on": [], "timeout": 1e300}},
        {"policies": {"retry_on": [], "concurrency": 0}},
        {"hints": {"read_only": "yes"}},
        {"icons": [{"href": "x"}]},
        {"source": "nowhere"},
        {"kind": "strange"},
        {"title": []},
        {"completions": {"a": "b"}},
    ],
)
def test_contracts_of_another_shape_end_the_worker(change: dict[str, Any]) -> None:
    """The host would fail over them, or a client would refuse the list of all skills."""
    told = description(own=SkillFacts((contract("a"),)))
    assert said(Kind.CATALOG, told) is not None
    told["skills"]["own"]["contracts"][0] |= change

    assert said(Kind.CATALOG, told) is None


@pytest.mark.parametrize(
    "view", [[{"type": "string"}, None], [{}, None], [None, None], ["x", None], [{"type": "object"}, {"type": "array"}]]
)
def test_views_of_another_shape_end_the_worker(view: Any) -> None:
    told = description(own=SkillFacts((contract("a"),)))
    told["skills"]["own"]["views"] = {"own.a": view}

    assert said(Kind.CATALOG, told) is None


def test_files_of_others_are_none_of_its_business(tmp_path: Path) -> None:
    """What it says of their versions would have the host reload for ever, or miss a save. Its own texts are those on disk."""
    own, read, out = tmp_path / "skills" / "own.py", tmp_path / "lib" / "a.py", tmp_path / "lib" / "out" / "b.py"
    own.parent.mkdir()
    own.write_text("reviewed")
    other = tmp_path / "skills" / "other.py"
    grant = Grant("own", Limits(read=("lib",), write=("lib/out",)), tmp_path, (own,))
    paths = [str(each) for each in (own, read, out, other, "/dev/zero", f"{read.parent}/../x.py", "relative.py")]
    facts = SkillFacts((contract("a"),), files=tuple(paths), absent=tuple(paths), own=tuple(paths), place=str(other))
    told = description(own=facts)
    told["sightings"] = {path: [1, 1, 1, 1, "x", 1] for path in paths}
    told["imported"] = {path: [1, 1, 1, 1] for path in paths}
    texts = {str(own): b"forged", str(other): b"forged"}

    frame = sound(Frame(Kind.CATALOG, 0, json.dumps(told).encode(), pack(texts)), grant)
    true = sound(Frame(Kind.CATALOG, 0, json.dumps(told).encode(), pack({str(own): b"reviewed"})), grant)

    assert frame is not None
    assert true is not None
    assert ({}, {str(own): b"reviewed"}) == (unpack(frame.body), unpack(true.body))
    found = Description.from_json(json.loads(frame.head))
    allowed = (str(own), str(read))
    assert found.skills["own"].place == ""
    assert {allowed} == {found.skills["own"].files, found.skills["own"].absent, found.skills["own"].own}
    assert {allowed} == {tuple(found.sightings), tuple(found.imported)}


def test_failures_and_imports_are_its_own() -> None:
    """Those of others count when they are broken: it must not speak for them."""
    told = description(own=SkillFacts(failures=(Failure("other.b", "broken", "/etc/passwd", 1), Failure("own.c", "x"))))
    frame = said(Kind.CATALOG, told)

    assert frame is not None
    found = Description.from_json(json.loads(frame.head)).skills["own"].failures
    assert [("own", None), ("own.c", None)] == [(each.source, each.file) for each in found]


def test_questions_have_what_belongs_to_their_kind() -> None:
    """With every character visible, and with pages that are pages."""
    form = {"message": "Name\u202e?", "schema": {"type": "object", "properties": {}}, "strange": 1}
    frame = said(Kind.QUESTIONS, {"a": form, "b": {"ask": "url", "message": "m", "url": "https://a.example/x"}})

    assert frame is not None
    told = json.loads(frame.head)
    assert {"ask": "form", "message": "Name\\u202e?", "schema": form["schema"]} == told["a"]
    for bad in (
        {"ask": "url", "message": "m", "url": "javascript:alert(1)"},
        {"ask": "url", "message": "m", "url": "https://a b"},
        {"ask": "strange"},
        {"ask": ["form"]},
        {"message": 5, "schema": {}},
        {"message": "m"},
        {"ask": "sample", "params": []},
        "x",
    ):
        assert said(Kind.QUESTIONS, {"a": bad}) is None
        assert said(Kind.INPUT_REQUIRED, {"a": bad}) is None


def test_words_for_people_hide_nothing() -> None:
    """In progress, logs and refusals."""
    hidden, seen = "a\u200bb\x1b", "a\\u200bb\\x1b"
    for kind, head in (
        (Kind.PROGRESS, {"done": 1, "total": None, "message": hidden}),
        (Kind.LOG, {"level": "info", "data": {hidden: [hidden]}}),
        (Kind.REFUSED, {"kind": "failed", "message": hidden}),
        (Kind.FAILED, {"message": hidden}),
        (Kind.READY, {"link": [1, 1], "release": hidden}),
    ):
        frame = said(kind, head)
        assert frame is not None
        assert json.dumps(hidden)[1:-1] not in frame.head.decode()
        assert json.dumps(seen)[1:-1] in frame.head.decode()
    assert said(Kind.LOG, {"level": "loud", "data": 1}) is None


def test_only_what_a_worker_was_told_is_a_secret_of_its() -> None:
    """Texts of its choice would push those of others out of the list, or hide what it does in the record."""
    grant = Grant("own", Limits(), Path(), variables=(("TOKEN", "of-env"),))

    assert {"of-settings", "7", "of-env"} == grant.passed_texts({"own": {"key": "of-settings", "list": [7]}})


@pytest.mark.parametrize("head", [b"", b"5", b"{}", b'{"imports": 5}', b'{"imports": [[1]]}', b"[" * 100_000])
def test_nonsense_about_imports_is_none_without_shared_memory(head: bytes) -> None:
    """It is read before anything else is looked at."""
    board = FrameBoard(lambda *_: None)

    assert board.read(Frame(Kind.IMPORTING, 0, head, b""))
    assert () == board.noted


def test_calls_that_begin_are_counted_as_far_as_a_worker_can_have_them() -> None:
    """A flood of numbers would fill the memory of the host."""
    board = FrameBoard(lambda *_: None)
    for number in range(70_000):
        board.read(Frame(Kind.BEGUN, number, b"", b""))

    assert board.started(1)
    assert not board.started(69_999)
