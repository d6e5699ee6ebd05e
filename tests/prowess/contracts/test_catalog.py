"""The catalog: what there is, and what there is not and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowess import Runtime
from prowess.contracts.catalog import Catalog, Failure


async def test_catalog_is_ordered_and_looked_up_by_id(tmp_path: Path) -> None:
    """The order is that of the ids, whatever the order of loading."""
    for name in ("b", "a"):
        path = tmp_path / "skills" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("from prowess import skill_command\n@skill_command\ndef run(): ...\n")
    async with Runtime.open(tmp_path) as runtime:
        await runtime.call("b.run")
        catalog = runtime.catalog()
    assert ["a.run", "b.run"] == [contract.id for contract in catalog]
    assert (2, "b_run") == (len(catalog), catalog["b.run"].wire_name)
    with pytest.raises(KeyError, match=r"c\.run"):
        catalog["c.run"]


def test_failure_reads_like_a_line() -> None:
    """With as much of the place as there is."""
    assert "a (a.py:1): why" == str(Failure("a", "why", "a.py", 1))
    assert "a (a.py): why" == str(Failure("a", "why", "a.py"))
    assert "a: why" == str(Failure("a", "why"))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("shop.buy", ["shop.buy: no schema"]),
        ("shop_buy", ["shop.buy: no schema"]),
        ("mail.send", ["mail: no module"]),
        ("mail_send", ["mail: no module"]),
        ("mailer.send", []),
        ("shop.sell", []),
    ],
)
def test_the_reasons_why_a_command_is_missing(name: str, expected: list[str]):
    """By its id or its wire name: its own failure, or else that of its skill."""
    catalog = Catalog((), (Failure("shop.buy", "no schema"), Failure("mail", "no module")))
    assert expected == catalog.reasons(name)


async def test_what_authors_have_probably_forgotten_is_told_with_its_place(tmp_path: Path):
    """A parameter without a type takes anything."""
    path = tmp_path / "skills" / "a.py"
    path.parent.mkdir()
    path.write_text("from prowess import skill_command\n@skill_command\ndef go(x): ...\n")
    async with Runtime.open(tmp_path) as runtime:
        (warning,) = runtime.catalog().warnings
    assert warning.startswith("a.go (skills/a.py:2): parameter 'x' has no annotation")


async def test_a_call_of_a_command_that_did_not_load_says_why(tmp_path: Path):
    """The failure, and no guess at another name."""
    path = tmp_path / "skills" / "a.py"
    path.parent.mkdir()
    text = "from prowess import skill_command\n@skill_command\ndef good(): ...\n@skill_command\ndef goods(x: object()): ...\n"
    path.write_text(text)
    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.call("a.goods")
    assert "Unknown command: a.goods. This could not be loaded: a.goods" in outcome.text
    assert "a.py:4" in outcome.text
    assert "did you mean" not in outcome.text


def test_words_of_a_failure_hide_nothing() -> None:
    """They may be those of a stranger's skill: a terminal would obey them, and a model read what people do not see."""
    failure = Failure.of(
        "a\x1b[2J", "one\ntwo \x1b]0;title\x07\rthree \u202e \U000e0041 \U0001f469\u200d\U0001f4bb\r\n"
    )

    assert failure.source == "a\\x1b[2J"
    assert failure.reason == ("one\ntwo \\x1b]0;title\\x07\\rthree \\u202e \\U000e0041 \U0001f469\u200d\U0001f4bb\n")
