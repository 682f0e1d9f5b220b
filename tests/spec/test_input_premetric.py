"""Distances between datasets, each against its definition."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import INFINITE, Exact, InputPremetric, SpecificationError, exact
from stirred.spec.compare import STRONGER, compare
from stirred.spec.input_premetric import allowance
from tests.spec.strategies import ALL_INPUTS, MANY, SEQUENCES, Dataset, specification

ROWS = st.lists(st.integers(0, 2), max_size=5).map(tuple)


def by_definition(name: str, x: Dataset, y: Dataset) -> Exact:
    """Equations A.3, A.4 and the definitions beside them, written the slow way."""
    apart = Counter(x)
    apart.subtract(Counter(y))
    difference = sum(abs(count) for count in apart.values())
    if name == "d_SymDiff":
        return exact(difference)
    if name == "d_InsDel":
        return exact(min(_edits(x, y)))
    if len(x) != len(y):
        return INFINITE
    return exact(Fraction(difference, 2)) if name == "d_HamS" else exact(sum(map(int.__ne__, x, y)))


def _edits(x: Dataset, y: Dataset) -> list[int]:
    """Return |I| + |J| for all subsets with x without I equal to y without J."""
    kept_x = {
        (len(x) - k, tuple(x[i] for i in kept)) for k in range(len(x) + 1) for kept in combinations(range(len(x)), k)
    }
    kept_y = {
        (len(y) - k, tuple(y[i] for i in kept)) for k in range(len(y) + 1) for kept in combinations(range(len(y)), k)
    }
    return [a + b for a, left in kept_x for b, right in kept_y if left == right]


@pytest.mark.parametrize("premetric", ALL_INPUTS, ids=lambda p: p.name)
@MANY
@given(x=ROWS, y=ROWS)
def test_a_distance_is_the_one_of_its_definition(premetric: InputPremetric, x: Dataset, y: Dataset) -> None:
    assert premetric.distance(x, y) == by_definition(premetric.name, x, y)


@pytest.mark.parametrize("premetric", ALL_INPUTS, ids=lambda p: p.name)
@MANY
@given(x=ROWS, y=ROWS, z=ROWS)
def test_the_four_distances_are_metrics(premetric: InputPremetric, x: Dataset, y: Dataset, z: Dataset) -> None:
    assert premetric.is_metric
    assert premetric.distance(x, y) == premetric.distance(y, x)
    assert premetric.distance(x, z) <= premetric.distance(x, y) + premetric.distance(y, z)
    same = x == y if premetric.ordered else Counter(x) == Counter(y)
    assert (premetric.distance(x, y) == 0) == same


def test_a_neighbour_relation_is_no_metric() -> None:
    near = InputPremetric(name="d_HamS", unit="person", within=1)
    assert not near.is_metric
    assert near.distance((0, 0), (1, 1)) == INFINITE
    assert near.distance((0, 0), (0, 1)) + near.distance((0, 1), (1, 1)) == 2


@pytest.mark.parametrize("within", [1, 2, 3])
@pytest.mark.parametrize("premetric", ALL_INPUTS, ids=lambda p: p.name)
def test_a_neighbour_relation_is_one_within_reach_and_infinite_beyond(premetric: InputPremetric, within: int) -> None:
    """Equation A.2, on all pairs of a small domain."""
    near = premetric.neighbours(within)
    for x, y in product(SEQUENCES, repeat=2):
        plain = premetric.distance(x, y)
        expected = exact(0) if plain == 0 else exact(1) if plain <= within else INFINITE
        assert near.distance(x, y) == expected


@pytest.mark.parametrize("premetric", ALL_INPUTS, ids=lambda p: p.name)
def test_the_sharpening_of_a_neighbour_relation_is_the_metric(premetric: InputPremetric) -> None:
    """Definition A.4.1 and examples A1, A2, B1, B2 below it, on all sequences of up to two records."""
    near = premetric.neighbours()
    assert near.sharpened() == premetric
    lengths = near.shortest_paths(SEQUENCES)
    for (i, x), (j, y) in product(enumerate(SEQUENCES), repeat=2):
        assert lengths[i, j] == premetric.distance(x, y), (x, y)


@pytest.mark.parametrize("premetric", ALL_INPUTS, ids=lambda p: p.name)
def test_a_metric_is_its_own_sharpening(premetric: InputPremetric) -> None:
    """Definition A.4.1 weighs each step by its length, so a metric is unchanged on any domain."""
    for domain in (SEQUENCES, ((0, 0), (1, 1)), ((0, 1), (1, 0), (1, 1))):
        lengths = premetric.shortest_paths(domain)
        for (i, x), (j, y) in product(enumerate(domain), repeat=2):
            assert lengths[i, j] == premetric.distance(x, y), (x, y)


def test_the_sharpening_of_wider_steps_is_refused() -> None:
    with pytest.raises(SpecificationError) as caught:
        InputPremetric(name="d_HamS", unit="person", within=2).sharpened()
    assert "shortest_paths" in caught.value.problems[0].remedy


def test_a_relation_of_your_own_is_walked() -> None:
    ring = InputPremetric(name="d_r", unit="person", relation="ring", related=lambda x, y: abs(x[0] - y[0]) in (1, 4))
    datasets = [[(i)] for i in range(5)]
    lengths = ring.shortest_paths(datasets)
    assert [lengths[0, j] for j in range(5)] == [0, 1, 2, 2, 1]


def test_a_relation_known_by_name_only_has_no_distance() -> None:
    with pytest.raises(SpecificationError) as caught:
        InputPremetric(name="d_r", unit="person", relation="edge").distance([1], [2])
    assert "related" in caught.value.problems[0].remedy


# -- frames and units -----------------------------------------------------------------------------

PERSONS = [{"hid": "a", "age": 30, "sex": 1}, {"hid": "a", "age": 31, "sex": 2}, {"hid": "b", "age": 5, "sex": 1}]


def test_frames_and_dictionaries_have_the_same_distance() -> None:
    other = [PERSONS[0], {**PERSONS[1], "age": 77}, PERSONS[2]]
    unit = InputPremetric(name="d_HamS", unit="person")
    assert unit.distance(PERSONS, other) == 1
    assert unit.distance(pl.DataFrame(PERSONS), pl.DataFrame(other)) == 1


def test_the_order_of_rows_and_columns_does_not_count_where_it_should_not() -> None:
    unit = InputPremetric(name="d_HamS", unit="person")
    frame = pl.DataFrame(PERSONS)
    assert unit.distance(frame, frame.reverse().select("sex", "hid", "age")) == 0
    assert InputPremetric(name="d_Ham", unit="person").distance(frame, frame.select("sex", "hid", "age")) == 0
    assert InputPremetric(name="d_Ham", unit="person").distance(frame, frame.reverse()) == 2


@pytest.mark.parametrize("premetric", ALL_INPUTS, ids=lambda p: p.name)
def test_the_order_of_the_keys_of_dictionaries_does_not_count(premetric: InputPremetric) -> None:
    turned = [dict(reversed(row.items())) for row in PERSONS]
    assert premetric.distance(PERSONS, turned) == 0
    assert premetric.distance(turned, PERSONS) == 0


def test_households_are_multisets_of_persons_whatever_their_number_is_called() -> None:
    unit = InputPremetric(name="d_HamS", unit="household")
    renamed = [{**row, "hid": {"a": "x", "b": "y"}[str(row["hid"])]} for row in reversed(PERSONS)]
    assert unit.distance(PERSONS, renamed, by="hid") == 0
    moved = [PERSONS[0], {**PERSONS[1], "hid": "b"}, PERSONS[2]]
    assert unit.distance(PERSONS, moved, by="hid") == 2
    assert InputPremetric(name="d_HamS", unit="person").distance(PERSONS, moved) == 1


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(SpecificationError) as caught:
        InputPremetric(name="d_HamS", unit="household").distance(PERSONS, PERSONS, by="household")
    assert "hid" in caught.value.problems[0].remedy


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "d_Euclid", "unit": "person"},
        {"name": "d_HamS", "unit": " "},
        {"name": "d_HamS", "unit": "person", "within": 0},
        {"name": "d_r", "unit": "person"},
    ],
)
def test_a_distance_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError) as caught:
        InputPremetric(**settings)
    assert caught.value.problems[0].remedy


def test_nothing_is_promised_at_an_infinite_distance() -> None:
    """Remark 2.4.6: zero times infinity is infinity, but nothing may change at distance zero."""
    assert allowance(exact(0), INFINITE) == INFINITE
    assert allowance(INFINITE, INFINITE) == INFINITE
    assert allowance(INFINITE, exact(0)) == 0
    assert allowance(exact(3), exact(2)) == 6


# -- what the comparison of two distances claims --------------------------------------------------

RELATIONS = tuple(p if within is None else p.neighbours(within) for p in ALL_INPUTS for within in (None, 1, 2))


@pytest.mark.parametrize(
    ("mine", "yours"), list(permutations(RELATIONS, 2)), ids=lambda p: p.symbol.replace("^person", "")
)
def test_a_distance_called_stronger_is_finite_wherever_the_other_is(
    mine: InputPremetric, yours: InputPremetric
) -> None:
    """Proposition 2.4.15: the stronger one has ``d_mine <= u d_yours`` for some finite u."""
    block = compare(specification(premetric=mine), specification(premetric=yours)).blocks[2]
    if block.verdict != STRONGER:
        return
    domain = [rows for n in range(4) for rows in product((0, 1), repeat=n)]
    for x, y in product(domain, repeat=2):
        if not yours.distance(x, y).is_infinite:
            assert not mine.distance(x, y).is_infinite, (x, y)
            assert yours.distance(x, y) > 0 or mine.distance(x, y) == 0, (x, y)
