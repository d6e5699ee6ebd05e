"""A plan made callable: its policies composed once, and the one place where exceptions become outcomes."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anyio.lowlevel import RunVar

from prowess.arguments import positional
from prowess.call import Arguments, Call, Channel
from prowess.compile import Plan
from prowess.errors import AskError, InputError, InputRequired, OutputError, SettingsError, SkillError
from prowess.execution import BodyError, Threads, runner
from prowess.hookspecs import CallInfo
from prowess.injection import CallScope, Injectables
from prowess.normalize import Render, Result, normalize, text_result
from prowess.outcome import Kind, Outcome
from prowess.plugins import Plugins
from prowess.policies import (
    Backoff,
    Cache,
    Expired,
    Step,
    cache_key,
    with_cache,
    with_concurrency,
    with_deadline,
    with_retry,
)
from prowess.profiles import Profile
from prowess.settings import Settings

__all__ = ["Entry", "Services"]

_log = logging.getLogger("prowess")
_FOR_THE_MODEL: Final = (AskError, SettingsError)


@dataclass(slots=True)
class Services:
    """What every call of a runtime shares."""

    root: Path
    settings: Settings
    injectables: Injectables
    plugins: Plugins
    profiles: dict[str, Profile]
    timer: Callable[[], float] = time.monotonic
    _threads: RunVar[Threads] = field(default_factory=lambda: RunVar("threads"))

    def threads(self) -> Threads:
        """The worker threads of the running event loop."""
        threads = self._threads.get(None)
        if threads is None:
            threads = Threads(self.settings.own.threads)
            self._threads.set(threads)
        return threads


class Entry:
    """One command of a runtime, ready to be called."""

    def __init__(self, plan: Plan, services: Services) -> None:
        self.plan = plan
        self.contract = plan.contract
        self._services = services
        self._step = self._compose()

    async def call(self, arguments: object, channel: Channel | None = None) -> Outcome:
        """Call with JSON data. Whatever the arguments are, this gives an outcome."""
        return await self._call(lambda: Arguments(self.plan.reader.from_json(arguments)), channel or Channel())

    async def call_python(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Outcome:
        """Call like a Python function: instances are welcome, and an injected parameter that is passed wins."""
        return await self._call(lambda: self._bound(args, kwargs), Channel())

    async def _call(self, read: Callable[[], Arguments], channel: Channel) -> Outcome:
        started = time.perf_counter()
        call = Call(self.contract.id, Arguments({}), channel)
        try:
            call.arguments = read()
            return await self._observed(call, started)
        except Exception as error:  # noqa: BLE001 - the boundary: an outcome, whatever happened
            return self._failed(error, call, started)
        except InputRequired as required:
            return self._outcome("input_required", text_result(str(required)), call, started, questions=required.questions)

    async def _observed(self, call: Call, started: float) -> Outcome:
        """The call with the plugins around it, where there are any."""
        plugins = self._services.plugins
        if not any(plugins.has(hook) for hook in ("prowess_call_started", "prowess_call_finished", "prowess_wrap_call")):
            return await self._run(call, started)
        info = self._info(call)
        self._tell("prowess_call_started", call=info)
        proceed: Callable[[], Awaitable[Outcome]] = lambda: self._run(call, started)  # noqa: E731
        for _, wrap in reversed(list(plugins.each("prowess_wrap_call"))):
            proceed = _wrapped(wrap, info, proceed)
        try:
            outcome = await proceed()
        except Exception as error:  # noqa: BLE001 - a wrapper's failure is this call's outcome
            outcome = self._failed(error, call, started)
        self._tell("prowess_call_finished", call=info, outcome=outcome)
        return outcome

    async def _run(self, call: Call, started: float) -> Outcome:
        try:
            result: Result = await self._step(call)
        except InputRequired as required:
            return self._outcome("input_required", text_result(str(required)), call, started, questions=required.questions)
        except Exception as error:  # noqa: BLE001 - the boundary: an outcome, whatever happened
            return self._failed(error, call, started)
        return self._outcome("failed" if result.is_error else "ok", result, call, started)

    def _tell(self, hook: str, **facts: Any) -> None:
        for name, observe in self._services.plugins.each(hook):
            try:
                observe(**facts)
            except Exception:
                _log.exception("plugin %s failed in %s", name, hook)

    def _info(self, call: Call) -> CallInfo:
        arguments = dict(call.arguments.named)
        return CallInfo(self.contract.id, call.id, arguments, call.channel.client_name, call.channel.trace_id)

    # From exceptions to outcomes

    def _failed(self, error: Exception, call: Call, started: float) -> Outcome:
        """Which kind of failure an exception is, and what is said of it."""
        kind, text, facts = self._diagnosis(error, call)
        result = Result(text=call.mask(text), is_error=True)
        return self._outcome(kind, result, call, started, **facts)

    def _diagnosis(self, error: Exception, call: Call) -> tuple[Kind, str, dict[str, Any]]:
        if isinstance(error, InputError):
            return "input", str(error), {"problems": tuple(error.problems)}
        if isinstance(error, Expired):
            return "timeout", f"{self.contract.id} {error}", {}
        if isinstance(error, OutputError):
            _log.error("%s (call %s): %s", self.contract.id, call.id, call.mask(str(error)))
            return "output", f"{self.contract.id}: {error}", {}
        body: BaseException = error.error if isinstance(error, BodyError) else error
        retried = isinstance(body, self.plan.declaration.retry_on)
        if isinstance(body, SkillError):
            facts = {"data": _as_json(body.data), "retry_after": body.retry_after}
            return "retryable" if body.retryable or retried else "failed", body.message, facts
        if isinstance(body, _FOR_THE_MODEL):
            return "failed", str(body), {}
        self._log_crash(body, call)
        tries = f" after {call.attempts} attempts" if call.attempts > 1 else ""
        text = f"{_shown(body)}{tries} (call {call.id})"
        return "retryable" if retried else "crashed", text, {}

    def _log_crash(self, error: BaseException, call: Call) -> None:
        trace = "".join(traceback.format_exception(error))
        _log.error("%s crashed (call %s)\n%s", self.contract.id, call.id, call.mask(trace))

    def _outcome(self, kind: Kind, result: Result, call: Call, started: float, **facts: Any) -> Outcome:
        return Outcome(
            command=self.contract.id,
            kind=kind,
            result=result,
            contract=self.contract,
            attempts=max(call.attempts, 1),
            cached=call.cached,
            duration=time.perf_counter() - started,
            call_id=call.id,
            profiles=self._services.profiles,
            **facts,
        )

    # The way of a call, from the inside out

    def _compose(self) -> Step:
        declared, own = self.plan.declaration, self._services.settings.own
        step = self._attempt()
        if declared.retry_on and declared.max_attempts > 1:
            backoff = Backoff(own.retry.initial, own.retry.maximum)
            step = with_retry(step, declared.retry_on, declared.max_attempts, backoff)
        step = self._normalized(step)
        if self.plan.needs:
            step = self._injected(step)
        if declared.concurrency is not None:
            step = with_concurrency(step, declared.concurrency)
        seconds = declared.timeout if declared.timeout is not None else own.timeout
        if declared.cache_ttl:
            cache = Cache(declared.cache_ttl, own.cache_bytes, self._services.timer)
            step = with_cache(with_deadline(step, seconds), cache, self._cache_key)
        return with_deadline(step, seconds)

    def _attempt(self) -> Callable[[Call], Awaitable[Any]]:
        declared, only = self.plan.declaration, self.plan.positional_only
        run = runner(self.plan.signature.style, declared.function, thread=declared.thread is not False)
        threads = self._services.threads

        async def attempt(call: Call) -> Any:
            call.attempts += 1
            call.may_ask = call.may_ask and not declared.retry_on
            given = call.arguments
            args, kwargs = positional(only, {**given.named, **given.injected})
            return await run(call, threads(), (*args, *given.extra_args), kwargs)

        return attempt

    def _normalized(self, step: Callable[[Call], Awaitable[Any]]) -> Step:
        output, render = self.plan.output, self._render

        async def run(call: Call) -> Result:
            return normalize(await step(call), output, render)

        return run

    def _injected(self, step: Step) -> Step:
        services, needs = self._services, self.plan.needs

        async def run(call: Call) -> Result:
            async with CallScope(services.injectables, call, services.settings, services.root) as scope:
                await scope.fill(needs)
                return await step(call)
            raise AssertionError  # pragma: no cover - a scope never swallows

        return run

    @property
    def _render(self) -> Render | None:
        return self._ask_renderers if self._services.plugins.has("prowess_render") else None

    def _ask_renderers(self, value: Any) -> Any:
        for name, render in self._services.plugins.each("prowess_render"):
            try:
                rendered = render(value=value)
            except Exception as error:
                msg = f"plugin {name} could not render a {type(value).__qualname__}: {_shown(error)}"
                raise OutputError(msg) from error
            if rendered is not None:
                return rendered
        return value

    def _cache_key(self, call: Call) -> Any:
        return cache_key(self.plan.reader.canonical(call.arguments.named, self.plan.defaults))

    # Direct calls

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """Positional and named arguments of a Python call, sorted into sent, injected and further positional ones."""
        names = [item.name for item in self.plan.signature.parameters]
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
        return Arguments(self.plan.reader.from_python(given), extra, injected)


def _wrapped(
    wrap: Callable[..., Awaitable[Outcome]], info: CallInfo, proceed: Callable[[], Awaitable[Outcome]]
) -> Callable[[], Awaitable[Outcome]]:
    return lambda: wrap(call=info, proceed=proceed)


def _shown(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _as_json(data: Any) -> Any:
    try:
        return normalize(data).value
    except OutputError:
        return repr(data)
