"""How far released records are from the truth, by level, size of the area and group. It never leaves the agency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stirred.engines.protocol import Engine
from stirred.mechanisms.protocol import Bars, Grid, Section
from stirred.mechanisms.topdown.hierarchy.counts import Counts, Entries
from stirred.mechanisms.topdown.hierarchy.schema import DETAILED, TOTAL, MarginalQuery
from stirred.mechanisms.topdown.hierarchy.tree import blocks
from stirred.mechanisms.topdown.measure import Population
from stirred.mechanisms.topdown.records import solved
from stirred.mechanisms.topdown.settings import TopDownSettings
from stirred.mechanisms.topdown.solve.files import SolverOutcome
from stirred.mechanisms.topdown.store import MeasurementStore

SIZES: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_COLUMNS: Final = {
    **dict.fromkeys(("records", "arm", "geolevel", "query", "group"), pl.String),
    **{"size_from": pl.Int64, "areas": pl.Int64, "mean_l1": pl.Float64, "bias": pl.Float64},
}
_NUMBERS: Final = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelErrors:
    """How far the records of a release are from the confidential file, and what other arms make of the same noise."""

    parts: Sequence[Population]
    stores: Mapping[str, MeasurementStore]
    released: Mapping[str, SolverOutcome]
    settings: TopDownSettings
    work: Path
    engine: Engine | None = None

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Return errors by kind of record, arm, level, query, group of the query, and true size of the area.

        Without a group ``mean_l1`` is the sum of absolute errors over all cells of an area, with one that of its cell;
        without a size it is the mean of all areas. ``bias`` is the mean error.
        """
        found: list[tuple[object, ...]] = []
        for part in self.parts:
            for arm in dict.fromkeys((self.settings.arm, *self.settings.compare)):
                for row in _errors(part, self._counts(part, arm)):
                    found.append((part.name, arm, *row))
        return pl.DataFrame(found, schema=_COLUMNS, orient="row")

    def _counts(self, part: Population, arm: str) -> Counts:
        """Return the counts of the leaves as they were released, or as another arm makes them."""
        made = self.released[part.name]
        if arm != self.settings.arm:
            made = solved(self.stores[part.name], part.name, arm, self.work, engine=self.engine)
        frame, spine = pl.concat(map(pl.read_parquet, made.files)), part.spine
        found = Entries.of(frame, part.schema, spine.geocodes[-1].cast(pl.String).to_list())
        return Counts.of(found.area, found.cell, frame["count"].to_numpy(), areas=spine.areas(spine.depth - 1))

    def sections(self) -> list[Section]:
        """Return for each kind of record a picture and a table of the errors by level."""
        return [
            Section(title=f"Error of the {part.records} by level", blocks=tuple(self._blocks(part.name)))
            for part in self.parts
        ]

    def _blocks(self, part: str) -> Iterator[str | Bars | Grid]:
        whole = self.rows.filter(pl.col("records") == part, pl.col("group").is_null(), pl.col("size_from").is_null())
        finest = whole.filter(pl.col("query") == DETAILED)
        several = finest["arm"].n_unique() > 1
        yield (
            "Released records beside the confidential file: the sum of absolute errors over all cells of an area, on "
            "average over the areas of a level."
            + (" All arms are made from the same noise; only the first was released." if several else "")
        )
        bars = tuple(finest.select("geolevel", "arm", "mean_l1").iter_rows())
        yield Bars(bars=bars, x="", y="mean absolute error of an area, all cells")
        names = [*dict.fromkeys(finest["arm"])]
        rows = []
        for (level, query), own in whole.partition_by("geolevel", "query", as_dict=True, maintain_order=True).items():
            errors = dict(own.select("arm", "mean_l1").iter_rows())
            rows.append((level, query, own["areas"][0], *(f"{errors[arm]:.2f}" for arm in names)))
        yield Grid(header=("level", "query", "areas", *names), rows=tuple(rows), numbers=tuple(names))
        yield "By true size of the area and by group: internal/accuracy_by_level.parquet."


def _errors(part: Population, released: Counts) -> Iterator[tuple[object, ...]]:
    schema = part.schema
    queries = [schema.query(name) for name in (TOTAL, *schema.names, DETAILED)]
    codes = {attribute.name: attribute.codes for attribute in schema.attributes}
    for depth, level in enumerate(part.spine.names):
        for query in queries:
            sums, cells, areas = _summed(part, released, depth, query)
            yield from _means(level, query.name, None, sums, areas)
            for place, code in enumerate(codes.get(query.name, ())):
                yield from _means(level, query.name, code, cells[:, :, place], areas)


def _summed(
    part: Population, released: Counts, depth: int, query: MarginalQuery
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each size of area the sums of absolute and signed errors, over cells and for each, and the areas."""
    sums, areas = np.zeros((2, len(SIZES))), np.zeros(len(SIZES), dtype=np.int64)
    cells = np.zeros((2, len(SIZES), query.size))
    for some in blocks(part.spine.areas(depth), max(1, _NUMBERS // query.size)):
        true = part.answers(query, depth, some)
        error = part.spine.counts(released, depth, some).answers(query) - true
        size = np.searchsorted(SIZES, true.sum(axis=1), side="right") - 1
        areas += np.bincount(size, minlength=len(SIZES))
        for place, own in enumerate((np.abs(error), error)):
            np.add.at(cells[place], size, own)
    sums[:] = cells.sum(axis=2)
    return sums, cells, areas


def _means(
    level: str, query: str, group: str | None, sums: np.ndarray, areas: np.ndarray
) -> Iterator[tuple[object, ...]]:
    total, many = sums.sum(axis=1), int(areas.sum())
    yield level, query, group, None, many, float(total[0] / many), float(total[1] / many)
    for place in np.flatnonzero(areas):
        own = sums[:, place] / areas[place]
        yield level, query, group, SIZES[place], int(areas[place]), float(own[0]), float(own[1])
