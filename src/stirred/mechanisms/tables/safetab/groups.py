"""Population groups: a region and a race or ethnicity iteration, and who belongs to which.

A person belongs to an iteration *alone* if every race code of the person is in it, *in combination* if one of them is,
and to an ethnicity iteration by the ethnicity code. The stability is how many groups of one region type and level a
record can be in: what a record that comes or goes can change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import DataError, listed
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
        return max(self._stability(own, races) for own in self._domains())

    def _domains(self) -> Iterator[pl.DataFrame]:
        for level in self.table["level"].unique():
            for coarse in (False, True):
                yield self.of_level(level, coarse=coarse)

    def _stability(self, own: pl.DataFrame, races: int) -> int:
        by_kind = {kind: own.filter(pl.col("kind") == kind) for kind in (ALONE, COMBINATION, ETHNICITY)}
        most = {k: int(f.explode("codes")["codes"].value_counts()["count"].max() or 0) for k, f in by_kind.items()}  # type: ignore[arg-type]
        sets = [sorted(tuple(sorted(codes)) for codes in by_kind[kind]["codes"]) for kind in (ALONE, COMBINATION)]
        paired = sets[0] == sets[1]
        of_race = max(2, races) * most[ALONE] if paired else most[ALONE] + races * most[COMBINATION]
        return of_race + most[ETHNICITY]

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
        yield Problem(what="a code is missing or stands twice", where=f'{where} "iteration_code"', remedy=remedy)


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

    @property
    def added(self) -> Ints:
        """Return how many measured cells each row adds up."""
        added: Ints = self.sums.sum(axis=0)
        return added


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
class RegionGroups:
    """All groups of one region type and level, empty ones too: group = region x (number of iterations) + iteration."""

    regions: tuple[str, ...]
    members: Members

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
    """Counts of one region type and level: ``region`` has the region of each record, or -1."""

    groups: RegionGroups
    region: Ints
    records: GroupRecords

    @classmethod
    def of(cls, records: GroupRecords, column: str, *, level: int, coarse: bool) -> Counter:
        """Return the counter; ``column`` has the regions of the areas, and is empty for the whole nation."""
        members = records.members(level, coarse=coarse)
        if not column:
            return cls(RegionGroups(("1",), members), np.zeros(records.area.size, dtype=np.int64), records)
        regions = records.areas[column].drop_nulls().unique().sort()
        numbered = pl.DataFrame({column: regions}).with_row_index("__number")
        place = records.areas.select(column).join(numbered, on=column, how="left", maintain_order="left")["__number"]
        region = place.cast(pl.Int64).fill_null(-1).to_numpy()[records.area]
        return cls(RegionGroups(tuple(regions), members), region, records)

    def totals(self) -> tuple[Ints, Ints]:
        """Return the groups that are not empty, and how many records each has."""
        inside = self.region >= 0
        frame = pl.DataFrame({"region": self.region[inside], "kind": self.records.kind[inside]})
        alike = frame.group_by("region", "kind").len("records")
        rows, iteration = self.groups.members.expanded(alike["kind"].to_numpy())
        group = alike["region"].to_numpy()[rows] * self.groups.width + iteration
        counted = pl.DataFrame({"group": group, "records": alike["records"].to_numpy()[rows]})
        summed = counted.group_by("group").agg(pl.col("records").sum()).sort("group")
        return summed["group"].to_numpy().astype(np.int64), summed["records"].to_numpy().astype(np.int64)

    def cells(
        self, groups: Ints, levels: Ints, table: Sequence[CellLevel], *, fine: str
    ) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield for each level its groups, in order, and their counts by measured cell."""
        every, wanted = self.groups, np.zeros(len(self.groups.regions) + 1, dtype=bool)
        wanted[groups // max(every.width, 1)] = True  # the last entry, of records in no region, stays False
        wanted[-1] = False
        inside = wanted[self.region]
        frame = pl.DataFrame(
            {"region": self.region[inside], "kind": self.records.kind[inside], "fine": self.records.fine[fine][inside]}
        )
        alike = frame.group_by("region", "kind", "fine").len("records")
        rows, iteration = every.members.expanded(alike["kind"].to_numpy())
        group = alike["region"].to_numpy()[rows] * every.width + iteration
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
