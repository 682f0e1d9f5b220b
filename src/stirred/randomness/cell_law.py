"""The exact law of the noise in one cell: how sure a bound is, how wide an interval must be, variance and bias.

Probabilities come from integers that enclose the distribution function; none is that of a normal approximation.
Noise that is too wide to be listed is bounded by the normal tail one step nearer (Canonne, Kamath and Steinke 2020,
Proposition 25), which gives away less than one unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from stirred.randomness.noise_steps import NoiseSteps, noise_steps, noise_variance
from stirred.spec.exact import exp
from stirred.spec.normal import normal_cdf
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise

_BITS: Final = 96
_WIDE: Final = 10**7  # variances from which on noise is bounded and not listed
_SMOOTH: Final = 16  # from here on a sum has the law of one number but for a factor between 1 - 10^-60 and 1 + 10^-60
LEVEL: Final = Fraction(95, 100)  # of the intervals that tables of counts print


@dataclass(frozen=True, slots=True)
class CellLaw:
    """The noise of one cell: of a law of its own, one of n cells whose noise sums to 0 (n,), or of zero margins (r, c).

    >>> law = CellLaw(DiscreteGaussian(4))
    >>> law.half_width(Fraction(95, 100)), round(float(law.within(3)), 4)
    (4, 0.923)
    """

    noise: Noise
    shape: tuple[int, ...] = ()

    @property
    def _steps(self) -> NoiseSteps | None:
        """Return the distribution function in enclosures; None where there is a formula or a bound instead."""
        if self.shape:
            from stirred.randomness.lattice_law import cell_steps

            return cell_steps(self.noise, shape=self.shape)
        narrow = isinstance(self.noise, DiscreteGaussian) and self.noise.variance < _WIDE
        return noise_steps(self.noise, _BITS) if narrow else None

    def within(self, most: int) -> Fraction:
        """Return the probability that the noise is at most ``most`` either way, or a little less, never more."""
        steps = self._steps
        if steps is not None:
            least, whole = steps.total
            beyond = steps.high[steps.reach - most - 1] if most < steps.reach else whole - steps.high[-1]
            return 1 - Fraction(2 * beyond, least)
        if isinstance(self.noise, DiscreteLaplace):
            tail = Fraction(exp(-(self.noise.loss * (most + 1))).enclose().high)
            return 1 - 2 * tail / (1 + Fraction(exp(-self.noise.loss).enclose().low))
        # P(|Z| > w) = 2 P(Z >= w + 1) <= 2 P(N >= w) for a normal N of the same parameter.
        standard = Fraction(math.isqrt(math.floor(most**2 * 10**24 / self.noise.variance)), 10**12)
        return 2 * normal_cdf(standard)[0] - 1

    def half_width(self, confidence: Fraction) -> int:
        """Return the smallest number within which the noise certainly stays with this confidence."""
        high = 1
        while self.within(high) < confidence:
            high *= 2
        low = -1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.within(middle) >= confidence else (middle, high)
        return high

    @property
    def variance(self) -> Fraction:
        """Return the variance of the noise, for narrow noise less than its parameter; an enclosed one from above."""
        if self.shape:
            from stirred.randomness.lattice_law import cell_variance

            return cell_variance(self.noise, shape=self.shape)[1]
        if isinstance(self.noise, DiscreteLaplace):
            decay = exp(-self.noise.loss)
            around = (2 * decay / ((1 - decay) * (1 - decay))).enclose()
            return (Fraction(around.low) + Fraction(around.high)) / 2
        return noise_variance(self.noise) if self.noise.variance < _WIDE else self.noise.variance

    def bias_of_cutting(self, true: int) -> float:
        """Return by how much a count is too large on average if results below 0 are set to 0.

        >>> round(CellLaw(DiscreteLaplace("ln(3)")).bias_of_cutting(0), 4)  # (1/3) / (1 - 1/9)
        0.375
        """
        steps = self._steps
        if steps is not None:
            weights = zip(steps.low[1:], steps.low, strict=False)
            after = [(place, w - before) for place, (w, before) in enumerate(weights, start=1 - steps.reach)]
            return float(Fraction(sum((z - true) * w for z, w in after if z > true), steps.total[0]))
        if isinstance(self.noise, DiscreteLaplace):
            decay = math.exp(-float(self.noise.loss))
            return decay ** (true + 1) / (1 - decay**2)
        return normal_bias(true, math.sqrt(float(self.noise.variance)))


def normal_bias(true: float, deviation: float) -> float:
    """Return by how much normal estimates of a true value are too large on average if those below 0 are set to 0.

    >>> round(normal_bias(0, 1), 6)  # 1/sqrt(2 pi)
    0.398942
    """
    if deviation == 0:
        return max(0.0, -true)
    t = true / deviation
    return deviation * (math.exp(-t * t / 2) / math.sqrt(2 * math.pi) - t * math.erfc(t / math.sqrt(2)) / 2)


@lru_cache(maxsize=1024)
def variance_of(variance: Fraction) -> Fraction:
    """Return the variance of Gaussian noise with this parameter: less than that where the noise is narrow.

    >>> round(float(variance_of(Fraction(5, 18))), 4), variance_of(Fraction(625)) == 625
    (0.2527, True)
    """
    return CellLaw(DiscreteGaussian(variance)).variance if variance < _SMOOTH else variance


@lru_cache(maxsize=1024)
def half_width(variance: Fraction, cells: int = 1, level: Fraction = LEVEL) -> int:
    """Return the smallest k such that the noise of a sum of ``cells`` counts is from -k to k with chance ``level``.

    >>> half_width(Fraction(625)), half_width(Fraction("2.343"), 8)
    (49, 8)
    """
    if cells == 1 or variance >= _SMOOTH:
        return CellLaw(DiscreteGaussian(cells * variance)).half_width(level)
    reach = int(12 * float(variance) ** 0.5) + 2
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(variance)))
    chances = np.ones(1)
    for bit in bin(cells)[2:]:  # by squaring, from the highest digit on
        chances = np.convolve(chances, chances)
        chances = np.convolve(chances, one / one.sum()) if bit == "1" else chances
    middle = chances.size // 2
    inside = chances[middle] + 2 * np.cumsum(np.concatenate(([0.0], chances[middle + 1 :])))
    return int(np.searchsorted(inside, float(level)))
