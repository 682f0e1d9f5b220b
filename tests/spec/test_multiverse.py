"""Multiverses: universes, the common refinement, and which multiverse refines which."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import combinations, combinations_with_replacement, permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import (
    ALL,
    Hierarchy,
    Inequality,
    Margin,
    Multiverse,
    Named,
    SpecificationError,
    Verdict,
)
from tests.spec.strategies import GEOGRAPHY, MANY, SOME, multiverses

Row = tuple[int, ...]
Table = tuple[Row, ...]

# All tables of at most four records with three yes-or-no variables.
VARIABLES = ("a", "b", "c")
TABLES: tuple[Table, ...] = tuple(
    table for n in range(5) for table in combinations_with_replacement(tuple(product((0, 1), repeat=3)), n)
)

# All tables of at most three records with a tract (four of them, two in each county) and a sex.
PLACES = Hierarchy(name="places", levels=("tract", "county"))
PLACED: tuple[Table, ...] = tuple(
    table for n in range(4) for table in combinations_with_replacement(tuple(product(range(4), (0, 1))), n)
)


def counted(of: Iterable[Callable[[Row], Hashable]]) -> Callable[[Table], Hashable]:
    """Return the table of counts by the given functions of a record."""
    functions = tuple(of)
    return lambda table: frozenset(Counter(tuple(f(row) for f in functions) for row in table).items())


def margin(*variables: str) -> Margin:
    columns = [VARIABLES.index(variable) for variable in variables]
    return Margin(of="person", variables=variables, function=counted([lambda row, i=i: row[i] for i in columns]))  # type: ignore[misc]


def placed(level: str | None, *, sex: bool) -> Margin:
    read: dict[str | None, Callable[[Row], Hashable]] = {
        "tract": lambda row: row[0],
        "county": lambda row: row[0] // 2,
        None: lambda row: 0,
    }
    functions = [read[level], *([lambda row: row[1]] if sex else [])]
    return Margin(of="person", level=level, variables=("sex",) if sex else (), function=counted(functions))


def nests(fine: Multiverse, coarse: Multiverse, domain: tuple[Any, ...]) -> bool:
    """Say whether every universe of one lies in a universe of the other, by listing them all."""
    wide = {dataset: universe for universe in coarse.universes_of(domain) for dataset in universe}
    return all(len({wide[dataset] for dataset in universe}) == 1 for universe in fine.universes_of(domain))


MARGINS = [margin(*chosen) for size in range(4) for chosen in combinations(VARIABLES, size)]
SETS_OF_MARGINS = st.lists(st.sampled_from(MARGINS), max_size=3, unique=True).map(
    lambda chosen: Multiverse(invariants=tuple(chosen))
)
PLACED_MARGINS = [placed(level, sex=sex) for level in ("tract", "county", None) for sex in (False, True)]
SETS_OF_PLACED = st.lists(st.sampled_from(PLACED_MARGINS), max_size=3, unique=True).map(
    lambda chosen: Multiverse(invariants=tuple(chosen), hierarchies=(PLACES,))
)


@SOME
@given(SETS_OF_MARGINS, SETS_OF_MARGINS)
def test_refines_says_yes_or_no_exactly_as_the_universes_nest(fine: Multiverse, coarse: Multiverse) -> None:
    answer = fine.refines(coarse)
    assert answer.verdict is not Verdict.CANNOT_TELL
    assert bool(answer) == nests(fine, coarse, TABLES)
    assert answer.reason


@pytest.mark.parametrize("coarse", MARGINS, ids=str)
@pytest.mark.parametrize("fine", MARGINS, ids=str)
def test_one_margin_refines_another_exactly_as_the_universes_nest(fine: Margin, coarse: Margin) -> None:
    narrow, wide = Multiverse(invariants=(fine,)), Multiverse(invariants=(coarse,))
    assert bool(narrow.refines(wide)) == nests(narrow, wide, TABLES)


def test_all_two_way_tables_together_do_not_fix_the_three_way_table() -> None:
    """Four records suffice to show it: those with an even and those with an odd number of ones."""
    pairs = Multiverse(invariants=tuple(margin(*chosen) for chosen in combinations(VARIABLES, 2)))
    whole = Multiverse(invariants=(margin(*VARIABLES),))
    assert pairs.refines(whole).verdict is Verdict.NO
    assert not nests(pairs, whole, TABLES)
    assert nests(pairs, whole, tuple(table for table in TABLES if len(table) < 4))


@SOME
@given(SETS_OF_PLACED, SETS_OF_PLACED)
def test_refines_is_exact_with_levels_that_nest(fine: Multiverse, coarse: Multiverse) -> None:
    answer = fine.refines(coarse)
    assert answer.verdict is not Verdict.CANNOT_TELL
    assert bool(answer) == nests(fine, coarse, PLACED)


def test_a_level_named_as_a_variable_is_the_same_level() -> None:
    as_level = Multiverse(invariants=(Margin(of="person", level="tract"),), hierarchies=(PLACES,))
    as_variable = Multiverse(invariants=(Margin(of="person", variables=("tract",)),), hierarchies=(PLACES,))
    county = Multiverse(invariants=(Margin(of="person", variables=("county",)),), hierarchies=(PLACES,))
    assert as_level.refines(as_variable)
    assert as_variable.refines(as_level)
    assert as_variable.refines(county)
    assert county.refines(as_variable).verdict is Verdict.NO


# -- all characteristics --------------------------------------------------------------------------


def fixed(*invariants: Any, hierarchies: tuple[Hierarchy, ...] = (GEOGRAPHY,)) -> Multiverse:
    return Multiverse(invariants=invariants, hierarchies=hierarchies)


def test_the_table_of_all_characteristics_holds_every_variable_but_no_finer_place() -> None:
    everything = fixed(Margin(of="household", variables=(ALL,), level="county"))
    assert everything.refines(fixed(Margin(of="household", variables=("size", "tenure"), level="state")))
    assert everything.refines(fixed(Margin(of="household")))
    assert everything.refines(fixed(Margin(of="household", variables=(ALL,))))
    assert not everything.refines(fixed(Margin(of="household", level="tract")))
    assert not everything.refines(fixed(Margin(of="household", variables=("block",))))
    assert not fixed(Margin(of="household", variables=("size",), level="block")).refines(everything)


def test_classes_of_a_characteristic_belong_to_all_characteristics() -> None:
    """An age group is no place: the table of all characteristics tells it."""
    ages = Hierarchy(name="ages", levels=("age", "age_group"), geographic=False)
    both = (GEOGRAPHY, ages)
    everything = fixed(Margin(of="person", variables=(ALL,), level="state"), hierarchies=both)
    assert everything.refines(fixed(Margin(of="person", variables=("age_group",), level="state"), hierarchies=both))
    assert everything.refines(fixed(Margin(of="person", variables=("age",)), hierarchies=both))


# -- records inside records -----------------------------------------------------------------------


def test_persons_are_counted_wherever_their_households_are() -> None:
    sizes = fixed(Margin(of="household", variables=("size",), level="county", includes=("person",)))
    assert sizes.refines(fixed(Margin(of="person", level="state")))
    assert not sizes.refines(fixed(Margin(of="person", level="block")))
    plain = fixed(Margin(of="household", level="county"))
    assert plain.refines(fixed(Margin(of="person"))).verdict is Verdict.NO


def test_persons_inside_households_do_not_tell_a_finer_place() -> None:
    """Not even where the place is asked for as a variable."""
    everything = fixed(Margin(of="household", variables=(ALL,), level="state", includes=("person",)))
    assert everything.refines(fixed(Margin(of="person", variables=("sex",), level="state")))
    assert not everything.refines(fixed(Margin(of="person", variables=("block",))))
    assert not everything.refines(fixed(Margin(of="person", variables=("sex", "county"))))


# -- inequalities and named functions -------------------------------------------------------------

UNITS = Margin(of="housing unit", level="block")
SOME_HOUSING = Inequality(name="some-housing", condition="at least one housing unit", on=UNITS)


def test_a_condition_on_a_count_follows_from_the_count_and_not_the_other_way_round() -> None:
    assert fixed(UNITS).refines(fixed(SOME_HOUSING))
    assert fixed(SOME_HOUSING).refines(fixed(UNITS)).verdict is Verdict.NO
    assert Multiverse().refines(fixed(SOME_HOUSING)).verdict is Verdict.NO


def test_what_is_known_by_name_only_is_undecidable_and_named() -> None:
    mystery = Named(name="mystery")
    answer = fixed(UNITS).refines(fixed(UNITS, mystery))
    assert answer.verdict is Verdict.CANNOT_TELL
    assert answer.undecidable == (mystery,)
    assert fixed(mystery, UNITS).refines(fixed(mystery))


def test_whether_a_condition_survives_part_of_its_count_is_undecidable_and_named() -> None:
    answer = fixed(Margin(of="housing unit", level="county")).refines(fixed(SOME_HOUSING))
    assert answer.verdict is Verdict.CANNOT_TELL
    assert answer.undecidable == (SOME_HOUSING,)


# -- laws of refinement ---------------------------------------------------------------------------


@MANY
@given(multiverses())
def test_every_multiverse_refines_itself_and_the_vacuous_one(one: Multiverse) -> None:
    assert one.refines(one)
    assert one.refines(Multiverse())


@MANY
@given(multiverses(), multiverses())
def test_the_common_refinement_refines_both(one: Multiverse, other: Multiverse) -> None:
    both = one.meet(other)
    assert both.refines(one), both.refines(one).reason
    assert both.refines(other), both.refines(other).reason
    assert both.nearest == max(one.nearest, other.nearest)


@MANY
@given(multiverses(), multiverses(), multiverses())
def test_holding_more_fixed_never_undoes_a_refinement(one: Multiverse, other: Multiverse, more: Multiverse) -> None:
    if one.refines(other):
        together = Multiverse(
            invariants=(*one.invariants, *more.invariants), hierarchies=one.hierarchies or more.hierarchies
        )
        assert together.refines(other)


@MANY
@given(multiverses(), multiverses(), multiverses())
def test_refinement_is_transitive(one: Multiverse, two: Multiverse, three: Multiverse) -> None:
    if one.refines(two) and two.refines(three):
        assert one.refines(three).verdict is not Verdict.NO


@MANY
@given(multiverses(), multiverses())
def test_the_order_of_invariants_does_not_matter(one: Multiverse, other: Multiverse) -> None:
    expected = one.refines(other).verdict
    for mine in permutations(one.invariants):
        turned = Multiverse(invariants=mine, hierarchies=one.hierarchies)
        assert turned.refines(other).verdict is expected


@MANY
@given(multiverses(), multiverses())
def test_an_answer_is_definite_or_names_what_is_undecidable(one: Multiverse, other: Multiverse) -> None:
    answer = one.refines(other)
    assert answer.reason
    if answer.verdict is Verdict.CANNOT_TELL:
        assert answer.undecidable
        assert set(answer.undecidable) <= set(other.invariants)
    else:
        assert not answer.undecidable


# -- universes ------------------------------------------------------------------------------------


@SOME
@given(SETS_OF_MARGINS)
def test_universes_of_invariants_partition_the_domain(one: Multiverse) -> None:
    universes = one.universes_of(TABLES)
    assert sorted(table for universe in universes for table in universe) == sorted(TABLES)  # type: ignore[type-var]
    assert one.is_partition


@SOME
@given(SETS_OF_MARGINS, SETS_OF_MARGINS)
def test_the_common_refinement_has_the_intersections_of_the_universes(one: Multiverse, other: Multiverse) -> None:
    small = [table for table in TABLES if len(table) <= 2]
    crossed = {a & b for a in one.universes_of(small) for b in other.universes_of(small)} - {frozenset()}
    assert set(one.meet(other).universes_of(small)) == crossed


def test_listed_universes_may_overlap_and_are_compared_one_by_one() -> None:
    pairs = Multiverse(universes=(frozenset({1, 2}), frozenset({2, 3})))
    whole = Multiverse(universes=(frozenset({1, 2, 3}),))
    assert not pairs.is_partition
    assert whole.is_partition
    assert pairs.refines(whole)
    assert whole.refines(pairs).verdict is Verdict.NO
    assert pairs.refines(fixed(UNITS)).verdict is Verdict.CANNOT_TELL
    with pytest.raises(SpecificationError):
        pairs.meet(whole)


def test_an_invariant_without_a_function_cannot_be_enumerated() -> None:
    with pytest.raises(SpecificationError) as caught:
        fixed(UNITS).universes_of([()])
    assert "function" in caught.value.problems[0].remedy


@pytest.mark.parametrize(
    "build",
    [
        lambda: Multiverse(nearest=0),
        lambda: Multiverse(nearest=2, nearest_because="because"),
        lambda: Multiverse(nearest=2, invariants=(UNITS,)),
        lambda: Hierarchy(name="one", levels=("county",)),
        lambda: Hierarchy(name="twice", levels=("county", "county")),
        lambda: Multiverse(hierarchies=(PLACES, Hierarchy(name="turned", levels=("county", "tract")))),
        lambda: Margin(of=" "),
        lambda: Margin(of="person", variables=("sex", "sex")),
        lambda: Named(name=" "),
        lambda: Inequality(name="x", condition=" "),
    ],
)
def test_a_multiverse_that_makes_no_sense_is_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(SpecificationError) as caught:
        build()
    assert caught.value.problems[0].what
    assert caught.value.problems[0].remedy
