"""The exact law of the conditioned swap on small strata, and where its records go (swapping theory R6, R18)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import lru_cache

from stirred.mechanisms.swapping.laws.counting import (
    Margins,
    Table,
    UniverseExact,
    all_tables,
    exact_loss_of_kernel,
    up_to_symmetry,
)
from stirred.mechanisms.swapping.permutation.law import permutation_law
from stirred.spec.law import Law
from stirred.spec.problems import wrong

Kernel = Sequence[Sequence[Fraction]]


Record = tuple[Hashable, Hashable]


class ConditionedKernel:
    """The law of the table when each record draws by a kernel R, given that the swap margin comes out right.

    The records of hold value h turn the row x_h into t_h with weight [z^t_h] prod over s of
    (sum over s' of R(s,s') z_s')^x_hs; rows are independent but for the margin, so the probability is the
    product over rows, divided by the same for the whole stratum as one row.
    """

    def __init__(self, swap: Margins, kernel: Kernel) -> None:
        self._kernel = kernel
        self._swap = tuple(swap)
        self._row: Callable[[tuple[int, ...]], dict[tuple[int, ...], Fraction]] = lru_cache(None)(self._row_law)
        self._total = self._row(self._swap)[self._swap]
        self._denominator = math.lcm(*(w.denominator for row in kernel for w in row)) ** sum(swap)

    def _row_law(self, row: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        reached = {(0,) * len(row): Fraction(1)}
        for source, count in enumerate(row):
            for _ in range(count):
                step: dict[tuple[int, ...], Fraction] = {}
                for counts, weight in reached.items():
                    for to, chance in enumerate(self._kernel[source]):
                        if chance and counts[to] < self._swap[to]:
                            after = (*counts[:to], counts[to] + 1, *counts[to + 1 :])
                            step[after] = step.get(after, Fraction(0)) + weight * chance
                reached = step
        return reached

    def probability(self, x: Table, t: Table) -> Fraction:
        """Return the probability of t from x."""
        return self._weight(x, t) / self._total

    def _weight(self, x: Table, t: Table) -> Fraction:
        rows = zip(x, t, strict=True)
        return math.prod((self._row(a).get(b, Fraction(0)) for a, b in rows), start=Fraction(1))

    def scaled(self, x: Table, t: Table) -> int:
        """Return the weight as an integer: over one denominator for all tables of the stratum."""
        return int(self._weight(x, t) * self._denominator)


def conditioned_law(records: Sequence[Record], weight: Callable[[Record, Hashable], Fraction]) -> Law:
    """Return the law of the released multiset, by enumeration: weight(record, value) for each record and new value.

    >>> law = conditioned_law([("a", "x"), ("b", "y")], lambda r, s: Fraction(1) if r[1] == s else Fraction(1, 3))
    >>> law[(("a", "x"), ("b", "y"))]
    Fraction(9, 10)
    """
    return permutation_law(
        records,
        lambda sigma: math.prod((weight(records[i], records[j][1]) for i, j in enumerate(sigma)), start=Fraction(1)),
    )


def exact_loss_of_conditioned(hold: Margins, swap: Margins, kernel: Kernel) -> UniverseExact:
    """Return the exact loss of the conditioned swap with any kernel on the swap values, with its witness.

    >>> third = Fraction(1, 3)
    >>> exact_loss_of_conditioned((1, 1), (1, 1), [[1, third], [third, 1]]).loss
    Exact('ln(3)')
    """
    tables = all_tables(hold, swap)
    if len(kernel) != len(swap):
        raise wrong(
            f"a kernel of {len(kernel)} values for {len(swap)} swap values",
            where="kernel",
            remedy="give one row and one column for each swap value",
        )
    outputs = up_to_symmetry(tables, hold, swap) if _symmetric(kernel, swap) else tables
    return exact_loss_of_kernel(tables, outputs, ConditionedKernel(swap, kernel))


def _symmetric(kernel: Kernel, swap: Margins) -> bool:
    """Say whether exchanging two values of equal count leaves the kernel as it is."""
    size = range(len(swap))
    for a in size:
        for b in range(a):
            if swap[a] == swap[b]:
                turned = [b if i == a else a if i == b else i for i in size]
                if any(kernel[turned[i]][turned[j]] != kernel[i][j] for i in size for j in size):
                    return False
    return True
