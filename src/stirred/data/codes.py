"""Columns as integers: one code for each combination of values, and the table to read it back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

# Up to here a table with one entry for every possible combination beats hashing the combinations.
_DENSE = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Rows as codes from 0 to ``len(levels) - 1``, numbered in the order of their values.

    The numbering depends on the set of values present and not on the order of the rows.
    """

    codes: npt.NDArray[np.uint32]
    levels: pl.DataFrame

    @property
    def count(self) -> int:
        """Return the number of different combinations."""
        return self.levels.height

    def decoded(self, codes: npt.NDArray[np.uint32]) -> pl.DataFrame:
        """Return the values of codes."""
        return self.levels[codes] if self.levels.width else pl.DataFrame()


def encode(frame: pl.DataFrame, columns: list[str]) -> Coded:
    """Return each row's combination of ``columns`` as one code.

    >>> coded = encode(pl.DataFrame({"a": ["x", "y", "x"], "b": [1, 1, 2]}), ["a", "b"])
    >>> coded.codes.tolist(), coded.levels.rows()
    ([0, 2, 1], [('x', 1), ('x', 2), ('y', 1)])
    """
    if not columns:
        return Coded(np.zeros(frame.height, dtype=np.uint32), pl.DataFrame([{}]) if frame.height else pl.DataFrame())
    single = [_encode_column(frame[column]) for column in columns]
    sizes = [len(values) for _, values in single]
    cells = 1
    for size in sizes:
        cells *= size
    if cells <= _DENSE:
        return _combine_dense(single, columns, cells)
    return _combine_sparse(frame, columns)


def _encode_column(column: pl.Series) -> tuple[npt.NDArray[np.uint32], pl.Series]:
    values = column.unique().sort()
    if column.dtype.is_integer() and len(values):
        low, high = int(values[0]), int(values[-1])
        if high - low < _DENSE:
            # Counting: a table from value to code, no hashing of the rows.
            table = np.zeros(high - low + 1, dtype=np.uint32)
            table[(values - low).to_numpy().astype(np.int64)] = np.arange(len(values), dtype=np.uint32)
            return table[(column - low).to_numpy().astype(np.int64, copy=False)], values
    codes = pl.DataFrame({"value": column}).join(
        pl.DataFrame({"value": values}).with_row_index("code"), on="value", how="left", maintain_order="left"
    )["code"]
    return codes.to_numpy().astype(np.uint32, copy=False), values


def _combine_dense(single: list[tuple[npt.NDArray[np.uint32], pl.Series]], columns: list[str], cells: int) -> Coded:
    """Number the combinations that occur, in order, through a table of all that could."""
    if len(single) == 1:
        codes, values = single[0]
        return Coded(np.ascontiguousarray(codes), values.alias(columns[0]).to_frame())
    cell = single[0][0].astype(np.uint32, copy=True)
    for codes, values in single[1:]:
        cell *= np.uint32(len(values))
        cell += codes
    present = np.zeros(cells, dtype=np.bool_)
    present[cell] = True
    occurring = np.flatnonzero(present)
    number = np.zeros(cells, dtype=np.uint32)
    number[occurring] = np.arange(occurring.size, dtype=np.uint32)
    parts: list[pl.Series] = []
    rest = occurring
    for (_, values), name in zip(reversed(single), reversed(columns), strict=True):
        rest, index = np.divmod(rest, len(values))
        parts.append(values[index].alias(name))
    return Coded(number[cell], pl.DataFrame(list(reversed(parts))))


def _combine_sparse(frame: pl.DataFrame, columns: list[str]) -> Coded:
    levels = frame.select(columns).unique().sort(columns)
    indexed = levels.with_row_index("__code")
    codes = frame.select(columns).join(indexed, on=columns, how="left", maintain_order="left")["__code"]
    return Coded(codes.to_numpy().astype(np.uint32, copy=False), levels)
