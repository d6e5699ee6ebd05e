"""Finds invisible characters, which only models read, in the texts of a contract.

Control characters act on a terminal. Tags, zero-width characters, direction overrides and variation selectors can carry
whole sentences to a model that a reviewer cannot see. Nobody can be sent a lone surrogate. Light: it needs a contract but no
skill.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from prowess.contracts.contract import Contract

__all__ = ["hidden_in", "hidden_in_data", "hidden_of", "shown"]

_JOINERS: Final = "\u200c\u200d"
_VARIANTS: Final = "\ufe0e\ufe0f"
_SUSPECT: Final = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters but tab, line feed and carriage return
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # soft hyphen, and letters without a form
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero width, directions, separators, annotations
    "\ufe00-\ufe0f\U000e0000-\U000e0fff"  # selectors of variants, tags
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # controls of shorthand and of music
    "]"
)
_UNFIT: Final = re.compile(f"{_SUSPECT.pattern}|[\ud800-\udfff]")
"""The same, and lone surrogates, which UTF-8 cannot hold."""
_KEYCAPS: Final = "0123456789#*"


def hidden_in(text: str) -> str:
    """The first hidden character of a text, with its name and place; empty if there is none.

    A joiner is allowed between two emoji and between letters of joining scripts, but not between Latin letters. One variation
    selector after a symbol is allowed too.
    """
    for found in _UNFIT.finditer(text):
        if not _is_ordinary(text, found.start()):
            other = "a lone surrogate" if found[0] >= "\ud800" else "a control character"
            name = unicodedata.name(found[0], other)
            return f"U+{ord(found[0]):04X} ({name}) at character {found.start() + 1}"
    return ""


def shown(text: str) -> str:
    """The text with its hidden characters written as escapes, for terminals and models."""
    seen = _SUSPECT.sub(lambda found: found[0] if _is_ordinary(text, found.start()) else _escaped(found[0]), text)
    return seen.replace("\r\n", "\n").replace("\r", _escaped("\r"))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def hidden_of(contract: Contract) -> str:
    """The first hidden character in a contract, with its place; an empty string if there is none."""
    shown = contract.to_json()
    del shown["source"], shown["warnings"], shown["hints"]
    return hidden_in_data(shown)


def hidden_in_data(data: Any) -> str:
    """The first hidden character in JSON data, with its place; an empty string if there is none."""
    for where, text in _texts(data, ""):
        found = hidden_in(text)
        if found:
            return f"{where or 'the contract'} has a hidden character: {found}"
    return ""


def _is_ordinary(text: str, at: int) -> bool:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if text[at] in _VARIANTS:
        return _is_symbol(before) or (before != "" and before in _KEYCAPS)
    if text[at] in _JOINERS:
        return _joins(before) and _joins(after)
    return False


def _joins(char: str) -> bool:
    """Whether a character is a symbol or one of its modifiers, or belongs to a script whose letters join."""
    if not char or char.isascii():
        return False
    return char in _VARIANTS or _is_symbol(char) or (unicodedata.category(char)[0] in "LM" and not _is_western(char))


def _is_western(char: str) -> bool:
    return unicodedata.name(char, "").startswith(("LATIN", "GREEK", "CYRILLIC", "COMBINING"))


def _is_symbol(char: str) -> bool:
    return bool(char) and not char.isascii() and unicodedata.category(char) in {"So", "Sk", "Sm", "Po"}


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """All strings in JSON data, including keys, with their places."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType] - it is JSON
            place = f"{where}.{name}" if where else str(name)  # pyright: ignore[reportUnknownArgumentType]
            yield f"a name in {where or 'the contract'}", str(name)  # pyright: ignore[reportUnknownArgumentType]
            yield from _texts(item, place)
    elif isinstance(value, (list, tuple)):
        for item in value:  # pyright: ignore[reportUnknownVariableType] - as above
            yield from _texts(item, where)
