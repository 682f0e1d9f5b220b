"""The budgets of swaps that do not select by plain permutation swapping, free of the stratum size.

Swapping theory R5 (Mallows), R6 (the conditioned swap) and R11 (Gibbs weights). All are relative to the
invariants of permutation swapping; the proofs are in docs/theory/swapping-family.md. Every returned
number is exact, or not below the true bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from stirred.spec.exact import INFINITE, ZERO, Exact, exp, largest, ln
from stirred.spec.given_numbers import fraction, loss, probability
from stirred.spec.problems import refused, wrong

Number = Exact | int | Fraction | str | Decimal | float

# Significant digits kept of a weight that is not rational; it is rounded towards more protection.
_DIGITS = 30


# ---- Mallows (R5) ---------------------------------------------------------------------------------------


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


# ---- the conditioned swap (R6) --------------------------------------------------------------------------


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


def kernel_epsilon(kernel: Sequence[Sequence[Fraction]]) -> Exact:
    """Return the loss of the conditioned swap with any kernel R(from, to) on the swap values present (R6).

    The largest ln R(a,c)/R(b,c): the budget of randomised response with the same kernel. Conditioning on
    the margins costs nothing, because its normaliser is the same in the whole universe.

    >>> kernel_epsilon(k_ary_kernel("1/3", values=4))
    Exact('ln(3)')
    """
    size = len(kernel)
    if not size or any(len(row) != size for row in kernel):
        raise wrong("it is not square", where="kernel", remedy="give one row and one column for each swap value")
    if any(weight < 0 for row in kernel for weight in row):
        raise wrong("a weight is negative", where="kernel", remedy="weights are probabilities, or proportional to them")
    columns = [*zip(*kernel, strict=True)]
    if any(min(column) == 0 for column in columns):
        return INFINITE
    return ln(max((Fraction(max(column)) / min(column) for column in columns), default=Fraction(1)))


def k_ary_kernel(weight: Number, *, values: int) -> list[list[Fraction]]:
    """Return the kernel of k-ary randomised response: 1 for staying, ``weight`` for each other value."""
    theta = fraction(weight, where="weight")
    return [[Fraction(1) if a == b else theta for b in range(values)] for a in range(values)]


def redraw_kernel(rate: Number, masses: Sequence[Fraction]) -> list[list[Fraction]]:
    """Return the kernel (1-q) I + q pi of drawing the value again with probability q."""
    q = probability(rate, where="rate")
    return [[(1 - q) * (a == b) + q * mass for b, mass in enumerate(masses)] for a in range(len(masses))]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBudget:
    """The loss of the distance-decay swap: per unit of earth-mover distance, and per record."""

    per_unit: Exact
    per_record: Exact


def metric_budget(per_unit: Number, distances: Sequence[Sequence[Number]]) -> MetricBudget:
    """Return both budgets of the conditioned swap with kernel exp(-epsilon distance(s, s')) (R6).

    ``distances`` must be those of a metric: the triangle inequality is what the proof uses. The
    premetric per unit is the smallest total distance over all ways to align two tables.

    >>> line = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    >>> metric_budget("1/4", line)
    MetricBudget(per_unit=Exact('1/4'), per_record=Exact('1/2'))
    """
    epsilon = loss(per_unit, where="epsilon")
    table = [[fraction(value, where="distance") for value in row] for row in distances]
    require_metric(table)
    farthest = max((value for row in table for value in row), default=Fraction(0))
    return MetricBudget(per_unit=epsilon, per_record=epsilon * farthest if farthest else ZERO)


def require_metric(distances: Sequence[Sequence[Fraction]]) -> None:
    """Refuse distances that are no metric, naming the places."""
    size = range(len(distances))
    if any(len(row) != len(distances) for row in distances):
        raise wrong("it is not square", where="distance", remedy="give one row and one column for each swap value")
    for a in size:
        for b in size:
            if distances[a][b] != distances[b][a] or (distances[a][b] <= 0) != (a == b) or distances[a][a] != 0:
                raise wrong(
                    f"between values {a + 1} and {b + 1} it is {distances[a][b]} and back {distances[b][a]}",
                    where="distance",
                    remedy="a distance is 0 from a value to itself, above 0 to every other, and the same both ways",
                )
    for a in size:
        for b in size:
            for c in size:
                if distances[a][b] > distances[a][c] + distances[c][b]:
                    raise wrong(
                        f"from value {a + 1} to {b + 1} it is longer than by way of {c + 1}",
                        where="distance",
                        remedy="use shortest ways: the budget rests on the triangle inequality",
                    )


def hold_dependent_epsilon(budgets: Sequence[Exact]) -> Exact:
    """Return the loss of a conditioned swap whose kernel depends on the hold value: twice the largest (R6).

    The normaliser then changes from table to table, which costs as much again.
    """
    return 2 * largest(list(budgets)) if budgets else ZERO


# ---- Gibbs weights on permutations (R11) ----------------------------------------------------------------


def gibbs_epsilon(least: Number, most: Number) -> Exact:
    """Return the loss of a law that weighs a permutation by a factor for each moved record (R11).

    The factors lie from ``least`` to ``most`` and depend on the two swap values alone. A condition on the
    numbers of moved records, as appendix C.2 has it, would leave only equal weights.

    >>> gibbs_epsilon("1/4", "1/2"), gibbs_epsilon("1/2", 3)
    (Exact('ln(4)'), Exact('ln(6)'))
    """
    low, high = fraction(least, where="least"), fraction(most, where="most")
    if not 0 <= low <= high:
        raise wrong(f"factors from {low} to {high}", where="factors", remedy="give the smallest first, 0 or more")
    return ln(max(Fraction(1), high) / min(Fraction(1), low)) if low else INFINITE
