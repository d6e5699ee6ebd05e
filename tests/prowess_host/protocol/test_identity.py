"""What the server says of itself, and how results are dressed."""

from __future__ import annotations

import json

import pytest

from prowess_host.protocol.eras import REVISIONS, SERVER_KEY
from prowess_host.protocol.identity import Server, join_objects
from prowess_host.protocol.kinds import PROMPT, capabilities
from prowess_host.protocol.rpc import EncodeError

MODERN = REVISIONS["2026-07-28"]
LATEST = REVISIONS["2025-11-25"]
DETAILS = {"title": "T", "description": "d", "websiteUrl": "https://x", "icons": []}
CAPABILITIES = capabilities((), LATEST)
SERVER = Server("s", "1", instructions="Use it.", details=DETAILS)
BARE = Server("s", "1")


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("2024-11-05", ["name", "version"]),
        ("2025-03-26", ["name", "version"]),
        ("2025-06-18", ["name", "title", "version"]),
        ("2025-11-25", ["description", "icons", "name", "title", "version", "websiteUrl"]),
        ("2026-07-28", ["description", "icons", "name", "title", "version", "websiteUrl"]),
    ],
)
def test_the_identity_has_the_fields_of_the_revision(version: str, fields: list[str]) -> None:
    """A field is sent where it is known."""
    assert fields == sorted(SERVER.info(REVISIONS[version]))


def test_only_what_is_served_is_declared() -> None:
    """Tools whose list changes, and logging; and whatever else there is, with completions where there are arguments."""
    assert {"tools": {"listChanged": True}, "logging": {}} == CAPABILITIES
    changing = {"listChanged": True}
    assert {**CAPABILITIES, "prompts": changing, "completions": {}} == capabilities([PROMPT], LATEST)
    assert {**CAPABILITIES, "prompts": changing} == capabilities([PROMPT], REVISIONS["2024-11-05"])


def test_the_answer_to_a_handshake() -> None:
    """Version, capabilities, identity, and instructions where there are some."""
    expected = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": BARE.info(LATEST)}
    assert expected == BARE.initialize_result(LATEST, CAPABILITIES)
    assert "Use it." == SERVER.initialize_result(LATEST, CAPABILITIES)["instructions"]


def test_the_answer_to_discover() -> None:
    """Both eras are offered, newest first."""
    assert {"supportedVersions": list(REVISIONS), "capabilities": CAPABILITIES} == BARE.discover_result(CAPABILITIES)
    assert "Use it." == SERVER.discover_result(CAPABILITIES)["instructions"]


def test_an_identity_that_is_no_json_is_refused_at_the_start() -> None:
    """Later there would only be clients to tell."""
    with pytest.raises(EncodeError, match="the identity of the server"):
        Server("s", "1", instructions="\ud800")


def test_objects_are_joined_without_reading_them() -> None:
    """Empty ones leave no comma behind."""
    assert b'{"a":1,"b":2}' == join_objects(b"{}", b'{"a":1}', b"{}", b'{"b":2}')
    assert b"{}" == join_objects(b"{}", b"{}")


def test_a_handshake_result_is_sent_as_it_is() -> None:
    """Only `_meta` is added, where there is some."""
    assert b'{"content":[]}' == BARE.dress(b'{"content":[]}', LATEST, cacheable=True)
    assert b'{"content":[],"_meta":{"a":1}}' == BARE.dress(b'{"content":[]}', LATEST, meta=b'{"a":1}')


def test_a_stateless_result_says_its_type_and_who_made_it() -> None:
    """Beside the `_meta` that the result brought along."""
    result = json.loads(BARE.dress(b'{"content":[]}', MODERN, meta=b'{"a":1}'))
    stamp = {"name": "s", "version": "1"}
    assert {"resultType": "complete", "content": [], "_meta": {SERVER_KEY: stamp, "a": 1}} == result


def test_a_cacheable_result_says_how_long() -> None:
    """Only when it is complete."""
    whole = json.loads(BARE.dress(b"{}", MODERN, cacheable=True))
    assert (0, "private") == (whole["ttlMs"], whole["cacheScope"])
    assert "ttlMs" not in json.loads(BARE.dress(b"{}", MODERN, result_type="input_required", cacheable=True))
