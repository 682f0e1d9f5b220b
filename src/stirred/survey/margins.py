"""Weights adjusted to known totals: one table of them post-stratifies, several are raked, as in R's survey package."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stirred.spec.problems import wrong

Numbers = NDArray[np.float64]


class KnownTotals(NamedTuple):
    """Classes of the rows, counted from 0, and the known total of each class."""

    classes: NDArray[np.int64]
    totals: Numbers

    def sums(self, numbers: Numbers) -> Numbers:
        """Return the sum of numbers in every class."""
        return np.bincount(self.classes, numbers, self.totals.size).astype(np.float64)


def read_margins(file: pl.DataFrame, rows: pl.DataFrame) -> list[KnownTotals]:
    """Read totals: the last column; in a row, the columns that are filled in say the class.

    >>> rows = pl.DataFrame({"sex": ["f", "m", "m"], "age": ["a", "a", "b"]})
    >>> totals = pl.DataFrame({"sex": ["f", "m", None, None], "age": [None, None, "a", "b"], "N": [6, 4, 7, 3]})
    >>> adjusted(np.ones(3), read_margins(totals, rows)).round(6).tolist()
    [6.0, 1.0, 3.0]
    """
    *names, last = file.columns
    if absent := [name for name in names or [last] if name not in rows.columns]:
        raise wrong(f"no column {absent[0]!r} in the sample", where="totals", remedy="name its columns, the total last")
    numbers = file[last].cast(pl.Float64, strict=False).fill_null(0.0)
    if not bool((numbers > 0).all() & numbers.is_finite().all()):
        raise wrong("a total is missing, or is not above 0", where="totals", remedy="a total for each class")
    groups: dict[tuple[str, ...], dict[tuple[Any, ...], float]] = {}
    for row, number in zip(file.select(pl.col(names).cast(pl.String)).rows(), numbers, strict=True):
        filled = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        own = groups.setdefault((*filled,), {})
        if not filled or (*filled.values(),) in own:
            raise wrong(f"the class {[*filled.values()]} has two totals, or no name", where="totals", remedy="name it")
        own[(*filled.values(),)] = number
    found = []
    for filled_in, totals in groups.items():
        places = {key: place for place, key in enumerate(totals)}
        classes = [places.get(key, -1) for key in rows.select(pl.col(filled_in).cast(pl.String)).rows()]
        if -1 in classes:
            what = f"a record has {', '.join(filled_in)} without a known total"
            raise wrong(what, where="totals", remedy="give a total for every class of the sample")
        found.append(KnownTotals(np.array(classes, dtype=np.int64), np.array([*totals.values()])))
    return found


def adjusted(weights: Numbers, margins: list[KnownTotals]) -> Numbers:
    """Return weights that add up to all totals."""
    for _ in range(10_000):
        last = before = weights
        for margin in margins:
            last, own = weights, margin.sums(weights)
            if bool((own == 0).any()):
                what = "a class of the totals has no weight in the sample, or in a replicate"
                raise wrong(what, where="totals", remedy="join it with another class")
            weights = weights * (margin.totals / own)[margin.classes]
        if len(margins) == 1:
            return weights
        if bool((abs(weights - before) <= 1e-13 * weights).all()):
            if np.allclose(last, weights, rtol=1e-9):
                return weights
            break  # totals that contradict each other settle too, on those that come last
    raise wrong("the weights do not settle: totals contradict each other", where="totals", remedy="check the sums")


def residuals(scores: Numbers, margins: list[KnownTotals], weights: Numbers, after: Numbers) -> Numbers:
    """Return what of the scores the classes leave unexplained; R weighs it for one margin and not for several."""
    by = weights if len(margins) == 1 else np.ones(weights.size)
    for margin in margins * (1 if len(margins) == 1 else 10):  # ten rounds, as R
        scores = scores - (margin.sums(by * scores / after) / margin.sums(by))[margin.classes] * after
    return scores
