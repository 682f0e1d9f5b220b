"""The released records, made part by part from the swapped file, and the other public files of a swap.

A national file is never copied as a whole: held columns are gathered and codes decoded for a few million households at
a time. Persons travel with their households. Beside the records stand strata and the tables that swapping cannot
change, in long form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, count, counted
from stirred.data.columns import select
from stirred.data.frames import ROWS_IN_ONE_FILE
from stirred.data.household_rows import held_digest, household_rows
from stirred.data.microdata import Microdata
from stirred.data.packed import Packed, PackedPersons
from stirred.mechanisms.protocol import PERSONS, RECORDS, PublicFile, ReleasedColumns
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.strata import OWN_COLUMNS

Rows = npt.NDArray[np.uint32]
PART: Final = 2_000_000  # households in one part


@dataclass(frozen=True, kw_only=True, eq=False)
class SwappedFile:
    """The input, the swapped codes and the released order: confidential, like the input itself."""

    data: Microdata
    swap: Coded
    swapped: Codes
    order: Rows
    # None where the released tables were made elsewhere.
    held: Packed | None = None
    people: PackedPersons | None = None
    # The files that the released tables are in already, by name, and whether their records are those of the input.
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    agree: Mapping[str, Callable[[], bool]] = field(default_factory=dict)

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """Return how many records have each released code, or one before it."""
        return np.cumsum(count(self.swapped, groups=self.swap.count))

    @classmethod
    def of(
        cls,
        data: Microdata,
        held: Sequence[str],
        *,
        swap: Coded,
        swapped: Codes,
        order: Rows,
        known: Coded | None = None,
    ) -> SwappedFile:
        """Return the swapped file; of the ``held`` columns, those of ``known`` codes are kept as these."""
        people = PackedPersons.of(data) if data.persons is not None else None
        coded = known or Coded(np.zeros(data.households.height, dtype=np.uint32), pl.DataFrame([{}]))
        packed = Packed.of((data.households[name] for name in held if name not in coded.levels.columns), coded=coded)
        return cls(data=data, held=packed, swap=swap, swapped=swapped, order=order, people=people)

    @property
    def tables(self) -> dict[str, Callable[[], Iterable[pl.DataFrame]]]:
        """Return the released tables, each made in parts when it is asked for."""
        found: dict[str, Callable[[], Iterable[pl.DataFrame]]] = {RECORDS: self.households}
        return found if self.data.persons is None else {**found, PERSONS: self.persons}

    def households(self) -> Iterator[pl.DataFrame]:
        """Yield the released households: held columns in the new order, swap columns from their codes.

        With persons, the household id is a new one: the position in the released order, which does
        not depend on the input.
        """
        assert self.held is not None
        for begin in range(0, self.order.size, PART):
            rows = self.order[begin : begin + PART]
            columns = {
                column.name: column
                for frame in (self.held.gather(rows), self.swap.decoded(self._places(begin, rows.size)))
                for column in frame.get_columns()
            }
            released = [columns[name] for name in self.data.households.columns if name in columns]
            if self.people is not None:
                ids = np.arange(begin + 1, begin + rows.size + 1, dtype=np.uint32)
                released.insert(0, pl.Series(self.data.hid, ids))
            yield pl.DataFrame(released)

    def persons(self) -> Iterator[pl.DataFrame]:
        """Yield the released persons: their household's new id and swap values, and their own."""
        assert self.people is not None
        for begin in range(0, self.order.size, PART):
            # Nothing of a part is kept while the next one is made.
            yield self._persons_of(self.people, begin)

    def _persons_of(self, people: PackedPersons, begin: int) -> pl.DataFrame:
        rows = self.order[begin : begin + PART]
        codes, sizes = people.of_households(rows)
        house = np.repeat(np.arange(rows.size, dtype=np.uint32), sizes)
        ids = pl.Series(self.data.hid, house + np.uint32(begin + 1))
        places = self.swap.decoded(self._places(begin, rows.size)[house])
        values = people.values.decoded(codes)
        return pl.DataFrame([ids, *places.get_columns(), *values.get_columns()])

    def _places(self, begin: int, rows: int) -> Codes:
        """Return ``swapped[order]`` for some rows. The order is by released codes, so that these come in runs."""
        first, last = np.searchsorted(self.ends, [begin, begin + rows - 1], side="right")
        edges = np.clip(self.ends[first : last + 1], None, begin + rows)
        return np.repeat(np.arange(first, last + 1, dtype=np.uint32), np.diff(edges, prepend=begin))


# ---- the public files ----------------------------------------------------------------------------------------

CROSSED: Final = "match x swap"
HELD: Final = "hold"
_CELLS: Final = 5_000_000  # cells in one part
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
    mechanism: Any, released: ReleasedColumns, data: Microdata | None = None, plan: SwapPlan | None = None
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
        words="; ".join([own, *(step.words.columns for step in mechanism.steps)]),
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
    for begin in range(0, margins.have.size, _CELLS):
        cells = np.arange(begin, min(begin + _CELLS, margins.have.size))
        match = strata.decoded((np.searchsorted(margins.begins, cells, side="right") - 1).astype(np.uint32))
        place = swap.decoded(margins.codes[cells])
        columns = [*match.get_columns(), *place.get_columns(), pl.Series("count", margins.have[cells])]
        yield _completed(CROSSED, columns, schema)


def _completed(table: str, columns: list[pl.Series], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Return the cells with the columns of the other table empty."""
    frame = pl.DataFrame(columns).with_columns(pl.lit(table).alias("table"))
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select([pl.col(name).cast(kind) for name, kind in schema.items()])
