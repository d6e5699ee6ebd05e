"""Skills whose sources are given: imported from these, whatever their files say by now."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prowess import Runtime
from prowess.skills.discovery import Source
from prowess.skills.loading import Given, distrust_bytecode_of
from prowess.skills.stamps import digest_of
from prowess.skills.texts import pack, unpack

HEAD = "from prowess import skill_command\n"


def skill(value: str, before: str = "", inside: str = "") -> str:
    return f"{HEAD}{before}@skill_command\ndef run() -> object:\n    {inside}return {value}\n"


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/').replace('INIT', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project on the path, as a worker sees it."""
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    distrust_bytecode_of(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path_importer_cache.pop(str(tmp_path), None)


def given(root: Path, name: str, *helpers: str, kept: bool = False, hooks: bool = False, folder: bool = False) -> Given:
    """The sources as they are now."""
    own = sorted((root / "skills" / name).glob("*.py")) if folder else [root / f"skills/{name}.py"]
    texts = {str(path): path.read_bytes() for path in [*own, *(root / helper for helper in helpers)]}
    place = root / "skills" / name if folder else own[0]
    return Given(Source(name, place, tuple(path for path in own if path.name != "__init__.py"), hooks), texts, kept)


async def value(runtime: Runtime, command: str) -> Any:
    outcome = await runtime.call(command)
    assert outcome.ok, outcome.text
    return outcome.value


def test_texts_are_unpacked_as_they_were_packed() -> None:
    """Also none at all, and paths that are no Unicode."""
    texts = {"a\udcff.py": b"\xff\n", "b.py": b""}
    assert texts == unpack(pack(texts))
    assert {} == unpack(pack({})) == unpack(b"")


async def test_a_module_of_the_project_is_described_as_it_was_imported(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was saved since and the clock was set back: no time shows that."""
    write(root, skills__a=skill("x", "from noted_lib import x\n"), noted_lib="x = 1\n")
    later = time.time_ns() + 3_600_000_000_000
    async with Runtime.open(root) as runtime:
        with monkeypatch.context() as clock:
            clock.setattr(time, "time_ns", lambda: later)
            assert 1 == await value(runtime, "a.run")
        write(root, noted_lib="x = 2\n")
        seen = runtime.describe().sightings[str(root / "noted_lib.py")]
    assert (-1, digest_of(b"x = 1\n")) == (seen.mtime_ns, seen.digest)


async def test_a_given_skill_is_imported_from_its_sources(root: Path) -> None:
    """With its helpers and the modules of the project, also where a file has gone."""
    write(
        root,
        skills__a=skill("x + y", "from ._h import x\nfrom gone_lib import y\n"),
        skills___h="x = 1\n",
        gone_lib="y = 2\n",
    )
    kept = given(root, "a", "skills/_h.py", "gone_lib.py")
    write(root, skills__a="1 / 0", skills___h="x = 5\n")
    (root / "gone_lib.py").unlink()
    async with Runtime.open(root) as runtime:
        runtime.give(kept)
        assert 3 == await value(runtime, "a.run")
        runtime.give(kept)
        assert 3 == await value(runtime, "a.run")
        assert set(kept.texts) <= set(runtime.texts_of(kept.texts))


async def test_what_else_is_on_the_path_comes_first(root: Path) -> None:
    """A file of the project hides neither the standard library nor a package; unknown names stay unknown."""
    write(root, skills__a=skill("json.dumps([])", "import json\nimport pluggy\n"), json="", pluggy="")
    async with Runtime.open(root) as runtime:
        runtime.give(given(root, "a", "json.py", "pluggy.py"))
        assert "[]" == await value(runtime, "a.run")
        with pytest.raises(ModuleNotFoundError):
            __import__("no_module_of_this_name")


async def test_packages_of_the_project_are_given_too(root: Path) -> None:
    """With what lies in them."""
    write(
        root,
        skills__a=skill("x", "from given_pack.part import x\n"),
        given_pack__INIT="",
        given_pack__part="x = 1\n",
    )
    async with Runtime.open(root) as runtime:
        runtime.give(given(root, "a", "given_pack/__init__.py", "given_pack/part.py"))
        write(root, given_pack__part="x = 2\n")
        assert 1 == await value(runtime, "a.run")


async def test_a_kept_skill_replaces_what_failed_and_shares_the_rest(root: Path) -> None:
    """It sees the old version of what changed; everything else is the same object for all."""
    before = "from ._h import x\nfrom ._types import Shared\nfrom kept_lib import z\nimport kept_same\n"
    write(
        root,
        skills__a=skill("[x, z, id(Shared), id(kept_same)]", before),
        skills__b=skill(
            "[y, w, id(Shared), id(kept_same)]", before.replace("import x", "import y").replace("import z", "import w")
        ),
        skills___h="x, y = 1, 1\n",
        skills___types="class Shared: ...\n",
        kept_lib="z, w = 1, 1\n",
        kept_same="",
    )
    kept = given(root, "a", "skills/_h.py", "skills/_types.py", "kept_lib.py", "kept_same.py", kept=True)
    write(root, skills___h="y = 2\n", kept_lib="w = 2\n")
    async with Runtime.open(root) as runtime:
        description = runtime.describe()
        assert ["a"] == [name for name, facts in description.skills.items() if facts.failures]
        assert (str(root / "skills/a.py"), (str(root / "skills/a.py"),)) == (
            description.skills["a"].place,
            description.skills["a"].own,
        )
        assert "cannot import name" in " ".join(runtime.reasons("a.run"))
        runtime.give(kept)
        one, other = await value(runtime, "a.run"), await value(runtime, "b.run")
        assert ([1, 1], [2, 2]) == (one[:2], other[:2])
        assert one[2:] == other[2:]
        assert 2 == sys.modules["kept_lib"].w
        assert "a" not in runtime.describe().skills
        runtime.give(Given(given(root, "b").source, {}))
        assert [2, 2] == (await value(runtime, "b.run"))[:2]


async def test_kept_skills_that_agree_share_their_modules(root: Path) -> None:
    """A folder, its package and a namespace in it; the ones that do not agree have a version each."""
    uses = skill("id(x)", "from .n.sub.deep import x\n")
    write(root, skills__a=uses, skills__b=uses, skills__n__INIT="", skills__n__sub__deep="x = object()\n")
    helpers = ("skills/n/__init__.py", "skills/n/sub/deep.py")
    kept = [given(root, name, *helpers, kept=True) for name in ("a", "b")]
    write(root, skills__n__sub__deep="x = object() # other\n")
    third = given(root, "a", *helpers)
    write(root, skills__c=uses)
    other = given(root, "c", *helpers, kept=True)
    write(root, skills__a="1/0", skills__b="1/0", skills__c="1/0", skills__n__sub__deep="")
    assert third.texts != kept[0].texts
    async with Runtime.open(root) as runtime:
        for each in (*kept, other):
            runtime.give(each)
        a, b, c = [await value(runtime, f"{name}.run") for name in "abc"]
        assert a == b != c


async def test_a_kept_plugin_gives_what_it_gave(root: Path) -> None:
    """It is imported before anything else, and its commands are its own."""
    plug = f"{HEAD}from prowess import hookimpl\n@hookimpl\ndef prowess_skill_folders(): return ['more']\n@skill_command\ndef own(): ...\n"
    write(
        root,
        skills__plug=plug,
        skills__b=skill("1", "from .plug import own\n__all__ = ['own', 'run']\n"),
        more__far=skill("7"),
    )
    kept = given(root, "plug", kept=True, hooks=True)
    write(root, skills__plug="from prowess import hookimpl\n1 / 0\n")
    async with Runtime.open(root) as runtime:
        runtime.catalog()
        runtime.give(kept)
        runtime.give(given(root, "b", "skills/plug.py", kept=True))
        assert 7 == await value(runtime, "far.run")
        assert "plug.own" in [contract.id for contract in runtime.catalog()]


async def test_large_files_are_imported_and_not_remembered(root: Path) -> None:
    """Their skill has no last good version."""
    large = "#" * (1 << 20)
    write(root, skills__a=skill("x", "from large_lib import x\n") + large, large_lib=f"x = 1\n{large}")
    async with Runtime.open(root) as runtime:
        assert 1 == await value(runtime, "a.run")
        files = [str(root / "skills/a.py"), str(root / "large_lib.py"), str(root / "none.py")]
        assert {} == runtime.texts_of(files)


async def test_a_kept_version_replaces_one_that_is_imported(root: Path) -> None:
    """With its profile, and without changing what others have."""
    plug = f"""{HEAD}from prowess import hookimpl
from prowess.profiles.profile import Profile
@hookimpl
def prowess_profiles(register): register(Profile("bare", box=None))
@hookimpl
def prowess_render(value): ...
@skill_command
def run(): return 1
"""
    write(root, skills__plug=plug, skills__other=skill("3"))
    kept = given(root, "plug", kept=True, hooks=True)
    write(
        root,
        skills__plug=plug.replace("return 1", "return 2").replace("@hookimpl\ndef prowess_render(value): ...\n", ""),
    )
    async with Runtime.open(root) as runtime:
        assert [2, 3] == [await value(runtime, "plug.run"), await value(runtime, "other.run")]
        runtime.give(kept)
        assert [1, 3] == [await value(runtime, "plug.run"), await value(runtime, "other.run")]


async def test_a_kept_skill_does_not_register_the_commands_of_others(root: Path) -> None:
    """Those that it imports from another skill, of which it sees an older version."""
    write(
        root, skills__a=skill("1", "from .c import run as theirs\n__all__ = ['theirs', 'run']\n"), skills__c=skill("1")
    )
    kept = given(root, "a", "skills/c.py", kept=True)
    write(root, skills__a="1 / 0", skills__c=skill("2"))
    async with Runtime.open(root) as runtime:
        runtime.give(kept)
        assert ["a.run", "c.run"] == [contract.id for contract in runtime.catalog()]
        assert [1, 2] == [await value(runtime, "a.run"), await value(runtime, "c.run")]


async def test_a_package_keeps_its_new_module_after_a_kept_skill_has_seen_the_old_one(root: Path) -> None:
    """Also as an attribute, which is where `from package import module` looks first."""
    uses = skill("part.x", "from keep_pack import part\n")
    write(root, skills__a=uses, skills__b=uses, keep_pack__INIT="", keep_pack__part="x = 1\n")
    kept = given(root, "a", "keep_pack/__init__.py", "keep_pack/part.py", kept=True)
    write(root, skills__a="1 / 0", keep_pack__part="x = 2\n")
    async with Runtime.open(root) as runtime:
        assert 2 == await value(runtime, "b.run")
        runtime.give(kept)
        assert 1 == await value(runtime, "a.run")
        assert 2 == sys.modules["keep_pack"].part.x == sys.modules["keep_pack.part"].x


async def test_a_folder_of_modules_shows_a_kept_skill_the_old_one(root: Path) -> None:
    """The folder itself stays where it is: it has no file, and so no version."""
    uses = skill("part.x", "from keep_space import part\n")
    write(root, skills__a=uses, skills__b=uses, keep_space__part="x = 1\n")
    kept = given(root, "a", "keep_space/part.py", kept=True)
    write(root, skills__a="1 / 0", keep_space__part="x = 2\n")
    async with Runtime.open(root) as runtime:
        assert 2 == await value(runtime, "b.run")
        runtime.give(kept)
        assert 1 == await value(runtime, "a.run")
        assert 2 == sys.modules["keep_space"].part.x == sys.modules["keep_space.part"].x


async def test_a_package_that_is_installed_comes_before_a_given_module(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project is the last on the path."""
    write(root / "installed", given_twice="x = 'installed'\n")
    write(root, skills__a=skill("x", "from given_twice import x\n"), given_twice="x = 'project'\n")
    monkeypatch.syspath_prepend(root / "installed")
    async with Runtime.open(root) as runtime:
        runtime.give(given(root, "a", "given_twice.py"))
        assert "installed" == await value(runtime, "a.run")


@pytest.mark.parametrize(
    "file, text",
    [
        pytest.param("skills__a", f"{HEAD}import nothing_of_this_name\n", id="import"),
        pytest.param("skills__a", f"{HEAD}def (:\n", id="syntax"),
        pytest.param("skills__a", f"{HEAD}@skill_command\ndef run(x: 'Nobody') -> object: ...\n", id="annotation"),
        pytest.param("skills___h", "1 / 0\n", id="helper"),
        pytest.param("broken_lib", "1 / 0\n", id="module of the project"),
    ],
)
async def test_sources_given_after_the_files_did_not_load_are_what_counts(root: Path, file: str, text: str) -> None:
    """A call of another command may have imported the skill before anybody knew that its files are broken."""
    uses = skill("x + y", "from ._h import x\nfrom broken_lib import y\n")
    write(root, skills__a=uses, skills___h="x = 1\n", broken_lib="y = 2\n")
    good = given(root, "a", "skills/_h.py", "broken_lib.py")
    write(root, **{file: text})
    async with Runtime.open(root) as runtime:
        assert not (await runtime.call("nobody.knows")).ok
        assert {"a"} == {failure.source.partition(".")[0] for failure in runtime.catalog().failures}
        runtime.give(good)
        assert 3 == await value(runtime, "a.run")
