"""Counting population groups and their tables, whatever the number of regions: the confidential side of SafeTab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.tables.safetab.cells import CellLevel
from stirred.mechanisms.tables.safetab.groups import Iterations, Members

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """All groups of one region type and level, empty ones too: group = region x (number of iterations) + iteration."""

    regions: tuple[str, ...]
    members: Members

    @property
    def width(self) -> int:
        """Return the number of iterations."""
        return len(self.members.codes)

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return len(self.regions) * self.width

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
class Records:
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

    domain: Domain
    region: Ints
    records: Records

    @classmethod
    def of(cls, records: Records, column: str, *, level: int, coarse: bool) -> Counter:
        """Return the counter; ``column`` has the regions of the areas, and is empty for the whole nation."""
        members = records.members(level, coarse=coarse)
        if not column:
            return cls(Domain(("1",), members), np.zeros(records.area.size, dtype=np.int64), records)
        regions = records.areas[column].drop_nulls().unique().sort()
        numbered = pl.DataFrame({column: regions}).with_row_index("__number")
        place = records.areas.select(column).join(numbered, on=column, how="left", maintain_order="left")["__number"]
        region = place.cast(pl.Int64).fill_null(-1).to_numpy()[records.area]
        return cls(Domain(tuple(regions), members), region, records)

    def totals(self) -> tuple[Ints, Ints]:
        """Return the groups that are not empty, and how many records each has."""
        inside = self.region >= 0
        frame = pl.DataFrame({"region": self.region[inside], "kind": self.records.kind[inside]})
        alike = frame.group_by("region", "kind").len("records")
        rows, iteration = self.domain.members.expanded(alike["kind"].to_numpy())
        group = alike["region"].to_numpy()[rows] * self.domain.width + iteration
        counted = pl.DataFrame({"group": group, "records": alike["records"].to_numpy()[rows]})
        summed = counted.group_by("group").agg(pl.col("records").sum()).sort("group")
        return summed["group"].to_numpy().astype(np.int64), summed["records"].to_numpy().astype(np.int64)

    def cells(
        self, groups: Ints, levels: Ints, table: Sequence[CellLevel], *, fine: str
    ) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield for each level its groups, in order, and their counts by measured cell."""
        domain, wanted = self.domain, np.zeros(len(self.domain.regions) + 1, dtype=bool)
        wanted[groups // max(domain.width, 1)] = True  # the last entry, of records in no region, stays False
        wanted[-1] = False
        inside = wanted[self.region]
        frame = pl.DataFrame(
            {"region": self.region[inside], "kind": self.records.kind[inside], "fine": self.records.fine[fine][inside]}
        )
        alike = frame.group_by("region", "kind", "fine").len("records")
        rows, iteration = domain.members.expanded(alike["kind"].to_numpy())
        group = alike["region"].to_numpy()[rows] * domain.width + iteration
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
