"""The sharp budget in plans: R1 in place of Theorem 1, the exact loss of small strata, and rates 0 and 1 (R2)."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import polars as pl
import pytest

from stirred.mechanisms.swapping.laws.counting import exact_loss
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.spec.exact import INFINITE, exact, ln
from stirred.spec.swap_budget import (
    psa_epsilon,
    psa_rates_for,
    psa_sharp_epsilon,
    rate_not_above,
    smallest_psa_epsilon,
    smallest_psa_rate,
)

HALF = Fraction(1, 2)


def stratum(hold: tuple[int, ...], swap: tuple[int, ...], size: int = 1) -> pl.DataFrame:
    """Return a file of one stratum with these margins."""
    held = [h for h, many in enumerate(hold) for _ in range(many)]
    places = [f"s{s}" for s, many in enumerate(swap) for _ in range(many)]
    return pl.DataFrame({"size": [size] * len(held), "held": held, "county": places})


def plan(homes: pl.DataFrame, rate: str, **settings: object) -> SwapPlan:
    return PermutationSwap(match=["size"], swap=["county"], rate=rate, **settings).plan(homes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("margins", "rate"), [((1, 1), "1/10"), ((2, 1), "1/2"), ((2, 2), "1/2"), ((2, 1, 1), "9/10")])
def test_a_plan_shows_the_sharp_bound_the_papers_and_the_exact_loss_in_order(
    margins: tuple[int, ...], rate: str
) -> None:
    found = plan(stratum(margins, margins), rate)
    assert found.exact_loss == exact_loss(margins, margins, rate).loss
    assert found.exact_loss <= found.epsilon <= found.paper_epsilon
    assert found.epsilon == psa_sharp_epsilon(Fraction(rate), stratum=sum(margins))
    assert found.specification.budget.paper_epsilon == psa_epsilon(Fraction(rate), largest_stratum=sum(margins))


def test_the_exact_loss_of_a_file_is_the_largest_of_its_strata() -> None:
    """R0', with the numbers given there: (1,1) twice at 1/5 and (2,1) twice at 1/2."""
    homes = pl.concat([stratum((1, 1), (1, 1), 1), stratum((2, 1), (2, 1), 2)])
    found = plan(homes, "1/5", rates=[{"size": 2, "rate": "1/2"}])
    assert found.exact_loss == ln(4)
    alone = plan(stratum((2, 1), (2, 1), 2), "1/2").exact_loss
    assert alone == ln(Fraction(4, 3)) / 2


def test_a_stratum_too_large_to_enumerate_has_the_bound_only() -> None:
    found = plan(stratum((30, 30), (30, 30)), "1/2")
    assert found.exact_loss is None
    assert found.epsilon == psa_sharp_epsilon(HALF, stratum=60)


@pytest.mark.parametrize(
    ("hold", "swap", "loss"), [((2, 2), (2, 2), ln(4) / 2), ((3, 1), (2, 2), ln(2) / 2), ((1, 1), (1, 1), INFINITE)]
)
def test_at_rate_1_small_margins_promise_their_exact_loss(hold: tuple[int, ...], swap: tuple[int, ...], loss) -> None:  # type: ignore[no-untyped-def]
    """T12."""
    found = plan(stratum(hold, swap), "1")
    assert found.epsilon == loss
    assert found.paper_epsilon == INFINITE


def test_at_rate_1_a_large_stratum_is_bounded_by_infinity_and_the_plan_says_if_the_truth_is_finite() -> None:
    finite, infinite = plan(stratum((40, 2), (40, 2)), "1"), plan(stratum((40, 1), (40, 1)), "1")
    assert finite.epsilon == infinite.epsilon == INFINITE
    assert "the true loss is finite" in finite.why_this_number
    assert "finite" not in infinite.why_this_number


def test_a_small_stratum_at_rate_1_does_not_spoil_the_promise_of_the_others() -> None:
    homes = pl.concat([stratum((2, 2), (2, 2), 1), stratum((30, 30), (30, 30), 2)])
    found = plan(homes, "1/2", rates=[{"size": 1, "rate": 1}])
    assert found.epsilon == psa_sharp_epsilon(HALF, stratum=60)
    assert found.specification.budget.varies


REACHED = [
    (n, target)
    for n in (2, 3, 4, 5, 7, 10, 401, 402, 264_331)
    for target in ("3/10", "1", "3", "14")
    if exact(target) >= smallest_psa_epsilon(n, bound="sharp")
]


@pytest.mark.parametrize(("n", "target"), REACHED)
@pytest.mark.parametrize("high", [False, True])
def test_a_rate_for_a_target_loses_no_more_than_it_and_a_gentler_one_does(n: int, target: str, high: bool) -> None:
    epsilon = exact(target)
    rate = rate_not_above(epsilon, largest_stratum=n, high=high, bound="sharp")
    assert psa_sharp_epsilon(rate, stratum=n) <= epsilon
    beyond = rate + Fraction(1, 10**8) if high else rate - Fraction(1, 10**8)
    if 0 < beyond < 1:
        assert psa_sharp_epsilon(beyond, stratum=n) > epsilon


@pytest.mark.parametrize("n", [3, 4, 10, 100])
def test_no_rate_loses_less_than_the_smallest_sharp_loss(n: int) -> None:
    least, best = smallest_psa_epsilon(n, bound="sharp"), smallest_psa_rate(n, bound="sharp")
    around = [Fraction(round(float(best) * 1000) + step, 1000) for step in (-200, -20, -1, 0, 1, 20, 150)]
    losses = [psa_sharp_epsilon(rate, stratum=n) for rate in around if 0 < rate < 1]
    assert all(loss >= least for loss in losses)
    assert any(float(loss) - float(least) < 0.003 for loss in losses)


def test_for_ten_records_the_best_rate_is_three_quarters() -> None:
    """R1: 75.5% and 1.1250."""
    assert round(float(smallest_psa_rate(10, bound="sharp")), 3) == 0.755
    assert round(float(smallest_psa_epsilon(10, bound="sharp")), 4) == 1.1250
    assert float(psa_rates_for(exact("1.2"), largest_stratum=10, bound="sharp").low) < 0.755


@pytest.mark.parametrize("rate", ["1/100", "1/2", "9/10"])
def test_the_sharp_bound_never_falls_with_the_size_nor_exceeds_the_papers(rate: str) -> None:
    p = Fraction(rate)
    sizes = [*range(2, 60), 399, 400, 401, 402, 403, 1_000, 1_001]
    losses = [psa_sharp_epsilon(p, stratum=n) for n in sizes]
    assert all(a <= b for a, b in pairwise(losses))
    assert all(loss <= psa_epsilon(p, largest_stratum=n) for n, loss in zip(sizes, losses, strict=True))
