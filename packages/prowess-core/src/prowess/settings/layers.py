"""Merges the layers of settings: file, `.env`, environment, flags. Later layers win.

Each value is checked against the table of keys while its origin (where it was written) is still known, so that an error
names it. An unknown key in a file or a flag is an error. In the environment, which other programs share, it is a warning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from prowess.errors import SettingsError, shortened
from prowess.settings.files import PYPROJECT_TABLE, ConfigFile, Dotenv
from prowess.settings.keys import JOINED, MAPS, OWN_NAMES, OWN_TABLES, SPECS, OwnSettings
from prowess.settings.tables import Table, is_free, is_table, leaves, match, normal, normal_path, plain, put

__all__ = ["PREFIX", "Layers", "variable_name"]

PREFIX = "PROWESS_"
_FOLDERS = "skills"
"""The value is a list of folders. A table of this name holds the settings of skills, one table for each."""


class _Origin(NamedTuple):
    """Where settings were written: the text for messages about a path, and the spelling of another path there."""

    of: Callable[[tuple[str, ...]], str]
    neighbour: Callable[[tuple[str, ...]], str] = ".".join


def _origin(text: str, neighbour: Callable[[tuple[str, ...]], str] = ".".join) -> _Origin:
    """An origin with the same text for every path."""

    def of(_: tuple[str, ...]) -> str:
        return text

    return _Origin(of, neighbour)


class Layers:
    """Merges the layers one by one. Each value is checked while its origin is still known."""

    def __init__(self) -> None:
        self.free: Table = {}
        self.warnings: list[str] = []
        self.origins: dict[str, str] = {}
        """Where each key of Prowess was set, for messages."""
        self._own: dict[tuple[str, ...], Any] = {}

    @classmethod
    def of(
        cls, source: ConfigFile | None, dotenv: Dotenv | None, environ: Mapping[str, str], flags: Mapping[str, Any]
    ) -> Layers:
        """All layers, the later ones on top."""
        layers = cls()
        if source is not None:
            layers.add_file(source)
        if dotenv is not None:
            layers.add_environ(dotenv.values, f"{dotenv.file}: ")
        layers.add_environ(environ, "environment variable ")
        layers.add_flags(flags)
        return layers

    def own(self) -> OwnSettings:
        """The typed keys, with defaults for keys that no layer has set."""
        tables = {name: of(**self._own_table((name,))) for name, of in OWN_TABLES.items()}
        return OwnSettings(**{**self._own_table(()), **tables})

    def keys(self) -> list[str]:
        """The dotted names of the settings of all layers."""
        return [".".join(path) for path in (*self._own, *(path for path, _ in leaves(self.free)))]

    def add_file(self, source: ConfigFile) -> None:
        """Add the tables of a file."""
        if not is_table(source.data):
            raise SettingsError(f"{source.file}: {'.'.join(PYPROJECT_TABLE)} must be a table")
        for name, value in source.data.items():
            self._add(name, value, _Origin(source.location))

    def add_environ(self, environ: Mapping[str, str], origin: str) -> None:
        """Add variables. A variable that is not a setting may belong to another program: it becomes a warning."""
        for variable in sorted(environ):
            try:
                path, text = _path_of(variable), environ[variable]
                unset = not text and path in SPECS  # some clients pass an unset variable as an empty one
                if path and not unset:
                    self._add_deep(path, _typed(path, text), _origin(f"{origin}{variable}", variable_name))
            except _UnknownKey as unknown:
                self.warnings.append(f"{origin}{variable} is ignored: {unknown.reason}")

    def add_flags(self, flags: Mapping[str, Any]) -> None:
        """Add flags of the command line, by dotted key."""
        for key, value in flags.items():
            path = tuple(key.split("."))
            if value is not None:
                typed = _typed(path, value) if isinstance(value, str) else value
                self._add_deep(path, typed, _origin(f"--set {_as_typed(key, path, value)}"))

    def add_values(self, values: Mapping[str, Any]) -> None:
        """Add a mapping, by dotted key."""
        for key, value in values.items():
            if value is not None:
                self._add_deep(tuple(key.split(".")), plain(value), _origin(f"setting {key}"))

    def _own_table(self, table: tuple[str, ...]) -> Table:
        return {path[-1]: value for path, value in self._own.items() if path[:-1] == table}

    def _add_deep(self, path: tuple[str, ...], value: Any, origin: _Origin) -> None:
        """Add a value by its path, as the nested tables of a file."""
        top, *below = self._spelled(path)
        for name in reversed(below):
            value = {name: value}
        self._add(top, value, origin)

    def _spelled(self, path: tuple[str, ...]) -> list[str]:
        """A path from the environment, with the names of free tables spelled as in the layers below."""
        table: Any = self.free
        names: list[str] = []
        for part in path:
            name = match(table, part) if is_table(table) else None
            table = table[name] if name is not None else None
            names.append(name or part)
        return names

    def _add(self, name: str, value: Any, origin: _Origin) -> None:
        """One setting or table of the top level."""
        own = normal(name)
        if own in OWN_TABLES:
            self._add_own_table(name, value, origin)
        elif own == _FOLDERS and is_table(value):
            _refuse_loose_settings(name, value, origin)
            put(self.free, _FOLDERS, value)
        elif own in OWN_NAMES:
            self._add_own((name,), value, origin)
        elif is_free(value):
            _refuse_near_miss(name, origin)
            put(self.free, name, value)
        else:
            raise _unknown((name,), origin)

    def _add_own_table(self, name: str, value: Any, origin: _Origin) -> None:
        if not is_table(value):
            raise _UnknownKey(origin.of((name,)), f"{normal(name)} must be a table")
        for key, item in value.items():
            self._add_own((name, key), item, origin)

    def _add_own(self, path: tuple[str, ...], value: Any, origin: _Origin) -> None:
        """Set one of our own keys. It replaces the value of the layers below; tables are merged."""
        own = normal_path(path)
        spec = SPECS.get(own)
        if spec is None:
            raise _unknown(path, origin)
        found = spec.read(value)
        if found is None:
            raise SettingsError(f"{origin.of(path)}: {'.'.join(own)} must be {spec.expected}, not {_shown(value)}")
        self.origins[".".join(own)] = origin.of(path)
        self._own[own] = {**self._own.get(own, {}), **found} if is_table(found) else found


class _UnknownKey(SettingsError):
    """A key or a table that Prowess does not have. `reason` is the message without the origin, for warnings."""

    def __init__(self, origin: str, reason: str) -> None:
        super().__init__(f"{origin}: {reason}")
        self.reason = reason


def _unknown(path: tuple[str, ...], origin: _Origin) -> _UnknownKey:
    """The error for an unknown key, with the nearest known one as it is spelled there."""
    table, name = normal_path(path[:-1]), normal(path[-1])
    inside = {item: (*table, item) for *above, item in SPECS if tuple(above) == table}
    known = inside if table else {**JOINED, **{item: (item,) for item in OWN_NAMES}}
    import difflib  # for a mistake alone

    near = difflib.get_close_matches(name, sorted(known), n=1)
    text = f"unknown setting {'.'.join(path)!r}"
    if near:
        text += f'; did you mean "{origin.neighbour(known[near[0]])}"?'
    elif table:
        text += f"; [{'.'.join(table)}] has {', '.join(sorted(inside))}"
    else:
        above, _, rest = name.partition("_")
        own = (above, rest) if rest else ("my_skill", name)
        text += (
            f". Settings of skills are in tables: if a skill is to read this one, write {origin.neighbour(own)} "
            f'and read it with settings.get("{".".join(own)}")'
        )
    return _UnknownKey(origin.of(path), text)


def _refuse_loose_settings(name: str, tables: Table, origin: _Origin) -> None:
    """Refuse plain values in `[skills]`, where they would be ignored: their author may mean folders."""
    for key, value in tables.items():
        if not is_table(value):
            raise SettingsError(
                f"{origin.of((name, key))}: as a table, {_FOLDERS} holds one table for each skill, but {key!r} is a plain value; "
                f'write folders as a list: {_FOLDERS} = ["{_FOLDERS}"]'
            )


_ALLOWED_NEAR_MISS = "servers"
"""Resembles `serve`, but is a common name for the table of a skill."""


def _refuse_near_miss(name: str, origin: _Origin) -> None:
    """Refuse a free table whose name looks like a misspelled table of Prowess."""
    import difflib  # only where a free table is

    for own in (*OWN_TABLES, *MAPS):
        alike = difflib.SequenceMatcher(None, normal(name), own).ratio() >= _TOO_ALIKE
        if alike and normal(name)[:1] == own[:1] and name != _ALLOWED_NEAR_MISS:
            reason = f"unknown table {name!r}; did you mean {own!r}? If this is your own table, rename it"
            raise _UnknownKey(origin.of((name,)), reason)


_TOO_ALIKE = 0.75
"""The similarity that takes `hots` for `host`, and allows `hooks` and `history`."""


def _path_of(variable: str) -> tuple[str, ...]:
    """The path of `PROWESS_API__KEY`; empty for variables of other programs, and for `PROWESS__*`, which Prowess uses itself."""
    if not variable.upper().startswith(PREFIX) or variable.startswith("_", len(PREFIX)):
        return ()
    path = normal_path(tuple(variable[len(PREFIX) :].split("__")))
    if not all(path):
        raise _UnknownKey(variable, f"part of the name is empty; write {PREFIX}TABLE__KEY")
    return JOINED.get(path[0], path) if len(path) == 1 else path


def variable_name(path: tuple[str, ...]) -> str:
    """The environment variable of a setting."""
    return PREFIX + "__".join(normal_path(path)).upper()


def _typed(path: tuple[str, ...], text: str) -> Any:
    """Text of the environment or a flag: read as TOML for a key of Prowess, and left a string for a skill."""
    own = normal_path(path)
    spec = SPECS.get(own)
    if spec is None and own[0] not in OWN_TABLES and own[0] != "sandbox":
        return text
    value = _toml_value(text)
    return text if spec is not None and spec.text and not isinstance(value, str) else value


def _toml_value(text: str) -> Any:
    """The text as one TOML value. Other text is returned as it is, and refused later by its type."""
    import tomllib

    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text


def _as_typed(key: str, path: tuple[str, ...], value: Any) -> str:
    """A flag for messages. A value of another key than ours is not shown, since it may be a secret of a skill."""
    return f"{key}={shortened(str(value), 60)}" if normal_path(path) in SPECS else f"{key}=…"


def _shown(value: Any) -> str:
    """A refused value for a message. Tables are not shown, since they may hold secrets of a skill in the wrong place."""
    if is_free(value):
        return "a table"
    return shortened(json.dumps(value, ensure_ascii=False, default=str), 60)
