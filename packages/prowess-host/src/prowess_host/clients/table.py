"""The table of known clients, one row for each: files, form of entries, limits and habits.

`docs/clients.md` has the source of each fact, and says which facts are unchecked.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prowess.errors import ProwessError, did_you_mean
from prowess.frozen import frozen
from prowess_host.clients.environment import SAFE, PassedEnvironment
from prowess_host.clients.launches import Shape
from prowess_host.clients.machine import Machine

__all__ = ["CLIENTS", "SCOPES", "ClientLimits", "ClientPath", "KnownClient", "client_named"]

SCOPES: Final = ("project", "user")


@frozen
class ClientPath:
    """A file or folder of a client, on any system."""

    base: str
    """`project`, `home`, `app` (the folder for settings of desktop programs) or `xdg` (`~/.config`, on every system)."""
    path: str
    variable: str | None = None
    """The client's variable for another folder, if it has one."""
    below: str = ""
    """The path in that folder."""
    windows: tuple[str, str] | None = None
    """Base and path on Windows, if they differ."""

    def on(self, machine: Machine, root: Path) -> Path:
        """The path on a machine, for a project."""
        moved = machine.environ.get(self.variable, "") if self.variable else ""
        if moved and Path(moved).is_absolute():
            return Path(moved) / self.below
        base, path = self.windows if self.windows and machine.is_windows else (self.base, self.path)
        bases = {"project": root, "home": machine.home, "app": machine.app_config, "xdg": machine.xdg_config}
        return bases[base] / path


@frozen
class ClientLimits:
    """The limits of a client. `None` if there is no limit, or none is known.

    Limits on names, numbers and schemas of tools are rules of `prowess_host.review.lint`.
    """

    start: float | None = None
    """Seconds until the tools must be listed."""
    grace: float | None = None
    """Seconds after which it continues without the tools for that turn."""
    definitions: int | None = None
    """Tokens of all definitions from which it warns or cuts."""
    result: int | None = None
    """Tokens of one result."""


@frozen
class KnownClient:
    """One client."""

    name: str
    """The name to type."""
    title: str
    """The name that its makers use."""
    files: Mapping[str, tuple[ClientPath, ...]]
    """Files by scope. The first existing one is used, else the first one."""
    key: tuple[str, ...]
    """The path of the table of servers in the file."""
    shape: Shape
    environment: PassedEnvironment
    limits: ClientLimits
    next_step: str
    """What the user does after connecting."""
    format: str = "json"
    reference: str | None = None
    """The form of a reference to a variable of the client's environment; `None` if there is none, or a list of names."""
    folder: str = "project"
    """The working directory of servers: the `project`, or the user's `home`."""
    rules: str | None = None
    """Its name in `prowess_host.review.lint`."""
    programs: tuple[str, ...] = ()
    """The names of its program."""
    marks: tuple[ClientPath, ...] = ()
    """Folders that exist only if it is installed."""

    def file(self, machine: Machine, root: Path, scope: str) -> Path:
        """The file of a scope."""
        files = [place.on(machine, root) for place in self.files[scope]]
        return next((file for file in files if file.exists()), files[0])

    @property
    def usual_scope(self) -> str:
        """The scope `project`, if the client has it, else its first scope."""
        return next(scope for scope in SCOPES if scope in self.files)

    def is_found(self, machine: Machine) -> bool:
        """Whether it appears to be installed for this user."""
        path = machine.environ.get("PATH", "")
        return any(shutil.which(program, path=path) for program in self.programs) or any(
            mark.on(machine, machine.home).exists() for mark in self.marks
        )

    def can_refer(self) -> bool:
        """Whether an entry can name a variable without its value."""
        return self.reference is not None or self.shape.names is not None


def client_named(name: str) -> KnownClient:
    """The client with this name. Raises `ProwessError` for an unknown name."""
    normal = name.lower().replace("_", "-")
    normal = _ALIASES.get(normal, normal)
    if normal not in CLIENTS:
        known = ", ".join(CLIENTS)
        raise ProwessError(f"unknown client {name!r}{did_you_mean(normal, [*CLIENTS, *_ALIASES])} (there are: {known})")
    return CLIENTS[normal]


# --- the rows -------------------------------------------------------------------------------------


_CODEX_VARIABLES: Final = frozenset("HOME PATH SHELL USER LOGNAME LANG LC_ALL TERM TMPDIR TZ".split()) | (
    SAFE - {"TERM"}
)
_GEMINI_HIDDEN: Final = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|AUTH|CREDENTIAL", re.IGNORECASE)
_OLD_CLINE: Final = "Code/User/globalStorage/saoudrizwan.claude-dev"
"""The extension's own folder. Since 4.0, the extension, the command line and the SDK share a folder in the home."""
_STDIO: Final = {"type": "stdio"}

CLIENTS: Final[Mapping[str, KnownClient]] = {
    row.name: row
    for row in (
        KnownClient(
            name="claude-code",
            title="Claude Code",
            files={
                "project": (ClientPath("project", ".mcp.json"),),
                "user": (ClientPath("home", ".claude.json", "CLAUDE_CONFIG_DIR", ".claude.json"),),
            },
            key=("mcpServers",),
            shape=Shape(extra=_STDIO),
            environment=PassedEnvironment(),
            reference="${{{}:-}}",  # without the default, the client rejects the whole file if the variable is not set
            limits=ClientLimits(start=30, definitions=25_000, result=25_000),
            next_step="start claude in the project and approve the server when it asks; /mcp shows it",
            rules="claude-code",
            programs=("claude",),
            marks=(ClientPath("home", ".claude", "CLAUDE_CONFIG_DIR"),),
        ),
        KnownClient(
            name="claude-desktop",
            title="Claude Desktop",
            files={"user": (ClientPath("app", "Claude/claude_desktop_config.json"),)},
            key=("mcpServers",),
            shape=Shape(),
            environment=PassedEnvironment(only=SAFE, desktop=True),
            limits=ClientLimits(start=60),
            next_step="quit Claude Desktop altogether and start it again",
            folder="home",
            rules="claude-code",
            marks=(ClientPath("app", "Claude"),),
        ),
        KnownClient(
            name="cursor",
            title="Cursor",
            files={
                "project": (ClientPath("project", ".cursor/mcp.json"),),
                "user": (ClientPath("home", ".cursor/mcp.json"),),
            },
            key=("mcpServers",),
            shape=Shape(extra=_STDIO),
            environment=PassedEnvironment(desktop=True),
            reference="${{env:{}}}",
            limits=ClientLimits(start=60),
            next_step="enable the server in Cursor's settings, under MCP",
            rules="cursor",
            programs=("cursor", "cursor-agent"),
            marks=(ClientPath("home", ".cursor"),),
        ),
        KnownClient(
            name="vscode",
            title="VS Code",
            files={
                "project": (ClientPath("project", ".vscode/mcp.json"),),
                "user": (ClientPath("app", "Code/User/mcp.json"),),
            },
            key=("servers",),
            shape=Shape(extra=_STDIO),
            environment=PassedEnvironment(),  # it reads the environment of the user's shell when it starts
            reference="${{env:{}}}",
            limits=ClientLimits(),
            next_step="run MCP: List Servers in VS Code, start the server and trust it",
            rules="vscode",
            programs=("code",),
            marks=(ClientPath("app", "Code"),),
        ),
        KnownClient(
            name="codex",
            title="Codex",
            files={
                "project": (ClientPath("project", ".codex/config.toml"),),
                "user": (ClientPath("home", ".codex/config.toml", "CODEX_HOME", "config.toml"),),
            },
            key=("mcp_servers",),
            shape=Shape(names="env_vars"),
            environment=PassedEnvironment(only=_CODEX_VARIABLES),
            limits=ClientLimits(start=30, grace=1),
            next_step="run codex mcp list; the file of a project counts only where Codex trusts the project",
            format="toml",
            rules="codex",
            programs=("codex",),
            marks=(ClientPath("home", ".codex", "CODEX_HOME"),),
        ),
        KnownClient(
            name="zed",
            title="Zed",
            files={
                "project": (ClientPath("project", ".zed/settings.json"),),
                "user": (ClientPath("xdg", "zed/settings.json", windows=("app", "Zed/settings.json")),),
            },
            key=("context_servers",),
            shape=Shape(extra={"source": "custom"}),
            environment=PassedEnvironment(),  # it reads the environment of the user's shell in the project folder
            limits=ClientLimits(start=60),
            next_step="look for the green dot in the settings of Zed's agent panel",
            rules="zed",
            programs=("zed", "zeditor"),
            marks=(ClientPath("xdg", "zed", windows=("app", "Zed")),),
        ),
        KnownClient(
            name="windsurf",
            title="Windsurf",
            files={"user": (ClientPath("home", ".codeium/windsurf/mcp_config.json"),)},
            key=("mcpServers",),
            shape=Shape(),
            environment=PassedEnvironment(desktop=True),
            reference="${{env:{}}}",
            limits=ClientLimits(start=60),
            next_step="press refresh in Windsurf's MCP settings",
            folder="home",
            rules="windsurf",
            programs=("windsurf",),
            marks=(ClientPath("home", ".codeium/windsurf"),),
        ),
        KnownClient(
            name="gemini",
            title="Gemini CLI",
            files={
                "project": (ClientPath("project", ".gemini/settings.json"),),
                "user": (ClientPath("home", ".gemini/settings.json", "GEMINI_CLI_HOME", ".gemini/settings.json"),),
            },
            key=("mcpServers",),
            shape=Shape(),
            environment=PassedEnvironment(hidden=_GEMINI_HIDDEN),
            reference="${{{}}}",
            limits=ClientLimits(start=600),
            next_step="run gemini mcp list; no server starts in a folder that Gemini does not trust",
            rules="gemini",
            programs=("gemini",),
            marks=(ClientPath("home", ".gemini"),),
        ),
        KnownClient(
            name="copilot",
            title="Copilot CLI",
            files={
                "project": (ClientPath("project", ".github/mcp.json"),),
                "user": (ClientPath("home", ".copilot/mcp-config.json", "COPILOT_HOME", "mcp-config.json"),),
            },
            key=("mcpServers",),
            shape=Shape(extra={"type": "local", "tools": ["*"]}),
            environment=PassedEnvironment(only=SAFE),
            reference="${{{}}}",
            limits=ClientLimits(start=60),
            next_step="run copilot mcp list; the file of a project counts only where Copilot trusts the folder",
            rules="copilot",
            programs=("copilot",),
            marks=(ClientPath("home", ".copilot", "COPILOT_HOME"),),
        ),
        KnownClient(
            name="junie",
            title="JetBrains (Junie)",
            files={
                "project": (ClientPath("project", ".junie/mcp/mcp.json"),),
                "user": (ClientPath("home", ".junie/mcp/mcp.json"),),
            },
            key=("mcpServers",),
            shape=Shape(),
            environment=PassedEnvironment(desktop=True),
            limits=ClientLimits(start=60),
            next_step="look in Settings, Tools, Junie, MCP Settings",
            programs=("junie",),
            marks=(ClientPath("home", ".junie"),),
        ),
        KnownClient(
            name="cline",
            title="Cline",
            files={
                "user": (
                    ClientPath("home", ".cline/data/settings/cline_mcp_settings.json"),
                    ClientPath("app", f"{_OLD_CLINE}/settings/cline_mcp_settings.json"),
                )
            },
            key=("mcpServers",),
            shape=Shape(),
            environment=PassedEnvironment(only=SAFE),
            reference="${{env:{}}}",
            limits=ClientLimits(start=60),
            next_step="open Cline's MCP Servers panel; it reads the file again when it is saved",
            folder="home",
            programs=("cline",),
            marks=(ClientPath("home", ".cline"), ClientPath("app", _OLD_CLINE)),
        ),
        KnownClient(
            name="goose",
            title="Goose",
            files={
                "user": (ClientPath("xdg", "goose/config.yaml", windows=("app", "Block/goose/config/config.yaml")),)
            },
            key=("extensions",),
            shape=Shape(
                command="cmd",
                env="envs",
                names="env_keys",
                extra={
                    "enabled": True,
                    "type": "stdio",
                    "description": "Commands of a Prowess project",
                    "timeout": 300,
                },
                label="name",
            ),
            environment=PassedEnvironment(),
            limits=ClientLimits(start=300),
            next_step="start a new goose session",
            format="yaml",
            folder="home",
            rules="goose",
            programs=("goose",),
            marks=(ClientPath("xdg", "goose", windows=("app", "Block/goose")),),
        ),
        KnownClient(
            name="opencode",
            title="OpenCode",
            files={
                "project": (
                    ClientPath("project", "opencode.json"),
                    ClientPath("project", "opencode.jsonc"),
                ),
                "user": (
                    ClientPath("xdg", "opencode/opencode.json"),
                    ClientPath("xdg", "opencode/opencode.jsonc"),
                    ClientPath("xdg", "opencode/config.json"),
                ),
            },
            key=("mcp",),
            shape=Shape(args=None, env="environment", extra={"type": "local", "enabled": True}),
            environment=PassedEnvironment(),
            reference="{{env:{}}}",
            limits=ClientLimits(start=30),
            next_step="run opencode mcp list",
            rules="opencode",
            programs=("opencode",),
            marks=(ClientPath("xdg", "opencode"),),
        ),
    )
}
"""All clients, by name."""

_ALIASES: Final = {
    "claude": "claude-code",
    "code": "vscode",
    "vs-code": "vscode",
    "gemini-cli": "gemini",
    "copilot-cli": "copilot",
    "jetbrains": "junie",
}
