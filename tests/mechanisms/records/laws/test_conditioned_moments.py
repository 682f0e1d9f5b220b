"""Moments of the conditioned swap (R6, R18): equal to enumeration where that is possible, exact where it is known."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stirred.data.synth.massachusetts import TABLE_1
from stirred.inference.redrawn_moments import second_moments
from stirred.mechanisms.records.laws.conditioned import (
    ConditionedKernel,
    away_from_margins,
    redraw_kernel,
    redrawn_counts,
)
from stirred.mechanisms.records.laws.counting import all_tables
from tests.mechanisms.records.oracles import exact_moves

Masses = list[Fraction]


def laws(counts: tuple[int, ...]) -> list[Masses]:
    """Uniform, by size, and a declared one that leaves some mass to values that do not occur."""
    size = len(counts)
    declared = [Fraction(place + 1, size * (size + 2)) for place in range(size)]
    return [[Fraction(1, size)] * size, [Fraction(c, sum(counts)) for c in counts], declared]


UNIVERSES = [
    ((3, 2), (2, 2, 1)), ((2, 2), (2, 2)), ((2, 1, 1), (1, 1, 1, 1)), ((3, 3), (1, 2, 3)), ((2, 2, 1), (4, 1)),
]  # fmt: skip


def test_t37_the_last_row_of_phi() -> None:
    masses = [Fraction(2, 5), Fraction(2, 5), Fraction(1, 5)]
    exact = [Fraction(134, 1335), Fraction(134, 1335), Fraction(1067, 1335)]
    assert exact_moves((2, 2, 1), Fraction(1, 2), masses)[2] == exact
    found = redrawn_counts((2, 2, 1), Fraction(1, 2), masses).moves[2]
    assert found == pytest.approx([float(x) for x in exact], abs=1e-14)


@pytest.mark.parametrize(("hold", "swap"), UNIVERSES)
@pytest.mark.parametrize("rate", ["1/20", "1/2", "99/100", "1", "0"])
def test_means_and_second_moments_of_every_table_of_a_universe(
    hold: tuple[int, ...], swap: tuple[int, ...], rate: str
) -> None:
    """In exact fractions by the kernel against the sums over u, for all cells and all pairs of cells of a row."""
    size = len(swap)
    every = np.eye(size)
    pairs = np.array([every[a] + every[b] for a in range(size) for b in range(a + 1, size)]).reshape(-1, size).T
    weights = np.hstack([every, pairs])
    tables = all_tables(hold, swap)
    released = np.array(tables, dtype=float)
    for masses in laws(swap):
        found = redrawn_counts(swap, Fraction(rate), masses)
        # At rate 0 nothing moves, and the kernel would have weights of 0.
        kernel = None if rate == "0" else ConditionedKernel(swap, redraw_kernel(Fraction(rate), masses))
        for x in tables:
            chance = [float(t == x) if kernel is None else float(kernel.probability(x, t)) for t in tables]
            row = np.array(x, dtype=float)
            assert np.allclose(row @ found.moves, np.tensordot(chance, released, 1), atol=1e-12)
            second = np.tensordot(chance, (released @ weights) ** 2, 1)
            assert np.allclose(second_moments(found, row, row, weights), second, atol=1e-11)


def test_the_second_moments_notice_a_slightly_different_law() -> None:
    """The power of the check above: one percent more selected changes them by far more than it allows."""
    masses = laws((2, 2, 1))[1]
    one, other = (redrawn_counts((2, 2, 1), Fraction(rate), masses) for rate in ("50/100", "51/100"))
    rows = np.array([[2.0, 1.0, 0.0]])
    assert (
        np.abs(second_moments(one, rows, rows, np.eye(3)) - second_moments(other, rows, rows, np.eye(3))).max() > 1e-3
    )


def slow(value: Any) -> Any:
    """A value between others."""
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.parametrize("rate", ["1/1000", slow("1/50"), "1/2", slow("19/20"), "999/1000"])
@pytest.mark.parametrize("counts", [(10, 20, 30), (1, 59), (1, 60), slow((30, 40, 50)), (1, 1, 120), (100, 50, 3)])
def test_phi_is_that_of_exact_generating_functions_up_to_some_hundred_records(
    counts: tuple[int, ...], rate: str
) -> None:
    for masses in laws(counts)[:2]:
        found = redrawn_counts(counts, Fraction(rate), masses)
        assert np.abs(found.moves - by_generating_functions(counts, Fraction(rate), masses)).max() < 2e-11
        assert away_from_margins(found) < 2e-11


def by_generating_functions(counts: tuple[int, ...], rate: Fraction, masses: Masses) -> np.ndarray:
    """Phi by multiplying polynomials in exact fractions: E[g_a g_b / k] weighs the k-th coefficient by (k-1)!."""
    odds, size = rate / (1 - rate), len(counts)

    def series(powers: dict[int, int]) -> list[Fraction]:
        result = [Fraction(1)]
        for s, (count, mass) in enumerate(zip(counts, masses, strict=True)):
            terms = [
                math.comb(count, g) * (odds * mass) ** g / math.factorial(g) * Fraction(g) ** powers.get(s, 0)
                for g in range(count + 1)
            ]
            result = times(result, terms)
        return result

    def weighed(powers: dict[int, int], *, divide: bool = False) -> Fraction:
        coefficients = enumerate(series(powers))
        return sum((x * math.factorial(k) / (k or 1 if divide else 1) for k, x in coefficients), Fraction(0))

    total, phi = weighed({}), np.zeros((size, size))
    for a in range(size):
        for b in range(size):
            moved = weighed({a: 2} if a == b else {a: 1, b: 1}, divide=True) / total
            stay = counts[a] - weighed({a: 1}) / total if a == b else 0
            phi[a, b] = float((stay + moved) / counts[a])
    return phi


def times(one: list[Fraction], other: list[Fraction]) -> list[Fraction]:
    common = math.lcm(*(x.denominator for x in (*one, *other)))
    left, right = ([int(x * common) for x in each] for each in (one, other))
    result = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            result[i + j] += a * b
    return [Fraction(x, common * common) for x in result]


COUNTIES = tuple(owned + rented for _, owned, rented in TABLE_1)


@pytest.mark.parametrize(
    "counts", [COUNTIES, (1_000, 1), (61, 1, 2, 500, 3), tuple(1 + 37 * k % 91 for k in range(351))]
)
@pytest.mark.parametrize("rate", ["1/1000", "1/10", "1/2", "9/10"])
def test_where_the_answer_is_known_large_strata_have_it(counts: tuple[int, ...], rate: str) -> None:
    """A row of all records is the margin, which does not move: its variance is 0, whatever is weighed."""
    weights = np.cos(np.outer(np.arange(len(counts)), [1.0, 2.0, 3.0]))
    row = np.array([counts], dtype=float)
    for masses in laws(counts)[:2]:
        found = redrawn_counts(counts, Fraction(rate), masses)
        assert away_from_margins(found) < 1e-11
        centred = weights - row @ weights / row.sum()
        # The row is independent of the swap, so its weighted sum is 0 and the second moment is the variance.
        assert np.abs(second_moments(found, row, row, centred)).max() < 1e-7 * row.sum()
        assert found.stay.min() > 0


@pytest.mark.parametrize(("p", "epsilon"), [("1/20", 5.32), ("1/2", 2.34)])
def test_the_uniform_law_on_the_counties_of_massachusetts(p: str, epsilon: float) -> None:
    """R6, as one stratum: at the share of changed counties of permutation swapping; what it costs in Nantucket."""
    counties = np.array(COUNTIES)
    shares = counties / counties.sum()
    changed = float(Fraction(p)) * (1 - float(shares @ shares))
    odds = Fraction(14) / Fraction(math.exp(epsilon) - 1)
    moves = redrawn_counts(COUNTIES, odds / (1 + odds), [Fraction(1, 14)] * 14).moves
    assert 1 - float(shares @ np.diag(moves)) == pytest.approx(changed, rel=0.01)
    if p == "1/2":
        nantucket = [name for name, _, _ in TABLE_1].index("Nantucket")
        assert 1 - moves[nantucket, nantucket] == pytest.approx(0.98, abs=0.005)
