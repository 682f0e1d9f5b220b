"""The order in which people expect values: 2 before 10 and 5-9 before 10-19, also where codes are kept as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

_NUMBER: Final = r"^[+-]?[0-9]+(\.[0-9]+)?$"
# What a step of a plan writes for bands and caps stands where its number does: "under 5", "5-9", "-5 to -1", "85+".
_BAND: Final = r"^(?:under )?([+-]?[0-9]+(?:\.[0-9]+)?)(?:-[0-9.]+|\+| or less| to (?:under )?[+-]?[0-9.]+)?$"
_DIGITS: Final = list("0123456789")
_TEXT: Final = (pl.String, pl.Categorical, pl.Enum)


def sort_naturally(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the rows ordered by columns; of text missing values come first, then numbers by size, then words.

    >>> sort_naturally(pl.DataFrame({"a": ["10", "B", "2", "02", "A", None]}), ["a"])["a"].to_list()
    [None, '02', '2', '10', 'A', 'B']
    >>> sort_naturally(pl.DataFrame({"a": ["10-19", "under 5", "85+", "5-9"]}), ["a"])["a"].to_list()
    ['under 5', '5-9', '10-19', '85+']
    """
    return frame.sort([key for name in by for key in _keys(name, frame.schema[name])]) if by else frame


def sorted_values(values: pl.Series) -> pl.Series:
    """Return values in their natural order.

    >>> sorted_values(pl.Series(["10", "9", "9.5"])).to_list(), sorted_values(pl.Series([10, 9])).to_list()
    (['9', '9.5', '10'], [9, 10])
    """
    if values.dtype not in _TEXT:
        return values.sort()
    return sort_naturally(values.alias("value").to_frame(), ["value"])["value"].alias(values.name)


def ranks(values: pl.Series) -> pl.Series:
    """Return the place of each value in the natural order, from 1 on; a missing value has none.

    >>> ranks(pl.Series(["10", "9", None, "10"])).to_list()
    [2, 1, None, 2]
    """
    if values.dtype not in _TEXT:
        return values.rank("dense").cast(pl.Int64)
    levels = sorted_values(values.cast(pl.String).unique().drop_nulls())
    return values.cast(pl.String).replace_strict(levels, range(1, len(levels) + 1), default=None, return_dtype=pl.Int64)


def _keys(name: str, kind: pl.DataType) -> list[pl.Expr]:
    if kind not in _TEXT:
        return [pl.col(name)]
    text = pl.col(name).cast(pl.String)
    unsigned = text.str.strip_chars_start("+-").str.strip_chars_start("0")
    below = text.str.starts_with("-")
    is_number = text.str.contains(_NUMBER)
    number = text.str.extract(_BAND).str.strip_prefix("+").cast(pl.Float64, strict=False)
    # Numbers that a float cannot tell apart are told apart by their digits: longer is larger, then in the order of
    # text; below zero the other way round.
    length = unsigned.str.find(".", literal=True).fill_null(unsigned.str.len_chars()).cast(pl.Int64)
    digits = pl.when(below).then(unsigned.str.replace_many(_DIGITS, _DIGITS[::-1])).otherwise(unsigned)
    return [
        pl.col(name).is_not_null(),
        number.fill_null(float("inf")),
        pl.when(text.str.starts_with("under ")).then(0).when(is_number).then(1).otherwise(2),
        pl.when(is_number).then(pl.when(below).then(-length).otherwise(length)),
        pl.when(is_number).then(digits),
        text,
    ]
