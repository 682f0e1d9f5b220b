"""Estimates, variances and bounds for the cells of a table after two stages of swapping (R13, R18).

The fine stage is undone first: the counts of the fine strata, which it keeps, are those of the released file. That
leaves an unbiased estimate of the table between the stages, from which the coarse stage is undone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from stirred.inference.shrunken_cells import SQUARES_TOLERANCE, corrected, estimated_shrunken
from stirred.mechanisms.swapping.moments.class_laws import Laws, cell_bounds

_SUMMED: Final = ("__estimate", "__squares", "__variance", "__plug_in", "__bias_low", "__bias_high", "__kept")


def estimated_staged(cells: pl.DataFrame, fine: pl.DataFrame, *, fine_rate: str, tolerance: float) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of the coarse strata; ``fine`` has those of the fine strata."""
    names = [name for name in cells.columns if not name.startswith(("__", "stratum_"))]
    rated = fine.with_columns(pl.lit(fine_rate).alias("stratum_rate"))
    between = (
        estimated_shrunken(rated, tolerance=tolerance, member="permutation")
        .group_by(names)
        .agg(pl.col(_SUMMED).sum(), pl.col("__near").any(), pl.col("__moves").any())
    )
    # A swap value that no record of a fine stratum has after the first stage is not there after the second.
    both = cells.select(names).join(between, on=names, how="left", nulls_equal=True, maintain_order="left")
    y, yy, spread, spread_plug_in, below, above, kept_between = (
        both[name].fill_null(0).to_numpy().astype(np.float64) for name in _SUMMED
    )
    n, r, c, z, rr = (
        cells[f"__{name}"].to_numpy().astype(np.float64) for name in ("stratum", "hold", "swap", "cell", "hold_squares")
    )
    laws = Laws.of(cells["__stratum"].to_numpy(), cells["stratum_rate"].to_list())
    low, high = cell_bounds(cells)
    known, independent = low == high, r * c / n
    lost = (np.abs(laws.kept) < tolerance) & ~known
    usable = ~lost & ~known
    kept = np.where(usable, laws.kept, 1.0)
    estimate = np.where(usable, corrected(y, independent=independent, kept=kept), z)
    squares = np.where(usable, corrected(yy, independent=rr * c / n, kept=kept), yy)
    margins = {"hold": r, "hold_squares": rr, "swap": c}
    _, free = laws.moments(cell=estimate, cell_squares=squares, **margins)
    _, inside = laws.moments(cell=np.clip(estimate, low, high), cell_squares=np.clip(squares, 0.0, rr), **margins)
    plug_in = (np.maximum(inside, 0.0) + spread_plug_in) / kept**2
    # As for one stage: with the estimate put in, the variance of the coarse stage has q - lambda^2 of the
    # estimate's variance too much, so this is unbiased for the variance of both stages.
    q = laws.kept_squares
    unbiased = np.where(np.abs(q) < SQUARES_TOLERANCE, plug_in, (free + spread) / np.where(q == 0, 1.0, q))
    ends = np.sort(np.stack([below / kept, above / kept]), axis=0)
    near = lost | (usable & both["__near"].fill_null(value=False).to_numpy())
    new = {
        "__moves": (laws.moved > 0) | both["__moves"].fill_null(value=False).to_numpy(),
        "__near": near,
        "__estimate": estimate,
        "__variance": np.where(usable, unbiased, 0.0),
        "__plug_in": np.where(usable, plug_in, 0.0),
        "__low": low,
        "__high": high,
        "__bias_low": np.where(lost, low - z, np.where(usable, ends[0], 0.0)),
        "__bias_high": np.where(lost, high - z, np.where(usable, ends[1], 0.0)),
        "__kept": np.where(lost, z, np.where(usable, kept_between, 0.0)).astype(np.int64),
        "__independent": independent,
    }
    return cells.with_columns(pl.Series(name, values) for name, values in new.items())
