"""Which household each person belongs to, by the row of its record."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any, Final

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


# ---- a checksum of households with their persons, by which two files can be compared -------------------------------

_BLOCK: Final = 1 << 16


def held_digest(households: pl.DataFrame, persons: pl.DataFrame, rows: pl.Series) -> str:
    """Return the SHA-256 of the multiset of households, each with its own values and those of its persons.

    The invariant "households by all held values and all characteristics of their persons" is as large as the file
    itself and is published as the file. Its checksum is a function of that invariant, so publishing it tells nothing
    more; with it the released file can be compared with the confidential one later.

    ``rows`` is the row of each person's household. Neither the order of households, of persons or of columns matters,
    nor whether the files are CSV or Parquet.

    >>> homes, people = pl.DataFrame({"tenure": ["o", "r"]}), pl.DataFrame({"age": [30, 4, 51]})
    >>> first = held_digest(homes, people, pl.Series([0, 0, 1]))
    >>> held_digest(homes.reverse(), people, pl.Series([1, 1, 0])) == first
    True
    >>> held_digest(homes, people, pl.Series([0, 1, 1])) == first
    False
    """
    members = (
        pl.DataFrame({"row": rows.cast(pl.Int64), "person": _written(persons, len(rows))})
        .sort("row", "person")
        .group_by("row", maintain_order=True)
        .agg(pl.len().cast(pl.String).alias("many"), pl.col("person").str.join("\x1e").alias("persons"))
    )
    homes = pl.DataFrame({"home": _written(households, households.height)}).with_row_index("row")
    both = homes.with_columns(pl.col("row").cast(pl.Int64)).join(members, on="row", how="left")
    parts = [pl.col("home"), pl.col("many").fill_null("0"), pl.col("persons").fill_null("")]
    texts = both.select(pl.concat_str(parts, separator="\x1d").sort()).to_series()
    columns = "\x1f".join([*sorted(households.columns), "\x1d", *sorted(persons.columns)])
    digest = hashlib.sha256(columns.encode())
    for begin in range(0, len(texts), _BLOCK):
        digest.update("".join(f"\n{text}" for text in texts[begin : begin + _BLOCK]).encode())
    return digest.hexdigest()


def _written(frame: pl.DataFrame, height: int) -> pl.Series:
    """Return each row as one text, its values as CSV writes them; in memory, for the input is confidential."""
    if not frame.width:
        return pl.Series([""]).new_from_index(0, height)
    # All in quotes: CSV has one way to write an empty text and a missing value.
    written = frame.select(sorted(frame.columns)).write_csv(quote_style="always")
    text = pl.read_csv(io.BytesIO(written.encode()), infer_schema=False)
    return text.select(pl.concat_str(pl.all(), separator="\x1f")).to_series()
