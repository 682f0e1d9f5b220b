"""Exact laws on small strata by enumeration of all permutations: any, and those of permutation swapping (R8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from itertools import permutations

from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.swap_budget import derangements


def class_law(records: Sequence[tuple[Hashable, Hashable]], weights: Sequence[Fraction]) -> Law:
    """Return the law of any swap that gives each permutation moving k records the probability ``weights[k]``."""
    return permutation_law(records, lambda sigma: weights[sum(i != j for i, j in enumerate(sigma))])


def permutation_law(records: Sequence[tuple[Hashable, Hashable]], chance: Callable[[tuple[int, ...]], Fraction]) -> Law:
    """Return the law of the released multiset when record i gets the swap value of record sigma[i].

    ``chance`` is proportional to the probability of sigma.
    """
    outcomes: dict[Hashable, Fraction] = {}
    for sigma in permutations(range(len(records))):
        table = tuple(sorted((records[i][0], records[j][1]) for i, j in enumerate(sigma)))
        outcomes[table] = outcomes.get(table, Fraction(0)) + chance(sigma)
    total = sum(outcomes.values())
    return Law({table: p / total for table, p in outcomes.items()})


def tables_with_margins(hold: Sequence[str], swap: str) -> list[Hashable]:
    """Return every multiset of (hold, swap) pairs with the given hold and swap values.

    >>> len(tables_with_margins("ab", "xy"))
    2
    """
    tables = {tuple(sorted(zip(hold, order, strict=True))) for order in permutations(swap)}
    return [*sorted(tables)]


Record = tuple[Hashable, Hashable]


def psa_weights(n: int, rate: Fraction) -> list[Fraction]:
    """Return the probability of *each* permutation that moves exactly k of n records, for k = 0..n.

    u_k = p^k (1-p)^(n-k) / (d(k) (1 - n p (1-p)^(n-1))), and 0 for k = 1, which is drawn again.

    >>> psa_weights(2, Fraction(1, 2))
    [Fraction(1, 2), Fraction(0, 1), Fraction(1, 2)]
    """
    if n < 2:
        return [Fraction(1)] + [Fraction(0)] * n
    kept = 1 - n * rate * (1 - rate) ** (n - 1)
    return [Fraction(0) if k == 1 else rate**k * (1 - rate) ** (n - k) / (derangements(k) * kept) for k in range(n + 1)]


def psa_law(records: Sequence[Record], *, rate: Fraction) -> Law:
    """Return the law of the released multiset of (hold, swap) pairs, for the records of one stratum.

    >>> law = psa_law([("a", "x"), ("b", "y")], rate=Fraction(1, 4))
    >>> law[(("a", "y"), ("b", "x"))]
    Fraction(1, 10)
    """
    return class_law(records, psa_weights(len(records), rate))


def varying_rate_law(records: Sequence[Record], rate: Callable[[Record], Fraction]) -> Law:
    """Return the law of permutation swapping when record i is selected with probability ``rate(record)``.

    The selection is drawn again where exactly one record is selected; the derangement is uniform.

    >>> law = varying_rate_law([("a", "x"), ("b", "y")], lambda record: Fraction(1, 2 if record[0] == "a" else 4))
    >>> law[(("a", "y"), ("b", "x"))]
    Fraction(1, 4)
    """
    rates = [probability(rate(record), where="rate") for record in records]

    def chance(sigma: tuple[int, ...]) -> Fraction:
        moved = [i != j for i, j in enumerate(sigma)]
        selected = math.prod((p if m else 1 - p for p, m in zip(rates, moved, strict=True)), start=Fraction(1))
        return selected / derangements(sum(moved))

    return permutation_law(records, chance)
