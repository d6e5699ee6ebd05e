"""Values of other libraries, as commands return them."""

from __future__ import annotations

import base64
import contextlib
import io
import sqlite3
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from prowess import Outcome, Runtime, skill_command
from prowess.command import Command
from prowess.contracts.contract import Contract
from prowess.contracts.declaration import declaration_of
from prowess.errors import SchemaError

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


async def test_columns_inside_data_are_their_values(tmp_path: Path, pandas: Any, polars: Any):
    """Unless their rows have names."""
    counts = pandas.Series(["Ulm", "Ulm"], name="city").value_counts()
    held = {"n": pandas.Series([1, None]), "p": polars.Series("p", [2]), "counts": counts, "kind": pandas.Index(["a"])}
    expected = {"n": [1, None], "p": [2], "counts": [{"city": "Ulm", "count": 2}], "kind": ["a"]}
    assert expected == (await shown(tmp_path, held))["structuredContent"]
    assert {"result": ["b"]} == (await shown(tmp_path, pandas.Categorical(["b"])))["structuredContent"]


async def test_a_missing_date_has_its_place(tmp_path: Path, pandas: Any):
    """The message of pandas itself speaks of floats and integers."""
    for output in (None, list[dict[str, Any]]):
        payload = await shown(tmp_path, [{"day": pandas.NaT}], output=output)
        assert "result[0].day: JSON has no NaT. Return a time, None or a string" in payload["content"][0]["text"]


class Struct:
    """Stands for that of msgspec."""

    __struct_fields__ = ("first_name", "age", "kind")
    __struct_encode_fields__ = ("firstName", "age", "kind")
    __struct_config__ = type("StructConfig", (), {"tag_field": None, "tag": None})


Struct.__module__ = "msgspec"


class Person(Struct):
    def __init__(self) -> None:
        self.first_name, self.age, self.kind = "Ada", type("UnsetType", (), {})(), [1]


class Tagged(Person):
    __struct_config__ = type("StructConfig", (), {"tag_field": "type", "tag": "person"})


class Arrow:
    """Stands for what pyarrow has: one column, or one value."""

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.columns, self.num_rows, self.schema = [self], len(values), type("Schema", (), {"names": ["n"]})

    def slice(self, start: int, length: int) -> Any:
        return type(self)(self.values[start : start + length])

    def to_pylist(self) -> list[int]:
        return self.values

    def as_py(self) -> int:
        return self.values[0]


def of_arrow(name: str) -> Any:
    return type(name, (Arrow,), {"__module__": "pyarrow.lib"})([7])


def a_row(query: str) -> sqlite3.Row:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:  # Python 3.13 warns of open ones
        connection.row_factory = sqlite3.Row
        return connection.execute(query).fetchone()


async def test_objects_are_their_fields(tmp_path: Path):
    """The public ones, annotated or not; a row has names, so none of them may be lost."""
    attrs = pytest.importorskip("attrs")
    user = attrs.make_class("User", ["name", "_key"])("Ada", "secret")

    @skill_command
    def run() -> list[type(user)]:
        return [user]

    contract, outcome = await called(tmp_path, run)
    assert (None, [{"name": "Ada"}]) == (contract.output.schema, outcome.value)
    person = {"firstName": "Ada", "kind": [1]}
    held = {"user": user, "structs": [Person(), Tagged()], "row": a_row("select 1 as a, 'x' as b")}
    expected = {"user": {"name": "Ada"}, "structs": [person, {"type": "person", **person}], "row": {"a": 1, "b": "x"}}
    assert expected == (await shown(tmp_path, held))["structuredContent"]
    held = {"array": of_arrow("Array"), "chunks": of_arrow("ChunkedArray"), "scalar": of_arrow("Scalar")}
    assert {"array": [7], "chunks": [7], "scalar": 7} == (await shown(tmp_path, held))["structuredContent"]
    for name in ("Table", "RecordBatch"):
        assert "| n |\n| --- |\n| 7 |" == await text_of(tmp_path, of_arrow(name))
    assert {"result": [1, 2]} == (await shown(tmp_path, a_row("select 1, 2"), output=list[int]))["structuredContent"]
    payload = await shown(tmp_path, a_row("select 1 as a, 2 as a"))
    assert "two columns of the table are called 'a'; rename one" in payload["content"][0]["text"]


async def test_a_buffer_or_a_binary_file_is_its_content(tmp_path: Path):
    """Lines of bytes would say nothing, and the position of a written buffer is its end; a text file is its lines."""
    png = b"\x89PNG\r\n\x1a\n"
    file = tmp_path / "a.png"
    file.write_bytes(png)

    def written() -> io.BytesIO:
        buffer = io.BytesIO()
        buffer.write(png)
        return buffer

    for give in (written, lambda: file.open("rb"), lambda: file.open("rb", buffering=0)):

        @skill_command
        def run(give: Any = give) -> io.IOBase:
            return give()

        (block,) = (await called(tmp_path, run))[1].payload()["content"]
        assert ("image/png", png) == (block["mimeType"], base64.b64decode(block["data"]))

    text = io.StringIO()
    text.write("a\nb\n")
    assert "a\nb\n" == await text_of(tmp_path, text)
    assert {"result": ["a\n", "b\n"]} == (await shown(tmp_path, io.TextIOWrapper(io.BytesIO(b"a\nb\n"))))[
        "structuredContent"
    ]


async def test_the_class_of_a_text_or_a_number_needs_no_schema(tmp_path: Path):
    """Libraries have dates and strings of their own. One that describes itself has to do it right."""

    class Name(str):
        __slots__ = ()

    class Wrong(Name):
        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
            raise TypeError("install the parser")

    @skill_command
    def run() -> Name | None:
        return Name("Ada")

    class Kind(str, Enum):
        A = "a"

    @skill_command
    def wrong() -> Wrong:
        return Wrong("Ada")

    @skill_command
    def other() -> dict[str | Kind, type[int]]:
        return {}

    contract, outcome = await called(tmp_path, run)
    assert (None, "Ada") == (contract.output.schema, outcome.value)
    with pytest.raises(SchemaError, match="install the parser"):
        await called(tmp_path, wrong)
    with pytest.raises(SchemaError, match="Cannot generate a JsonSchema for a class"):
        await called(tmp_path, other)


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


async def test_the_media_of_other_frameworks_are_content(tmp_path: Path):
    """As skills bring them that were moved from there."""
    block = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    for library in ("fastmcp", "mcp"):
        members = {"__module__": f"{library}.utilities.types", "to_image_content": lambda _: block}
        image = type("Image", (), members)()

        @skill_command
        def run(image: Any = image) -> list[str | type(image)]:
            return ["a", image]

        assert [{"type": "text", "text": "a"}, block] == (await called(tmp_path, run))[1].payload()["content"]


async def test_a_figure_is_png_and_is_not_kept(tmp_path: Path):
    """Axes stand for their figure, as `frame.plot()` and `pyplot.subplots()` give them, which is shown once."""
    pytest.importorskip("matplotlib").use("agg")
    figures = pytest.importorskip("matplotlib.figure")
    (block,) = (await shown(tmp_path, figures.Figure()))["content"]
    assert ("image", "image/png") == (block["type"], block["mimeType"])
    two = await shown(tmp_path, [figures.Figure(), "and", figures.Figure()])
    assert ["image", "text", "image"] == [block["type"] for block in two["content"]]
    pyplot = pytest.importorskip("matplotlib.pyplot")
    _, axes = pyplot.subplots()
    assert "image" == (await shown(tmp_path, axes))["content"][0]["type"]
    for value in (pyplot.subplots(), pyplot.subplots(2), pyplot.subplots(2, 2)[1]):
        assert ["image"] == [block["type"] for block in (await shown(tmp_path, value))["content"]]
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
