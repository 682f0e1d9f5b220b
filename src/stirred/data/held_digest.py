"""A checksum of what households hold together with their persons, by which two files can be compared."""

from __future__ import annotations

import hashlib
import io
from typing import Final

import polars as pl

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
