"""A line of a newer Python is told from a mistake."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from prowess import Runtime
from prowess.calls.syntax import newer_syntax

OLD = (3, 11, 7)


def told(line: str, message: str = "invalid syntax", version: tuple[int, ...] = OLD) -> str:
    return newer_syntax(SyntaxError(message, ("skill.py", 1, 1, line)), version)


@pytest.mark.parametrize(
    ("version", "line", "message"),
    [
        ("3.12", "type X = int\n", "invalid syntax"),
        ("3.12", "    type Pairs[K, V] = dict[K, V]\n", "invalid syntax"),
        ("3.12", "def first[T](items: list[T] = []) -> T:\n", "expected '('"),
        ("3.12", "async def first[**P, *Ts, T: (int, str)](x: T):\n", "expected '('"),
        ("3.12", "class Box[T]:\n", "invalid syntax"),
        ("3.13", "class Box[T = int]:\n", "invalid syntax"),
        ("3.13", "type Box[K, T=int] = T\n", "invalid syntax"),
        ("3.12", 'x = f"{d["a"]}"\n', "f-string: unmatched '['"),
        ("3.12", 'x = f"{f"{1}"}"\n', "f-string: expecting '}'"),
        ("3.12", "x = f\"{'\\n'.join(a)}\"\n", "f-string expression part cannot include a backslash"),
        ("3.12", "(a # c)\n", "f-string expression part cannot include '#'"),
        ("3.12", "x = f'{\n", "unterminated string literal (detected at line 1)"),
        ("3.14", "x = t'{name}'\n", "invalid syntax"),
        ("3.14", 'x = rt"{name}"\n', "invalid syntax"),
        ("3.14", "except A, b.C:\n", "multiple exception types must be parenthesized"),
        ("3.14", "except* A, B:\n", "multiple exception types must be parenthesized"),
        ("3.15", "lazy import json\n", "invalid syntax"),
        ("3.15", "x = [*a for a in b]\n", "iterable unpacking cannot be used in comprehension"),
        ("3.15", "x = {**a for a in b}\n", "dict unpacking cannot be used in dict comprehension"),
    ],
)
def test_a_line_of_a_newer_python_says_which_one_it_needs(version: str, line: str, message: str):
    """And in which Python skills run. Where that one is new enough, the line is wrong for another reason."""
    needed = tuple(map(int, version.split(".")))
    assert f" needs Python {version}, and skills run in Python 3.11 ({sys.executable})" in told(line, message)
    assert f" needs Python {version}, " in told(line, message, (needed[0], needed[1] - 1))
    assert "" == told(line, message, needed)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("def f(:\n", "invalid syntax"),
        ("type X int\n", "invalid syntax"),
        ("type == 3 +\n", "invalid syntax"),
        ("def f[](x):\n", "expected '('"),
        ("x = f'{a\n'", "invalid syntax"),
        ("x = 'a\n", "unterminated string literal (detected at line 1)"),
        ("x = f'}'\n", "f-string: single '}' is not allowed"),
        ("x = ft'a'\n", "invalid syntax"),
        ("print 'hit'\n", "Missing parentheses in call to 'print'. Did you mean print(...)?"),
        ("except A, B as e:\n", "invalid syntax"),
        ("lazy = import\n", "invalid syntax"),
        ("x\n", "expected an indented block after function definition on line 1"),
    ],
)
def test_a_mistake_is_a_mistake_in_every_python(line: str, message: str):
    assert "" == told(line, message)


def test_an_error_without_a_line_gets_no_advice():
    assert "" == newer_syntax(SyntaxError("invalid syntax"), OLD)


@pytest.mark.parametrize(
    ("version", "source"),
    [
        ((3, 12), "type X = int\n"),
        ((3, 12), "def f[T](x: T) -> T:\n    return x\n"),
        ((3, 12), 'd = {}\nx = f"{d.get("a")}"\n'),
        ((3, 13), "class C[T = int]:\n    pass\n"),
        ((3, 14), "try:\n    pass\nexcept A, B:\n    pass\n"),
        ((3, 14), "x = t'{1}'\n"),
        ((3, 15), "lazy import json\n"),
    ],
)
async def test_a_skill_in_a_newer_python_says_so_at_load(tmp_path: Path, version: tuple[int, int], source: str):
    """With the place, and how to name another Python."""
    if sys.version_info >= version:
        assert compile(source, "skill.py", "exec")
        return
    (tmp_path / "skills").mkdir()
    text = f"from prowess import skill_command\n{source}@skill_command\ndef run(): ...\n"
    (tmp_path / "skills/new.py").write_text(text, "utf-8")
    async with Runtime.open(tmp_path) as runtime:
        (failure,) = runtime.catalog().failures
    assert failure.reason.startswith("SyntaxError: ")
    assert f" needs Python {version[0]}.{version[1]}, and skills run in Python " in failure.reason
    assert failure.reason.endswith("or name a newer Python by the setting `python`")
    assert text.splitlines()[(failure.line or 0) - 1] in source


async def test_a_text_that_a_skill_compiles_is_its_own_affair(tmp_path: Path):
    """Nobody says that another Python would read it."""
    (tmp_path / "skills").mkdir()
    source = """
        from prowess import skill_command
        @skill_command
        def run() -> int:
            return compile("except A, B:", "<text>", "exec")
    """
    (tmp_path / "skills/new.py").write_text(dedent(source), "utf-8")
    async with Runtime.open(tmp_path) as runtime:
        outcome = await runtime.call("new.run")
    assert ("crashed", False) == (outcome.kind, "needs Python" in outcome.text)
