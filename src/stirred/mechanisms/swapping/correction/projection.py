"""The table nearest to an estimate that published margins allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.natural import sort_naturally

Array = npt.NDArray[np.float64]
Free = npt.NDArray[np.bool_]

_ROUNDS: Final = 2_000
_CLOSE: Final = 1e-9  # of the largest count of the table


def onto_margins(
    table: pl.DataFrame,
    *,
    variables: Sequence[str],
    blocks: Sequence[str],
    columns: Sequence[str],
    columns_fixed: bool,
) -> pl.DataFrame:
    """Add ``projected``: inside the bounds ``__low`` to ``__high`` of every cell, with the margins of the estimate.

    Sums of the estimate over the swapped variables are exact, and so are (for tables of records, not of
    persons) those over the held ones, inside each block of equal match values. The projection keeps them.
    """
    held = [name for name in variables if name not in blocks and name not in columns]
    parts = table.partition_by(list(blocks)) if blocks else [table]
    done = [_block(part, rows=held, columns=columns, columns_fixed=columns_fixed) for part in parts]
    return sort_naturally(pl.concat(done), variables) if done else table.with_columns(projected="estimate")


def _block(part: pl.DataFrame, *, rows: Sequence[str], columns: Sequence[str], columns_fixed: bool) -> pl.DataFrame:
    row, i = _numbered(part, rows)
    column, j = _numbered(part, columns)

    def square(name: str) -> Array:
        full = np.zeros((i, j))
        full[row, column] = part[name].to_numpy()
        return full

    projected = project(
        square("estimate"),
        low=square("__low"),
        high=square("__high"),
        inside=square("__independent"),
        columns_fixed=columns_fixed,
    )
    return part.with_columns(pl.Series("projected", projected[row, column]))


def _numbered(part: pl.DataFrame, names: Sequence[str]) -> tuple[npt.NDArray[np.int64], int]:
    if not names:
        return np.zeros(part.height, dtype=np.int64), 1
    code = part.select(pl.struct(names).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    return code, int(code.max()) + 1


def project(table: Array, *, low: Array, high: Array, inside: Array, columns_fixed: bool = True) -> Array:
    """Return the table nearest in least squares with the same margins, between ``low`` and ``high``.

    Dykstra's alternating projections; ``inside``, a table with these margins strictly between the bounds wherever
    they leave room, takes up what a finite number of rounds leaves over, so that the bounds hold exactly.

    >>> estimate = np.array([[5.5, -3.5], [-3.5, 5.5]])
    >>> half = np.ones((2, 2))
    >>> project(estimate, low=0 * half, high=2 * half, inside=half).round(9).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    free = high > low
    scale = max(float(np.abs(high).max()), 1.0)
    moved, correction = table.copy(), np.zeros_like(table)
    sums = (table.sum(axis=1), table.sum(axis=0))
    for _ in range(_ROUNDS):
        if np.all(moved >= low - _CLOSE * scale) and np.all(moved <= high + _CLOSE * scale):
            break
        wanted = moved + correction
        boxed = np.clip(wanted, low, high)
        correction = wanted - boxed
        moved = _with_sums(boxed, free, sums, columns_fixed=columns_fixed, close=_CLOSE * scale / 100)
    return _blended(moved, inside, low, high, free)


def _with_sums(table: Array, free: Free, sums: tuple[Array, Array], *, columns_fixed: bool, close: float) -> Array:
    """Return the nearest table with given sums of rows, and of columns, that changes only free cells."""
    in_row, in_column = np.maximum(free.sum(axis=1), 1), np.maximum(free.sum(axis=0), 1)
    for _ in range(_ROUNDS):
        table = table + free * ((sums[0] - table.sum(axis=1)) / in_row)[:, None]
        if not columns_fixed:
            break
        off = sums[1] - table.sum(axis=0)
        table = table + free * (off / in_column)[None, :]
        if np.abs(sums[0] - table.sum(axis=1)).max() <= close:
            break
    return table


def _blended(table: Array, inside: Array, low: Array, high: Array, free: Free) -> Array:
    """Go towards the inner table just as far as all cells need to be inside their bounds."""
    over = np.maximum(np.maximum(low - table, table - high), 0.0) * free
    room = np.abs(inside - table)
    share = float(np.max(np.where(over > 0, over / np.where(room > 0, room, 1.0), 0.0), initial=0.0))
    return np.clip(table + share * (inside - table), low, high)
