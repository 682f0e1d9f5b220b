"""The law of whole numbers with integer noise: infinite support, known by how it shifts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

from stirred.spec.exact import INFINITE, Exact, UndecidedError, compare_exact, exact, exp
from stirred.spec.given_numbers import fraction, loss
from stirred.spec.law import Law
from stirred.spec.problems import wrong

Interval = tuple[Fraction, Fraction]

# Weights below 10^-45 are bounded together instead of being added up one by one.
_TAIL_EXPONENT = 104
_DIGITS = 50
_GRID = 10**60
_WIDEST = 10**12  # the largest variance parameter, and the largest scale of Laplace noise
_NARROWER = "smaller bounds or sums in a coarser unit"


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """Integer noise with probability proportional to ``exp(-loss |z|)``: two-sided geometric noise.

    >>> DiscreteLaplace("1/2")
    DiscreteLaplace(loss=Exact('1/2'))
    """

    loss: Exact

    def __init__(self, loss: Exact | int | Fraction | str | float) -> None:
        value = _positive(loss, where="loss of the discrete Laplace noise")
        if value < Fraction(1, _WIDEST):
            scale = 1 / max(Fraction(value.enclose(30).low), Fraction(1, 10**300))
            what = f"noise of scale {float(scale):.4g} is wider than can be drawn"
            remedy = f"choose a larger epsilon, {_NARROWER}: scales go up to {_WIDEST:,}"
            raise wrong(what, where="discrete Laplace noise", remedy=remedy)
        object.__setattr__(self, "loss", value)

    def log_ratio(self, z: int, *, shift: int) -> Exact:
        """Return ln of P(z) over P(z - shift)."""
        return self.loss * (abs(z - shift) - abs(z))

    @property
    def decay(self) -> Interval:
        """Return exp(-loss), enclosed; both ends are the number where it is rational."""
        return _enclosed(exp(-self.loss))

    @staticmethod
    def shifted(shift: int, decay: Fraction) -> tuple[Law, Law]:
        """Return the noise and its shift, for a rational decay, with outcomes of equal likelihood ratio pooled.

        All z up to 0 have the same ratio, and all from the shift on: finitely many outcomes remain, and no
        output premetric of ours can tell the pooled laws from the full ones.

        >>> noise, shifted = DiscreteLaplace.shifted(1, Fraction(1, 3))
        >>> noise[0], shifted[0]
        (Fraction(3, 4), Fraction(1, 4))
        """
        k, a = abs(shift), decay
        here = [1 / (1 + a), *((1 - a) / (1 + a) * a**j for j in range(1, k)), a**k / (1 + a)]
        return Law(dict(enumerate(here))), Law(dict(enumerate(reversed(here))))


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """Integer noise with probability proportional to exp(-z^2 / (2 variance)).

    ``variance`` is the parameter; the variance of the noise is slightly smaller.

    >>> DiscreteGaussian("7/2").log_ratio(0, shift=1)
    Exact('1/7')
    """

    variance: Fraction

    def __init__(self, variance: int | Fraction | str | float) -> None:
        value = fraction(variance, where="variance of the discrete Gaussian noise")
        if value > _WIDEST:
            what = f"noise of variance {float(min(value, Fraction(10**300))):.4g} is wider than can be drawn"
            remedy = f"choose a larger rho, {_NARROWER}, or Laplace noise: variances go up to {_WIDEST:,}"
            raise wrong(what, where="discrete Gaussian noise", remedy=remedy)
        _positive(value, where="variance of the discrete Gaussian noise")
        object.__setattr__(self, "variance", value)

    def log_ratio(self, z: int, *, shift: int) -> Exact:
        """Return ln of P(z) over P(z - shift)."""
        return exact(Fraction((z - shift) ** 2 - z**2) / (2 * self.variance))

    def theta(self, centre: Fraction = Fraction(0)) -> Interval:
        """Enclose the sum over all z of exp(-(z - centre)^2 / (2 variance)).

        It has period 1 in the centre and is largest at whole numbers.
        """
        below, _, tails = _cumulated(self.variance, centre - math.floor(centre))
        return Fraction(below[-1][0], _GRID), Fraction(below[-1][1] + tails, _GRID)

    def at_most(self, last: int) -> Interval:
        """Enclose P(Z <= last).

        >>> low, high = DiscreteGaussian(4).at_most(-1)
        >>> high - low < Fraction(1, 10**40), round(float(low), 6)
        (True, 0.400264)
        """
        below, reach, tails = _cumulated(self.variance, Fraction(0))
        low, high = below[max(0, min(last, reach) + reach + 1)]
        whole = self.theta()
        return Fraction(low, _GRID) / whole[1], min(Fraction(high + tails, _GRID) / whole[0], Fraction(1))


Noise = DiscreteLaplace | DiscreteGaussian


def same_noise(a: Noise, b: Noise) -> bool | None:
    """Say whether two noises have one law, however their scales are written; None if that cannot be decided.

    >>> same_noise(DiscreteLaplace("ln(4)"), DiscreteLaplace("2*ln(2)"))
    True
    """
    if a == b or not (isinstance(a, DiscreteLaplace) and isinstance(b, DiscreteLaplace)):
        return a == b  # variances are fractions, which have one form
    try:
        return compare_exact(a.loss, b.loss) == 0
    except UndecidedError:
        return None


@dataclass(frozen=True, slots=True)
class ShiftLaw:
    """The law of whole numbers released with independent integer noise on each: ``centre`` plus ``noise``.

    ``noise`` is one law for all numbers, or one for each. ``fixed`` lists places whose sum the noise leaves alone: then
    it is the law conditioned on these sums being zero (docs/theory/noise-inside.md).

    >>> law = ShiftLaw((10, 4), DiscreteLaplace("ln(2)"))
    >>> law.log_ratio(ShiftLaw((9, 4), law.noise), (10, 4))  # how much likelier 10 and 4 are than from 9 and 4
    Exact('ln(2)')
    """

    centre: tuple[int, ...]
    noise: Noise | tuple[Noise, ...]
    fixed: tuple[tuple[int, ...], ...]

    def __init__(
        self, centre: int | Sequence[int], noise: Noise | Sequence[Noise], *, fixed: Iterable[Sequence[int]] = ()
    ) -> None:
        numbers = (centre,) if isinstance(centre, int) else tuple(centre)
        if not numbers or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
            raise wrong(f"{centre!r} is not made of whole numbers", where="shift law", remedy="give the exact counts")
        laws = noise if isinstance(noise, DiscreteLaplace | DiscreteGaussian) else tuple(noise)
        if isinstance(laws, tuple) and len(laws) != len(numbers):
            what = f"there are {len(laws)} laws of noise for {len(numbers)} numbers"
            raise wrong(what, where="shift law", remedy="give one noise, or one for each number")
        object.__setattr__(self, "centre", numbers)
        object.__setattr__(self, "noise", laws)
        object.__setattr__(self, "fixed", tuple(map(tuple, fixed)))

    @property
    def noises(self) -> tuple[Noise, ...]:
        """Return the noise of each number."""
        return self.noise if isinstance(self.noise, tuple) else (self.noise,) * len(self.centre)

    def agrees(self, other: ShiftLaw) -> bool:
        """Say whether both keep the same sums and have them in common; otherwise they share no output."""
        shift = self.shift(other)
        return self.fixed == other.fixed and not any(sum(shift[each] for each in places) for places in self.fixed)

    def shift(self, other: ShiftLaw) -> tuple[int, ...]:
        """Return by how much each number must be shifted to get to the other law."""
        return tuple(b - a for a, b in zip(self.centre, other.centre, strict=True))

    def same_noise(self, other: ShiftLaw) -> bool | None:
        """Say whether both have the same laws of noise; None if that cannot be decided."""
        pairs = {*zip(self.noises, other.noises, strict=True)}
        answers = {same_noise(a, b) for a, b in pairs}
        return False if False in answers else None if None in answers else True

    def log_ratio(self, other: ShiftLaw, output: Sequence[int]) -> Exact:
        """Return ln of the factor by which an output is likelier here than from a law with the same noise: exact."""
        if not self.agrees(other):
            return INFINITE
        total = exact(0)
        for t, here, k, noise in zip(output, self.centre, self.shift(other), self.noises, strict=True):
            total = total + noise.log_ratio(t - here, shift=k)
        return total


def _positive(value: Exact | int | Fraction | str | float, *, where: str) -> Exact:
    number = loss(value, where=where, finite=True)
    if number == 0 or number.is_infinite:
        raise wrong(f"{number} is not a scale of noise", where=where, remedy="write a number above 0, such as '1/2'")
    return number


def _enclosed(value: Exact) -> Interval:
    if value.is_rational:
        return value.rational, value.rational
    around = value.enclose(_DIGITS)
    return Fraction(around.low), Fraction(around.high)


def _weight(variance: Fraction, z: Fraction) -> Interval:
    return _enclosed(exp(exact(-(z**2) / (2 * variance))))


@lru_cache(maxsize=64)
def _cumulated(variance: Fraction, offset: Fraction) -> tuple[list[tuple[int, int]], int, int]:
    """Return sums of the weights at -reach - offset, 1 - reach - offset, ..., the reach, and a bound on all others.

    In units of the grid, rounded down and up. The first sum is empty.
    """
    reach = math.isqrt(math.ceil(2 * _TAIL_EXPONENT * variance)) + 2
    sums = [(0, 0)]
    for z in range(-reach, reach + 1):
        low, high = _weight(variance, z - offset)
        sums.append((sums[-1][0] + math.floor(low * _GRID), sums[-1][1] + math.ceil(high * _GRID)))
    tails = sum(math.ceil(_tail(variance, reach + 1 + side) * _GRID) for side in (offset, -offset))
    return sums, reach, tails


def _tail(variance: Fraction, first: Fraction) -> Fraction:
    """Bound the sum of the weights at first, first + 1, ...: each is at most a fixed part of the one before."""
    step = _weight(variance, first + 1)[1] / _weight(variance, first)[0]
    return _weight(variance, first)[1] / (1 - step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Counts with discrete Gaussian noise: one of ``tables``, chosen by how many ``thresholds`` a noisy total reaches.

    Without a total there is one table. Tables of all levels count the same records.
    """

    tables: tuple[ShiftLaw, ...]
    total: ShiftLaw | None = None
    thresholds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        laws = [*self.tables, *([] if self.total is None else [self.total])]
        rising = [*self.thresholds] == sorted({*self.thresholds})
        fits = len(self.tables) == len(self.thresholds) + 1 and (self.total is not None or not self.thresholds)
        if not rising or not fits or not all(isinstance(law.noise, DiscreteGaussian) for law in laws):
            raise wrong(
                "the stages do not fit together",
                where="staged law",
                remedy="give rising thresholds, one table more than thresholds, and discrete Gaussian noise",
            )

    @property
    def noises(self) -> tuple[object, ...]:
        """Return the noise of the total and of each table, with the number of cells."""
        return (self.total and self.total.noise, *((len(law.centre), law.noise) for law in self.tables))

    @property
    def emptied(self) -> Staged:
        """Return the same stages where nobody is counted."""

        def empty(law: ShiftLaw) -> ShiftLaw:
            return ShiftLaw((0,) * len(law.centre), law.noise)

        total = None if self.total is None else empty(self.total)
        return Staged(tables=tuple(map(empty, self.tables)), total=total, thresholds=self.thresholds)


@dataclass(frozen=True, slots=True, eq=False)
class StagedLaw:
    """Independent parts by name; a part that is not there counts nobody.

    >>> one, two = (StagedLaw({"a": Staged(tables=(ShiftLaw((n,), DiscreteGaussian(2)),))}) for n in (4, 5))
    >>> one.squared_distance(two)
    (Fraction(1, 4), Fraction(1, 4))
    """

    parts: Mapping[Hashable, Staged]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StagedLaw) and all(a == b for a, b in self._pairs(other))

    def __hash__(self) -> int:
        return hash(frozenset((key, part) for key, part in self.parts.items() if part != part.emptied))

    def _pairs(self, other: StagedLaw) -> Iterable[tuple[Staged, Staged]]:
        for key in dict.fromkeys([*self.parts, *other.parts]):
            a, b = self.parts.get(key), other.parts.get(key)
            yield a or b.emptied, b or a.emptied  # type: ignore[union-attr]

    def squared_distance(self, other: StagedLaw) -> tuple[Fraction, Fraction] | None:
        """Enclose the square of the normalised Rényi distance; None where noise differs, which has no bound.

        D_a/a of a part is that of the total plus an average over the tables. It is at most the largest table's, and
        tends, for large orders a, to that of the table at the end to which the total is tilted; every other table is
        reached against the tilt, at the price of the total itself.
        """
        high = there = back = Fraction(0)
        for a, b in self._pairs(other):
            if a.noises != b.noises or a.thresholds != b.thresholds:
                return None
            shift, cost = (0, Fraction(0)) if a.total is None or b.total is None else _tilt(a.total, b.total)
            tables = [_squared(p, q) for p, q in zip(a.tables, b.tables, strict=True)]
            most, ends = max(tables), {-1: tables[0], 0: max(tables), 1: tables[-1]}
            high += cost + most
            there += cost + max(ends[shift], most - cost)
            back += cost + max(ends[-shift], most - cost)
        return max(there, back), high

    def away_from(self, other: StagedLaw, *, beyond: Exact) -> tuple[tuple[int, ...], Exact]:
        """Return an output that is likelier here than there, by more than exp(beyond) where laws differ, and by what.

        The output lists the noisy totals of the parts that differ, and the cells that do.
        """
        step = 0
        while True:
            output: list[int] = []
            ratio = exact(0)
            for a, b in self._pairs(other):
                if a != b:
                    shown, gained = _output(a, b, step)
                    output, ratio = [*output, *shown], ratio + gained
            if ratio > beyond or step > 1 << 40:
                return tuple(output), ratio
            step = 2 * step or 1


OutputLaw = Law | ShiftLaw | StagedLaw


def _squared(p: ShiftLaw, q: ShiftLaw) -> Fraction:
    """Return the squared distance of two tables with the same noise."""
    assert isinstance(p.noise, DiscreteGaussian)
    return Fraction(sum(k * k for k in p.shift(q))) / (2 * p.noise.variance)


def _tilt(p: ShiftLaw, q: ShiftLaw) -> tuple[int, Fraction]:
    """Return to which side large orders tilt a total, and its squared distance."""
    (shift,) = q.shift(p)
    return (shift > 0) - (shift < 0), _squared(p, q)


def _output(a: Staged, b: Staged, step: int) -> tuple[list[int], Exact]:
    """Return an output of one part, ``step`` away from the centre of the other law, and ln of its likelihood ratio."""
    level, output, ratio = 0, list[int](), exact(0)
    if a.total is not None and b.total is not None:
        side, _ = _tilt(a.total, b.total)
        if side:
            value = a.total.centre[0] + step * side
        else:  # the total tells nothing: take a level at which the tables differ most
            apart = [_squared(p, q) for p, q in zip(a.tables, b.tables, strict=True)]
            wanted = apart.index(max(apart))
            value = a.thresholds[wanted - 1] if wanted else min([a.total.centre[0], *(t - 1 for t in a.thresholds[:1])])
        level = bisect_right(a.thresholds, value)
        output, ratio = [value], a.total.log_ratio(b.total, [value])
    p, q = a.tables[level], b.tables[level]
    cells = [c + step * ((k < 0) - (k > 0)) for c, k in zip(p.centre, p.shift(q), strict=True)]
    shown = [cell for cell, k in zip(cells, p.shift(q), strict=True) if k]
    return [*output, *shown], ratio + p.log_ratio(q, cells)
