"""The error that the tables of a plan will have, before anything random happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from stirred.data.frames import ROWS_IN_ONE_FILE, scan_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.inference.swap_moments import expected_error
from stirred.mechanisms.protocol import ExpectedError, Mechanism, Table
from stirred.release.tables import every_cell
from stirred.spec.problems import placed

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
    """Say whether there is a closed form, and whether it is worth its time beside a release of this size."""
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
