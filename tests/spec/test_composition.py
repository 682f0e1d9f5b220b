"""Composition: published and derived numbers, refusals, and soundness on drawn mechanisms."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import (
    GDP,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Budget,
    ConversionRefusedError,
    Domain,
    Exact,
    InputPremetric,
    Law,
    Margin,
    Multiverse,
    Named,
    OutputPremetric,
    UnitFactor,
    approximate,
    catalogue,
    change_output,
    compose,
    exact,
    ln,
)
from stirred.spec.convert_output import pure_to_mu, zcdp_to_epsilon
from stirred.spec.exact import compare_exact, sqrt
from stirred.spec.output_premetric import HELLINGER
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification
from tests.spec.strategies import (
    DOMAIN,
    FEW,
    GEOGRAPHY,
    RENYI,
    Dataset,
    classes,
    flavor,
    invariant,
    law,
    mechanisms,
    specification,
    worlds,
    worst,
)

pytestmark = pytest.mark.usefixtures("coarse_zcdp")

TINY = Fraction(1, 10**10)
TDA = catalogue.load("das-2020-topdown").specification
SWAPPED = catalogue.load("psa-2020-state-county-size-50pct").specification.with_budget("12.48")


def per_person(factor: int) -> UnitFactor:
    return UnitFactor(
        old="household",
        new="person",
        factor=factor,
        because="stated for this test",
        keeps_total="the number of households is fixed",
    )


# -- numbers --------------------------------------------------------------------------------------


def test_t31_the_2020_total_is_55_371_and_its_epsilon_126_784() -> None:
    total = catalogue.load("das-2020").specification
    assert total.budget.realised == exact("55.371")
    converted = change_output(total, to=approximate(TINY)).specification
    assert round(float(converted.budget.realised), 3) == 126.784
    assert converted.budget.realised == zcdp_to_epsilon(exact("55.371"), delta=TINY)


def test_t32_swapping_with_topdown_at_the_person_unit() -> None:
    """R16 with R17: (epsilon/2) tanh(epsilon) + 15.29 on the common refinement."""
    both = compose([SWAPPED, TDA], unit="person", units=[per_person(1)]).specification
    assert round(float(both.budget.realised), 3) == 21.530
    assert both.input_premetric.unit == "person"
    assert both.multiverse.nearest == 2
    nominal = change_output(both, to=approximate(TINY), at_distance=1).specification
    assert round(float(nominal.budget.realised), 3) == 66.061
    nearest = change_output(both, to=approximate(TINY)).specification
    assert round(float(nearest.budget.realised), 2) == 175.18
    assert nearest.input_premetric.within == 2


def test_t32_with_a_person_who_may_move_to_another_household() -> None:
    """Kappa 2 on the swapping part only: no pair is known to be further than one person apart then."""
    both = compose([SWAPPED, TDA], unit="person", units=[per_person(2)]).specification
    assert round(float(both.budget.realised), 3) == 40.250
    nominal = change_output(both, to=approximate(TINY), at_distance=1).specification
    assert round(float(nominal.budget.realised), 3) == 101.136


def test_the_2020_total_with_kappa_two_is_139_596() -> None:
    """R16's variant: 4 times the household parts."""
    names = ("das-2020-pl-household", "das-2020-pl-person", "das-2020-dhc-household", "das-2020-dhc-person")
    parts = [catalogue.load(name).specification for name in names]
    published = [part.with_budget(value) for part, value in zip(parts, ("0.07", "2.56", "7.70", "4.96"), strict=True)]
    rest = [catalogue.load(f"das-2020-{name}").specification for name in ("safetab-p", "safetab-h", "phsafe")]
    total = compose([*published, *rest], unit="person", units=[per_person(2)]).specification
    assert total.budget.realised == exact("139.596")
    converted = change_output(total, to=approximate(TINY)).specification
    assert round(float(converted.budget.realised), 2) == 252.99


@pytest.mark.parametrize(("names", "rho2"), [
    (["das-2020-pl-household", "das-2020-pl-person"], "(3379/12343)^2 + (542/339)^2"),
    (["das-2020-pl-person", "das-2020-dhc-person"], "(542/339)^2 + 4.9622"),
])  # fmt: skip
def test_zcdp_budgets_add_up_as_rho_squared(names: list[str], rho2: str) -> None:
    parts = [catalogue.load(name).specification for name in names]
    total = compose(parts, unit="person", units=[per_person(1)]).specification
    assert total.budget.realised == Exact.parse(rho2)


def test_pure_budgets_add_up_to_one_logarithm() -> None:
    total = compose([specification(PURE, ln(3)), specification(PURE, ln(5)), specification(PURE, ln(7))]).specification
    assert total.budget.realised == ln(105)


def test_approximate_budgets_add_epsilons_and_deltas() -> None:
    total = compose([specification(approximate("1/100"), 1), specification(approximate("1/50"), 2)]).specification
    assert total.budget.realised == 3
    assert total.output_premetric.delta == Fraction(3, 100)


def test_gaussian_budgets_add_up_as_the_root_of_the_sum_of_squares() -> None:
    total = compose([specification(GDP, 3), specification(GDP, 4)]).specification
    assert total.budget.realised == 5
    assert compose([specification(GDP, 1), specification(GDP, 1)]).specification.budget.realised == sqrt(2)


def test_total_variation_adds_up() -> None:
    total = compose([specification(TOTAL_VARIATION, "1/4"), specification(TOTAL_VARIATION, "1/2")]).specification
    assert total.budget.realised == exact("3/4")


@pytest.mark.parametrize("output", [TOTAL_VARIATION, HELLINGER])
def test_a_measure_that_is_at_most_1_adds_up_to_no_more(output: OutputPremetric) -> None:
    total = compose([specification(output, "4/5"), specification(output, "9/10")]).specification
    assert total.budget.realised == 1
    halves = InputPremetric(name="d_Given", unit="person", relation="r", table=(("a", "b", exact("1/2")),))
    near = [specification(output, value, premetric=halves) for value in ("4/5", "9/10")]
    # Half a unit apart, a bound of 1 for each unit would be too small.
    assert compose(near).specification.budget.realised > 1


def test_pure_and_gaussian_meet_in_gaussian_dp() -> None:
    total = compose([specification(PURE, 1), specification(GDP, 1)]).specification
    assert total.output_premetric == GDP
    mu = pure_to_mu(exact(1))
    assert compare_exact(total.budget.realised, sqrt(mu * mu + 1)) == 0


def test_different_measures_meet_in_approximate_dp_where_a_delta_is_given() -> None:
    near = InputPremetric(name="d_HamS", unit="person", within=1)
    parts = [specification(ZCDP, 1, premetric=near), specification(RENYI, 1, premetric=near)]
    total = compose(parts, delta="1/1000").specification
    assert total.output_premetric.delta == Fraction(2, 1000)
    expected = zcdp_to_epsilon(exact(1), delta=Fraction(1, 1000)) + 1 + ln(1000) / 2
    assert compare_exact(total.budget.realised, expected) == 0


def test_one_release_alone_keeps_its_promise() -> None:
    alone = compose([TDA]).specification
    assert (alone.flavor, alone.budget) == (TDA.flavor, TDA.budget)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_releases_does_not_matter(order: tuple[int, ...]) -> None:
    parts = [specification(PURE, ln(3)), specification(ZCDP, "1/2"), specification(GDP, 1)]
    expected = compose(parts).specification.budget.realised
    total = compose([parts[i] for i in order]).specification
    assert abs(float(total.budget.realised) - float(expected)) < 1e-12


def test_the_evidence_of_all_releases_is_kept() -> None:
    total = catalogue.load("das-2020")
    parts = [catalogue.load(name).specification for name in ("das-2020-topdown", "das-2020-phsafe")]
    assert {line for part in parts for line in part.theorem} <= set(total.specification.theorem)
    assert any("fresh" in line for line in total.specification.assumptions)
    assert total.steps[-1].action == "together"


def test_one_release_that_looked_at_the_data_taints_the_whole() -> None:
    clean = replace(specification(PURE, 1), settings_from="policy")
    peeked = replace(specification(PURE, 1), settings_from="this-data", seeded=True)
    total = compose([clean, peeked]).specification
    assert total.settings_from == "this-data"
    assert total.seeded


def test_a_budget_that_varies_in_one_release_varies_in_the_whole() -> None:
    swapping = specification(PURE, Budget.of_swapping("1/20", largest_stratum=10))
    assert compose([swapping, specification(PURE, 1)]).specification.budget.varies


# -- the common refinement ------------------------------------------------------------------------


def test_the_whole_is_relative_to_the_invariants_of_every_part() -> None:
    county, sex = Margin(of="person", level="county"), Margin(of="person", variables=("sex",))
    parts = [specification(PURE, 1, multiverse=Multiverse(invariants=(fixed,))) for fixed in (county, sex)]
    assert set(compose(parts).specification.multiverse.invariants) == {county, sex}


def test_an_invariant_that_another_part_implies_is_not_repeated() -> None:
    block, state = (Margin(of="person", level=level) for level in ("block", "state"))
    parts = [
        specification(PURE, 1, multiverse=Multiverse(invariants=(fixed,), hierarchies=(GEOGRAPHY,)))
        for fixed in (block, state)
    ]
    assert compose(parts).specification.multiverse.invariants == (block,)


def test_invariants_known_by_name_do_not_keep_releases_apart() -> None:
    """Three parts in any order: what one implies stays implied beside a function known by name."""
    tables = (
        Margin(of="household", variables=("size",), includes=("person",)),
        Margin(of="person"),
        Named(name="housing"),
    )
    parts = [specification(PURE, 1, multiverse=Multiverse(invariants=(table,))) for table in tables]
    for order in permutations(parts):
        assert compose(list(order)).specification.budget.realised == 3


@FEW
@given(st.data())
def test_a_composed_budget_bounds_the_exact_loss_on_the_common_refinement(data: st.DataObject) -> None:
    """R16, for mechanisms and invariants drawn at random, each part with its own exact loss as budget."""
    datasets, premetric, output = data.draw(worlds())
    parts, laws, fixed = [], [], []
    for name in ("first", "second"):
        mechanism = data.draw(mechanisms(datasets, outcomes=2))
        held = invariant(data.draw(classes(datasets, most=2)), name=name)
        found = worst(flavor(premetric, output, held), mechanism).high
        customary = found * found if output.name == "D_NoR" else found
        parts.append(specification(output, customary, premetric=premetric, multiverse=Multiverse(invariants=(held,))))
        laws.append(mechanism)
        fixed.append(held)
    total = compose(parts).specification
    both: dict[Dataset, Law] = {x: laws[0][x].times(laws[1][x]) for x in datasets}
    assert set(total.multiverse.invariants) == set(fixed)
    exact_loss = worst(total.flavor, both)
    assert exact_loss.low <= total.output_premetric.to_distance(total.budget.realised)


def test_a_composed_budget_does_not_hold_without_the_refinement() -> None:
    """The first part fixes what it publishes; under the second's invariants alone nothing bounds it."""
    content = Named(name="content", function=lambda x: x)
    published = {(bit,): Law.certain(bit) for bit in (0, 1)}
    noisy = {(0,): law(3, 1), (1,): law(1, 3)}
    both = {x: published[x].times(noisy[x]) for x in noisy}
    premetric = InputPremetric(name="d_HamS", unit="person")
    parts = [
        specification(PURE, 0, multiverse=Multiverse(invariants=(content,))),
        specification(PURE, ln(3)),
    ]
    total = compose(parts).specification
    assert worst(total.flavor, both).high <= total.budget.realised == ln(3)
    assert worst(flavor(premetric, PURE), both).low.is_infinite


# -- refusals -------------------------------------------------------------------------------------

OTHER = Domain(name="Y", dataset="another list")
SEEN = InputPremetric(name="d_HamS", unit="person", post_imputation=True)
REFUSALS: dict[str, Any] = {
    "nothing": lambda: compose([]),
    "an unknown kappa": lambda: compose([SWAPPED, TDA], unit="person"),
    "different units and none chosen": lambda: compose([SWAPPED, TDA]),
    "a kappa in the wrong direction": lambda: compose([SWAPPED, TDA], unit="household", units=[per_person(1)]),
    "different domains": lambda: compose([specification(), specification(domain=OTHER)]),
    "different stages": lambda: compose(
        [
            specification(domain=replace(DOMAIN, stage="edited-file")),
            specification(domain=replace(DOMAIN, stage="sample")),
        ]
    ),
    "records before and after imputation": lambda: compose(
        [specification(premetric=replace(SEEN, post_imputation=False)), specification(premetric=SEEN)]
    ),
    "distances of which none bounds the others": lambda: compose(
        [specification(), specification(premetric=InputPremetric(name="d_r", unit="person", relation="edge"))]
    ),
    "measures without a delta": lambda: compose([specification(ZCDP, 1), specification(RENYI, 1)]),
    "total variation with another": lambda: compose([specification(PURE, 1), specification(TOTAL_VARIATION, 1)]),
    "deltas that add up to one": lambda: compose([specification(approximate("1/2"), 1)] * 2),
    "neighbours with a metric": lambda: compose(
        [specification(), specification(premetric=InputPremetric(name="d_HamS", unit="person", within=1))]
    ),
}


@pytest.mark.parametrize("request_", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_be_composed_is_refused_with_what_where_and_remedy(request_: Any) -> None:
    with pytest.raises(ConversionRefusedError) as caught:
        request_()
    for problem in caught.value.problems:
        assert problem.what
        assert problem.where
        assert problem.remedy


def test_the_refusal_of_an_unknown_factor_says_which_one_to_state() -> None:
    with pytest.raises(ConversionRefusedError) as caught:
        compose([SWAPPED, TDA], unit="person")
    assert "household" in caught.value.problems[0].what
    assert caught.value.problems[0].remedy == "state it: --kappa household:person=K"
    stated = 'state it: units=[UnitFactor(old="household", new="person", factor=K, because=...)].'
    assert str(caught.value).endswith(stated)


def test_the_refusal_of_different_units_names_the_arguments_that_choose_one() -> None:
    with pytest.raises(ConversionRefusedError) as caught:
        compose([SWAPPED, TDA])
    assert str(caught.value).endswith(
        'choose one with unit="household", and state a factor for each of the others with units=[UnitFactor(...)].'
    )


def test_ordered_and_unordered_distances_meet_in_the_ordered_one() -> None:
    ordered = InputPremetric(name="d_Ham", unit="person")
    total = compose([specification(), specification(premetric=ordered)]).specification
    assert total.input_premetric == ordered
    assert total.budget.realised == 2


def test_added_and_changed_records_meet_at_two_for_one() -> None:
    added = InputPremetric(name="d_SymDiff", unit="person")
    total = compose([specification(), specification(premetric=added)]).specification
    assert total.input_premetric.name == "d_HamS"
    assert total.budget.realised == 3


# ---- what is not said about the file ---------------------------------------------------------------


def stages(*said: str) -> Specification:
    return compose([specification(domain=replace(DOMAIN, stage=stage)) for stage in said]).specification


def test_a_release_that_does_not_say_its_stage_adds_up_with_one_that_does_under_an_assumption() -> None:
    together = stages("as-given", "edited-file")
    assert together.domain.stage == "as-given"
    assert any("do not say at which stage the file was" in line for line in together.assumptions)
    assert not any("do not say" in line for line in stages("edited-file", "edited-file").assumptions)
    with pytest.raises(StirredError, match="the domains differ"):
        stages("as-given", "edited-file", "sample")


@pytest.mark.parametrize(("other", "together"), [(True, True), (False, None), (None, None)])
def test_of_records_of_which_nothing_is_said_the_weaker_is_said_together(
    other: bool | None, together: bool | None
) -> None:
    parts = [specification(premetric=replace(SEEN, post_imputation=said)) for said in (None, other)]
    for order in (parts, parts[::-1]):
        assert compose(order).specification.input_premetric.post_imputation is together
