"""What SafeTab-P and SafeTab-H share: population groups, who belongs to which, and what replacing a record costs.

A group is a region and a race or ethnicity iteration.

A person belongs to an iteration *alone* if every race code of the person is in it, *in combination* if one of them is,
and to an ethnicity iteration by the ethnicity code. The stability is how many groups of one region type and level a
record can be in: what a record that comes or goes can change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from io import BytesIO
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import Field

from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, bad_plan, listed
from stirred.mechanisms.protocol import Names, PublicTable, TableFile
from stirred.mechanisms.tables.budgets import REFERENCE, BudgetPart, Region
from stirred.mechanisms.tables.query import TEXT, Columns, Query, in_order, schema_of
from stirred.mechanisms.tables.tabulator import (
    Tabulator,
    TabulatorSettings,
    missing_columns,
    undeclared,
    with_intervals,
)
from stirred.spec.problems import Problem

Ints = npt.NDArray[np.int64]
ALONE, COMBINATION, ETHNICITY = "alone", "combination", "ethnicity"
_COLUMNS: Final = ("iteration_code", "kind", "level", "detailed_only", "coarse_only", "codes")
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The iterations of one level, and those that each kind of record is in, one after the other (``starts``)."""

    codes: tuple[str, ...]
    detailed_only: npt.NDArray[np.bool_]
    starts: Ints
    iterations: Ints

    def expanded(self, kind: Ints) -> tuple[Ints, Ints]:
        """Return for records of these kinds the row and the iteration of every membership."""
        many = np.diff(self.starts)[kind]
        rows = np.repeat(np.arange(kind.size), many)
        inside = np.arange(rows.size) - np.repeat(np.cumsum(many) - many, many)
        return rows, self.iterations[np.repeat(self.starts[kind], many) + inside]


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """The iterations as the table declares them, one row for each."""

    table: pl.DataFrame

    @classmethod
    def of(cls, given: pl.DataFrame, *, where: str) -> Iterations:
        """Return the iterations of a table; all problems at once."""
        if problems := [*_problems(given, where)]:
            raise DataError(problems)
        truths = [pl.col(name).str.to_lowercase().replace_strict(_TRUTHS) for name in _COLUMNS[3:5]]
        codes = pl.col("codes").str.split(" ").list.eval(pl.element().filter(pl.element() != "")).list.unique()
        return cls(given.with_columns(pl.col("level").cast(pl.Int64), *truths, codes).sort("iteration_code"))

    def of_level(self, level: int, *, coarse: bool) -> pl.DataFrame:
        """Return the iterations of a level that regions of a kind are tabulated for."""
        out = pl.col("detailed_only") if coarse else pl.col("coarse_only")
        return self.table.filter((pl.col("level") == level) & ~out)

    def stability(self, races: int) -> int:
        """Return how many groups of one region type and level a record with this many race codes can be in at most.

        A code is in h iterations of a kind. Where those alone and in combination come in pairs of the same codes, a
        iterations alone, shared by all k codes, leave h - a others to each, so 2a + k(h - a) <= max(2, k) h.

        >>> def row(code, kind, codes): return (code, kind, "1", "false", "false", codes)
        >>> rows = [row("1", "alone", "a"), row("2", "combination", "a"), row("3", "ethnicity", "x")]
        >>> Iterations.of(pl.DataFrame(rows, schema=list(_COLUMNS), orient="row"), where="").stability(8)
        9
        """
        found = 0
        for level, coarse in product(self.table["level"].unique(), (False, True)):
            own = self.of_level(level, coarse=coarse)
            by_kind = {kind: own.filter(pl.col("kind") == kind) for kind in (ALONE, COMBINATION, ETHNICITY)}
            most = {k: int(f.explode("codes")["codes"].value_counts()["count"].max() or 0) for k, f in by_kind.items()}  # type: ignore[arg-type]
            sets = [sorted(tuple(sorted(codes)) for codes in by_kind[kind]["codes"]) for kind in (ALONE, COMBINATION)]
            paired = sets[0] == sets[1]
            of_race = max(2, races) * most[ALONE] if paired else most[ALONE] + races * most[COMBINATION]
            found = max(found, of_race + most[ETHNICITY])
        return found

    def members(self, kinds: pl.DataFrame, level: int, *, coarse: bool) -> Members:
        """Return who is in what: ``kinds`` has a row for each kind of record, its codes in ``races``, and ethnicity."""
        own = self.of_level(level, coarse=coarse).with_row_index("iteration")
        each = own.select("iteration", "kind", "codes").explode("codes")
        indexed = kinds.with_row_index("record")
        race = indexed.select("record", "races").explode("races").drop_nulls().unique()
        many = race.group_by("record").len("codes_in_all")
        found = race.join(each.filter(pl.col("kind") != ETHNICITY), left_on="races", right_on="codes")
        shared = found.group_by("record", "iteration", "kind").len("codes_inside").join(many, on="record")
        in_it = (pl.col("kind") == COMBINATION) | (pl.col("codes_inside") == pl.col("codes_in_all"))
        of_race = shared.filter(in_it).select("record", "iteration")
        of_ethnicity = indexed.select("record", "ethnicity").join(
            each.filter(pl.col("kind") == ETHNICITY), left_on="ethnicity", right_on="codes"
        )
        pairs = pl.concat([of_race, of_ethnicity.select("record", "iteration")]).unique().sort("record", "iteration")
        counts = np.bincount(pairs["record"].to_numpy(), minlength=kinds.height)
        return Members(
            codes=tuple(own["iteration_code"]),
            detailed_only=own["detailed_only"].to_numpy(),
            starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            iterations=pairs["iteration"].to_numpy().astype(np.int64),
        )


def _problems(given: pl.DataFrame, where: str) -> Iterator[Problem]:
    if missing := [name for name in _COLUMNS if name not in given.columns]:
        remedy = f"the table of iterations has the columns {listed(_COLUMNS)}"
        yield Problem(what=f"there is no column {listed(missing)}", where=where, remedy=remedy)
        return
    for name, allowed in (("kind", (ALONE, COMBINATION, ETHNICITY)), *((n, (*_TRUTHS,)) for n in _COLUMNS[3:5])):
        if odd := sorted({str(v) for v in given[name] if str(v).lower() not in allowed}):
            yield Problem(
                what=f"{odd[0]!r} is not known", where=f'{where} "{name}"', remedy=f"one of {listed(allowed)}"
            )
    if given["level"].cast(pl.Int64, strict=False).null_count():
        yield Problem(what="a level is not a whole number", where=f'{where} "level"', remedy="write 1 or 2")
    if given["iteration_code"].is_duplicated().any() or given["iteration_code"].null_count():
        remedy = "give every iteration one row and one code"
        yield Problem(what="a code is missing or appears twice", where=f'{where} "iteration_code"', remedy=remedy)


def kinds_of(records: pl.DataFrame, races: Sequence[str], ethnicity: str) -> tuple[Ints, pl.DataFrame]:
    """Return the kind of each record, and each kind's race codes and ethnicity: one kind has the same codes."""
    texts = [pl.col(name).cast(pl.String).fill_null("") for name in (*races, ethnicity)]
    keys = records.select(pl.concat_str(texts, separator="\x1f").alias("key"))
    unique = keys.unique().sort("key").with_row_index("kind")
    kind = keys.join(unique, on="key", how="left", maintain_order="left")["kind"].to_numpy().astype(np.int64)
    split = unique["key"].str.split("\x1f")
    given = pl.DataFrame({"races": split.list.head(len(races)), "ethnicity": split.list.last()})
    races_given = pl.col("races").list.eval(pl.element().filter(pl.element() != "")).list.unique()
    return kind, given.with_columns(races_given)


@dataclass(frozen=True, slots=True, eq=False)
class CellLevel:
    """One level: ``cell`` has the measured cell of every fine value, ``labels`` and ``sums`` the published rows."""

    cell: Ints
    measured: int
    labels: pl.DataFrame
    sums: Ints  # measured x rows, of 0 and 1


def age_by_sex(edges: Sequence[Sequence[int]], *, sexes: int, top: int, names: Sequence[str]) -> list[CellLevel]:
    """Return the levels of sex by age: the total alone, then each list of lower age edges, with sex margins.

    A fine value is sex * (top + 1) + age.
    """
    ages = np.arange(top + 1)
    whole = pl.DataFrame({"agestart": ["*"], "ageend": ["*"], "sex": ["*"]})
    levels = [CellLevel(np.zeros(sexes * ages.size, dtype=np.int64), 1, whole, np.ones((1, 1), dtype=np.int64))]
    for lower in edges:
        starts = [0, *lower]
        groups = np.searchsorted(lower, ages, side="right")
        cell = (np.arange(sexes)[:, None] * len(starts) + groups).ravel()
        spans = [(str(a), str(b - 1)) for a, b in zip(starts, [*lower, top + 1], strict=True)]
        rows = [(a, b, sex) for sex in names for a, b in spans] + [("*", "*", sex) for sex in names]
        margins = np.kron(np.eye(sexes, dtype=np.int64), np.ones((len(starts), 1), dtype=np.int64))
        sums = np.hstack([np.eye(sexes * len(starts), dtype=np.int64), margins])
        labels = pl.DataFrame(rows, schema=["agestart", "ageend", "sex"], orient="row")
        levels.append(CellLevel(cell.astype(np.int64), sums.shape[0], labels, sums))
    return levels


def from_cells(
    cells: Mapping[str, Sequence[str]], levels: Sequence[Sequence[str]], *, values: Sequence[str], label: str
) -> list[CellLevel]:
    """Return the levels of a table whose cells are sets of values; a row is every cell that measured ones add up to.

    >>> [level.labels["cell"].to_list() for level in from_cells(
    ...     {"0": "ab", "1": "a", "2": "b"}, [["0"], ["1", "2"]], values="ab", label="cell")]
    [['0'], ['0', '1', '2']]
    """
    found = []
    for measured in levels:
        inside = [{*cells[name]} for name in measured]
        cell = np.array([next(i for i, own in enumerate(inside) if value in own) for value in values], dtype=np.int64)
        rows = [name for name, own in cells.items() if all(each <= {*own} or not each & {*own} for each in inside)]
        sums = np.array([[int(each <= {*cells[name]}) for name in rows] for each in inside], dtype=np.int64)
        found.append(CellLevel(cell, len(measured), pl.DataFrame({label: rows}), sums))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class GroupRecords:
    """The records as SafeTab sees them: the area, the kind (race and ethnicity codes) and the fine value of each.

    No record is in more than ``stability`` groups of one region type and level.
    """

    area: Ints
    kind: Ints
    kinds: pl.DataFrame
    fine: Mapping[str, Ints]
    areas: pl.DataFrame
    iterations: Iterations
    stability: int
    _members: dict[tuple[int, bool], Members] = field(default_factory=dict)

    def members(self, level: int, *, coarse: bool) -> Members:
        """Return who is in which iteration of a level; no record is in more groups than the noise is made for."""
        if (level, coarse) not in self._members:
            found = self.iterations.members(self.kinds, level, coarse=coarse)
            most = int(np.diff(found.starts).max(initial=0))
            assert most <= self.stability, f"a record is in {most} groups, and the stability is {self.stability}"
            self._members[level, coarse] = found
        return self._members[level, coarse]


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """Counts of all groups of one region type and level, empty ones too: group = region x width + iteration.

    ``region`` has the region of each record, or -1.
    """

    regions: tuple[str, ...]
    members: Members
    region: Ints
    records: GroupRecords

    @classmethod
    def of(cls, records: GroupRecords, column: str, *, level: int, coarse: bool) -> Counter:
        """Return the counter; ``column`` has the regions of the areas, and is empty for the whole nation."""
        members = records.members(level, coarse=coarse)
        if not column:
            return cls(("1",), members, np.zeros(records.area.size, dtype=np.int64), records)
        regions = records.areas[column].drop_nulls().unique().sort()
        numbered = pl.DataFrame({column: regions}).with_row_index("__number")
        place = records.areas.select(column).join(numbered, on=column, how="left", maintain_order="left")["__number"]
        return cls(tuple(regions), members, place.cast(pl.Int64).fill_null(-1).to_numpy()[records.area], records)

    @property
    def width(self) -> int:
        return len(self.members.codes)

    def named(self, groups: Ints, region_type: str) -> pl.DataFrame:
        """Return region and iteration of each group."""
        regions, codes = pl.Series(self.regions, dtype=pl.String), pl.Series(self.members.codes, dtype=pl.String)
        return pl.DataFrame(
            {
                "region_id": regions.gather(groups // max(self.width, 1)),
                "region_type": pl.repeat(region_type, groups.size, dtype=pl.String, eager=True),
                "iteration_code": codes.gather(groups % max(self.width, 1)),
            }
        )

    def totals(self) -> tuple[Ints, Ints]:
        """Return the groups that are not empty, and how many records each has."""
        inside = self.region >= 0
        frame = pl.DataFrame({"region": self.region[inside], "kind": self.records.kind[inside]})
        alike = frame.group_by("region", "kind").len("records")
        rows, iteration = self.members.expanded(alike["kind"].to_numpy())
        group = alike["region"].to_numpy()[rows] * self.width + iteration
        counted = pl.DataFrame({"group": group, "records": alike["records"].to_numpy()[rows]})
        summed = counted.group_by("group").agg(pl.col("records").sum()).sort("group")
        return summed["group"].to_numpy().astype(np.int64), summed["records"].to_numpy().astype(np.int64)

    def cells(
        self, groups: Ints, levels: Ints, table: Sequence[CellLevel], *, fine: str
    ) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield for each level its groups, in order, and their counts by measured cell."""
        wanted = np.zeros(len(self.regions) + 1, dtype=bool)
        wanted[groups // max(self.width, 1)] = True  # the last entry, of records in no region, stays False
        wanted[-1] = False
        inside = wanted[self.region]
        frame = pl.DataFrame(
            {"region": self.region[inside], "kind": self.records.kind[inside], "fine": self.records.fine[fine][inside]}
        )
        alike = frame.group_by("region", "kind", "fine").len("records")
        rows, iteration = self.members.expanded(alike["kind"].to_numpy())
        group = alike["region"].to_numpy()[rows] * self.width + iteration
        many, value = alike["records"].to_numpy()[rows].astype(np.int64), alike["fine"].to_numpy()[rows]
        for level, cells in enumerate(table):
            own = groups[levels == level]
            if not own.size:
                continue
            place = np.searchsorted(own, group)
            found = (place < own.size) & (own[np.minimum(place, own.size - 1)] == group)
            index = place[found] * cells.measured + cells.cell[value[found]]
            counts = np.bincount(index, weights=many[found], minlength=own.size * cells.measured)
            yield level, own, counts.astype(np.int64).reshape(own.size, cells.measured)


# ---- the mechanism ----------------------------------------------------------------------------------------------

GROUP: Final[Columns] = dict.fromkeys(("region_id", "region_type", "iteration_code"), TEXT)
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
    place = REFERENCE.joinpath(f"{name}.csv")
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
    def groups(self) -> Iterations:
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
        where, of_block = f"blocks {self.blocks.file}", {"block": [self.block]}
        if problems := missing_columns(frame, needed, where=where, settings=of_block, part=self.name):
            raise DataError(problems)
        if frame[self.block].is_duplicated().any() or frame[self.block].null_count():
            where = f'blocks {self.blocks.file} "{self.block}"'
            raise DataError(
                [Problem(what="a block is missing or appears twice", where=where, remedy="give it one row")]
            )
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
        if problems := missing_columns(frame, self.used, where=where, settings=named, part=self.name):
            yield from problems
            return
        known = {self.block: known_blocks[self.block], **self._values}
        remedy = "correct the file, or declare the value in the table of blocks or in the budget"
        yield from undeclared(frame, known, where=where, what="value", remedy=remedy)
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
        # In coarse regions iterations that are for the nation and states alone are left out.
        return Counter.of(records, region.column, level=part.level, coarse=region.iterations == "coarse")

    def joined(self, name: str, tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the parts of a public table in the order of the groups."""
        schema = schema_of(self.columns[name])
        parts = [pl.DataFrame(schema=schema), *(in_order(table, schema) for table in tables)]
        return pl.concat(parts).sort(*GROUP, maintain_order=True)

    # ---- small files, for audits

    def examples(self) -> list[tuple[Any, ...]]:
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


def table_rows(groups: pl.DataFrame, level: CellLevel, noisy: Ints, query: Query) -> pl.DataFrame:
    """Return the rows of the tables of some groups: measured cells, and rows that are sums of them."""
    rows = level.labels.height
    table = groups[np.repeat(np.arange(groups.height), rows)].hstack(
        level.labels[np.tile(np.arange(rows), groups.height)]
    )
    table = table.with_columns(pl.Series("count", (noisy @ level.sums).ravel()))
    return with_intervals(table, [query], cells=np.tile(level.sums.sum(axis=0), groups.height))
