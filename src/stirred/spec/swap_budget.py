"""The budget of permutation swapping as a function of the swap rate and the largest stratum.

Two bounds: the paper's (Theorem 1 of "A Refreshment Stirred, Not Shaken") and the sharp one (our R1),
which is never above it; their inverses; and the paper's existential bound (Theorem 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from stirred.spec.exact import INFINITE, ONE, ZERO, Exact, exact, exp, largest, ln, sqrt
from stirred.spec.given_numbers import loss, probability
from stirred.spec.problems import refused, wrong

Bound = Literal["paper", "sharp"]

# Up to here derangement ratios are exact; beyond, their distance from n(n-1) is below 10**-14, and writing
# them out would make the expression unreadable.
_EXACT_DERANGEMENTS = 20
_SLIGHTLY = Fraction(1, 10**9)
# A bound from below is compared with others to many digits, and not written into specifications.
_EXACT_BELOW = 60


def checked_stratum(largest_stratum: int) -> int:
    """Return the largest live stratum if it can be one: 0 (none is live), or 2 and more."""
    if largest_stratum < 0 or largest_stratum == 1:
        raise wrong(
            f"{largest_stratum} is not the size of a largest stratum",
            where="stratum",
            remedy="write 0 if no stratum has two different records, otherwise 2 or more: "
            "a single record has nobody to swap with",
        )
    return largest_stratum


def psa_loss_ratio(rate: Fraction, *, largest_stratum: int) -> Exact:
    """Return exp(epsilon) of permutation swapping, exactly.

    Theorem 1, Eq. 3.3, relative to the universe its invariants fix. ``largest_stratum`` counts only
    strata with two or more hold values and two or more swap values (the theorem says "two distinct
    records"; see "known gaps").

    >>> psa_loss_ratio(Fraction(1, 2), largest_stratum=264_331)
    Exact('264332')
    """
    rate = probability(rate, where="rate")
    if checked_stratum(largest_stratum) == 0:
        return ONE
    if rate in (0, 1):
        return INFINITE
    odds = rate / (1 - rate)
    # Both branches of Eq. 3.3 meet where odds**2 == b + 1, so their maximum is the bound and stays
    # rational: no square root.
    return exact(max((largest_stratum + 1) / odds, odds))


def psa_epsilon(rate: Fraction, *, largest_stratum: int) -> Exact:
    """Return the epsilon of Theorem 1.

    >>> psa_epsilon(Fraction(1, 100), largest_stratum=264_331).shown()
    '17.09'
    """
    return ln(psa_loss_ratio(rate, largest_stratum=largest_stratum))


def smallest_psa_epsilon(largest_stratum: int, *, bound: Bound = "paper") -> Exact:
    """Return the smallest epsilon that any rate reaches; by Theorem 1 half of ln(b + 1) (section 3.6).

    >>> smallest_psa_epsilon(10).shown(3), smallest_psa_epsilon(10, bound="sharp").shown(3)
    ('1.199', '1.125')
    """
    if checked_stratum(largest_stratum) == 0:
        return ZERO
    if bound == "sharp" and largest_stratum == 3:
        return ln(2) / 3
    return _offset(largest_stratum, bound) / 2


def smallest_psa_rate(largest_stratum: int, *, bound: Bound = "paper") -> Exact:
    """Return the rate that reaches the smallest epsilon: the two branches of the bound meet there."""
    if bound == "paper":
        root = sqrt(checked_stratum(largest_stratum) + 1)
        return root / (root + 1)
    odds = exp(smallest_psa_epsilon(largest_stratum, bound=bound))
    return odds / (odds + 1)


def _offset(largest_stratum: int, bound: Bound) -> Exact:
    """Return A where the bound is max{ln o, A - ln o}; the sharp one for n = 3 has further terms."""
    if bound == "paper":
        return ln(largest_stratum + 1)
    return ZERO if largest_stratum == 2 else ln(_derangement_ratio_not_below(largest_stratum)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRates:
    """The two rates that reach one epsilon: the gentle one and the one close to 1."""

    low: Exact
    high: Exact


def psa_rates_for(epsilon: Exact, *, largest_stratum: int, bound: Bound = "paper") -> SwapRates:
    """Return both swap rates whose epsilon by the bound is ``epsilon``.

    By Theorem 1 the first branch gives odds (b+1)/exp(epsilon), the second odds exp(epsilon).

    >>> rates = psa_rates_for(exact(3), largest_stratum=10)
    >>> round(float(rates.low), 4), round(float(rates.high), 4)
    (0.3539, 0.9526)
    """
    epsilon = loss(epsilon, where="epsilon")
    if checked_stratum(largest_stratum) == 0:
        raise refused(
            "no stratum is live, so every rate has epsilon 0",
            where="stratum",
            remedy="choose the rate by other reasons; nothing is protected that swapping could change",
        )
    least = smallest_psa_epsilon(largest_stratum, bound=bound)
    if epsilon < least:
        raise refused(
            f"no rate reaches epsilon {_below(epsilon)} with a largest stratum of {largest_stratum:,}: "
            f"the smallest is {least.shown(3)}",
            where="epsilon",
            remedy=f"ask for {least.shown(3)} or more, or make the largest stratum smaller "
            "(which adds invariants, and so protects less)",
        )
    if epsilon.is_infinite:
        return SwapRates(low=ZERO, high=ONE)
    if epsilon > exact(10_000):
        raise refused(
            f"epsilon {epsilon.shown()} promises nothing: its rates cannot be told from 0 and 1",
            where="epsilon",
            remedy="ask for a smaller one",
        )
    ratio = exp(epsilon)
    if bound == "paper":
        top = exact(largest_stratum + 1)
    elif largest_stratum == 3:
        # The second term of R1 for n = 3 decides below two thirds of ln 2, the third above.
        top = 2 / ratio if epsilon <= 2 * ln(2) / 3 else exp(ln(2) / 3)
    else:
        top = exp(_offset(largest_stratum, bound))
    return SwapRates(low=top / (top + ratio), high=ratio / (1 + ratio))


def _below(epsilon: Exact) -> str:
    """Write a target that is too small so that it looks small: rounded up it could pass for the smallest possible."""
    shown = epsilon.shown()
    return shown if exact(shown) == epsilon else f"{math.floor(Fraction(epsilon.enclose(40).low) * 1000) / 1000:.3f}"


def rate_not_above(epsilon: Exact, *, largest_stratum: int, high: bool = False, bound: Bound = "paper") -> Fraction:
    """Return a rational rate with a loss of at most ``epsilon``: a rate one could use.

    The loss falls with the rate on the first branch and rises on the second, so the rate is rounded
    upwards on the first and downwards on the second, to nine decimals or as many more as it takes not
    to step over the minimum. At the minimum itself the rate is irrational, and no rational one will do.
    """
    rates = psa_rates_for(epsilon, largest_stratum=largest_stratum, bound=bound)
    for places in (9, 15, 30):
        grid = 10**places
        if high:
            rate = Fraction(math.floor(Fraction(rates.high.enclose(40).low) * grid), grid)
        else:
            rate = Fraction(math.ceil(Fraction(rates.low.enclose(40).high) * grid), grid)
        if bounded_psa_epsilon(rate, largest_stratum=largest_stratum, bound=bound) <= epsilon:
            return rate
    raise refused(
        f"epsilon {epsilon.shown()} is so close to the smallest possible that no usable rate reaches it",
        where="epsilon",
        remedy="ask for a slightly larger one",
    )


def psa_sharp_epsilon(rate: Fraction, *, stratum: int) -> Exact:
    """Return the largest loss of permutation swapping over all live strata of this size: sharp in n and p.

    Our result R1 (theory pages): for n >= 4 it is max{L_n - ln o, ln o} with L_n half of
    ln[d(n)/d(n-2)], d the derangement numbers and o the odds; n = 2 and 3 by listing the moves. It never
    exceeds Theorem 1, grows with n, and is attained where all values are different. At rate 1 the loss
    may be finite (R2), but for the size alone infinity is the bound. The returned number is not below
    the true one.

    >>> psa_sharp_epsilon(Fraction(1, 2), stratum=2), psa_sharp_epsilon(Fraction(1, 2), stratum=4)
    (Exact('0'), Exact('ln(3)'))
    """
    rate = probability(rate, where="rate")
    if checked_stratum(stratum) == 0:
        return ZERO
    return INFINITE if rate in (0, 1) else _sharp_epsilon(rate, stratum, _derangement_ratio_not_below)


@lru_cache(maxsize=1024)  # a plan and its pages ask for the same few some hundred times
def _sharp_epsilon(rate: Fraction, stratum: int, ratio: Callable[[int], Fraction]) -> Exact:
    """Return R1 with d(n)/d(n-2) by ``ratio``, which rounds it up or down where n is large."""
    odds = ln(rate / (1 - rate))
    if stratum == 2:
        return largest([odds, -odds])
    if stratum == 3:
        return largest([odds, (ln(2) - odds) / 2, ln(2) / 3 - odds])
    return largest([odds, ln(ratio(stratum)) / 2 - odds])


def bounded_psa_epsilon(rate: Fraction, *, largest_stratum: int, bound: Bound) -> Exact:
    """Return epsilon by the named bound."""
    if bound == "paper":
        return psa_epsilon(rate, largest_stratum=largest_stratum)
    return psa_sharp_epsilon(rate, stratum=largest_stratum)


def psa_existential_bound(rate: Fraction, *, largest_stratum: int) -> Exact:
    """Return a loss that *some* file with this largest stratum has; never a bound for a given file.

    Theorem 3: ln o, and half of ln[d(b)/d(b-2)] - ln o with d the derangement numbers. For b = 2 and 3,
    where the quotient is 1 or undefined, the largest loss over all files by direct enumeration of the
    moves (swapping theory R1). The returned number is not above the true one.

    >>> psa_existential_bound(Fraction(1, 2), largest_stratum=4)
    Exact('ln(3)')
    """
    rate = probability(rate, where="rate")
    if checked_stratum(largest_stratum) == 0:
        return ZERO
    return INFINITE if rate in (0, 1) else _sharp_epsilon(rate, largest_stratum, _derangement_ratio_not_above)


def derangements(n: int) -> int:
    """Return the number of permutations of ``n`` records that move every one of them.

    >>> [derangements(n) for n in range(6)]
    [1, 0, 1, 2, 9, 44]
    """
    count = 1
    for k in range(1, n + 1):
        count = k * count + (-1) ** k
    return count


def _derangement_ratio_not_below(n: int) -> Fraction:
    """Return d(n)/d(n-2) = n(n-1) - (-1)^n (n-1)/d(n-2), rounded up where n is large."""
    if n <= _EXACT_DERANGEMENTS:
        return Fraction(derangements(n), derangements(n - 2))
    return Fraction(n * (n - 1)) + (_SLIGHTLY if n % 2 else 0)


def _derangement_ratio_not_above(n: int) -> Fraction:
    """Return d(n)/d(n-2) = n(n-1) - (-1)^n (n-1)/d(n-2), rounded down where n is large."""
    if n <= _EXACT_BELOW:
        return Fraction(derangements(n), derangements(n - 2))
    return Fraction(n * (n - 1)) - (0 if n % 2 else Fraction(n - 1, derangements(_EXACT_BELOW - 2)))
