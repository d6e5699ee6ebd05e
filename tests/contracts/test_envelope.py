"""The cases of the envelopes: the two published schemas, and what reading and invoking make of the same messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from prowess import Runtime
from prowess.envelopes.envelope import invoke
from prowess.results.published import get_schema_path

SKILL = """
from prowess import skill_command

@skill_command(aliases=["search/duckduckgo"])
def duckduckgo(query: str) -> list[str]:
    return [query]
"""
REQUEST: dict[str, Any] = {
    "id": "3fd7d2b1-79d1-4b8e-92c8-105c1ce9b6f7",
    "version": "1.0.0",
    "timestamp": "2025-10-13T15:10:00Z",
    "tool": "research.duckduckgo",
    "payload": {"query": "latest"},
}
RESPONSE: dict[str, Any] = {
    "id": "3fd7d2b1-79d1-4b8e-92c8-105c1ce9b6f7",
    "version": "1.0.0",
    "status": {"code": "success", "http": 200, "message": "3 results returned"},
    "timestamp": "2025-10-13T15:10:01Z",
}
FULL_REQUEST = REQUEST | {
    "trace_id": "trace-9ab213ef",
    "context": {"task_id": "task-123", "agent": "ResearchAgent"},
    "auth": {"type": "bearer", "token": "mcp-dev-token", "scopes": ["search:read"]},
    "metadata": {"priority": "high"},
}
FULL_RESPONSE = RESPONSE | {
    "duration_ms": 845,
    "output": [{"title": "Interpreting Attention", "url": "https://arxiv.org/abs/2401.01234"}],
    "metadata": {"cached": False, "tool": "search/tavily"},
}


def validator(name: str) -> Draft7Validator:
    return Draft7Validator(json.loads(get_schema_path(name).read_text("utf-8")))


REQUESTS = validator("request.schema.json")
RESPONSES = validator("response.schema.json")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "research.py").write_text(SKILL, "utf-8")
    return tmp_path


def case(name: str, valid: bool, **changed: Any) -> Any:
    return pytest.param(changed, valid, id=name)


@pytest.mark.parametrize(
    ("changed", "valid"),
    [
        case("N-11: the document's request", True, **FULL_REQUEST),
        case("N-12: version 1.1.0", True, version="1.1.0"),
        case("N-12: version 2.0.0", False, version="2.0.0"),
        case("N-12: version 1.0", False, version="1.0"),
        case("N-12: version 1.0.0-rc1", False, version="1.0.0-rc1"),
        case("N-13: unknown root member", False, color="red"),
        case("N-14: tool with a slash", True, tool="search/tavily"),
        case("N-14: tool with a space", False, tool="a b"),
        case("N-14: empty tool", False, tool=""),
        case("N-14: tool with a colon", False, tool="ns:tool"),
        case("N-15: auth without a type", False, auth={}),
        case("N-15: auth of an unknown type", False, auth={"type": "oauth"}),
        case("N-15: auth with a further member", True, auth={"type": "none", "realm": "r"}),
        case("N-16: payload is an array", False, payload=[]),
        case("N-16: empty id", True, id=""),
        case("N-16: id is a number", False, id=5),
        case("N-16: empty trace_id", False, trace_id=""),
    ],
)
async def test_requests(changed: dict[str, Any], valid: bool, project: Path) -> None:
    """Schema and reader agree, and what cannot be read is answered with the id where it could be read."""
    message = REQUEST | changed
    assert valid is REQUESTS.is_valid(message)
    async with Runtime.open(project) as runtime:
        response = await invoke(runtime, message)
    RESPONSES.validate(response)
    known = not valid or message["tool"] == REQUEST["tool"]
    assert ("success" if valid else "error") == response["status"]["code"] or not known
    assert (message["id"] if isinstance(message["id"], str) else "") == response["id"]
    if not valid:
        assert 422 == response["status"]["http"]
        assert all({"code", "message", "path"} <= error.keys() for error in response["errors"])


@pytest.mark.parametrize("payload", [pytest.param({}, id="N-16: empty payload")])
async def test_empty_payload(payload: dict[str, Any], project: Path) -> None:
    """An empty payload is a valid envelope; whether the command takes it is the command's matter."""
    message = REQUEST | {"payload": payload}
    assert REQUESTS.is_valid(message)
    async with Runtime.open(project) as runtime:
        response = await invoke(runtime, message)
    assert [("invalid_input", "payload.query")] == [(item["code"], item["path"]) for item in response["errors"]]


@pytest.mark.parametrize(
    ("changed", "valid"),
    [
        case("N-11: the document's response", True, **FULL_RESPONSE),
        case("N-17: unknown status code", False, status={"code": "failed"}),
        case("N-17: http 99", False, status={"code": "error", "http": 99}),
        case("N-17: http 600", False, status={"code": "error", "http": 600}),
        case("N-17: further member of status", True, status={"code": "error", "reason": "r"}),
        case("N-18: negative duration", False, duration_ms=-1),
        case("N-18: null output", True, output=None),
        case("N-18: error without a message", False, errors=[{}]),
        case("N-18: error with a message", True, errors=[{"message": "m"}]),
        case("N-18: error code is a number", False, errors=[{"message": "m", "code": 5}]),
        case("N-18: detail is a text", False, errors=[{"message": "m", "detail": "x"}]),
        case("N-18: header is a number", False, headers={"a": 1}),
        case("N-13: unknown root member of a response", False, color="red"),
    ],
)
def test_responses(changed: dict[str, Any], valid: bool) -> None:
    """What a response may be is settled by its schema alone: we only write them."""
    assert valid is RESPONSES.is_valid(RESPONSE | changed)


@pytest.mark.parametrize(
    "version", [pytest.param("1.0.7", id="N-13: patch"), pytest.param("1.1.0", id="N-13: higher minor")]
)
async def test_unknown_member_of_a_version(version: str, project: Path) -> None:
    """A higher minor version may have members we do not know: they are set aside. Ours may not."""
    async with Runtime.open(project) as runtime:
        response = await invoke(runtime, REQUEST | {"version": version, "color": "red"})
    if version == "1.1.0":
        assert ["color"] == response["metadata"]["set_aside"]
    else:
        assert "unknown_member" == response["errors"][0]["code"]


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param("research.duckduckgo", id="N-7: with a dot"),
        pytest.param("research/duckduckgo", id="N-7: with a slash"),
        pytest.param("Research/DuckDuckGo", id="N-7: in other case"),
        pytest.param("search/duckduckgo", id="N-8: by an alias"),
        pytest.param("search.duckduckgo", id="N-8: by an alias with a dot"),
    ],
)
async def test_tool_names(tool: str, project: Path) -> None:
    """Dots and slashes are alike, and so are cases where nothing fits exactly."""
    async with Runtime.open(project) as runtime:
        response = await invoke(runtime, REQUEST | {"tool": tool})
    assert ("success", "research.duckduckgo") == (response["status"]["code"], response["metadata"]["tool"])
