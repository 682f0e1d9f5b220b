"""The exact laws of the swapping family on small strata (swapping theory R5 to R8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product

from stirred.mechanisms.swapping.laws.counting import (
    Margins,
    Table,
    UniverseExact,
    all_tables,
    exact_loss_of_kernel,
    up_to_symmetry,
)
from stirred.mechanisms.swapping.laws.permutation import permutation_law
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.problems import wrong
from stirred.spec.swap_budget import derangements

Kernel = Sequence[Sequence[Fraction]]
Record = tuple[Hashable, Hashable]


# ---- swaps that look at the number of moved records only ------------------------------------------------


def mallows_weights(n: int, weight: Fraction) -> list[Fraction]:
    """Return the probability of each permutation that moves exactly k of n records: weight^k, normalised (R5).

    >>> mallows_weights(4, Fraction(1, 3))[2:]
    [Fraction(3, 56), Fraction(1, 56), Fraction(1, 168)]
    """
    total = sum((math.comb(n, k) * derangements(k) * weight**k for k in range(n + 1)), Fraction(0))
    return [weight**k / total if derangements(k) else Fraction(0) for k in range(n + 1)]


def shuffle_weights(n: int, rate: Fraction) -> list[Fraction]:
    """Return the same for independent selection and a uniform permutation of the selected (R7).

    A permutation moving k records comes from every selection of m records that contains them.

    >>> shuffle_weights(2, Fraction(1, 2))
    [Fraction(7, 8), Fraction(0, 1), Fraction(1, 8)]
    """
    by_size = [rate**m * (1 - rate) ** (n - m) / math.factorial(m) for m in range(n + 1)]
    return [
        sum((math.comb(n - k, m - k) * by_size[m] for m in range(k, n + 1)), Fraction(0)) if k != 1 else Fraction(0)
        for k in range(n + 1)
    ]


# ---- the conditioned swap (R6) --------------------------------------------------------------------------


def selected_counts_law(counts: Margins, rate: Fraction, masses: Sequence[Fraction]) -> dict[tuple[int, ...], Fraction]:
    """Return the law of how many records of each swap value the conditioned swap selects (R6).

    Proportional to k! times the product of C(c,g) (o pi)^g / g!, where k is the sum of the g.

    >>> law = selected_counts_law((2, 1), Fraction(1, 2), [Fraction(2, 3), Fraction(1, 3)])
    >>> [str(sum(p for g, p in law.items() if sum(g) == k)) for k in range(4)]
    ['9/40', '3/8', '3/10', '1/10']
    """
    if rate == 1:
        return {tuple(counts): Fraction(1)}
    odds = rate / (1 - rate)
    weights = {
        g: math.factorial(sum(g))
        * math.prod(
            math.comb(c, one) * (odds * mass) ** one / math.factorial(one)
            for c, one, mass in zip(counts, g, masses, strict=True)
        )
        for g in product(*(range(c + 1) for c in counts))
    }
    total = sum(weights.values())
    return {g: Fraction(weight) / total for g, weight in weights.items()}


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


# ---- rates that vary inside a stratum (R8) --------------------------------------------------------------


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
