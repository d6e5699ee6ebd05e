"""The committed catalog as a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.contracts.contract import Contract, Hints, OutputShape, Policies
from prowess_host.review.compare import compare
from prowess_host.review.snapshot import FORMAT, SnapshotError, read_snapshot, write_snapshot

PLAIN = Contract(
    id="a.b", wire_name="a_b", skill="a", name="b", description="", input_schema={"type": "object", "properties": {}}
)
FULL = replace(
    PLAIN,
    id="shop.find",
    wire_name="shop_find",
    skill="shop",
    name="find",
    description="Finds.\n\nAnd more: ä.",
    input_schema={"type": "object", "properties": {"b": {"const": 1}, "a": {}}, "required": ["b"]},
    output=OutputShape({"type": "integer"}, explicit=True, field="n", type_name="N"),
    title="Find",
    category="web",
    hints=Hints(read_only=True, destructive=False),
    policies=Policies(retry_on=("OSError",), max_attempts=3, timeout=5.0),
    aliases=("f",),
    tags=("t",),
    icons=({"src": "data:,"},),
    meta={"x": {"b": 1, "a": None}},
    input_explicit=True,
    injected=("root",),
    summary="Finds.",
    source="skills/shop.py:12",
)


def read(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "catalog.json"
    file.write_text(text, "utf-8")
    return read_snapshot(file)


def command(contract: Contract, *profiles: str) -> dict[str, Any]:
    return json.loads(write_snapshot([contract], profiles))["commands"][0]


def test_file_holds_what_clients_see(tmp_path: Path) -> None:
    """In the canonical form, and in each profile asked for."""
    data = json.loads(write_snapshot([FULL], ["portable", "openmcp", "portable"]))

    assert [FORMAT, ["openmcp", "portable"]] == [data["$schema"], data["profiles"]]
    told = data["commands"][0]
    assert FULL.input_schema == told["input"]["schema"] == told["input"]["shown"]["portable"]
    assert {"openmcp", "portable"} == told["output"]["shown"].keys()
    assert {"read_only": True, "destructive": False} == told["hints"]
    assert {"max_attempts": 3, "retry_on": ["OSError"], "timeout": 5.0} == told["policies"]


def test_file_leaves_out_what_says_nothing() -> None:
    """Neither empty lists nor places in the source."""
    assert {
        "id": "a.b",
        "wire_name": "a_b",
        "category": "general",
        "description": "",
        "input": {"schema": PLAIN.input_schema, "shown": {"full": PLAIN.input_schema}},
    } == {name: held for name, held in command(PLAIN, "full").items() if name != "output"}
    text = write_snapshot([FULL], ["portable"])
    assert "skills/" not in text
    assert text.endswith("}\n")


def test_pinned_profile_is_the_one_clients_see() -> None:
    """Whatever was asked for; one that only workers know cannot be shown."""
    assert {"omni"} == command(replace(FULL, profile="omni"), "portable")["input"]["shown"].keys()
    assert "shown" not in command(replace(FULL, profile="of a plugin"), "portable")["input"]


def test_schema_that_admits_anything_is_kept(tmp_path: Path) -> None:
    """Promising anything is not promising nothing."""
    anything = replace(PLAIN, output=OutputShape({}))

    assert [anything.output] == [each.output for each in read(tmp_path, write_snapshot([anything], [])).contracts]


def test_reading_gives_back_what_is_promised(tmp_path: Path) -> None:
    """All but what no caller can rely on."""
    snapshot = read(tmp_path, write_snapshot([FULL, PLAIN], ["portable"]))

    assert (PLAIN, replace(FULL, summary="", source="", injected=())) == snapshot.contracts
    assert ("portable",) == snapshot.profiles
    assert [] == compare(snapshot.contracts, [FULL, PLAIN])


@given(order=st.permutations([PLAIN, FULL, replace(PLAIN, id="z.z")]), data=st.data())
def test_bytes_depend_on_nothing_but_what_is_promised(order: list[Contract], data: st.DataObject) -> None:
    """The order of commands, of profiles and of names in a schema makes no difference."""

    def shuffled(held: Any) -> Any:
        if isinstance(held, dict):
            return {name: shuffled(held[name]) for name in data.draw(st.permutations(sorted(held)))}
        return held

    profiles = data.draw(st.permutations(["portable", "openmcp"]))
    again = [replace(each, input_schema=shuffled(each.input_schema), source="elsewhere:1") for each in order]
    assert write_snapshot([PLAIN, FULL, replace(PLAIN, id="z.z")], ["openmcp", "portable"]) == write_snapshot(
        again, profiles
    )


def test_text_that_utf8_does_not_have_is_escaped(tmp_path: Path) -> None:
    """Half a character is still the same half after reading."""
    odd = replace(PLAIN, description="\udc80ä")

    assert "\udc80ä" == read(tmp_path, write_snapshot([odd], [])).contracts[0].description


def test_missing_file_is_no_snapshot(tmp_path: Path) -> None:
    """There is nothing to compare with yet."""
    assert read_snapshot(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a catalog of this version"),
        ('{"$schema": "other"}', "not a catalog of this version"),
        (f'{{"$schema": "{FORMAT}"}}', "not a catalog .KeyError"),
        (f'{{"$schema": "{FORMAT}", "profiles": [], "commands": [1]}}', "not a catalog"),
        (
            f'{{"$schema": "{FORMAT}", "profiles": [], "commands": [{{"id": "a.b", "input": {{"schema": 1}}}}]}}',
            "the input schema of a.b must be an object",
        ),
        (f'{{"$schema": "{FORMAT}", "profiles": [], "commands": [{{"id": 1}}]}}', "AttributeError|KeyError"),
    ],
)
def test_foreign_file_is_refused_with_a_reason(tmp_path: Path, text: str, reason: str) -> None:
    """Whoever edited it by hand is told what is wrong."""
    with pytest.raises(SnapshotError, match=reason):
        read(tmp_path, text)


def test_unreadable_file_is_refused_with_a_reason(tmp_path: Path) -> None:
    """A folder is no file."""
    with pytest.raises(SnapshotError, match="cannot be read"):
        read_snapshot(tmp_path)
