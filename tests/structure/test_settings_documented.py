"""The table of settings in the documentation is the table in the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowess.settings.settings import OwnKey, own_keys

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "settings.md").read_text("utf-8")


@pytest.mark.parametrize("key", own_keys(), ids=lambda key: key.name)
def test_setting_is_documented_as_it_is(key: OwnKey) -> None:
    """Name, type, default and purpose of each key of our own stand in docs/settings.md."""
    assert f"| `{key.name}` | {key.type} | `{key.default!r}` | {key.help} |" in PAGE


def test_nothing_else_is_documented() -> None:
    """A row for a key that is gone would send people looking for it."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(own_keys()) == len(rows)
