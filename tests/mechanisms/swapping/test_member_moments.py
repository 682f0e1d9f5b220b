"""Closed moments of the members equal enumeration, and undoing a swap is unbiased."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from stirred.data.synth.massachusetts import TABLE_1
from stirred.mechanisms.swapping.counting import all_tables, exact_kernel
from stirred.mechanisms.swapping.family_law import ConditionedKernel, mallows_weights, shuffle_weights
from stirred.mechanisms.swapping.member_moments import (
    exact_moves,
    expected_moves,
    mallows_moved,
    shuffle_moved,
    unmove,
)
from stirred.mechanisms.swapping.moments import Laws
from stirred.spec.family_budget import redraw_kernel
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import derangements

MOVED = {
    "mallows 1/3": (lambda n: mallows_moved(n, Fraction(1, 3)), lambda n: mallows_weights(n, Fraction(1, 3))),
    "mallows 1": (lambda n: mallows_moved(n, Fraction(1)), lambda n: mallows_weights(n, Fraction(1))),
    "shuffle 2/5": (lambda n: shuffle_moved(n, Fraction(2, 5)), lambda n: shuffle_weights(n, Fraction(2, 5))),
    "shuffle 1": (lambda n: shuffle_moved(n, Fraction(1)), lambda n: shuffle_weights(n, Fraction(1))),
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("n", [2, 3, 5, 9, 30])
def test_the_number_moved_is_that_of_the_exact_weights(name: str, n: int) -> None:
    moved, weights = MOVED[name]
    k, chance = moved(n)
    exact = weights(n)
    found = dict(zip(k.astype(int).tolist(), chance.tolist(), strict=True))
    for number in range(n + 1):
        wanted = float(exact[number] * math.comb(n, number) * derangements(number))
        assert found.get(number, 0.0) == pytest.approx(wanted, abs=1e-14, rel=1e-10)


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize(
    ("hold", "swap"), [((2, 2), (2, 2)), ((3, 1), (2, 1, 1)), ((2, 1), (2, 1)), ((3, 2), (2, 2, 1))]
)
def test_mean_and_variance_of_every_cell_are_those_of_the_law(
    name: str, hold: tuple[int, ...], swap: tuple[int, ...]
) -> None:
    moved, weights = MOVED[name]
    n = sum(hold)
    laws = Laws.by_number_moved([n], moved)
    kernel = exact_kernel(hold, swap, weights(n))
    for x, law in kernel.items():
        for h in range(len(hold)):
            for s in range(len(swap)):
                mean = sum(p * t[h][s] for t, p in law.probabilities.items())  # type: ignore[index]
                square = sum(p * t[h][s] ** 2 for t, p in law.probabilities.items())  # type: ignore[index]
                cell, row, column = (np.array([float(v)]) for v in (x[h][s], hold[h], swap[s]))
                found = laws.moments(cell=cell, cell_squares=cell, hold=row, hold_squares=row, swap=column)
                assert found[0][0] == pytest.approx(float(mean))
                assert found[1][0] == pytest.approx(float(square - mean**2), abs=1e-12)


def test_the_mallows_rate_of_a_thousand_records() -> None:
    """R5: to move one record in twenty of a thousand takes epsilon 6.8608."""
    k, chance = mallows_moved(1000, Fraction(math.exp(-6.8608)))
    assert float(k @ chance) / 1000 == pytest.approx(0.05, abs=5e-5)


@pytest.mark.parametrize("rate", ["1/20", "1/2", "9/10", "0", "1"])
@pytest.mark.parametrize("counts", [(2, 1), (2, 2, 1), (5, 1, 1, 3)])
def test_expected_moves_equal_those_by_listing(counts: tuple[int, ...], rate: str) -> None:
    for masses in ([Fraction(1, len(counts))] * len(counts), [Fraction(c, sum(counts)) for c in counts]):
        exact = np.array(exact_moves(counts, Fraction(rate), masses), dtype=float)
        found = expected_moves(counts, Fraction(rate), masses)
        assert np.allclose(found, exact, atol=1e-9)
        assert np.allclose(found.sum(axis=1), 1, atol=1e-9)
        assert np.allclose(np.array(counts) @ found, counts, atol=1e-8), "the swap margin is invariant"


def test_expected_moves_of_a_large_stratum_keep_its_margin() -> None:
    counts = np.array([1_000, 20_000, 60_000, 183_331])
    moves = expected_moves(counts.tolist(), Fraction(1, 10), [Fraction(1, 4)] * 4)
    assert np.allclose(moves.sum(axis=1), 1, atol=1e-9)
    assert np.allclose(counts @ moves, counts, rtol=1e-9)
    assert moves[0, 0] < moves[3, 3], "small areas change more under the uniform law"


def test_undoing_the_conditioned_swap_is_unbiased() -> None:
    hold, swap, rate = (3, 2), (2, 2, 1), Fraction(1, 2)
    masses = [Fraction(c, 5) for c in swap]
    moves = np.array(exact_moves(swap, rate, masses), dtype=float)
    tables, kernel = all_tables(hold, swap), ConditionedKernel(swap, redraw_kernel(rate, masses))
    for x in tables:
        mean = sum(float(kernel.probability(x, t)) * unmove(np.array(t, dtype=float), moves) for t in tables)
        assert np.allclose(mean, x)


def test_what_cannot_be_undone_is_refused() -> None:
    with pytest.raises(StirredError, match="nothing can be estimated back"):
        unmove(np.ones((1, 2)), np.full((2, 2), 0.5))


@pytest.mark.parametrize(("p", "epsilon"), [("1/20", 5.32), ("1/2", 2.34)])
def test_the_uniform_law_on_the_counties_of_massachusetts(p: str, epsilon: float) -> None:
    """R6, as one stratum: at the share of changed counties of permutation swapping; what it costs in Nantucket."""
    counties = np.array([owned + rented for _, owned, rented in TABLE_1])
    shares = counties / counties.sum()
    changed = float(Fraction(p)) * (1 - float(shares @ shares))
    odds = Fraction(14) / Fraction(math.exp(epsilon) - 1)
    moves = expected_moves(counties.tolist(), odds / (1 + odds), [Fraction(1, 14)] * 14)
    assert 1 - float(shares @ np.diag(moves)) == pytest.approx(changed, rel=0.01)
    if p == "1/2":
        nantucket = [name for name, _, _ in TABLE_1].index("Nantucket")
        assert 1 - moves[nantucket, nantucket] == pytest.approx(0.98, abs=0.005)
