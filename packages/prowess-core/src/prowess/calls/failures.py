"""Turns an exception into an entry of the catalog: the reason in one line, with the author's own file and line."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prowess.calls.advice import advice
from prowess.contracts.catalog import Failure
from prowess.errors import DeclarationError, LoadError, ProwessError, message_of, named_error, shortened
from prowess.jsontypes import encodable

__all__ = ["failure_of", "is_interrupt"]

_SYNTHETIC: Final = re.compile(r"\bprowess_skills_\d+\.f\d+")
"""The prefix of synthetic module names. Authors know such a module by its relative name."""
_LINE: Final = 80
"""Characters of a line of code that a message shows."""


def failure_of(error: BaseException, *, source: str, package: str, file: str | None = None) -> Failure:
    """An exception as an entry of the catalog.

    The location is the one the error names, else the innermost line in a module of `package`, else just `file`.
    """
    try:
        named = _named_location(error)
        location = named or next(_lines_in(package, error), (file, None))
        help_ = advice(error, location[0])
        return Failure(source, f"{_reason(error, named)}. {help_}" if help_ else _reason(error, named), *location)
    except Exception as failed:  # noqa: BLE001 - an author's exception may raise anything when it is looked at
        return Failure(source, f"{type(error).__name__}, which cannot be shown: {type(failed).__name__}", file)


def is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, which reaches only the main thread. Every other exception is a failure."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _named_location(error: BaseException) -> tuple[str | None, int | None] | None:
    if isinstance(error, (LoadError, DeclarationError)) and error.file is not None:
        return error.file, error.line
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        return error.filename, error.lineno
    return None


def _lines_in(package: str, error: BaseException) -> Iterator[tuple[str, int]]:
    """The lines of a package that an exception came through, the innermost first."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        name: str = frame.f_globals.get("__name__", "")
        if name == package or name.startswith(f"{package}."):
            yield frame.f_code.co_filename, line


def _reason(error: BaseException, location: tuple[str | None, int | None] | None) -> str:
    text = error.reason if isinstance(error, LoadError) else message_of(error)
    if isinstance(error, DeclarationError):
        text = text.removeprefix(f"{error.file}:{error.line}: ")
    elif isinstance(error, SyntaxError) and location is not None:
        line = shortened((error.text or "").strip(), _LINE)
        text = f"{error.msg}: {line}" if line else error.msg
    if not isinstance(error, ProwessError):
        text = named_error(error, text)
    return encodable(_SYNTHETIC.sub("", text))
