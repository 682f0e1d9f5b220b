"""Accuracy measures against naive code."""

from __future__ import annotations

import math
import time
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats.contingency import association

from stirred.data.problems import DataError
from stirred.utility.measures import by_area_size, by_cell_size, compare_tables, cramers_v, measure
from tests.depth import examples

CELLS = st.dictionaries(
    st.tuples(st.sampled_from("ABC"), st.sampled_from("xyz")), st.integers(0, 400), min_size=1, max_size=9
)
Cells = dict[tuple[str, str], int]


def long(cells: Cells) -> pl.DataFrame:
    rows = [(*key, count) for key, count in cells.items()]
    return pl.DataFrame(rows, schema={"area": pl.String, "kind": pl.String, "count": pl.Int64}, orient="row")


@settings(deadline=None, max_examples=examples(100))
@given(truth=CELLS, released=CELLS)
def test_all_measures_are_those_of_plain_code(truth: Cells, released: Cells) -> None:
    found = measure(long(truth), long(released), variables=["area", "kind"], level="area")
    cells = {*truth, *released}
    pairs = [(truth.get(cell, 0), released.get(cell, 0)) for cell in cells]
    errors = [abs(r - t) for t, r in pairs]
    full = [(t, r) for t, r in pairs if t]
    assert found.cells == len(cells)
    assert found.mean_absolute_error == pytest.approx(sum(errors) / len(errors))
    assert found.l1 == sum(errors)
    assert found.root_mean_square_error == pytest.approx(math.sqrt(sum(e * e for e in errors) / len(errors)))
    if full:
        shares = [abs(r - t) / t for t, r in full]
        assert found.mean_absolute_percentage_error == pytest.approx(sum(shares) / len(full))
        assert found.within_5_percent == pytest.approx(sum(abs(r - t) * 20 <= t for t, r in full) / len(full))
        assert found.total_variation == pytest.approx(sum(errors) / 2 / sum(t for t, _ in full))
    for which, table in ((found.association_true, truth), (found.association_released, released)):
        assert which == pytest.approx(naive_v(table), abs=1e-6)


def naive_v(cells: Cells) -> float:
    square = np.array([[cells.get((a, k), 0) for k in "xyz"] for a in "ABC"], dtype=float)
    square = square[square.sum(axis=1) > 0][:, square.sum(axis=0) > 0]
    if min(square.shape) < 2:
        return 0.0
    return float(association(square.astype(int), method="cramer", correction=False))


def test_finer_tables_are_added_up_to_the_variables_asked_for() -> None:
    truth = long({("A", "x"): 3, ("A", "y"): 4, ("B", "x"): 5})
    released = long({("A", "x"): 4, ("A", "y"): 3, ("B", "x"): 7})
    assert measure(truth, released, variables=["area"]).l1 == 2
    assert measure(truth, released, variables=["area"]).association_true is None


@settings(deadline=None, max_examples=examples(50))
@given(truth=CELLS, released=CELLS)
def test_classes_of_cells_and_areas_are_those_of_plain_code(truth: Cells, released: Cells) -> None:
    compared = compare_tables(long(truth), long(released), ["area", "kind"])
    ends = (0, 1, 5, 10, 100)
    totals = Counter[str]()
    for (area, _), count in truth.items():
        totals[area] += count
    for found, size in (
        (by_cell_size(compared, classes=ends), lambda cell: truth.get(cell, 0)),
        (by_area_size(compared, level="area", classes=ends), lambda cell: totals[cell[0]]),
    ):
        classes: dict[int, list[int]] = {}
        for cell in {*truth, *released}:
            lower = max(end for end in ends if end <= size(cell))
            classes.setdefault(lower, []).append(released.get(cell, 0) - truth.get(cell, 0))
        assert found["from"].to_list() == sorted(classes)
        for row in found.iter_rows(named=True):
            errors = classes[row["from"]]
            assert row["cells"] == len(errors)
            assert row["bias"] == pytest.approx(sum(errors) / len(errors))
            assert row["mean_absolute_error"] == pytest.approx(sum(map(abs, errors)) / len(errors))


def test_a_missing_column_is_named_with_those_there_are() -> None:
    table = long({("A", "x"): 1})
    with pytest.raises(DataError, match=r'there is no column "tract".*it has "area", "kind", "count"'):
        measure(table, table, variables=["tract"])


@pytest.mark.parametrize("names", ["cr", "nc", "rn"])
def test_cramers_v_minds_no_names(names: str) -> None:
    table = pl.DataFrame({names[0]: ["A", "B"], names[1]: ["x", "y"], "count": [3, 4]})
    assert cramers_v(table, first=[names[0]], second=[names[1]]) == 1.0


def test_cramers_v_of_one_column_is_0() -> None:
    assert cramers_v(long({("A", "x"): 1, ("B", "x"): 5}), first=["area"], second=["kind"]) == 0.0


@pytest.mark.slow
def test_ten_million_persons_are_counted_and_compared_in_seconds() -> None:
    row = np.arange(10_000_000)
    persons = pl.DataFrame({"area": (row // 500).astype(np.int32), "age": (row * 7919 % 90).astype(np.int32)})
    began = time.monotonic()
    truth = persons.group_by("area", "age").len("count")
    moved = persons.with_columns(pl.col("area").shift(1, fill_value=0)).group_by("area", "age").len("count")
    found = measure(truth, moved, variables=["area", "age"], level="area")
    by_area_size(
        compare_tables(truth.cast({"count": pl.Int64}), moved.cast({"count": pl.Int64}), ["area", "age"]), level="area"
    )
    assert found.cells > 1_000_000
    assert time.monotonic() - began < 60
