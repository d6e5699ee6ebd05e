"""What a limited skill is told when the operating system refuses something."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from prowess.calls.advice import advice
from prowess.settings.limits import VARIABLE, Limits, own_limits

PLACE = " in [sandbox.weather] of prowess.toml, or where the skill declares its limits"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[[Limits], None]:
    """Makes this process think that it is limited."""

    def limit(limits: Limits) -> None:
        monkeypatch.setenv(VARIABLE, json.dumps({"skill": "weather", "limits": limits.to_json()}))

    return limit


def raised(module: str, error: BaseException) -> BaseException:
    """An exception that comes from a module of this name."""
    space: dict[str, Any] = {"__name__": module, "error": error}
    try:
        exec("raise error", space)
    except BaseException as caught:  # noqa: BLE001
        return caught
    raise AssertionError


REFUSED = PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "The memory of this skill is limited: allow more with `memory`"),
        (socket.gaierror(-3, "Temporary failure"), "The network is off for this skill: allow it with `network = true`"),
        (raised("socket", REFUSED), "The network is off for this skill: allow it with `network = true`"),
        (
            OSError(errno.EFBIG, "File too large"),
            "The size of its files is limited: allow larger ones with `file_size`",
        ),
        (PermissionError(errno.EACCES, "no", "/x"), "/x is not open to this skill: allow it with `read` or `write`"),
        (
            raised("subprocess", PermissionError(errno.EPERM, "no")),
            "This skill may start no processes: allow more with `processes`",
        ),
        (
            PermissionError(errno.EPERM, "no"),
            f"The limits of this skill may refuse this ({Limits().in_words()}): widen them",
        ),
    ],
)
def test_refusal_says_what_would_allow_it(limited: Callable[[Limits], None], error: BaseException, text: str) -> None:
    """With the key, and the place to write it."""
    limited(Limits())

    assert advice(error) == text + PLACE


def test_refusal_is_found_behind_the_errors_of_libraries(limited: Callable[[Limits], None]) -> None:
    """They raise their own, some with a cause and some in a context."""
    limited(Limits())
    caused, around = ValueError("pool"), ValueError("url")
    caused.__cause__ = socket.gaierror(-3, "Temporary failure")
    around.__context__ = caused
    caused.__context__ = around  # a circle is no endless loop

    assert advice(around).startswith("The network is off")


def test_processes_over_the_limit_are_told(limited: Callable[[Limits], None]) -> None:
    """The system says that it is to be tried again."""
    limited(Limits(processes=4))

    assert advice(raised("subprocess", BlockingIOError(errno.EAGAIN, "no"))).startswith(
        "This skill may start 4 processes"
    )
    assert advice(BlockingIOError(errno.EAGAIN, "a pipe")) == ""


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.ENOSPC, "No space"), socket.gaierror(-2, "unknown")])
def test_other_errors_have_another_cause(limited: Callable[[Limits], None], error: BaseException) -> None:
    """Advice that is beside the point costs more than none."""
    limited(Limits(network=True))

    assert advice(error) == ""


@pytest.mark.parametrize("told", [None, "", "{", "[]", '{"skill": "a", "limits": {"x": 1}}'])
def test_process_without_limits_is_told_nothing(monkeypatch: pytest.MonkeyPatch, told: str | None) -> None:
    """The variable enforces nothing: nonsense in it is ignored."""
    monkeypatch.delenv(VARIABLE, raising=False)
    if told is not None:
        monkeypatch.setenv(VARIABLE, told)

    assert advice(MemoryError()) == ""


def test_limits_are_read_from_the_environment() -> None:
    """As the host writes them."""
    told = json.dumps({"skill": "a", "limits": Limits(cpu=1).to_json()})

    assert own_limits({VARIABLE: told}) == ("a", Limits(cpu=1))
