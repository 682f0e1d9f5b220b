"""Estimates, variances and bounds for the cells of a table whose swap shrinks cells towards independence."""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import polars as pl

from stirred.mechanisms.swapping.moments.class_laws import Laws, cell_bounds

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


def estimated_shrunken(cells: pl.DataFrame, *, tolerance: float, member: str) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of every stratum.

    ``__squares`` is the same estimate for the sum of squared weights.
    """
    n, r, c, z, rr, zz = (
        cells[f"__{name}"].to_numpy().astype(np.float64)
        for name in ("stratum", "hold", "swap", "cell", "hold_squares", "cell_squares")
    )
    laws = Laws.of(cells["__stratum"].to_numpy(), cells["stratum_rate"].to_list(), member=member)
    low, high = cell_bounds(cells)
    known, independent = low == high, r * c / n
    near = (np.abs(laws.kept) < tolerance) & ~known
    usable = ~near & ~known
    kept = np.where(usable, laws.kept, 1.0)
    estimate = np.where(usable, corrected(z, independent=independent, kept=kept), z)
    squares = np.where(usable, corrected(zz, independent=rr * c / n, kept=kept), zz)
    margins = {"hold": r, "hold_squares": rr, "swap": c}
    _, free = laws.moments(cell=estimate, cell_squares=squares, **margins)
    plain = np.clip(estimate, low, high)
    squares_plain = plain if np.array_equal(zz, z) else np.clip(squares, 0.0, rr)
    _, inside = laws.moments(cell=plain, cell_squares=squares_plain, **margins)
    plug_in = np.maximum(inside, 0.0) / kept**2
    # The variance of Z is a quadratic in X; with the estimate put in, its mean is (q / lambda^2) Var Z, so this
    # is unbiased for Var Z / lambda^2.
    q = laws.kept_squares
    unbiased = np.where(np.abs(q) < SQUARES_TOLERANCE, plug_in, free / np.where(q == 0, 1.0, q))
    new = {
        "__moves": laws.moved > 0,
        "__near": near,
        "__estimate": estimate,
        "__squares": squares,
        "__variance": np.where(usable, unbiased, 0.0),
        "__plug_in": np.where(usable, plug_in, 0.0),
        "__low": low,
        "__high": high,
        "__bias_low": np.where(near, low - z, 0.0),
        "__bias_high": np.where(near, high - z, 0.0),
        "__kept": np.where(near, z, 0.0).astype(np.int64),
        "__independent": independent,
    }
    return cells.with_columns(pl.Series(name, values) for name, values in new.items())
