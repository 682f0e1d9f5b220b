"""Errors of a released table."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.utility.measures import compare_tables, mean_absolute_percentage_error
from tests.depth import examples

TABLES = st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", None])), st.integers(0, 9), min_size=1)


def long(cells: dict[tuple[str, str | None], int]) -> pl.DataFrame:
    rows = [(*key, count) for key, count in cells.items()]
    return pl.DataFrame(rows, schema={"v": pl.String, "w": pl.String, "count": pl.Int64}, orient="row")


@settings(deadline=None, max_examples=examples(60))
@given(truth=TABLES, released=TABLES)
def test_every_cell_of_either_table_is_compared_and_absent_ones_count_0(
    truth: dict[tuple[str, str | None], int], released: dict[tuple[str, str | None], int]
) -> None:
    found = {(v, w): rest for v, w, *rest in compare_tables(long(truth), long(released), ["v", "w"]).rows()}
    assert found == {
        cell: [truth.get(cell, 0), released.get(cell, 0), released.get(cell, 0) - truth.get(cell, 0)]
        for cell in {*truth, *released}
    }


def test_the_mean_percentage_error_of_the_papers_table_1_is_its_own() -> None:
    """Swap theory R18: 13.78% over the 28 cells."""
    from stirred.data.synth.massachusetts import TABLE_1, TABLE_1_SWAPPED

    pairs = [(true, TABLE_1_SWAPPED[county][i]) for county, *cells in TABLE_1 for i, true in enumerate(cells)]
    frame = pl.DataFrame({"true": [t for t, _ in pairs], "error": [r - t for t, r in pairs]})
    assert 100 * mean_absolute_percentage_error(frame) == pytest.approx(13.78, abs=0.005)
