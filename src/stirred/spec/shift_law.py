"""The law of whole numbers with integer noise: infinite support, known by how it shifts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

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
