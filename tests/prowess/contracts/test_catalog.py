"""The catalog: what there is, and what there is not and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowess import Runtime
from prowess.contracts.catalog import Failure


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
