"""Names of commands: who gets one that several claim."""

from __future__ import annotations

from pathlib import Path

from prowess.contracts.contract import Contract
from prowess.contracts.names import assign


def contract(skill: str, name: str, *aliases: str, source: str = "x.py:1") -> Contract:
    return Contract(f"{skill}.{name}", f"{skill}_{name}", skill, name, "", {}, aliases=aliases, source=source)


def test_a_name_that_two_claim_is_nobodys() -> None:
    """A worker in another language need not say where a command is."""
    found = assign([contract("a", "one"), contract("b", "two", "a_one", source="")], (), Path("/p"))

    assert {} == dict(found.contracts)
    assert [1, None] == [clash.line for clash in found.clashes]


def test_an_alias_also_works_as_clients_would_write_it() -> None:
    """A client that has listed `b.ok` as `b_ok` calls it so after its command was renamed. A claim of the name comes first."""
    one, two = contract("a", "one", "b.ok", "c.d.e"), contract("c", "d_e")
    found = assign([one, two], (), Path("/p"))
    assert (one, one, two) == (found.contracts["b.ok"], found.contracts["b_ok"], found.contracts["c_d_e"])
    assert () == found.clashes
    both = assign([contract("a", "one", "x.y_z"), contract("b", "one", "x_y.z")], (), Path("/p"))
    assert ("x_y_z" in both.contracts, both.clashes) == (False, ())


def test_skills_that_yield_take_no_name_from_others() -> None:
    """They lose the name, and so does everybody who claims it with several others."""
    trusted, greedy = contract("a", "one"), contract("b", "two", "a_one", "a.one")

    found = assign([trusted, greedy], (), Path("/p"), {"b"})

    assert {"a.one": trusted, "a_one": trusted} == dict(found.contracts)
    assert ["b.two"] == [clash.source for clash in found.clashes]
    both = [contract("a", "x", "n"), contract("c", "x", "n"), contract("b", "x", "n")]
    assert {} == dict(assign(both, (), Path("/p"), {"b"}).contracts)
