"""Counts by area and cell: summed, asked, written and read again they are those of dense histograms."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Counts, Entries
from tests.mechanisms.topdown.hierarchies import answer

SCHEMA = Schema(
    name="toy",
    attributes=(
        Attribute(name="sex", codes=("m", "f")),
        Attribute(name="age", codes=("0-17", "18-64", "65+"), groupings={"adult": (0, 1, 1)}),
    ),
)
AREAS = 5
CODES = [f"a{place}" for place in range(AREAS)]
ENTRIES = st.lists(
    st.tuples(st.integers(0, AREAS - 1), st.integers(0, SCHEMA.size - 1), st.integers(1, 9)), max_size=30
)


def dense(entries: list[tuple[int, int, int]]) -> np.ndarray:
    found = np.zeros((AREAS, SCHEMA.size), dtype=np.int64)
    for area, cell, count in entries:
        found[area, cell] += count
    return found


def counts(entries: list[tuple[int, int, int]]) -> Counts:
    area, cell, count = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    return Counts.of(area, cell, count, areas=AREAS)


@given(ENTRIES)
def test_entries_in_any_order_give_the_histograms(entries: list[tuple[int, int, int]]) -> None:
    found, truth = counts(entries), dense(entries)
    assert np.array_equal(found.answers(SCHEMA.query("detailed")), truth)
    rows = Counts.of_rows([(np.arange(SCHEMA.size), row) for row in truth])
    for one, two in ((found.starts, rows.starts), (found.cells, rows.cells), (found.counts, rows.counts)):
        assert np.array_equal(one, two)


@given(ENTRIES)
def test_records_one_by_one_are_counted_like_counts(entries: list[tuple[int, int, int]]) -> None:
    area, cell = (np.repeat([e[n] for e in entries], [e[2] for e in entries]).astype(np.int32) for n in (0, 1))
    found = Counts.of(area, cell, areas=AREAS)
    assert np.array_equal(found.answers(SCHEMA.query("detailed")), dense(entries))
    assert found.cells.dtype == np.int32, "a file of records is not made wider"


@given(ENTRIES, st.lists(st.integers(0, 2), min_size=AREAS, max_size=AREAS))
def test_larger_areas_have_the_sums(entries: list[tuple[int, int, int]], parents: list[int]) -> None:
    found, truth, parent = counts(entries), dense(entries), np.array(sorted(parents))
    sums = np.zeros((3, SCHEMA.size), dtype=np.int64)
    np.add.at(sums, parent, truth)
    assert np.array_equal(found.up(parent, 3).answers(SCHEMA.query("detailed")), sums)
    bounds = np.searchsorted(parent, np.arange(4))
    assert np.array_equal(found.between(bounds).answers(SCHEMA.query("detailed")), sums)


@given(ENTRIES, st.sampled_from(["total", "sex", "adult", "sex * adult", "detailed"]))
def test_answers_are_those_of_the_histograms(entries: list[tuple[int, int, int]], name: str) -> None:
    found, query = counts(entries), SCHEMA.query(name)
    truth = answer(query, dense(entries))
    assert np.array_equal(found.answers(query), truth)
    assert np.array_equal(found.answers(query, range(1, 3)), truth[1:3])


@given(ENTRIES)
def test_counts_that_are_written_are_read_again(entries: list[tuple[int, int, int]]) -> None:
    frame = counts(entries).frame(SCHEMA, CODES)
    read = Entries.of(frame, SCHEMA, CODES)
    assert not read.strange
    again = Counts.of(read.area, read.cell, frame["count"].to_numpy(), areas=AREAS)
    assert np.array_equal(again.answers(SCHEMA.query("detailed")), dense(entries))


def test_values_that_are_not_declared_are_named_by_column() -> None:
    frame = pl.DataFrame({"geocode": ["a1", "x"], "sex": ["f", "f"], "age": ["65+", None], "count": [1, 1]})
    read = Entries.of(frame, SCHEMA, CODES)
    assert read.strange == {"geocode": ["x"], "age": [""]}
    assert (read.area.tolist(), read.cell.tolist()) == ([1, -1], [5, -1])
