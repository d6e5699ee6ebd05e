"""Method tables and the shape of parameters."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import methods as official

from prowess_host.protocol.eras import HANDSHAKE, REVISIONS, STATELESS
from prowess_host.protocol.kinds import SKILLS_METHODS
from prowess_host.protocol.methods import (
    CACHEABLE,
    HANDSHAKE_METHODS,
    STATELESS_METHODS,
    TASK_METHODS,
    check_params,
    is_known,
)
from prowess_host.protocol.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError

LATEST = HANDSHAKE["2025-11-25"]
MODERN = STATELESS["2026-07-28"]


def refusal(method: str, params: dict[str, Any], version: str = "2025-11-25") -> RpcError:
    """The error that these parameters meet."""
    with pytest.raises(RpcError) as caught:
        check_params(method, params, REVISIONS[version])
    return caught.value


@pytest.mark.parametrize("version", REVISIONS)
def test_every_revision_has_the_methods_of_the_capabilities_we_declare(version: str) -> None:
    """Compared with the official table."""
    expected = {method for method, revision in official.CLIENT_REQUESTS if revision == version}
    if version in STATELESS:
        expected |= TASK_METHODS | SKILLS_METHODS  # of extensions, so the official table lacks them
    ours = STATELESS_METHODS if version in STATELESS else HANDSHAKE_METHODS
    assert expected == set(ours)


def test_the_cacheable_methods_are_the_official_ones() -> None:
    """Those that we have, and those of the Skills extension."""
    assert {method for method in official.CACHEABLE_METHODS if is_known(method)} | SKILLS_METHODS == set(CACHEABLE)


@pytest.mark.parametrize(
    ("method", "version"),
    [
        ("initialize", "2026-07-28"),
        ("ping", "2026-07-28"),
        ("logging/setLevel", "2026-07-28"),
        ("resources/subscribe", "2026-07-28"),
        ("server/discover", "2025-11-25"),
        ("subscriptions/listen", "2025-11-25"),
        ("tasks/list", "2025-11-25"),
    ],
)
def test_row_16_a_method_that_is_not_in_the_table_is_refused(method: str, version: str) -> None:
    """Whether it is of the other era, of an undeclared capability or of nobody."""
    error = refusal(method, {}, version)
    assert (METHOD_NOT_FOUND, method) == (error.code, error.data)


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        pytest.param("tools/call", {}, "params.name is required", id="row-18 no params or no name"),
        pytest.param("tools/call", {"name": 5}, "params.name must be a string, not 5", id="row-18 name 5"),
        pytest.param("tools/call", {"name": None}, "params.name must be a string, not null", id="row-18 name null"),
        pytest.param(
            "tools/call", {"name": "x", "arguments": [1]}, "params.arguments must be an object", id="row-18 a list"
        ),
        pytest.param("tools/list", {"cursor": 5}, "params.cursor must be a string", id="cursor 5"),
        pytest.param("logging/setLevel", {}, "params.level is required", id="no level"),
        pytest.param("initialize", {}, "params.protocolVersion is required", id="no version"),
        pytest.param("initialize", {"protocolVersion": 1}, "params.protocolVersion must be a string", id="version 1"),
    ],
)
def test_row_18_wrong_params_are_refused_with_the_field_named(method: str, params: dict[str, Any], named: str) -> None:
    """A client author reads this message."""
    error = refusal(method, params)
    assert INVALID_PARAMS == error.code
    assert named in error.message


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "x", "requestState": 5}),
        ("tools/call", {"name": "x", "inputResponses": []}),
        ("subscriptions/listen", {}),
        ("subscriptions/listen", {"notifications": None}),
    ],
)
def test_the_stateless_era_has_params_of_its_own(method: str, params: dict[str, Any]) -> None:
    """They are checked like the others."""
    assert INVALID_PARAMS == refusal(method, params, "2026-07-28").code


@pytest.mark.parametrize("params", [{"name": "x"}, {"name": "x", "arguments": None}, {"name": "x", "arguments": {}}])
def test_row_19_arguments_may_be_missing_or_null(params: dict[str, Any]) -> None:
    """Both mean none; so it is with every optional field."""
    check_params("tools/call", params, LATEST)
    check_params("tools/call", {**params, "requestState": None}, MODERN)


def test_a_handshake_call_may_carry_names_it_does_not_know() -> None:
    """What a revision does not define is not looked at."""
    check_params("tools/call", {"name": "x", "requestState": 5}, LATEST)
