"""The messages of the link between host and worker: their kinds, the fields of their heads, and the version of both.

`docs/link.md` describes them for authors of workers in other languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Any, Final, NotRequired, Required, TypedDict, cast

from prowess.errors import install_command
from prowess.jsontypes import JsonObject

__all__ = [
    "LAST",
    "RELEASE",
    "VERSION",
    "AnswersHead",
    "BeginHead",
    "CallHead",
    "CancelHead",
    "DescribeHead",
    "DueHead",
    "FailedHead",
    "FindHead",
    "Hello",
    "ImportingHead",
    "KeepHead",
    "Kind",
    "LiveHead",
    "LogHead",
    "ProgressHead",
    "ReadyHead",
    "RefusedHead",
    "RestHead",
    "SecretsHead",
    "SourceHead",
    "UnaskedHead",
    "UpdatedHead",
    "UrlDoneHead",
    "Wire",
    "WithdrawHead",
    "hello",
    "mismatch",
]

VERSION: Final = (1, 4)
"""The version of the link, major and minor. A change that an older peer cannot ignore raises the major version. Fields and kinds
that it can ignore raise the minor version."""
RELEASE: Final = "0.1.0"
"""The release of all packages. Reading it from the installed metadata would take 25 ms at every start."""


@unique
class Kind(IntEnum):
    """The kind of a frame. The first group goes to the worker, the second to the host.

    Both sides ignore unknown kinds, which a newer minor version may have added.
    """

    BEGIN = 7
    """The first one. head: `BeginHead`."""
    CALL = 1
    """head: `CallHead`; body: the arguments as JSON."""
    CANCEL = 2
    """head: `CancelHead`, or empty."""
    ANSWERS = 3
    """head: `AnswersHead`."""
    DESCRIBE = 4
    """head: `DescribeHead`."""
    PING = 5
    QUIT = 6
    SOURCE = 8
    """head: `SourceHead`; body: the last good source of a skill, which is imported instead of its files."""
    WITHDRAW = 9
    """head: `WithdrawHead`. Without shared memory only, as are RETIRE, DUE, BEGUN, IMPORTING and BEAT."""
    RETIRE = 10
    """Begin no more calls."""
    FOUND = 11
    """number: that of FIND; body: a result, or empty. Since 1.2."""
    DUE = 12
    """head: `DueHead`. It comes before the CALL of this number. Since 1.4."""

    READY = 21
    """The first one. head: `ReadyHead`."""
    RESULT = 22
    """head: `_meta`; body: the rest of the payload."""
    QUESTIONS = 23
    """head: the questions by key; the call waits for ANSWERS."""
    INPUT_REQUIRED = 24
    """head: the questions by key; the call has ended and must be repeated with the answers."""
    REST = 34
    """head: `RestHead`; body: the whole text of a result that is too large. The following RESULT has its beginning."""
    REFUSED = 25
    """head: `RefusedHead`."""
    PROGRESS = 26
    """head: `ProgressHead`."""
    LOG = 27
    """head: `LogHead`."""
    CATALOG = 28
    """head: a description; body: the sources of the described skills."""
    LIVE = 33
    """head: `LiveHead`."""
    PONG = 29
    """number: the count of cancelled calls that still run."""
    LINGERING = 30
    """The same number, sent when it grows."""
    UNBEGUN = 32
    """This call will not begin here, because the host withdrew it or retired this worker before."""
    BEGUN = 35
    """This call begins now. The system has accepted this frame before the call starts."""
    IMPORTING = 36
    """head: `ImportingHead`. The system has accepted this frame before the import starts."""
    BEAT = 37
    """A thread of the worker runs, even if its event loop is blocked."""
    FAILED = 31
    """head: `FailedHead`. The worker cannot serve, or failed to describe."""
    SECRETS = 38
    """head: `SecretsHead`."""
    UPDATED = 39
    """head: `UpdatedHead`. Since 1.1."""
    URL_DONE = 40
    """head: `UrlDoneHead`."""
    FIND = 42
    """head: `FindHead`; number: chosen by the worker. Asks for the result of another host. Since 1.2."""
    KEEP = 43
    """head: `KeepHead`; number: that of a FIND whose answer was empty; body: the result, or empty. Since 1.2."""
    BACKGROUND = 41
    """The call continues in the background. From now on, it waits for the answers to QUESTIONS, in both eras."""
    UNASKED = 44
    """head: `UnaskedHead`. Since 1.3."""


LAST: Final = frozenset({Kind.RESULT, Kind.INPUT_REQUIRED, Kind.REFUSED})
"""The kinds that end a call."""


class Hello(TypedDict):
    """The fields of the first frame of each side, in every version of the link."""

    link: list[int]
    """The version of the link, major and minor."""
    release: str
    """The release of Prowess, or of another program."""


class BeginHead(Hello):
    """BEGIN: the settings."""

    flags: JsonObject
    """Settings of the command line."""
    written: list[str] | None
    """The path and the text of the settings file, if there is one."""
    mark: NotRequired[str]
    """The first part of call ids; the number of the call follows in hexadecimal."""
    only: NotRequired[list[str]]
    """The worker runs only these skills, without the project's shared providers."""
    sent: NotRequired[JsonObject]
    """Data of the project's providers, by name. Only with `only`."""
    without: NotRequired[list[str]]
    """Other workers run these skills."""
    shares: NotRequired[str]
    """A digest of the settings for the keys of shared results, if hosts share results. Since 1.2."""
    environ: NotRequired[Mapping[str, str]]
    """Environment variables for libraries: those of `.env`, for a worker that does not have the file."""


class ReadyHead(Hello):
    """READY: the worker takes calls."""

    pid: int


class Wire(TypedDict):
    """The connection of a client."""

    protocol: str
    """The revision of MCP."""
    transport: str
    """`pipe` or `tcp`."""


class CallHead(TypedDict, total=False):
    """CALL: the command, and the capabilities of the client."""

    command: Required[str]
    profile: str
    boxed: bool
    most: int
    """Bytes that the result may have."""
    kept: int
    """Bytes of a longer result that the host keeps."""
    outcome: bool
    """Answer with the facts of the outcome and its value instead of a payload."""
    call_id: str
    client: str
    capabilities: JsonObject
    trace: str
    trace_context: Mapping[str, str]
    """The trace context of the client: `traceparent`, `tracestate`, `baggage`."""
    request: str
    """The JSON-RPC id of the request. Only with `otel.on`."""
    wire: Wire
    metadata: JsonObject
    context: JsonObject
    answers: Mapping[str, JsonObject]
    """Answers from earlier runs. With these, a question ends the run."""
    asks: bool
    asks_for: list[str]
    """The kinds of questions that the client supports; forms only if absent."""
    background: bool
    """The client accepts a handle instead of the result, so the call may continue in the background."""
    progress: bool
    log: bool
    uri: str
    """For a resource: the requested URI. Since 1.1."""
    scopes: str
    """The scopes that the caller is limited to, if any. Only callers with the same scopes share results. Since 1.2."""
    completes: str
    """The argument to complete. The body has the typed `value` and the other `arguments`. Since 1.1."""


class CancelHead(TypedDict):
    """CANCEL: the reason, unless the client gave up."""

    late: bool
    """The call has timed out."""


class AnswersHead(TypedDict, total=False):
    """ANSWERS: the answers of a person, by key, or the reason why there are none."""

    answers: Mapping[str, JsonObject]
    error: str


class DescribeHead(TypedDict):
    """DESCRIBE: describe all skills but the known ones."""

    known: list[str]
    most: NotRequired[int]
    """If there are more skills to describe, describe only those with hooks, and list the names of all."""
    only: NotRequired[list[str]]
    """Describe only these."""


class SourceHead(TypedDict):
    """SOURCE: the skill of the sources in the body."""

    skill: str
    place: str
    own: list[str]
    has_hooks: bool
    kept: bool
    """Whether its files have changed since."""


class WithdrawHead(TypedDict):
    """WITHDRAW: calls that must not begin. The worker answers with UNBEGUN for each that has not begun."""

    numbers: list[int]


class DueHead(TypedDict):
    """DUE: the time after which the call must not begin, because its client has been told that its time is up."""

    at: float
    """On the clock of `time.monotonic`, which all processes of a machine share."""


class ImportingHead(TypedDict):
    """IMPORTING: all running imports, each as the time in nanoseconds, the skill, and the file."""

    imports: list[list[Any]]


class RestHead(TypedDict):
    """REST: the token with which clients ask for the text."""

    token: str


class RefusedHead(TypedDict):
    """REFUSED: the reason for a missing result."""

    kind: str
    message: str
    name: NotRequired[str]
    """The capability that the client lacks."""
    broken: NotRequired[bool]
    """Set for an unknown command whose skill does not load from its files."""


class ProgressHead(TypedDict):
    """PROGRESS: the progress of a command."""

    done: float
    total: float | None
    message: str | None


class LogHead(TypedDict):
    """LOG: a log message of a command."""

    level: str
    data: Any


class LiveHead(TypedDict):
    """LIVE: digests of the skills that have just been imported, by name."""

    digests: dict[str, str]


class SecretsHead(TypedDict):
    """SECRETS: texts that were injected into calls, which must not be recorded."""

    texts: list[str]


class UpdatedHead(TypedDict):
    """UPDATED: a resource has changed, and clients may have subscribed to it."""

    uri: str


class UnaskedHead(TypedDict):
    """UNASKED: the command no longer waits for the answers to these questions."""

    keys: list[str]


class UrlDoneHead(TypedDict):
    """URL_DONE: the page of a question is finished."""

    key: str


class FindHead(TypedDict):
    """FIND: the key of the result, which covers everything that it depends on."""

    key: str


class KeepHead(TypedDict):
    """KEEP: the seconds that the result is valid."""

    seconds: int


class FailedHead(Hello):
    """FAILED: the reason. It may be the first frame of a worker."""

    message: str


def hello() -> Hello:
    """The common fields of both first frames."""
    return {"link": list(VERSION), "release": RELEASE}


def mismatch(host: Mapping[str, Any], worker: Mapping[str, Any], python: str) -> str:
    """Why a host and a worker cannot work together, judged by their first frames; empty if they can."""
    if _version(host)[:1] == _version(worker)[:1] != ():
        return ""
    requirement = f"prowess-core=={host.get('release', RELEASE)}"
    return (
        f"host and worker have different versions: the host has {_named(host)}, the worker {_named(worker)}; "
        f"install the same release of Prowess in both environments, for the worker with "
        f"`{install_command(requirement, python)}`"
    )


def _version(greeting: Mapping[str, Any]) -> tuple[int, ...]:
    """The version of the link; empty without one."""
    link: object = greeting.get("link")
    numbers = cast("list[object]", link) if isinstance(link, list) else []
    return tuple(each for each in numbers if type(each) is int)


def _named(greeting: Mapping[str, Any]) -> str:
    version = ".".join(map(str, _version(greeting))) or "no version"
    return f"link {version} (release {greeting.get('release', 'unknown')})"
