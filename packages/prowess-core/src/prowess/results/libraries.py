"""Converts values of pandas, polars, NumPy, matplotlib and Pillow for models, without importing these libraries.

A value is recognised by the names of its class and module. Frames become tables: Markdown, or rows if the command declares
data. Figures and images become PNG.
"""

from __future__ import annotations

import functools
import io
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast, get_args

from prowess.results.content import Image

__all__ = ["Table", "rendered", "renders"]

_MOST_ROWS: Final = 100
"""Rows of a table that is shown as text."""
_PNG_MODES: Final = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"})
"""Modes of Pillow that PNG supports."""


class Table:
    """Rows and columns: `text` for readers, `records` for declared data."""

    def __init__(self, columns: Iterable[Any], count: int, rows: Callable[[int], Iterable[Sequence[Any]]]) -> None:
        """`rows` returns a number of rows from the start."""
        self._columns = list(map(_name, columns))
        self._count = count
        self._rows = rows

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
    if isinstance(annotation, type) and _renderer_of(cast("type[Any]", annotation)) is not None:
        return True
    return any(map(renders, get_args(annotation)))


@functools.lru_cache(maxsize=256)
def _renderer_of(kind: type[Any]) -> Callable[[Any], Any] | None:
    for base in kind.__mro__:
        found = _RENDERERS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return found
    return None


def _of_pandas(frame: Any) -> Table:
    index = frame.index
    if index.nlevels > 1 or index.name is not None or index.dtype.kind not in "iu":
        frame = frame.reset_index(allow_duplicates=True)

    def rows(count: int) -> Iterator[Any]:
        part = frame.head(count).astype(object)
        return part.where(part.notna(), None).itertuples(index=False, name=None)

    return Table(frame.columns, len(frame), rows)


def _of_polars(frame: Any) -> Table:
    return Table(frame.columns, frame.height, lambda count: frame.head(count).iter_rows())


def _of_figure(figure: Any) -> Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)  # pyplot would keep every figure until the worker ends
    return Image(buffer.getvalue(), mime_type="image/png")


def _of_pillow(image: Any) -> Image:
    buffer = io.BytesIO()
    (image if image.mode in _PNG_MODES else image.convert("RGB")).save(buffer, "PNG")
    return Image(buffer.getvalue(), mime_type="image/png")


_RENDERERS: Final[Mapping[tuple[str, str], Callable[[Any], Any]]] = {
    ("pandas", "DataFrame"): _of_pandas,
    ("pandas", "Series"): lambda series: _of_pandas(series.to_frame()),
    ("polars", "DataFrame"): _of_polars,
    ("polars", "LazyFrame"): lambda frame: _of_polars(frame.collect()),
    ("polars", "Series"): lambda series: _of_polars(series.to_frame()),
    ("numpy", "ndarray"): lambda array: array.tolist(),
    ("numpy", "generic"): lambda scalar: scalar.item(),
    ("matplotlib", "Figure"): _of_figure,
    ("matplotlib", "Axes"): lambda axes: _of_figure(axes.figure.figure),
    ("PIL", "Image"): _of_pillow,
}
