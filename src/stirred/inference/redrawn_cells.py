"""Estimates, variances and bounds for the cells of a table under the conditioned swap."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from stirred.inference.redrawn import Redrawn
from stirred.mechanisms.swapping.moments.class_laws import Array, cell_bounds
from stirred.mechanisms.swapping.moments.conditioned import ConditionedMoments
from stirred.mechanisms.swapping.moments.conditioned_cells import RedrawLaw, StratumCells, conditioned_cells

_FEW: Final = 16


def estimated_redrawn(
    cells: pl.DataFrame, whole: pl.DataFrame, *, match: list[str], swap: list[str], law: RedrawLaw, tolerance: float
) -> pl.DataFrame:
    """Add estimate, variance and bounds of every cell of every stratum; ``whole`` has the cells by all swap values.

    The cells of swap values of which fewer than ``tolerance`` of the records are left unselected stay as they are.
    """
    low, high = cell_bounds(cells)
    known = low == high
    z, r, c, n = (cells[f"__{name}"].to_numpy().astype(np.float64) for name in ("cell", "hold", "swap", "stratum"))
    estimate, variance, plug_in = z.copy(), np.zeros_like(z), np.zeros_like(z)
    near, moves = np.zeros(z.size, dtype=np.bool_), np.zeros(z.size, dtype=np.bool_)
    rates = cells["stratum_rate"].to_list()
    for stratum in conditioned_cells(cells, whole, match=match, swap=swap, rates=rates, law=law):
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
        plug_in[columns] = _inside(undone, stratum)[:, enough]
    near &= ~known
    usable = ~near & ~known
    new = {
        "__moves": moves,
        "__near": near,
        "__estimate": np.where(usable, estimate, z),
        "__variance": np.where(usable, variance, 0.0),
        "__plug_in": np.where(usable, plug_in, 0.0),
        "__low": low,
        "__high": high,
        "__bias_low": np.where(near, low - z, 0.0),
        "__bias_high": np.where(near, high - z, 0.0),
        "__kept": np.where(near, z, 0.0).astype(np.int64),
        "__independent": r * c / n,
    }
    return cells.with_columns(pl.Series(name, values) for name, values in new.items())


def _inside(undone: Redrawn, stratum: StratumCells) -> Array:
    """Return the variances with the estimates put in, cut to what a row can have: for where no other is positive."""
    rows = np.clip(undone.estimates(stratum.rows), 0.0, stratum.rows.sum(axis=1, keepdims=True))
    squares = rows
    if not np.array_equal(stratum.rows, stratum.squares):
        squares = np.clip(undone.estimates(stratum.squares), 0.0, stratum.squares.sum(axis=1, keepdims=True))
    return undone.at(rows, squares, stratum.members)


@lru_cache(maxsize=500)
def _undone(moments: ConditionedMoments) -> Redrawn:
    """Return the stratum, remembered: small strata are often alike and share their moments."""
    return Redrawn(moments=moments)
