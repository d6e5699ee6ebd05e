"""Error codes and messages."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import jsonrpc

from prowess_host.protocol import rpc
from prowess_host.protocol.rpc import CODES, EncodeError, RpcError, shown


@pytest.mark.parametrize(
    "name",
    [
        "PARSE_ERROR",
        "INVALID_REQUEST",
        "METHOD_NOT_FOUND",
        "INVALID_PARAMS",
        "INTERNAL_ERROR",
        "HEADER_MISMATCH",
        "URL_ELICITATION_REQUIRED",
    ],
)
def test_a_code_is_the_one_of_the_official_types(name: str) -> None:
    """Numbers are easy to get wrong."""
    assert getattr(jsonrpc, name) == getattr(rpc, name)


def test_the_codes_that_are_named_otherwise_there() -> None:
    """Shorter here."""
    assert jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY == rpc.MISSING_CLIENT_CAPABILITY
    assert jsonrpc.UNSUPPORTED_PROTOCOL_VERSION == rpc.UNSUPPORTED_VERSION


def test_a_reserved_code_is_sent_only_if_it_is_defined() -> None:
    """The range is the specification's, not ours."""
    reserved = {code for code in CODES if -32099 <= code <= -32020}
    assert {-32020, -32021, -32022, -32042} == reserved
    assert not CODES[rpc.URL_ELICITATION_REQUIRED].stateless
    assert not CODES[rpc.RESOURCE_NOT_FOUND].stateless
    assert 404 == CODES[rpc.METHOD_NOT_FOUND].http_status


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RpcError.parse_error("x"), -32700, ["x"]),
        (RpcError.invalid_request("x"), -32600, ["x"]),
        (RpcError.oversized(5), -32600, ["5 bytes", "send less"]),
        (RpcError.duplicate_id("a"), -32600, ['"a"', "fresh id"]),
        (RpcError.batch_refused("x"), -32600, ["x", "each line"]),
        (RpcError.method_not_found("a/b"), -32601, ["a/b"]),
        (RpcError.method_not_found("a/b", "2025-06-18"), -32601, ["a/b", "2025-06-18"]),
        (RpcError.not_initialized("tools/list", "key"), -32602, ["tools/list", "_meta key key", "send initialize"]),
        (RpcError.unsupported_version("x", ["a", "b"]), -32022, ['"x"', "a, b"]),
        (RpcError.missing_capability({"elicitation": {}}), -32021, ["elicitation", "clientCapabilities"]),
        (RpcError.missing_param("params.name", "a string"), -32602, ["params.name", "a string"]),
        (RpcError.wrong_param("params.name", "a string", 5), -32602, ["params.name", "a string", "5"]),
        (RpcError.unreadable_text(), -32602, ["surrogate", "whole pair"]),
        (RpcError.unknown_tool("x", '; did you mean "y"?'), -32602, ["x", "y"]),
        (RpcError.bad_cursor("x"), -32602, ['"x"', "without a cursor"]),
        (RpcError.bad_request_state("has expired"), -32602, ["requestState has expired", "without it"]),
        (RpcError.internal("x"), -32603, ["x"]),
    ],
)
def test_an_error_names_the_value_the_place_and_the_way_out(error: RpcError, code: int, words: list[str]) -> None:
    """The constructor writes the text; its code is in the table."""
    assert code == error.code
    assert code in CODES
    assert [] == [word for word in words if word not in error.message]
    assert str(error) == error.message


def test_the_data_of_the_errors_that_have_some() -> None:
    """Clients act on these."""
    assert {"supported": ["a"], "requested": "x"} == RpcError.unsupported_version("x", ("a",)).data
    assert {"requiredCapabilities": {"elicitation": {}}} == RpcError.missing_capability({"elicitation": {}}).data
    assert "a/b" == RpcError.method_not_found("a/b").data
    assert {"reason": "invalid_request_state"} == RpcError.bad_request_state("x").data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        (1.5, "1.5"),
        ("a", '"a"'),
        ("a" * 61, f'"{"a" * 60}…"'),
        ({"secret": 1}, "an object"),
        ([1], "an array"),
    ],
)
def test_a_value_is_shown_short_and_without_what_is_in_it(value: Any, text: str) -> None:
    """An error message must not carry a whole argument back."""
    assert text == shown(value)


def test_an_encode_error_says_what_and_why() -> None:
    """It is our own mistake, so its reader has our log."""
    assert "the result cannot be encoded as JSON: x" == str(EncodeError("the result", ValueError("x")))
