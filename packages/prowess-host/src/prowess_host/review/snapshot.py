"""Writes and reads the committed catalog: the tools as clients see them, in a file for review and for `check`.

Equal contracts give equal bytes: the file has no times and no absolute paths, and is sorted by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Final

from prowess.contracts.contract import TOOL, Contract, Hints, OutputShape, Policies
from prowess.errors import ProwessError, SettingsError
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject, encodable
from prowess.profiles.profile import BUILT_IN, Profile
from prowess.schemas.walk import is_list, is_schema
from prowess.settings.limits import Limits, limits_of

__all__ = [
    "FORMAT",
    "PLACE",
    "Snapshot",
    "SnapshotError",
    "is_damaged_catalog",
    "parse_snapshot",
    "read_snapshot",
    "write_snapshot",
]

FORMAT: Final = "urn:prowess:catalog.v1"
PLACE: Final = Path("schemas/catalog.json")
_TITLE: Final = "The commands of this project, as clients see them"
_TEXTS: Final = ("title", "category", "description", "profile")
_LISTS: Final = ("aliases", "icons", "tags")


class SnapshotError(ProwessError):
    """The committed catalog cannot be read."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file}: {reason}")


@frozen
class Snapshot:
    """A parsed committed catalog."""

    text: str
    profiles: tuple[str, ...]
    """Its profiles."""
    contracts: tuple[Contract, ...]
    """Its contracts, without places in the source, summaries and injected parameters."""
    limits: Mapping[str, Limits] = field(default_factory=dict[str, Limits])
    """The limits of all limited skills."""


# --- writing --------------------------------------------------------------------------------------


def write_snapshot(
    contracts: Iterable[Contract], profiles: Iterable[str], limits: Mapping[str, Limits] | None = None
) -> str:
    """The text of the file. `limits` are those of limited skills."""
    shown = [BUILT_IN[name] for name in sorted(set(profiles))]
    data = {
        "$schema": FORMAT,
        "title": _TITLE,
        "profiles": [profile.name for profile in shown],
        **({"limits": {skill: limits[skill].to_json() for skill in sorted(limits)}} if limits else {}),
        "commands": [_command(each, shown) for each in sorted(contracts, key=lambda each: each.id)],
    }
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    return encodable(text)  # a lone surrogate becomes a JSON escape


def _command(contract: Contract, profiles: list[Profile]) -> JsonObject:
    """A command as data: names first, long schemas last, without undeclared fields."""
    output = contract.output
    beside = (
        {} if contract.is_tool else _given(kind=contract.kind, uri=contract.uri or None, mime_type=contract.mime_type)
    )
    completions = {name: None if known is None else list(known) for name, known in contract.completions.items()}
    fields = {
        "id": contract.id,
        "wire_name": contract.wire_name,
        **beside,
        "completions": completions,
        **{name: getattr(contract, name) for name in _TEXTS},
        **{name: list(getattr(contract, name)) for name in _LISTS},
        "meta": contract.meta,
        "hints": {name: value for name, value in asdict(contract.hints).items() if value is not None},
        "policies": _policies(contract.policies),
        "input": _given(
            explicit=contract.input_explicit,
            schema=contract.input_schema,
            shown={profile.name: profile.input_schema(contract) for profile in _pinned(contract, profiles)},
        ),
        "output": _given(
            explicit=output.explicit,
            field=output.field,
            type_name=output.type_name,
            text=output.text,
            content=output.content,
            schema=output.schema,
            shown=_given(**{each.name: each.output_schema(contract) for each in _pinned(contract, profiles)}),
        ),
    }
    return {name: _sorted(held) for name, held in fields.items() if held is not None and held not in ([], {})}


def _pinned(contract: Contract, profiles: list[Profile]) -> list[Profile]:
    """The profiles of a command; only the pinned one if there is one."""
    if contract.profile is None:
        return profiles
    return [BUILT_IN[contract.profile]] if contract.profile in BUILT_IN else []


def _given(**fields: Any) -> JsonObject:
    """The fields without empty ones. An empty schema stays, because it allows everything."""
    return {
        name: held
        for name, held in fields.items()
        if held is not None and held is not False and (name != "shown" or held)
    }


def _policies(policies: Policies) -> JsonObject:
    usual = asdict(Policies())
    given = {name: value for name, value in asdict(policies).items() if value != usual[name]}
    return {**given, "retry_on": list(policies.retry_on)} if policies.retry_on else given


def _sorted(data: Any) -> Any:
    """Data with sorted names in every object. Lists keep their order."""
    if is_schema(data):
        return {name: _sorted(data[name]) for name in sorted(data)}
    return [_sorted(item) for item in data] if is_list(data) else data


# --- reading --------------------------------------------------------------------------------------


def read_snapshot(file: Path) -> Snapshot | None:
    """Read the committed catalog; `None` for a missing file. Raises `SnapshotError` for another file."""
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotError(file, f"cannot be read ({error})") from error
    return parse_snapshot(file, text)


def parse_snapshot(file: Path, text: str) -> Snapshot:
    """Parse the text of a catalog; `file` is for messages."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(file, f"not JSON ({error}); run prowess build to write it again") from error
    if not is_schema(data) or data.get("$schema") != FORMAT:
        reason = f"not a catalog of this version: $schema is not {FORMAT!r}; choose another file"
        raise SnapshotError(file, reason)
    return _read(file, text, data)


def is_damaged_catalog(file: Path) -> bool:
    """Whether an unreadable file is a damaged catalog: torn, or with conflict markers of git.

    `prowess build` replaces only such a file, so that a wrong `--output` cannot overwrite a README.
    """
    try:
        text = file.read_text("utf-8").strip()
    except UnicodeDecodeError:
        return False
    except OSError:
        return not file.is_file()  # nothing can be lost: writing reports the error
    if not text or f'"{FORMAT}"' in text:
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text.startswith("{")
    return False


def _read(file: Path, text: str, data: JsonObject) -> Snapshot:
    try:
        limits = {skill: limits_of((table, skill)) for skill, table in data.get("limits", {}).items()}
        return Snapshot(text, tuple(data["profiles"]), tuple(_contract(item) for item in data["commands"]), limits)
    except (AttributeError, KeyError, SettingsError, TypeError) as error:
        reason = f"not a catalog ({type(error).__name__}: {error}); run prowess build to write it again"
        raise SnapshotError(file, reason) from error


def _contract(item: JsonObject) -> Contract:
    output: dict[str, Any] = {key: held for key, held in item.get("output", {}).items() if key != "shown"}
    skill, _, name = item["id"].rpartition(".")
    schema = item["input"]["schema"]
    if not is_schema(schema):
        raise TypeError(f"the input schema of {item['id']} must be an object")
    policies: dict[str, Any] = dict(item.get("policies", {}))
    policies["retry_on"] = tuple(policies.get("retry_on", ()))
    lists: dict[str, Any] = {name: tuple(item.get(name, ())) for name in _LISTS}
    return Contract(
        id=item["id"],
        wire_name=item["wire_name"],
        skill=skill,
        name=name,
        description=item.get("description", ""),
        input_schema=schema,
        input_explicit=item["input"].get("explicit", False),
        output=OutputShape(**output),
        title=item.get("title"),
        category=item.get("category", ""),
        profile=item.get("profile"),
        meta=item.get("meta", {}),
        hints=Hints(**item.get("hints", {})),
        policies=Policies(**policies),
        kind=item.get("kind", TOOL),
        uri=item.get("uri", ""),
        mime_type=item.get("mime_type"),
        completions={
            name: None if known is None else tuple(known) for name, known in item.get("completions", {}).items()
        },
        **lists,
    )
