"""What could be learned, read off a specification: the gate, the rows, and the words."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import pytest
from scipy.stats import norm

from stirred.inference import (
    UnsupportedFlavor,
    explain,
    posterior_bounds,
    power_bounds,
    pure_loss,
    what_could_be_learned,
    zcdp_power_bound,
)
from stirred.report.learned import learned_section
from stirred.spec import GDP, PURE, TOTAL_VARIATION, ZCDP, InputPremetric, OutputPremetric, approximate, catalogue
from stirred.spec.exact import exact
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import SpecificationError
from stirred.spec.specification import Specification
from stirred.spec.tradeoff import TradeOff
from tests.spec.strategies import law

OTHERS = [ZCDP, GDP, TOTAL_VARIATION, approximate("1e-10"), OutputPremetric(name="D_Renyi", order=exact(2).rational)]


def pure(unit: str = "person", name: str = "d_HamS", **more: object) -> Specification:
    given = catalogue.load("pure-dp").specification.with_budget(1)
    return given.with_flavor(input_premetric=InputPremetric(name=name, unit=unit, **more))  # type: ignore[arg-type]


def distances(specification: Specification) -> dict[str, int]:
    return {row.about: row.distance for row in what_could_be_learned(specification).rows}


@pytest.mark.parametrize("output", OTHERS, ids=lambda output: output.name)
def test_every_flavor_but_the_pure_one_is_refused_by_name(output: OutputPremetric) -> None:
    specification = pure().with_flavor(output_premetric=output)
    with pytest.raises(UnsupportedFlavor, match="unsupported flavor") as refused:
        pure_loss(specification)
    assert output.classic in refused.value.problems[0].what
    assert pure_loss(specification.with_flavor(output_premetric=PURE)) == exact(1)
    shown = learned_section(specification)
    assert "For the exact figures there is no limit" in shown
    assert "unsupported" not in shown
    if output == ZCDP:
        return
    told = what_could_be_learned(specification)
    assert (told.rows, bool(told.refused)) == ((), True)
    assert f"No limit can be stated: this release promises {output.classic}" in shown
    assert "at most" not in shown


def test_zcdp_limits_tests_and_says_nothing_of_beliefs() -> None:
    specification = pure(post_imputation=True).with_flavor(output_premetric=ZCDP).with_budget("1/10")
    told = what_could_be_learned(specification)
    rows = {row.about: row for row in told.rows}
    assert rows["one person"].words == "a 5% test has power at most 13.6%"
    copied = rows["a person copied into 1 more person record"]  # rho is doubled, and rho squared four times as large
    assert (copied.far, copied.power) == (exact("2/5"), zcdp_power_bound("0.05", "2/5"))
    assert all(row.posterior is None for row in told.rows)
    assert not rows["everything about an area of 100 persons"].assured
    shown = learned_section(specification)
    assert "for the worst possible test." in shown
    assert "prior" not in shown


@pytest.mark.parametrize("alpha", ["1/1000", "1/20", "1/5", "1/2", "9/10", "999/1000"])
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_no_test_of_gaussian_noise_has_more_power_than_zcdp_allows(alpha: str, shift: int) -> None:
    """Normal laws ``shift`` standard deviations apart have rho squared shift^2/2."""
    power = norm.sf(norm.isf(float(Fraction(alpha))) - shift)
    bound = float(zcdp_power_bound(alpha, "1/2", shift))
    assert power <= bound < 1
    assert bound == pytest.approx(float(zcdp_power_bound(alpha, Fraction(shift**2, 2))))
    # 4 is how many times rho squared must shrink before the bound is below what the normal law attains.
    assert float(zcdp_power_bound(alpha, Fraction(shift**2, 8))) < power


@pytest.mark.parametrize(("p", "q"), [((9, 1), (1, 9)), ((6, 3, 1), (1, 4, 5)), ((50, 49, 1), (49, 50, 1))])
def test_no_test_between_two_laws_has_more_power_than_zcdp_allows(p: tuple[int, ...], q: tuple[int, ...]) -> None:
    rho = ZCDP.distance(law(*p), law(*q)).high
    for first, second in ((p, q), (q, p)):
        for alpha, power in TradeOff.of(law(*first), law(*second)).corners[1:-1]:
            assert zcdp_power_bound(alpha, rho * rho) >= power


def test_zcdp_of_nothing_and_of_everything() -> None:
    assert zcdp_power_bound("1/20", 0) == exact("1/20")
    assert zcdp_power_bound("1/20", "inf") == zcdp_power_bound("1/20", 10**6) == 1
    assert zcdp_power_bound(0, 1) == 0
    assert zcdp_power_bound(1, 1) == 1


def test_one_unit_a_household_a_copy_and_an_area_at_their_distances() -> None:
    assert distances(pure(post_imputation=True)) == {
        "one person": 1,
        "a household of 4": 4,
        "a person copied into 1 more person record": 2,
        "everything about an area of 100 persons": 100,
        "an analyst of that area: is a share 50% or 55%": 6,
    }
    assert "a person copied into 1 more person record, if imputation copies" in distances(pure())
    assert not [about for about in distances(pure(post_imputation=False)) if "copied" in about]
    assert next(iter(distances(pure("household")))) == "one household, or one person in it"
    assert not [about for about in distances(pure("household")) if "household of" in about]


def test_where_records_come_and_go_a_changed_one_counts_twice() -> None:
    found = distances(pure(name="d_SymDiff", post_imputation=False))
    assert list(found.values()) == [1, 2, 8, 200, 12]
    assert next(iter(found)) == "whether one person is in the file"


def test_under_invariants_the_nearest_versions_are_further_apart_and_priors_know_the_figures() -> None:
    specification = catalogue.load("psa-1940-massachusetts-50pct").specification
    nearest = specification.multiverse.nearest
    assert nearest > 1
    told = what_could_be_learned(specification)
    assert told.rows[0].distance == nearest
    assert any(f"is taken to change {nearest - 1} more" in note for note in told.notes)
    assert any("seen the exact figures" in note for note in told.notes)


def test_a_record_that_goes_and_comes_takes_no_other_with_it() -> None:
    """Two added or removed records are one that changed: the total fixes nothing more."""
    total = Multiverse(invariants=(Margin(of="person"),), nearest=2, nearest_because="one goes and one comes")
    specification = pure(name="d_SymDiff").with_flavor(multiverse=total)
    assert distances(specification)["one person"] == 2
    assert not any("is taken to change" in note for note in what_could_be_learned(specification).notes)
    further = specification.with_flavor(multiverse=replace(total, nearest=4))
    assert any("is taken to change 1 more" in note for note in what_could_be_learned(further).notes)


def test_where_there_is_no_limit_no_note_is_about_limits_and_no_figure_reveals_what_is_not_published() -> None:
    open_ended = pure(name="d_SymDiff")
    assert what_could_be_learned(open_ended).reveals == ("nothing: no figure is published exactly",)
    assert "the total number of persons" in what_could_be_learned(pure()).reveals[0]
    assert any("These limits hold" in note for note in what_could_be_learned(open_ended).notes)
    assert not any("These limits hold" in note for note in what_could_be_learned(open_ended.with_budget("inf")).notes)


def test_without_invariants_a_neighbour_relation_adds_up_to_all_distances() -> None:
    near, far = (what_could_be_learned(pure(within=within)) for within in (1, None))
    assert near == far
    assert near.rows[1].power == power_bounds("0.05", 4).upper


def test_a_neighbour_relation_states_nothing_further_away() -> None:
    fixed = Multiverse(invariants=(Margin(of="person", level="state"),))
    rows = what_could_be_learned(pure(within=1).with_flavor(multiverse=fixed)).rows
    assert rows[0].assured
    assert not rows[1].assured
    assert "nothing is stated for versions more than 1 person record apart" in rows[1].words
    relation = what_could_be_learned(pure(name="d_r", relation="same street")).rows
    assert [row.about for row in relation] == ["two versions related by same street"]


def test_numbers_are_rounded_up_and_the_words_say_what_the_limits_say() -> None:
    row = what_could_be_learned(pure()).rows[0]
    assert row.power == power_bounds("0.05", 1).upper
    assert row.words == explain(1) == "a 5% test has power at most 13.6%; a prior of 1 in 10 can become at most 23.2%"
    odds = math.e / 9
    assert 0.2319 < odds / (1 + odds) < 0.232
    assert "at most 99.97%" in explain(8)  # 1 - 0.95 exp(-8) is 0.99968: never shown as 100%


@pytest.mark.parametrize("given", ["1/10000", "3/20000", "0.0012345", "1/3", "0.99999", "2/7", 0, 1])
def test_the_words_are_true_of_the_very_numbers_they_print(given: object) -> None:
    """The limit at the size and at the prior that are printed is no more than the limit that is printed."""
    told = explain(1, 1, given, given)  # type: ignore[arg-type]
    size, power, prior, posterior = re.fullmatch(
        r"a ([0-9.]+)% test has power at most ([0-9.]+)%; a prior of (.+) can become at most ([0-9.]+)%", told
    ).groups()  # type: ignore[union-attr]
    before = Fraction(1, int(prior[5:])) if prior.startswith("1 in ") else Fraction(prior[:-1]) / 100
    exactly = Fraction(str(given))
    assert power_bounds(Fraction(size) / 100, 1).upper <= Fraction(power) / 100
    assert posterior_bounds(before, 1).upper <= Fraction(posterior) / 100
    for printed in (Fraction(size) / 100, before):
        assert exactly * Fraction(99, 100) <= printed <= exactly


@pytest.mark.parametrize(("epsilon", "distance", "assured"), [(10, 1, True), ("10.0001", 1, False), (1, 10, True)])
def test_beyond_ten_there_is_no_assurance_in_words(epsilon: object, distance: int, assured: bool) -> None:
    assert ("no assurance" not in explain(epsilon, distance)) is assured  # type: ignore[arg-type]
    assert "no assurance: nothing is promised" in explain("inf")


def test_no_number_in_the_millions_is_shown_for_an_area() -> None:
    row = what_could_be_learned(pure(), area=1_000).rows[-2]
    assert (row.power, row.posterior, row.assured) == (None, None, False)
    assert row.words.startswith("no assurance: epsilon times distance is 1000,")


def test_a_file_published_as_it_is_has_no_limits_although_its_loss_is_zero() -> None:
    from stirred.spec.budget import Budget

    idle = replace(pure(), budget=Budget.of_swapping("1/2", largest_stratum=0))
    assert "a loss of 0 is not protection" in what_could_be_learned(idle).refused
    assert learned_section(catalogue.load("pure-dp").specification) == ""  # a letter has no limits yet


@pytest.mark.parametrize("name", ["household", "copies", "area"])
def test_sizes_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(SpecificationError, match=f"{name}: 0 is not a number of records"):
        what_could_be_learned(pure(), **{name: 0})
