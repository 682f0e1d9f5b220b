"""What a reader can say of true counts and ratios, from noisy counts alone: post-processing, in floating point."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

_NORMAL = NormalDist()


class Estimate(NamedTuple):
    """An estimate with an interval; its ends are None where there is none."""

    value: float | None
    low: float | None
    high: float | None


def truncated(count: float, variance: float, *, level: float = 0.9) -> Estimate:
    """Return mean and quantiles of a normal around a noisy count, cut off at 0: no true count is below.

    >>> [round(number, 4) for number in truncated(100, 14782.24)]
    [143.5245, 16.1208, 313.2343]
    """
    deviation = math.sqrt(variance)
    z = count / deviation
    above = _NORMAL.cdf(z)
    if above < 1e-300:  # so far below that all is noise
        return Estimate(0.0, 0.0, 0.0)

    def at(chance: float) -> float:
        return count - deviation * _NORMAL.inv_cdf(above * (1 - chance))

    mean = count + deviation * _NORMAL.pdf(z) / above
    return Estimate(mean, at((1 - level) / 2), at((1 + level) / 2))


def ratio(above: float, below: float, *, variances: tuple[float, float], level: float = 0.9) -> Estimate:
    """Return the ratio of two noisy counts with Fieller's interval: all r for which above - r below may be noise.

    Where the count below may be 0 the interval has no ends, and none are given; below 0 there is no ratio at all.

    >>> [round(number, 3) for number in ratio(250, 100, variances=(100.0, 25.0))]
    [2.5, 2.252, 2.782]
    >>> ratio(250, 3, variances=(100.0, 25.0)).high is None
    True
    """
    z2 = _NORMAL.inv_cdf((1 + level) / 2) ** 2
    lead = below**2 - z2 * variances[1]
    value = above / below if below > 0 else None
    if value is None or lead <= 0:
        return Estimate(value, None, None)
    root = math.sqrt(max(0.0, (above * below) ** 2 - lead * (above**2 - z2 * variances[0])))
    return Estimate(value, (above * below - root) / lead, (above * below + root) / lead)
