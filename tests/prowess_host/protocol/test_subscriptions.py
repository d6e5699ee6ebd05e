"""Open subscriptions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prowess_host.protocol.eras import STATELESS, SUBSCRIPTION_KEY
from prowess_host.protocol.kinds import ROWS
from prowess_host.protocol.rpc import RpcError
from prowess_host.protocol.subscriptions import MAX_RESOURCES, MAX_SUBSCRIPTIONS, Subscriptions

MODERN = STATELESS["2026-07-28"]
TOOLS = {"toolsListChanged": True}


@pytest.mark.parametrize(
    ("wanted", "honoured"),
    [
        (TOOLS, TOOLS),
        ({"toolsListChanged": False}, {}),
        ({"toolsListChanged": None}, {}),
        ({}, {}),
        ({**TOOLS, "later": 5}, TOOLS),
        (
            {"promptsListChanged": True, "resourcesListChanged": True},
            {"promptsListChanged": True, "resourcesListChanged": True},
        ),
        ({"resourceSubscriptions": ["x://a", "x://b", "x://a"]}, {"resourceSubscriptions": ["x://a", "x://b"]}),
    ],
)
def test_the_acknowledgment_holds_what_is_honoured(wanted: dict[str, Any], honoured: dict[str, Any]) -> None:
    """What is not served is left out, known or not."""
    ack = json.loads(Subscriptions().listen("L", MODERN, wanted))
    assert "notifications/subscriptions/acknowledged" == ack["method"]
    assert {"_meta": {SUBSCRIPTION_KEY: "L"}, "notifications": honoured} == ack["params"]


def test_a_filter_of_the_wrong_kind_is_refused() -> None:
    """And nothing is opened."""
    subscriptions = Subscriptions()
    with pytest.raises(RpcError, match=r"params\.notifications\.toolsListChanged must be a boolean"):
        subscriptions.listen(1, MODERN, {"toolsListChanged": "yes"})
    assert 1 not in subscriptions


@pytest.mark.parametrize("wanted", [5, "x://a", [1]])
def test_resources_are_named_by_a_list_of_texts(wanted: Any) -> None:
    """And nothing is opened for anything else."""
    subscriptions = Subscriptions()
    with pytest.raises(RpcError, match=r"params\.notifications\.resourceSubscriptions must be a list of strings"):
        subscriptions.listen(1, MODERN, {"resourceSubscriptions": wanted})
    assert 1 not in subscriptions


def test_the_number_of_resources_of_a_subscription_is_bounded() -> None:
    """Whoever wants more is refused."""
    with pytest.raises(RpcError, match=f"more than {MAX_RESOURCES}"):
        Subscriptions().listen(1, MODERN, {"resourceSubscriptions": [f"x://{n}" for n in range(MAX_RESOURCES + 1)]})


def test_whoever_asked_hears_of_a_resource() -> None:
    """Under an own tag, with the URI."""
    subscriptions = Subscriptions()
    subscriptions.listen(1, MODERN, {"resourceSubscriptions": ["x://a"]})
    subscriptions.listen(2, MODERN, {"resourceSubscriptions": ["x://b"]})
    (line,) = subscriptions.resource_updated("x://a")
    assert {"_meta": {SUBSCRIPTION_KEY: 1}, "uri": "x://a"} == json.loads(line)["params"]


def test_everybody_who_asked_is_told_under_an_own_tag() -> None:
    """With the id of the request, type kept."""
    subscriptions = Subscriptions()
    for request_id, wanted in ((1, TOOLS), ("1", TOOLS), (2, {})):
        subscriptions.listen(request_id, MODERN, wanted)
    told = [json.loads(line)["params"]["_meta"][SUBSCRIPTION_KEY] for line in subscriptions.list_changed(ROWS[:1])]
    assert [1, "1"] == told


def test_the_number_of_open_subscriptions_is_bounded() -> None:
    """One more is refused until one is dropped."""
    subscriptions = Subscriptions()
    for request_id in range(MAX_SUBSCRIPTIONS):
        subscriptions.listen(request_id, MODERN, TOOLS)
    with pytest.raises(RpcError, match="cancel one first"):
        subscriptions.listen("more", MODERN, TOOLS)
    subscriptions.drop(0)
    assert subscriptions.listen("more", MODERN, TOOLS)
