"""The normal distribution function in certified enclosures, for Gaussian differential privacy."""

from __future__ import annotations

from fractions import Fraction
from statistics import NormalDist
from typing import Final

from stirred.spec.exact import exact, exp, ln, sqrt

_STANDARD: Final = NormalDist()
# Pi lies between these two; enough for 55 digits of the density.
_PI_LOW: Final = Fraction("3.141592653589793238462643383279502884197169399375105820974944")
_PI_HIGH: Final = _PI_LOW + Fraction(1, 10**60)
_GRAIN: Final = Fraction(1, 10**70)  # grid of the intermediate sums, far below the 55 digits kept
_COARSE: Final = Fraction(1, 10**15)
_FAR: Final = 4  # from here outwards the continued fraction is the better of the two


def normal_cdf(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return rationals (low, high) around the standard normal distribution function at ``x``.

    The relative error of the smaller tail is below 1e-40 for |x| up to 40.

    >>> low, high = normal_cdf(Fraction(0))
    >>> low == high == Fraction(1, 2)
    True
    """
    if x == 0:
        return Fraction(1, 2), Fraction(1, 2)
    # Phi(-x) < exp(-x^2/2), which at 200 is below 10^-8000: certified, and quick.
    low, high = _upper_tail(abs(x)) if abs(x) < 200 else (Fraction(0), Fraction(1, 10**8000))
    return (low, high) if x < 0 else (1 - high, 1 - low)


def _upper_tail(x: Fraction) -> tuple[Fraction, Fraction]:
    low, high = _density(x)
    if x >= _FAR:
        small, large = _mills_ratio(x)
        return low * small, high * large
    small, large = _odd_series(x)
    return Fraction(1, 2) - high * large, Fraction(1, 2) - low * small


def _odd_series(x: Fraction) -> tuple[Fraction, Fraction]:
    """Enclose x + x^3/3 + x^5/(3*5) + ..., which is (Phi(x) - 1/2) / phi(x).

    Terms are truncated to a grid to keep the fractions short; ``missing`` bounds what that loses.
    Once the ratio of consecutive terms is at most 1/2, all later terms together are at most the last.
    """
    term, missing = _to_grid(x), _GRAIN
    total, lost, k = Fraction(0), Fraction(0), 0
    while True:
        total, lost, k = total + term, lost + missing, k + 1
        ratio = x * x / (2 * k + 1)
        term = _to_grid(term * ratio)
        missing = _to_grid(missing * ratio) + 2 * _GRAIN
        if 2 * ratio <= 1 and term <= _GRAIN:
            return total, total + lost + 2 * (term + missing)


def _to_grid(value: Fraction) -> Fraction:
    return (value // _GRAIN) * _GRAIN


def _mills_ratio(x: Fraction) -> tuple[Fraction, Fraction]:
    """Enclose (1 - Phi(x)) / phi(x) = 1/(x + 1/(x + 2/(x + 3/(x + ...)))).

    Successive convergents of this continued fraction of positive terms lie on either side of it.
    """
    ends = [_convergent(x, terms) for terms in (240, 241)]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _convergent(x: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    low = high = x
    for j in range(terms, 0, -1):
        low, high = x + _to_grid(j / high), x + _to_grid(j / low) + _GRAIN
    return 1 / high, 1 / low


def _density(x: Fraction) -> tuple[Fraction, Fraction]:
    """Enclose phi(x) = exp(-x^2/2) / sqrt(2 pi)."""
    power = exp(exact(-x * x / 2)).enclose(60)
    root_low = Fraction(sqrt(exact(2 * _PI_LOW)).enclose(60).low)
    root_high = Fraction(sqrt(exact(2 * _PI_HIGH)).enclose(60).high)
    return Fraction(power.low) / root_high, Fraction(power.high) / root_low


def normal_quantile(p: Fraction) -> tuple[Fraction, Fraction]:
    """Return rationals (low, high) around the standard normal quantile of ``p``, 0 < p < 1.

    A double gives the guess; :func:`normal_cdf` certifies the bracket, which is widened until it holds.

    >>> low, high = normal_quantile(Fraction(1, 2))
    >>> low <= 0 <= high
    True
    """
    guess, step = _guess(p), Fraction(1, 10**13)
    while True:
        low, high = guess - step, guess + step
        if normal_cdf(low)[1] <= p <= normal_cdf(high)[0]:
            return low, high
        step *= 10


def gaussian_delta(mu: Fraction, ratio: Fraction) -> Fraction:
    """Bound from above the delta of two unit normals ``mu`` apart at epsilon = ln(ratio).

    Dong, Roth and Su (2022), Corollary 1: Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2).
    """
    if not mu:
        return Fraction(0)
    # It falls in epsilon, so a logarithm that is not above the true one is on the safe side; so is a coarse grid.
    low = Fraction(ln(ratio).enclose().low) // _COARSE * _COARSE
    return -(-max(gaussian_delta_at(mu, low), Fraction(0)) // _COARSE) * _COARSE


def gaussian_delta_at(mu: Fraction, epsilon: Fraction) -> Fraction:
    """Bound the same from above for a rational epsilon."""
    first = normal_cdf(-epsilon / mu + mu / 2)[1]
    second = normal_cdf(-epsilon / mu - mu / 2)[0]
    return first - Fraction(exp(epsilon).enclose().low) * second


def _guess(p: Fraction) -> Fraction:
    tail = min(p, 1 - p)
    if tail < Fraction(1, 10**300):
        raise ArithmeticError("a probability below 1e-300 has no certified normal quantile here")
    x = _STANDARD.inv_cdf(tail.numerator / tail.denominator)
    return Fraction(x if p <= Fraction(1, 2) else -x).limit_denominator(10**15)
