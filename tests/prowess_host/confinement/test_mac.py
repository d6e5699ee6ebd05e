"""The profile of `sandbox-exec`: its text, read as its language reads it. No test here runs it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from prowess.errors import SettingsError
from prowess.settings.limits import Limits
from prowess_host.confinement.mac import profile_for

TOKEN = re.compile(r'\s*(?:(?P<mark>[()])|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()"]+))')
ACTIONS = re.compile(
    r"process-exec|process-fork|sysctl-read|mach-lookup|file-read\*|file-read-metadata|file-read-data|"
    r"file-write\*|file-write-data|signal|system-socket|network\*|network-outbound"
)


SERVICES = ("system.opendirectoryd.libinfo", "system.notification_center")
RESOLVING = ("dnssd.service", "SystemConfiguration.configd", "trustd.agent")


def parsed(text: str) -> list[Any]:
    """The rules as lists of words; a text is a word that begins with a quote."""
    stack: list[list[Any]] = [[]]
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        assert found is not None, text[at:]
        at = found.end()
        if found["mark"] == "(":
            stack.append([])
        elif found["mark"] == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif found["text"] is not None:
            stack[-1].append('"' + re.sub(r"\\(.)", r"\1", found["text"]))
        else:
            stack[-1].append(found["word"])
    assert len(stack) == 1
    return stack[0]


def allowed(limits: Limits) -> list[list[Any]]:
    version, default, imported, *rules = parsed(profile_for(limits, ["/read"], ["/list"], ["/write"]))
    assert [["version", "1"], ["deny", "default"], ["import", '"system.sb']] == [version, default, imported]
    assert {"allow"} == {rule[0] for rule in rules}
    for rule in rules:
        assert all(ACTIONS.fullmatch(word) for word in rule[1:] if isinstance(word, str)), rule
    return [rule[1:] for rule in rules]


def test_nothing_is_allowed_but_what_the_limits_say() -> None:
    """Word by word: a rule more is a hole."""
    system = [
        "/usr",
        "/bin",
        "/sbin",
        "/System",
        "/Library",
        "/opt/homebrew",
        "/private/etc",
        "/private/var/db/timezone",
    ]
    assert [
        ["process-exec", "sysctl-read"],
        ["mach-lookup", *(["global-name", f'"com.apple.{name}'] for name in SERVICES)],
        ["file-read-metadata"],
        ["signal", ["target", "same-sandbox"]],
        *(["file-read*", ["subpath", f'"{path}']] for path in (*system, "/read", "/write")),
        ["file-read-data", ["literal", '"/list']],
        ["file-write*", ["subpath", '"/write']],
        ["file-read*", "file-write-data", *(["literal", f'"/dev/{name}'] for name in ("null", "urandom", "random"))],
    ] == allowed(Limits())


def test_processes_and_the_network_are_rules_of_their_own() -> None:
    """Of this machine only connections: two filters in one rule would be alternatives."""
    bare = allowed(Limits())

    assert [["process-fork"]] == [rule for rule in allowed(Limits(processes=1)) if rule not in bare]
    resolving = ["mach-lookup", *(["global-name", f'"com.apple.{name}'] for name in RESOLVING)]
    assert [["network*", "system-socket"], resolving] == [
        rule for rule in allowed(Limits(network=True)) if rule not in bare
    ]
    assert [["system-socket"], ["network-outbound", ["remote", "ip", '"localhost:*']]] == [
        rule for rule in allowed(Limits(network="loopback")) if rule not in bare
    ]


@pytest.mark.parametrize("path", ['/a"b', "/a\\b", '/a") (allow default) ("', "/a b (c)", "/ä"])
def test_paths_stay_texts(path: str) -> None:
    """Whatever is in their names."""
    plain, odd = (parsed(profile_for(Limits(), [each], [], [])) for each in ("/plain", path))

    assert ["allow", "file-read*", ["subpath", f'"{path}']] in odd
    assert len(plain) == len(odd)


def test_paths_that_cannot_be_named_are_refused() -> None:
    """A line feed could begin a rule."""
    with pytest.raises(SettingsError, match="cannot name"):
        profile_for(Limits(), ["/a\n(allow default)"], [], [])
