"""Tables counted from the release."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred import Entropy
from stirred.audit import audit_bundle
from stirred.data.problems import PlanError
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.release import tables as module
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from stirred.release.tables import tabulate, wanted_tables
from stirred.spec.spelling import crossed
from tests.depth import examples
from tests.world import households, persons, read

ROWS = st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 2)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=examples(60))
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
    assert crossed(text) == ["county", "tenure"]


def test_an_x_inside_a_name_does_not_split_it() -> None:
    assert crossed("sex x next_of_kin") == ["sex", "next_of_kin"]


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
        ([(None, ["county"]), (None, ["county", "tenur"])], "[[tables]] entry 2, table 'county x tenur': no released"),
        (
            [(None, ["county"]), (None, ["county"])],
            "[[tables]]: two tables are called 'county'. Fix: leave one out, or write name = \"...\" under one",
        ),
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


# ---- codes that a codebook declares and nobody has -----------------------------------------------------

DECLARED = """
[codebook]
title = "Homes"
[[variables]]
name = "hid"
file = "households"
type = "id"
[[variables]]
name = "county"
file = "households"
type = "code"
codes = { East = "", North = "", South = "", West = "", Isles = "" }
[[variables]]
name = "size"
file = "households"
type = "code"
codes = { 1 = "", 2 = "", 3 = "", 4 = "four", 07 = "not a number as it is written" }
[[variables]]
name = "tenure"
file = "households"
type = "code"
codes = { owned = "", rented = "", free = "" }
[[variables]]
name = "hid"
file = "persons"
type = "id"
[[variables]]
name = "pid"
file = "persons"
type = "id"
[[variables]]
name = "age"
file = "persons"
type = "integer"
[[variables]]
name = "vote"
file = "persons"
type = "true-false"
[link]
hid = "hid"
id = ["pid"]
"""


def declared_release(
    folder: Path,
    homes: pl.DataFrame | None = None,
    *,
    format_: str = "parquet",
    mechanism: dict[str, list[str]] | None = None,
) -> Path:
    homes = households(120) if homes is None else homes
    homes.write_parquet(folder / "homes.parquet")
    persons(homes).with_columns(vote=pl.lit(value=True)).write_parquet(folder / "people.parquet")
    (folder / "book.toml").write_text(DECLARED)
    plan = {
        "data": {
            "households": "homes.parquet", "persons": "people.parquet", "codebook": "book.toml",
            "hid": "hid", "id": ["pid"],
        },
        "mechanism": {"rate": "1/2", **(mechanism or {"match": ["size"], "swap": ["county"]})},
        "tables": [
            {"variables": ["county", "tenure"]}, {"variables": ["size", "county"]}, {"variables": ["county", "vote"]}
        ],
        "release": {"out": "out", "format": format_},
    }  # fmt: skip
    return run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_every_declared_code_has_its_cells_and_those_that_nobody_has_are_0(tmp_path: Path, format_: str) -> None:
    out = declared_release(tmp_path, format_=format_)
    tables = out / "public" / "tables"
    crossed = read(tables / "county-x-tenure.csv").with_columns(pl.col("count").cast(pl.Int64))
    assert crossed.height == 5 * 3
    assert crossed.filter((pl.col("county") == "Isles") | (pl.col("tenure") == "free"))["count"].to_list() == [0] * 7
    assert crossed["count"].sum() == 120
    sizes = read(tables / "size-x-county.csv")
    assert sorted(sizes["size"].unique()) == ["1", "2", "3", "4"]  # 07 cannot stand in a column of numbers
    voters = read(tables / "county-x-vote.csv")
    assert voters.height == 5 * 2
    assert {row[2] for row in voters.filter(pl.col("vote") == "false").rows()} == {"0"}
    assert audit_bundle(out).passed, audit_bundle(out).problems


def test_accuracy_and_expected_errors_are_over_the_same_cells_as_the_published_table(tmp_path: Path) -> None:
    out = declared_release(tmp_path)
    accuracy = pl.read_parquet(out / "internal" / "accuracy.parquet")
    assert accuracy.filter(pl.col("table") == "county x tenure").height == 15
    expected = pl.read_parquet(out / "internal" / "expected" / "county-x-tenure.parquet")
    assert expected.height == 15
    empty = expected.filter(pl.col("county") == "Isles")
    assert empty.select("true", "mean", "variance", "absolute_error").sum().row(0) == (0, 0.0, 0.0, 0.0)


def test_a_published_table_with_codes_that_nobody_has_can_be_corrected(tmp_path: Path) -> None:
    out = declared_release(tmp_path)
    table = read(out / "public" / "tables" / "county-x-tenure.csv")
    found = unswap(table, SwappedRelease.read(out)).table
    assert found.height == 15
    assert found.filter(pl.col("county") == "Isles").select("estimate", "low", "high").sum().row(0) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("most", "rows", "said"), [(15, 15, False), (14, 8, False), (7, 6, True)])
def test_a_table_with_too_many_declared_cells_lists_fewer_and_the_page_says_when_some_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, rows: int, said: bool
) -> None:
    """All codes; else the values that occur; else the cells that occur: North and West have one tenure each here."""
    monkeypatch.setattr(module, "_MOST_CELLS", most)
    tenure = pl.when(pl.col("county") == "North").then(pl.lit("owned")).when(pl.col("county") == "West")
    homes = households(120).with_columns(tenure=tenure.then(pl.lit("rented")).otherwise("tenure"))
    out = declared_release(tmp_path, homes, mechanism={"swap": ["size"], "match": ["county"]})
    assert read(out / "public" / "tables" / "county-x-tenure.csv").height == rows
    (line,) = [line for line in (out / "public" / "README.md").read_text().splitlines() if "county-x-tenure" in line]
    assert line.endswith("; combinations that no record has are left out") == said
