"""Accuracy measures of a released table against the true one. Their results are confidential.

All of them work on the two tables in long form, so their cost is that of the tables: counting ten million
persons takes longer than comparing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stirred.data.natural import sort_naturally
from stirred.data.problems import bad_file, listed

CELL_CLASSES = (0, 1, 5, 10, 100, 1_000, 10_000, 100_000)
"""Lower ends of the classes in which errors are shown, by the true size of a cell or an area."""


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
    return sort_naturally(filled.with_columns((pl.col("released") - pl.col("true")).alias("error")), keys)


def mean_absolute_percentage_error(compared: pl.DataFrame) -> float:
    """Return the mean of ``|error| / true`` over cells that are not empty in truth, as a share.

    >>> mean_absolute_percentage_error(pl.DataFrame({"true": [4, 0], "error": [1, 5]}))
    0.25
    """
    cells = compared.filter(pl.col("true") > 0)
    return float((cells["error"].abs() / cells["true"]).mean() or 0.0)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How far a release is from the truth in one table."""

    cells: int
    mean_absolute_error: float
    mean_absolute_percentage_error: float
    l1: float
    total_variation: float
    root_mean_square_error: float
    within_5_percent: float
    association_true: float | None = None
    association_released: float | None = None


def measure(
    truth: pl.DataFrame, released: pl.DataFrame, *, variables: Sequence[str], level: str | None = None
) -> Accuracy:
    """Return the accuracy of a released table.

    Both tables are long: variables and ``count``; cells that only one of them has count as 0 in the other.
    Tables that are finer than ``variables`` are added up. Percentages are over cells that are not empty in truth.
    ``level`` names the area: association is then between it and the other variables (Cramer's V).

    >>> truth = pl.DataFrame({"county": list("AABB"), "tenure": list("oror"), "count": [30, 10, 10, 30]})
    >>> released = truth.with_columns(pl.Series("count", [26, 14, 14, 26]))
    >>> found = measure(truth, released, variables=["county", "tenure"], level="county")
    >>> found.mean_absolute_error, found.total_variation, found.association_true, found.association_released
    (4.0, 0.1, 0.5, 0.3)
    """
    both = compare_tables(_added_up(truth, variables), _added_up(released, variables), variables)
    facts = both.select(
        pl.len().alias("cells"),
        pl.col("error").abs().mean().alias("mae"),
        pl.col("error").abs().sum().alias("l1"),
        (pl.col("error").cast(pl.Float64) ** 2).mean().sqrt().alias("rmse"),
        pl.col("true").sum().alias("total"),
    ).row(0, named=True)
    full = both.filter(pl.col("true") > 0)
    share = full.select(
        mape=(pl.col("error").abs() / pl.col("true")).mean(),
        within=(pl.col("error").abs() * 20 <= pl.col("true")).mean(),
    ).row(0, named=True)
    others = [name for name in variables if name != level]
    related = level is not None and bool(others)
    return Accuracy(
        cells=facts["cells"],
        mean_absolute_error=float(facts["mae"] or 0.0),
        mean_absolute_percentage_error=float(share["mape"] or 0.0),
        l1=float(facts["l1"]),
        total_variation=float(facts["l1"]) / (2 * facts["total"]) if facts["total"] else 0.0,
        root_mean_square_error=float(facts["rmse"] or 0.0),
        within_5_percent=float(share["within"]) if share["within"] is not None else 1.0,
        association_true=_cramer(both, "true", str(level), others) if related else None,
        association_released=_cramer(both, "released", str(level), others) if related else None,
    )


def cramers_v(table: pl.DataFrame, *, first: Sequence[str], second: Sequence[str]) -> float:
    """Return Cramer's V of a long table between two groups of variables: 0 if independent, 1 if one tells the other.

    >>> cramers_v(pl.DataFrame({"a": [1, 2], "b": [5, 6], "count": [3, 4]}), first=["a"], second=["b"])
    1.0
    """
    _check(table, [*first, *second])
    # Two underscores: variables may well be called c or n.
    cells = table.group_by([*first, *second]).agg(pl.col("count").cast(pl.Float64).sum().alias("__n"))
    rows = cells.group_by(list(first)).agg(pl.col("__n").sum().alias("__r")).filter(pl.col("__r") > 0)
    columns = cells.group_by(list(second)).agg(pl.col("__n").sum().alias("__c")).filter(pl.col("__c") > 0)
    total, smaller = float(cells["__n"].sum()), min(rows.height, columns.height)
    if smaller < 2 or total <= 0:
        return 0.0
    # chi^2 / n = sum of n_ij^2 / (r_i c_j) - 1: empty cells need not be there.
    placed = cells.join(rows, on=list(first), nulls_equal=True).join(columns, on=list(second), nulls_equal=True)
    share = float(placed.select((pl.col("__n") ** 2 / (pl.col("__r") * pl.col("__c"))).sum()).item()) - 1
    return round(math.sqrt(max(share, 0.0) / (smaller - 1)), 12)


def by_cell_size(compared: pl.DataFrame, *, classes: Sequence[int] = CELL_CLASSES) -> pl.DataFrame:
    """Return bias and error in classes of the true cell, from a compared table (``true``, ``released``, ``error``).

    >>> compared = pl.DataFrame({"true": [0, 3, 4, 700], "released": [1, 3, 2, 690], "error": [1, 0, -2, -10]})
    >>> by_cell_size(compared).select("from", "cells", "bias", "mean_absolute_error").rows()
    [(0, 1, 1.0, 1.0), (1, 2, -1.0, 1.0), (100, 1, -10.0, 10.0)]
    """
    return _by_class(compared, pl.col("true"), classes)


def by_area_size(
    compared: pl.DataFrame, *, level: str | Sequence[str], classes: Sequence[int] = CELL_CLASSES
) -> pl.DataFrame:
    """Return bias and error of cells in classes of their area's true total."""
    areas = [level] if isinstance(level, str) else list(level)
    _check(compared, areas)
    return _by_class(compared, pl.col("true").sum().over(areas), classes)


def _by_class(compared: pl.DataFrame, size: pl.Expr, classes: Sequence[int]) -> pl.DataFrame:
    ends = sorted(classes)
    lower: pl.Expr = pl.lit(ends[0])
    for end in ends[1:]:
        lower = pl.when(size >= end).then(pl.lit(end)).otherwise(lower)
    true = pl.col("true")
    return (
        compared.with_columns(lower.cast(pl.Int64).alias("from"))
        .group_by("from")
        .agg(
            pl.len().alias("cells"),
            pl.col("error").mean().alias("bias"),
            pl.col("error").abs().mean().alias("mean_absolute_error"),
            (pl.col("error").cast(pl.Float64) ** 2).mean().sqrt().alias("root_mean_square_error"),
            (pl.col("error").abs() / true).filter(true > 0).mean().alias("mean_absolute_percentage_error"),
            (pl.col("error").abs() * 20 <= true).filter(true > 0).mean().alias("within_5_percent"),
        )
        .sort("from")
    )


def _cramer(both: pl.DataFrame, which: str, level: str, others: Sequence[str]) -> float:
    return cramers_v(both.select(level, *others, pl.col(which).alias("count")), first=[level], second=others)


def _added_up(table: pl.DataFrame, variables: Sequence[str]) -> pl.DataFrame:
    _check(table, [*variables, "count"])
    kind = pl.Float64 if table.schema["count"].is_float() else pl.Int64
    return table.group_by(list(variables)).agg(pl.col("count").cast(kind).sum())


def _check(table: pl.DataFrame, names: Sequence[str]) -> None:
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise bad_file(
            f"there is no column {listed(absent)}", where="table", remedy=f"it has {listed(table.columns)}"
        )  # fmt: skip
