"""public/invariants.parquet: the tables that swapping cannot change, in long form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.audit.held_digest import MOST_PERSONS, digest_name, held_digest
from stirred.data.codes import Codes, count, encode
from stirred.data.columns import select
from stirred.data.microdata import Microdata
from stirred.mechanisms.swapping.persons import household_rows
from stirred.mechanisms.swapping.swap_plan import SwapPlan

CROSSED: Final = "match x swap"
HELD: Final = "hold"
_PART: Final = 5_000_000  # cells in one part


def invariant_tables(data: Microdata, plan: SwapPlan) -> Iterator[pl.DataFrame]:
    """Yield the match x swap table and the hold table; the released file has the same ones, as verified.

    The column ``table`` says which. With persons, the hold table here is that of the household
    variables; the persons themselves are in the released files. One more row has, in the place of its
    name, the checksum of the hold table with the persons, and counts them.
    """
    schema = _schema(data, plan)
    tables = fixed_tables(data, plan)
    if CROSSED in tables:
        yield from _crossed(plan, schema)
    if HELD not in tables:
        return
    hold = encode(data.households, list(plan.exact_hold))
    held = count(hold.codes, groups=hold.count)
    table = _completed(HELD, [*hold.levels.get_columns(), pl.Series("count", held)], schema)
    digest = _with_persons(data, plan)
    yield table if digest is None else pl.concat([table, _completed(digest, [_persons_count(data)], schema)])


def fixed_tables(data: Microdata, plan: SwapPlan) -> dict[str, Sequence[str]]:
    """Return the tables that a swap keeps, by name, with their variables.

    Without the variable of a response there may be nothing left of a table but the sizes of the strata.
    """
    tables: dict[str, Sequence[str]] = {}
    if plan.exact_swap:
        tables[CROSSED] = [*plan.strata.match, *plan.exact_swap]
    if data.persons is not None or {*plan.exact_hold} - {*plan.universe.match} or plan.perturbed is None:
        tables[HELD] = plan.exact_hold
    return tables


def _crossed(plan: SwapPlan, schema: dict[str, pl.DataType]) -> Iterator[pl.DataFrame]:
    """Yield the match x swap table."""
    strata, swap = plan.strata.coded, plan.swap
    cells, counts = counted_cells(strata.codes, swap.codes)
    for begin in range(0, cells.size, _PART):
        part = cells[begin : begin + _PART]
        match = strata.decoded((part >> np.uint64(32)).astype(np.uint32))
        place = swap.decoded((part & np.uint64(0xFFFFFFFF)).astype(np.uint32))
        columns = [*match.get_columns(), *place.get_columns(), pl.Series("count", counts[begin : begin + _PART])]
        yield _completed(CROSSED, columns, schema)


def _persons_count(data: Microdata) -> pl.Series:
    assert data.persons is not None
    return pl.Series("count", [data.persons.height], dtype=pl.Int64)


def _with_persons(data: Microdata, plan: SwapPlan) -> str | None:
    """Return the name of the hold table with persons, which is its checksum, or None if there is none."""
    if data.persons is None or data.persons.height > MOST_PERSONS:
        return None
    # The plan lists the columns of persons that an explicit hold leaves out.
    own = [name for name in data.person_variables if f"{name} (of persons)" not in plan.dropped]
    rows = pl.Series(household_rows(data))
    return digest_name(held_digest(data.households.select(plan.exact_hold), select(data.persons, own), rows))


def counted_cells(stratum: Codes, swap: Codes) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the cells of the match x swap table, as stratum and swap code in one number, and their counts."""
    cells = sorted_cells(stratum, swap)
    starts = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    return cells[starts], np.diff(starts, append=cells.size)


def sorted_cells(stratum: Codes, swap: Codes) -> npt.NDArray[np.uint64]:
    """Return each record's cell, sorted: two files have the same table exactly if these are equal."""
    cells = stratum.astype(np.uint64)
    cells <<= np.uint64(32)
    cells |= swap
    cells.sort()
    return cells


def _schema(data: Microdata, plan: SwapPlan) -> dict[str, pl.DataType]:
    names = dict.fromkeys((*plan.universe.match, *plan.exact_swap, *plan.exact_hold))
    types = {name: data.households.schema[name] for name in names}
    return {"table": pl.String(), **types, "count": pl.Int64()}


def _completed(table: str, columns: list[pl.Series], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Return the cells with the columns of the other table empty."""
    frame = pl.DataFrame(columns).with_columns(pl.lit(table).alias("table"))
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select([pl.col(name).cast(kind) for name, kind in schema.items()])
