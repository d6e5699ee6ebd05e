"""Projects of tests whose commands run on agents."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

from piped import until

__all__ = ["is_there", "seen", "touch", "written"]


def written(root: Path, **skills: str) -> Path:
    for name, text in skills.items():
        file = root / "skills" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip())
    return root


def touch(mark: Path, suffix: str = "") -> None:
    """What a command waits for."""
    Path(f"{mark}{suffix}").touch()


def is_there(mark: Path, suffix: str = "") -> bool:
    """Whether a command has got so far."""
    return Path(f"{mark}{suffix}").exists()


async def seen(host: Any, *agents: Any) -> None:
    """Wait until a host knows these agents: one with little patience finds none before."""
    await until(lambda: {agent.id for agent in agents} <= host.project.agents.seen.keys())
