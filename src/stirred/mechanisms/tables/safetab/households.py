"""SafeTab-H: households of the same groups, by type and tenure; the published totals of persons choose the tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from stirred.data.microdata import Microdata
from stirred.data.problems import listed
from stirred.mechanisms.protocol import Progress, ReleasedFile, ReleasedTable, Settings
from stirred.mechanisms.tables.budgets import BudgetFile, BudgetPart, GroupsBudget
from stirred.mechanisms.tables.query import COUNTED, TEXT, Columns, Query, TableAnswers
from stirred.mechanisms.tables.safetab.groups import (
    GROUP,
    CellLevel,
    Counter,
    Ints,
    SafeTab,
    SafeTabSettings,
    from_cells,
    table_rows,
)
from stirred.spec.problems import Problem, placed
from stirred.spec.shift_law import ShiftLaw, Staged, StagedLaw


class CellTable(BudgetFile):
    """One table: the column it is about, its cells as sets of values, and the cells measured at each level."""

    title: str = ""
    column: str
    cells: dict[str, list[str]]
    levels: list[list[str]]

    @property
    def values(self) -> list[str]:
        return [*dict.fromkeys(value for own in self.cells.values() for value in own)]

    @model_validator(mode="after")
    def _fits(self) -> CellTable:
        for measured in self.levels:
            if unknown := [name for name in measured if name not in self.cells]:
                raise ValueError(f"there is no cell {unknown[0]}")
            if sorted(value for name in measured for value in self.cells[name]) != sorted(self.values):
                raise ValueError("the cells of a level have every value once")
        return self


class HouseholdsBudget(GroupsBudget):
    """The budget file of SafeTab-H."""

    tables: dict[str, CellTable]

    @model_validator(mode="after")
    def _fits(self) -> HouseholdsBudget:
        if {*self.tables} != {"t3", "t4"} or any(part.table not in self.tables for part in self.parts):
            raise ValueError("the tables are t3 and t4, and every part names one of them")
        if any(len(part.thresholds) + 1 != len(self.tables[part.table].levels) for part in self.parts):
            raise ValueError("every part needs one threshold less than its table has levels")
        return self


class HouseholdsSettings(SafeTabSettings):
    """SafeTab-H: the public tables, and the columns of the file of households."""

    totals: ReleasedFile = Field(
        description="The totals t1 in the release of SafeTab-P: they choose the tables.",
        json_schema_extra={"example": "ddhc-a/public/t1.parquet"},
    )
    unit: str = Field(default="household", description="What a record is.")


class SafeTabH(SafeTab):
    """Counts of households by the groups of their householders; groups without a published total get nothing."""

    name: ClassVar[str] = "safetab-h"
    title: ClassVar[str] = "SafeTab-H"
    settings_model: ClassVar[type[Settings]] = HouseholdsSettings
    budget_model: ClassVar[type[BudgetFile]] = HouseholdsBudget
    shipped: ClassVar[str] = "-h"
    neighbours: ClassVar[str] = "one household added or removed"
    columns: ClassVar[Mapping[str, Columns]] = {
        name: {**GROUP, f"{name}_data_cell": TEXT, **COUNTED} for name in ("t3", "t4")
    }
    file_words: ClassVar[Mapping[str, str]] = {
        "t3": "households of each group by type; cells that were not measured are sums of others",
        "t4": "households of each group by tenure; cells that were not measured are sums of others",
    }

    @property
    def in_words(self) -> str:
        return (
            "SafeTab-H: households are counted by region and by race and ethnicity iteration of their householder, by "
            "type (t3) and tenure (t4), with noise; tables are finer where the published total of persons is larger."
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        return (
            f"the totals that choose the tables are those of {self.totals.named}; that release is accounted for on its "
            "own, and its loss comes on top",
        )

    @property
    def rests_on(self) -> tuple[ReleasedTable, ...]:
        return (self.totals,)

    def premises(self, plan: Any) -> Mapping[str, str]:
        return {**SafeTab.premises(self, plan), "totals": self.totals.sha256}

    @property
    def measured(self) -> tuple[Query, ...]:
        stability = self.stability
        return tuple(
            Query(title=f"{p.table}, {p.name}", address=f"{p.table} {p.name}", loss=p.rho, square=stability)
            for p in self.parts
        )

    @property
    def printed(self) -> tuple[Fraction, str]:
        return 2 * self.rho, "2 x rho, as documented: one household replaced"

    @property
    def _values(self) -> Mapping[str, pl.Series]:
        return {table.column: pl.Series(table.values) for table in self.spent.tables.values()}

    @property
    def _audited(self) -> Sequence[tuple[str, ...]]:
        tables = self.spent.tables.values()
        return [tuple(table.values[end] for table in tables) for end in (0, -1)]

    def _levels(self, name: str) -> list[CellLevel]:
        table = self.spent.tables[name]
        return from_cells(table.cells, table.levels, values=table.values, label=f"{name}_data_cell")

    def _fine(self, frame: pl.DataFrame) -> Mapping[str, Ints]:
        found = {}
        for name, table in self.spent.tables.items():
            place = {value: number for number, value in enumerate(table.values)}
            column = frame[table.column].cast(pl.String)
            found[name] = column.replace_strict(place, return_dtype=pl.Int64).to_numpy()
        return found

    def problems(self, data: Microdata) -> Iterator[Problem]:
        where = f"totals {self.totals.file}"
        with placed("totals"):
            totals = self.totals.expected
        problems: list[Problem] = []
        remedy = "use t1 as SafeTab-P wrote it"
        if missing := [name for name in (*GROUP, "count") if name not in totals.frame.columns]:
            yield Problem(what=f"there is no column {listed(missing)}", where=where, remedy=remedy)
        elif totals.frame["count"].cast(pl.Int64, strict=False).null_count():
            yield Problem(what="a count is not a whole number", where=f'{where} "count"', remedy=remedy)
        elif not (problems := [*SafeTab.problems(self, data)]):
            yield from self._problems_of_totals(where)
        yield from problems

    def _problems_of_totals(self, where: str) -> Iterator[Problem]:
        """Yield published groups that are not there, which only another table of blocks or iterations explains."""
        remedy = "use the t1 that SafeTab-P wrote with the same blocks and iterations"
        known = {"region_type": [*self.regions], "iteration_code": [*self.groups.table["iteration_code"]]}
        for name, values in known.items():
            assert self.totals.frame is not None
            if odd := self.totals.frame.filter(~pl.col(name).is_in(values).fill_null(value=False))[name].to_list():
                yield Problem(what=f"{odd[0]!r} is not known", where=f'{where} "{name}"', remedy=remedy)
        nobody = self.records(self._frame([]))
        wrong = [part.name for part in self.parts if self.selected(self.counter(nobody, part), part) is None]
        for name in dict.fromkeys(wrong):
            what = f"groups of {name} are not those of blocks and iterations, or appear twice"
            yield Problem(what=what, where=where, remedy=remedy)

    def selected(self, counter: Counter, part: BudgetPart) -> tuple[Ints, Ints] | None:
        """Return the groups of a part that have a published total, and the level that it gives them.

        Nothing is returned where a group is not there or appears twice.
        """
        table = self.totals.frame
        assert table is not None
        regions = pl.DataFrame({"region_id": counter.regions}, schema={"region_id": pl.String}).with_row_index("region")
        codes = pl.DataFrame({"iteration_code": counter.members.codes}, schema={"iteration_code": pl.String})
        level = counter.records.iterations.table.filter(pl.col("level") == part.level)["iteration_code"]
        own = table.filter((pl.col("region_type") == part.region) & pl.col("iteration_code").is_in(level.implode()))
        found = own.join(regions, on="region_id").join(codes.with_row_index("iteration"), on="iteration_code")
        group = found["region"].cast(pl.Int64).to_numpy() * counter.width + found["iteration"].cast(pl.Int64).to_numpy()
        if found.height != own.height or np.unique(group).size != group.size:
            return None
        reached = np.searchsorted(part.thresholds, found["count"].cast(pl.Int64).to_numpy(), side="right")
        order = np.argsort(group)
        return group[order], reached[order]

    def answered(self, data: Microdata, plan: Any, ask: TableAnswers, progress: Progress) -> dict[str, pl.DataFrame]:
        records, found = self.records(data.households), {name: list[pl.DataFrame]() for name in self.columns}
        for number, (part, query) in enumerate(zip(self.parts, self.measured, strict=True)):
            progress("count", number, len(self.parts))
            counter, levels = self.counter(records, part), self._levels(part.table)
            chosen = self.selected(counter, part)
            assert chosen is not None  # `problems` has looked
            for level, own, true in counter.cells(*chosen, levels, fine=part.table):
                noisy = ask(query, true, chunk=level)
                found[part.table].append(table_rows(counter.named(own, part.region), levels[level], noisy, query))
        return {name: self.joined(name, tables) for name, tables in found.items()}

    def inconsistent(self, tables: Mapping[str, pl.DataFrame]) -> Iterator[str]:
        for name, table in tables.items():
            cell = f"{name}_data_cell"
            wide = table.pivot(cell, index=[*GROUP], values="count", aggregate_function="first")
            for measured in self.spent.tables[name].levels[1:]:
                if {*measured, "0"} <= {*wide.columns}:
                    whole = wide.drop_nulls(measured)
                    if not whole["0"].eq_missing(whole.select(pl.sum_horizontal(measured)).to_series()).all():
                        yield f"cell 0 of {name} is not the sum of its cells"

    def law(self, dataset: Any) -> StagedLaw:
        """Return the exact law, for records (block, race codes, ethnicity, type, tenure)."""
        records, parts = self.records(self._frame(dataset)), dict[Hashable, Staged]()
        for part, query in zip(self.parts, self.measured, strict=True):
            counter = self.counter(records, part)
            chosen = self.selected(counter, part)
            assert chosen is not None
            for _, own, cells in counter.cells(*chosen, self._levels(part.table), fine=part.table):
                named = counter.named(own, part.region).rows()
                for name, row in zip(named, cells.tolist(), strict=True):
                    parts[part.table, part.level, name] = Staged(tables=(ShiftLaw(row, query.noise),))
        return StagedLaw(parts)
