"""`prowess cluster --local N`: an engine, agents and hosts on this machine, to try a cluster and to test with one."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final

import click

from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of

__all__ = ["command"]

_EPILOG = """\b
Examples:
  prowess cluster --local 3                               all commands run on three agents
  prowess cluster --local 3 --set 'run_on={"slow.*" = "any"}'
"""
_GUARDED: Final = '"$@" </dev/null & trap "" INT TERM; read -r _; kill $!; wait $!'
"""Runs a program until the pipe ends that only we hold open."""


@click.command("cluster", epilog=_EPILOG)
@project_options
@click.option(
    "--local", "agents", type=click.IntRange(1), required=True, metavar="N", help="Number of agents to start."
)
@click.option("--hosts", type=click.IntRange(0), default=2, help="Servers of the project to start. Default: 2.")
@click.option("--port", type=click.IntRange(1, 65535), default=8765, help="Port of the first server. Default: 8765.")
def command(where: ProjectOptions, *, agents: int, hosts: int, port: int) -> int:
    """Start an engine, agents and servers on this machine, and end them all with Ctrl-C."""
    from prowess_host.cluster.local import LocalEngine

    settings, over = settings_of(where), threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prowess-cluster-")))
        token = secrets.token_urlsafe(24)
        config = folder / "nats.conf"  # other users of this machine see command lines, and not this folder
        config.write_text(f'authorization {{ token: "{token}" }}\n', encoding="utf-8")
        engine = stack.enter_context(LocalEngine(folder / "engine", "-c", str(config)))
        told = {"PROWESS_CLUSTER__URL": engine.url, "PROWESS_CLUSTER__TOKEN": token}
        if not settings.own.run_on:
            told["PROWESS_RUN_ON"] = '{"*" = "any"}'
        nowhere = folder / "nowhere"
        nowhere.mkdir()
        for number in range(1, agents + 1):
            more = {"PROWESS_AGENT__NAME": f"agent-{number}", "PROWESS_CACHE_DIR": str(folder / f"agent-{number}")}
            _start(stack, ["agent", "--project", str(nowhere)], {**told, **more})
        given = [word for each in where.set for word in ("--set", each)]
        for number in range(hosts):
            server = ["serve", "--project", str(settings.root), *given, "--port", str(port + number)]
            _start(stack, server, told)
        variables = " ".join(f"{name}='{text}'" for name, text in told.items())
        print(f"prowess: {agents} agents and {hosts} servers share the engine at {engine.url}; Ctrl-C ends them all")
        print(f"prowess: to join it from another terminal: export {variables}", flush=True)
        over.wait()
    return DONE


def _start(stack: ExitStack, words: list[str], told: dict[str, str]) -> None:
    """Start a command of ours, which ends when this process does, however that happens."""
    command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", *words]
    process = subprocess.Popen(
        ["sh", "-c", _GUARDED, "prowess", *command],
        stdin=subprocess.PIPE,
        env={**os.environ, **told},
        start_new_session=True,
    )
    stack.callback(process.communicate)
