"""The whole numbers of survey estimates, from the records of a sample: exact, whatever the order of the records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.survey.estimates.queries import EstimateQueries, Range
from stirred.survey.estimates.settings import Estimate

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Records as whole numbers: weights in steps, the cluster of each, and of each cluster the stratum.

    Of each stratum, ``drawn`` counts its clusters and ``left`` is 1 - n/N, or 1. ``classes`` are post-strata, and
    ``given`` the weights of the file.
    """

    weights: Integers
    cluster: Integers
    stratum: Integers
    drawn: tuple[int, ...]
    left: tuple[Fraction, ...]
    classes: Integers | None = None
    given: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """What an estimate uses of each record: columns in steps, and its cell (-1 outside); ``cut`` counts clamping."""

    y: Integers
    x: Integers
    cell: Integers
    cut: int = 0


def in_steps(column: Any, ends: Range, grid: Fraction) -> tuple[Integers, int]:
    """Return a column in steps of a grid, brought inside the bounds, and how many values were beyond them.

    >>> in_steps([0.26, 9.0], (0, 10), Fraction(1, 2))
    (array([ 1, 10]), 1)
    """
    given = np.rint(np.asarray(column, dtype=np.float64) / float(grid))
    return np.clip(given, *ends).astype(np.int64), int(((given < ends[0]) | (given > ends[1])).sum())


def nearest(number: Fraction) -> int:
    """Return the nearest whole number, halves upwards: numbers k apart stay k apart, which rounding to even breaks.

    >>> nearest(Fraction(1, 2)), nearest(Fraction(3, 2)), round(Fraction(1, 2)), round(Fraction(3, 2))
    (1, 2, 0, 2)
    """
    return math.floor(number + Fraction(1, 2))


def values_of(asked: EstimateQueries, file: pl.DataFrame, cells: pl.DataFrame) -> Values:
    """Return what an estimate uses of each record."""
    estimate, ones = asked.estimate, np.ones(file.height, dtype=np.int64)
    y, x, cut = ones, ones, 0
    if estimate.kind != "table":
        assert estimate.variable is not None
        y, cut = in_steps(file[estimate.variable].cast(pl.Float64), asked.y, asked.grid)
    if estimate.denominator is not None:
        x, more = in_steps(file[estimate.denominator].cast(pl.Float64), asked.x, asked.below_grid)
        cut += more
    cell = np.zeros(file.height, dtype=np.int64)
    if estimate.by:
        numbered, own = cells.cast(pl.String).with_row_index("__cell"), file.select(estimate.by).cast(pl.String)
        found = own.join(numbered, on=estimate.by, how="left", maintain_order="left")["__cell"]
        cell = found.cast(pl.Int64).to_numpy()
    return Values(y=y, x=x, cell=np.where(inside_of(estimate, file), cell, -1), cut=cut)


def inside_of(estimate: Estimate, file: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which records meet the condition of an estimate."""
    inside = np.ones(file.height, dtype=bool)
    for name, allowed in estimate.where.items():
        inside &= file[name].cast(pl.String).is_in(list(allowed)).fill_null(value=False).to_numpy()
    return inside


def added(numbers: Integers, cell: Integers, cells: int) -> Integers:
    """Return the sum of numbers in every cell."""
    found, inside = np.zeros(cells, dtype=np.int64), cell >= 0
    np.add.at(found, cell[inside], numbers[inside])
    return found


def totals(asked: EstimateQueries, rows: Rows, values: Values) -> dict[str, Integers]:
    """Return the numbers of an estimate without noise, but for its variance; by class where it is calibrated."""
    found = {}
    for role, query in asked.queries.items():
        if role == "mean":
            top, below = int(rows.weights @ values.y), int(rows.weights.sum())
            mean = Fraction(top, below) * asked.grid / query.step
            found[role] = np.array([nearest(mean)], dtype=np.int64)
        elif role != "variance":
            cell = values.cell
            if asked.classes:
                assert rows.classes is not None
                cell = np.where(cell < 0, -1, cell * asked.classes + rows.classes)
            own = added(rows.weights * (values.y if role == "top" else values.x), cell, query.cells)
            found[role] = own.reshape(-1, asked.classes) if asked.classes else own
    return found


def ratio_steps(asked: EstimateQueries, noisy: Mapping[str, Integers]) -> list[int]:
    """Return the published ratio of each cell in steps of grid / fine, inside its range: the centre of scores."""
    low, high = asked.ratio
    found = []
    if "mean" in noisy:
        steps = [round(int(z) * asked.queries["mean"].step * asked.fine / asked.grid) for z in noisy["mean"]]
        return [min(max(z, low), high) for z in steps]
    if not asked.is_ratio:
        return [0] * asked.queries["top"].cells
    for top, below in zip(noisy["top"].tolist(), noisy["below"].tolist(), strict=True):
        r = round(Fraction(asked.fine * top, below)) if below > 0 else (low + high) // 2
        found.append(min(max(r, low), high))
    return found


def variances(
    asked: EstimateQueries, rows: Rows, values: Values, ratio: Any, factors: Integers | None = None
) -> Integers:
    """Return the sampling variance of every cell in steps: the exact number, rounded.

    ``ratio`` is what scores are taken around, by cell; with the ``factors`` of classes by cell and class.
    """
    query = asked.queries["variance"]
    scores = rows.weights * values.y
    if factors is not None:
        around = np.asarray(ratio, dtype=np.int64)[values.cell, rows.classes]
        scores = rows.weights * factors[rows.classes] * (asked.fine * values.y - around * values.x)
    elif asked.is_ratio or "mean" in asked.queries:
        around = np.array([*ratio, 0], dtype=np.int64)[values.cell]
        scores = rows.weights * (asked.fine * values.y - around * values.x)
    spread = cell_variances(scores, values.cell, rows, query.cells)
    unit = asked.score_step**2
    return np.array([nearest(v * unit / query.step) for v in spread], dtype=np.int64)


def cell_variances(scores: Integers, cell: Integers, rows: Rows, cells: int) -> list[Fraction]:
    """Return the variance of the sum of scores in every cell: over strata, (1 - n/N) n/(n-1) sum of (t - mean)^2.

    Clusters outside a cell score 0 there, and are counted without being listed.
    """
    inside = cell >= 0
    clusters = int(rows.stratum.size)
    keys, back = np.unique(cell[inside] * clusters + rows.cluster[inside], return_inverse=True)
    sums = np.zeros(keys.size, dtype=np.int64)
    np.add.at(sums, back, scores[inside])
    first: dict[tuple[int, int], int] = {}
    second: dict[tuple[int, int], int] = {}
    for key, t in zip(keys.tolist(), sums.tolist(), strict=True):
        at = key // clusters, int(rows.stratum[key % clusters])
        first[at], second[at] = first.get(at, 0) + t, second.get(at, 0) + t * t
    found = [Fraction(0)] * cells
    for (place, h), square in second.items():
        n = rows.drawn[h]
        if n > 1:
            found[place] += rows.left[h] * Fraction(n * square - first[place, h] ** 2, n - 1)
    return found


def all_columns(estimates: Sequence[Estimate]) -> list[str]:
    """Return all columns that estimates need."""
    return [*dict.fromkeys(name for each in estimates for name in each.columns)]
