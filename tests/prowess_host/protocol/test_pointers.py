"""JSON pointers."""

from __future__ import annotations

from prowess_host.protocol.pointers import json_pointer


def test_pointer_escapes_what_has_a_meaning() -> None:
    """A slash and a tilde in a name are no steps."""
    assert "/a/0/b~1c~0d e" == json_pointer("a", 0, "b/c~d e")
    assert "" == json_pointer()
