"""What SafeTab-P and SafeTab-H share: groups of records by region and iteration, and what replacing a record costs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from io import BytesIO
from itertools import combinations_with_replacement
from typing import Any, Final

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, bad_plan, counted, listed
from stirred.mechanisms.protocol import Names, PublicTable, TableFile
from stirred.mechanisms.tables.query import Query
from stirred.mechanisms.tables.safetab.groups import CellLevel, Counter, GroupRecords, Ints, Iterations, kinds_of
from stirred.mechanisms.tables.tabulator import (
    BudgetPart,
    Region,
    Tabulator,
    TabulatorSettings,
    missing_columns,
    with_intervals,
)
from stirred.spec.problems import Problem

PACKAGE: Final = "stirred.mechanisms.tables.safetab"
GROUP: Final = ("region_id", "region_type", "iteration_code")
SYNTHETIC: Final = PublicTable("synthetic")
RACES: Final = tuple(f"race{n}" for n in range(1, 9))


class SafeTabSettings(TabulatorSettings):
    """Public tables, and the columns of the file."""

    blocks: TableFile = Field(
        description="Public table of blocks: one row each, its regions in further columns; empty where none.",
        json_schema_extra={"example": "blocks.csv"},
    )
    iterations: TableFile = Field(
        default=SYNTHETIC,
        validate_default=True,
        description="Public table of race and ethnicity iterations; synthetic is a small invented set.",
        json_schema_extra={"example": "iterations.csv"},
    )
    block: str = Field(default="block", description="Column of the block, in the file and in the table of blocks.")
    races: Names = Field(default=[*RACES], description="Columns of the race codes; empty where there are fewer.")
    ethnicity: str = Field(default="ethnicity", description="Column of the ethnicity code.")


@lru_cache(maxsize=4)
def _shipped(name: str) -> pl.DataFrame:
    place = resources.files(PACKAGE).joinpath(f"{name}.csv")
    if not name.isalnum() or not place.is_file():
        remedy = "write synthetic, or name a file with its ending"
        raise bad_plan(f"there is no table called {name!r}", where="iterations", remedy=remedy)
    return pl.read_csv(BytesIO(place.read_bytes()), infer_schema=False)


class SafeTab(Tabulator):
    """Counts of population groups; a record is in at most ``stability`` groups of one region type and level."""

    def check_settings(self) -> None:
        Tabulator.check_settings(self)
        known = {region.type for region in self.regions.values()}
        if unknown := sorted({part.region for part in self.parts} - known):
            remedy = f"there are {listed(sorted(known))}"
            raise bad_plan(f"no region type {listed(unknown)}", where="budget parts", remedy=remedy)
        if not self.parts:
            raise bad_plan("every rho is 0", where="budget parts", remedy="give at least one part a rho above 0")

    @property
    def parts(self) -> list[BudgetPart]:
        return [part for part in self.spent.parts if part.rho > 0]

    @property
    def regions(self) -> Mapping[str, Region]:
        return {region.type: region for region in self.spent.regions}

    @property
    @abstractmethod
    def spent(self) -> Any:
        """Return the budget as it was checked."""

    @property
    def groups(self) -> Iterations:
        """Return the iterations."""
        table = self.iterations
        if table.frame is None and "." in table.file:  # a bundle keeps its checksum alone
            raise bad_plan("the table was not read", where=f"iterations {table.file}", remedy="read the plan again")
        frame = _shipped(table.file) if table.frame is None else table.frame
        return Iterations.of(frame, where=f"iterations {table.file}")

    @property
    def stability(self) -> int:
        return self.groups.stability(len(self.races))

    @property
    def rho(self) -> Fraction:
        return sum((part.rho for part in self.parts), Fraction(0))

    @property
    def replaced(self) -> tuple[Fraction, str]:
        """Return twice rho: the old record's rows and the new one's are at most s each (Lemmas 1 and 2)."""
        return 2 * self.rho, "2 x rho, one record replaced: it leaves at most s groups and enters at most s"

    def premises(self, plan: Any) -> Mapping[str, str]:
        return {"blocks": self.blocks.sha256, "iterations": self.iterations.sha256}

    # ---- the file

    def block_table(self) -> pl.DataFrame:
        """Return the blocks with their regions, each once."""
        frame = self.blocks.frame
        if frame is None:
            raise bad_plan("the table of blocks was not read", where="blocks", remedy="name a file, with its ending")
        needed = [self.block, *(region.column for region in self.regions.values() if region.column)]
        if problems := missing_columns(
            frame, needed, where=f"blocks {self.blocks.file}", settings={"block": [self.block]}
        ):
            raise DataError(problems)
        if frame[self.block].is_duplicated().any() or frame[self.block].null_count():
            where = f'blocks {self.blocks.file} "{self.block}"'
            raise DataError([Problem(what="a block is missing or stands twice", where=where, remedy="give it one row")])
        named: pl.DataFrame = frame.with_columns(pl.col(n).replace("", None) for n in needed[1:])
        return named

    @property
    def used(self) -> list[str]:
        return [self.block, *self.races, self.ethnicity, *self._values]

    def problems(self, data: Microdata) -> Iterator[Problem]:
        frame, where = data.households, data.household_source
        known_blocks, groups = self.block_table(), self.groups.table
        if without := sorted({part.level for part in self.parts} - {*groups["level"]}):
            where_it_is, remedy = f"iterations {self.iterations.file}", "add iterations, or give the level no rho"
            yield Problem(what=f"no iteration has level {without[0]}", where=where_it_is, remedy=remedy)
        own = [key for key in ("block", "ethnicity", "sex", "age") if key in self.settings_model.model_fields]
        named: dict[str, Sequence[str]] = {**{key: [getattr(self, key)] for key in own}, "races": self.races}
        if problems := missing_columns(frame, self.used, where=where, settings=named):
            yield from problems
            return
        known = {self.block: known_blocks[self.block], **self._values}
        for name, values in known.items():
            column = frame[name].cast(pl.String)
            if rows := (~column.is_in(values.implode()).fill_null(value=False)).arg_true().to_list():
                yield Problem(
                    what=f"a value is missing or was not declared ({counted(rows)})",
                    public="a value is missing or was not declared",
                    where=f'{where} "{name}"',
                    remedy="correct the file, or declare the value in the table of blocks or in the budget",
                )
        codes = groups["codes"].explode()
        coded = [pl.col(name).cast(pl.String).is_in(codes.implode()).any() for name in (*self.races, self.ethnicity)]
        if not frame.select(pl.any_horizontal(coded)).item():
            remedy = "write the codes as the table of iterations has them"
            what = "no record has a code of the iterations, so that every table would be noise alone"
            yield Problem(what=what, where=f"{where} {listed([*self.races, self.ethnicity])}", remedy=remedy)

    @property
    @abstractmethod
    def _values(self) -> Mapping[str, pl.Series]:
        """Return the declared values of the columns that tables are about."""

    @abstractmethod
    def _fine(self, frame: pl.DataFrame) -> Mapping[str, Ints]:
        """Return the fine value of each record, by table."""

    def records(self, frame: pl.DataFrame) -> GroupRecords:
        """Return the records as they are counted."""
        areas, iterations = self.block_table(), self.groups
        numbered = areas.select(pl.col(self.block).alias("block")).with_row_index("area")
        given = frame.select(pl.col(self.block).cast(pl.String).alias("block"))
        area = given.join(numbered, on="block", how="left", maintain_order="left")["area"].to_numpy()
        kind, kinds = kinds_of(frame, self.races, self.ethnicity)
        return GroupRecords(
            area=area.astype(np.int64),
            kind=kind,
            kinds=kinds,
            fine=self._fine(frame),
            areas=areas,
            iterations=iterations,
            stability=iterations.stability(len(self.races)),
        )

    def counter(self, records: GroupRecords, part: BudgetPart) -> Counter:
        """Return who counts the groups of one part."""
        region = self.regions[part.region]
        return Counter.of(records, region.column, level=part.level, coarse=region.coarse)

    # ---- small files, for audits

    def _examples(self) -> list[tuple[Any, ...]]:
        """Return records that differ in all that matters: most groups, other groups, the same and another cell."""
        blocks = self.block_table()[self.block]
        race, ethnic = (
            [group[0] for group in self.groups.table.filter(chosen & (pl.col("level") == 1))["codes"]]
            for chosen in (pl.col("kind") == "alone", pl.col("kind") == "ethnicity")
        )
        k = len(self.races)
        first, second = race[:k], race[k : 2 * k] or race[:1]
        here, there = blocks[0], blocks[-1]
        one, other = ethnic[:1], ethnic[1:2]
        fine = self._audited
        return [
            (here, tuple(first), *one, *fine[0]),
            (here, tuple(second), *(other or one), *fine[0]),
            (here, tuple(first), *one, *fine[1]),
            (there, tuple(race[:1]), "", *fine[0]),
        ]

    def audit_universes(self) -> list[list[Hashable]]:
        rows = self._examples()
        sizes: list[list[Hashable]] = [[*combinations_with_replacement(rows, n)] for n in range(3)]
        return [[*sizes[0], *sizes[1]], [*sizes[1], *sizes[2]]] if self.promise == "add-remove" else sizes[1:]

    @property
    @abstractmethod
    def _audited(self) -> Sequence[tuple[str, ...]]:
        """Return two settings of the columns that tables are about, in different cells."""

    def _frame(self, dataset: Sequence[Any]) -> pl.DataFrame:
        """Return records (block, race codes, ethnicity, values of the tables) as a file."""
        width = len(self.races)
        rows = [(b, *races, *[None] * (width - len(races)), e, *rest) for b, races, e, *rest in dataset]
        names = [self.block, *self.races, self.ethnicity, *self._values]
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def table_rows(groups: pl.DataFrame, level: CellLevel, noisy: Ints, true: Ints, query: Query) -> pl.DataFrame:
    """Return the rows of the tables of some groups: measured cells, and rows that are sums of them."""
    rows = level.labels.height
    table = groups[np.repeat(np.arange(groups.height), rows)].hstack(
        level.labels[np.tile(np.arange(rows), groups.height)]
    )
    counts = {"count": (noisy @ level.sums).ravel(), "true": (true @ level.sums).ravel()}
    table = table.with_columns(pl.Series(name, values) for name, values in counts.items())
    return with_intervals(table, [query], cells=np.tile(level.added, groups.height))
