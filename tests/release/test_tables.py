"""Tables counted from the release."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.problems import PlanError
from stirred.release import tables as module
from stirred.release.tables import parse_table, tabulate, wanted_tables

ROWS = st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 2)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(rows=ROWS)
def test_every_combination_of_values_is_counted_empty_cells_too(rows: list[tuple[str | None, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"a": pl.String, "b": pl.Int64}, orient="row")
    counts = Counter(rows)
    expected = {(a, b): counts[a, b] for a in {a for a, _ in rows} for b in {b for _, b in rows}}
    table = tabulate(frame, ["a", "b"])
    assert table.columns == ["a", "b", "count"]
    assert {(a, b): n for a, b, n in table.rows()} == expected
    assert table.height == len(expected)


@pytest.mark.parametrize("values", [[1.5, 2.0], []], ids=["with numbers", "alone"])
def test_records_without_a_number_are_counted_also_where_the_column_is_sorted(values: list[float]) -> None:
    frame = pl.DataFrame({"rent": pl.Series([*values, float("nan"), float("nan")]).sort()})
    assert tabulate(frame, ["rent"])["count"].to_list() == [*(1 for _ in values), 2]


def test_in_a_huge_table_only_cells_that_occur_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CELLS", 3)
    table = tabulate(pl.DataFrame({"a": [1, 2], "b": [1, 2]}), ["a", "b"])
    assert table.rows() == [(1, 1, 1), (2, 2, 1)]


@pytest.mark.parametrize("text", ["county x tenure", "county  ×  tenure", "county * tenure"])
def test_a_table_is_read_as_custodians_write_it(text: str) -> None:
    assert parse_table(text)[1] == ["county", "tenure"]


def test_an_x_inside_a_name_does_not_split_it() -> None:
    assert parse_table("sex x next_of_kin")[1] == ["sex", "next_of_kin"]


def wanted(*requests: tuple[str | None, list[str]]) -> list[str]:
    return [t.name for t in wanted_tables(requests, households=["county", "tenure"], persons=["age"])]


def test_tables_get_file_names_that_work_everywhere() -> None:
    assert wanted((None, ["county", "tenure"]), ("Ages / by ../county", ["age", "county"])) == [
        "county-x-tenure",
        "ages-by-county",
    ]


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([(None, ["income"])], 'no released column "income"'),
        ([(None, [])], "a table needs different variables"),
        ([(None, ["county", "county"])], "a table needs different variables"),
        ([("a", ["county"]), ("A", ["tenure"])], "two tables are called 'a'"),
    ],
)
def test_a_table_that_cannot_be_made_is_refused(requests: list[tuple[str | None, list[str]]], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        wanted(*requests)
    assert message in str(caught.value)
    assert caught.value.problems[0].remedy
