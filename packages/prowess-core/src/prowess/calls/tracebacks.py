"""Formats tracebacks for authors: they begin with the author's own code."""

from __future__ import annotations

import asyncio
import concurrent
import contextlib
import threading
import traceback
from pathlib import Path
from typing import Any, Final, cast

import anyio

__all__ = ["first_notes", "shortened"]

_SITE: Final = Path(anyio.__file__).parents[1]
_MOST_NOTES: Final = 20
_MACHINERY: Final = (
    str(Path(__file__).parent),
    str(_SITE / "anyio"),
    str(_SITE / "tenacity"),
    str(Path(asyncio.__file__).parent),
    str(Path(concurrent.__file__ or "").parent),
    str(contextlib.__file__),
    str(threading.__file__),
)


def shortened(error: BaseException) -> str:
    """The traceback of an exception and of its causes, each without the frames of Prowess before the author's code."""
    shown = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [shown]
    while waiting:
        one = waiting.pop()
        if one is not None:
            _begin_with_the_author(one.stack)
            one.__notes__ = first_notes(one)
            waiting += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return "".join(shown.format()).rstrip("\n")


def first_notes(error: BaseException | traceback.TracebackException) -> list[Any]:
    """The notes of an exception, of many the first: since Python 3.14, `json.dumps` adds one for each level of nesting."""
    notes = getattr(error, "__notes__", None)
    if not isinstance(notes, list):  # an author can set anything
        return []
    all_ = cast("list[Any]", notes)
    more = len(all_) - _MOST_NOTES
    return [*all_[:_MOST_NOTES], f"... and {more} more notes"] if more > 0 else all_


def _begin_with_the_author(stack: traceback.StackSummary) -> None:
    """Drop the frames before the author's first one. Without such a frame, the fault may be ours, and everything stays."""
    first = next((at for at, frame in enumerate(stack) if not frame.filename.startswith(_MACHINERY)), 0)
    del stack[:first]
