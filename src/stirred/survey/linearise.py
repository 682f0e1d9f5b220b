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

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stirred.data.problems import number as told
from stirred.spec.problems import wrong
from stirred.survey.sample_design import DrawnSample, SampleStage

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


def variance_of_sum(scores: Numbers, drawn: DrawnSample, *, lonely: str = "fail", inside: Any = None) -> float:
    """Return the estimated variance of the sum of the scores of a sample.

    Strata without a row ``inside`` a domain are not lonely, and do not count in an average: R leaves them out.

    >>> from stirred.survey.sample_design import SurveyDesign
    >>> sample = SurveyDesign(fpc=("N",)).drawn({"N": [10, 10, 10, 10]})
    >>> round(variance_of_sum(np.array([1.0, 2.0, 3.0, 4.0]) * 2.5, sample), 9)  # 10^2 (1 - 4/10) (5/3) / 4
    25.0
    """
    if lonely not in LONELY:
        raise wrong(f"{lonely!r} is not possible here", where="lonely", remedy=f"one of {', '.join(LONELY)}")
    found, share, outer = 0.0, np.ones(scores.size), np.zeros(scores.size, dtype=np.int64)
    kept = np.ones(scores.size, dtype=bool) if inside is None else inside
    for number, stage in enumerate(drawn.stages, start=1):
        if number > 1 and stage.population is None:
            break
        found += _stage_variance(scores, stage, share, outer, kept, lonely=lonely, number=number)
        if stage.population is None:
            break
        share, outer = share * stage.sampled / stage.population, stage.unit
    return found


def _stage_variance(
    scores: Numbers, stage: SampleStage, share: Numbers, outer: Any, inside: Any, *, lonely: str, number: int
) -> float:
    _, first, back = np.unique(stage.unit, return_index=True, return_inverse=True)
    sums, stratum, n = np.bincount(back, weights=scores), stage.stratum[first], stage.sampled[first]
    left = np.ones(n.size) if stage.population is None else 1 - n / stage.population[first]
    there = (np.bincount(stage.stratum, weights=inside) > 0)[stratum]
    alone = (n == 1) & (left > _WHOLE) & there
    if alone.any() and lonely == "fail":
        raise wrong(
            f"{told(len(np.unique(stratum[alone])), 'stratum has', 'strata have')} one cluster at stage {number}, "
            f"which shows no variance: that of record {first[alone][0] + 1}",
            where="lonely",
            remedy="collapse strata, or choose as R's survey.lonely.psu: remove or certainty (count it as 0), adjust "
            "(around 0 instead of its own mean), average (the mean of the other strata)",
        )
    means = (np.bincount(stratum, weights=sums) / np.maximum(np.bincount(stratum), 1))[stratum]
    centred = np.where(alone, sums if lonely == "adjust" else 0.0, sums - means)
    factor = np.where(left > _WHOLE, left, 0.0) * np.where(n > 1, n / np.maximum(n - 1, 1), 1.0)
    terms = share[first] * factor * centred**2
    if lonely == "average" and alone.any():
        terms = terms * _averaged(outer[first], stratum, alone, there)
    return float(terms.sum())


def _averaged(outer: Any, stratum: Any, alone: Any, there: Any) -> Numbers:
    """Return for each cluster by how much its call's strata with a variance stand for those without one."""
    _, first = np.unique(stratum, return_index=True)
    every = np.bincount(outer[first], weights=there[first], minlength=int(outer.max()) + 1)
    known = np.bincount(outer[first], weights=there[first] & ~alone[first], minlength=every.size)
    if bool(((known == 0) & (every > 0)).any()):
        raise wrong("no stratum has two clusters, so there is nothing to average", where="lonely", remedy="remove")
    found: Numbers = (every / np.maximum(known, 1))[outer]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replicates:
    """Replicate weights (rows by replicates), their columns, and what their deviations are multiplied with.

    The variance is ``scale`` times the sum of squared deviations, each times its own of ``rscales``, of the replicates
    from their mean, or with ``mse`` from the estimate itself. A replicate without an estimate is left out.
    """

    names: tuple[str, ...]
    weights: Numbers
    scale: float
    rscales: Numbers
    mse: bool = False

    def variance(self, statistic: Statistic, weights: Numbers) -> float:
        """Return the variance of an estimate."""
        own = np.array([statistic.value(column) for column in self.weights.T])
        known = ~np.isnan(own)
        if not known.any():
            return float("nan")
        centre = statistic.value(weights) if self.mse else own[known & (self.rscales > 0)].mean()
        return float(self.scale * np.sum(self.rscales[known] * (own[known] - centre) ** 2))


def replicate_scale(kind: str, replicates: int, *, rho: float | None = None) -> float:
    """Return the scale of a kind of replicates, as R's ``svrepdesign``.

    >>> replicate_scale("acs", 80), replicate_scale("fay", 4, rho=0.5)
    (0.05, 1.0)
    """
    if (kind == "fay") != (rho is not None) or not 0 <= (rho or 0.0) < 1:
        raise wrong("fay needs its rho, from 0 to below 1, and no other kind has one", where="rho", remedy="--rho 0.3")
    scales = {
        "brr": 1 / replicates, "fay": 1 / (replicates * (1 - (rho or 0.0)) ** 2), "jk1": (replicates - 1) / replicates,
        "jkn": 1.0, "jk2": 1.0, "acs": 4 / replicates, "successive-difference": 4 / replicates,
        "bootstrap": 1 / max(replicates - 1, 1), "other": 1.0,
    }  # fmt: skip
    if kind not in scales:
        raise wrong(f"{kind!r} is not a kind of replicates", where="replicate_type", remedy=", ".join(scales))
    return scales[kind]


def student(level: float, freedom: int) -> float:
    """Return how many standard errors an interval of this level reaches; not a number without degrees of freedom.

    The distribution function of Student's t is a finite sum for whole degrees of freedom.

    >>> round(student(0.95, 10), 6), round(student(0.95, 1), 4)
    (2.228139, 12.7062)
    """
    if freedom < 1:
        return math.nan
    if freedom > 10**5:
        return NormalDist().inv_cdf((1 + level) / 2)

    def inside(angle: float) -> float:
        term = math.cos(angle) if freedom % 2 else 1.0
        found, step = 0.0, 2 if freedom % 2 else 1
        for k in range(step, freedom, 2):
            found, term = found + term, term * math.cos(angle) ** 2 * k / (k + 1)
        found *= math.sin(angle)
        return 2 / math.pi * (angle + found) if freedom % 2 else found

    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if inside(middle) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
