"""Packed columns, against polars' own look-up of rows."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stirred.data import packed as module
from stirred.data.codes import PIECE, encode
from stirred.data.packed import Packed, PackedStarts
from tests.depth import examples

KINDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "text": (st.sampled_from(["", "a", "01", "1", "é", "long " * 9]), pl.String),
    "text with gaps": (st.sampled_from([None, "", "a"]), pl.String),
    "int8": (st.sampled_from([-128, 0, 127]), pl.Int8),
    "int16": (st.sampled_from([-32768, -1, 0, 32767]), pl.Int16),
    "int32 over its whole range": (st.sampled_from([-(2**31), -1, 0, 2**31 - 1]), pl.Int32),
    "uint8": (st.integers(0, 255), pl.UInt8),
    "uint32 over its whole range": (st.sampled_from([0, 1, 2**32 - 1]), pl.UInt32),
    "int64 of 32 bits": (st.sampled_from([-(2**63), -(2**63) + 2**32 - 1]), pl.Int64),
    "int64 of 33 bits": (st.sampled_from([-5, 2**32 - 5]), pl.Int64),
    "uint64 near its end": (st.sampled_from([2**64 - 1, 2**64 - 2]), pl.UInt64),
    "one value": (st.just(7), pl.Int16),
    "int with gaps": (st.sampled_from([None, 1, 9]), pl.Int32),
    "fractions": (st.sampled_from([0.5, -1e300, float("inf"), None]), pl.Float64),
    "dates": (st.dates(datetime.date(1900, 1, 1), datetime.date(1900, 3, 1)), pl.Date),
    "moments": (st.sampled_from([datetime.datetime(2020, 1, 1, hour) for hour in range(4)]), pl.Datetime("us", "UTC")),
    "true or false": (st.booleans(), pl.Boolean),
    "classes": (st.sampled_from(["low", "high"]), pl.Enum(["low", "high", "none"])),
    "categories": (st.sampled_from(["low", "high"]), pl.Categorical),
}
WAYS = {"by numpy": {}, "by compiled passes": {"_LARGE": 0}, "without numbering": {"_FEW": 0}}


@st.composite
def frames(draw: st.DrawFn) -> tuple[pl.DataFrame, list[int]]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=8))
    rows = draw(st.integers(1, 12))
    columns = []
    for number, kind in enumerate(kinds):
        values, dtype = KINDS[kind]
        column = draw(st.lists(values, min_size=rows, max_size=rows))
        columns.append(pl.Series(f"{kind} {number}", column, dtype=dtype))
    return pl.DataFrame(columns), draw(st.lists(st.integers(0, rows - 1), max_size=20))


@pytest.mark.parametrize("way", WAYS)
def test_packed_columns_come_back_as_they_were_in_any_order(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(module, name, value)

    @settings(deadline=None, max_examples=examples(150))
    @given(case=frames(), already=st.integers(0, 2))
    def agrees(case: tuple[pl.DataFrame, list[int]], already: int) -> None:
        frame, rows = case
        coded = encode(frame, frame.columns[:already])
        packed = Packed.of(frame.get_columns()[already:], coded=coded)
        found = packed.gather(np.array(rows, dtype=np.uint32)).select(frame.columns)
        assert_frame_equal(found, frame[rows], categorical_as_str=False)

    agrees()


def test_small_codes_of_many_columns_share_a_word() -> None:
    columns = [pl.Series(f"column {n}", [0, 5, 15]) for n in range(8)]
    assert Packed.of(columns).words.shape == (3, 1)
    assert Packed.of([*columns, pl.Series("another", [1, 2, 2])]).words.shape == (3, 2)


def test_many_pieces_on_all_cores_agree_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows = 3 * PIECE + 17
    frame = pl.DataFrame({f"column {n}": rng.integers(-(1 << n), 1 << n, rows) for n in range(0, 30, 3)})
    order = rng.permutation(rows).astype(np.uint32)
    for large in (0, rows + 1):
        monkeypatch.setattr(module, "_LARGE", large)
        assert Packed.of(frame.get_columns()).gather(order).equals(frame[order])


@pytest.mark.parametrize(
    ("largest", "households", "kind"), [(0, 1, "uint8"), (0, 700, "uint8"), (20, 700, "uint16"), (900, 513, "uint32")]
)
def test_starts_are_read_back_whatever_bytes_they_take(largest: int, households: int, kind: str) -> None:
    sizes = np.random.default_rng(7).integers(0, largest, households, endpoint=True)
    numbers = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
    starts = PackedStarts.of(numbers)
    assert starts.beyond.dtype == kind
    assert np.array_equal(starts[np.arange(households + 1, dtype=np.uint32)], numbers)


def test_a_long_file_is_read_back_piece_by_piece() -> None:
    numbers = np.cumsum(np.random.default_rng(8).integers(0, 6, 3_000_000)).astype(np.uint32)
    starts = PackedStarts.of(numbers)
    assert starts.beyond.dtype == np.uint16
    assert np.array_equal(starts[np.arange(numbers.size, dtype=np.uint32)], numbers)
