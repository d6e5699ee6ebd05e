"""What a limited worker says is checked before it is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prowess.contracts.catalog import Failure
from prowess.contracts.contract import Contract
from prowess.settings.limits import Limits
from prowess.skills.description import Description, SkillFacts, View
from prowess.worker.link import Frame
from prowess.worker.messages import Kind
from prowess_host.confinement.grants import Grant
from prowess_host.workers.mistrust import sound

OWN = Grant("own", Limits(), Path())


def said(kind: Kind, head: Any = None, body: bytes = b"") -> Frame | None:
    return sound(Frame(kind, 1, b"" if head is None else json.dumps(head).encode(), body), OWN)


def contract(name: str, skill: str = "own", description: str = "Does.") -> Contract:
    return Contract(f"{skill}.{name}", f"{skill}_{name}", skill, name, description, {})


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
    told = description(own=SkillFacts((contract("a"),), has_hooks=True), other=SkillFacts((contract("b", "other"),)))

    frame = said(Kind.CATALOG, told)

    assert frame is not None
    found = Description.from_json(json.loads(frame.head))
    assert ["own"] == list(found.skills)
    assert not found.skills["own"].has_hooks
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
    views = {"own.a": View({"description": "x\u200b"}, None, None), "other.b": View({}, None, None)}
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


@pytest.mark.parametrize("kind", [Kind.REFUSED, Kind.PROGRESS, Kind.LOG, Kind.SECRETS, Kind.URL_DONE])
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
