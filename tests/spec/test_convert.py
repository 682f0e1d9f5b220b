"""Conversions: each against an independent computation, each valid for drawn pairs of laws, and the refusals."""

import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from stirred.spec import (
    GDP,
    INFINITE,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Budget,
    ConversionRefusedError,
    DiscreteGaussian,
    Exact,
    InputPremetric,
    Law,
    Margin,
    Multiverse,
    Named,
    OutputPremetric,
    ShiftLaw,
    SpecificationError,
    approximate,
    catalogue,
    change_distance,
    change_output,
    change_unit,
    exact,
    ln,
    refine,
    to_neighbours,
)
from stirred.spec.convert import post_process, to_distance
from stirred.spec.convert_output import gdp_to_epsilon, pure_to_mu, pure_to_rho2, zcdp_to_epsilon
from stirred.spec.exact import compare_exact
from stirred.spec.output_premetric import CHI_SQUARED, HELLINGER, KULLBACK_LEIBLER, WASSERSTEIN
from tests.spec.strategies import (
    FEW,
    OPEN_TRADE_OFF,
    RENYI,
    SOME,
    TRADE_OFF,
    exacts,
    flavor,
    high_precision,
    infimum,
    law,
    laws,
    mp,
    specification,
    surely_at_most,
    worst,
)

pytestmark = pytest.mark.usefixtures("coarse_zcdp")

TINY = Fraction(1, 10**10)
TWO = OutputPremetric(name="D_Renyi", order=Fraction(2))
PERSONS = InputPremetric(name="d_HamS", unit="person")
SWAPPED = Multiverse(
    invariants=(Margin(of="household", level="county"), Margin(of="household", variables=("*",), includes=("person",))),
    nearest=2,
    nearest_because="no record can change alone",
)


# -- zCDP to approximate --------------------------------------------------------------------------


@pytest.mark.parametrize("rho2", ["1/100", "0.5", "2.63", "15.29", "55.371", "221.484"])
@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10**6), TINY])
def test_the_bun_steinke_conversion_is_its_formula(rho2: str, delta: Fraction) -> None:
    with mpmath.workdps(50):
        rho = mp(Fraction(rho2))
        expected = rho + 2 * mpmath.sqrt(rho * mpmath.log(1 / mp(delta)))
        assert abs(mp(zcdp_to_epsilon(exact(rho2), delta=delta)) - expected) < mpmath.mpf(10) ** -45


def cks_infimum(rho2: Fraction, delta: Fraction) -> Any:
    """The smallest epsilon of Canonne, Kamath and Steinke (2020), Proposition 12, over all orders."""
    rho, log = mp(rho2), mpmath.log(1 / mp(delta))

    def at(t: Any) -> Any:
        less = mpmath.exp(t)
        return (1 + less) * rho + (log + less * mpmath.log(less / (1 + less)) - mpmath.log(1 + less)) / less

    return infimum(at, mpmath.mpf(-45), mpmath.mpf(45))


@pytest.mark.parametrize("rho2", ["1e-12", "1e-6", "0.01", "0.0749", "0.5", "2.5562", "15.29", "55.371", "1e4", "1e6"])
@pytest.mark.parametrize("delta", [Fraction(1, 10), Fraction(1, 10**6), TINY, Fraction(1, 10**40)])
def test_the_cks_conversion_is_valid_and_within_a_millionth_of_the_best(rho2: str, delta: Fraction) -> None:
    found = zcdp_to_epsilon(exact(rho2), delta=delta, method="cks")
    with mpmath.workdps(50):
        best = max(cks_infimum(Fraction(rho2), delta), mpmath.mpf(0))
        assert mp(found) >= best * (1 - mpmath.mpf(10) ** -30)
        assert mp(found) <= best * (1 + mpmath.mpf(10) ** -6)


@pytest.mark.parametrize(("rho", "printed"), [((542, 339), "17.14"), ((3379, 12343), "2.47")])
def test_the_cks_conversion_gives_the_epsilons_the_census_certificates_print(
    rho: tuple[int, int], printed: str
) -> None:
    """The certificates round to the nearest hundredth; ours is never below the exact value."""
    found = zcdp_to_epsilon(exact(Fraction(*rho) ** 2), delta=TINY, method="cks")
    assert abs(Fraction(found.enclose().high) - Fraction(printed)) <= Fraction(1, 200)


@SOME
@given(st.integers(1, 10**5), st.integers(1, 10**4), st.integers(2, 40))
def test_the_cks_conversion_is_never_worse_than_bun_steinke(top: int, bottom: int, exponent: int) -> None:
    rho2, delta = exact(Fraction(top, bottom)), Fraction(1, 10**exponent)
    assert zcdp_to_epsilon(rho2, delta=delta, method="cks") <= zcdp_to_epsilon(rho2, delta=delta)


@pytest.mark.parametrize("method", ["bun-steinke", "cks"])
def test_zcdp_conversions_keep_zero_and_infinity(method: str) -> None:
    assert zcdp_to_epsilon(exact(0), delta=TINY, method=method) == 0
    assert zcdp_to_epsilon(INFINITE, delta=TINY, method=method) == INFINITE


# -- Gaussian DP ----------------------------------------------------------------------------------


def gdp_delta(mu: float, epsilon: float) -> float:
    return float(norm.cdf(-epsilon / mu + mu / 2) - norm.cdf(-epsilon / mu - mu / 2) * math.exp(epsilon))


@pytest.mark.parametrize("mu", ["1/10", "1/2", "1", "2", "5"])
@pytest.mark.parametrize("delta", ["1/1000", "1/1000000"])
def test_gaussian_dp_becomes_the_epsilon_of_its_curve(mu: str, delta: str) -> None:
    """Dong, Roth and Su (2022), Corollary 1, solved with scipy."""
    m, d = float(Fraction(mu)), float(Fraction(delta))
    expected = brentq(lambda epsilon: gdp_delta(m, epsilon) - d, 1e-9, 60)
    found = gdp_to_epsilon(exact(mu), delta=Fraction(delta))
    assert float(found) == pytest.approx(expected, rel=1e-6, abs=3e-9)


@pytest.mark.parametrize(("mu", "delta"), [("1", "1/1000"), ("3", "1/10000000000"), ("1/100", "1/1000000")])
def test_the_epsilon_of_gaussian_dp_is_on_the_safe_side_at_fifty_digits(mu: str, delta: str) -> None:
    found = gdp_to_epsilon(exact(mu), delta=Fraction(delta))
    with mpmath.workdps(50):
        m = mp(Fraction(mu))

        def at(epsilon: Any) -> Any:
            first = mpmath.ncdf(-epsilon / m + m / 2)
            return first - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / m - m / 2)

        assert at(mp(found)) <= mp(Fraction(delta))
        assert at(mp(found) - mpmath.mpf(10) ** -8) > mp(Fraction(delta))


def test_a_delta_that_gaussian_dp_meets_at_once_costs_nothing() -> None:
    assert gdp_to_epsilon(exact("1/100"), delta=Fraction(1, 2)) == 0


# -- pure DP --------------------------------------------------------------------------------------


@pytest.mark.parametrize("nearest", [1, 2, 3])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "ln(3)", "12.48", "40"])
def test_pure_dp_becomes_zcdp_by_the_hyperbolic_tangent(epsilon: str, nearest: int) -> None:
    """R17: (epsilon/n) tanh(n epsilon/2)."""
    with mpmath.workdps(50):
        e = high_precision(exact(epsilon))
        expected = e / nearest * mpmath.tanh(e * nearest / 2)
        assert abs(mp(pure_to_rho2(exact(epsilon), nearest=nearest)) - expected) < mpmath.mpf(10) ** -40


def test_t30_pure_dp_at_epsilon_one() -> None:
    assert pure_to_rho2(exact(1)).shown(6) == "0.462118"
    assert pure_to_rho2(exact(1), nearest=2).shown(6) == "0.380798"
    assert pure_to_rho2(exact(1), method="bun-steinke") == exact("1/2")


@pytest.mark.parametrize("truth", [2, 3, 20])
def test_randomised_response_attains_the_zcdp_and_gaussian_conversions(truth: int) -> None:
    p, q = law(truth, 1), law(1, truth)
    epsilon = PURE.distance(p, q).high
    rho2, mu = pure_to_rho2(epsilon), pure_to_mu(epsilon)
    found = ZCDP.distance(p, q)
    assert found.low * found.low <= rho2 <= found.high * found.high
    assert GDP.distance(p, q).low <= mu
    assert float(GDP.distance(p, q).high) == pytest.approx(float(mu), rel=1e-9)
    assert high_precision(mu) == pytest.approx(2 * norm.ppf(truth / (1 + truth)), rel=1e-9)


@pytest.mark.parametrize("epsilon", [500, 700, 1000])
def test_a_very_large_pure_budget_becomes_gaussian_or_is_refused(epsilon: int) -> None:
    try:
        value = change_output(specification(PURE, epsilon), to=GDP).specification.budget.realised
    except ConversionRefusedError:
        return
    with mpmath.workdps(60):
        # 2 Phi^-1(1 - t) is below 2 sqrt(2 ln(1/t)); with t = exp(-epsilon) a valid and generous ceiling.
        assert mpmath.sqrt(mpmath.mpf(epsilon)) < mp(value) < 2 * mpmath.sqrt(2 * (mpmath.mpf(epsilon) + 1))


# -- validity on drawn pairs ----------------------------------------------------------------------

PAIRS = st.tuples(laws(positive=True, heaviest=9), laws(positive=True, heaviest=9))


def converted(source: OutputPremetric, target: OutputPremetric, loss: Exact, method: str | None = None) -> Exact:
    """Return the converted budget as a distance, for datasets at distance 1."""
    customary = loss * loss if source.name == "D_NoR" else loss
    after = change_output(specification(source, customary), to=target, method=method).specification
    return target.to_distance(after.budget.realised)


CONVERSIONS = [
    (PURE, ZCDP, None),
    (PURE, ZCDP, "bun-steinke"),
    (PURE, GDP, None),
    (PURE, approximate("1/20"), None),
    (PURE, TOTAL_VARIATION, None),
    (PURE, RENYI, None),
    (approximate("1/50"), approximate("1/20"), None),
    (approximate("1/20"), TOTAL_VARIATION, None),
    (ZCDP, approximate("1/20"), "bun-steinke"),
    (ZCDP, approximate("1/20"), "cks"),
    (ZCDP, approximate("1/2"), "cks"),
    (ZCDP, RENYI, None),
    (ZCDP, TOTAL_VARIATION, None),
    (ZCDP, GDP, None),
    (RENYI, approximate("1/20"), None),
    (GDP, approximate("1/20"), None),
    (GDP, ZCDP, None),
    (GDP, TOTAL_VARIATION, None),
    (PURE, CHI_SQUARED, None),
    (PURE, TRADE_OFF, None),
    (RENYI, KULLBACK_LEIBLER, None),
    (KULLBACK_LEIBLER, approximate("1/4"), None),
    (KULLBACK_LEIBLER, TOTAL_VARIATION, None),
    (CHI_SQUARED, HELLINGER, None),
    (HELLINGER, TOTAL_VARIATION, None),
    (TRADE_OFF, ZCDP, None),
]


@pytest.mark.parametrize(
    ("source", "target", "method"),
    CONVERSIONS,
    ids=lambda value: getattr(value, "symbol", str(value)),
)
@FEW
@given(pair=PAIRS)
def test_a_conversion_is_valid_for_every_pair_of_laws(
    source: OutputPremetric, target: OutputPremetric, method: str | None, pair: tuple[Law, Law]
) -> None:
    assume(pair[0] != pair[1])
    bound = converted(source, target, source.distance(*pair).high, method)
    assert target.distance(*pair).low <= bound


@FEW
@given(PAIRS)
def test_a_pure_budget_of_neighbours_becomes_a_valid_renyi_budget(pair: tuple[Law, Law]) -> None:
    assume(pair[0] != pair[1])
    before = specification(PURE, PURE.distance(*pair).high, premetric=PERSONS.neighbours())
    assert RENYI.distance(*pair).low <= change_output(before, to=RENYI).specification.budget.realised


@pytest.mark.parametrize(
    "target", [ZCDP, GDP, TOTAL_VARIATION, RENYI, KULLBACK_LEIBLER, HELLINGER], ids=lambda p: p.symbol
)
@pytest.mark.parametrize("distance", [1, 2, 3])
@FEW
@given(pair=PAIRS)
def test_a_pure_conversion_covers_pairs_further_apart(
    target: OutputPremetric, distance: int, pair: tuple[Law, Law]
) -> None:
    """A pair at distance d with D_Mult = d epsilon keeps d times the converted budget."""
    assume(pair[0] != pair[1])
    epsilon = PURE.distance(*pair).high / distance
    assert target.distance(*pair).low <= distance * converted(PURE, target, epsilon)


@pytest.mark.parametrize("distance", [2, 3])
@FEW
@given(pair=PAIRS)
def test_the_sharper_zcdp_conversion_covers_pairs_no_closer_than_two(distance: int, pair: tuple[Law, Law]) -> None:
    assume(pair[0] != pair[1])
    rho2 = pure_to_rho2(PURE.distance(*pair).high / distance, nearest=2)
    found = ZCDP.distance(*pair).low
    assert found * found <= distance * distance * rho2


def test_the_sharper_zcdp_conversion_is_wrong_for_neighbours() -> None:
    """Its premise is needed: randomised response at distance 1 exceeds it."""
    found = ZCDP.distance(law(3, 1), law(1, 3)).low
    assert found * found > pure_to_rho2(ln(3), nearest=2)


@SOME
@given(st.integers(1, 2000), st.integers(2, 4))
def test_the_gaussian_conversion_grows_slower_than_the_distance(hundredths: int, distance: int) -> None:
    """Concavity, on which its validity at every distance rests."""
    epsilon = exact(Fraction(hundredths, 100))
    assert pure_to_mu(distance * epsilon) <= distance * pure_to_mu(epsilon) + exact("1e-9")


# -- flavors after a conversion -------------------------------------------------------------------


@pytest.mark.parametrize("source", [ZCDP, GDP], ids=lambda p: p.symbol)
def test_a_conversion_to_approximate_dp_ends_in_the_neighbour_relation(source: OutputPremetric) -> None:
    derivation = change_output(specification(source, 1), to=approximate(TINY))
    assert derivation.specification.input_premetric == PERSONS.neighbours(1)
    assert len(derivation.steps) == 2
    assert all(step.theorem for step in derivation.steps)


def test_a_swapping_multiverse_is_converted_at_distance_two() -> None:
    """T32's reminder: rho2 = 21.530 is epsilon 175.18 for the nearest pairs a swap universe has."""
    swapped = specification(ZCDP, "21.53", multiverse=SWAPPED)
    nearest = change_output(swapped, to=approximate(TINY)).specification
    assert nearest.input_premetric == PERSONS.neighbours(2)
    assert round(float(nearest.budget.realised), 2) == 175.18
    nominal = change_output(swapped, to=approximate(TINY), at_distance=1).specification
    assert nominal.input_premetric == PERSONS.neighbours(1)
    assert nominal.budget.realised.shown(3) == "66.061"


def test_a_conversion_that_stays_a_metric_keeps_the_distance() -> None:
    for target in (ZCDP, GDP, TOTAL_VARIATION, approximate(TINY)):
        assert change_output(specification(PURE, 1), to=target).specification.input_premetric == PERSONS


def test_swapping_at_the_scale_of_the_census_becomes_half_its_epsilon() -> None:
    """R17: (epsilon/2) tanh(epsilon), not epsilon squared over two."""
    swapped = specification(PURE, "12.48", multiverse=SWAPPED)
    assert change_output(swapped, to=ZCDP).specification.budget.realised.shown(3) == "6.240"
    naive = change_output(swapped, to=ZCDP, method="bun-steinke").specification
    assert naive.budget.realised == exact("12.48") * exact("12.48") / 2


def test_converting_to_the_same_flavor_changes_nothing() -> None:
    before = specification(PURE, 1)
    assert change_output(before, to=PURE).specification == before
    assert change_distance(before, to="d_HamS").steps == ()


def test_a_budget_that_varies_with_the_universe_says_so_after_a_conversion() -> None:
    before = specification(PURE, Budget.of_swapping("1/20", largest_stratum=100), multiverse=SWAPPED)
    after = change_output(before, to=ZCDP).specification
    assert after.budget.varies
    assert not change_output(specification(PURE, 1), to=ZCDP).specification.budget.varies


# -- the nearest pair through changes of distance -------------------------------------------------


def test_a_change_of_distance_does_not_overstate_how_far_apart_the_nearest_pair_is() -> None:
    """Two records by symmetric difference are one changed record; found on the two files of one record."""
    added = InputPremetric(name="d_SymDiff", unit="person")
    fixed = Multiverse(
        invariants=(Named(name="size", function=len),), nearest=2, nearest_because="a removal and an addition"
    )
    mechanism = {(0,): law(9, 1), (1,): law(1, 9)}
    found = worst(flavor(added, PURE, *fixed.invariants), mechanism).high
    start = specification(PURE, found, premetric=added, multiverse=fixed)
    after = change_output(change_distance(start, to="d_HamS").specification, to=ZCDP).specification
    exact_loss = worst(flavor(PERSONS, ZCDP, *fixed.invariants), mechanism)
    assert exact_loss.low * exact_loss.low <= after.budget.realised


@pytest.mark.parametrize(("factor", "nearest"), [(1, 2), (2, 1), ("3/2", 2), (6, 1)])
def test_a_change_of_unit_rescales_the_nearest_distance(factor: int | str, nearest: int) -> None:
    """d_old >= 2 and d_old <= factor d_new give d_new >= 2/factor and no more."""
    before = specification(PURE, 1, premetric=InputPremetric(name="d_HamS", unit="household"), multiverse=SWAPPED)
    after = change_unit(before, unit="person", factor=factor, because="stated", keeps_total="stated").specification
    assert after.multiverse.nearest == nearest


HALVES = InputPremetric(name="d_Given", unit="person", relation="income", table=(("a", "b", exact("3/2")),))


@pytest.mark.parametrize("stated", [False, True])
def test_fractional_distances_are_not_rounded_up_to_the_nearest_pair(stated: bool) -> None:
    """Randomised response at epsilon 3/2 has D_NoR squared 0.9527 at distance 3/2: rho squared is 0.4235."""
    if stated:
        spec = specification(PURE, 1, premetric=HALVES, multiverse=SWAPPED)
    else:
        start = specification(PURE, "3/4", multiverse=SWAPPED)
        spec = to_distance(start, to=HALVES, at_least="3/4", because="stated").specification
        assert spec.multiverse.nearest == 1
    loss = ZCDP.distance(law(4481, 1000), law(1000, 4481))  # e^1.5 is 4.4817
    after = change_output(spec, to=ZCDP).specification
    assert after.budget.realised.shown(4) == "0.4235"
    assert loss.low <= ZCDP.to_distance(after.budget.realised) * exact("3/2")


def test_a_shortest_path_is_not_as_long_as_the_nearest_files_are_apart() -> None:
    pairs = InputPremetric(name="d_HamS", unit="person", within=2, closure=True)
    after = change_output(specification(PURE, 1, premetric=pairs, multiverse=SWAPPED), to=ZCDP).specification
    assert after.budget.realised == pure_to_rho2(exact(1))


# -- units, refinement, post-processing -----------------------------------------------------------


@pytest.mark.parametrize(("output", "factor"), [(PURE, 6), (ZCDP, 36), (GDP, 6), (TOTAL_VARIATION, 6)])
def test_group_privacy_multiplies_the_distance_and_squares_it_for_rho_squared(
    output: OutputPremetric, factor: int
) -> None:
    after = change_unit(specification(output, 1), unit="household", factor=6, because="at most six").specification
    assert after.budget.realised == factor
    assert after.input_premetric.unit == "household"
    assert "at most six" in after.assumptions


def test_a_duplicated_record_costs_four_times_rho_squared() -> None:
    """The 2020 total with every person in at most two records: 221.484."""
    whole = catalogue.load("das-2020").specification
    after = change_unit(
        whole, unit="respondent", factor=2, because="each answer is copied at most once", post_imputation=False
    ).specification
    assert after.budget.realised == exact("221.484")
    assert not after.input_premetric.post_imputation


def test_a_change_of_unit_makes_the_number_of_old_units_an_invariant() -> None:
    before = specification(PURE, 1)
    plain = change_unit(before, unit="household", factor=6, because="at most six").specification
    assert Margin(of="person") in plain.multiverse.invariants
    excused = change_unit(
        before, unit="household", factor=6, because="at most six", keeps_total="sizes are fixed"
    ).specification
    assert excused.multiverse.is_vacuous
    assert any("sizes are fixed" in line for line in excused.assumptions)
    unbounded = specification(PURE, 1, premetric=InputPremetric(name="d_SymDiff", unit="person"))
    assert change_unit(unbounded, unit="household", factor=6, because="six").specification.multiverse.is_vacuous


def test_by_position_a_change_of_unit_fixes_the_size_of_every_new_unit() -> None:
    """[000][1][0][1] against [00][1][0][1][0]: two households apart, and nearly all persons after the first move."""
    before = specification(PURE, 1, premetric=InputPremetric(name="d_Ham", unit="person"))
    for keeps in (None, "the number of persons is published"):
        after = change_unit(
            before, unit="household", factor=3, because="at most three", keeps_total=keeps
        ).specification
        (fixed,) = after.multiverse.invariants
        assert str(fixed) == "number of person records in each household, in the order of the file"
        assert after.budget.realised == 3
    copies = InputPremetric(name="d_Ham", unit="person", post_imputation=True)
    people = change_unit(
        specification(PURE, 1, premetric=copies), unit="person", factor=2, because="one copy", post_imputation=False
    ).specification
    assert people.multiverse.invariants == (Margin(of="person"),)


def test_refining_keeps_the_budget_and_names_what_was_added() -> None:
    county = Margin(of="person", level="county")
    derivation = refine(specification(PURE, 1), invariants=[county])
    assert derivation.specification.budget.realised == 1
    assert derivation.specification.multiverse.invariants == (county,)
    assert "Proposition 5" in derivation.steps[0].theorem
    assert str(county) in derivation.steps[0].action


def test_post_processing_changes_the_evidence_and_not_the_promise() -> None:
    before = specification(PURE, 1)
    after = post_process(before, description="round to ten").specification
    assert (after.flavor, after.budget) == (before.flavor, before.budget)
    assert any("2.5.4" in line for line in after.theorem)


# -- refusals -------------------------------------------------------------------------------------

# Outputs here are the numbers 0, 1, 2; each list shows that a refusal is not a want of theorems.
NAMES = (
    PURE, approximate("1/20"), ZCDP, RENYI, GDP, TOTAL_VARIATION, KULLBACK_LEIBLER, HELLINGER, CHI_SQUARED, WASSERSTEIN,
    TRADE_OFF, OPEN_TRADE_OFF,
)  # fmt: skip
FIXED = [(law(3, 1), law(1, 3)), (law(9, 1), law(8, 2)), (law(6, 3, 1), law(1, 4, 5)), (law(50, 49, 1), law(49, 50, 1))]
FAR = Law({0: Fraction(1, 4), 10**9: Fraction(3, 4)}), Law({0: Fraction(3, 4), 10**9: Fraction(1, 4)})
NEAR = Law({0: Fraction(1)}), Law({Fraction(1, 10**9): Fraction(1)})


def rare(p: Fraction, q: Fraction) -> tuple[Law, Law]:
    """An output of probability p from one and q from the other."""
    return Law({0: 1 - p, 1: p}), Law({0: 1 - q, 1: q})


def at_least(target: OutputPremetric, pair: Any) -> Exact:
    """Bound a distance from below: zCDP by one order, a curve that starts at 0 by the pure loss it implies."""
    if target == ZCDP:
        return OutputPremetric(name="D_Renyi", order=Fraction(4)).distance(*pair).low / 4
    return (PURE if target == TRADE_OFF else target).distance(*pair).low


def _witness(source: OutputPremetric, target: OutputPremetric) -> Any:
    if source == ZCDP and target != WASSERSTEIN:
        return ShiftLaw(0, DiscreteGaussian(1)), ShiftLaw(1, DiscreteGaussian(1))
    if WASSERSTEIN in (source, target):
        return NEAR if source == WASSERSTEIN else FAR
    if source.name in ("D_Mult^delta", "D_TV", "D_H") or source == OPEN_TRADE_OFF:
        weight = 9 if source == OPEN_TRADE_OFF else 19
        return law(weight, 1, 0), law(weight, 0, 1)  # an output that only one of them can give
    small = {
        "D_GDP": (Fraction(1, 10**40), Fraction("3.5e-37")),  # normal tails at -13.31 and -12.69
        "D_Renyi": (Fraction(1, 10**100), Fraction(1, 10**150)),  # order 3: p^3/q^2 is 1
        "D_chi2": (Fraction(1, 10**40), Fraction(1, 10**80)),
        "D_KL": (Fraction(1, 100), Fraction(1, 10**80)),
    }
    return rare(*small[source.name])


@pytest.mark.parametrize("source", NAMES, ids=lambda p: p.symbol)
@pytest.mark.parametrize("target", NAMES, ids=lambda p: p.symbol)
def test_every_pair_of_output_premetrics_is_converted_validly_or_refused_for_a_reason_that_laws_show(
    source: OutputPremetric, target: OutputPremetric
) -> None:
    """Of all ordered pairs: a bound for every pair of laws, or a pair of laws that has no bound."""
    try:
        change_output(specification(source, 1 if source.curve else "1/50", premetric=PERSONS.neighbours()), to=target)
    except ConversionRefusedError as refusal:
        (problem,) = refusal.problems
        assert problem.what
        assert problem.where
        assert problem.remedy
        pair = _witness(source, target)
        assert source.distance(*pair).high <= 2
        assert at_least(target, pair) >= (1 if target.at_most_one else 4)
        return
    for pair in FIXED:
        found = source.distance(*pair).high
        start = specification(source, found * found if source == ZCDP else found, premetric=PERSONS.neighbours())
        try:
            after = change_output(start, to=target).specification
        except ConversionRefusedError as refusal:
            assert "only from delta" in refusal.problems[0].what or target.curve is not None  # noqa: PT017
            continue
        assert (after.output_premetric, after.input_premetric) == (target, PERSONS.neighbours())
        # A hair more, so that a bound that is attained, and written otherwise, can be decided.
        assert target.distance(*pair).low <= target.to_distance(after.budget.realised) + exact("1e-30")


SHARP = {
    "approximate": (PURE, ln(3), approximate("1/8"), ln(Fraction(5, 2))),
    "approximate, rr(4)": (PURE, ln(4), approximate("1/8"), ln(Fraction(27, 8))),
    "zCDP": (PURE, ln(3), ZCDP, ln(3) / 2),
    "Renyi": (PURE, ln(3), TWO, ln(Fraction(7, 3))),
    "Renyi, rr(4)": (PURE, ln(4), TWO, ln(Fraction(13, 4))),
    "total variation": (PURE, ln(3), TOTAL_VARIATION, exact("1/2")),
    "KL": (PURE, ln(3), KULLBACK_LEIBLER, ln(3) / 2),
    "chi-squared": (PURE, ln(3), CHI_SQUARED, exact("4/3")),
    "chi-squared, rr(4)": (PURE, ln(4), CHI_SQUARED, exact("9/4")),
    "one curve": (PURE, ln(3), TRADE_OFF, exact(1)),
    "a curve back": (TRADE_OFF, exact(1), PURE, ln(3)),
    "a curve to approximate": (TRADE_OFF, exact(1), approximate("1/8"), ln(Fraction(5, 2))),
    "a curve to total variation": (TRADE_OFF, exact(1), TOTAL_VARIATION, exact("1/2")),
    "Gaussian to zCDP": (GDP, exact(3), ZCDP, exact("9/2")),
    "Gaussian to Renyi": (GDP, exact(3), TWO, exact(9)),
    "Gaussian to KL": (GDP, exact(3), KULLBACK_LEIBLER, exact("9/2")),
    "zCDP to Renyi": (ZCDP, exact(3), TWO, exact(6)),
    "Renyi to a lower order": (RENYI, ln(3), TWO, ln(3)),
    "chi-squared to Renyi": (CHI_SQUARED, exact(2), TWO, ln(3)),
    "Renyi to chi-squared": (TWO, ln(3), CHI_SQUARED, exact(2)),
    "Renyi of order 3 to chi-squared": (RENYI, ln(3), CHI_SQUARED, exact(2)),
    "total variation to approximate": (TOTAL_VARIATION, exact("1/10"), approximate("1/10"), exact(0)),
    "approximate to total variation": (approximate("1/10"), exact(0), TOTAL_VARIATION, exact("1/10")),
    "a larger delta": (approximate("1/8"), ln(3), approximate("11/32"), ln(2)),
    "approximate to a curve": (approximate("1/10"), ln(2), OPEN_TRADE_OFF, exact(1)),
    "total variation to Hellinger": (TOTAL_VARIATION, exact("1/4"), HELLINGER, exact("1/2")),
}


@pytest.mark.parametrize(("source", "budget", "target", "value"), SHARP.values(), ids=SHARP.keys())
def test_a_conversion_between_neighbours_has_the_value_that_laws_attain(
    source: OutputPremetric, budget: Exact, target: OutputPremetric, value: Exact
) -> None:
    start = specification(source, budget, premetric=PERSONS.neighbours())
    assert compare_exact(change_output(start, to=target).specification.budget.realised, value) == 0


@pytest.mark.parametrize(
    ("source", "budget", "target", "value"),
    [
        (ZCDP, "1/2", TOTAL_VARIATION, 0.4790984231),
        (ZCDP, "2", TOTAL_VARIATION, 0.8335565596),
        (PURE, "ln(3)", GDP, 1.3489795004),
        (ZCDP, "1/8", GDP, 0.7396910024),
        (ZCDP, "1/2", GDP, 1.4906908660),
        (ZCDP, "2", GDP, 3.0756598505),
        (PURE, "ln(4)", GDP, 1.6832424671),
        (PURE, "ln(4)", ZCDP, 0.8317766167),
        (PURE, "ln(3)", HELLINGER, (1 - 3**0.5 / 2) ** 0.5),
        (PURE, "ln(4)", HELLINGER, 0.2**0.5),
        (GDP, "2", HELLINGER, (1 - math.exp(-0.5)) ** 0.5),
        (GDP, "1", TOTAL_VARIATION, 0.3829249225),
        (HELLINGER, "1/2", TOTAL_VARIATION, 0.5 * 1.75**0.5),
        (KULLBACK_LEIBLER, "1/2", HELLINGER, (1 - math.exp(-0.25)) ** 0.5),
        (KULLBACK_LEIBLER, "1/2", approximate("1/4"), 3.0),
    ],
    ids=str,
)
def test_a_conversion_to_ten_digits(
    source: OutputPremetric, budget: str, target: OutputPremetric, value: float
) -> None:
    start = specification(source, budget, premetric=PERSONS.neighbours())
    assert float(change_output(start, to=target).specification.budget.realised) == pytest.approx(value, abs=2e-10)


def test_a_bound_that_grows_faster_than_the_distance_holds_for_neighbours_only() -> None:
    pairs = [
        (ZCDP, KULLBACK_LEIBLER),
        (ZCDP, GDP),
        (PURE, CHI_SQUARED),
        (GDP, TWO),
        (TOTAL_VARIATION, approximate("1/2")),
    ]
    for source, target in [*pairs, (PURE, TRADE_OFF)]:
        after = change_output(specification(source, "1/50"), to=target).specification
        assert after.input_premetric == PERSONS.neighbours()


@pytest.mark.parametrize("target", NAMES, ids=lambda p: p.symbol)
def test_a_budget_of_zero_means_equal_laws_in_every_measure_but_where_some_is_forgiven(target: OutputPremetric) -> None:
    assert change_output(specification(TOTAL_VARIATION, 0), to=target).specification.budget.realised == 0
    if target == PURE:
        with pytest.raises(ConversionRefusedError):
            change_output(specification(approximate("1/20"), 0), to=target)


def test_every_step_of_a_chain_is_named() -> None:
    steps = change_output(specification(CHI_SQUARED, 1), to=TOTAL_VARIATION).steps
    assert [step.action for step in steps] == [
        "measure by D_KL instead of D_chi2", "measure by D_TV instead of D_KL"
    ]  # fmt: skip


def test_renyi_of_order_two_may_be_small_where_that_of_order_three_is_large() -> None:
    n = 1000
    pair = rare(Fraction(1, n), Fraction(1, n * n))
    assert float(TWO.distance(*pair).high) == pytest.approx(0.6921476802, abs=1e-9)
    assert float(RENYI.distance(*pair).high) == pytest.approx(3.4543758937, abs=1e-9)


REFUSALS: dict[str, Any] = {
    "group privacy on neighbours under invariants": lambda: change_unit(
        specification(approximate(TINY), 1, premetric=PERSONS.neighbours(2), multiverse=SWAPPED),
        unit="household",
        factor=6,
        because="six",
    ),
    "groups so large that delta reaches 1": lambda: change_unit(
        specification(approximate(TINY), 9, premetric=PERSONS.neighbours()), unit="household", factor=6, because="six"
    ),
    "a measure that does not add up": lambda: change_unit(
        specification(RENYI, 1, premetric=PERSONS.neighbours()), unit="household", factor=6, because="six"
    ),
    "neighbours too near for another distance": lambda: change_distance(
        specification(RENYI, 1, premetric=InputPremetric(name="d_SymDiff", unit="person", within=1)), to="d_HamS"
    ),
    "neighbours of neighbours under invariants": lambda: to_neighbours(
        specification(PURE, 1, premetric=PERSONS.neighbours(2), multiverse=SWAPPED), within=4
    ),
    "neighbours of a measure that does not add up": lambda: to_neighbours(
        specification(RENYI, 1, premetric=PERSONS.neighbours()), within=2
    ),
    "post-processing of what it can increase": lambda: post_process(specification(WASSERSTEIN, 1)),
    "from ordered to unordered": lambda: change_distance(
        specification(PURE, 1, premetric=InputPremetric(name="d_Ham", unit="person")), to="d_HamS"
    ),
    "from bounded to unbounded": lambda: change_distance(specification(PURE, 1), to="d_SymDiff"),
    "fewer invariants": lambda: refine(specification(PURE, 1, multiverse=SWAPPED), to=Multiverse()),
    "undecidable invariants": lambda: refine(
        specification(PURE, 1, multiverse=Multiverse(invariants=(Named(name="a"),))),
        to=Multiverse(invariants=(Named(name="b"),)),
    ),
    "a smaller delta": lambda: change_output(specification(approximate("1/20"), 1), to=approximate("1/50")),
    "an unknown zCDP method": lambda: zcdp_to_epsilon(exact(1), delta=TINY, method="best"),
    "an unknown pure method": lambda: pure_to_rho2(exact(1), method="best"),
    "delta zero": lambda: zcdp_to_epsilon(exact(1), delta=Fraction(0)),
    "delta one": lambda: gdp_to_epsilon(exact(1), delta=Fraction(1)),
    "an unknown method by name": lambda: change_output(specification(ZCDP, 1), to=approximate(TINY), method="best"),
    "an unknown method of no loss": lambda: zcdp_to_epsilon(exact(0), delta=TINY, method="best"),
    "an unknown method of an infinite loss": lambda: pure_to_rho2(INFINITE, method="best"),
    "a method where there is no choice": lambda: change_output(specification(PURE, 1), to=GDP, method="sharp"),
    "a method for what is there already": lambda: change_output(specification(ZCDP, 1), to=ZCDP, method="sharp"),
}


@pytest.mark.parametrize("request_", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_no_theorem_gives_is_refused_with_what_where_and_remedy(request_: Any) -> None:
    with pytest.raises(ConversionRefusedError) as caught:
        request_()
    for problem in caught.value.problems:
        assert problem.what
        assert problem.where
        assert problem.remedy


WRONG: dict[str, Any] = {
    "factor zero": lambda: change_unit(specification(), unit="household", factor=0, because="six"),
    "factor negative": lambda: change_unit(specification(), unit="household", factor=-2, because="six"),
    "factor infinite": lambda: change_unit(specification(), unit="household", factor="inf", because="six"),
    "factor without reason": lambda: change_unit(specification(), unit="household", factor=6, because=" "),
    "factor no number": lambda: change_unit(specification(), unit="household", factor="six", because="six"),
    "no unit": lambda: change_unit(specification(), unit=" ", factor=6, because="six"),
    "delta no probability": lambda: approximate("7/4"),
    "negative rho2": lambda: zcdp_to_epsilon(exact(-1), delta=TINY),
    "free budget": lambda: change_output(catalogue.load("pure-dp").specification, to=ZCDP),
    "within zero": lambda: to_neighbours(specification(), within=0),
    "at distance zero": lambda: change_output(specification(ZCDP, 1), to=approximate(TINY), at_distance=0),
}


@pytest.mark.parametrize("request_", WRONG.values(), ids=WRONG.keys())
def test_a_request_that_makes_no_sense_is_a_specification_error(request_: Any) -> None:
    with pytest.raises(SpecificationError) as caught:
        request_()
    for problem in caught.value.problems:
        assert problem.what
        assert problem.where
        assert problem.remedy


@FEW
@given(exacts())
def test_any_nonnegative_budget_converts_to_a_bound_not_below_it(value: Exact) -> None:
    """Pure to zCDP and back up to total variation stay ordered as they must: tau <= 1 and rho2 <= epsilon."""
    assume(0 < high_precision(value) < 50)
    rho2 = change_output(specification(PURE, Budget.constant(value)), to=ZCDP).specification.budget.realised
    tau = change_output(specification(PURE, Budget.constant(value)), to=TOTAL_VARIATION).specification.budget.realised
    assert 0 < rho2 < value
    assert 0 < tau < 1


def test_an_infinite_budget_converts_to_the_most_a_measure_can_show() -> None:
    assert change_output(specification(PURE, "inf"), to=TOTAL_VARIATION).specification.budget.realised == 1
    assert change_output(specification(PURE, "inf"), to=ZCDP).specification.budget.realised == INFINITE
    for source in (GDP, ZCDP):
        spec = specification(source, "inf")
        assert change_output(spec, to=TOTAL_VARIATION).specification.budget.realised >= 1


def test_a_surely_small_loss_stays_below_its_bound_by_the_helper() -> None:
    """The helper of these tests can say no."""
    assert not surely_at_most(PURE.distance(law(3, 1), law(1, 3)), ln(2))


@pytest.mark.parametrize(("unit", "within", "words"), [
    ("record", 1, "1 record apart"), ("record", 3, "3 records apart"),
    ("household", 1, "1 household record apart"), ("tax record", 2, "2 tax records apart"),
])  # fmt: skip
def test_neighbours_are_said_to_be_so_many_records_apart_and_never_record_records(
    unit: str, within: int, words: str
) -> None:
    start = specification(PURE, 1, premetric=InputPremetric(name="d_HamS", unit=unit))
    (step,) = to_neighbours(start, within=within).steps
    assert step.action.endswith(f"at most {words}")
