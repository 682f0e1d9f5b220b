"""The budget of the conditioned swap (swapping theory R6): it does not grow with the stratum.

Relative to the invariants of permutation swapping; the proof is in docs/theory/swapping-family.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.given_numbers import Number, probability
from stirred.spec.problems import wrong


def redraw_epsilon(rate: Number, masses: Sequence[Fraction]) -> Exact:
    """Return the loss of the conditioned swap that redraws swap values from a law, in one stratum (R6).

    A record keeps its value with probability 1 - rate and otherwise draws one from the law;
    the whole is conditioned on giving every value as often as before. ``masses`` are the law's
    probabilities of the swap values *present* in the stratum. The two smallest decide: among the
    records in which two tables differ, each value occurs at most every other time.

    >>> third = Fraction(1, 3)
    >>> redraw_epsilon("1/2", [third, third, third])
    Exact('ln(4)')
    >>> redraw_epsilon("1/2", [Fraction(1)]), redraw_epsilon(0, [third, third]), redraw_epsilon(1, [third, third])
    (Exact('0'), Exact('inf'), Exact('0'))
    """
    q = probability(rate, where="rate")
    for mass in masses:
        if not 0 < mass <= 1:
            raise wrong(
                f"a law that gives a swap value the probability {mass}",
                where="law",
                remedy="every value that occurs needs a probability above 0: otherwise nobody can get it",
            )
    if len(masses) < 2 or q == 1:
        return ZERO
    if q == 0:
        return INFINITE
    odds = q / (1 - q)
    first, second = sorted(masses)[:2]
    return ln((1 + 1 / (odds * first)) * (1 + 1 / (odds * second))) / 2


def redraw_kernel(rate: Number, masses: Sequence[Fraction]) -> list[list[Fraction]]:
    """Return the kernel (1-q) I + q pi of drawing the value again with probability q."""
    q = probability(rate, where="rate")
    return [[(1 - q) * (a == b) + q * mass for b, mass in enumerate(masses)] for a in range(len(masses))]
