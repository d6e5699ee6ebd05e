"""What the commands share: the project they are about, opened with its workers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from prowess.settings.paths import find_project_root
from prowess.settings.settings import Settings
from prowess_host.cli.main import setting_flags
from prowess_host.project import Project

__all__ = ["opened"]

_PATIENT = {"host.import_limit": "1e9", "host.stall_limit": "1e9"}
"""In a debugger an import may stop for hours, and nothing is stuck."""


@contextlib.asynccontextmanager
async def opened(options: argparse.Namespace, *, in_process: bool = False) -> AsyncGenerator[Project]:
    """The project that the options name; its workers are gone at the end."""
    root = _project_root(options)
    flags = setting_flags(options.set)
    if in_process:
        from prowess_host.workers.in_process import InProcessWorker  # the runtime, which otherwise only workers need

        flags = {**_PATIENT, **flags}
        project = Project(Settings.load(root, environ=os.environ, flags=flags), flags, os.environ, InProcessWorker)
    else:
        project = Project(Settings.load(root, environ=os.environ, flags=flags), flags, os.environ)
    try:
        yield project
    finally:
        await project.close()
        await asyncio.sleep(0)


def _project_root(options: argparse.Namespace) -> Path:
    """The project that was named, or the one around the working directory."""
    return Path(options.project).resolve() if options.project else find_project_root(Path.cwd())
