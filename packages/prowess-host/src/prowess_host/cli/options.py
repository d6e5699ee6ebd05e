"""The options that commands share, as decorators, so that each has one name and one help text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess_host.cli.main import project_root, setting_flags

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["CommandId", "ProjectOptions", "json_option", "project_options"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@frozen
class ProjectOptions:
    """The project of a command, and the settings that override its files."""

    project: str | None = None
    set: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """The named project, or the one around the working directory."""
        return project_root(self.project)

    @property
    def flags(self) -> dict[str, str]:
        """The settings from `--set`."""
        return setting_flags(self.set)


def project_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--project` and `--set`. The command gets them as its first argument, a `ProjectOptions`."""

    @functools.wraps(function)
    def called(*args: Any, project: str | None, settings: tuple[str, ...], **rest: Any) -> int:
        return function(ProjectOptions(project, settings), *args, **rest)

    set_option = click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="Override a setting, for example timeout=60. May be repeated.",
    )
    project_option = click.option(
        "--project",
        metavar="FOLDER",
        type=click.Path(),
        help="The project. Default: the project around the working directory.",
    )
    return project_option(set_option(called))


def json_option(help: str) -> Callable[[_Function], _Function]:
    """Add the flag `--json`, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


class CommandId(click.ParamType[str]):
    """The id of a command, completed from the manifest without importing a skill."""

    name = "command"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """The ids with this beginning, with their summaries."""
        from click.shell_completion import CompletionItem

        from prowess_host.cli.projects import remembered

        where = ProjectOptions(ctx.params.get("project"), tuple(ctx.params.get("settings") or ()))
        try:
            contracts = remembered(where).contracts
        except ProwessError:
            return []  # a shell has no place for a message
        return [CompletionItem(each.id, help=each.summary) for each in contracts if each.id.startswith(incomplete)]
