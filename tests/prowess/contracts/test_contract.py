"""A contract is plain data: it survives being written down, and its digest says whether anything was changed."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess import Runtime
from prowess.contracts.contract import Contract, Hints, OutputShape, Policies

FULL = Contract(
    id="notes.add",
    wire_name="notes_add",
    skill="notes",
    name="add",
    description="Add a note.\n\nMore.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
    output=OutputShape({"type": "object"}, explicit=True, field="note", type_name="Note"),
    summary="Add a note.",
    category="writing",
    title="Add",
    hints=Hints(read_only=False, idempotent=True),
    policies=Policies(retry_on=("OSError",), max_attempts=3, cache_ttl=1.5, timeout=9, concurrency=2, thread=False),
    aliases=("notes.new",),
    tags=("text", "fast"),
    icons=({"src": "data:image/png;base64,AAAA"},),
    meta={"team": ["a", None]},
    profile="full",
    input_explicit=True,
    injected=("settings",),
    source="skills/notes.py:3",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
objects = st.dictionaries(st.text(), json_values, max_size=3)
texts = st.text(max_size=10)
some_texts = st.lists(texts, max_size=3).map(tuple)
hint = st.none() | st.booleans()
contracts = st.builds(
    Contract,
    *(texts,) * 5,
    input_schema=objects,
    output=st.builds(OutputShape, st.none() | objects, st.booleans(), st.none() | texts, st.none() | texts),
    hints=st.builds(Hints, hint, hint, hint, hint),
    policies=st.builds(Policies, some_texts, st.integers(1, 9), st.floats(0, 9), st.none() | st.floats(1, 9)),
    aliases=some_texts,
    tags=some_texts,
    icons=st.lists(objects, max_size=2).map(tuple),
    meta=objects,
    title=st.none() | texts,
    injected=some_texts,
)


@given(contracts)
def test_a_contract_survives_json(contract: Contract):
    """What is written is read back to an equal contract, with the same digest."""
    text = json.dumps(contract.to_json())
    assert contract == Contract.from_json(json.loads(text))
    assert contract.digest == Contract.from_json(json.loads(text)).digest


def test_every_field_of_a_contract_is_written():
    """A full contract comes back whole, its parts as what they were."""
    assert FULL == Contract.from_json(json.loads(json.dumps(FULL.to_json())))
    others = {"kind", "uri", "mime_type", "completions"}
    assert {field.name for field in dataclasses.fields(Contract)} - others == FULL.to_json().keys()


def test_a_resource_and_a_prompt_have_fields_of_their_own():
    """They come back as they were; the contract of a command does without them, so that its digest stays what it was."""
    told = dataclasses.replace(
        FULL, kind="resource", uri="x://{a}", mime_type="a/b", completions={"a": ("b", "c"), "d": None}
    )
    assert told == Contract.from_json(json.loads(json.dumps(told.to_json())))
    assert {field.name for field in dataclasses.fields(Contract)} == told.to_json().keys()
    assert told.digest != dataclasses.replace(told, uri="x://{b}").digest


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Add."},
        {"input_schema": {"type": "object"}},
        {"output": OutputShape({"type": "string"})},
        {"hints": Hints(read_only=False)},
        {"policies": Policies(timeout=8)},
        {"aliases": ()},
        {"meta": {}},
        {"profile": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_digest_sees_every_change_of_the_promise(change: dict[str, Any]):
    """A client or a reviewer has to look again."""
    assert FULL.digest != dataclasses.replace(FULL, **change).digest


def test_the_machine_shows_only_where_an_author_names_one():
    """So the contracts of projects without agents stay as they were."""
    away = dataclasses.replace(FULL, policies=Policies(run_on="gpu"))
    assert "run_on" not in FULL.to_json()["policies"]
    assert away == Contract.from_json(json.loads(json.dumps(away.to_json())))
    assert away.digest != dataclasses.replace(FULL, policies=Policies()).digest


@pytest.mark.parametrize(
    "hints, may_repeat",
    [(Hints(), False), (Hints(read_only=True), True), (Hints(idempotent=True, destructive=True), True)],
)
def test_only_what_is_declared_harmless_may_be_repeated(hints: Hints, may_repeat: bool):
    assert hints.may_repeat is may_repeat


def test_the_digest_does_not_see_the_place_in_the_source():
    """A function that moved promises what it promised before."""
    assert FULL.digest == dataclasses.replace(FULL, source="skills/notes.py:99").digest


def test_the_digest_does_not_see_the_order_of_keys():
    """Equal schemas are equal however they were written down."""
    turned = {"properties": {"text": {"type": "string"}}, "type": "object"}
    assert FULL.digest == dataclasses.replace(FULL, input_schema=turned).digest


def test_a_lone_surrogate_has_a_digest():
    """Whatever an author wrote, the catalog can be compared."""
    assert 64 == len(dataclasses.replace(FULL, description="\ud800").digest)


@pytest.mark.parametrize(
    "foreign",
    [{}, {**FULL.to_json(), "more": 1}, {key: value for key, value in FULL.to_json().items() if key != "tags"}],
)
def test_foreign_data_is_no_contract(foreign: dict[str, Any]):
    """A manifest of another version is refused and made anew."""
    with pytest.raises((TypeError, KeyError)):
        Contract.from_json(foreign)


@pytest.mark.parametrize(
    "hints, shown",
    [
        (Hints(), {}),
        (Hints(read_only=True), {"readOnlyHint": True}),
        (Hints(False, False, False, False), dict.fromkeys(
            ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), False)),
        (Hints(destructive=True, idempotent=False), {"destructiveHint": True, "idempotentHint": False}),
        (Hints(open_world=True), {"openWorldHint": True}),
    ],
)  # fmt: skip
def test_only_declared_hints_are_shown(hints: Hints, shown: dict[str, bool]):
    """An absent hint means "assume the worst"; a `False` nobody wrote would be a lie."""
    assert shown == hints.to_mcp()


SKILL = '''
from __future__ import annotations
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal
from prowess import skill_command

class Color(Enum):
    RED = "red"
    GREEN = "green"

@dataclass
class Box:
    names: frozenset[str] = frozenset({"a", "b", "c", "d"})

@skill_command(tags=["x"], meta={"a": 1})
def add(color: Color, box: Box, mode: Literal["a", "b"] = "a", tags: set[str] = {"x", "y", "z", "w"}) -> Box:
    """Add."""
    return box
'''

SHOW_DIGEST = """
import asyncio, sys
from prowess import Runtime
async def main():
    async with Runtime.open(sys.argv[1]) as runtime:
        print(*[contract.digest for contract in runtime.catalog()])
asyncio.run(main())
"""


def test_the_digest_is_the_same_in_every_process(tmp_path: Path):
    """Also where a default is a set, whose order depends on the hash seed of the process."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "boxes.py").write_text(SKILL)
    runtime = Runtime(tmp_path)
    (here,) = [contract.digest for contract in runtime.catalog()]
    runtime.close()
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", SHOW_DIGEST, str(tmp_path)]
        shown = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        assert here == shown.strip()
