"""Who a client behind proxies is: the nearest address that no trusted proxy has, whatever the client itself claims."""

from __future__ import annotations

from pathlib import Path

import pytest
from web import served_over_http, stateless, until

from prowess.errors import SettingsError
from prowess_host.http.headers import Headers
from prowess_host.http.proxies import Proxies

TRUSTED = ["10.0.0.0/8", "2001:db8::5"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "198.51.100.1, 192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "198.51.100.1, 192.0.2.7,\t10.0.0.2", "192.0.2.7"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("10.0.0.1", "::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("2001:db8::5", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.9", "192.0.2.7", "192.0.2.9"),
        ("", "192.0.2.7", ""),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7,", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7, unknown", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "192.0.2.7:4711", "10.0.0.1"),
        ("10.0.0.1", "[2001:db8::7]:4711", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.007", "10.0.0.1"),
        ("10.0.0.1", "192.0.2.7 192.0.2.8", "10.0.0.1"),
    ],
)
def test_client_is_the_nearest_address_that_is_not_trusted(peer: str, forwarded: str | None, client: str) -> None:
    assert client == Proxies(TRUSTED).client(peer, forwarded)


def test_lines_of_several_proxies_are_one_list() -> None:
    """Some proxies add a line of their own after the one that the client has forged."""
    sent = Headers([(b"X-Forwarded-For", b"198.51.100.1"), (b"X-Forwarded-For", b"192.0.2.7, 10.0.0.2")])
    assert "192.0.2.7" == Proxies(TRUSTED).client("10.0.0.1", sent.get("x-forwarded-for"))


def test_nobody_is_trusted_by_default() -> None:
    assert "127.0.0.1" == Proxies([]).client("127.0.0.1", "192.0.2.7")


@pytest.mark.parametrize("trusted", ["proxy.example.com", "10.0.0.1/8", "10.0.0", "", "10.0.0.0/33"])
def test_text_that_is_no_network_is_refused(trusted: str) -> None:
    """Also one with bits beyond its prefix, which may be a mistake."""
    with pytest.raises(SettingsError, match=r"serve.trusted_proxies must be addresses or networks, like .*, not "):
        Proxies([trusted])


def test_wrong_network_is_reported_before_anything_is_served(root: Path) -> None:
    options = ("--set", 'serve.trusted_proxies=["x"]')
    with pytest.raises(AssertionError, match="must be addresses"), served_over_http(root, *options, code=2):
        pass


def test_clients_of_a_trusted_proxy_count_for_themselves(root: Path) -> None:
    """One that has no room left takes none from the others, and does not get more by claiming another address."""
    options = ["--set", 'serve.trusted_proxies=["127.0.0.1"]', "--set", "serve.max_client_calls=1"]
    ada, bob, forged = ({"X-Forwarded-For": told} for told in ("192.0.2.7", "192.0.2.8", "198.51.100.1, 192.0.2.7"))
    with served_over_http(root, *options) as web:
        web.call("t_echo", ada, text="ready")
        until(lambda: b"prowess_requests_in_flight 0\n" in web.ask("GET", "/metrics").body)
        arguments = {"mark": "proxied", "loud": True}
        body, fields = stateless("tools/call", name="t_hold", arguments=arguments, _meta={"progressToken": 1})
        held = web.stream("POST", "/mcp", body, {**fields, **ada})
        assert held.message()
        assert [429, 200, 429] == [web.call("t_echo", each, text="x").status for each in (ada, bob, forged)]
        (root / "proxied").touch()
        assert "held" == held.message()["result"]["content"][0]["text"]
