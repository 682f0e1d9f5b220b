"""Distances between output laws, each against an independent computation of its definition."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations, product
from typing import Any

import mpmath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import norm

from stirred.spec import (
    GDP,
    INFINITE,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Exact,
    Law,
    OutputPremetric,
    SpecificationError,
    approximate,
    exact,
    ln,
)
from stirred.spec.exact import compare_exact
from stirred.spec.output_premetric import PRODUCT, ROOT
from stirred.spec.tradeoff import TradeOff
from tests.spec.strategies import ALL_OUTPUTS, FEW, MANY, METRICS, law, laws, mp

PAIRS = st.tuples(laws(), laws())
POSITIVE = st.tuples(laws(positive=True), laws(positive=True))
IDS: Any = {"ids": lambda premetric: premetric.symbol}

pytestmark = pytest.mark.usefixtures("coarse_zcdp")


def events(p: Law, q: Law) -> Iterator[tuple[Any, ...]]:
    outcomes = sorted({*p, *q}, key=str)
    return chain.from_iterable(combinations(outcomes, size) for size in range(len(outcomes) + 1))


def mass(p: Law, event: tuple[Any, ...]) -> Fraction:
    return sum((p[t] for t in event), Fraction(0))


def multiplicative_by_events(p: Law, q: Law, delta: Fraction) -> Exact:
    """The definition: the largest |ln| of P(S)/Q(S) over all events, delta taken off the numerator."""
    ratios = [Fraction(1)]
    for event in events(p, q):
        for a, b in ((mass(p, event), mass(q, event)), (mass(q, event), mass(p, event))):
            a = max(a - delta, Fraction(0))
            if b == 0 and a > 0:
                return INFINITE
            ratios.append(Fraction(1) if a == b == 0 else a / b)
    return ln(max(ratios))


@MANY
@given(PAIRS)
def test_the_multiplicative_distance_is_the_supremum_over_all_events(pair: tuple[Law, Law]) -> None:
    """Equation 2.9 of the dissertation, 3.2 of the paper."""
    found = PURE.distance(*pair)
    assert found.is_exact
    assert found.high == multiplicative_by_events(*pair, Fraction(0))


@MANY
@given(st.tuples(laws(outcomes=4), laws(outcomes=4)), st.integers(1, 19))
def test_the_approximate_distance_is_the_supremum_over_all_events(pair: tuple[Law, Law], twentieths: int) -> None:
    delta = Fraction(twentieths, 20)
    found = approximate(delta).distance(*pair)
    assert found.is_exact
    assert compare_exact(found.high, multiplicative_by_events(*pair, delta)) == 0


@MANY
@given(st.tuples(laws(outcomes=4), laws(outcomes=4)))
def test_total_variation_is_the_largest_difference_over_all_events(pair: tuple[Law, Law]) -> None:
    largest = max(abs(mass(pair[0], event) - mass(pair[1], event)) for event in events(*pair))
    found = TOTAL_VARIATION.distance(*pair)
    assert found.is_exact
    assert found.high == largest


def type_two_error(p: Law, q: Law, alpha: Any) -> Any:
    """Return the smallest type II error of a level-alpha test of P against Q (Neyman and Pearson)."""
    spent, missed = mpmath.mpf(0), mpmath.mpf(1)
    outcomes = sorted({*p, *q}, key=lambda t: mpmath.inf if p[t] == 0 else q[t] / p[t], reverse=True)
    for t in outcomes:
        share = mpmath.mpf(1) if p[t] == 0 else min(mpmath.mpf(1), (alpha - spent) / mp(p[t]))
        missed -= share * mp(q[t])
        spent += share * mp(p[t])
        if share < 1:
            break
    return missed


def gaussian_error(mu: Any, alpha: Any) -> Any:
    return mpmath.ncdf(mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * alpha) - mu)


@FEW
@given(POSITIVE)
def test_the_gaussian_distance_is_the_smallest_whose_curve_lies_below(pair: tuple[Law, Law]) -> None:
    assume(pair[0] != pair[1])
    found = GDP.distance(*pair)
    with mpmath.workdps(40):
        low, high = mp(found.low), mp(found.high)
        grid = [mpmath.mpf(k) / 40 for k in range(1, 40)]
        for p, q in (pair, pair[::-1]):
            for alpha in grid:
                assert type_two_error(p, q, alpha) >= gaussian_error(high, alpha) - mpmath.mpf(10) ** -30
        # A little less is not enough: at some corner the curve of the laws lies below.
        corners = [mp(mass(p, event)) for p in pair for event in events(*pair)]
        inner = [alpha for alpha in corners if 0 < alpha < 1]
        assert any(
            type_two_error(p, q, alpha) < gaussian_error(low * (1 - mpmath.mpf(10) ** -9), alpha)
            for p, q in (pair, pair[::-1])
            for alpha in inner
        )
        assert high - low <= mpmath.mpf(10) ** -9


@pytest.mark.parametrize("truth", [2, 3, 10, 1000])
def test_the_gaussian_distance_of_randomised_response_agrees_with_scipy(truth: int) -> None:
    found = GDP.distance(law(truth, 1), law(1, truth))
    assert float(found.high) == pytest.approx(2 * norm.ppf(truth / (truth + 1)), rel=1e-9)


# -- conventions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("premetric", ALL_OUTPUTS, **IDS)
@FEW
@given(p=laws())
def test_a_law_is_at_distance_zero_from_itself(premetric: OutputPremetric, p: Law) -> None:
    found = premetric.distance(p, Law(dict(p.probabilities)))
    assert found.low == found.high == 0


@pytest.mark.parametrize("premetric", ALL_OUTPUTS, **IDS)
def test_laws_on_different_spaces_are_infinitely_far_apart(premetric: OutputPremetric) -> None:
    """Definition 2.4.16."""
    found = premetric.distance(law(1, 1, space="a"), law(1, 1, space="b"))
    assert found.low == found.high == INFINITE


def test_an_outcome_neither_law_can_give_does_not_count() -> None:
    """0/0 is 1."""
    p, q = Law({0: Fraction(1, 2), 1: Fraction(1, 2), 2: Fraction(0)}), law(1, 3, 0)
    assert PURE.distance(p, q).high == ln(2)


@pytest.mark.parametrize("premetric", ALL_OUTPUTS, **IDS)
def test_an_outcome_only_one_law_can_give_is_infinite_except_where_little_is_forgiven(
    premetric: OutputPremetric,
) -> None:
    """p/0 is infinite; an event of at most delta is forgiven, and total variation is at most 1."""
    found = premetric.distance(law(20, 0), law(19, 1))
    forgiving = premetric.name in ("D_TV", "D_Mult^delta", "D_H")
    assert found.high.is_infinite != forgiving
    assert found.low.is_infinite != forgiving


@pytest.mark.parametrize("premetric", ALL_OUTPUTS, **IDS)
@FEW
@given(p=laws(), q=laws())
def test_laws_without_a_common_outcome_are_as_far_apart_as_claimed(premetric: OutputPremetric, p: Law, q: Law) -> None:
    """The premise of Proposition 1: total variation 1 makes the distance infinite, or not."""
    elsewhere = q.pushed(lambda outcome: f"other {outcome}")
    assert TOTAL_VARIATION.distance(p, elsewhere).high == 1
    found = premetric.distance(p, elsewhere)
    assert found.low.is_infinite == found.high.is_infinite == premetric.infinite_on_disjoint


@pytest.mark.parametrize("premetric", ALL_OUTPUTS, **IDS)
@FEW
@given(p=laws(), q=laws())
def test_every_distance_is_symmetric_and_a_true_interval(premetric: OutputPremetric, p: Law, q: Law) -> None:
    there, back = premetric.distance(p, q), premetric.distance(q, p)
    assert (there.low, there.high) == (back.low, back.high)
    assert 0 <= there.low <= there.high


# -- claims ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("premetric", METRICS, **IDS)
@FEW
@given(p=laws(), q=laws(), r=laws())
def test_those_that_claim_to_be_metrics_are(premetric: OutputPremetric, p: Law, q: Law, r: Law) -> None:
    direct, first, second = premetric.distance(p, r), premetric.distance(p, q), premetric.distance(q, r)
    assert direct.low <= first.high + second.high
    if p != r:
        assert direct.low > 0


def test_the_approximate_distance_breaks_the_triangle_inequality() -> None:
    """Three coins, each step forgiven by delta, both together not."""
    delta = approximate(Fraction(1, 10))
    p, q, r = law(100, 0), law(90, 10), law(80, 20)
    assert not delta.is_metric
    assert delta.distance(p, q).high == 0
    assert delta.distance(q, r).high == 0
    assert delta.distance(p, r).low == INFINITE


def test_the_approximate_distance_is_zero_between_different_laws() -> None:
    delta = approximate(Fraction(1, 10))
    assert law(10, 10) != law(11, 9)
    assert delta.distance(law(10, 10), law(11, 9)).high == 0


def test_the_renyi_distance_breaks_the_triangle_inequality() -> None:
    renyi = OutputPremetric(name="D_Renyi", order=Fraction(2))
    assert not renyi.is_metric
    p, q, r = law(12, 10), law(11, 11), law(10, 12)
    assert renyi.distance(p, r).low > renyi.distance(p, q).high + renyi.distance(q, r).high


@pytest.mark.parametrize("premetric", ALL_OUTPUTS, **IDS)
@FEW
@given(p=laws(), q=laws(), images=st.tuples(*[st.integers(0, 1)] * 3))
def test_no_function_of_the_output_increases_a_distance(
    premetric: OutputPremetric, p: Law, q: Law, images: tuple[int, ...]
) -> None:
    """Equation 2.11 and Proposition 2.5.4, for all of them."""
    f = [laws.pushed(lambda outcome: images[int(str(outcome))]) for laws in (p, q)]
    assert premetric.distance(f[0], f[1]).low <= premetric.distance(p, q).high


@pytest.mark.parametrize("premetric", ALL_OUTPUTS, **IDS)
@FEW
@given(first=st.tuples(laws(outcomes=2), laws(outcomes=2)), second=st.tuples(laws(outcomes=2), laws(outcomes=2)))
def test_fresh_releases_add_up_as_claimed(
    premetric: OutputPremetric, first: tuple[Law, Law], second: tuple[Law, Law]
) -> None:
    """Equation 2.10 in the customary number: rho squared for D_NoR, squares for D_GDP and D_H, products for D_chi2."""
    together = replace(premetric, delta=2 * premetric.delta)
    joint = together.distance(first[0].times(second[0]), first[1].times(second[1]))
    parts = [premetric.distance(*first).high, premetric.distance(*second).high]
    squares = premetric.name == "D_NoR" or premetric.composes == ROOT
    total = sum((part * part if squares else part for part in parts), exact(0))
    if premetric.composes == PRODUCT and not total.is_infinite:
        total += parts[0] * parts[1]
    assert (joint.low * joint.low if squares else joint.low) <= total


def test_adding_up_is_exact_for_pure_releases_and_an_excess_for_total_variation() -> None:
    p, q = law(3, 1), law(1, 3)
    assert compare_exact(PURE.distance(p.times(p), q.times(q)).high, 2 * PURE.distance(p, q).high) == 0
    assert TOTAL_VARIATION.distance(p.times(p), q.times(q)).high < 2 * TOTAL_VARIATION.distance(p, q).high


@pytest.mark.parametrize(("p", "q"), list(product([law(3, 1), law(2, 5)], [law(1, 3), law(4, 1)])))
def test_the_distance_of_a_zcdp_budget_is_its_root(p: Law, q: Law) -> None:
    found = ZCDP.distance(p, q)
    assert ZCDP.to_distance(found.high * found.high) == found.high
    assert PURE.to_distance(ln(3)) == ln(3)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "D_Kolmogorov"},
        {"name": "D_Tr"},
        {"name": "D_KL", "curve": TradeOff.bounded([(3, 0)])},
        {"name": "D_Mult", "delta": Fraction(1, 10)},
        {"name": "D_Mult^delta"},
        {"name": "D_Mult^delta", "delta": Fraction(1)},
        {"name": "D_Mult^delta", "delta": Fraction(-1, 10)},
        {"name": "D_Renyi"},
        {"name": "D_Renyi", "order": Fraction(1)},
        {"name": "D_NoR", "order": Fraction(2)},
    ],
)
def test_parameters_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError) as caught:
        OutputPremetric(**settings)
    assert caught.value.problems[0].what
    assert caught.value.problems[0].remedy
