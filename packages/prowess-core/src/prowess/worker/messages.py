"""The messages of the link between host and worker: their kinds, the fields of their heads, and the version of both.

`docs/link.md` describes them for whoever writes a worker in another language. Knows neither sockets nor calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique
from typing import Any, Final, NotRequired, Required, TypedDict, cast

from prowess.errors import install_command
from prowess.jsontypes import JsonObject

__all__ = [
    "RELEASE",
    "VERSION",
    "AnswersHead",
    "BeginHead",
    "CallHead",
    "CancelHead",
    "DescribeHead",
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
    "UpdatedHead",
    "UrlDoneHead",
    "Wire",
    "WithdrawHead",
    "hello",
    "mismatch",
]

VERSION: Final = (1, 2)
"""Of the link, major and minor. A change that an older peer cannot ignore raises the major one; new fields that may be
ignored, and new kinds that may be ignored, raise the minor one."""
RELEASE: Final = "0.1.0"
"""Of Prowess: all its packages share it. Asking the installed metadata would cost 25 ms at every start."""


@unique
class Kind(IntEnum):
    """What a frame is about. The first group goes to the worker, the second to the host.

    Neither side complains about a kind that it does not know: a newer minor version may have added it.
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
    """head: `SourceHead`; body: the last good source of a skill, which it is imported from, whatever its files say."""
    WITHDRAW = 9
    """head: `WithdrawHead`. Without shared memory only, as are RETIRE, BEGUN, IMPORTING and BEAT."""
    RETIRE = 10
    """Begin nothing more."""
    FOUND = 11
    """number: that of FIND; body: a result, or empty. Since 1.2."""

    READY = 21
    """The first one. head: `ReadyHead`."""
    RESULT = 22
    """head: `_meta`; body: the rest of the payload."""
    QUESTIONS = 23
    """head: the questions by key; the call waits for ANSWERS."""
    INPUT_REQUIRED = 24
    """head: the questions by key; the call has ended and wants to be run again with the answers."""
    REST = 34
    """head: `RestHead`; body: the whole text of a result that is too large. The RESULT that follows shows its beginning."""
    REFUSED = 25
    """head: `RefusedHead`."""
    PROGRESS = 26
    """head: `ProgressHead`."""
    LOG = 27
    """head: `LogHead`."""
    CATALOG = 28
    """head: a description; body: the sources of what was described."""
    LIVE = 33
    """head: `LiveHead`."""
    PONG = 29
    """number: how many calls go on after they were cancelled."""
    LINGERING = 30
    """The same number, sent when a call has just been left behind."""
    UNBEGUN = 32
    """This call will not begin here: the host withdrew it, or retired this worker, before it began."""
    BEGUN = 35
    """This call begins now. The system takes this frame before the call starts."""
    IMPORTING = 36
    """head: `ImportingHead`. The system takes this frame before the import starts."""
    BEAT = 37
    """A thread of the worker runs, whatever its event loop does."""
    FAILED = 31
    """head: `FailedHead`. The worker cannot serve, or could not describe."""
    SECRETS = 38
    """head: `SecretsHead`."""
    UPDATED = 39
    """head: `UpdatedHead`. Since 1.1."""
    URL_DONE = 40
    """head: `UrlDoneHead`."""
    FIND = 42
    """head: `FindHead`; number: one of the worker's own. The result of another host is wanted. Since 1.2."""
    KEEP = 43
    """head: `KeepHead`; number: that of a FIND whose answer was empty; body: the result, or empty. Since 1.2."""
    BACKGROUND = 41
    """The call goes on without a waiting client. From now on it waits for the answers to QUESTIONS, in both eras."""


class Hello(TypedDict):
    """What the first frame of each side says of it, in every version of the link."""

    link: list[int]
    """The version of the link, major and minor."""
    release: str
    """The release of Prowess, or of whatever else speaks."""


class BeginHead(Hello):
    """BEGIN: the settings to go by."""

    flags: JsonObject
    """Settings of the command line."""
    written: list[str] | None
    """The path and the text of the settings file, if there is one."""
    mark: NotRequired[str]
    """With its number in hexadecimal, the id of each call."""
    only: NotRequired[list[str]]
    """The worker runs only these skills, with no other providers."""
    without: NotRequired[list[str]]
    """Other workers run these skills."""
    environ: NotRequired[Mapping[str, str]]
    """Environment variables for libraries: those of `.env`, for a worker that does not have the file."""


class ReadyHead(Hello):
    """READY: the worker takes calls."""

    pid: int


class Wire(TypedDict):
    """How a client is connected."""

    protocol: str
    """The revision of MCP."""
    transport: str
    """`pipe` or `tcp`."""


class CallHead(TypedDict, total=False):
    """CALL: how to call a command, and what the client can do."""

    command: Required[str]
    profile: str
    boxed: bool
    most: int
    """Bytes that the result may have."""
    kept: int
    """Bytes of a longer result that the host keeps."""
    outcome: bool
    """Answer with the facts of the outcome and its value, and not with a payload."""
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
    """Answers from earlier runs. Where they are given, the command cannot ask while it runs."""
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
    """What the caller is limited to, if it is: a result may only be reused for callers with the same. Since 1.2."""
    completes: str
    """An argument of the command: the call is to complete it. The body is the `value` that was typed, and the other
    `arguments`. Since 1.1."""


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
    """If there are more than so many to describe, describe none but those with hooks, and give the names of all."""
    only: NotRequired[list[str]]
    """Describe these and no others."""


class SourceHead(TypedDict):
    """SOURCE: the skill that the sources in the body are of."""

    skill: str
    place: str
    own: list[str]
    has_hooks: bool
    kept: bool
    """Its files say something else by now."""


class WithdrawHead(TypedDict):
    """WITHDRAW: calls that must not begin. Of those that have not, the worker says so with UNBEGUN."""

    numbers: list[int]


class ImportingHead(TypedDict):
    """IMPORTING: all imports that are going on, each as the time in nanoseconds, the skill, and the file."""

    imports: list[list[Any]]


class RestHead(TypedDict):
    """REST: the token under which clients ask for the text."""

    token: str


class RefusedHead(TypedDict):
    """REFUSED: why there is no result."""

    kind: str
    message: str
    name: NotRequired[str]
    """The capability that the client does not have."""
    broken: NotRequired[bool]
    """Set for an unknown command whose skill does not load from the files as the worker read them."""


class ProgressHead(TypedDict):
    """PROGRESS: how much of its work a command has done."""

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
    """SECRETS: texts that were injected into calls. They must not be in any record."""

    texts: list[str]


class UpdatedHead(TypedDict):
    """UPDATED: a resource has changed, and clients may have subscribed to it."""

    uri: str


class UrlDoneHead(TypedDict):
    """URL_DONE: the page of a question has done its job."""

    key: str


class FindHead(TypedDict):
    """FIND: the key of the result, which says all that it depends on."""

    key: str


class KeepHead(TypedDict):
    """KEEP: for how many seconds the result is good."""

    seconds: int


class FailedHead(Hello):
    """FAILED: why. It may be the first frame of a worker."""

    message: str


def hello() -> Hello:
    """The fields that both first frames begin with."""
    return {"link": list(VERSION), "release": RELEASE}


def mismatch(host: Mapping[str, Any], worker: Mapping[str, Any], python: str) -> str:
    """Why a host and a worker cannot work together, by what each said first; empty if they can."""
    if _version(host)[:1] == _version(worker)[:1] != ():
        return ""
    wanted = f"prowess-core=={host.get('release', RELEASE)}"
    return (
        f"host and worker have different versions: the host has {_named(host)}, the worker {_named(worker)}; "
        f"install the same release of Prowess in both environments, for the worker with "
        f"`{install_command(wanted, python)}`"
    )


def _version(told: Mapping[str, Any]) -> tuple[int, ...]:
    """A version of the link; empty where there is none."""
    link: object = told.get("link")
    numbers = cast("list[object]", link) if isinstance(link, list) else []
    return tuple(each for each in numbers if type(each) is int)


def _named(told: Mapping[str, Any]) -> str:
    version = ".".join(map(str, _version(told))) or "no version"
    return f"link {version} (release {told.get('release', 'unknown')})"
