"""Importing skills: under names of their own, each module once, and anew when its file says something else."""

from __future__ import annotations

import asyncio
import email
import gc
import importlib
import json
import os
import sys
import threading
import typing
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from patience import PATIENCE

import prowess
from prowess import Runtime
from prowess.skills import loading
from prowess.skills.loading import _take_out, distrust_bytecode_of, package_files, project_files

HEAD = "from __future__ import annotations\nfrom prowess import skill_command\n"
COUNT = "import os\nos.environ['RUNS'] = os.environ.get('RUNS', '') + '{0} '\n"


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files under test note in this variable that they run: it outlives their modules."""
    monkeypatch.setenv("RUNS", "")


def executed() -> list[str]:
    return os.environ["RUNS"].split()


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "skills" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def skill(body: str, *, before: str = "", name: str = "run") -> str:
    """A skill file with one command."""
    return f"{HEAD}{before}\n@skill_command\ndef {name}() -> object:\n    {body}\n"


def counting(name: str, body: str = "return 1", *, before: str = "") -> str:
    """A skill file that notes each time it is executed."""
    return skill(body, before=COUNT.format(name) + before)


async def value(runtime: Runtime, command: str) -> Any:
    outcome = await runtime.call(command)
    assert outcome.ok, outcome.text
    return outcome.value


def failures(runtime: Runtime) -> list[str]:
    return [str(failure) for failure in runtime.catalog().failures]


# Names of their own


@pytest.mark.parametrize("name", ["email", "json", "typing", "prowess", "asyncio", "pydantic", "sys", "os", "types"])
async def test_skill_with_the_name_of_a_library_harms_nobody(tmp_path: Path, name: str) -> None:
    """A skill is never found under its own name, and the library stays what it was."""
    before = sys.modules.get(name)
    write(tmp_path, {f"{name}.py": skill("import email, json, asyncio; return json.loads('[1]')")})
    async with Runtime.open(tmp_path) as runtime:
        assert [1] == await value(runtime, f"{name}.run")
        assert before is sys.modules.get(name)
        assert (email, json, typing, asyncio, prowess) == tuple(
            importlib.import_module(it) for it in ("email", "json", "typing", "asyncio", "prowess")
        )


async def test_skills_are_never_on_the_path(tmp_path: Path) -> None:
    """Neither `sys.path` nor the search path of another package leads to a skill."""
    write(tmp_path, {"email.py": skill("return 1"), "notes/main.py": skill("return 1")})
    before = list(sys.path), list(email.__path__)
    async with Runtime.open(tmp_path) as runtime:
        assert 2 == len(runtime.catalog())
        assert before == (sys.path, email.__path__)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("notes")


async def test_no_bytecode_is_left_behind(tmp_path: Path) -> None:
    """A folder of skills stays as the author left it."""
    write(tmp_path, {"a.py": skill("return 1", before="from . import _b\n"), "_b.py": ""})
    async with Runtime.open(tmp_path) as runtime:
        runtime.catalog()

    assert ["_b.py", "a.py"] == sorted(path.name for path in (tmp_path / "skills").iterdir())


async def test_closed_runtime_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its modules are gone from the interpreter, and nothing holds them."""
    write(tmp_path, {"a.py": skill("return 1", before="class Held: pass\n"), "b/main.py": skill("return 1")})
    modules, finders = set(sys.modules), list(sys.meta_path)
    async with Runtime.open(tmp_path) as runtime:
        runtime.catalog()
        held = weakref.ref(next(m for n, m in sys.modules.items() if n.endswith(".a") and n not in modules).Held)
        await runtime.aclose()  # twice is once
    del runtime
    gc.collect()

    assert [] == [name for name in set(sys.modules) - modules if name.startswith("prowess_skills")]
    assert finders == sys.meta_path
    assert held() is None


async def test_two_runtimes_share_no_module(tmp_path: Path) -> None:
    """Each has its own state, and closing one leaves the other alone."""
    write(tmp_path, {"a.py": skill("seen.append(1); return len(seen)", before="seen = []\n")})
    async with Runtime.open(tmp_path) as one:
        async with Runtime.open(tmp_path) as other:
            assert [1, 2, 1] == [await value(one, "a.run"), await value(one, "a.run"), await value(other, "a.run")]
        assert 3 == await value(one, "a.run")
        assert () == one.catalog().failures


# Siblings


async def test_single_file_imports_a_sibling(tmp_path: Path) -> None:
    """A helper beside it, by module or by name."""
    write(
        tmp_path,
        {
            "a.py": skill("return [_helper.x, y]", before="from . import _helper\nfrom ._helper import y\n"),
            "_helper.py": "x, y = 1, 2\n",
        },
    )
    async with Runtime.open(tmp_path) as runtime:
        assert [1, 2] == await value(runtime, "a.run")


async def test_folder_skill_imports_its_own_and_what_lies_beside_it(tmp_path: Path) -> None:
    """From its top, from below `scripts`, and up to the folder of skills, but no further."""
    up = "from .. import _shared\nfrom .lib.deep import z\n"
    down = "from ...lib.deep import z\nfrom ....  import _shared\nfrom .near import n\n"
    far = "from ..... import nothing\n"
    write(
        tmp_path,
        {
            "_shared.py": "s = 's'\n",
            "notes/lib/deep.py": "z = 'z'\n",
            "notes/main.py": skill("return _shared.s + z", before=up),
            "notes/scripts/sub/x.py": skill("return _shared.s + z + n", before=down, name="deep"),
            "notes/scripts/sub/near.py": "n = 'n'\n",
            "bad/scripts/far.py": skill("return 1", before=far),
        },
    )
    async with Runtime.open(tmp_path) as runtime:
        assert "sz" == await value(runtime, "notes.run")
        assert "szn" == await value(runtime, "notes.deep")
        assert [3] == [failure.line for failure in runtime.catalog().failures]


async def test_package_file_is_run_first(tmp_path: Path) -> None:
    """`__init__.py` of a skill, and of the folder of skills, are what Python makes of them."""
    write(
        tmp_path,
        {
            "__init__.py": "above = 1\n",
            "notes/__init__.py": "from .. import above\nhere = above + 1\n",
            "notes/main.py": skill("return here", before="from . import here\n"),
        },
    )
    async with Runtime.open(tmp_path) as runtime:
        assert 2 == await value(runtime, "notes.run")


async def test_shared_sibling_is_one_module(tmp_path: Path) -> None:
    """Two skills that import a helper see the same state, and it runs once."""
    uses = "from ._helper import seen\n"
    write(
        tmp_path,
        {
            "_helper.py": COUNT.format("helper") + "seen = []\n",
            "a.py": skill("seen.append(1); return len(seen)", before=uses),
            "b/main.py": skill("seen.append(1); return len(seen)", before=uses.replace("._", ".._")),
        },
    )
    async with Runtime.open(tmp_path) as runtime:
        assert [1, 2] == [await value(runtime, "a.run"), await value(runtime, "b.run")]
    assert ["helper"] == executed()


async def test_module_of_a_folder_skill_is_one_for_everybody(tmp_path: Path) -> None:
    """A single file that imports from a folder skill meets the modules of that skill."""
    write(
        tmp_path,
        {
            "a.py": skill("return seen", before="from .notes.main import seen\n"),
            "notes/main.py": counting("notes", "seen.append(1); return seen", before="seen = []\n"),
        },
    )
    async with Runtime.open(tmp_path) as runtime:
        assert [1] == await value(runtime, "notes.run")
        assert [1] == await value(runtime, "a.run")
    assert ["notes"] == executed()


async def test_skill_is_the_file_it_was_found_in(tmp_path: Path) -> None:
    """Whatever else Python would find under its name: a package, a module beside the folder."""
    write(
        tmp_path,
        {
            "git.py": skill("return 'file'"),
            "git/__init__.py": "",
            "notes/main.py": skill("return 'folder'"),
            "notes.py": "",
        },
    )
    async with Runtime.open(tmp_path) as runtime:
        assert ["file", "folder"] == [await value(runtime, "git.run"), await value(runtime, "notes.run")]


async def test_sibling_that_is_not_there_fails_in_the_words_of_the_author(tmp_path: Path) -> None:
    """Our own names for modules are not shown."""
    write(tmp_path, {"a.py": skill("return 1", before="from .gone import x\n")})
    async with Runtime.open(tmp_path) as runtime:
        assert [f"a ({tmp_path}/skills/a.py:3): ModuleNotFoundError: No module named '.gone'"] == failures(runtime)


async def test_names_below_the_package_that_are_no_folder_are_not_found(tmp_path: Path) -> None:
    """Whoever guesses a name gets the ordinary error."""
    write(tmp_path, {"a.py": skill("return __name__")})
    async with Runtime.open(tmp_path) as runtime:
        package = (await value(runtime, "a.run")).partition(".")[0]
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"{package}.f99.a")


# Reload


# Once


def test_threads_that_come_at_once_load_a_skill_once(tmp_path: Path) -> None:
    """The first calls of several event loops in several threads meet one module."""
    write(tmp_path, {"a.py": counting("a")})
    runtime = Runtime(tmp_path)
    gate = threading.Barrier(8)

    def call(_: int) -> Any:
        gate.wait(PATIENCE)
        return asyncio.run(runtime.call("a.run")).value

    try:
        with ThreadPoolExecutor(8) as pool:
            assert [1] * 8 == list(pool.map(call, range(8)))
    finally:
        asyncio.run(runtime.aclose())
    assert ["a"] == executed()


async def test_tasks_that_come_at_once_load_a_skill_once(tmp_path: Path) -> None:
    """The first calls of one event loop meet one module."""
    write(tmp_path, {"a.py": counting("a")})
    async with Runtime.open(tmp_path) as runtime:
        outcomes = await asyncio.gather(*(runtime.call("a.run") for _ in range(20)))
    assert [1] * 20 == [outcome.value for outcome in outcomes]
    assert ["a"] == executed()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project on the path, whose modules may leave bytecode."""
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "careful_one.py").write_text("KIND = 1\n")
    (tmp_path / "careful_two.py").write_text("KIND = 1\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/careful_three.py").write_text("KIND = 1\n")
    return tmp_path


def test_bytecode_of_a_project_is_used_only_where_it_cannot_be_of_an_earlier_save(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was just saved leaves none; installed packages of the project are as everywhere."""
    sys.path_importer_cache[str(project)] = None  # from before
    distrust_bytecode_of(project)
    monkeypatch.syspath_prepend(project / "site-packages")
    for name in ("careful_one", "careful_three"):
        assert 1 == importlib.import_module(name).KIND
    assert not (project / "__pycache__").exists()
    assert (project / "site-packages/__pycache__").exists()
    monkeypatch.setattr(loading, "_SAME_TIME", -3600.0)  # as if an hour had passed
    assert 1 == importlib.import_module("careful_two").KIND
    assert (project / "__pycache__").exists()
    for name in ("careful_one", "careful_two", "careful_three"):
        del sys.modules[name]


def test_files_of_a_package_are_those_that_were_imported() -> None:
    """Its sources, with all that is below it, and nothing of others."""
    files = {file.name for file in package_files("prowess")}
    assert {"loading.py", "__init__.py"} <= files
    assert not any("prowess_host" in str(file) for file in package_files("prowess"))


def test_files_of_a_project_are_told_apart_from_its_skills(project: Path) -> None:
    """Where that is asked for."""
    module = importlib.import_module("careful_one")
    assert [str(module.__file__)] == list(project_files(project))
    assert {} == project_files(project, "careful_one")
    del sys.modules["careful_one"]


def test_what_a_name_means_is_looked_for_where_the_path_leads_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is left as it was, with the project on it or without."""
    write(tmp_path, {})
    (tmp_path / "held_by_path.py").write_text("class Container: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.path)
    assert "Container" == loading.imported("held_by_path:Container", tmp_path).__name__
    assert before == sys.path


def test_module_that_is_taken_out_is_no_attribute_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the name stands for something else by now."""
    package, leaf, other = (ModuleType(name) for name in ("taken", "taken.leaf", "taken.other"))
    for module in (package, leaf, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    package.leaf, package.other = leaf, 7  # type: ignore[attr-defined]
    _take_out(["taken.leaf", "taken.other"])
    assert (False, 7) == (hasattr(package, "leaf"), package.other)  # type: ignore[attr-defined]
    assert not {"taken.leaf", "taken.other"} & sys.modules.keys()
