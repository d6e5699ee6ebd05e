"""Decorators above and below `@skill_command`: what a name of the module means is what clients run, or loading says why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prowess import Runtime, is_skill_command, skill_command
from prowess.contracts.catalog import Failure

HEAD = """
from __future__ import annotations
import contextlib, functools
from prowess import hookimpl, skill_command

def guard(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        raise PermissionError("guarded")
    return inner

def async_guard(function):
    @functools.wraps(function)
    async def inner(*args, **kwargs):
        raise PermissionError("guarded")
    return inner

def plain_guard(function):
    def inner(*args, **kwargs):
        raise PermissionError("guarded")
    return inner

class Guard:
    def __init__(self, function):
        self.function = function
    def __call__(self, *args, **kwargs):
        raise PermissionError("guarded")

class MarkedGuard(Guard):
    def __init__(self, function):
        functools.update_wrapper(self, function)

@contextlib.contextmanager
def guarding():
    raise PermissionError("guarded")
    yield

class Guarding(contextlib.ContextDecorator):
    def __enter__(self): raise PermissionError("guarded")
    def __exit__(self, *_): return False

def tag(function):
    function.tagged = True
    return function
"""
ABOVE = [
    "@guard",
    "@async_guard",
    "@plain_guard",
    "@Guard",
    "@MarkedGuard",
    "@guarding()",
    "@Guarding()",
    "@functools.partial(functools.partial)",
    "@functools.lru_cache",
    "@staticmethod",
    "@classmethod",
    "@guard\n@plain_guard",
    "@tag\n@guard",
    "@skill_command(name='again')\n@guard",
]


def project(root: Path, body: str, **others: str) -> Path:
    (root / "skills").mkdir(exist_ok=True)
    (root / "skills" / "a.py").write_text(HEAD + body)
    for name, text in others.items():
        (root / f"{name}.py").write_text(HEAD + text)
    return root


async def load(root: Path) -> tuple[list[str], list[Failure]]:
    async with Runtime.open(root) as runtime:
        catalog = runtime.catalog()
        return [contract.id for contract in catalog], list(catalog.failures)


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("function", ["def", "async def"])
async def test_a_decorator_above_is_refused(tmp_path: Path, above: str, function: str):
    """It would never run for clients. The refusal names the command, its line, and where the decorator belongs."""
    body = f"\n{above}\n@skill_command\n{function} secret() -> int:\n    return 1\n\n@skill_command\ndef fine(): ...\n"
    project(tmp_path, body)
    ids, failures = await load(tmp_path)
    async with Runtime.open(tmp_path) as runtime:
        assert not (await runtime.call("a.secret")).ok
    if not above.startswith("@skill_command"):
        assert ["a.fine"] == ids
        (failure,) = failures
        assert "command 'secret': another decorator is above @skill_command" in failure.reason
        assert "put that decorator below @skill_command, next to the def" in failure.reason
        assert failure.file == str(tmp_path / "skills" / "a.py")
        assert failure.line == HEAD.count("\n") + 2
    else:
        assert [] == ids
        assert "it is already a command" in failures[0].reason


async def test_above_also_means_further_down(tmp_path: Path):
    """A name that is given to a wrapper later on is the wrapper's, whatever else still leads to the command."""
    body = "@skill_command\ndef a(): ...\na = guard(a)\n@skill_command\ndef b(): ...\n_b = b\nb = plain_guard(b)\n"
    ids, failures = await load(project(tmp_path, body))
    assert [] == ids
    assert 2 == len([it for it in failures if "another decorator" in it.reason])


@pytest.mark.parametrize("second", ["@skill_command\ndef twice(): ...\n", "def twice(): ...\n"])
async def test_two_functions_of_one_name_are_a_failure(tmp_path: Path, second: str):
    """It names the line of the other one, which has the name."""
    ids, (failure,) = await load(project(tmp_path, f"@skill_command\ndef twice(): ...\n{second}"))
    kind, line = ("command", HEAD.count("\n") + 3) if "@" in second else ("function", HEAD.count("\n") + 3)
    assert (["a.twice"] if kind == "command" else []) == ids
    assert f"command 'twice': the name 'twice' is given to another {kind} in line {line}. Give each" in failure.reason
    assert HEAD.count("\n") + 1 == failure.line


async def test_a_decorator_below_runs(tmp_path: Path):
    """What the decorator returned is the command's function."""
    body = "@skill_command\n@guard\ndef a() -> int:\n    return 1\n@skill_command\n@plain_guard\ndef b(): ...\n"
    async with Runtime.open(project(tmp_path, body)) as runtime:
        assert "PermissionError: guarded" in (await runtime.call("a.a")).text
        assert "PermissionError: guarded" in (await runtime.call("a.inner")).text
        assert not runtime.catalog().failures


async def test_a_decorator_that_returns_the_command_may_stand_anywhere(tmp_path: Path):
    """It wraps nothing."""
    assert (["a.a"], []) == await load(project(tmp_path, "@tag\n@skill_command\n@tag\ndef a(): ...\n"))


async def test_two_names_of_one_command_are_one_command(tmp_path: Path):
    """An alias in the module is no second command; a wrapper under a name of its own is none either."""
    body = "@skill_command\ndef a(): ...\nb = a\nc = guard(a)\n"
    assert (["a.a"], []) == await load(project(tmp_path, body))


async def test_a_function_may_be_decorated_without_the_at_sign(tmp_path: Path):
    """Under its own name or another, also where it was imported from elsewhere."""
    body = "from mended import run\ndef f(): ...\nf = skill_command(f)\ndef g(): ...\nh = skill_command(g)\nrun = skill_command(run)\n"
    project(tmp_path, body, mended="def run(): ...\n")
    sys.path.append(str(tmp_path))
    try:
        assert (["a.f", "a.g", "a.run"], []) == await load(tmp_path)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("mended", None)


async def test_functions_of_a_loop_may_have_names_of_their_own(tmp_path: Path):
    """The name of the function refers to that of the last turn, which is no decorator around the others."""
    body = "for n in ('one', 'two'):\n    def f(): ...\n    globals()[n] = skill_command(name=n)(f)\n"
    assert (["a.one", "a.two"], []) == await load(project(tmp_path, body))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            "ALL = {}\ndef make():\n    @skill_command\n    def f(): ...\n    ALL['f'] = f\nmake()\n",
            "no name in the module",
        ),
        ("@skill_command\ndef f(): ...\nall = [f]\ndel f\n", "no name in the module refers to it"),
        ("@skill_command\ndef f(): ...\nf = None\n", "no name in the module refers to it"),
        ("def f(): ...\nALL = [skill_command(f)]\n", "no name in the module refers to it"),
        ("@skill_command(name='one')\ndef f(): ...\n@skill_command(name='two')\ndef f(): ...\n", "another command"),
        (
            "def make():\n    @guard\n    @skill_command\n    def f(): ...\n    return f\nmade = make()\n",
            "another decorator",
        ),
    ],
)
async def test_a_command_that_the_module_lost_is_a_failure(tmp_path: Path, body: str, problem: str):
    """Nobody could call it, and nobody would say so."""
    _, failures = await load(project(tmp_path, body))
    assert 1 == len(failures)
    assert problem in failures[0].reason
    assert failures[0].line


async def test_commands_of_a_closure_are_bound_or_registered(tmp_path: Path):
    """By a name in the module, or by the hook."""
    make = "def make(n):\n    @skill_command(name=n)\n    def f(): ...\n    return f\n"
    body = f"{make}one = make('one')\nMADE = [make('two')]\n@hookimpl\ndef prowess_commands(register):\n    register(MADE[0])\n"
    assert (["a.one", "a.two"], []) == await load(project(tmp_path, body))


async def test_a_wrapper_that_is_registered_is_refused(tmp_path: Path):
    """By a hook: the wrapper would not run either."""
    body = (
        "@skill_command\ndef a(): ...\nWRAPPED = [guard(a)]\n"
        "@hookimpl\ndef prowess_commands(register):\n    register(WRAPPED[0])\n"
    )
    ids, failures = await load(project(tmp_path, body))
    assert ["a.a"] == ids
    assert "the registered object is a function, which another decorator made of it" in failures[0].reason


async def test_an_imported_command_that_was_wrapped_and_listed_is_refused(tmp_path: Path):
    """`__all__` offers imported commands; a wrapper around one is none."""
    body = "from lent import f\nf = guard(f)\n__all__ = ['f']\n"
    project(tmp_path, body, lent="@skill_command\ndef f(): ...\n")
    sys.path.append(str(tmp_path))
    try:
        ids, failures = await load(tmp_path)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("lent", None)
    assert [] == ids
    assert "which another decorator made of it" in failures[0].reason


def test_a_wrapper_is_no_command():
    """Python code that calls it runs the wrapper, and then the command. A second decoration is refused."""
    import functools

    @skill_command
    def command() -> int:
        return 1

    @functools.wraps(command)
    def wrapper() -> object:
        return ["wrapped", command()["structuredContent"]]

    assert ["wrapped", {"result": 1}] == wrapper()
    assert is_skill_command(command)
    assert not is_skill_command(wrapper)


async def test_an_entry_point_that_is_no_command_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A plain function has no hooks, and a wrapper is no command: neither is silently left out."""
    import functools

    from prowess.skills import library

    @skill_command
    def command() -> int:
        return 1

    @functools.wraps(command)
    def wrapper() -> None: ...

    def plain() -> None: ...

    class Point:
        distribution = module = package = "lent"

        def __init__(self, name: str, value: object) -> None:
            self.name = name
            self.load = lambda: value

    points = [Point("good", command), Point("marked", wrapper), Point("plain", plain)]
    monkeypatch.setattr(library, "installed", lambda: points)
    ids, failures = await load(tmp_path)
    assert ["good.command"] == ids
    assert ["marked", "plain"] == [failure.source for failure in failures]
    assert "which another decorator made of it" in failures[0].reason
    assert "must be a command; put @skill_command on top of its decorators" in failures[1].reason


async def test_a_module_below_an_installed_package_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What the package imports from there may be no command any more. Commands that it keeps to itself are its own."""
    from importlib import import_module

    from prowess.skills import library

    package = tmp_path / "lent_below"
    package.mkdir()
    (package / "__init__.py").write_text("from .parts import good, lost\n")
    parts = "@skill_command\ndef good(): ...\n@plain_guard\n@skill_command\ndef lost(): ...\n@skill_command\ndef own(): ...\n"
    (package / "parts.py").write_text(HEAD + parts)

    class Point:
        name = distribution = module = package = "lent_below"

        def load(self) -> object:
            return import_module("lent_below")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(library, "installed", lambda: [Point()])
    try:
        ids, failures = await load(tmp_path)
    finally:
        sys.modules.pop("lent_below", None)
        sys.modules.pop("lent_below.parts", None)
    assert ["lent_below.good"] == ids
    assert ["command 'lost': another decorator"] == [failure.reason[:33] for failure in failures]
