"""Agent Skills: checks the front matter of a `SKILL.md` by the rules of agentskills.io, and makes the entry of a skill."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from prowess.jsontypes import JsonObject

__all__ = ["LARGEST_SKILL", "MOST_OF_SKILL", "SkillFileProblem", "digest", "read_front_matter"]

MOST_OF_SKILL: Final = 512
"""Files of a skill that every client accepts."""
LARGEST_SKILL: Final = 16 * 1024 * 1024
"""Bytes of all its files together."""
_LARGEST_FRONT_MATTER: Final = 64 * 1024
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST: Final[Mapping[str, int]] = {"name": 64, "description": 1024, "compatibility": 500}
_TEXTS: Final = ("name", "description", "license", "compatibility", "allowed-tools")
_KNOWN: Final = (*_TEXTS, "metadata", "sandbox")
"""The fields of the format, and the limits that Prowess reads."""


class SkillFileProblem(NamedTuple):
    """A fault of a `SKILL.md`, with its line."""

    line: int
    reason: str
    fatal: bool = True
    """Whether the skill is not listed because of it."""


def digest(text: bytes) -> str:
    """The digest of a file in the form of the Skills extension."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def read_front_matter(text: bytes, folder: str) -> tuple[JsonObject, list[SkillFileProblem]]:
    """Parse the front matter of the `SKILL.md` in a folder of this name; returns it with all its faults."""
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return {}, [SkillFileProblem(1, "is not UTF-8 text")]
    ends = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    if len(ends) < 2 or ends[0] != 0:
        return {}, [
            SkillFileProblem(1, "must begin with front matter: name and description in YAML, between two lines of ---")
        ]
    matter = "\n".join(lines[1 : ends[1]])
    if len(matter) > _LARGEST_FRONT_MATTER:
        return {}, [SkillFileProblem(1, f"has front matter of more than {_LARGEST_FRONT_MATTER} characters")]
    try:
        data = _parsed(matter)
    except Exception as error:  # noqa: BLE001 - the YAML library may raise anything for foreign text
        mark: Any = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        return {}, [SkillFileProblem(2 + (mark.line if mark else 0), f"has invalid YAML in its front matter: {what}")]
    if not isinstance(data, dict):
        return {}, [SkillFileProblem(2, "has front matter without fields; write name: and description:")]
    fields = cast("JsonObject", data)
    try:
        json.dumps(fields, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        return {}, [SkillFileProblem(2, f"has front matter that JSON cannot represent: {error}")]
    at = {line.partition(":")[0].strip(): number for number, line in reversed(list(enumerate(lines[: ends[1]], 1)))}
    return fields, [
        SkillFileProblem(at.get(str(name), 2), reason, fatal) for name, reason, fatal in _problems(fields, folder)
    ]


def _parsed(matter: str) -> object:
    from ruamel.yaml import YAML  # not on the way to the first answer
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.events import AliasEvent

    class Texts(SafeConstructor):
        """Reads dates as strings."""

    kind: Any = Texts
    kind.add_constructor("tag:yaml.org,2002:timestamp", kind.construct_yaml_str)
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Constructor = kind
    if any(isinstance(event, AliasEvent) for event in yaml.parse(matter)):
        raise ValueError("it uses YAML aliases; repeat the values instead")
    return yaml.load(matter)


def _problems(fields: JsonObject, folder: str) -> Iterable[tuple[str, str, bool]]:
    from prowess.contracts.hidden import hidden_in_data  # not on the way to the first answer

    for name in ("name", "description"):
        if not fields.get(name):
            yield name, f"has no {name} in its front matter", True
    for name in _TEXTS:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            yield name, f"has a {name} that is not a string: {value!r}", name in _LONGEST
        elif isinstance(value, str) and len(value) > _LONGEST.get(name, len(value)):
            yield name, f"has a {name} of {len(value)} characters; at most {_LONGEST[name]} are allowed", True
    name = fields.get("name")
    if isinstance(name, str) and name:
        if not _NAME.fullmatch(name):
            yield "name", f"has the name {name!r}; use lowercase letters, digits and single hyphens", True
        elif name != folder:
            yield "name", f"has the name {name!r}, but its folder is {folder!r}; both must be the same", True
    if hidden := hidden_in_data(fields):
        yield (
            "description",
            f"hides something in its front matter: {hidden}. Models read this, but people do not see it",
            True,
        )
    metadata = fields.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        yield "metadata", "has metadata that is not a table", False
    for unknown in sorted(fields.keys() - set(_KNOWN), key=str):  # YAML also has fields that are numbers
        yield unknown, f"has the field {unknown!r}, which the Agent Skills format does not know", False
