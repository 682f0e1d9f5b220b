"""Published intervals cover the population's value as often as they say, with the draw of the sample and all noise.

Each design has 40,000 draws: a coverage then has a standard error of 0.15 points at 90% and 0.05 at 99%, so that a
tolerance of one point (half a point at 99%) is more than six of them, a false alarm below 1e-8 where coverage is right.
Numbers of a sample come from counts of alike units, so that samples can be large; with few clusters the normal law of
the sampling error covers too little by itself. Intervals are those of the mechanism, whose own rows are compared.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from stirred.survey.estimates import published
from stirred.survey.estimates.error_law import Noise, half_width
from stirred.survey.estimates.mechanism import SurveyEstimates
from stirred.survey.estimates.queries import EstimateQueries, Public, bounded_variance

DRAWS = 40_000
TOTAL = {"kind": "total", "variable": "y", "bounds": [0, 100]}
MEAN = {"kind": "mean", "variable": "y", "bounds": [0, 100]}
SHARE = {"kind": "total", "variable": "y", "bounds": [0, 1]}
Array = np.ndarray


class Samples(NamedTuple):
    """Many samples of one design: their totals in steps, and the variance of a sum of scores around a ratio."""

    public: Public
    top: Array
    weight: Array
    spread: Any  # the variance of the sum of w (y - r), for r of each sample
    truth: float


class Rows(NamedTuple):
    """Published numbers of all samples."""

    error: Array
    sampling: Array
    privacy: float
    moe90: Array
    width: Array


def population(rng: np.random.Generator, size: int, scale: float = 10.0) -> tuple[Array, Array]:
    """Return values and how many units have each: skewed, as incomes are."""
    return np.unique(rng.gamma(3, scale, size).clip(0, 100).round().astype(np.int64), return_counts=True)


def public(n: int, weights: tuple[int, int], strata: tuple[int, ...], **more: Any) -> Public:
    setting = SurveyEstimates(epsilon=1, attest=["design-weights"], weight_bounds=weights, estimates=[TOTAL]).stage
    ends = 100 * weights[0], 100 * weights[1]
    return Public(setting=setting, n=n, weights=ends, weight_grid=Fraction(1, 100), strata=strata, **more)


def stratified(rng: np.random.Generator, sizes: tuple[int, ...], taken: tuple[int, ...]) -> Samples:
    """Draw in each stratum without replacement; one stratum is a simple random sample."""
    parts = []
    for h, (there, n) in enumerate(zip(sizes, taken, strict=True)):
        values, counts = population(rng, there, 6.0 + 4 * h)
        drawn = rng.multivariate_hypergeometric(counts, n, size=DRAWS, method="marginals")
        parts.append((values, counts, drawn, there // n, n, there))

    def spread(r: Array) -> Array:
        found = np.zeros(DRAWS)
        for values, _, drawn, w, n, there in parts:
            first, second = (
                w * (drawn @ values - n * r),
                w * w * (drawn @ values**2 - 2 * r * (drawn @ values) + n * r * r),
            )
            found += (1 - n / there) * (n * second - first**2) / (n - 1)
        return found

    weights = [w for *_, w, _, _ in parts]
    top = sum(100 * w * (drawn @ values) for values, _, drawn, w, *_ in parts)
    truth = float(sum(values @ counts for values, counts, *_ in parts))
    own = public(sum(taken), (min(weights), max(weights)), taken)
    return Samples(own, top, np.full(DRAWS, 100 * sum(sizes)), spread, truth)


def two_stage(rng: np.random.Generator) -> Samples:
    """Draw 4,000 of 160,000 clusters, and 10 of 40 persons in each; y says whether a person has something."""
    m, clusters, n2, size = 4000, 160_000, 10, 40
    kinds, counts = np.array([2, 6, 10, 16, 24, 34]), np.array([20, 40, 40, 30, 20, 10]) * 1000
    drawn = rng.multivariate_hypergeometric(counts, m, size=DRAWS, method="marginals")
    taken = np.zeros((DRAWS, n2 + 1), dtype=np.int64)  # clusters by how many of the ten have it
    for kind, many in zip(kinds.tolist(), drawn.T, strict=True):
        chance = [math.comb(kind, j) * math.comb(size - kind, n2 - j) / math.comb(size, n2) for j in range(n2 + 1)]
        taken += rng.multinomial(many, np.array(chance) / sum(chance))
    w, own = clusters // m * size // n2, np.arange(n2 + 1)

    def spread(r: Array) -> Array:
        first, second = taken @ (own * w), taken @ (own * w) ** 2  # a total: r is 0
        return (m * second - first**2) / (m - 1)

    top = 100 * w * (taken @ own)
    about = public(m * n2, (w, w), (m,), clustered=True, most=n2)
    return Samples(about, top, np.full(DRAWS, 100 * w * m * n2), spread, float(kinds @ counts))


def unequal(rng: np.random.Generator, *, poisson: bool) -> Samples:
    """Draw 15,000 times with unequal probabilities, or each unit with its own: rarer ones have smaller values."""
    n, kinds = 15_000, []
    for one, there, scale in ((5, 25_000, 12.0), (10, 50_000, 9.0), (20, 100_000, 6.0)):
        factor = 8 if poisson else 1  # rarer, so that without replacement hardly differs
        kinds += [(one * factor, y, c) for y, c in zip(*population(rng, factor * there, scale), strict=True)]
    w, y, counts = (np.array(column, dtype=np.int64) for column in zip(*kinds, strict=True))
    drawn = rng.binomial(counts, 1 / w, size=(DRAWS, w.size)) if poisson else rng.multinomial(n, counts / w / n, DRAWS)
    size = drawn.sum(axis=1)

    def spread(r: Array) -> Array:
        first = drawn @ (w * y) - r * (drawn @ w)
        second = drawn @ (w * w * y * y) - 2 * r * (drawn @ (w * w * y)) + r * r * (drawn @ (w * w))
        return (size * second - first**2) / (size - 1)

    own = public(n, (int(w.min()), int(w.max())), (n,))
    truth = float(y @ counts) / (float(counts.sum()) if poisson else 1.0)
    return Samples(own, 100 * (drawn @ (w * y)), 100 * (drawn @ w), spread, truth)


def rows(
    samples: Samples, estimate: dict[str, Any], *, epsilon: str, confidence: str = "95%", share: str = "1/2"
) -> Rows:
    """Publish every sample: widths between those of a grid of standard deviations, the first by the mechanism."""
    mechanism = SurveyEstimates(
        epsilon=epsilon, attest=["design-weights"], weight_bounds=[1, 2], estimates=[estimate], confidence=confidence,
        variance_share=share,
    )  # fmt: skip
    (asked,) = mechanism.asked(samples.public, [1])
    z = numbers(samples, asked, np.random.default_rng(22))
    plan: Any = SimpleNamespace(
        mechanism=mechanism, public=samples.public, estimates=(asked,), cells={asked.title: pl.DataFrame()},
        class_counts=None, releases={"households": []},
    )  # fmt: skip
    role = "mean" if "mean" in z else "top"
    noise, variance = (
        Noise(float(query.loss / query.one), float(query.step))
        for query in (asked.queries[role], asked.queries["variance"])
    )
    value = z[role] * float(asked.queries[role].step)
    most = float(bounded_variance(asked, samples.public))
    found = (z["variance"] * float(asked.queries["variance"].step)).clip(math.sqrt(variance.variance), most)
    below = z["weight"] / 100 if "weight" in z else 1.0
    sd, d, widths = np.sqrt(found) / below, math.sqrt(variance.variance), []
    for level in (0.9, float(mechanism.sure)):
        q = NormalDist().inv_cdf((1 + level) / 2)
        wider = np.sqrt(found + (1 + q * q) / 4 * np.minimum(d * d / found, (found - d) / 2)) / below
        at = np.linspace(wider.min(), wider.max(), 60)
        widths.append(np.interp(wider, at, [half_width(level, float(one), [noise]) for one in at]))
    for i in range(30):
        noisy = {asked.title: {name: each[i : i + 1].astype(np.int64) for name, each in z.items()}}
        own = published.published(mechanism, plan, noisy).row(0, named=True)
        told = [own["estimate"], own["se_sampling"], own["moe90"], own["uci"] - own["estimate"]]
        assert told == pytest.approx([value[i], sd[i], widths[0][i], widths[1][i]], rel=1e-4)
    return Rows(value - samples.truth, sd, math.sqrt(noise.variance), *widths)


def numbers(samples: Samples, asked: EstimateQueries, rng: np.random.Generator) -> dict[str, Array]:
    """Return the noisy numbers by role, as the mechanism rounds them and draws their noise."""

    def noisy(role: str, true: Array) -> Array:
        query = asked.queries[role]
        stop = 1 - math.exp(-float(query.loss / query.one))
        return np.floor(true + 0.5) + rng.geometric(stop, DRAWS) - rng.geometric(stop, DRAWS)

    found, centre = {}, np.zeros(DRAWS)
    if "mean" in asked.queries:
        found["mean"] = noisy("mean", samples.top / samples.weight / float(asked.queries["mean"].step))
        centre = (found["mean"] * float(asked.queries["mean"].step)).clip(
            float(asked.ratio[0]) / asked.fine, float(asked.ratio[1]) / asked.fine
        )
    else:
        found["top"] = noisy("top", samples.top)
    if "weight" in asked.queries:
        found["weight"] = noisy("weight", samples.weight)
    found["variance"] = noisy("variance", samples.spread(centre) / float(asked.queries["variance"].step))
    return found


def covered(error: Array, width: Array | float) -> float:
    return float((np.abs(error) <= width).mean())


DESIGNS: dict[str, tuple[Any, dict[str, Any], str, str]] = {  # with a loss for which both errors count, or the noise
    "simple": (lambda rng: stratified(rng, (200_000,), (20_000,)), TOTAL, "0.15", "0.03"),
    "stratified": (lambda rng: stratified(rng, (30_000, 120_000, 40_000), (3000, 4000, 2000)), TOTAL, "0.2", "0.05"),
    "two-stage": (two_stage, SHARE, "0.02", "0.006"),
    "pps": (lambda rng: unequal(rng, poisson=False), TOTAL, "0.2", "0.05"),
    "poisson": (lambda rng: unequal(rng, poisson=True), MEAN, "0.4", "0.05"),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_cover_at_90_and_95_percent(design: str) -> None:
    """Both errors count: an interval of either alone covers far less."""
    make, estimate, epsilon, _ = DESIGNS[design]
    found = rows(make(np.random.default_rng(21)), estimate, epsilon=epsilon)
    assert covered(found.error, found.moe90) == pytest.approx(0.90, abs=0.01)
    assert covered(found.error, found.width) == pytest.approx(0.95, abs=0.01)
    for alone in (found.sampling, found.privacy):
        assert covered(found.error, 1.959964 * alone) < 0.93


@pytest.mark.parametrize(
    "design",
    ["simple", "two-stage", "poisson", *(pytest.param(d, marks=pytest.mark.slow) for d in ("stratified", "pps"))],
)
def test_intervals_cover_at_99_percent_where_noise_dominates(design: str) -> None:
    """There the normal sum of both errors covers too little."""
    make, estimate, _, epsilon = DESIGNS[design]
    found = rows(make(np.random.default_rng(23)), estimate, epsilon=epsilon, confidence="99%")
    assert found.privacy > 2 * found.sampling.mean()
    assert covered(found.error, found.width) == pytest.approx(0.99, abs=0.005)
    assert covered(found.error, 2.575829 * np.hypot(found.sampling, found.privacy)) < 0.985


def test_intervals_make_up_for_the_noise_of_a_paid_variance() -> None:
    """A small share pays for the variance, and its noise is a third of it; sampling dominates the estimate."""
    make, estimate, *_ = DESIGNS["simple"]
    found = rows(make(np.random.default_rng(25)), estimate, epsilon="0.6", share="1/29")
    assert found.privacy < 0.3 * found.sampling.mean()
    assert covered(found.error, found.moe90) == pytest.approx(0.90, abs=0.01)
    assert covered(found.error, found.width) == pytest.approx(0.95, abs=0.01)
    naive = 1.959964 * np.hypot(found.sampling, found.privacy)
    assert covered(found.error, naive) < 0.94  # power: without the correction
