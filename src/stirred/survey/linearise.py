"""Plain survey estimates: totals, means and ratios with standard errors by Taylor linearisation or by replicates.

Formulas, with weight w, domain indicator d, and values y and x of a row:

- total: sum of w d y; the score of a row is w d y;
- ratio: sum of w d y / sum of w d x = r; the score is w d (y - r x) / (sum of w d x). A mean has x = 1.

The variance of a sum of scores adds up, over stages and strata, (1 - n/N) n/(n-1) times the squared deviations of the
clusters' sums from their mean in the stratum; what a later stage adds is multiplied by the shares n/N drawn before it.
This is the recursion of R's survey package: a stage without N ends it, and without any N the first stage counts as
drawn with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stirred.spec.problems import wrong
from stirred.survey.sample_design import Drawn, Stage

Numbers = NDArray[np.float64]
LONELY: Final = ("fail", "remove", "certainty", "adjust", "average")  # R's options(survey.lonely.psu)
_WHOLE: Final = 1e-7  # a stratum of which all but this share is drawn is drawn whole, as in R


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistic:
    """A total of ``y`` (``x`` is None) or a ratio of totals of ``y`` and ``x``, over the rows inside a domain."""

    y: Numbers
    x: Numbers | None
    inside: NDArray[np.bool_]

    def value(self, weights: Numbers) -> float:
        """Return the estimate with these weights; not a number where nobody is in the domain of a ratio."""
        own = np.where(self.inside, weights, 0.0)
        top = float(own @ self.y)
        if self.x is None:
            return top
        below = float(own @ self.x)
        return top / below if below else float("nan")

    def scores(self, weights: Numbers) -> Numbers:
        """Return by how much each row moves the estimate, to first order."""
        own = np.where(self.inside, weights, 0.0)
        if self.x is None:
            return own * self.y
        below = float(own @ self.x)
        return own * (self.y - self.value(weights) * self.x) / below if below else np.full(own.size, np.nan)


def variance_of_sum(scores: Numbers, drawn: Drawn, *, lonely: str = "fail") -> float:
    """Return the estimated variance of the sum of the scores of a sample.

    >>> from stirred.survey.sample_design import SurveyDesign
    >>> sample = SurveyDesign(fpc=("N",)).drawn({"N": [10, 10, 10, 10]})
    >>> round(variance_of_sum(np.array([1.0, 2.0, 3.0, 4.0]) * 2.5, sample), 9)  # 10^2 (1 - 4/10) (5/3) / 4
    25.0
    """
    if lonely not in LONELY:
        raise wrong(f"{lonely!r} is not possible here", where="lonely", remedy=f"one of {', '.join(LONELY)}")
    found, share, outer = 0.0, np.ones(scores.size), np.zeros(scores.size, dtype=np.int64)
    for number, stage in enumerate(drawn.stages, start=1):
        if number > 1 and stage.population is None:
            break
        found += _stage_variance(scores, stage, share, outer, lonely=lonely, number=number)
        if stage.population is None:
            break
        share, outer = share * stage.sampled / stage.population, stage.unit
    return found


def _stage_variance(scores: Numbers, stage: Stage, share: Numbers, outer: Any, *, lonely: str, number: int) -> float:
    _, first, back = np.unique(stage.unit, return_index=True, return_inverse=True)
    sums, stratum, n = np.bincount(back, weights=scores), stage.stratum[first], stage.sampled[first]
    left = np.ones(n.size) if stage.population is None else 1 - n / stage.population[first]
    alone = (n == 1) & (left > _WHOLE)
    if alone.any() and lonely == "fail":
        raise wrong(
            f"{len(np.unique(stratum[alone]))} strata have one cluster at stage {number}, which shows no variance",
            where="lonely",
            remedy="collapse strata, or choose as R's survey.lonely.psu: remove or certainty (count it as 0), adjust "
            "(around 0 instead of its own mean), average (the mean of the other strata)",
        )
    means = (np.bincount(stratum, weights=sums) / np.maximum(np.bincount(stratum), 1))[stratum]
    centred = np.where(alone, sums if lonely == "adjust" else 0.0, sums - means)
    factor = np.where(left > _WHOLE, left, 0.0) * np.where(n > 1, n / np.maximum(n - 1, 1), 1.0)
    terms = share[first] * factor * centred**2
    if lonely == "average" and alone.any():
        terms = terms * _averaged(outer[first], stratum, alone)
    return float(terms.sum())


def _averaged(outer: Any, stratum: Any, alone: Any) -> Numbers:
    """Return for each cluster by how much its call's strata with a variance stand for those without one."""
    _, first = np.unique(stratum, return_index=True)
    every = np.bincount(outer[first], minlength=int(outer.max()) + 1)
    known = np.bincount(outer[first], weights=~alone[first], minlength=every.size)
    if bool(((known == 0) & (every > 0)).any()):
        raise wrong("no stratum has two clusters, so there is nothing to average", where="lonely", remedy="remove")
    found: Numbers = (every / np.maximum(known, 1))[outer]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replicates:
    """Replicate weights (rows by replicates) and what their deviations are multiplied with.

    The variance is ``scale`` times the sum of squared deviations of the replicates from their mean, or with ``mse``
    from the estimate itself.
    """

    weights: Numbers
    scale: float
    mse: bool = False

    def variance(self, statistic: Statistic, weights: Numbers) -> float:
        """Return the variance of an estimate."""
        own = np.array([statistic.value(column) for column in self.weights.T])
        centre = statistic.value(weights) if self.mse else own.mean()
        return float(self.scale * np.sum((own - centre) ** 2))


def replicate_scale(kind: str, replicates: int, *, rho: float = 0.0) -> tuple[float, bool]:
    """Return the scale of a kind of replicates, and whether they are centred at the estimate by default.

    >>> replicate_scale("acs", 80), replicate_scale("fay", 4, rho=0.5)
    ((0.05, True), (1.0, False))
    """
    scales = {
        "brr": (1 / replicates, False), "fay": (1 / (replicates * (1 - rho) ** 2), False),
        "jk1": ((replicates - 1) / replicates, False), "jk2": (1.0, False),
        "acs": (4 / replicates, True), "successive-difference": (4 / replicates, True),
        "bootstrap": (1 / (replicates - 1) if replicates > 1 else 1.0, False),
    }  # fmt: skip
    if kind not in scales:
        raise wrong(f"{kind!r} is not a kind of replicates", where="replicate_type", remedy=", ".join(scales))
    return scales[kind]
