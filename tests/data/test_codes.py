"""Columns as codes, against counting by hand."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data import codes as module
from stirred.data.codes import encode
from tests.depth import examples

KINDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "text": (st.sampled_from(["", "a", "b", "01", "1", "é", "Z", "long " * 9]), pl.String),
    "int8": (st.integers(-128, 127), pl.Int8),
    "int16": (st.sampled_from([-32768, -1, 0, 32767]), pl.Int16),
    "uint8": (st.integers(0, 255), pl.UInt8),
    "int64 near its ends": (st.sampled_from([-(2**63), -(2**63) + 3, 0, 2**63 - 1]), pl.Int64),
    "int64 far below zero": (st.integers(-(2**63), -(2**63) + 9), pl.Int64),
    "dates": (st.dates(datetime.date(1900, 1, 1), datetime.date(1900, 3, 1)), pl.Date),
    "moments": (st.sampled_from([datetime.datetime(2020, 1, 1, hour) for hour in range(4)]), pl.Datetime("us")),
    "true or false": (st.booleans(), pl.Boolean),
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    rows = draw(st.integers(1, 12))
    return pl.DataFrame(
        [
            pl.Series(
                f"{kind} {number}", draw(st.lists(KINDS[kind][0], min_size=rows, max_size=rows)), dtype=KINDS[kind][1]
            )
            for number, kind in enumerate(kinds)
        ]
    )


def natural(value: Any) -> Any:
    """Return a key for the natural order: numbers written as text before words, by size."""
    return (
        (not value.isdecimal(), int(value or 0) if value.isdecimal() else 0, value) if isinstance(value, str) else value
    )


WAYS = {"by table": {}, "by hashing": {"_DENSE": 1}, "by compiled passes": {"_LARGE": 0}}


@pytest.mark.parametrize("way", WAYS)
def test_codes_number_the_combinations_present_in_the_order_of_their_values(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way of coding is forced upon small frames and compared with sorting by hand."""
    for name, value in WAYS[way].items():
        monkeypatch.setattr(module, name, value, raising=False)

    @settings(deadline=None, max_examples=examples(80))
    @given(frame=frames())
    def agrees(frame: pl.DataFrame) -> None:
        coded = encode(frame, frame.columns)
        levels = sorted(set(frame.rows()), key=lambda row: [natural(value) for value in row])
        assert coded.levels.rows() == levels
        assert coded.levels.schema == frame.schema
        assert coded.count == len(levels)
        assert coded.codes.dtype == np.uint32
        assert coded.codes.tolist() == [levels.index(row) for row in frame.rows()]
        assert coded.decoded(coded.codes).equals(frame)

    agrees()


@settings(deadline=None, max_examples=examples(60))
@given(frame=frames(), seed=st.integers(0, 99))
def test_codes_do_not_depend_on_the_order_of_the_rows(frame: pl.DataFrame, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(frame.height)
    first, second = encode(frame, frame.columns), encode(frame[order], frame.columns)
    assert first.levels.equals(second.levels)
    assert first.codes[order].tolist() == second.codes.tolist()


def test_no_columns_give_everybody_the_same_code() -> None:
    coded = encode(pl.DataFrame({"a": [5, 6]}), [])
    assert coded.codes.tolist() == [0, 0]
    assert coded.count == 1


def test_many_columns_of_many_values_do_not_overflow() -> None:
    """Four columns of 5,000 values: 6e14 combinations that could occur, 5,000 that do."""
    values = np.random.default_rng(1).permutation(5_000)
    frame = pl.DataFrame({name: np.roll(values, shift) for shift, name in enumerate("abcd")})
    coded = encode(frame, list("abcd"))
    assert coded.count == 5_000
    assert coded.decoded(coded.codes).equals(frame)


def test_a_million_rows_are_coded_like_a_few() -> None:
    """Large files take another way; their codes must be the same."""
    rng = np.random.default_rng(2)
    frame = pl.DataFrame({"a": rng.integers(-40, 40, 1_000_001), "b": rng.integers(0, 900, 1_000_001)})
    coded = encode(frame, ["a", "b"])
    expected = (frame["a"].to_numpy() + 40) * 900 + frame["b"].to_numpy()
    assert np.array_equal(coded.codes, expected)  # all 72,000 combinations occur
    assert coded.levels.height == 72_000


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([2**64 - 1, 2**64 - 9, 2**64 - 1], dtype=pl.UInt64),
        pl.Series([2**63, 5, 2**63], dtype=pl.UInt64),
        pl.Series([7, 2**100, 7], dtype=pl.Int128),
    ],
    ids=["uint64 near its end", "uint64 of any size", "int128"],
)
def test_numbers_beyond_63_bits_are_coded_too(column: pl.Series) -> None:
    coded = encode(column.to_frame("a"), ["a"])
    levels = sorted(set(column))
    assert coded.levels["a"].to_list() == levels
    assert coded.codes.tolist() == [levels.index(value) for value in column]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("others", [[], [1.5, 2.0], [1.5, None]], ids=["alone", "with numbers", "with missing values"])
def test_nan_is_a_value_like_others_also_in_a_column_that_is_known_to_be_sorted(
    way: str, others: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polars joins such columns in another way, in which NaN is not equal to itself."""
    for name, value in WAYS[way].items():
        monkeypatch.setattr(module, name, value, raising=False)
    column = pl.Series([*others, float("nan"), float("nan")], dtype=pl.Float64).sort()
    coded = encode(pl.DataFrame({"a": column, "b": 1}), ["a", "b"])
    assert coded.count == len(others) + 1
    assert coded.codes.tolist() == [*range(len(others) + 1), len(others)]
    assert coded.decoded(coded.codes)["a"].equals(column, null_equal=True)


def test_rows_are_listed_by_code_as_a_stable_sort_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(3).integers(0, 40, 500, dtype=np.uint32)
    monkeypatch.setattr(module, "_LARGE", 1)
    start = np.zeros(42, dtype=np.uint32)
    for part in (rows[:200], rows[200:]):
        module.add_counts(part, start[1:])
    np.cumsum(start, out=start)
    assert start.tolist() == [0, *np.cumsum(np.bincount(rows, minlength=41)).tolist()]
    assert module.listed_by(rows, start).tolist() == np.argsort(rows, kind="stable").tolist()
