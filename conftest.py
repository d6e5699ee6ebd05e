"""What all tests share: how long property tests try, names of parameters, and the event loop of async tests."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.errors import FlakyStrategyDefinition, UnsatisfiedAssumption

sys.path.append(str(Path(__file__).parent / "tests"))  # importlib mode puts nothing there
from parallel import pytest_addoption, pytest_runtestloop  # noqa: F401 - its hooks

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # the programs under test would inherit it, and ignore Ctrl-C
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of some thousand processes would compile what it imports

# Property tests are bounded by time, so that a slow machine tries fewer examples and takes no longer.
# No deadline for one example: how long it takes says more of the machine than of the code.
UNTIMED = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example)
settings.register_profile("quick", max_examples=100, deadline=None, suppress_health_check=UNTIMED)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=UNTIMED, print_blob=True
)  # what `make property` asks for
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
settings.load_profile(PROFILE)
SECONDS = {"quick": 1.0, "thorough": 60.0}[PROFILE]
FEWEST = 5
"""Examples that are tried however slow the machine is."""


_LONGEST_NAME = 40
MEASURED = Path(__file__).parent / "tests" / "prowess"
"""The tests that have to reach every branch of packages/prowess-core. Their property tests try what others reach as well."""


class TimeIsUp(BaseException):
    """A property has been tried for long enough. Hypothesis lets everything pass that is no `Exception`."""


def bounded_by_time(test: Callable[..., Any]) -> Callable[..., Any]:
    """The body of a property, which ends the search when time is up, unless a counterexample is being minimised."""
    started, examples, failed = time.monotonic(), 0, False

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal examples, failed
        if not failed and examples >= FEWEST and time.monotonic() - started > SECONDS:
            raise TimeIsUp
        examples += 1
        try:
            return test(*args, **kwargs)
        except UnsatisfiedAssumption:
            raise
        except Exception:
            failed = True
            raise

    return run


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage: nearly all stays, and looking through it takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Try a property until its time is up; it holds as far as it was tried."""
    handle = getattr(pyfuncitem.obj, "hypothesis", None)
    if handle is None or inspect.iscoroutinefunction(handle.inner_test):
        return (yield)
    original = handle.inner_test
    handle.inner_test = bounded_by_time(original)
    try:
        return (yield)
    except TimeIsUp:
        return True
    except FlakyStrategyDefinition as error:
        if isinstance(error.__context__, TimeIsUp):  # what was cut short has drawn less than before: `st.data()`
            return True
        raise
    finally:
        handle.inner_test = original


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Show what cannot be encoded, like some names of files, as escapes: what a test process reports is written as JSON, and then shown."""
    return encodable((yield))


def encodable(data: object) -> object:
    """The data of a report with texts that can be encoded."""
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, dict):
        return {encodable(key): encodable(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(encodable(each) for each in data)
    return data


def pytest_make_parametrize_id(val: object) -> str | None:
    """Functions go by their names, packed bytes by their size."""
    if isinstance(val, bytes) and (len(val) > _LONGEST_NAME or not val.isascii()):
        return f"{len(val)} bytes"
    return getattr(val, "__qualname__", None) if inspect.isroutine(val) or inspect.isclass(val) else None


@pytest.hookimpl(tryfirst=True)  # `-m measured` chooses among them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is measured."""
    for item in items:
        if MEASURED in item.path.parents and not hasattr(getattr(item, "obj", None), "hypothesis"):
            item.add_marker("measured")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Prowess runs on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What hosts remember of projects that are soon gone is not left with the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
