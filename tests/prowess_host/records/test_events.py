"""The events of one call: their order, their limits and their memory."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from prowess_host.records import events
from prowess_host.records.events import Events


def noted(*added: tuple[str, Any]) -> list[Any]:
    """What is kept of some events, each a tenth of a second after the one before."""
    noted = Events()
    for number, (kind, data) in enumerate(added):
        noted.add(number / 10, kind, data)
    return json.loads(noted.as_json())


def test_events_are_kept_in_order_with_their_times():
    assert [] == noted()
    assert [[0, "print", 'a "line"'], [0.1, "log", ["info", {"é": [1]}]]] == noted(
        ("print", 'a "line"'), ("log", ["info", {"é": [1]}])
    )


def test_text_that_is_not_unicode_is_kept():
    assert [[0, "log", ["info", "\ud800"]]] == noted(("log", ["info", "\ud800"]))


def test_progress_replaces_progress_without_a_message():
    first, second, third = ([done, 3, None] for done in range(3))
    assert [[0.2, "progress", third]] == noted(("progress", first), ("progress", second), ("progress", third))
    message = [1, 3, "halfway"]
    assert [[0.1, "progress", message], [0.2, "progress", third]] == noted(
        ("progress", first), ("progress", message), ("progress", third)
    )
    assert ["progress", "print", "progress"] == [
        kind for _, kind, _ in noted(("progress", first), ("print", ""), ("progress", second))
    ]


def test_events_beyond_their_number_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_MOST_EVENTS", 2)
    lines = [("print", str(number)) for number in range(5)]
    assert [[0, "print", "0"], [0.1, "print", "1"], [0.2, "dropped", 3]] == noted(*lines)
    assert ["progress", "progress", "dropped"] == [kind for _, kind, _ in noted(*[("progress", [1, 2, "m"])] * 4)]


def test_events_beyond_their_bytes_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_MOST_NOTED", 100)
    assert [[0, "print", "é" * 20], [0.1, "dropped", 2]] == noted(*[("print", "é" * 20)] * 3)


@pytest.mark.parametrize(
    ("kind", "data", "kept"),
    [
        ("print", "é" * 10, "é" * 4 + "…"),
        ("progress", [1, 2, "long"], [1, None, "[1, …"]),
        ("log", ["info", "long"], ["", "['in…"]),
        ("asked", {"key": "long"}, "{'ke…"),
    ],
)
def test_one_long_event_is_shortened(kind: str, data: Any, kept: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_MOST_OF_ONE", 4)
    assert [[0, kind, kept]] == noted((kind, data))


def test_a_flood_of_short_lines_takes_little_more_memory_than_its_text():
    tracemalloc.start()
    try:
        many = [Events() for _ in range(20)]
        for each in many:
            for number in range(300):
                each.add(number / 100, "print", "x" * 20)
        text = sum(len(each.as_json()) for each in many)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.5 * text
