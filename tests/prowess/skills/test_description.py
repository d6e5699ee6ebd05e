"""Descriptions: each skill by itself, with the files it is made of, as data."""

from __future__ import annotations

import json
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from prowess import Runtime
from prowess.skills.description import Description, combined, digest_of, environment_of, merged, seen_all
from prowess.skills.stamps import Seen, Stamp, look_again


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
    (root / name).write_text(textwrap.dedent(text), "utf-8")


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


async def test_more_skills_than_wanted_are_only_named(root: Path) -> None:
    """But those with hooks shape every contract, and are imported in any case."""
    write(root, "skills/plugin.py", "from prowess import hookimpl\n@hookimpl\ndef prowess_inject(): return {}\n")
    async with Runtime.open(root) as runtime:
        few = runtime.describe(("one",), most=1)
        assert ["plugin"] == list(few.skills)
        assert ("broken", "one", "plugin", "two") == few.names
        assert {"broken", "plugin", "two"} == set(runtime.describe(("one",), most=2).skills)


async def test_parts_of_a_description_make_the_whole(root: Path) -> None:
    """Also where each was made by another runtime."""
    async with Runtime.open(root) as one, Runtime.open(root) as other:
        first = replace(one.describe(most=0), texts={"/x.py": b"x"})
        parts = [one.describe_part(["two", "gone"]), other.describe_part(["one", "broken"])]
        parts[1] = replace(parts[1], texts={"/x.py": b"x", "/y.py": b"y"})
        whole = combined(first, parts)
        assert whole is not None
        assert {"/x.py": b"x", "/y.py": b"y"} == whole.texts
        alone = one.describe()
        assert replace(alone, imported={}, sightings={}) == replace(whole, imported={}, sightings={})
        assert {path: seen[:5] for path, seen in alone.sightings.items()} == {
            path: seen[:5] for path, seen in whole.sightings.items()
        }
        assert {**parts[0].imported, **parts[1].imported} == whole.imported


@pytest.mark.parametrize(
    "odd",
    [
        {"environment": "another"},
        {"names": ("one",)},
        {"folders": ()},
        {"texts": {"/x.py": b"y"}},
        {"imported": {"/x.py": Stamp(1, 1, 1, 1)}},
        {"sightings": {"/x.py": Seen(1, 1, 1, 1, "y", 1)}},
    ],
    ids=lambda odd: next(iter(odd)),
)
async def test_parts_that_contradict_each_other_make_nothing(odd: dict) -> None:
    """Something was saved or installed in between: who imported what counts for all alike."""
    part = Description(
        texts={"/x.py": b"x"},
        imported={"/x.py": Stamp(2, 2, 2, 2)},
        sightings={"/x.py": Seen(2, 2, 2, 2, "x", 2)},
        folders=("/",),
    )
    first = Description(folders=("/",))
    assert combined(first, [part, part]) is not None
    assert combined(first, [part, replace(part, **odd)]) is None


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


async def test_merging_forgets_how_a_file_was_that_cannot_be_read(root: Path) -> None:
    """Otherwise, its failure would outlast a `chmod`: the file looks as it did before."""
    older = await described(root)
    file = f"{root}/skills/one.py"
    seen = {path: each for path, each in older.sightings.items() if path != file}
    newer = replace(older, skills={}, names=("two", "broken"), sightings=seen)
    whole = merged(older, newer)
    assert file in older.sightings
    assert file in whole.candidates
    assert file not in whole.sightings


async def test_clients_see_a_command_as_its_profile_shows_it(root: Path) -> None:
    """Also where the profile is one that only workers know; what a profile cannot show is a failure."""
    write(
        root,
        "skills/looks.py",
        """
        from prowess import hookimpl, skill_command
        from prowess.profiles.profile import Profile
        def loud(schema): return {**schema, "title": "LOUD"}
        def fail(schema): raise ZeroDivisionError("no way")
        @hookimpl
        def prowess_profiles(register):
            register(Profile("loud", input_steps=(loud,)))
            register(Profile("failing", input_steps=(fail,)))
        @skill_command(profile="loud")
        def shown() -> int: ...
        @skill_command(profile="failing")
        def hidden(): ...
        """,
    )
    facts = (await described(root)).skills["looks"]
    assert {"looks.shown"} == set(facts.views)
    view = facts.views["looks.shown"]
    assert "LOUD" == view.input_schema["title"]
    assert ["looks.hidden"] == [failure.source for failure in facts.failures]
    assert "no way" in facts.failures[0].reason


async def test_unknown_profile_in_the_settings_hides_everything(root: Path) -> None:
    """One failure for all skills names the file, the line and the nearest name."""
    (root / "prowess.toml").write_text('profile = "portabel"\n')
    description = await described(root)
    assert not description.skills["one"].views
    (failure,) = (each for each in description.catalog((), root).failures if each.source != "broken")
    assert "the setting profile" == failure.source
    assert failure.reason.startswith(f"{root / 'prowess.toml'}:1: there is no profile 'portabel'; known: full, ")
    assert failure.reason.endswith('; did you mean "portable"?')


async def test_digest_is_of_what_is_promised(root: Path) -> None:
    """The same as that of the contracts alone; the place in the source is no promise."""
    facts = (await described(root)).skills["one"]
    assert facts.digest == digest_of(facts.contracts)
    write(root, "skills/one.py", "\n\n" + (root / "skills/one.py").read_text())
    assert facts.digest == (await described(root)).skills["one"].digest
    assert facts.digest != digest_of(())


async def test_hooks_are_the_files_that_may_shape_everything(root: Path) -> None:
    """With what they said."""
    assert frozenset() == (await described(root)).hooks
    write(root, "skills/plug.py", "from prowess import hookimpl\n@hookimpl\ndef prowess_render(value): ...\n")
    before = (await described(root)).hooks
    assert [f"{root}/skills/plug.py"] == [path for path, _ in before]
    write(root, "skills/plug.py", "from prowess import hookimpl\n@hookimpl\ndef prowess_render(value): return value\n")
    assert before != (await described(root)).hooks


async def test_merging_believes_nobody_about_files_he_did_not_import(root: Path) -> None:
    """What was saved after one skill was described, and before another one was, has still to be described."""
    older = await described(root)
    file = f"{root}/skills/one.py"
    write(root, "skills/one.py", "from prowess import skill_command\n@skill_command\ndef other(): ...\n")
    newer = await described(root, ("one", "broken"))
    assert newer.sightings[file] != older.sightings[file] == merged(older, newer).sightings[file]


def test_file_that_says_something_else_by_now_is_noted_as_it_was_read(tmp_path: Path) -> None:
    """So that the next look finds it changed; a file that is gone is not noted."""
    file, gone = str(tmp_path / "a.py"), str(tmp_path / "gone.py")
    (tmp_path / "a.py").write_text("now", "utf-8")
    after = time.time_ns() + 10**9
    sightings = seen_all([file, gone], {file: "digest"}, after)
    assert [(file, -1, "digest")] == [(path, it.mtime_ns, it.digest) for path, it in sightings.items()]


def test_file_that_may_have_been_saved_since_it_was_imported_is_looked_at_again(tmp_path: Path) -> None:
    """Where nobody knows what was read, the time must do."""
    file = str(tmp_path / "a.py")
    before = time.time_ns() - 10**9
    (tmp_path / "a.py").write_text("now", "utf-8")
    after = time.time_ns() + 10**9
    assert not look_again(file, seen_all([file], {}, before)[file])
    assert look_again(file, seen_all([file], {}, after)[file])


def test_environment_is_told_by_the_interpreter_and_what_is_installed(tmp_path: Path) -> None:
    """Also by an interpreter that is not there any more."""
    python, site = tmp_path / "python", tmp_path / "site"
    before = environment_of(str(python), [str(site)])
    assert "is missing" in before
    python.touch()
    there = environment_of(str(python), [str(site)])
    (site / "a-1.0.dist-info").mkdir(parents=True)
    installed = environment_of(str(python), [str(site)])
    (site / "a.start").write_text("a:begin\n")  # run at each start since Python 3.15, as lines of .pth files are
    assert 4 == len({before, there, installed, environment_of(str(python), [str(site)])})


def test_environment_is_the_same_after_its_interpreter_was_linked_into_another_one(tmp_path: Path) -> None:
    """As conda does it."""
    python = tmp_path / "python"
    python.touch()
    before, changed_at = environment_of(str(python), []), python.stat().st_ctime_ns
    while python.stat().st_ctime_ns == changed_at:
        python.chmod(0o755)
    assert before == environment_of(str(python), [])
