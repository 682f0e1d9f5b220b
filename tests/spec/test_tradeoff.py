"""Trade-off curves: exact values, Blackwell's theorem by two routes, and what makes a measure immune."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import norm

from stirred.spec import (
    GDP,
    INFINITE,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Law,
    OutputPremetric,
    SpecificationError,
    approximate,
    exact,
    ln,
    trade_off,
)
from stirred.spec.law import likelihood_pairs
from stirred.spec.output_premetric import CHI_SQUARED, HELLINGER, KULLBACK_LEIBLER, WASSERSTEIN
from stirred.spec.tradeoff import MOST_STEPS, TradeOff, blackwell
from tests.spec.strategies import FEW, SOME, law, laws

F = Fraction
TWO = OutputPremetric(name="D_Renyi", order=F(2))
BIT = TradeOff.bounded([(3, 0)])  # randomised response that keeps a bit with probability 3/4


def bits(k: int) -> tuple[Law, Law]:
    return law(k, 1), law(1, k)


def points(*given: str) -> TradeOff:
    return TradeOff(tuple((F(a), F(b)) for a, b in (point.split(":") for point in given)))


# -- curves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "corner"), [(3, "1/4:3/4"), (4, "1/5:4/5")])
def test_the_curve_of_randomised_response_has_its_corner_where_both_errors_are_equal(k: int, corner: str) -> None:
    curve = TradeOff.of(*bits(k))
    assert curve == points("0:0", corner, "1:1") == TradeOff.bounded([(k, 0)]) == curve.turned == curve.symmetric
    assert TradeOff.of(law(1, 2), law(1, 2)) == points("0:0", "1:1")


@SOME
@given(laws(outcomes=4), laws(outcomes=4), st.integers(0, 12))
def test_the_power_at_a_size_is_that_of_the_best_mixture_of_events(p: Law, q: Law, twelfths: int) -> None:
    """Against all mixtures of two events, on all outcomes: Definition A.6.1."""
    size, pairs = F(twelfths, 12), likelihood_pairs(p, q)
    events = [
        (sum((a for (a, _), on in zip(pairs, chosen, strict=True) if on), F(0)),
         sum((b for (_, b), on in zip(pairs, chosen, strict=True) if on), F(0)))
        for chosen in product((0, 1), repeat=len(pairs))
    ]  # fmt: skip
    best = F(0)
    for (a, b), (c, d) in product(events, repeat=2):
        if a <= size <= c:
            share = F(1) if a == c else (c - size) / (c - a)
            best = max(best, share * b + (1 - share) * d, b)
    assert TradeOff.of(p, q).power(size) == best


@FEW
@given(laws(), laws())
def test_a_curve_knows_its_laws_and_the_turned_curve_is_that_of_the_laws_exchanged(p: Law, q: Law) -> None:
    curve = TradeOff.of(p, q)
    assert TradeOff.of(*curve.laws) == curve
    assert curve.turned == TradeOff.of(q, p)
    assert curve.turned.turned == curve


def test_releases_together_have_the_curve_of_the_product_laws() -> None:
    both = BIT.times(BIT)
    assert both == points("0:0", "1/16:9/16", "7/16:15/16", "1:1")
    assert [both.delta(F(ratio)) for ratio in (1, 2, 3, 9)] == [F(1, 2), F(7, 16), F(3, 8), 0]


def test_groups_have_the_curve_applied_twice_which_is_tighter_than_twice_the_loss() -> None:
    twice = BIT.then(BIT)
    assert twice == points("0:0", "1/12:3/4", "1/4:11/12", "1:1") == BIT.repeated(2)
    doubled = TradeOff.bounded([(9, 0)])
    assert doubled.corners[1] == (F(1, 10), F(9, 10))
    assert doubled.dominates(twice)
    assert not twice.dominates(doubled)


@FEW
@given(laws(), laws(), laws())
def test_the_curve_applied_along_a_path_bounds_the_curve_of_its_ends(p: Law, q: Law, r: Law) -> None:
    assert TradeOff.of(p, q).then(TradeOff.of(q, r)).dominates(TradeOff.of(p, r))


@FEW
@given(laws(), laws(), laws(), laws())
def test_products_and_paths_are_monotone_in_their_curves(p: Law, q: Law, r: Law, s: Law) -> None:
    low, other = TradeOff.of(p, q), TradeOff.of(r, s)
    high = TradeOff.highest([low, other])
    assert high.dominates(low)
    assert high.dominates(other)
    assert high.times(other).dominates(low.times(other))
    assert high.then(other).dominates(low.then(other))
    assert low.then(high).dominates(low.then(other))


def test_the_curve_of_many_pairs_is_the_lowest_concave_one_above_all() -> None:
    steep, flat = points("0:0", "1/10:1/2", "1:1"), points("0:0", "1/2:9/10", "1:1")
    assert TradeOff.highest([steep, flat]) == points("0:0", "1/10:1/2", "1/2:9/10", "1:1")


# -- conversions from and to ----------------------------------------------------------------------


def test_the_curve_of_approximate_dp_has_the_corners_of_its_error_region() -> None:
    curve = TradeOff.bounded([(3, F(1, 8))])
    assert [(a, 1 - b) for a, b in curve.corners] == [(0, F(7, 8)), (F(7, 32), F(7, 32)), (F(7, 8), 0), (1, 0)]
    assert curve.delta(F(3)) == F(1, 8)
    assert curve.delta(F(2)) == F(11, 32)
    assert approximate("1/8").distance(*curve.laws).high == ln(3)


def test_a_curve_gives_the_pure_approximate_and_gaussian_numbers() -> None:
    assert PURE.distance(*BIT.laws).high == ln(3)
    assert approximate("1/8").distance(*BIT.laws).high == ln(F(5, 2))
    assert float(GDP.distance(*BIT.laws).high) == pytest.approx(1.3489795004, abs=1e-9)
    assert BIT.delta(F(5, 2)) == F(1, 8)


def test_the_gaussian_curve_is_covered_and_touched_at_the_slopes_asked_for() -> None:
    curve = TradeOff.gaussian(F(1), ratios=[1, 2, 3, 9])
    for size in (0.001, 0.01, 0.1, 0.3, 0.5, 0.9):
        assert float(curve.power(F(str(size)))) >= norm.cdf(1 - norm.isf(size)) - 1e-12
    for ratio in (1, 2, 3, 9):
        epsilon = float(ln(ratio)) if ratio > 1 else 0.0
        delta = norm.cdf(-epsilon + 0.5) - ratio * norm.cdf(-epsilon - 0.5)
        assert float(curve.delta(F(ratio))) == pytest.approx(delta, abs=1e-12)


def test_delta_of_the_gaussian_curve_at_epsilon_one() -> None:
    from stirred.spec.convert_output import gdp_to_epsilon
    from stirred.spec.normal import gaussian_delta_at

    assert float(gaussian_delta_at(F(1), F(1))) == pytest.approx(0.1269367375, abs=1e-10)
    assert float(gdp_to_epsilon(exact(1), delta=F(1, 10**5))) == pytest.approx(4.3771780957, abs=1e-9)


@pytest.mark.parametrize(
    "given",
    [("0:0",), ("0:0", "1/2:1/4", "1:1"), ("0:0", "1:1/2"), ("1/4:1/2", "1:1"), ("0:0", "1/2:9/8", "1:1"),
     ("0:0", "1/2:2/3", "1/2:3/4", "1:1"), ("0:-1/2", "1:1")],
)  # fmt: skip
def test_points_that_are_no_curve_are_refused_with_the_remedy(given: tuple[str, ...]) -> None:
    with pytest.raises(SpecificationError) as caught:
        points(*given)
    assert caught.value.problems[0].where == "output_premetric curve"
    assert caught.value.problems[0].remedy


def test_a_bound_that_is_none_is_refused() -> None:
    with pytest.raises(SpecificationError, match="is no bound"):
        TradeOff.bounded([(F(1, 2), 0)])


# -- f-DP as an output premetric ------------------------------------------------------------------


def test_the_distance_by_a_curve_counts_how_often_it_must_be_applied() -> None:
    by_bit = trade_off(BIT)
    twice = BIT.then(BIT).laws
    assert by_bit.distance(*bits(3)).high == 1
    assert by_bit.distance(*twice).high == 2
    assert by_bit.distance(*bits(9)).high == 3  # 2 ln 3 without a version between: more than two steps
    assert by_bit.distance(law(1, 2), law(1, 2)).high == 0
    assert by_bit.distance(law(1, 0), law(1, 1)).low == INFINITE
    assert by_bit.infinite_on_disjoint


def test_a_curve_that_forgives_reaches_laws_without_a_common_outcome() -> None:
    forgiving = trade_off(TradeOff.bounded([(1, F(1, 4))]))
    assert forgiving.distance(law(1, 0), law(0, 1)).high == 4
    assert not forgiving.infinite_on_disjoint


def test_a_distance_of_very_many_curves_is_only_known_from_below() -> None:
    found = trade_off(TradeOff.bounded([(F(1001, 1000), 0)])).distance(*bits(3))
    assert (found.low, found.high) == (exact(MOST_STEPS + 1), INFINITE)


def test_a_curve_that_differs_both_ways_or_allows_nothing_is_refused() -> None:
    lopsided = points("0:0", "1/10:1/2", "1:1")
    with pytest.raises(SpecificationError, match=r"write 0:0 1/10:1/2 1/2:9/10 1:1|not the same both ways"):
        OutputPremetric(name="D_Tr", curve=lopsided)
    assert trade_off(lopsided).curve == lopsided.symmetric
    with pytest.raises(SpecificationError, match="allows no change"):
        OutputPremetric(name="D_Tr", curve=points("0:0", "1:1"))


# -- Blackwell's theorem --------------------------------------------------------------------------


def kernel_exists(p: Law, q: Law, p2: Law, q2: Law, *, outcomes: int = 3) -> bool:
    """The second route: a linear programme for the kernel itself, to a tolerance of 1e-9."""
    rows, right = [], []
    for i in range(outcomes):
        rows.append([float(a == i) for a in range(outcomes) for _ in range(outcomes)])
        right.append(1.0)
    for here, wanted in ((p, p2), (q, q2)):
        for j in range(outcomes):
            rows.append([float(here[a]) * (b == j) for a in range(outcomes) for b in range(outcomes)])
            right.append(float(wanted[j]))
    found = linprog([0.0] * outcomes**2, A_eq=rows, b_eq=right, bounds=(0, 1), method="highs")
    return bool(found.status == 0)


@FEW
@given(*[laws(heaviest=4)] * 4)
def test_one_pair_dominates_another_exactly_if_a_kernel_takes_it_there(p: Law, q: Law, p2: Law, q2: Law) -> None:
    assert blackwell(p, q, p2, q2) == kernel_exists(p, q, p2, q2)
    coarse = [each.pushed(lambda outcome: min(int(str(outcome)), 1)) for each in (p, q)]
    assert blackwell(p, q, *coarse)


def test_a_truer_bit_becomes_a_less_true_one_by_flipping_it_and_not_back() -> None:
    flip = Law({0: F(5, 6), 1: F(1, 6)})
    flipped = [each.times(flip).pushed(lambda pair: (pair[0] + pair[1]) % 2) for each in bits(3)]  # type: ignore[index]
    assert flipped == list(bits(2))
    assert blackwell(*bits(3), *bits(2))
    assert not blackwell(*bits(2), *bits(3))


def test_no_few_numbers_decide_which_pair_can_be_made_from_the_other() -> None:
    """D_Mult, D_NoR and D_GDP are larger and total variation is equal, yet a test of size 1/2 has less power."""
    first, second = (law(1, 9), law(2, 8)), (law(1, 1), law(3, 2))
    for premetric in (PURE, ZCDP, GDP):
        assert premetric.distance(*first).low > premetric.distance(*second).high
    assert TOTAL_VARIATION.distance(*first) == TOTAL_VARIATION.distance(*second)
    assert TradeOff.of(*first).power(F(1, 2)) == F(5, 9)
    assert TradeOff.of(*second).power(F(1, 2)) == F(3, 5)
    assert not blackwell(*first, *second)


# -- Theorem 2.5.5: immune exactly if a function of the curve, and monotone -------------------------

QUARTERS = [law(a, b, 4 - a - b) for a in range(5) for b in range(5 - a)]
PAIRS = list(product(QUARTERS, repeat=2))
CURVES = {pair: TradeOff.of(*pair) for pair in PAIRS}
Measure = Callable[[Law, Law], Any]


def kolmogorov(p: Law, q: Law) -> F:
    return max(abs(sum((p[j] - q[j] for j in range(i + 1)), F(0))) for i in range(3))


def probabilistic(delta: F) -> Measure:
    """The largest ln(p/q) but for outcomes of probability delta, both ways: probabilistic DP."""

    def one_way(p: Law, q: Law) -> Any:
        left, rest = delta, sorted((i for i in range(3) if p[i]), key=lambda i: F(10**9) if not q[i] else p[i] / q[i])
        while rest and p[rest[-1]] <= left:
            left -= p[rest.pop()]
        if not rest:
            return exact(0)
        return INFINITE if not q[rest[-1]] else ln(max(F(1), p[rest[-1]] / q[rest[-1]]))

    return lambda p, q: max(one_way(p, q), one_way(q, p))


def bounded_range(p: Law, q: Law) -> Any:
    pairs = [(a, b) for a, b in likelihood_pairs(p, q) if a or b]
    if any(not a or not b for a, b in pairs):
        return INFINITE
    ratios = [a / b for a, b in pairs]
    return ln(max(ratios) / min(ratios))


def violations(measure: Measure) -> int:
    """Count the pairs of pairs in which the second is a post-processing of the first and lies further apart."""
    distances = {pair: measure(*pair) for pair in PAIRS}
    distinct = list(dict.fromkeys(CURVES.values()))
    above = {(one, two) for one in distinct for two in distinct if one.dominates(two)}
    by_curve: dict[TradeOff, list[Any]] = {}
    for pair in PAIRS:
        by_curve.setdefault(CURVES[pair], []).append(distances[pair])
    return sum(d < e for one, two in above for d in by_curve[one] for e in by_curve[two])


def by(premetric: OutputPremetric) -> Measure:
    """The upper end of the distance; where it is enclosed, the enclosure is far narrower than differences here."""
    return lambda p, q: round(float(premetric.distance(p, q).high), 9)


def test_the_enumeration_holds_as_many_dominated_pairs_as_were_counted_once() -> None:
    distinct = list(dict.fromkeys(CURVES.values()))
    many = {curve: sum(found == curve for found in CURVES.values()) for curve in distinct}
    dominated = sum(many[one] * many[two] for one in distinct for two in distinct if one.dominates(two))
    assert (len(PAIRS) ** 2, dominated) == (50_625, 20_367)


@pytest.mark.parametrize(
    "premetric",
    [PURE, approximate("1/8"), TOTAL_VARIATION, KULLBACK_LEIBLER, HELLINGER, CHI_SQUARED, TWO, GDP, trade_off(BIT)],
    ids=lambda premetric: premetric.symbol,
)
def test_an_immune_measure_is_a_monotone_function_of_the_curve(premetric: OutputPremetric) -> None:
    assert premetric.immune
    assert violations(by(premetric)) == 0


@pytest.mark.parametrize(
    ("measure", "count"),
    [(by(WASSERSTEIN), 1_720), (kolmogorov, 504), (probabilistic(F(1, 4)), 396), (bounded_range, 0)],
    ids=["Wasserstein", "Kolmogorov", "probabilistic", "range"],
)
def test_a_measure_that_post_processing_can_increase_is_no_monotone_function_of_the_curve(
    measure: Measure, count: int
) -> None:
    assert violations(measure) == count
    assert not WASSERSTEIN.immune


@pytest.mark.parametrize(
    "premetric",
    [PURE, approximate("1/8"), TOTAL_VARIATION, KULLBACK_LEIBLER, HELLINGER, CHI_SQUARED, TWO, trade_off(BIT)],
    ids=lambda premetric: premetric.symbol,
)
@FEW
@given(p=laws(), q=laws(), seed=laws(outcomes=2))
def test_noise_that_does_not_depend_on_the_data_changes_no_distance(
    premetric: OutputPremetric, p: Law, q: Law, seed: Law
) -> None:
    """Definition A.5.2, and so A.5.3 and A.6.3: a randomised function is a function of the output and such noise."""
    plain, noisy = premetric.distance(p, q), premetric.distance(p.times(seed), q.times(seed))
    assert noisy.low <= plain.high
    assert plain.low <= noisy.high
    assert TradeOff.of(p.times(seed), q.times(seed)) == TradeOff.of(p, q)
