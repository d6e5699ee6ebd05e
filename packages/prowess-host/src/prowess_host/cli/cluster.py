"""`prowess cluster --local N`: starts an engine, agents and hosts on this machine, to try a cluster or to test with one."""

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

from prowess_host.cli.exit_codes import DONE, FAILED
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import settings_of

__all__ = ["command"]

_EPILOG = """\b
Examples:
  prowess cluster --local 3                               all commands run on three agents
  prowess cluster --local 3 --set 'run_on={"slow.*" = "any"}'
"""
_GUARDED: Final = """
"$@" </dev/null & program=$!
trap "" HUP INT TERM
exec 3<&0
{ read -r _ <&3; kill $program 2>/dev/null; } & reader=$!
wait $program; code=$?
exec 2>/dev/null
kill $reader
exit $code
"""
"""Runs a program until it ends, or the pipe does that only we hold open."""
_SWEEP: Final = """
folder=$1; shift
trap "" HUP INT TERM
read -r _
for pid; do
    looks=0
    while kill -0 "$pid" 2>/dev/null && [ $looks -lt 300 ]; do sleep 0.1; looks=$((looks + 1)); done
done
rm -rf "$folder"
"""
"""Removes the folder of a cluster whose starter was killed, once its processes have ended."""
_LOOK: Final = 0.5


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

    settings, over = settings_of(where), _over_at_signals()
    parts: list[_Part] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prowess-cluster-")))
        token = secrets.token_urlsafe(24)
        config = folder / "nats.conf"  # other users of this machine see command lines, and not this folder
        config.write_text(f'authorization {{ token: "{token}" }}\n', encoding="utf-8")
        engine = stack.enter_context(LocalEngine(folder / "engine", "-c", str(config)))
        variables = {"PROWESS_CLUSTER__URL": engine.url, "PROWESS_CLUSTER__TOKEN": token}
        if not settings.own.run_on:
            variables["PROWESS_RUN_ON"] = '{"*" = "any"}'
        nowhere = folder / "nowhere"
        nowhere.mkdir()
        for number in range(1, agents + 1):
            more = {"PROWESS_AGENT__NAME": f"agent-{number}", "PROWESS_CACHE_DIR": str(folder / f"agent-{number}")}
            parts.append(_Part(stack, ["agent", "--project", str(nowhere)], {**variables, **more}, over))
        given = [word for each in where.set for word in ("--set", each)]
        for number in range(hosts):
            server = ["serve", "--project", str(settings.root), *given, "--port", str(port + number)]
            parts.append(_Part(stack, server, variables, over))
        _sweep_later(stack, folder, [engine.pid, *(part.process.pid for part in parts)])
        exports = " ".join(f"{name}='{text}'" for name, text in variables.items())
        print(f"prowess: {agents} agents and {hosts} servers share the engine at {engine.url}; Ctrl-C ends them all")
        print(f"prowess: to join it from another terminal: export {exports}", flush=True)
        _wait_for(over)
        ended = [part for part in parts if part.process.poll() is not None]
    for part in ended:
        print(f"prowess: the cluster ends, because `prowess {part.name}` has ended: see its message", file=sys.stderr)
    return FAILED if ended else DONE


def _over_at_signals() -> threading.Event:
    over = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    return over


def _wait_for(over: threading.Event) -> None:
    """Wait, and look up now and then: Python handles a signal in the main thread, and another one may have received it."""
    while not over.wait(_LOOK):
        pass


def _sweep_later(stack: ExitStack, folder: Path, pids: list[int]) -> None:
    """Have the folder removed if this process is killed, after the end of the others."""
    command = ["sh", "-c", _SWEEP, "prowess", str(folder), *map(str, pids)]
    sweeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    stack.callback(sweeper.wait)
    stack.callback(sweeper.kill)


class _Part:
    """A `prowess` command that ends with this process, however that ends. If it ends by itself, `over` is set."""

    def __init__(self, stack: ExitStack, words: list[str], environ: dict[str, str], over: threading.Event) -> None:
        self.name = words[0]
        command = [sys.executable, "-c", "from prowess_host.cli.main import main; main()", *words]
        self.process = subprocess.Popen(
            ["sh", "-c", _GUARDED, "prowess", *command],
            stdin=subprocess.PIPE,
            env={**os.environ, **environ},
            start_new_session=True,
        )
        self._over = over
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()
        stack.callback(self._end)

    def _watch(self) -> None:
        self.process.wait()
        self._over.set()

    def _end(self) -> None:
        assert self.process.stdin is not None  # noqa: S101 - as asked for above
        self.process.stdin.close()
        self._watching.join()
