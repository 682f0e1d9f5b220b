"""Implication on a finite domain, comparability, budgets by universe, and the counterexamples of the atlas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import (
    GDP,
    INFINITE,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Budget,
    ConversionRefusedError,
    Exact,
    Flavor,
    InputPremetric,
    Law,
    Multiverse,
    Named,
    OutputPremetric,
    Specification,
    SpecificationError,
    approximate,
    change_unit,
    exact,
    ln,
)
from stirred.spec.budget import ByUniverse, not_above_by_universe
from stirred.spec.comparison import EQUAL, STRONGER, WEAKER, compare
from stirred.spec.convert import to_distance
from stirred.spec.document import from_document, from_json, to_document, to_json
from stirred.spec.explanation import explain
from stirred.spec.implication import (
    completion,
    components,
    costs,
    factor,
    free_to_tell,
    implies,
    may_tell_budget,
    universe_name,
)
from stirred.spec.input_premetric import shortest
from stirred.spec.multiverse import Verdict
from stirred.spec.tradeoff import TradeOff
from tests.spec.strategies import SOME, law, specification

LINE = InputPremetric(name="d_Euclid", unit="value")
ONES = InputPremetric(name="d_HamS", unit="value")
MAX = OutputPremetric(name="D_Max")
Labels = str


def given_distance(*entries: tuple[str, str, Any], **settings: Any) -> InputPremetric:
    table = tuple((x, y, exact(far)) for x, y, far in entries)
    return InputPremetric(name="d_Given", unit="dataset", relation="given", table=table, **settings)


def promised(
    premetric: InputPremetric, budget: Any = 1, *, output: OutputPremetric = PURE, universes: Any = None
) -> Specification:
    base = specification(output, 1, premetric=premetric)
    multiverse = Multiverse() if universes is None else Multiverse(universes=tuple(map(frozenset, universes)))
    flavor = Flavor(domain=base.domain, multiverse=multiverse, input_premetric=premetric, output_premetric=output)
    return Specification(flavor=flavor, budget=budget if isinstance(budget, Budget) else Budget.constant(budget))


def by_universe(**budgets: Any) -> Budget:
    return Budget(policy=ByUniverse(budgets=tuple((name, exact(value)) for name, value in budgets.items())))


def satisfies(one: Specification, laws: dict[str, Law]) -> bool:
    """Say whether a mechanism satisfies a specification, by all pairs; a second route beside the closure."""
    allowed = costs(one, list(laws))
    return all(one.output_premetric.distance(laws[x], laws[y]).high <= allowed[x, y] for x, y in permutations(laws, 2))


# -- the decision ---------------------------------------------------------------------------------

POINTS = ("a", "b", "c", "d")
DISTANCES = st.sampled_from([1, 2, 3, 5, "inf"])


@st.composite
def premetrics(draw: Callable[..., Any], *, directed: bool = False) -> InputPremetric:
    pairs = permutations(POINTS, 2) if directed else combinations(POINTS, 2)
    entries = [(x, y, draw(DISTANCES)) for x, y in pairs]
    return given_distance(*entries, directed=directed)


def extremal(allowed: dict[Any, Exact], start: str) -> dict[str, Law]:
    """Return the laws that attain every shortest path from one dataset, where a unit of cost is ln 2."""
    far = shortest(allowed)
    steps = {x: far[start, x] / ln(2) for x in POINTS}
    small = Fraction(1, 2**9)  # so small that the other outcome never decides, even one way
    return {
        x: Law({1: Fraction(0), 0: Fraction(1)})
        if far[start, x].is_infinite
        else Law({1: small / 2 ** int(_whole(steps[x])), 0: 1 - small / 2 ** int(_whole(steps[x]))})
        for x in POINTS
    }


def _whole(value: Exact) -> int:
    return round(float(value))


@pytest.mark.parametrize("output", [PURE, MAX], ids=lambda output: output.name)
@SOME
@given(st.data())
def test_the_decision_agrees_with_a_mechanism_that_attains_the_paths(output: OutputPremetric, data: Any) -> None:
    """Refused: a mechanism satisfies the first and not the second. Granted: the extremal ones satisfy both."""
    directed = output == MAX
    a, b = (promised(data.draw(premetrics(directed=directed)), "ln(2)", output=output) for _ in range(2))
    answer = implies(a, b, POINTS)
    assert answer.verdict is not Verdict.CANNOT_TELL
    mechanisms = {x: extremal(costs(a, POINTS), x) for x in POINTS}
    assert all(satisfies(a, laws) for laws in mechanisms.values())
    if answer:
        assert all(satisfies(b, laws) for laws in mechanisms.values())
    else:
        assert answer.pair is not None
        assert not satisfies(b, mechanisms[str(answer.pair[0])])


def test_one_way_promises_are_closed_one_way() -> None:
    chain = given_distance(("a", "b", 1), ("b", "c", 1), directed=True)
    one = promised(chain, "ln(2)", output=MAX)
    assert implies(
        one, promised(given_distance(("a", "c", 2), ("b", "b", 0), directed=True), "ln(2)", output=MAX), "abc"
    )
    back = promised(given_distance(("c", "a", 9), ("b", "b", 0), directed=True), "ln(2)", output=MAX)
    assert implies(one, back, "abc").verdict is Verdict.NO
    assert implies(promised(given_distance(("a", "b", 1), ("b", "c", 1)), "ln(2)"), one, "abc")


def test_a_cost_of_zero_holds_both_ways() -> None:
    """Equal laws one way are equal laws the other way."""
    still = promised(given_distance(("a", "b", 0), directed=True), output=MAX)
    assert implies(still, promised(given_distance(("b", "a", 1), directed=True), output=MAX), "ab")


@pytest.mark.parametrize("output", [PURE, ZCDP, GDP, TOTAL_VARIATION], ids=lambda output: output.name)
def test_losses_add_up_along_a_path_where_the_triangle_inequality_holds(output: OutputPremetric) -> None:
    steps = promised(given_distance(("1", "2", 1), ("2", "3", 1)), "1/16", output=output)
    metric = promised(given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", 2)), "1/16", output=output)
    nearer = promised(given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", "3/2")), "1/16", output=output)
    assert implies(steps, metric, "123")
    assert implies(metric, steps, "123")
    assert implies(steps, nearer, "123").verdict is Verdict.NO


def test_total_variation_is_never_above_one() -> None:
    nothing = promised(given_distance(("1", "2", "inf")), 1, output=TOTAL_VARIATION)
    one = promised(given_distance(("1", "2", 1)), 1, output=TOTAL_VARIATION)
    assert implies(nothing, one, "12")
    assert implies(nothing, one.with_budget("9/10"), "12").verdict is Verdict.NO


def test_what_the_data_do_not_decide_is_said_to_be_undecided() -> None:
    rare = approximate("1/10")
    steps = promised(given_distance(("1", "2", 1), ("2", "3", 1)), 1, output=rare)
    metric = promised(given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", 2)), 1, output=rare)
    assert implies(metric, steps, "123")
    told = implies(steps, metric, "123")
    assert told.verdict is Verdict.CANNOT_TELL
    assert "triangle" in told.reason
    apart = promised(given_distance(("1", "2", 1), ("3", "3", 0)), 1, output=rare)
    assert implies(apart, metric, "123").verdict is Verdict.NO
    assert implies(promised(LINE), promised(LINE, output=ZCDP), [(0,), (1,)]).reason.endswith("convert one first")
    named = promised(InputPremetric(name="d_r", unit="dataset", relation="friendship"))
    assert "known by name only" in implies(named, named, [(0,), (1,)]).reason
    fixed = promised(LINE)
    unknown = fixed.with_flavor(multiverse=Multiverse(invariants=(Named(name="total"),)))
    assert implies(unknown, fixed, [(0,), (1,)]).verdict is Verdict.CANNOT_TELL
    swapped = fixed.with_budget(Budget.of_swapping("1/2", largest_stratum=3))
    assert "not listed by universe" in implies(swapped, fixed, [(0,), (1,)]).reason
    many = [(i,) for i in range(201)]
    assert "201 datasets" in implies(fixed, fixed, many).reason


def test_approximate_losses_really_do_not_add_up() -> None:
    """Section 5: (10,0,0), (9,1,0), (8,1,1) over 10 are 0 apart at delta 1/10, step by step, and then infinitely."""
    laws = [law(10, 0, 0), law(9, 1, 0), law(8, 1, 1)]
    rare = approximate("1/10")
    assert [rare.distance(laws[i], laws[j]).high for i, j in ((0, 1), (1, 2))] == [0, 0]
    assert rare.distance(laws[0], laws[2]).high == INFINITE


# -- slips of the source --------------------------------------------------------------------------

OVERLAPPING = [{"1", "2"}, {"2", "3"}]


def test_that_no_pair_lies_in_two_universes_does_not_make_the_budget_public() -> None:
    """Condition II after Corollary A.2.2: the budgets of one's own universes differ inside one class."""
    line = given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", 2))
    policy = Budget(policy=ByUniverse(budgets=(("1, 2", exact("1/2")), ("2, 3", exact(2)))))
    one = promised(line, policy, universes=OVERLAPPING)
    assert components(one.flavor, "123") == [frozenset("123")]
    assert not may_tell_budget(one, "123")
    assert free_to_tell(one.flavor, dict.fromkeys("123", "the policy"))
    apart = promised(line, Budget(policy=ByUniverse(budgets=(("1, 2", exact("1/2")), ("3", exact(2))))),
                     universes=[{"1", "2"}, {"3"}])  # fmt: skip
    assert may_tell_budget(apart, "123")


def test_all_pairs_of_a_class_are_not_a_multiverse_with_the_same_promise() -> None:
    """Proposition A.4.2 with pairs: three laws lose ln 3/2 in two overlapping universes, and ln 2 over one more."""
    laws = {"1": law(1, 2), "2": law(1, 1), "3": law(2, 1)}
    all_one = given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", 1))
    given_budget = "ln(3/2)"
    held = promised(all_one, given_budget, universes=OVERLAPPING)
    pairs = promised(all_one, given_budget, universes=[{"1", "2"}, {"2", "3"}, {"1", "3"}])
    assert satisfies(held, laws)
    assert not satisfies(pairs, laws)
    assert implies(held, pairs, "123").verdict is Verdict.NO
    assert implies(held, completion(held, "123"), "123")
    assert implies(completion(held, "123"), held, "123")


def test_the_implied_bound_is_the_sum_along_the_path() -> None:
    """Eq. A.1 says the larger budget times the distance, 4; it is 1/2 + 2."""
    line = given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", 2))
    policy = Budget(policy=ByUniverse(budgets=(("1, 2", exact("1/2")), ("2, 3", exact(2)))))
    assert shortest(costs(promised(line, policy, universes=OVERLAPPING), "123"))["1", "3"] == Fraction(5, 2)


def test_the_triangle_inequality_is_what_counts_and_not_symmetry() -> None:
    half, quarter = law(1, 1), law(3, 1)
    assert MAX.distance(half, quarter).high == ln(2)
    assert MAX.distance(quarter, half).high == ln(Fraction(3, 2))
    steps = promised(given_distance(("1", "2", 1), ("2", "3", 1), directed=True), 1, output=MAX)
    assert implies(steps, promised(given_distance(("1", "3", 2), ("2", "2", 0), directed=True), 1, output=MAX), "123")


def test_neighbours_say_nothing_where_paths_leave_the_universe() -> None:
    """Section 5: bits with a fixed sum have no neighbours; files of swapped records are further than their steps."""
    bits = [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    hamming = InputPremetric(name="d_Ham", unit="record")

    def under(premetric: InputPremetric) -> Flavor:
        return promised(premetric).flavor

    assert factor(under(hamming.neighbours()), under(hamming), bits) == INFINITE
    assert factor(under(hamming.neighbours(2)), under(hamming), bits) == Fraction(1, 2)
    assert factor(under(hamming), under(hamming.neighbours(2)), bits) == 2
    for n, expected in ((3, Fraction(2, 3)), (4, Fraction(3, 4))):
        orders = list(permutations(range(n)))
        assert factor(under(hamming.neighbours(2)), under(hamming), orders) == expected  # 2(n-1)/n at twice the budget
    assert factor(under(hamming.neighbours()), under(hamming), [(0, 0), (1, 1)]) == INFINITE
    assert factor(under(hamming.neighbours(2)), under(hamming.neighbours()), [(0, 0), (0, 1), (1, 1)]) == 1


# -- budgets by universe --------------------------------------------------------------------------


def test_a_pair_has_the_smallest_budget_of_the_universes_that_hold_it() -> None:
    same = given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", 1))
    policy = Budget(policy=ByUniverse(budgets=(("1, 2", exact("3/10")), ("1, 2, 3", exact(1)))))
    allowed = costs(promised(same, policy, universes=[{"1", "2", "3"}, {"1", "2"}]), "123")
    assert [allowed[pair] for pair in (("1", "2"), ("2", "3"), ("1", "3"))] == [Fraction(3, 10), 1, 1]


@SOME
@given(st.data())
def test_completing_a_multiverse_changes_no_promise(data: Any) -> None:
    universes = data.draw(st.lists(st.sets(st.sampled_from(POINTS), min_size=1).map(frozenset), min_size=1, max_size=3,
                                   unique=True))  # fmt: skip
    names = [universe_name(Multiverse(universes=(one,)), one) for one in universes]
    policy = ByUniverse(budgets=tuple((name, exact(data.draw(st.integers(0, 3)))) for name in names))
    one = promised(data.draw(premetrics()), Budget(policy=policy), universes=universes)
    complete = completion(one, POINTS)
    assert implies(one, complete, POINTS)
    assert implies(complete, one, POINTS)
    assert all(
        any(cut <= part for part in components(one.flavor, POINTS)) for cut in complete.multiverse.universes or ()
    )


def test_a_completion_of_zcdp_keeps_the_customary_number() -> None:
    one = promised(given_distance(("1", "2", 1), ("3", "3", 0)), "9/4", output=ZCDP)
    found = completion(one, "123")
    assert dict(found.budget.policy.budgets) == {"1, 2": Fraction(9, 4), "3": Fraction(9, 4)}  # type: ignore[union-attr]


@pytest.mark.parametrize(("output", "expected"), [(PURE, 3), (ZCDP, Fraction(9, 2))])
def test_a_distance_that_is_larger_divides_the_budget(output: OutputPremetric, expected: Any) -> None:
    """Proposition 2.4.15: l d <= d' gives the budget over l, in every universe; rho squared over its square."""
    budget = ByUniverse(budgets=(("1", exact(2)), ("2", exact(1))), at="1")
    old = specification(output, 1, premetric=InputPremetric(name="d_HamS", unit="person")).with_budget(
        Budget(policy=budget)
    )
    wanted = InputPremetric(name="d_SymDiff", unit="person")
    found = to_distance(old, to=wanted, at_least=Fraction(2, 3), because="a change is an addition and a removal")
    assert found.specification.budget.realised == expected
    assert found.specification.input_premetric == wanted
    assert "a change is an addition and a removal" in found.specification.assumptions
    for at_least, because in ((0, "x"), (1, " ")):
        with pytest.raises(SpecificationError):
            to_distance(old, to=wanted, at_least=at_least, because=because)


def test_dividing_is_what_the_closure_decides() -> None:
    """With the size fixed, adding and removing is twice a change: half the budget suffices, and no less."""
    files = [(0, 0), (0, 1), (1, 1)]
    changed, symmetric = (InputPremetric(name=name, unit="value") for name in ("d_HamS", "d_SymDiff"))
    one = promised(changed, 1)
    half = to_distance(one, to=symmetric, at_least=2, because="no file has another size").specification
    assert half.budget.realised == Fraction(1, 2)
    assert implies(one, half, files)
    assert implies(one, half.with_budget("1/3"), files).verdict is Verdict.NO


def test_budgets_by_universe_survive_a_file() -> None:
    for at in (None, "1", "unlisted"):
        policy = ByUniverse(budgets=(("1", ln(2)), ("2", ln(3))), otherwise=exact(4), at=at)
        written = promised(LINE, Budget(policy=policy))
        assert from_json(to_json(written)) == written
        complete = promised(LINE, Budget(policy=ByUniverse(budgets=policy.budgets, at=at)))
        assert from_json(to_json(complete)) == complete
        assert complete.budget.realised == {None: ln(3), "1": ln(2), "unlisted": INFINITE}[at]
        assert written.budget.realised == {None: exact(4), "1": ln(2), "unlisted": exact(4)}[at]
        assert written.budget.varies
    listed = promised(given_distance(("1", "2", 1)), universes=[{"1", "2"}])
    assert from_json(to_json(listed)) == listed
    with pytest.raises(SpecificationError, match="labels of their datasets"):
        to_json(promised(LINE, universes=[{(0,), (1,)}]))


def test_a_budget_by_universe_says_what_its_number_is() -> None:
    policy = ByUniverse(budgets=(("1", ln(2)), ("2", ln(3))))
    answers = {a.block: a.answer for a in explain(promised(LINE, Budget(policy=policy))).answers}
    assert "largest of the budgets listed by universe (1: 0.694; 2: 1.10)" in answers["budget"]
    assert str(ByUniverse(budgets=policy.budgets, otherwise=INFINITE)).endswith("any other: inf)")
    listed = promised(given_distance(("1", "2", 1)), universes=[{"1", "2"}])
    assert "one of 1 listed universes" in {a.block: a.answer for a in explain(listed).answers}["multiverse"]


@pytest.mark.parametrize("budgets", [(), (("1", exact(1)), ("1", exact(2)))])
def test_a_universe_is_listed_once(budgets: Any) -> None:
    with pytest.raises(SpecificationError):
        ByUniverse(budgets=budgets)


def test_budgets_by_universe_are_compared_universe_by_universe() -> None:
    total = Multiverse(invariants=(Named(name="total"),))

    def one(budget: Budget) -> Specification:
        return promised(ONES, budget).with_flavor(multiverse=total)

    low, high = one(by_universe(a=1, b=2)), one(by_universe(a=2, b=2))
    mixed = one(by_universe(a=3, b=1))
    assert compare(low, high).overall == STRONGER
    assert compare(high, low).overall == WEAKER
    assert compare(low, low).overall == EQUAL
    assert compare(low, mixed).overall is None
    assert compare(one(Budget.constant(1)), low).overall == STRONGER
    assert compare(low, one(Budget.constant(2))).overall == STRONGER
    bounded, open_ended = (
        one(Budget(policy=ByUniverse(budgets=(("a", exact(1)),), otherwise=exact(rest)))) for rest in (2, "inf")
    )
    assert compare(bounded, one(Budget.constant(2))).overall == STRONGER
    assert compare(open_ended, one(Budget.constant(2))).overall is None
    assert open_ended.budget.realised == INFINITE  # of which universe the file is, is not said
    swapped = Budget.of_swapping("1/2", largest_stratum=3).policy
    assert not_above_by_universe(swapped, low.budget.policy, same_universes=True) is None


def test_scaling_keeps_every_universe() -> None:
    total = Multiverse(invariants=(Named(name="total"),))
    persons = promised(InputPremetric(name="d_HamS", unit="person"), by_universe(a=1, b=2)).with_flavor(
        multiverse=total
    )
    found = change_unit(persons, unit="household", factor=3, because="at most three")
    assert found.specification.budget.policy == by_universe(a=3, b=6).policy


# -- compare where datasets are listed ------------------------------------------------------------


def test_compare_decides_by_listed_datasets() -> None:
    steps = promised(given_distance(("1", "2", 1), ("2", "3", 1)))
    metric = promised(given_distance(("1", "2", 1), ("2", "3", 1), ("1", "3", 2)))
    found = compare(steps, metric)
    assert found.overall == EQUAL
    further = compare(steps, metric.with_budget("1/2"))
    assert further.overall == WEAKER
    assert "3 datasets" in further.because
    other = compare(steps, promised(given_distance(("1", "2", 1), ("3", "3", 0))))
    assert other.overall == STRONGER
    bent = compare(steps, promised(given_distance(("1", "2", 3), ("2", "3", "1/3"))))
    assert bent.overall is None
    assert "between 2 and 3 the first allows a change of 1, and the second only 0.334" in bent.because


def test_a_factor_between_units_says_nothing_about_a_distance_that_counts_none() -> None:
    with pytest.raises(ConversionRefusedError, match="counts no place records"):
        change_unit(promised(InputPremetric(name="d_Euclid", unit="place")), unit="house", factor=2, because="x")


def test_rows_are_not_compared_across_units() -> None:
    """The same rows are as far apart for persons and for households only by accident."""
    files = ((0,), (1,))
    people, households = (promised(InputPremetric(name="d_HamS", unit=unit)) for unit in ("person", "household"))
    listed = [one.with_flavor(domain=replace(one.domain, datasets=files)) for one in (people, households)]
    assert compare(*listed).overall is None
    assert compare(listed[0], listed[0].with_budget(2)).overall == STRONGER


def test_a_coarser_output_hides_a_loss() -> None:
    """Section 6: (4,3,1) and (4,1,3) over 8 lose ln 3; told apart only as {a} and {b, c} they lose nothing."""
    laws = [law(4, 3, 1), law(4, 1, 3)]
    merged = [one.pushed(lambda outcome: outcome == 0) for one in laws]
    assert PURE.distance(*laws).high == ln(3)
    assert PURE.distance(*merged).high == 0


@pytest.mark.parametrize(("name", "budget"), [("D_H", "1/4"), ("D_Tr", "1")])
def test_other_metrics_add_up_along_paths_too_and_are_not_said_not_to(name: str, budget: str) -> None:
    curve = TradeOff.bounded([(3, 0)]) if name == "D_Tr" else None
    bits = [(0, 0), (0, 1), (1, 0), (1, 1)]
    far = specification(
        OutputPremetric(name=name, curve=curve), budget, premetric=InputPremetric(name="d_Ham", unit="bit")
    )
    near = far.with_flavor(input_premetric=far.input_premetric.neighbours(1))
    assert implies(near, far, bits)
    half = implies(near, far.with_budget("1/8"), bits)
    assert half.verdict is Verdict.CANNOT_TELL
    assert "no triangle inequality" not in half.reason


def test_explain_names_the_universe_of_the_file_and_what_lies_in_no_universe_together() -> None:
    policy = ByUniverse(budgets=(("a, b", exact(1)), ("b, c", exact(2))), at="a, b")
    listed = Multiverse(universes=(frozenset("ab"), frozenset("bc")))
    table = (("a", "b", exact(1)), ("b", "c", exact(1)))
    premetric = InputPremetric(name="d_Given", unit="place", relation="own", table=table)
    words = explain(specification(PURE, Budget(policy=policy), premetric=premetric, multiverse=listed))
    assert words.answers[-1].answer.endswith(
        "It depends on the universe; this is its value for a, b, that of this file"
    )
    assert "what tells versions apart that no listed universe holds together" in words.not_protected


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"universes": []}, "no universe at all"),
        ({"universes": [["a", "b"], []]}, "without datasets"),
        ({"invariants": [{"kind": "named", "name": "sum"}]}, "both listed and described"),
    ],
)
def test_listed_universes_in_a_file_hold_datasets_and_stand_for_themselves(changes: dict[str, Any], what: str) -> None:
    document = to_document(specification(multiverse=Multiverse(universes=(frozenset("ab"),))))
    assert from_document(document).multiverse.universes == (frozenset("ab"),)
    document["multiverse"] |= changes
    with pytest.raises(SpecificationError, match=what):
        from_document(document)
