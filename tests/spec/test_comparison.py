"""Comparison: five verdicts, and an overall one only where a derivation gives it."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
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
    Exact,
    InputPremetric,
    Margin,
    Multiverse,
    Specification,
    UnitFactor,
    Verdict,
    approximate,
    catalogue,
    change_distance,
    change_output,
    change_unit,
    compare,
    exact,
    ln,
    refine,
    to_neighbours,
)
from stirred.spec.budget import PermutationSwapping, SwappedStrata
from stirred.spec.comparison import EQUAL, INCOMPARABLE, STRONGER, WEAKER, Comparison
from stirred.spec.document import from_json, to_json
from stirred.spec.domain import Domain, file_identity
from stirred.spec.swap_budget import Bound, bounded_psa_epsilon
from tests.spec.strategies import (
    ALL_OUTPUTS,
    FEW,
    GEOGRAPHY,
    SOME,
    budgets,
    classes,
    flavor,
    invariant,
    mechanisms,
    specification,
    specifications,
    worlds,
    worst,
)

pytestmark = pytest.mark.usefixtures("coarse_zcdp")

NAMES = catalogue.names()
PAIRS = list(combinations_with_replacement(NAMES, 2))
TURNED = {STRONGER: WEAKER, WEAKER: STRONGER, EQUAL: EQUAL, INCOMPARABLE: INCOMPARABLE, None: None}
BLOCKS = ["domain", "multiverse", "input_premetric", "output_premetric", "budget"]
PERSONS = InputPremetric(name="d_HamS", unit="person")


def entry(name: str) -> Specification:
    return catalogue.load(name).specification


def verdicts(comparison: Comparison) -> list[str]:
    return [block.verdict for block in comparison.blocks]


# -- the catalogue --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", NAMES)
def test_every_two_entries_of_the_catalogue_are_compared_block_by_block(first: str) -> None:
    """Five verdicts with reasons, turned round where the question is; advice where there is no overall verdict."""
    for second in NAMES:
        there, back = compare(entry(first), entry(second)), compare(entry(second), entry(first))
        assert [block.block for block in there.blocks] == BLOCKS
        assert all(block.reason and block.question for block in there.blocks)
        assert [TURNED[verdict] for verdict in verdicts(there)] == verdicts(back), second
        assert TURNED[there.overall] == back.overall, second
        assert there.because
        assert bool(there.to_change) == (there.overall is None), second


@pytest.mark.parametrize("first", NAMES)
def test_whether_one_entry_refines_another_is_definite_or_names_what_is_undecidable(first: str) -> None:
    for second in NAMES:
        for mine, yours in (
            (entry(first).multiverse, entry(second).multiverse),
            (entry(first).flavor.effective_multiverse, entry(second).flavor.effective_multiverse),
        ):
            answer = mine.refines(yours)
            assert answer.reason
            if answer.verdict is Verdict.CANNOT_TELL:
                assert answer.undecidable, second
                assert set(answer.undecidable) <= set(yours.invariants), second


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_with_a_number_is_equal_to_itself(name: str) -> None:
    found = compare(entry(name), entry(name))
    if entry(name).budget.is_free:
        assert found.overall is None
    else:
        assert found.overall == EQUAL
        assert verdicts(found) == [EQUAL] * 5


def test_swapping_and_the_2020_system_have_no_common_measure() -> None:
    """Section 5.3: neither set of invariants contains the other."""
    found = compare(entry("psa-2020-state-county-size-50pct"), entry("das-2020"))
    assert found.overall is None
    assert verdicts(found)[1] == INCOMPARABLE
    assert verdicts(found)[4] == INCOMPARABLE


def test_fewer_invariants_are_the_stronger_block() -> None:
    found = compare(entry("das-2020-safetab-p"), entry("das-2020-topdown"))
    assert verdicts(found)[1] == STRONGER


def test_a_finer_swap_key_is_the_weaker_block_whatever_its_number() -> None:
    """Table 5: household size in the key gives a smaller epsilon and less protection (Proposition 3)."""
    coarse, fine = entry("psa-2020-state-county-50pct"), entry("psa-2020-state-county-size-50pct")
    found = compare(fine, coarse)
    assert fine.budget.realised < coarse.budget.realised
    assert verdicts(found)[1] == WEAKER
    assert found.overall != STRONGER


# -- soundness of the overall verdict -------------------------------------------------------------


@pytest.mark.parametrize("first", NAMES)
def test_a_stronger_entry_can_be_converted_step_by_step_into_the_weaker_one(first: str) -> None:
    for second in NAMES:
        a, b = entry(first), entry(second)
        if compare(a, b).overall == STRONGER:
            assert a.domain == b.domain
            reached = derive(a, b)
            assert reached.flavor.input_premetric == b.flavor.input_premetric
            assert reached.output_premetric == b.output_premetric
            assert reached.budget.realised <= b.budget.realised


def derive(a: Specification, b: Specification) -> Specification:
    """Convert a into the flavor of b by the public conversions alone."""
    if b.multiverse.invariants != a.multiverse.invariants:
        a = refine(a, to=b.flavor.effective_multiverse).specification
    a = change_distance(a, to=b.input_premetric.name).specification
    within = b.input_premetric.within
    a = change_output(a, to=b.output_premetric, at_distance=within).specification
    if within is not None and a.input_premetric.is_metric:
        a = to_neighbours(a, within=within).specification
    return a


@FEW
@given(st.data())
def test_a_mechanism_of_the_stronger_specification_satisfies_the_weaker_one(data: st.DataObject) -> None:
    """Definition 2.4.9 by enumeration: drawn flavors, budgets and mechanisms."""
    datasets, premetric, output = data.draw(worlds())
    target = data.draw(st.sampled_from(ALL_OUTPUTS))
    mechanism = data.draw(mechanisms(datasets, outcomes=2))
    held = invariant(data.draw(classes(datasets, most=2)))
    found = worst(flavor(premetric, output), mechanism).high
    if found.is_infinite:
        return
    first = specification(output, found * found if output.name == "D_NoR" else found, premetric=premetric)
    value = exact(Fraction(data.draw(st.integers(0, 60)), 10))
    within = data.draw(st.sampled_from((None, 1, 2)))
    second = specification(
        target,
        value,
        premetric=premetric if within is None else premetric.neighbours(within),
        multiverse=Multiverse(invariants=(held,)),
    )
    if compare(first, second).overall in (STRONGER, EQUAL):
        assert worst(second.flavor, mechanism).low <= target.to_distance(value)


DERIVATIONS: dict[str, Any] = {
    "a larger budget": lambda s: s.with_budget(s.budget.realised * 2),
    "another invariant": lambda s: refine(s, invariants=[Margin(of="person", level="county")]).specification,
    "ordered": lambda s: change_distance(s, to="d_Ham").specification,
    "neighbours": lambda s: to_neighbours(s, within=2).specification,
    "zCDP": lambda s: change_output(s, to=ZCDP).specification,
    "Gaussian": lambda s: change_output(s, to=GDP).specification,
    "total variation": lambda s: change_output(s, to=TOTAL_VARIATION).specification,
    "approximate": lambda s: change_output(s, to=approximate("1/1000")).specification,
    "zCDP, then approximate": lambda s: (
        change_output(change_output(s, to=ZCDP).specification, to=approximate("1/1000")).specification
    ),
}


@pytest.mark.parametrize("value", ["ln(3)", "12.48", "1/3"])
@pytest.mark.parametrize("change", DERIVATIONS.values(), ids=DERIVATIONS.keys())
def test_what_follows_from_a_specification_is_found_to_be_weaker_or_equal(change: Any, value: str) -> None:
    start = specification(PURE, value)
    weaker = change(start)
    assert compare(start, weaker).overall in (STRONGER, EQUAL)
    assert compare(weaker, start).overall in (WEAKER, EQUAL)


@pytest.mark.parametrize("change", DERIVATIONS.values(), ids=DERIVATIONS.keys())
def test_a_specification_read_from_its_file_is_equal_to_the_one_written(change: Any) -> None:
    """Also for budgets that are formulas: reading must not leave two numbers that cannot be told apart."""
    written = change(specification(PURE, "12.48"))
    assert compare(written, from_json(to_json(written))).overall == EQUAL


def test_a_stated_factor_between_units_gives_a_verdict() -> None:
    person = specification(PURE, 1)
    household = change_unit(person, unit="household", factor=6, because="six").specification
    factor = UnitFactor(old="person", new="household", factor=6, because="six")
    assert compare(person, household).overall is None
    assert compare(person, household, units=[factor]).overall in (STRONGER, EQUAL)


def test_a_stated_factor_decides_which_unit_is_the_stronger_one_from_either_side() -> None:
    """d_person <= 6 d_household: a promise for persons gives one for households, and that is what is said."""
    person = specification(PURE, 1)
    household = specification(PURE, 1, premetric=replace(PERSONS, unit="household"))
    factor = UnitFactor(old="person", new="household", factor=6, because="nobody lives with more than five others")
    there, back = compare(person, household, units=[factor]), compare(household, person, units=[factor])
    assert (verdicts(there)[2], verdicts(back)[2]) == (STRONGER, WEAKER)
    assert "it gives one for each household too" in there.blocks[2].reason
    assert "the second gives one for each household too" in back.blocks[2].reason
    for found in (there, back):
        stated = "a change of one household changes at most 6 person records (nobody lives with more than five others)"
        assert stated in found.blocks[2].reason


def test_of_two_neighbour_relations_the_wider_one_is_the_stronger() -> None:
    near, far = (specification(PURE, 1, premetric=replace(PERSONS, within=within)) for within in (1, 3))
    assert verdicts(compare(near, far))[2] == WEAKER
    assert verdicts(compare(far, near))[2] == STRONGER


def listed(*universes: str, budget: int = 1) -> Specification:
    """A promise inside universes that are listed one by one, each dataset a letter."""
    return specification(PURE, budget, multiverse=Multiverse(universes=tuple(map(frozenset, universes))))


def test_listed_universes_are_the_same_in_any_order_and_then_budgets_compare() -> None:
    assert compare(listed("ab", "cd"), listed("cd", "ab")).overall == EQUAL
    assert compare(listed("ab", "cd"), listed("cd", "ab", budget=2)).overall == STRONGER


def test_listed_universes_are_weaker_than_one_that_contains_them_and_their_budgets_are_of_another_currency() -> None:
    found = compare(listed("ab", "cd"), listed("abcd"))
    assert (verdicts(found)[1], verdicts(found)[4], found.overall) == (WEAKER, INCOMPARABLE, WEAKER)
    assert "the two differ in where" in found.blocks[4].reason


def test_listed_universes_and_invariants_are_not_taken_for_the_same() -> None:
    found = compare(listed("ab", "cd"), specification(PURE, 1))
    assert verdicts(found)[1] == INCOMPARABLE
    assert found.overall != EQUAL


@pytest.mark.parametrize(
    ("first", "second"), [("exp(1)*exp(2)", "exp(3)"), ("sqrt(2) + sqrt(3)", "sqrt(5 + 2*sqrt(6))")]
)
def test_equal_numbers_in_different_forms_have_no_verdict_and_the_advice_says_what_to_do(
    first: str, second: str
) -> None:
    """Both are equal, and no number of digits shows it: the comparison says so instead of ending with an error."""
    one, other = (specification(PURE, Budget.constant(text)) for text in (first, second))
    found = compare(one, other)
    assert (verdicts(found)[4], found.overall) == (INCOMPARABLE, None)
    assert "agree to 600 digits" in found.blocks[4].reason
    assert "agree to 600 digits" in found.because
    assert any("write both budgets in the same form" in advice for advice in found.to_change)


def test_a_verdict_at_the_realised_universe_is_not_one_about_all_universes() -> None:
    """At rate 9/10 the loss is smaller for the file at hand and larger where the largest stratum is small.

    Definition 2.4.9 asks for every universe, so neither is stronger overall: with b = 2 the losses are
    ln 9 and ln 3, the other way round.
    """
    held = Multiverse(invariants=(Margin(of="household", level="county"),), nearest=2, nearest_because="swapping")

    def at(rate: str, largest_stratum: int) -> Specification:
        return specification(PURE, Budget.of_swapping(rate, largest_stratum=largest_stratum), multiverse=held)

    assert at("9/10", 1000).budget.realised < at("1/2", 1000).budget.realised
    assert at("9/10", 2).budget.realised > at("1/2", 2).budget.realised
    assert compare(at("9/10", 1000), at("1/2", 1000)).overall not in (STRONGER, WEAKER)


def test_post_imputation_records_are_the_weaker_unit_and_nothing_follows() -> None:
    seen = specification(PURE, 1, premetric=replace(PERSONS, post_imputation=True))
    found = compare(seen, specification(PURE, 1, premetric=replace(PERSONS, post_imputation=False)))
    assert verdicts(found)[2] == WEAKER
    assert found.overall is None


@pytest.mark.parametrize("said", [True, False])
def test_what_is_not_said_about_imputation_is_compared_with_nothing(said: bool) -> None:
    unsaid = specification(PURE, 1, premetric=replace(PERSONS, post_imputation=None))
    found = compare(unsaid, specification(PURE, 1, premetric=replace(PERSONS, post_imputation=said)))
    assert verdicts(found)[2] == INCOMPARABLE
    assert found.blocks[2].reason == "whether its records are records after imputation is not said in the first"
    assert found.overall is None
    assert compare(unsaid, unsaid).overall == EQUAL


def test_a_stage_that_is_not_said_is_told_as_such() -> None:
    said, unsaid = (
        specification(PURE, 1, domain=Domain(name="X", dataset="a file", stage=s)) for s in ("sample", "as-given")
    )
    assert "a file (at a stage that is not said)" in compare(said, unsaid).blocks[0].reason
    assert "at which stage it is, neither says" in compare(unsaid, unsaid).blocks[0].reason


def test_bounded_and_unbounded_distances_are_told_apart() -> None:
    added = specification(PURE, 1, premetric=InputPremetric(name="d_SymDiff", unit="person"))
    changed = specification(PURE, 2)
    found = compare(added, changed)
    assert found.overall == STRONGER
    assert compare(added, changed.with_budget("1.99")).overall is None


def test_a_fixed_number_of_records_is_no_difference_under_a_bounded_distance() -> None:
    """Proposition A.3.3: it is fixed whether listed or not."""
    listed = specification(PURE, 1, multiverse=Multiverse(invariants=(Margin(of="person"),)))
    found = compare(listed, specification(PURE, 1))
    assert verdicts(found)[1] == EQUAL
    assert found.overall == EQUAL


@pytest.mark.parametrize(("a", "b"), list(product(ALL_OUTPUTS, repeat=2)), ids=lambda p: p.symbol)
def test_a_stronger_measure_converts_into_the_weaker_one_and_not_back(a: Any, b: Any) -> None:
    """The verdict on the fourth block says that a finite budget in one gives a finite budget in the other."""
    verdict = verdicts(compare(specification(a, 1), specification(b, 1)))[3]
    both = {("D_Mult", "D_Tr"), ("D_TV", "D_H"), ("D_NoR", "D_GDP")}  # each gives the other
    assert (verdict == EQUAL) == (a == b or {(a.name, b.name), (b.name, a.name)} & both != set())
    if verdict == STRONGER:
        value: Exact = change_output(specification(a, 1), to=b).specification.budget.realised
        assert not value.is_infinite


@SOME
@given(specifications(), specifications())
def test_any_two_specifications_can_be_compared_and_turned_round(a: Specification, b: Specification) -> None:
    there, back = compare(a, b), compare(b, a)
    assert [TURNED[verdict] for verdict in verdicts(there)] == verdicts(back)
    assert TURNED[there.overall] == back.overall


@SOME
@given(budgets())
def test_any_specification_with_a_number_equals_itself(budget: Budget) -> None:
    """Whatever the policy: also where the budget depends on the universe."""
    one = specification(PURE, budget)
    assert compare(one, one).overall == (None if budget.is_free else EQUAL)


def test_hierarchies_are_read_from_either_side() -> None:
    block = specification(PURE, 1, multiverse=Multiverse(invariants=(Margin(of="person", level="block"),)))
    state = specification(
        PURE, ln(2), multiverse=Multiverse(invariants=(Margin(of="person", level="state"),), hierarchies=(GEOGRAPHY,))
    )
    assert verdicts(compare(block, state))[1] == WEAKER
    assert compare(state, block).overall == STRONGER


def swapped(rate: Fraction, bound: Bound) -> Specification:
    policy = PermutationSwapping(strata=(SwappedStrata(rate=rate, largest_stratum=10),), bound=bound)
    held = Multiverse(invariants=(Margin(of="household", level="county"),), nearest=2, nearest_because="swapping")
    return specification(PURE, Budget(policy=policy), multiverse=held)


@pytest.mark.parametrize("first", ["paper", "sharp"])
@pytest.mark.parametrize("second", ["paper", "sharp"])
def test_swapping_budgets_are_ordered_only_where_they_are_in_every_universe(first: Bound, second: Bound) -> None:
    """Compare with the bounds themselves for strata of 2 to 200 records, at many pairs of rates."""
    rates = [Fraction(n, 20) for n in (1, 5, 8, 10, 12, 15, 18)]
    verdicts = set()
    for p, q in product(rates, rates):
        sizes = (2, 3, 4, 5, 6, 20, 200)
        below = all(
            bounded_psa_epsilon(p, largest_stratum=n, bound=first)
            <= bounded_psa_epsilon(q, largest_stratum=n, bound=second)
            for n in sizes
        )
        found = compare(swapped(p, first), swapped(q, second)).overall
        verdicts.add(found)
        if found in (STRONGER, EQUAL):
            assert below, f"{p} {first} is not below {q} {second} everywhere"
        elif first == second:
            assert not below, f"{p} is below {q} everywhere, and compare does not see it"
    assert STRONGER in verdicts or first == "paper" != second


@pytest.mark.parametrize("bound", ["paper", "sharp"])
@pytest.mark.parametrize("nothing", [0, 1])
def test_a_rate_that_promises_nothing_is_never_the_stronger_one(nothing: int, bound: Bound) -> None:
    none, half = swapped(Fraction(nothing), bound), swapped(Fraction(1, 2), bound)
    assert compare(none, half).overall == WEAKER
    assert compare(half, none).overall == STRONGER
    assert compare(none, swapped(Fraction(1 - nothing), bound)).overall == EQUAL


def test_varying_budgets_are_not_equal_because_their_numbers_are() -> None:
    """At two records rates 1/10 and 9/10 lose the same, with four they do not: converting must not hide it."""
    specs = [
        change_output(
            replace(swapped(Fraction(rate), "sharp"), budget=Budget(policy=_of_two(Fraction(rate)))), to=ZCDP
        ).specification
        for rate in ("1/10", "9/10")
    ]
    assert specs[0].budget.realised == specs[1].budget.realised
    assert compare(*specs).overall != EQUAL


def _of_two(rate: Fraction) -> PermutationSwapping:
    return PermutationSwapping(strata=(SwappedStrata(rate=rate, largest_stratum=2),), bound="sharp")


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("9.6540", "9.6580", "ε=9.654 against ε=9.658"),
        ("ln(15600)", "ln(15601)", "ε=9.65503 against ε=9.65510"),
        ("ln(3)", "ln(3)", "ε=1.10 against ε=1.10"),
    ],
)
def test_budgets_that_differ_are_shown_in_as_many_digits_as_show_it(one: str, other: str, reason: str) -> None:
    found = compare(specification(PURE, one), specification(PURE, other)).blocks[-1]
    assert found.reason == reason
    shown = found.reason.split(" against ")
    assert (found.verdict == "equal") == (shown[0] == shown[1])
    assert found.verdict != "weaker"


# ---- one file, looked at by different releases


def of_file(*columns: str, epsilon: str = "1", **facts: Any) -> Specification:
    own = specification(PURE, Budget.constant(epsilon))
    return own.with_flavor(domain=replace(Domain.of_file("homes", columns=columns), **facts))


def test_a_promise_about_fewer_columns_of_one_file_is_the_stronger_one() -> None:
    """A file that differs in the other column alone must look the same to it, and may not to a release that uses it."""
    narrow, wide = of_file("county"), of_file("county", "tenure")
    found = compare(narrow, wide)
    assert [block.verdict for block in found.blocks] == [EQUAL] * 5
    assert "the first looks at columns county; the second at columns county, tenure" in found.blocks[0].reason
    assert (found.overall, compare(wide, narrow).overall) == (STRONGER, WEAKER)
    assert compare(of_file("county"), of_file("tenure")).overall is None
    assert compare(of_file("county", epsilon="2"), wide).overall is None


def test_a_promise_about_a_coarser_column_implies_that_about_the_column_itself() -> None:
    coarse, fine = of_file("age", prepared=(("age", "in bands of 5"),)), of_file("age")
    assert (compare(coarse, fine).overall, compare(fine, coarse).overall) == (STRONGER, WEAKER)
    other = of_file("age", prepared=(("age", "in bands of 7"),))
    assert compare(coarse, other).overall is None


def test_checksums_tell_two_files_of_one_name_apart_and_two_names_of_one_file_together() -> None:
    one, other = file_identity(files=["9f86"]), file_identity(files=["60ab"])
    assert compare(of_file(), of_file()).overall == EQUAL
    assert compare(of_file(identity=one), of_file()).overall == EQUAL, "words decide where only one is known"
    assert compare(of_file(identity=one), of_file(identity=other)).blocks[0].verdict == INCOMPARABLE
    renamed = of_file(name="dwellings", dataset="another sentence", stage="edited-file", identity=one)
    found = compare(of_file(identity=one), renamed)
    assert found.overall == EQUAL
    assert "only one says at which stage" in found.blocks[0].reason
    elsewhere = replace(renamed.domain, stage="sample")
    assert compare(renamed, renamed.with_flavor(domain=elsewhere)).blocks[0].verdict == INCOMPARABLE
