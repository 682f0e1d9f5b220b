"""Rényi divergences and their normalised supremum, against mpmath at 50 digits."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stirred.spec import INFINITE, ZCDP, Law, OutputPremetric
from stirred.spec.law import likelihood_pairs
from stirred.spec.renyi import normalised_renyi
from tests.spec.strategies import FEW, SOME, law, laws, mp

PAIRS = st.tuples(laws(), laws())


def renyi_mp(p: Law, q: Law, order: Any) -> Any:
    """Return the worse of the two Rényi divergences, from the definition of Appendix G."""
    both = []
    for a, b in ((p, q), (q, p)):
        if any(b[t] == 0 for t in a):
            return mpmath.inf
        if order == 1:
            both.append(mpmath.fsum(mp(a[t]) * mpmath.log(mp(a[t] / b[t])) for t in a))
            continue
        moment = mpmath.fsum(mp(a[t]) ** order * mp(b[t]) ** (1 - order) for t in a)
        both.append(mpmath.log(moment) / (order - 1))
    return max(both)


@SOME
@given(PAIRS, st.sampled_from(["3/2", "2", "3", "11", "1001/1000", "200"]))
def test_the_renyi_distance_is_the_worse_divergence(pair: tuple[Law, Law], text: str) -> None:
    order = Fraction(text)
    found = OutputPremetric(name="D_Renyi", order=order).distance(*pair)
    with mpmath.workdps(50):
        value = renyi_mp(*pair, mp(order))
        if value == mpmath.inf:
            assert found.low == found.high == INFINITE
        elif pair[0] != pair[1]:
            assert mp(found.low) <= value * (1 + mpmath.mpf(10) ** -44)
            assert value * (1 - mpmath.mpf(10) ** -44) <= mp(found.high)
            assert mp(found.high) - mp(found.low) <= mpmath.mpf(10) ** -25


def orders() -> list[Any]:
    """Return orders from 1 to far out, dense near 1, where the supremum often lies."""
    return [1 + mpmath.mpf(10) ** (mpmath.mpf(k) / 12) for k in range(-96, 60)]


def one_way(p: Law, q: Law, order: Any) -> Any:
    """Return D_a(P||Q)/a from the definition, by its limit where a is 1."""
    if order == 1:
        return mpmath.fsum(mp(p[t]) * mpmath.log(mp(p[t] / q[t])) for t in p)
    return mpmath.log(mpmath.fsum(mp(p[t]) ** order * mp(q[t]) ** (1 - order) for t in p)) / (order - 1) / order


@FEW
@given(laws(heaviest=20, positive=True), laws(heaviest=20, positive=True), st.sampled_from((50, 200)))
def test_the_supremum_over_orders_is_enclosed_as_tightly_as_asked(p: Law, q: Law, parts: int) -> None:
    assume(p != q)
    found = normalised_renyi(likelihood_pairs(p, q), tolerance=Fraction(1, parts))
    with mpmath.workdps(50):
        best = mpmath.sqrt(max(one_way(p, q, order) for order in [1, *orders()]))
        assert best <= mp(Fraction(found.high))
        assert mp(Fraction(found.low)) <= best * (1 + mpmath.mpf(10) ** -2)
        assert mp(Fraction(found.high)) <= mp(Fraction(found.low)) * (1 + mpmath.mpf(1) / parts)


def test_a_supremum_between_two_orders_is_enclosed_to_a_millionth() -> None:
    p, q = law(2, 3), law(3, 2)
    found = ZCDP.distance(p, q)
    with mpmath.workdps(50):
        best = mpmath.sqrt(max(one_way(a, b, order) for a, b in ((p, q), (q, p)) for order in [1, *orders()]))
        assert best <= mp(found.high)
        assert mp(found.high) <= mp(found.low) * (1 + mpmath.mpf(10) ** -6)


@FEW
@given(laws(), laws())
def test_a_possible_outcome_the_other_law_excludes_makes_it_infinite(p: Law, q: Law) -> None:
    found = normalised_renyi(likelihood_pairs(p, q), tolerance=Fraction(1, 50))
    assert (found.high == Decimal("Infinity")) == any(q[t] == 0 for t in p)


@pytest.mark.parametrize("weights", [(1, 10**6), (1, 10**9), (10**3, 10**3 + 1)])
def test_the_supremum_over_orders_is_found_for_rare_outcomes_and_close_laws(weights: tuple[int, int]) -> None:
    p, q = law(weights[0], weights[1]), law(weights[0] * 5, weights[1])
    for first, second in ((p, q), (q, p)):
        found = normalised_renyi(likelihood_pairs(first, second), tolerance=Fraction(1, 100))
        with mpmath.workdps(50):
            best = mpmath.sqrt(max(one_way(first, second, order) for order in [1, *orders()]))
            assert best <= mp(Fraction(found.high))
            assert mp(Fraction(found.high)) <= mp(Fraction(found.low)) * (1 + mpmath.mpf(10) ** -2)


def test_the_normalised_renyi_distance_of_randomised_response_is_reached_at_order_one() -> None:
    """R17: epsilon tanh(epsilon/2), here with epsilon = ln 3."""
    found = ZCDP.distance(law(3, 1), law(1, 3))
    with mpmath.workdps(50):
        value = mpmath.sqrt(mpmath.log(3) * mpmath.tanh(mpmath.log(3) / 2))
        assert mp(found.low) <= value <= mp(found.high)
