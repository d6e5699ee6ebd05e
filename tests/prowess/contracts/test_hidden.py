"""Characters that people do not see are no part of a contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowess import Runtime
from prowess.contracts.contract import Contract, Policies
from prowess.contracts.hidden import hidden_in, hidden_of
from prowess.contracts.visible import visible


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "lines\nand\ttabs\r\n",
        "Grüße, 日本語, العربية, हिन्दी",
        "family \U0001f468\u200d\U0001f469\u200d\U0001f467, heart \u2764\ufe0f, \u2764\ufe0f\u200d\U0001f525",
        "keycap 1\ufe0f\u20e3",
        "Persian \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, Hindi \u0915\u094d\u200d\u0937",
        "",
    ],
)
def test_ordinary_texts_are_left_alone(text: str) -> None:
    """Emoji and scripts that join their letters need characters without a width."""
    assert hidden_in(text) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\x1b[2Jb", "U+001B (a control character) at character 2"),
        ("a\x00", "U+0000"),
        ("a\x9b", "U+009B"),
        ("a\u202eb", "U+202E (RIGHT-TO-LEFT OVERRIDE)"),
        ("a\u2066b", "U+2066"),
        ("a\u200bb", "U+200B (ZERO WIDTH SPACE)"),
        ("a\u200db", "U+200D (ZERO WIDTH JOINER)"),
        ("д\u200cд", "U+200C"),
        ("\u200d", "U+200D"),
        ("\U0001f468\u200d", "U+200D"),
        ("\ufe0f", "U+FE0F"),
        ("x\ufe0f", "U+FE0F"),
        ("\u2764\ufe01", "U+FE01"),
        ("\U0001f3f4\U000e0067\U000e007f", "U+E0067 (TAG LATIN SMALL LETTER G)"),
        ("\u2764\U000e0100", "U+E0100"),
        ("a\ufeff", "U+FEFF"),
        ("a\u3164", "U+3164 (HANGUL FILLER)"),
        ("a\u2028b", "U+2028"),
        ("a\ud800", "U+D800 (a lone surrogate) at character 2"),
        ("\udfffa", "U+DFFF"),
    ],
)
def test_hidden_characters_are_named(text: str, found: str) -> None:
    """With the place, since nobody sees them."""
    assert hidden_in(text).startswith(found)


def test_hidden_characters_become_escapes_wherever_they_are() -> None:
    """In texts, and in JSON data; whatever else it holds stays as it is."""
    assert "\\u202ea\n\\x1bb" == visible("\u202ea\n\x1bb")
    assert {"a\\x00": ["b\\u200b", 1, None, {"c": "d\n"}]} == visible({"a\0": ["b\u200b", 1, None, {"c": "d\n"}]})


def _contract(**more: object) -> Contract:
    return Contract("a.b", "a_b", "a", "b", **{"description": "text", "input_schema": {}, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("contract", "where"),
    [
        (_contract(description="a\u200bb"), "description"),
        (_contract(title="a\u200bb"), "title"),
        (_contract(input_schema={"properties": {"x": {"enum": ["\u202e"]}}}), "input_schema.properties.x.enum"),
        (_contract(input_schema={"properties": {"x\u200b": {}}}), "a name in input_schema.properties"),
        (_contract(tags=("\x07",)), "tags"),
        (_contract(meta={"\x07": 1}), "a name in meta"),
        (_contract(category="\ud800"), "category"),
        (_contract(policies=Policies(run_on="gpu\ud800")), "policies.run_on"),
    ],
)
def test_every_text_of_a_contract_is_looked_at(contract: Contract, where: str) -> None:
    """Names as well as descriptions, at any depth."""
    assert hidden_of(contract).startswith(f"{where} has a hidden character: U+")


def test_contract_without_hidden_characters_says_nothing() -> None:
    """The place of the source is no text for clients."""
    assert hidden_of(_contract(input_schema={"properties": {"x": {"default": 1}}}, source="a\x07:1")) == ""


def test_skill_with_hidden_characters_is_a_failure(tmp_path: Path) -> None:
    """At load, so that no client ever sees it; the rest of the skill is there."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "a.py").write_text(
        "from prowess import skill_command\n\n\n"
        "@skill_command\ndef seen() -> int:\n    return 1\n\n\n"
        '@skill_command(description="Adds.\\U000e0041\\U000e0042")\ndef unseen() -> int:\n    return 1\n'
    )

    runtime = Runtime(tmp_path)
    catalog = runtime.catalog()
    runtime.close()

    assert ["a.seen"] == [contract.id for contract in catalog]
    assert "a.unseen: description has a hidden character: U+E0041 (TAG LATIN CAPITAL LETTER A) at character 6" in str(
        catalog.failures[0]
    )
    assert catalog.failures[0].line == 9
