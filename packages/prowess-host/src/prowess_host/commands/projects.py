"""What the commands share: the project they are about, and a worker to ask."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from prowess.catalog import Catalog
from prowess.contract import Contract
from prowess.paths import find_project_root
from prowess.settings import Settings
from prowess_host.cli import setting_flags
from prowess_host.knowledge import described
from prowess_host.supervisor import Supervisor

__all__ = ["Project", "find", "opened", "project_root"]


@dataclass(frozen=True, slots=True)
class Project:
    """A project, its settings, and the workers that load it."""

    root: Path
    settings: Settings
    flags: dict[str, str]
    supervisor: Supervisor

    async def catalog(self) -> Catalog:
        """Everything there is, loaded now. A `ChildProcessError` says why that cannot be had."""
        description = await described(self.supervisor.describe, (), self.root)
        return description.catalog(self.settings.own.hide, self.root)


@contextlib.asynccontextmanager
async def opened(options: argparse.Namespace) -> AsyncGenerator[Project]:
    """The project that the options name; its workers are gone at the end."""
    root = project_root(options)
    flags = setting_flags(options.set)
    settings = Settings.load(root, environ=os.environ, flags=flags)
    supervisor = Supervisor(root, settings, flags)
    try:
        yield Project(root, settings, flags, supervisor)
    finally:
        await supervisor.close()
        await asyncio.sleep(0)


def project_root(options: argparse.Namespace) -> Path:
    """The project that was named, or the one around the working directory."""
    return Path(options.project).resolve() if options.project else find_project_root(Path.cwd())


def find(catalog: Catalog, name: str) -> Contract | None:
    """The command that answers to a name in any of its forms."""
    for contract in catalog.contracts:
        if name.replace("/", ".") in (contract.id, contract.wire_name, *contract.aliases):
            return contract
    return None
