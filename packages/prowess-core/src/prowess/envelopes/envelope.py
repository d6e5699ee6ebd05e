"""Versioned envelopes around calls: reads, checks and runs a request, and always returns a valid response.

Reading is lenient within the major version; responses are always version 1.0.0. Part of the public interface.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, NoReturn, Protocol, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from prowess.calls.channel import Channel
from prowess.calls.handles import Handles
from prowess.calls.outcome import Outcome
from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess.errors import ProwessError, TooMuchWork, shortened
from prowess.frozen import frozen
from prowess.jsontypes import Json, JsonObject, uncollected
from prowess.settings.credentials import Caller, Credentials, Refused
from prowess.settings.settings import Settings

__all__ = [
    "ENVELOPE_VERSION",
    "Engine",
    "EnvelopeError",
    "Others",
    "Request",
    "diagnostics",
    "finish",
    "invoke",
    "is_rfc3339",
]

ENVELOPE_VERSION: Final = "1.0.0"

_log = logging.getLogger("prowess.envelope")
_NUMBER: Final = r"(0|[1-9][0-9]*)"  # as semantic versioning has it: no leading zeros
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_AUTH_TYPES: Final = ("bearer", "api_key", "basic", "none")
_STATUS: Final[Mapping[str, tuple[str, int]]] = {
    "ok": ("success", 200),
    "input": ("error", 422),
    "failed": ("error", 500),
    "crashed": ("error", 500),
    "input_required": ("error", 500),
    "retryable": ("retry", 503),
    "busy": ("retry", 503),
    "timeout": ("error", 504),
    "output": ("error", 502),
    "unknown": ("error", 404),
}
_MOST_LENGTH: Final = 200
"""Characters of a status message; the errors have the whole text."""
_MOST_LOGGED: Final = 2000
"""Characters of a message in the log: clients may have sent any number of them."""


class EnvelopeError(Exception):
    """A request that cannot be served: all problems, the status, and the id if it was readable."""

    def __init__(
        self, code: str, http: int, problems: list[JsonObject], request_id: str = "", trace_id: str = ""
    ) -> None:
        super().__init__("; ".join(str(problem["message"]) for problem in problems))
        self.code = code
        self.http = http
        self.problems = problems
        self.request_id = request_id
        self.trace_id = trace_id


# Reading


def is_rfc3339(text: str) -> bool:
    """Whether a text is a valid time of RFC 3339, including leap seconds."""
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
        try:
            moment += -shift if offset[0] == "+" else shift
        except OverflowError:  # in the first or the last hours of the calendar
            return False
    return (moment.hour, moment.minute) == (23, 59)


def _is_time(text: str) -> str:
    if not is_rfc3339(text):
        raise ValueError
    return text


class _Auth(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    type: str
    token: str = ""
    scopes: list[str] = Field(default_factory=list[str])


class Request(BaseModel):
    """A parsed request."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str
    version: Annotated[str, StringConstraints(pattern=f"^{_VERSION.pattern}$")]
    timestamp: Annotated[str, AfterValidator(_is_time)]
    tool: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./\-]+$")]
    payload: JsonObject
    trace_id: Annotated[str, StringConstraints(min_length=1)] = ""
    context: JsonObject = Field(default_factory=dict[str, Any])
    metadata: JsonObject = Field(default_factory=dict[str, Any])
    auth: _Auth = Field(default=_Auth(type="none"), repr=False)
    set_aside: tuple[str, ...] = ()
    """Paths of members of a higher minor version, which are ignored."""

    @property
    def scopes(self) -> frozenset[str] | None:
        """The scopes that the caller limits itself to. `None` means no limit; an empty set gives up all of them."""
        return frozenset(self.auth.scopes) if "scopes" in self.auth.model_fields_set else None

    def refusal(self, code: str, http: int, text: str, path: str) -> EnvelopeError:
        """The error for a parsed request that cannot be served."""
        return EnvelopeError(code, http, [_problem(code, text, path)], self.id, self.trace_id)


_EXPECTED: Final[Mapping[str, str]] = {
    "version": f"like {ENVELOPE_VERSION}",
    "timestamp": "RFC 3339 like 2026-01-31T12:00:00Z",
    "tool": "letters, digits, dots, slashes, hyphens and underscores",
    "trace_id": "at least one character (leave it out if there is none)",
    "auth.type": f"one of {', '.join(_AUTH_TYPES)}",
}
_TYPES: Final[Mapping[str, str]] = {
    "string_type": "a string",
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "an array of strings",
}


def _parsed(request: bytes | str | Mapping[str, Any]) -> JsonObject:
    """The message as a JSON object, from text or from a mapping."""
    try:
        text = request if isinstance(request, (bytes, str)) else json.dumps(dict(request), ensure_ascii=False)
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        with uncollected():
            message: Any = json.loads(text, parse_constant=_no_constant, parse_int=_whole)
        # Escapes can contain lone surrogates, and 1e999 becomes infinite: neither could be sent on.
        json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        problem = _problem("not_json", f"the request is not JSON: {_brief(error)}", "")
        raise _refusal(_salvaged(request), "not_json", 422, problem) from error
    if not isinstance(message, dict):
        text = f"a request must be an object, not {_shown(message)}"
        raise EnvelopeError("malformed", 422, [_problem("malformed", text, "")])
    return cast("JsonObject", message)


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python reads no integer of more than 4300 digits
        msg = f"an integer of {len(digits)} digits is too long; send it as a string"
        raise ValueError(msg) from None


def _salvaged(request: bytes | str | Mapping[str, Any]) -> JsonObject:
    """The id and the trace of an otherwise malformed request, because the caller waits for the id."""
    try:
        message: Any = dict(request) if isinstance(request, Mapping) else json.loads(request, parse_int=str)
    except (TypeError, ValueError, RecursionError):
        return {}
    found = cast("JsonObject", message) if isinstance(message, dict) else {}
    return {name: value for name in ("id", "trace_id") if isinstance(value := found.get(name), str) and _is_utf8(value)}


def _is_utf8(text: str) -> bool:
    return text == text.encode(errors="ignore").decode()


def _check_major(message: JsonObject) -> None:
    """Refuse another major version first, because its members may have other meanings."""
    version = message.get("version")
    numbers = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if numbers is not None and numbers[1] != "1":
        text = f"version: {_shown(version)} is not supported; this side speaks {ENVELOPE_VERSION}"
        raise _refusal(message, "unsupported_version", 422, _problem("unsupported_version", text, "version"))


def _read(message: JsonObject) -> Request:
    """Parse the request. Unknown members are ignored in a higher minor version, and an error in ours."""
    additions = _additions(message)
    version = message.get("version")
    numbers = _VERSION.fullmatch(version) if isinstance(version, str) else None
    problems = [_unknown(path) for path in additions] if numbers is None or numbers[2] == "0" else []
    try:
        request = Request.model_validate({**message, "set_aside": additions})
    except ValidationError as error:
        problems = [*map(_mismatch, error.errors(include_url=False)), *problems]
    else:
        if not problems:
            return request
    raise _refusal(message, "malformed", 422, *problems)


def _additions(message: JsonObject) -> tuple[str, ...]:
    """The paths of members that version 1.0 does not have."""
    unknown = sorted(message.keys() - (Request.model_fields.keys() - {"set_aside"}))
    auth = message.get("auth")
    kind = cast("JsonObject", auth).get("type") if isinstance(auth, dict) else None
    return (*unknown, *(["auth.type"] if isinstance(kind, str) and kind not in _AUTH_TYPES else ()))


def _unknown(path: str) -> JsonObject:
    if path == "auth.type":
        return _problem("wrong_value", f"{path}: expected {_EXPECTED[path]}", path)
    return _problem("unknown_member", f"{_shown(path)[1:-1]}: version {ENVELOPE_VERSION} has no such member", path)


def _mismatch(error: ErrorDetails) -> JsonObject:
    """One problem. It never shows values of `auth`, which contain a secret."""
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return _problem("missing", f"{path}: required", path)
    expected = _TYPES.get(error["type"]) or _EXPECTED[path]
    got = "" if error["loc"][0] == "auth" else f", got {_shown(error['input'])}"
    code = "wrong_type" if error["type"] in _TYPES else "wrong_value"
    return _problem(code, f"{path}: expected {expected}{got}", path)


def _refusal(message: JsonObject, code: str, http: int, *problems: JsonObject) -> EnvelopeError:
    """The error for a message, with its id and trace if they are readable."""
    request_id, trace_id = (value if isinstance(value := message.get(name), str) else "" for name in ("id", "trace_id"))
    return EnvelopeError(code, http, list(problems), request_id, trace_id)


# Invoking


class Engine(Protocol):
    """Runs commands: a `Runtime` in this process, or a project of the host with its workers.

    An engine that shares its requests with other processes has them as the attribute `others`.
    """

    @property
    def settings(self) -> Settings:
        """The settings of the project, with the credentials."""
        ...

    @property
    def offers_tasks(self) -> bool:
        """Whether calls may continue in the background, with the result fetched later."""
        ...

    async def contract_of(self, command: str) -> Contract | None:
        """The contract of the command with a name."""
        ...

    def catalog(self) -> Catalog:
        """All contracts and all failures."""
        ...

    async def call(self, command: str, arguments: Any = None, *, channel: Channel | None = None) -> Outcome:
        """Call a command. Always returns an outcome."""
        ...


class Others(Protocol):
    """Other processes with the same work: each can answer for the background work of one that is gone."""

    @property
    def mark(self) -> str:
        """The beginning of the handles of this process."""
        ...

    async def accepted(self, handle: str, owner: Caller, command: str, on_lost: Callable[[], None]) -> None:
        """Register work before its handle is returned to the caller. `on_lost` is called if the others have given it up."""
        ...

    def over(self, handle: str, response: JsonObject) -> None:
        """Store the response of work that has ended."""
        ...

    async def settle(self, handle: str) -> None:
        """Return when the others have the response of ended work."""
        ...

    async def find(self, handle: str, owner: Caller) -> tuple[str, JsonObject] | None:
        """The command and the response of work of a process that is gone. Raises `ProwessError` if that is not certain."""
        ...


async def invoke(
    engine: Engine,
    request: bytes | str | Mapping[str, Any],
    caller: Caller | None = None,
    *,
    client: Hashable = None,
) -> JsonObject:
    """Serve one request. Returns a valid response envelope even for a malformed request.

    A `caller` was authenticated before; without one, the credentials in the request are checked. On a server without
    credentials, background work counts for the `client`, for example its address.
    """
    return await _desk(engine).serve(request, caller, client)


def diagnostics(engine: Engine) -> dict[str, int]:
    """The numbers of refused and failed requests of this engine, by error code."""
    return dict(_desk(engine).counts)


async def finish(engine: Engine) -> None:
    """Wait for all accepted work in the background."""
    await asyncio.gather(*_desk(engine).running, return_exceptions=True)


_desks: weakref.WeakKeyDictionary[Engine, _Desk] = weakref.WeakKeyDictionary()


def _desk(engine: Engine) -> _Desk:
    if engine not in _desks:
        _desks[engine] = _Desk(engine)
    return _desks[engine]


@frozen
class _Accepted:
    """A detached call."""

    task: asyncio.Task[JsonObject]
    command: str


class _Desk:
    """The envelopes of one engine: credentials, counts, and work in the background."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Engine = weakref.proxy(engine)
        self._credentials = Credentials.of(engine.settings)
        self._others: Others | None = getattr(engine, "others", None)
        self._handles: Handles[_Accepted] = Handles(mark=self._others.mark if self._others is not None else "")
        self.counts: Counter[str] = Counter()

    @property
    def running(self) -> list[asyncio.Task[JsonObject]]:
        return [work.task for work in self._handles.works() if not work.task.done()]

    async def serve(self, raw: bytes | str | Mapping[str, Any], caller: Caller | None, client: Hashable) -> JsonObject:
        started = time.perf_counter()
        try:
            # The order of these checks is a guarantee: without credentials, a caller learns nothing about tools.
            message = _parsed(raw)
            _check_major(message)
            known = self._authenticate(message) if caller is None else caller
            return await self._serve(_read(message), known, client, started)
        except EnvelopeError as error:
            self._note(error.code, error.trace_id, str(error))
            return _response(error.request_id, "error", error.http, str(error), started, errors=error.problems)

    async def _serve(self, request: Request, caller: Caller, client: Hashable, started: float) -> JsonObject:
        if request.metadata.get("handle") is not None:
            return await self._ask_again(request, caller, started)
        command = await self._find(request)
        self._authorize(request, caller, command)
        detached = request.metadata.get("wait") is False
        if detached and not self._engine.offers_tasks:
            text = "metadata.wait: several processes serve this address, and the next request may reach another one; leave it out"
            raise request.refusal("cannot_detach", 422, text, "metadata.wait")
        work = self._run(request, caller, command, started)
        if detached:
            accepted = _Accepted(asyncio.ensure_future(work), command)
            return await self._accept(request, accepted, caller, client if caller.is_anybody else caller, started)
        return await work

    async def _find(self, request: Request) -> str:
        """The id of the command in the request. Case is ignored if there is no exact match."""
        contract = await self._engine.contract_of(request.tool)
        if contract is not None and contract.is_tool:
            return contract.id
        folded = request.tool.replace("/", ".").casefold()
        catalog = self._engine.catalog()
        near = [item.id for item in catalog.tools if folded in {name.casefold() for name in (item.id, *item.aliases)}]
        if len(near) != 1:
            skill = folded.partition(".")[0]
            broken = [
                failure.reason for failure in catalog.failures if failure.source.partition(".")[0].casefold() == skill
            ]
            text = "; ".join([f"unknown tool: {request.tool}", *(f"{skill} does not load: {why}" for why in broken)])
            raise request.refusal("unknown_tool", 404, text, "tool")
        return near[0]

    def _authenticate(self, message: JsonObject) -> Caller:
        try:
            return self._credentials.authenticate(message.get("auth"))
        except Refused as refused:
            problem = _problem(refused.code, str(refused), "auth")
            raise _refusal(message, refused.code, refused.http, problem) from refused

    def _authorize(self, request: Request, caller: Caller, command: str) -> None:
        try:
            self._credentials.authorize(caller, command, request.scopes)
        except Refused as refused:
            raise request.refusal(refused.code, refused.http, str(refused), "auth") from refused

    async def _run(self, request: Request, caller: Caller, command: str, started: float) -> JsonObject:
        channel = Channel(
            trace_id=request.trace_id,
            metadata=request.metadata,
            context=request.context,
            scopes=caller.partition,
            caller=caller,
        )
        outcome = await self._engine.call(command, request.payload, channel=channel)
        if not outcome.ok:
            self._note(outcome.kind, request.trace_id, f"{command}: {outcome.text}")
        return _of_outcome(request, outcome, started)

    # In the background

    async def _accept(
        self, request: Request, work: _Accepted, caller: Caller, client: Hashable, started: float
    ) -> JsonObject:
        """Accept work, whose response can be fetched with the handle."""
        try:
            handle = self._handles.add(work, caller, client)
        except TooMuchWork as error:  # the task has not started
            work.task.cancel()
            headers = {"Retry-After": str(error.seconds)}
            problem = _problem("busy", str(error), "metadata.wait")
            return self._busy(request, problem, started, 429 if error.own else 503, headers)
        # First, because the caller may go away while the others hear of it.
        work.task.add_done_callback(partial(self._over, handle))
        if self._others is not None:
            await self._others.accepted(handle, caller, work.command, partial(self._lose, handle, work))
        return self._still(request, handle, started)

    def _busy(
        self, request: Request, problem: JsonObject, started: float, http: int = 503, headers: Any = None
    ) -> JsonObject:
        """The response to a request that may succeed later."""
        text, about = problem["message"], _about(request)
        self._note("busy", request.trace_id, text)
        return _response(request.id, "retry", http, text, started, errors=[problem], headers=headers, metadata=about)

    def _over(self, handle: str, task: asyncio.Task[JsonObject]) -> None:
        response = None if task.cancelled() or task.exception() else task.result()
        self._handles.over(handle, 0 if response is None else len(json.dumps(response)))
        if self._others is not None and response is not None:
            self._others.over(handle, response)

    def _lose(self, handle: str, work: _Accepted) -> None:
        """End work that the others have given up."""
        work.task.cancel()
        self._handles.drop(handle)

    def _still(self, request: Request, handle: str, started: float) -> JsonObject:
        text = "the work still runs; ask again with the handle in metadata"
        return _response(
            request.id, "accepted", 202, text, started, output={"handle": handle}, metadata=_about(request)
        )

    async def _ask_again(self, request: Request, caller: Caller, started: float) -> JsonObject:
        handle = request.metadata["handle"]
        work = self._handles.get(handle, caller)
        if work is None and self._others is not None and isinstance(handle, str):
            try:
                found = await self._others.find(handle, caller)
            except ProwessError:  # which may have an internal address
                text = "the process that has this handle cannot be asked; try again"
                return self._busy(request, _problem("busy", text, "metadata.handle"), started)
            if found is not None:
                self._authorize(request, caller, found[0])
                return {**found[1], "id": request.id, "timestamp": _now()}
        if work is None:
            raise request.refusal("unknown_handle", 404, f"unknown handle: {_shown(handle)}", "metadata.handle")
        self._authorize(request, caller, work.command)
        if not work.task.done():
            return self._still(request, cast("str", handle), started)
        if self._others is not None:
            await self._others.settle(cast("str", handle))
        return {**await work.task, "id": request.id, "timestamp": _now()}

    def _note(self, code: str, trace_id: str, text: str) -> None:
        self.counts[code] += 1
        _log.warning("%s (trace %s): %s", code, trace_id[:_MOST_LENGTH] or "-", text[:_MOST_LOGGED])


# Writing


def _of_outcome(request: Request, outcome: Outcome, started: float) -> JsonObject:
    code, http = _STATUS.get(outcome.kind, ("error", 500))
    if outcome.kind == "worker_lost" and outcome.retry_after is not None:  # trying again is safe
        code, http = "retry", 503
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


def _output(outcome: Outcome) -> Json:
    """The unboxed value; for content without data, its blocks."""
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
        status["message"] = shortened(message, _MOST_LENGTH)
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
    """The path of a problem, from the root of the envelope."""
    name = problem.partition(": ")[0]
    return "payload" if name == "arguments" else f"payload.{name}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    return shortened(json.dumps(value), 60)


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
