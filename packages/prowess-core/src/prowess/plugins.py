"""The registry of plugins: pluggy, asked one plugin at a time, so that a broken plugin cannot hide another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, Final

import pluggy

from prowess import hookspecs
from prowess.contracts.declaration import location_of
from prowess.errors import LoadError, did_you_mean

__all__ = ["Plugins"]

_HOOKS: Final = {name: value for name, value in vars(hookspecs).items() if hasattr(value, "prowess_spec")}
_OBSERVING: Final = (
    *("prowess_call_started", "prowess_call_finished", "prowess_wrap_call"),
    *("prowess_call_refused", "prowess_call_retried"),
)
_FUNCTIONS: Final = (FunctionType, MethodType, classmethod, staticmethod)


class Plugins:
    """Plugins by name, called in the order of their names, with `tryfirst` before and `trylast` after the others."""

    def __init__(self) -> None:
        self._manager = _Manager("prowess")
        self._manager.add_hookspecs(hookspecs)
        self.watch_calls = False
        """Whether any plugin observes or wraps calls. Every call reads this, so it is computed when a plugin comes or goes."""

    def register(self, plugin: object, name: str) -> list[LoadError]:
        """Add a plugin with its valid hooks. Returns the errors of the others."""
        if isinstance(plugin, type):
            raise LoadError(f"the plugin {plugin.__qualname__} is a class; give an instance of it")
        self._manager.refused = []
        try:
            self._manager.register(plugin, name)
        except ValueError as error:
            raise LoadError(
                f"this plugin is registered already, as {self._manager.get_name(plugin) or name}"
            ) from error
        self.watch_calls = any(map(self.has, _OBSERVING))
        return self._manager.refused

    def unregister(self, name: str) -> None:
        """Remove a plugin."""
        self._manager.unregister(name=name)
        self.watch_calls = any(map(self.has, _OBSERVING))

    def each(self, hook: str, *, plugin: str | None = None) -> Iterator[tuple[str, Callable[..., Any]]]:
        """The implementations of a hook, each with the name of its plugin. The caller handles exceptions."""
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        found = [impl for impl in caller.get_hookimpls() if plugin is None or impl.plugin_name == plugin]
        for impl in sorted(found, key=_turn):
            yield impl.plugin_name, _taking(impl)

    def has(self, hook: str, *, beside: str = "") -> bool:
        """Whether any plugin implements a hook, ignoring names that begin with `beside`."""
        names = [impl.plugin_name for impl in getattr(self._manager.hook, hook).get_hookimpls()]
        return any(not (beside and name.startswith(beside)) for name in names)


class _Manager(pluggy.PluginManager):
    """A registry that accepts the valid hooks of a plugin and notes the errors of the others."""

    refused: list[LoadError]

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        if type(inspect.getattr_static(plugin, name, None)) not in _FUNCTIONS:
            return None  # not a function: do not touch it, because a lazy proxy may raise
        options = super().parse_hookimpl_opts(plugin, name)
        problem = _unmarked(plugin, name) if options is None else _problem(plugin, name, options)
        if problem is None:
            return options
        location = location_of(getattr(plugin, name))
        self.refused.append(LoadError(problem, file=location.file, line=location.line))
        return None


def _unmarked(plugin: Any, name: str) -> str | None:
    """The error for a function with the name of a hook but without the decorator."""
    if name not in _HOOKS:
        return None
    if getattr(plugin, name) is _HOOKS[name]:
        return None
    return f"{name} has the name of a hook but lacks @hookimpl; add the decorator"


def _problem(plugin: Any, name: str, options: Mapping[str, Any]) -> str | None:
    """The error in the implementation of a hook, or `None`."""
    hook: str = options.get("specname") or name
    if hook not in _HOOKS:
        if options.get("optionalhook"):
            return None
        return f"there is no hook {hook}{did_you_mean(hook, _HOOKS)}"
    function: Any = getattr(plugin, name)
    if options.get("wrapper") or options.get("hookwrapper"):
        return f"{name} is a hook wrapper, which Prowess ignores; use prowess_wrap_call to wrap a call"
    if inspect.iscoroutinefunction(function) and hook != "prowess_wrap_call":
        return f"{name} is async, but Prowess calls {hook} without await; make it a plain function"
    from prowess.contracts.signature import signature_of

    takes = list(inspect.signature(_HOOKS[hook]).parameters)
    unknown = [item.name for item in signature_of(function).parameters.values() if _must_have(item, takes)]
    if unknown:
        return (
            f"{name} takes {', '.join(unknown)}, but {hook} passes {', '.join(takes)}{did_you_mean(unknown[0], takes)}"
        )
    return None


def _must_have(parameter: inspect.Parameter, given: list[str]) -> bool:
    """Whether a function needs a parameter that the hook does not pass."""
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.name not in given and parameter.default is parameter.empty and not variadic


def _turn(impl: pluggy.HookImpl) -> tuple[int, str]:
    return (0 if impl.tryfirst else 2 if impl.trylast else 1), impl.plugin_name


def _taking(impl: pluggy.HookImpl) -> Callable[..., Any]:
    """A function that takes all arguments of a hook, and passes on those that the implementation names."""

    def call(**given: Any) -> Any:
        more = {name: given[name] for name in impl.kwargnames if name in given}
        return impl.function(*(given[name] for name in impl.argnames), **more)

    return call
