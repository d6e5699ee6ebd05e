"""Documentation cannot lie: the code blocks of README.md and docs/ run, each document in a fresh project of its own.

In a document, from top to bottom:

- ```` ```python ```` runs, in one namespace for the whole document, as a script would: `await` needs a function around it. A
  block with `>>> ` lines is a doctest.
- ```` ```python title="skills/hello.py" ```` (any language) is written to that file, which later blocks may use. Only the site
  shows the title, so the paragraph before the block names the file, too.
- ```` ```console ```` runs what follows `$ ` in a shell and compares what is printed; `...` stands for anything. Tests are
  started as `pytest`, not as `python -m pytest`, which finds more modules. `prowess` alone is forked (`shell`).
- ```` ```json ```` and ```` ```toml ```` are parsed.
- `<!-- not run: why -->` on the line before a block lets it be, and says why.

At the end, the skills a document has written have to load without a failure.
"""

from __future__ import annotations

import asyncio
import doctest
import json
import os
import shlex
import subprocess
import sys
import textwrap
import tomllib
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from documents import FLAGS, Block, blocks, steps
from shell import prowess

ROOT = Path(__file__).resolve().parents[2]
AGENT_SKILL = ROOT / "packages/prowess-host/src/prowess_host/templates/write-prowess-skills/SKILL.md"
TUTORIAL = ROOT / "docs/tutorial.md"  # tests/tutorial follows it in a real terminal
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted({*ROOT.glob("docs/**/*.md")} - {TUTORIAL}),
    AGENT_SKILL,
]
LESS = "-p no:schemathesis"
"""A plugin of pytest that readers do not have, and that takes a quarter of a second to import."""
PARSED: dict[str, Callable[[str], object]] = {"json": json.loads, "toml": tomllib.loads}


@dataclass(frozen=True)
class Reader:
    """Somebody who follows a document to the letter, in a project folder of their own."""

    document: str
    project: Path
    module: types.ModuleType

    def follow(self, block: Block) -> None:
        bare = [option for option in block.options if "=" not in option]
        assert not bare, f"{self.document}:{block.line}: the site shows no block with the option {bare[0]!r}"
        if block.title:
            self.write(block)
        elif block.language == "python" and block.text.lstrip().startswith(">>> "):
            self.run_doctest(block)
        elif block.language == "python":
            self.run_python(block)
        elif block.language == "console":
            self.run_console(block)
        elif block.language in PARSED:
            PARSED[block.language](block.text)

    def write(self, block: Block) -> None:
        assert f"`{block.title}`" in block.before, (
            f"{self.document}:{block.line}: name `{block.title}` in the text before it"
        )
        target = self.project / str(block.title)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
        if block.language == "python":
            compile(self.in_place(block), self.document, "exec", dont_inherit=True)
        elif block.language in PARSED:
            PARSED[block.language](block.text)

    def run_python(self, block: Block) -> None:
        code = compile(self.in_place(block), self.document, "exec", dont_inherit=True)
        exec(code, vars(self.module))

    def run_doctest(self, block: Block) -> None:
        parser = doctest.DocTestParser()
        test = parser.get_doctest(block.text, vars(self.module), self.document, self.document, block.line - 1)
        test.globs = vars(self.module)
        report: list[str] = []
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
        assert not report, "".join(report)

    def run_console(self, block: Block) -> None:
        for command, expected in steps(block):
            assert "-m pytest" not in command, (
                f"{self.document}:{block.line}: pytest by its own name, as people type it"
            )
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
            environ = {**os.environ, "PATH": path, "PYTEST_ADDOPTS": LESS}
            done = ran(command, environ)
            place = f"{self.document}:{block.line}: $ {command}\n{done.stdout}{done.stderr}"
            assert 0 == done.returncode, place
            assert doctest.OutputChecker().check_output(expected, done.stdout, FLAGS), place

    def in_place(self, block: Block) -> str:
        """The code, moved down so that a traceback points into the document."""
        return "\n" * (block.line - 1) + block.text


def ran(command: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command as at a shell."""
    if command.startswith("prowess ") and not set("|&;<>$`*~\\") & set(command):
        return prowess(*shlex.split(command, comments=True)[1:], env=environ)
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env=environ)


@pytest.fixture
def reader(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    document = getattr(request, "param", Path("a document.md"))
    module = types.ModuleType(f"document_{document.stem.lower().replace(' ', '_')}")
    del module.__spec__  # since Python 3.15, a traceback asks for the loader in it
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    return Reader(str(document), tmp_path, module)


@pytest.mark.parametrize("reader", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS], indirect=True)
def test_code_blocks_of_documents_run(reader: Reader) -> None:
    """Who follows a document to the letter gets what it says."""
    for block in blocks(Path(reader.document).read_text(encoding="utf-8")):
        reader.follow(block)

    if (reader.project / "skills").exists():
        assert [] == asyncio.run(failures_in(reader.project))


async def failures_in(project: Path) -> list[object]:
    from prowess import Runtime

    async with Runtime.open(project) as runtime:
        return list(runtime.catalog().failures)


def follow(reader: Reader, text: str) -> None:
    for block in blocks(textwrap.dedent(text)):
        reader.follow(block)


def test_blocks_share_names(reader: Reader) -> None:
    """A later block goes on where an earlier one ended."""
    follow(
        reader,
        """
        ```python
        seen = [1]
        ```
        1. in a list

           ```python
           seen.append(2)
           ```
        ```python
        >>> seen
        [1, 2]
        ```
        """,
    )

    assert [1, 2] == reader.module.seen


def test_await_outside_of_a_function_is_refused(reader: Reader) -> None:
    """What is pasted into a file has to be a program."""
    with pytest.raises(SyntaxError):
        follow(reader, "```python\nimport asyncio\nawait asyncio.sleep(0)\n```")


def test_titled_block_becomes_a_file_that_a_console_block_sees(reader: Reader) -> None:
    """A file shown in a document is really there afterwards."""
    follow(
        reader,
        """
        The file `deep/prowess.toml`:

        ```toml title="deep/prowess.toml"
        answer = 42
        ```
        ```console
        $ cat deep/prowess.toml
        answer = ...
        $ echo one; echo two
        one
        two
        ```
        """,
    )

    assert "answer = 42\n" == (reader.project / "deep/prowess.toml").read_text(encoding="utf-8")


def test_name_of_a_file_stands_in_the_text(reader: Reader) -> None:
    """Most readers never see the title of a block."""
    with pytest.raises(AssertionError, match=r"name `a\.toml`"):
        follow(reader, 'Some text about `b.toml`.\n\n```toml title="a.toml"\n```')


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert False\n```",
        "```python\n>>> 1 + 1\n3\n```",
        "```console\n$ echo yes\nno\n```",
        "```console\n$ exit 3\n```",
        "```console\n$ python -m pytest --version\n...\n```",
    ],
    ids=["python", "doctest", "console", "exit code", "pytest by its module"],
)
def test_block_that_lies_is_found(reader: Reader, text: str) -> None:
    """A wrong block fails, and is let be where the document says why."""
    with pytest.raises(AssertionError):
        follow(reader, text)
    follow(reader, f"<!-- not run: shows what not to do -->\n{text}")


@pytest.mark.parametrize("text", ["```json\n{\n```", "```toml\na\n```"], ids=["json", "toml"])
def test_data_is_parsed(reader: Reader, text: str) -> None:
    """An example that cannot be pasted is found."""
    with pytest.raises(ValueError):
        follow(reader, text)


def test_traceback_points_into_the_document(reader: Reader) -> None:
    """The line of an error is the line in the document."""
    with pytest.raises(ZeroDivisionError) as caught:
        follow(reader, "text\n\n```python\nx = 1\n1 / 0\n```")

    last = traceback.extract_tb(caught.tb)[-1]
    assert ("a document.md", 5) == (last.filename, last.lineno)


def test_other_languages_are_left_alone(reader: Reader) -> None:
    """A language that this reader does not know is for the eye."""
    follow(reader, "```text\n{\n```\n```\nplain\n```")
