"""What exact tables reveal, against cases with known answers and against counting all tables."""

from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.risk.bounds import (
    bounds,
    joint_system,
    log_tables,
    revealed,
    solutions,
)
from stirred.risk.systems import Solution, System, propagated, solved
from tests.depth import examples


def table(counts: list[list[int]], names: str) -> pl.DataFrame:
    rows = [(i, j, count) for i, row in enumerate(counts, 1) for j, count in enumerate(row, 1)]
    return pl.DataFrame(rows, schema=[*names, "count"], orient="row")


def margin(cells: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    return cells.group_by(by).agg(pl.col("count").sum())


@pytest.mark.parametrize(
    ("rows", "columns", "tables"),
    [
        ([3, 4], [2, 5], 3),
        ([5, 7], [3, 4, 5], 17),
        ([2, 2, 2], [2, 2, 2], 21),
        ([5, 5, 5], [5, 5, 5], 231),
        ([2, 3, 4], [3, 3, 3], 45),
    ],
)
def test_small_tables_are_counted_exactly(rows: list[int], columns: list[int], tables: int) -> None:
    pair = [
        pl.DataFrame({"a": range(len(rows)), "count": rows}),
        pl.DataFrame({"b": range(len(columns)), "count": columns}),
    ]
    assert solutions(joint_system(pair)[0]) == tables
    low, high = log_tables(rows, columns)
    assert low - 1e-9 <= np.log10(tables) <= high + 1e-9
    assert solutions(joint_system(pair)[0], most=tables - 1) is None


def test_the_literatures_large_table_lies_within_the_bounds() -> None:
    rows, columns, truth = [220, 215, 93, 64], [108, 286, 71, 127], 1_225_914_276_768_514
    low, high = log_tables(rows, columns)
    assert low <= np.log10(truth) <= high


def test_two_tables_that_share_a_column_have_the_closed_bounds() -> None:
    one, other = table([[3, 1], [1, 4]], "ab"), table([[3, 1], [3, 2]], "bc")
    found = bounds([one, other])
    assert found is not None
    by_cell = {row[:3]: row[3:] for row in found.cells.rows()}
    assert (by_cell[1, 1, 1], by_cell[2, 2, 1], by_cell[2, 2, 2]) == ((2, 3), (2, 3), (1, 2))
    assert solutions(joint_system([one, other])[0]) == 4
    assert solutions(joint_system([one, other, table([[2, 2], [4, 1]], "ac")])[0]) == 1


def test_tables_that_agree_in_pairs_may_have_no_table_together() -> None:
    same = [[1, 0], [0, 1]]
    assert bounds([table(same, "ab"), table(same, "bc"), table([[0, 1], [1, 0]], "ac")]) is None


SLICES = "1001 0110 0010 0000 / 0100 1000 0101 0100 / 0000 0110 1000 0100 / 1000 0100 0001 0001"


def test_integer_programs_determine_cells_that_linear_ones_and_propagation_leave_open() -> None:
    cells = pl.DataFrame(
        [
            (i, j, k, int(digit))
            for i, part in enumerate(SLICES.split(" / "), 1)
            for j, row in enumerate(part.split(), 1)
            for k, digit in enumerate(row, 1)
        ],
        schema=["a", "b", "c", "count"],
        orient="row",
    )
    margins = [margin(cells, by) for by in (["a", "b"], ["b", "c"], ["a", "c"])]
    system, kept = joint_system(margins)
    found = bounds(margins)
    quick = bounds(margins, proof=False)
    assert found is not None
    assert quick is not None
    empty = 64 - kept.height
    assert (found.determined + empty, quick.determined + empty) == (33, 28)
    assert solutions(system) == 8
    place = {row[:3]: n for n, row in enumerate(kept.rows())}[2, 4, 2]
    cost = np.zeros(system.cells)
    cost[place] = 1
    low, high = np.zeros(system.cells), np.full(system.cells, 18)
    assert solved(system, cost=cost, low=low, high=high, integer=False).objective == pytest.approx(0.5)
    assert found.cells.row(place)[3:] == (1, 1)


@pytest.mark.parametrize(("total", "many"), [(2, 1), (1, 0)])
def test_overlapping_tallies_are_settled_where_propagation_is_blind(total: int, many: int) -> None:
    system = System.of(3, [([0, 1], total), ([1, 2], total), ([0, 2], total)])
    found = propagated(system)
    assert found is not None
    assert (found[0] < found[1]).all()
    assert solutions(system) == many
    low, high = found
    assert (solved(system, cost=np.zeros(3), low=low, high=high).status == "infeasible") == (many == 0)


@given(st.lists(st.tuples(*[st.integers(0, 1)] * 3), min_size=1, max_size=7))
@settings(max_examples=examples(60), deadline=None)
def test_bounds_are_those_of_all_tables(records: list[tuple[int, int, int]]) -> None:
    cells = pl.DataFrame(records, schema=["a", "b", "c"], orient="row").group_by("a", "b", "c").len("count")
    margins = [margin(cells, by) for by in (["a", "b"], ["b", "c"])]
    found = bounds(margins)
    assert found is not None
    places = [row[:3] for row in found.cells.rows()]
    totals = [{row[:2]: row[2] for row in each.rows()} for each in margins]
    whole = [
        counts
        for counts in product(*(range(row[4] + 2) for row in found.cells.rows()))
        if all(
            sum(n for n, p in zip(counts, places, strict=True) if p[:2] == key) == n_ab
            for key, n_ab in totals[0].items()
        )
        and all(
            sum(n for n, p in zip(counts, places, strict=True) if p[1:] == key) == n_bc
            for key, n_bc in totals[1].items()
        )
    ]
    assert [row[3] for row in found.cells.rows()] == [min(each) for each in zip(*whole, strict=True)]
    assert [row[4] for row in found.cells.rows()] == [max(each) for each in zip(*whole, strict=True)]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
@settings(max_examples=examples(100), deadline=None)
def test_what_a_swaps_tables_reveal_is_the_sum_over_all_cells(records: list[tuple[int, int, int]]) -> None:
    strata, held, swapped = (np.array(each, dtype=np.uint32) for each in zip(*records, strict=True))
    expected = 0
    for s in set(strata.tolist()):
        own = strata == s
        r, c = (np.bincount(each[own]) for each in (held, swapped))
        expected += sum(max(0, int(x) + int(y) - int(own.sum())) for x in r for y in c if x and y)
    assert revealed(strata, held, swapped).at_least == expected


@pytest.mark.parametrize("after", [0, 1])
def test_a_program_at_its_time_limit_proves_nothing(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither a missing table nor a bound that is attained: what propagation says stays, and is not "proven"."""
    one, other = pl.DataFrame({"a": [1, 2], "count": [3, 4]}), pl.DataFrame({"b": [1, 2], "count": [2, 5]})
    calls = iter(range(1_000))

    def limited(system: System, **how: Any) -> Solution:
        return solved(system, **how) if next(calls) < after else Solution(status="time limit", values=np.zeros(0))

    whole = bounds([one, other])
    monkeypatch.setattr("stirred.risk.bounds.solved", limited)
    found = bounds([one, other])
    assert whole is not None
    assert found is not None
    assert whole.proven
    assert not found.proven
    assert found.cells.rows() == whole.cells.rows()  # propagation is sharp here
