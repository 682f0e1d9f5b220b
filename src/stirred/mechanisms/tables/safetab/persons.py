"""SafeTab-P: persons by population group, and by sex and age in tables that are finer for larger groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Progress, Settings
from stirred.mechanisms.tables.budgets import Amount, BudgetFile, BudgetPart, Edges, GroupsBudget, once
from stirred.mechanisms.tables.query import COUNTED, DECIMAL, INTERVAL, TEXT, WHOLE, Columns, Query, TableAnswers
from stirred.mechanisms.tables.safetab.groups import (
    GROUP,
    CellLevel,
    Counter,
    Ints,
    SafeTab,
    SafeTabSettings,
    age_by_sex,
    table_rows,
)
from stirred.mechanisms.tables.tabulator import with_intervals
from stirred.randomness.cell_law import half_width, variance_of
from stirred.spec.shift_law import ShiftLaw, Staged, StagedLaw

_CHUNK: Final = 1 << 20  # groups that are looked at together
_THREADS: Final = 2
_COMBINED: Final[Columns] = dict.fromkeys(("combined", "combined_variance"), DECIMAL)


class PersonsBudget(GroupsBudget):
    """The budget file of SafeTab-P."""

    stage_1: Amount
    keep_above: Amount
    sexes: list[str]
    top_age: int
    ages: list[Edges]

    @model_validator(mode="after")
    def _fits(self) -> PersonsBudget:
        if not 0 < self.stage_1 < 1 or not Fraction(1, 2) < self.keep_above < 1:
            raise ValueError("stage_1 is a share between 0 and 1, keep_above one between 1/2 and 1")
        if any(len(part.thresholds) != len(self.ages) for part in self.parts):
            raise ValueError("every part needs one threshold for each list of ages")
        if any(edges and not 0 < edges[0] <= edges[-1] <= self.top_age for edges in self.ages):
            raise ValueError("age edges lie above 0 and up to top_age")
        once(self.sexes, "sex")
        return self


class PersonsSettings(SafeTabSettings):
    """SafeTab-P: the public tables, and the columns of the file of persons."""

    sex: str = Field(default="sex", description="Column of the sex.")
    age: str = Field(default="age", description="Column of the age in years.")
    unit: str = Field(default="person", description="What a record is.")


class StageQueries(NamedTuple):
    """What is asked of one part: first totals, second ones, tables of groups that reach a threshold, single totals.

    A group has a second total or a table, which share what the first left of rho; or one total with all of it.
    """

    first: Query
    totals: Query
    tables: Query
    alone: Query

    @classmethod
    def of(cls, part: BudgetPart, *, stability: int, stage_1: Fraction) -> StageQueries:
        """Return the queries with the share of each stage; a record changes as many totals by 1 as it has groups."""

        def query(title: str, name: str, share: Fraction) -> Query:
            title, address = f"{part.name}, {title}", f"{part.name} {name}"
            return Query(title=title, address=address, loss=share * part.rho, square=stability)

        rest = 1 - stage_1
        first, totals = query("groups", "first", stage_1), query("tables", "totals", rest)
        return cls(first, totals, query("tables", "tables", rest), query("groups", "alone", Fraction(1)))


class ChosenGroups(NamedTuple):
    """Groups that are looked at further: their first total, how many thresholds it reaches, a second total."""

    group: Ints
    first: Ints
    level: Ints
    total: Ints


class SafeTabP(SafeTab):
    """Counts of persons by region and race or ethnicity iteration, and of large groups by sex and age.

    >>> blocks = pl.DataFrame({"block": ["1"], "state": ["S"], "county": ["C"], "tract": ["T"], "place": [None],
    ...                        "aiannh": [None]})
    >>> safetab = SafeTabP(blocks=blocks)
    >>> safetab.stability, float(safetab.rho), safetab.specification(name="people").budget.shown
    (9, 4.944, '9.888')
    """

    name: ClassVar[str] = "safetab-p"
    title: ClassVar[str] = "SafeTab-P"
    settings_model: ClassVar[type[Settings]] = PersonsSettings
    budget_model: ClassVar[type[BudgetFile]] = PersonsBudget
    shipped: ClassVar[str] = "-p"
    neighbours: ClassVar[str] = "one person added or removed"
    columns: ClassVar[Mapping[str, Columns]] = {
        # The count stands before the number of cells that it adds up.
        "t1": {**GROUP, "count": COUNTED["count"], "cells": WHOLE, **INTERVAL, **_COMBINED},
        "t2": {**GROUP, **dict.fromkeys(("agestart", "ageend", "sex"), TEXT), **COUNTED},
    }
    file_words: ClassVar[Mapping[str, str]] = {
        "t1": "total of each group; `cells` is how many noisy counts it adds up, and `combined` also uses a first "
        "noisy total, which chose the table: more precise, and biased near a threshold. A group at one is off by up to "
        "0.8 standard deviations on average: too large with the finer table, too small with the coarser",
        "t2": "groups that are large enough, by sex and age; an asterisk stands for all ages",
    }

    @property
    def in_words(self) -> str:
        budget = self.spent
        return (
            "SafeTab-P: persons are counted by region and by race and ethnicity iteration with noise "
            f"({budget.stage_1} of each rho), and, where that noisy total reaches thresholds, by sex and finer age "
            "groups with new noise."
        )

    def reading_tables(self, plan: Any) -> list[str]:
        hidden = [region.type for region in self.regions.values() if region.suppress]
        chosen = (
            f"Of {', '.join(hidden)} a single total (`cells` 1) is published only where it is large, so those of small "
            "groups are too large, and fewer than 95% of their intervals hold. Totals of tables are not chosen so."
        )
        return [*SafeTab.reading_tables(self, plan), *([chosen] if hidden else [])]

    @property
    def measured(self) -> tuple[Query, ...]:
        budget, stability = self.spent, self.stability
        asked = (StageQueries.of(part, stability=stability, stage_1=budget.stage_1) for part in self.parts)
        return tuple(query for each in asked for query in (each.first, each.tables))

    @property
    def printed(self) -> tuple[Fraction, str]:
        """Return four times rho: replacing is removing and adding, and the loss of a group of two is fourfold."""
        return 4 * self.rho, "4 x rho, by group privacy: one record replaced is one removed and one added"

    @property
    def _values(self) -> Mapping[str, pl.Series]:
        budget = self.spent
        ages = pl.Series([str(age) for age in range(budget.top_age + 1)])
        return {self.sex: pl.Series(budget.sexes), self.age: ages}

    @property
    def _audited(self) -> Sequence[tuple[str, ...]]:
        budget = self.spent
        return [(budget.sexes[0], "0"), (budget.sexes[-1], str(budget.top_age))]

    @property
    def _levels(self) -> list[CellLevel]:
        budget = self.spent
        return age_by_sex(budget.ages, sexes=len(budget.sexes), top=budget.top_age, names=budget.sexes)

    def _fine(self, frame: pl.DataFrame) -> Mapping[str, Ints]:
        budget = self.spent
        place = {value: number for number, value in enumerate(budget.sexes)}
        sex = frame[self.sex].cast(pl.String).replace_strict(place, return_dtype=pl.Int64).to_numpy()
        age = frame[self.age].cast(pl.String).cast(pl.Int64).to_numpy()
        return {"t2": sex * (budget.top_age + 1) + age}

    def answered(self, data: Microdata, plan: Any, ask: TableAnswers, progress: Progress) -> dict[str, pl.DataFrame]:
        records, budget, levels = self.records(data.households), self.spent, self._levels
        found: dict[str, list[pl.DataFrame]] = {"t1": [], "t2": []}
        for number, part in enumerate(self.parts):
            progress("count", number, len(self.parts))
            counter = self.counter(records, part)
            queries = StageQueries.of(part, stability=records.stability, stage_1=budget.stage_1)
            # P(Z <= k) >= q where P(|Z| <= k) >= 2q - 1.
            cut = half_width(queries.totals.parameter, 1, 2 * budget.keep_above - 1)
            above = cut if self.regions[part.region].suppress else None
            kept = first_stage(counter, part, queries, above=above, ask=ask)
            totals, tables = second_stage(counter, part, queries, kept, levels, ask=ask)
            found["t1"].append(totals)
            found["t2"] += tables
        return {name: self.joined(name, tables) for name, tables in found.items()}

    def inconsistent(self, tables: Mapping[str, pl.DataFrame]) -> Iterator[str]:
        ages = tables["t2"].filter(pl.col("agestart") != "*").group_by(*GROUP).agg(pl.col("count").sum().alias("sum"))
        both = ages.join(tables["t1"], on=[*GROUP], how="left")
        if not both["sum"].eq_missing(both["count"]).all():
            yield "a total in t1 is not the sum of its table in t2"

    def law(self, dataset: Any) -> StagedLaw:
        """Return the exact law of both stages, for records (block, race codes, ethnicity, sex, age).

        What is published is a function of it: totals of the first stage, and sums of the second.
        """
        frame, budget, levels = self._frame(dataset), self.spent, self._levels
        records, parts = self.records(frame), dict[Hashable, Staged]()
        for part in self.parts:
            counter = self.counter(records, part)
            queries = StageQueries.of(part, stability=records.stability, stage_1=budget.stage_1)
            groups, totals = counter.totals()
            tables: list[list[ShiftLaw]] = [[] for _ in groups]
            for level in range(len(levels)):
                for _, _, cells in counter.cells(groups, np.full(groups.size, level), levels, fine="t2"):
                    for place, row in enumerate(cells.tolist()):
                        tables[place].append(ShiftLaw(row, queries.tables.noise))
            for group, total, laws in zip(groups.tolist(), totals.tolist(), tables, strict=True):
                staged = Staged(
                    total=ShiftLaw(total, queries.first.noise),
                    tables=tuple(laws),
                    thresholds=tuple(part.thresholds),
                )
                if counter.members.detailed_only[group % counter.width]:
                    staged = Staged(tables=(ShiftLaw(total, queries.alone.noise),))
                name = counter.named(np.array([group]), part.region).row(0)
                parts[part.level, name] = staged
        return StagedLaw(parts)


def first_stage(
    counter: Counter, part: BudgetPart, queries: StageQueries, *, above: int | None, ask: TableAnswers
) -> ChosenGroups:
    """Ask for the first total of every group of the domain, empty ones too, and a second one where it reaches nothing.

    Of the latter only those ``above`` the cut are kept; groups for the nation and states alone have one total.
    """
    groups, counts = counter.totals()
    width, alone = counter.width, counter.members.detailed_only
    rows = max(1, _CHUNK // max(width, 1))
    starts = range(0, len(counter.regions), rows)
    thresholds = np.array(part.thresholds)

    def look(start: int) -> ChosenGroups:
        low, high = start * width, min(start + rows, len(counter.regions)) * width
        true = np.zeros(high - low, dtype=np.int64)
        inside = slice(*np.searchsorted(groups, (low, high)))
        true[groups[inside] - low] = counts[inside]
        chunk = start // rows
        first = ask(queries.first, true, chunk=chunk)
        level = np.searchsorted(thresholds, first, side="right")
        total = ask(queries.totals, true, chunk=chunk)
        only = np.tile(alone, (high - low) // width)
        if alone.any():
            level[only] = -1
            total[only] = ask(queries.alone, true[only], chunk=chunk)
        if above is not None:
            kept = (level > 0) | (total > above)
            ask.keep_only(queries.first, kept, chunk=chunk)
            ask.keep_only(queries.totals, kept, chunk=chunk)
            if alone.any():
                ask.keep_only(queries.alone, kept[only], chunk=chunk)
        else:
            kept = np.ones(true.size, dtype=bool)
        return ChosenGroups(np.flatnonzero(kept) + low, *(values[kept] for values in (first, level, total)))

    with ThreadPoolExecutor(_THREADS) as pool:
        found = [*pool.map(look, starts)] if width else []
    empty = np.zeros(0, dtype=np.int64)
    return ChosenGroups(
        *(np.concatenate([empty, *(getattr(each, name) for each in found)]) for name in ChosenGroups._fields)
    )


def second_stage(
    counter: Counter,
    part: BudgetPart,
    queries: StageQueries,
    kept: ChosenGroups,
    levels: Sequence[CellLevel],
    *,
    ask: TableAnswers,
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Ask for the tables of the groups that reach a threshold, and return the totals of all groups and these tables."""
    total, cells = kept.total.copy(), np.ones(kept.group.size, dtype=np.int64)
    tables = []
    chosen = kept.level > 0
    for level, own, true in counter.cells(kept.group[chosen], kept.level[chosen], levels, fine="t2"):
        noisy = ask(queries.tables, true, chunk=level)
        place = np.searchsorted(kept.group, own)
        total[place], cells[place] = noisy.sum(axis=1), levels[level].measured
        tables.append(table_rows(counter.named(own, part.region), levels[level], noisy, queries.tables))
    single = kept.level < 0
    table = counter.named(kept.group, part.region).with_columns(pl.Series("count", total), pl.Series("cells", cells))
    table = with_intervals(table, [queries.tables, queries.alone], cells=cells, which=single.astype(np.int64))
    # The free gain: both totals are of the same people with independent noise, and weigh by their precision.
    own, first = table["variance"].to_numpy(), float(variance_of(queries.first.parameter))
    share = np.where(single, 1.0, first / (first + own))
    combined = dict(zip(_COMBINED, (share * total + (1 - share) * kept.first, share * own), strict=True))
    return table.with_columns(pl.Series(name, values) for name, values in combined.items()), tables
