"""The budget file of PHSafe: tables, cells and iterations as conditions on columns, and rho for each query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

import polars as pl
from pydantic import AfterValidator, Field, model_validator

from stirred.mechanisms.tables.budgets import Amount, BudgetFile, once

NATION, STATE = "nation", "state"
REGION_TYPES: Final = {NATION: "USA", STATE: "STATE"}


def _condition(given: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
    for value in given.values():
        low, dash, high = value.partition("-") if isinstance(value, str) else ("0", "-", "0")
        if not (dash and low.isdigit() and high.isdigit() and int(low) <= int(high)):
            raise ValueError("a condition lists values, or is a range such as 0-17")
    return given


Condition = Annotated[dict[str, str | list[str]], AfterValidator(_condition)]


def met(condition: Mapping[str, str | list[str]], names: Mapping[str, str] | None = None) -> pl.Expr:
    """Return whether a row meets a condition; ``names`` gives the columns that some names stand for."""
    found = pl.lit(value=True)
    for name, value in condition.items():
        column = pl.col((names or {}).get(name, name)).cast(pl.String)
        if isinstance(value, str):
            low, _, high = value.partition("-")
            found = found & column.cast(pl.Int64, strict=False).is_between(int(low), int(high))
        else:
            found = found & column.is_in(value)
    return found.fill_null(value=False)


class Table(BudgetFile):
    """One table: what it counts, whom, in which cells, for the iterations of which groups."""

    counts: Literal["persons", "units"]
    where: Condition = Field(default_factory=dict)
    at_most: int = Field(default=0, ge=0)
    rho: str
    groups: list[str] = Field(default_factory=lambda: ["A-G", "HI", "ALL"])
    race_of: str = ""
    cells: dict[str, Condition]

    @model_validator(mode="after")
    def _fits(self) -> Table:
        if (self.counts == "persons") != (self.at_most > 0):
            raise ValueError("a table of persons, and no other, says at_most how many of a household it counts")
        return self

    @property
    def stability(self) -> int:
        """Return how many joined rows one person can change by the library that PHSafe uses: 2 tau + 2, or 2."""
        return 2 * self.at_most + 2 if self.at_most else 2

    @property
    def replaced(self) -> Fraction:
        """Return the share of rho that a replaced household costs: it loses at most tau rows and gains at most tau."""
        rows = self.at_most or 1
        return Fraction(2 * rows**2, self.stability**2)

    @property
    def moved(self) -> Fraction:
        """Return the share of rho that a person who moves costs: two households change, possibly alike."""
        return 4 * self.replaced


class Sum(BudgetFile):
    """Cells of one table, added up."""

    title: str = ""
    table: str
    cells: list[str]


class Ratio(BudgetFile):
    """One sum over another."""

    above: Sum
    below: Sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One table for regions of one kind and iterations of one group: all its counts have the same noise."""

    name: str
    table: Table
    region: str
    group: str
    rho: Fraction

    @property
    def variance(self) -> Fraction:
        """Return the variance of the noise."""
        return Fraction(self.table.stability**2) / (2 * self.rho)

    @property
    def title(self) -> str:
        """Return what messages call it."""
        return f"{self.name} {self.region} {self.group}"


class PHSafeBudget(BudgetFile):
    """The budget file of PHSafe."""

    occupied: Condition
    groups: dict[str, dict[str, Condition]]
    race_of: dict[str, dict[str, str]]
    rho: dict[str, dict[Literal["nation", "state"], dict[str, Amount]]]
    tables: dict[str, Table]
    ratios: dict[str, Ratio] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits(self) -> PHSafeBudget:
        for name, table in self.tables.items():
            known = {self.rho.get(table.rho) is not None, {*table.groups} <= {*self.groups}}
            if known != {True} or (table.race_of and table.race_of not in self.race_of):
                raise ValueError(f"{name} names a rho, a group or a race_of that is not there")
        once([query.title for query in self.queries()], "query")
        for name, ratio in self.ratios.items():
            for side in (ratio.above, ratio.below):
                if side.table not in self.tables or not {*side.cells} <= {*self.tables[side.table].cells}:
                    raise ValueError(f"{name} names a table or a cell that is not there")
        return self

    def queries(self) -> Iterator[Query]:
        """Yield every query that has a budget."""
        for name, table in self.tables.items():
            for region, by_group in self.rho[table.rho].items():
                for group in table.groups:
                    if rho := by_group.get(group):
                        yield Query(name=name, table=table, region=region, group=group, rho=rho)

    def columns(self, counts: str = "") -> dict[str, list[Any]]:
        """Return each column with the values that conditions name: of all tables, or of those that count this."""
        found: dict[str, list[Any]] = {name: [value] for name, value in self.occupied.items()}
        for table in self.tables.values():
            if counts in ("", table.counts):
                names = self.race_of.get(table.race_of, {})
                groups = [condition for name in table.groups for condition in self.groups[name].values()]
                for condition in (table.where, *table.cells.values()):
                    for name, value in condition.items():
                        found.setdefault(name, []).append(value)
                for condition in groups:
                    for name, value in condition.items():
                        found.setdefault(names.get(name, name), []).append(value)
        return found
