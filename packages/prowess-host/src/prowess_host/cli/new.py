"""`prowess new`: a project in a folder, or a skill in a project, each with a test that passes. Overwrites nothing."""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import click

from prowess.errors import ProwessError
from prowess.settings.files import CONFIG_FILE, is_configured
from prowess.settings.paths import find_project_root
from prowess.settings.settings import Settings
from prowess.skills.discovery import is_reserved
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.main import EMPTY_PROJECT, project_path, project_root
from prowess_host.cli.projects import is_project

__all__ = ["TEMPLATES", "SkillTemplate", "command"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,40}")
_FIRST: Final = "hello"
_FOR_AGENTS: Final = "write-prowess-skills"
"""The SKILL.md (agentskills.io) that teaches coding agents to write skills for Prowess."""
_AGENTS_READ: Final = (".claude/skills", ".agents/skills")
"""Claude Code reads the first folder, most other agents the second one."""
_EPILOG: Final = """\b
Examples:
  prowess new --project                  a project in this folder
  prowess new --project my-tools         a project in a new folder
  prowess new orders                     skills/orders.py, and tests/test_orders.py
  prowess new github --from http-api     from another template
  prowess new report --folder            a folder with a SKILL.md
"""


class SkillTemplate(NamedTuple):
    """A template for a skill. Its files are in the folder `templates`."""

    summary: str
    command: str
    arguments: str
    """Arguments for the first call."""


TEMPLATES: Final[dict[str, SkillTemplate]] = {
    "plain": SkillTemplate("Greets people.", "greet", "name=Ada"),
    "http-api": SkillTemplate("Looks things up with an HTTP API.", "repository", "owner=python name=cpython"),
    "database": SkillTemplate("Keeps notes in a database.", "add", "text=milk"),
    "long-job": SkillTemplate("Counts the lines of many files, and reports its progress.", "count", "folder=."),
}


@click.command("new", epilog=_EPILOG)
@click.argument("name", metavar="[SKILL]", required=False)
@click.option(
    "--project",
    "project",
    is_flag=False,
    flag_value=".",
    default=None,
    metavar="[FOLDER]",
    help="Make a project with a first skill, in this folder or in FOLDER.",
)
@click.option(
    "--from",
    "template",
    type=click.Choice(list(TEMPLATES)),
    default="plain",
    help="The template. Default: plain.",
)
@click.option("--folder", is_flag=True, help="Make the skill a folder with a SKILL.md, instead of one file.")
def command(name: str | None, project: str | None, template: str, *, folder: bool) -> int:
    """Make a project, or a SKILL in the project around the working directory. Overwrites nothing."""
    if name is None and project is None:
        raise click.UsageError("Name a skill, or use --project", click.get_current_context())
    skill = _checked(_FIRST if name is None else name)
    if folder:
        skill = _slug(skill)
    if project is not None:
        if not project:
            raise ProwessError(EMPTY_PROJECT)
        root = project_path(Path(os.path.expanduser(project)).absolute())  # noqa: PTH111 - Path.expanduser raises for an unknown user
        _make_project(root, skill, template, folder=folder)
    else:
        root = project_root(None)
        if not is_project(root):
            raise ProwessError(f"{root} is not a project: `prowess new --project` makes one there, with a first skill")
        _write_all(root, dict(_skill_files(_skills_folder(root), skill, template, folder=folder)))
    _say_next(root, skill, TEMPLATES[template])
    return DONE


def _checked(name: str) -> str:
    """Check that a name works as a file, as the first part of an id, and in a tool name of every client."""
    if keyword.iskeyword(name):
        raise ProwessError(f"the name {name!r} is a word of Python: choose another one, like 'my_{name}'")
    if is_reserved(name):
        raise ProwessError(f"the name {name!r} belongs to tests and tools, and is no skill: choose another one")
    if not _NAME.fullmatch(name):
        plain = unicodedata.normalize("NFKD", name.removesuffix(".py").lower()).encode("ascii", "ignore").decode()
        near = re.sub(r"[^a-z0-9_-]+", "_", plain).strip("_-")
        meant = f"; how about {near!r}?" if _NAME.fullmatch(near) and not keyword.iskeyword(near) else ""
        raise ProwessError(
            f"the name {name!r} must be lower-case letters, digits, _ and -, beginning with a letter{meant}"
        )
    return name


def _slug(name: str) -> str:
    """The name as agents accept it for a folder with a SKILL.md: words with single hyphens between them."""
    return re.sub(r"[_-]+", "-", name).strip("-")


def _skills_folder(root: Path) -> str:
    """The first folder of the setting `skills`."""
    return Settings.load(root, environ=os.environ).own.skills[0]


def _make_project(root: Path, skill: str, template: str, *, folder: bool) -> None:
    if is_configured(root) or (root / "skills").exists():
        raise ProwessError(f"{root} is a project already: `prowess new NAME` makes another skill in it")
    words = _words(skill, template)
    words["project"] = os.fsencode(root.name).decode("utf-8", "replace") or "tools"
    written = {
        Path(CONFIG_FILE): _filled("project/prowess.toml", words),
        **dict(_skill_files("skills", skill, template, folder=folder)),
        Path(".gitignore"): _filled("project/gitignore", words),
        Path("README.md"): _filled("project/README.md", words),
        **{Path(folder, _FOR_AGENTS, "SKILL.md"): _template(f"{_FOR_AGENTS}/SKILL.md") for folder in _AGENTS_READ},
    }
    first = (CONFIG_FILE, "skills", "tests")
    kept = [path for path in written if path.parts[0] not in first and (root / path).exists()]
    for path in kept:
        del written[path]
    _write_all(root, written)
    for path in kept:
        print(f"kept     {path}: it was there already")


def _skill_files(skills: str, skill: str, template: str, *, folder: bool) -> Iterator[tuple[Path, str]]:
    """The files of a skill, by their path in the project."""
    place = Path(skills, skill) if folder else Path(skills, f"{skill}.py")
    words = _words(skill, template)
    words["place"] = place.as_posix()
    if folder:
        yield place / "SKILL.md", _filled("folder/SKILL.md", words)
    yield place / "commands.py" if folder else place, _filled(f"{template}/skill.py", words)
    yield Path("tests", f"test_{skill.replace('-', '_')}.py"), _filled(f"{template}/test.py", words)


def _words(skill: str, template: str) -> dict[str, str]:
    known = TEMPLATES[template]
    return {
        "name": skill,
        "slug": _slug(skill),
        "summary": known.summary,
        "command": known.command,
        "arguments": known.arguments,
    }


def _filled(name: str, words: Mapping[str, str]) -> str:
    """A template with its placeholders replaced."""
    return re.sub(r"\{\{(\w+)\}\}", lambda gap: words[gap[1]], _template(f"{name}.tmpl"))


def _template(name: str) -> str:
    return files("prowess_host").joinpath("templates", name).read_text("utf-8")


def _write_all(root: Path, written: Mapping[Path, str]) -> None:
    """Write all files or none. `orders.py` and the folder `orders/` exclude each other, because both are the skill `orders`."""
    python = [path for path in written if path.suffix == ".py"]
    others = [
        path.parent.with_name(f"{path.parent.name}.py") if path.name == "commands.py" else path.with_suffix("")
        for path in python
    ]
    taken = [path for path in [*written, *others] if os.path.lexists(root / path)]
    if taken:
        raise ProwessError(f"{root / taken[0]} is there already: choose another name, or move it away")
    made: list[Path] = []
    try:
        for path, text in written.items():
            _make_folder((root / path).parent, made)
            with (root / path).open("x", encoding="utf-8", newline="\n") as file:
                made.append(root / path)
                file.write(text)
    except BaseException as error:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if not isinstance(error, OSError):
            raise
        raise ProwessError(f"{error.filename or root}: cannot be written ({error.strerror})") from error
    print("\n".join(f"created  {path}" for path in written))


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder with the missing ones above it, and add each to those that were made."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        _make_folder(folder.parent, made)
    folder.mkdir()
    made.append(folder)


def _say_next(root: Path, skill: str, template: SkillTemplate) -> None:
    is_here = root == Path.cwd() or find_project_root(Path.cwd()) == root
    enter = "" if is_here else f"  cd {shlex.quote(os.path.relpath(root))}\n"
    print(f"\nNext:\n{enter}  prowess call {skill}.{template.command} {template.arguments}")
    print(
        "  pytest               (pip install prowess-testkit)\n  prowess connect      asks which of your clients to connect"
    )
