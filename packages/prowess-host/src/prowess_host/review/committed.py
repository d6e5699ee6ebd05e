"""Reads the committed catalog, for skills that the host cannot describe yet."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from prowess.contracts.contract import Contract
from prowess.profiles.profile import BUILT_IN
from prowess.skills.description import SkillFacts, View
from prowess_host.review.snapshot import PLACE, SnapshotError, read_snapshot

__all__ = ["committed"]


def committed(root: Path, skills: Collection[str], profile: str) -> dict[str, SkillFacts]:
    """The descriptions of some skills in the committed catalog, if it is readable."""
    try:
        snapshot = read_snapshot(root / PLACE)
    except SnapshotError:
        return {}  # `prowess check` reports that
    found: dict[str, SkillFacts] = {}
    if snapshot is None:
        return found
    for skill in skills:
        contracts = tuple(each for each in snapshot.contracts if each.skill == skill)
        if contracts:
            found[skill] = SkillFacts(contracts, views={each.id: _view(each, profile) for each in contracts})
    return found


def _view(contract: Contract, profile: str) -> View:
    shown = BUILT_IN.get(contract.profile or profile, BUILT_IN["portable"])
    boxed, bare = shown.output_schema(contract), shown.output_schema(contract, boxed=False)
    return View(shown.input_schema(contract), boxed, bare)
