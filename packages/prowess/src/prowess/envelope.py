"""Versioned envelopes around calls: a request is read, checked and run, and a valid response comes back, whatever came in.

Reading is lenient within the major version, writing is exactly 1.0.0. Part of the public door.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
import uuid
import weakref
from collections import Counter, OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, cast

from prowess.call import Channel
from prowess.credentials import Credentials, Refused
from prowess.jsontypes import Json, JsonObject
from prowess.outcome import Outcome
from prowess.runtime import Runtime

__all__ = [
    "ENVELOPE_VERSION",
    "EnvelopeError",
    "Request",
    "diagnostics",
    "finish",
    "invoke",
    "is_rfc3339",
    "read_request",
]

ENVELOPE_VERSION: Final = "1.0.0"
_MAJOR, _MINOR = 1, 0

_log = logging.getLogger("prowess.envelope")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)", re.ASCII)
_TOOL: Final = re.compile(r"[A-Za-z0-9_./\-]+")
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_AUTH_TYPES: Final = ("bearer", "api_key", "basic", "none")
_KNOWN: Final[Mapping[str, tuple[type, str]]] = {
    "id": (str, "a string"),
    "version": (str, "a string"),
    "timestamp": (str, "a string"),
    "tool": (str, "a string"),
    "trace_id": (str, "a string"),
    "context": (dict, "an object"),
    "auth": (dict, "an object"),
    "metadata": (dict, "an object"),
    "payload": (dict, "an object"),
}
_REQUIRED: Final = ("id", "version", "timestamp", "tool", "payload")
_STATUS: Final[Mapping[str, tuple[str, int]]] = {
    "ok": ("success", 200),
    "input": ("error", 422),
    "failed": ("error", 500),
    "crashed": ("error", 500),
    "input_required": ("error", 500),
    "retryable": ("retry", 503),
    "timeout": ("error", 504),
    "output": ("error", 502),
    "unknown": ("error", 404),
}
_MOST_HANDLES: Final = 1000
"""Results that are kept for callers who did not wait; the oldest goes first."""
_MOST_LENGTH: Final = 200
"""Characters of a status message; the errors hold all of it."""


class EnvelopeError(Exception):
    """A request that cannot be served as it is: every problem, the status it calls for, and the id if it was readable."""

    def __init__(
        self, code: str, http: int, problems: list[JsonObject], request_id: str = "", trace_id: str = ""
    ) -> None:
        super().__init__("; ".join(str(problem["message"]) for problem in problems))
        self.code = code
        self.http = http
        self.problems = problems
        self.request_id = request_id
        self.trace_id = trace_id


@dataclass(frozen=True, slots=True)
class Request:
    """A request that has been read."""

    id: str
    version: str
    timestamp: str
    tool: str
    payload: JsonObject
    trace_id: str = ""
    context: JsonObject = field(default_factory=dict[str, Any])
    metadata: JsonObject = field(default_factory=dict[str, Any])
    auth: JsonObject | None = field(default=None, repr=False)
    set_aside: tuple[str, ...] = ()
    """Members of a higher minor version, which this one does not know."""


# Reading


def read_request(request: bytes | str | Mapping[str, Any]) -> Request:
    """Read a request; raises `EnvelopeError` with all problems at once."""
    message = _parsed(request)
    request_id = cast("str", message.get("id")) if isinstance(message.get("id"), str) else ""
    trace_id = cast("str", message.get("trace_id")) if isinstance(message.get("trace_id"), str) else ""

    def refuse(code: str, problems: list[JsonObject], http: int = 422) -> NoReturn:
        raise EnvelopeError(code, http, problems, request_id, trace_id)

    version = message.get("version")
    numbers = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if numbers is not None and int(numbers[1]) != _MAJOR:
        text = f"version {version} is not supported; this side speaks {ENVELOPE_VERSION}"
        refuse("unsupported_version", [_problem("unsupported_version", text, "version")])
    newer = numbers is not None and int(numbers[2]) > _MINOR
    problems = [*_missing(message), *_wrong_types(message), *_wrong_values(message)]
    unknown = tuple(sorted(message.keys() - _KNOWN.keys()))
    if unknown and not newer:
        problems += [
            _problem("unknown_member", f"{name}: version {ENVELOPE_VERSION} has no such member", name)
            for name in unknown
        ]
    if problems:
        refuse("malformed", problems)
    known = {name: message[name] for name in _KNOWN if name in message}
    return Request(**known, set_aside=unknown)


def _parsed(request: bytes | str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The message as a mapping, from JSON text or as it is."""
    message: Any = request
    if isinstance(request, (bytes, str)):
        try:
            text = request.decode() if isinstance(request, bytes) else request
            message = json.loads(text, parse_constant=_no_constant)
            json.dumps(message, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise EnvelopeError(
                "not_json", 422, [_problem("not_json", f"the request is not JSON: {_brief(error)}", "")]
            ) from error
    if not isinstance(message, Mapping):
        text = f"a request must be an object, not {type(message).__name__}"
        raise EnvelopeError("malformed", 422, [_problem("malformed", text, "")])
    return cast("Mapping[str, Any]", message)


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _missing(message: Mapping[str, Any]) -> list[JsonObject]:
    return [_problem("missing", f"{name}: required", name) for name in _REQUIRED if name not in message]


def _wrong_types(message: Mapping[str, Any]) -> list[JsonObject]:
    return [
        _problem("wrong_type", f"{name}: expected {wanted}, got {_shown(message[name])}", name)
        for name, (kind, wanted) in _KNOWN.items()
        if name in message and not isinstance(message[name], kind)
    ]


def _wrong_values(message: Mapping[str, Any]) -> list[JsonObject]:
    problems: list[JsonObject] = []
    version, timestamp, tool = (message.get(name) for name in ("version", "timestamp", "tool"))
    if isinstance(version, str) and not _VERSION.fullmatch(version):
        problems.append(
            _problem("wrong_value", f"version: expected like {ENVELOPE_VERSION}, got {_shown(version)}", "version")
        )
    if isinstance(timestamp, str) and not is_rfc3339(timestamp):
        text = f"timestamp: expected RFC 3339 like 2026-01-31T12:00:00Z, got {_shown(timestamp)}"
        problems.append(_problem("wrong_value", text, "timestamp"))
    if isinstance(tool, str) and not _TOOL.fullmatch(tool):
        text = f"tool: expected letters, digits, dots, slashes, hyphens and underscores, got {_shown(tool)}"
        problems.append(_problem("wrong_value", text, "tool"))
    if message.get("trace_id") == "":
        problems.append(_problem("wrong_value", "trace_id: must not be empty; leave it out", "trace_id"))
    auth = message.get("auth")
    if isinstance(auth, Mapping):
        problems += _wrong_auth(cast("Mapping[str, Any]", auth))
    return problems


def _wrong_auth(auth: Mapping[str, Any]) -> list[JsonObject]:
    """Values of `auth` are never shown: one of them is a secret."""
    problems: list[JsonObject] = []
    if auth.get("type") not in _AUTH_TYPES:
        problems.append(_problem("wrong_value", f"auth.type: expected one of {', '.join(_AUTH_TYPES)}", "auth.type"))
    if "token" in auth and not isinstance(auth["token"], str):
        problems.append(_problem("wrong_type", "auth.token: expected a string", "auth.token"))
    scopes = auth.get("scopes", [])
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in cast("list[Any]", scopes)):
        problems.append(_problem("wrong_type", "auth.scopes: expected an array of strings", "auth.scopes"))
    return problems


def is_rfc3339(text: str) -> bool:
    """Whether a text is a time of RFC 3339, with a day and an hour that exist. A leap second does."""
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    leap = second == 60
    try:
        moment = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError:
        return False
    if not leap:
        return True
    offset = match[8].upper()
    if offset != "Z":
        shift = timedelta(hours=int(offset[1:3]), minutes=int(offset[4:6]))
        moment += -shift if offset[0] == "+" else shift
    return (moment.hour, moment.minute) == (23, 59)


# Invoking


async def invoke(runtime: Runtime, request: bytes | str | Mapping[str, Any]) -> JsonObject:
    """Serve one request: always a valid response envelope, never an exception of the request's making."""
    return await _desk(runtime).serve(request)


def diagnostics(runtime: Runtime) -> dict[str, int]:
    """How often requests of this runtime were refused or failed, by the code of the error."""
    return dict(_desk(runtime).counts)


async def finish(runtime: Runtime) -> None:
    """Wait for all work that was accepted and goes on."""
    await asyncio.gather(*_desk(runtime).running, return_exceptions=True)


_desks: weakref.WeakKeyDictionary[Runtime, _Desk] = weakref.WeakKeyDictionary()


def _desk(runtime: Runtime) -> _Desk:
    if runtime not in _desks:
        _desks[runtime] = _Desk(runtime)
    return _desks[runtime]


class _Desk:
    """What envelopes need to remember of one runtime: credentials, counts, and work that nobody waits for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = weakref.proxy(runtime)
        self._credentials = Credentials.of(runtime.settings)
        self._handles: OrderedDict[str, asyncio.Task[JsonObject]] = OrderedDict()
        self.counts: Counter[str] = Counter()

    @property
    def running(self) -> list[asyncio.Task[JsonObject]]:
        return [task for task in self._handles.values() if not task.done()]

    async def serve(self, raw: bytes | str | Mapping[str, Any]) -> JsonObject:
        started = time.perf_counter()
        try:
            request = read_request(raw)
            return await self._serve(request, started)
        except EnvelopeError as error:
            self._note(error.code, error.trace_id, str(error))
            return _response(error.request_id, "error", error.http, str(error), started, errors=error.problems)

    async def _serve(self, request: Request, started: float) -> JsonObject:
        handle = request.metadata.get("handle")
        contract = None if handle is not None else await self._find(request)
        self._authorize(request, contract)
        if handle is not None:
            return await self._ask_again(request, handle, started)
        work = self._run(request, cast("str", contract), started)
        if request.metadata.get("wait") is False:
            return self._accept(request, work, started)
        return await work

    async def _find(self, request: Request) -> str:
        """The id of the command that the request means; case is ignored where nothing fits exactly."""
        entry = await self._runtime.find(request.tool)
        if entry is not None:
            return entry.contract.id
        wanted = request.tool.replace("/", ".").casefold()
        contracts = self._runtime.catalog().contracts
        near = [item.id for item in contracts if wanted in {name.casefold() for name in (item.id, *item.aliases)}]
        if len(near) != 1:
            text = f"unknown tool: {request.tool}"
            raise EnvelopeError(
                "unknown_tool", 404, [_problem("unknown_tool", text, "tool")], request.id, request.trace_id
            )
        return near[0]

    def _authorize(self, request: Request, command: str | None) -> None:
        try:
            self._credentials.check(request.auth, command)
        except Refused as refused:
            problem = _problem(refused.code, str(refused), "auth")
            raise EnvelopeError(refused.code, refused.http, [problem], request.id, request.trace_id) from refused

    async def _run(self, request: Request, command: str, started: float) -> JsonObject:
        channel = Channel(trace_id=request.trace_id, metadata=request.metadata, context=request.context)
        outcome = await self._runtime.call(command, request.payload, channel=channel)
        if not outcome.ok:
            self._note(outcome.kind, request.trace_id, f"{command}: {outcome.text}")
        return _of_outcome(request, outcome, started)

    # Not waiting

    def _accept(self, request: Request, work: Coroutine[Any, Any, JsonObject], started: float) -> JsonObject:
        """The work goes on; its response can be fetched with the handle."""
        handle = uuid.uuid4().hex
        self._handles[handle] = asyncio.ensure_future(work)
        self._forget_oldest()
        return self._still(request, handle, started)

    def _still(self, request: Request, handle: str, started: float) -> JsonObject:
        text = "the work goes on; ask again with the handle in metadata"
        return _response(
            request.id, "accepted", 202, text, started, output={"handle": handle}, metadata=_about(request)
        )

    async def _ask_again(self, request: Request, handle: object, started: float) -> JsonObject:
        task = self._handles.get(handle) if isinstance(handle, str) else None
        if task is None:
            problem = _problem("unknown_handle", f"unknown handle: {_shown(handle)}", "metadata.handle")
            raise EnvelopeError("unknown_handle", 404, [problem], request.id, request.trace_id)
        if not task.done():
            return self._still(request, cast("str", handle), started)
        return {**await task, "id": request.id, "timestamp": _now()}

    def _forget_oldest(self) -> None:
        for handle in [handle for handle, task in self._handles.items() if task.done()]:
            if len(self._handles) <= _MOST_HANDLES:
                break
            del self._handles[handle]

    def _note(self, code: str, trace_id: str, text: str) -> None:
        self.counts[code] += 1
        _log.warning("%s (trace %s): %s", code, trace_id or "-", text)


# Writing


def _of_outcome(request: Request, outcome: Outcome, started: float) -> JsonObject:
    code, http = _status(outcome)
    metadata = {
        **_about(request),
        "tool": outcome.command,
        "cached": outcome.cached,
        "attempts": outcome.attempts,
        "call_id": outcome.call_id,
    }
    if outcome.ok:
        return _response(
            request.id, code, http, "", started, output=_output(outcome), has_output=True, metadata=metadata
        )
    headers: dict[str, str] = {}
    if code == "retry" and outcome.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(outcome.retry_after))
    errors = [_problem("invalid_input", text, _path(text)) for text in outcome.problems]
    if not errors:
        errors = [_problem(outcome.kind, outcome.text, "payload" if outcome.kind == "input" else "")]
        if outcome.data is not None:
            errors[0]["detail"] = outcome.data if isinstance(outcome.data, dict) else {"data": outcome.data}
    return _response(request.id, code, http, outcome.text, started, errors=errors, headers=headers, metadata=metadata)


def _status(outcome: Outcome) -> tuple[str, int]:
    return _STATUS.get(outcome.kind, ("error", 500))


def _output(outcome: Outcome) -> Json:
    """The unboxed value; a result that is content and no data is given as its blocks."""
    result = outcome.result
    if result.blocks is not None and not result.structured:
        return {"content": list(result.blocks)}
    return outcome.value


def _about(request: Request) -> JsonObject:
    about: JsonObject = {}
    if request.trace_id:
        about["trace_id"] = request.trace_id
    if request.set_aside:
        about["set_aside"] = list(request.set_aside)
    return about


def _response(
    request_id: str,
    code: str,
    http: int,
    message: str,
    started: float,
    *,
    output: Json = None,
    has_output: bool = False,
    errors: list[JsonObject] | None = None,
    headers: dict[str, str] | None = None,
    metadata: JsonObject | None = None,
) -> JsonObject:
    status: JsonObject = {"code": code, "http": http}
    if message:
        status["message"] = message if len(message) <= _MOST_LENGTH else f"{message[: _MOST_LENGTH - 1]}…"
    response: JsonObject = {
        "id": request_id,
        "version": ENVELOPE_VERSION,
        "status": status,
        "timestamp": _now(),
        "duration_ms": round((time.perf_counter() - started) * 1000, 3),
    }
    if has_output or output is not None:
        response["output"] = output
    for name, value in (("metadata", metadata), ("headers", headers), ("errors", errors)):
        if value:
            response[name] = value
    return response


def _problem(code: str, message: str, path: str) -> JsonObject:
    return {"code": code, "message": message, "path": path}


def _path(problem: str) -> str:
    """Where a problem line says it is, from the root of the envelope."""
    name = problem.partition(": ")[0]
    return "payload" if name == "arguments" else f"payload.{name}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
