"""Slow and obvious: what exact laws of swaps are held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations, product
from typing import Any

from stirred.mechanisms.records.law import File, class_law
from stirred.mechanisms.records.laws.counting import Margins, Table, _Kernel, all_tables, psa_weights
from stirred.mechanisms.records.strata import Strata, StratumRow
from stirred.spec.exact import INFINITE, ZERO, Exact, exact, ln
from stirred.spec.law import Law, likelihood_pairs


def files(match: Sequence[Any], hold: Sequence[Any], swap: Sequence[Any]) -> list[File]:
    """Return every file in which the records (match, hold) get the swap values in some order.

    >>> len(files((0, 0, 1), "abc", "xyz"))
    6
    """
    return sorted({tuple(sorted(zip(match, hold, order, strict=True))) for order in permutations(swap)})


def loss_of_laws(laws: Mapping[Any, Law], *, distance: Callable[[Any, Any], int] | None = None) -> Exact:
    """Return the largest ln(P_x(t)/P_y(t)) per unit of distance over all pairs of files and all outputs.

    The distance is the number of records that must change (d_HamS), unless another is given.
    """
    apart = distance or records_apart
    worst = ZERO
    for x, y in permutations(laws, 2):
        pairs = likelihood_pairs(laws[x], laws[y])
        if any(p and not q for p, q in pairs):
            return INFINITE
        ratio = max(p / q for p, q in pairs if q)
        if ratio > 1:
            worst = max(worst, ln(ratio) / exact(apart(x, y)))
    return worst


def records_apart(x: File, y: File) -> int:
    """Return the number of records that must change to turn one file into the other."""
    left = list(x)
    for row in y:
        if row in left:
            left.remove(row)
    return len(left)


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


def exact_moves(counts: Sequence[int], rate: Fraction, masses: Sequence[Fraction]) -> list[list[Fraction]]:
    """Return Phi exactly, by listing all selected counts: the chance that a record of value a gets value b.

    >>> tuple(map(str, exact_moves((2, 2, 1), Fraction(1, 2), [Fraction(2, 5), Fraction(2, 5), Fraction(1, 5)])[2]))
    ('134/1335', '134/1335', '1067/1335')
    """
    size = range(len(counts))
    phi = [[Fraction(int(a == b)) for b in size] for a in size]
    for chosen, p in selected_counts_law(counts, rate, masses).items():
        k = sum(chosen)
        for a in size:
            for b in size:
                if k:
                    phi[a][b] += p * Fraction(chosen[a], counts[a]) * (Fraction(chosen[b], k) - int(a == b))
    return phi


def permutations_by_moved(x: Table, t: Table) -> list[int]:
    """Return, for k = 0..n, how many permutations of the records move exactly k and turn x into t (R0).

    >>> permutations_by_moved(((1, 0), (0, 1)), ((0, 1), (1, 0)))
    [0, 0, 1]
    """
    n = sum(map(sum, x))
    staying = [0] * (n + 1)
    columns = [sum(column) for column in zip(*x, strict=True)]
    for f, weight in _choices(x, t):
        left = [a - sum(b) for a, b in zip(columns, zip(*f, strict=True), strict=True)]
        staying[sum(map(sum, f))] += weight * math.prod(map(math.factorial, left))
    scale = math.prod(math.factorial(cell) for row in t for cell in row)
    moved = []
    for k in range(n + 1):
        total = sum((-1) ** (i - n + k) * math.comb(i, n - k) * staying[i] for i in range(n - k, n + 1))
        moved.append(total // scale)
    return moved


def _choices(x: Table, t: Table) -> Iterator[tuple[Table, int]]:
    """Yield every choice f of records that stay, with prod C(x,f) C(t,f) f! prod r'!."""
    shape = [len(row) for row in x]
    cells = [(a, b) for row, other in zip(x, t, strict=True) for a, b in zip(row, other, strict=True)]
    for flat in product(*(range(min(pair) + 1) for pair in cells)):
        weight = math.prod(
            math.comb(a, f) * math.comb(b, f) * math.factorial(f) for (a, b), f in zip(cells, flat, strict=True)
        )
        numbers = iter(flat)
        f = tuple(tuple(next(numbers) for _ in range(length)) for length in shape)
        left = (sum(row) - sum(stay) for row, stay in zip(x, f, strict=True))
        yield f, weight * math.prod(map(math.factorial, left))


def exact_kernel(hold: Margins, swap: Margins, weights: Sequence[Fraction]) -> dict[Table, Law]:
    """Return the law of the released table for every table with these margins.

    ``weights[k]`` is the probability of each single permutation that moves k records.
    """
    tables = all_tables(hold, swap)
    kernel = _Kernel(hold, swap, weights)
    return {x: Law({t: kernel.probability(x, t) for t in tables}) for x in tables}


def shrinkage(stratum: int, rate: Fraction) -> Fraction:
    """Return lambda exactly: the share of a cell's distance from independence that swapping keeps.

    ``1 - p~ n/(n-1)``, where p~ is the chance that a record moves, the redraw included (swapping theory R3.1).
    Its digits grow with the stratum: meant for small ones, :class:`Laws` has it in floating point for all.

    >>> shrinkage(4, Fraction(1, 2)), shrinkage(2, Fraction(1, 2)), shrinkage(2, Fraction(1))
    (Fraction(2, 9), Fraction(0, 1), Fraction(-1, 1))
    """
    n, p = stratum, Fraction(rate)
    if n < 2:
        return Fraction(1)
    stay = (1 - p) ** (n - 1)
    return 1 - p * (1 - stay) / (1 - n * p * stay) * Fraction(n, n - 1)


def strata_rows(strata: Strata) -> list[StratumRow]:
    """Return every stratum as a row: for small files."""
    return [strata[number] for number in range(strata.count)]


def psa_law(records: Sequence[tuple[Hashable, Hashable]], *, rate: Fraction) -> Law:
    """Return the law of the released multiset of (hold, swap) pairs, for the records of one stratum.

    >>> law = psa_law([("a", "x"), ("b", "y")], rate=Fraction(1, 4))
    >>> law[(("a", "y"), ("b", "x"))]
    Fraction(1, 10)
    """
    return class_law(records, psa_weights(len(records), rate))
