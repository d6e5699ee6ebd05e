"""Converts values of well-known libraries for models, without importing these libraries.

A value is recognised by the names of its class and module. Frames become tables: Markdown, or rows if the command declares
data. Figures and images become PNG, objects of attrs and msgspec their fields.
"""

from __future__ import annotations

import functools
import io
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from io import IOBase
from operator import methodcaller
from pathlib import PurePath
from typing import Any, Final, cast, get_args

from prowess.results.content import Image

__all__ = ["Plot", "Table", "rendered", "renders"]

_MOST_ROWS: Final = 100
"""Rows of a table that is shown as text."""
_PNG_MODES: Final = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"})
"""Modes of Pillow that PNG supports."""
_WRITTEN: Final = (str, int, float, Decimal, date, time, timedelta, PurePath)


class Table:
    """Rows and columns: `text` for readers, `records` for declared data."""

    def __init__(self, columns: Iterable[Any], count: int, rows: Callable[[int], Iterable[Sequence[Any]]]) -> None:
        """`rows` returns a number of rows from the start."""
        self._columns = list(map(_name, columns))
        self._count = count
        self._rows = rows

    def data(self) -> list[Any]:
        """All rows, for data of no declared type."""
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        """All rows as mappings. Missing values are `None`. Raises `ValueError` for columns of one name, which mappings cannot have."""
        twice = [name for name, count in Counter(self._columns).items() if count > 1]
        if twice:
            raise ValueError(f"two columns of the table are called {twice[0]!r}; rename one")
        return [dict(zip(self._columns, map(_known, row), strict=True)) for row in self._rows(self._count)]

    def text(self) -> str:
        """The first rows in Markdown. If there are more, the last line says how many."""
        head = [self._columns, ["---"] * len(self._columns)]
        lines = [_line(row) for row in itertools.chain(head, self._rows(min(self._count, _MOST_ROWS)))]
        if self._count > _MOST_ROWS:
            lines += ["", f"({_MOST_ROWS} of {self._count:,} rows)"]
        elif not self._count:
            lines += ["", "(no rows)"]
        return "\n".join(lines)


class Plot(Image):
    """The image of a figure."""

    def __init__(self, figure: Any, data: bytes) -> None:
        super().__init__(data, mime_type="image/png")
        self.figure = figure


class _Column(Table):
    """One column, whose rows have no names of their own: as data of no declared type, it is its values."""

    def data(self) -> list[Any]:
        """All values. Missing ones are `None`."""
        return [_known(value) for (value,) in self._rows(self._count)]


def _name(column: Any) -> str:
    """The name of a column. Several levels are joined by dots."""
    return ".".join(map(str, cast("Iterable[object]", column))) if isinstance(column, tuple) else str(column)


def _known(value: Any) -> Any:
    """A value, or `None` for NaN and similar."""
    return None if isinstance(value, float) and value != value else value  # noqa: PLR0124 - NaN alone differs from itself


def _line(row: Iterable[Any]) -> str:
    cells = ("" if (known := _known(value)) is None else str(known) for value in row)
    return "| " + " | ".join(" ".join(cell.replace("|", r"\|").split("\n")) for cell in cells) + " |"


def rendered(value: Any) -> Any:
    """A `Table`, an `Image` or plain data; `None` for all other values."""
    render = _renderer_of(cast("type[Any]", type(value)))
    return render(value) if render is not None else None


def renders(annotation: Any) -> bool:
    """Whether a type, or a type inside it, is supported here, so that it needs no schema."""
    if isinstance(annotation, type) and not get_args(annotation):
        cls = cast("type[Any]", annotation)
        return _is_written(cls) or _renderer_of(cls) is not None
    return any(map(renders, get_args(annotation)))


def _is_written(cls: type[Any]) -> bool:
    """Whether pydantic writes the instances of a class, but has no schema for it."""
    if issubclass(cls, IOBase):
        return True
    if not issubclass(cls, _WRITTEN) or issubclass(cls, Enum) or hasattr(cls, "__get_pydantic_core_schema__"):
        return False
    return cls.__module__.partition(".")[0] not in sys.stdlib_module_names


@functools.lru_cache(maxsize=256)
def _renderer_of(kind: type[Any]) -> Callable[[Any], Any] | None:
    for base in kind.__mro__:
        found = _RENDERERS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return found
    if isinstance(getattr(kind, "__attrs_attrs__", None), tuple):
        return _of_attrs
    return None


def _of_pandas(frame: Any, table: type[Table] = Table) -> Table:
    index = frame.index
    if index.nlevels > 1 or index.name is not None or index.dtype.kind not in "iu":
        frame, table = frame.reset_index(allow_duplicates=True), Table

    def rows(count: int) -> Iterator[Any]:
        part = frame.head(count).astype(object)
        return part.where(part.notna(), None).itertuples(index=False, name=None)

    return table(frame.columns, len(frame), rows)


def _of_polars(frame: Any, table: type[Table] = Table) -> Table:
    return table(frame.columns, frame.height, lambda count: frame.head(count).iter_rows())


def _of_arrow(table: Any) -> Table:
    def rows(count: int) -> Iterator[Any]:
        return zip(*(column.to_pylist() for column in table.slice(0, count).columns), strict=True)

    return Table(table.schema.names, table.num_rows, rows)


def _of_row(row: Any) -> dict[str, Any]:
    return Table(row.keys(), 1, lambda _: [row]).records()[0]


def _of_attrs(value: Any) -> dict[str, Any]:
    """The public fields."""
    fields: Iterable[Any] = cast("Any", type(value)).__attrs_attrs__
    return {field.name: getattr(value, field.name) for field in fields if not field.name.startswith("_")}


def _of_struct(struct: Any) -> dict[str, Any]:
    """The fields of a struct of msgspec under the names that it writes, with its tag, and without fields that are not set."""
    kind = cast("Any", type(struct))
    names: Iterable[tuple[str, str]] = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    held: dict[str, Any] = {name: getattr(struct, field) for name, field in names}
    tag_field: str | None = kind.__struct_config__.tag_field
    tag = {} if tag_field is None else {tag_field: kind.__struct_config__.tag}
    return tag | {name: value for name, value in held.items() if type(value).__name__ != "UnsetType"}


def _of_array(array: Any) -> Any:
    """Lists. An array of axes, as `plt.subplots` and `frame.hist` return it, is their figure."""
    first: object = array.flat[0] if array.dtype.hasobject and array.size else None
    return _of_axes(first) if _renderer_of(type(first)) is _of_axes else array.tolist()


def _of_axes(axes: Any) -> Image:
    return _of_figure(axes.figure.figure)


def _of_figure(figure: Any) -> Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)  # pyplot would keep every figure until the worker ends
    return Plot(figure, buffer.getvalue())


def _of_pillow(image: Any) -> Image:
    buffer = io.BytesIO()
    (image if image.mode in _PNG_MODES else image.convert("RGB")).save(buffer, "PNG")
    return Image(buffer.getvalue(), mime_type="image/png")


_RENDERERS: Final[Mapping[tuple[str, str], Callable[[Any], Any]]] = {
    ("pandas", "DataFrame"): _of_pandas,
    ("pandas", "Series"): lambda series: _of_pandas(series.to_frame(), _Column),
    ("pandas", "Index"): lambda index: index.tolist(),
    ("pandas", "ExtensionArray"): lambda array: array.tolist(),
    ("polars", "DataFrame"): _of_polars,
    ("polars", "LazyFrame"): lambda frame: _of_polars(frame.collect()),
    ("polars", "Series"): lambda series: _of_polars(series.to_frame(), _Column),
    ("pyarrow", "Table"): _of_arrow,
    ("pyarrow", "RecordBatch"): _of_arrow,
    ("pyarrow", "Array"): lambda array: array.to_pylist(),
    ("pyarrow", "ChunkedArray"): lambda array: array.to_pylist(),
    ("pyarrow", "Scalar"): lambda scalar: scalar.as_py(),
    ("numpy", "ndarray"): _of_array,
    ("numpy", "generic"): lambda scalar: scalar.item(),
    ("matplotlib", "Figure"): _of_figure,
    ("matplotlib", "Axes"): _of_axes,
    ("PIL", "Image"): _of_pillow,
    ("fastmcp", "Image"): methodcaller("to_image_content"),
    ("fastmcp", "Audio"): methodcaller("to_audio_content"),
    ("fastmcp", "File"): methodcaller("to_resource_content"),
    ("mcp", "Image"): methodcaller("to_image_content"),
    ("mcp", "Audio"): methodcaller("to_audio_content"),
    ("msgspec", "Struct"): _of_struct,
    ("sqlite3", "Row"): _of_row,
}
