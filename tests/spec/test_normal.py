"""The normal distribution function: certified enclosures, against mpmath."""

from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec.normal import normal_cdf, normal_quantile
from tests.spec.strategies import SOME, mp


def cdf(x: Fraction) -> Any:
    return mpmath.erfc(-mp(x) / mpmath.sqrt(2)) / 2


def check(x: Fraction) -> None:
    with mpmath.workdps(700):  # 1 - Phi(38) is 1e-316
        low, high = normal_cdf(x)
        value = cdf(x)
        assert mp(low) <= value <= mp(high)
        tail = min(value, 1 - value)
        assert mp(high - low) <= tail * mpmath.mpf(10) ** -40


@pytest.mark.parametrize(
    "x",
    [-40, -38, -20, -8, -5, -4, "-399999/100000", -1, "-1/1000000", 0, "1/1000000", "1/3", 1, 2, "39/10", 4, 6, 12, 38],
)
def test_the_enclosure_contains_the_distribution_function_far_into_both_tails(x: int | str) -> None:
    check(Fraction(x))


@SOME
@given(st.fractions(-38, 38, max_denominator=10**6))
def test_the_enclosure_contains_the_distribution_function(x: Fraction) -> None:
    check(x)


def test_both_methods_meet_where_one_takes_over_from_the_other() -> None:
    step = Fraction(1, 10**12)
    assert normal_cdf(Fraction(4) - step)[0] < normal_cdf(Fraction(4))[0] < normal_cdf(Fraction(4) + step)[1]


@SOME
@given(st.fractions(0, 1, max_denominator=10**9).filter(lambda p: 0 < p < 1))
def test_the_quantile_is_between_its_ends(p: Fraction) -> None:
    low, high = normal_quantile(p)
    with mpmath.workdps(60):
        assert cdf(low) <= mp(p) <= cdf(high)
    assert high - low <= Fraction(1, 10**9)


@pytest.mark.parametrize("exponent", [1, 10, 50, 150, 299])
def test_the_quantile_reaches_small_probabilities(exponent: int) -> None:
    p = Fraction(1, 10**exponent)
    for target in (p, 1 - p):
        low, high = normal_quantile(target)
        with mpmath.workdps(700):
            assert cdf(low) <= mp(target) <= cdf(high)
        assert high - low <= Fraction(1, 10**6)
