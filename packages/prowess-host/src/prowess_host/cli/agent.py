"""`prowess agent`: runs workers here for the hosts of a cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import click

from prowess.errors import ProwessError
from prowess.logs import log_to_stderr
from prowess.settings.layers import PREFIX
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.main import leave
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of
from prowess_host.stderr import complaints

__all__ = ["command"]

_EPILOG = """\b
Examples:
  prowess agent --join nats://10.0.0.5:4222
  prowess agent --join nats://10.0.0.5:4222 --labels gpu --slots 2
"""
_CACHE = f"{PREFIX}CACHE_DIR"
_PATIENCE = 2.0
"""Seconds after which an agent says that it cannot reach its engine."""


@click.command("agent", epilog=_EPILOG)
@project_options
@click.option("--join", metavar="URL", help="Address of the engine of the cluster. Default: the setting cluster.url.")
@click.option("--labels", metavar="A,B", help="Labels that commands ask for with run_on.")
@click.option(
    "--slots", type=click.IntRange(0), help="Workers at the same time. Default: two per processor, at least four."
)
@click.option("--locked", is_flag=True, help="Run only code that the keys in agent.keys have approved.")
def command(where: ProjectOptions, *, join: str | None, labels: str | None, slots: int | None, locked: bool) -> int:
    """Run workers on this machine for the hosts of a cluster. The agent reads its settings from --project."""
    flags = {"cluster.url": join, "agent.slots": None if slots is None else str(slots)}
    given = [f"{name}={value}" for name, value in flags.items() if value is not None]
    if labels is not None:
        given.append(f"agent.labels={[each.strip() for each in labels.split(',') if each.strip()]}")
    settings = settings_of(ProjectOptions(where.project, (*where.set, *given)))
    if locked and not settings.own.agent.keys:
        raise ProwessError("--locked needs the public keys that may approve code: set agent.keys")
    if locked:
        _check_keys(settings.own.agent.keys)
    if not settings.own.cluster.url:
        raise ProwessError("the agent needs the address of an engine: add --join nats://HOST:4222, or set cluster.url")
    sys.stderr = complaints()  # a reader that has stopped must not stop the agent
    log_to_stderr()
    _serve(settings, locked=locked)
    return DONE


def _check_keys(keys: Sequence[str]) -> None:
    from prowess_host.cluster.code import is_key

    for key in keys:
        if not is_key(key):
            raise ProwessError(
                f"agent.keys: {key!r} is not a public key, which has 64 hexadecimal digits; `prowess approve --new-key` prints one"
            )


def _serve(settings: Settings, *, locked: bool) -> None:
    from prowess.worker.loops import new_loop
    from prowess_host.cluster.agent import Agent
    from prowess_host.cluster.engine import EngineConnection
    from prowess_host.workers.process_tree import adopt_orphans, reap_orphans

    async def warn_unless_ready(engine: EngineConnection) -> None:
        if not await engine.ready(_PATIENCE):
            print(f"prowess: the engine at {engine.address} is {engine.state}; trying again", flush=True)

    async def run() -> None:
        engine = EngineConnection(settings)
        quiet = engine.on_change(
            lambda: print(f"prowess: the engine at {engine.address} is {engine.state}", flush=True)
        )
        warning = asyncio.ensure_future(warn_unless_ready(engine))
        keys = settings.own.agent.keys if locked else None
        agent = Agent(engine, settings, ConfigPaths.of(settings, os.environ).get_cache_dir(), locked=keys)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, agent)
        loop.add_signal_handler(signal.SIGCHLD, reap_orphans)
        labels = " ".join(agent.labels)
        print(
            f"prowess: agent {agent.name} with {agent.slots} slots and the labels {labels}; Ctrl-C ends it", flush=True
        )
        for name in [name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() != _CACHE]:
            del os.environ[name]  # workers have the settings of their hosts, and not those of this agent
        await agent.run()
        warning.cancel()
        quiet()
        await engine.close()

    def stop(agent: Agent) -> None:
        if agent.tenants:
            print(
                f"prowess: the agent stops when its calls have ended, after {agent.own.drain:g} s at most", flush=True
            )
        agent.stop()

    adopt_orphans()
    asyncio.Runner(loop_factory=new_loop).run(run())
    leave(DONE)
