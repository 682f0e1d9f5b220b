"""Mean and variance of swapped cells in closed form, and the error to expect in a table before anything is swapped.

Swapping theory R18, for any law that gives every permutation moving k records the same probability. Mean: shrinkage
of the cell towards independence inside its stratum. The proof is written out in docs/theory/moments.md.

A cell may count weights instead of records: persons of one kind in the households of a county, say. A
record then adds its weight to the cell of the swap value it gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError, bad_plan, listed
from stirred.inference.redrawn_moments import second_moments
from stirred.mechanisms.protocol import (
    Array,
    ExpectedError,
    Mechanism,
    NumberMoved,
    RedrawLaw,
    RedrawnCounts,
    RedrawnStratum,
    SwapCellLaw,
    TooLargeError,
)
from stirred.mechanisms.registry import DEFAULT, mechanism_class
from stirred.spec.problems import Problem
from stirred.spec.swap_budget import derangements

_SMALL = 60  # up to here derangement quotients are taken from the numbers themselves
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


@lru_cache(maxsize=100_000)
def _patterns(n: int, rate: Fraction, moved: NumberMoved) -> tuple[float, ...]:
    """Return the probabilities of `Laws` for a stratum of n records, by the law of the number of moved ones."""
    if n < 2:
        return 0.0, 1.0, 0.0, 0.0, 0.0, 0.0
    k, weight = moved(n, rate)
    pairs = n * (n - 1)
    share, back = weight * k * (k - 1) / pairs, _exchange(k)
    hits = 1 / np.maximum(k - 1, 1)
    return (
        float(np.sum(weight * k)) / n,
        float(np.sum(weight * (n - k) * (n - k - 1))) / pairs,
        float(np.sum(weight * k * (n - k))) / (pairs * (n - 2)) if n > 2 else 0.0,
        float(np.sum(share * back)),
        float(np.sum(share * (hits - back))) / (n - 2) if n > 2 else 0.0,
        float(np.sum(share * (1 - 2 * hits + back))) / ((n - 2) * (n - 3)) if n > 3 else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laws:
    """What permutation swapping does to two given records, by target: probabilities, for many strata at once.

    One record is ``moved``; of two, ``both_fixed``, ``one_fixed``, ``exchanged`` with each other, ``one_hits`` the
    place of the other, or ``neither``.
    """

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
        moved: NumberMoved | None = None,
    ) -> Laws:
        """Return the laws of strata of given sizes, each with its rate (of the Mallows swap: its weight).

        ``moved`` is the law of the number of moved records, by default that of permutation swapping.
        """
        if moved is None:
            family = mechanism_class(DEFAULT).family
            assert family is not None
            moved = family.moved
        assert moved is not None
        which: dict[tuple[int, Fraction | str], int] = {}
        index = [which.setdefault((int(n), rate), len(which)) for n, rate in zip(strata, rates, strict=True)]
        found = np.array([_patterns(n, Fraction(rate), moved) for n, rate in which]).reshape(-1, 6)[index].T
        names = [each.name for each in fields(cls)]
        return cls(**dict(zip(names, [np.asarray(strata, dtype=np.float64), *found], strict=True)))

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


# --- strata whose values are redrawn -----------------------------------------------------------------------

Places = npt.NDArray[np.int64]

# Multiplications of the moments for one row, and in all: minutes.
_EACH: Final = 300
_MOST_WORK: Final = 1e12
# Laws of strata with few values are remembered: small strata are often alike.
_REMEMBERED: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StratumCells:
    """One stratum: ``rows`` and ``squares`` by whole swap values, which ``groups`` puts into columns of the table.

    ``places`` says where the cells of these columns stand in the table.
    """

    places: Places
    rows: Array
    squares: Array
    groups: Places
    moments: RedrawnCounts

    @property
    def members(self) -> Array:
        """Return which whole swap values each column of the table has: a row for each value."""
        return (self.groups[:, None] == np.arange(self.groups.max() + 1)).astype(np.float64)


def redrawn_cells(
    cells: pl.DataFrame,
    whole: pl.DataFrame,
    *,
    match: Sequence[str],
    swap: Sequence[str],
    rates: Sequence[Fraction | str],
    law: RedrawLaw,
    redrawn: RedrawnStratum,
) -> Iterator[StratumCells]:
    """Yield the strata of ``cells``, whose order ``rates`` follows.

    ``whole`` has the same table by all ``swap`` variables; both are made by ``crossed_strata``. A table may sum over
    some of the swapped variables, but what happens to a record depends on all of them: every stratum is taken apart by
    its whole swap values, and these are grouped into the columns of the table.

    >>> homes = pl.LazyFrame({"size": [1, 1, 1, 2], "county": list("AABB"), "tenure": list("orro")})
    >>> cells = crossed_strata(homes, match=["size"], hold=["tenure"], swap=["county"])
    >>> found = redrawn_cells(
    ...     cells, cells, match=["size"], swap=["county"], rates=["1/2"] * cells.height, law="uniform",
    ...     redrawn=mechanism_class("conditioned-swap").family.redrawn,
    ... )
    >>> next(found).rows.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    shared = [name for name in cells.columns if name in whole.columns and not name.startswith(("__", "stratum_"))]
    held = [name for name in shared if name not in swap and name not in match]
    placed = cells.select(*shared).with_row_index("__place")
    if shared:
        joined = whole.join(placed, on=shared, how="left", nulls_equal=True, maintain_order="left")
    else:
        joined = whole.with_columns(pl.lit(0).alias("__place"))
    joined = joined.with_columns(_runs(match).alias("__in"), _runs([*match, *held]).alias("__row"))
    _check_work(joined)
    places, numbers, squares, counts = (
        joined[f"__{name}"].to_numpy() for name in ("place", "cell", "cell_squares", "swap")
    )
    values = joined[swap[0]].cast(pl.String) if len(swap) == 1 else None
    starts = np.flatnonzero(np.diff(joined["__in"].to_numpy(), prepend=-1))
    in_row = joined["__row"].to_numpy()
    for start, end in zip(starts, [*starts[1:], joined.height], strict=True):
        size = int(np.searchsorted(in_row[start:end], in_row[start], side="right"))
        here = slice(start, end)
        place = places[here].reshape(-1, size).astype(np.int64)
        _, first, groups = np.unique(place[0], return_index=True, return_inverse=True)
        found = tuple(counts[start : start + size].tolist())
        rate = Fraction(rates[place[0, 0]])
        masses = _masses(found, law, None if values is None else values[start : start + size])
        make = _remembered if size <= _REMEMBERED else _remembered.__wrapped__
        yield StratumCells(
            places=place[:, first],
            rows=numbers[here].reshape(-1, size).astype(np.float64),
            squares=squares[here].reshape(-1, size).astype(np.float64),
            groups=groups,
            moments=make(redrawn, found, rate, masses),
        )


def _runs(names: Sequence[str]) -> pl.Expr:
    return pl.struct(names).rle_id() if names else pl.lit(0, dtype=pl.UInt32)


def _check_work(joined: pl.DataFrame) -> None:
    sizes = joined.group_by("__in").agg(pl.len().alias("cells"), pl.col("__row").n_unique().alias("rows"))
    rows, values = (sizes["rows"].cast(pl.Float64), sizes["cells"] / sizes["rows"])
    work = float((_EACH * rows * values**2 + values**3).sum())
    if work > _MOST_WORK:
        raise TooLargeError(
            [
                Problem(
                    what=f"the moments of redrawn values need {work:.0e} multiplications for this table; "
                    f"{_MOST_WORK:.0e} take minutes",
                    where="variables",
                    remedy="ask for fewer held variables, or coarser ones",
                )
            ]
        )


def _masses(counts: tuple[int, ...], law: RedrawLaw, values: pl.Series | None) -> tuple[Fraction, ...]:
    if isinstance(law, str):
        if law == "uniform":
            return (Fraction(1, len(counts)),) * len(counts)
        return tuple(Fraction(count, sum(counts)) for count in counts)
    assert values is not None
    if missing := [str(value) for value in values if str(value) not in law]:
        raise bad_plan(
            f"no probability for {listed(missing[:5])}",
            where="redraw_law",
            remedy="give the law that the swap used, with every swap value that occurs",
        )
    return tuple(law[str(value)] for value in values)


@lru_cache(maxsize=10_000)
def _remembered(
    redrawn: RedrawnStratum, counts: tuple[int, ...], rate: Fraction, masses: tuple[Fraction, ...]
) -> RedrawnCounts:
    return redrawn(counts, rate, masses)


# --- the error to expect in a table -----------------------------------------------------------------------

SOURCES: Final = ("this-data", "other-data", "margins")


def expected_error(
    records: pl.DataFrame | pl.LazyFrame,
    mechanism: Mechanism,
    *,
    variables: Sequence[str],
    source: str,
    persons: pl.DataFrame | pl.LazyFrame | None = None,
    key: str | None = None,
) -> ExpectedError:
    """Return the error to expect in a table of ``variables`` when a mechanism releases ``records``.

    ``source`` must say where the records come from: ``this-data``, the file that will be swapped, or
    ``other-data``; ``margins`` uses only the margins of the strata. With ``persons``, linked by ``key``,
    variables of persons make it a table of persons. The errors of a swap follow from its law and the strata; other
    mechanisms know theirs. Errors need the true cells: from the confidential file itself they are as confidential as it
    is, and settings chosen by them depend on it. From another file, or from the margins alone, they are free.

    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("AABB"), "tenure": list("oorr")})
    >>> from stirred import PermutationSwap
    >>> swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    >>> found = expected_error(homes, swap, variables=["county", "tenure"], source="other-data")
    >>> found.table.select("county", "tenure", "true", pl.col("mean", "variance").round(6)).row(0)  # T33
    ('A', 'o', 2, 1.222222, 0.246914)
    """
    swap = mechanism.cell_law
    if swap is None:
        return mechanism.expected_error(records, variables=variables, source=source, persons=persons, key=key)
    if source not in SOURCES:
        raise bad_plan(
            f"'{source}' does not say where the records come from",
            where="source",
            remedy=f"write one of {listed(SOURCES)}; from this data the result is confidential",
        )
    frame, people = records.lazy(), None if persons is None else persons.lazy()
    there = frame.collect_schema().names()
    own = [name for name in variables if name not in there]
    known = [] if people is None else people.collect_schema().names()
    needed = [name for name in (*swap.match, *swap.swap) if name not in there]
    if unknown := list(dict.fromkeys([*needed, *(name for name in own if name not in known)])):
        raise bad_plan(
            f"no column {listed(unknown)}", where="variables", remedy=f"there are {listed([*there, *known])}"
        )

    def crossed(columns: Sequence[str], *, match: Sequence[str] = swap.match) -> pl.DataFrame:
        cells = crossed_strata(
            frame,
            match=match,
            hold=[name for name in variables if name not in swap.swap],
            swap=columns,
            persons=people if own else None,
            key=key,
        )
        return _independent(cells) if source == "margins" else cells

    cells = crossed([name for name in variables if name in swap.swap])
    if swap.redrawn is not None:
        found = _with_redrawn_moments(cells, crossed(swap.swap), swap)
    elif swap.fine_rate is not None:
        fine = crossed([name for name in variables if name in swap.swap], match=(*swap.match, *swap.fine_match))
        found = _with_staged_moments(cells, fine, swap, interior=source != "margins")
    else:
        found = _with_moments(cells, swap)
    summed = found.group_by(list(variables)).agg(
        pl.col("__cell").sum().alias("true"),
        pl.col("__mean").sum().alias("mean"),
        pl.col("__variance").sum().alias("variance"),
    )
    return ExpectedError.of(summed, variables=variables, source=source)


def _independent(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the cells that independence inside the strata would give."""
    share = pl.col("__swap") / pl.col("__stratum")
    return cells.with_columns(
        (pl.col("__hold") * share).alias("__cell"), (pl.col("__hold_squares") * share).alias("__cell_squares")
    )


def _with_redrawn_moments(cells: pl.DataFrame, whole: pl.DataFrame, swap: SwapCellLaw) -> pl.DataFrame:
    """Add the moments of cells whose swap values are redrawn, where ``whole`` has them by all its swap values."""
    mean, variance = cells["__cell"].to_numpy().astype(np.float64), np.zeros(cells.height)
    assert swap.redrawn is not None
    assert swap.redraw_law is not None
    strata = redrawn_cells(
        cells,
        whole,
        match=swap.match,
        swap=swap.swap,
        rates=_rates(cells, swap),
        law=swap.redraw_law,
        redrawn=swap.redrawn,
    )
    for stratum in strata:
        counts, rows = stratum.moments.counts, stratum.rows
        # What is beyond independence: no large numbers are subtracted from each other.
        away = stratum.members - counts @ stratum.members / counts.sum()
        shift = rows @ stratum.moments.moves @ away
        mean[stratum.places] = rows.sum(axis=1, keepdims=True) * (counts @ stratum.members / counts.sum()) + shift
        variance[stratum.places] = second_moments(stratum.moments, rows, stratum.squares, away) - shift**2
    return _known_exactly(cells, mean, variance)


def _with_staged_moments(cells: pl.DataFrame, fine: pl.DataFrame, swap: SwapCellLaw, *, interior: bool) -> pl.DataFrame:
    """Add the moments after two stages, from the cells of the fine strata."""
    names = [name for name in cells.columns if not name.startswith("__")]
    if not interior:
        # The swap values of a fine stratum are no invariant: every one of the coarse stratum, by its share there.
        rows = [name for name in fine.columns if name not in swap.swap and not name.startswith("__")]
        held = fine.select(*rows, "__stratum", "__hold", "__hold_squares").unique(rows)
        columns = [name for name in names if name in (*swap.match, *swap.swap)]
        share = (pl.col("__swap") / pl.col("__stratum")).alias("__share")
        shares = cells.select(*columns, share).unique(columns)
        on = [name for name in columns if name in swap.match]
        fine = held.join(shares, on=on, nulls_equal=True) if on else held.join(shares, how="cross")
        fine = fine.with_columns(
            (pl.col("__stratum") * pl.col("__share")).alias("__swap"),
            (pl.col("__hold") * pl.col("__share")).alias("__cell"),
            (pl.col("__hold_squares") * pl.col("__share")).alias("__cell_squares"),
        )
    assert swap.fine_rate is not None
    after = after_fine_stage(fine, rate=swap.fine_rate)
    mean, variance = staged_moments(cells, after, names=names, rates=_rates(cells, swap))
    return _known_exactly(cells, mean, variance)


def _with_moments(cells: pl.DataFrame, swap: SwapCellLaw) -> pl.DataFrame:
    r, c, x, rr, xx = (
        cells[f"__{name}"].to_numpy().astype(np.float64)
        for name in ("hold", "swap", "cell", "hold_squares", "cell_squares")
    )
    laws = Laws.of(cells["__stratum"].to_numpy(), _rates(cells, swap), moved=swap.moved)
    mean, variance = laws.moments(cell=x, cell_squares=xx, hold=r, hold_squares=rr, swap=c)
    return _known_exactly(cells, mean, variance)


def _known_exactly(cells: pl.DataFrame, mean: np.ndarray, variance: np.ndarray) -> pl.DataFrame:
    low, high = cell_bounds(cells)
    known = low == high  # such a cell cannot change; the formula leaves noise of floating point there
    return cells.with_columns(
        pl.Series("__mean", np.where(known, cells["__cell"].to_numpy(), mean)),
        pl.Series("__variance", np.where(known, 0.0, np.maximum(variance, 0.0))),
    )


def _rates(cells: pl.DataFrame, swap: SwapCellLaw) -> list[Fraction]:
    """Return the rate of each cell's stratum."""
    rows = cells.select(swap.match).rows() if swap.match else [()] * cells.height
    found = {values: swap.rate_of(dict(zip(swap.match, values, strict=True))) for values in set(rows)}
    return [found[values] for values in rows]


_CARRIED = ("mean", "mean_squares", "variance")


def after_fine_stage(fine: pl.DataFrame, *, rate: Fraction) -> pl.DataFrame:
    """Add to the cells of the fine strata what they are after the fine stage: means, and the variance."""
    laws = Laws.of(fine["__stratum"].to_numpy(), [rate] * fine.height)
    n, r, rr, c, x, xx = _margins(fine)
    mean, variance = laws.moments(cell=x, cell_squares=xx, hold=r, hold_squares=rr, swap=c)
    squares = rr * c / n + laws.kept * (xx - rr * c / n)
    found = zip(_CARRIED, (mean, squares, np.maximum(variance, 0.0)), strict=True)
    return fine.with_columns(pl.Series(f"__after_{name}", values) for name, values in found)


def staged_moments(
    cells: pl.DataFrame, fine: pl.DataFrame, *, names: Sequence[str], rates: Sequence[Fraction | str]
) -> tuple[Array, Array]:
    """Return mean and variance of coarse cells, from the fine cells after the fine stage; ``names`` make a cell.

    The two stages commute in law, so the fine one may be thought of as the first. Its moments are those of one stage in
    every fine stratum; the coarse stage then acts on a table that is random, and its variance is quadratic in that
    table's cell. The proof is in docs/theory/moments.md (R13, R18).
    """
    after = [f"__after_{name}" for name in _CARRIED]
    summed = fine.group_by(list(names)).agg(pl.col(after).sum())
    both = cells.join(summed, on=list(names), how="left", nulls_equal=True, maintain_order="left")
    x, xx, spread = (both[name].fill_null(0.0).to_numpy() for name in after)
    laws = Laws.of(cells["__stratum"].to_numpy(), rates)
    _, r, rr, c, _, _ = _margins(cells)
    mean, variance = laws.moments(cell=x, cell_squares=xx, hold=r, hold_squares=rr, swap=c)
    return mean, variance + laws.kept_squares * spread


def _margins(cells: pl.DataFrame) -> list[Array]:
    names = ("stratum", "hold", "hold_squares", "swap", "cell", "cell_squares")
    return [cells[f"__{name}"].to_numpy().astype(np.float64) for name in names]


def expected_errors(
    mechanism: Mechanism, data: Microdata, *, tables: Sequence[Sequence[str]], source: str
) -> tuple[tuple[str, ExpectedError], ...]:
    """Return tables by title with the error to expect, where it has a closed form and is not too much work."""
    found = []
    for variables in () if mechanism.no_closed_form else tables:
        with suppress(PlanError):  # too large, or not by this mechanism from this source
            error = expected_error(
                data.households.lazy(),
                mechanism,
                variables=list(variables),
                source=source,
                persons=data.lazy_persons,
                key=data.hid,
            )
            found.append((" x ".join(variables), error))
    return tuple(found)
