"""What installed packages bring, and that nothing searches for it where there is nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from patience import PATIENCE

from prowess.installed import skip_search_of_pydantic

START = "from prowess.installed import installed, skip_search_of_pydantic\n"


def package(folder: Path, entry_points: str | None, name: str = "acme") -> Path:
    """A distribution as it would lie in site-packages."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if entry_points is not None:
        (info / "entry_points.txt").write_text(entry_points)
    return folder


def run(program: str, *folders: Path, cwd: Path | None = None) -> str:
    """What a fresh process prints that has these folders of packages."""
    start = f"import sys; sys.path[:0] = {list(map(str, folders))!r}\n{START}"
    command = [sys.executable, "-P", "-c", start + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=cwd)
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


NAMES = "print([each.name for each in installed()], 'importlib.metadata' in sys.modules)"
SKILLS = "[prowess.skills]\nacme = acme_skill\n"


def test_packages_without_skills_are_not_searched_by_the_library(tmp_path: Path):
    """Its import alone takes longer than the whole search."""
    package(tmp_path, "[console_scripts]\nacme = acme:main\n")
    package(tmp_path, None, "beta")
    (tmp_path / "file.egg-info").write_text("Name: file\n")
    assert "[] False" == run(NAMES, tmp_path, tmp_path / "missing")
    package(tmp_path, SKILLS, "gamma")
    assert "['acme'] True" == run(NAMES, tmp_path)


LATER = """
    import os, pathlib
    import prowess.installed

    def show():
        print([each.name for each in installed()], str(folder) in prowess.installed._searched)

    folder = pathlib.Path(sys.path[0])
    show()
    prowess.installed._RACE = -(10**20)
    os.utime(folder, ns=(0, 0))
    show()
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: acme")
    (info / "entry_points.txt").write_text("[prowess.skills]\\nacme = acme_skill")
    show()
"""


def test_a_package_that_is_installed_later_is_found(tmp_path: Path):
    """A folder is searched again once it has changed, and always if it changed just now."""
    assert ["[] False", "[] True", "['acme'] True"] == run(LATER, tmp_path).splitlines()


def test_packages_in_the_current_folder_and_in_archives_are_found(tmp_path: Path):
    package(tmp_path, SKILLS)
    assert "['acme'] True" == run("sys.path.insert(0, '')\n" + NAMES, cwd=tmp_path)
    assert "['acme'] True" == run(f"import pathlib; sys.path.insert(0, pathlib.Path({str(tmp_path)!r}))\n" + NAMES)
    archive = tmp_path / "acme.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("acme-1.0.dist-info/METADATA", "Name: acme\nVersion: 1.0\n")
        file.writestr("acme-1.0.dist-info/entry_points.txt", SKILLS)
    assert "['acme'] True" == run(NAMES, archive)


def test_an_egg_is_left_to_the_library(tmp_path: Path):
    info = tmp_path / "acme-1.0-py3.11.egg" / "EGG-INFO"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Name: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(SKILLS)
    assert "['acme'] True" == run(NAMES, info.parent)


def test_a_finder_of_somebody_else_is_asked(tmp_path: Path):
    package(tmp_path, SKILLS)
    finder = f"""
    class Finder:
        def find_spec(*_): return None
        def find_distributions(self, context):
            from importlib.metadata import Distribution
            return iter([Distribution.at({str(tmp_path / "acme-1.0.dist-info")!r})])
    sys.meta_path.append(Finder())
    """
    assert "['acme'] True" == run(textwrap.dedent(finder) + NAMES)


def test_the_newer_library_from_pypi_finds_no_more(tmp_path: Path):
    """OpenTelemetry imports it before Python 3.12, and it puts a finder of its own in place."""
    pytest.importorskip("importlib_metadata")
    assert "[] False" == run("import importlib_metadata\nsys.modules.pop('importlib.metadata', None)\n" + NAMES)


def test_what_cannot_be_read_is_passed_over(tmp_path: Path):
    (package(tmp_path / "site", None) / "acme-1.0.dist-info" / "entry_points.txt").mkdir()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "[] False" == run(NAMES, tmp_path / "site", loop)


MODEL = """
    import importlib.util
    skip_search_of_pydantic()
    skip_search_of_pydantic()
    from pydantic import BaseModel
    class Model(BaseModel): value: int
    print(Model(value="1").value, 'importlib.metadata' in sys.modules)
"""


def test_pydantic_does_not_search_where_no_plugin_of_it_is_installed(tmp_path: Path):
    assert "1 False" == run(MODEL)
    later = """
    from pydantic.plugin import _loader
    print(_loader.PYDANTIC_ENTRY_POINT_GROUP, sys.modules[_loader.__name__].__file__ is None)
    """
    assert ["1 False", "pydantic False"] == run(MODEL + later).splitlines()


def test_a_plugin_of_pydantic_is_used(tmp_path: Path):
    package(tmp_path, "[pydantic]\nacme = acme_plugin:plugin\n")
    (tmp_path / "acme_plugin.py").write_text(
        "class Plugin:\n"
        "    def new_schema_validator(self, *_args, **_more):\n"
        "        print('asked')\n"
        "        return None, None, None\n"
        "plugin = Plugin()\n"
    )
    assert ["asked", "1 True"] == run(MODEL, tmp_path).splitlines()


def test_a_search_that_is_over_stays_as_it_is():
    """This process has made validators long ago."""
    from pydantic.plugin import _loader

    skip_search_of_pydantic()
    assert _loader is sys.modules[_loader.__name__]
