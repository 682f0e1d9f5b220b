"""The budget of the Mallows swap (swapping theory R5): it does not grow with the stratum.

Relative to the invariants of permutation swapping; the proof is in docs/theory/swapping-family.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

from stirred.spec.exact import INFINITE, Exact, exp, ln
from stirred.spec.given_numbers import Number, fraction, loss
from stirred.spec.problems import refused

# Significant digits kept of a weight that is not rational; it is rounded towards more protection.
_DIGITS = 30


def mallows_weight(epsilon: Number) -> Fraction:
    """Return the factor by which each moved record makes a permutation less likely, for this loss (R5).

    exp(-epsilon) where that is rational, otherwise rounded up to thirty digits: the loss is then a
    little below the one asked for.

    >>> from stirred.spec.exact import ln
    >>> mallows_weight(ln(3)), mallows_epsilon(mallows_weight(2)) <= 2
    (Fraction(1, 3), True)
    """
    wanted = loss(epsilon, where="epsilon")
    if wanted.is_infinite:
        return Fraction(0)
    weight = exp(-wanted)
    if weight.is_rational:
        return weight.rational
    high = weight.enclose(_DIGITS + 5).high
    grid = Fraction(10) ** (high.adjusted() - _DIGITS)
    return math.ceil(Fraction(high) / grid) * grid


def mallows_epsilon(weight: Number) -> Exact:
    """Return the loss of the swap in which a permutation moving k records has weight ``weight`` to the k (R5).

    It holds for every stratum, whatever its size. A weight above 1 would make moving *more* likely than
    staying and cost its logarithm; such rates, above 1 - 1/n, are refused.

    >>> mallows_epsilon("1/3")
    Exact('ln(3)')
    """
    theta = fraction(weight, where="weight")
    if not 0 <= theta <= 1:
        raise refused(
            f"a weight of {theta} would make moving a record more likely than leaving it",
            where="weight",
            remedy="use a weight from 0 to 1: at 1 all permutations are equally likely and the loss is 0",
        )
    return -ln(theta) if theta else INFINITE
