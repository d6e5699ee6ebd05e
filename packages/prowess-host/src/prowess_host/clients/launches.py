"""The command with which a client starts the host, and the form of the entry for each client."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, cast

from prowess.frozen import frozen

__all__ = ["Launch", "Shape", "host_launch", "is_fleeting"]

_MODULE: Final = "prowess_host"
_FLEETING: Final = re.compile(r"[/\\](?:archive-v\d+|environments-v\d+|builds-v\d+)[/\\]")
"""Folders in uv's cache with the environments of `uvx`, which exist until the cache is cleaned."""


@frozen
class Launch:
    """A command, with the variables that it needs in addition to those that the client passes on."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables with the values in the file, which may be references to the client's own environment."""
    names: tuple[str, ...] = ()
    """Variables that the client takes from its own environment."""

    @property
    def project(self) -> Path | None:
        """The served project; `None` for the one around the working directory, and for a command that is not a host."""
        found = next((index for index, word in enumerate(self.args) if word == "--project"), None)
        return Path(self.args[found + 1]) if found is not None and found + 1 < len(self.args) else None

    @property
    def is_host(self) -> bool:
        """Whether this starts a Prowess host: by the module, or by the command `prowess`."""
        words = (self.command, *self.args)
        by_name = any(Path(word.replace("\\", "/")).name in ("prowess", "prowess.exe") for word in words)
        return _MODULE in words or (by_name and "host" in words)

    def serves(self, root: Path) -> bool:
        """Whether this starts a host for a project."""
        return self.is_host and self.project is not None and self.project.resolve() == root.resolve()

    def needing(self, names: Sequence[str], reference: str | None) -> Launch:
        """The launch with variables that the client has to pass on: in its list of names, else by reference."""
        if reference is None:
            return replace(self, names=tuple(sorted({*self.names, *names})))
        return replace(self, env={**self.env, **{name: reference.format(name) for name in names}})


def host_launch(root: Path, *, python: str = sys.executable, flags: Sequence[str] = ()) -> Launch:
    """The host of a project, with the absolute path of the interpreter, because desktop programs lack the user's PATH.

    With `-P`, Python does not search the working directory, which the client chooses, for modules.
    """
    settings = [word for flag in flags for word in ("--set", flag)]
    return Launch(python, ("-P", "-m", _MODULE, "--project", str(root), *settings))


@frozen
class Shape:
    """The keys that a client uses for the parts of a launch."""

    command: str = "command"
    args: str | None = "args"
    """`None` if the command is a list that begins with the program."""
    env: str = "env"
    names: str | None = None
    """The key for the list of variables to pass on, if the client has one."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further members that the client requires."""
    label: str | None = None
    """The key for the server's name inside the entry, if the client requires it."""

    def write(self, launch: Launch, server: str) -> dict[str, Any]:
        """The entry of a launch."""
        entry: dict[str, Any] = {**({self.label: server} if self.label else {}), **self.extra}
        words = [launch.command, *launch.args]
        entry.update({self.command: words} if self.args is None else {self.command: words[0], self.args: words[1:]})
        if launch.env:
            entry[self.env] = dict(launch.env)
        if self.names and launch.names:
            entry[self.names] = list(launch.names)
        return entry

    def read(self, entry: Any) -> Launch | None:
        """The launch of an entry; `None` for an entry that starts no program, such as a remote server."""
        if not isinstance(entry, dict):
            return None
        fields = cast("dict[str, Any]", entry)
        words = fields.get(self.command)
        if self.args is None and not isinstance(words, str):
            texts = _texts(words)
            command, args = (texts[0], texts[1:]) if texts else ("", ())
        else:
            command, args = words if isinstance(words, str) else "", _texts(fields.get(self.args or "args"))
        if not command:
            return None
        env = fields.get(self.env)
        values = cast("dict[str, Any]", env) if isinstance(env, dict) else {}
        names = _texts(fields.get(self.names)) if self.names else ()
        return Launch(command, args, {name: str(value) for name, value in values.items()}, names)

    def merged(self, before: Any, launch: Launch, server: str) -> dict[str, Any]:
        """The entry with this launch. Members that the user added stay."""
        fresh = self.write(launch, server)
        if not isinstance(before, dict):
            return fresh
        kept = cast("dict[str, Any]", before)
        merged = {
            **kept,
            **{name: value for name, value in fresh.items() if name not in self.extra or name not in kept},
        }
        variables = kept.get(self.env)
        if isinstance(variables, dict):
            merged[self.env] = {**cast("dict[str, Any]", variables), **dict(launch.env)}
        return merged


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in cast("list[Any]", value)) if isinstance(value, list) else ()


def is_fleeting(python: str) -> bool:
    """Whether an interpreter is in a cache, which may be cleaned."""
    return _FLEETING.search(python) is not None
