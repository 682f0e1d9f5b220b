"""Group privacy: neighbours and all distances say the same where paths stay inside each universe, and only there."""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from typing import Any

import pytest

from stirred.spec import (
    GDP,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    ConversionRefusedError,
    Domain,
    InputPremetric,
    Law,
    Margin,
    Multiverse,
    Named,
    OutputPremetric,
    Specification,
    approximate,
    change_distance,
    change_unit,
    compare,
    compose,
    exact,
    ln,
    protection_loss,
    to_neighbours,
)
from stirred.spec.comparison import EQUAL, STRONGER, WEAKER
from stirred.spec.convert import to_metric
from stirred.spec.document import from_json, to_json
from stirred.spec.exact import INFINITE, compare_exact
from stirred.spec.explanation import explain
from stirred.spec.output_premetric import CHI_SQUARED, HELLINGER, KULLBACK_LEIBLER, WASSERSTEIN
from tests.spec.strategies import OPEN_TRADE_OFF, RENYI, TRADE_OFF, law, specification

F = Fraction
TWO = OutputPremetric(name="D_Renyi", order=F(2))
ORDERED = InputPremetric(name="d_Ham", unit="person")
PERSONS = InputPremetric(name="d_HamS", unit="person")
ADDED = InputPremetric(name="d_SymDiff", unit="person")
TRIANGLE = (PURE, ZCDP, GDP, TOTAL_VARIATION, HELLINGER, TRADE_OFF, OPEN_TRADE_OFF)
BITS = tuple(product((0, 1), repeat=3))
TOTAL = Named(name="sum", function=sum)


def on(
    datasets: Any, *invariants: Named, within: int, output: OutputPremetric = PURE, budget: Any = 1
) -> Specification:
    """A promise for neighbours on a listed domain."""
    domain = Domain(name="X", dataset="a few records", datasets=tuple(datasets))
    return specification(
        output,
        budget,
        premetric=ORDERED.neighbours(within),
        multiverse=Multiverse(invariants=invariants),
        domain=domain,
    )


# -- from neighbours to all distances -------------------------------------------------------------


@pytest.mark.parametrize("output", TRIANGLE, ids=lambda p: p.symbol)
@pytest.mark.parametrize("premetric", [ORDERED, PERSONS, ADDED], ids=lambda p: p.name)
def test_neighbours_and_all_distances_are_equal_for_a_measure_that_adds_up(
    output: OutputPremetric, premetric: InputPremetric
) -> None:
    """Equation 2.8, with no invariants."""
    near, far = (
        specification(output, 1, premetric=premetric.neighbours()),
        specification(output, 1, premetric=premetric),
    )
    assert to_metric(near).specification.flavor == far.flavor
    assert to_metric(near).specification.budget.realised == 1
    found = compare(near, far)
    assert (found.overall, found.blocks[2].verdict, found.blocks[4].verdict) == (EQUAL, EQUAL, EQUAL)
    assert compare(near, far.with_budget(2)).overall == STRONGER
    assert compare(far.with_budget(2), near).overall == WEAKER


@pytest.mark.parametrize("output", [approximate("1/10"), RENYI, KULLBACK_LEIBLER, CHI_SQUARED], ids=lambda p: p.symbol)
def test_a_measure_that_does_not_add_up_leaves_pairs_further_apart_without_a_bound(output: OutputPremetric) -> None:
    near, far = specification(output, 1, premetric=PERSONS.neighbours()), specification(output, 1)
    assert not output.is_metric
    with pytest.raises(ConversionRefusedError, match="does not add up along a path"):
        to_metric(near)
    assert compare(far, near).overall == STRONGER
    assert compare(far, near).blocks[2].verdict == STRONGER


def test_three_laws_that_approximate_dp_joins_step_by_step_and_not_at_once() -> None:
    tenth = approximate("1/10")
    one, two, three = law(10, 0, 0), law(9, 1, 0), law(8, 1, 1)
    assert tenth.distance(one, two).high == tenth.distance(two, three).high == 0
    assert tenth.distance(one, three).low == INFINITE


def test_on_a_full_domain_paths_are_counted_and_the_factor_is_one() -> None:
    found = to_metric(on(BITS, within=1)).specification
    assert found.budget.realised == 1
    assert not found.assumptions  # nothing had to be assumed
    assert to_metric(specification(PURE, 1, premetric=PERSONS.neighbours())).specification.assumptions


def test_with_a_fixed_sum_neighbours_two_apart_say_what_all_distances_say() -> None:
    """`within 1` is empty there: the identity passes at 0, and has no bound at distance 2."""
    assert to_metric(on(BITS, TOTAL, within=2, budget=2)).specification.budget.realised == 1
    with pytest.raises(ConversionRefusedError, match="no path of neighbours"):
        to_metric(on(BITS, TOTAL, within=1))
    identity = {x: Law.certain(x) for x in BITS}
    assert {u.loss.high for u in protection_loss(on(BITS, TOTAL, within=1).flavor, identity)} == {exact(0)}
    everywhere = on(BITS, TOTAL, within=1).with_flavor(input_premetric=ORDERED).flavor
    assert max(u.loss.high for u in protection_loss(everywhere, identity)) == INFINITE


@pytest.mark.parametrize(("n", "factor"), [(3, "4/3"), (4, "3/2")])
def test_in_a_swap_universe_neighbours_and_all_distances_are_not_equivalent(n: int, factor: str) -> None:
    """Both margins fixed, n distinct records: permutations. A 3-cycle is 3 apart and two swaps away."""
    found = to_metric(on(permutations(range(n)), within=2, budget=2)).specification
    assert found.budget.realised == exact(factor) == 2 * exact(F(n - 1, n))
    squared = to_metric(on(permutations(range(n)), within=2, output=ZCDP, budget=4)).specification
    assert squared.budget.realised == exact(factor) * exact(factor)


def test_a_domain_without_the_versions_between_has_no_bound() -> None:
    with pytest.raises(ConversionRefusedError, match="no path of neighbours"):
        to_metric(on([(0, 0), (1, 1)], within=1))


def test_under_invariants_that_are_only_described_nothing_is_assumed_about_paths() -> None:
    held = Multiverse(invariants=(Margin(of="person", level="county"),))
    near = specification(PURE, 1, premetric=PERSONS.neighbours(), multiverse=held)
    with pytest.raises(ConversionRefusedError, match="under these invariants"):
        to_metric(near)
    assert compare(specification(PURE, 1, multiverse=held), near).blocks[2].verdict == STRONGER
    sizes = Multiverse(invariants=(Margin(of="person"),))
    assert to_metric(replace_multiverse(near, sizes)).specification.input_premetric == PERSONS
    with pytest.raises(ConversionRefusedError):  # where records are added, a fixed number leaves no neighbours
        to_metric(specification(PURE, 1, premetric=ADDED.neighbours(), multiverse=sizes))


def replace_multiverse(spec: Specification, multiverse: Multiverse) -> Specification:
    return spec.with_flavor(multiverse=multiverse)


def test_a_relation_of_ones_own_has_no_known_paths() -> None:
    own = InputPremetric(name="d_r", unit="person", relation="siblings")
    with pytest.raises(ConversionRefusedError, match="shortest paths between others are not known"):
        to_metric(specification(PURE, 1, premetric=own))


# -- neighbours of other reach --------------------------------------------------------------------


@pytest.mark.parametrize("output", [PURE, approximate("1/10"), RENYI], ids=lambda p: p.symbol)
def test_a_promise_for_pairs_two_apart_holds_for_pairs_one_apart(output: OutputPremetric) -> None:
    wide, near = (specification(output, 1, premetric=PERSONS.neighbours(within)) for within in (2, 1))
    assert to_neighbours(wide, within=1).specification.budget.realised == 1
    assert compare(wide, near).overall == STRONGER


def test_a_promise_for_neighbours_costs_twice_as_much_two_apart() -> None:
    near = specification(PURE, 1, premetric=PERSONS.neighbours())
    found = to_neighbours(near, within=2)
    assert found.specification.budget.realised == 2
    assert len(found.steps) == 2
    wide = specification(PURE, 2, premetric=PERSONS.neighbours(2))
    assert compare(near, wide).overall == STRONGER
    assert compare(near, wide.with_budget("1.9")).overall is None


# -- units and distances --------------------------------------------------------------------------


def test_a_pure_promise_for_neighbours_gives_one_for_households() -> None:
    near = specification(PURE, 1, premetric=PERSONS.neighbours())
    found = change_unit(near, unit="household", factor=6, because="at most six").specification
    assert found.budget.realised == 6
    assert found.input_premetric == replace(PERSONS, unit="household")


def test_approximate_dp_for_groups_lets_delta_grow() -> None:
    near = specification(approximate("1/100"), ln(2), premetric=PERSONS.neighbours())
    found = change_unit(near, unit="household", factor=3, because="at most three").specification
    assert compare_exact(found.budget.realised, ln(8)) == 0
    assert found.output_premetric == approximate("7/100")
    assert found.input_premetric == replace(PERSONS.neighbours(), unit="household")


@pytest.mark.parametrize("by", ["distance", "unit"])
def test_a_delta_that_grows_to_1_is_refused_with_what_helps(by: str) -> None:
    """A release that has its delta from the start has no other measure to go back to."""
    near = specification(approximate("0.4"), 1, premetric=PERSONS.neighbours())
    by_unit = partial(change_unit, unit="household", factor=2, because="at most two")
    change = {"unit": by_unit, "distance": partial(to_neighbours, within=2)}[by]
    with pytest.raises(ConversionRefusedError, match="grows to a delta of 1 or more") as caught:
        change(near)
    (problem,) = caught.value.problems
    assert problem.remedy == (
        "look at each release alone, or choose settings with a smaller delta; if it was converted to this measure, "
        f"change the {by} first and the measure afterwards"
    )


@pytest.mark.parametrize("epsilon", ["0", "1/2"])
def test_the_delta_of_a_group_bounds_a_chain_of_laws(epsilon: str) -> None:
    """Laws that are (epsilon, delta) apart at every step, three steps in a row, attaining it at each."""
    from stirred.spec.convert_output import group_delta
    from stirred.spec.exact import exp

    ratio, delta = exp(exact(epsilon)), F(1, 100)
    up = F(ratio.enclose().high)
    mass = [F(0)]
    for _ in range(3):
        mass.append(up * mass[-1] + delta)
    wide = group_delta(exact(epsilon), delta, size=3)
    assert mass[-1] <= wide + F(1, 10**20)
    assert float(wide) == pytest.approx(float(mass[-1]), rel=1e-12)


def test_neighbours_by_the_unordered_distance_are_neighbours_by_the_ordered_one() -> None:
    near = specification(RENYI, 1, premetric=PERSONS.neighbours())
    found = change_distance(near, to="d_Ham").specification
    assert (found.input_premetric, found.budget.realised) == (ORDERED.neighbours(), exact(1))


def test_neighbours_by_additions_and_removals_become_neighbours_by_changes() -> None:
    two = change_distance(specification(RENYI, 1, premetric=ADDED.neighbours(2)), to="d_HamS").specification
    assert (two.input_premetric, two.budget.realised) == (PERSONS.neighbours(1), exact(1))
    one = change_distance(specification(PURE, 1, premetric=ADDED.neighbours(1)), to="d_HamS").specification
    assert (one.input_premetric, one.budget.realised) == (PERSONS, exact(2))


def test_with_the_number_of_records_fixed_a_change_is_a_removal_and_an_addition() -> None:
    sizes = Multiverse(invariants=(Margin(of="person"),))
    changed, added = specification(PURE, 1), specification(PURE, "1/2", premetric=ADDED, multiverse=sizes)
    found = change_distance(specification(PURE, 1, multiverse=sizes), to="d_SymDiff").specification
    assert (found.input_premetric, found.budget.realised) == (ADDED, exact("1/2"))
    assert compare(changed, added).overall == EQUAL
    assert compare(changed, added.with_budget("0.49")).overall == WEAKER
    with pytest.raises(ConversionRefusedError, match="gives none per d_SymDiff"):
        change_distance(changed, to="d_SymDiff")


# -- output premetrics ----------------------------------------------------------------------------


def test_total_variation_and_approximate_dp_of_epsilon_zero_are_the_same_promise_for_neighbours() -> None:
    near = PERSONS.neighbours()
    tv = specification(TOTAL_VARIATION, "1/10", premetric=near)
    zero = specification(approximate("1/10"), 0, premetric=near)
    assert compare(tv, zero).overall == EQUAL
    assert compare(specification(TOTAL_VARIATION, "1/10"), zero).overall == EQUAL


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        (specification(RENYI, 1), specification(TWO, 1)),
        (specification(GDP, 1), specification(TWO, 1, premetric=PERSONS.neighbours())),
        (specification(PURE, ln(3)), specification(approximate("1/8"), "0.9163", premetric=PERSONS.neighbours())),
        (specification(PURE, ln(3), premetric=PERSONS.neighbours()), specification(ZCDP, "0.5494")),
        (specification(TRADE_OFF, 1), specification(TOTAL_VARIATION, "1/2")),
    ],
)  # fmt: skip
def test_what_was_refused_for_want_of_a_chain_is_found_to_follow(
    stronger: Specification, weaker: Specification
) -> None:
    assert compare(stronger, weaker).overall == STRONGER
    assert compare(weaker, stronger).overall == WEAKER


def coins(*shares: str) -> list[Law]:
    return [Law({1: F(share), 0: 1 - F(share)}) for share in shares]


def test_kl_and_chi_squared_break_the_triangle_inequality_and_the_squared_hellinger_distance_too() -> None:
    p, q, r = coins("1/4", "1/2", "3/4")
    steps = [float(KULLBACK_LEIBLER.distance(*pair).high) for pair in ((p, q), (q, r), (p, r))]
    assert steps == [pytest.approx(v, abs=1e-9) for v in (0.1438410362, 0.1438410362, 0.5493061443)]
    one_way = sum(float(a) * float(ln(a / b)) for a, b in ((F(1, 4), F(1, 2)), (F(3, 4), F(1, 2))) if a != b)
    assert one_way == pytest.approx(0.1308120359, abs=1e-9)
    assert [CHI_SQUARED.distance(*pair).high for pair in ((p, q), (p, r))] == [F(1, 3), F(4, 3)]
    near, far = HELLINGER.distance(p, q).high, HELLINGER.distance(p, r).high
    assert far * far > 2 * near * near
    assert far <= 2 * near


def test_how_two_releases_of_randomised_response_combine() -> None:
    """Table of the measures: once and twice, exactly."""
    p, q = law(3, 1), law(1, 3)
    once, twice = ({d: d.distance(a, b).high for d in (TOTAL_VARIATION, KULLBACK_LEIBLER, HELLINGER, CHI_SQUARED)}
                   for a, b in ((p, q), (p.times(p), q.times(q))))  # fmt: skip
    assert [once[TOTAL_VARIATION], twice[TOTAL_VARIATION]] == [exact(F(1, 2))] * 2
    assert compare_exact(twice[KULLBACK_LEIBLER], 2 * once[KULLBACK_LEIBLER]) == 0
    assert twice[HELLINGER] == F(1, 2)  # 1 - H^2 multiplies: (3/4)^(1/2) twice
    assert float(once[HELLINGER]) ** 2 == pytest.approx(0.1339745962, abs=1e-9)
    assert [once[CHI_SQUARED], twice[CHI_SQUARED]] == [exact(F(4, 3)), exact(F(40, 9))]
    eighth, quarter = approximate("1/8"), approximate("1/4")
    assert eighth.distance(p, q).high == ln(F(5, 2))
    assert eighth.distance(p.times(p), q.times(q)).high == ln(7)
    assert quarter.distance(p.times(p), q.times(q)).high == ln(5)


def test_compose_uses_the_rule_of_each_measure_or_refuses() -> None:
    near = PERSONS.neighbours()
    both = [specification(CHI_SQUARED, "4/3", premetric=near)] * 2
    assert compose(both).specification.budget.realised == exact("40/9")
    with pytest.raises(ConversionRefusedError, match="4/3 come to 40/9"):
        compose([specification(CHI_SQUARED, "4/3")] * 2)
    assert compose(
        [specification(HELLINGER, "3/10"), specification(HELLINGER, "4/10")]
    ).specification.budget.realised == F(1, 2)
    assert compose([specification(KULLBACK_LEIBLER, 1)] * 3).specification.budget.realised == 3
    assert compose([specification(TRADE_OFF, 1)] * 2).specification.budget.realised == 2
    with pytest.raises(ConversionRefusedError, match="chosen by the output of another"):
        compose([specification(WASSERSTEIN, 1)] * 2)
    with pytest.raises(ConversionRefusedError, match=r"D_Tr\[1/4:3/4\]"):
        compose([specification(TRADE_OFF, 1), specification(OPEN_TRADE_OFF, 1)])


def test_the_wasserstein_distance_grows_by_relabelling_and_adds_up_on_products() -> None:
    p, q = law(1, 1, 0), law(0, 1, 1)
    assert WASSERSTEIN.distance(p, q).high == 1
    moved = [each.pushed(lambda t: 10 if t == 2 else t) for each in (p, q)]
    assert WASSERSTEIN.distance(*moved).high == 5
    with pytest.raises(Exception, match="not a whole number"):
        WASSERSTEIN.distance(p.times(p), q.times(q))


# -- files and words ------------------------------------------------------------------------------

SHOWN = {
    TRADE_OFF: "no test between two versions that differ in 1 person has more power than the curve gives: 0 at size 0, "
    "3/4 at size 1/4",
    HELLINGER: "the probability of any output event changes by at most",
    CHI_SQUARED: "average squared relative change of probabilities is at most 1",
    WASSERSTEIN: "a published number moves by at most 1 on average",
    KULLBACK_LEIBLER: "an average over outputs of the factor by which odds change",
}


@pytest.mark.parametrize(("output", "words"), SHOWN.items(), ids=lambda v: getattr(v, "name", ""))
def test_every_measure_survives_a_file_and_is_explained(output: OutputPremetric, words: str) -> None:
    one = specification(output, 1)
    again = from_json(to_json(one))
    assert again == one
    assert compare(again, one).overall == EQUAL
    told = explain(one)
    assert words in told.how_to_read
    how = next(answer.answer for answer in told.answers if answer.block == "output_premetric")
    assert ("may lie further apart" in how) == (output == WASSERSTEIN)


def specified(
    *, within: int | None, invariants: tuple[Margin, ...] = (), domain: Domain | None = None, budget: str = "1"
) -> Specification:
    """A pure promise for persons, on a listed domain or not."""
    made = specification(
        multiverse=Multiverse(invariants=invariants), premetric=replace(ORDERED, within=within), budget=budget
    )
    return made if domain is None else made.with_flavor(domain=domain)


def test_a_listed_domain_is_looked_at_even_where_the_number_of_records_is_an_invariant_without_a_function() -> None:
    files = Domain(name="f", dataset="two bits", datasets=((0, 0), (1, 1)))
    given = specified(within=1, invariants=(Margin(of="person"),), domain=files)
    with pytest.raises(ConversionRefusedError, match="no path of neighbours"):
        to_metric(given)
    every = replace(files, datasets=((0, 0), (0, 1), (1, 0), (1, 1)))
    assert to_metric(given.with_flavor(domain=every)).specification.budget.realised == 1


def test_paths_may_leave_the_universes_of_the_weaker_promise() -> None:
    counties = (Margin(of="person", level="county"),)
    neighbours, everywhere = specified(within=1), specified(within=None, invariants=counties)
    assert compare(neighbours, everywhere).overall == "stronger"
    assert compare(neighbours, specified(within=2, invariants=counties, budget="2")).overall == "stronger"
    assert compare(neighbours, specified(within=2, invariants=counties, budget="1.9")).overall is None


def test_distances_are_equal_to_neighbours_only_where_both_measures_add_up() -> None:
    far = specified(within=None).with_flavor(output_premetric=approximate("1/4"))
    block = next(one for one in compare(far, specified(within=1)).blocks if one.block == "input_premetric")
    assert block.verdict == "stronger"


def test_explain_says_what_follows_for_groups() -> None:
    def said(specification: Specification) -> str:
        return explain(specification).answers[-1].answer

    assert "k times that follows for versions that differ in k" in said(specified(within=1))
    assert "k² times" in said(specified(within=1).with_flavor(output_premetric=ZCDP))
    assert "delta (e^(k ε) - 1)/(e^ε - 1)" in said(specified(within=1).with_flavor(output_premetric=approximate("1/4")))
    for silent in (
        specified(within=1, invariants=(Margin(of="person", level="county"),)),
        specified(within=1).with_flavor(output_premetric=OutputPremetric(name="D_KL")),
        specified(within=2).with_flavor(output_premetric=approximate("1/4")),
    ):
        assert "nothing is stated for versions further apart" in said(silent)
