"""Columns as integers: one code for each combination of values, and the table to read it back."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.columns import Columns, fresh, gather_all, scan_of
from stirred.data.natural import sorted_values

# What a piece reads and writes stays in the processor's cache.
PIECE: Final = 1 << 18


def by_pieces(work: Callable[[slice], None], rows: int) -> None:
    """Do ``work`` on every piece of so many rows.

    Pieces must not depend on each other; work that leaves the interpreter free, as compiled passes do,
    runs on all cores.

    >>> doubled = list(range(5))
    >>> def double(piece):
    ...     doubled[piece] = [2 * value for value in doubled[piece]]
    >>> by_pieces(double, 5)
    >>> doubled
    [0, 2, 4, 6, 8]
    """
    pieces = [slice(begin, min(begin + PIECE, rows)) for begin in range(0, rows, PIECE)]
    threads = min(os.cpu_count() or 1, len(pieces))
    if threads < 2:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, pieces):
            pass


Codes = npt.NDArray[np.uint32]

# Up to here a table with one entry for every possible combination beats hashing the combinations.
_DENSE: Final = 1 << 26
MACHINE_INTEGERS: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
# From here compiled passes pay for loading the compiler.
_LARGE: Final = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Rows as codes from 0 to ``len(levels) - 1``, numbered in the order of their values.

    The numbering depends on the set of values present and not on the order of the rows.
    """

    codes: Codes
    levels: pl.DataFrame

    @property
    def count(self) -> int:
        """Return the number of different combinations."""
        return self.levels.height

    def decoded(self, codes: Codes) -> pl.DataFrame:
        """Return the values of codes."""
        return pl.DataFrame(gather_all(self.levels.get_columns(), codes)) if self.levels.width else pl.DataFrame()


def encode(frame: Columns, columns: list[str]) -> Coded:
    """Return each row's combination of ``columns`` as one code.

    >>> coded = encode(pl.DataFrame({"a": ["x", "y", "x"], "b": [1, 1, 2]}), ["a", "b"])
    >>> coded.codes.tolist(), coded.levels.rows()
    ([0, 2, 1], [('x', 1), ('x', 2), ('y', 1)])
    """
    if not columns:
        return Coded(np.zeros(frame.height, dtype=np.uint32), pl.DataFrame([{}]) if frame.height else pl.DataFrame())
    combined = _Combined(np.zeros(frame.height, dtype=np.uint32), 1, [])
    levels: list[pl.Series] = []
    for column in columns:
        single = _single(frame[column])
        combined = _combine(combined, single)
        levels.append(single.levels.alias(column))
    parts = [level[index] for level, index in zip(levels, combined.parts, strict=True)]
    return Coded(combined.codes, pl.DataFrame(parts).rechunk())


@dataclass(frozen=True, slots=True, eq=False)
class _Combined:
    """Codes of several columns so far; ``parts[j][code]`` is the place of column j's value among its levels."""

    codes: Codes
    count: int
    parts: list[npt.NDArray[np.intp]]


def _combine(so_far: _Combined, single: _Single) -> _Combined:
    """Append a column, keeping codes in the order of values."""
    size = len(single.levels)
    if so_far.count * size <= _DENSE:
        return _combine_dense(so_far, single, size)
    own = np.zeros(so_far.codes.size, dtype=np.uint32)
    _fold_in(single, own)
    # Geographies nest: a block tells its tract. Then there are only as many combinations as blocks.
    if not differing(own, so_far.codes, count=size).any():
        return _combine_nested(so_far, own, size)
    if not differing(so_far.codes, own, count=so_far.count).any():
        told = np.zeros(so_far.count, dtype=np.intp)
        told[so_far.codes] = own
        return _Combined(so_far.codes, so_far.count, [*so_far.parts, told])
    keys = so_far.codes.astype(np.uint64) * np.uint64(size) + own
    occurring, codes = np.unique(keys, return_inverse=True)
    outer, inner = np.divmod(occurring, np.uint64(size))
    parts = [part[outer.astype(np.intp)] for part in so_far.parts]
    return _Combined(codes.astype(np.uint32), occurring.size, [*parts, inner.astype(np.intp)])


def _combine_dense(so_far: _Combined, single: _Single, size: int) -> _Combined:
    cells = so_far.count * size
    codes = so_far.codes
    _fold_in(single, codes)
    if so_far.count == 1:
        return _Combined(codes, size, [*(part.repeat(size) for part in so_far.parts), np.arange(size)])
    present = np.zeros(cells, dtype=np.bool_)
    _mark(codes, 0, present)
    occurring = np.flatnonzero(present)
    if occurring.size < cells:
        number = np.zeros(cells, dtype=np.uint32)
        number[occurring] = np.arange(occurring.size, dtype=np.uint32)
        _renumber(codes, number)
    outer, inner = np.divmod(occurring, size)
    return _Combined(codes, occurring.size, [*(part[outer] for part in so_far.parts), inner])


def _combine_nested(so_far: _Combined, own: Codes, size: int) -> _Combined:
    """Combine where the new column tells all the earlier ones."""
    outer = np.zeros(size, dtype=np.uint32)
    outer[own] = so_far.codes
    order = np.lexsort((np.arange(size), outer))
    number = np.zeros(size, dtype=np.uint32)
    number[order] = np.arange(size, dtype=np.uint32)
    _renumber(own, number)
    return _Combined(own, size, [*(part[outer[order]] for part in so_far.parts), order])


@dataclass(frozen=True, slots=True, eq=False)
class _Single:
    """One column: integers with a table from value to code, the table starting at the value ``low``."""

    values: npt.NDArray[Any]
    low: int
    table: Codes
    levels: pl.Series


def _single(column: pl.Series) -> _Single:
    if column.dtype in MACHINE_INTEGERS and not column.null_count() and len(column):
        low, high = int(column.min()), int(column.max())  # type: ignore[arg-type]
        if high - low < _DENSE and high < 1 << 63:
            return _counted(column, low, high)
    # Sorted and in memory of their own: what is looked up in them later knows nothing of the order of the rows.
    levels = fresh(sorted_values(column.unique()))
    index = pl.DataFrame({"value": levels}).with_row_index("code")
    codes = pl.DataFrame({"value": column}).join(
        index, on="value", how="left", maintain_order="left", nulls_equal=True
    )["code"]
    if column.dtype.is_float():
        # A join of columns that are marked as sorted loses NaN (polars 2.1); of the levels it is always the last.
        codes = codes.fill_null(len(levels) - 1)
    table = np.arange(max(len(levels), 1), dtype=np.uint32)
    return _Single(codes.to_numpy(), 0, table, levels)


def _counted(column: pl.Series, low: int, high: int) -> _Single:
    """Number integers by counting: no hashing and no sorting of the rows."""
    values = column.to_numpy()
    present = np.zeros(high - low + 1, dtype=np.bool_)
    _mark(values, low, present)
    occurring = np.flatnonzero(present)
    table = np.zeros(present.size, dtype=np.uint32)
    table[occurring] = np.arange(occurring.size, dtype=np.uint32)
    levels = pl.Series(occurring + low).cast(column.dtype)
    return _Single(values, low, table, levels)


def _mark(values: npt.NDArray[Any], low: int, present: npt.NDArray[np.bool_]) -> None:
    if values.size >= _LARGE:
        from stirred.data.code_kernels import mark_present

        # Threads may mark the same value: it is marked either way.
        by_pieces(lambda piece: mark_present(values[piece], low, present), values.size)
    else:
        present[values.astype(np.int64) - low] = True


def _fold_in(single: _Single, codes: Codes) -> None:
    size = len(single.levels)
    if codes.size >= _LARGE:
        from stirred.data.code_kernels import fold_in

        values, low, table = single.values, single.low, single.table
        by_pieces(lambda piece: fold_in(values[piece], low, table, size, codes[piece]), codes.size)
    else:
        codes *= np.uint32(size)
        codes += single.table[single.values.astype(np.int64) - single.low]


def _renumber(codes: Codes, number: Codes) -> None:
    if codes.size >= _LARGE:
        from stirred.data.code_kernels import renumber

        by_pieces(lambda piece: renumber(codes[piece], number), codes.size)
    else:
        codes[:] = number[codes]


def count(codes: Codes, *, groups: int) -> npt.NDArray[np.int64]:
    """Return how often each code from 0 to ``groups - 1`` occurs.

    >>> count(np.array([0, 2, 2], dtype=np.uint32), groups=4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(groups, dtype=np.int64)
    add_counts(codes, counts)
    return counts


def counted(table: Columns, columns: list[str]) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    """Return the combinations of ``columns`` in the order of their values, and how often each occurs.

    No record gets a code: memory holds the combinations and a piece of the table.

    >>> levels, counts = counted(pl.DataFrame({"a": ["y", "x", "y"], "b": [1, 2, 1]}), ["a", "b"])
    >>> levels.rows(), counts.tolist()
    ([('x', 2), ('y', 1)], [1, 2])
    """
    if not columns:
        return pl.DataFrame(), np.array([table.height])
    found = scan_of(table, columns).group_by(columns).len("__count").collect(engine="streaming")
    coded = encode(found, columns)
    counts = np.zeros(coded.count, dtype=np.int64)
    np.add.at(counts, coded.codes, found["__count"].to_numpy())
    return coded.levels, counts


def add_counts(codes: Codes, counts: npt.NDArray[Any]) -> None:
    """Add how often each code occurs to its count."""
    if codes.size < _LARGE:
        np.add.at(counts, codes, 1)
        return
    from stirred.data.code_kernels import count_codes

    count_codes(codes, counts)


def listed_by(codes: Codes, start: Codes) -> Codes:
    """Return the rows by their codes, those of a code in their order from ``start[code]`` on: a counting sort.

    >>> listed_by(np.array([1, 0, 1], dtype=np.uint32), np.array([0, 1, 3], dtype=np.uint32)).tolist()
    [1, 0, 2]
    """
    if codes.size < _LARGE:
        return np.argsort(codes, kind="stable").astype(np.uint32)
    from stirred.data.code_kernels import list_rows

    rows = np.empty(codes.size, dtype=np.uint32)
    list_rows(codes, start.copy(), rows)
    return rows


def differing(groups: Codes, values: npt.NDArray[Any], *, count: int) -> npt.NDArray[np.bool_]:
    """Return which groups hold two different values.

    >>> differing(np.array([0, 0, 1, 1], dtype=np.uint32), np.array([5, 6, 7, 7]), count=2).tolist()
    [True, False]
    """
    first = np.zeros(count, dtype=values.dtype)
    if groups.size >= _LARGE:
        from stirred.data.code_kernels import find_differing

        found = np.zeros(count, dtype=np.bool_)
        find_differing(groups, values, first, np.zeros(count, dtype=np.bool_), found)
        return found
    first[groups] = values  # the last value of each group
    found = np.zeros(count, dtype=np.bool_)
    found[groups[first[groups] != values]] = True
    return found


def all_different(ids: pl.Series) -> bool:
    """Say whether no value occurs twice; missing values do not count.

    >>> all_different(pl.Series([3, 1, 2])), all_different(pl.Series(["a", "b", "a"]))
    (True, False)
    """
    if ids.dtype in MACHINE_INTEGERS and len(ids) and ids.min() is not None:
        span = int(ids.max()) - int(ids.min()) + 1  # type: ignore[arg-type]
        if span < len(ids) - ids.null_count():
            return False  # more records than values there could be
    present = _present(ids)
    if present is None:
        return not (ids.is_duplicated() & ids.is_not_null()).any()
    return int(np.count_nonzero(present[0])) == len(ids)


def tells_records_apart(column: pl.Series) -> bool:
    """Say whether a column of codes or text is different for every record: often an identifier nobody named as one.

    >>> tells_records_apart(pl.Series(range(30))), tells_records_apart(pl.Series([1, 2] * 15))
    (True, False)
    """
    plausible = column.dtype.is_integer() or column.dtype == pl.String
    return plausible and len(column) > 20 and not column.null_count() and all_different(column)


def all_known(values: pl.Series, known: pl.Series) -> bool:
    """Say whether every value that is not missing occurs among the known ones.

    >>> all_known(pl.Series([1, 1, 2]), pl.Series([1, 2, 3])), all_known(pl.Series([4]), pl.Series([1]))
    (True, False)
    """
    present = _present(known)
    if present is None or values.null_count() or values.dtype not in MACHINE_INTEGERS or not len(values):
        return bool(values.drop_nulls().is_in(known.unique().implode()).all())
    table, low = present
    if int(values.min()) < low or int(values.max()) >= low + table.size:  # type: ignore[arg-type]
        return False
    found = np.zeros(table.size, dtype=np.bool_)
    _mark(values.to_numpy(), low, found)
    return not bool((found & ~table).any())


def _present(ids: pl.Series) -> tuple[npt.NDArray[np.bool_], int] | None:
    """Return which integers occur, as a table from the lowest on; None where a table would be too large."""
    if ids.dtype not in MACHINE_INTEGERS or ids.null_count() or not len(ids):
        return None
    low, high = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
    if high - low > max(_DENSE, 8 * len(ids)) or high >= 1 << 63:
        return None
    table = np.zeros(high - low + 1, dtype=np.bool_)
    _mark(ids.to_numpy(), low, table)
    return table, low
