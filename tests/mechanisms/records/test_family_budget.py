"""The budgets of the swapping family: the numbers of the theory pages R5 to R15, rounding, and refusals."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import pairwise

import pytest

from stirred.data.synth.massachusetts import TABLE_1
from stirred.mechanisms.records.laws.conditioned import redraw_epsilon, redraw_kernel
from stirred.mechanisms.records.laws.mallows import mallows_epsilon, mallows_weight
from stirred.mechanisms.records.laws.shuffle import margin_epsilon, shuffle_epsilon
from stirred.mechanisms.records.laws.varying import exactly_one_at_most, varying_rate_epsilon
from stirred.mechanisms.records.steps.response import perturbed_before
from stirred.mechanisms.records.steps.two_stage import staged_epsilon
from stirred.spec.exact import INFINITE, ZERO, Exact, exact, ln
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import psa_epsilon, psa_sharp_epsilon
from tests.mechanisms.records.laws.any_kernel import k_ary_kernel, kernel_epsilon

HALF = Fraction(1, 2)


# ---- Mallows (R5) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["1/10", "1", "2", "6.8608", "12.48", "40"])
def test_a_mallows_weight_is_rational_and_never_loses_more_than_asked(epsilon: str) -> None:
    wanted = exact(epsilon)
    reached = mallows_epsilon(mallows_weight(epsilon))
    assert reached <= wanted
    assert wanted - reached < exact("1e-25")


def test_logarithms_give_mallows_weights_without_rounding() -> None:
    assert mallows_weight(ln(27)) == Fraction(1, 27)
    assert mallows_weight(INFINITE) == 0
    assert mallows_epsilon(0).is_infinite
    assert mallows_epsilon(1) == ZERO


def test_a_mallows_weight_above_one_is_refused() -> None:
    with pytest.raises(StirredError, match="more likely than leaving it"):
        mallows_epsilon("5/4")


# ---- the conditioned swap (R6) ----------------------------------------------------------------------


def test_the_uniform_law_costs_one_plus_values_over_odds() -> None:
    for values in (2, 3, 14):
        for rate in (Fraction(1, 20), HALF, Fraction(9, 10)):
            odds = rate / (1 - rate)
            assert redraw_epsilon(rate, [Fraction(1, values)] * values) == ln(1 + values / odds)


def test_the_two_smallest_masses_never_cost_more_than_the_smallest_twice() -> None:
    masses = [Fraction(1, 10), Fraction(2, 10), Fraction(7, 10)]
    sharp = redraw_epsilon(HALF, masses)
    assert sharp == ln(Fraction(11) * 6) / 2
    assert sharp < kernel_epsilon(redraw_kernel(HALF, masses)) == ln(11)


@pytest.mark.parametrize(("rate", "quoted", "permutation"), [("1/20", 9.96, 16.89), ("1/2", 7.02, 13.95)])
def test_the_size_proportional_law_on_the_counties_of_massachusetts(
    rate: str, quoted: float, permutation: float
) -> None:
    """R6, as one stratum: the smallest county decides, Nantucket with 1,025 of 1,144,424 households."""
    counties = sorted(owned + rented for _, owned, rented in TABLE_1)
    total = sum(counties)
    assert (counties[0], total) == (1_025, 1_144_424)
    masses = [Fraction(county, total) for county in counties]
    assert round(float(kernel_epsilon(redraw_kernel(Fraction(rate), masses))), 2) == quoted
    assert redraw_epsilon(rate, masses) < exact(quoted)  # by the two smallest counties
    assert abs(float(psa_epsilon(Fraction(rate), largest_stratum=total)) - permutation) < 0.005


def test_a_kernel_with_an_impossible_move_promises_nothing() -> None:
    assert kernel_epsilon([[Fraction(1), Fraction(0)], [HALF, HALF]]).is_infinite
    assert kernel_epsilon(k_ary_kernel(Fraction(1, 3), values=5)) == ln(3)


def test_a_law_without_a_value_that_occurs_is_refused() -> None:
    with pytest.raises(StirredError, match="probability 0"):
        redraw_epsilon(HALF, [Fraction(0), Fraction(1)])


# ---- shuffle (R7) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "shown"), [("1/2", 11.05), ("7/10", 1.5503), ("4/5", 0.7449), ("9/10", 0.3046)])
def test_the_shuffle_swap_of_the_largest_stratum_of_massachusetts(rate: str, shown: float) -> None:
    """b = 264,331 with a value that 38.08% of the records have; permutation swapping: 12.48, 11.64, 11.10, 10.29."""
    stratum = 264_331
    count = round(0.3808 * stratum)
    epsilon = float(margin_epsilon(count, Fraction(rate), stratum=stratum))
    assert abs(epsilon - shown) < 0.6 * 10 ** -len(str(shown).split(".")[1])
    assert exact(epsilon) < psa_epsilon(Fraction(rate), largest_stratum=stratum)


@pytest.mark.parametrize("rate", [Fraction(1, 20), HALF, Fraction(19, 20)])
def test_the_rarest_value_of_a_margin_decides(rate: Fraction) -> None:
    for stratum in (7, 30):
        bounds = [margin_epsilon(count, rate, stratum=stratum) for count in range(1, stratum + 1)]
        assert all(a >= b for a, b in pairwise(bounds))


def test_a_margin_of_a_hundred_thousand_takes_a_moment() -> None:
    start = time.process_time()
    margin_epsilon(100_000, Fraction(1, 20), stratum=264_331)
    margin_epsilon(100_000, HALF, stratum=264_331)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("rate", [Fraction(1, 20), HALF, Fraction(9, 10)])
def test_the_rounded_sum_is_not_below_the_exact_one_and_close(rate: Fraction) -> None:
    """The same sums in fractions, for margins beyond those that are summed exactly."""
    odds = rate / (1 - rate)
    for count, stratum in ((41, 41), (60, 100), (90, 400), (150, 151)):
        others = stratum - count
        weights = [Fraction(1)]
        for m in range(count):
            weights.append(weights[-1] * (count - m) * odds / (others + m + 1))
        share = Fraction(sum(m * w for m, w in enumerate(weights)), count * sum(weights))
        bound = margin_epsilon(count, rate, stratum=stratum)
        assert bound >= -ln(share)
        assert bound + ln(share) < exact("1e-30")


@pytest.mark.parametrize("stratum", [2, 5, 40, 1000])
def test_a_single_record_gives_the_bound_for_the_size(stratum: int) -> None:
    for rate in (Fraction(1, 20), HALF, Fraction(19, 20)):
        bound = ln(1 + stratum * (1 - rate) / rate)
        assert margin_epsilon(1, rate, stratum=stratum) == shuffle_epsilon([1] * stratum, [1] * stratum, rate) == bound


def test_the_shuffle_bound_falls_with_the_rate_and_ends_at_zero() -> None:
    bounds = [shuffle_epsilon((30, 70), (50, 50), Fraction(k, 10)) for k in range(1, 11)]
    assert all(a > b for a, b in pairwise(bounds))
    assert bounds[-1] == ZERO
    assert shuffle_epsilon((2, 2), (2, 2), 0).is_infinite


def test_the_limit_for_large_strata_is_free_of_the_size() -> None:
    """(1-p) n < v: -ln p* tends to -ln(1 - (1-p) n / v)."""
    limit = -ln(1 - Fraction(3, 10) / Fraction(38, 100))
    gaps = [
        abs(float(margin_epsilon(38 * n, Fraction(7, 10), stratum=100 * n)) - float(limit)) for n in (10, 100, 1000)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-3


def test_margins_of_different_files_are_refused() -> None:
    with pytest.raises(StirredError, match="margins of 3 and 2"):
        shuffle_epsilon((2, 1), (1, 1), HALF)


# ---- rates that vary (R8) --------------------------------------------------------------------------


def test_rates_by_hold_value_cost_what_the_extremes_cost() -> None:
    """T23: rates 1/10 and 1/2 on four records."""
    assert varying_rate_epsilon("1/10", "1/2", stratum=4) == ln(27)
    assert varying_rate_epsilon("1/10", "1/2", stratum=4, depends_on="swap") == ln(27)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10, 61, 264_331])
@pytest.mark.parametrize("rate", ["1/20", "1/2", "9/10"])
def test_equal_rates_cost_what_permutation_swapping_costs(n: int, rate: str) -> None:
    p = Fraction(rate)
    sharp = psa_sharp_epsilon(p, stratum=n)
    assert varying_rate_epsilon(p, p, stratum=n, depends_on="stratum") == sharp
    for side in ("hold", "swap"):
        assert float(varying_rate_epsilon(p, p, stratum=n, depends_on=side)) == pytest.approx(float(sharp))
    assert varying_rate_epsilon(p, p, stratum=n, depends_on="both") >= sharp


def test_the_chance_of_exactly_one_is_the_largest_over_all_mixtures() -> None:
    for low, high in (("1/10", "1/2"), ("1/3", "1/3"), ("1/20", "9/10")):
        p, q = Fraction(low), Fraction(high)
        for n in (2, 3, 7, 20):
            rates = [[p] * j + [q] * (n - j) for j in range(n + 1)]
            chances = []
            for one in rates:
                stay = Fraction(1)
                for rate in one:
                    stay *= 1 - rate
                chances.append(stay * sum(rate / (1 - rate) for rate in one))
            assert exactly_one_at_most(p, q, records=n) == max(chances)


def test_the_chance_of_exactly_one_is_rounded_up_in_large_strata() -> None:
    chance = exactly_one_at_most(Fraction(1, 1000), Fraction(1, 10), records=1000)
    true = Fraction(999, 1000) ** 999
    assert true <= chance < true * Fraction(10**30 + 1, 10**30)


@pytest.mark.parametrize("depends_on", ["hold", "swap", "both"])
def test_a_rate_of_zero_or_one_inside_a_stratum_promises_nothing(depends_on: str) -> None:
    assert varying_rate_epsilon(0, "1/2", stratum=4, depends_on=depends_on).is_infinite
    assert varying_rate_epsilon("1/2", 1, stratum=4, depends_on=depends_on).is_infinite
    assert varying_rate_epsilon(0, "1/2", stratum=0, depends_on=depends_on) == ZERO


# ---- layers (R13 to R15) ------------------------------------------------------------------------------


def test_each_level_of_matching_gets_the_least_of_the_levels_as_coarse() -> None:
    assert staged_epsilon([ln(5), ln(9), ln(4)]) == (ln(5), ln(5), ln(4))
    assert staged_epsilon([INFINITE, ln(4)])[-1] == ln(4)


def test_no_stage_has_no_budget() -> None:
    with pytest.raises(StirredError, match="no stage"):
        staged_epsilon([])


def test_perturbation_before() -> None:
    before = perturbed_before(Exact.parse("ln(14)"), ln(9))
    assert (before.both, before.one) == (ln(9), ln(9))


def test_rates_that_nearly_always_select_exactly_one_lose_everything() -> None:
    """The chance is rounded up to 1 there, and what is left of it has no logarithm."""
    low = Fraction(1, 10**30)
    assert varying_rate_epsilon(low, 1 - low, stratum=2, depends_on="both").is_infinite
