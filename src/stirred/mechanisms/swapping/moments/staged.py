"""Mean and variance of a cell after two stages of permutation swapping (swapping theory R13, R18).

The two stages commute in law, so the fine one may be thought of as the first. Its moments are those of one stage in
every fine stratum; the coarse stage then acts on a table that is random, and its variance is quadratic in that
table's cell. The proof is in docs/theory/moments.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import polars as pl

from stirred.mechanisms.swapping.moments.class_laws import Array, Laws

CARRIED = ("mean", "mean_squares", "variance")


def after_fine_stage(fine: pl.DataFrame, *, rate: Fraction) -> pl.DataFrame:
    """Add to the cells of the fine strata what they are after the fine stage: means, and the variance."""
    laws = Laws.of(fine["__stratum"].to_numpy(), [rate] * fine.height)
    n, r, rr, c, x, xx = _margins(fine)
    mean, variance = laws.moments(cell=x, cell_squares=xx, hold=r, hold_squares=rr, swap=c)
    squares = rr * c / n + laws.kept * (xx - rr * c / n)
    found = zip(CARRIED, (mean, squares, np.maximum(variance, 0.0)), strict=True)
    return fine.with_columns(pl.Series(f"__after_{name}", values) for name, values in found)


def staged_moments(
    cells: pl.DataFrame, fine: pl.DataFrame, *, names: Sequence[str], rates: Sequence[Fraction | str]
) -> tuple[Array, Array]:
    """Return mean and variance of coarse cells, from the fine cells after the fine stage; ``names`` make a cell."""
    after = [f"__after_{name}" for name in CARRIED]
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
