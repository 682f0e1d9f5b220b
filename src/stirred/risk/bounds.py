"""What exact tables alone reveal: bounds of single cells, records determined by them, and how many tables there are.

For two tables that share columns (the case of a swap: match x swap and match x hold) the bounds are closed and sharp:
max(0, r + c - n) to min(r, c) in a stratum of n records. For others, propagation comes first and integer programs
settle the cells that it leaves open. What the linear relaxation says may be fractional; only integer answers are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import lgamma, log
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Codes
from stirred.data.problems import bad_plan
from stirred.risk.systems import System, propagated, solved

_Array = npt.NDArray[Any]
MOST_CELLS: Final = 200_000
MOST_PROGRAMS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellRanges:
    """The range of every cell that exact tables leave; ``proven`` says that each is attained by a whole table."""

    cells: pl.DataFrame
    proven: bool

    @property
    def determined(self) -> int:
        """Return how many cells are known."""
        return self.cells.filter(pl.col("low") == pl.col("high")).height

    @property
    def certain(self) -> int:
        """Return how many records are known with all their columns: at least so many are in their cells."""
        return int(self.cells["low"].sum())


def bounds(tables: Sequence[pl.DataFrame], *, proof: bool = True) -> CellRanges | None:
    """Return the range of every cell of the joint table given tables with a ``count``; None where there is none.

    Cells that some table says are empty are left out: they are 0. With ``proof`` integer programs settle what
    propagation leaves open, up to 2,000 of them.

    >>> one = pl.DataFrame({"a": [1, 2], "count": [3, 4]})
    >>> other = pl.DataFrame({"b": [1, 2], "count": [2, 5]})
    >>> bounds([one, other]).cells.rows()
    [(1, 1, 0, 2), (1, 2, 1, 3), (2, 1, 0, 2), (2, 2, 2, 4)]
    """
    system, cells = joint_system(tables)
    found = propagated(system)
    if found is None:
        return None
    low, high = found
    open_cells = np.flatnonzero(low < high)
    proven: bool | None = open_cells.size == 0
    if not proven and proof and 2 * open_cells.size <= MOST_PROGRAMS:
        proven = settled(system, low, high, open_cells)
    if proven is None:
        return None
    return CellRanges(cells=cells.with_columns(low=pl.Series(low), high=pl.Series(high)), proven=proven)


def settled(system: System, low: _Array, high: _Array, open_cells: Iterable[int]) -> bool | None:
    """Narrow bounds in place to what whole tables attain; return whether all are attained, None where no table exists.

    A program that reaches its time limit leaves what propagation says. Each solution found widens what is known to be
    attained, so that most programs need not be run.
    """
    first = solved(system, cost=np.zeros(system.cells), low=low, high=high)
    if first.status == "infeasible":
        return None
    if first.status == "time limit":
        return False
    least, most, proven = first.values.copy(), first.values.copy(), True
    for cell in open_cells:
        for sign, attained, limit in ((1, least, low), (-1, most, high)):
            if attained[cell] == limit[cell]:
                continue
            cost = np.zeros(system.cells)
            cost[cell] = sign
            found = solved(system, cost=cost, low=low, high=high)
            if found.status != "solved":
                proven = False
                continue
            limit[cell] = found.values[cell]
            np.minimum(least, found.values, out=least)
            np.maximum(most, found.values, out=most)
    return proven


def joint_system(tables: Sequence[pl.DataFrame]) -> tuple[System, pl.DataFrame]:
    """Return the equations of tables for the cells of all their columns together, and these cells in order."""
    cells: pl.DataFrame | None = None
    for table in tables:
        full = table.filter(pl.col("count") > 0).drop("count")
        if cells is None:
            cells = full
            continue
        shared = [name for name in full.columns if name in cells.columns]
        cells = cells.join(full, on=shared, nulls_equal=True) if shared else cells.join(full, how="cross")
        if cells.height > MOST_CELLS:
            what = f"the joint table has more than {MOST_CELLS:,} cells that could be filled"
            raise bad_plan(what, where="--margin", remedy="name tables of fewer columns, or of fewer records")
    assert cells is not None
    cells = cells.sort(cells.columns)
    equations: list[tuple[_Array, int]] = []
    for table in tables:
        by = [name for name in table.columns if name != "count"]
        numbered = cells.with_row_index("cell").group_by(by, maintain_order=True).agg("cell")
        joined = (
            table.join(numbered, on=by, how="left", nulls_equal=True)
            if by
            else table.hstack(pl.DataFrame({"cell": [list(range(cells.height))]}))
        )
        equations += [
            (np.array(members or [], dtype=np.int64), int(total))
            for members, total in joined.select("cell", "count").rows()
        ]
    return System.of(cells.height, equations), cells


def solutions(system: System, *, most: int = 100_000) -> int | None:
    """Return the number of tables, counted one by one; None where there are more than ``most``."""

    def count(low: _Array, high: _Array, left: int) -> int:
        found = propagated(system, low, high)
        if found is None:
            return 0
        low, high = found
        free = np.flatnonzero(low < high)
        if not free.size:
            return 1
        cell, total = int(free[np.argmin((high - low)[free])]), 0
        for value in range(int(low[cell]), int(high[cell]) + 1):
            one_low, one_high = low.copy(), high.copy()
            one_low[cell] = one_high[cell] = value
            total += count(one_low, one_high, left - total)
            if total > left:
                break
        return total

    high = np.full(system.cells, int(system.total.max(initial=0)), dtype=np.int64)
    total = count(np.zeros(system.cells, dtype=np.int64), high, most)
    return None if total > most else total


# ---- two tables that share the match columns: a swap ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """What both exact tables of a swap say together, before any record is seen.

    ``determined`` are the records of strata with one swap value, ``at_least`` counts those that must be in their cell:
    the sum of max(0, r + c - n). ``tables`` are the bounds of the logarithm, to base 10, of the number of files.
    """

    records: int
    determined: int
    at_least: int
    tables: tuple[float, float]


def revealed(strata: Codes, held: Codes, swapped: Codes) -> Revealed:
    """Return what the tables strata x held and strata x swapped reveal of who has which swap value.

    >>> codes = lambda *of: np.array(of, dtype=np.uint32)
    >>> found = revealed(codes(0, 0, 0, 1, 1), codes(0, 0, 1, 0, 1), codes(0, 0, 1, 0, 0))
    >>> found.determined, found.at_least, found.tables[0] <= 0.302 <= found.tables[1] + 0.001
    (2, 3, True)
    """
    rows, columns = _margins(strata, held), _margins(strata, swapped)
    determined = at_least = 0
    low = high = 0.0
    for stratum, r in rows.items():
        c = columns[stratum]
        n = sum(r)
        determined += n if len(c) == 1 else 0
        at_least += _must(r, c, n)
        few, many = log_tables(r, c)
        low, high = low + few, high + many
    return Revealed(records=strata.size, determined=determined, at_least=at_least, tables=(low, high))


def _must(rows: Sequence[int], columns: Sequence[int], n: int) -> int:
    """Return the sum of max(0, r + c - n): only the largest of a margin can be more than half of a stratum."""
    r, c = max(rows), max(columns)
    rest = [*rows]
    rest.remove(r)
    return sum(max(0, r + each - n) for each in columns) + sum(max(0, each + c - n) for each in rest)


def _margins(strata: Codes, values: Codes) -> Mapping[int, list[int]]:
    many = np.int64(int(values.max(initial=0)) + 1)
    keys, counts = np.unique(strata * many + values, return_counts=True)
    found: dict[int, list[int]] = {}
    for stratum, count in zip((keys // many).tolist(), counts.tolist(), strict=True):
        found.setdefault(stratum, []).append(count)
    return found


def log_tables(rows: Sequence[int], columns: Sequence[int]) -> tuple[float, float]:
    """Return bounds of log10 of the number of tables with these margins.

    n! / (prod r! prod c!) <= number <= min(n!/prod c!, n!/prod r!, prod C(r + J - 1, J - 1), the same by columns).

    >>> low, high = log_tables([2, 3, 4], [3, 3, 3])
    >>> round(10**low, 1), round(10**high)
    (5.8, 900)
    """

    def factorials(counts: Sequence[int]) -> float:
        return sum(lgamma(each + 1) for each in counts)

    def choices(counts: Sequence[int], others: int) -> float:
        return sum(lgamma(each + others) - lgamma(each + 1) - lgamma(others) for each in counts)

    whole, r, c = lgamma(sum(rows) + 1), factorials(rows), factorials(columns)
    high = min(whole - c, whole - r, choices(rows, len(columns)), choices(columns, len(rows)))
    return max(0.0, whole - r - c) / log(10), max(0.0, high) / log(10)
