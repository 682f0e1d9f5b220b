"""Mean and variance of a swapped cell in closed form, before anything is swapped.

Swapping theory R18, for any law that gives every permutation moving k records the same probability;
here permutation swapping. Mean: shrinkage of the cell towards independence inside its stratum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from stirred.spec.swap_budget import derangements

_SMALL = 60  # up to here derangement quotients are taken from the numbers themselves
_REACH = 14  # standard deviations of the number selected that matter to double precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Expected value and variance of a released count."""

    mean: float
    variance: float

    @property
    def sd(self) -> float:
        """Return the standard deviation."""
        return math.sqrt(max(self.variance, 0.0))

    def __add__(self, other: Moments) -> Moments:
        return Moments(mean=self.mean + other.mean, variance=self.variance + other.variance)


def swapped_cell(count: int, *, hold: int, swap: int, stratum: int, rate: Fraction) -> Moments:
    """Return the moments of one cell of one stratum after permutation swapping.

    ``count`` is the true cell, ``hold`` and ``swap`` its two margins in a stratum of ``stratum`` records.

    >>> moments = swapped_cell(2, hold=2, swap=2, stratum=4, rate=Fraction(1, 2))  # 11/9 and 20/81
    >>> round(moments.mean, 10), round(moments.variance, 10)
    (1.2222222222, 0.2469135802)
    """
    n = stratum
    if n < 2 or float(rate) == 0:
        return Moments(mean=float(count), variance=0.0)
    law = _Patterns.of(n, rate)
    x, r, c = float(count), float(hold), float(swap)
    independent = r * c / n
    kept = 1 - law.moved * n / (n - 1)
    mean = independent + kept * (x - independent)
    one = x * ((r - 1) * (c - 1) - (x - 1))
    pairs = (
        (law.both_fixed + law.exchanged) * x * (x - 1)
        + 2 * (law.one_fixed + law.one_hits) * one
        + law.neither
        * (x * (x - 1) * (c - 2) * (c - 3) + 2 * x * (r - x) * (c - 1) * (c - 2) + (r - x) * (r - x - 1) * c * (c - 1))
    )
    return Moments(mean=mean, variance=pairs + mean - mean * mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patterns:
    """Probabilities, for two given records, of how a random permutation treats them (per target)."""

    moved: float
    both_fixed: float
    one_fixed: float
    exchanged: float
    one_hits: float
    neither: float

    @classmethod
    def of(cls, n: int, rate: Fraction) -> _Patterns:
        moved = both = one = exchanged = hits = neither = 0.0
        for k, weight in _number_moved(n, rate):
            moved += weight * k / n
            both += weight * (n - k) * (n - k - 1) / (n * (n - 1))
            if n > 2:
                one += weight * k * (n - k) / (n * (n - 1) * (n - 2))
            if k < 2:
                continue
            share = weight * k * (k - 1) / (n * (n - 1))
            back = _exchange(k)
            exchanged += share * back
            if n > 2:
                hits += share * (1 / (k - 1) - back) / (n - 2)
            if n > 3:
                neither += share * (1 - 2 / (k - 1) + back) / ((n - 2) * (n - 3))
        return cls(moved=moved, both_fixed=both, one_fixed=one, exchanged=exchanged, one_hits=hits, neither=neither)


def _exchange(k: int) -> float:
    """Return d(k-2)/d(k): the chance that a uniform derangement of k exchanges two given records."""
    if k <= _SMALL:
        return derangements(k - 2) / derangements(k)
    return 1 / (k * (k - 1))


def _number_moved(n: int, rate: Fraction) -> Iterator[tuple[int, float]]:
    """Yield (k, probability) for the number of records moved: binomial, drawn again at exactly one."""
    p = float(rate)
    if p == 1:
        yield n, 1.0
        return
    middle, spread = n * p, math.sqrt(n * p * (1 - p))
    low, high = max(0, int(middle - _REACH * spread) - 1), min(n, int(middle + _REACH * spread) + 40)
    base = math.lgamma(n + 1)
    logs = {
        k: base - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
        for k in range(low, high + 1)
        if k != 1
    }
    top = max(logs.values())
    total = math.fsum(math.exp(value - top) for value in logs.values())
    for k, value in logs.items():
        yield k, math.exp(value - top) / total
