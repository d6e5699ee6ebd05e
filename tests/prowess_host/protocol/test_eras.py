"""Revisions, negotiation and envelopes."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import version as official

from prowess_host.protocol import eras
from prowess_host.protocol.eras import CAPABILITIES_KEY, CLIENT_KEY, HANDSHAKE, REVISIONS, STATELESS, VERSION_KEY
from prowess_host.protocol.rpc import INVALID_PARAMS, UNSUPPORTED_VERSION, RpcError

ENVELOPE: dict[str, Any] = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}


def test_the_revisions_are_the_official_ones_newest_first() -> None:
    """Both eras are listed, since a client picks from the list."""
    assert tuple(reversed(official.KNOWN_PROTOCOL_VERSIONS)) == eras.SUPPORTED_VERSIONS
    assert set(official.HANDSHAKE_PROTOCOL_VERSIONS) == set(HANDSHAKE)
    assert set(official.MODERN_PROTOCOL_VERSIONS) == set(STATELESS)
    assert official.LATEST_HANDSHAKE_VERSION == eras.LATEST_HANDSHAKE.version
    assert [*eras.SUPPORTED_VERSIONS] == [each.version for each in REVISIONS.values()]


@pytest.mark.parametrize("requested", HANDSHAKE)
def test_a_supported_version_is_answered_with_itself(requested: str) -> None:
    """Otherwise the client has to guess."""
    assert requested == eras.negotiate(requested).version


@pytest.mark.parametrize("requested", ["2026-07-28", "1900-01-01", "2099-01-01", ""])
def test_any_other_version_is_answered_with_the_latest_that_has_a_handshake(requested: str) -> None:
    """The client decides whether it can live with it."""
    assert "2025-11-25" == eras.negotiate(requested).version


def test_an_envelope_selects_its_revision() -> None:
    """Nothing but the two required keys is needed."""
    assert "2026-07-28" == eras.open_envelope(ENVELOPE).version
    assert eras.ClientInfo({}, {}) == eras.envelope_client(ENVELOPE)


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        pytest.param({CAPABILITIES_KEY: ...}, INVALID_PARAMS, CAPABILITIES_KEY, id="no capabilities"),
        pytest.param({VERSION_KEY: 5}, INVALID_PARAMS, VERSION_KEY, id="version a number"),
        pytest.param({VERSION_KEY: None}, INVALID_PARAMS, VERSION_KEY, id="version null"),
        pytest.param({VERSION_KEY: "2099-01-01"}, UNSUPPORTED_VERSION, "2099-01-01", id="version unknown"),
        pytest.param({VERSION_KEY: "2025-11-25"}, UNSUPPORTED_VERSION, "2025-11-25", id="version of a handshake"),
        pytest.param({CAPABILITIES_KEY: 5}, INVALID_PARAMS, CAPABILITIES_KEY, id="row-53 capabilities a number"),
        pytest.param({CAPABILITIES_KEY: None}, INVALID_PARAMS, CAPABILITIES_KEY, id="capabilities null"),
    ],
)
def test_what_is_wrong_with_an_envelope(change: dict[str, Any], code: int, named: str) -> None:
    """The error names the key or the version."""
    meta = {name: value for name, value in {**ENVELOPE, **change}.items() if value is not ...}
    with pytest.raises(RpcError) as caught:
        eras.open_envelope(meta)
    assert code == caught.value.code
    assert named in caught.value.message


@pytest.mark.parametrize("info", ["x", 5, [], {"name": 5}, {"name": "x", "version": None}])
def test_row_53_a_client_info_of_the_wrong_kind_is_refused(info: Any) -> None:
    """In both eras, naming the field."""
    with pytest.raises(RpcError, match="clientInfo"):
        eras.envelope_client({**ENVELOPE, CLIENT_KEY: info})
    with pytest.raises(RpcError, match="clientInfo"):
        eras.handshake_client({"clientInfo": info})


def test_a_client_describes_itself_in_a_handshake() -> None:
    """What is missing is empty, since nothing depends on it."""
    client = eras.handshake_client({"clientInfo": {"name": "c"}, "capabilities": {"elicitation": {}}})
    assert eras.ClientInfo({"name": "c"}, {"elicitation": {}}) == client
    assert eras.ClientInfo({}, {}) == eras.handshake_client({})
    with pytest.raises(RpcError, match=r"params\.capabilities must be an object"):
        eras.handshake_client({"capabilities": []})


@pytest.mark.parametrize("token", [None, "a", "", 1, 0, 10**30])
def test_a_progress_token_is_a_string_or_an_integer(token: Any) -> None:
    """And keeps its type."""
    assert token == eras.read_progress_token({"progressToken": token})


@pytest.mark.parametrize("token", [True, 1.5, {}, []])
def test_another_progress_token_is_refused(token: Any) -> None:
    """It could not be sent back."""
    with pytest.raises(RpcError, match="progressToken must be a string or an integer"):
        eras.read_progress_token({"progressToken": token})


@pytest.mark.parametrize("level", eras.LOG_LEVELS)
def test_a_log_level_is_one_of_eight(level: str) -> None:
    """Those of syslog."""
    assert level == eras.read_log_level(level, "params.level")


@pytest.mark.parametrize("level", ["warn", "", 5, None, []])
def test_another_log_level_is_refused(level: Any) -> None:
    """With the list of those there are."""
    with pytest.raises(RpcError, match=r"params\.level must be one of debug, info"):
        eras.read_log_level(level, "params.level")
