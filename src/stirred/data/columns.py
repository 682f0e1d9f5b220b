"""Columns of a table, in memory or fetched from a Parquet file one at a time, whole or in ranges of rows."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.frames import parquet_parts, scan_frame
from stirred.data.problems import bad_file, listed
from stirred.data.sources import FilePart, scan_parts
from stirred.data.whole import as_whole


def has_text(kind: pl.DataType) -> bool:
    """Say whether values of a type can be written to CSV: only such columns are released, and can be compared.

    >>> has_text(pl.Date()), has_text(pl.Duration()), has_text(pl.List(pl.Int64))
    (True, False, False)
    """
    return not kind.is_nested() and kind not in (pl.Object, pl.Null, pl.Binary, pl.Duration)


class Columns(Protocol):
    """What the mechanisms need of a table: names, length, and a column by name. A frame has all of it."""

    @property
    def columns(self) -> list[str]:
        """Return the names."""
        ...

    @property
    def height(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, name: str) -> pl.Series:
        """Return one column."""
        ...

    def head(self, n: int) -> pl.DataFrame:
        """Return the first rows."""
        ...


_PIECE: Final = 4_000_000  # rows


class ParquetColumns:
    """A Parquet file, or a folder of parts, of which only the columns asked for are read, each time again.

    A national file does not fit into memory; one column of it does. Anything else that a frame can do is done on the
    whole table, which is read for that moment.
    """

    def __init__(self, path: Path) -> None:
        self.scan = scan_frame(path, given=True)
        self.columns: list[str] = self.scan.collect_schema().names()
        self.height: int = self.scan.select(pl.len()).collect().item()

    def with_columns_changed(self, change: Callable[[pl.LazyFrame], pl.LazyFrame]) -> ParquetColumns:
        """Return the same file with a change of its values, made whenever a column is read."""
        changed = copy(self)
        changed.scan = change(self.scan)
        return changed

    def __getitem__(self, name: str) -> pl.Series:
        return canonical(self.scan.select(name).collect().to_series().rechunk())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying asks before there is a scan
            raise AttributeError(name)
        return getattr(self.select(self.columns), name)

    @property
    def schema(self) -> pl.Schema:
        """Return the types of the columns as the file has them."""
        return self.scan.collect_schema()

    def select(self, *names: str | Sequence[str]) -> pl.DataFrame:
        """Return some columns as a frame."""
        return select(self, [each for name in names for each in ([name] if isinstance(name, str) else name)])

    def head(self, n: int) -> pl.DataFrame:
        """Return the first rows."""
        return self.scan.head(n).collect()


def scan_of(table: Columns, names: list[str]) -> pl.LazyFrame:
    """Return some columns to be read piece by piece; only integers are what they are without a look at all of them."""
    if isinstance(table, ParquetColumns) and all(table.schema[name].is_integer() for name in names):
        return table.scan.select(names)
    return select(table, names).lazy()


def pieces_of(table: Columns, name: str) -> Iterator[pl.Series]:
    """Yield a column piece by piece; one of integers is not even read as a whole."""
    pieces = scan_of(table, [name]).collect_batches(chunk_size=_PIECE, maintain_order=True)
    yield from (piece.to_series() for piece in pieces)


def canonical(column: pl.Series) -> pl.Series:
    """Return a column that holds nothing but its values, written alike where they compare equal.

    Whole numbers are integers, also where a program wrote them as 1.0. Other floats get one zero and one not-a-number.
    An enumeration or a category becomes text: its dictionary also holds values that no record has, in the order in
    which the file had them first.

    >>> canonical(pl.Series([0.5, -0.0])).to_numpy().view("uint64").tolist()[1]
    0
    >>> canonical(pl.Series([1.0, 2.0])).dtype
    Int64
    """
    if column.dtype in (pl.Enum, pl.Categorical):
        column = column.cast(pl.String)
    column = as_whole(column)
    if not column.dtype.is_float():
        return column
    x = pl.col("x")
    plain = pl.when(x.is_nan()).then(float("nan")).when(x == 0).then(0.0).otherwise(x).cast(column.dtype)
    return column.alias("x").to_frame().select(plain.alias(column.name)).to_series()


def as_polars(frame: Any) -> pl.DataFrame:
    """Return a frame of any library as a polars frame."""
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    import narwhals as nw

    try:
        table = nw.from_native(frame, eager_only=True)
        columns = table.to_polars()
    except Exception as error:  # every library has its own
        raise bad_file(
            f"{type(frame).__name__} cannot be read as a table ({str(error)[:120]})",
            where="data",
            remedy="give a polars, pandas or pyarrow frame whose columns each have one type",
        ) from None
    _warn_of_index(nw.maybe_get_index(table))
    return _own(columns) if table.implementation.is_pandas_like() else columns


def _own(columns: pl.DataFrame) -> pl.DataFrame:
    """Return a frame in memory of its own: that of pandas can be written to after a plan was made of it."""
    copied = io.BytesIO()
    columns.write_ipc(copied)
    copied.seek(0)
    return pl.read_ipc(copied)


def _warn_of_index(index: Any) -> None:
    """Warn of the index of a pandas frame where it is more than row numbers: only columns are used.

    It cannot be kept: released records stand in another order, and labels that went along would undo the swap.
    """
    if index is None:
        return
    names = [str(name) for name in index.names if name is not None]
    if names or index.nlevels > 1 or index.dtype.kind not in "iu":
        warnings.warn(
            f"the index of the frame{f' ({listed(names)})' if names else ''} is no column and is left out: if it holds "
            "something that matters, call reset_index() first",
            stacklevel=3,
        )


def canonical_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with canonical columns, each in one piece of memory."""
    frame = frame.rechunk()
    columns = frame.get_columns()
    changed = [new for old in columns if (new := canonical(old)) is not old]
    return frame.with_columns(changed) if changed else frame


_NUMBERS = (
    pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
)  # fmt: skip


def gather(column: pl.Series, rows: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Return the values of a column at some rows: plain memory look-ups where the column is plain numbers.

    >>> gather(pl.Series("x", [10, 20, 30]), np.array([2, 0], dtype=np.uint32)).to_list()
    [30, 10]
    """
    if column.dtype in _NUMBERS and column.n_chunks() == 1 and not column.null_count():
        # Rows are positions of this very column, so nothing is clipped: the mode only spares a second check.
        return pl.Series(column.name, column.to_numpy().take(rows, mode="clip"))
    return column.gather(rows)


def gather_all(columns: Sequence[pl.Series], rows: npt.NDArray[np.uint32]) -> list[pl.Series]:
    """Gather several columns at once, on all cores: look-ups leave the interpreter free."""
    if rows.size < 100_000 or len(columns) < 2:
        return [gather(column, rows) for column in columns]
    places = rows.astype(np.intp)  # once, and not again for every column
    with ThreadPoolExecutor(min(len(columns), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda column: gather(column, places), columns))


def select(table: Columns, names: list[str]) -> pl.DataFrame:
    """Return some columns of a table as a frame."""
    return pl.DataFrame([table[name].alias(name) for name in names])


def fresh(column: pl.Series) -> pl.Series:
    """Return a column whose memory is laid out in the order of its own rows and holds its own values alone.

    Polars keeps text in shared buffers, and bringing rows into another order moves only what points into them: a
    reordered column still holds every text in the order of the file it was read from, and writing or pickling it
    writes the buffers. Only text needs this: gathering any other column copies its values, and zeroes what stands
    under missing ones.

    >>> fresh(pl.Series("note", ["a long text that is not kept in place", None])).to_list()
    ['a long text that is not kept in place', None]
    """
    if column.dtype != pl.String:
        return column
    # Formatting writes every text out. A cast, a copy or a rechunk would keep the old buffers.
    written = column.alias("x").to_frame().select(pl.format("{}", pl.col("x"))).to_series()
    return written.alias(column.name)


# ---- ranges of rows in Parquet files: machines that see the files read one each, and agree on row numbers ----------

Schema = Mapping[str, pl.DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """So many rows of a file, after the first ``skip``; in the table ``first`` rows come before."""

    part: FilePart
    skip: int
    rows: int
    first: int

    @property
    def slice(self) -> slice:
        """Return its rows of the table."""
        return slice(self.first, self.first + self.rows)

    def read(self, schema: Schema) -> pl.DataFrame:
        """Return these columns, as reading the whole table gives them.

        Which types a table gets depends on all of its rows, so a piece is given them. Text stays as it is.
        """
        scan = scan_parts([self.part]).select([*schema]).slice(self.skip, self.rows)
        columns = [_as_type(column, schema[column.name]) for column in scan.collect().rechunk().get_columns()]
        return pl.DataFrame(columns)


def _as_type(column: pl.Series, kind: pl.DataType) -> pl.Series:
    if kind.is_float():
        return (column + 0.0).fill_nan(float("nan"))  # one zero, and one not-a-number
    return column.cast(kind, strict=False)  # not-a-number beside whole numbers is a missing integer


def row_ranges(files: Sequence[Path], *, most: int) -> Iterator[RowRange]:
    """Yield the pieces of a table, files or folders, in the order of its rows, each of at most so many of one file."""
    first = 0
    for part in (part for path in files for part in parquet_parts(path)):
        rows = int(scan_parts([part]).select(pl.len()).collect().item())
        for skip in range(0, rows, most):
            yield RowRange(part=part, skip=skip, rows=min(most, rows - skip), first=first + skip)
        first += rows


def schema_of(table: Columns, names: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the types that columns of a table have once they are read; columns are read only where values decide."""
    stored = table.head(0).schema
    if not isinstance(table, ParquetColumns):
        return {name: stored[name] for name in names}
    decided = (pl.Enum, pl.Categorical, pl.Float32, pl.Float64, pl.Decimal)
    return {name: table[name].dtype if stored[name] in decided else stored[name] for name in names}


def checksum_of(column: pl.Series, *, first: int) -> int:
    """Return a number that changes if a value, or the place of one, does; ``first`` rows of the table come before.

    >>> ages = pl.Series([30, 4])
    >>> checksum_of(ages, first=0) == checksum_of(ages.reverse(), first=0)
    False
    """
    hashed = column.alias("value").to_frame().with_row_index("row", offset=first).hash_rows()
    return int(np.add.reduce(hashed.to_numpy()))  # modulo 2**64
