"""Tries a connection: starts the host as the client does, and compares the listed tools with the client's limits."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Final

from prowess.contracts.contract import Contract, OutputShape
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.walk import is_schema
from prowess_host.clients.launches import Launch, is_fleeting
from prowess_host.clients.machine import Machine
from prowess_host.clients.session import SessionResult, run_session
from prowess_host.clients.table import KnownClient
from prowess_host.review.lint import count_tokens, lint

__all__ = ["Trial", "TrialProblem", "environment_of", "try_connection"]

_PATIENCE: Final = 120.0
"""Seconds to wait for the host, if the client has no longer limit of its own."""
_REFERENCE: Final = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}|\{env:(\w+)\}|\$(\w+)")
_OURS: Final = {"prowess_diagnostics"}
"""Tools that a project without commands may list."""
_SHOWN: Final = 3


@frozen
class TrialProblem:
    """Something that will not work, or not well, with a remedy."""

    level: str
    """`error`, `warning` or `note`."""
    message: str
    remedy: str = ""
    rule: str = ""
    command: str = ""
    """The command, or the tool as the client calls it; empty for the connection as a whole."""

    def to_json(self) -> JsonObject:
        """As plain data, without empty fields."""
        return {name: value for name, value in asdict(self).items() if value}


@frozen
class Trial:
    """The result of a trial."""

    client: KnownClient
    launch: Launch
    session: SessionResult
    tokens: int = 0
    """The estimated number of tokens of all definitions."""
    problems: tuple[TrialProblem, ...] = field(default=())

    @property
    def works(self) -> bool:
        """Whether the client would get its tools."""
        return self.session.failure is None

    def to_json(self) -> JsonObject:
        """As plain data."""
        session = self.session
        return {
            "works": self.works,
            "failure": session.failure,
            "server": session.server,
            "seconds_to_initialize": _rounded(session.initialized),
            "seconds_to_tools": _rounded(session.listed),
            "tools": len(session.tools),
            "tokens": self.tokens,
            "problems": [each.to_json() for each in self.problems],
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


async def try_connection(
    client: KnownClient,
    server: str,
    launch: Launch,
    root: Path,
    machine: Machine,
    *,
    needed: Sequence[str] = (),
    patience: float = _PATIENCE,
) -> Trial:
    """Start the host as a client does, list its tools, and find the problems that the client will have."""
    environ = environment_of(client, launch, machine)
    folder = root if client.folder == "project" else machine.home
    session = await run_session(launch, environ, folder, patience=max(patience, client.limits.start or 0))
    contracts = [_contract(tool) for tool in session.tools]
    tokens = sum(count_tokens(contract, BUILT_IN["full"]) for contract in contracts)
    problems = [
        *_of_command(launch),
        *_of_session(client, session),
        *_of_size(client, tokens),
        *_of_variables(client, needed, environ, machine),
        *_of_tools(client, server, contracts),
    ]
    return Trial(client, launch, session, tokens, tuple(problems))


# --- the environment ------------------------------------------------------------------------------


def environment_of(client: KnownClient, launch: Launch, machine: Machine) -> dict[str, str]:
    """The environment that a client gives to a server."""
    windows = machine.is_windows
    seen = client.environment.seen(machine.environ, windows=windows)
    environ = client.environment.given(machine.environ, windows=windows)
    environ.update({name: seen[name] for name in launch.names if name in seen})
    refers = client.reference is not None
    environ.update({name: _filled(value, seen) if refers else value for name, value in launch.env.items()})
    return environ


def _filled(value: str, seen: Mapping[str, str]) -> str:
    """A value with its references replaced, in any of the clients' spellings."""

    def fill(found: re.Match[str]) -> str:
        name = found[1] or found[3] or found[4]
        return seen.get(name) or found[2] or ""

    return _REFERENCE.sub(fill, value)


# --- problems -------------------------------------------------------------------------------------


def _of_command(launch: Launch) -> list[TrialProblem]:
    if os.path.isabs(launch.command) or "\\" in launch.command:  # noqa: PTH117 - a path of any system
        if is_fleeting(launch.command):
            text = f"{launch.command} is in uv's cache, and is deleted with it"
            return [
                TrialProblem("warning", text, "run uv tool install prowess, then prowess connect again", "fleeting")
            ]
        return []
    found = shutil.which(launch.command)
    text = f"the client looks for the command {launch.command!r} in its own PATH, which may be short"
    return [TrialProblem("warning", text, f"run prowess connect again to write {found or 'an absolute path'}", "path")]


def _of_session(client: KnownClient, session: SessionResult) -> list[TrialProblem]:
    said = [line for line in session.stderr if line.strip()]
    problems: list[TrialProblem] = []
    if session.failure is not None:
        text = "; ".join(
            [f"the host {session.failure}" if session.initialized is None else session.failure, *said[-1:]]
        )
        remedy = "run prowess doctor to see why, then prowess connect again"
        return [TrialProblem("error", text, remedy, "start")]
    problems += [
        TrialProblem("warning", line, "fix it and save: the host reloads it", "stderr") for line in said[:_SHOWN]
    ]
    if {tool.get("name") for tool in session.tools} <= _OURS:
        text = "the project has no commands, and some clients drop a server without tools"
        problems.append(TrialProblem("warning", text, "write one: prowess new NAME", "no-tools"))
    return problems + _of_time(client, session.listed or 0)


def _of_time(client: KnownClient, seconds: float) -> list[TrialProblem]:
    start, grace = client.limits.start, client.limits.grace
    if start is not None and seconds > start:
        text = f"the tools were listed after {seconds:.1f} s, and {client.title} waits {start:g} s"
        return [TrialProblem("error", text, "find the slow skill: prowess doctor; a second start is faster", "slow")]
    if grace is not None and seconds > grace:
        text = (
            f"the tools were listed after {seconds:.1f} s; after {grace:g} s {client.title} begins a turn without them"
        )
        return [TrialProblem("warning", text, "a second start is faster: skills are described once", "slow")]
    return []


def _of_size(client: KnownClient, tokens: int) -> list[TrialProblem]:
    limit = client.limits.definitions
    if limit is None or tokens <= limit:
        return []
    text = f"the definitions cost about {tokens:,} tokens; {client.title} warns from {limit:,}"
    return [TrialProblem("warning", text, "see what to shorten: prowess doctor --context", "context")]


def _of_variables(
    client: KnownClient, needed: Sequence[str], environ: Mapping[str, str], machine: Machine
) -> list[TrialProblem]:
    problems: list[TrialProblem] = []
    for name in (name for name in needed if not environ.get(name)):
        level, remedy = "warning", f"put {name} into .env in the project"
        if name not in machine.environ:
            level, text = "note", f"the variable {name}, which the project uses, is not set"
        elif client.environment.desktop and not machine.is_windows:
            text = f"{client.title} is started from the desktop and does not see {name} of your shell"
        else:
            text = f"{client.title} does not pass on {name}"
            remedy = f"connect again with --env {name}, or {remedy}" if client.can_refer() else remedy
        problems.append(TrialProblem(level, text, remedy, "variable"))
    return problems


def _of_tools(client: KnownClient, server: str, contracts: Sequence[Contract]) -> list[TrialProblem]:
    """The findings of the review rules about the tools that came over the wire."""
    if client.rules is None:
        return []
    full = BUILT_IN["full"]
    found = lint(contracts, lambda _: full, server=server, clients=[client.rules])
    relevant = [each for each in found if each.client or each.rule == "name-length"]
    return [
        TrialProblem(each.level, each.message, _REMEDIES.get(each.rule, "see prowess check"), each.rule, each.command)
        for each in relevant
    ]


_REMEDIES: Final = {
    "name-length": "shorten the command's name, or the server's: --name",
    "name-characters": 'set names = "flat" in prowess.toml',
    "tool-count": "hide commands with the setting hide, or split the project",
    "description-length": "shorten the docstring, or put first what matters",
    "tool-size": "shorten the docstring and the descriptions of parameters",
    "server-name": "choose a name without _: --name",
    "property-name": "rename the parameter",
    "hidden-content": "see prowess check",
}


def _contract(tool: JsonObject) -> Contract:
    """A definition from the wire as a contract that every profile shows unchanged."""
    name = str(tool.get("name", ""))
    schema, output = tool.get("inputSchema"), tool.get("outputSchema")
    return Contract(
        id=name,
        wire_name=name,
        skill="",
        name=name,
        description=str(tool.get("description", "")),
        input_schema=schema if is_schema(schema) else {},
        input_explicit=True,
        output=OutputShape(schema=output if is_schema(output) else None, explicit=True),
    )
