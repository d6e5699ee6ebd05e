"""What host and worker say of themselves first, and when that keeps them apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from prowess.worker.messages import RELEASE, VERSION, Kind, hello, mismatch

MAJOR, MINOR = VERSION


def says(*link: Any, release: str = "1.2.3") -> dict[str, Any]:
    return {"link": list(link), "release": release}


@pytest.mark.parametrize("other", [says(MAJOR, MINOR), says(MAJOR, MINOR + 7), says(MAJOR), {**hello(), "more": 1}])
def test_same_major_version_fits(other: Mapping[str, Any]):
    """Whatever the minor version, the release and further fields are."""
    assert "" == mismatch(hello(), other, "python") == mismatch(other, hello(), "python")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (says(MAJOR + 1, 0), f"link {MAJOR + 1}.0 (release 1.2.3)"),
        (says(0, 3), "link 0.3 (release 1.2.3)"),
        ({}, "link no version (release unknown)"),
        (says("1", "0"), "link no version (release 1.2.3)"),
        ({"link": "1.0"}, "link no version (release unknown)"),
    ],
)
def test_another_major_version_does_not_fit(other: Mapping[str, Any], named: str):
    """Both versions are named, and what to type."""
    ours = f"link {MAJOR}.{MINOR} (release {RELEASE})"
    as_worker, as_host = mismatch(hello(), other, "/p/python"), mismatch(other, hello(), "/p/python")

    assert f"the host has {ours}, the worker {named}" in as_worker
    assert f"the host has {named}, the worker {ours}" in as_host
    assert f"`/p/python -m pip install prowess-core=={RELEASE}`" in as_worker


def test_two_without_a_version_do_not_fit():
    """Nobody knows what they speak."""
    assert mismatch({}, {}, "python")


def test_no_two_kinds_share_a_number():
    """An alias in an enumeration is silent."""
    assert len(Kind) == len(Kind.__members__)
