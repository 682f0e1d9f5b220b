"""The plan of survey estimates, and what they publish: both errors apart, intervals from their law, and flags."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import number
from stirred.mechanisms.protocol import Fact, PublicFile, ReleasedColumns
from stirred.mechanisms.tables.engine import TablePlan
from stirred.mechanisms.tables.query import DECIMAL, TEXT, Columns, schema_of
from stirred.spec.exact import exact
from stirred.spec.explanation import figures
from stirred.spec.invariant import Margin
from stirred.survey.estimates.calibration import calibrate, centres, ratios
from stirred.survey.estimates.error_law import Noise, half_width
from stirred.survey.estimates.promise import SurveyPromise
from stirred.survey.estimates.queries import FINE, EstimateQueries, Public, SurveyQuery, bounded_variance
from stirred.survey.estimates.settings import VARIANCE, Estimate, pair

ROLES = {"top": "total", "below": "denominator", "weight": "sum of weights", "variance": "sampling variance"}


def text_rows(cells: pl.DataFrame) -> list[dict[str, str]]:
    """Return the cells of an estimate, their values as texts; without variables there is one."""
    return cells.cast(pl.String).rows(named=True) if cells.width else [{}]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SurveyPlan(TablePlan):
    """What would be published; nothing random has happened."""

    estimates: tuple[EstimateQueries, ...]
    public: Public

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        return {"households": [*dict.fromkeys(name for each in self.estimates for name in each.estimate.by)]}

    @property
    def publishes_fixed(self) -> bool:
        return self.public.held

    @property
    def unchanged(self) -> str:
        """Say what is published exactly; frame, weights and the numbers drawn are held fixed and stay inside."""
        fixed = self.specification.multiverse.invariants
        shown = [each for each in fixed if self.publishes_fixed and isinstance(each, Margin)]
        inside = "; ".join(figures([each for each in fixed if each not in shown]))
        kept = f"; held fixed, and so not protected, but not published: {inside}" if inside else ""
        return f"{'; '.join(figures(shown)) or 'nothing'}{kept}"

    @property
    def published_figures(self) -> str:
        return self.unchanged

    @property
    def disturbed(self) -> str:
        count, variance = (
            sum(each.height if each.width else 1 for each in self.cells.values()),
            VARIANCE[self.mechanism.variance],
        )
        after = "" if self.class_counts is None else ", calibrated to public totals afterwards"
        return f"{number(count, 'estimate')} with noise{after}; {variance}; no records are published"

    @property
    def class_counts(self) -> EstimateQueries | None:
        """Return the counts of classes, to which noisy estimates are calibrated; they come first."""
        return self.estimates[0] if self.public.classes is not None and not self.public.held else None

    def centred(
        self, asked: EstimateQueries, cells: pl.DataFrame, noisy: Mapping[str, Any], counts: Any
    ) -> tuple[Any, Any]:
        """Return what the scores of a calibrated estimate are taken around, and by what they are multiplied."""
        assert self.class_counts is not None
        assert self.public.classes is not None
        count, classes = self.class_counts.queries["top"], self.public.classes
        factors = ratios(classes, count, counts)
        around = centres(asked, classes, text_rows(cells), noisy, counts, count)
        return around, np.rint(FINE * factors / factors.max()).astype(np.int64)

    @property
    def sampled(self) -> tuple[str, Mapping[str, Any]] | None:
        mechanism = self.mechanism
        if mechanism.design is None or mechanism.sample is None:
            return None
        parts = mechanism.shares(mechanism.design)
        own = {"shares": [str(share) for share in parts]} if parts else {}
        design, inner = mechanism.design.document(), str(exact(mechanism.inner_loss))
        return mechanism.sample, {"design": design, "inner": inner, **own}

    @property
    def why_this_number(self) -> str:
        return str(self.specification.budget.policy)

    @property
    def facts(self) -> tuple[Fact, ...]:
        found, values = [], []
        for each in self.estimates:
            facts: dict[str, Any] = {"estimate": each.title}
            for role, query in each.queries.items():
                sd = float(query.step) * 2**0.5 * float(query.one / query.loss)
                facts[role] = {
                    "cells": query.cells, "epsilon": str(query.loss), "step": str(query.step), "noise_sd": sd,
                    "sensitivity": str(query.one * query.step),
                }  # fmt: skip
                words = f"{each.title}, {ROLES.get(role, role)}: noise of standard deviation {sd:.4g}"
                found.append(f"{words}, epsilon {exact(query.loss).shown()}")
            values.append(facts)
        inner = str(exact(self.mechanism.inner_loss))
        return (
            *(Fact(label="noise", sentence=sentence) for sentence in found),
            *(Fact(label="before", sentence=f"{who}: epsilon {loss}") for who, loss in self.mechanism.attackers),
            Fact(values={"survey_estimates": values, "inner_epsilon": inner, "variance": self.mechanism.variance}),
        )


ESTIMATES: Final = "estimates"
INVARIANTS: Final = "invariants"
LABELS: Final = dict.fromkeys(("name", "kind", "variable", "where"), TEXT)
# Between labels and numbers stand the variables of ``by``.
NUMBERS: Final[Columns] = {
    **dict.fromkeys(("estimate", "se_sampling", "se_privacy", "se", "moe90", "lci", "uci", "cv"), DECIMAL),
    "flag": TEXT,
}
OUTSIDE: Final = "o"
FLAGS: Final = {"statcan": (0.165, 0.333, "E", "F"), "abs": (0.25, 0.5, "*", "**")}
_PAID: Final = (
    "`se_sampling` is at least what the noise of its variance can hide. Intervals are a little wider than it says, to "
    "make up for that noise too."
)
Drawn = Mapping[str, Mapping[str, np.ndarray]]


def flag(preset: str, *, estimate: float, cv: float | None, moe90: float) -> str:
    """Return the quality flag of an estimate; empty where there is nothing to say.

    >>> flag("statcan", estimate=10, cv=0.2, moe90=3.3), flag("acs", estimate=10, cv=0.8, moe90=13)
    ('E', 'n')
    """
    if preset == "acs":
        return "n" if abs(estimate) <= moe90 else ""
    first, second, some, much = FLAGS[preset]
    return much if cv is None or cv > second else some if cv > first else ""


def remark(estimate: Estimate, value: float) -> str:
    """Return what follows the flag of a mean or ratio that came out beyond its declared bounds: noise took it there.

    >>> remark(Estimate(kind="mean", variable="score", bounds=[200, 1000]), 1909.0)
    'o'
    """
    declared = {"mean": estimate.bounds, "ratio": estimate.ratio_bounds}.get(estimate.kind)
    if declared is None:
        return ""
    low, high = (float(end) for end in pair(declared, where="bounds"))
    return "" if low <= value <= high else OUTSIDE


def published(mechanism: SurveyPromise, plan: SurveyPlan, noisy: Drawn) -> pl.DataFrame:
    """Return the file of estimates: a function of the noisy numbers and of what is public alone."""
    rows: list[dict[str, Any]] = []
    for asked in plan.estimates:
        own = noisy[asked.title]
        for place, cell in enumerate(text_rows(plan.cells[asked.title])):
            numbers = _numbers(mechanism, plan, asked, cell, {role: z[place] for role, z in own.items()}, noisy)
            label = {"name": asked.title, "kind": asked.estimate.kind, "variable": asked.estimate.variable or "",
                     "where": asked.estimate.where_in_words}  # fmt: skip
            rows.append({**label, **cell, **numbers})
    schema = schema_of(columns_by(plan.releases["households"]))
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def columns_by(by: Iterable[str]) -> Columns:
    """Return the columns of the file of estimates."""
    return {**LABELS, **dict.fromkeys(by, TEXT), **NUMBERS}


def noise_of(query: SurveyQuery, factor: float) -> Noise:
    """Return the noise of a number that an estimate is ``factor`` times of."""
    return Noise(float(query.loss / query.one), float(query.step) * factor)


def _linear(
    plan: SurveyPlan, asked: EstimateQueries, cell: Mapping[str, str], z: Mapping[str, Any], noisy: Drawn
) -> tuple[float, list[Noise], float] | None:
    """Return an estimate, the noises in its error, and what divides its scores; None if that is 0 or less."""
    queries, classes, counts = asked.queries, plan.public.classes, plan.class_counts
    if asked.classes and classes is not None and counts is not None:
        count = counts.queries["top"]
        found = calibrate(asked, classes, cell, z, noisy[counts.title]["top"], count)
        if found is None:
            return None
        moved = [noise_of(queries.get(role, count), factor) for role, factor in found.moved if factor]
        return found.estimate, moved, found.below
    if asked.is_ratio:
        below = float(z["below"]) * float(queries["below"].step)
        if below <= 0:
            return None
        estimate = float(z["top"]) * float(queries["top"].step) / below
        return (
            estimate,
            [noise_of(queries["top"], 1 / below), noise_of(queries["below"], max(abs(estimate), 1e-12) / below)],
            below,
        )
    role = "mean" if "mean" in queries else "top"
    below, sizes = 1.0, classes or plan.public.known
    if asked.estimate.kind == "mean" and role == "top" and sizes is not None:  # of classes or strata that are fixed
        below = float(sizes.sizes[sizes.reaching(asked.estimate, cell)].sum())
        if not below:
            return None
    return float(int(z[role]) * queries[role].step) / below, [noise_of(queries[role], 1 / below)], below


def _numbers(
    mechanism: SurveyPromise, plan: SurveyPlan, asked: EstimateQueries, cell: Mapping[str, str], z: Mapping[str, Any],
    noisy: Drawn,
) -> dict[str, Any]:  # fmt: skip
    """Return the numbers of one estimate; none where a denominator came out as 0 or less."""
    found = _linear(plan, asked, cell, z, noisy)
    if found is None:
        return {"flag": "x"}
    estimate, noises, below = found
    spread = _sampling(plan, asked, z, below)
    sd, own = (None, (0.0, 0.0)) if spread is None else (math.sqrt(spread[0]), spread)
    privacy = math.sqrt(sum(noise.variance for noise in noises))
    se = math.hypot(sd or 0.0, privacy)
    moe, width = (half_width(level, widened(*own, level), noises) for level in (0.9, float(mechanism.sure)))
    cv = se / abs(estimate) if estimate else None
    quality = flag(mechanism.quality, estimate=estimate, cv=cv, moe90=moe)
    return {
        "estimate": estimate, "se_sampling": sd, "se_privacy": privacy, "se": se, "moe90": moe,
        "lci": estimate - width, "uci": estimate + width, "cv": cv,
        "flag": f"{quality} {remark(asked.estimate, estimate)}".strip(),
    }  # fmt: skip


def widened(variance: float, noise: float, level: float) -> float:
    """Return the standard error with which an interval covers, where the variance has noise of this deviation.

    Too small a variance costs more coverage than too large a one gains: (1 + z^2)/4 noise^2/variance more makes up for
    it to second order (docs/theory/survey-estimates.md). Near its least value, the noise, a variance is too large.

    >>> widened(4.0, 0.0, 0.95), round(widened(4.0, 1.0, 0.95), 4)
    (2.0, 2.0743)
    """
    if not noise:
        return math.sqrt(variance)
    z = NormalDist().inv_cdf((1 + level) / 2)
    return math.sqrt(variance + (1 + z * z) / 4 * min(noise**2 / variance, max(variance - noise, 0.0) / 2))


def _sampling(
    plan: SurveyPlan, asked: EstimateQueries, z: Mapping[str, Any], below: float
) -> tuple[float, float] | None:
    """Return the variance of sampling and the deviation of its noise: the noisy one, the bound, or None."""
    if plan.mechanism.variance == "none" or asked is plan.class_counts:
        return None
    least = plan.public.n * plan.public.weights[0]
    if "mean" in asked.queries:
        below = float(max(z.get("weight", least), least) * plan.public.weight_grid)
        below = below if (known := plan.public.known) is None else float(known.sizes.sum())
    found, noise = float(bounded_variance(asked, plan.public)), 0.0
    if plan.mechanism.variance == "paid":
        # A variance below the deviation of its own noise cannot be distinguished from 0, and 0 would promise too much.
        query = asked.queries["variance"]
        noise = math.sqrt(noise_of(query, 1.0).variance)
        found = min(max(float(z["variance"]) * float(query.step), noise), found)
    return found / below**2, noise / below**2


def files(
    mechanism: SurveyPromise, released: ReleasedColumns, data: Microdata | None = None, plan: SurveyPlan | None = None
) -> list[PublicFile]:
    """Return the estimates, as Parquet and as CSV, and the classes that are published exactly. No record."""
    classes = () if mechanism.adjust is None else tuple(mechanism.adjust.poststrata)
    by = (name for name in released.households if name in (*mechanism.coded_columns, *classes))
    columns = (*columns_by(by),)
    words = "the estimates with their errors"
    held = []
    if classes and not mechanism.after_noise and (plan is None or plan.public.held):
        what = "how many sampled records each class has, exactly"
        make = None if plan is None else partial(_class_sizes, plan)
        held = [PublicFile(name=INVARIANTS, kind="side", columns=("table", *classes, "count"), words=what, make=make)]
    return [
        *held,
        PublicFile(name=ESTIMATES, kind="estimates", columns=columns, words=words),
        PublicFile(name=ESTIMATES, kind="table", columns=columns, words=f"{words}, as text"),
    ]


def _class_sizes(plan: SurveyPlan) -> list[pl.DataFrame]:
    """Return how many records each class has, as a table."""
    classes = plan.public.classes
    assert classes is not None  # where they are held
    named = pl.lit(" x ".join(classes.frame.columns)).alias("table")
    return [classes.frame.select(named, pl.all()).with_columns(count=pl.Series(classes.counts))]


def reading(mechanism: SurveyPromise, plan: SurveyPlan) -> list[str]:
    """Return what a reader of the estimates must know, from public facts alone."""
    percent = f"{float(100 * mechanism.sure):g}%"
    errors = "`se_sampling` and `se_privacy` are the two errors, `se` is both"
    covered = "of both errors together: normal for sampling, and the exact law for the noise"
    if plan.mechanism.variance == "none":
        errors = "`se_sampling` is empty, and `se` is the error of the noise, `se_privacy`"
        covered = "of the noise alone: the sampling error is not published"
    elif plan.class_counts is not None:
        rows = f"In the rows `{plan.class_counts.title}`"
        covered = f"{covered}. {rows} interval and margin are of the noise alone, and so are `se`, `cv` and `flag`"
    flags = {
        "statcan": "`flag` is E for a coefficient of variation above 16.5% and F above 33.3%",
        "abs": "`flag` is * for a coefficient of variation above 25% and ** above 50%",
        "acs": "`flag` is n where the estimate is not different from 0 at 90%",
    }[mechanism.quality]
    return [
        "Every estimate is the weighted one of the sample plus noise of mean 0; a ratio divides two such numbers.",
        f"Values and weights beyond their declared bounds count as the nearer bound ({_bounds(mechanism, plan)}). "
        "Estimates and intervals are for the clamped population; how far it is from the real one is not published.",
        *_calibration(plan),
        f"{errors}; {VARIANCE[plan.mechanism.variance]}.",
        f"`lci` to `uci` is an interval of {percent} and `moe90` the margin of error at 90%, {covered}.",
        f"{flags}, and x where a denominator came out as 0 or less, so that there is no estimate.",
        *_divided(plan),
        *([_PAID] if plan.mechanism.variance == "paid" else []),
    ]


def _bounds(mechanism: SurveyPromise, plan: SurveyPlan) -> str:
    """Return the declared bounds in words."""
    low, high = (float(end * plan.public.weight_grid) for end in plan.public.weights)
    found = [] if plan.public.held else [f"weights {low:,.10g} to {high:,.10g}"]
    for each in mechanism.estimates:
        for name, bounds in ((each.variable, each.bounds), (each.denominator, each.denominator_bounds)):
            found += (
                [] if name is None else ["{} {:,.10g} to {:,.10g}".format(name, *map(float, pair(bounds, where="")))]
            )
    return "; ".join(dict.fromkeys(found)) or "there are none"


def _divided(plan: SurveyPlan) -> list[str]:
    """Return what is said of means: by what they are divided, and what it means if one cannot be."""
    kinds = {each.estimate.kind for each in plan.estimates}
    sentences = []
    if kinds & {"mean", "ratio"}:
        sentences.append(
            f"{OUTSIDE} after the flag: a mean or ratio came out beyond its declared bounds, by its noise. It is "
            "published as it came out, and is of little use."
        )
    if own := [each.title for each in plan.estimates if plan.public.by_design(each.estimate)]:
        sentences.append(f"The design fixes the sum of weights by which {', '.join(own)} is divided: it has no noise.")
    return sentences


def _calibration(plan: SurveyPlan) -> list[str]:
    if plan.class_counts is not None:
        gain = (
            " Where an estimate's domain is not one of whole classes, `se_sampling` leaves out what calibration gains."
        )
        return [
            "Estimates are calibrated to public totals: in each class the noisy total times the public total over the "
            f"noisy count. The counts stand in the rows `{plan.class_counts.title}`, by design weights; their sampling "
            "error is not published. `se_privacy` has the noise of totals and counts, to first order."
            f"{'' if plan.mechanism.variance == 'none' else gain}",
            "`flag` is also x where a noisy class count is within three deviations of its noise from 0.",
        ]
    if plan.public.held:
        return [
            f"Weights are total / count of each class, both public (`{INVARIANTS}`); `se_sampling` is given the counts."
        ]
    return []
