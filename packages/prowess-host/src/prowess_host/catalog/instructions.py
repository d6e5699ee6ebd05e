"""The instructions of the server, which help models to find the right tools. Generated unless a project sets them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from prowess.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess.settings.keys import IdentitySettings

__all__ = ["MOST_INSTRUCTIONS", "details_of", "instructions_of"]

MOST_INSTRUCTIONS: Final = 2000
"""Bytes. Claude Code cuts instructions at 2 KB, and every client pays for them in each session."""
_LEAST_OF_LINE: Final = 40
"""Bytes that the line of a skill gets at least, even if there are many skills."""
_MOST_OF_ICON: Final = 64 * 1024
_TYPES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}


def instructions_of(contracts: Iterable[Contract]) -> str | None:
    """A line for each skill about its commands. The lines share the space; with very many skills, only names are listed."""
    skills: dict[str, list[str]] = {}
    for contract in contracts:
        if not contract.is_tool:
            continue
        skills.setdefault(contract.skill, []).append((contract.summary or contract.name).rstrip("."))
    if not skills:
        return None
    head = "The tools of these skills, by the beginning of their names:"
    room = MOST_INSTRUCTIONS - len(head)
    if room // len(skills) < _LEAST_OF_LINE:
        return _cut(f"{head} {', '.join(skills)}", MOST_INSTRUCTIONS)
    lines: list[str] = []
    for left, (skill, summaries) in zip(range(len(skills), 0, -1), skills.items(), strict=True):
        line = _cut(f"- {skill}: {'; '.join(dict.fromkeys(summaries))}", room // left - 1)
        lines.append(line)
        room -= len(line.encode()) + 1
    return "\n".join([head, *lines])


def _cut(line: str, most: int) -> str:
    """Cut a line to a number of bytes."""
    whole = line.encode("utf-8", "replace")
    if len(whole) <= most:
        return whole.decode()
    return f"{whole[: most - len('…'.encode())].decode('utf-8', 'ignore')}…"


def details_of(own: IdentitySettings, root: Path) -> JsonObject:
    """The identity in the settings, without the name: title, description, website and icons."""
    details: JsonObject = {"title": own.title, "description": own.description, "websiteUrl": own.website_url}
    details["icons"] = [_icon(source, root) for source in own.icons] or None
    return {name: value for name, value in details.items() if value is not None}


def _icon(source: str, root: Path) -> JsonObject:
    """An icon: a URL unchanged, or a file of the project as a `data:` URL."""
    if source.startswith(("https://", "data:")):
        return {"src": source}
    path = root / source
    kind = _TYPES.get(path.suffix.lower())
    if kind is None:
        raise SettingsError(
            f"identity.icons: {source!r} is not an icon; name an image file ({', '.join(_TYPES)}), or an address that begins with "
            "https:// or data:"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"identity.icons: {source} cannot be read: {error.strerror or error}") from error
    if len(data) > _MOST_OF_ICON:
        raise SettingsError(f"identity.icons: {source} has {len(data)} bytes; an icon has {_MOST_OF_ICON} at most")
    import base64  # only where there are icons

    return {"src": f"data:{kind};base64,{base64.b64encode(data).decode()}", "mimeType": kind}
