"""The budget of the shuffle swap: independent selection, then a plain permutation of the selected (R7).

The bound uses the margins: p*(v) = E[m]/v where m has weights C(v,m) m! o^m (n-v)!/(n-v+m)!, and the loss
is at most the smaller of the largest -ln p*(v) over the hold margin and over the swap margin. p* does not
fall as v grows, so the rarest value of a margin decides. Weights are summed outwards from the largest in
integers that are rounded so that p* is never taken too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.given_numbers import Number, probability
from stirred.spec.problems import wrong

_BITS = 160
# Up to here p* is an exact fraction.
_EXACT_MARGIN = 40


def shuffle_epsilon(hold: Sequence[int], swap: Sequence[int], rate: Number) -> Exact:
    """Return the bound of the shuffle swap on a stratum with these margins (R7); 0 if nothing can differ.

    >>> shuffle_epsilon((1, 1), (1, 1), "1/2"), shuffle_epsilon((1, 1), (2,), "1/2")
    (Exact('ln(3)'), Exact('0'))
    """
    p = probability(rate, where="rate")
    n = sum(hold)
    if n != sum(swap):
        raise wrong(f"margins of {n} and {sum(swap)} records", where="margins", remedy="both count the same records")
    if len(hold) < 2 or len(swap) < 2 or p == 1:
        return ZERO
    if p == 0:
        return INFINITE
    return margin_epsilon(max(min(hold), min(swap)), p, stratum=n)


def margin_epsilon(count: int, rate: Fraction, *, stratum: int) -> Exact:
    """Return -ln p* of one value that ``count`` of the records of a stratum have, rounded up.

    >>> margin_epsilon(1, Fraction(1, 2), stratum=9)  # for a single record p* is 1/(1 + n/o)
    Exact('ln(10)')
    """
    return -ln(_share_selected(count, stratum, rate / (1 - rate)))


def _share_selected(v: int, n: int, odds: Fraction) -> Fraction:
    """Return p*(v), or a fraction not above it where v is large."""
    others = n - v
    if v <= _EXACT_MARGIN:
        weight, total, moment = Fraction(1), Fraction(1), Fraction(0)
        for m in range(1, v + 1):
            weight *= (v - m + 1) * odds / (others + m)
            total, moment = total + weight, moment + m * weight
        return moment / (v * total)
    a, b = odds.numerator, odds.denominator
    # The ratio of neighbours (v-m)o/(others+m+1) falls with m, and passes 1 at the mode.
    mode = min(v, max(0, (v * a - (others + 1) * b) // (a + b) + 1))
    one = 1 << _BITS
    low_total, high_total, low_moment = one, one, mode * one
    low = high = one
    for m in range(mode, v):  # upwards
        low = low * (v - m) * a // ((others + m + 1) * b)
        high = -(-high * (v - m) * a // ((others + m + 1) * b))
        low_total, high_total, low_moment = low_total + low, high_total + high, low_moment + (m + 1) * low
        if low == 0:
            # What follows is at most so many terms, none above this one.
            high_total += (v - m - 1) * high
            break
    low = high = one
    for m in range(mode, 0, -1):  # downwards
        low = low * (others + m) * b // ((v - m + 1) * a)
        high = -(-high * (others + m) * b // ((v - m + 1) * a))
        low_total, high_total, low_moment = low_total + low, high_total + high, low_moment + (m - 1) * low
        if low == 0:
            high_total += (m - 1) * high
            break
    return Fraction(low_moment, v * high_total)
