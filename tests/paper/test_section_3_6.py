"""Section 3.6: what the budget of permutation swapping looks like, with the curves of Figure 2."""

from fractions import Fraction
from itertools import pairwise

import pytest

from stirred.spec import ConversionRefusedError
from stirred.spec.exact import exact, exp
from stirred.spec.swap_budget import (
    psa_epsilon,
    psa_rates_for,
    rate_not_above,
    smallest_psa_epsilon,
    smallest_psa_rate,
)
from tests.paper.printed import assert_prints, assert_truncates, bounds

FIGURE_2 = [2, 10, 100, 10**4, 10**6]
RATES = sorted(
    {Fraction(i, 200) for i in range(1, 200)}
    | {Fraction(1, 10**k) for k in range(3, 9)}
    | {1 - Fraction(1, 10**k) for k in range(3, 9)}
    | {1 - Fraction(i, 10**4) for i in range(1, 50)}
)


def is_below_best(rate: Fraction, b: int) -> bool:
    """Say whether the rate is below p^(b) = sqrt(b+1)/(sqrt(b+1)+1): its odds are below sqrt(b+1)."""
    return (rate / (1 - rate)) ** 2 < b + 1


@pytest.mark.parametrize(("b", "epsilon", "percent"), [(10, "1.20", "77"), (10**6, "6.91", "99.9")])
def test_the_smallest_budget_and_its_rate_are_as_printed(b: int, epsilon: str, percent: str) -> None:
    """Section 3.6, first observation: 1.20 at 77% for b = 10, 6.91 at 99.9% for b = 10^6."""
    assert_prints(smallest_psa_epsilon(b), epsilon)
    assert_prints(100 * smallest_psa_rate(b), percent)


def test_two_rates_reach_epsilon_3_with_a_largest_stratum_of_10() -> None:
    """Section 3.6, second observation: 35.4% and 95.2%; the latter is 95.26%, cut off by the source."""
    rates = psa_rates_for(exact(3), largest_stratum=10)
    assert_prints(100 * rates.low, "35.4")
    assert_prints(100 * rates.high, "95.26")
    assert_truncates(100 * rates.high, "95.2")


@pytest.mark.parametrize("b", FIGURE_2)
@pytest.mark.parametrize("above", ["0.001", "1", "10"])
def test_every_budget_above_the_smallest_is_reached_by_two_rates(b: int, above: str) -> None:
    """Section 3.6, second observation, for every curve of Figure 2: one rate on either side of p^(b)."""
    epsilon = smallest_psa_epsilon(b) + exact(above)
    rates, best = psa_rates_for(epsilon, largest_stratum=b), smallest_psa_rate(b)
    assert rates.low < best < rates.high
    for high in (False, True):
        rate = rate_not_above(epsilon, largest_stratum=b, high=high)
        assert is_below_best(rate, b) != high
        assert psa_epsilon(rate, largest_stratum=b) <= epsilon


@pytest.mark.parametrize("b", FIGURE_2)
def test_no_rate_goes_below_the_smallest_budget(b: int) -> None:
    """Section 3.6, first observation: the budget of permutation swapping is bounded below whatever the rate."""
    least = smallest_psa_epsilon(b)
    assert all(least <= psa_epsilon(rate, largest_stratum=b) for rate in RATES)
    with pytest.raises(ConversionRefusedError, match="no rate reaches epsilon"):
        psa_rates_for(least - Fraction(1, 10**9), largest_stratum=b)


@pytest.mark.parametrize("b", FIGURE_2)
def test_each_curve_falls_to_its_diamond_and_rises_after_it(b: int) -> None:
    """Figure 2: decreasing up to p^(b), increasing from there, compared exactly."""
    below = [psa_epsilon(rate, largest_stratum=b) for rate in RATES if is_below_best(rate, b)]
    above = [psa_epsilon(rate, largest_stratum=b) for rate in RATES if not is_below_best(rate, b)]
    assert len(below) > 20
    assert len(above) > 5
    assert all(second < first for first, second in pairwise(below))
    assert all(first < second for first, second in pairwise(above))


@pytest.mark.parametrize("b", FIGURE_2)
def test_the_diamond_lies_on_the_curve(b: int) -> None:
    """Figure 2: next to p^(b), on either side, the loss is the smallest budget to eleven decimals."""
    low, high = bounds(smallest_psa_rate(b))
    grid = 10**18
    least = bounds(smallest_psa_epsilon(b))[1]
    for rate in (Fraction(int(low * grid), grid), Fraction(int(high * grid) + 1, grid)):
        assert 0 <= bounds(psa_epsilon(rate, largest_stratum=b))[1] - least < Fraction(1, 10**11)


def test_a_larger_stratum_has_a_larger_smallest_budget() -> None:
    """Section 3.6, first observation: the larger b, the larger the minimum."""
    assert all(smallest_psa_epsilon(a) < smallest_psa_epsilon(b) for a, b in pairwise(FIGURE_2))


@pytest.mark.parametrize("rate", ["5/100", "50/100"])
def test_at_the_dotted_rates_the_curves_do_not_cross(rate: str) -> None:
    """Figure 2, rates of 5% and 50%: a larger stratum has the larger loss."""
    losses = [psa_epsilon(Fraction(rate), largest_stratum=b) for b in FIGURE_2]
    assert all(first < second for first, second in pairwise(losses))


@pytest.mark.parametrize("epsilon", [7, 10, 15])
def test_a_larger_stratum_needs_a_higher_rate_for_the_same_budget(epsilon: int) -> None:
    """Section 3.6, third observation."""
    rates = [psa_rates_for(exact(epsilon), largest_stratum=b).low for b in FIGURE_2]
    assert all(first < second for first, second in pairwise(rates))


def test_the_higher_rate_depends_on_the_budget_alone() -> None:
    """Section 3.6, second observation: on the second branch epsilon = ln o, as in randomised response."""
    ratio = exp(exact(7))
    assert {psa_rates_for(exact(7), largest_stratum=b).high for b in FIGURE_2} == {ratio / (1 + ratio)}
