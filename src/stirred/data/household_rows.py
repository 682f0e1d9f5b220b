"""Which household each person belongs to, by the row of its record."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import by_pieces
from stirred.data.microdata import Microdata

Rows = npt.NDArray[np.uint32]


def household_rows(data: Microdata) -> Rows:
    """Return the row of each person's household, as found by the link."""
    assert data.persons is not None
    assert data.hid is not None
    ids, link = data.households[data.hid], data.persons[data.hid]
    if ids.dtype.is_integer() and len(ids):
        low, high = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
        if high - low < 8 * len(ids) + 1024 and high < 1 << 63:
            return _looked_up(ids.to_numpy(), link.to_numpy(), low, high)
    index = pl.DataFrame({"id": ids}).with_row_index("row")
    rows = pl.DataFrame({"id": link}).join(index, on="id", how="left", maintain_order="left")["row"]
    return rows.to_numpy().astype(np.uint32, copy=False)


def _looked_up(ids: npt.NDArray[Any], link: npt.NDArray[Any], low: int, high: int) -> Rows:
    """Return the row of each link among the ids, which go from ``low`` to ``high``.

    Piece by piece: wide copies of hundreds of millions of links were the peak of a national run's memory.
    """
    table = np.zeros(high - low + 1, dtype=np.uint32)
    rows = np.empty(link.size, dtype=np.uint32)

    def enter(piece: slice) -> None:
        table[ids[piece].astype(np.int64) - low] = np.arange(piece.start, piece.stop, dtype=np.uint32)

    def find(piece: slice) -> None:
        rows[piece] = table[link[piece].astype(np.int64) - low]

    by_pieces(enter, ids.size)
    by_pieces(find, link.size)
    return rows
