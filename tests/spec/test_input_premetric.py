"""Distances between datasets, each against its definition."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import INFINITE, PURE, Exact, InputPremetric, OutputPremetric, SpecificationError, exact
from stirred.spec.comparison import STRONGER, compare
from stirred.spec.document import from_json, to_json
from stirred.spec.explanation import explain
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


@pytest.mark.parametrize("name", ["d_HamS", "d_Ham", "d_SymDiff", "d_InsDel"])
@pytest.mark.parametrize("within", [2, 3])
def test_the_sharpening_of_wider_steps_is_the_closure_where_every_dataset_is_there(name: str, within: int) -> None:
    """Definition A.4.1: shortest paths through steps of up to k changes are the distance over k, rounded up."""
    datasets = [list(x) for n in range(4) for x in product((0, 1), repeat=n)]
    steps = InputPremetric(name=name, unit="person", within=within)
    walked = steps.shortest_paths(datasets)
    closed = steps.sharpened()
    assert closed.is_metric
    assert closed.closure
    assert all(closed.distance(datasets[i], datasets[j]) == far for (i, j), far in walked.items())


def test_a_closure_over_a_restricted_domain_is_longer_than_the_formula() -> None:
    """Two changes at once stay inside {000, 110, 111}; the way from 000 to 111 is not the one over all files."""
    datasets: list[Any] = [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    steps = InputPremetric(name="d_Ham", unit="person", within=2)
    assert steps.sharpened().shortest_paths(datasets)[0, 2] == 2
    only = [[0, 0, 0], [1, 1, 1]]
    assert steps.sharpened().distance(*only) == 2
    assert steps.shortest_paths(only)[0, 1] == INFINITE


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
        {"name": "d_Manhattan", "unit": "person"},
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


# -- graphs, places and distances of your own (section A.4) ---------------------------------------

GRAPHS = [list(edges) for size in range(4) for edges in combinations(((0, 1), (0, 2), (1, 2)), size)]
EDGES, NODES = InputPremetric(name="d_Edge", unit="edge"), InputPremetric(name="d_Node", unit="node")


def rewired(x: list[Any], y: list[Any]) -> bool:
    """Say whether two graphs differ only at one node."""
    differing = {frozenset(edge) for edge in x} ^ {frozenset(edge) for edge in y}
    return any(all(node in edge for edge in differing) for node in range(3))


def test_the_node_distance_counts_the_nodes_to_rewire() -> None:
    """The closure of "differ at one node", walked through all graphs on three nodes."""
    relation = InputPremetric(name="d_r", unit="node", relation="rewire", related=rewired)
    walked = relation.shortest_paths(GRAPHS)
    assert all(NODES.distance(GRAPHS[i], GRAPHS[j]) == far for (i, j), far in walked.items())
    assert max(walked.values()) == 2


def test_the_edge_distance_counts_edges_whichever_end_comes_first() -> None:
    assert EDGES.distance([(0, 1)], [(1, 0)]) == 0
    assert EDGES.distance([(0, 1), (1, 2)], [(0, 2)]) == 3
    assert all(NODES.distance(x, y) <= EDGES.distance(x, y) <= 2 * NODES.distance(x, y) for x in GRAPHS for y in GRAPHS)


@pytest.mark.parametrize("records", [[(0, 0)], [3], [(0, 1, 2)]])
def test_a_record_that_is_not_an_edge_is_refused(records: list[Any]) -> None:
    with pytest.raises(SpecificationError, match="not an edge"):
        EDGES.distance(records, [])


def test_graphs_that_differ_in_many_nodes_are_not_searched_for_ever() -> None:
    with pytest.raises(SpecificationError, match="at most 20 nodes"):
        NODES.distance([(i, i + 1) for i in range(30)], [])


def test_places_are_as_far_apart_as_on_a_map() -> None:
    places = InputPremetric(name="d_Euclid", unit="place")
    assert places.distance([(0, 0)], [(3, 4)]) == 5
    assert places.distance([(0, 0), (1, 1)], [(1, 1), (1, 1)]) == exact("sqrt(2)")
    assert places.distance([0, 2], [1, 0]) == 3
    assert places.distance([0], [0, 0]) == INFINITE
    assert places.bounded
    assert places.is_metric
    assert not places.counts
    with pytest.raises(SpecificationError, match="coordinates"):
        places.distance([(0, 0)], [(0, 0, 0)])


def given_table(*entries: Any, **settings: Any) -> InputPremetric:
    return InputPremetric(name="d_Given", unit="dataset", relation="risk", table=entries, **settings)


def test_a_table_of_distances_is_looked_up_by_label() -> None:
    risk = given_table(("a", "b", "ln(2)"), ("b", "c", 1), ("a", "c", 5))
    assert risk.distance("a", "b") == risk.distance("b", ["a"]) == exact("ln(2)")
    assert risk.distance(("c",), "c") == 0
    assert not risk.is_metric  # from a to c the way over b is shorter
    closed = given_table(*risk.table, closure=True)
    assert closed.distance("a", "c") == exact("1 + ln(2)")
    assert closed.is_metric
    one_way = given_table(("s", "n", 1), directed=True)
    assert one_way.distance("s", "n") == 1
    assert one_way.distance("n", "s") == INFINITE
    assert not one_way.is_metric


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": "d_Given", "table": [("a", "b", 1), ("b", "a", 2)]}, "stand in the table twice"),
        ({"name": "d_Given", "table": [("a", "a", 1)]}, "1 from itself"),
        ({"name": "d_Given", "table": [("a", "b", -1)]}, "is not a distance"),
        ({"name": "d_Given", "table": [("a", "b", "far")]}, "is not a distance"),
        ({"name": "d_Given", "relation": None}, "without a relation"),
        ({"name": "d_Ham", "table": [("a", "b", 1)]}, "no table"),
        ({"name": "d_Ham", "directed": True}, "no direction"),
        ({"name": "d_Ham", "closure": True}, "nothing to take the closure of"),
        ({"name": "d_Euclid", "within": 2, "closure": True}, "nothing to take the closure of"),
    ],
)
def test_a_distance_of_your_own_that_makes_no_sense_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecificationError, match=says):
        InputPremetric(**{"unit": "dataset", "relation": "risk", **settings})


@pytest.mark.parametrize(
    ("premetric", "says"),
    [
        (given_table(("a", "b", 1)), "does not list the dataset 'z'"),
        (given_table(), "known by name only"),
        (InputPremetric(name="d_r", unit="x", relation="ring", closure=True), "known by name only"),
        (InputPremetric(name="d_r", unit="x", relation="ring", closure=True, related=rewired), "datasets there are"),
    ],
)
def test_a_distance_that_cannot_be_computed_says_why(premetric: InputPremetric, says: str) -> None:
    with pytest.raises(SpecificationError, match=says):
        premetric.distance(["z"], ["a"])


def test_neighbours_of_a_distance_of_your_own_are_its_own_business() -> None:
    for one in (given_table(("a", "b", 1)), InputPremetric(name="d_Ham", unit="x", within=2, closure=True)):
        with pytest.raises(SpecificationError, match="no neighbours"):
            one.neighbours()


EXPLAINED = [
    (NODES, "number of nodes of a graph whose edges must be rewired", "differ in 1 node"),
    (InputPremetric(name="d_Euclid", unit="place"), "sum of the straight-line distances", "are at distance 1"),
    (given_table(("a", "b", 1)), "risk (dataset), listed for 2 datasets", "are at distance 1"),
    (given_table(("a", "b", 1), directed=True), "risk (dataset), in this direction only", "are at distance 1"),
    (given_table(("a", "b", 1), closure=True), "fewest steps by risk", "are at distance 1"),
    (InputPremetric(name="d_r", unit="person", relation="kinship", closure=True), "each by kinship", "at distance 1"),
    (InputPremetric(name="d_r", unit="person", relation="kinship", directed=True), "in this direction only", "related"),
    (InputPremetric(name="d_Ham", unit="person", within=2, closure=True), "a change of up to 2", "are at distance 1"),
]


@pytest.mark.parametrize(("premetric", "words", "apart"), EXPLAINED, ids=lambda value: str(value)[:40])
def test_each_distance_is_explained_and_survives_a_file(premetric: InputPremetric, words: str, apart: str) -> None:
    written = specification(PURE, 1, premetric=premetric)
    assert from_json(to_json(written)) == written
    told = explain(written)
    assert words in {answer.block: answer.answer for answer in told.answers}["input_premetric"]
    assert apart in told.how_to_read
    one_way = specification(OutputPremetric(name="D_Max"), 1, premetric=premetric)
    assert "Nothing is stated the other way round" in explain(one_way).how_to_read
    assert from_json(to_json(one_way)) == one_way
