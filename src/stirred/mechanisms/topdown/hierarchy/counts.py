"""How many records each cell of each area holds: one value from the confidential file to the released one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery, Schema

Integers = npt.NDArray[np.int64]
Whole = npt.NDArray[np.signedinteger]  # narrow ones, where there are many


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """Counts by area and cell of the histogram, without zeros.

    Areas stand one after the other: those of area i are ``cells[starts[i] : starts[i + 1]]`` and ``counts`` there. A
    cell may stand more than once, where areas were put together.

    >>> found = Counts.of(np.array([2, 0, 2]), np.array([1, 3, 1]), areas=3)
    >>> found.area.tolist(), found.cells.tolist(), found.counts.tolist()
    ([0, 2], [3, 1], [1, 2])
    """

    starts: Integers  # and at the end where the last area stops
    cells: Whole
    counts: Whole

    @classmethod
    def of(cls, area: Whole, cell: Whole, count: Whole | None = None, *, areas: int) -> Counts:
        """Return the counts of entries in any order, equal ones added up; without ``count`` each entry is a record."""
        size = int(cell.max(initial=0)) + 1
        keys = area.astype(np.int64)
        keys *= size
        keys += cell
        if count is None:
            keys.sort()
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            counts: Whole = np.diff(first, append=keys.size).astype(np.int32)
        else:
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            counts = np.add.reduceat(count[order].astype(np.int64), first) if first.size else np.zeros(0, np.int64)
        keys = keys[first]
        starts = np.searchsorted(keys, np.arange(areas + 1) * size).astype(np.int64)
        return cls(starts=starts, cells=(keys % size).astype(cell.dtype), counts=counts)

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Integers, Integers]]) -> Counts:
        """Return the counts of areas given one by one, as cells and counts."""
        kept = [(cells[counts != 0], counts[counts != 0]) for cells, counts in rows]
        none = np.zeros(0, dtype=np.int64)
        return cls(
            starts=np.cumsum([0, *(len(cells) for cells, _ in kept)]).astype(np.int64),
            cells=np.concatenate([none, *(cells for cells, _ in kept)]),
            counts=np.concatenate([none, *(counts for _, counts in kept)]),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, area: int) -> tuple[Whole, Whole]:
        own = slice(self.starts[area], self.starts[area + 1])
        return self.cells[own], self.counts[own]

    @property
    def area(self) -> Integers:
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.starts))

    def between(self, bounds: Integers) -> Counts:
        """Return the counts of larger areas, each of neighbours: area i has those from ``bounds[i]`` on."""
        starts = self.starts[bounds]
        own = slice(starts[0], starts[-1])
        return Counts(starts=starts - starts[0], cells=self.cells[own], counts=self.counts[own])

    def up(self, parent: Integers, areas: int) -> Counts:
        """Return the counts of the areas above, of which these are the children, each cell once."""
        return Counts.of(parent[self.area], self.cells, self.counts, areas=areas)

    def answers(self, query: MarginalQuery, areas: range | None = None) -> Integers:
        """Return the answers to a query (areas, cells of the query) in some of the areas."""
        areas = range(len(self)) if areas is None else areas
        bounds = self.starts[areas.start : areas.stop + 1]
        own = slice(bounds[0], bounds[-1])
        place = np.repeat(np.arange(len(areas), dtype=np.int64) * query.size, np.diff(bounds))
        place += query.cell_of.astype(np.int32)[self.cells[own]]
        # Sums of whole numbers are exact in doubles as long as they stay below 2**53.
        found = np.bincount(place, weights=self.counts[own], minlength=len(areas) * query.size)
        return found.astype(np.int64).reshape(len(areas), query.size)

    def frame(self, schema: Schema, geocodes: Sequence[str]) -> pl.DataFrame:
        """Return the counts as they are published: geocode, attributes, count; ordered by area and cell."""
        area = self.area
        order = np.lexsort((self.cells, area))
        codes = np.unravel_index(self.cells[order], schema.shape)
        columns = [pl.Series("geocode", geocodes, dtype=pl.String).gather(area[order])]
        for attribute, code in zip(schema.attributes, codes, strict=True):
            columns.append(pl.Series(attribute.name, attribute.codes, dtype=pl.String).gather(code))
        return pl.DataFrame([*columns, pl.Series("count", self.counts[order], dtype=pl.Int64)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """The rows of published counts: area and cell of each, -1 where there is none; ``strange`` values by column."""

    area: Integers
    cell: Integers
    strange: dict[str, list[str]]

    @classmethod
    def of(cls, frame: pl.DataFrame, schema: Schema, geocodes: Sequence[str]) -> Entries:
        """Return the rows of a frame (geocode, attributes, count).

        >>> from stirred.mechanisms.topdown.hierarchy.schema import Attribute
        >>> toy = Schema(name="toy", attributes=(Attribute(name="sex", codes=("m", "f")),))
        >>> found = Entries.of(pl.DataFrame({"geocode": ["b", "c"], "sex": ["f", "m"]}), toy, ["a", "b"])
        >>> found.area.tolist(), found.cell.tolist(), found.strange
        ([1, -1], [1, 0], {'geocode': ['c']})
        """
        strange: dict[str, list[str]] = {}

        def places(name: str, codes: Sequence[str]) -> Integers:
            texts = frame[name].cast(pl.String)
            found = texts.replace_strict(
                pl.Series(codes, dtype=pl.String), np.arange(len(codes)), default=-1, return_dtype=pl.Int64
            ).to_numpy()
            if np.any(found < 0):
                strange[name] = texts.filter(pl.Series(found < 0)).fill_null("").unique().sort().to_list()
            return found

        area, cell = places("geocode", geocodes), np.zeros(frame.height, dtype=np.int64)
        for attribute in schema.attributes:
            code = places(attribute.name, attribute.codes)
            cell = np.where((cell < 0) | (code < 0), -1, cell * attribute.size + code)
        return cls(area=area, cell=cell, strange=strange)
