"""The registry of everything that adds to Prowess: pluggy, asked one plugin at a time, so that none can hide another."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any, cast

import pluggy

from prowess import hookspecs
from prowess.catalog import Failure
from prowess.errors import LoadError, ProwessError, did_you_mean

__all__ = ["Plugins", "failure_of", "place_of_error"]

_GROUP = "prowess.skills"


class Plugins:
    """Plugins by name, in the order they came."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager("prowess")
        self._manager.add_hookspecs(hookspecs)
        self._known = {name for name in vars(hookspecs) if name.startswith("prowess_")}

    def register(self, plugin: object, name: str) -> None:
        """Add a plugin. A hook that does not exist, or takes other arguments, is a `LoadError` and adds nothing."""
        try:
            self._manager.register(plugin, name)
        except pluggy.PluginValidationError as error:
            self.unregister(name)
            raise LoadError(f"plugin {name}: {str(error).splitlines()[-1]}") from error
        for unknown in self._unknown_hooks(plugin):
            self.unregister(name)
            raise LoadError(f"plugin {name}: there is no hook {unknown}{did_you_mean(unknown, self._known)}")

    def unregister(self, name: str) -> None:
        """Take a plugin out, if it is there."""
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)

    def each(self, hook: str, *, plugin: str | None = None) -> Iterator[tuple[str, Callable[..., Any]]]:
        """The implementations of a hook, each with the name of its plugin; the caller says what a failure means."""
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        for impl in reversed(caller.get_hookimpls()):
            if plugin is None or impl.plugin_name == plugin:
                yield impl.plugin_name, _taking(impl)

    def has(self, hook: str) -> bool:
        """Whether anybody implements a hook: what nobody watches costs nothing."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def _unknown_hooks(self, plugin: object) -> list[str]:
        callers = self._manager.get_hookcallers(plugin) or []
        return [caller.name for caller in callers if caller.name not in self._known]


def installed() -> Iterator[tuple[str, Callable[[], object]]]:
    """The installed skill packages by name, in order, each with what loads it."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - 25 ms, not on the way to the first answer

    for entry in sorted(entry_points(group=_GROUP), key=lambda item: item.name):
        yield entry.name, entry.load


def _taking(impl: pluggy.HookImpl) -> Callable[..., Any]:
    """An implementation that may be given every argument of its hook, and takes those it names."""

    def call(**given: Any) -> Any:
        return impl.function(*(given[name] for name in impl.argnames))

    return call


def failure_of(error: BaseException, *, source: str, file: str | None = None) -> Failure:
    """An exception as an entry of the catalog: with the innermost place inside the skill's own file."""
    if isinstance(error, LoadError):
        return Failure(source, error.reason, error.file or file, error.line)
    place = place_of_error(error, file)
    line = getattr(error, "line", None) or (place[1] if place else None)
    reason = str(error) if isinstance(error, ProwessError) else f"{type(error).__name__}: {_message(error)}"
    return Failure(source, reason, getattr(error, "file", None) or (place[0] if place else file), line)


def place_of_error(error: BaseException, file: str | None) -> tuple[str, int] | None:
    """The last line of a file that an exception came through; for a syntax error, the line at fault."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 1
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return (frames[-1].filename, cast("int", frames[-1].lineno)) if frames else None


def _message(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)
