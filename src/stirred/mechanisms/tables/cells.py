"""Declared cells of tables, and the persons of a household that count.

Cells are every combination of declared values, whether or not a record is in them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.microdata import Microdata
from stirred.data.missing import MISSING_CODE
from stirred.data.natural import sorted_values
from stirred.data.problems import DataError, bad_plan, listed
from stirred.spec.problems import Problem, setting
from stirred.spec.spelling import crossed

MOST_CELLS: Final = 1_000_000
Values = Mapping[str, Sequence[Any]]


def as_tables(tables: str | Iterable[str | Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the variables of each table; a table may be given as one text, with " x " between its variables.

    >>> as_tables("county"), as_tables(["county", ["county", "tenure"]]), as_tables(["county x tenure"])
    ((('county',),), (('county',), ('county', 'tenure')), (('county', 'tenure'),))
    """
    given: Any = [tables] if isinstance(tables, str) else tables
    entries = [*given] if isinstance(given, Iterable) else [given]
    found = [crossed(each) or [each] if isinstance(each, str) else each for each in entries]
    if not all(isinstance(each, Iterable) and all(isinstance(name, str) for name in each) for each in found):
        what = f"{tables!r:.60} does not name the columns of tables"
        raise bad_plan(what, where="tables", remedy='list the columns of each table: tables=[["county", "tenure"]]')
    return tuple(map(tuple, found))


def at_most(people: pl.DataFrame, household: str, most: int, *, key: str = "") -> pl.DataFrame:
    """Return the persons that count where a household has at most so many, by a column of the household."""
    many = pl.len().over(household) > most
    few, large = people.filter(~many), people.filter(many)
    kept = [row for one in large.partition_by(household) for row in counted_persons(one.rows(), most=most, key=key)]
    return pl.concat([few, pl.DataFrame(kept, schema=people.schema, orient="row")])


def counted_persons(persons: Sequence[tuple[object, ...]], *, most: int, key: str = "") -> list[tuple[object, ...]]:
    """Return the persons of one household that count: a function of the household and the key, whatever their order.

    Which of them count follows from a hash of all of them together: no record is left out for a value of its own.

    >>> len(counted_persons([("a", 1), ("b", 2), ("c", 3)], most=2))
    2
    """
    if len(persons) <= most:
        return [*persons]
    salt = hashlib.blake2b((key + "\n".join(sorted(map(repr, persons)))).encode()).digest()
    return sorted(persons, key=lambda person: hashlib.blake2b(repr(person).encode(), key=salt).digest())[:most]


def values_of_tables(
    codebook: Codebook, names: Collection[str], *, missing_as: str | None
) -> dict[str, list[str | None]]:
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
            found[name] = [*values, MISSING_CODE if missing_as == "code" else None] if variable.missing else values
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


def column_of(data: Microdata, name: str) -> pl.Series:
    """Return a column of the records or, where they do not have it, of their persons."""
    if name in data.households.columns or data.persons is None:
        return data.households[name]
    return data.persons[name]


def declared_values(data: Microdata, names: Sequence[str], values: Values, *, otherwise: str) -> dict[str, pl.Series]:
    """Return the declared values of these variables, in the type of their columns; all problems at once.

    Cells must not follow from the file: a value that is listed because somebody has it identifies that person.
    """
    found: dict[str, pl.Series] = {}
    problems: list[Problem] = []
    for name in names:
        column = column_of(data, name)
        kept = _declared(name, values, column, otherwise)
        if isinstance(kept, Problem):
            problems.append(kept)
            continue
        found[name] = kept
        problems += _undeclared(column, kept)
    if problems:
        raise DataError(problems)
    return found


def _declared(name: str, values: Values, column: pl.Series, otherwise: str) -> pl.Series | Problem:
    if column.dtype == pl.Boolean and name not in values:
        return pl.Series(name, [False, True])
    if not values.get(name):
        return Problem(
            what="which values it can take was not declared, and those that occur are confidential",
            where=f'table variable "{name}"',
            remedy="declare its codes, or min and max, in a codebook: "
            f"{setting('codebook', 'FILE', planned=True)}, {otherwise}",
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
