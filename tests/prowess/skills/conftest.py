"""Functions as commands: compiled, called, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prowess.calls.outcome import Outcome
from prowess.contracts.contract import Contract
from prowess.errors import LoadError
from prowess.skills.entry import Entry


@pytest.fixture
def contract(entry: Callable[..., Entry]) -> Callable[..., Contract]:
    return lambda function, **options: entry(function, **options).contract


@pytest.fixture
def call(entry: Callable[..., Entry]) -> Callable[..., Any]:
    """Call a function like a client does."""

    async def call(function: Callable[..., Any], arguments: Any = None, **options: Any) -> Outcome:
        return await entry(function, **options).call({} if arguments is None else arguments)

    return call


@pytest.fixture
def refusal(entry: Callable[..., Entry]) -> Callable[..., str]:
    """Why a function cannot be loaded; the reason names file and line."""

    def refusal(function: Callable[..., Any], **options: Any) -> str:
        with pytest.raises(LoadError) as caught:
            entry(function, **options)
        code = function.__code__
        assert (code.co_filename, code.co_firstlineno) == (caught.value.file, caught.value.line)
        assert str(caught.value).startswith(f"{code.co_filename}:{caught.value.line}: ")
        return caught.value.reason

    return refusal
