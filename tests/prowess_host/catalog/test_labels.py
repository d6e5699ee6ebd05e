"""Commands that run on agents, in a project without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from inside import inside
from piped import make_project

from prowess_host.cli.commands import run
from prowess_host.cli.list_table import list_at_once
from prowess_host.cli.main import PlainOptions

SKILL = """
    @skill_command(run_on="gpu")
    def render() -> None:
        \"""Render.\"""

    @skill_command
    def here() -> str:
        \"""Stay here.\"""
        return "here"
"""
WARNING = "it runs on agents (gpu), and the project has no cluster: set cluster.url"


async def test_a_command_for_agents_without_a_cluster_is_a_warning_at_load(tmp_path: Path) -> None:
    """Its calls say the same; the other commands work."""
    async with inside(make_project(tmp_path, t=SKILL)) as host:
        assert {"t_render", "t_here"} == {*await host.tools()}
        assert f"t.render (skills/t.py:5): {WARNING}" in host.stderr
        assert WARNING in await host.text("t_render")
        assert "here" == await host.text("t_here")


def test_the_list_warns_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it is read from the manifest. The setting `run_on` wins over the decorator."""
    where = ["--project", str(make_project(tmp_path, t=SKILL))]
    assert 0 == run(["list", *where])
    assert WARNING in capsys.readouterr().out
    assert 0 == list_at_once(PlainOptions(where[1], []))
    assert WARNING in capsys.readouterr().out
    assert 0 == run(["list", *where, "--set", 'run_on={"t.*" = ""}'])
    assert WARNING not in capsys.readouterr().out
