"""What the order of a released file says by itself, without the input.

Rows may be grouped by released values and must be in random order inside the groups: any other order is
left over from somewhere, usually from the input. Two statistics have a known mean and variance under a
random order: how many neighbours are equal, and how values rise or fall along a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from stirred.data.natural import ranks

# In standard deviations: about one false alarm in a hundred million columns.
_LIMIT: Final = 6.0
_RARE: Final = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What the order of the rows shows: the columns they are grouped by, and columns in order beyond that.

    ``seen`` lists the columns whose order would have been noticed had the groups been sorted on them.
    """

    grouped: tuple[str, ...]
    ordered: tuple[str, ...]
    seen: tuple[str, ...]


def leftover_order(frame: pl.DataFrame, *, first: Sequence[str] = ()) -> Leftover:
    """Look for an order that grouping by released values does not explain.

    Groups by the columns ``first`` together are looked for before those by other columns.

    >>> nearly_rising = [place + 5 * (place % 2) for place in range(60)]
    >>> rows = pl.DataFrame({"county": ["A"] * 60 + ["B"] * 60, "tenure": [0, 1] * 60, "age": nearly_rising * 2})
    >>> leftover_order(rows).grouped, leftover_order(rows).ordered
    (('county',), ('tenure', 'age'))
    """
    plain = frame.with_columns(pl.col(pl.Boolean).cast(pl.Int8), pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    # Values are numbered in their order, numbers written as text in the order of the numbers.
    coded = pl.DataFrame([ranks(column).fill_null(0) for column in plain.get_columns()])
    if first:
        together = coded.select(pl.struct(first).rank("dense")).to_series()
        candidates = [tuple(first), *((name,) for name in frame.columns if name not in first)]
    else:
        together, candidates = None, [(name,) for name in frame.columns]
    group, grouped = pl.Series("group", [0] * frame.height, dtype=pl.Int64), list[str]()
    waiting = candidates
    while (found := next((c for c in waiting if _contiguous(group, _key(coded, c, together))), None)) is not None:
        finer = pl.DataFrame({"g": group, "k": _key(coded, found, together)})
        group = finer.select(pl.struct("g", "k").rle_id().cast(pl.Int64)).to_series()
        grouped += found
        waiting = [c for c in waiting if c != found]
    rest = [name for candidate in waiting for name in candidate]
    scores = {name: _scores(group, coded[name]) for name in rest}
    return Leftover(
        grouped=tuple(grouped),
        ordered=tuple(name for name, (alarm, _) in scores.items() if alarm),
        seen=tuple(name for name, (_, visible) in scores.items() if visible),
    )


def _key(coded: pl.DataFrame, columns: Sequence[str], together: pl.Series | None) -> pl.Series:
    return coded[columns[0]] if len(columns) == 1 or together is None else together


def _contiguous(group: pl.Series, key: pl.Series) -> bool:
    """Say whether equal values stand together inside every group.

    Values that are nearly all different always do; they must be sorted.
    """
    pairs = pl.DataFrame({"g": group, "k": key})
    blocks = pairs.n_unique()
    runs = int(pairs.select(pl.struct("g", "k").rle_id().max()).item() or 0) + 1
    step, inside = pl.col("k").diff(), pl.col("g") == pl.col("g").shift()
    return runs == blocks and (2 * blocks <= len(group) or bool(pairs.select((step.filter(inside) >= 0).all()).item()))


def _scores(group: pl.Series, values: pl.Series) -> tuple[bool, bool]:
    """Return whether values are in an order inside the groups, and whether a sorted column would have been seen."""
    rows = pl.DataFrame({"g": group, "x": values})
    found, spread = _trend(rows)
    most, _ = _trend(rows.sort("g", "x"))
    if spread == 0:
        return False, False
    equal, expected, variance = _equal_neighbours(rows)
    clustered = (
        variance > 0 and abs(equal - expected) / math.sqrt(variance) > _LIMIT and _poisson_tail(equal, expected) < _RARE
    )
    return abs(found) / spread > _LIMIT or clustered, most / spread > _LIMIT


def _trend(rows: pl.DataFrame) -> tuple[float, float]:
    """Return the sum of centred position times value over all groups, and its spread under a random order."""
    place = pl.int_range(pl.len()).over("g").cast(pl.Float64)
    centred = (
        rows.with_columns(place.alias("j"), pl.col("x").cast(pl.Float64))
        .group_by("g")
        .agg(
            n=pl.len().cast(pl.Float64),
            t=((pl.col("j") - pl.col("j").mean()) * pl.col("x")).sum(),
            s=((pl.col("x") - pl.col("x").mean()) ** 2).sum(),
        )
    )
    # Of a random order: n(n+1)/12 times the sum of squares.
    variance = centred.select((pl.col("n") * (pl.col("n") + 1) / 12 * pl.col("s")).sum()).item()
    return float(centred["t"].sum()), math.sqrt(float(variance))


def _equal_neighbours(rows: pl.DataFrame) -> tuple[int, float, float]:
    """Return how many neighbours of a group are equal, with mean and variance under a random order (runs test)."""
    same = (pl.col("g") == pl.col("g").shift()) & (pl.col("x") == pl.col("x").shift())
    equal = int(rows.select(same.sum()).item())
    counts = rows.group_by("g", "x").agg(c=pl.len().cast(pl.Float64))
    sums = counts.group_by("g").agg(n=pl.col("c").sum(), a=(pl.col("c") ** 2).sum(), b=(pl.col("c") ** 3).sum())
    n, a, b = (pl.col(name) for name in ("n", "a", "b"))
    moments = sums.filter(n > 1).select(
        mean=(a / n - 1).sum(), variance=((a * (a + n * (n + 1)) - 2 * n * b - n**3) / (n**2 * (n - 1))).sum()
    )
    mean, variance = moments.row(0)
    return equal, float(mean or 0), float(variance or 0)


def _poisson_tail(count: int, mean: float) -> float:
    """Bound the probability of a count of rare coincidences as far from its mean as this (Chernoff)."""
    if count == 0 or mean == 0:
        return math.exp(-mean) if count == 0 else 0.0
    return math.exp(min(0.0, count - mean + count * math.log(mean / count)))
