"""The public files of a swap: records, persons, strata, and the tables that swapping cannot change, in long form."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stirred.data.codes import counted
from stirred.data.columns import select
from stirred.data.frames import ROWS_IN_ONE_FILE
from stirred.data.household_rows import held_digest, household_rows
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import PERSONS, RECORDS, PublicFile, ReleasedColumns
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.strata import OWN_COLUMNS

if TYPE_CHECKING:
    from stirred.mechanisms.records.engine import Swap


CROSSED: Final = "match x swap"
HELD: Final = "hold"
_PART: Final = 5_000_000  # cells in one part
# Above this the checksum is not made: it sorts all households by all their values.
MOST_PERSONS: Final = 5_000_000
WITH_PERSONS: Final = "hold with persons, sha256 "


def record_files(
    released: ReleasedColumns, data: Microdata | None, *, swap: Sequence[str], others: Collection[str]
) -> list[PublicFile]:
    """Return the files of released records: households, and the persons in them with their household's swap values.

    Columns that the specification does not fix are released where they are among the ``others``.
    """
    homes = tuple(name for name in released.households if name in released.fixed or name in others)
    households = PublicFile(
        name=RECORDS,
        kind="records",
        columns=(*released.link, *homes),
        words="the records; row order carries no information",
        in_parts=data is not None and data.households.height > ROWS_IN_ONE_FILE,
    )
    if not released.link:
        return [households]
    persons = PublicFile(
        name=PERSONS,
        kind="records",
        columns=(*released.link, *(name for name in swap if name in homes), *released.persons),
        words=f"the persons in them; the household id is new and links to `{RECORDS}`",
        in_parts=data is not None and data.persons is not None and data.persons.height > ROWS_IN_ONE_FILE,
    )
    return [households, persons]


def swap_files(
    mechanism: Swap, released: ReleasedColumns, data: Microdata | None = None, plan: SwapPlan | None = None
) -> list[PublicFile]:
    """Return the files of a release of swapped records; what no invariant fixes is in no exact table."""
    exact = [name for name in released.fixed if name in released.households]
    invariants = PublicFile(
        name="invariants",
        kind="side",
        columns=("table", *exact, "count"),
        words="the tables published exactly; column `table` says which",
        in_parts=plan is not None and not plan.perturbed and plan.strata.margins.have.size > ROWS_IN_ONE_FILE,
        make=None if data is None or plan is None else partial(invariant_tables, data, plan),
    )
    own = "match values, records, whether there is anything to swap, rate, expected share moved"
    strata = PublicFile(
        name="strata",
        kind="side",
        columns=(*(name for name in mechanism.match if name in exact), *OWN_COLUMNS, *mechanism.law_columns),
        words="; ".join([own, *(step.columns_in_words for step in mechanism.steps)]),
        make=None if plan is None else lambda: [mechanism.strata_table(plan.strata)],
    )
    return [*record_files(released, data, swap=mechanism.swap, others=mechanism.outside), invariants, strata]


def invariant_tables(data: Microdata, plan: SwapPlan) -> Iterator[pl.DataFrame]:
    """Yield the match x swap table and the hold table; the released file has the same ones, as verified.

    The column ``table`` says which. With persons, the hold table here is that of the household
    variables; the persons themselves are in the released files. One more row has, in the place of its
    name, the checksum of the hold table with the persons, and counts them.
    """
    names = dict.fromkeys((*plan.match, *plan.exact_swap, *plan.exact_hold))
    types = {name: data.households.schema[name] for name in names}
    schema = {"table": pl.String(), **types, "count": pl.Int64()}
    tables = fixed_tables(data, plan)
    if CROSSED in tables:
        yield from _crossed(plan, schema)
    if HELD not in tables:
        return
    levels, held = counted(data.households, list(plan.exact_hold))
    table = _completed(HELD, [*levels.get_columns(), pl.Series("count", held)], schema)
    if data.persons is not None and data.persons.height <= MOST_PERSONS:
        rows, own = pl.Series(household_rows(data)), select(data.persons, list(plan.releases["persons"]))
        digest = WITH_PERSONS + held_digest(data.households.select(plan.exact_hold), own, rows)
        persons = pl.Series("count", [data.persons.height], dtype=pl.Int64)
        table = pl.concat([table, _completed(digest, [persons], schema)])
    yield table


def fixed_tables(data: Microdata, plan: SwapPlan) -> dict[str, Sequence[str]]:
    """Return the tables that a swap keeps, by name, with their variables.

    Without the variable of a response there may be nothing left of a table but the sizes of the strata.
    """
    tables: dict[str, Sequence[str]] = {}
    if plan.exact_swap:
        tables[CROSSED] = [*plan.match, *plan.exact_swap]
    if data.persons is not None or {*plan.exact_hold} - {*plan.match} or not plan.perturbed:
        tables[HELD] = plan.exact_hold
    return tables


def _crossed(plan: SwapPlan, schema: dict[str, pl.DataType]) -> Iterator[pl.DataFrame]:
    """Yield the match x swap table."""
    strata, swap = plan.strata.coded, plan.swap
    margins = plan.counted(swap)
    for begin in range(0, margins.have.size, _PART):
        cells = np.arange(begin, min(begin + _PART, margins.have.size))
        match = strata.decoded((np.searchsorted(margins.begins, cells, side="right") - 1).astype(np.uint32))
        place = swap.decoded(margins.codes[cells])
        columns = [*match.get_columns(), *place.get_columns(), pl.Series("count", margins.have[cells])]
        yield _completed(CROSSED, columns, schema)


def _completed(table: str, columns: list[pl.Series], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Return the cells with the columns of the other table empty."""
    frame = pl.DataFrame(columns).with_columns(pl.lit(table).alias("table"))
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select([pl.col(name).cast(kind) for name, kind in schema.items()])
