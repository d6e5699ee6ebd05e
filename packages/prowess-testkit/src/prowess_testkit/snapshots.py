"""Snapshots of contracts: the tools of a project as clients see them, in a file beside the test."""

from __future__ import annotations

import json
from pathlib import Path

from prowess.runtime import Runtime
from prowess_testkit.client import HANDSHAKE
from prowess_testkit.errors import ContractChanged, ProjectError
from prowess_testkit.listing import listed_tools
from prowess_testkit.project import Project

__all__ = ["assert_contract_unchanged"]


def assert_contract_unchanged(
    project: Project | Runtime,
    file: str | Path,
    *,
    profile: str | None = None,
    version: str = HANDSHAKE,
    update: bool = False,
) -> None:
    """Compare the answer to `tools/list` with a file, and raise `ContractChanged` with the differences.

    `update` writes the file instead. The profile is that of the settings, unless another one is given.
    """
    runtime = project.runtime if isinstance(project, Project) else project
    if failures := runtime.catalog().failures:
        raise ProjectError(
            "\n".join(["some skills cannot be loaded, and would be missing in the snapshot:", *map(str, failures)])
        )
    tools = listed_tools(runtime, profile=profile, version=version)
    now = json.dumps(tools, indent=2, ensure_ascii=False) + "\n"
    path = Path(file)
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(now, encoding="utf-8")
        return
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    if before != now:
        raise ContractChanged(path, before, now)
