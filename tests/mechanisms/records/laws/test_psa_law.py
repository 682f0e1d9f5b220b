"""The kernel samples the law of Algorithm 1, and samplers that nearly do are caught.

One stratum of n records is repeated as many distinct strata of one file, so that a single call gives
many independent outcomes. Their frequencies are compared with the exact law by Pearson's test.
False-alarm rate: 1e-6 for each comparison, over a random seed.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest

from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.selected import swap_in_place
from stirred.randomness import Entropy, derangement_number

STRATA = 250_000
FALSE_ALARM = 1e-6
Outcomes = npt.NDArray[np.int64]
PValue = Callable[..., float]


def permutation_law(size: int, rate: Fraction) -> dict[tuple[int, ...], Fraction]:
    """The exact law of sigma (swapping theory, section 0).

    u_k = p^k (1-p)^(n-k) / (d(k) (1 - n p (1-p)^(n-1))) for a permutation that moves k records.
    """
    not_one = 1 - size * rate * (1 - rate) ** (size - 1)
    law = {}
    for sigma in permutations(range(size)):
        moved = sum(source != place for place, source in enumerate(sigma))
        chance = rate**moved * (1 - rate) ** (size - moved)
        law[sigma] = chance / (derangement_number(moved) * not_one)
    return law


def law_by_brute_force(size: int, rate: Fraction) -> dict[tuple[int, ...], Fraction]:
    """The same law from Algorithm 1 itself: subsets, conditioned on not one, and their derangements."""
    law = dict.fromkeys(permutations(range(size)), Fraction(0))
    kept = Fraction(0)
    for subset in range(2**size):
        selected = [place for place in range(size) if subset >> place & 1]
        chance = rate ** len(selected) * (1 - rate) ** (size - len(selected))
        if len(selected) == 1:
            continue
        kept += chance
        moves = [s for s in permutations(selected) if all(a != b for a, b in zip(s, selected, strict=True))]
        for move in moves:
            sigma = list(range(size))
            for place, source in zip(selected, move, strict=True):
                sigma[place] = source
            law[tuple(sigma)] += chance / len(moves)
    return {sigma: chance / kept for sigma, chance in law.items()}


def kernel_outcomes(size: int, rates: Rates, *, seed: str) -> Outcomes:
    """One permutation for each stratum: which record's value every record received."""
    # Records of a stratum lie far apart in the file: stratum 0, 1, 2, ..., 0, 1, 2, ...
    stratum = np.tile(np.arange(rates.strata, dtype=np.uint32), size)
    swap = np.repeat(np.arange(size, dtype=np.uint32), rates.strata)
    tally = swap_in_place(stratum, swap, rates=rates, entropy=Entropy.from_seed(seed))
    outcomes = swap.reshape(size, rates.strata).T.astype(np.int64)
    assert tally == np.count_nonzero(outcomes != np.arange(size))
    return outcomes


def simulated_outcomes(size: int, rate: Fraction, *, derange: bool = True, redraw: bool = True) -> Outcomes:
    """An independent sampler in numpy, right by default and wrong on request."""
    rng = np.random.default_rng(20)
    selected = rng.random((STRATA, size)) < float(rate)
    while redraw and (one := selected.sum(axis=1) == 1).any():
        selected[one] = rng.random((int(one.sum()), size)) < float(rate)
    selected[selected.sum(axis=1) == 1] = False
    outcomes = np.tile(np.arange(size), (STRATA, 1))
    todo = np.arange(STRATA)
    while todo.size:
        # The j-th selected place receives the j-th of the selected places in random order.
        chosen = selected[todo]
        places = np.argsort(np.where(chosen, np.arange(size), size), axis=1)
        sources = np.argsort(np.where(chosen, rng.random(chosen.shape), 2.0), axis=1)
        number, rank = np.nonzero(np.arange(size) < chosen.sum(axis=1)[:, None])
        outcomes[todo[number], places[number, rank]] = sources[number, rank]
        fixed = (selected[todo] & (outcomes[todo] == np.arange(size))).any(axis=1)
        todo = todo[fixed] if derange else todo[:0]
    return outcomes


def fit(outcomes: Outcomes, law: dict[tuple[int, ...], Fraction], p_value: PValue) -> float:
    size = outcomes.shape[1]
    weights = size ** np.arange(size)
    counts = np.bincount(outcomes @ weights, minlength=size**size)
    observed = counts[[int(np.dot(weights, sigma)) for sigma in law]]
    assert observed.sum() == len(outcomes), "an outcome is not a permutation"
    return p_value(observed, list(law.values()))


CASES = [
    (size, Fraction(rate))
    for size in (2, 3, 4, 5)
    for rate in ("1/20", "3/10", "1/2", "2/3", "19/20", "123456789/1000000007")
]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 2), Fraction(7, 9)])
def test_the_closed_law_is_that_of_algorithm_1(size: int, rate: Fraction) -> None:
    law = permutation_law(size, rate)
    assert law == law_by_brute_force(size, rate)
    assert sum(law.values()) == 1


@pytest.mark.parametrize(("size", "rate"), CASES)
def test_the_kernel_samples_the_law(size: int, rate: Fraction, p_value: PValue) -> None:
    rates = Rates.constant(rate, strata=STRATA)
    outcomes = kernel_outcomes(size, rates, seed=f"law {size} {rate}")
    assert fit(outcomes, permutation_law(size, rate), p_value) > FALSE_ALARM


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_stratum_follows_its_own_rate(size: int, p_value: PValue) -> None:
    rates = [Fraction(1, 3), Fraction(4, 5), Fraction(0), Fraction(1)]
    by_stratum = Rates(values=tuple(rates), index=np.arange(4 * STRATA, dtype=np.uint32) % 4, strata=4 * STRATA)
    outcomes = kernel_outcomes(size, by_stratum, seed="own rate")
    for number, rate in enumerate(rates):
        assert fit(outcomes[number::4], permutation_law(size, rate), p_value) > FALSE_ALARM


@pytest.mark.parametrize(("size", "rate"), [(2, Fraction(1, 2)), (3, Fraction(3, 10)), (4, Fraction(1, 2))])
def test_nearly_right_samplers_fail(size: int, rate: Fraction, p_value: PValue) -> None:
    """Power: plain permutation, no redraw, and a rate wrong by one part in 50 are all seen."""
    law = permutation_law(size, rate)
    assert fit(simulated_outcomes(size, rate), law, p_value) > FALSE_ALARM
    assert fit(simulated_outcomes(size, rate, derange=False), law, p_value) < FALSE_ALARM
    assert fit(simulated_outcomes(size, rate, redraw=False), law, p_value) < FALSE_ALARM
    assert fit(simulated_outcomes(size, rate * Fraction(51, 50)), law, p_value) < FALSE_ALARM
    assert fit(simulated_outcomes(size, rate * Fraction(49, 50)), law, p_value) < FALSE_ALARM


@pytest.mark.parametrize(("size", "rate"), [(2, Fraction(1, 2)), (3, Fraction(1, 2)), (5, Fraction(1, 4))])
def test_a_record_is_swapped_with_the_corrected_probability(size: int, rate: Fraction, p_value: PValue) -> None:
    """The probability printed in Section 3.3 forgets the redraw: n=2, p=1/2 gives 1/2, not 1/4 (R3.1)."""
    outcomes = kernel_outcomes(size, Rates.constant(rate, strata=STRATA), seed="swapped")
    not_one = 1 - size * rate * (1 - rate) ** (size - 1)
    printed = rate * (1 - (1 - rate) ** (size - 1))
    for place in range(size):
        moved = int(np.count_nonzero(outcomes[:, place] != place))
        observed = np.array([moved, STRATA - moved])
        assert p_value(observed, [printed / not_one, 1 - printed / not_one]) > FALSE_ALARM
        assert p_value(observed, [printed, 1 - printed]) < FALSE_ALARM


@pytest.mark.parametrize("apart", [1, 2, 1000, STRATA // 2])
def test_strata_are_independent_of_each_other(apart: int, p_value: PValue) -> None:
    """Neighbours share a stream and distant strata do not: pairs of outcomes are independent either way."""
    half = Fraction(1, 2)
    outcomes = kernel_outcomes(3, Rates.constant(half, strata=STRATA), seed="independent")
    law = permutation_law(3, half)
    names = {sigma: number for number, sigma in enumerate(law)}
    named = np.array([names[tuple(sigma)] for sigma in outcomes.tolist()])
    pairs = named[: STRATA - apart] * 6 + named[apart:]
    if apart == 1:
        pairs = pairs[::2]  # otherwise every stratum would be counted in two dependent pairs
    observed = np.bincount(pairs, minlength=36)
    assert p_value(observed, [a * b for a in law.values() for b in law.values()]) > FALSE_ALARM


def test_records_of_a_large_stratum_are_treated_alike(p_value: PValue) -> None:
    """Where a record lies in the file tells nothing about where its value goes."""
    records, parts = 400_000, 8
    stratum = np.zeros(records, dtype=np.uint16)
    swap = np.arange(records, dtype=np.uint32)
    swap_in_place(stratum, swap, rates=Rates.constant(Fraction(1), strata=1), entropy=Entropy.from_seed("alike"))
    part = records // parts
    moves = (np.arange(records) // part) * parts + swap.astype(np.int64) // part
    assert p_value(np.bincount(moves, minlength=parts**2), [1 / parts**2] * parts**2) > FALSE_ALARM
