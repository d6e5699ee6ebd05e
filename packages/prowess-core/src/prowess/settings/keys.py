"""The table of the keys that Prowess itself reads: type, default, bounds and help of each.

To add a key, add a field here: files, environment variables, flags, `docs/settings.md` and the schema of `prowess.toml`
read this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, field, fields, is_dataclass
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar, cast

from prowess.frozen import frozen
from prowess.settings.tables import Table, is_table, leaves

__all__ = [
    "JOINED",
    "MAPS",
    "OWN_NAMES",
    "OWN_TABLES",
    "PRIVATE",
    "SPECS",
    "AgentSettings",
    "ClusterSettings",
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
    "Spec",
    "own_keys",
]

T = TypeVar("T")


def _key(
    default: T, help: str, *, least: float | None = None, above: float | None = None, choices: tuple[str, ...] = ()
) -> T:
    """A field of a table below: its default, its purpose and its bounds."""
    return field(default=default, metadata={"help": help, "least": least, "above": above, "choices": choices})


@frozen
class RetrySettings:
    """`[retry]`: the back-off between attempts."""

    initial: float = _key(0.5, "seconds before the second attempt", least=0)
    maximum: float = _key(30.0, "longest wait between two attempts, in seconds", least=0)


@frozen
class HostSettings:
    """`[host]`: the process that talks to the client, and its workers."""

    workers: int = _key(1, "worker processes of one generation", least=1)
    grace: float = _key(5.0, "seconds that other calls get to finish before their worker is killed", least=0)
    cancel_grace: float = _key(0.5, "seconds that a cancelled sync call gets before its worker is replaced", least=0)
    stall_limit: float = _key(1.0, "seconds without a sign of life after which a worker counts as stalled", above=0)
    import_limit: float = _key(120.0, "seconds that the import of one file of a skill may take", above=0)
    shared_memory: bool = _key(True, "share memory with workers to agree on which calls have begun; false to send it")
    max_waiting: int = _key(10_000, "calls that wait for a free place in a worker; further ones are refused", least=0)
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
    """`[inject]`: the container of injected objects."""

    container: str | None = _key(
        None, "container of dependency-injector whose providers are injected: package.module:Name"
    )


@frozen
class RecordSettings:
    """`[record]`: the record of calls, in the cache of the user."""

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
    trusted_proxies: tuple[str, ...] = _key(
        (), "addresses or networks of proxies whose X-Forwarded-For names the client, for example 10.0.0.0/8"
    )
    tls_cert: str | None = _key(None, "file with the certificate chain, relative to the project root")
    tls_key: str | None = _key(None, "file with the key of the certificate, relative to the project root")
    sessions: bool = _key(
        True,
        "keep sessions for clients of revisions with a handshake; false for several instances behind a load balancer",
    )
    max_sessions: int = _key(1000, "sessions that are open at the same time", least=1)
    max_client_sessions: int = _key(
        500, "sessions, and streams of notifications, that one client may have open at the same time", least=1
    )
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
    max_client_calls: int = _key(
        500, "requests of one client, by its credentials or its address, that run at the same time", least=1
    )
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
class ClusterSettings:
    """`[cluster]`: the engine that hosts and agents share, a NATS server. Needs prowess[cluster]."""

    url: str | None = _key(None, "address of the engine, for example nats://10.0.0.5:4222; commas separate several")
    name: str = _key("prowess", "name of the cluster: hosts and agents of other names on the same engine are separate")
    credentials: str | None = _key(None, "file with NATS credentials (.creds), relative to the project root")
    token: str | None = _key(None, "token that the engine asks for")
    user: str | None = _key(None, "user that the engine asks for")
    password: str | None = _key(None, "password of the user")
    tls_ca: str | None = _key(None, "file with the CA certificate of the engine, relative to the project root")
    tls_cert: str | None = _key(None, "file with the client certificate for the engine, relative to the project root")
    tls_key: str | None = _key(None, "file with the key of the client certificate, relative to the project root")
    silence: float = _key(
        15.0, "seconds without a sign of life after which an agent counts as gone, and a host for an agent", above=0
    )
    patience: float = _key(10.0, "seconds in which an agent must be found for a command that runs on agents", least=0)
    workers: int = _key(3, "workers of one placement on agents; further ones start as calls need them", least=1)
    files: tuple[str, ...] = _key((), "files that agents get besides the code: patterns, relative to the project root")


@frozen
class AgentSettings:
    """`[agent]`: what `prowess agent` offers to the hosts of its cluster."""

    name: str | None = _key(None, "name of the agent for people; by default that of the machine")
    labels: tuple[str, ...] = _key((), "labels that commands ask for with run_on, for example gpu")
    slots: int = _key(0, "workers that it runs at the same time; 0 for two per processor, and at least four", least=0)
    drain: float = _key(30.0, "seconds for running calls to finish when the agent is stopped", least=0)
    keys: tuple[str, ...] = _key((), "public keys that may approve code; --locked runs only approved code")


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
    cluster: ClusterSettings = ClusterSettings()
    agent: AgentSettings = AgentSettings()
    run_on: Mapping[str, str] = field(
        default_factory=dict[str, str],
        metadata={
            "help": 'labels of the agents that run a command, by patterns of ids: "model.*" = "gpu"; "" for none'
        },
    )
    wire_names: Mapping[str, str] = field(
        default_factory=dict[str, str], metadata={"help": "names on the wire, by command id"}
    )
    sandbox: Mapping[str, Any] = field(
        default_factory=dict[str, Any], metadata={"help": "limits of skills, by skill; see Limits"}
    )


PRIVATE: Final = frozenset(
    {
        *("cluster.url", "cluster.token", "cluster.user", "cluster.password"),
        *("environments.index", "environments.find_links"),
    }
)
"""Keys whose values may be secrets: `doctor` does not show them, and limited skills do not get them."""


class OwnKey(NamedTuple):
    """One row of the table in `docs/settings.md`."""

    name: str
    type: str
    default: Any
    help: str


def own_keys() -> list[OwnKey]:
    """Every key that Prowess reads: dotted name, type, default and purpose."""
    return [OwnKey(".".join(path), spec.expected, spec.default, spec.help) for path, spec in SPECS.items()]


# --- checking values against the table ------------------------------------------------------------


class Spec(NamedTuple):
    """The expected kind of a value. `read` returns the Python value, or `None` if it does not fit."""

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


def _read_table(value: object) -> Table | None:
    return value if is_table(value) else None


def _read_names(value: object) -> dict[str, str] | None:
    """A table of strings. TOML reads a dotted id without quotes as nested tables."""
    if not is_table(value):
        return None
    names = {".".join(path): text for path, text in leaves(value)}
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


def _spec(of: Field[Any]) -> Spec:
    """The spec of one field: its type, with its bounds and choices."""
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
    return Spec(expected, checked, default, of.metadata["help"], kind == "a string")


def _specs(of: type[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Spec]]:
    for item in fields(of):
        if is_dataclass(item.default):
            yield from _specs(type(item.default), (item.name,))
        else:
            yield (*path, item.name), _spec(item)


SPECS = dict(_specs(OwnSettings))
JOINED = {"_".join(path): path for path in SPECS if len(path) > 1}
"""Finds the key for a variable with one underscore instead of two: `PROWESS_HOST_WORKERS`."""
OWN_NAMES = frozenset(item.name for item in fields(OwnSettings))
OWN_TABLES: dict[str, type[Any]] = {
    item.name: type(item.default) for item in fields(OwnSettings) if is_dataclass(item.default)
}
MAPS = tuple(path[0] for path, spec in SPECS.items() if isinstance(spec.default, dict))
"""The tables of Prowess whose keys the project chooses: `wire_names`, `resources`, `sandbox`."""
