"""Whole numbers that a program wrote with a decimal point: 1.0 is the code 1.

pandas turns a column of integers with one missing value into floats, and writes ``1.0`` where the file had ``1``.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final

import polars as pl

# What people write for "no value". NA is also Namibia, and "-" or "." may be a code: these are asked about.
MISSING_LIKE: Final = ("NA", "N/A", "#N/A", "NaN", "null", "NULL", "None", "nan", "n/a", "na", ".", "-", "?")
_WHOLE: Final = r"^[+-]?[0-9]+(\.0*)?$"
_POINT: Final = r"^([+-]?[0-9]+)\.0*$"
_COMMA: Final = r"^\s*[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?\s*$"
_COMMAS: Final = r"^-?[0-9]+(,[0-9]+)?$"
_PLAIN_WHOLE: Final = r"^(0|-?[1-9][0-9]{0,17})$"
_PLAIN_DECIMAL: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
# Rows that show at a glance that a column holds something else, of texts by Python before any expression.
_FIRST_ROWS: Final = 1_000
_GLANCE: Final = 20


def as_whole(column: pl.Series) -> pl.Series:
    """Return a column of whole numbers without decimal points: floats as integers, text without its ``.0``.

    Any other column is returned as it is. Not-a-number beside whole numbers is a missing integer. Floats that are too
    large to be exact stay floats: they may stand for another number.

    >>> as_whole(pl.Series([1.0, None, float("nan")])).to_list(), as_whole(pl.Series([1.0, 2.5])).to_list()
    ([1, None, None], [1.0, 2.5])
    >>> as_whole(pl.Series(["1.0", "10.", "NA"])).to_list(), as_whole(pl.Series(["1.0", "1.1"])).to_list()
    (['1', '10', 'NA'], ['1.0', '1.1'])
    """
    if column.dtype == pl.String:
        return _text(column)
    if column.dtype.is_decimal():
        return _decimals(column)
    return _floats(column) if column.dtype.is_float() else column


def as_numbers(column: pl.Series) -> pl.Series:
    """Return a column of texts as one of numbers, if every text is exactly how its number is written.

    A code such as 01 or 10.10 loses nothing: it makes the whole column stay text.

    >>> as_numbers(pl.Series(["1", None, "-20"])).dtype, as_numbers(pl.Series(["0.5", "12"])).dtype
    (Int64, Float64)
    >>> as_numbers(pl.Series(["01", "2"])).dtype, as_numbers(pl.Series(["10.1", "10.10"])).dtype
    (String, String)
    """
    if column.dtype != pl.String or column.null_count() == len(column) or not _at_a_glance(column, _PLAIN_DECIMAL):
        return column
    if bool(column.str.contains(_PLAIN_WHOLE).all()):
        return column.cast(pl.Int64)
    texts = column.drop_nulls().unique()
    if not bool(texts.str.contains(_PLAIN_DECIMAL).all()):
        return column
    again = texts.cast(pl.Float64).cast(pl.String).str.replace(r"\.0$", "")
    return column.cast(pl.Float64) if bool((again == texts).all()) else column


def without_point(code: str) -> str:
    """Return a code as :func:`as_whole` writes it.

    >>> without_point("1.0"), without_point("01"), without_point("1.5")
    ('1', '01', '1.5')
    """
    head, point, tail = code.partition(".")
    return head if point and not tail.strip("0") and head.lstrip("+-").isdecimal() else code


def decimal_commas(texts: pl.Series) -> str:
    """Return what to do about numbers with decimal commas, if texts have some; otherwise nothing.

    >>> decimal_commas(pl.Series(["1,5", "x"]))[:27], decimal_commas(pl.Series(["x"]))
    ('this file has decimal comma', '')
    """
    if texts.dtype != pl.String or not texts.str.contains(_COMMA).any():
        return ""
    return (
        "this file has decimal commas: declare decimal = ',' under [data] of a plan or [codebook] of a codebook, or "
        "write a point in the file"
    )


def comma_columns(frame: pl.DataFrame) -> list[str]:
    """Return the columns of texts that are all numbers, some of them with a decimal comma.

    >>> comma_columns(pl.DataFrame({"paid": ["1,5", "2", None], "name": ["a,5", "b", "c"], "whole": ["1", "2", "3"]}))
    ['paid']
    """
    texts = [name for name in frame.columns if frame[name].dtype == pl.String and _at_a_glance(frame[name], _COMMAS)]
    return [n for n in texts if frame[n].str.contains(_COMMA).any() and frame[n].str.contains(_COMMAS).all()]


def with_points(column: pl.Expr) -> pl.Expr:
    """Return texts with every decimal comma as a point: each value by itself.

    >>> pl.Series("x", ["1,5", "-,25", "a,b"]).to_frame().select(with_points(pl.col("x"))).to_series().to_list()
    ['1.5', '-.25', 'a,b']
    """
    return pl.when(column.str.contains(_COMMA)).then(column.str.replace(",", ".", literal=True)).otherwise(column)


def _floats(column: pl.Series) -> pl.Series:
    known = column.fill_nan(None).drop_nulls()
    # From here on neighbouring whole numbers are the same float.
    inexact = 2**24 if column.dtype == pl.Float32 else 2**53
    if not len(known) or not bool(((known == known.floor()) & (known.abs() < inexact)).all()):
        return column
    return column.fill_nan(None).cast(pl.Int64)


def _decimals(column: pl.Series) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    if not len(whole.drop_nulls()) or whole.null_count() != column.null_count():
        return column
    return whole if bool((whole.cast(pl.Decimal(38, 6), strict=False) == column).fill_null(True).all()) else column


def _text(column: pl.Series) -> pl.Series:
    if not _at_a_glance(column, _WHOLE, besides={*MISSING_LIKE, ""}):
        return column
    if not _are_whole(column.head(_FIRST_ROWS)) or not column.str.contains(_POINT).any():
        return column
    return column.str.replace(_POINT, "$1") if _are_whole(column) else column


def _at_a_glance(column: pl.Series, pattern: str, *, besides: AbstractSet[str] = frozenset()) -> bool:
    """Say whether the first texts may all be of a pattern; most columns of a wide file show at once that they are not.

    >>> _at_a_glance(pl.Series(["1", None]), _WHOLE), _at_a_glance(pl.Series(["1", "a"]), _WHOLE)
    (True, False)
    """
    first = (text for text in column.head(_GLANCE).to_list() if text is not None)
    return all(re.search(pattern, text) or text.strip() in besides for text in first)


def _are_whole(text: pl.Series) -> bool:
    """Say whether all values are whole numbers, with or without a point, but for those that may mean missing."""
    return bool((text.str.contains(_WHOLE) | text.str.strip_chars().is_in([*MISSING_LIKE, ""])).all())
