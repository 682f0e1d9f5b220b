"""Undo a swap in the cells of strata: estimates, variances and bounds from the released table (R18).

Where a swap shrinks cells towards independence, dividing by what it keeps undoes it. Where values are redrawn, a
released row has mean x Phi, and Phi follows from the margins and the law, which are public: Z Phi^-1 is unbiased. Its
variance is quadratic in x. In small strata of few values it is estimated without bias, from how pairs of records
move; otherwise the estimates are put into it, less what their own variance adds there. What is left of that is of the
order of one over the number of records left unselected, and makes the variance larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.inference.redrawn_moments import moments_of_alike, second_moments
from stirred.inference.swap_moments import Laws, StratumCells, cell_bounds, redrawn_cells
from stirred.mechanisms.protocol import Array, NumberMoved, RedrawLaw, RedrawnCounts, RedrawnStratum

# Below this the variance cannot be estimated without bias; the estimated table is put into the formula instead.
SQUARES_TOLERANCE: Final = 0.05**2

Number = TypeVar("Number")


def corrected(published: Number, *, independent: Number, kept: Number) -> Number:
    """Return the unbiased estimate of one cell of one stratum, in whatever arithmetic it is given.

    >>> from fractions import Fraction
    >>> corrected(Fraction(1), independent=Fraction(1), kept=Fraction(2, 9))
    Fraction(1, 1)
    >>> corrected(1.5, independent=1.0, kept=0.5)
    2.0
    """
    return independent + (published - independent) / kept  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCells:
    """What is known of the cells after a swap: the published counts, or estimates where another swap followed.

    ``variance`` and ``plug_in`` are of the estimate, ``low`` and ``high`` bound its bias, and ``kept`` is the part of
    it that no later swap could be undone for. ``slope`` is how much a record more adds to the variance, and ``step``
    what a released record adds to the cell.
    """

    cell: Array
    cell_squares: Array
    variance: Array
    plug_in: Array
    low: Array
    high: Array
    kept: Array
    near: npt.NDArray[np.bool_]
    moves: npt.NDArray[np.bool_]
    slope: Array
    step: Array

    @classmethod
    def published(cls, cells: pl.DataFrame) -> KnownCells:
        """Return the counts themselves, which nothing disturbed since."""
        cell, squares = (cells[f"__{name}"].to_numpy().astype(np.float64) for name in ("cell", "cell_squares"))
        zero, no = np.zeros(cells.height), np.zeros(cells.height, dtype=np.bool_)
        return cls(
            cell=cell,
            cell_squares=squares,
            variance=zero,
            plug_in=zero,
            low=zero,
            high=zero,
            kept=zero,
            near=no,
            moves=no,
            slope=zero,
            step=cells["__largest"].to_numpy().astype(np.float64),
        )


def estimated_shrunken(
    cells: pl.DataFrame, *, tolerance: float, moved: NumberMoved | None = None, known_cells: KnownCells | None = None
) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of every stratum.

    ``__squares`` is the same estimate for the sum of squared weights. ``known_cells`` is what the estimates start from.
    ``__shift``, where nothing followed the swap, is what the squared correction lacks of the squared error of a
    published cell (``unswap._summed``); where nothing could be corrected it is the error of chance alone.
    """
    n, r, c, z, rr = (
        cells[f"__{name}"].to_numpy().astype(np.float64) for name in ("stratum", "hold", "swap", "cell", "hold_squares")
    )
    alone, known_cells = known_cells is None, known_cells or KnownCells.published(cells)
    laws = Laws.of(cells["__stratum"].to_numpy(), cells["stratum_rate"].to_list(), moved=moved)
    low, high = cell_bounds(cells)
    known, independent = low == high, r * c / n
    lost = (np.abs(laws.kept) < tolerance) & ~known
    usable = ~lost & ~known
    kept = np.where(usable, laws.kept, 1.0)
    estimate = np.where(usable, corrected(known_cells.cell, independent=independent, kept=kept), z)
    squares = np.where(
        usable, corrected(known_cells.cell_squares, independent=rr * c / n, kept=kept), known_cells.cell_squares
    )
    margins = {"hold": r, "hold_squares": rr, "swap": c}
    _, free = laws.moments(cell=estimate, cell_squares=squares, **margins)
    plain = np.clip(estimate, low, high)
    squares_plain = plain if np.array_equal(known_cells.cell_squares, known_cells.cell) else np.clip(squares, 0.0, rr)
    _, inside = laws.moments(cell=plain, cell_squares=squares_plain, **margins)
    plug_in = (np.maximum(inside, 0.0) + known_cells.plug_in) / kept**2
    # A record more or less in the cell, of the row's usual weight, as far as the margins leave room for it.
    weight = rr / np.maximum(r, 1.0)
    ends = [np.maximum(plain - weight, low), np.minimum(plain + weight, high)]
    (_, less), (_, more) = (
        laws.moments(cell=end, cell_squares=squares_plain + (end - plain) * weight, **margins) for end in ends
    )
    slope = (more - less) / np.where(known, 1.0, ends[1] - ends[0]) / kept**2 + known_cells.slope / kept
    # The variance of Z is a quadratic in X; with the estimate put in, its mean is (q / lambda^2) Var Z, so this is
    # unbiased for Var Z / lambda^2. An estimate of Z in its place puts (q - lambda^2) / lambda^2 of its own variance
    # in besides, so that with this variance added the mean is again q times that of both.
    q = laws.kept_squares
    unbiased = np.where(
        np.abs(q) < SQUARES_TOLERANCE, plug_in, (free + known_cells.variance) / np.where(q == 0, 1.0, q)
    )
    spread = np.where(usable, unbiased, 0.0)
    _, chance = laws.moments(cell=independent, cell_squares=rr * c / n, **margins)
    shift = np.where(lost, np.maximum(chance, 0.0), (2 * kept - 1) * spread)
    bias = np.sort(np.stack([known_cells.low / kept, known_cells.high / kept]), axis=0)
    new = {
        "__moves": (laws.moved > 0) | known_cells.moves,
        "__near": lost | (usable & known_cells.near),
        "__estimate": estimate,
        "__squares": squares,
        "__variance": spread,
        "__shift": shift if alone else np.full(z.size, np.nan),
        "__plug_in": np.where(usable, plug_in, 0.0),
        "__plain": np.where(usable, plain, estimate),
        "__slope": np.where(usable, slope, 0.0),
        "__step": np.where(usable, known_cells.step / np.abs(kept), 0.0),
        "__low": low,
        "__high": high,
        "__bias_low": np.where(lost, low - z, np.where(usable, bias[0], 0.0)),
        "__bias_high": np.where(lost, high - z, np.where(usable, bias[1], 0.0)),
        "__kept": np.where(lost, z, np.where(usable, known_cells.kept, 0.0)).astype(np.int64),
        "__independent": independent,
    }
    return cells.with_columns(pl.Series(name, values) for name, values in new.items())


_SUMMED: Final = ("estimate", "squares", "variance", "plug_in", "bias_low", "bias_high", "kept")
# Of the fine strata together: their means.
_AVERAGED: Final = ("slope", "step")


def estimated_staged(
    cells: pl.DataFrame, fine: pl.DataFrame, *, fine_rate: str, tolerance: float, moved: NumberMoved | None = None
) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of the coarse strata; ``fine`` has those of the fine strata.

    The fine stage is undone first: the counts of the fine strata, which it keeps, are those of the released file. That
    leaves an unbiased estimate of the table between the stages, from which the coarse stage is undone (R13, R18).
    """
    names = [name for name in cells.columns if not name.startswith(("__", "stratum_"))]
    rated = fine.with_columns(pl.lit(fine_rate).alias("stratum_rate"))
    between = (
        estimated_shrunken(rated, tolerance=tolerance, moved=moved)
        .group_by(names)
        .agg(
            pl.col(*(f"__{name}" for name in _SUMMED)).sum(),
            pl.col(*(f"__{name}" for name in _AVERAGED)).mean(),
            pl.col("__near").any(),
            pl.col("__moves").any(),
        )
    )
    # A swap value that no record of a fine stratum has after the first stage is not there after the second.
    both = cells.select(names).join(between, on=names, how="left", nulls_equal=True, maintain_order="left")
    summed = {name: both[f"__{name}"].fill_null(0).to_numpy().astype(np.float64) for name in (*_SUMMED, *_AVERAGED)}
    near, moves = (both[name].fill_null(value=False).to_numpy() for name in ("__near", "__moves"))
    known_cells = KnownCells(
        cell=summed["estimate"],
        cell_squares=summed["squares"],
        variance=summed["variance"],
        plug_in=summed["plug_in"],
        low=summed["bias_low"],
        high=summed["bias_high"],
        kept=summed["kept"],
        near=near,
        moves=moves,
        slope=summed["slope"],
        step=np.where(summed["step"] > 0, summed["step"], cells["__largest"].to_numpy()),
    )
    return estimated_shrunken(cells, tolerance=tolerance, moved=moved, known_cells=known_cells)


# ---- values that are redrawn -------------------------------------------------------------------------------

Groups = npt.NDArray[np.int64]

# Strata of at most so many swap values have their pairs of records undone too, unless so many records are left
# unselected (records times the square of the share) that it makes less than about a percent of the variance.
_MOST_PAIRED: Final = 16
_MANY: Final = 50
# Below this, undoing pairs, or what the variance of the estimate adds to itself, would only multiply noise.
_LEAST: Final = 0.05**2
# Where less than this share stays, rounding alone would spoil the inverse.
_LEAST_STAY: Final = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Redrawn:
    """One stratum under the conditioned swap, known_cells from what it released.

    >>> from fractions import Fraction
    >>> from stirred.mechanisms.registry import mechanism_class
    >>> redrawn = mechanism_class("conditioned-swap").family.redrawn
    >>> stratum = Redrawn(moments=redrawn((2, 2), Fraction(1, 2), [Fraction(1, 2)] * 2))
    >>> truth = np.array([[2.0, 1.0], [0.0, 1.0]])
    >>> bool(np.allclose(stratum.estimates(truth @ stratum.moments.moves), truth))
    True
    """

    moments: RedrawnCounts

    @property
    def usable(self) -> bool:
        """Say whether anything of the stratum can be estimated back at all."""
        return float(self.moments.stay.min()) > _LEAST_STAY

    @property
    def _shares(self) -> Array:
        return self.moments.counts / self.moments.counts.sum()

    @cached_property
    def _centred(self) -> Array:
        return np.eye(self.moments.counts.size) - self._shares

    @cached_property
    def weights(self) -> Array:
        """Return the weights of a released row in the estimate of each cell, beyond what independence gives."""
        return np.asarray(np.linalg.solve(self.moments.moves, self._centred), dtype=np.float64)

    def estimates(self, released: Array) -> Array:
        """Return the unbiased estimate of each row, Z Phi^-1."""
        return released.sum(axis=1, keepdims=True) * self._shares + released @ self.weights

    def variances(self, released: Array, squares: Array, groups: Groups) -> Array:
        """Return the estimated variances of the estimates of each row, summed over the values of each group.

        Without bias where pairs can be undone; they may then be negative, and only sums of many mean something.
        """
        estimate, estimated_squares = self.estimates(released), self.estimates(squares)
        members = (groups[:, None] == np.arange(groups.max() + 1)).astype(np.float64)
        if self._pairs is not None:
            products = self._products(released, squares)
            within = np.einsum("hab,ag,bg->hg", products, members, members)
            return np.asarray((estimate @ members) ** 2 - within - estimated_squares @ members)
        own = self._variances(estimate, estimated_squares, np.eye(groups.size))
        alone = np.where(self._own > _LEAST, own / np.maximum(self._own, _LEAST), own)
        if members.shape[1] == groups.size:
            return alone
        extra = np.where(self.moments.counts > 1, self._added(members, groups) * alone, 0.0)
        return self._variances(estimate, estimated_squares, members) - extra @ members

    def _variances(self, estimate: Array, squares: Array, members: Array) -> Array:
        """Return the variances with estimates put in; two records of one value are none where it has one record."""
        pairs = np.where(self.moments.counts > 1, estimate**2 - squares, 0.0)
        centred, weights = self._centred @ members, self.weights @ members
        surplus = (estimate**2 - squares - pairs) @ centred**2
        away = (estimate @ centred) ** 2 - surplus
        return np.asarray(second_moments(self.moments, estimate, squares, weights, pairs=pairs) - away)

    def at(self, rows: Array, squares: Array, members: Array) -> Array:
        """Return the variances of the estimates if these were the true rows."""
        away = rows @ (self._centred @ members)
        return np.maximum(second_moments(self.moments, rows, squares, self.weights @ members) - away**2, 0.0)

    def with_published(self, rows: Array, squares: Array, members: Array) -> Array:
        """Return the covariances of the estimates with the published counts, if these were the true rows."""
        published, weights = self._centred @ members, self.weights @ members
        plus, minus = (
            second_moments(self.moments, rows, squares, each) - (rows @ (self.moments.moves @ each)) ** 2
            for each in (published + weights, published - weights)
        )
        return (plus - minus) / 4

    def slopes(self, rows: Array, members: Array) -> Array:
        """Return how much the variance of each cell's estimate grows with a record more in it, in place of another.

        Each record of the row gets its own swap value or another, and each value of the column stays with the row or
        not, nearly independently of the others. The fewer they are the better this holds, so the smaller margin counts.
        """
        weights, counts = self.weights @ members, self.moments.counts
        held, placed, all_ = rows.sum(axis=1, keepdims=True), counts @ members, counts.sum()
        each = self.moments.moves @ weights**2 - (self.moments.moves @ weights) ** 2
        inside = np.where(members > 0, counts[:, None], 0.0)
        outside = np.where(members > 0, 0.0, counts[:, None])
        by_record = _weighted_mean(each, inside) - _weighted_mean(each, outside)
        stays = _weighted_mean(np.broadcast_to(self.moments.stay[:, None], inside.shape), inside)
        comes = (1 - stays) * held / all_
        by_value = ((stays + comes) * (1 - stays - comes) - comes * (1 - comes)) * self.steps(members) ** 2
        return np.where(placed < held, by_value, by_record)

    def steps(self, members: Array) -> Array:
        """Return what one released record more in a column, in place of one elsewhere, adds to its estimate."""
        weights, counts = self.weights @ members, self.moments.counts[:, None]
        ends = [_weighted_mean(weights, np.where(chosen, counts, 0.0)) for chosen in (members > 0, members == 0)]
        return np.abs(ends[0] - ends[1])

    @cached_property
    def _own(self) -> Array:
        """Return by which factor a variance with the estimate put in is too small, on average."""
        added = self._added(np.eye(self.moments.counts.size), np.arange(self.moments.counts.size))
        return np.where(self.moments.counts > 1, 1 + added, 1.0)

    def _added(self, members: Array, groups: Groups) -> Array:
        """Return what each unit of variance of a value's estimate adds to the variance of its group."""
        weights, centred = self.weights @ members, self._centred @ members
        every = np.arange(groups.size)
        return moments_of_alike(self.moments, weights[:, groups]) - centred[every, groups] ** 2

    @cached_property
    def _pairs(self) -> tuple[Groups, Groups, Array] | None:
        """Return the kinds of pairs of records, and the chances that a pair of one kind becomes one of another."""
        counts = self.moments.counts
        size = counts.size
        left = float(counts @ self.moments.stay) / float(counts.sum())
        if size > _MOST_PAIRED or counts.sum() * left**2 > _MANY:
            return None
        first, second = np.triu_indices(size)
        there = (first != second) | (counts[first] > 1)
        first, second = first[there], second[there]
        both = np.zeros((first.size, size))
        both[np.arange(first.size), first] = both[np.arange(first.size), second] = 1.0
        every = np.eye(size)
        alike = second_moments(self.moments, every, np.zeros_like(every), np.hstack([every, both.T]))
        found = second_moments(self.moments, both, np.zeros_like(both), np.hstack([every, both.T]))
        apart = (first != second)[:, None]
        found = np.where(apart, (found - alike[first] - alike[second]) / 2, found)
        singles, joint = found[:, :size], found[:, size:]
        chances = np.where(apart.T, joint - singles[:, first] - singles[:, second], joint)
        if np.linalg.svd(chances, compute_uv=False)[-1] < _LEAST:
            return None
        return first, second, chances

    def _products(self, released: Array, squares: Array) -> Array:
        """Return the unbiased estimate of the sums over pairs of different records, by their two values."""
        assert self._pairs is not None
        first, second, chances = self._pairs
        pairs = released[:, first] * released[:, second] - np.where(first == second, squares[:, first], 0.0)
        # A kind of two values is met in two orders; counted in one here and in the result.
        pairs = np.where(first == second, pairs / 2, pairs)
        found = np.linalg.solve(chances.T, pairs.T).T
        size = self.moments.counts.size
        products = np.zeros((released.shape[0], size, size))
        products[:, first, second] += found
        products[:, second, first] += found
        return products


def _weighted_mean(values: Array, weights: Array) -> Array:
    """Return the mean of each column; 0 where nothing weighs."""
    return np.asarray((values * weights).sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300), dtype=np.float64)


_FEW: Final = 16


def estimated_redrawn(
    cells: pl.DataFrame,
    whole: pl.DataFrame,
    *,
    match: list[str],
    swap: list[str],
    law: RedrawLaw,
    redrawn: RedrawnStratum,
    tolerance: float,
) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of every stratum; ``whole`` has the cells by all swap values.

    The cells of swap values of which fewer than ``tolerance`` of the records are left unselected stay as they are.
    """
    low, high = cell_bounds(cells)
    known = low == high
    z, r, c, n = (cells[f"__{name}"].to_numpy().astype(np.float64) for name in ("cell", "hold", "swap", "stratum"))
    estimate, variance, plug_in, slope, step, shift = z.copy(), *np.zeros((5, z.size))
    near, moves = np.zeros(z.size, dtype=np.bool_), np.zeros(z.size, dtype=np.bool_)
    rates = cells["stratum_rate"].to_list()
    for stratum in redrawn_cells(cells, whole, match=match, swap=swap, rates=rates, law=law, redrawn=redrawn):
        places, moments = stratum.places, stratum.moments
        if moments.counts.size < 2 or bool((moments.stay == 1).all()):
            continue
        moves[places] = True
        undone = _undone(moments) if moments.counts.size <= _FEW else Redrawn(moments=moments)
        enough = np.full(places.shape[1], undone.usable)
        np.logical_and.at(enough, stratum.groups, moments.stay >= tolerance)
        near[places] = ~enough
        if not undone.usable:
            continue
        columns = places[:, enough]
        estimate[columns] = (undone.estimates(stratum.rows) @ stratum.members)[:, enough]
        variance[columns] = undone.variances(stratum.rows, stratum.squares, stratum.groups)[:, enough]
        rows, squares = _inside(undone, stratum)
        plug_in[columns] = undone.at(rows, squares, stratum.members)[:, enough]
        shift[columns] = 2 * undone.with_published(rows, squares, stratum.members)[:, enough] - plug_in[columns]
        slope[columns] = undone.slopes(stratum.rows, stratum.members)[:, enough]
        step[columns] = undone.steps(stratum.members)[enough]
    near &= ~known
    usable = ~near & ~known
    new = {
        "__moves": moves,
        "__near": near,
        "__estimate": np.where(usable, estimate, z),
        "__variance": np.where(usable, variance, 0.0),
        "__shift": np.where(usable, shift, 0.0),
        "__plug_in": np.where(usable, plug_in, 0.0),
        "__plain": np.where(usable, np.clip(estimate, low, high), z),
        "__slope": np.where(usable, slope, 0.0),
        "__step": np.where(usable, step * cells["__largest"].to_numpy(), 0.0),
        "__low": low,
        "__high": high,
        "__bias_low": np.where(near, low - z, 0.0),
        "__bias_high": np.where(near, high - z, 0.0),
        "__kept": np.where(near, z, 0.0).astype(np.int64),
        "__independent": r * c / n,
    }
    return cells.with_columns(pl.Series(name, values) for name, values in new.items())


def _inside(undone: Redrawn, stratum: StratumCells) -> tuple[Array, Array]:
    """Return the estimates cut to what a row can have, and those of the squares: for where no other is positive."""
    rows = np.clip(undone.estimates(stratum.rows), 0.0, stratum.rows.sum(axis=1, keepdims=True))
    squares = rows
    if not np.array_equal(stratum.rows, stratum.squares):
        squares = np.clip(undone.estimates(stratum.squares), 0.0, stratum.squares.sum(axis=1, keepdims=True))
    return rows, squares


@lru_cache(maxsize=500)
def _undone(moments: RedrawnCounts) -> Redrawn:
    """Return the stratum, remembered: small strata are often alike and share their moments."""
    return Redrawn(moments=moments)
