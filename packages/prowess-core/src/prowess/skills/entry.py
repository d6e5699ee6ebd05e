"""Makes a plan callable: composes its policies once. The only module that turns exceptions into outcomes."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from pydantic_core import from_json, to_json

from prowess.calls.advice import advice
from prowess.calls.arguments import changeable, copies, positional
from prowess.calls.channel import Arguments, Call, Channel, Withdrawn
from prowess.calls.execution import is_cancellation, runner
from prowess.calls.outcome import Kind, Outcome
from prowess.calls.policies import (
    Backoff,
    Cache,
    Expired,
    Sharing,
    Step,
    cache_key,
    is_named,
    with_cache,
    with_concurrency,
    with_deadline,
    with_retry,
)
from prowess.calls.threads import Raised, Threads
from prowess.calls.tracebacks import first_notes, shortened
from prowess.contracts.declaration import MOST
from prowess.contracts.declaration import is_async as declaration_is_async
from prowess.contracts.kinds import KINDS
from prowess.contracts.uris import parse_template
from prowess.errors import (
    AskError,
    InputError,
    InputRequired,
    MissingCapability,
    NothingThere,
    OutputError,
    SettingsError,
    SkillError,
    message_of,
    named_error,
)
from prowess.hookspecs import CallInfo
from prowess.injection.call_scope import CallScope
from prowess.injection.injectables import Injectables
from prowess.plugins import Plugins
from prowess.profiles.profile import Profile
from prowess.results.entries import lost_entry
from prowess.results.kinds import NORMALIZERS
from prowess.results.normalize import Result, normalize, says_the_same, text_result
from prowess.settings.settings import Settings
from prowess.skills.compile import Plan

__all__ = ["Entry", "Services"]

_log = logging.getLogger("prowess")
_DIFFERS: Final = (
    "the text of the result differs from its structured content, and a client shows the model only one of them; "
    "put the same data in both, or return only one"
)
_UNLIKE: Final = (
    "cache_ttl has no effect for arguments with an object of the class {}, because such objects cannot be compared; "
    "let pickle read their state (`__reduce__` or `__getstate__`), or drop cache_ttl"
)
_LONGEST: Final = 365 * 86400
"""Seconds that other hosts may use a result without an expiry."""
_MOST_SHOWN: Final = 5
"""Exceptions of a group that a message names."""
_NO_ARGUMENTS: Final = Arguments({})
_FOR_THE_MODEL: Final = (AskError, MissingCapability, SettingsError)


@dataclass(slots=True, eq=False, repr=False)  # both would take time at every start, and nobody uses them
class Services:
    """The objects that all calls of a runtime share."""

    root: Path
    settings: Settings
    injectables: Injectables
    plugins: Plugins
    profiles: dict[str, Profile]
    threads: Threads
    timer: Callable[[], float] = time.monotonic
    fingerprint: Callable[[str], str] = str
    """Returns a digest of the code that the results of a skill depend on; empty if that is unknown."""


class Entry:
    """One command, resource or prompt of a runtime, ready to be called."""

    def __init__(self, plan: Plan, services: Services) -> None:
        self.plan = plan
        self.contract = plan.contract
        self._services = services
        self._may_ask = not (plan.declaration.cache_ttl or plan.declaration.retry_on)
        self._step = self._compose()
        self.may_wait = bool(plan.declaration.cache_ttl) or plan.declaration.concurrency is not None
        """Whether a call may have to wait for its turn before the command runs."""
        self._text_differed = self._told_of_unlike = False
        self._fingerprint: str | None = None
        self.completions = {argument: Entry(each, services) for argument, each in plan.completions.items()}
        """The completing functions by argument."""

    def call(self, arguments: object, channel: Channel | None = None) -> Coroutine[Any, Any, Outcome]:
        """Call with JSON data. Returns an outcome even for malformed arguments."""
        return self._call(channel, self._read, arguments)

    def complete(
        self, argument: str, typed: Mapping[str, Any], channel: Channel | None = None
    ) -> Coroutine[Any, Any, Outcome]:
        """Complete an argument. `typed` is the `value` so far, and the other `arguments`."""
        entry = self.completions[argument]
        first, *others = entry.plan.reader.allowed
        given: Mapping[str, Any] = typed.get("arguments") or {}
        known = {name: given.get(name, "") for name in others if name in given or name not in entry.plan.defaults}
        return entry.call({**known, first: typed.get("value", "")}, channel)

    def call_python(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, Outcome]:
        """Call like a Python function: arguments may be instances, and a passed injected parameter wins."""
        return self._call(None, self._bound, args, kwargs)

    def _read(self, arguments: object) -> Arguments:
        decoded: list[str] = []
        values = self.plan.reader.from_json(arguments, decoded)
        return Arguments(values, decoded=tuple(decoded))

    async def _call(self, channel: Channel | None, read: Callable[..., Arguments], *sent: Any) -> Outcome:
        call = Call(self.contract.id, _NO_ARGUMENTS, channel, may_ask=self._may_ask)
        try:
            call.arguments = read(*sent)
            if self.contract.uri:
                call.uri = self._uri(call)
            if self._services.plugins.watch_calls:
                return await self._observed(call)
            return self._outcome_of(await self._step(call), call)
        except BaseException as error:  # noqa: BLE001 - the boundary
            outcome = self._failed(error, call)
            if self._services.plugins.watch_calls:  # `_observed` turns it into an outcome
                self._call_hook("prowess_call_refused", call=self._info(call), outcome=outcome)
            return outcome
        finally:
            call.over = True

    def _outcome_of(self, result: Result, call: Call) -> Outcome:
        if result.is_error:
            return self._outcome("failed", _masked(result, call), call)
        return self._outcome("ok", result, call)

    # Observing plugins

    async def _observed(self, call: Call) -> Outcome:
        """Run the call, wrapped by the plugins."""
        info = self._info(call)
        self._call_hook("prowess_call_started", call=info)
        unused = [call]

        async def run() -> Outcome:
            mine = unused.pop() if unused else call.again()
            try:
                return self._outcome_of(await self._step(mine), mine)
            except BaseException as error:  # noqa: BLE001 - a wrapper is shown outcomes, not exceptions
                return self._failed(error, mine)
            finally:
                mine.over = mine is not call  # `_call` ends that one

        proceed: Callable[[], Awaitable[Outcome]] = run
        for name, wrap in reversed(list(self._services.plugins.each("prowess_wrap_call"))):
            proceed = _wrapped(name, wrap, info, proceed)
        try:
            outcome = await proceed()
        except BaseException as error:  # noqa: BLE001 - a wrapper's failure is this call's outcome
            outcome = self._failed(error, call)
        self._call_hook("prowess_call_finished", call=info, outcome=outcome)
        return outcome

    def _call_hook(self, hook: str, **facts: Any) -> None:
        for name, observe in self._services.plugins.each(hook):
            try:
                observe(**facts)
            except BaseException:  # noqa: BLE001 - an observer must not affect the call, not even by an exit
                _log.exception("plugin %s failed in %s", name, hook)

    def _info(self, call: Call) -> CallInfo:
        channel = call.channel
        return CallInfo(
            command=self.contract.id,
            call_id=call.id,
            arguments=dict(call.arguments.named),
            client_name=channel.client_name,
            trace_id=channel.trace_id,
            kind=self.contract.kind,
            uri=call.uri,
            wire_name=self.contract.wire_name,
            protocol_version=channel.wire.get("protocol", ""),
            transport=channel.wire.get("transport", ""),
            request_id=channel.request_id,
            trace_context=channel.trace_context,
        )

    def _uri(self, call: Call) -> str:
        """The URI of the call: the caller's, else one made from the arguments."""
        return call.channel.uri or parse_template(self.contract.uri).expand(call.arguments.named)

    def _report_retry(self, call: Call, attempt: int, error: BaseException) -> None:
        call.why_late = f"; attempt {attempt} failed: {named_error(error)}{_inside(error)}"
        if self._services.plugins.watch_calls:
            self._call_hook("prowess_call_retried", call=self._info(call), attempt=attempt, error=error)

    # From exceptions to outcomes

    def _failed(self, error: BaseException, call: Call) -> Outcome:
        """The outcome for any exception, except for a real cancellation."""
        if isinstance(error, InputRequired):
            return self._outcome("input_required", text_result(str(error)), call, questions=error.questions)
        if isinstance(error, Withdrawn) or is_cancellation(error):
            raise error
        try:
            kind, text, facts = self._diagnosis(error, call)
        except Exception as odd:  # noqa: BLE001 - an exception of the author may raise others when it is looked at
            kind, text, facts = self._crash(odd, call, "crashed")
        return self._outcome(kind, Result(text=call.shown(text), is_error=True), call, **facts)

    def _diagnosis(self, error: BaseException, call: Call) -> tuple[Kind, str, dict[str, Any]]:
        """The kind of failure and the message for an exception."""
        if isinstance(error, InputError):
            return "input", str(error), {"problems": tuple(error.problems)}
        if isinstance(error, Expired):
            if error.__cause__ is not None:
                trace = call.shown(shortened(error.__cause__))
                _log.warning(
                    "%s raised an exception after its time was up (call %s)\n%s", self.contract.id, call.id, trace
                )
            return "timeout", f"{self.contract.id} {error}{call.why_late}", {}
        if isinstance(error, OutputError):
            _log.error("%s (call %s): %s", self.contract.id, call.id, call.shown(str(error)))
            return "output", f"{self.contract.id}: {error}", {}
        if isinstance(error, NothingThere):
            return "unknown", f"{self.contract.id}: {error}", {}
        if not isinstance(error, Raised):
            return self._raised(error, call, retried=False)
        retried = call.attempts > 0 and is_named(error.error, self.plan.declaration.retry_on)
        return self._raised(error.error, call, retried=retried)

    def _raised(self, error: BaseException, call: Call, *, retried: bool) -> tuple[Kind, str, dict[str, Any]]:
        """The same for an exception of the command, a provider or a plugin."""
        error = _as_one(error)
        if isinstance(error, SkillError):
            kind: Kind = "retryable" if retried or error.retryable else "failed"
            facts = {"data": call.shown_data(_as_json(error.data)), "retry_after": _seconds(error.retry_after)}
            return kind, message_of(error) or type(error).__name__, facts
        if isinstance(error, _FOR_THE_MODEL):
            missing = error.name if isinstance(error, MissingCapability) else None
            return "failed", str(error), {"missing_capability": missing}
        return self._crash(error, call, "retryable" if retried else "crashed")

    def _crash(self, error: BaseException, call: Call, kind: Kind) -> tuple[Kind, str, dict[str, Any]]:
        _log.error("%s crashed (call %s)\n%s", self.contract.id, call.id, call.shown(shortened(error)))
        tries = f" after {call.attempts} attempts" if call.attempts > 1 else ""
        notes = "".join(f" ({note})" for note in first_notes(error))
        said = f"{named_error(error)}{_inside(error)}{notes}"
        help_ = advice(error)
        said = f"{said.removesuffix('.')}. {help_}" if help_ else said
        return kind, f"{said}{tries} (call {call.id})", {}

    def _outcome(self, kind: Kind, result: Result, call: Call, **facts: Any) -> Outcome:
        return Outcome(
            command=self.contract.id,
            kind=kind,
            result=result,
            contract=self.contract,
            attempts=max(call.attempts, 1),
            cached=call.cached,
            duration=time.perf_counter() - call.started,
            call_id=call.id,
            decoded=call.arguments.decoded,
            profiles=self._services.profiles,
            uri=call.uri,
            **facts,
        )

    # The steps of a call, innermost first

    def _compose(self) -> Step:
        declared, own = self.plan.declaration, self._services.settings.own
        attempt = self._attempt()
        if declared.retry_on and declared.max_attempts > 1:
            backoff = Backoff(own.retry.initial, own.retry.maximum)
            attempt = with_retry(attempt, declared.retry_on, declared.max_attempts, backoff, self._report_retry)
        step = self._normalized(attempt)
        if self.plan.needs:
            step = self._injected(step)
        if declared.concurrency is not None:
            step = with_concurrency(step, declared.concurrency)
        usual = KINDS[declared.kind].default_timeout or own.timeout
        seconds = declared.timeout if declared.timeout is not None else usual
        if not declared.cache_ttl:
            return with_deadline(step, seconds)
        cache = Cache(declared.cache_ttl, own.cache_bytes, self._services.timer)
        sharing = Sharing(self._shared_key, int(min(declared.cache_ttl, _LONGEST)))
        abandoned = self._services.threads.abandoned
        return with_cache(step, cache, self._cache_key, seconds, abandoned=abandoned, sharing=sharing)

    def _attempt(self) -> Callable[[Call], Awaitable[Any]]:
        declared, signature, only = self.plan.declaration, self.plan.signature, self.plan.positional_only
        repeats = bool(declared.retry_on) and declared.max_attempts > 1
        # Positional arguments must have no gaps. Defaults are copied, because the function may change them.
        passed = {name: value for name, value in self.plan.defaults.items() if name in only or changeable(value)}
        run = runner(
            signature.style,
            declared.function,
            self._services.threads,
            thread=declared.thread is not False,
            final=signature.final,
        )

        def attempt(call: Call) -> Awaitable[Any]:
            call.attempts += 1
            given = call.arguments
            named, further = given.named, [*given.extra_args]
            if repeats:
                named, further = copies(named), [*copies(dict(enumerate(further))).values()]
            if not passed and not only:
                return run(call, further, {**named, **call.provided})
            defaults = copies({name: value for name, value in passed.items() if name not in named})
            args, kwargs = positional(only, {**defaults, **named, **call.provided})
            return run(call, [*args, *further], kwargs)

        return attempt

    def _normalized(self, attempt: Callable[[Call], Awaitable[Any]]) -> Step:
        output, render = self.plan.output, self._render
        into_result = NORMALIZERS.get(self.contract.kind, normalize)

        async def run(call: Call) -> Result:
            result = into_result(await attempt(call), output, render)
            if result.whole and not self._text_differed and not says_the_same(result):
                self._text_differed = True
                _log.warning("%s: %s", self.contract.id, _DIFFERS)
            return result

        return run

    def _injected(self, step: Step) -> Step:
        services, needs, declared = self._services, self.plan.needs, self.plan.declaration
        is_async = declaration_is_async(declared.function)
        inline = declared.thread is False

        async def run(call: Call) -> Result:
            async with CallScope(
                services.injectables, call, services.threads, services.root, inline=inline, is_async=is_async
            ) as scope:
                await scope.fill(needs)
                return await step(call)
            raise AssertionError  # pragma: no cover - a scope never suppresses exceptions

        return run

    def _render(self, value: Any) -> Any:
        """Let the plugins convert a value of an undeclared type."""
        for name, render in self._services.plugins.each("prowess_render"):
            try:
                rendered = render(value=value)
            except BaseException as error:
                _log.exception("plugin %s failed in prowess_render", name)
                msg = f"plugin {name} could not render a {type(value).__qualname__}: {named_error(error)}"
                raise OutputError(msg) from error
            if rendered is not None:
                return rendered
        return value

    def _cache_key(self, call: Call) -> Any:
        given = call.arguments
        unlike: list[str] = []
        values = {**given.named, "*": given.extra_args}
        key = cache_key(self.plan.reader.canonical(values, self.plan.defaults, unlike))
        if unlike and not self._told_of_unlike:
            self._told_of_unlike = True
            _log.warning("%s: %s", self.contract.id, _UNLIKE.format(unlike[0]))
        return (key, call.channel.scopes) if call.channel.scopes else key

    async def _shared_key(self, call: Call, key: Hashable) -> str:
        """The cache key for all hosts with equal code, and callers with equal scopes; empty if the result is not shared."""
        if self._fingerprint is None:
            self._fingerprint = await self._services.threads.run(
                partial(self._services.fingerprint, self.contract.skill)
            )
        if not self._fingerprint:
            return ""
        place = str(self._services.root) if self.plan.needs else ""  # injected objects may depend on the folder
        parts = [self.contract.id, self.contract.digest, self._fingerprint, place, call.uri, key]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    # Direct calls

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """Sort the arguments of a Python call into sent, injected and further positional ones."""
        names = self.plan.positional
        placed, extra = args[: len(names)], args[len(names) :]
        if extra and not self.plan.signature.takes_args:
            problem = f"takes at most {len(names)} positional arguments, got {len(args)}"
            raise InputError(self.contract.id, [problem])
        given = dict(zip(names, placed, strict=False))
        twice = given.keys() & kwargs.keys()
        if twice:
            raise InputError(self.contract.id, [f"{name}: given twice" for name in sorted(twice)])
        given.update(kwargs)
        injected = {name: given.pop(name) for name in self.contract.injected if name in given}
        named, further = self.plan.reader.from_python(given), self.plan.further
        if extra and further is not None:
            (extra,) = further.from_python({self.plan.signature.takes_args: extra}).values()
        return Arguments(named, tuple(extra), injected)


def _wrapped(
    name: str, wrap: Callable[..., Awaitable[Any]], info: CallInfo, proceed: Callable[[], Awaitable[Outcome]]
) -> Callable[[], Awaitable[Outcome]]:
    async def run() -> Outcome:
        outcome: Any = await wrap(call=info, proceed=proceed)
        if not isinstance(outcome, Outcome):
            raise TypeError(
                f"prowess_wrap_call of plugin {name} returned {outcome!r} instead of an Outcome; return `await proceed()`"
            )
        return outcome

    return run


def _leaves(error: BaseException) -> list[BaseException]:
    """The exceptions of a group and of the groups in it; else the exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for part in group.exceptions for leaf in _leaves(part)]


def _as_one(error: BaseException) -> BaseException:
    """A group that consists of `SkillError`, as from tasks that failed together, as one `SkillError`."""
    leaves = _leaves(error)
    said = [leaf for leaf in leaves if isinstance(leaf, SkillError)]
    if leaves == [error] or len(said) < len(leaves):
        return error
    texts = dict.fromkeys(message_of(leaf) or type(leaf).__name__ for leaf in said)
    waits = [seconds for leaf in said if (seconds := _seconds(leaf.retry_after)) is not None]
    data = [leaf.data for leaf in said if leaf.data is not None]
    return SkillError(
        "\n".join(texts),
        retryable=all(leaf.retryable for leaf in said),
        retry_after=max(waits, default=None),
        data=data[0] if len(data) == 1 else data or None,
    )


def _inside(error: BaseException) -> str:
    """The first exceptions of a group, for a message."""
    leaves = _leaves(error)
    if leaves == [error]:
        return ""
    more = len(leaves) - _MOST_SHOWN
    return f": {'; '.join(map(named_error, leaves[:_MOST_SHOWN]))}{f' and {more} more' if more > 0 else ''}"


def _masked(result: Result, call: Call) -> Result:
    """An error of the command with injected secrets masked."""
    if not call.secrets:
        return result
    shown = call.shown_data
    blocks = None if result.blocks is None else tuple(map(shown, result.blocks))
    return replace(result, text=shown(result.text), value=shown(result.value), blocks=blocks, meta=shown(result.meta))


def _as_json(data: Any) -> Any:
    try:
        text = to_json(data, by_alias=True, bytes_mode="base64", inf_nan_mode="strings", fallback=repr)
        return from_json(text) if lost_entry(text) is None else repr(data)
    except Exception:  # noqa: BLE001 - an author's value may raise anything
        return repr(data)


def _seconds(given: Any) -> float | None:
    """`retry_after`, or `None` if it is not a number of seconds that every caller can read."""
    return given if type(given) in (int, float) and 0 <= given <= MOST else None
