"""A project for a test: a folder with skills and settings, and one runtime for the whole test."""

from __future__ import annotations

import os
import shutil
import textwrap
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from prowess.calls.outcome import Outcome
from prowess.runtime import Runtime
from prowess.settings.files import CONFIG_FILE
from prowess_testkit.errors import ProjectError
from prowess_testkit.toml import toml

__all__ = ["Project"]


class Project(os.PathLike[str]):
    """A folder with skills. The fixture `project` is an empty one; `Project("path")` is one that exists."""

    def __init__(self, root: str | Path, *, flags: Mapping[str, Any] | None = None) -> None:
        """`flags` are settings that override files and environment, like `--set` on the command line."""
        self.root = Path(root).resolve()
        self.flags: dict[str, Any] = dict(flags or {})
        self._runtime: Runtime | None = None
        self._current: Runtime | None = None
        """The runtime for direct calls."""
        self._overrides: list[tuple[Any, Any]] = []
        self._portal: BlockingPortal | None = None
        self._end = ExitStack()

    def __fspath__(self) -> str:
        return str(self.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Files

    def write(self, path: str | Path, text: str) -> Path:
        """Write a file, by its path in the project: `project.write("skills/notes.py", ...)`. Takes common indents away."""
        file = self.root / path
        self._check_unread(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return file

    def copy(self, source: str | Path, to: str | Path = "skills") -> Path:
        """Copy a file or a folder into a folder of the project: `project.copy("src/skills/notes.py")`."""
        given = Path(source)
        file = self.root / to / given.name
        self._check_unread(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        if given.is_dir():
            shutil.copytree(given, file, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(given, file)
        return file

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Add settings to the project's `prowess.toml`: tables as mappings, or dotted keys like `"api.key"`."""
        if self._runtime is not None:
            raise ProjectError(
                "the settings are read already; call project.configure before the first call, "
                "or use the fixture `client` instead of `runtime`, which reads them at once"
            )
        file = self.root / CONFIG_FILE
        known = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        for key, value in settings.items():
            _put(known, key.split("."), value)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(toml(known), encoding="utf-8")

    def _check_unread(self, file: Path) -> None:
        """Raise `ProjectError` for a file that is written too late and would be ignored."""
        if self._runtime is not None and self._runtime.loaded:
            raise ProjectError(
                f"{file.relative_to(self.root)} was written after the skills were loaded, which happens once; write it "
                "before the first call, or use serve(project), which reloads"
            )

    # The runtime

    @property
    def runtime(self) -> Runtime:
        """The runtime of this test, made at the first use and again after it was closed."""
        if self._runtime is None:
            self.root.mkdir(parents=True, exist_ok=True)
            self._runtime = Runtime(self.root, flags=self.flags)
            for key, value in self._overrides:
                self._end.enter_context(self._runtime.override(key, value))
        return self._runtime

    def skill(self, name: str) -> ModuleType:
        """The module of a skill, to test its functions: `project.skill("notes").add.raw` is the undecorated one.

        `text.scan` is the file `scan.py` of the folder skill `text`. Direct calls of its commands run in this project.
        """
        runtime = self.runtime
        if self._current is not runtime:
            self._current = runtime
            self._end.enter_context(runtime.as_current())
        return runtime.module(name)

    def call(self, command: str, /, **arguments: Any) -> Outcome:
        """Call a command from a sync test. In an async test, use `client` or `runtime`."""
        if self._portal is None:
            self._portal = self._end.enter_context(start_blocking_portal())
        return self._portal.call(self.runtime.call, command, arguments)

    def override(self, key: Any, value: Any) -> None:
        """Inject this value for a type or a name until the end of the test.

        The name of a class works too, since classes of skills cannot be imported: `project.override("Clock", FakeClock())`.
        """
        self._overrides.append((key, value))
        if self._runtime is not None:
            self._end.enter_context(self._runtime.override(key, value))

    # The end

    async def aclose(self) -> None:
        """Close the runtime on this event loop."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.aclose()

    def close(self) -> None:
        """Close the project and its runtime."""
        runtime, self._runtime = self._runtime, None
        portal, self._portal = self._portal, None
        with self._end:
            if runtime is not None and portal is not None:
                portal.call(runtime.aclose)
            elif runtime is not None:
                runtime.close()


def _put(table: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a value; tables are merged."""
    for name in path[:-1]:
        table = table.setdefault(name, {})
    if isinstance(value, Mapping) and isinstance(table.get(path[-1]), dict):
        for key, item in cast("Mapping[str, Any]", value).items():
            _put(table[path[-1]], [key], item)
    else:
        table[path[-1]] = value
