"""Estimates, variances and bounds for the cells of a table whose swap shrinks cells towards independence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.swapping.moments.class_laws import Laws, cell_bounds

# Below this the variance cannot be estimated without bias; the estimated table is put into the formula instead.
SQUARES_TOLERANCE: Final = 0.05**2

Number = TypeVar("Number")
Numbers = npt.NDArray[np.float64]


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
class Seen:
    """What is known of the cells after a swap: the published counts, or estimates where another swap followed.

    ``variance`` and ``plug_in`` are of the estimate, ``low`` and ``high`` bound its bias, and ``kept`` is the part of
    it that no later swap could be undone for. ``slope`` is how much a record more adds to the variance, and ``step``
    what a released record adds to the cell.
    """

    cell: Numbers
    cell_squares: Numbers
    variance: Numbers
    plug_in: Numbers
    low: Numbers
    high: Numbers
    kept: Numbers
    near: npt.NDArray[np.bool_]
    moves: npt.NDArray[np.bool_]
    slope: Numbers
    step: Numbers

    @classmethod
    def published(cls, cells: pl.DataFrame) -> Seen:
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


def estimated_shrunken(cells: pl.DataFrame, *, tolerance: float, member: str, seen: Seen | None = None) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of every stratum.

    ``__squares`` is the same estimate for the sum of squared weights. ``seen`` is what the estimates start from.
    ``__shift``, where nothing followed the swap, is what the squared correction lacks of the squared error of a
    published cell (``_summed`` of unswap); where nothing could be corrected it is the error of chance alone.
    """
    n, r, c, z, rr = (
        cells[f"__{name}"].to_numpy().astype(np.float64) for name in ("stratum", "hold", "swap", "cell", "hold_squares")
    )
    alone, seen = seen is None, seen or Seen.published(cells)
    laws = Laws.of(cells["__stratum"].to_numpy(), cells["stratum_rate"].to_list(), member=member)
    low, high = cell_bounds(cells)
    known, independent = low == high, r * c / n
    lost = (np.abs(laws.kept) < tolerance) & ~known
    usable = ~lost & ~known
    kept = np.where(usable, laws.kept, 1.0)
    estimate = np.where(usable, corrected(seen.cell, independent=independent, kept=kept), z)
    squares = np.where(usable, corrected(seen.cell_squares, independent=rr * c / n, kept=kept), seen.cell_squares)
    margins = {"hold": r, "hold_squares": rr, "swap": c}
    _, free = laws.moments(cell=estimate, cell_squares=squares, **margins)
    plain = np.clip(estimate, low, high)
    squares_plain = plain if np.array_equal(seen.cell_squares, seen.cell) else np.clip(squares, 0.0, rr)
    _, inside = laws.moments(cell=plain, cell_squares=squares_plain, **margins)
    plug_in = (np.maximum(inside, 0.0) + seen.plug_in) / kept**2
    # A record more or less in the cell, of the row's usual weight, as far as the margins leave room for it.
    weight = rr / np.maximum(r, 1.0)
    ends = [np.maximum(plain - weight, low), np.minimum(plain + weight, high)]
    (_, less), (_, more) = (
        laws.moments(cell=end, cell_squares=squares_plain + (end - plain) * weight, **margins) for end in ends
    )
    slope = (more - less) / np.where(known, 1.0, ends[1] - ends[0]) / kept**2 + seen.slope / kept
    # The variance of Z is a quadratic in X; with the estimate put in, its mean is (q / lambda^2) Var Z, so this is
    # unbiased for Var Z / lambda^2. An estimate of Z in its place puts (q - lambda^2) / lambda^2 of its own variance
    # in besides, so that with this variance added the mean is again q times that of both.
    q = laws.kept_squares
    unbiased = np.where(np.abs(q) < SQUARES_TOLERANCE, plug_in, (free + seen.variance) / np.where(q == 0, 1.0, q))
    spread = np.where(usable, unbiased, 0.0)
    _, chance = laws.moments(cell=independent, cell_squares=rr * c / n, **margins)
    shift = np.where(lost, np.maximum(chance, 0.0), (2 * kept - 1) * spread)
    bias = np.sort(np.stack([seen.low / kept, seen.high / kept]), axis=0)
    new = {
        "__moves": (laws.moved > 0) | seen.moves,
        "__near": lost | (usable & seen.near),
        "__estimate": estimate,
        "__squares": squares,
        "__variance": spread,
        "__shift": shift if alone else np.full(z.size, np.nan),
        "__plug_in": np.where(usable, plug_in, 0.0),
        "__plain": np.where(usable, plain, estimate),
        "__slope": np.where(usable, slope, 0.0),
        "__step": np.where(usable, seen.step / np.abs(kept), 0.0),
        "__low": low,
        "__high": high,
        "__bias_low": np.where(lost, low - z, np.where(usable, bias[0], 0.0)),
        "__bias_high": np.where(lost, high - z, np.where(usable, bias[1], 0.0)),
        "__kept": np.where(lost, z, np.where(usable, seen.kept, 0.0)).astype(np.int64),
        "__independent": independent,
    }
    return cells.with_columns(pl.Series(name, values) for name, values in new.items())


_SUMMED: Final = ("estimate", "squares", "variance", "plug_in", "bias_low", "bias_high", "kept")
# Of the fine strata together: their means.
_AVERAGED: Final = ("slope", "step")


def estimated_staged(cells: pl.DataFrame, fine: pl.DataFrame, *, fine_rate: str, tolerance: float) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of the coarse strata; ``fine`` has those of the fine strata.

    The fine stage is undone first: the counts of the fine strata, which it keeps, are those of the released file. That
    leaves an unbiased estimate of the table between the stages, from which the coarse stage is undone (R13, R18).
    """
    names = [name for name in cells.columns if not name.startswith(("__", "stratum_"))]
    rated = fine.with_columns(pl.lit(fine_rate).alias("stratum_rate"))
    between = (
        estimated_shrunken(rated, tolerance=tolerance, member="permutation")
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
    seen = Seen(
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
    return estimated_shrunken(cells, tolerance=tolerance, member="permutation", seen=seen)
