"""Shared by the commands: opening the project with its workers, or reading its manifest."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess.errors import ProwessError, UnknownCommand
from prowess.settings.files import is_configured
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess_host.catalog.known import KnownCatalog
from prowess_host.cli.exit_codes import TERMINATED, NotLoaded
from prowess_host.cli.list_table import NEXT
from prowess_host.cli.options import ProjectOptions
from prowess_host.project import Project

__all__ = [
    "agents_of",
    "catalog_of",
    "check_project",
    "find",
    "is_found",
    "is_project",
    "opened",
    "remembered",
    "settings_of",
    "shown_path",
    "with_short_paths",
]

_PATIENT = {"host.import_limit": "1e9", "host.stall_limit": "1e9"}
"""In a debugger, an import may stand still for hours."""


@contextlib.asynccontextmanager
async def opened(
    where: ProjectOptions, *, in_process: bool = False, client: str = "prowess"
) -> AsyncGenerator[Project]:
    """Open the project that the options name, and end its workers at exit. `client` is the name of the caller in the record."""
    flags = where.flags
    if in_process:
        from prowess_host.workers.in_process import InProcessWorker  # imports the runtime

        flags = {**_PATIENT, **flags}
        os.chdir(where.root)  # as in a worker
        project = Project(_load(where, flags), flags, os.environ, InProcessWorker, client=client)
    else:
        project = Project(_load(where, flags), flags, os.environ, client=client)
    with _sigterm_as_ctrl_c():
        try:
            yield project
        finally:
            await project.close()
            await asyncio.sleep(0)


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Generator[None]:
    """End in good order at SIGTERM, too, so that calls clean up. By default, it ends this process at once."""
    if not callable(signal.getsignal(signal.SIGINT)) or threading.current_thread() is not threading.main_thread():
        yield
        return
    terminated = False

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        interrupt: Any = signal.getsignal(signal.SIGINT)  # another one while this thread reads from a terminal
        interrupt(number, frame)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except (asyncio.CancelledError, KeyboardInterrupt):
        if terminated:
            raise SystemExit(TERMINATED) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def catalog_of(project: Project) -> Catalog:
    """The commands and failures, with paths relative to the project."""
    return with_short_paths(project.catalog(), project.settings.root)


def with_short_paths(catalog: Catalog, root: Path) -> Catalog:
    """The catalog with paths of failures relative to the project."""
    failures = (
        replace(failure, file=shown_path(Path(failure.file), root)) if failure.file else failure
        for failure in catalog.failures
    )
    return replace(catalog, failures=tuple(failures))


def is_project(root: Path) -> bool:
    """Whether a folder has settings for Prowess, or a folder `skills`."""
    return is_configured(root) or (root / "skills").is_dir()


def is_found(settings: Settings) -> bool:
    """Whether the root of some settings is a project: a folder with settings for Prowess, or with one of its folders of skills."""
    return is_configured(settings.root) or any((settings.root / folder).is_dir() for folder in settings.own.skills)


def check_project(where: ProjectOptions) -> Path:
    """The root of the project. Raises `ProwessError` for a folder that is no project."""
    root = where.root
    if not is_found(settings_of(where)):
        raise ProwessError(
            f"{root} is not a project: it has neither prowess.toml nor a folder skills. Go to your project, name it with "
            "--project FOLDER, or make one: prowess new --project"
        )
    return root


async def find(project: Project, name: str) -> Contract:
    """The contract of a command. Raises `NotLoaded` if its skill failed to load or there are none, else `ProwessError`."""
    await project.load(name)
    contract = await project.contract_of(name)
    if contract is not None:
        return contract
    catalog = catalog_of(project)
    reasons = catalog.reasons(name)
    if reasons:
        raise NotLoaded("\n".join(f"{name} could not be loaded: {reason}" for reason in reasons))
    if not catalog.contracts and not catalog.failures:
        problem = f"{project.where_it_looked()}\n{NEXT}"
        raise NotLoaded(problem) if is_found(project.settings) else ProwessError(problem)
    error = UnknownCommand(name, [each.id for each in catalog])
    if "did you mean" not in str(error):
        error.args = (f"{error}. `prowess list` shows the commands",)
    raise error


def shown_path(file: Path, root: Path) -> str:
    """A path for a message, relative to the project if possible."""
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)


def settings_of(where: ProjectOptions) -> Settings:
    """The settings of the project that the options name."""
    return _load(where, where.flags)


def _load(where: ProjectOptions, flags: dict[str, str]) -> Settings:
    return Settings.load(where.root, environ=os.environ, flags=flags)


async def agents_of(settings: Settings) -> list[str]:
    """One line about the engine and about each agent; none for a project without a cluster."""
    if not settings.own.cluster.url:
        return []
    from prowess_host.cluster.status import cluster_status  # needs an extra, which only projects with a cluster have

    return (await cluster_status(settings))[1]


def remembered(where: ProjectOptions) -> Catalog:
    """The catalog in the manifest, possibly outdated. Starts no process."""
    settings = settings_of(where)
    known = KnownCatalog(ConfigPaths.of(settings, os.environ), settings.own)
    known.recall()
    return known.catalog()
