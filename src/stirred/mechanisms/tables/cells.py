"""The cells of a table with noise: every combination of declared values, whether or not a record is in it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.columns import Columns
from stirred.data.natural import sorted_values
from stirred.data.problems import DataError, bad_plan, listed
from stirred.spec.problems import Problem

MOST_CELLS: Final = 1_000_000

Values = Mapping[str, Sequence[Any]]


def values_of_tables(codebook: Codebook, names: Collection[str]) -> dict[str, list[str | None]]:
    """Return the values that a codebook declares for variables of tables: codes, or whole numbers in a range."""
    found: dict[str, list[str | None]] = {}
    for name in dict.fromkeys(each.name for each in codebook.variables if each.name in names):
        variable = codebook.variable(name)
        assert variable is not None
        values: list[str | None] = []
        if variable.type == "code":
            values = [*codebook.codes(variable.name)]
        elif variable.type == "integer" and variable.min is not None and variable.max is not None:
            last = min(variable.max, variable.min + MOST_CELLS)
            values = [str(value) for value in range(variable.min, last + 1)]
        if values:
            found[name] = [*values, None] if variable.missing else values
    return found


def declared_cells(variables: Sequence[str], declared: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Return every combination of the declared values, in their order: which of them occur plays no part.

    >>> declared_cells(["a", "b"], {"a": pl.Series([1, 2]), "b": pl.Series(["x", "y"])}).rows()
    [(1, 'x'), (1, 'y'), (2, 'x'), (2, 'y')]
    """
    cells = math.prod(len(declared[name]) for name in variables)
    if cells > MOST_CELLS:
        raise bad_plan(
            f"the table of {' x '.join(variables)} has {cells:,} cells, and every one of them gets noise",
            where="tables",
            remedy=f"leave a variable out, or make its values coarser: up to {MOST_CELLS:,} cells",
        )
    axes = [declared[name].alias(name).to_frame() for name in variables]
    return reduce(lambda a, b: a.join(b, how="cross", maintain_order="left_right"), axes) if axes else pl.DataFrame()


def declared_columns(
    names: Sequence[str], values: Values, file: Columns | Mapping[str, pl.Series]
) -> dict[str, pl.Series]:
    """Return the declared values of each variable, in the type of its column; all problems at once.

    Cells must not follow from the file: a value that is listed because somebody has it gives that somebody away.
    """
    found: dict[str, pl.Series] = {}
    problems: list[Problem] = []
    for name in names:
        column = file[name]
        kept = _declared(name, values, column)
        if isinstance(kept, Problem):
            problems.append(kept)
            continue
        found[name] = kept
        problems += _undeclared(column, kept)
    if problems:
        raise DataError(problems)
    return found


def _declared(name: str, values: Values, column: pl.Series) -> pl.Series | Problem:
    if column.dtype == pl.Boolean and name not in values:
        return pl.Series(name, [False, True])
    if not values.get(name):
        return Problem(
            what="which values it can take was not declared, and those that occur are confidential",
            where=f'table variable "{name}"',
            remedy="declare its codes, or min and max, in a codebook ([data] codebook), or write values = {...}",
        )
    try:
        own = pl.Series(name, list(values[name]), strict=True).cast(column.dtype, strict=True)
    except (pl.exceptions.PolarsError, TypeError):
        return Problem(
            what=f"the declared values are not of the type of the column ({column.dtype})",
            where=f'table variable "{name}"',
            remedy="declare them as they stand in the file",
        )
    return own.unique(maintain_order=True)


def _undeclared(column: pl.Series, declared: pl.Series) -> Iterator[Problem]:
    present = column.unique().to_frame("value")
    other = present.join(declared.alias("value").to_frame(), on="value", how="anti", nulls_equal=True)["value"]
    if len(other):
        shown = listed([str(value) for value in sorted_values(other).head(5)])
        yield Problem(
            what=f"{len(other):,} of its values were not declared, such as {shown}",
            public=f"{len(other):,} of its values were not declared",
            where=f'table variable "{column.name}"',
            remedy="declare every value that a record can have, or recode them in the file",
        )


def with_numbers(cells: pl.DataFrame, numbers: Mapping[str, Any]) -> pl.DataFrame:
    """Return cells with columns of numbers beside them; without variables there is one cell.

    >>> with_numbers(pl.DataFrame(), {"sum": [3]}).rows()
    [(3,)]
    """
    return pl.DataFrame([*cells.get_columns(), *(pl.Series(name, own) for name, own in numbers.items())])
