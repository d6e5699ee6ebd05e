"""Which statements and branches of a package the tests run: `statements.py begin NAME`, then the tests, then `… report NAME`.

A tracer makes a program two to three times slower. Here each statement is compiled with another one before it, which sets a
byte of a file that all processes map into their memory (`hits`): that takes 0.02 µs. So a hit stays however its process
ends, and there are no files to write and to combine. A `.pth` file has processes measured that have the variable
`STATEMENTS`, the folder of the measurement: `.statements/NAME`.

The tables of `[tool.statements]` in `pyproject.toml` have these names, and say how much of each room has to run. Where
branches count, so does every `if` that was never false, every loop that never ended by itself, and every `match` that always
found its case.
"""

from __future__ import annotations

import ast
import itertools
import marshal
import os
import re
import shutil
import sys
import sysconfig
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from hits import code_file

__all__ = ["begin", "compiled", "missing", "patterns", "report"]

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ROOT / ".statements"
_HITS = "__hits__"
_ONE_WAY = "# pragma: no branch"
"""In the line of a branch that goes one way only."""
_START = "import os, sys; 'STATEMENTS' in os.environ and (sys.path.append({tests!r}), __import__('hits').measure(), sys.path.pop())\n"

Place = tuple[str, int]
"""The path of a file, and a line; a negative one for the other way of a branch, where nothing is written."""


def settings() -> Mapping[str, Any]:
    """The settings of the gate: what is in lines that are excluded, and a table for each measurement."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["statements"]


# ---------------------------------------------------------------- before the tests


def begin(folder: Path, sources: Path, *, branches: bool = False) -> None:
    """Compile all modules for a measurement."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    excluded, places = patterns(), list[Place]()
    for path in sorted(sources.rglob("*.py")):
        code, lines = compiled(path.read_text("utf-8"), str(path), excluded, branches=branches, first=len(places))
        module = ".".join(path.relative_to(sources).with_suffix("").parts).removesuffix(".__init__")
        Path(code_file(str(folder), module)).write_bytes(marshal.dumps(code))
        places += [(str(path), line) for line in lines]
    (folder / "packages").write_text("\n".join(each.name for each in sources.iterdir()), encoding="utf-8")
    (folder / "places").write_bytes(marshal.dumps(places))
    (folder / "hits").write_bytes(bytes(len(places)))


def hook() -> None:
    """Have processes of this environment measured where the variable is set."""
    Path(sysconfig.get_path("purelib"), "statements.pth").write_text(_START.format(tests=str(ROOT / "tests")), "utf-8")


def patterns() -> re.Pattern[str]:
    """What is in a line that is excluded with all that belongs to it: also what only runs before this version of Python."""
    versions = "|".join(str(minor) for minor in range(sys.version_info.minor + 1))
    return re.compile("|".join([*settings()["exclude"], rf"# pragma: before 3\.({versions})$"]))


def compiled(
    source: str, name: str, excluded: re.Pattern[str], *, branches: bool = False, first: int = 0
) -> tuple[CodeType, list[int]]:
    """The code of a module that marks its statements, numbered from `first`, and the lines of these."""
    tree, written = ast.parse(source, name), source.splitlines()
    unwanted = _excluded_lines(tree, written, excluded)
    lines: list[int] = []

    def mark(place: ast.stmt, line: int) -> ast.stmt:
        lines.append(line)
        return _at(place, f"{_HITS}[{first + len(lines) - 1}] = 1")

    def marked(block: list[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in block:
            if statement.lineno not in unwanted and not _is_silent(statement):
                yield mark(statement, statement.lineno)
            yield statement

    nodes = list(ast.walk(tree))
    for node in nodes:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):  # the body of a lambda is none
                block[:] = marked(block.copy())
    for node in nodes if branches else ():
        if isinstance(node, ast.stmt) and node.lineno not in unwanted and _ONE_WAY not in written[node.lineno - 1]:
            _mark_other_way(node, mark)
    head = next((place for place, each in enumerate(tree.body) if not _is_silent(each)), len(tree.body))
    tree.body[head:head] = [_at(each, f"from hits import hits as {_HITS}") for each in tree.body[head : head + 1]]
    return compile(tree, name, "exec", dont_inherit=True), lines


def _excluded_lines(tree: ast.Module, lines: Sequence[str], excluded: re.Pattern[str]) -> set[int]:
    """The lines of what is excluded: a statement or a clause with the pattern in its head, and what it holds."""
    found: set[int] = set()
    for node in ast.walk(tree):
        place = node.pattern if isinstance(node, ast.match_case) else node
        if not isinstance(place, ast.stmt | ast.ExceptHandler | ast.pattern):
            continue
        start = min([place.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        end = head = place.end_lineno or start
        if isinstance(node, ast.Match):
            head = node.subject.end_lineno or head
        elif block := getattr(node, "body", None):
            head = max(block[0].lineno - 1, place.lineno)
            end = block[-1].end_lineno or head
        if any(excluded.search(line) for line in lines[start - 1 : head]):
            found.update(range(start, end + 1))
        if other := getattr(node, "orelse", None):
            above = max([end, *(each.end_lineno for each in getattr(node, "handlers", []))])
            if any(excluded.search(line) for line in lines[above : other[0].lineno - 1]):
                found.update(range(above + 1, (other[-1].end_lineno or above) + 1))
    return found


def _mark_other_way(branch: ast.stmt, mark: Callable[[ast.stmt, int], ast.stmt]) -> None:
    """Mark that a branch went the way that is not written: an `if` without `else`, the end of a loop, a `match` without a case."""
    match branch:
        case ast.While(test=ast.Constant()):
            return
        case ast.If(orelse=[]) | ast.While(orelse=[]) | ast.For(orelse=[]) | ast.AsyncFor(orelse=[]):
            branch.orelse = [mark(branch, -branch.lineno)]
        case ast.Match(cases=[*_, last]) if not _matches_all(last):
            branch.cases.append(ast.match_case(ast.MatchAs(), None, [mark(branch, -branch.lineno)]))
            ast.fix_missing_locations(branch)


def _matches_all(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _is_silent(statement: ast.stmt) -> bool:
    """Whether nothing can come before it, or nothing happens in it: a docstring, `...`, and imports from the future."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.ImportFrom(module="__future__") | ast.Global() | ast.Nonlocal():
            return True
    return False


def _at(place: ast.stmt, source: str) -> ast.stmt:
    """A statement of one line, at the place of another one."""
    [statement] = ast.parse(source).body
    for node in ast.walk(statement):
        ast.copy_location(node, place)
    return statement


# ---------------------------------------------------------------- after the tests


def missing(folder: Path) -> Iterator[tuple[Path, int, list[int]]]:
    """Each file, the number of its statements, and the lines of those that did not run."""
    places: list[Place] = marshal.loads((folder / "places").read_bytes())
    hits = (folder / "hits").read_bytes()
    for path, found in itertools.groupby(zip(places, hits, strict=True), key=lambda it: it[0][0]):
        statements = [(line, hit) for (_, line), hit in found]
        yield Path(path), len(statements), sorted(line for line, hit in statements if not hit)


def report(folder: Path, sources: Path, table: Mapping[str, Any], *, everything: bool = False) -> int:
    """Tell which rooms fall short, with what did not run there, or all that did not run; gives the exit code.

    A room is a folder of a package, or the modules beside these folders.
    """
    rooms: defaultdict[str, list[tuple[Path, int, list[int]]]] = defaultdict(list)
    for path, count, lines in missing(folder):
        name = path.relative_to(sources).parent.as_posix()
        if name not in table.get("unjudged", ()):
            rooms[name].append((path, count, lines))
    total = ran = short = 0
    what = "statements and branches" if table["branches"] else "statements"
    for name, files in sorted(rooms.items()):
        count = sum(each for _, each, _ in files)
        share = 100 * (1 - sum(len(lines) for _, _, lines in files) / max(count, 1))
        total, ran = total + count, ran + round(count * share / 100)
        if share < table["least"]:
            short += 1
            print(f"\n{name}: {share:.1f} % of {count} {what} ran, and {table['least']} % have to")
        if share < table["least"] or everything:
            _show(files)
    print(
        f"{sources.parent.name}: {ran} of {total} {what} ran ({100 * ran / max(total, 1):.1f} %), {short} rooms fall short"
    )
    return 1 if short or not total else 0


def _show(files: Sequence[tuple[Path, int, list[int]]]) -> None:
    for path, _, lines in files:
        source = path.read_text("utf-8").splitlines()
        for line in sorted(lines, key=abs):
            never = "" if line > 0 else "  (never went past it)"
            print(f"{os.path.relpath(path)}:{abs(line)}: {source[abs(line) - 1].strip()}{never}")


def main(words: Sequence[str]) -> int:
    """Begin or end a measurement."""
    match words:
        case ["begin", name]:
            table = settings()[name]
            begin(FOLDERS / name, ROOT / table["sources"], branches=table["branches"])
            hook()
        case ["report", name, *more]:
            table = settings()[name]
            return report(FOLDERS / name, ROOT / table["sources"], table, everything=more == ["--all"])
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
