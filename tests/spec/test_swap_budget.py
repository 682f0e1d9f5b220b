"""The ends of the budget of permutation swapping: no live stratum, rates of 0 and 1, and losses no rate can have."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stirred.cli.main import run as command
from stirred.spec.exact import INFINITE, ONE, ZERO, exact, ln
from stirred.spec.problems import ConversionRefusedError, SpecificationError
from stirred.spec.swap_budget import (
    Bound,
    bounded_psa_epsilon,
    psa_epsilon,
    psa_existential_bound,
    psa_loss_ratio,
    psa_rates_for,
    psa_sharp_epsilon,
    rate_not_above,
    smallest_psa_epsilon,
    smallest_psa_rate,
)

HALF = Fraction(1, 2)
BOUNDS = pytest.mark.parametrize("bound", ["paper", "sharp"])


@pytest.mark.parametrize("size", [-3, -1, 1])
def test_a_largest_stratum_that_cannot_be_one_is_refused(size: int) -> None:
    with pytest.raises(SpecificationError, match="is not the size of a largest stratum") as caught:
        psa_epsilon(HALF, largest_stratum=size)
    assert "a single record has nobody to swap with" in str(caught.value)
    for function in (psa_sharp_epsilon, psa_existential_bound):
        with pytest.raises(SpecificationError, match="is not the size of a largest stratum"):
            function(HALF, **{"stratum" if function is psa_sharp_epsilon else "largest_stratum": size})


@pytest.mark.parametrize("rate", [Fraction(0), HALF, Fraction(1)])
def test_without_a_live_stratum_nothing_is_lost_at_any_rate(rate: Fraction) -> None:
    assert psa_loss_ratio(rate, largest_stratum=0) == ONE
    assert psa_epsilon(rate, largest_stratum=0) == ZERO
    assert psa_sharp_epsilon(rate, stratum=0) == ZERO
    assert psa_existential_bound(rate, largest_stratum=0) == ZERO


@BOUNDS
def test_without_a_live_stratum_every_rate_has_the_smallest_loss_and_none_can_be_asked_for(bound: Bound) -> None:
    assert smallest_psa_epsilon(0, bound=bound) == ZERO
    assert smallest_psa_rate(0, bound=bound) == exact(HALF)
    with pytest.raises(ConversionRefusedError, match="no stratum is live, so every rate has epsilon 0"):
        psa_rates_for(exact(1), largest_stratum=0, bound=bound)


@pytest.mark.parametrize("size", [2, 3, 4, 50])
@pytest.mark.parametrize("rate", [0, 1])
def test_at_a_rate_of_0_or_1_nothing_is_promised(rate: int, size: int) -> None:
    assert psa_loss_ratio(Fraction(rate), largest_stratum=size) == INFINITE
    assert psa_sharp_epsilon(Fraction(rate), stratum=size) == INFINITE
    assert psa_existential_bound(Fraction(rate), largest_stratum=size) == INFINITE


@BOUNDS
@pytest.mark.parametrize("size", [2, 3, 4, 5, 21, 1000])
@pytest.mark.parametrize("above", ["0", "1/10", "2"])
def test_both_rates_have_the_loss_they_were_asked_for(above: str, size: int, bound: Bound) -> None:
    """Also for three records, where the sharp bound has a branch more (R1)."""
    epsilon = smallest_psa_epsilon(size, bound=bound) + exact(above)
    rates = psa_rates_for(epsilon, largest_stratum=size, bound=bound)
    assert float(rates.low) <= float(rates.high)
    for rate in (rates.low, rates.high):
        near = Fraction(float(rate)).limit_denominator(10**12)
        found = bounded_psa_epsilon(near, largest_stratum=size, bound=bound)
        assert float(found) == pytest.approx(float(epsilon), abs=1e-9)


@BOUNDS
@pytest.mark.parametrize("size", [2, 3, 4, 20, 21, 22])
def test_no_rate_loses_less_than_the_smallest_loss(size: int, bound: Bound) -> None:
    least = smallest_psa_epsilon(size, bound=bound)
    for step in range(1, 200):
        assert bounded_psa_epsilon(Fraction(step, 200), largest_stratum=size, bound=bound) >= least
    best = Fraction(float(smallest_psa_rate(size, bound=bound)))
    found = bounded_psa_epsilon(best, largest_stratum=size, bound=bound)
    assert float(found) == pytest.approx(float(least), abs=1e-9)


@BOUNDS
def test_a_loss_below_the_smallest_is_refused_with_the_smallest(bound: Bound) -> None:
    least = smallest_psa_epsilon(10, bound=bound)
    with pytest.raises(ConversionRefusedError, match="no rate reaches epsilon") as caught:
        psa_rates_for(least - exact("1/100"), largest_stratum=10, bound=bound)
    assert f"ask for {least.shown(3)} or more" in str(caught.value)


@BOUNDS
def test_an_infinite_loss_has_the_rates_0_and_1_and_a_very_large_one_none_that_can_be_told_from_them(
    bound: Bound,
) -> None:
    rates = psa_rates_for(INFINITE, largest_stratum=10, bound=bound)
    assert (rates.low, rates.high) == (ZERO, ONE)
    with pytest.raises(ConversionRefusedError, match="its rates cannot be told from 0 and 1"):
        psa_rates_for(exact(10_001), largest_stratum=10, bound=bound)


@BOUNDS
@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("size", [2, 3, 10])
def test_a_usable_rate_never_loses_more_than_asked(size: int, high: bool, bound: Bound) -> None:
    epsilon = smallest_psa_epsilon(size, bound=bound) + exact("1/3")
    rate = rate_not_above(epsilon, largest_stratum=size, high=high, bound=bound)
    assert bounded_psa_epsilon(rate, largest_stratum=size, bound=bound) <= epsilon
    other = rate + Fraction(1, 10**6) * (1 if high else -1)
    assert bounded_psa_epsilon(other, largest_stratum=size, bound=bound) > epsilon, "a gentler one would do"


def test_at_the_smallest_loss_itself_there_is_a_usable_rate_only_where_it_is_rational() -> None:
    assert rate_not_above(ZERO, largest_stratum=2, bound="sharp") == HALF
    assert rate_not_above(ln(3), largest_stratum=8) == Fraction(3, 4)
    with pytest.raises(ConversionRefusedError, match="so close to the smallest possible that no usable rate reaches"):
        rate_not_above(smallest_psa_epsilon(10), largest_stratum=10)


@pytest.mark.parametrize("rate", [Fraction(1, 10), HALF, Fraction(9, 10)])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 21, 22, 61, 62])
def test_some_file_loses_as_much_as_no_file_exceeds(size: int, rate: Fraction) -> None:
    """Theorem 3 from below, R1 from above, and Theorem 1 above that; the first two agree to a billionth."""
    below = psa_existential_bound(rate, largest_stratum=size)
    sharp = psa_sharp_epsilon(rate, stratum=size)
    assert below <= sharp <= psa_epsilon(rate, largest_stratum=size)
    assert float(sharp) - float(below) < 1e-9


@pytest.mark.parametrize(
    ("epsilon", "what"),
    [("0.5", "no rate reaches epsilon 0.5"), ("20000", "its rates cannot be told from 0 and 1"), ("-1", "-1")],
)
def test_the_command_refuses_losses_that_no_rate_has(
    epsilon: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["spec", "budget", "--stratum", "10", "--epsilon", epsilon]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert what in err
    assert ". Fix: " in err
