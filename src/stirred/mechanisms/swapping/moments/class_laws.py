"""Mean and variance of a swapped cell in closed form, before anything is swapped.

Swapping theory R18, for any law that gives every permutation moving k records the same probability;
here permutation swapping. Mean: shrinkage of the cell towards independence inside its stratum. The proof
is written out in docs/theory/moments.md.

A cell may count weights instead of records: persons of one kind in the households of a county, say. A
record then adds its weight to the cell of the swap value it gets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.protocol import TooLargeError
from stirred.mechanisms.swapping.mallows.law import DERANGED, DERANGED_SHARES, poisson_terms
from stirred.spec.problems import Problem
from stirred.spec.swap_budget import derangements

Array = npt.NDArray[np.float64]

_SMALL = 60  # up to here derangement quotients are taken from the numbers themselves
_REACH = 14  # standard deviations of the number selected that matter to double precision
_MOST_CELLS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Expected value and variance of a released count."""

    mean: float
    variance: float

    @property
    def sd(self) -> float:
        """Return the standard deviation."""
        return math.sqrt(max(self.variance, 0.0))

    def __add__(self, other: Moments) -> Moments:
        return Moments(mean=self.mean + other.mean, variance=self.variance + other.variance)


def swapped_cell(count: int, *, hold: int, swap: int, stratum: int, rate: Fraction) -> Moments:
    """Return the moments of one cell of one stratum after permutation swapping.

    ``count`` is the true cell, ``hold`` and ``swap`` its two margins in a stratum of ``stratum`` records.

    >>> moments = swapped_cell(2, hold=2, swap=2, stratum=4, rate=Fraction(1, 2))  # 11/9 and 20/81
    >>> round(moments.mean, 10), round(moments.variance, 10)
    (1.2222222222, 0.2469135802)
    """
    x, r = np.array([float(count)]), np.array([float(hold)])
    laws = Laws.of([stratum], [rate])
    mean, variance = laws.moments(cell=x, cell_squares=x, hold=r, hold_squares=r, swap=np.array([float(swap)]))
    return Moments(mean=float(mean[0]), variance=float(variance[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patterns:
    """Probabilities, for two given records, of how a random permutation treats them (per target)."""

    moved: float
    both_fixed: float
    one_fixed: float
    exchanged: float
    one_hits: float
    neither: float

    @classmethod
    def of(cls, n: int, rate: Fraction, member: str) -> _Patterns:
        if member == "mallows":
            return cls.by_number_moved(n, *mallows_moved(n, rate))
        if member == "shuffle":
            return cls.by_number_moved(n, *shuffle_moved(n, rate))
        return cls.by_number_moved(n, *_number_moved(n, float(rate)))

    @classmethod
    def by_number_moved(cls, n: int, k: Array, weight: Array) -> _Patterns:
        """Return the patterns of any law of permutations by their number of moved records."""
        if n < 2:
            return cls(moved=0.0, both_fixed=1.0, one_fixed=0.0, exchanged=0.0, one_hits=0.0, neither=0.0)
        pairs = n * (n - 1)
        share, back = weight * k * (k - 1) / pairs, _exchange(k)
        hits = 1 / np.maximum(k - 1, 1)
        return cls(
            moved=float(np.sum(weight * k)) / n,
            both_fixed=float(np.sum(weight * (n - k) * (n - k - 1))) / pairs,
            one_fixed=float(np.sum(weight * k * (n - k))) / (pairs * (n - 2)) if n > 2 else 0.0,
            exchanged=float(np.sum(share * back)),
            one_hits=float(np.sum(share * (hits - back))) / (n - 2) if n > 2 else 0.0,
            neither=float(np.sum(share * (1 - 2 * hits + back))) / ((n - 2) * (n - 3)) if n > 3 else 0.0,
        )


# Swaps whose law gives all permutations that move equally many records the same probability.
CLASS_LAWS: Final = ("permutation", "shuffle", "mallows")

# Swaps with closed forms for mean and variance of every cell, so that tables can be foretold and corrected.
WITH_MOMENTS: Final = (*CLASS_LAWS, "conditioned", "two-stage")

_patterns = lru_cache(maxsize=100_000)(_Patterns.of)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laws:
    """What permutation swapping does to pairs of records, for many strata at once."""

    stratum: Array
    moved: Array
    both_fixed: Array
    one_fixed: Array
    exchanged: Array
    one_hits: Array
    neither: Array

    @classmethod
    def of(
        cls,
        strata: Sequence[int] | npt.NDArray[np.int64],
        rates: Sequence[Fraction | str],
        *,
        member: str = "permutation",
    ) -> Laws:
        """Return the laws of strata of given sizes, each with its rate (of the Mallows swap: its weight).

        ``member`` is a swap whose permutations are equally likely if they move equally many records:
        permutation, shuffle or mallows.
        """
        which: dict[tuple[int, Fraction | str], int] = {}
        index = [which.setdefault((int(n), rate), len(which)) for n, rate in zip(strata, rates, strict=True)]
        found = [_patterns(n, Fraction(rate), member) for n, rate in which]
        values = {f.name: np.array([getattr(law, f.name) for law in found])[index] for f in fields(_Patterns)}
        return cls(stratum=np.asarray(strata, dtype=np.float64), **values)

    @property
    def kept(self) -> Array:
        """Return lambda: the share of a cell's distance from independence that swapping keeps."""
        return 1 - self.moved * self.stratum / np.maximum(self.stratum - 1, 1)

    @property
    def kept_squares(self) -> Array:
        """Return the factor of X squared in E[Z squared]: what swapping keeps of a squared distance."""
        return self.both_fixed + self.exchanged - 2 * (self.one_fixed + self.one_hits) + 2 * self.neither

    def moments(
        self, *, cell: Array, cell_squares: Array, hold: Array, hold_squares: Array, swap: Array
    ) -> tuple[Array, Array]:
        """Return mean and variance of swapped cells (R18), one cell for each stratum.

        ``cell`` is the sum of weights in the true cell and ``hold`` in its row of the stratum; the ``_squares``
        are the sums of squared weights (for counts of records the same numbers); ``swap`` is the number of
        records of its column.
        """
        x, xx, r, rr, c, n = cell, cell_squares, hold, hold_squares, swap, self.stratum
        others = np.maximum(n - 1, 1)
        inside = 1 - self.moved + self.moved * (c - 1) / others  # a record of the column stays in it
        outside = self.moved * c / others  # another record comes into it
        mean = x * inside + (r - x) * outside
        one = self.one_fixed + self.one_hits
        both_in = self.both_fixed + self.exchanged + 2 * one * (c - 2) + self.neither * (c - 2) * (c - 3)
        one_in = one * (c - 1) + self.neither * (c - 1) * (c - 2)
        none_in = self.neither * c * (c - 1)
        pairs = (x * x - xx) * both_in + 2 * x * (r - x) * one_in + ((r - x) ** 2 - (rr - xx)) * none_in
        return mean, pairs + xx * inside + (rr - xx) * outside - mean * mean


def _exchange(k: Array) -> Array:
    """Return d(k-2)/d(k): the chance that a uniform derangement of k exchanges two given records."""
    large = 1 / np.maximum(k * (k - 1), 1)
    small = np.array([0.0, 0.0, *(derangements(j - 2) / derangements(j) for j in range(2, _SMALL + 1))])
    return np.where(k <= _SMALL, small[np.minimum(k, _SMALL).astype(np.int64)], large)


def _number_moved(n: int, p: float) -> tuple[Array, Array]:
    """Return the possible numbers of records moved and their chances: binomial, drawn again at exactly one."""
    if p in (0.0, 1.0):
        return np.array([n * p]), np.array([1.0])
    middle, spread = min(int((n + 1) * p), n), math.sqrt(n * p * (1 - p))
    low, high = max(0, int(middle - _REACH * spread) - 1), min(n, int(middle + _REACH * spread) + 40)
    k, weight = np.arange(float(low), high + 1), _binomial(n, p, low, high)
    weight[k == 1] = 0.0
    return k, weight / weight.sum()


# --- the cells of a table, stratum by stratum ------------------------------------------------------------


def crossed_strata(
    records: pl.LazyFrame,
    *,
    match: Sequence[str],
    hold: Sequence[str],
    swap: Sequence[str],
    persons: pl.LazyFrame | None = None,
    key: str | None = None,
) -> pl.DataFrame:
    """Return the cells of hold x swap in every stratum, those that are empty but possible included.

    With ``persons`` the cells count persons; ``hold`` may then name their variables, and ``key`` links them
    to ``records``. Our columns: ``__stratum`` (records of the stratum), ``__hold`` and ``__swap`` (margins),
    ``__cell``, ``__largest`` (weight of a record in the row) and the sums of squared weights ``__hold_squares``
    and ``__cell_squares``.

    >>> homes = pl.LazyFrame({"size": [1, 1, 1, 2], "county": list("AABB"), "tenure": list("orro")})
    >>> cells = crossed_strata(homes, match=["size"], hold=["tenure"], swap=["county"])
    >>> cells.filter(county="B", size=1).select("tenure", "__stratum", "__hold", "__swap", "__cell").rows()
    [('o', 3, 1, 1, 0), ('r', 3, 2, 1, 1)]
    """
    one = pl.lit(0, dtype=pl.Int8).alias("__one")  # so that no list of columns is empty
    strata = ["__one", *match]
    rows, columns = [*strata, *(n for n in hold if n not in match)], [*strata, *swap]
    cells = list(dict.fromkeys((*rows, *columns)))
    # Both frames get their constant column here; it is no part of the files.
    weighted = _weighted(records, persons=persons, key=key, cells=cells[1:])
    full = weighted.with_columns(one).group_by(cells).agg(
        pl.col("__weight").sum().alias("__cell"),
        (pl.col("__weight") ** 2).sum().alias("__cell_squares"),
        pl.col("__weight").max().alias("__largest"),
    ).collect()  # fmt: skip
    placed = records.with_columns(one).group_by(columns).agg(pl.len().cast(pl.Int64).alias("__swap")).collect()
    sizes = placed.group_by(strata).agg(pl.col("__swap").sum().alias("__stratum"))
    held = full.group_by(rows).agg(
        pl.col("__cell").sum().alias("__hold"),
        pl.col("__cell_squares").sum().alias("__hold_squares"),
        pl.col("__largest").max(),
    )
    _check_size(held, placed, strata)
    grid = (
        held.join(placed, on=strata, nulls_equal=True)
        .join(sizes, on=strata, nulls_equal=True)
        .join(full.drop("__largest"), on=cells, how="left", nulls_equal=True)
        .with_columns(pl.col("__cell", "__cell_squares").fill_null(0))
    )
    return grid.drop("__one").sort(cells[1:])


def cell_bounds(cells: pl.DataFrame) -> tuple[Array, Array]:
    """Return what the margins of its stratum allow each cell of :func:`crossed_strata`, with certainty.

    The records of the column, or those outside it, have at most the largest weight of the row.

    >>> homes = pl.LazyFrame({"county": list("AAB"), "tenure": list("oor")})
    >>> low, high = cell_bounds(crossed_strata(homes, match=[], hold=["tenure"], swap=["county"]))
    >>> low.tolist(), high.tolist()
    ([1.0, 0.0, 0.0, 0.0], [2.0, 1.0, 1.0, 1.0])
    """
    n, r, c, top = (cells[f"__{name}"].to_numpy().astype(np.float64) for name in ("stratum", "hold", "swap", "largest"))
    return np.maximum(0.0, r - (n - c) * top), np.minimum(r, c * top)


def _weighted(
    records: pl.LazyFrame, *, persons: pl.LazyFrame | None, key: str | None, cells: Sequence[str]
) -> pl.LazyFrame:
    """Return records with the weight each adds to its cell: 1, or how many such persons are in it."""
    there = records.collect_schema().names()
    if persons is None or key is None:
        return records.select(*cells, pl.lit(1, dtype=pl.Int64).alias("__weight"))
    own = [name for name in cells if name not in there]
    inside = persons.group_by([key, *own]).agg(pl.len().cast(pl.Int64).alias("__weight"))
    return inside.join(records.select(key, *(n for n in cells if n in there)), on=key)


def _check_size(held: pl.DataFrame, placed: pl.DataFrame, strata: Sequence[str]) -> None:
    both = held.group_by(strata).len("__rows").join(placed.group_by(strata).len("__cols"), on=strata, nulls_equal=True)
    cells = int(both.select((pl.col("__rows").cast(pl.Int64) * pl.col("__cols").cast(pl.Int64)).sum()).item())
    if cells > _MOST_CELLS:
        raise TooLargeError(
            [
                Problem(
                    what=f"the table has {cells:,} cells in all strata together; {_MOST_CELLS:,} fit",
                    where="variables",
                    remedy="ask for fewer variables, or coarser ones",
                )
            ]
        )


_SPREADS: Final = 12


def mallows_moved(records: int, weight: Fraction) -> tuple[Array, Array]:
    """Return the possible numbers of moved records and their chances, for the Mallows swap (R5).

    >>> k, chance = mallows_moved(4, Fraction(1, 3))
    >>> dict(zip(k.astype(int).tolist(), (168 * chance).round(9).tolist()))
    {4: 9.0, 3: 24.0, 2: 54.0, 1: 0.0, 0: 81.0}
    """
    expected = float(1 / weight) if weight else math.inf
    if records < 2 or math.isinf(expected):
        return np.zeros(1), np.ones(1)
    near = min(records, int(expected))
    reach = int(_SPREADS * math.sqrt(near)) + 80
    low, high = max(0, near - reach), min(records, near + reach)
    moved, terms = records - np.arange(low, high + 1), poisson_terms(expected, near=near, low=low, high=high)
    terms *= DERANGED_SHARES[np.minimum(moved, DERANGED)]
    return moved.astype(np.float64), terms / terms.sum()


def shuffle_moved(records: int, rate: Fraction) -> tuple[Array, Array]:
    """Return the same for the shuffle swap (R7): of m selected records, some keep their values by chance.

    >>> k, chance = shuffle_moved(2, Fraction(1, 2))
    >>> chance.tolist()
    [0.875, 0.0, 0.125]
    """
    p, n = float(rate), records
    spread = math.sqrt(n * p * (1 - p))
    low, high = max(0, int(n * p - _SPREADS * spread) - 40), min(n, int(n * p + _SPREADS * spread) + 40)
    selected = np.arange(low, high + 1)
    chance = _binomial(n, p, low, high)
    chance /= chance.sum()
    least = max(0, low - DERANGED)
    result = np.zeros(high - least + 1)
    for stay in range(min(DERANGED, high) + 1):
        moved = selected - stay
        kept = moved >= 0
        # Of m! permutations, C(m, stay) d(m - stay) leave so many in place.
        share = DERANGED_SHARES[np.minimum(moved[kept], DERANGED)] / math.factorial(stay)
        np.add.at(result, moved[kept] - least, chance[kept] * share)
    return np.arange(float(least), high + 1), result / result.sum()


def _binomial(n: int, p: float, low: int, high: int) -> Array:
    """Return the weights of ``low`` to ``high`` selected, up to a constant."""
    if p in (0.0, 1.0):
        return (np.arange(low, high + 1) == n * p).astype(np.float64)
    # From the mode outwards by quotients of neighbours: logarithms of factorials would lose digits.
    middle = min(max(int((n + 1) * p), low), high)
    above, below = np.arange(middle + 1.0, high + 1), np.arange(float(middle), low, -1)
    odds = p / (1 - p)
    up, down = np.cumprod((n - above + 1) / above * odds), np.cumprod(below / (n - below + 1) / odds)
    return np.concatenate([down[::-1], [1.0], up])
