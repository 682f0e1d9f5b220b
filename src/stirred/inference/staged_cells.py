"""Estimates, variances and bounds for the cells of a table after two stages of swapping (R13, R18).

The fine stage is undone first: the counts of the fine strata, which it keeps, are those of the released file. That
leaves an unbiased estimate of the table between the stages, from which the coarse stage is undone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from stirred.inference.shrunken_cells import Seen, estimated_shrunken

_SUMMED: Final = ("estimate", "squares", "variance", "plug_in", "bias_low", "bias_high", "kept")


def estimated_staged(cells: pl.DataFrame, fine: pl.DataFrame, *, fine_rate: str, tolerance: float) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of the coarse strata; ``fine`` has those of the fine strata."""
    names = [name for name in cells.columns if not name.startswith(("__", "stratum_"))]
    rated = fine.with_columns(pl.lit(fine_rate).alias("stratum_rate"))
    between = (
        estimated_shrunken(rated, tolerance=tolerance, member="permutation")
        .group_by(names)
        .agg(pl.col(*(f"__{name}" for name in _SUMMED)).sum(), pl.col("__near").any(), pl.col("__moves").any())
    )
    # A swap value that no record of a fine stratum has after the first stage is not there after the second.
    both = cells.select(names).join(between, on=names, how="left", nulls_equal=True, maintain_order="left")
    summed = {name: both[f"__{name}"].fill_null(0).to_numpy().astype(np.float64) for name in _SUMMED}
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
    )
    return estimated_shrunken(cells, tolerance=tolerance, member="permutation", seen=seen)
