"""What survey estimates ask of the records: whole numbers, how far one record moves them, and their noise.

A weight is ``w`` steps of the weight grid and a value ``y`` steps of its own, so a weighted total is a whole number of
steps. ``T`` below is the range of a cluster's score. Every sensitivity is over replaced records: all pairs of samples,
divided by their distance (docs/theory/survey-estimates.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Final

from stirred.mechanisms.tables.query import Query
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import wrong
from stirred.spec.shift_law import DiscreteLaplace
from stirred.survey.estimates.classes import Classes
from stirred.survey.estimates.settings import Estimate, pair
from stirred.survey.sensitivity import ht_sensitivity
from stirred.survey.settings import Setting

FINE: Final = 1000  # steps of noise that one record can cause, where the grid is ours to choose
_LARGEST: Final = 2**62

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyQuery(Query):
    """Whole numbers with Laplace noise: ``step`` is what one unit stands for, and one record moves them by ``one``."""

    cells: int
    step: Fraction
    gaussian: bool = False

    def __post_init__(self) -> None:
        _ = self.noise  # too wide to be drawn: refused by the plan

    @property
    def noise(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.loss / self.one)

    @property
    def purpose(self) -> str:
        return repr((self.title, self.role))


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """What is public of a sample: its size, bounds of the weights in steps, and the design's counts.

    ``strata`` has the number of clusters drawn in each stratum; ``most`` is the largest number of records of a cluster.
    With ``classes`` estimates are calibrated; with ``equal`` weights every unit of every frame has the same one.
    ``sizes`` are strata of units whose weights and sampled counts the design fixes, with the sum of their weights.
    """

    setting: Setting
    n: int
    weights: Range
    weight_grid: Fraction
    strata: tuple[int, ...]
    clustered: bool = False
    most: int = 1
    classes: Classes | None = None
    equal: bool = False
    sizes: Classes | None = None

    @property
    def held(self) -> bool:
        """Say whether the sampled counts of classes are held fixed, so that weights and classes are."""
        return self.classes is not None and self.classes.counts is not None

    @property
    def fixed(self) -> bool:
        """Say whether a record's weight follows from what is held fixed."""
        return self.setting.weights_fixed or self.held or self.equal

    def decided(self, estimate: Estimate) -> bool:
        """Say whether the class of a record decides its cell."""
        return self.classes is not None and self.classes.decide(estimate)

    @property
    def known(self) -> Classes | None:
        """Return the strata whose sums of weights are the same in all compared samples."""
        fixed = self.setting.weights_fixed and self.setting.start != "responding" and self.classes is None
        return self.sizes if fixed else None

    def by_design(self, estimate: Estimate) -> bool:
        """Say whether the domains of a mean are whole strata, so that the design fixes what it is divided by."""
        domain = estimate.kind == "mean" and bool(estimate.by or estimate.where)
        return domain and self.known is not None and self.known.decide(estimate)

    def stays(self, estimate: Estimate) -> bool:
        """Say whether a record can only be replaced by one of the same cell and weight."""
        return (self.held and self.decided(estimate)) or self.by_design(estimate)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateQueries:
    """An estimate with its ranges in steps of the grid, and its queries by their role.

    Roles: ``top`` and ``below`` are totals, ``mean`` is a Hajek mean, ``weight`` the sum of its weights, and
    ``variance`` that of the sampling error of a sum of scores. With ``classes`` totals are asked for each class of a
    cell, to be calibrated after the noise.
    """

    estimate: Estimate
    y: Range
    x: Range
    ratio: Range  # of the ratio, in steps of grid / fine
    grid: Fraction
    below_grid: Fraction
    queries: Mapping[str, SurveyQuery]
    fine: int  # steps of the ratio for one of the grid
    reach: int  # the range T of a cluster's score, in steps of ``score_step``
    score_step: Fraction
    classes: int = 0

    @property
    def title(self) -> str:
        return self.estimate.title

    @property
    def is_ratio(self) -> bool:
        """Say whether two noisy totals are divided."""
        return "below" in self.queries


def asked(estimate: Estimate, public: Public, *, cells: int, loss: Fraction, paid: Fraction | None) -> EstimateQueries:
    """Return an estimate with its queries; ``paid`` is the share of the loss that its sampling variance gets."""
    grid = fraction(estimate.grid, where="grid")
    if grid <= 0:
        raise wrong(f"{grid} is not a grid", where="grid", remedy="write a number above 0")
    y = _steps(estimate.bounds, grid, "bounds") if estimate.kind != "table" else (1, 1)
    if estimate.kind != "table" and y[0] == y[1]:
        raise wrong("the bounds leave nothing to estimate", where="bounds", remedy="write the smaller one first")
    decided = public.decided(estimate)
    alone = estimate.kind == "mean" and not (estimate.by or estimate.where or public.classes)
    below = Fraction(1) if estimate.kind != "ratio" else grid
    x = _steps(estimate.denominator_bounds, below, "denominator_bounds") if estimate.kind == "ratio" else (1, 1)
    if x == (0, 0):
        raise wrong("the denominator is always 0", where="denominator_bounds", remedy="write its public bounds")
    by_design = public.by_design(estimate)
    divided = estimate.kind == "ratio" or (estimate.kind == "mean" and not (alone or decided or by_design))
    if not public.fixed and (divided or alone):
        raise wrong(
            "means and ratios need weights that are fixed, and in this setting they vary", where="setting",
            remedy="hold the frame fixed (sample/frame), or estimate totals",
        )  # fmt: skip
    fine = FINE * max(map(abs, x))
    after = len(public.classes.totals) if public.classes is not None and not public.held else 0
    centred = divided or alone or (after > 0 and decided)
    ratio = _ratio_range(estimate, y, grid / fine, below) if centred else (0, 0)
    rest = loss * (1 - (paid or 0))
    reach, score_step = _reach(estimate, public, y, x, ratio, grid, divided=centred or after > 0)
    queries: dict[str, SurveyQuery] = {}
    step = public.weight_grid * grid
    if alone:
        queries["mean"] = _mean(estimate, public, y, grid, rest)
    else:
        part = rest / 2 if divided else rest
        many = cells * max(after, 1)
        queries["top"] = _total(estimate, public, y, step, many, part)
        if divided:
            queries["below"] = _total(estimate, public, x, public.weight_grid * below, many, part)
    if paid is not None:
        part = loss * paid
        # The sum of the weights divides the variance, and may be known.
        if alone and public.weights[0] < public.weights[1] and public.known is None:
            part = part / 2
            queries["weight"] = _total(estimate, public, (1, 1), public.weight_grid, 1, part)
        queries["variance"] = _variance(estimate, public, reach, score_step, cells, part)
    named = {role: replace(query, role=role) for role, query in queries.items()}
    return EstimateQueries(
        estimate=estimate, y=y, x=x, ratio=ratio, grid=grid, below_grid=below, queries=named, fine=fine, reach=reach,
        score_step=score_step, classes=after,
    )  # fmt: skip


def _steps(bounds: object, grid: Fraction, where: str) -> Range:
    low, high = pair(bounds, where=where)
    ends = low / grid, high / grid
    if any(end.denominator != 1 for end in ends):
        raise wrong("the bounds are not on the grid", where=where, remedy=f"write multiples of the grid {grid}")
    return int(ends[0]), int(ends[1])


def _ratio_range(estimate: Estimate, y: Range, step: Fraction, below: Fraction) -> Range:
    if estimate.kind != "ratio":
        return y[0] * FINE, y[1] * FINE
    low, high = pair(estimate.ratio_bounds, where="ratio_bounds")
    return math.floor(low * below / step), math.ceil(high * below / step)


def _total(estimate: Estimate, public: Public, y: Range, step: Fraction, cells: int, loss: Fraction) -> SurveyQuery:
    """Return the query of a total: one record changes one cell, or leaves one and enters another.

    Where the counts of classes are held fixed a record is replaced inside its class, with the same weight.
    """
    size, (least, most) = max(map(abs, y)), public.weights
    after = public.classes is not None and not public.held
    if public.n * most * size >= _LARGEST:
        raise wrong("its numbers are too large", where="grid", remedy="choose coarser grids of values and weights")
    vary = 0 if public.fixed else (public.n - 1) * (most - least) * size
    if public.stays(estimate) or (public.held and not estimate.by):
        ends = [*y] if public.stays(estimate) else [0, *y]
        sensitivity = most * (max(ends) - min(ends))
    elif estimate.by or after:
        sensitivity = 2 * most * size + vary
    elif estimate.where:
        ends = [0, *(w * v for w, v in product(public.weights, y))]
        sensitivity = max(ends) - min(ends) + vary
    else:
        sensitivity = int(ht_sensitivity(public.setting, weights=public.weights, bounds=y, n=public.n))
    if sensitivity == 0:
        raise wrong("it is the same in all samples", where="by", remedy="count by a column, or with a condition")
    return SurveyQuery(title=estimate.title, cells=cells, step=step, one=sensitivity, loss=loss)


def _mean(estimate: Estimate, public: Public, y: Range, grid: Fraction, loss: Fraction) -> SurveyQuery:
    """Return the query of a Hajek mean, which one record moves by R w_max / (w_max + (n - 1) w_min)."""
    least, most = public.weights
    moved = grid * (y[1] - y[0]) * Fraction(most, most + (public.n - 1) * least)
    # Rounding to the step moves two numbers apart by at most the next whole number of steps.
    return SurveyQuery(title=estimate.title, cells=1, step=moved / FINE, one=FINE, loss=loss)


def _reach(
    estimate: Estimate, public: Public, y: Range, x: Range, ratio: Range, grid: Fraction, *, divided: bool
) -> tuple[int, Fraction]:
    """Return the range of a cluster's score and its step; outside a domain, and in smaller clusters, 0 joins it.

    Scores that are calibrated after the noise are multiplied by N / C of their class, as steps of the largest.
    """
    step, inside = public.weight_grid * grid, public.stays(estimate)
    zero = [] if inside else [0] if public.most > 1 or estimate.by or estimate.where or divided else []
    kept = public.held or public.by_design(estimate)  # a record keeps its weight, and scores grow with it
    weights = public.weights[1:] if kept else public.weights
    if not divided:
        ends = [*zero, *(w * v for w, v in product(weights, y))]
        return public.most * (max(ends) - min(ends)), step
    # The range is convex in the ratio, so its ends decide.
    reach, fine = 0, FINE * max(map(abs, x))
    times = FINE if public.classes is not None and not public.held else 1
    for r in ratio:
        ends = [*zero, *(times * w * (fine * a - r * b) for w in weights for a in y for b in x)]
        reach = max(reach, max(ends) - min(ends))
    if public.n * public.most * reach >= _LARGEST:
        raise wrong("its numbers are too large", where="grid", remedy="choose coarser grids of values and weights")
    return public.most * reach, step / fine / times


def _variance(
    estimate: Estimate, public: Public, reach: int, score_step: Fraction, cells: int, loss: Fraction
) -> SurveyQuery:
    """Return the query of a variance: one record moves the scores of two clusters at most, each by its own range t."""
    if not public.fixed:
        raise wrong(
            "a paid sampling variance needs weights that are fixed", where="variance",
            remedy="write public-bound or none, or hold the frame fixed",
        )  # fmt: skip
    stays = not estimate.by or public.stays(estimate)
    changed = 1 if stays and not public.clustered else 2
    one = Fraction(reach, public.most)  # of the cluster's range T, one record moves t: T^2 - (T - t)^2
    moved = changed * one * (2 * reach - one)
    step = moved * score_step**2 / FINE
    return SurveyQuery(title=estimate.title, cells=cells, step=step, one=FINE, loss=loss)


def bounded_variance(asked: EstimateQueries, public: Public) -> Fraction:
    """Return a public bound of the sampling variance of a total of scores: half the range is the largest deviation."""
    most = sum((Fraction(n * n, n - 1) for n in public.strata if n > 1), Fraction(0))
    return most * Fraction(asked.reach) ** 2 / 4 * asked.score_step**2


def split(estimates: Sequence[Estimate], loss: Fraction) -> list[Fraction]:
    """Return the loss of each estimate, by its share."""
    shares = [fraction(each.share, where="share") for each in estimates]
    if any(share <= 0 for share in shares):
        raise wrong("a share is not above 0", where="share", remedy="write a weight above 0 for each estimate")
    return [loss * share / sum(shares) for share in shares]
