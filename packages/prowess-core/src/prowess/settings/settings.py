"""Settings of a project: `prowess.toml` (or `[tool.prowess]` in `pyproject.toml`), `.env`, `PROWESS_*`, then flags.

`prowess.settings.keys` has the keys that Prowess itself reads. Every other table belongs to skills, and its values may be secrets:
no message and no `repr` shows them.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from prowess.errors import SettingsError, did_you_mean
from prowess.settings import files, keychain
from prowess.settings.files import CONFIG_FILE, PYPROJECT, PYPROJECT_TABLE, ConfigFile, Dotenv, Written
from prowess.settings.keys import SPECS
from prowess.settings.layers import Layers, variable_name
from prowess.settings.limits import Sandbox
from prowess.settings.tables import is_table, match, normal_path

__all__ = ["Settings"]

_MISSING: Any = object()
_OF_HOSTS = frozenset(
    {
        *("agent", "cache_dir", "cluster", "env_file", "environments", "host", "otel"),
        *("python", "record", "run_on", "serve"),
    }
)
"""Settings about where and how commands run, on which results do not depend."""


class Settings:
    """The settings of a project, read by dotted keys. `own` has the keys that Prowess itself reads, typed."""

    __slots__ = (
        "_environ",
        "_keys",
        "_origins",
        "_secrets",
        "_source",
        "_values",
        "config_file",
        "dotenv",
        "own",
        "root",
        "sandbox",
        "warnings",
        "written",
    )

    def __init__(
        self,
        root: Path,
        layers: Layers,
        *,
        source: ConfigFile | None = None,
        dotenv: Dotenv | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.config_file = source.file if source else None
        """The file that was read, or `None`."""
        self.dotenv: Mapping[str, str] = dotenv.values if dotenv else {}
        """The variables of `.env`, for the processes in which skills run."""
        self.written = Written(
            *((str(source.file), source.text) if source else ("", "")),
            *((str(dotenv.file), dotenv.text) if dotenv else ("", "")),
        )
        """The files with their content, for `read_again`."""
        self.own = layers.own()
        self.sandbox = Sandbox.of(self.own.sandbox, str(self.config_file or root / CONFIG_FILE))
        """The limits of skills, as the project sets them."""
        self.warnings = (*layers.warnings, *(dotenv.warnings if dotenv else ()))
        """What was ignored in the environment and in `.env`, with the reason."""
        self._environ: Mapping[str, str] = {} if environ is None else environ
        self._source = source
        self._keys = layers.keys()
        self._origins = layers.origins
        self._values = {**asdict(self.own), **layers.free}
        self._secrets: dict[str, str] = {}
        """Values from the keychain, by key. Reading them again could prompt the user again."""

    @classmethod
    def load(cls, root: Path, *, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
        """Read all layers. Flags are dotted keys; a flag of `None` counts as absent.

        Raises `SettingsError`, with the origin, for a malformed file, a value of the wrong type, and an unknown key in a
        file or a flag.
        """
        source, flags = files.find(root), flags or {}
        layers = Layers.of(source, None, environ, flags)
        dotenv = files.read_dotenv(root, layers.own().env_file)
        if dotenv is not None:
            layers = Layers.of(source, dotenv, environ, flags)
        return cls(root, layers, source=source, dotenv=dotenv, environ=environ)

    @classmethod
    def read_again(
        cls, root: Path, written: Written, *, environ: Mapping[str, str], flags: Mapping[str, Any]
    ) -> Settings:
        """The same settings as `load` gave in another process, even if the files have changed since."""
        source = files.read_before(written) if written.file else None
        dotenv = Dotenv.of(Path(written.env_file), written.env_text) if written.env_file else None
        return cls(root, Layers.of(source, dotenv, environ, flags), source=source, dotenv=dotenv, environ=environ)

    @classmethod
    def of(
        cls, values: Mapping[str, Any], root: str | Path = ".", *, environ: Mapping[str, str] | None = None
    ) -> Settings:
        """Settings from a mapping, for tests: tables as mappings, or dotted keys. Reads no file.

        `environ` is only for `variable`: settings are not read from it.
        """
        layers = Layers()
        layers.add_values(values)
        return cls(Path(root), layers, environ=environ)

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """The value of a dotted key; a table is a dict. Names match in any case, with `-` or `_`.

        Without a default, a key that is not set raises `SettingsError`, which says how to set it.
        """
        value = self._found(key)
        if value is None:
            if default is _MISSING and normal_path(tuple(key.split("."))) not in SPECS:
                near = did_you_mean(key, self._keys).rstrip("?")
                raise SettingsError(f"setting {key!r} is not set{near}. {self._way_to_set(key)}")
            return None if default is _MISSING else default
        return self._read(key, copy.deepcopy(value))

    def _read(self, key: str, value: Any) -> Any:
        """A value, with references to the keychain replaced by the secrets."""
        if keychain.is_reference(value):
            if key not in self._secrets:
                self._secrets[key] = keychain.read(key, value)
            return self._secrets[key]
        if is_table(value):
            return {name: self._read(f"{key}.{name}", item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._read(f"{key}[{number}]", item) for number, item in enumerate(cast("list[Any]", value))]
        return value

    def location_in_file(self, key: str) -> str:
        """The settings file and the line of a key or its table; empty if there is no file."""
        return self._source.location(tuple(key.split("."))) if self._source is not None else ""

    def origin_of(self, key: str) -> str:
        """Where a key of Prowess was set: a file with the line, a variable or a flag. Empty for a default."""
        return self._origins.get(key, "")

    def may_wait(self, key: str) -> bool:
        """Whether reading a key may wait for the user to unlock the keychain."""
        return key not in self._secrets and isinstance(self._found(key), (dict, list))

    def _found(self, key: str) -> Any:
        value: Any = self._values
        for part in key.split("."):
            name = match(value, part) if is_table(value) else None
            value = value[name] if name is not None else None
        return value

    def variable(self, name: str, default: Any = _MISSING) -> Any:
        """A variable of the environment or of `.env`. An empty one counts as not set.

        Without a default, a missing variable raises `SettingsError`, which says how to set it.
        """
        value = self._environ.get(name) or self.dotenv.get(name)
        if value:
            return value
        if default is _MISSING:
            raise SettingsError(
                f"the environment variable {name} is not set. Set it where your client starts the host{self._or_dotenv()}"
            )
        return default

    def _or_dotenv(self) -> str:
        return f", or in {self.root / self.own.env_file}" if self.own.env_file else ""

    def keys(self) -> list[str]:
        """The dotted names of all settings that are set, without the defaults."""
        return list(self._keys)

    def as_dict(self) -> dict[str, Any]:
        """All settings as nested tables, the defaults included."""
        return copy.deepcopy(self._values)

    def fingerprint(self) -> str:
        """A digest of all settings on which results may depend, and of the variables of `.env`."""
        shared = {name: value for name, value in self._values.items() if name not in _OF_HOSTS}
        text = json.dumps([shared, sorted(self.dotenv.items())], sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    def _way_to_set(self, key: str) -> str:
        *table, name = key.split(".")
        if not table:
            return (
                f"Settings of skills are in tables: add a table [{name}] to {self.root / CONFIG_FILE}, "
                f'or ask for a key in a table, like "my_skill.{name}".'
            )
        variable = variable_name(tuple(key.split(".")))
        single = variable.replace("__", "_")
        if self._environ.get(single) or self.dotenv.get(single):
            return f"{single} is set, but a dot is written as two underscores: rename it to {variable}."
        in_pyproject = self.config_file is not None and self.config_file.name == PYPROJECT
        path = [*PYPROJECT_TABLE, *table] if in_pyproject else table
        file = self.root / (PYPROJECT if in_pyproject else CONFIG_FILE)
        return f"Set {name} under [{'.'.join(path)}] in {file}, or {variable} in the environment{self._or_dotenv()}."

    def __repr__(self) -> str:
        return f"<Settings of {str(self.root)!r}: {', '.join(self._keys) or 'nothing set'}>"
