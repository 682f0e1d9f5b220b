"""The catalogue: every published number is computed from settings, and prints as published."""

from fractions import Fraction

import pytest

from stirred.spec import (
    Specification,
    SpecificationError,
    approximate,
    catalogue,
    change_output,
    exact,
    ln,
)
from stirred.spec.budget import PermutationSwapping
from stirred.spec.explanation import explain
from stirred.spec.swap_budget import psa_epsilon

NAMES = catalogue.names()


def entry(name: str) -> Specification:
    return catalogue.load(name).specification


def test_a_definition_is_found_by_its_other_names() -> None:
    """Otherwise who looks for bounded-dp is sent to its opposite, whose name is the nearest."""
    assert catalogue.load("bounded-dp") == catalogue.load("pure-dp")
    also = catalogue.raw_atlas()["also"]
    assert set(also.values()) <= set(catalogue.names("definition"))
    assert not set(also) & {*catalogue.names(), *catalogue.raw_atlas()["absent"]}
    assert "Also called gdp." in catalogue.load("gaussian-dp").notes


def test_what_a_definition_holds_fixed_and_counts_reads_as_a_sentence() -> None:
    for name in catalogue.names("definition"):
        words = explain(catalogue.load(name).specification)
        assert not any(item.startswith("the everything") for item in words.not_protected), name
        assert "is sum of" not in words.answers[2].answer, name
        assert "imputation" not in words.answers[2].answer, name  # a definition has no file


def test_names_are_unique_and_every_one_loads() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert [catalogue.load(name).name for name in NAMES] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    found = catalogue.load(name)
    assert found.title
    assert found.source
    assert found.specification.notation


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_computed_from_settings(name: str) -> None:
    """Swap entries hold a rate and a stratum; their epsilon is that of Theorem 1."""
    budget = entry(name).budget
    if isinstance(budget.policy, PermutationSwapping):
        (strata,) = budget.policy.strata
        assert budget.realised == psa_epsilon(strata.rate, largest_stratum=strata.largest_stratum)


PRINTED = [name for name in NAMES if catalogue.load(name).printed is not None]


@pytest.mark.parametrize("name", PRINTED)
def test_printed_numbers_are_ours_cut_off_or_rounded_to_nearest(name: str) -> None:
    """Tables 2, 3 and 5 and sections 3.4 and 3.5 print two decimals; ours is rounded up, so never below."""
    found = catalogue.load(name)
    value, printed = found.specification.budget.realised, Fraction(found.printed or "0")
    high = Fraction(value.enclose().high)
    cut = Fraction(int(high * 100), 100)
    assert printed in (cut, Fraction(round(high * 100), 100))
    assert Fraction(value.shown()) >= value
    assert found.budget_text.endswith(f"printed {found.printed}") == (Fraction(value.shown()) != printed)


def test_every_swapping_entry_and_every_measurement_has_its_printed_number() -> None:
    assert {name for name in NAMES if name.startswith("psa-")} <= {*PRINTED}
    assert len(PRINTED) == 24


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("psa-")])
def test_swapping_entries_fix_margins_and_have_no_neighbours(name: str) -> None:
    found = entry(name)
    assert found.multiverse.nearest == 2
    assert found.multiverse.nearest_because
    assert len(found.multiverse.invariants) == 2
    assert found.input_premetric.symbol == "d_HamS^household"
    assert found.budget.varies


@pytest.mark.parametrize(
    ("name", "rho2"),
    [
        ("das-2020-topdown-pl", "(3379/12343)^2 + (542/339)^2"),
        ("das-2020-topdown-measured", "(3379/12343)^2 + (542/339)^2 + 7.7005 + 4.9622"),
        ("das-2020-topdown", "15.29"),
        ("das-2020", "55.371"),
    ],
)
def test_the_2020_entries_add_up(name: str, rho2: str) -> None:
    found = entry(name)
    assert found.budget.realised == exact(rho2)
    assert found.input_premetric.unit == "person"
    assert found.input_premetric.post_imputation


def test_the_2020_total_is_epsilon_126_784_at_delta_1e_10() -> None:
    found = change_output(entry("das-2020"), to=approximate(Fraction(1, 10**10))).specification
    assert round(float(found.budget.realised), 3) == 126.784


def test_definitions_leave_their_budget_open_and_say_so() -> None:
    for name in ("pure-dp", "approximate-dp", "zcdp"):
        assert entry(name).budget.is_free
        with pytest.raises(SpecificationError) as caught:
            _ = entry(name).budget.realised
        assert caught.value.problems[0].remedy
    assert entry("randomised-response").budget.realised == ln(3)


@pytest.mark.parametrize(("wrong", "right"), [("das-2002", "das-2020"), ("zcpd", "zcdp"), ("pure", "pure-dp")])
def test_a_misspelt_name_is_answered_with_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        catalogue.load(wrong)
    assert right in caught.value.problems[0].remedy


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(SpecificationError) as caught:
        catalogue.load("xyzzy")
    assert "did you mean" not in caught.value.problems[0].remedy
