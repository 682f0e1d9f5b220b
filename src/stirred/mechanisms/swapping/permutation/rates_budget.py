"""The budget of permutation swapping at rates that vary inside a stratum (R8)."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from stirred.spec.exact import INFINITE, ZERO, Exact, exact, largest, ln
from stirred.spec.given_numbers import Number, probability
from stirred.spec.problems import refused, wrong
from stirred.spec.swap_budget import checked_stratum, psa_sharp_epsilon

DEPENDS_ON: Final = ("stratum", "hold", "swap", "both")

_EXACT_POWERS: Final = 2_000
_UP: Final = decimal.Context(prec=60, rounding=decimal.ROUND_CEILING, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def varying_rate_epsilon(lowest: Number, highest: Number, *, stratum: int, depends_on: str = "hold") -> Exact:
    """Return the loss of permutation swapping on a stratum whose records have rates between two (R8).

    ``depends_on`` says what a record's rate is a function of: its ``hold`` value, its ``swap`` value or
    ``both``. Rates by ``stratum`` are constant inside each and cost no more than permutation swapping.
    Rates that depend on *other* records are refused.

    >>> varying_rate_epsilon("1/10", "1/2", stratum=4)
    Exact('ln(27)')
    >>> varying_rate_epsilon("1/10", "1/2", stratum=4, depends_on="other-records")
    Traceback (most recent call last):
    stirred.spec.problems.ConversionRefusedError: depends_on: rates that depend on other records ...
    """
    low, high = probability(lowest, where="lowest rate"), probability(highest, where="highest rate")
    _check(low, high, depends_on)
    if checked_stratum(stratum) == 0:
        return ZERO
    if low == 0 or high == 1:
        return INFINITE  # R8f: a rate of 0 shared by records that can differ, and R2
    if depends_on == "stratum":
        return largest([psa_sharp_epsilon(rate, stratum=stratum) for rate in {low, high}])
    if depends_on == "both":
        return _both(low, high, stratum)
    return _one_side(low, high, stratum)


def _check(low: Fraction, high: Fraction, depends_on: str) -> None:
    if depends_on in ("other-records", "other_records"):
        raise refused(
            "rates that depend on other records (rareness, neighbours, the risk of a whole table) have no budget "
            "like that of permutation swapping: however far from 0 and 1 they stay, the loss grows in proportion to "
            "the size of the stratum",
            where="depends_on",
            remedy="let the rate of a record depend on its own values, or on published counts",
        )
    if depends_on not in DEPENDS_ON:
        raise wrong(f"{depends_on!r} is not known", where="depends_on", remedy=f"write one of {', '.join(DEPENDS_ON)}")
    if low > high:
        raise wrong(f"rates from {low} to {high}", where="rates", remedy="give the lowest first")


def _one_side(low: Fraction, high: Fraction, n: int) -> Exact:
    """R8 b and c: the rate is a function of the hold value alone, or of the swap value alone."""
    a, b = ln(high / (1 - high)), -ln(low / (1 - low))
    if n == 2:
        return largest([a, b])
    if n == 3:
        return largest([a, (ln(2) + b) / 2, ln(2) / 3 + b, (a + b) / 2])
    return largest([a, _half_log(n) + b])


@lru_cache(maxsize=1 << 14)  # a plan asks for the loss of every size of its strata, more than once
def _both(low: Fraction, high: Fraction, n: int) -> Exact:
    """R8 d: the rate is a function of the record; the normaliser may change by 1/(1 - P1)."""
    a, b, m, two = ln(high / (1 - high)), -ln(low / (1 - low)), ln(high / low), ln(2)
    if n == 3:
        moves = [
            a, b + two / 3, (a + b) / 2, (a + b + m) / 3, (two + b + m) / 2, (two + b + 2 * m) / 3,
            (a - two + m) / 2, (a - two + 2 * m) / 3, m,
        ]  # fmt: skip
    else:
        moves = [a, b + (_half_log(n) if n > 3 else ZERO)]
    other = 1 - _short(exactly_one_at_most(low, high, records=n))
    return largest(moves) - ln(exact(other)) / 2 if other > 0 else INFINITE


def _short(chance: Fraction) -> Fraction:
    """Return a chance of at most 20 digits, rounded up where it had more: the loss is published in full."""
    return chance if chance.denominator <= 10**20 else Fraction(math.ceil(chance * 10**20), 10**20)


def _half_log(n: int) -> Exact:
    """Return L_n: the sharp budget (R1) at odds 1, where its other branch is 0."""
    return psa_sharp_epsilon(Fraction(1, 2), stratum=n)


def exactly_one_at_most(low: Fraction, high: Fraction, *, records: int) -> Fraction:
    """Return the largest chance, over all rates between two, that exactly one record is selected.

    It is affine in each rate, so each is at an end: j records at ``low`` and the others at ``high``. Going
    from j to j + 1 changes it by a factor that falls with j, so a bisection finds the largest. Rounded up
    for large strata.

    >>> exactly_one_at_most(Fraction(1, 2), Fraction(1, 2), records=2)
    Fraction(1, 2)
    """
    stay_low, stay_high = 1 - low, 1 - high
    odds_low, odds_high = low / stay_low, high / stay_high

    def falls(j: int) -> bool:
        one_more = (j + 1) * odds_low + (records - j - 1) * odds_high
        return stay_low * one_more <= stay_high * (j * odds_low + (records - j) * odds_high)

    first, last = 0, records
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if falls(middle) else (middle + 1, last)
    chances = first * odds_low + (records - first) * odds_high
    return _power(stay_low, first) * _power(stay_high, records - first) * chances


def _power(base: Fraction, exponent: int) -> Fraction:
    """Return a power, or a fraction not below it where its digits would grow without end."""
    if exponent <= _EXACT_POWERS // max(1, base.denominator.bit_length()):
        return base**exponent
    square = _UP.divide(Decimal(base.numerator), Decimal(base.denominator))
    result = Decimal(1)
    while exponent:
        if exponent & 1:
            result = _UP.multiply(result, square)
        square, exponent = _UP.multiply(square, square), exponent >> 1
    # An underflow to the smallest number is still not below; as a fraction it would be enormous.
    return Fraction(max(result, Decimal("1e-300")))
