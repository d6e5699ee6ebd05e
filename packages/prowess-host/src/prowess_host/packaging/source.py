"""Reads the metadata and the files of a project for its packages. Refuses secrets."""

from __future__ import annotations

import fnmatch
import keyword
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess.settings.files import read_toml
from prowess.worker.messages import RELEASE

if TYPE_CHECKING:
    from prowess.settings.settings import Settings

__all__ = ["ProjectSource", "read_source"]

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?")
_PARTS: Final = re.compile(r"[-_.]+")
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "tests", "test"})
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)")
_TAKEN: Final = frozenset({*sys.stdlib_module_names, "prowess", "prowess_core", "prowess_host", "prowess_testkit"})
"""Names that no import package may have."""
_CREDENTIALS: Final = re.compile(r"://[^/?#\s]*@")
"""A user in a URL, usually with a password."""
_OURS: Final = frozenset({"prowess", "prowess-host"})
"""Either one installs the host, which the package needs to serve itself."""


@frozen
class ProjectSource:
    """The metadata and files of a project for its packages."""

    name: str
    """Normalized as in package indexes."""
    title: str
    version: str
    description: str
    readme: str
    license: str
    author: str
    website: str
    python: str
    dependencies: tuple[str, ...]
    """Including Prowess."""
    files: Mapping[str, bytes]
    """The skills and the settings, by path in the project."""
    executable: frozenset[str]
    """The files that are programs."""
    folders: tuple[str, ...]
    """The folders of skills."""

    @property
    def module(self) -> str:
        """The name of its import package."""
        return self.name.replace("-", "_")


def read_source(
    settings: Settings, name: str | None = None, version: str | None = None, *, output: Path | None = None
) -> ProjectSource:
    """Read a project: `[project]` in its pyproject.toml, else its settings. `output` is the folder of earlier packages."""
    root, own = settings.root, settings.own
    project = _project_table(root)
    title = _line(own.identity.title) or _line(own.identity.name) or str(project.get("name") or root.name)
    found = name or project.get("name") or own.identity.name or root.name
    dependencies = _dependencies(project.get("dependencies"))
    if not isinstance(found, str) or not _NAME.fullmatch(found):
        raise ProwessError(f"{found!r} is not a package name; give one of letters, digits and hyphens with --name")
    package = _PARTS.sub("-", found).lower()
    if not package.replace("-", "_").isidentifier() or keyword.iskeyword(package.replace("-", "_")):
        raise ProwessError(
            f"{found!r} cannot be imported as a module; give a name that begins with a letter with --name"
        )
    if package.replace("-", "_") in _TAKEN or package in map(_name_of, dependencies):
        raise ProwessError(
            f"{found!r} is the name of a module of Python or Prowess, or of a dependency, which the package would replace or "
            "hide; give another name with --name"
        )
    number = version or project.get("version") or "0.1.0"
    if not isinstance(number, str) or not _VERSION.fullmatch(number):
        raise ProwessError(f"{number!r} is not a version; give one like 1.2.0 with --version")
    folders = tuple(_relative(folder, root) for folder in own.skills if (root / folder).is_dir())
    files = dict(_files(root, folders, output))
    config = root / "prowess.toml"
    if config.is_file():
        text = _read(config, root)
        _refuse_secrets(text, own.record.secrets)
        files["prowess.toml"] = text
    elif settings.written.text:
        raise ProwessError(
            "the settings are under [tool.prowess] in pyproject.toml, which is not packaged; move them to prowess.toml"
        )
    for icon in own.identity.icons:
        if (root / icon).is_file():
            files[_relative(icon, root)] = _read(root / _relative(icon, root), root)
    if not any(path.endswith(".py") for path in files):
        raise ProwessError(f"{root} has no skills to package")
    return ProjectSource(
        name=package,
        title=_line(title),
        version=number,
        description=_line(project.get("description") or own.identity.description) or f"Skills of {_line(title)}",
        readme=_readme(root, title),
        license=_line(project.get("license")),
        author=_author(project.get("authors")),
        website=_line(own.identity.website_url or _inside(project.get("urls"), "Homepage")),
        python=_line(project.get("requires-python")) or ">=3.11",
        dependencies=dependencies,
        files=files,
        executable=frozenset(path for path in files if os.access(root / path, os.X_OK)),
        folders=folders,
    )


def _line(value: Any) -> str:
    """A text on one line, as metadata needs it; empty for another type."""
    return " ".join(value.split()) if isinstance(value, str) else ""


def _inside(table: Any, key: str) -> Any:
    return cast("Mapping[str, Any]", table).get(key) if isinstance(table, dict) else None


def _author(listed: Any) -> str:
    first = cast("list[Any]", listed)[0] if isinstance(listed, list) and listed else None
    return _line(_inside(first, "name")) or _line(_inside(first, "email"))


def _project_table(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    if not path.is_file():
        return {}
    table = read_toml(path).get("project", {})
    if not isinstance(table, dict):
        raise ProwessError(f"{path}: project must be a table")
    return cast("dict[str, Any]", table)


def _relative(path: str, root: Path) -> str:
    """A path relative to the project. Raises an error for a path outside, which cannot be packaged."""
    whole = Path(os.path.abspath(root / path))  # noqa: PTH100 - a link is packaged under its own name
    if not whole.is_relative_to(root):
        raise ProwessError(f"{path} is outside the project {root}; a package contains only files of the project")
    return whole.relative_to(root).as_posix()


def _files(root: Path, folders: tuple[str, ...], output: Path | None) -> Iterator[tuple[str, bytes]]:
    """All files of skills in order, without hidden files, tests, environments and earlier packages."""
    for folder in folders:
        for place, names, files in os.walk(root / folder):
            names[:] = sorted(
                name
                for name in names
                if not name.startswith(".")
                and name not in _SKIPPED
                and not Path(place, name, "pyvenv.cfg").exists()
                and Path(place, name) != output
            )
            for file in sorted(files):
                path = Path(place, file)
                if not file.startswith(".") and path.suffix != ".pyc":
                    yield path.relative_to(root).as_posix(), _read(path, root)


def _read(path: Path, root: Path) -> bytes:
    """A file of the project. A link to anything else is refused: the package would publish it."""
    named, real, inside = path.relative_to(root), Path(os.path.realpath(path)), root.resolve()
    if not real.is_relative_to(inside):
        raise ProwessError(
            f"{named} is a link to a place outside the project; a package contains only files of the project"
        )
    hidden = any(part.startswith(".") for part in real.relative_to(inside).parts)
    if hidden and not any(part.startswith(".") for part in named.parts):
        raise ProwessError(f"{named} is a link to a hidden file, which is not packaged; delete the link")
    if not real.is_file():
        raise ProwessError(f"{named} is not a file, so it cannot be packaged; delete it")
    return real.read_bytes()


def _refuse_secrets(text: bytes, patterns: tuple[str, ...]) -> None:
    """Refuse secrets, because packages are published."""
    found = sorted(
        {
            key
            for key, value in _texts(tomllib.loads(text.decode("utf-8-sig")))
            if value and (_is_secret(key, patterns) or _CREDENTIALS.search(value))
        }
    )
    if found:
        raise ProwessError(
            f"a value in prowess.toml looks like a secret: {', '.join(found)}. Packages are published: move it to .env or "
            "to a variable of the environment"
        )


def _texts(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _texts(cast("Mapping[str, Any]", value), f"{path}{key}.")
        elif isinstance(value, list):
            for item in cast("list[Any]", value):
                if isinstance(item, dict):
                    yield from _texts(cast("Mapping[str, Any]", item), f"{path}{key}.")
                elif isinstance(item, str):
                    yield f"{path}{key}", item
        elif isinstance(value, str):
            yield f"{path}{key}", value


def _is_secret(key: str, patterns: tuple[str, ...]) -> bool:
    last = key.rpartition(".")[2].lower().replace("-", "_")
    return any(fnmatch.fnmatch(last, pattern) for pattern in patterns)


def _dependencies(listed: Any) -> tuple[str, ...]:
    named = [_line(each) for each in cast("list[Any]", listed)] if isinstance(listed, list) else []
    return tuple(named) if _OURS.intersection(map(_name_of, named)) else (*named, f"prowess>={RELEASE}")


def _name_of(requirement: str) -> str:
    """The normalized name of a required package; empty for a text that is no requirement."""
    found = _REQUIREMENT.match(requirement)
    return _PARTS.sub("-", found[1]).lower() if found else ""


def _readme(root: Path, title: str) -> str:
    path = root / "README.md"
    return _read(path, root).decode("utf-8", "replace") if path.is_file() else f"# {title}\n"
