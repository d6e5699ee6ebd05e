"""Content inside containers, tried on generated values: each block is sent once, in its order, and named by the data."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections import deque
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import mcp_types
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from prowess import Audio, Image, Outcome, Runtime, mcp_schema, skill_command
from prowess.profiles.profile import BUILT_IN


@dataclasses.dataclass
class Report:
    title: str
    plot: Image


class Returned(NamedTuple):
    annotation: Any
    value: Any


def _png(number: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes([number])


_content = st.one_of(
    st.integers(0, 99).map(lambda number: Image(_png(number))),
    st.integers(0, 99).map(lambda number: Audio(b"OggS\x00" + bytes([number]))),
    st.sampled_from("abc").map(
        lambda text: mcp_types.ImageContent(type="image", data=f"{text}AAA", mime_type="image/png")
    ),
)
_NAMED = re.compile(r"\[(?:image|audio) \d+: ")
_scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2)
_keys = st.sampled_from("abc")
_anything = st.recursive(
    _scalars | _content,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=2).map(deque)
        | st.dictionaries(_keys, inner, max_size=3)
        | st.dictionaries(_keys, inner, max_size=2).map(MappingProxyType)
    ),
    max_leaves=8,
)
_reports = st.builds(Report, st.text("ab", max_size=2), st.integers(0, 99).map(lambda number: Image(_png(number))))
_returned = st.one_of(
    st.tuples(st.sampled_from([None, Any, object]), _anything),
    st.tuples(st.sampled_from([None, Any, list, list[Any]]), st.lists(_anything, max_size=4)),
    st.tuples(st.just(tuple[Any, ...]), st.lists(_anything, max_size=4).map(tuple)),
    st.tuples(st.sampled_from([dict, dict[str, Any]]), st.dictionaries(_keys, _anything, max_size=3)),
    st.tuples(st.just(dict[str, Image]), st.dictionaries(_keys, st.builds(Image, st.just(_png(1))), max_size=3)),
    st.tuples(st.sampled_from([None, Report]), _reports),
    st.tuples(st.sampled_from([None, list[Report], list[Any]]), st.lists(_reports, max_size=3)),
    st.tuples(st.sampled_from([dict[str, Report], dict[str, list[Report] | Any]]), st.dictionaries(_keys, _reports)),
).map(lambda pair: Returned(*pair))


def _blocks(value: Any) -> Iterator[Any]:
    """The blocks that a value holds, in the order in which they stand there."""
    if isinstance(value, (Image, Audio)):
        yield value.to_block()
    elif isinstance(value, mcp_types.ImageContent):
        yield value.model_dump(mode="json", by_alias=True, exclude_none=True)
    elif isinstance(value, Report):
        yield from _blocks(value.plot)
    elif isinstance(value, (dict, MappingProxyType)):
        yield from (block for held in value.values() for block in _blocks(held))
    elif isinstance(value, (list, tuple, deque)):
        yield from (block for held in value for block in _blocks(held))


async def _outcome(returned: Returned) -> Outcome:
    async def run() -> Any:
        return returned.value

    run.__annotations__["return"] = returned.annotation
    if returned.annotation is None:
        del run.__annotations__["return"]
    async with Runtime.open("nowhere") as runtime:
        return await runtime.entry_of(skill_command(run).__prowess__).call({})


@given(_returned)
@example(Returned(dict, {"image": Image(_png(1)), "number": 1}))
def test_content_is_sent_once_in_its_order(returned: Returned) -> None:
    """Beside the data, which names it; and the data keeps the schema that is shown of it."""
    outcome = asyncio.run(_outcome(returned))
    assert outcome.ok, outcome.text
    assert outcome.contract is not None
    expected = list(_blocks(returned.value))
    for name, profile in BUILT_IN.items():
        payload = outcome.payload(name)
        mcp_schema.validate(payload)
        sent = [block for block in payload["content"] if block["type"] != "text"]
        assert (expected if profile.structured else []) == sent, name
        said = json.dumps([payload.get("structuredContent"), [block.get("text") for block in payload["content"]]])
        assert not any(block["data"] in said for block in expected), name
        schema = profile.output_schema(outcome.contract)
        if schema is not None:
            Draft202012Validator(schema).validate(payload["structuredContent"])
        if "structuredContent" in payload:
            assert len(expected) == len(_NAMED.findall(json.dumps(payload["structuredContent"])))
