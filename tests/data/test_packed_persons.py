"""Where the persons of a household begin, kept in few bytes."""

from __future__ import annotations

import numpy as np
import pytest

from stirred.data.packed import PackedStarts


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
