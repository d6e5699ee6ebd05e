"""The injected objects of one call: fills its parameters, and opens and closes the objects that live for one call."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from pydantic import ValidationError

from prowess.calls.channel import Call
from prowess.calls.threads import Inline, Raised, Threads
from prowess.contracts.signature import MISSING
from prowess.errors import SettingsError
from prowess.injection.injectables import Injectables
from prowess.injection.provided import Key, shown
from prowess.injection.recipes import PER_CALL, Need, Recipe, providing
from prowess.injection.scopes import Resources
from prowess.settings.settings import Settings

__all__ = ["CallScope"]

_THREAD: Final = re.compile(r"\bthreads?\b", re.IGNORECASE)


class CallScope:
    """The objects of one call: each is made once, and all are closed in reverse order at the end of the call.

    Sync factories run in one thread, where their objects are also closed, and a sync command runs in the same thread.
    `inline` is for a sync command on the event loop: that is its thread.
    """

    def __init__(
        self, injectables: Injectables, call: Call, threads: Threads, root: Path, *, inline: bool, is_async: bool
    ) -> None:
        self._injectables = injectables
        self._call = call
        self._threads = threads
        self._root = root
        self._inline = inline
        self._is_async = is_async
        self._resources: Resources | None = None
        self._needs: dict[str, Recipe] = {}
        """The recipes by parameter."""
        self._made: dict[Recipe, Any] = {}
        self._on_loop: set[Recipe] = set()
        """The recipes whose objects were opened on the event loop."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, Raised) and self._needs:
            self._explain(error.error)
        if self._resources is None:
            return
        call, lane = self._call, self._call.lane
        call.hang_up()  # a factory may wait for an answer, in a thread
        if isinstance(lane, Inline):
            await self._resources.close(error)
        elif lane.is_abandoned:
            self._injectables.close_later(self._resources, lane, error)
        else:
            try:
                await self._resources.close(error)
            finally:
                call.hang_up()  # so may a clean-up that took too long
                lane.release()

    async def fill(self, needs: Iterable[Need]) -> None:
        """Fill every parameter that the Python caller did not pass. Settings come first: they may be missing, and open nothing."""
        call = self._call
        call.provided = dict(call.arguments.injected)
        for value in call.provided.values():
            self._keep_secret(value)
        recipes: list[tuple[str, Recipe]] = []
        for need in needs:
            if need.parameter in call.provided:
                continue
            found, value = self._at_hand(need)
            if found:
                call.provided[need.parameter] = value
            elif need.source != "provider":
                call.provided[need.parameter] = await self._setting(need)
            else:
                recipes.append((need.parameter, self._injectables.recipe(need.key)))
        if recipes:
            await self._make_all(recipes)

    def _at_hand(self, need: Need) -> tuple[bool, Any]:
        """Whether a parameter has an existing value, and the value."""
        if need.source == "root":
            return True, self._root
        if need.source != "provider":
            return False, None
        found, value = self._injectables.given(need.key)
        if found:
            self._keep_secret(value)
            return True, _read(need, value)
        if need.key in PER_CALL:
            return True, PER_CALL[need.key](self._call)
        return need.default is not MISSING and not self._injectables.knows(need.key), need.default

    def _keep_secret(self, value: object) -> None:
        """Note an injected text as a secret, because it may be a token. Texts inside objects are not noted."""
        if isinstance(value, str):
            self._call.keep_secret(value)

    async def _setting(self, need: Need) -> Any:
        key = cast("str", need.key)
        settings: Settings = self._injectables.given(Settings)[1]
        default = () if need.default is MISSING else (need.default,)
        if need.source == "environment variable":
            value = settings.variable(key, *default)
        elif settings.may_wait(key):
            value = await self._threads.run(lambda: settings.get(key, *default))
        else:
            value = settings.get(key, *default)
        self._call.keep_secret(value)
        return _read(need, value)

    async def _make_all(self, recipes: list[tuple[str, Recipe]]) -> None:
        self._needs = dict(recipes)
        injectables, each = self._injectables, recipes[0][1]
        try:
            # Singletons first: making them needs threads, and a call that waits for one must not hold another.
            for each in {each for _, recipe in recipes for each in injectables.reached(recipe)}:
                if each.is_contained:
                    await injectables.prepare(each)
                elif each.lifetime == "singleton":
                    self._made[each] = (await injectables.singleton(each))[0]
            for parameter, each in recipes:
                value = self._call.provided[parameter] = await self._get(each)
                self._keep_secret(value)
        except asyncio.CancelledError:
            self._call.why_late = f"; {shown(each.key)} was still being provided"
            raise

    async def _part(self, key: Key) -> Any:
        found, value = self._injectables.given(key)
        if found:
            return value
        return PER_CALL[key](self._call) if key in PER_CALL else await self._get(self._injectables.recipe(key))

    async def _get(self, recipe: Recipe) -> Any:
        if recipe not in self._made:
            self._made[recipe] = await self._make(recipe)
        return self._made[recipe]

    async def _make(self, recipe: Recipe) -> Any:
        opened = self._opened()
        if recipe.lifetime == "singleton":  # a singleton of the container: all others are made by now
            return await self._injectables.contained(recipe, self._call.lane)
        needs = () if recipe.is_contained else recipe.needs  # the container resolves its own dependencies
        parts = {name: await self._part(key) for name, key in needs}
        with providing(recipe.key):
            value, on_loop = await opened.open(functools.partial(recipe.factory, **parts), on_loop=recipe.is_async)
        if on_loop:
            self._on_loop.add(recipe)
        return value

    def _opened(self) -> Resources:
        """The resources of the call in its thread. From now on, the command runs there too."""
        if self._resources is None:
            lane = self._call.lane = Inline() if self._inline else self._threads.lane(self._call.id)
            self._resources = Resources(self._call.command, lane, self._call.shown)
        return self._resources

    def _explain(self, error: BaseException) -> None:
        """Add to an error about threads which parameters were made in another thread."""
        if _THREAD.search(str(error)) is None:
            return
        for parameter, recipe in self._needs.items():
            below = sorted(self._injectables.reached(recipe) - {recipe}, key=lambda each: shown(each.key))
            for each in (recipe, *below):
                problem = self._misplaced(each)
                if problem is not None:
                    made = "" if each is recipe else f" needs {shown(each.key)}, which"
                    error.add_note(f"the parameter {parameter!r}{made} {problem}")
                    break

    def _misplaced(self, recipe: Recipe) -> str | None:
        if recipe.lifetime == "singleton":
            return "is shared by all threads: provide it with lifetime='call' if it is bound to one"
        if self._inline or (recipe in self._on_loop) == self._is_async:
            return None
        if self._is_async:
            return (
                "was made in another thread by a sync factory, and an async command runs on the event loop: "
                "make the factory async, or the command sync"
            )
        return (
            "was made on the event loop by an async factory, and a sync command runs in a thread: "
            "make the factory sync, or the command async"
        )


def _read(need: Need, value: Any) -> Any:
    """The value as the parameter is annotated."""
    if need.read is None or value is need.default:
        return value
    try:
        return need.read(value)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise SettingsError(
            f"the {need.source} {need.key!r} does not fit the parameter {need.parameter!r}: {reason}"
        ) from None
