"""Descriptions: each skill by itself, with the files it is made of, as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prowess import Runtime
from prowess.description import Description, merged, seen_all


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(
        tmp_path,
        "skills/one.py",
        "from ._shared import x\nfrom prowess import skill_command\n@skill_command\ndef run(): ...\n",
    )
    write(
        tmp_path,
        "skills/two.py",
        "from ._shared import x\nfrom prowess import skill_command\n@skill_command\ndef run(): ...\n",
    )
    write(tmp_path, "skills/_shared.py", "x = 1\n")
    write(tmp_path, "skills/broken.py", "import prowess\n1/0\n")
    write(tmp_path, "skills/plain.py", "y = 2\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, "utf-8")


async def described(root: Path, known: tuple[str, ...] = ()) -> Description:
    async with Runtime.open(root) as runtime:
        return runtime.describe(known)


async def test_skill_is_described_with_all_its_files(root: Path) -> None:
    """A file that two skills share counts for both."""
    description = await described(root)
    assert ("broken", "one", "two") == description.names
    for name in ("one", "two"):
        assert {f"{root}/skills/{name}.py", f"{root}/skills/_shared.py"} == set(description.skills[name].files)
        assert [f"{name}.run"] == [contract.id for contract in description.skills[name].contracts]
    assert ["ZeroDivisionError: division by zero"] == [it.reason for it in description.skills["broken"].failures]
    assert f"{root}/skills/plain.py" in description.candidates
    assert set(description.candidates) <= set(description.sightings)


async def test_known_skills_are_not_imported(root: Path) -> None:
    """Only what somebody does not know is described."""
    description = await described(root, ("one", "broken"))
    assert {"two"} == set(description.skills)
    assert ("broken", "one", "two") == description.names


async def test_description_is_data(root: Path) -> None:
    """Through JSON and back it is the same."""
    description = await described(root)
    assert description == Description.from_json(json.loads(json.dumps(description.to_json())))


async def test_description_gives_the_catalog(root: Path) -> None:
    """The same that the runtime has."""
    async with Runtime.open(root) as runtime:
        assert runtime.catalog() == runtime.describe().catalog((), runtime.root)


async def test_merging_keeps_what_is_still_there(root: Path) -> None:
    """New facts replace old ones, and what nobody needs any more is forgotten."""
    older = await described(root)
    (root / "skills/two.py").unlink()
    write(root, "skills/three.py", "from prowess import skill_command\n@skill_command\ndef run(): ...\n")
    newer = await described(root, ("one", "broken"))
    whole = merged(older, newer)
    assert {"broken", "one", "three"} == set(whole.skills)
    assert f"{root}/skills/two.py" not in whole.sightings
    assert whole.catalog((), root) == (await described(root)).catalog((), root)


async def test_loaded_skills_can_be_described_without_the_others(root: Path) -> None:
    """What a call has imported anyway."""
    async with Runtime.open(root) as runtime:
        await runtime.call("one.run")
        assert {"one"} == runtime.loaded
        assert {"one"} == set(runtime.describe_loaded(["one", "two"]).skills)


def test_file_that_says_something_else_by_now_is_noted_as_it_was_read(tmp_path: Path) -> None:
    """So that the next look finds it changed; a file that is gone is not noted."""
    (tmp_path / "a.py").write_text("now", "utf-8")
    sightings = seen_all([str(tmp_path / "a.py"), str(tmp_path / "gone.py")], {str(tmp_path / "a.py"): "digest"})
    assert [(str(tmp_path / "a.py"), -1, "digest")] == [
        (path, it.mtime_ns, it.digest) for path, it in sightings.items()
    ]
