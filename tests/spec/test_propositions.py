"""The propositions of the paper and of the dissertation, by enumeration on small domains.

Numbers without a letter are the paper's ("A Refreshment Stirred, Not Shaken"); 2.x and A.x are the
dissertation's. Each is checked for drawn mechanisms, and beside it stands a case that would be false
if a premise were dropped.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stirred.spec import (
    INFINITE,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Exact,
    Flavor,
    InputPremetric,
    Law,
    Named,
    OutputPremetric,
    change_distance,
    exact,
    ln,
    protection_loss,
)
from stirred.spec.exact import ZERO, compare_exact, largest
from stirred.spec.input_premetric import allowance
from stirred.spec.output_premetric import PRODUCT, ROOT
from tests.spec.strategies import (
    ALL_INPUTS,
    ALL_OUTPUTS,
    APPROXIMATE,
    EXACT_OUTPUTS,
    FEW,
    METRICS,
    MULTISETS,
    SEQUENCES,
    SOME,
    Dataset,
    Mechanism,
    classes,
    flavor,
    invariant,
    law,
    laws,
    may_be_at_most,
    mechanisms,
    specification,
    surely_at_most,
    worlds,
    worst,
)

pytestmark = pytest.mark.usefixtures("coarse_zcdp")

PERSONS = InputPremetric(name="d_HamS", unit="person")
IDS: Any = {"ids": lambda premetric: premetric.symbol}
INFINITE_ON_DISJOINT = tuple(premetric for premetric in ALL_OUTPUTS if premetric.infinite_on_disjoint)
WORLDS = worlds()
EXACT_WORLDS = worlds(outputs=EXACT_OUTPUTS)

Budgets = Callable[[frozenset[Any]], Exact]


def satisfies(flavor: Flavor, mechanism: Mapping[Any, Law], budget: Budgets) -> bool:
    """Say whether Equation 2.1 holds for all pairs of all universes; for distances known exactly."""
    for universe in flavor.multiverse.universes_of(mechanism):
        for x, y in product(universe, repeat=2):
            change = flavor.output_premetric.distance(mechanism[x], mechanism[y])
            if not change.high <= allowance(budget(universe), flavor.input_premetric.distance(x, y)):
                return False
    return True


def releases(values: Mapping[Dataset, Hashable]) -> Mechanism:
    return {x: Law.certain(value) for x, value in values.items()}


# -- Proposition 1 --------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ALL_OUTPUTS, **IDS)
@pytest.mark.parametrize("premetric", ALL_INPUTS, **IDS)
def test_proposition_1_invariants_are_released_for_free(premetric: InputPremetric, output: OutputPremetric) -> None:
    """Every function with two values on the domain, as the invariant and as the release."""
    for bits in product((0, 1), repeat=len(MULTISETS)):
        values = dict(zip(MULTISETS, bits, strict=True))
        found = worst(flavor(premetric, output, invariant(values)), releases(values))
        assert found.low == found.high == 0


@SOME
@given(st.data())
def test_proposition_1_anything_not_fixed_has_infinite_loss_if_released(data: st.DataObject) -> None:
    datasets, premetric, output = data.draw(worlds(outputs=INFINITE_ON_DISJOINT))
    values, fixed = data.draw(classes(datasets)), data.draw(classes(datasets, most=2))
    for found in protection_loss(flavor(premetric, output, invariant(fixed)), releases(values)):
        told_apart = any(
            values[x] != values[y] and not premetric.distance(x, y).is_infinite
            for x, y in combinations(datasets, 2)
            if {x, y} <= found.universe
        )
        assert found.loss.low == found.loss.high == (INFINITE if told_apart else ZERO)
        assert (found.witness is not None) == told_apart


def test_proposition_1_needs_a_premetric_that_is_infinite_on_disjoint_laws() -> None:
    """Total variation lets anyone publish a confidential number at a loss of one."""
    values = {x: len(x) for x in MULTISETS}
    sizes = InputPremetric(name="d_SymDiff", unit="person")
    assert not TOTAL_VARIATION.infinite_on_disjoint
    assert worst(flavor(sizes, TOTAL_VARIATION), releases(values)).high == 1
    assert worst(flavor(sizes, PURE), releases(values)).low == INFINITE


# -- Proposition 2 --------------------------------------------------------------------------------


@FEW
@given(st.data())
def test_proposition_2_what_varies_in_a_universe_has_a_loss(data: st.DataObject) -> None:
    datasets, premetric, output = data.draw(worlds(outputs=METRICS))
    mechanism = data.draw(mechanisms(datasets, outcomes=2))
    fixed = invariant(data.draw(classes(datasets, most=2)))
    for found in protection_loss(flavor(premetric, output, fixed), mechanism):
        varies = any(
            mechanism[x] != mechanism[y] and not premetric.distance(x, y).is_infinite
            for x, y in combinations(datasets, 2)
            if {x, y} <= found.universe
        )
        assert (found.loss.low > 0) == varies


def test_proposition_2_needs_a_metric_on_the_outputs() -> None:
    """Apart from delta, a mechanism may vary and still have loss zero."""
    mechanism = {(0,): law(10, 10), (1,): law(11, 9)}
    assert worst(flavor(PERSONS, APPROXIMATE), mechanism).high == 0
    assert all(worst(flavor(PERSONS, output), mechanism).low > 0 for output in METRICS)


# -- Propositions 3 and 5 -------------------------------------------------------------------------


@FEW
@given(st.data())
def test_proposition_3_more_invariants_never_raise_the_loss(data: st.DataObject) -> None:
    datasets, premetric, output = data.draw(WORLDS)
    mechanism = data.draw(mechanisms(datasets, outcomes=2))
    coarse = invariant(data.draw(classes(datasets, most=2)), name="coarse")
    more = invariant(data.draw(classes(datasets, most=2)), name="more")
    wide = protection_loss(flavor(premetric, output, coarse), mechanism)
    for narrow in protection_loss(flavor(premetric, output, coarse, more), mechanism):
        (around,) = [found for found in wide if narrow.universe <= found.universe]
        assert may_be_at_most(narrow.loss, around.loss)


def test_proposition_3_the_loss_can_fall_strictly() -> None:
    mechanism = {(0, 0): law(1, 1), (0, 1): law(3, 1), (1, 1): law(1, 1)}
    parity = Named(name="parity", function=lambda x: sum(x) % 2)
    assert worst(flavor(PERSONS, PURE), mechanism).high == ln(2)
    assert worst(flavor(PERSONS, PURE, parity), mechanism).high == 0


def test_proposition_3_needs_a_refinement() -> None:
    """Two multiverses of which neither refines the other order the loss either way."""
    mechanism = {(0, 0): law(1, 1), (0, 1): law(3, 1), (1, 1): law(1, 1)}
    one = Named(name="all zero", function=lambda x: sum(x) == 0)
    other = Named(name="parity", function=lambda x: sum(x) % 2)
    assert worst(flavor(PERSONS, PURE, one), mechanism).high > worst(flavor(PERSONS, PURE, other), mechanism).high


@SOME
@given(st.data())
def test_proposition_5_a_budget_carries_over_to_a_refinement(data: st.DataObject) -> None:
    """Second half: each finer universe gets the smallest budget of the universes around it."""
    datasets, premetric, output = data.draw(EXACT_WORLDS)
    mechanism = data.draw(mechanisms(datasets))
    around = data.draw(st.lists(st.sets(st.sampled_from(datasets), min_size=1).map(frozenset), min_size=1, max_size=3))
    inside = [frozenset(data.draw(st.sets(st.sampled_from(sorted(wide))))) for wide in around for _ in range(2)]
    coarse = flavor(premetric, output, universes=around)
    budgets = {found.universe: found.loss.high for found in protection_loss(coarse, mechanism)}
    assert satisfies(coarse, mechanism, budgets.__getitem__)

    def smallest_around(universe: frozenset[Any]) -> Exact:
        return min(budgets[wide] for wide in budgets if universe <= wide)

    assert satisfies(flavor(premetric, output, universes=inside), mechanism, smallest_around)


@SOME
@given(st.data())
def test_proposition_5_a_wide_universe_needs_the_smallest_budget_inside_it(data: st.DataObject) -> None:
    """First half: if the wide universe keeps the smallest budget of the finer ones, each keeps its own."""
    datasets, premetric, output = data.draw(EXACT_WORLDS)
    mechanism = data.draw(mechanisms(datasets))
    values = data.draw(classes(datasets))
    own = {value: ln(data.draw(st.integers(1, 9))) for value in range(3)}
    fine, coarse = flavor(premetric, output, invariant(values)), flavor(premetric, output)
    least = min(own[value] for value in values.values())

    def budget_of(universe: frozenset[Any]) -> Exact:
        return own[values[next(iter(universe))]]

    if satisfies(coarse, mechanism, lambda universe: least):
        assert satisfies(fine, mechanism, budget_of)


def test_proposition_5_does_not_hold_towards_fewer_invariants() -> None:
    mechanism = {(0, 0): law(1, 1), (0, 1): law(3, 1), (1, 1): law(1, 1)}
    parity = Named(name="parity", function=lambda x: sum(x) % 2)
    assert satisfies(flavor(PERSONS, PURE, parity), mechanism, lambda universe: ZERO)
    assert not satisfies(flavor(PERSONS, PURE), mechanism, lambda universe: ZERO)


# -- Proposition 2.4.15 ---------------------------------------------------------------------------

FACTORS = [
    ("d_HamS", "d_Ham"),
    ("d_SymDiff", "d_InsDel"),
    ("d_SymDiff", "d_HamS"),
    ("d_SymDiff", "d_Ham"),
    ("d_InsDel", "d_Ham"),
]


@pytest.mark.parametrize(("old", "new"), FACTORS)
@SOME
@given(data=st.data())
def test_proposition_2_4_15_a_budget_carries_over_to_another_distance(old: str, new: str, data: st.DataObject) -> None:
    """The converted budget bounds the exact loss, for mechanisms that ignore order where it does not count."""
    output = data.draw(st.sampled_from(EXACT_OUTPUTS))
    by_content = data.draw(mechanisms(MULTISETS, outcomes=2))
    mechanism = {x: by_content[tuple(sorted(x))] for x in SEQUENCES}
    before, after = (InputPremetric(name=name, unit="person") for name in (old, new))
    found = worst(flavor(before, output), mechanism)
    converted = change_distance(specification(output, found.high, premetric=before), to=new).specification
    assert converted.input_premetric == after
    assert may_be_at_most(worst(flavor(after, output), mechanism), _exactly(converted.budget.realised))


def _exactly(value: Exact) -> Any:
    return type("Point", (), {"low": value, "high": value})()


@pytest.mark.parametrize(("old", "new"), FACTORS)
def test_proposition_2_4_15_the_factor_is_reached(old: str, new: str) -> None:
    """A smaller factor would be wrong: some pair is exactly that much further apart."""
    before, after = (InputPremetric(name=name, unit="person") for name in (old, new))
    factor = change_distance(specification(PURE, 1, premetric=before), to=new).specification.budget.realised
    pairs = [(x, y) for x, y in product(SEQUENCES, repeat=2) if after.distance(x, y) not in (0, INFINITE)]
    assert all(before.distance(x, y) <= factor * after.distance(x, y) for x, y in pairs)
    assert any(before.distance(x, y) == factor * after.distance(x, y) for x, y in pairs)


def test_proposition_2_4_15_randomised_response_is_protected_in_order_only() -> None:
    """Section A.4: a bound per ordered change gives none per unordered change."""
    truth = {0: law(3, 1), 1: law(1, 3)}
    mechanism = {x: truth[x[0]].times(truth[x[1]]) for x in SEQUENCES if len(x) == 2}
    ordered, unordered = (InputPremetric(name=name, unit="person") for name in ("d_Ham", "d_HamS"))
    assert worst(flavor(ordered, PURE), mechanism).high == ln(3)
    assert worst(flavor(unordered, PURE), mechanism).low == INFINITE


HOUSEHOLDS = tuple(rows for n in range(3) for rows in combinations_with_replacement((0, 1), n))
FILES = tuple(combinations_with_replacement(HOUSEHOLDS, 2))


def persons_of(file: tuple[Dataset, ...]) -> Dataset:
    return tuple(sorted(person for household in file for person in household))


class _OfPersons:
    """The distance in persons between files of households."""

    def distance(self, x: Any, y: Any) -> Exact:
        return PERSONS.distance(persons_of(x), persons_of(y))


@FEW
@given(st.data())
def test_proposition_2_4_15_a_household_of_two_costs_twice_a_person(data: st.DataObject) -> None:
    """Group privacy, where the number of persons is fixed; without that the distance is infinite."""
    output = data.draw(st.sampled_from(EXACT_OUTPUTS))
    files = sorted({persons_of(file) for file in FILES}, key=str)
    by_persons = data.draw(st.fixed_dictionaries({rows: laws(outcomes=2, positive=True) for rows in files}))
    mechanism: Any = {file: by_persons[persons_of(file)] for file in FILES}
    total = Named(name="persons", function=lambda file: len(persons_of(file)))
    households = InputPremetric(name="d_HamS", unit="household")
    per_person: Any = _OfPersons()
    small = worst(flavor(per_person, output, total), mechanism)
    large = worst(flavor(households, output, total), mechanism)
    assert surely_at_most(large, 2 * small.high)


def test_proposition_2_4_15_without_fixing_the_number_of_persons_a_household_is_unprotected() -> None:
    mechanism: Any = {file: Law.certain(len(persons_of(file))) for file in FILES}
    households = InputPremetric(name="d_HamS", unit="household")
    per_person: Any = _OfPersons()
    assert worst(flavor(per_person, PURE), mechanism).high == 0
    assert worst(flavor(households, PURE), mechanism).low == INFINITE


# -- Propositions 2.5.3 and 2.5.4 -----------------------------------------------------------------


@FEW
@given(st.data())
def test_proposition_2_5_3_losses_of_fresh_releases_add_up(data: st.DataObject) -> None:
    """Linearly; as squares for zCDP (and Gaussian DP); with the deltas added for approximate DP."""
    datasets, premetric, output = data.draw(WORLDS)
    first, second = (data.draw(mechanisms(datasets, outcomes=2)) for _ in range(2))
    values = invariant(data.draw(classes(datasets, most=2)))
    both = {x: first[x].times(second[x]) for x in datasets}
    assume(output.composes != PRODUCT)  # no sum bounds it: tests of the measures have the counterexample
    together = replace(output, delta=2 * output.delta)
    losses = [worst(flavor(premetric, output, values), one).high for one in (first, second)]
    joint = worst(flavor(premetric, together, values), both).low
    if output.name == "D_NoR" or output.composes == ROOT:
        assert joint * joint <= losses[0] * losses[0] + losses[1] * losses[1]
    else:
        assert joint <= losses[0] + losses[1]


def test_proposition_2_5_3_zcdp_adds_squares_and_pure_dp_does_not() -> None:
    mechanism = {(0,): law(3, 1), (1,): law(1, 3)}
    both = {x: p.times(p) for x, p in mechanism.items()}
    pure, zcdp = flavor(PERSONS, PURE), flavor(PERSONS, ZCDP)
    assert compare_exact(worst(pure, both).high, 2 * worst(pure, mechanism).high) == 0
    assert worst(pure, both).low * worst(pure, both).low > 2 * worst(pure, mechanism).high * ln(3)
    assert worst(zcdp, both).high < 2 * worst(zcdp, mechanism).low


def test_proposition_2_5_3_needs_fresh_randomness() -> None:
    """Two releases with one coin: each hides the bit, both together give it away."""
    coin = Law({0: Fraction(1, 2), 1: Fraction(1, 2)})
    alone = {(bit,): coin.pushed(lambda flip, bit=bit: (bit + flip) % 2) for bit in (0, 1)}  # type: ignore[misc]
    shared = {(bit,): coin.pushed(lambda flip, bit=bit: ((bit + flip) % 2, flip)) for bit in (0, 1)}  # type: ignore[misc]
    assert worst(flavor(PERSONS, PURE), alone).high == 0
    assert worst(flavor(PERSONS, PURE), shared).low == INFINITE


@FEW
@given(st.data())
def test_proposition_2_5_4_no_function_of_the_output_raises_the_loss(data: st.DataObject) -> None:
    """Deterministic functions, and random ones by a fresh seed (Corollary A.5.4)."""
    datasets, premetric, output = data.draw(WORLDS)
    mechanism = data.draw(mechanisms(datasets, outcomes=2))
    seed = data.draw(laws(outcomes=2, positive=True))
    images = data.draw(st.tuples(*[st.integers(0, 2)] * 4))
    after = {x: p.times(seed).pushed(lambda pair: images[2 * pair[0] + pair[1]]) for x, p in mechanism.items()}  # type: ignore[index]
    assert may_be_at_most(worst(flavor(premetric, output), after), worst(flavor(premetric, output), mechanism))


def test_proposition_2_5_4_looking_at_the_data_again_is_no_post_processing() -> None:
    mechanism = {(0,): law(1, 1), (1,): law(1, 1)}
    peeked = {x: p.pushed(lambda outcome, x=x: (outcome, x)) for x, p in mechanism.items()}  # type: ignore[misc]
    assert worst(flavor(PERSONS, PURE), mechanism).high == 0
    assert worst(flavor(PERSONS, PURE), peeked).low == INFINITE


# -- Appendix A -----------------------------------------------------------------------------------


def components(datasets: Sequence[Any], joined: Callable[[Any, Any], bool]) -> dict[Any, int]:
    """Return the connected component of each dataset, as a number."""
    found: dict[Any, int] = {}
    for start in datasets:
        if start in found:
            continue
        found[start], queue = len(set(found.values())), deque([start])
        while queue:
            here = queue.popleft()
            for there in datasets:
                if there not in found and (joined(here, there) or joined(there, here)):
                    found[there] = found[start]
                    queue.append(there)
    return found


SUBSETS = st.lists(st.sets(st.sampled_from(SEQUENCES), min_size=1).map(frozenset), min_size=1, max_size=4)


@SOME
@given(SUBSETS, st.sampled_from(ALL_INPUTS), st.sampled_from((None, 1)), st.data())
def test_proposition_a_2_1_a_certain_release_has_loss_zero_or_infinity(
    universes: list[frozenset[Dataset]], premetric: InputPremetric, within: int | None, data: st.DataObject
) -> None:
    """Zero exactly if it is a function of the connected component of comparable datasets."""
    output = data.draw(st.sampled_from(INFINITE_ON_DISJOINT))
    values = data.draw(classes(SEQUENCES, most=2))
    distance = premetric if within is None else premetric.neighbours(within)

    def comparable(x: Dataset, y: Dataset) -> bool:
        return any(x in u and y in u for u in universes) and not distance.distance(x, y).is_infinite

    component = components(SEQUENCES, comparable)
    is_function = len({(component[x], values[x]) for x in SEQUENCES}) == len(set(component.values()))
    found = worst(flavor(distance, output, universes=universes), releases(values))
    assert found.low == found.high == (ZERO if is_function else INFINITE)


def test_proposition_a_2_1_needs_a_premetric_that_is_infinite_on_disjoint_laws() -> None:
    values: dict[Dataset, int] = {(0,): 0, (1,): 1}
    assert worst(flavor(PERSONS, TOTAL_VARIATION), releases(values)).high == 1


class _Restricted:
    """The distance of Proposition A.3.1: infinite between datasets that share no universe."""

    def __init__(self, inner: InputPremetric, universes: Sequence[frozenset[Dataset]]) -> None:
        self.inner, self.universes = inner, universes

    def distance(self, x: Dataset, y: Dataset) -> Exact:
        if x == y:
            return exact(0)
        shared = any(x in universe and y in universe for universe in self.universes)
        return self.inner.distance(x, y) if shared else INFINITE


@SOME
@given(SUBSETS, st.sampled_from(ALL_INPUTS), st.sampled_from(EXACT_OUTPUTS), mechanisms(SEQUENCES))
def test_proposition_a_3_1_a_distance_can_stand_for_a_multiverse(
    universes: list[frozenset[Dataset]], premetric: InputPremetric, output: OutputPremetric, mechanism: Mechanism
) -> None:
    """For a constant budget: the largest loss over the universes is the loss of the restricted distance."""
    restricted: Any = _Restricted(premetric, universes)
    inside = worst(flavor(premetric, output, universes=universes), mechanism)
    assert compare_exact(inside.high, worst(flavor(restricted, output), mechanism).high) == 0


def test_proposition_a_3_1_needs_a_constant_budget() -> None:
    """Each universe has its own loss; one distance has only the largest of them."""
    mechanism = {(0,): law(1, 1), (1,): law(1, 1), (0, 0): law(3, 1), (0, 1): law(1, 3)}
    size = Named(name="size", function=len)
    found = {len(next(iter(u.universe))): u.loss.high for u in protection_loss(flavor(PERSONS, PURE, size), mechanism)}  # type: ignore[arg-type]
    assert found == {1: exact(0), 2: ln(3)}


@SOME
@given(st.sampled_from(ALL_INPUTS), st.sampled_from(EXACT_OUTPUTS), mechanisms(SEQUENCES), st.data())
def test_proposition_a_3_2_pairs_at_finite_distance_are_universes_enough(
    premetric: InputPremetric, output: OutputPremetric, mechanism: Mechanism, data: st.DataObject
) -> None:
    """First for one universe, then for several, each pair with the smallest budget around it."""
    finite = [frozenset(pair) for pair in combinations(SEQUENCES, 2) if not premetric.distance(*pair).is_infinite]
    everywhere = worst(flavor(premetric, output), mechanism).high
    assert compare_exact(worst(flavor(premetric, output, universes=finite), mechanism).high, everywhere) == 0

    universes = data.draw(SUBSETS)
    budgets = {u: ln(data.draw(st.integers(1, 40))) for u in universes}
    wide = flavor(premetric, output, universes=universes)
    pairs = [pair & u for u in universes for pair in finite if len(pair & u) == 2]
    assume(pairs)

    def smallest_around(universe: frozenset[Any]) -> Exact:
        return min(budgets[u] for u in universes if universe <= u)

    narrow = flavor(premetric, output, universes=pairs)
    assert satisfies(wide, mechanism, budgets.__getitem__) == satisfies(narrow, mechanism, smallest_around)


@SOME
@given(st.sampled_from(ALL_INPUTS), st.sampled_from((None, 1)), st.sampled_from(EXACT_OUTPUTS), mechanisms(SEQUENCES))
def test_proposition_a_3_3_a_distance_brings_its_own_invariants(
    premetric: InputPremetric, within: int | None, output: OutputPremetric, mechanism: Mechanism
) -> None:
    """The connected components of finite distance can be added as an invariant and change nothing."""
    distance = premetric if within is None else premetric.neighbours(within)
    component = components(SEQUENCES, lambda x, y: not distance.distance(x, y).is_infinite)
    found = worst(flavor(distance, output), mechanism)
    with_invariant = worst(flavor(distance, output, invariant(component)), mechanism)
    assert compare_exact(found.high, with_invariant.high) == 0


@pytest.mark.parametrize("premetric", ALL_INPUTS, **IDS)
def test_proposition_a_3_3_bounded_distances_fix_the_number_of_records_and_others_nothing(
    premetric: InputPremetric,
) -> None:
    component = components(SEQUENCES, lambda x, y: not premetric.distance(x, y).is_infinite)
    sizes = {(component[x], len(x)) for x in SEQUENCES}
    assert premetric.bounded == (len(set(component.values())) == 3)
    assert len(sizes) == 3
    fixed = flavor(premetric, PURE).effective_multiverse.invariants
    assert [str(i) for i in fixed] == (["total number of persons"] if premetric.bounded else [])


def test_proposition_a_3_3_any_other_invariant_can_change_the_loss() -> None:
    mechanism = {(0,): law(3, 1), (1,): law(1, 3)}
    content = Named(name="content", function=lambda x: x)
    assert worst(flavor(PERSONS, PURE), mechanism).high == ln(3)
    assert worst(flavor(PERSONS, PURE, content), mechanism).high == 0


def test_the_largest_loss_is_reported_with_the_pair_that_attains_it() -> None:
    mechanism = {(0, 0): law(1, 1), (0, 1): law(3, 1), (1, 1): law(7, 1)}
    (found,) = protection_loss(flavor(PERSONS, PURE), mechanism)
    assert found.witness is not None
    x, y = found.witness
    attained = PURE.distance(mechanism[x], mechanism[y]).high / PERSONS.distance(x, y)  # type: ignore[index]
    assert found.loss.high == attained == largest([ln(2), ln(4) / 2, ln(2)])
