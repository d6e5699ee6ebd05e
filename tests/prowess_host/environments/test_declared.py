"""What skills say they need, and the name of the environment that follows from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from prowess.settings.settings import Settings
from prowess.skills.discovery import Source
from prowess.skills.stamps import stamp
from prowess_host.catalog import isolated
from prowess_host.environments.declared import Declared, declared_by, satisfies
from prowess_host.environments.errors import NeedsError
from prowess_host.environments.store import EnvironmentStore, key_of

HERE = ".".join(map(str, sys.version_info[:2]))


def file(root: Path, text: str) -> Source:
    """A skill that is one file."""
    path = root / "tiny.py"
    path.write_text(text)
    return Source("tiny", path, (path,))


def folder(root: Path, **files: str) -> Source:
    """A skill that is a folder, whose files have `__` for a dot."""
    place = root / "tiny"
    place.mkdir()
    for name, text in files.items():
        (place / name.replace("__", ".")).write_text(text)
    return Source("tiny", place, tuple(sorted(place.glob("*.py"))))


def block(*lines: str) -> str:
    return "\n".join(["# /// script", *(f"# {line}" for line in lines), "# ///", ""])


def needs(source: Source) -> Declared:
    found = declared_by(source)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "print(1)\n",
        block("dependencies = []"),
        block("dependencies = []", f'requires-python = ">={HERE}"'),
        block("[tool.prowess.sandbox]", "network = false"),
        "# /// script\n# dependencies = ['a']\n",  # a block that does not end
        "'''\n# /// other\n# x = 1\n# ///\n'''\n",
    ],
)
def test_who_needs_nothing_shares_the_environment_of_the_project(tmp_path: Path, text: str):
    assert declared_by(file(tmp_path, text)) is None


def test_a_block_is_read(tmp_path: Path):
    found = needs(file(tmp_path, block('dependencies = ["b  >1", "a"]', 'requires-python = ">=3.99"')))
    assert (("b >1", "a"), ">=3.99", "", "") == (found.dependencies, found.requires_python, found.python, found.by_file)
    assert "3.13" == needs(file(tmp_path, block("[tool.prowess]", 'python = "3.13"'))).python
    assert needs(file(tmp_path, block('dependencies = ["a"]', "[tool.uv]", 'index-url = "https://i"'))).by_file


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (block("dependencies = ["), "not valid TOML"),
        (block("dependencies = 'a'"), "dependencies must be a list of strings"),
        (block("dependencies = [1]"), "dependencies must be a list of strings"),
        (block("requires-python = 3"), "must be strings"),
        (block("dependencies = ['a']") + block("dependencies = ['b']"), "more than one block"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, text: str, why: str):
    with pytest.raises(NeedsError, match=why):
        declared_by(file(tmp_path, text))


def test_files_of_windows_are_read_or_named(tmp_path: Path):
    """A byte order mark is no part of the first requirement. UTF-16, as PowerShell redirects output, is a failure."""
    source = folder(tmp_path, requirements__txt="\ufeffone\n", x__py="")
    assert ("one",) == needs(source).dependencies
    (source.path / "requirements.txt").write_bytes("one\n".encode("utf-16"))
    with pytest.raises(NeedsError, match="not text in UTF-8: save it in that encoding"):
        declared_by(source)
    assert ("one",) == needs(file(tmp_path, "\ufeff" + block('dependencies = ["one"]'))).dependencies


def test_a_folder_says_it_in_its_files(tmp_path: Path):
    """The first of these counts: `pyproject.toml` with a project, `requirements.txt`, the blocks."""
    for name in ("a", "b", "c", "d", "e"):
        (tmp_path / name).mkdir()
    project = '[project]\nname = "x"\ndependencies = ["one"]\n'
    code = block('dependencies = ["three"]')
    whole = folder(tmp_path / "a", pyproject__toml=project, requirements__txt="two", x__py=code)
    assert ("one",) == needs(whole).dependencies
    tools = folder(tmp_path / "b", pyproject__toml="[tool.ruff]\n", requirements__txt="# no\ntwo  # yes\n", x__py=code)
    assert ("two",) == needs(tools).dependencies
    assert ("three",) == needs(folder(tmp_path / "c", x__py=code)).dependencies
    assert needs(folder(tmp_path / "d", requirements__txt="-r other.txt\n", x__py="")).by_file
    with pytest.raises(NeedsError, match="declare the same dependencies in both"):
        declared_by(folder(tmp_path / "e", x__py=code, y__py=block('dependencies = ["four"]')))


@pytest.mark.parametrize(
    ("wanted", "yes", "no"),
    [
        (">=3.12", (3, 12, 0), (3, 11, 9)),
        (">=3.11,<3.13", (3, 12, 4), (3, 13, 0)),
        ("==3.12.*", (3, 12, 4), (3, 13, 0)),
        ("~=3.12", (3, 14, 0), (4, 0, 0)),
        ("~=3.12.2", (3, 12, 3), (3, 13, 0)),
        ("!=3.12.*", (3, 13, 0), (3, 12, 1)),
        ("!=3.12.1", (3, 12, 2), (3, 12, 1)),
        ("==3.12", (3, 12, 0), (3, 12, 1)),
        (">3.12,<=3.13", (3, 13, 0), (3, 12, 0)),
        ("", (3, 11, 0), None),
        ("later", None, (3, 11, 0)),
    ],
)
def test_versions_of_python_are_compared(wanted: str, yes: tuple[int, ...] | None, no: tuple[int, ...] | None):
    assert yes is None or satisfies(yes, wanted)
    assert no is None or not satisfies(no, wanted)


def test_equal_needs_have_one_key(tmp_path: Path):
    """The order and the file do not count; versions, locks and the settings do."""
    own = Settings.of({}).own
    one, two = Declared("/a.py", ("a", "b")), Declared("/b.py", ("b", "a"))
    key = key_of(one, own, tmp_path)
    assert key == key_of(two, own, tmp_path)
    others = [
        key_of(Declared("/a.py", ("a", "b>1")), own, tmp_path),
        key_of(Declared("/a.py", ("a", "b"), python="3.13"), own, tmp_path),
        key_of(Declared("/a.py", ("a", "b"), locked="a==1"), own, tmp_path),
        key_of(Declared("/a.py", ("a", "b"), by_file="1"), own, tmp_path),
        key_of(one, Settings.of({"environments.prowess": "prowess-core==9"}).own, tmp_path),
        key_of(one, Settings.of({"environments.find_links": ["x"]}).own, tmp_path),
        key_of(one, Settings.of({"python": "/other/python"}).own, tmp_path),
    ]
    assert 8 == len({key, *others})


def test_an_environment_whose_interpreter_has_gone_is_not_ready(tmp_path: Path):
    store = EnvironmentStore(tmp_path)
    draft = tmp_path / "environments/draft"
    (draft / "bin").mkdir(parents=True)
    (tmp_path / "python").touch()
    (draft / "bin/python").symlink_to(tmp_path / "python")
    assert not store.is_ready("k")
    store.note(draft, {"python": "3.13.0", "dependencies": ["a"]})
    store.move_in(draft, "k")
    assert store.is_ready("k")
    assert "Python 3.13.0" in (store.look("k") or pytest.fail("missing")).in_words(0)
    (tmp_path / "python").unlink()
    assert not store.is_ready("k")


async def test_a_file_that_is_saved_while_requirements_that_name_it_are_read_counts_as_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The host gets no processor between reading it and the end of reading all the others."""
    folder(tmp_path, requirements__txt="-r more.txt\n", main__py="from prowess import skill_command\n")
    other = tmp_path / "tiny/more.txt"
    other.write_text("tinypackage==1.0\n")
    reads = isolated.read_needs

    def saved_after(*arguments: Any) -> Any:
        found = reads(*arguments)
        other.write_text("tinypackage==1.0.1\n")
        return found

    monkeypatch.setattr(isolated, "read_needs", saved_after)
    before = stamp(str(other))
    skills = isolated.IsolatedSkills(tmp_path, describe=Any, report=Any, on_change=Any)
    await skills.read([tmp_path], Settings.load(tmp_path, environ={}), tmp_path)
    assert {str(other): before} == skills.files
    assert before != stamp(str(other))
