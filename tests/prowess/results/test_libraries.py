"""Values of other libraries, as commands return them."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from prowess import Outcome, Runtime, skill_command
from prowess.command import Command
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import declaration_of

MARKDOWN = "| city | people |\n| --- | --- |\n| Ulm | 128 |\n| Bern |  |"
ROWS = [{"city": "Ulm", "people": 128}, {"city": "Bern", "people": None}]
CITIES = {"city": ["Ulm", "Bern"], "people": [128, None]}


@pytest.fixture
def pandas() -> Any:
    return pytest.importorskip("pandas")


@pytest.fixture
def polars() -> Any:
    return pytest.importorskip("polars")


async def called(root: Path, command: Command) -> tuple[Contract, Outcome]:
    declared = declaration_of(command)
    assert declared is not None
    async with Runtime.open(root) as runtime:
        entry = runtime.entry_of(declared)
        return entry.contract, await entry.call({})


async def shown(root: Path, value: Any, **options: Any) -> dict[str, Any]:
    """The payload of a command that returns a value."""

    @skill_command(**options)
    def run() -> Any:
        return value

    return (await called(root, run))[1].payload()


async def text_of(root: Path, value: Any) -> str:
    (block,) = (await shown(root, value))["content"]
    return block["text"]


def frames(pandas: Any, polars: Any) -> list[Any]:
    return [pandas.DataFrame(CITIES).astype({"people": "Int64"}), polars.DataFrame(CITIES), polars.LazyFrame(CITIES)]


async def test_a_frame_is_a_table(tmp_path: Path, pandas: Any, polars: Any):
    """In Markdown, and no structured content: nobody has declared any."""
    for frame in frames(pandas, polars):

        @skill_command
        def run(frame: Any = frame) -> type(frame):
            return frame

        contract, outcome = await called(tmp_path, run)
        assert (contract.output.schema, outcome.text, outcome.value) == (None, MARKDOWN, MARKDOWN)
        assert {"content": [{"type": "text", "text": MARKDOWN}], "isError": False} == outcome.payload()


async def test_a_frame_is_rows_where_data_is_declared(tmp_path: Path, pandas: Any, polars: Any):
    """Also inside other data; missing values are null."""
    for frame in frames(pandas, polars):

        @skill_command
        def run(frame: Any = frame) -> list[dict[str, int | str | None]]:
            return frame

        assert ROWS == (await called(tmp_path, run))[1].value
        assert {"cities": ROWS} == (await shown(tmp_path, {"cities": frame}))["structuredContent"]
        assert {"result": ROWS} == (await shown(tmp_path, frame, output=list[dict[str, Any]]))["structuredContent"]


async def test_rows_lose_no_column(tmp_path: Path, pandas: Any):
    """Mappings cannot have two columns of one name, while a table shows both."""
    frame = pandas.DataFrame([[1, 2]], columns=["n", "n"])
    assert "| n | n |" in await text_of(tmp_path, frame)
    payload = await shown(tmp_path, frame, output=list[dict[str, int]])
    assert "two columns of the table are called 'n'; rename one" in payload["content"][0]["text"]


async def test_a_long_table_says_how_long_it_is(tmp_path: Path, pandas: Any, polars: Any):
    """It ends after a hundred rows; an empty one says so."""
    for library in (pandas, polars):
        lines = (await text_of(tmp_path, library.DataFrame({"n": range(12_345)}))).splitlines()
        assert ["| n |", "| --- |", "| 0 |", "| 99 |", "", "(100 of 12,345 rows)"] == [*lines[:3], *lines[-3:]]
        assert "| n |\n| --- |\n\n(no rows)" == await text_of(tmp_path, library.DataFrame({"n": []}))


async def test_cells_are_escaped_and_indexes_kept_where_they_say_something(tmp_path: Path, pandas: Any):
    """A numbering of the rows says nothing."""
    frame = pandas.DataFrame({"a|b": ["x|y", "one\ntwo"], "n": [1.5, float("nan")]})
    assert "| a\\|b | n |\n| --- | --- |\n| x\\|y | 1.5 |\n| one two |  |" == await text_of(tmp_path, frame)
    assert "| city |\n| --- |\n| Ulm |" == await text_of(tmp_path, pandas.DataFrame({"city": ["Bern", "Ulm"]})[1:])
    named = pandas.DataFrame({"n": [1]}, index=pandas.Index([7], name="id"))
    assert "| id | n |\n| --- | --- |\n| 7 | 1 |" == await text_of(tmp_path, named)
    assert "| index | n |\n| --- | --- |\n| x | 1 |" == await text_of(
        tmp_path, pandas.DataFrame({"n": [1]}, index=["x"])
    )
    both = pandas.DataFrame([[1, 2]], columns=pandas.MultiIndex.from_tuples([("a", "x"), ("a", "y")]))
    assert "| a.x | a.y |\n| --- | --- |\n| 1 | 2 |" == await text_of(tmp_path, both)


async def test_series_arrays_and_numbers_are_data(tmp_path: Path, pandas: Any, polars: Any):
    """A column is a table; a number of NumPy is a number, declared or not."""
    numpy = pytest.importorskip("numpy")
    for library in (pandas, polars):
        assert "| n |\n| --- |\n| 1 |" == await text_of(tmp_path, library.Series(name="n", **{_values(library): [1]}))
    assert [[1, 2]] == (await shown(tmp_path, numpy.array([[1, 2]])))["structuredContent"]["result"]
    assert {"sum": 3} == (await shown(tmp_path, {"sum": numpy.int64(3)}))["structuredContent"]

    @skill_command
    def total() -> int:
        return numpy.int64(3)

    assert 3 == (await called(tmp_path, total))[1].value


def _values(library: Any) -> str:
    return "data" if library.__name__ == "pandas" else "values"


async def test_several_values_are_shown_one_after_the_other(tmp_path: Path, pandas: Any):
    """A text, a table and an image in one list."""
    pillow = pytest.importorskip("PIL.Image")
    value = ["Cities", pandas.DataFrame({"n": [1]}), pillow.new("RGB", (2, 2))]
    content = (await shown(tmp_path, value))["content"]
    assert ["text", "text", "image"] == [block["type"] for block in content]
    assert "| n |\n| --- |\n| 1 |" == content[1]["text"]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "CMYK", "F"])
async def test_an_image_of_pillow_is_png(tmp_path: Path, mode: str):
    """In modes that PNG does not have as well; the annotation needs no schema."""
    pillow = pytest.importorskip("PIL.Image")

    @skill_command
    def run() -> pillow.Image | None:
        return pillow.new(mode, (3, 2))

    contract, outcome = await called(tmp_path, run)
    (block,) = outcome.payload()["content"]
    assert (None, "image", "image/png") == (contract.output.schema, block["type"], block["mimeType"])
    assert base64.b64decode(block["data"]).startswith(b"\x89PNG")


async def test_a_figure_is_png_and_is_not_kept(tmp_path: Path):
    """Axes stand for their figure, as `frame.plot()` gives them."""
    pytest.importorskip("matplotlib").use("agg")
    figures = pytest.importorskip("matplotlib.figure")
    (block,) = (await shown(tmp_path, figures.Figure()))["content"]
    assert ("image", "image/png") == (block["type"], block["mimeType"])
    pyplot = pytest.importorskip("matplotlib.pyplot")
    _, axes = pyplot.subplots()
    assert "image" == (await shown(tmp_path, axes))["content"][0]["type"]
    assert [] == pyplot.get_fignums()


def test_no_library_is_imported_for_them(tmp_path: Path):
    """Until a skill does."""
    import subprocess

    code = (
        "import asyncio, sys\nfrom prowess import Runtime, skill_command\n"
        "@skill_command\ndef run(): return [object]\nrun()\n"
        "print({'pandas', 'polars', 'numpy', 'matplotlib', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "set()" == done.stdout.strip()


async def test_plugins_of_a_project_come_first(tmp_path: Path, pandas: Any):
    """Whatever they make of a frame counts."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/plug.py").write_text(
        "from prowess import hookimpl, skill_command\n@hookimpl\ndef prowess_render(value):\n"
        "    if type(value).__name__ == 'DataFrame':\n        return 'mine'\n"
        "@skill_command\ndef go():\n    import pandas\n    return pandas.DataFrame()\n"
    )
    async with Runtime.open(tmp_path) as runtime:
        assert "mine" == (await runtime.call("plug.go")).text
