"""Which household each person belongs to, by the row of its record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import by_pieces
from stirred.data.columns import pieces_of
from stirred.data.microdata import Microdata

Rows = npt.NDArray[np.uint32]


def household_rows(data: Microdata) -> Rows:
    """Return the row of each person's household, as found by the link."""
    assert data.persons is not None
    rows, begin = np.empty(data.persons.height, dtype=np.uint32), 0
    for piece in pieces_of_rows(data):
        rows[begin : begin + piece.size] = piece
        begin += piece.size
    return rows


def pieces_of_rows(data: Microdata) -> Iterator[Rows]:
    """Yield the same piece by piece: all links of a nation at once were the peak of its memory."""
    assert data.persons is not None
    assert data.hid is not None
    persons, ids = data.persons, data.households[data.hid]
    if ids.dtype.is_integer() and len(ids):
        low, high = int(ids.min()), int(ids.max())  # type: ignore[arg-type]
        if high - low < 8 * len(ids) + 1024 and high < 1 << 63:
            table = _table(ids.to_numpy(), low, high)
            del ids
            yield from (table[link.to_numpy().astype(np.int64) - low] for link in pieces_of(persons, data.hid))
            return
    index = pl.DataFrame({"id": ids}).with_row_index("row")
    rows = pl.DataFrame({"id": persons[data.hid]}).join(index, on="id", how="left", maintain_order="left")["row"]
    yield rows.to_numpy().astype(np.uint32, copy=False)


def _table(ids: npt.NDArray[Any], low: int, high: int) -> Rows:
    """Return the row of each id from ``low`` to ``high``."""
    table = np.zeros(high - low + 1, dtype=np.uint32)

    def enter(piece: slice) -> None:
        table[ids[piece].astype(np.int64) - low] = np.arange(piece.start, piece.stop, dtype=np.uint32)

    by_pieces(enter, ids.size)
    return table
