"""Tables published from a release, in long form: variables and count; and the error to expect of each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.frames import ROWS_IN_ONE_FILE, scan_frame
from stirred.data.microdata import Microdata
from stirred.data.natural import sort_naturally
from stirred.data.problems import PlanError, bad_plan, listed
from stirred.data.table_labels import Labels, label_columns, labelled, tells_more
from stirred.inference.swap_moments import expected_error
from stirred.mechanisms.protocol import ExpectedError, Mechanism, Table
from stirred.spec.problems import Problem, placed
from stirred.spec.spelling import meant

_MOST_CELLS = 1_000_000
_LONGEST_NAME = 255  # of a file, on the systems we know

# The codes that a codebook declares for variables, as text.
Declared = Mapping[str, tuple[str, ...]]


def wanted_tables(
    requests: Sequence[tuple[str | None, Sequence[str]]], *, households: Sequence[str], persons: Sequence[str]
) -> list[Table]:
    """Return the tables for (name, variables) requests; all problems at once, by entries of [[tables]]."""
    tables, problems = [], []
    for entry, (name, variables) in enumerate(requests, start=1):
        unknown = [v for v in variables if v not in households and v not in persons]
        where = f"[[tables]] entry {entry}, table '{' x '.join(variables)}'"
        if unknown or not variables or len(set(variables)) < len(variables):
            available = listed([*households, *(p for p in persons if p not in households)])
            hints = "".join(meant(name, [*households, *persons]) for name in unknown)
            problems.append(
                Problem(
                    what=f"no released column {listed(unknown)}" if unknown else "a table needs different variables",
                    where=where,
                    remedy=f"{hints}write such as 'county x tenure', with released columns: {available}",
                )
            )
            continue
        if taken := label_columns(variables):
            problems.append(
                Problem(
                    what=f"{listed(taken)} is the name that a column of labels has in this table",
                    where=where,
                    remedy="rename the column in the file, or leave it out of the table",
                )
            )
            continue
        slug = re.sub(r"[^\w]+", "-", (name or "-x-".join(variables)).lower()).strip("-")
        tables.append(
            Table(
                name=slug or "table", variables=tuple(variables), of_persons=any(v not in households for v in variables)
            )
        )
    names = [table.name for table in tables]
    for name in (n for n in names if len(f"{n}.csv".encode()) > _LONGEST_NAME):
        what = f"its name makes a file name of more than {_LONGEST_NAME} bytes"
        problems.append(
            Problem(what=what, where=f"[[tables]], table '{name[:40]}...'", remedy="give it a shorter name")
        )
    for name in sorted({n for n in names if names.count(n) > 1}):
        remedy = 'leave one out, or write name = "..." under one [[tables]] of the plan'
        problems.append(Problem(what=f"two tables are called '{name}'", where="[[tables]]", remedy=remedy))
    if problems:
        raise PlanError(problems)
    return tables


def with_declared_codes(tables: Sequence[Table], codebook: Codebook, columns: Mapping[str, pl.DataType]) -> list[Table]:
    """Return the tables with the codes of their variables: one that no record has is a cell of 0, not no cell.

    ``columns`` are the types of the file's columns: a code that a column of its type cannot hold makes no cell.
    """
    return [
        replace(
            table,
            declared={
                name: codes for name in table.variables if (codes := _codes_in(codebook.codes(name), columns[name]))
            },
        )
        for table in tables
    ]


def _codes_in(codes: Sequence[str], kind: pl.DataType) -> tuple[str, ...]:
    """Return the codes that a column of this type can hold as they are written: "07" is not the number 7."""
    if {*codes} == {"false", "true"}:
        return tuple(codes) if kind == pl.Boolean else ()
    if kind == pl.String:
        return tuple(codes)
    if not kind.is_integer():
        return ()
    cast = pl.Series(list(codes), dtype=pl.String).cast(kind, strict=False).cast(pl.String)
    return tuple(code for code, own in zip(codes, cast, strict=True) if code == own)


def tabulate(frame: pl.DataFrame, variables: Sequence[str], *, declared: Declared | None = None) -> pl.DataFrame:
    """Return counts by the variables, sorted, empty cells included where the table is small enough.

    >>> tabulate(pl.DataFrame({"a": [1, 1, 2], "b": ["x", "x", "y"]}), ["a", "b"]).rows()
    [(1, 'x', 2), (1, 'y', 0), (2, 'x', 0), (2, 'y', 1)]
    >>> tabulate(pl.DataFrame({"a": [1, 1]}), ["a"], declared={"a": ("1", "2")}).rows()
    [(1, 2), (2, 0)]
    """
    return completed(frame.group_by(list(variables)).len("count"), variables, declared=declared)


def completed(counts: pl.DataFrame, variables: Sequence[str], *, declared: Declared | None = None) -> pl.DataFrame:
    """Add up counts of the same cell, and put in the empty cells where the table is small enough."""
    counts = counts.group_by(list(variables)).agg(pl.col("count").sum().cast(pl.Int64))
    cells = every_cell(counts, variables, declared=declared)
    if cells is not None:
        # Added up and not joined: a join of sorted columns loses NaN (polars 2.1), and grouping does not.
        both = pl.concat([counts, cells.with_columns(count=pl.lit(0, dtype=pl.Int64))])
        counts = both.group_by(list(variables)).agg(pl.col("count").sum())
    return sort_naturally(counts, variables)


def every_cell(
    counts: pl.DataFrame, variables: Sequence[str], *, declared: Declared | None = None
) -> pl.DataFrame | None:
    """Return all combinations of values that occur or are declared, or None if there are too many.

    Where only the declared values make them too many, the combinations of values that occur are left.
    """
    occurring = [counts.select(variable).unique() for variable in variables]
    wider = [_with_declared(level, (declared or {}).get(level.columns[0], ())) for level in occurring]
    for levels in (wider, occurring):
        if math.prod(level.height for level in levels) <= _MOST_CELLS:
            grid = levels[0]
            for level in levels[1:]:
                grid = grid.join(level, how="cross")
            return grid
    return None


def _with_declared(level: pl.DataFrame, codes: Sequence[str]) -> pl.DataFrame:
    """Return the values of one variable with the codes that no record has, in the type of its column."""
    kind = level.to_series().dtype
    if not codes:
        return level
    own = pl.Series(level.columns[0], list(codes), dtype=pl.String)
    own = own == "true" if kind == pl.Boolean else own.cast(kind)
    return pl.concat([level, own.to_frame()]).unique()


def lists_every_cell(table: pl.DataFrame, variables: Sequence[str]) -> bool:
    """Say whether a table has a row for every combination of the values in it."""
    return table.height == math.prod(table[variable].n_unique() for variable in variables)


def in_words(frame: pl.DataFrame, labels: Labels) -> pl.DataFrame:
    """Return a table with labels in the place of its codes, for readers of a report; a code without one stays."""
    return pl.DataFrame(
        labelled(column, labels[column.name]).fill_null(column.cast(pl.String)).alias(column.name)
        if tells_more(labels.get(column.name, {}))
        else column
        for column in frame.get_columns()
    )


# ---- the error to expect -----------------------------------------------------------------------------------

_MOST_STRATA = 5_000  # with a release, the errors of tables with more strata are not worth their time
MARK = "choosing settings by this voids the guarantee; use an earlier census or the synthetic one"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expectation:
    """What to expect of one table, and whether the expectation may guide the choice of settings."""

    table: Table
    error: ExpectedError

    @property
    def mark(self) -> str | None:
        """Return the warning that belongs to what was computed from the confidential file itself."""
        return MARK if self.error.confidential else None


def expectations(
    mechanism: Mechanism,
    tables: Sequence[Table],
    data: Microdata,
    *,
    source: str,
    records: Path | None = None,
    persons: Path | None = None,
) -> list[Expectation]:
    """Return the expected error of every table.

    ``source`` is ``margins`` (from the invariants of this file alone), ``this-data`` or ``other-data``; the
    last needs the file ``records``, with ``persons`` for tables of persons.
    """
    if mechanism.no_closed_form:
        raise bad_plan(
            mechanism.no_closed_form, where="--expect-from", remedy="leave it out, or plan another member of the family"
        )
    if source == "other-data":
        assert records is not None
        homes = scan_frame(records, given=True)
        people = None if persons is None else scan_frame(persons, given=True)
    else:
        homes, people = data.households.lazy(), data.lazy_persons
    found = []
    for table in tables:
        if table.of_persons and people is None:
            remedy = "name the person file that belongs to it"
            raise bad_plan(f"the table of {table.title} counts persons", where="--expect-from", remedy=remedy)
        with placed(f"--expect-from {records or source}"):
            error = expected_error(
                homes,
                mechanism,
                variables=table.variables,
                source=source,
                persons=people if table.of_persons else None,
                key=data.hid,
            )
        found.append(Expectation(table=table, error=_over_every_cell(error, table)))
    return found


def within_reach(mechanism: Mechanism, data: Microdata) -> bool:
    """Say whether there is a closed form, and whether it is worth its time with a release of this size."""
    law = mechanism.cell_law
    if mechanism.no_closed_form or data.households.height > ROWS_IN_ONE_FILE:
        return False
    if law is None or law.redrawn is None or not law.match:
        return True
    return data.households.select(list(law.match)).n_unique() <= _MOST_STRATA  # each has moments of its own


def _over_every_cell(error: ExpectedError, table: Table) -> ExpectedError:
    """Return the error over the cells of the published table: those that no record can be in are 0 with certainty."""
    variables = list(table.variables)
    cells = every_cell(error.table, variables, declared=table.declared)
    if cells is None:
        return error
    empty = cells.join(error.table, on=variables, how="anti", nulls_equal=True)
    zeros = empty.with_columns(
        pl.lit(0).cast(kind).alias(name) for name, kind in error.table.schema.items() if name not in variables
    )
    return replace(error, table=pl.concat([error.table, zeros]).sort(variables))
