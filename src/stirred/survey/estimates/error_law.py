"""The law of an estimate's error: normal sampling error plus discrete Laplace noise, and intervals from it.

The tail of a normal plus a Laplace number has a closed form; with two Laplace numbers it follows by partial fractions,
and with more of them from the Fourier series of their law.
Noise on few steps is added up step by step; otherwise a step is too small to matter, and half of one is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.cell_law import CellLaw
from stirred.spec.shift_law import DiscreteLaplace

Numbers = npt.NDArray[Any]
_TERMS: Final = 2**20
_FEW: Final = 50  # steps of scale below which the noise is added up step by step


@dataclass(frozen=True, slots=True)
class Noise:
    """Discrete Laplace noise in units of the estimate: probability proportional to exp(-|z| loss) at z steps."""

    loss: float
    step: float

    @property
    def scale(self) -> float:
        """Return the scale of the Laplace law that it is on a grid."""
        return self.step / self.loss

    @property
    def variance(self) -> float:
        decay = math.exp(-self.loss)
        return self.step**2 * 2 * decay / (1 - decay) ** 2


def _log_normal_cdf(x: float) -> float:
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / x**2)


def _tail(t: float, sd: float, scale: float) -> float:
    """Return P(S > t) of a normal plus a Laplace number, t >= 0."""
    if sd == 0:
        return math.exp(-t / scale) / 2
    above = math.exp(_log_normal_cdf(-t / sd))
    risen = sd * sd / (2 * scale * scale)
    up = math.exp(min(risen - t / scale + _log_normal_cdf(t / sd - sd / scale), 0.0))
    down = math.exp(min(risen + t / scale + _log_normal_cdf(-t / sd - sd / scale), 0.0))
    return above + (up - down) / 2


def beyond(t: float, sd: float, noises: Sequence[Noise]) -> float:
    """Return the probability that the error is farther from 0 than t.

    >>> round(beyond(1.959964, 1.0, []), 6), round(beyond(1.0, 0.0, [Noise(0.001, 0.001)]), 6)
    (0.05, 0.367879)
    """
    if not noises:
        return math.erfc(t / (sd * math.sqrt(2))) if sd else 0.0
    if len(noises) == 1:
        (one,) = noises
        if sd and one.scale < _FEW * one.step:
            return _added_up(t, sd, one)
        return 2 * _tail(t, sd, one.scale)
    if len(noises) > 2:
        return _by_series(t, sd, tuple(sorted(noise.scale for noise in noises)))
    a, b = sorted(noise.scale for noise in noises)
    if b - a < 1e-4 * b:  # partial fractions need different scales; this much wider is on the safe side
        b = a * (1 + 1e-4) if a == b else a + 1e-4 * b
    return 2 * (b * b * _tail(t, sd, b) - a * a * _tail(t, sd, a)) / (b * b - a * a)


def _added_up(t: float, sd: float, noise: Noise) -> float:
    decay = math.exp(-noise.loss)
    reach = math.ceil(40 / noise.loss)
    found = 0.0
    for z in range(-reach, reach + 1):
        weight = (1 - decay) / (1 + decay) * decay ** abs(z)
        up, down = (t - z * noise.step) / sd, (t + z * noise.step) / sd
        found += weight * (math.erfc(up / math.sqrt(2)) + math.erfc(down / math.sqrt(2))) / 2
    return found


@lru_cache(maxsize=8)
def _series(sd: float, scales: tuple[float, ...]) -> tuple[Numbers, Numbers]:
    """Return frequencies and weights of the law on a circle so long that what lies beyond is below 1e-12."""
    spread = math.sqrt(sd * sd + 2 * sum(b * b for b in scales))
    reach = 30 * scales[-1] + 12 * spread
    found = np.zeros(0)
    while not found.size or (abs(found[-1]) > 1e-12 * found.size**0.5 and found.size < _TERMS):
        u = np.arange(1, max(512, 4 * found.size) + 1) * (math.pi / reach)
        logs = -((sd * u) ** 2) / 2 - sum(np.log1p((b * u) ** 2) for b in scales)
        found = np.exp(logs) / u
    return u, found * 2 / reach


def _by_series(t: float, sd: float, scales: tuple[float, ...]) -> float:
    """Return the two-sided tail of a normal plus Laplace numbers: 1 less the integral of the density from -t to t."""
    u, weights = _series(sd, scales)
    reach = math.pi / u[0]
    return max(1 - t / reach - float(weights @ np.sin(u * t)), 0.0) if t < reach else 0.0


@lru_cache(maxsize=1024)
def _steps(loss: float, level: float) -> int:
    return CellLaw(DiscreteLaplace(Fraction(loss))).half_width(Fraction(level).limit_denominator(10**6))


def half_width(level: float, sd: float, noises: Sequence[Noise]) -> float:
    """Return the half-width of an interval that holds the error with this probability.

    >>> round(half_width(0.95, 1.0, []), 4), round(half_width(0.99, 0.0, [Noise(0.0001, 0.0001)]), 3)
    (1.96, 4.605)
    """
    if not sd and len(noises) == 1:
        return _steps(noises[0].loss, level) * noises[0].step
    if not sd and not noises:
        return 0.0
    high = sd + sum(noise.scale for noise in noises)
    while beyond(high, sd, noises) > 1 - level:
        high *= 2
    low = 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, sd, noises) > 1 - level else (low, middle)
    large = [noise.step / 2 for noise in noises if noise.scale >= _FEW * noise.step or len(noises) > 1]
    return high + (sum(large) if len(noises) < 3 else max(large))  # steps of many numbers even out
