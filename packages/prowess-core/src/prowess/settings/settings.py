"""Settings of a project: `prowess.toml` (or `[tool.prowess]` in `pyproject.toml`), `.env`, `PROWESS_*`, then flags.

`OwnSettings` is the one table of what Prowess itself reads: its keys are typed, and unknown ones are refused. In the
environment, which belongs to everybody, unknown ones are only warned of. Every other table is free and belongs to skills.
Its values may be secrets: they appear in no message and in no `repr`. Knows nothing of skills, of the host or of the machine.
"""

from __future__ import annotations

import copy
import difflib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, asdict, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, TypeVar, cast

from prowess.errors import SettingsError, did_you_mean
from prowess.frozen import frozen
from prowess.settings import keychain
from prowess.settings.dotenv import parse as parse_dotenv
from prowess.settings.limits import Sandbox

__all__ = [
    "CONFIG_FILE",
    "CONFIG_FILES",
    "PREFIX",
    "EnvironmentsSettings",
    "HostSettings",
    "IdentitySettings",
    "InjectSettings",
    "OtelSettings",
    "OwnKey",
    "OwnSettings",
    "RecordSettings",
    "RetrySettings",
    "ServeSettings",
    "Settings",
    "Written",
    "is_configured",
    "own_keys",
]

T = TypeVar("T")
_Table = dict[str, Any]
_MISSING: Any = object()

PREFIX = "PROWESS_"
CONFIG_FILE = "prowess.toml"
_PYPROJECT = "pyproject.toml"
CONFIG_FILES = (CONFIG_FILE, _PYPROJECT)
_PYPROJECT_TABLE = ("tool", "prowess")


# --- the table of own keys ------------------------------------------------------------------------


def _key(
    default: T, help: str, *, least: float | None = None, above: float | None = None, choices: tuple[str, ...] = ()
) -> T:
    """A field of the table below: its default, what it is for, and its bounds."""
    return field(default=default, metadata={"help": help, "least": least, "above": above, "choices": choices})


@frozen
class RetrySettings:
    """`[retry]`: the back-off between attempts."""

    initial: float = _key(0.5, "seconds before the second attempt", least=0)
    maximum: float = _key(30.0, "longest wait between two attempts, in seconds", least=0)


@frozen
class HostSettings:
    """`[host]`: the process that owns the wire, and its workers."""

    workers: int = _key(1, "worker processes of one generation", least=1)
    grace: float = _key(5.0, "seconds that other calls get to finish before their worker is killed", least=0)
    cancel_grace: float = _key(0.5, "seconds that a cancelled sync call gets before its worker drains", least=0)
    stall_limit: float = _key(1.0, "seconds without a sign of life after which a worker counts as stalled", above=0)
    import_limit: float = _key(120.0, "seconds that the import of one file of a skill may take", above=0)
    shared_memory: bool = _key(True, "share memory with workers to agree on which calls have begun; false to send it")
    max_line: int = _key(64 * 1024 * 1024, "longest line read from the client, in bytes", least=1024)
    drain: float = _key(2.0, "seconds that a call gets at end of input, from its beginning", least=0)
    restart_limit: int = _key(5, "worker deaths within restart_window before the host stops restarting", least=0)
    restart_window: float = _key(60.0, "seconds over which worker deaths are counted", above=0)
    pool_idle: float = _key(
        300.0,
        "seconds without a call after which the workers of a skill with its own environment or limits end",
        above=0,
    )


@frozen
class InjectSettings:
    """`[inject]`: what is provided to commands."""

    container: str | None = _key(
        None, "container of dependency-injector whose providers are injected: package.module:Name"
    )


@frozen
class RecordSettings:
    """`[record]`: the flight record of calls, in the cache of the user."""

    on: bool = _key(True, "keep a record of calls, for prowess logs, replay and dev")
    max_bytes: int = _key(64 * 1024 * 1024, "size of the record; the oldest calls go first", least=64 * 1024)
    max_days: float = _key(30.0, "days after which a call is dropped from the record", above=0)
    max_value: int = _key(256 * 1024, "largest arguments or result that the record keeps whole, in bytes", least=0)
    arguments: bool = _key(True, "keep the arguments of calls")
    results: bool = _key(True, "keep the results of calls")
    output: bool = _key(True, "keep what calls print, log and report as progress")
    secrets: tuple[str, ...] = _key(
        (
            *("*token", "*password*", "*passwd*", "*passphrase*", "*secret*", "*api_key*", "*apikey*"),
            *("*private_key*", "*access_key*", "*credential*", "authorization", "cookie*"),
        ),
        "names of arguments, settings and variables whose values are never kept: patterns",
    )


@frozen
class OtelSettings:
    """`[otel]`: traces and metrics for OpenTelemetry. The standard variables `OTEL_*` win over this table."""

    on: bool = _key(False, "trace calls with OpenTelemetry; needs prowess-core[otel] in the workers' environment")
    endpoint: str | None = _key(None, "base URL of the OTLP receiver; by default http://localhost:4318")
    service_name: str | None = _key(
        None, "service.name of traces and metrics; by default the name of the project folder"
    )


@frozen
class ServeSettings:
    """`[serve]`: the HTTP server."""

    host: str = _key("127.0.0.1", "address to listen on; any other than loopback needs credentials")
    port: int = _key(8765, "port to listen on; 0 for any free one", least=0)
    workers: int = _key(
        1, "processes that serve; with more than one, clients of revisions with a handshake have no sessions", least=1
    )
    url: str | None = _key(None, "URL under which clients reach the server, for example https://tools.example.com")
    allowed_hosts: tuple[str, ...] = _key(
        (), "host names under which clients may reach the server, besides those of loopback"
    )
    allowed_origins: tuple[str, ...] = _key(
        (), "origins of web pages that may call, for example https://app.example.com"
    )
    tls_cert: str | None = _key(None, "file with the certificate chain, relative to the project root")
    tls_key: str | None = _key(None, "file with the key of the certificate, relative to the project root")
    sessions: bool = _key(
        True,
        "keep sessions for clients of revisions with a handshake; false for several instances behind a load balancer",
    )
    max_sessions: int = _key(1000, "sessions that are open at the same time", least=1)
    session_idle: float = _key(3600.0, "seconds without a request after which a session ends", above=0)
    kept_events: int = _key(
        4 * 1024 * 1024, "bytes of events that a session keeps for a client that reconnects", least=0
    )
    poll: float = _key(
        0.0,
        "seconds after which the client of a session must reconnect for the rest of a stream; 0 for never",
        least=0,
    )
    max_body: int = _key(16 * 1024 * 1024, "largest body of a request, in bytes", least=1024)
    max_header: int = _key(32 * 1024, "largest head of a request, in bytes", least=1024)
    max_connections: int = _key(2000, "connections that are open at the same time", least=1)
    max_calls: int = _key(1000, "requests that run at the same time", least=1)
    patience: float = _key(30.0, "seconds for a request to arrive, and for the client to read a response", above=0)
    drain: float = _key(30.0, "seconds that running calls get to finish when the server stops", least=0)
    oauth_issuer: str | None = _key(None, "issuer (`iss`) of the accepted tokens: the URL of the authorization server")
    oauth_audience: str | None = _key(
        None, "audience (`aud`) of the accepted tokens; by default the URL of the MCP endpoint"
    )
    oauth_jwks: str | None = _key(None, "URL of the keys of the authorization server; by default from its metadata")
    oauth_scopes: tuple[str, ...] = _key((), "scopes that every request needs")


@frozen
class EnvironmentsSettings:
    """`[environments]`: the environments of skills that declare dependencies."""

    uv: str | None = _key(None, "the program uv; by default the package uv, or the one on PATH")
    prowess: str | None = _key(None, "requirement or path of Prowess to install; by default the same code as the host")
    index: str | None = _key(None, 'URL of the package index; "" for none; by default the configuration of uv')
    find_links: tuple[str, ...] = _key((), "folders and pages with further packages")
    offline: bool = _key(False, "install only from local files and the cache")
    python_downloads: bool = _key(False, "let uv download a Python that is missing")
    build_timeout: float = _key(1800.0, "seconds that making one environment may take", above=0)


@frozen
class IdentitySettings:
    """`[identity]`: the name, description and instructions of the server."""

    name: str | None = _key(None, "name of the server; by default that of the project folder")
    title: str | None = _key(None, "title of the server, for people")
    description: str | None = _key(None, "purpose of the server, in one line")
    instructions: str | None = _key(None, 'instructions for models; by default a line for each skill; "" for none')
    website_url: str | None = _key(None, "website of the server")
    icons: tuple[str, ...] = _key((), "icons of the server: image files of the project, or addresses (https:, data:)")


@frozen
class OwnSettings:
    """Everything Prowess itself reads from the settings."""

    timeout: float = _key(
        300.0, "seconds a call may take, unless the command says otherwise; inf for no limit", above=0
    )
    skills: tuple[str, ...] = _key(("skills",), "folders with skills, relative to the project root")
    hide: tuple[str, ...] = _key((), 'commands to hide: patterns of ids; "!pattern" shows one again')
    profile: str = _key("portable", "the form of contracts and results for clients")
    describe_results: bool = _key(
        True, "end a description with a line about the result, unless the docstring describes it"
    )
    names: str = _key("flat", "tool names on the wire: skill_command or skill.command", choices=("flat", "dotted"))
    python: str | None = _key(None, "Python interpreter of the workers; by default the host's own")
    threads: int = _key(256, "sync calls that run at once in one worker", least=1)
    cache_bytes: int = _key(16 * 1024 * 1024, "size of the result cache of one command, in bytes", least=0)
    cache_dir: str | None = _key(None, "folder for caches, relative to the project root; by default the platform's")
    env_file: str = _key(
        ".env", 'file with environment variables for skills, relative to the project root; "" for none'
    )
    allow_outside_root: bool = _key(False, "let skills use paths outside the project root")
    max_result: int | None = _key(
        None,
        "characters of a result that a client gets at once; 0 for no limit; by default the known limit of the client",
        least=0,
    )
    kept_results: int = _key(
        256 * 1024 * 1024, "bytes of longer results that are kept for a client to read on", least=0
    )
    token_budget: int = _key(0, "tokens that the catalog may cost a model, for prowess check; 0 for no limit", least=0)
    retry: RetrySettings = RetrySettings()
    inject: InjectSettings = InjectSettings()
    host: HostSettings = HostSettings()
    record: RecordSettings = RecordSettings()
    otel: OtelSettings = OtelSettings()
    serve: ServeSettings = ServeSettings()
    identity: IdentitySettings = IdentitySettings()
    skill_files: bool = _key(True, "serve skill folders with a SKILL.md to clients, with all their files")
    resources: Mapping[str, str] = field(
        default_factory=dict[str, str],
        metadata={"help": 'files to serve as resources, by the scheme of their URIs: docs = "docs/**/*.md"'},
    )
    environments: EnvironmentsSettings = EnvironmentsSettings()
    wire_names: Mapping[str, str] = field(
        default_factory=dict[str, str], metadata={"help": "names on the wire, by command id"}
    )
    sandbox: Mapping[str, Any] = field(
        default_factory=dict[str, Any], metadata={"help": "limits of skills, by skill; see Limits"}
    )


class OwnKey(NamedTuple):
    """One row of the table, as documentation shows it."""

    name: str
    type: str
    default: Any
    help: str


def own_keys() -> list[OwnKey]:
    """The whole table: dotted name, type, default and purpose of every key that Prowess reads."""
    return [OwnKey(".".join(path), spec.expected, spec.default, spec.help) for path, spec in _SPECS.items()]


# --- checking values against the table ------------------------------------------------------------


class _Spec(NamedTuple):
    """What a value must be; `read` returns it in its Python form, or `None` where it does not fit."""

    expected: str
    read: Callable[[Any], Any]
    default: Any
    help: str
    text: bool


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_integer(value: object) -> int | None:
    return value if _is_integer(value) else None


def _read_number(value: object) -> float | None:
    if not _is_integer(value) and not isinstance(value, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isnan(number) else number


def _read_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read_texts(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, (list, tuple)):
        return None
    texts = tuple(map(_read_text, cast("Iterable[object]", value)))
    return None if None in texts else cast("tuple[str, ...]", texts)


def _read_table(value: object) -> _Table | None:
    return value if _is_table(value) else None


def _read_names(value: object) -> dict[str, str] | None:
    """A map of texts. A dotted id that was written without quotes arrived as nested tables."""
    if not _is_table(value):
        return None
    names = {".".join(path): text for path, text in _leaves(value)}
    return names if all(isinstance(text, str) for text in names.values()) else None


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int": ("an integer", _read_integer),
    "int | None": ("an integer", _read_integer),
    "float": ("a number", _read_number),
    "bool": ("true or false", _read_bool),
    "str": ("a string", _read_text),
    "str | None": ("a string", _read_text),
    "tuple[str, ...]": ("a list of strings", _read_texts),
    "Mapping[str, str]": ("a table of strings", _read_names),
    "Mapping[str, Any]": ("a table", _read_table),
}


def _spec(of: Field[Any]) -> _Spec:
    """The spec of one field: its kind, narrowed by its bounds and choices."""
    kind, read = _KINDS[str(of.type)]
    least, above, choices = (of.metadata.get(name) for name in ("least", "above", "choices"))

    def checked(value: Any) -> Any:
        found = read(value)
        outside = found is not None and (
            (least is not None and found < least)
            or (above is not None and found <= above)
            or (choices and found not in choices)
        )
        return None if outside else found

    expected = f"{kind} >= {least}" if least is not None else f"{kind} > {above}" if above is not None else kind
    if choices:
        expected = " or ".join(f'"{choice}"' for choice in choices)
    default = of.default_factory() if callable(of.default_factory) else of.default
    return _Spec(expected, checked, default, of.metadata["help"], kind == "a string")


def _specs(of: type[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Spec]]:
    for item in fields(of):
        if is_dataclass(item.default):
            yield from _specs(type(item.default), (item.name,))
        else:
            yield (*path, item.name), _spec(item)


_SPECS = dict(_specs(OwnSettings))
_JOINED = {"_".join(path): path for path in _SPECS if len(path) > 1}
"""How a key in a table is written in the environment by those who forget the second underscore. None means another key."""
_OWN_NAMES = frozenset(item.name for item in fields(OwnSettings))
_OWN_TABLES: dict[str, type[Any]] = {
    "retry": RetrySettings,
    "inject": InjectSettings,
    "host": HostSettings,
    "record": RecordSettings,
    "otel": OtelSettings,
    "serve": ServeSettings,
    "environments": EnvironmentsSettings,
    "identity": IdentitySettings,
}
_NAMES_TABLES = ("wire_names", "resources", "sandbox")
_SANDBOX = "sandbox"
_FOLDERS = "skills"
"""A list of folders; but written as a table it holds free tables, one for each skill."""


# --- the settings ---------------------------------------------------------------------------------


class Written(NamedTuple):
    """The files that settings were read from, as they were; empty texts where there was none."""

    file: str = ""
    text: str = ""
    env_file: str = ""
    env_text: str = ""


class Settings:
    """The settings of a project, read by dotted keys. `own` holds Prowess's own keys, typed."""

    __slots__ = (
        "_environ",
        "_keys",
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
        layers: _Layers,
        *,
        source: _Source | None = None,
        dotenv: _Dotenv | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.config_file = source.file if source else None
        """The file that was read, if there is one."""
        self.dotenv: Mapping[str, str] = dotenv.values if dotenv else {}
        """The variables of `.env`, for the processes in which skills run."""
        self.written = Written(
            *((str(source.file), source.text) if source else ("", "")),
            *((str(dotenv.file), dotenv.text) if dotenv else ("", "")),
        )
        """The files with what they said, for `read_again`."""
        self.own = layers.own()
        self.sandbox = Sandbox.of(self.own.sandbox, str(self.config_file or root / CONFIG_FILE))
        """What the owner says of the limits of skills."""
        self.warnings = (*layers.warnings, *(dotenv.warnings if dotenv else ()))
        """What was overlooked, because the environment belongs to others as well."""
        self._environ: Mapping[str, str] = {} if environ is None else environ
        self._source = source
        self._keys = layers.keys()
        self._values = {**asdict(self.own), **layers.free}
        self._secrets: dict[str, str] = {}
        """What the keychain gave, by key: it may ask a person each time."""

    @classmethod
    def load(cls, root: Path, *, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None) -> Settings:
        """Read all layers. Flags are dotted keys; a flag of `None` was not given.

        Raises `SettingsError` for what is malformed, of the wrong type or, in a file or a flag, unknown, naming where it
        was written.
        """
        source, flags = _find(root), flags or {}
        layers = _Layers.of(source, None, environ, flags)
        dotenv = _read_dotenv(root, layers.own().env_file)
        if dotenv is not None:
            layers = _Layers.of(source, dotenv, environ, flags)
        return cls(root, layers, source=source, dotenv=dotenv, environ=environ)

    @classmethod
    def read_again(
        cls, root: Path, written: Written, *, environ: Mapping[str, str], flags: Mapping[str, Any]
    ) -> Settings:
        """What `load` gave in another process, whatever the files say by now."""
        source = _read_before(written) if written.file else None
        dotenv = _Dotenv.of(Path(written.env_file), written.env_text) if written.env_file else None
        return cls(root, _Layers.of(source, dotenv, environ, flags), source=source, dotenv=dotenv, environ=environ)

    @classmethod
    def of(
        cls, values: Mapping[str, Any], root: str | Path = ".", *, environ: Mapping[str, str] | None = None
    ) -> Settings:
        """Settings from a mapping, for tests: tables as mappings, or dotted keys. Reads no file.

        `environ` is what `variable` reads, and no source of settings.
        """
        layers = _Layers()
        layers.add_values(values)
        return cls(Path(root), layers, environ=environ)

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """The value of a dotted key; a table is a dict. Upper case and dashes may be written as in the environment.

        Without a default, a key that is not set raises `SettingsError`, which says how to set it.
        """
        value = self._found(key)
        if value is None:
            if default is _MISSING and _normal_path(tuple(key.split("."))) not in _SPECS:
                near = did_you_mean(key, self._keys).rstrip("?")
                raise SettingsError(f"setting {key!r} is not set{near}. {self._way_to_set(key)}")
            return None if default is _MISSING else default
        return self._read(key, copy.deepcopy(value))

    def _read(self, key: str, value: Any) -> Any:
        """A value with what the keychain has for it."""
        if keychain.is_reference(value):
            if key not in self._secrets:
                self._secrets[key] = keychain.read(key, value)
            return self._secrets[key]
        if _is_table(value):
            return {name: self._read(f"{key}.{name}", item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._read(f"{key}[{number}]", item) for number, item in enumerate(cast("list[Any]", value))]
        return value

    def place_in_file(self, key: str) -> str:
        """The settings file and the line of a key or its table; empty if there is no file."""
        return self._source.place(tuple(key.split("."))) if self._source is not None else ""

    def may_wait(self, key: str) -> bool:
        """Whether reading a key may wait for the keychain, and for a person who unlocks it."""
        return key not in self._secrets and isinstance(self._found(key), (dict, list))

    def _found(self, key: str) -> Any:
        value: Any = self._values
        for part in key.split("."):
            name = _match(value, part) if _is_table(value) else None
            value = value[name] if name is not None else None
        return value

    def variable(self, name: str, default: Any = _MISSING) -> Any:
        """An environment variable, or that of `.env`. An empty one counts as not set.

        Without a default, one that is not set raises `SettingsError`, which says how to set it.
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
        """The dotted names of all that was set, without the defaults."""
        return list(self._keys)

    def as_dict(self) -> dict[str, Any]:
        """All settings as nested tables, the defaults included."""
        return copy.deepcopy(self._values)

    def _way_to_set(self, key: str) -> str:
        *table, name = key.split(".")
        if not table:
            return (
                f"Settings of skills are in tables: add a table [{name}] to {self.root / CONFIG_FILE}, "
                f'or ask for a key in a table, like "my_skill.{name}".'
            )
        variable = _variable(tuple(key.split(".")))
        single = variable.replace("__", "_")
        if self._environ.get(single) or self.dotenv.get(single):
            return f"{single} is set, but a dot is written as two underscores: rename it to {variable}."
        in_pyproject = self.config_file is not None and self.config_file.name == _PYPROJECT
        path = [*_PYPROJECT_TABLE, *table] if in_pyproject else table
        file = self.root / (_PYPROJECT if in_pyproject else CONFIG_FILE)
        return f"Set {name} under [{'.'.join(path)}] in {file}, or {variable} in the environment{self._or_dotenv()}."

    def __repr__(self) -> str:
        return f"<Settings of {str(self.root)!r}: {', '.join(self._keys) or 'nothing set'}>"


def is_configured(folder: Path) -> bool:
    """Whether a folder holds settings for Prowess. A broken file that mentions them counts: loading it tells why."""
    if _is_file(folder / CONFIG_FILE):
        return True
    try:
        return _find_in_pyproject(folder / _PYPROJECT) is not None
    except SettingsError:
        return True


# --- files ----------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """A configuration file: Prowess's part of it, and its text to find lines in."""

    file: Path
    data: Any
    text: str
    table: tuple[str, ...] = ()

    def place(self, path: tuple[str, ...]) -> str:
        """The file, with the line of a setting (or of its table) where that can be found without a parser."""
        for end in range(len(path), 0, -1):
            line = _line_of(self.text, (*self.table, *path[:end]))
            if line:
                return f"{self.file}:{line}"
        return str(self.file)


class _Dotenv(NamedTuple):
    """A file of environment variables, with what of it could not be read."""

    file: Path
    text: str
    values: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: Path, text: str) -> _Dotenv:
        values, wrong = parse_dotenv(text)
        warnings = (f'{file}:{line}: is ignored: write NAME=value, or NAME="value with spaces"' for line in wrong)
        return cls(file, text, values, tuple(warnings))


def _read_dotenv(root: Path, name: str) -> _Dotenv | None:
    """The file of environment variables, if there is one. It need not be ours: what is wrong with it stops nothing."""
    file = root / Path(name).expanduser()
    if not name or not _is_file(file):
        return None
    try:
        return _Dotenv.of(file, _read(file, "UTF-8"))
    except SettingsError as error:
        return _Dotenv(file, "", {}, (f"{error}; the file is ignored",))


def _find(root: Path) -> _Source | None:
    own = root / CONFIG_FILE
    if not _is_file(own):
        return _find_in_pyproject(root / _PYPROJECT)
    try:
        other = _find_in_pyproject(root / _PYPROJECT)
    except SettingsError:
        other = None  # a broken pyproject.toml is no reason to refuse a sound prowess.toml
    if other is not None:
        raise SettingsError(f"{own} and [tool.prowess] in {other.file} both hold settings: remove one of them")
    text = _read(own)
    return _Source(own, _parse(own, text), text)


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises where a folder may not be searched


def _find_in_pyproject(file: Path) -> _Source | None:
    """`[tool.prowess]`, if there is one. A file that never mentions Prowess is not even parsed."""
    if not _is_file(file):
        return None
    text = _read(file)
    return _in_pyproject(file, text) if "prowess" in text else None


def _in_pyproject(file: Path, text: str) -> _Source | None:
    data: Any = _parse(file, text)
    for name in _PYPROJECT_TABLE:
        data = data.get(name) if _is_table(data) else None
    return None if data is None else _Source(file, data, text, _PYPROJECT_TABLE)


def _read_before(written: Written) -> _Source | None:
    file = Path(written.file)
    if file.name == _PYPROJECT:
        return _in_pyproject(file, written.text)
    return _Source(file, _parse(file, written.text), written.text)


def _read(file: Path, wanted: str = "UTF-8, as TOML must be") -> str:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{file}:{line}: not {wanted}") from None


def _parse(file: Path, text: str) -> _Table:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: tomllib lets overlong numbers through as they are
        found = re.search(r"\(at line (\d+)", str(error))
        line = int(found[1]) if found else text.rstrip("\n").count("\n") + 1
        raise SettingsError(f"{file}:{line}: not valid TOML: {error}") from None


_TABLE_LINE = re.compile(r"\s*\[\[?\s*([^\]=]+?)\s*\]")
_KEY_LINE = re.compile(r"\s*([\w.\"' -]+?)\s*=")


def _line_of(text: str, wanted: tuple[str, ...]) -> int | None:
    """The first line with a table header or a key that lies at or below a path."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TABLE_LINE.match(line):
            here = table = _written_path(header[1])
        elif key := _KEY_LINE.match(line):
            here = (*table, *_written_path(key[1]))
        else:
            continue
        if here[: len(wanted)] == wanted:
            return number
    return None


def _written_path(text: str) -> tuple[str, ...]:
    return tuple(part.strip(" \t\"'") for part in text.split("."))


# --- layers ---------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where settings were written: what to call it for one of them, and how another would be called there."""

    of: Callable[[tuple[str, ...]], str]
    neighbour: Callable[[tuple[str, ...]], str] = ".".join


def _place(text: str, neighbour: Callable[[tuple[str, ...]], str] = ".".join) -> _Place:
    """A place that is the same for all that is written there."""

    def of(_: tuple[str, ...]) -> str:
        return text

    return _Place(of, neighbour)


class _Layers:
    """Merges the layers one by one. Each value is checked while the place where it was written is still known."""

    def __init__(self) -> None:
        self.free: _Table = {}
        self.warnings: list[str] = []
        self._own: dict[tuple[str, ...], Any] = {}

    @classmethod
    def of(
        cls, source: _Source | None, dotenv: _Dotenv | None, environ: Mapping[str, str], flags: Mapping[str, Any]
    ) -> _Layers:
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
        """The typed keys, with defaults for what no layer has set."""
        tables = {name: of(**self._own_table((name,))) for name, of in _OWN_TABLES.items()}
        return OwnSettings(**{**self._own_table(()), **tables})

    def keys(self) -> list[str]:
        """The dotted names of all that some layer has set."""
        return [".".join(path) for path in (*self._own, *(path for path, _ in _leaves(self.free)))]

    def add_file(self, source: _Source) -> None:
        if not _is_table(source.data):
            raise SettingsError(f"{source.file}: {'.'.join(_PYPROJECT_TABLE)} must be a table")
        for name, value in source.data.items():
            self._add(name, value, _Place(source.place))

    def add_environ(self, environ: Mapping[str, str], place: str) -> None:
        """What is no setting may be somebody else's, and stops nothing."""
        for variable in sorted(environ):
            try:
                path, text = _path_of(variable), environ[variable]
                unset = not text and path in _SPECS  # how some clients hand on a variable that is not there
                if path and not unset:
                    self._add_deep(path, _typed(path, text), _place(f"{place}{variable}", _variable))
            except _Stray as stray:
                self.warnings.append(f"{place}{variable} is ignored: {stray.reason}")

    def add_flags(self, flags: Mapping[str, Any]) -> None:
        for key, value in flags.items():
            path = tuple(key.split("."))
            if value is not None:
                typed = _typed(path, value) if isinstance(value, str) else value
                self._add_deep(path, typed, _place(f"flag {key}"))

    def add_values(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            if value is not None:
                self._add_deep(tuple(key.split(".")), _plain(value), _place(f"setting {key}"))

    def _own_table(self, table: tuple[str, ...]) -> _Table:
        return {path[-1]: value for path, value in self._own.items() if path[:-1] == table}

    def _add_deep(self, path: tuple[str, ...], value: Any, place: _Place) -> None:
        """A value with a path, as the tables that a file would have written."""
        top, *below = self._spelled(path)
        for name in reversed(below):
            value = {name: value}
        self._add(top, value, place)

    def _spelled(self, path: tuple[str, ...]) -> list[str]:
        """A path from the environment, with the names of free tables as a layer below wrote them."""
        table: Any = self.free
        names: list[str] = []
        for part in path:
            name = _match(table, part) if _is_table(table) else None
            table = table[name] if name is not None else None
            names.append(name or part)
        return names

    def _add(self, name: str, value: Any, place: _Place) -> None:
        """One setting or table of the top level."""
        own = _normal(name)
        if own in _OWN_TABLES:
            self._add_own_table(name, value, place)
        elif own == _FOLDERS and _is_table(value):
            _refuse_loose_settings(name, value, place)
            _put(self.free, _FOLDERS, value)
        elif own in _OWN_NAMES:
            self._add_own((name,), value, place)
        elif _is_free(value):
            _refuse_near_miss(name, place)
            _put(self.free, name, value)
        else:
            raise _unknown((name,), place)

    def _add_own_table(self, name: str, value: Any, place: _Place) -> None:
        if not _is_table(value):
            raise _Stray(place.of((name,)), f"{_normal(name)} must be a table")
        for key, item in value.items():
            self._add_own((name, key), item, place)

    def _add_own(self, path: tuple[str, ...], value: Any, place: _Place) -> None:
        """A key of the table: typed, and replacing that of the layers below. Maps are merged."""
        own = _normal_path(path)
        spec = _SPECS.get(own)
        if spec is None:
            raise _unknown(path, place)
        found = spec.read(value)
        if found is None:
            raise SettingsError(f"{place.of(path)}: {'.'.join(own)} must be {spec.expected}, not {_shown(value)}")
        self._own[own] = {**self._own.get(own, {}), **found} if _is_table(found) else found


class _Stray(SettingsError):
    """What is no setting, in a place where there should be one."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.reason = reason


def _unknown(path: tuple[str, ...], place: _Place) -> _Stray:
    """The error for a key that Prowess does not have, with the nearest one as it would be written in that place."""
    table, name = _normal_path(path[:-1]), _normal(path[-1])
    inside = {item: (*table, item) for *above, item in _SPECS if tuple(above) == table}
    known = inside if table else {**_JOINED, **{item: (item,) for item in _OWN_NAMES}}
    near = difflib.get_close_matches(name, sorted(known), n=1)
    text = f"unknown setting {'.'.join(path)!r}"
    if near:
        text += f'; did you mean "{place.neighbour(known[near[0]])}"?'
    elif table:
        text += f"; [{'.'.join(table)}] has {', '.join(sorted(inside))}"
    else:
        above, _, rest = name.partition("_")
        own = (above, rest) if rest else ("my_skill", name)
        text += (
            f". Settings of skills are in tables: if a skill is to read this one, write {place.neighbour(own)} "
            f'and read it with settings.get("{".".join(own)}")'
        )
    return _Stray(place.of(path), text)


def _refuse_loose_settings(name: str, tables: _Table, place: _Place) -> None:
    """`[skills]` is no table of Prowess: folders written in it would be overlooked."""
    for key, value in tables.items():
        if not _is_table(value):
            raise SettingsError(
                f"{place.of((name, key))}: as a table, {_FOLDERS} holds one table for each skill, but {key!r} is a plain value; "
                f'write folders as a list: {_FOLDERS} = ["{_FOLDERS}"]'
            )


_ALIKE_AND_FREE = "servers"
"""A common name for a table of a skill, although it resembles `serve`."""


def _refuse_near_miss(name: str, place: _Place) -> None:
    """A free table whose name is a slip of the pen away from one of Prowess's own."""
    for own in (*_OWN_TABLES, *_NAMES_TABLES):
        alike = difflib.SequenceMatcher(None, _normal(name), own).ratio() >= _TOO_ALIKE
        if alike and _normal(name)[:1] == own[:1] and name != _ALIKE_AND_FREE:
            reason = f"unknown table {name!r}; did you mean {own!r}? If this is your own table, rename it"
            raise _Stray(place.of((name,)), reason)


_TOO_ALIKE = 0.75
"""Lets `hots` be found for `host`, and leaves `hooks` and `history` alone."""


def _path_of(variable: str) -> tuple[str, ...]:
    """`PROWESS_API__KEY` as a path. Foreign variables have none, and `PROWESS__*` is kept free for Prowess itself."""
    if not variable.upper().startswith(PREFIX) or variable.startswith("_", len(PREFIX)):
        return ()
    path = _normal_path(tuple(variable[len(PREFIX) :].split("__")))
    if not all(path):
        raise _Stray(variable, f"part of the name is empty; write {PREFIX}TABLE__KEY")
    return _JOINED.get(path[0], path) if len(path) == 1 else path


def _variable(path: tuple[str, ...]) -> str:
    return PREFIX + "__".join(_normal_path(path)).upper()


def _typed(path: tuple[str, ...], text: str) -> Any:
    """What arrived as text is read as TOML where it is for a key of Prowess; for a skill it stays a string."""
    own = _normal_path(path)
    spec = _SPECS.get(own)
    if spec is None and own[0] not in _OWN_TABLES and own[0] != _SANDBOX:
        return text
    value = _toml_value(text)
    return text if spec is not None and spec.text and not isinstance(value, str) else value


def _toml_value(text: str) -> Any:
    """The text as one TOML value; text that is none stays text, and is then refused by its type."""
    import tomllib

    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return read["value"] if len(read) == 1 else text


def _shown(value: Any) -> str:
    """A refused value, as a message shows it. A table may be a skill's, written in the wrong place: it stays unseen."""
    if _is_free(value):
        return "a table"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"


# --- tables ---------------------------------------------------------------------------------------


def _normal(name: str) -> str:
    """The form in which names are compared: environment variables know neither lower case nor dashes."""
    return name.lower().replace("-", "_")


def _normal_path(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_normal, path))


def _match(table: _Table, name: str) -> str | None:
    """The key of a table that a name stands for: as written, else in its normal form."""
    if name in table:
        return name
    return next((key for key in table if _normal(key) == _normal(name)), None)


def _put(table: _Table, name: str, value: Any) -> None:
    """Set a value; tables are merged, everything else is replaced."""
    if not _is_table(value):
        table[name] = value
        return
    if not _is_table(table.get(name)):
        table[name] = {}
    for key, item in value.items():
        _put(table[name], key, item)


def _leaves(table: _Table, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in table.items():
        if _is_table(value) and not keychain.is_reference(value):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _plain(value: Any) -> Any:
    """Mappings and sequences of any kind as TOML would give them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[object, Any]", value).items()}
    return [_plain(item) for item in cast("list[Any]", value)] if isinstance(value, (list, tuple)) else value


def _is_table(value: object) -> TypeGuard[_Table]:
    return isinstance(value, dict)


def _is_free(value: object) -> bool:
    """Whether a value of an unknown name belongs to a skill: a table, or an array of tables."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return bool(items) and all(map(_is_table, items))
    return _is_table(value)
