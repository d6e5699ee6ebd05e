"""The pytest plugin. pytest loads it before every run, so it imports Prowess only when a fixture is used.

The fixtures that need an event loop are in `prowess_testkit.fixtures`, which needs anyio's plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from prowess_testkit.project import Project

__all__ = [
    "contract_snapshot",
    "project",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "wire",
]

_ASYNC_FIXTURES: Final = {"runtime", "client"}
_UPDATE: Final = "--update-contracts"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-contracts`."""
    group = parser.getgroup("prowess")
    group.addoption(_UPDATE, action="store_true", help="write the snapshots of contracts instead of comparing them")


def pytest_configure(config: pytest.Config) -> None:
    """Register the async fixtures, or replacements that explain why they cannot work."""
    plugins = config.pluginmanager
    if plugins.hasplugin("anyio") or plugins.hasplugin("anyio.pytest_plugin"):
        from prowess_testkit import fixtures

        plugins.register(fixtures, "prowess-fixtures")
    else:
        plugins.register(_NoLoop(), "prowess-fixtures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that anyio would run on trio: Prowess needs asyncio."""
    other = [item for item in items if _is_on_another_backend(item)]
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if item not in other]


def _is_on_another_backend(item: pytest.Item) -> bool:
    names: set[str] = set(getattr(item, "fixturenames", ()))
    if not names & _ASYNC_FIXTURES:
        return False
    backend = getattr(getattr(item, "callspec", None), "params", {}).get("anyio_backend", "asyncio")
    return (backend if isinstance(backend, str) else backend[0]) != "asyncio"


class _NoLoop:
    """Replaces the fixtures that need an event loop while anyio's plugin is off."""

    @pytest.fixture
    def runtime(self) -> None:
        """Fail with instructions."""
        _no_loop("runtime")

    @pytest.fixture
    def client(self) -> None:
        """Fail with instructions."""
        _no_loop("client")


def _no_loop(name: str) -> None:
    pytest.fail(
        f"the fixture {name!r} needs anyio's pytest plugin, which is off: run pytest with -p anyio.pytest_plugin, or "
        "without `-p no:anyio`; in a sync test, `project.call(...)` does without it",
        pytrace=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """An empty project with its own cache. Write skills into it, or copy them."""
    from prowess_testkit.project import Project

    with Project(tmp_path / "project", flags={"cache_dir": str(tmp_path / "cache")}) as project:
        project.root.mkdir()
        yield project


@pytest.fixture
def wire() -> str:
    """The revision of MCP that the fixture `client` speaks. Parametrize it with `WIRES` to test both eras."""
    from prowess_testkit.client import HANDSHAKE

    return HANDSHAKE


@pytest.fixture
def contract_snapshot(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`contract_snapshot(project)` compares the contracts for clients with a file in `snapshots/` beside the test.

    Takes the arguments `profile` and `version` of `assert_contract_unchanged`, and a `name` for the file.
    """
    from prowess_testkit.snapshots import assert_contract_unchanged

    def check(project: Any, *, name: str | None = None, **options: Any) -> None:
        test = name or f"{request.path.stem}.{getattr(request.node, 'originalname', request.node.name)}"
        which = "".join(f".{value}" for value in options.values() if value)
        file = request.path.parent / "snapshots" / f"{test}{which}.json"
        assert_contract_unchanged(project, file, update=bool(request.config.getoption(_UPDATE)), **options)

    return check
