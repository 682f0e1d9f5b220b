"""The distribution function of integer noise, enclosed by integers to as many bits as anybody asks for.

Weights are 1 at 0 and fall by ratios on both sides. A ratio is irrational as a rule (exp(-1/2) for discrete Gaussian
noise of variance parameter 1), so it enters by two integers around it; every product is rounded down on one side and
up on the other, and what lies beyond the listed weights is bounded by a geometric sum. No floating point takes part.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

from stirred.spec.exact import exp
from stirred.spec.shift_law import DiscreteLaplace, Noise

Enclosed = tuple[int, int]

_GUARD: Final = 24  # bits beyond those asked for, so that enclosures stay narrow after many products


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSteps:
    """Cumulated weights of the outcomes -reach, ..., reach, from below and from above, in one unit.

    ``total`` encloses the sum of all weights, the unlisted ones included.
    """

    reach: int
    low: list[int]
    high: list[int]
    total: Enclosed

    def place(self, point: int, bits: int) -> int | None:
        """Return the outcome if every number from point to point + 1, in units of 2**-bits, falls into its step."""
        least, most = self.total
        index = bisect_right(self.high, point * least, key=lambda step: step << bits)
        # What lies below the first listed outcome may be any of them: that is told apart with more of them.
        if index in (0, len(self.low)) or (point + 1) * most > self.low[index] << bits:
            return None
        return index - self.reach


@lru_cache(maxsize=64)
def noise_steps(noise: Noise, bits: int) -> NoiseSteps:
    """Return the steps of a law of noise, listed until the rest weighs less than 2**-bits.

    >>> from stirred.spec.shift_law import DiscreteGaussian
    >>> steps = noise_steps(DiscreteGaussian("1/4"), 64)
    >>> steps.reach > 4, round(float(Fraction(steps.low[steps.reach], steps.total[1])), 4)  # P(Z <= 0)
    (True, 0.8933)
    """
    unit = bits + _GUARD
    weights = [(1 << unit, 1 << unit), *_falling(noise, bits, unit)]
    rest = _beyond(noise, weights, unit)
    ordered = [*reversed(weights[1:]), *weights]
    low = [*accumulate(least for least, _ in ordered)]
    high = [*accumulate((most for _, most in ordered), initial=rest)][1:]
    return NoiseSteps(reach=len(weights) - 1, low=low, high=high, total=(low[-1], high[-1] + rest))


def _falling(noise: Noise, bits: int, unit: int) -> Iterator[Enclosed]:
    """Yield enclosures of the weights at 1, 2, ... until one is below 2**-(bits + 2)."""
    low = high = 1 << unit
    for least, most in _ratios(noise, unit):
        low, high = low * least >> unit, -(-high * most >> unit)
        yield low, high
        if high < 1 << (unit - bits - 2):
            return


def _ratios(noise: Noise, unit: int) -> Iterator[Enclosed]:
    """Yield enclosures of w(1)/w(0), w(2)/w(1), ... in units of 2**-unit; they never rise."""
    if isinstance(noise, DiscreteLaplace):
        decay = exp_enclosed(noise, unit)
        while True:
            yield decay
    # w(z)/w(z - 1) = exp(-(2z - 1)/(2 variance)), each exp(-1/variance) of the one before.
    first = exp_enclosed(noise, unit, halves=1)
    step = exp_enclosed(noise, unit, halves=2)
    low, high = first
    while True:
        yield low, high
        low, high = low * step[0] >> unit, -(-high * step[1] >> unit)


def exp_enclosed(noise: Noise, unit: int, *, halves: int = 2) -> Enclosed:
    """Enclose the decay of Laplace noise, or exp(-halves/(2 variance)) of Gaussian noise, in units of 2**-unit."""
    if isinstance(noise, DiscreteLaplace):
        decay = exp(-noise.loss)
        if decay.is_rational:
            scaled = decay.rational * (1 << unit)
            return math.floor(scaled), math.ceil(scaled)
        around = decay.enclose(math.ceil(unit * math.log10(2)) + 3)
        return math.floor(Fraction(around.low) * (1 << unit)), math.ceil(Fraction(around.high) * (1 << unit))
    return exp_of(-Fraction(halves) / (2 * noise.variance), unit)


def exp_of(exponent: Fraction, unit: int) -> Enclosed:
    """Enclose exp(exponent) for an exponent from -inf to 0, in units of 2**-unit.

    The series of exp at a power of two's part of the exponent alternates with falling terms, so that its sums lie on
    both sides; then it is squared.

    >>> low, high = exp_of(Fraction(-1), 40)
    >>> high - low <= 2, round(high / 2**40, 9)
    (True, 0.367879441)
    """
    if exponent == 0:
        return 1 << unit, 1 << unit
    halvings = max(0, math.ceil(-exponent).bit_length())
    fine = unit + 2 * halvings + 16
    small = -exponent / (1 << halvings)  # at most 1
    low = high = 1 << fine
    least = most = 1 << fine
    for k in range(1, fine):
        least = least * small.numerator // (small.denominator * k)
        most = -(-most * small.numerator // (small.denominator * k))
        if k % 2:
            low, high = low - most, high - least
        else:
            low, high = low + least, high + most
        if most <= 1:
            break
    low, high = low - most - 1, high + most + 1  # what the series leaves out is less than its last term
    for _ in range(halvings):
        low, high = low * low >> fine, -(-high * high >> fine)
    return max(0, low >> (fine - unit)), -(-high >> (fine - unit))


def _beyond(noise: Noise, weights: list[Enclosed], unit: int) -> int:
    """Bound all weights beyond the listed ones on one side: each is at most the last ratio of the one before."""
    last = weights[-1][1]
    *_, (_, ratio) = zip(range(len(weights)), _ratios(noise, unit), strict=False)
    most = ratio[1]
    one = 1 << unit
    if most >= one:
        raise ValueError(f"{noise} is too wide for tables")
    return -(-last * most // (one - most))


def draw_exactly(noise: Noise, words: Iterator[int], *, point: int = 0, bits: int = 0) -> int:
    """Return an outcome with exactly its probability, by reading words until they decide, without end.

    ``point`` are the first ``bits`` of the uniform number, where they were read before.

    >>> from stirred.spec.shift_law import DiscreteGaussian
    >>> draw_exactly(DiscreteGaussian(1), iter([2**31, 0, 0, 0]))
    0
    """
    accuracy = max(96, 2 * bits)
    while True:
        for _ in range(max(2, bits // 32)):
            point, bits = point << 32 | next(words), bits + 32
        found = noise_steps(noise, max(accuracy, bits + 32)).place(point, bits)
        if found is not None:
            return found
        accuracy *= 2


@lru_cache(maxsize=1 << 16)
def weight(noise: Noise, energy: int, unit: int) -> Enclosed:
    """Enclose w(z)/w(0) of numbers z with these squares, or absolute values, in units of 2**-unit.

    >>> from stirred.spec.shift_law import DiscreteLaplace
    >>> weight(DiscreteLaplace("ln(2)"), 3, 10)
    (128, 128)
    """
    if energy == 0:
        return 1 << unit, 1 << unit
    if isinstance(noise, DiscreteLaplace):
        return exp_enclosed(DiscreteLaplace(noise.loss * energy), unit)
    return exp_of(-energy / (2 * noise.variance), unit)


def coin(noise: Noise, energy: int, words: Iterator[int], *, point: int = 0, bits: int = 0) -> bool:
    """Return True with probability exactly w(z)/w(0), reading words until they decide, without end.

    >>> from stirred.spec.shift_law import DiscreteLaplace
    >>> [coin(DiscreteLaplace("ln(2)"), 1, iter([word])) for word in (2**31 - 1, 2**31)]
    [True, False]
    """
    while True:
        point, bits = point << 32 | next(words), bits + 32
        low, high = weight(noise, energy, bits)
        if point < low:
            return True
        if point >= high:
            return False


def noise_variance(noise: Noise, *, bits: int = 96) -> Fraction:
    """Return the variance of the noise itself, to more than twenty digits.

    >>> from stirred.spec.shift_law import DiscreteGaussian
    >>> [round(float(noise_variance(DiscreteGaussian(v))), 6) for v in ("1/4", "1/2")]
    [0.215013, 0.498979]
    """
    if isinstance(noise, DiscreteLaplace) and (decay := exp(-noise.loss)).is_rational:
        return 2 * decay.rational / (1 - decay.rational) ** 2
    steps = noise_steps(noise, bits)
    weights = [steps.low[0], *(b - a for a, b in zip(steps.low, steps.low[1:], strict=False))]
    squares = sum((place - steps.reach) ** 2 * weight for place, weight in enumerate(weights))
    return Fraction(squares, steps.total[0])
