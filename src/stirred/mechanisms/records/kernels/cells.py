"""The cells of a file: its strata, or the swap values of its strata, and how many records lie in each.

Importing this module loads numba. The cell of a record is ``starts[stratum] + value``. Where strata times swap values
are few, ``value`` is the swap code, and some cells are empty; otherwise it is the rank of the code among those of the
stratum. ``occupied`` gives the cells in one order in both cases, so that nothing depends on which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.data.code_kernels import count_codes
from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.addressing import chunks_of, rows_of
from stirred.mechanisms.records.kernels.partition import (
    Codes,
    Offsets,
    Positions,
    Values,
    Workers,
    every_row,
    partition_rows,
    require_below,
)
from stirred.randomness.compiled import compiled

# Tables of this many cells are cheap even for a few records; larger ones must not exceed the number of records.
_FEW_CELLS: Final = 1 << 12
_MOST_CELLS: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellCounts:
    """The cells of a file. ``have`` are their sizes.

    ``value`` is None if strata are the cells. ``codes`` are the swap codes of the cells, or None if values are codes.
    """

    stratum: Codes
    starts: Offsets
    have: Values
    value: Values | None = None
    codes: Values | None = None

    @classmethod
    def by_stratum(cls, stratum: Codes, *, strata: int, workers: Workers) -> CellCounts:
        """Return the strata as cells.

        >>> column = np.array([0, 2, 2], dtype=np.uint32)
        >>> CellCounts.by_stratum(column, strata=3, workers=Workers(threads=1)).have.tolist()
        [1, 0, 2]
        """

        def count(chunk: int, have: Values) -> None:
            require_below(stratum[rows_of(chunk)], groups=strata)
            count_codes(stratum[rows_of(chunk)], have)

        have = _count(count, rows=stratum.size, cells=strata, workers=workers)
        return cls(stratum=stratum, starts=np.arange(strata + 1, dtype=np.int64), have=have)

    @classmethod
    def by_value(cls, stratum: Codes, swap: Values, *, strata: int, values: int, workers: Workers) -> CellCounts:
        """Return the swap values of the strata as cells.

        >>> column = np.array([0, 1, 1], dtype=np.uint32)
        >>> cells = CellCounts.by_value(column, column, strata=2, values=2, workers=Workers(threads=1))
        >>> cells.have[cells.occupied()[0]].tolist()
        [1, 2]
        """
        if strata * values > max(_FEW_CELLS, min(_MOST_CELLS, stratum.size)):
            return _ranked(stratum, swap, strata=strata, values=values, workers=workers)
        starts = np.arange(strata + 1, dtype=np.int64) * values

        def count(chunk: int, have: Values) -> None:
            rows = rows_of(chunk)
            require_below(stratum[rows], groups=strata)
            require_below(swap[rows], groups=values)
            _count_pairs(stratum[rows], swap[rows], starts, have)

        have = _count(count, rows=stratum.size, cells=strata * values, workers=workers)
        return cls(stratum=stratum, starts=starts, have=have, value=swap)

    def occupied(self) -> tuple[npt.NDArray[np.int64], Offsets, Values]:
        """Return the cells that are not empty, where those of a stratum begin, and their swap codes.

        They are ordered by stratum and then by code.
        """
        cells = np.flatnonzero(self.have)
        begins = np.searchsorted(cells, self.starts)
        if self.value is None:
            return cells, begins, np.empty(0, dtype=np.uint32)
        if self.codes is not None:
            return cells, begins, self.codes
        return cells, begins, (cells - np.repeat(self.starts[:-1], np.diff(begins))).astype(np.uint32)


def _count(count: Callable[[int, Values], None], *, rows: int, cells: int, workers: Workers) -> Values:
    """Return the sizes of all cells; every thread counts into a table of its own."""
    chunks = chunks_of(rows)
    tables = np.zeros((min(workers.threads, max(chunks, 1)), cells), dtype=np.uint32)

    def work(piece: int) -> None:
        for chunk in range(piece, chunks, len(tables)):
            count(chunk, tables[piece])

    workers.run("count", work, range(len(tables)))
    for table in tables[1:]:
        tables[0] += table
    return tables[0]


def _ranked(stratum: Codes, swap: Values, *, strata: int, values: int, workers: Workers) -> CellCounts:
    """Return the cells of many strata and swap values: those that occur, found block by block."""
    shift = addressing.block_shift(strata, rows=stratum.size)
    everyone = every_row(stratum.size)

    def mark(chunk: int) -> Positions:
        require_below(swap[rows_of(chunk)], groups=values)
        return everyone(chunk)

    rows = partition_rows(stratum, groups=strata, shift=shift, mark=mark, workers=workers)
    listed, inner = rows.gather(swap, workers=workers)
    sizes = np.zeros((rows.blocks << shift) + 1, dtype=np.int64)  # of strata, in cells, after a 0
    nothing = np.empty(0, dtype=np.uint32)
    found = [(nothing, nothing)] * rows.blocks

    def work(block: int, own: Values, offsets: Offsets) -> None:
        codes, have = np.empty_like(own), np.zeros_like(own)
        seen = np.full(values, -1, dtype=np.int64)
        cells = _rank_values(own, offsets, seen, codes, have, sizes[(block << shift) + 1 :])
        found[block] = codes[:cells].copy(), have[:cells].copy()

    rows.by_code("number", work, listed, inner, workers=workers)
    value = np.empty_like(swap)
    rows.give_back(listed, value, workers=workers)
    codes, have = (np.concatenate([part[i] for part in found] or [nothing]) for i in range(2))
    starts = np.cumsum(sizes[: strata + 1])
    return CellCounts(stratum=stratum, starts=starts, have=have, value=value, codes=codes)


@compiled
def _count_pairs(stratum: Codes, value: Values, starts: Offsets, have: Values) -> None:
    for row in range(stratum.size):
        have[starts[stratum[row]] + value[row]] += np.uint32(1)


@compiled
def _rank_values(listed: Values, offsets: Offsets, seen: Offsets, codes: Values, have: Values, sizes: Offsets) -> int:
    """Replace the swap codes of a block by their ranks in their stratum; list the codes of the cells and their sizes.

    ``seen`` holds the last cell of each code.
    """
    found = 0
    for part in range(offsets.size - 1):
        begin = found
        for record in range(offsets[part], offsets[part + 1]):
            code = listed[record]
            if seen[code] < begin:
                seen[code] = found
                codes[found] = code
                found += 1
        codes[begin:found].sort()
        for cell in range(begin, found):
            seen[codes[cell]] = cell
        for record in range(offsets[part], offsets[part + 1]):
            cell = seen[listed[record]]
            have[cell] += np.uint32(1)
            listed[record] = cell - begin
        sizes[part] = found - begin
    return found
