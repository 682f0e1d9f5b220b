"""PHSafe: persons of households by table cell and iteration, households, and ratios of both."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
import polars as pl
from pydantic import AfterValidator, Field, model_validator

from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Names, Progress, Settings
from stirred.mechanisms.tables.budgets import Amount, BudgetFile, once
from stirred.mechanisms.tables.cells import at_most
from stirred.mechanisms.tables.query import COUNTED, DECIMAL, TEXT, Columns, Query, TableAnswers, in_order, schema_of
from stirred.mechanisms.tables.tabulator import (
    Ints,
    Tabulator,
    TabulatorSettings,
    missing_columns,
    undeclared,
    with_intervals,
)
from stirred.spec.problems import Problem
from stirred.spec.shift_law import ShiftLaw, Staged, StagedLaw

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


class PHSafeTable(BudgetFile):
    """One table: what it counts, whom, in which cells, for the iterations of which groups."""

    counts: Literal["persons", "units"]
    where: Condition = Field(default_factory=dict)
    at_most: int = Field(default=0, ge=0)
    rho: str
    groups: list[str] = Field(default_factory=lambda: ["A-G", "HI", "ALL"])
    race_of: str = ""
    cells: dict[str, Condition]

    @model_validator(mode="after")
    def _fits(self) -> PHSafeTable:
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


class CellSum(BudgetFile):
    """Cells of one table, added up."""

    title: str = ""
    table: str
    cells: list[str]


class Ratio(BudgetFile):
    """One sum over another."""

    above: CellSum
    below: CellSum


@dataclass(frozen=True, slots=True, kw_only=True)
class PHSafeQuery(Query):
    """One table for regions of one kind and iterations of one group: all its counts have the same noise."""

    name: str
    table: PHSafeTable
    region: str
    group: str


class PHSafeBudget(BudgetFile):
    """The budget file of PHSafe."""

    occupied: Condition
    groups: dict[str, dict[str, Condition]]
    race_of: dict[str, dict[str, str]]
    rho: dict[str, dict[Literal["nation", "state"], dict[str, Amount]]]
    tables: dict[str, PHSafeTable]
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

    def queries(self) -> Iterator[PHSafeQuery]:
        """Yield every query that has a budget."""
        for name, table in self.tables.items():
            for region, by_group in self.rho[table.rho].items():
                for group in table.groups:
                    if rho := by_group.get(group):
                        yield PHSafeQuery(
                            title=f"{name} {region} {group}", loss=rho, square=table.stability**2,
                            name=name, table=table, region=region, group=group,
                        )  # fmt: skip

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


_NORMAL = NormalDist()


class CountEstimate(NamedTuple):
    """An estimate with an interval; its ends are None where there is none."""

    value: float | None
    low: float | None
    high: float | None


def truncated(count: float, variance: float, *, level: float = 0.9) -> CountEstimate:
    """Return mean and quantiles of a normal around a noisy count, cut off at 0: no true count is below.

    >>> [round(number, 4) for number in truncated(100, 14782.24)]
    [143.5245, 16.1208, 313.2343]
    """
    deviation = math.sqrt(variance)
    z = count / deviation
    above = _NORMAL.cdf(z)
    if above < 1e-300:  # so far below that all is noise
        return CountEstimate(0.0, 0.0, 0.0)

    def at(chance: float) -> float:
        return count - deviation * _NORMAL.inv_cdf(above * (1 - chance))

    mean = count + deviation * _NORMAL.pdf(z) / above
    return CountEstimate(mean, at((1 - level) / 2), at((1 + level) / 2))


def ratio(above: float, below: float, *, variances: tuple[float, float], level: float = 0.9) -> CountEstimate:
    """Return the ratio of two noisy counts with Fieller's interval: all r for which above - r below may be noise.

    Where the count below may be 0 the interval has no ends, and none are given; below 0 there is no ratio at all.

    >>> [round(number, 3) for number in ratio(250, 100, variances=(100.0, 25.0))]
    [2.5, 2.252, 2.782]
    >>> ratio(250, 3, variances=(100.0, 25.0)).high is None
    True
    """
    z2 = _NORMAL.inv_cdf((1 + level) / 2) ** 2
    lead = below**2 - z2 * variances[1]
    value = above / below if below > 0 else None
    if value is None or lead <= 0:
        return CountEstimate(value, None, None)
    root = math.sqrt(max(0.0, (above * below) ** 2 - lead * (above**2 - z2 * variances[0])))
    return CountEstimate(value, (above * below - root) / lead, (above * below + root) / lead)


_CELL: Final[Columns] = dict.fromkeys(("region_id", "region_type", "table", "iteration_code", "data_cell"), TEXT)
_ESTIMATES: Final[Columns] = dict.fromkeys(("estimate", "estimate_low", "estimate_high"), DECIMAL)
_RATIO: Final = ("region_id", "region_type", "ratio", "iteration_code")


class PHSafeSettings(TabulatorSettings):
    """PHSafe: the states, and the column that has them."""

    states: Names = Field(
        description="Every state that is tabulated, declared beforehand.", json_schema_extra={"example": "25,44"}
    )
    state: str = Field(default="state", description="Column of the units that has the state.")
    order_key: str = Field(
        default="stirred", description="Key of the hash by which persons of large households are put in order."
    )


class PHSafe(Tabulator):
    """Counts of persons joined to their households, of which at most so many are counted, and of households.

    >>> phsafe = PHSafe(states=["25"])
    >>> float(phsafe.rho), phsafe.specification(name="units").budget.shown
    (1.257281, '0.489')
    """

    name: ClassVar[str] = "phsafe"
    title: ClassVar[str] = "PHSafe"
    settings_model: ClassVar[type[Settings]] = PHSafeSettings
    budget_model: ClassVar[type[BudgetFile]] = PHSafeBudget
    shipped: ClassVar[str] = "-phsafe"
    neighbours: ClassVar[str] = "one person added or removed"
    columns: ClassVar[Mapping[str, Columns]] = {
        "counts": {**_CELL, **COUNTED, **_ESTIMATES},
        # A ratio and its interval are no whole numbers.
        "ratios": {
            **dict.fromkeys(_RATIO, TEXT),
            **dict.fromkeys(("value", "low", "high"), DECIMAL),
        },
    }
    file_words: ClassVar[Mapping[str, str]] = {
        "counts": "noisy counts of every table; the estimates are of a normal cut off at 0, with 90% intervals",
        "ratios": "persons per household and the like, with Fieller's 90% intervals; no interval where the noise hides "
        "whether there are any households",
    }

    def check_settings(self) -> None:
        Tabulator.check_settings(self)
        if not self.states or len({*self.states}) < len(self.states):
            raise bad_plan("states are declared once each", where="states", remedy="list every state, and none twice")
        if not [*self.spent.queries()]:
            raise bad_plan("every rho is 0", where="budget rho", remedy="give at least one query a rho above 0")

    @property
    def in_words(self) -> str:
        return (
            "PHSafe: persons are joined to their households, at most so many of each, and counted with noise by nation "
            "and state, iteration and cell; so are households, and ratios of both are computed from that."
        )

    @property
    def measured(self) -> tuple[Query, ...]:
        return tuple(self.spent.queries())

    @property
    def replaced(self) -> tuple[Fraction, str]:
        """Return what one replaced household costs: of each table it leaves and enters at most tau rows (Lemma 1)."""
        value = sum((query.loss * query.table.replaced for query in self.spent.queries()), Fraction(0))
        return value, "tau^2/(2 (tau+1)^2) x rho of each table of persons and 1/2 x rho of each of units"

    @property
    def printed(self) -> tuple[Fraction, str]:
        return 2 * self.rho, "2 x rho, as documented: one person replaced"

    def reading_tables(self, plan: Any) -> list[str]:
        most = sorted({table.at_most for table in self.spent.tables.values() if table.at_most})
        left_out = (
            f"Of a household at most {' or '.join(map(str, most))} persons are counted, by table. A true count is the "
            "count of these: intervals and ratios leave out what larger households have beyond, which noise does not."
        )
        return [*Tabulator.reading_tables(self, plan), *([left_out] if most else [])]

    @property
    def assumed(self) -> tuple[str, ...]:
        moved = "a changed person changes one household; one who moves changes two"
        return (moved,) if self.promise == "replace" else ()

    # ---- the act

    @property
    def used(self) -> set[str]:
        return {self.state, *self.spent.columns()}

    def problems(self, data: Microdata) -> Iterator[Problem]:
        persons = data.lazy_persons
        if persons is None or data.hid is None:
            remedy = "give units as households, and persons with the column that links them (hid)"
            yield Problem(what="persons and their units are needed", where="persons", remedy=remedy)
            return
        wanted, of_persons = self.spent.columns(), persons.collect_schema().names()
        both = pl.DataFrame(schema=dict.fromkeys([*data.households.columns, *of_persons], pl.String))
        where = f"{data.household_source} and {data.person_source}"
        yield from missing_columns(both, [*wanted], where=where, settings={}, part=self.name)
        of_units = [self.state, *(name for name in self.spent.columns("units") if name in both.columns)]
        named, where = {"state": [self.state]}, data.household_source
        found = missing_columns(data.households, of_units, where=where, settings=named, part=self.name)
        yield from found
        for name, values in wanted.items():
            yield from self._problems_of(name, values, data, persons)
        if not found:
            states = {self.state: self.states}
            yield from undeclared(
                data.households, states, where=where, what="state", remedy="list every state in states"
            )

    def _problems_of(
        self, name: str, values: Sequence[Any], data: Microdata, persons: pl.LazyFrame
    ) -> Iterator[Problem]:
        """Yield where a column is in both files, or has none of the values that conditions name."""
        files = {data.household_source: data.households.lazy(), data.person_source: persons}
        having = {source: file for source, file in files.items() if name in file.collect_schema().names()}
        if len(having) > 1:
            what = f'"{name}" is in both files, and conditions cannot tell which they mean'
            yield Problem(what=what, where=listed([*having]), remedy="rename or drop it in one of them")
        for source, file in having.items():
            met_one = pl.any_horizontal(met({name: value}) for value in values)
            if file.select((~met_one & pl.col(name).is_not_null()).any() & ~met_one.any()).collect().item():
                what = "no value is one that the budget names, so that tables would be noise alone"
                yield Problem(what=what, where=f'{source} "{name}"', remedy="write the codes as the budget has them")

    def answered(self, data: Microdata, plan: Any, ask: TableAnswers, progress: Progress) -> dict[str, pl.DataFrame]:
        tables, queries = [], [*self.spent.queries()]
        for number, (query, true) in enumerate(self.true_counts(data, queries)):
            progress("count", number, len(queries))
            tables.append(self._rows(query, ask(query, true, chunk=0)))
        counts = pl.concat(tables)
        guesses = [truncated(*row) for row in counts.select("count", "variance").iter_rows()]
        counts = counts.hstack(pl.DataFrame(guesses, schema=schema_of(_ESTIMATES), orient="row"))
        return {"counts": in_order(counts, schema_of(self.columns["counts"])), "ratios": self._ratios(counts)}

    def true_counts(self, data: Microdata, queries: Sequence[PHSafeQuery]) -> Iterator[tuple[PHSafeQuery, Ints]]:
        """Yield each query with its counts: region x iteration x cell, from the rows of its table."""
        budget, rows = self.spent, dict[str, pl.DataFrame]()
        units = data.households.lazy().filter(met(budget.occupied))
        for query in queries:
            if query.name not in rows:
                rows = {query.name: self._joined(query.table, data, units)}
            names = budget.race_of.get(query.table.race_of, {})
            group = [met(condition, names) for condition in budget.groups[query.group].values()]
            cells = [met(condition) for condition in query.table.cells.values()]
            table = rows[query.name].select(
                pl.col(self.state).cast(pl.String), _first(group).alias("__iteration"), _first(cells).alias("__cell")
            )
            regions = self._regions(query)
            place = {state: number for number, state in enumerate(regions)}
            region = pl.lit(0) if query.region == NATION else pl.col(self.state).replace_strict(place)
            kept = table.drop_nulls().select(region.cast(pl.Int64).alias("__region"), "__iteration", "__cell")
            shape = (len(regions), len(group), len(cells))
            index = np.ravel_multi_index(tuple(kept[name].to_numpy() for name in kept.columns), shape)
            yield query, np.bincount(index, minlength=int(np.prod(shape))).astype(np.int64).reshape(shape)

    def _regions(self, query: PHSafeQuery) -> Sequence[str]:
        return ("1",) if query.region == NATION else self.states

    def _joined(self, table: PHSafeTable, data: Microdata, units: pl.LazyFrame) -> pl.DataFrame:
        """Return the rows that a table counts: units, or persons with their unit, at most so many of each."""
        persons, hid = data.lazy_persons, data.hid
        assert persons is not None
        assert hid is not None
        if table.counts == "units":
            return units.filter(met(table.where)).collect()
        own = [name for name in persons.collect_schema().names() if name not in units.collect_schema().names()]
        rows = persons.select(hid, *own).join(units, on=hid).filter(met(table.where)).collect()
        return at_most(rows, hid, table.at_most, key=self.order_key)

    def _rows(self, query: PHSafeQuery, noisy: Ints) -> pl.DataFrame:
        """Return the rows of one query."""
        labels = [self._regions(query), [*self.spent.groups[query.group]], [*query.table.cells]]
        region, iteration, cell = (pl.Series(values, dtype=pl.String) for values in labels)
        at = [axis.ravel() for axis in np.indices(noisy.shape)]
        table = pl.DataFrame(
            {
                "region_id": region.gather(at[0]),
                "region_type": pl.repeat(REGION_TYPES[query.region], noisy.size, dtype=pl.String, eager=True),
                "table": pl.repeat(query.name, noisy.size, dtype=pl.String, eager=True),
                "iteration_code": iteration.gather(at[1]),
                "data_cell": cell.gather(at[2]),
                "count": noisy.ravel(),
            }
        )
        return with_intervals(table, [query], cells=np.ones(noisy.size, dtype=np.int64))

    def _ratios(self, counts: pl.DataFrame) -> pl.DataFrame:
        keys = ["region_id", "region_type", "iteration_code"]

        def summed(side: Any, names: tuple[str, str]) -> pl.DataFrame:
            own = counts.filter((pl.col("table") == side.table) & pl.col("data_cell").is_in(side.cells))
            sums = [pl.col(old).sum().alias(new) for old, new in zip(("count", "variance"), names, strict=True)]
            return own.group_by(keys, maintain_order=True).agg(sums)

        found: list[tuple[Any, ...]] = []
        for name, each in self.spent.ratios.items():
            both = summed(each.above, ("a", "va")).join(summed(each.below, ("b", "vb")), on=keys, maintain_order="left")
            for region, kind, iteration, a, va, b, vb in both.select(*keys, "a", "va", "b", "vb").iter_rows():
                found.append((region, kind, name, iteration, *ratio(a, b, variances=(va, vb))))
        return pl.DataFrame(found, schema=schema_of(self.columns["ratios"]), orient="row")

    # ---- small files, for audits

    def law(self, dataset: Any) -> StagedLaw:
        queries, parts = [*self.spent.queries()], dict[Hashable, Staged]()
        for query, true in self.true_counts(self._small(dataset), queries):
            parts[query.title] = Staged(tables=(ShiftLaw(true.ravel().tolist(), query.noise),))
        return StagedLaw(parts)

    def _small(self, dataset: Any) -> Microdata:
        """Return households ((unit values), (persons)) or persons (house, values) as a file."""
        homes: list[tuple[Any, Any]] = []
        if self.promise == "add-remove":
            for house in sorted({row[0] for row in dataset}):
                people = sorted(row[1] for row in dataset if row[0] == house)
                # What a unit is follows from who lives there, so that one person can change all of it.
                homes.append((_UNITS[len(people) % len(_UNITS)], people))
        else:
            homes = [*dataset]
        empty = [("none", *dict.fromkeys(_UNIT, None).values())]
        units = [(str(n), *unit) for n, (unit, _) in enumerate(homes)] or empty
        persons = [(str(n), *person) for n, (_, people) in enumerate(homes) for person in people]
        schema = {
            n: pl.DataFrame(r, schema=dict.fromkeys(("hid", *c), pl.String), orient="row")
            for n, r, c in (("units", units, _UNIT), ("persons", persons, _PERSON))
        }
        placed = schema["units"].with_columns(pl.lit(self.states[0]).alias(self.state))
        return Microdata(households=placed, persons=schema["persons"], hid="hid", checked=False)

    def examples(self) -> list[tuple[Any, ...]]:
        if self.promise == "add-remove":
            return [*product((0, 1), (_CHILD, _ADULT))]
        large = max(table.at_most for table in self.spent.tables.values()) + 1
        return [
            (_UNITS[0], (_CHILD,) * large),
            (_UNITS[1], (_ADULT,) * large),
            (_UNITS[1], (_ADULT,)),
            (_UNITS[0], (_ADULT, _CHILD)),
        ]


# Columns of the files that are audited, two units and two persons that differ in everything.
_UNIT: Final = ("hhrace", "hhspan", "ten", "hht", "hht2", "cplt")
_PERSON: Final = ("cenrace", "cenhisp", "qage", "relship")
_UNITS: Final = (("1", "1", "1", "1", "01", "1"), ("2", "2", "3", "3", "06", "0"))
_CHILD: Final = ("1", "1", "2", "25")
_ADULT: Final = ("2", "2", "40", "20")


def _first(conditions: Sequence[pl.Expr]) -> pl.Expr:
    """Return the number of the first condition that a row meets, so that it is counted once at most; null for none."""
    found = pl.lit(None, dtype=pl.Int64)
    for number, condition in reversed([*enumerate(conditions)]):
        found = pl.when(condition).then(pl.lit(number, dtype=pl.Int64)).otherwise(found)
    return found
