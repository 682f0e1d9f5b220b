"""What the family samples follows its exact laws, and near misses are caught. False alarms: 1e-6 for each test."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stirred.mechanisms.records.kernels.counted import swap_counted_in_place
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.redrawn import ConditionedCounting
from stirred.mechanisms.records.kernels.selected import swap_in_place
from stirred.mechanisms.records.laws.mallows import MallowsCounting, MovedCount, mallows_weights
from stirred.mechanisms.records.laws.shuffle import shuffle_weights
from stirred.randomness.entropy import Entropy
from stirred.spec.swap_budget import derangements
from tests.mechanisms.records.kernels.test_counted_kernel import codes, words_of
from tests.mechanisms.records.oracles import selected_counts_law

PValue = Callable[..., float]
FALSE_ALARM = 1e-6
HALF = Fraction(1, 2)

DRAWS = 8_000


def fit(drawn: list[tuple[int, ...]], law: dict[tuple[int, ...], Fraction], p_value: PValue) -> float:
    places = {outcome: number for number, outcome in enumerate(law)}
    observed = np.bincount([places[outcome] for outcome in drawn], minlength=len(law))
    return p_value(observed, list(law.values()))


CONDITIONED = [
    ((2, 1), "1/2", "proportional"),
    ((2, 2), "1/2", "uniform"),
    ((3, 2, 1), "1/5", "uniform"),
    ((4, 1, 1), "3/4", "proportional"),
    ((5, 5), "1/20", "uniform"),
]


def masses_of(counts: tuple[int, ...], law: str) -> list[Fraction]:
    return [Fraction(1, len(counts)) if law == "uniform" else Fraction(c, sum(counts)) for c in counts]


def sampled(counts: tuple[int, ...], rate: Fraction, law: str, *, seed: str) -> list[tuple[int, ...]]:
    words = words_of(seed)
    selected = ConditionedCounting(rate=rate, law=law).of(codes(len(counts)), np.array(counts))
    return [tuple(selected.draw(words).tolist()) for _ in range(DRAWS)]


@pytest.mark.parametrize(("counts", "rate", "law"), CONDITIONED)
def test_selected_counts_follow_their_law(counts: tuple[int, ...], rate: str, law: str, p_value: PValue) -> None:
    q = Fraction(rate)
    exact_law = selected_counts_law(counts, q, masses_of(counts, law))
    assert fit(sampled(counts, q, law, seed=f"law {counts}"), exact_law, p_value) > FALSE_ALARM


@pytest.mark.parametrize(("counts", "rate", "law"), CONDITIONED)
def test_the_unconditioned_selection_and_a_rate_slightly_wrong_are_caught(
    counts: tuple[int, ...], rate: str, law: str, p_value: PValue
) -> None:
    """Power: independent selection at the same rate, and odds wrong by one part in four."""
    q = Fraction(rate)
    exact_law = selected_counts_law(counts, q, masses_of(counts, law))
    rng = np.random.default_rng(7)
    plain = [tuple(row) for row in rng.binomial(counts, float(q), size=(DRAWS, len(counts))).tolist()]
    assert fit(plain, exact_law, p_value) < FALSE_ALARM
    odds = q / (1 - q) * Fraction(5, 4)
    assert fit(sampled(counts, odds / (1 + odds), law, seed="near"), exact_law, p_value) < FALSE_ALARM


@pytest.mark.parametrize(("records", "weight"), [(2, "1/3"), (3, "1/2"), (5, "1/4"), (8, "1/2"), (9, "1/20")])
def test_the_number_moved_follows_its_law_and_a_plain_binomial_does_not(
    records: int, weight: str, p_value: PValue
) -> None:
    theta = Fraction(weight)
    each = mallows_weights(records, theta)
    law: dict[tuple[int, ...], Fraction] = {
        (k,): each[k] * math.comb(records, k) * derangements(k) for k in range(records + 1)
    }
    moved, words = MovedCount(records, theta), words_of(f"moved {records}")
    assert fit([(moved.draw(words),) for _ in range(DRAWS)], law, p_value) > FALSE_ALARM
    mean = float(sum(k * p for (k,), p in law.items())) / records
    plain = np.random.default_rng(1).binomial(records, mean, DRAWS)
    assert fit([(int(k),) for k in plain if law[int(k),]], law, p_value) < FALSE_ALARM


def kernel_tables(swap_values: list[int], run: Callable[[Any, Any, int], object], *, strata: int) -> npt.NDArray[Any]:
    size = len(swap_values)
    stratum = np.tile(np.arange(strata, dtype=np.uint32), size)
    swap = np.repeat(np.array(swap_values, dtype=np.uint32), strata)
    run(stratum, swap, strata)
    return swap.reshape(size, strata).T.astype(np.int64)


def permutation_fit(outcomes: npt.NDArray[Any], each: list[Fraction], p_value: PValue) -> float:
    size = outcomes.shape[1]
    law = {s: each[sum(i != j for i, j in enumerate(s))] for s in permutations(range(size))}
    return fit([tuple(row) for row in outcomes.tolist()], law, p_value)


def test_the_permutations_of_the_mallows_kernel_follow_the_law(p_value: PValue) -> None:
    theta = Fraction(1, 3)

    def run(stratum: Any, swap: Any, strata: int) -> object:
        return swap_counted_in_place(
            stratum,
            swap,
            strata=strata,
            values=4,
            counting=MallowsCounting(theta),
            entropy=Entropy.from_seed("mallows"),
        )

    outcomes = kernel_tables([0, 1, 2, 3], run, strata=60_000)
    assert permutation_fit(outcomes, mallows_weights(4, theta), p_value) > FALSE_ALARM
    assert permutation_fit(outcomes, mallows_weights(4, theta * Fraction(26, 25)), p_value) < FALSE_ALARM
    assert permutation_fit(outcomes, shuffle_weights(4, HALF), p_value) < FALSE_ALARM


def test_the_permutations_of_the_shuffle_kernel_follow_the_law(p_value: PValue) -> None:
    rate = Fraction(2, 5)

    def run(stratum: Any, swap: Any, strata: int) -> object:
        rates = Rates.constant(rate, strata=strata)
        return swap_in_place(stratum, swap, rates=rates, entropy=Entropy.from_seed("shuffle"), derange=False)

    outcomes = kernel_tables([0, 1, 2, 3], run, strata=60_000)
    assert permutation_fit(outcomes, shuffle_weights(4, rate), p_value) > FALSE_ALARM
    assert permutation_fit(outcomes, shuffle_weights(4, rate * Fraction(26, 25)), p_value) < FALSE_ALARM


@pytest.mark.parametrize("law", ["uniform", "proportional"])
def test_the_arrangements_of_the_conditioned_kernel_follow_the_law(law: str, p_value: PValue) -> None:
    """Swap values 0,0,1,2 in one stratum: every arrangement of them, weighed by the redraw kernel."""
    rate, start = Fraction(1, 3), [0, 0, 1, 2]
    masses = masses_of((2, 1, 1), law)
    weights: dict[tuple[int, ...], Fraction] = {}
    for arranged in {*permutations(start)}:
        chances = ((1 - rate) * (a == b) + rate * masses[b] for a, b in zip(start, arranged, strict=True))
        weights[arranged] = math.prod(chances, start=Fraction(1))
    total = sum(weights.values())

    def run(stratum: Any, swap: Any, strata: int) -> object:
        counting = ConditionedCounting(rate=rate, law=law)
        return swap_counted_in_place(
            stratum, swap, strata=strata, values=3, counting=counting, entropy=Entropy.from_seed(law)
        )

    outcomes = [tuple(row) for row in kernel_tables(start, run, strata=8_000).tolist()]
    assert fit(outcomes, {a: w / total for a, w in weights.items()}, p_value) > FALSE_ALARM
