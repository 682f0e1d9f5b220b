"""Whole numbers that a program wrote with a decimal point are integers everywhere."""

from __future__ import annotations

from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.data.codebook import Codebook, Variable
from stirred.data.codebook_file import draft_codebook
from stirred.data.frames import read_labels, scan_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError
from stirred.data.validate import validate
from stirred.data.whole import MISSING_LIKE, as_whole, without_point

NAN = float("nan")


@given(st.lists(st.one_of(st.none(), st.integers(-(10**9), 10**9)), min_size=1))
def test_integers_come_back_from_floats_decimals_and_text(numbers: list[int | None]) -> None:
    ints = pl.Series("x", numbers, dtype=pl.Int64)
    text = ints.cast(pl.Float64).cast(pl.String)
    assert as_whole(text).to_list() == ints.cast(pl.String).to_list()
    if ints.null_count() < len(ints):
        assert as_whole(ints.cast(pl.Float64)).equals(ints)
        assert as_whole(ints.cast(pl.Decimal(20, 2))).equals(ints)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([1.0, 2.5]),
        pl.Series([NAN, None]),
        pl.Series([float("inf"), 1.0]),
        pl.Series([float(2**53), 1.0]),
        pl.Series([Decimal("1.00"), Decimal("2.50")]),
        pl.Series(["1.0", "1.5"]),
        pl.Series(["01", "2"]),
        pl.Series(["1.0", "x"]),
        pl.Series(["NA", "."]),
        pl.Series(["1.0.0", "1.0"]),
    ],
)
def test_other_columns_stay_as_they_are(column: pl.Series) -> None:
    assert as_whole(column) is column


@pytest.mark.parametrize("missing", MISSING_LIKE)
def test_what_may_mean_missing_does_not_make_numbers_fractional(missing: str) -> None:
    assert as_whole(pl.Series(["1.0", missing, "2", None])).to_list() == ["1", missing, "2", None]


def test_a_column_is_judged_by_all_its_rows() -> None:
    late = pl.Series(["1.0"] * 5_000 + ["1.5"])
    assert as_whole(late) is late


def test_the_integers_of_a_pandas_frame_with_a_gap_are_integers() -> None:
    pandas: Any = import_module("pandas")
    frame = pandas.DataFrame({"county": [1.0, 2.0, 10.0], "rooms": [1.0, NAN, 3.0], "rent": [0.5, 1.0, 2.0]})
    homes = Microdata(households=frame).households
    assert homes.schema == {"county": pl.Int64, "rooms": pl.Int64, "rent": pl.Float64}
    assert homes["rooms"].to_list() == [1, None, 3]


def test_text_of_a_csv_file_loses_its_point(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("county,rooms,rent\n1.0,,0.5\n10.0,2.0,1.0\n")
    homes = Microdata.read(tmp_path / "a.csv").households
    assert homes.rows() == [("1", None, "0.5"), ("10", "2", "1.0")]


@pytest.mark.parametrize(
    ("ids", "links"),
    [
        (pl.Series([1, 2]), pl.Series([1.0, 1.0, 2.0])),
        (pl.Series([1.0, 2.0]), pl.Series([1, 1, 2], dtype=pl.Int32)),
        (pl.Series([1, 2], dtype=pl.UInt8), pl.Series([1, 1, 2], dtype=pl.Int64)),
        (pl.Series(["1", "2"]), pl.Series(["1.0", "1.0", "2.0"])),
    ],
)
def test_a_link_of_1_finds_a_household_of_1_point_0(ids: pl.Series, links: pl.Series) -> None:
    data = Microdata(
        households=pl.DataFrame({"hid": ids, "size": [2, 1]}),
        persons=pl.DataFrame({"hid": links, "size": [2.0, 2.0, 1.0], "age": [1, 2, 3]}),
        hid="hid",
    )
    assert data.disagreements(["size"]) == []
    assert data.persons is not None
    assert data.households["hid"].dtype == data.persons["hid"].dtype


def test_a_person_without_household_is_still_found_among_floats() -> None:
    with pytest.raises(DataError, match=r"persons whose household is not in households \(1 row: 2\)"):
        Microdata(households=pl.DataFrame({"hid": [1.0, 2.0]}), persons=pl.DataFrame({"hid": [1, 3]}), hid="hid")


CODED = Codebook(
    variables=(
        Variable(name="county", file="households", type="code", codes={"1": "A", "2": "B"}),
        Variable(name="rooms", file="households", type="integer", min=1, max=9, missing=True),
    )
)


def test_a_codebook_knows_whole_floats_in_text_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("county,rooms\n1.0,3.0\n2.0,\n")
    assert validate(scan_frame(tmp_path / "a.csv", given=True), None, CODED) == []
    assert validate(pl.DataFrame({"county": [1.0, 2.0], "rooms": [3.0, NAN]}), None, CODED) == []
    assert validate(Microdata.read(tmp_path / "a.csv").households, None, CODED) == []


def test_codes_declared_with_a_point_are_those_without(tmp_path: Path) -> None:
    declared = Variable(name="county", file="households", type="code", codes={"1.0": "A", "2.0": "B"})
    (tmp_path / "a.csv").write_text("county\n1.0\n2.0\n")
    assert validate(scan_frame(tmp_path / "a.csv", given=True), None, Codebook(variables=(declared,))) == []
    assert [without_point(code) for code in ("1.0", "01.00", "1.5", "A.0", "-2.")] == ["1", "01", "1.5", "A.0", "-2"]


def test_a_draft_has_integers_and_codes_without_point(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("county\n1.0\n2.0\n")
    text = draft_codebook(read_labels(tmp_path / "a.csv"))
    assert Codebook.from_toml(text).labels("county") == {"1": "1", "2": "2"}
