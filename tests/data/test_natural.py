"""Numeric codes stand in the order of numbers, wherever values are listed."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.data.codebook import Codebook, Variable
from stirred.data.codes import encode
from stirred.data.natural import ranks, sort_naturally, sorted_values
from stirred.data.validate import validate
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.release.tables import tabulate
from stirred.utility.measures import compare_tables


@given(st.lists(st.integers(-(10**20), 10**20), unique=True))
def test_text_of_whole_numbers_is_in_the_order_of_the_numbers(numbers: list[int]) -> None:
    text = pl.Series([str(number) for number in numbers], dtype=pl.String)
    assert sorted_values(text).to_list() == [str(number) for number in sorted(numbers)]


@given(st.lists(st.sampled_from(["1", "01", "2", "10", "9.5", "A", "b", "", None])), st.randoms())
def test_the_order_depends_on_the_values_alone(values: list[str | None], random: object) -> None:
    other = [*values]
    random.shuffle(other)  # type: ignore[attr-defined]
    here, there = (sorted_values(pl.Series(each, dtype=pl.String)).to_list() for each in (values, other))
    assert here == there
    order = [None, "01", "1", "2", "9.5", "10", "", "A", "b"]
    assert here == sorted(values, key=order.index)


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical])
def test_codes_keep_their_zeros_and_stand_in_order(kind: type[pl.DataType]) -> None:
    frame = pl.DataFrame({"county": ["10", "02", "1", "9"]}, schema={"county": kind})
    assert encode(frame, ["county"]).levels["county"].to_list() == ["1", "02", "9", "10"]
    assert encode(frame, ["county"]).codes.tolist() == [3, 1, 0, 2]
    assert ranks(frame["county"]).to_list() == [4, 2, 1, 3]


def test_tables_strata_errors_and_messages_list_2_before_10() -> None:
    homes = pl.DataFrame({"county": ["10", "9", "2", "10"], "size": ["10", "2", "2", "10"], "x": ["a", "b", "c", "d"]})
    assert tabulate(homes, ["county"])["county"].to_list() == ["2", "9", "10"]
    plan = PermutationSwap(match=["size"], swap=["county"], rate="1/2").plan(homes)
    assert [plan.strata[place].values for place in (0, 1)] == [("2",), ("10",)]
    counts = tabulate(homes, ["county"])
    assert compare_tables(counts, counts, ["county"])["county"].to_list() == ["2", "9", "10"]
    sex = Variable(name="county", file="households", type="code", codes={"1": "A"})
    (problem,) = validate(homes.select("county"), None, Codebook(variables=(sex,)))
    assert problem.what.startswith("codes 2, 9, 10 are not in the codebook")


def test_rows_are_sorted_by_all_columns_in_turn() -> None:
    frame = pl.DataFrame({"a": ["10", "10", "9"], "b": [2, 1, 3]})
    assert sort_naturally(frame, ["a", "b"]).rows() == [("9", 3), ("10", 1), ("10", 2)]
    assert sort_naturally(frame, []).rows() == frame.rows()


def test_bands_and_caps_stand_where_their_numbers_do() -> None:
    order = [
        "-10 to -6",
        "-5 to -1",
        "under 5",
        "5-9",
        "9",
        "10-19",
        "84",
        "85",
        "85+",
        "100-109",
        "2020-03",
        "A",
        "a-1",
    ]
    assert sorted_values(pl.Series(order[::-1])).to_list() == order
    decimals = ["18 or less", "19", "20.5 to under 100.5", "100.5 to under 180.5"]
    assert sorted_values(pl.Series(decimals[::-1])).to_list() == decimals
