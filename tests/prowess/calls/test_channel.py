"""The state of one call: what is not seen through a command."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from prowess.calls.channel import Arguments, Call, Channel


async def test_every_call_has_an_id():
    """The caller's own, or one that no other call has."""
    calls = [Call("s.c", Arguments({})) for _ in range(3)]
    assert 3 == len({call.id for call in calls})
    assert "mine" == Call("s.c", Arguments({}), Channel(call_id="mine")).id


async def test_without_a_deadline_there_is_nothing_to_stop():
    """A call that no policy has begun waits for a person like any other."""
    call = Call("s.c", Arguments({}))

    async def answer() -> int:
        return 7

    assert call.deadline is None
    assert not call.cancelled
    assert 7 == await call.off_the_clock(answer)


@pytest.mark.parametrize(
    "secret, text, shown",
    [
        ("secret", "a secret", "a ***"),
        ("key", "a key", "a key"),
        (["outer secret", {"k": "secret"}], "outer secret, secret", "***, ***"),
        (("tuple",), "tuple", "***"),
        ({"x": frozenset({"frozen"})}, "frozen x", "*** x"),
        ("line\nbreak", "line\nbreak and line\\nbreak", "*** and ***"),
        (SecretStr("hidden"), "hidden", "***"),
        (12345, "12345", "12345"),
        (None, "None", "None"),
    ],
)
async def test_secrets_are_not_shown(secret: object, text: str, shown: str):
    """Texts of some length, wherever they are in plain data, as they are and as `repr` shows them."""
    call = Call("s.c", Arguments({}))
    call.keep_secret(secret)
    assert shown == call.shown(text)


async def test_an_object_that_only_pretends_to_be_a_secret_is_none():
    """What it reveals has to be a text."""

    class Pretender:
        def get_secret_value(self) -> object:
            return self

    call = Call("s.c", Arguments({}))
    call.keep_secret(Pretender())
    assert [] == call.secrets
