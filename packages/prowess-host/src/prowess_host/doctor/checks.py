"""The checks, from the interpreter to the clients. Each check yields findings and raises no errors.

Values are shown only for Prowess's own settings: others may be secrets.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from prowess.contracts.catalog import Catalog
from prowess.errors import ProwessError, did_you_mean, extra_command, install_command
from prowess.settings.files import is_configured
from prowess.settings.keys import PRIVATE, own_keys
from prowess.settings.layers import PREFIX
from prowess.settings.limits import Limits, normal_name
from prowess.settings.paths import ConfigPaths
from prowess.settings.settings import Settings
from prowess.skills.discovery import survey
from prowess_host.catalog.known import KnownCatalog
from prowess_host.catalog.needs import read_environments
from prowess_host.clients.connecting import ServerEntry, connections_of
from prowess_host.clients.launches import is_fleeting
from prowess_host.clients.machine import Machine
from prowess_host.clients.needs import needed_variables
from prowess_host.clients.trial import Trial, try_connection
from prowess_host.doctor.findings import Finding
from prowess_host.doctor.runs import examine_runs
from prowess_host.files.served_files import Trouble, look
from prowess_host.project import Project
from prowess_host.records.record_path import record_path

__all__ = ["CheckedProject", "examine", "examine_cluster"]

_PACKAGES: Final = ("prowess-core", "prowess-host", "prowess", "prowess-testkit")
_LIBRARIES: Final = ("pydantic", "pluggy", "dependency-injector", "anyio", "watchfiles")
_SECONDS: Final = 60.0
"""For another interpreter to report its packages."""
_ASK: Final = "from importlib.metadata import version as v; import prowess, platform as p; print(v('prowess-core'), p.python_version())"


class CheckedProject:
    """A project on a machine, with settings from the command line."""

    def __init__(self, root: Path, machine: Machine, flags: Mapping[str, str], *, live: bool = True) -> None:
        """`live` starts the host as each client does; otherwise only files are read."""
        self.root = root
        self.machine = machine
        self.flags = dict(flags)
        self.live = live


async def examine(checked: CheckedProject) -> AsyncIterator[Finding]:
    """All findings in order. Checks that an earlier error makes impossible are skipped."""
    for finding in _python():
        yield finding
    try:
        settings = Settings.load(checked.root, environ=checked.machine.environ, flags=checked.flags)
    except ProwessError as error:
        yield Finding("settings", "error", str(error), "fix this; the host cannot start before")
        return
    for finding in (
        *_settings(settings, checked),
        *_worker_python(settings),
        *_telemetry(settings),
        *_limits(),
        *_project(settings, checked),
    ):
        yield finding
        if finding.area == "project" and finding.level == "error":
            return
    for finding in _environments(settings, checked):
        yield finding
    async for finding in examine_cluster(settings):
        yield finding
    catalog: Catalog | None = None
    troubles: list[Trouble] = []
    try:
        for finding in _manifest(settings, checked):
            yield finding
        catalog, troubles = await _catalog(settings, checked)
    except (ChildProcessError, ProwessError) as error:
        yield Finding(
            "skills",
            "error",
            f"the skills cannot be loaded: {error}",
            "see the message above, or the stderr of the host",
        )
    for finding in _skills(catalog, troubles) if catalog is not None else ():
        yield finding
    for finding in _names(settings, checked) if catalog is not None and not catalog.failures else ():
        yield finding
    async for finding in _clients(checked, catalog or Catalog()):
        yield finding
    for finding in examine_runs(record_path(ConfigPaths.of(settings, checked.machine.environ))):
        yield finding


# --- the interpreter ------------------------------------------------------------------------------


def _python() -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", f"Python {found}, {sys.executable}")
    if is_fleeting(sys.executable):
        text = "this Python is in uv's cache, which may be emptied: clients that start it fail then"
        yield Finding("python", "warning", text, "uv tool install prowess, then prowess connect again")
    ours = {name: found for name in _PACKAGES if (found := _version(name))}
    versions = ", ".join(f"{name} {number}" for name, number in ours.items())
    if len(set(ours.values())) > 1:
        text = f"the packages of Prowess differ in their versions: {versions}"
        yield Finding(
            "python", "error", text, f"pip install {' '.join(f'{name}=={max(ours.values())}' for name in ours)}"
        )
    else:
        yield Finding("python", "ok", versions)
    libraries = ", ".join(f"{name} {_version(name) or 'missing'}" for name in _LIBRARIES)
    level = "error" if "missing" in libraries else "ok"
    yield Finding("python", level, libraries, "pip install --force-reinstall prowess" if level == "error" else "")


def _limits() -> Iterator[Finding]:
    """Check which limits of skills the system can enforce."""
    from prowess_host.confinement.confine import system  # only this check needs it

    lacking = system().lacking(Limits())
    if lacking:
        text = f"skills with limits do not run here: {'; '.join(lacking)}"
        yield Finding(
            "limits",
            "warning",
            text,
            "run the host on a system that enforces them; with sandbox.unenforced = true, such skills run without these",
        )
    else:
        yield Finding("limits", "ok", f"limits of skills are enforced by {system().in_words()}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _worker_python(settings: Settings) -> Iterator[Finding]:
    """Check the interpreter of the workers, if it is another one."""
    if settings.own.python is None:
        return
    python = os.fspath(settings.root / Path(settings.own.python).expanduser())
    python = python if Path(python).exists() else settings.own.python
    add = install_command(f"prowess-core=={_version('prowess-core')}", python)
    try:
        done = subprocess.run([python, "-P", "-c", _ASK], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not answer"
        yield Finding("python", "error", f"the setting python, {python}: {reason}", "name an interpreter that exists")
        return
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        yield Finding("python", "error", f"the workers' Python {python} has no Prowess: {lines[-1]}", add)
        return
    theirs, number = done.stdout.split()
    if theirs != _version("prowess-core"):
        text = f"the workers' Python {python} has prowess-core {theirs}, the host {_version('prowess-core')}"
        yield Finding("python", "error", text, add)
    else:
        yield Finding("python", "ok", f"workers: Python {number}, {python}")


def _telemetry(settings: Settings) -> Iterator[Finding]:
    """Check whether the workers can trace calls, if tracing is on."""
    if not settings.own.otel.on:
        return
    python = settings.own.python or sys.executable
    asking = [python, "-P", "-c", "import opentelemetry.sdk.trace"]
    try:
        found = not subprocess.run(asking, capture_output=True, timeout=_SECONDS, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):  # reported above
        return
    if not found:
        text = f"otel.on is set, but {python} has no OpenTelemetry: calls are not traced"
        yield Finding("settings", "warning", text, install_command("prowess-core[otel]", python))


async def examine_cluster(settings: Settings) -> AsyncIterator[Finding]:
    """Check whether the engine of the cluster can be reached, and which agents are there."""
    if not settings.own.cluster.url:
        return
    try:
        from prowess_host.cluster.status import cluster_status
    except ModuleNotFoundError as error:
        text = f"the project has a cluster, and {error.name} is not installed"
        yield Finding("cluster", "error", text, extra_command("prowess[cluster]"))
        return
    try:
        is_up, lines = await cluster_status(settings)
    except ProwessError as error:
        yield Finding("cluster", "error", str(error), "correct the table [cluster] of the settings")
        return
    for line in lines:
        yield Finding(
            "cluster", "ok" if is_up else "warning", line, "" if is_up else "start it, or correct cluster.url"
        )
    if settings.get("auth.state_key", None) is None:
        text = (
            "auth.state_key is not set: replicas on several machines cannot continue each other's questions, and the engine "
            "stores the secret for the keys of shared results, so everyone who can read the whole engine knows it"
        )
        yield Finding(
            "cluster", "note", text, "set it to the same secret text of at least 32 characters on all of them"
        )


# --- settings -------------------------------------------------------------------------------------


def _settings(settings: Settings, checked: CheckedProject) -> Iterator[Finding]:
    """The source of each setting. The values of skills' settings are not shown."""
    file = settings.config_file
    if file is None:
        yield Finding("settings", "ok", "no prowess.toml: the defaults apply")
    own = {key.name for key in own_keys()}
    for key in settings.keys():  # noqa: SIM118 - Settings is not a mapping
        is_own = key in own - PRIVATE or key.split(".")[0] in ("wire_names", "resources")
        value = f" = {settings.get(key)!r}" if is_own else " is set"
        yield Finding("settings", "ok", f"{key}{value} ({_origin(key, settings, checked)})")
    for warning in settings.warnings:
        yield Finding("settings", "warning", warning, "rename or unset it, if it was meant for Prowess")
    env_file = settings.own.env_file
    if "env_file" in settings.keys() and env_file and not (checked.root / env_file).exists():  # noqa: SIM118 - as above
        yield Finding(
            "settings",
            "warning",
            f"the file {env_file}, which the setting env_file names, does not exist",
            "make it, or correct the setting",
        )


def _origin(key: str, settings: Settings, checked: CheckedProject) -> str:
    """The source that wins: the command line, the environment, `.env` or the file."""
    if key in checked.flags:
        return "--set"
    for environ, place in ((checked.machine.environ, "environment variable"), (settings.dotenv, ".env:")):
        if name := _variable_for(key, environ):
            return f"{place} {name}"
    file, line = settings.config_file, settings.location_in_file(key).rpartition(":")[2]
    shown = _shown(file, checked) if file is not None else "default"
    return f"{shown}:{line}" if line.isdigit() else shown


def _variable_for(key: str, environ: Iterable[str]) -> str | None:
    """The variable that sets a key, with one underscore or two, in upper or lower case."""
    normal = re.sub(r"[.-]+", "_", key).lower()
    for name in environ:
        if name.upper().startswith(PREFIX) and name[len(PREFIX) :].replace("__", "_").lower() == normal:
            return name
    return None


def _shown(path: Path, checked: CheckedProject) -> str:
    return str(path.relative_to(checked.root)) if path.is_relative_to(checked.root) else str(path)


# --- environments ---------------------------------------------------------------------------------


def _environments(settings: Settings, checked: CheckedProject) -> Iterator[Finding]:
    """Check the environments of skills."""
    paths = ConfigPaths.of(settings, checked.machine.environ)
    found = read_environments(survey(paths.skills_dirs).sources, settings.own, paths.project_root)
    for failure in found.broken.values():
        yield Finding("environments", "error", str(failure), "correct it; the other skills work")
    if not found.needed:
        return
    from prowess_host.environments.build import find_uv  # only if skills need it
    from prowess_host.environments.store import EnvironmentStore

    try:
        yield Finding("environments", "ok", f"uv: {find_uv(settings.own.environments.uv)}")
    except ProwessError as error:
        yield Finding("environments", "warning", str(error), extra_command("prowess[uv]"))
    store = EnvironmentStore(paths.cache_dir)
    for skill, needed in found.needed.items():
        there = store.look(needed.key)
        if there is None:
            text = f"the environment of {skill} is not made yet; its first call waits for that"
            yield Finding("environments", "note", text, "prowess sync")
        else:
            yield Finding("environments", "ok", f"environment of {skill}: {there.in_words(time.time())}, {there.path}")


# --- the project ----------------------------------------------------------------------------------


def _project(settings: Settings, checked: CheckedProject) -> Iterator[Finding]:
    root = checked.root
    folders = [root / folder for folder in settings.own.skills]
    there = [folder for folder in folders if folder.is_dir()]
    if not is_configured(root) and not there:
        text = f"{root} is not a project: it has neither prowess.toml nor a folder skills"
        yield Finding("project", "error", text, "go to your project, or make one: prowess new --project")
        return
    yield Finding("project", "ok", str(root))
    for folder in folders:
        if folder not in there:
            text = f"the folder {_shown(folder, checked)}, which the setting skills names, does not exist"
            yield Finding("project", "warning", text, "make it, or correct the setting")


def _manifest(settings: Settings, checked: CheckedProject) -> Iterator[Finding]:
    """Whether the next host starts from the manifest."""
    paths = ConfigPaths.of(settings, checked.machine.environ)
    nearest = next(folder for folder in (paths.cache_dir, *paths.cache_dir.parents) if folder.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        text = f"the cache folder {paths.cache_dir} cannot be written: every start describes all skills"
        yield Finding("manifest", "warning", text, "correct it or its permissions, or set cache_dir")
    standing = KnownCatalog(paths, settings.own).recall()
    if standing.complete:
        yield Finding("manifest", "ok", f"up to date: a host starts without importing a skill ({paths.cache_dir})")
    else:
        text = "out of date or missing: the next start imports skills to describe them"
        yield Finding("manifest", "note", text, "no action needed")


async def _catalog(settings: Settings, checked: CheckedProject) -> tuple[Catalog, list[Trouble]]:
    project = Project(settings, checked.flags, checked.machine.environ)
    try:
        await project.load(builds=False)
        return project.catalog(), await asyncio.to_thread(lambda: look(project.file_sources()).problems)
    finally:
        await project.close()


def _skills(catalog: Catalog, troubles: Iterable[Trouble]) -> Iterator[Finding]:
    for failure in catalog.failures:
        yield Finding("skills", "error", str(failure), "fix it and save: a running host reloads it")
    for trouble in troubles:
        yield Finding("skills", "error" if trouble.fatal else "warning", str(trouble), "correct the file")
    for warning in catalog.warnings:
        yield Finding("skills", "warning", warning)
    if catalog.contracts:
        skills = {contract.skill for contract in catalog}
        yield Finding("skills", "ok", f"{_count(len(catalog), 'command')} in {_count(len(skills), 'skill')}")
    elif not catalog.failures:
        yield Finding(
            "skills",
            "warning",
            "no commands",
            "write a function with @skill_command in skills/, or type prowess new NAME",
        )


def _names(settings: Settings, checked: CheckedProject) -> Iterator[Finding]:
    """Check the settings that name skills and commands: one with a misspelt name hides or limits nothing."""
    paths, own = ConfigPaths.of(settings, checked.machine.environ), settings.own
    known = KnownCatalog(paths, own)
    known.remember()
    contracts = [contract for facts in known.description.skills.values() for contract in facts.contracts]
    ids = {contract.id for contract in contracts}
    if not ids:
        return
    patterns = [*(("hide", each.removeprefix("!")) for each in own.hide), *(("run_on", each) for each in own.run_on)]
    for key, name in [*patterns, *(("wire_names", each) for each in own.wire_names)]:
        if not fnmatch.filter(ids, name):
            text = f"the setting {key} names {name!r}, and there is no such command{did_you_mean(name, ids)}"
            yield Finding("skills", "warning", text, "correct the name, or remove it")
    skills = {contract.skill for contract in contracts} | {each.name for each in survey(paths.skills_dirs).sources}
    for name in sorted(settings.sandbox.verdicts.keys() - set(map(normal_name, skills))):
        text = f"[sandbox.{name}] limits no skill: there is none of this name{did_you_mean(name, skills)}"
        yield Finding("skills", "warning", text, "correct the name, or remove the table")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- clients --------------------------------------------------------------------------------------


async def _clients(checked: CheckedProject, catalog: Catalog) -> AsyncIterator[Finding]:
    connections = list(connections_of(checked.root, checked.machine))
    if not connections:
        yield Finding("clients", "note", "connected to no client", "prowess connect CLIENT")
    needed = needed_variables(checked.root, catalog, checked.machine.environ)
    for connection in connections:
        for finding in await _client(connection, checked, needed):
            yield finding


async def _client(connection: ServerEntry, checked: CheckedProject, needed: Sequence[str]) -> list[Finding]:
    title = f"{connection.client.title} ({_shown(connection.file, checked)})"
    if connection.launch is None:
        return [Finding("clients", "error", f"{title}: {connection.problem}", "correct the file")]
    off = Finding("clients", "warning", f"{title}: switched off in the client", "enable the server there")
    if not checked.live:
        return [Finding("clients", "ok", f"{title}: connected as {connection.name}, not tried")]
    trial = await try_connection(
        connection.client, connection.name, connection.launch, checked.root, checked.machine, needed=needed
    )
    return [*([off] if connection.is_off else []), *_of_trial(title, trial)]


def _of_trial(title: str, trial: Trial) -> Iterator[Finding]:
    if trial.works:
        seconds: Any = trial.session.listed
        text = (
            f"{title}: {_count(len(trial.session.tools), 'tool')} after {seconds:.2f} s, about {trial.tokens:,} tokens"
        )
        yield Finding("clients", "ok", text)
    for problem in trial.problems:
        if problem.rule != "stderr":  # messages of skills are reported above
            prefix = f"{problem.command}: " if problem.command else ""
            yield Finding("clients", problem.level, f"{title}: {prefix}{problem.message}", problem.remedy)
