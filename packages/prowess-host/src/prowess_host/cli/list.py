"""`prowess list`: the commands, resources and prompts, and the files that failed to load."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import click

from prowess.contracts.catalog import Catalog
from prowess.jsontypes import JsonObject
from prowess_host.cli.exit_codes import DONE, FAILED, WRONG_USE
from prowess_host.cli.list_table import NEXT, catalog_lines
from prowess_host.cli.options import ProjectOptions, json_option, project_options
from prowess_host.cli.projects import agents_of, catalog_of, is_found, opened
from prowess_host.cli.terminal import complain, pretty

__all__ = ["command"]


@click.command("list")
@project_options
@json_option("Print contracts and failures as JSON.")
def command(where: ProjectOptions, *, as_json: bool) -> int:
    """List the commands, resources and prompts of a project, and the files that failed to load."""
    return asyncio.run(_list(where, as_json=as_json))


async def _list(where: ProjectOptions, *, as_json: bool) -> int:
    async with opened(where) as project:
        await project.load(builds=False)
        catalog = catalog_of(project)
        environments = project.environments() if not as_json else []
        agents = await agents_of(project.settings)
        limits = {skill: limits.to_json() for skill, limits in sorted(project.limits.items())}
        nothing = project.where_it_looked() if not catalog.contracts else ""
    if as_json:
        print(_as_json(catalog, limits, agents))
    elif catalog.contracts or catalog.failures:
        print(
            "\n".join(
                [
                    *catalog_lines(catalog),
                    *([""] if environments else []),
                    *environments,
                    *([""] if agents else []),
                    *agents,
                ]
            )
        )
    if nothing and not catalog.failures:
        complain(f"{nothing}\n{NEXT}")
        return FAILED if is_found(project.settings) else WRONG_USE
    return DONE if catalog.contracts and not catalog.failures else FAILED


def _as_json(catalog: Catalog, limits: JsonObject, agents: list[str]) -> str:
    data = {
        "commands": [contract.to_json() for contract in catalog],
        "failures": [asdict(failure) for failure in catalog.failures],
        **({"limits": limits} if limits else {}),
        **({"cluster": agents} if agents else {}),
    }
    return pretty(data)
