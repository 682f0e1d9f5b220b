"""What a released frame holds in memory besides its values, as Python would write it to a file or a queue.

A frame may show its rows in an order that says nothing and still carry the input along: text in the buffers that it was
read into, categories in the order of their first appearance, numbers under missing values. ``pickle`` and Arrow files
write all of it. So the object itself is looked at, in whatever library it is, and not what it shows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import polars as pl

from stirred.data.columns import as_polars

# Shorter texts stand inside the column itself, in the order of its rows.
_LONG: Final = 13
# What a row of text needs at most beside the text itself: what points to it, with its library's own marks.
_MOST_BYTES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was found in the memory of a frame besides its values, and the columns whose memory could show an order."""

    findings: tuple[str, ...]
    seen: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Say whether the frame holds nothing but its values."""
        return not self.findings


def leftover_memory(frame: Any) -> Memory:
    """Look for what a frame of polars, pandas or pyarrow holds besides its values. The input is not needed.

    Text may stand in memory in the order of the rows or of its values: any other order is left over from somewhere,
    usually from the input. A dictionary of categories may hold the values of the rows, sorted.

    >>> texts = pl.Series("note", [f"a long text with the number {n}" for n in (3, 1, 2, 5, 4)])
    >>> leftover_memory(texts.to_frame()).findings
    ()
    >>> leftover_memory(texts.gather([4, 2, 0, 3, 1]).to_frame()).findings
    ('"note": its texts stand in memory in another order than its rows or its values do',)
    """
    shown = as_polars(frame)
    seen, findings = [], list(_beside(frame))
    for column in shown.get_columns():
        categories = _categories(frame, column)
        if categories is not None:
            seen.append(column.name)
            findings += _dictionary(column, categories)
        elif column.dtype == pl.String:
            texts = [
                text
                for text in column.unique(maintain_order=True).drop_nulls().to_list()
                if len(text.encode()) >= _LONG
            ]
            if len(texts) > 2:
                seen.append(column.name)
                findings += _text(column, texts, _written(frame, column))
        elif column.null_count() and not hasattr(frame, "index"):  # pandas has no place of its own for missing values
            # One made from its values alone differs in what stands under missing values.
            plain = pl.Series(column.name, column.to_list(), dtype=column.dtype)
            if _ipc(column) != _ipc(plain):
                findings.append(f'"{column.name}": numbers stand in memory under its missing values')
    return Memory(findings=tuple(findings), seen=tuple(seen))


def _written(frame: Any, column: pl.Series) -> bytes:
    """Return the bytes of a column as its own library writes them."""
    own = column.to_frame() if isinstance(frame, (pl.DataFrame, pl.LazyFrame)) else frame[column.name]
    return pickle.dumps(own, protocol=5)


def _text(column: pl.Series, texts: list[str], written: bytes) -> Iterator[str]:
    places = _places(written, texts)
    if min(places) < 0:
        return  # compressed, or in letters of another width: nothing can be said
    if all(_falls(_places("".join(order).encode(), texts), places) for order in (texts, sorted(texts))):
        yield f'"{column.name}": its texts stand in memory in another order than its rows or its values do'
    if len(written) > _MOST_BYTES * len(column) + 2 * sum(len(text.encode()) for text in column.drop_nulls()) + 10_000:
        yield f'"{column.name}": there is more text in memory than its rows have'


def _places(written: bytes, texts: list[str]) -> list[int]:
    """Return where each text stands first. It may stand inside a longer one, and then does so in every copy."""
    return [written.find(text.encode()) for text in texts]


def _falls(expected: list[int], places: list[int]) -> bool:
    """Say whether the places are in another order than expected."""
    found = [place for _, place in sorted(zip(expected, places, strict=True))]
    return any(first > second for first, second in pairwise(found))


def _dictionary(column: pl.Series, categories: list[str]) -> Iterator[str]:
    present = sorted(column.cast(pl.String).drop_nulls().unique().to_list())
    used = set(present)
    if [name for name in categories if name in used] != present:
        yield f'"{column.name}": its categories are numbered in another order than that of their values'
    if set(categories) - used:
        yield f'"{column.name}": its dictionary has categories that no row has'


def _categories(frame: Any, column: pl.Series) -> list[str] | None:
    """Return the dictionary of a column in the order of its codes; None where it has none."""
    if isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        if isinstance(column.dtype, pl.Enum):
            return column.dtype.categories.to_list()
        if column.dtype != pl.Categorical:
            return None
        codes = pl.DataFrame({"code": column.to_physical(), "name": column.cast(pl.String)})
        return codes.unique().drop_nulls().sort("code")["name"].to_list()
    own = frame[column.name]
    if hasattr(own, "cat"):
        return [str(name) for name in own.cat.categories]
    dictionaries = [
        chunk.dictionary.to_pylist() for chunk in getattr(own, "chunks", ()) if hasattr(chunk, "dictionary")
    ]
    return [str(name) for name in dictionaries[0]] if dictionaries else None


def _ipc(column: pl.Series) -> bytes:
    return column.rechunk().to_frame().write_ipc(None).getvalue()


def _beside(frame: Any) -> Iterator[str]:
    """Look at what pandas and pyarrow keep beside the columns."""
    if getattr(frame, "attrs", None):
        yield "the frame has attributes (attrs)"
    index = getattr(frame, "index", None)
    if index is not None and type(index).__name__ != "RangeIndex":
        yield "the frame has an index of its own"
    schema = getattr(frame, "schema", None)
    if getattr(schema, "metadata", None):
        yield "the table has metadata"
