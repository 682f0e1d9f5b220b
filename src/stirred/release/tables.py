"""Tables published from a release, in long form: variables and count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.problems import PlanError, listed
from stirred.data.spelling import meant
from stirred.spec.problems import Problem
from stirred.utility.wishes import crossed

_MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table to publish: its name, its variables, and whether it counts persons."""

    name: str
    variables: tuple[str, ...]
    of_persons: bool

    @property
    def title(self) -> str:
        """Return the table's variables in words."""
        return " x ".join(self.variables)


def wanted_tables(
    requests: Sequence[tuple[str | None, Sequence[str]]], *, households: Sequence[str], persons: Sequence[str]
) -> list[Table]:
    """Return the tables for (name, variables) requests; all problems at once."""
    tables, problems = [], []
    for name, variables in requests:
        unknown = [v for v in variables if v not in households and v not in persons]
        title = " x ".join(variables)
        if unknown or not variables or len(set(variables)) < len(variables):
            available = listed([*households, *(p for p in persons if p not in households)])
            hints = "".join(meant(name, [*households, *persons]) for name in unknown)
            problems.append(
                Problem(
                    what=f"no released column {listed(unknown)}" if unknown else "a table needs different variables",
                    where=f"table '{title}'",
                    remedy=f"{hints}write such as 'county x tenure', with released columns: {available}",
                )
            )
            continue
        slug = re.sub(r"[^\w]+", "-", (name or "-x-".join(variables)).lower()).strip("-")
        tables.append(
            Table(
                name=slug or "table",
                variables=tuple(variables),
                of_persons=any(v not in households for v in variables),
            )
        )
    names = [table.name for table in tables]
    for name in sorted({n for n in names if names.count(n) > 1}):
        problems.append(Problem(what=f"two tables are called '{name}'", where="tables", remedy="name them apart"))
    if problems:
        raise PlanError(problems)
    return tables


def tabulate(frame: pl.DataFrame, variables: Sequence[str]) -> pl.DataFrame:
    """Return counts by the variables, sorted, empty cells included where the table is small enough.

    >>> tabulate(pl.DataFrame({"a": [1, 1, 2], "b": ["x", "x", "y"]}), ["a", "b"]).rows()
    [(1, 'x', 2), (1, 'y', 0), (2, 'x', 0), (2, 'y', 1)]
    """
    return completed(frame.group_by(list(variables)).len("count"), variables)


def completed(counts: pl.DataFrame, variables: Sequence[str]) -> pl.DataFrame:
    """Add up counts of the same cell, and put in the empty cells where the table is small enough."""
    counts = counts.group_by(list(variables)).agg(pl.col("count").sum().cast(pl.Int64))
    levels = [counts.select(variable).unique() for variable in variables]
    cells = 1
    for level in levels:
        cells *= level.height
    if cells <= _MOST_CELLS:
        grid = levels[0]
        for level in levels[1:]:
            grid = grid.join(level, how="cross")
        # Added up and not joined: a join of sorted columns loses NaN (polars 2.1), and grouping does not.
        both = pl.concat([counts, grid.with_columns(count=pl.lit(0, dtype=pl.Int64))])
        counts = both.group_by(list(variables)).agg(pl.col("count").sum())
    return counts.sort(list(variables))


def parse_table(text: str) -> tuple[None, list[str]]:
    """Read a table as custodians write it: ``county x tenure``."""
    return None, crossed(text)


def labelled(frame: pl.DataFrame, codebook: Codebook) -> pl.DataFrame:
    """Return a table with the labels of its codes, for readers; the published table keeps the codes."""
    columns = []
    for column in frame.get_columns():
        labels = codebook.labels(column.name)
        columns.append(column.cast(pl.String).replace(labels).alias(column.name) if labels else column)
    return pl.DataFrame(columns)
