"""Section 5.2: one person's answers may stand in several records, and units convert by group privacy."""

import pytest

from stirred.spec import ZCDP, Specification, change_output, change_unit, compose
from stirred.spec.convert_output import pure_to_rho2, zcdp_to_epsilon
from stirred.spec.exact import exact
from tests.paper.printed import assert_prints
from tests.paper.published import DELTA, epsilon_at_delta, household_to_person, specification

# Table 3 as printed.
PRINTED_TOPDOWN = [
    ("das-2020-pl-household", "0.07"),
    ("das-2020-pl-person", "2.56"),
    ("das-2020-dhc-household", "7.70"),
    ("das-2020-dhc-person", "4.96"),
]


def printed_topdown() -> list[Specification]:
    return [specification(name).with_budget(rho2) for name, rho2 in PRINTED_TOPDOWN]


def swapping_at_12_48() -> Specification:
    return specification("psa-2020-state-county-50pct").with_budget("12.48")


def duplicated_once(spec: Specification) -> Specification:
    return change_unit(
        spec,
        unit="person",
        factor=2,
        because="imputation copied this contributor's record once",
        post_imputation=False,
    ).specification


def test_a_record_duplicated_once_quadruples_rho_squared() -> None:
    """Section 5.2: 221.48 rather than 55.37, since doubling rho quadruples rho squared."""
    nominal = specification("das-2020")
    assert_prints(nominal.budget.realised, "55.37")
    substantive = duplicated_once(nominal)
    assert substantive.budget.realised == 4 * nominal.budget.realised
    assert_prints(substantive.budget.realised, "221.48")


def test_the_substantive_epsilon_is_as_printed() -> None:
    """Section 5.2: 364.31 with delta = 10^-10."""
    assert_prints(epsilon_at_delta(duplicated_once(specification("das-2020"))), "364.31")


def test_the_unit_is_then_a_person_and_the_invariants_are_the_same() -> None:
    """Section 5.2: from post-imputation persons to persons, and nothing else changes."""
    nominal = specification("das-2020")
    substantive = duplicated_once(nominal)
    assert nominal.input_premetric.post_imputation
    assert not substantive.input_premetric.post_imputation
    assert substantive.input_premetric.unit == nominal.input_premetric.unit == "person"
    assert substantive.multiverse == nominal.multiverse
    assert substantive.output_premetric == ZCDP


def test_doubling_epsilon_or_rho_squared_is_not_it() -> None:
    """Section 5.2: neither twice 126.78 nor twice 55.371 is the substantive loss; both are too small."""
    nominal = specification("das-2020")
    substantive = duplicated_once(nominal)
    assert 2 * nominal.budget.realised < substantive.budget.realised
    assert 2 * epsilon_at_delta(nominal) < epsilon_at_delta(substantive)
    assert_prints(2 * epsilon_at_delta(nominal), "253.57")


def test_the_budget_of_pure_differential_privacy_doubles() -> None:
    """Section 5.2, in general: the budget is inflated by the number of copies; epsilon is not squared."""
    swapping = specification("psa-2020-state-county-50pct")
    copied = change_unit(
        swapping, unit="household", factor=2, because="imputation copied this household once", post_imputation=False
    ).specification
    assert copied.budget.realised == 2 * swapping.budget.realised


def test_a_person_who_may_move_between_two_households_costs_more() -> None:
    """R17 on the overall row of Table 4: with factor 2 instead of 1, rho squared is 139.596 and epsilon 252.99.

    Needs the printed budgets of Table 3, of which the household ones are multiplied by four.
    """
    others = [specification(f"das-2020-{name}") for name in ("safetab-p", "safetab-h", "phsafe")]
    overall = compose([*printed_topdown(), *others], unit="person", units=[household_to_person(2)]).specification
    assert overall.budget.realised == exact("139.596")
    assert_prints(epsilon_at_delta(overall), "252.99")
    assert overall.multiverse.refines(specification("das-2020").multiverse)


def test_with_factor_1_the_printed_parts_give_the_printed_total() -> None:
    """Tables 3 and 4: 0.07 + 2.56 + 7.70 + 4.96 = 15.29, and 55.371 in all."""
    others = [specification(f"das-2020-{name}") for name in ("safetab-p", "safetab-h", "phsafe")]
    units = [household_to_person(1)]
    assert compose(printed_topdown(), unit="person", units=units).specification.budget.realised == exact("15.29")
    assert compose([*printed_topdown(), *others], unit="person", units=units).specification.budget.realised == exact(
        "55.371"
    )


@pytest.mark.parametrize(("nearest", "rho2"), [(1, "0.462117"), (2, "0.380797")])
def test_pure_loss_1_is_the_sharp_zcdp_loss(nearest: int, rho2: str) -> None:
    """R17, case T30: epsilon tanh(epsilon/2), and half of epsilon tanh(epsilon) where no pair is closer than 2."""
    assert_prints(pure_to_rho2(exact(1), nearest=nearest), rho2)


@pytest.mark.parametrize(("factor", "rho2", "epsilon"), [(1, "21.530", "66.061"), (2, "40.250", "101.136")])
def test_swapping_and_topdown_together(factor: int, rho2: str, epsilon: str) -> None:
    """R17, case T32: swapping at 12.48 (Table 2) with TopDown at 15.29 (Table 4), per person."""
    topdown = specification("das-2020-topdown")
    together = compose([swapping_at_12_48(), topdown], unit="person", units=[household_to_person(factor)]).specification
    assert_prints(together.budget.realised, rho2)
    assert_prints(zcdp_to_epsilon(together.budget.realised, delta=DELTA), epsilon)


def test_swapping_and_topdown_together_where_nearest_datasets_are_two_apart() -> None:
    """R17, case T32 with factor 1: no two datasets are closer than 2, where epsilon is 175.18."""
    topdown = specification("das-2020-topdown")
    together = compose([swapping_at_12_48(), topdown], unit="person", units=[household_to_person(1)]).specification
    assert together.multiverse.nearest == 2
    assert_prints(epsilon_at_delta(together), "175.18")


def test_swapping_and_the_parts_of_topdown_together_for_persons_who_may_move() -> None:
    """R17: 7.52 + 4 x 7.77 + 24.96 = 63.560 and 140.072, with the printed budgets of Table 3."""
    parts = [swapping_at_12_48(), *printed_topdown()]
    together = compose(parts, unit="person", units=[household_to_person(2)]).specification
    assert_prints(together.budget.realised, "63.560")
    assert_prints(zcdp_to_epsilon(together.budget.realised, delta=DELTA), "140.072")


@pytest.mark.parametrize(("factor", "nearest"), [(1, 2), (2, 1), (3, 1)])
def test_a_change_of_unit_carries_the_nearest_distance_with_it(factor: int, nearest: int) -> None:
    """R17: datasets 2 households apart are 2/factor persons apart or more, and nothing else is certain.

    With factor 2: one of three persons alike leaves for a household of two of them in another county. Every
    invariant stays, two households change, and only the record of that person does.
    """
    swapping = specification("psa-2020-state-county-50pct")
    assert swapping.multiverse.nearest == 2
    per_person = change_unit(
        swapping, unit="person", factor=factor, because="stated for this test", keeps_total="stated for this test"
    ).specification
    assert per_person.multiverse.nearest <= nearest
    rho2 = change_output(per_person, to=ZCDP).specification.budget.realised
    assert rho2 >= pure_to_rho2(factor * swapping.budget.realised, nearest=nearest)
