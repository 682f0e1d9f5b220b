"""Closed moments of the Mallows and the shuffle swap equal enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from stirred.inference.swap_moments import Laws
from stirred.mechanisms.records.laws.mallows import mallows_moved, mallows_weights
from stirred.mechanisms.records.laws.shuffle import shuffle_moved, shuffle_weights
from stirred.mechanisms.registry import mechanism_class
from stirred.spec.swap_budget import derangements
from tests.mechanisms.records.oracles import exact_kernel

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
    _, weights = MOVED[name]
    n, (member, rate) = sum(hold), name.split()
    family = mechanism_class(f"{member}-swap").family
    assert family is not None
    laws = Laws.of([n], [rate], moved=family.moved)
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
