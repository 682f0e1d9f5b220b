"""The figures of chapter 5 as data: the four of the source, the region of power, and what dependence costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from stirred.inference.density import rr_bounds, sum_bounds
from stirred.inference.kernel import bits, randomised_response
from stirred.inference.pufferfish import correlated, pufferfish_loss, record_pairs
from stirred.inference.testing import posterior_band, power_bounds
from stirred.inference.weights import Ends

_BOUNDS: Final = ("lower bound", "upper bound")
_CLAMP: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: its rows are (x, curve, y) and, where it has panels, the panel."""

    name: str
    title: str
    x: str
    y: str
    rows: Sequence[tuple[Any, ...]]
    panel: str = ""
    logarithmic: bool = False

    @property
    def header(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return (self.x, "curve", self.y, *((self.panel,) if self.panel else ()))


def figures() -> list[Figure]:
    """Return all figures, in the order of the chapter.

    >>> [figure.name for figure in figures()][:4]
    ['figure-5-1', 'figure-5-2', 'figure-5-3', 'figure-5-4']
    """
    return [
        Figure(name="figure-5-1", title="Laplace noise with epsilon 2: two files one record apart", x="t", y="density",
               rows=[*_laplace()]),
        Figure(name="figure-5-2", title="Bounds on the density of a noisy sum of ten yes-or-no records", x="t",
               y="density", panel="epsilon", rows=[*_noisy_sum()]),
        Figure(name="figure-5-3", title="Bounds on randomised response with epsilon 1", x="records", y="probability",
               rows=[row for n in range(1, 11) for row in _both(n, rr_bounds(n, 1))], logarithmic=True),
        Figure(name="figure-5-4", title="Posterior of a Poisson mean from one noisy count, epsilon 1", x="theta",
               y="density", rows=[*_posteriors()]),
        Figure(name="power-region", title="Power of a test with epsilon 1, by the records that differ", x="alpha",
               y="power", panel="distance", rows=[*power_region("1", (1, 2, 6))]),
        Figure(name="loss-by-correlation", title="Loss about one of two records, by their correlation", x="correlation",
               y="loss", rows=[*_by_correlation()]),
    ]  # fmt: skip


def _both(x: Any, limits: Ends) -> Iterator[tuple[Any, str, float]]:
    yield from ((x, curve, y) for curve, y in zip(_BOUNDS, limits.doubles, strict=True))


def _laplace() -> Iterator[tuple[float, str, float]]:
    for k in range(-60, 81):
        for name, centre in (("file x, sum 0", 0), ("file x', sum 1", 1)):
            yield k / 20, name, math.exp(-2 * abs(k / 20 - centre))
    marked = 1 - math.log(20) / 2
    yield marked, "0.05", 0.05
    yield marked, "0.05 exp(2)", 0.05 * math.exp(2)


def _noisy_sum() -> Iterator[tuple[float, str, float, str]]:
    for epsilon in ("0.1", "0.25"):
        for k in range(-20, 61):
            limits = sum_bounds(Fraction(k, 4), records=10, epsilon=epsilon)
            yield from ((*row, epsilon) for row in _both(k / 4, limits))


def _posteriors() -> Iterator[tuple[float, str, float]]:
    band = posterior_band(gamma_prior, 1)
    for k in range(1, 161):
        theta = k / 16
        yield theta, "prior", gamma_prior(theta)
        yield from ((theta, curve, y) for curve, y in zip(_BOUNDS, band(theta), strict=True))
        for i in range(10):  # below 0 and above 6 the posterior no longer changes
            t = round(_CLAMP * i / 9, 2)
            yield theta, f"exact, count {t:g}", count_posterior(theta, t)


def gamma_prior(theta: float) -> float:
    """Return the prior density of Example 5.6.5: Gamma(3, 1)."""
    return theta**2 * math.exp(-theta) / 2


def count_posterior(theta: float, t: float, *, epsilon: float = 1) -> float:
    """Return the exact posterior density from one Poisson count, clamped to 0 to 6, with Laplace noise.

    The noise has scale 6/epsilon. The prior predictive law of the count is negative binomial, so nothing is integrated.
    """
    noise = [math.exp(-epsilon * abs(t - x) / _CLAMP) for x in range(_CLAMP + 1)]
    poisson = [math.exp(-theta) * theta**x / math.factorial(x) for x in range(_CLAMP)]
    predicted = [math.comb(x + 2, 2) / 2 ** (x + 3) for x in range(_CLAMP)]
    likelihood, evidence = (
        sum(p * n for p, n in zip(law, noise, strict=False)) + (1 - sum(law)) * noise[_CLAMP]
        for law in (poisson, predicted)
    )
    return gamma_prior(theta) * likelihood / evidence


def power_region(epsilon: str, distances: Sequence[int]) -> Iterator[tuple[float, str, float, str]]:
    """Yield both limits of power against alpha: an attacker (distance 1) beside analysts further away."""
    for distance in distances:
        for k in range(51):
            limits = power_bounds(Fraction(k, 50), epsilon, distance)
            yield from ((*row, str(distance)) for row in _both(k / 50, limits))


def _by_correlation() -> Iterator[tuple[float, str, float]]:
    kernel, pairs = randomised_response(2, 1), record_pairs(bits(2))
    for k in range(21):
        found = pufferfish_loss(kernel, {"attacker": correlated(2, Fraction(1, 2), Fraction(k, 20))}, pairs)
        assert found.value is not None
        yield k / 20, "randomised response, epsilon 1", float(found.value)
