"""Which files are skills: told from names and texts, before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prowess import Catalog, Runtime
from prowess.skills.discovery import candidates, is_reserved, survey

COMMAND = "from prowess import skill_command\n@skill_command\ndef run() -> int:\n    return 1\n"


def write(root: Path, *paths: str, text: str = COMMAND) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


async def catalog(root: Path, **flags: object) -> Catalog:
    async with Runtime.open(root, flags=flags) as runtime:
        return runtime.catalog()


async def ids(root: Path, **flags: object) -> list[str]:
    found = await catalog(root, **flags)
    assert () == found.failures
    return [contract.id for contract in found]


async def test_file_is_a_skill(tmp_path: Path) -> None:
    """`skills/<name>.py` is the skill `<name>`."""
    assert ["clock.run", "my-git.run"] == await ids(write(tmp_path, "skills/clock.py", "skills/my-git.py"))


async def test_folder_is_a_skill(tmp_path: Path) -> None:
    """Its files are those at its top and all below `scripts`, and nothing else."""
    text = COMMAND.replace("run", "deep")
    write(tmp_path, "skills/notes/main.py")
    write(tmp_path, "skills/notes/scripts/a/b/c.py", text=text)
    write(tmp_path, "skills/notes/scripts/readme.txt", text="prowess")
    write(tmp_path, "skills/notes/lib/helper.py", text="import prowess\n1 / 0\n")

    assert ["notes.deep", "notes.run"] == await ids(tmp_path)


async def test_init_file_of_a_folder_skill_is_one_of_its_files(tmp_path: Path) -> None:
    """A folder skill is a package, and many people begin with its `__init__.py`. Further private files are helpers."""
    for place, name in (("", "top"), ("scripts/", "deep"), ("scripts/a/", "deeper")):
        write(tmp_path, f"skills/notes/{place}__init__.py", text=COMMAND.replace("run", name))
    write(tmp_path, "skills/notes/_helper.py", "skills/notes/other.py")

    assert ["notes.deep", "notes.deeper", "notes.run", "notes.top"] == await ids(tmp_path)
    assert tmp_path / "skills/notes/__init__.py" in candidates([tmp_path / "skills"])
    async with Runtime.open(tmp_path) as runtime:
        assert 1 == (await runtime.call("notes.deep", {})).value


async def test_module_and_folder_of_one_name_are_reported(tmp_path: Path) -> None:
    """Python would import one of them, and the commands of the other would be missing."""
    write(tmp_path, "skills/notes/scripts/a.py", "skills/notes/scripts/a/__init__.py")
    found = await catalog(tmp_path)

    assert ["notes.run"] == [contract.id for contract in found]
    (failure,) = found.failures
    assert "a.py beside its folder is the same module; rename one" == failure.reason
    assert str(tmp_path / "skills/notes/scripts/a/__init__.py") == failure.file


async def test_command_in_the_init_file_of_the_folder_of_skills_is_reported(tmp_path: Path) -> None:
    """It belongs to no skill. A file that mentions Prowess in its docstring is no failure."""
    write(tmp_path, "skills/ok.py", "more/ok2.py")
    write(tmp_path, "skills/__init__.py", text='"""Our skills: see prowess and @skill_command."""\n')
    write(tmp_path, "more/__init__.py")
    found = await catalog(tmp_path, skills=["skills", "more"])

    assert ["ok.run", "ok2.run"] == [contract.id for contract in found]
    (failure,) = found.failures
    assert ("more", str(tmp_path / "more/__init__.py")) == (failure.source, failure.file)
    assert "move it to a file beside it" in failure.reason


@pytest.mark.parametrize("text", [COMMAND.encode("utf-16"), COMMAND.encode("utf-32"), bytes(100)])
async def test_file_with_nul_bytes_is_a_failure(tmp_path: Path, text: bytes) -> None:
    """As editors save in UTF-16, and as a crash of the system may leave files. The mention of Prowess is not legible there."""
    write(tmp_path, "skills/ok.py")
    (tmp_path / "skills/wide.py").write_bytes(text)
    found = await catalog(tmp_path)

    assert ["ok.run"] == [contract.id for contract in found]
    (failure,) = found.failures
    assert str(tmp_path / "skills/wide.py") == failure.file
    assert failure.reason.endswith("null bytes. The file is not text in UTF-8: save it in that encoding")


async def test_folder_of_the_agent_skills_format_needs_no_python(tmp_path: Path) -> None:
    """A `SKILL.md` alone is no failure."""
    write(tmp_path, "skills/prose/SKILL.md", text="# prowess")
    write(tmp_path, "skills/prose/scripts/tool.py", text="raise SystemExit('not for us')")

    assert [] == await ids(tmp_path)


async def test_only_files_that_speak_of_prowess_are_imported(tmp_path: Path) -> None:
    """A helper or a script in the folder of skills is never run."""
    write(tmp_path, "skills/clock.py")
    write(tmp_path, "skills/script.py", text="raise SystemExit(1)")

    assert ["clock.run"] == await ids(tmp_path)


async def test_what_is_no_skill_is_passed_over(tmp_path: Path) -> None:
    """Tests, hidden and private files, virtual environments and node modules."""
    broken = "import prowess\n1 / 0\n"
    write(
        tmp_path,
        *("skills/test_clock.py", "skills/clock_test.py", "skills/conftest.py", "skills/_private.py", "skills/.hid.py"),
        *("skills/setup.py", "skills/__init__.py.txt", "skills/tests/x.py", "skills/.git/x.py", "skills/_lib/x.py"),
        *("skills/node_modules/x.py", "skills/venv/x.py", "skills/notes/scripts/tests/x.py", "skills/env/x.py"),
        *("skills/notes/scripts/node_modules/x.py", "skills/notes/scripts/_x/y.py", "skills/notes/scripts/e/x.py"),
        text=broken,
    )
    write(tmp_path, "skills/env/pyvenv.cfg", "skills/notes/scripts/e/pyvenv.cfg", text="")
    os.mkfifo(tmp_path / "skills/pipe.py")

    assert [] == await ids(tmp_path)


def test_names_of_tests_and_tools_are_reserved() -> None:
    """`prowess new` would make a skill that nobody finds."""
    reserved = ["test_x", "x_test", "conftest", "setup", "tests", "venv", "node_modules"]
    assert reserved == [name for name in [*reserved, "orders", "testing", "latest"] if is_reserved(name)]


async def test_skill_name_must_be_able_to_stand_in_an_id(tmp_path: Path) -> None:
    """A name that cannot is a failure that says so, and the others load."""
    found = await catalog(write(tmp_path, "skills/my notes.py", "skills/ok.py", "skills/über/x.py"))

    assert ["ok.run"] == [contract.id for contract in found]
    assert ["my notes", "über"] == [failure.source for failure in found.failures]
    assert found.failures[0].reason.startswith("the skill name 'my notes' does not match ")
    assert str(tmp_path / "skills/my notes.py") == found.failures[0].file


async def test_file_with_a_dot_in_its_name_is_reported(tmp_path: Path) -> None:
    """It could never be imported; the rest of its skill is."""
    found = await catalog(write(tmp_path, "skills/notes/a.py", "skills/notes/v1.2.py", "skills/notes/scripts/v.2/b.py"))

    assert ["notes.run"] == [contract.id for contract in found]
    assert ["'v.2' has a dot in its name and cannot be imported; rename it"] == [
        failure.reason for failure in found.failures if "v.2" in failure.reason
    ]
    assert 2 == len(found.failures)


async def test_unreadable_file_is_a_failure(tmp_path: Path) -> None:
    """A link that leads nowhere is told, not passed over."""
    write(tmp_path, "skills/ok.py")
    (tmp_path / "skills/gone.py").symlink_to("nowhere.py")
    found = await catalog(tmp_path)

    assert 1 == len(found)
    assert ["gone (%s): cannot be read: No such file or directory" % (tmp_path / "skills/gone.py")] == [
        str(failure) for failure in found.failures
    ]


async def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A link below `scripts` that leads back up adds nothing."""
    write(tmp_path, "skills/notes/scripts/a/x.py")
    (tmp_path / "skills/notes/scripts/a/loop").symlink_to("..")

    assert ["notes.run"] == await ids(tmp_path)


async def test_two_skills_of_one_name_are_both_refused(tmp_path: Path) -> None:
    """Neither is preferred in silence; each failure names the other."""
    write(tmp_path, "skills/git.py", "skills/git/main.py", "skills/ok.py")
    found = await catalog(tmp_path)

    assert ["ok.run"] == [contract.id for contract in found]
    assert {str(tmp_path / "skills/git"), str(tmp_path / "skills/git.py")} == {item.file for item in found.failures}
    assert f"there is another skill of this name: {tmp_path / 'skills/git'}; rename one" in {
        item.reason for item in found.failures
    }


async def test_skill_folder_whose_file_has_its_name_is_one_skill(tmp_path: Path) -> None:
    """`skills/git/git.py` is the skill `git`, also in messages."""
    write(tmp_path, "skills/git/git.py", "more/git.py")
    found = await catalog(tmp_path, skills=["skills", "more"])

    assert {str(tmp_path / "skills/git"), str(tmp_path / "more/git.py")} == {item.file for item in found.failures}


async def test_folder_given_twice_counts_once(tmp_path: Path) -> None:
    """Also under another name."""
    write(tmp_path, "skills/clock.py")
    (tmp_path / "link").symlink_to("skills")

    assert ["clock.run"] == await ids(tmp_path, skills=["skills", "./skills", "link", "missing"])


def test_links_that_lead_up_are_no_skills(tmp_path: Path) -> None:
    """Neither among the skills, nor in the place of `scripts`; and a tree that is cut off is told of."""
    (tmp_path / "skills/a/scripts").mkdir(parents=True)
    (tmp_path / "skills/b").mkdir()
    for place in ("skills/up", "skills/self", "skills/b/scripts"):
        (tmp_path / place).symlink_to(".." if place != "skills/self" else ".")
    for place in ("top.py", "skills/a/scripts/x.py"):
        (tmp_path / place).write_text("import prowess\n")
    found = survey([tmp_path / "skills"])
    assert ["a"] == [source.name for source in found.sources]
    assert () == found.failures
    (tmp_path / "skills/a/scripts").joinpath(*["deep"] * 80).mkdir(parents=True)
    assert ["a/scripts"] == [failure.source for failure in survey([tmp_path / "skills"]).failures]
    assert [tmp_path / "skills/a/scripts/x.py"] == candidates([tmp_path / "skills"])
