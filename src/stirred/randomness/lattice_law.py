"""The law of noise inside the universe: probabilities of tables and the distribution function of a cell, enclosed.

Sums of independent noise are convolved in integers, with one bound for all that is rounded away; small tables of zero
margins are listed. Wide Gaussian noise needs neither: its cells are discrete Gaussian up to a factor that is bounded
here and hardly differs from 1 (docs/theory/noise-inside.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from stirred.randomness.noise_steps import NoiseSteps, exp_of, noise_steps, weight
from stirred.spec.problems import StirredError, refused
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Interval, Noise

_BITS: Final = 80
_MOST_SUMS: Final = 1 << 14  # listed values of a sum
_MOST_TABLES: Final = 1 << 22  # listed tables with zero margins
_WIDEST: Final = 10**10  # of variances whose law is listed, in about two million steps
_LOOSEST: Final = Fraction(1, 10)
_PI_SQUARED: Final = Fraction(98696, 10_000)  # a little less
_TWO_PI: Final = Fraction(62831, 10_000)  # a little less
_TWO_PI_E: Final = Fraction(1708, 100)  # a little more


@dataclass(frozen=True, slots=True, kw_only=True)
class LatticeLaw:
    """The law of noise on n cells of sum zero, ``shape`` (n,), or on a table of zero margins, ``shape`` (r, c).

    >>> law = LatticeLaw.of(DiscreteLaplace("ln(2)"), (2,))  # z and -z with weight 1/4**|z|
    >>> low, high = law.probability((0, 0))
    >>> low <= Fraction(3, 5) <= high, float(high - low) < 1e-15
    (True, True)
    """

    noise: Noise
    shape: tuple[int, ...]
    total: Interval  # of the weights of all tables, that of zero noise being 1

    @classmethod
    def of(cls, noise: Noise, shape: tuple[int, ...]) -> LatticeLaw:
        """Return the law; refused where there is too much to be listed."""
        rows, columns = sorted([1, *shape][-2:])
        if rows > 2:
            steps = _listed_steps(noise, rows, columns)
            if steps is None:
                raise _too_wide(noise, shape)
            unit = 1 << 2 * _BITS
            return cls(noise=noise, shape=shape, total=(Fraction(steps.total[0], unit), Fraction(steps.total[1], unit)))
        total = Fraction(1) if len(shape) == 2 and rows == 1 else None
        one = _twice(noise) if rows == 2 else noise
        return cls(noise=noise, shape=shape, total=_zero_sum_total(one, columns) if total is None else (total, total))

    def probability(self, outcome: Sequence[int]) -> Interval:
        """Enclose the probability of a table, its cells row by row; zero where a fixed sum is not zero."""
        table = np.array(outcome, dtype=object).reshape(self.shape)
        if any(np.any(table.sum(axis=axis)) for axis in range(table.ndim)):
            return Fraction(0), Fraction(0)
        energy = sum(z * z if isinstance(self.noise, DiscreteGaussian) else abs(z) for z in table.reshape(-1).tolist())
        bits = 2 * _BITS
        while weight(self.noise, energy, bits)[0] >> _BITS == 0:  # the far tail keeps its digits
            bits *= 2
        low, high = (Fraction(each, 1 << bits) for each in weight(self.noise, energy, bits))
        return low / self.total[1], high / self.total[0]


@lru_cache(maxsize=256)
def cell_steps(noise: Noise, *, shape: tuple[int, ...]) -> NoiseSteps:
    """Return the distribution function of one cell's noise, for n cells of sum zero (n,) or zero margins (r, c).

    >>> steps = cell_steps(DiscreteGaussian(9), shape=(4,))
    >>> round(float(Fraction(steps.low[steps.reach], steps.total[1])), 4)  # P(Z <= 0)
    0.5768
    """
    if min(shape) == 1:
        return NoiseSteps(reach=0, low=[1], high=[1], total=(1, 1))
    rows, columns = sorted([1, *shape][-2:])
    if rows > 2:
        listed = _listed_steps(noise, rows, columns)
        free = (rows - 1) * (columns - 1)
        share = Fraction(free, rows * columns)
        return listed if listed is not None else _near_steps(noise, shape, share, _spread_by_norm(noise, free - 1))
    one = _twice(noise) if rows == 2 else noise  # both rows of two are the same noise but for the sign
    if _width(one, columns) > _MOST_SUMS:
        return _near_steps(one, shape, 1 - Fraction(1, columns), _spread_by_sum(one, columns - 1))
    return _convolved_steps(one, columns)


def cell_variance(noise: Noise, *, shape: tuple[int, ...]) -> Interval:
    """Enclose the variance of one cell's noise.

    >>> low, high = cell_variance(DiscreteGaussian("1/4"), shape=(10,))
    >>> f"{float(low):.6f} {float(high):.6f}"
    '0.166992 0.166992'
    """
    steps = cell_steps(noise, shape=shape)
    least, most = steps.total
    rest = most - steps.high[-1]
    squares = [(place - steps.reach) ** 2 for place in range(len(steps.low))]
    low = sum(s * w for s, w in zip(squares, _weights(steps.low), strict=True))
    high = sum(s * w for s, w in zip(squares, _weights(steps.high, before=rest), strict=True))
    # Beyond the reach R weights fall from x to x + R at least as much as from 0 to R: squares there add up to
    # less than 5 R^2 times the rest on either side.
    bound = Fraction(high + 10 * steps.reach**2 * rest, least)
    if isinstance(noise, DiscreteGaussian):  # claim 4 of the theory page: it never exceeds that of the normal law
        bound = min(bound, noise.variance * math.prod(1 - Fraction(1, n) for n in shape))
    return Fraction(low, most), bound


def _twice(noise: Noise) -> Noise:
    """Return the law with squared weights: that of z where z and -z are drawn together."""
    if isinstance(noise, DiscreteGaussian):
        return DiscreteGaussian(noise.variance / 2)
    return DiscreteLaplace(noise.loss * 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """Probabilities of -reach, ..., reach from below in units of 2**-_BITS, lacking nowhere more than ``slack``."""

    low: list[int]
    slack: int

    def at(self, value: int) -> int:
        place = value + len(self.low) // 2
        return self.low[place] if 0 <= place < len(self.low) else 0

    def plus(self, other: _Sums) -> _Sums:
        """Return the law of the sum of two independent numbers: one product of two long integers."""
        size = (2 * _BITS) // 8 + 4
        count = len(self.low) + len(other.low) - 1
        packed = (_packed(self.low, size) * _packed(other.low, size)).to_bytes(size * count, "little")
        low = [int.from_bytes(packed[size * k : size * (k + 1)], "little") >> _BITS for k in range(count)]
        empty = next(place for place, each in enumerate(low) if each)
        # What either lacks is spread by the other, whose probabilities sum to 1.
        return _Sums(low=low[empty : count - empty], slack=self.slack + other.slack + 1)

    def times(self, count: int) -> _Sums:
        """Return the law of the sum of so many, by doubling."""
        if count == 1:
            return self
        half = self.times(count // 2)
        return half.plus(half) if count % 2 == 0 else half.plus(half).plus(self)


def _packed(numbers: list[int], size: int) -> int:
    return int.from_bytes(b"".join(each.to_bytes(size, "little") for each in numbers), "little")


def _weights(steps: Sequence[int], *, before: int = 0) -> list[int]:
    return [b - a for a, b in pairwise([before, *steps])]


def _normalised(noise: Noise) -> tuple[_Sums, int]:
    """Return the law of one number, and a bound on all that lies beyond its reach on one side."""
    steps = noise_steps(noise, _BITS)
    least, most = steps.total
    low = [(each << _BITS) // most for each in _weights(steps.low)]
    high = [-(-(each << _BITS) // least) for each in _weights(steps.high, before=most - steps.high[-1])]
    rest = -(-((most - steps.high[-1]) << _BITS) // least)
    return _Sums(low=low, slack=max(rest, *(b - a for a, b in zip(low, high, strict=True)))), rest


def _width(noise: Noise, cells: int) -> float:
    """Return about how many values a sum has that are not too rare to be listed."""
    nats = _BITS * math.log(2)
    if isinstance(noise, DiscreteGaussian):
        return 2 * math.sqrt(2 * nats * cells * float(noise.variance))
    return 2 * (nats + 2 * math.sqrt(nats * cells)) / float(noise.loss)


def _convolved_steps(noise: Noise, cells: int) -> NoiseSteps:
    """P(x) is proportional to p(x) times the probability that the other cells sum to -x."""
    one, rest = _normalised(noise)
    others = one.times(cells - 1)
    reach = len(one.low) // 2
    span = [*range(-reach, reach + 1)]
    low = [*accumulate(one.at(x) * others.at(x) for x in span)]
    most = ((one.at(x) + one.slack) * (others.at(x) + others.slack) for x in span)
    beyond = rest << _BITS  # the probability of any sum is at most 1
    high = [*accumulate(most, initial=beyond)][1:]
    return NoiseSteps(reach=reach, low=low, high=high, total=(low[-1], high[-1] + beyond))


def _zero_sum_total(noise: Noise, cells: int) -> Interval:
    """Enclose the weights of all vectors of sum zero: P(sum = 0) times those of all vectors."""
    if _width(noise, cells) > _MOST_SUMS:
        raise _too_wide(noise, (cells,))
    steps = noise_steps(noise, _BITS)
    one = steps.low[steps.reach] - steps.low[steps.reach - 1]
    sums = _normalised(noise)[0].times(cells)
    low = Fraction(sums.at(0), 1 << _BITS) * Fraction(steps.total[0], one) ** cells
    return low, Fraction(sums.at(0) + sums.slack, 1 << _BITS) * Fraction(steps.total[1], one) ** cells


@lru_cache(maxsize=64)
def _listed_steps(noise: Noise, rows: int, columns: int) -> NoiseSteps | None:
    """Return the steps of a cell of a table with zero margins by listing the tables; None if they are too many."""
    free = (rows - 1) * (columns - 1)
    if _width(noise, 1) > _MOST_SUMS:  # far beyond the reach of any list
        return None
    steps = noise_steps(noise, _BITS)
    one = steps.low[steps.reach] - steps.low[steps.reach - 1]
    reach = min(steps.reach, (math.floor(_MOST_TABLES ** (1 / free)) - 1) // 2)
    place = steps.reach - reach - 1
    tail = 2 * Fraction(steps.high[place] if place >= 0 else steps.total[1] - steps.high[-1], one)
    if tail > Fraction(1, 10**6):
        return None
    low, high = _listed_weights(noise, rows, columns, reach)
    # Elsewhere a free cell is beyond the reach; the determined cells' weights are at most 1.
    outside = math.ceil(free * tail * Fraction(steps.total[1], one) ** (free - 1) * (1 << 2 * _BITS))
    cumulated = [*accumulate(high, initial=outside)][1:]
    return NoiseSteps(reach=reach, low=[*accumulate(low)], high=cumulated, total=(sum(low), cumulated[-1] + outside))


def _listed_weights(noise: Noise, rows: int, columns: int, reach: int) -> tuple[list[int], list[int]]:
    """Add up the weights of all tables whose free cells are within the reach, by their first cell."""
    axes = np.ix_(*[np.arange(-reach, reach + 1)] * ((rows - 1) * (columns - 1)))
    cells = np.empty((rows - 1, columns - 1), dtype=object)
    for place, axis in enumerate(axes):
        cells.flat[place] = axis
    size = np.square if isinstance(noise, DiscreteGaussian) else np.abs
    energy = sum(size(each) for each in [*axes, *cells.sum(axis=0), *cells.sum(axis=1), cells.sum()])
    counted = [np.bincount(part.reshape(-1)) for part in energy]
    bounds = {int(e): weight(noise, int(e), 2 * _BITS) for e in np.unique(energy)}
    low, high = (
        [sum(int(part[e]) * bounds[int(e)][side] for e in np.flatnonzero(part)) for part in counted] for side in (0, 1)
    )
    return low, high


def _near_steps(noise: Noise, shape: tuple[int, ...], share: Fraction, spread: Fraction) -> NoiseSteps:
    """Return the steps of a cell of wide Gaussian noise: discrete Gaussian up to a factor next to 1 (claim 4)."""
    if not isinstance(noise, DiscreteGaussian) or 2 * spread > _LOOSEST or noise.variance > _WIDEST:
        raise _too_wide(noise, shape)
    kept = 1 - 2 * spread
    steps = noise_steps(DiscreteGaussian(noise.variance * share), _BITS)
    low = [math.floor(each * kept) for each in steps.low]
    return NoiseSteps(reach=steps.reach, low=low, high=steps.high, total=(low[-1], steps.total[1]))


def _spread_by_sum(noise: Noise, cells: int) -> Fraction:
    """Bound by how much the weight of all vectors of one sum depends on its remainder: lemma 1 of the theory page."""
    if not isinstance(noise, DiscreteGaussian):
        return Fraction(1)
    rate = 2 * _PI_SQUARED * noise.variance
    near = min(Fraction(1, 4), Fraction(math.isqrt(math.ceil(Fraction(60 << 64) / (cells * rate))) + 1, 1 << 32))
    swelling = Fraction(21, 10) * _exp(-rate * (1 - 2 * near))
    if rate < 4 or near < swelling or cells * swelling > 1:
        return Fraction(1)
    least = min(rate * near**2 - swelling, rate / 4 - Fraction(21, 10))
    return 2 * cells * swelling + cells * rate * _exp(-cells * least)


def _spread_by_norm(noise: Noise, free: int) -> Fraction:
    """Bound the same for a lattice of so many dimensions that moves of four cells generate: lemma 2."""
    if not isinstance(noise, DiscreteGaussian):
        return Fraction(1)
    square = _TWO_PI * noise.variance / (4 * free)
    part = (_TWO_PI_E * square * _exp(-_TWO_PI * square)) ** (free // 2)
    return part / (1 - part) if square > Fraction(1, 6) and part < 1 else Fraction(1)


def _exp(exponent: Fraction) -> Fraction:
    """Return at least exp(exponent)."""
    return Fraction(exp_of(exponent, 128)[1], 1 << 128)


def _too_wide(noise: Noise, shape: tuple[int, ...]) -> StirredError:
    return refused(
        f"the exact law of {noise} on {' x '.join(map(str, shape))} cells with fixed sums is beyond reach",
        where="noise inside the universe",
        remedy="use a larger budget or fewer cells, or draw the noise without its law",
    )
