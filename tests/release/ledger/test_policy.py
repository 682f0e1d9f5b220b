"""A release that would break the policy is refused before anything random, saying what is left."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stirred.release.ledger import Ledger, LedgerError, OverLimitError, Policy
from stirred.release.ledger.currency import Currency, Summands, as_proven, expressed
from stirred.release.ledger.policy import left
from stirred.release.ledger.total import SummedEntries, Total
from stirred.spec import (
    GDP,
    PURE,
    ZCDP,
    Domain,
    Inequality,
    InputPremetric,
    Invariant,
    Margin,
    Multiverse,
    Named,
    OutputPremetric,
    Specification,
    approximate,
    catalogue,
)
from stirred.spec.budget import Budget, PermutationSwapping, SwappedStrata
from stirred.spec.convert_output import group_delta, pure_to_rho2, zcdp_to_epsilon
from stirred.spec.document import to_document
from stirred.spec.exact import exact
from stirred.spec.invariant import OF_PERSONS
from stirred.spec.multiverse import Hierarchy
from stirred.spec.problems import StirredError
from stirred.spec.specification import Derivation
from tests.release.ledger.making import COUNTIES, limit, pure, released, request, specification
from tests.snapshots import same_as_kept

PERSON_FROM_HOUSEHOLD = {"old": "household", "new": "person", "factor": 1, "because": "one each"}


@pytest.fixture
def ledger(url: str) -> Ledger:
    return Ledger.create(url, dataset="d", policy=limit("10"))


def test_the_limit_is_kept_to_the_last_digit(ledger: Ledger) -> None:
    released(ledger, "9")
    before = ledger.head
    with pytest.raises(OverLimitError) as refusal:
        ledger.reserve(request("1.0000000001"))
    assert str(refusal.value) == (
        "policy limit: the total would be ρ²=10.01 with nothing held fixed, 0.000000000100 above the limit ρ² ≤ 10 per "
        "person (zCDP, zero-concentrated "
        "differential privacy). Fix: ρ²=9 is spent and 1 is left; release with a smaller loss, or derive from what is "
        "released."
    )
    assert ledger.head == before
    assert ledger.reserve(request("1")).status == "reserved"
    with pytest.raises(OverLimitError, match="nothing is left"):
        ledger.reserve(request("1/1000000"))


OTHER_DISTANCES = {
    "rescaled": InputPremetric(name="d_Given", unit="person", relation="income", table=(("a", "b", exact(1000)),)),
    "one relation": InputPremetric(name="d_r", unit="person", relation="differ in favourite colour"),
    "per metre": InputPremetric(name="d_Euclid", unit="person"),
    "edges": InputPremetric(name="d_Edge", unit="person"),
}


@pytest.mark.parametrize("premetric", OTHER_DISTANCES.values(), ids=OTHER_DISTANCES)
def test_a_limit_is_about_records_unless_it_names_other_distances(tmp_path: Path, premetric: InputPremetric) -> None:
    """A loss of 1/1000 by a distance that calls one changed person 1000 is a loss of 1."""
    other = pure("1/1000").with_flavor(input_premetric=premetric)
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("1", output="pure"))
    with pytest.raises(OverLimitError, match="this loss is by another distance") as refusal:
        ledger.reserve(request(specification=other))
    assert "list it under distances in the policy" in str(refusal.value)
    ledger.add(request(specification=other))  # it happened, and whatever comes after it cannot be compared
    with pytest.raises(OverLimitError, match="the distances between datasets differ"):
        ledger.reserve(request(specification=pure("1/2")))
    stated = {k: v for k, v in to_document(other)["input_premetric"].items() if k != "bounded"}
    named = premetric.name if premetric.name in ("d_Euclid", "d_Edge") else stated
    ledger.set_policy(limit("1", output="pure", distances=[named]), reason="looked at")
    assert ledger.reserve(request(specification=other)).status == "reserved"
    assert premetric.symbol.split("^")[0] in str(Ledger.open(tmp_path / "a.ledger").policy)
    if premetric.name == "d_Given":  # the table is what was accepted, not its name
        finer = replace(premetric, table=(("a", "b", exact(2000)),))
        with pytest.raises(OverLimitError, match="by another distance"):
            ledger.reserve(request(specification=other.with_flavor(input_premetric=finer)))


@pytest.mark.parametrize("name", ["d_HamS", "d_Ham", "d_SymDiff", "d_InsDel"])
def test_distances_that_count_records_are_within_every_limit(tmp_path: Path, name: str) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("1", output="pure"))
    one = pure("1/3").with_flavor(input_premetric=InputPremetric(name=name, unit="person"))
    assert ledger.reserve(request(specification=one)).status == "reserved"


@pytest.mark.parametrize(("name", "output", "fits"), [("d_SymDiff", "pure", "1/2"), ("d_InsDel", "zcdp", "1/4")])
def test_one_changed_record_is_one_removed_and_one_added(tmp_path: Path, name: str, output: str, fits: str) -> None:
    """A limit per changed person counts a loss per added person twice (rho squared four times), unless it names it."""

    def added(loss: str) -> Specification:
        own = pure(loss) if output == "pure" else specification(loss)
        return own.with_flavor(input_premetric=InputPremetric(name=name, unit="person"))

    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("1", output=output))
    with pytest.raises(OverLimitError, match="above the limit"):
        ledger.reserve(request(specification=added("1")))
    ledger.reserve(request(specification=added(fits)))
    with pytest.raises(OverLimitError, match="nothing is left"):
        ledger.reserve(request(specification=added("1/100")))
    named = limit("1", output=output, distances=[name])
    Ledger.create(tmp_path / "b.ledger", dataset="d", policy=named).reserve(request(specification=added("1")))


def test_a_limit_does_not_believe_how_far_apart_files_are_said_to_be(tmp_path: Path) -> None:
    """(epsilon/n) tanh(n epsilon/2) makes 0.01 of a loss of 10 between files that are 1,000 apart."""

    def apart(nearest: int) -> Specification:
        said = Multiverse(invariants=(COUNTIES,), nearest=nearest, nearest_because="somebody says so")
        return pure("10").with_flavor(multiverse=said)

    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("6"))
    with pytest.raises(OverLimitError, match=r"at least 1,000 apart .somebody says so.*known to keep files 2 apart"):
        ledger.reserve(request(specification=apart(1000)))
    with pytest.raises(
        OverLimitError, match=r"would be ρ²=10\.00 .*at least 2 apart .somebody says so. does not count"
    ):
        ledger.reserve(request(specification=apart(2)))
    ledger = Ledger.create(tmp_path / "b.ledger", dataset="d", policy=limit("20", output="pure"))
    ledger.reserve(request(specification=apart(1000)))  # it does not make a pure loss smaller
    ledger = Ledger.create(tmp_path / "c.ledger", dataset="d", policy=limit("6"))
    ledger.add(request(specification=apart(1000)))
    with pytest.raises(OverLimitError, match=r"nothing is left: ρ²=10\.00 is spent"):
        ledger.reserve(request(specification=apart(1)))


PERSONS = Domain.of_file("persons", record_types=("person",))
BY_X, BY_Y = (Margin(of="person", variables=("z", own)) for own in ("x", "y"))
NOT_SHOWN: dict[str, tuple[Invariant, ...]] = {
    "the total, which d_HamS fixes anyway": (Margin(of="person"),),
    "a figure known by name": (Named(name="weather"),),
    "one margin": (BY_X,),
    "one margin and what follows from it": (BY_X, Margin(of="person", variables=("x",))),
    "one margin by level": (Margin(of="person", level="state"),),
    "households": (Margin(of="household"),),
    "margins of households": tuple(Margin(of="household", variables=(own,)) for own in ("x", "y")),
    "margins that share nothing": (Margin(of="person", variables=("x",)), Margin(of="person", variables=("y",))),
    "one of each": (BY_X, Margin(of="household", variables=("y",))),
}


def two_apart(*invariants: Invariant, domain: Domain = PERSONS, name: str = "d_HamS") -> Specification:
    said = Multiverse(invariants=invariants, nearest=2, nearest_because="they say so")
    premetric = InputPremetric(name=name, unit="person")
    return pure("1.6", domain=domain).with_flavor(multiverse=said, input_premetric=premetric)


@pytest.mark.parametrize("invariants", NOT_SHOWN.values(), ids=NOT_SHOWN)
def test_a_limit_counts_files_as_two_apart_only_where_margins_show_it(
    tmp_path: Path, invariants: tuple[Invariant, ...]
) -> None:
    """One changed person loses 1.6 tanh(0.8) = 1.0625; between files that are 2 apart it would be 0.738."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("1"))
    with pytest.raises(OverLimitError, match=r"would be ρ²=1\.07 .*they say so. does not count: no two tables of pers"):
        ledger.reserve(request(specification=two_apart(*invariants)))
    ledger.add(request(specification=two_apart(*invariants)))
    (only,) = limit("1").limits
    assert left(only, ledger.total(only.currency)).startswith("nothing is left")


@pytest.mark.parametrize(
    ("columns", "shown"), [((), True), (("x", "y", "z"), True), (("x", "y", "z", "age"), False)], ids=str
)
def test_two_tables_show_it_if_they_tell_all_that_is_looked_at(
    tmp_path: Path, columns: tuple[str, ...], shown: bool
) -> None:
    """A person whose age is in neither table can change it alone."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("1"))
    promised = two_apart(BY_X, BY_Y, domain=replace(PERSONS, columns=columns))
    if not shown:
        with pytest.raises(OverLimitError, match="does not count"):
            ledger.reserve(request(specification=promised))
        return
    ledger.reserve(request(specification=promised))
    (only,) = limit("1").limits
    found = ledger.total(only.currency).specification
    assert found is not None
    assert found.budget.realised == pure_to_rho2(exact("1.6"), nearest=2)


def test_two_tables_show_no_more_than_two() -> None:
    said = two_apart(BY_X, BY_Y)
    further = said.with_flavor(multiverse=replace(said.multiverse, nearest=1000))
    assert as_proven(further) == as_proven(said) == said


def test_a_swap_without_match_variables_is_known_by_its_loss_or_its_columns() -> None:
    """Its tables share nothing. Two single margins without any columns may leave the age of a person free."""
    apart = two_apart(*(Margin(of="person", variables=(own,)) for own in ("x", "y")))
    strata = (SwappedStrata(rate=Fraction(1, 10), largest_stratum=10),)
    swapped = apart.with_budget(Budget(policy=PermutationSwapping(strata=strata)))
    listed = apart.with_flavor(domain=replace(apart.domain, columns=("x", "y")))
    assert [as_proven(one).multiverse.nearest for one in (apart, swapped, listed)] == [1, 2, 2]


def test_persons_inside_households_must_be_held_as_a_whole() -> None:
    homes = Domain.of_file("homes", record_types=("household", "person"), columns=("county", "person age", "size"))
    area = Margin(of="household", variables=("size", "county"))
    for held, shown in ((("size", OF_PERSONS), True), (("size", "tenure"), False)):
        tables = (area, Margin(of="household", variables=held, includes=("person",)))
        assert Multiverse(invariants=tables).keeps_each("household", homes) is shown
        assert Multiverse(invariants=tables).keeps_each("household", replace(homes, columns=())) is shown
        assert not Multiverse(invariants=tables).keeps_each("person", homes)


def test_a_fixed_number_of_records_shows_it_where_records_are_added_and_removed() -> None:
    """One that is added comes with one that is removed, and the files are two apart."""
    for invariant, nearest in ((Margin(of="person"), 2), (Margin(of="household"), 1), (Named(name="weather"), 1)):
        assert as_proven(two_apart(invariant, name="d_SymDiff")).multiverse.nearest == nearest


def test_swaps_of_the_catalogue_are_two_apart_in_a_limit() -> None:
    entries = [catalogue.load(name).specification for name in catalogue.names()]
    swaps = [one for one in entries if one.multiverse.nearest > 1]
    assert len(swaps) > 5
    assert all(as_proven(one) is one for one in swaps)


@pytest.mark.parametrize("output", [PURE, ZCDP, GDP])
@pytest.mark.parametrize("to", [GDP, approximate("1e-6")])
@pytest.mark.parametrize("budget", ["1/100", "1", "5"])
def test_only_in_zcdp_a_stated_distance_makes_a_loss_smaller(
    output: OutputPremetric, to: OutputPremetric, budget: str
) -> None:
    apart = two_apart(BY_X).with_flavor(output_premetric=output).with_budget(budget)
    plain = as_proven(apart)
    assert (apart.multiverse.nearest, plain.multiverse.nearest) == (2, 1)
    losses = [
        expressed(Summands([one], [1], ["entry"]), Currency(output=to)).specification.budget.realised
        for one in (apart, plain)
    ]
    assert losses[0] >= losses[1]


def test_an_empty_promise_is_within_no_limit(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("1", output="pure"))
    apart = Multiverse(invariants=(COUNTIES,), nearest=2, nearest_because="margins are fixed")
    neighbours = InputPremetric(name="d_HamS", unit="person", within=1)
    swapped = pure("0.01").with_flavor(multiverse=apart, input_premetric=neighbours)
    whole = pure("0.01", invariants=[Margin(of="person", variables=("*",))])
    for vacuous in (swapped, whole):
        with pytest.raises(OverLimitError, match="the release promises nothing"):
            ledger.reserve(request(specification=vacuous))


def test_what_is_left_is_rounded_down(ledger: Ledger) -> None:
    released(ledger, "20/3")
    with pytest.raises(OverLimitError, match=r"ρ²=6\.67 is spent and 3\.33 is left"):
        ledger.reserve(request("5"))


def test_a_reservation_holds_its_share_until_it_is_aborted_unspent(ledger: Ledger) -> None:
    first = ledger.reserve(request("9"))
    with pytest.raises(OverLimitError):
        ledger.reserve(request("2"))
    ledger.abort(first.id, reason="not needed")
    second = ledger.reserve(request("9"))
    ledger.draw(second.id)
    ledger.abort(second.id, reason="crashed")
    with pytest.raises(OverLimitError):
        ledger.reserve(request("2"))


def test_derived_products_are_free_even_when_nothing_is_left(ledger: Ledger) -> None:
    whole = released(ledger, "10")
    ledger.set_policy(limit("5"), reason="a lower limit, passed already")
    product = ledger.reserve(request(specification=None, derived_from=[whole.id]))
    assert ledger.commit(product.id, bundle="b").status == "committed"


def test_deriving_from_what_was_never_drawn_is_refused(ledger: Ledger) -> None:
    ledger.reserve(request("1"))
    with pytest.raises(LedgerError, match="nothing was drawn for it"):
        ledger.reserve(request(specification=None, derived_from=[1]))


def test_a_whole_that_includes_its_part_counts_once(ledger: Ledger) -> None:
    released(ledger, "4")
    with pytest.raises(LedgerError, match="so it cannot contain it"):
        ledger.reserve(request("3", includes=[1]))
    with pytest.raises(OverLimitError, match=r"the total would be ρ²=11"):
        ledger.reserve(request("7", includes=[1]))  # until the whole is drawn, it may still be given up
    released(ledger, "6", includes=[1])
    found = ledger.total()
    assert found.specification is not None
    assert found.specification.budget.realised == 6
    assert "the specification of entry 4 covers entry 1 as well" in found.specification.assumptions


def test_a_whole_that_is_given_up_never_made_room(ledger: Ledger) -> None:
    ledger.add(request("9"))
    ledger.set_policy(limit("20"), reason="room for both")
    held = ledger.reserve(request("9.5", includes=[1]))
    with pytest.raises(OverLimitError, match=r"ρ²=18\.5 is spent and 1\.5 is left"):
        ledger.reserve(request("9.9"))
    ledger.abort(held.id, reason="not needed")
    assert ledger.reserve(request("9.9")).status == "reserved"


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        (specification("1"), r"ρ²=1 is less than the ρ²=5 of entry 1-5"),
        (specification("4.99", invariants=[COUNTIES]), r"ρ²=4\.99 is less than the ρ²=5 of entry 1-5"),
        (pure("2"), "is less than the ρ²=5 of entry 1-5"),
        (specification("9", unit="household"), "it counts changes otherwise than entry 1-5"),
        (specification("9", output=approximate("1e-6")), "it cannot be compared with entry 1-5"),
    ],
)
def test_a_whole_must_be_at_least_its_parts_together(tmp_path: Path, whole: Specification, words: str) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    for _ in range(5):
        ledger.add(request("1"))
    for way in (ledger.add, ledger.reserve):
        with pytest.raises(LedgerError, match=words):
            way(request(specification=whole, includes=[1, 2, 3, 4, 5]))


def test_a_whole_holds_fixed_what_its_parts_hold_fixed(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.add(request(specification=specification("1", invariants=[COUNTIES])))
    with pytest.raises(LedgerError, match="does not hold fixed what entry 1 holds fixed"):
        ledger.add(request("1", includes=[1]))
    ledger.add(request(specification=specification("1", invariants=[COUNTIES]), includes=[1]))


OTHER_FILE = Domain(name="census", dataset="the persons of a census", record_types=("person",))


@pytest.mark.parametrize(
    ("parts", "whole", "words"),
    [
        (
            [specification("1"), specification("1", unit="household")],
            specification("9"),
            r"entry 1-2 cannot be added up \(.*units: person, household\), so it cannot contain it",
        ),
        (
            [specification("1"), specification("1", domain=OTHER_FILE)],
            specification("9"),
            r"entry 1-2 cannot be added up \(the domains differ: .*\), so it cannot contain it",
        ),
        ([specification("1", domain=OTHER_FILE)], specification("9"), r"it cannot be compared with entry 1 \("),
        (
            [specification("1", output=approximate("1e-6"))],
            specification("9", output=approximate("1e-7")),
            r"it cannot be compared with entry 1 \(the deltas or the measures of change differ\)",
        ),
    ],
    ids=["two units", "two files", "another file", "a smaller delta"],
)
def test_a_whole_that_cannot_be_compared_with_its_parts_does_not_contain_them(
    tmp_path: Path, parts: list[Specification], whole: Specification, words: str
) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    included = [ledger.add(request(specification=part)).number for part in parts]
    before = ledger.head
    for way in (ledger.add, ledger.reserve):
        with pytest.raises(LedgerError, match=words) as caught:
            way(request(specification=whole, includes=included))
        assert caught.value.exit_code == 2
        assert "leave includes out" in caught.value.problems[0].remedy
    assert ledger.head == before


def test_with_a_delta_that_is_no_smaller_a_whole_contains_its_part(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.add(request(specification=specification("1", output=approximate("1e-7"))))
    whole = specification("2", output=approximate("1e-6"))
    assert ledger.add(request(specification=whole, includes=[1])).includes


def test_a_whole_may_contain_what_costs_nothing(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    given_up = ledger.abort(ledger.reserve(request("100")).id, reason="never drawn")
    ledger.add(request("1", includes=[given_up.number]))
    total = ledger.total().specification
    assert total is not None
    assert total.budget.realised == 1


@pytest.mark.parametrize("more", [{"includes": [1]}, {"sample": "a tenth"}], ids=["includes", "sample"])
def test_a_derived_product_includes_nothing_and_draws_from_no_sample(tmp_path: Path, more: dict[str, Any]) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    released(ledger, "1")
    before = ledger.head
    for way in (ledger.add, ledger.reserve):
        with pytest.raises(LedgerError, match="so it includes nothing and draws from no sample"):
            way(request(specification=None, derived_from=[1], **more))
    assert ledger.head == before


def test_a_release_made_elsewhere_is_recorded_whatever_the_policy_says(ledger: Ledger) -> None:
    ledger.add(request("50"))
    with pytest.raises(OverLimitError, match="nothing is left: ρ²=50 is spent"):
        ledger.reserve(request("1/100"))


def test_a_flavor_the_limit_cannot_be_compared_with_is_refused(ledger: Ledger) -> None:
    with pytest.raises(OverLimitError, match="cannot be compared with the limit"):
        ledger.reserve(request(specification=specification("1", unit="household")))


def test_stated_factors_bring_other_units_under_the_limit(ledger: Ledger) -> None:
    ledger.set_policy(limit("10", units=[PERSON_FROM_HOUSEHOLD | {"factor": 2}]), reason="household tables")
    ledger.reserve(request(specification=specification("2", unit="household")))
    assert ledger.policy is not None
    with pytest.raises(OverLimitError, match=r"ρ²=8 is spent and 2 is left"):
        ledger.reserve(request("3"))


def test_pure_releases_count_in_zcdp_by_the_sharp_conversion(ledger: Ledger) -> None:
    for _ in range(21):  # 21 x tanh(1/2) = 9.7
        ledger.reserve(request(specification=pure("1")))
    with pytest.raises(OverLimitError):
        ledger.reserve(request(specification=pure("1")))


@pytest.mark.parametrize(
    ("settings", "fits", "too_much"),
    [
        ({"output": "pure"}, pure("10"), pure("10.01")),
        ({"output": "pure"}, pure("ln(22026)"), pure("ln(22027)")),
        ({"output": "approximate", "delta": "1e-6"}, specification("1.35"), specification("1.36")),
        ({"output": "gdp"}, pure("4"), pure("30")),
    ],
)
def test_limits_in_other_currencies(ledger: Ledger, settings: dict[str, str], fits: object, too_much: object) -> None:
    ledger.set_policy(limit("10", **settings), reason="another currency")
    with pytest.raises(OverLimitError, match="above the limit"):
        ledger.reserve(request(specification=too_much))
    ledger.reserve(request(specification=fits))


def test_a_pure_limit_refuses_what_is_not_pure(ledger: Ledger) -> None:
    ledger.set_policy(limit("10", output="pure"), reason="pure only")
    with pytest.raises(OverLimitError, match="cannot be compared"):
        ledger.reserve(request("1"))


def test_only_those_named_may_release(ledger: Ledger) -> None:
    ledger.set_policy(Policy.from_document({"who": ["bo"]}), reason="named")
    with pytest.raises(OverLimitError, match=r"ana may not release\. Fix: ask one of: bo"):
        ledger.reserve(request())
    assert ledger.reserve(request(who="bo")).who == "bo"


def test_invariants_must_follow_from_the_acceptable_ones(ledger: Ledger) -> None:
    geography = {"name": "geography", "levels": ["tract", "county"]}
    tracts = {"kind": "margin", "of": "household", "level": "tract"}
    document = {"invariants": {"acceptable": [tracts], "hierarchies": [geography]}}
    ledger.set_policy(Policy.from_document(document), reason="invariants")
    ledger.reserve(request(specification=specification(invariants=[COUNTIES])))
    with pytest.raises(OverLimitError, match="does not accept"):
        ledger.reserve(request(specification=specification(invariants=[Margin(of="person", level="county")])))


@pytest.mark.parametrize(
    ("multiverse", "verdict"),
    [
        (
            Multiverse(
                invariants=(Margin(of="household", level="block"),),
                hierarchies=(Hierarchy(name="g", levels=("county", "block")),),
            ),
            "holds",
        ),
        (
            Multiverse(
                invariants=(
                    Margin(of="household", level="county", includes=("person",)),
                    Margin(of="person", level="county"),
                )
            ),
            "holds",
        ),
    ],
)
def test_a_release_does_not_decide_what_is_acceptable(ledger: Ledger, multiverse: Multiverse, verdict: str) -> None:
    counties = {"kind": "margin", "of": "household", "level": "county"}
    ledger.set_policy(Policy.from_document({"invariants": {"acceptable": [counties]}}), reason="counties")
    ledger.reserve(request(specification=specification(invariants=[COUNTIES])))
    with pytest.raises(OverLimitError, match=rf"the release {verdict} fixed what the policy does not accept: "):
        ledger.reserve(request(specification=specification().with_flavor(multiverse=multiverse)))


def test_a_refusal_for_invariants_can_be_pasted_into_the_policy(ledger: Ledger) -> None:
    counties = {"kind": "margin", "of": "household", "level": "county"}
    ledger.set_policy(Policy.from_document({"invariants": {"acceptable": [counties]}}), reason="counties")
    fixed = (
        COUNTIES,
        Margin(of="household", variables=("size", 'the "tenure"'), includes=("person",)),
        Named(name="seats"),
        Inequality(name="some", condition="a home", on=Margin(of="home", level="county")),
    )
    asked = request(specification=specification(invariants=fixed))
    with pytest.raises(OverLimitError) as refusal:
        ledger.reserve(asked)
    (problem,) = refusal.value.problems
    assert problem.what == (
        'the release holds fixed what the policy does not accept: number of households by size x the "tenure"; seats; '
        "whether there is a home in each county"
    )
    lines = problem.remedy.partition("[invariants] ")[2].partition("; hierarchies")[0]
    assert lines.startswith('{ kind = "margin", of = "household", variables = ["size", "the \\"tenure\\""] }, { kind')
    more = Policy.from_toml(
        f'[invariants]\nacceptable = [{{ kind = "margin", of = "household", level = "county" }}, {lines}]'
    )
    ledger.set_policy(more, reason="pasted")
    assert ledger.reserve(asked).status == "reserved"


def test_what_may_follow_from_the_policy_is_refused_as_such(ledger: Ledger) -> None:
    seats = {"kind": "named", "name": "seats"}
    ledger.set_policy(Policy.from_document({"invariants": {"acceptable": [seats]}}), reason="seats")
    with pytest.raises(OverLimitError, match=r"may hold fixed what the policy does not accept: .* is not stated"):
        ledger.reserve(request(specification=specification(invariants=[COUNTIES])))


def test_no_release_makes_the_total_fall(ledger: Ledger) -> None:
    everything = Margin(of="person", variables=("age",))
    policy, free = limit("10"), specification("9")
    fixed = specification("8", invariants=[everything])
    nine, eight = (
        Total(parts=(SummedEntries(derivation=Derivation(specification=s), entries=(1,)),)) for s in (free, fixed)
    )
    with pytest.raises(
        OverLimitError, match=r"the total would fall from ρ²=9 with nothing held fixed to ρ²=8 with this"
    ):
        policy.check(who="ana", specification=fixed, now=lambda _: nine, then=lambda _: eight)
    policy.check(who="ana", specification=free, now=lambda _: eight, then=lambda _: nine)


def test_all_reasons_are_given_at_once(ledger: Ledger) -> None:
    document = limit("1").document | {"who": ["bo"], "invariants": {"acceptable": []}}
    ledger.set_policy(Policy.from_document(document), reason="strict")
    with pytest.raises(OverLimitError) as refusal:
        ledger.reserve(request(specification=specification("2", invariants=[COUNTIES])))
    assert [p.where for p in refusal.value.problems] == ["policy who", "policy invariants", "policy limit"]


def test_a_change_of_policy_is_in_the_ledger_with_its_reason(ledger: Ledger) -> None:
    ledger.set_policy(limit("20"), reason="the board decided", who="bo")
    ledger.set_policy(None, reason="the project ended")
    assert ledger.policy is None
    assert [row.kind for row in ledger.store.rows()] == ["genesis", "policy", "policy"]
    assert "the board decided" in ledger.store.rows()[1].facts
    with pytest.raises(LedgerError, match="no reason"):
        ledger.set_policy(None, reason="")


NONSENSE = [
    "[[limits]]\nbudget = 1",
    "[[limits]]\nbudget = '1'\noutput = 'zcdp'\nunit = 'person'\ncolour = 1",
    "[[limits]]\nbugdet = '1'\noutput = 'zcdp'\nunit = 'person'",
    "[[limits]]\nbudget = '-1'\noutput = 'zcdp'\nunit = 'person'\n[invariants]\nacceptable = []",
    "[[limits]]\nbudget = 'lots'\noutput = 'zcdp'\nunit = 'person'\n[invariants]\nacceptable = []",
    "[[limits]]\nbudget = '1'\noutput = 'approximate'\nunit = 'person'\n[invariants]\nacceptable = []",
    "[[limits]]\nbudget = '1'\noutput = 'zcdp'\ndelta = '1e-6'\nunit = 'person'\n[invariants]\nacceptable = []",
    "[[limits]]\nbudget = '1'\noutput = 'best'\nunit = 'person'",
    "[[limits]]\nbudget = '1'\noutput = 'zcdp'\nunit = 'person'",
    "[invariants]\nacceptable = 'all'",
    "[invariants]\nacceptable = [{kind = 'margin'}]",
    "who = 'ana'",
    "who = [",
]


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    pages = []
    for text in NONSENSE:
        with pytest.raises(StirredError) as refusal:
            Policy.from_toml(text)
        pages.append("\n".join([text, *(f"    {problem}" for problem in refusal.value.problems)]))
    same_as_kept("nonsense", "\n".join(pages))


def test_a_policy_comes_back_as_it_was_written(ledger: Ledger) -> None:
    text = """
who = ["ana", "bo"]
[[limits]]
name = "total"
budget = 15.29
output = "approximate"
delta = 1e-10
unit = "person"
units = [{ old = "household", new = "person", factor = "3/2", because = "why" }]
copies = { factor = 2, because = "imputation" }
[invariants]
acceptable = [{ kind = "margin", of = "person", level = "state" }]
"""
    policy = Policy.from_toml(text)
    assert str(policy.limits[0].most) == "1529/100"
    ledger.set_policy(policy, reason="all of it")
    assert ledger.policy == policy


def test_an_entry_of_unknown_cost_is_within_no_limit(url: str) -> None:
    """ "At least" a number says nothing about the limit: further releases wait for those who set it."""
    ledger = Ledger.create(url, dataset="d", policy=limit("10"))
    ledger.add(request(specification=None, unspecified="a special tabulation"))  # it happened, and no policy undoes it
    with pytest.raises(OverLimitError, match=r"entry 1 has no specification \(a special tabulation\)") as refusal:
        ledger.reserve(request("1"))
    assert "unspecified = 'not-counted'" in str(refusal.value)
    with pytest.raises(OverLimitError):
        ledger.would(request("1"))
    lenient = Policy.from_document({**limit("10").document, "unspecified": "not-counted"})
    assert str(lenient).endswith("entries without a specification are not counted")
    ledger.set_policy(lenient, reason="the board looked at it")
    assert ledger.reserve(request("1")).status == "reserved"
    with pytest.raises(OverLimitError, match="the total would be at least"):
        ledger.reserve(request("10"))


# ---- epsilon with a delta, for one record more or less


def keyed(budget: str, delta: str) -> Specification:
    near = InputPremetric(name="d_SymDiff", unit="person", within=1)
    return pure(budget).with_flavor(input_premetric=near, output_premetric=approximate(delta))


def at_delta(delta: str, budget: str = "1", **more: Any) -> Policy:
    return limit(budget, output="approximate", delta=delta, **more)


def test_a_delta_counts_for_one_changed_record(tmp_path: Path) -> None:
    """One changed person is one removed and one added: (2, 0.0372) of (1, 0.01)."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=at_delta("1/20", "4"))
    ledger.add(request(specification=keyed("1", "1/100")))
    ledger.reserve(request(specification=pure("1/4")))
    total = ledger.total(currency=ledger.policy.limits[0].currency).specification if ledger.policy else None
    assert total is not None
    assert total.input_premetric == InputPremetric(name="d_HamS", unit="person", within=1)
    assert 2 < float(total.budget.realised) <= 2.25
    with pytest.raises(OverLimitError, match=r"the deltas add up|the delta is"):
        ledger.reserve(request(specification=keyed("1", "1/100")))


def test_releases_that_need_a_delta_get_what_the_others_leave(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.add(request(specification=keyed("1/2", "1/1000")))
    ledger.add(request("1/8"))
    assert ledger.total().specification is None
    found = ledger.total(currency=Currency(output=approximate("1/50"))).specification
    assert found is not None
    assert found.output_premetric.delta == Fraction(1, 50)
    spare = Fraction(1, 50) - group_delta(exact("1/2"), Fraction(1, 1000), size=2)
    assert float(found.budget.realised) == pytest.approx(1 + float(zcdp_to_epsilon(exact("1/8"), delta=spare)))


def test_what_is_left_beside_a_delta_is_said_in_words(tmp_path: Path) -> None:
    policy = at_delta("9/10", distances=["d_SymDiff"])
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=policy)
    ledger.reserve(request(specification=keyed("1", "0.6375")))
    said = left(policy.limits[0], ledger.total(currency=policy.limits[0].currency))
    assert "is spent" not in said
    assert "a part of the delta is gone" in said
    with pytest.raises(OverLimitError, match=r"deltas add up to 1\.275.*Fix: release with a smaller delta"):
        ledger.reserve(request(specification=keyed("1", "0.6375")))
    with pytest.raises(OverLimitError, match=r"Fix: release with a smaller delta"):
        ledger.reserve(request(specification=keyed("1", "0.3")))


COPIED = {"factor": 3, "because": "an answer is imputed to two others at most"}


def records(own: Specification, distance: str = "d_SymDiff") -> Specification:
    premetric = replace(own.input_premetric, name=distance, post_imputation=True)
    return own.with_flavor(input_premetric=premetric)


@pytest.mark.parametrize("delta", ["1/100", "1/10", "1/2"])
@pytest.mark.parametrize("copies", [None, COPIED])
@pytest.mark.parametrize("also", [(), ("d_SymDiff",)])
@pytest.mark.parametrize("distance", ["d_SymDiff", "d_HamS"])
def test_the_total_has_no_larger_delta_than_its_limit(
    tmp_path: Path, delta: str, copies: Any, also: tuple[str, ...], distance: str
) -> None:
    """The rest of the delta is given after the distance and the people are those of the limit: it no longer grows."""
    more = {"distances": list(also)} | ({"copies": copies} if copies else {})
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=at_delta(delta, "10", **more))
    ledger.reserve(request(specification=records(keyed("1/10", "1/1000"))))
    ledger.reserve(request(specification=records(specification("1/100"), distance)))
    assert ledger.policy is not None
    total = ledger.total(currency=ledger.policy.limits[0].currency).specification
    assert total is not None
    assert total.output_premetric.delta == Fraction(delta)


def test_the_rest_of_a_delta_does_not_grow_on_the_way_to_the_distance_of_the_others(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.add(request(specification=records(keyed("1/10", "1/1000"), "d_HamS")))
    ledger.add(request(specification=records(specification("1/100"))))
    total = ledger.total(currency=Currency(output=approximate("1/100"))).specification
    assert total is not None
    assert total.input_premetric.name == "d_HamS"
    assert total.output_premetric.delta == Fraction(1, 100)


def test_a_total_at_a_larger_delta_is_not_within_a_limit() -> None:
    """Epsilon alone says nothing: the delta of what is accepted is compared with that of the limit, too."""
    policy = at_delta("1/100")
    promise = records(keyed("1/10", "2/100"), "d_HamS")
    found = Total(parts=(SummedEntries(derivation=Derivation(specification=promise), entries=(1,)),))
    with pytest.raises(OverLimitError, match="with a delta above the 1e-2 of the limit"):
        policy.check(who="a", specification=pure("1/10"), now=lambda _: Total(), then=lambda _: found)
