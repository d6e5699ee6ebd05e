"""`prowess trust`: shows what an installed package or a limited skill does, asks, and writes the answer into `prowess.toml`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from prowess.contracts.visible import visible
from prowess.errors import ProwessError, SettingsError
from prowess.frozen import frozen
from prowess.settings.files import CONFIG_FILE
from prowess.settings.limits import TABLE, Limits, Sandbox, limits_of, wider
from prowess.settings.settings import Settings
from prowess.skills.description import SkillFacts
from prowess_host.catalog.trust import contract_digest
from prowess_host.cli.asking import can_ask
from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.list_table import hints_of
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of
from prowess_host.cli.terminal import Style, complain, interruptible, plural
from prowess_host.clients.documents import ClientFileError, Document, read_document
from prowess_host.clients.files import write
from prowess_host.clients.toml_sections import put
from prowess_host.confinement.grants import Grant, passed_settings, passed_variables
from prowess_host.workers.placement import OWN, Placement
from prowess_host.workers.supervisor import Supervisor

__all__ = ["command"]

_EPILOG = """\b
Examples:
  prowess trust acme                            show it, and ask
  prowess trust acme --network --read data      with these permissions
  prowess trust acme --unlimited --yes          like a skill of the project, without a question
"""


@frozen
class _Request:
    network: bool
    read: tuple[str, ...]
    write: tuple[str, ...]
    env: tuple[str, ...]
    setting: tuple[str, ...]
    processes: int | None
    unlimited: bool
    yes: bool

    def limits(self) -> dict[str, Any]:
        """The options as a table of limits."""
        table = {
            "network": self.network or None,
            "read": list(self.read),
            "write": list(self.write),
            "env": list(self.env),
            "settings": list(self.setting),
            "processes": self.processes,
        }
        return {name: value for name, value in table.items() if value or value == 0}


@click.command("trust", epilog=_EPILOG)
@project_options
@click.argument("name", metavar="SKILL")
@click.option("--network", is_flag=True, help="Allow the network.")
@click.option("--read", multiple=True, metavar="PATH", help="Allow reading this file or folder. May be repeated.")
@click.option(
    "--write", multiple=True, metavar="PATH", help="Allow reading and changing this file or folder. May be repeated."
)
@click.option("--env", multiple=True, metavar="NAME", help="Allow this environment variable. May be repeated.")
@click.option(
    "--setting", multiple=True, metavar="KEY", help="Allow this setting or table of settings. May be repeated."
)
@click.option("--processes", type=click.IntRange(0), metavar="N", help="Allow this number of processes.")
@click.option("--unlimited", is_flag=True, help="Run the skill without limits.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(where: ProjectOptions, name: str, **options: Any) -> int:
    """Allow the skills of an installed package to run: show commands and limits, ask, and write prowess.toml."""
    request = _Request(**options)
    if request.unlimited and request.limits():
        raise ProwessError("--unlimited lifts all limits: leave out the other options, or --unlimited")
    settings = settings_of(where)
    file = settings.root / CONFIG_FILE
    if settings.config_file not in {None, file}:
        raise ProwessError(f"the settings are in {settings.config_file}: write [tool.prowess.{TABLE}.{name}] there")
    sandbox = Sandbox.of(settings.own.sandbox, str(file))
    before = sandbox[name]
    table = {**(dict(before.limits or {}) if before else {}), **request.limits()}
    limits = None if request.unlimited else limits_of((table, f"{file}: [{TABLE}.{name}]"))
    # It is described under limits in any case, because nothing has been allowed yet.
    names = [name] if limits else [name, *_unlimited(settings, sandbox)]
    facts, folders = asyncio.run(_facts(where, settings, names, limits or Limits(), sandbox))
    if folders and limits:
        raise ProwessError(
            f"{name} brings folders of skills, and limits of a package do not apply to those: read {', '.join(folders)}, "
            f"then run `prowess trust {name} --unlimited`"
        )
    print("\n".join(_shown(name, facts, folders, limits, sandbox)))
    edited = _edited(
        file, name, {"contract": contract_digest(facts), **({"limited": False} if limits is None else table)}
    )
    if not request.yes and not _agreed():
        return FAILED
    try:
        write(file, edited.content)
    except OSError as error:
        raise ProwessError(f"{file}: cannot be written ({error.strerror})") from error
    print(f"\n[{TABLE}.{name}] was written to {file}.")
    return DONE


def _agreed() -> bool:
    if not can_ask():
        complain("stdin is not a terminal, so nobody can answer: run the command again with --yes")
        return False
    with interruptible():
        return click.confirm("\nMay it run?", default=False, err=True)


async def _facts(
    where: ProjectOptions, settings: Settings, names: Sequence[str], limits: Limits, sandbox: Sandbox
) -> tuple[Sequence[SkillFacts], list[str]]:
    """The skill of a package, described by a worker within its limits, and the folders of skills that it brings.

    It is the first of the names. Its commands may need objects that the others provide.
    """
    name = names[0]
    supervisor = Supervisor(settings.root, settings, where.flags)
    root = settings.root.resolve()
    grant = Grant(
        name, limits, root, unenforced=sandbox.unenforced, variables=passed_variables(settings, limits), package=True
    )
    placement = Placement(limits=grant)
    share = {"only": [*names], "flags": passed_settings(settings, limits), "written": None}
    supervisor.pools.share_of = lambda at: {} if at is OWN else share
    try:
        successor = await supervisor.generations.next_of(placement)
        skills, folders = successor.description.skills, successor.description.folders
    finally:
        await supervisor.close()
    found = [facts for key, facts in skills.items() if key.startswith(f"package:{name}:")]
    if not found:
        raise ProwessError(
            f"no installed package has a skill {name!r}; `prowess list` shows the skills of installed packages"
        )
    for failure in (failure for facts in found for failure in facts.failures):
        complain(str(failure))
    return found, _brought(folders, settings)


def _unlimited(settings: Settings, sandbox: Sandbox) -> list[str]:
    """The packages and skills that are allowed to run without limits."""
    return [name for name in settings.own.sandbox if (verdict := sandbox[name]) and verdict.limits is None]


def _brought(folders: Sequence[str], settings: Settings) -> list[str]:
    """The folders of skills that are not those of the project."""
    own = {(settings.root / folder).resolve() for folder in settings.own.skills}
    return [folder for folder in folders if Path(folder).resolve() not in own]


def _shown(
    name: str, facts: Sequence[SkillFacts], folders: Sequence[str], limits: Limits | None, sandbox: Sandbox
) -> list[str]:
    style = Style.of(sys.stdout)
    contracts = [contract for each in facts for contract in each.contracts]
    lines = [f"{style(name, 'bold')} brings {plural(len(contracts), 'command')}{':' if contracts else '.'}"]
    for contract in contracts:
        hints = ", ".join(hints_of(contract))
        lines.append(f"  {contract.id}  {visible(contract.summary)}" + (f"  ({hints})" if hints else ""))
        rest = contract.description.removeprefix(contract.summary).strip()
        lines += [f"      {line}" for line in visible(rest).splitlines()]  # models read all of it
    if folders:
        lines += [
            "It brings the skills in these folders. Read them: they run without another question, also after an update."
        ]
        lines += [f"  {visible(folder)}" for folder in folders]
    lines += ["", f"Its limits: {limits.in_words() if limits else 'none: it has your permissions'}."]
    try:
        before = sandbox.limits(name)
    except SettingsError:
        before = None
    if limits and before and (more := wider(limits, before)):
        lines.append(f"Wider than before: {', '.join(more)}.")
    verdict = sandbox[name]
    if verdict and verdict.contract and verdict.contract != contract_digest(facts):
        lines.append("Its commands have changed since you allowed them: `prowess check` shows the differences.")
    return lines


def _edited(file: Path, name: str, table: dict[str, Any]) -> Document:
    """The settings with the answer. Raises an error if they have the table in another form, such as on one line."""
    entry = json.loads(json.dumps(table))
    try:
        return read_document(file, "toml").put([TABLE, name], entry)
    except ClientFileError as error:
        raise ProwessError(f"{error}. This allows {name} there:\n\n{put('', [TABLE, name], entry)}") from None
