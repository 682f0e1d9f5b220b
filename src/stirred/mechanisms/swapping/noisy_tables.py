"""Tables of a swapped file with integer noise on every cell that can exist, whether or not a record is in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.problems import DataError, bad_plan, listed
from stirred.randomness.entropy import Entropy
from stirred.randomness.geometric import two_sided_geometric
from stirred.spec.problems import Problem

MOST_CELLS: Final = 1_000_000
# Columns of our own beside the variables. A variable called noise would be published with the noise as its values.
TAKEN_NAMES: Final = ("swapped", "noise", "count", "table")

Values = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTable:
    """One table: ``released`` has the variables and the count with noise; ``drawn`` has what went into it.

    ``drawn`` is confidential: the counts of the swapped file, and the noise.
    """

    released: pl.DataFrame
    drawn: pl.DataFrame


def noisy_table(cells: pl.DataFrame, swapped: pl.DataFrame, *, decay: Fraction, entropy: Entropy) -> NoisyTable:
    """Count the swapped records in each of the cells, and add two-sided geometric noise of this decay to each count.

    Nothing is rounded, cut at 0 or made to add up: what is published is the count plus the noise.
    """
    names = cells.columns
    assert not {*names} & {*TAKEN_NAMES}, "a variable has the name of a column that is confidential"
    counted = swapped.select(names).group_by(names).agg(pl.len().cast(pl.Int64).alias("swapped"))
    drawn = cells.join(counted, on=names, how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.col("swapped").fill_null(0)
    )
    noise = two_sided_geometric(decay, count=cells.height, entropy=entropy, purpose="noise")
    drawn = drawn.with_columns(pl.Series("noise", noise))
    released = drawn.select(*names, count=pl.col("swapped") + pl.col("noise"))
    return NoisyTable(released=released, drawn=drawn)


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
    grid = declared[variables[0]].alias(variables[0]).to_frame()
    for name in variables[1:]:
        grid = grid.join(declared[name].alias(name).to_frame(), how="cross", maintain_order="left_right")
    return grid


def declared_columns(names: Sequence[str], values: Values, households: pl.DataFrame) -> dict[str, pl.Series]:
    """Return the declared values of each variable, in the type of its column; all problems at once.

    Cells must not follow from the file: a value that is listed because somebody has it gives that somebody away.
    """
    found: dict[str, pl.Series] = {}
    problems: list[Problem] = []
    for name in names:
        column = households[name]
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
            remedy="declare its codes, or min and max, in a codebook ([data] codebook); in Python: values={...}",
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
        shown = listed([str(value) for value in other.sort().head(5)])
        yield Problem(
            what=f"{len(other):,} of its values were not declared, such as {shown}",
            where=f'table variable "{column.name}"',
            remedy="declare every value that a record can have, or recode them in the file",
        )
