"""Errors of a released table, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def compare_tables(truth: pl.DataFrame, released: pl.DataFrame, variables: Sequence[str]) -> pl.DataFrame:
    """Return both counts and their difference for every cell of two tables in long form.

    >>> a = pl.DataFrame({"v": ["x", "y"], "count": [3, 1]})
    >>> b = pl.DataFrame({"v": ["x", "z"], "count": [2, 1]})
    >>> compare_tables(a, b, ["v"]).rows()
    [('x', 3, 2, -1), ('y', 1, 0, -1), ('z', 0, 1, 1)]
    """
    keys = list(variables)
    both = truth.rename({"count": "true"}).join(
        released.rename({"count": "released"}), on=keys, how="full", coalesce=True, nulls_equal=True
    )
    filled = both.with_columns(pl.col("true", "released").fill_null(0))
    return filled.with_columns((pl.col("released") - pl.col("true")).alias("error")).sort(keys)


def mean_absolute_percentage_error(compared: pl.DataFrame) -> float:
    """Return the mean of |error| / true over cells that are not empty in truth, as a share.

    >>> mean_absolute_percentage_error(pl.DataFrame({"true": [4, 0], "error": [1, 5]}))
    0.25
    """
    cells = compared.filter(pl.col("true") > 0)
    return float((cells["error"].abs() / cells["true"]).mean() or 0.0)  # type: ignore[arg-type]
