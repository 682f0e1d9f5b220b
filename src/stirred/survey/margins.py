"""Weights adjusted to known totals: one table of them post-stratifies, several are raked, as in R's survey package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stirred.spec.problems import wrong

Numbers = NDArray[np.float64]
_ROUNDS: Final = 10_000
_CLOSE: Final = 1e-13


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Margin:
    """Classes of the rows, counted from 0, and the known total of each class."""

    classes: NDArray[np.int64]
    totals: Numbers

    def adjusted(self, weights: Numbers) -> Numbers:
        """Return weights that add up to the total in every class."""
        found = np.bincount(self.classes, weights=weights, minlength=self.totals.size)
        if bool((found == 0).any()):
            what = "a class of the totals has no weight in the sample, or in a replicate"
            raise wrong(what, where="totals", remedy="join it with another class")
        return weights * (self.totals / found)[self.classes]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Margins:
    """Known totals by one or several sets of columns."""

    margins: tuple[Margin, ...]

    @classmethod
    def read(cls, file: pl.DataFrame, rows: pl.DataFrame) -> Margins:
        """Read totals: the last column; in a row, the columns that are filled in say the class.

        >>> rows = pl.DataFrame({"sex": ["f", "m", "m"], "age": ["a", "a", "b"]})
        >>> totals = pl.DataFrame({"sex": ["f", "m", None, None], "age": [None, None, "a", "b"], "N": [6, 4, 7, 3]})
        >>> Margins.read(totals, rows).adjusted(np.ones(3)).round(6).tolist()
        [6.0, 1.0, 3.0]
        """
        *names, last = file.columns
        if not names or (absent := [name for name in names if name not in rows.columns]):
            raise wrong(f"no column {absent[0] if names else last!r} in the sample", where="totals",
                        remedy="name columns of the sample, and the total last")  # fmt: skip
        texts, numbers = file.select(pl.col(names).cast(pl.String)), file[last].cast(pl.Float64, strict=False)
        if numbers.null_count() or not bool((numbers > 0).all() & numbers.is_finite().all()):
            raise wrong("a total is missing, or is not above 0", where="totals", remedy="a total for each class")
        groups: dict[tuple[str, ...], dict[tuple[Any, ...], float]] = {}
        for row, number in zip(texts.rows(), numbers, strict=True):
            filled = tuple(name for name, value in zip(names, row, strict=True) if value is not None)
            own, key = groups.setdefault(filled, {}), tuple(value for value in row if value is not None)
            if not key or key in own:
                raise wrong(f"the class {key} has two totals, or no name", where="totals", remedy="name each once")
            own[key] = number
        return cls(margins=tuple(_margin(filled, own, rows) for filled, own in groups.items()))

    def adjusted(self, weights: Numbers) -> Numbers:
        """Return weights that add up to all totals."""
        for _ in range(_ROUNDS):
            before = weights
            for margin in self.margins:
                last, weights = weights, margin.adjusted(weights)
            if len(self.margins) == 1 or bool((abs(weights - before) <= _CLOSE * weights).all()):
                # Totals that contradict each other settle too, on those that come last.
                if len(self.margins) == 1 or np.allclose(last, weights, rtol=1e-9):
                    return weights
                break
        raise wrong("the weights do not settle: totals contradict each other", where="totals", remedy="check the sums")

    def residuals(self, scores: Numbers, weights: Numbers, adjusted: Numbers) -> Numbers:
        """Return what of the scores the classes leave unexplained; R weighs it for one margin and not for several."""
        one = len(self.margins) == 1
        for _ in range(1 if one else 10):
            for margin in self.margins:
                by = weights if one else np.ones(weights.size)
                means = np.bincount(margin.classes, weights=by * scores / adjusted) / np.bincount(
                    margin.classes, weights=by
                )
                scores = scores - means[margin.classes] * adjusted
        return scores


def _margin(names: tuple[str, ...], totals: dict[tuple[Any, ...], float], rows: pl.DataFrame) -> Margin:
    places = {key: place for place, key in enumerate(totals)}
    found = [places.get(key, -1) for key in rows.select(pl.col(names).cast(pl.String)).rows()]
    if -1 in found:
        what = f"a record has {', '.join(names)} without a known total"
        raise wrong(what, where="totals", remedy="give a total for every class of the sample")
    return Margin(classes=np.array(found, dtype=np.int64), totals=np.array([*totals.values()]))
