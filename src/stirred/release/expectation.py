"""The error that the tables of a plan will have, before anything random happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from stirred.data.columns import ParquetColumns
from stirred.data.frames import ROWS_IN_ONE_FILE, scan_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.swapping.moments.class_laws import WITH_MOMENTS
from stirred.mechanisms.swapping.swap import Swap
from stirred.release.tables import Table
from stirred.spec.problems import placed
from stirred.utility.expected import ExpectedError, expected_error

_MOST_STRATA: Final = 5_000

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
    mechanism: Swap,
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
    if mechanism.stratum_law not in WITH_MOMENTS:
        raise bad_plan(
            f"the error of the {mechanism.stratum_law} swap has no closed form",
            where="--expect-from",
            remedy="leave it out, or plan another member of the family",
        )
    if source == "other-data":
        assert records is not None
        homes, people = scan_frame(records), None if persons is None else scan_frame(persons)
    else:
        homes, people = data.households.lazy(), _lazy(data)
    found = []
    for table in tables:
        if table.of_persons and people is None:
            raise bad_plan(
                f"the table of {table.title} counts persons",
                where="--expect-persons",
                remedy="name the person file that belongs to it",
            )
        with placed(f"--expect-from {records or source}"):
            error = expected_error(
                homes,
                mechanism,
                variables=table.variables,
                source=source,
                persons=people if table.of_persons else None,
                key=data.hid,
            )
        found.append(Expectation(table=table, error=error))
    return found


def within_reach(mechanism: Swap, data: Microdata) -> bool:
    """Say whether there is a closed form, and whether it is worth its time beside a release of this size."""
    if mechanism.stratum_law not in WITH_MOMENTS or data.households.height > ROWS_IN_ONE_FILE:
        return False
    # Every stratum of the conditioned swap has moments of its own.
    match = list(mechanism.match)
    return (
        mechanism.stratum_law != "conditioned" or not match or data.households.select(match).n_unique() <= _MOST_STRATA
    )


def _lazy(data: Microdata) -> pl.LazyFrame | None:
    persons = data.persons
    if isinstance(persons, ParquetColumns):
        return persons.scan
    assert persons is None or isinstance(persons, pl.DataFrame)
    return None if persons is None else persons.lazy()
