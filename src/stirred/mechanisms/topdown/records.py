"""What follows from the measurements alone: estimates, counts, records, and tables counted from these.

All of it is post-processing of the store of the draw, and deterministic: a run that was interrupted makes the same
again, and goes on at the level where it stopped. How far records are from the truth never leaves the agency.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stirred import __version__
from stirred.data.bundle import checksum
from stirred.data.natural import sort_naturally
from stirred.engines.protocol import Engine
from stirred.mechanisms.protocol import Bars, Grid, Progress, Section
from stirred.mechanisms.topdown.estimates import ROWS_AT_ONCE, estimate_frames, estimates_of
from stirred.mechanisms.topdown.hierarchy.schema import DETAILED, TOTAL, MarginalQuery
from stirred.mechanisms.topdown.hierarchy.tree import Counts, Entries, blocks
from stirred.mechanisms.topdown.measurements import JOURNAL, MeasurementStore, in_parts
from stirred.mechanisms.topdown.population import Population
from stirred.mechanisms.topdown.settings import TopDownSettings
from stirred.mechanisms.topdown.solve.files import FileParts, SolverOutcome, make, records_frame
from stirred.mechanisms.topdown.solve.problem import METHODS
from stirred.mechanisms.topdown.solve.tree import LevelStore, SolveOptions

Make = Callable[[], Iterable[pl.DataFrame]]
AREAS: Final = "areas"
CERTIFICATE: Final = "certificate"
EVENTS: Final = "events"
CERTIFICATE_COLUMNS: Final = {"records": pl.String, "check": pl.String, "compared": pl.Int64}
EVENT_COLUMNS: Final = {
    **dict.fromkeys(("records", "geolevel", "area", "what", "why"), pl.String),
    "amount": pl.Float64,
}
_ROWS: Final = 1 << 20
_MOST_CELLS: Final = 1_000_000
SIZES: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_ERROR_COLUMNS: Final = {
    **dict.fromkeys(("records", "arm", "geolevel", "query", "group"), pl.String),
    **{"size_from": pl.Int64, "areas": pl.Int64, "mean_l1": pl.Float64, "bias": pl.Float64},
}
_NUMBERS: Final = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class DerivedFiles:
    """All that the settings publish besides measurements, made from the stores of a draw."""

    parts: Sequence[Population]
    stores: Mapping[str, MeasurementStore]
    settings: TopDownSettings
    work: Path
    engine: Engine | None = None
    progress: Progress | None = None
    made: dict[tuple[str, str], SolverOutcome] = field(default_factory=dict)  # by kind of record and arm

    def frames(
        self, types: Mapping[str, pl.DataType], *, tables: Mapping[str, tuple[str, Sequence[str]]]
    ) -> dict[str, Make]:
        """Make what is published, and return the files by name; ``tables`` are title: (kind of record, variables)."""
        found: dict[str, Make] = {}
        layouts = {part.name: Layout.of(part, types) for part in self.parts}
        for part in self.parts:
            if "estimates" in self.settings.publish:
                found[part.file("estimates")] = partial(_from_files, self._estimates(part), ROWS_AT_ONCE)
            if "records" in self.settings.publish:
                files = self.solved(part.name).files
                found[part.file("counts")] = partial(_from_files, files)
                found[part.file("records")] = partial(_records, files, layouts[part.name])
        if self.made:
            found[AREAS] = lambda: [layouts[self.parts[0].name].areas]
            found[CERTIFICATE] = lambda: [self._certificates()]
            found[EVENTS] = lambda: [self._events()]
            for title, (kind, variables) in tables.items():
                found[title] = partial(_table, self.solved(kind).files, layouts[kind], variables)
        return found

    @property
    def released(self) -> dict[str, SolverOutcome]:
        return {part: made for (part, arm), made in self.made.items() if arm == self.settings.arm}

    def solved(self, part: str, arm: str = "") -> SolverOutcome:
        """Return the counts of a kind of record, made by an arm; what an interrupted run had done is taken over.

        The mark of what was kept is the journal of the store, which has the checksum of all noise in it.
        """
        arm = arm or self.settings.arm
        if (part, arm) in self.made:
            return self.made[part, arm]

        def tell(stage: str, done: int, whole: int) -> None:
            if self.progress is not None:
                self.progress(f"{part} {stage}", done, whole)

        store = self.stores[part]
        mark = f"{__version__} {arm} {checksum(store.folder / JOURNAL)}"
        options = SolveOptions(
            method=METHODS[arm],
            threads=os.cpu_count() or 1,
            engine=self.engine,
            store=LevelStore(folder=self.work.absolute() / "levels", mark=mark),
            progress=tell,
        )
        folder = self.work / "counts" / arm / part
        found = make(store.shards, options, folder, top=store.top(), records=None)
        return self.made.setdefault((part, arm), found)

    def _estimates(self, part: Population) -> list[Path]:
        """Write the best linear unbiased estimates of all that was measured, in parts, with their standard errors."""
        written = FileParts(path=self.work / "estimates" / part.name)
        written.begin()
        # Counts that were published before bind records; they are no measurement of the confidential file.
        source = replace(self.stores[part.name], agreeing=False)
        for found in estimates_of(source, progress=self.progress, stage=f"{part.name} estimate"):
            written.extend(estimate_frames(found, part.queries))
        return written.parts

    def _certificates(self) -> pl.DataFrame:
        rows = [
            (part, check, many) for part, own in self.released.items() for check, many in own.certificate.checks.items()
        ]
        return pl.DataFrame(rows, schema=CERTIFICATE_COLUMNS, orient="row")

    def _events(self) -> pl.DataFrame:
        rows = [
            (part, each.level, each.area, each.what, each.why, each.amount)
            for part, own in self.released.items()
            for each in own.events
        ]
        return pl.DataFrame(rows, schema=EVENT_COLUMNS, orient="row")

    # ---- how far they are from the confidential file

    @cached_property
    def errors(self) -> pl.DataFrame:
        """Return errors by kind of record, arm, level, query, group of the query, and true size of the area.

        Without a group ``mean_l1`` is the sum of absolute errors over all cells of an area, with one that of its cell;
        without a size it is the mean of all areas. ``bias`` is the mean error. All arms have the same noise.
        """
        found: list[tuple[object, ...]] = []
        for part in self.parts if self.made else ():
            leaves = part.spine.geocodes[-1].cast(pl.String).to_list()
            for arm in dict.fromkeys((self.settings.arm, *self.settings.compare)):
                frame = pl.concat(map(pl.read_parquet, self.solved(part.name, arm).files))
                entries = Entries.of(frame, part.schema, leaves)
                counts = Counts.of(entries.area, entries.cell, frame["count"].to_numpy(), areas=len(leaves))
                found += [(part.name, arm, *row) for row in _errors(part, counts)]
        return pl.DataFrame(found, schema=_ERROR_COLUMNS, orient="row")

    def sections(self) -> list[Section]:
        """Return for each kind of record a picture and a table of the errors by level."""
        return [
            Section(title=f"Error of the {part.records} by level", blocks=tuple(self._blocks(part.name)))
            for part in (self.parts if self.made else ())
        ]

    def _blocks(self, part: str) -> Iterator[str | Bars | Grid]:
        whole = self.errors.filter(pl.col("records") == part, pl.col("group").is_null(), pl.col("size_from").is_null())
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


# ---- records as the file has them -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """How the records of a part are written: in the columns of the file, and in their types."""

    areas: pl.DataFrame  # geocode, and the columns that name the area in the file, in the order of the leaves
    codes: Mapping[str, pl.Series]  # of each attribute, called and typed as in the file

    @classmethod
    def of(cls, part: Population, types: Mapping[str, pl.DataType]) -> Layout:
        """Return the layout of a file with columns of these types."""
        codes = {}
        for attribute, name in zip(part.schema.attributes, part.columns, strict=True):
            own, kind = pl.Series(name, attribute.codes, dtype=pl.String), types.get(name, pl.String())
            fits = kind.is_integer() and not own.cast(kind, strict=False).null_count()
            codes[attribute.name] = own.cast(kind) if fits else own
        areas = part.spine.leaves
        areas = areas.cast({name: types[name] for name in areas.columns if name in types}, strict=False)
        if "geocode" not in areas.columns:
            areas = pl.DataFrame([part.spine.geocodes[-1].cast(pl.String).alias("geocode"), *areas.get_columns()])
        return cls(areas=areas, codes=codes)

    def of_counts(self, counts: pl.DataFrame) -> pl.DataFrame:
        """Return counts (geocode, attributes, count) in the columns of the file."""
        leaves = self.areas["geocode"].cast(pl.String)
        leaf = counts["geocode"].replace_strict(leaves, np.arange(len(leaves)), return_dtype=pl.Int64)
        places = self.areas.select(self.places)[leaf.to_numpy()]
        values = [counts[name].cast(own.dtype).alias(own.name) for name, own in self.codes.items()]
        return pl.DataFrame([*places.get_columns(), *values, counts["count"]])

    @property
    def places(self) -> list[str]:
        return [name for name in self.areas.columns if name != "geocode"] or ["geocode"]

    def every_cell(self, variables: Sequence[str]) -> pl.DataFrame | None:
        """Return all cells of a table: areas that exist, by all codes; None where there are too many."""
        found = [own.to_frame() for own in self.codes.values() if own.name in variables]
        if places := [name for name in variables if name in self.places]:
            found.append(self.areas.select(places).unique())
        if prod(frame.height for frame in found) > _MOST_CELLS:
            return None
        return reduce(partial(pl.DataFrame.join, how="cross"), found).select(variables)


def _from_files(paths: Sequence[Path], rows: int = _ROWS) -> Iterator[pl.DataFrame]:
    return in_parts(map(pl.read_parquet, paths), rows)


def _records(paths: Sequence[Path], layout: Layout) -> Iterator[pl.DataFrame]:
    return in_parts((records_frame(layout.of_counts(pl.read_parquet(path))) for path in paths), _ROWS)


def _table(paths: Sequence[Path], layout: Layout, variables: Sequence[str]) -> list[pl.DataFrame]:
    """Return a table counted from the counts, with its empty cells where these are not too many."""
    found = [
        layout.of_counts(pl.read_parquet(path)).group_by(variables).agg(pl.col("count").sum().cast(pl.Int64))
        for path in paths
    ]
    if (cells := layout.every_cell(variables)) is not None:
        found.append(cells.with_columns(count=pl.lit(0, dtype=pl.Int64)))
    return [sort_naturally(pl.concat(found).group_by(variables).agg(pl.col("count").sum()), variables)]


# ---- errors by level --------------------------------------------------------------------------------------


def _errors(part: Population, released: Counts) -> Iterator[tuple[object, ...]]:
    schema = part.schema
    queries = [schema.query(name) for name in (TOTAL, *schema.names, DETAILED)]
    codes = {attribute.name: attribute.codes for attribute in schema.attributes}
    for depth, level in enumerate(part.spine.names):
        for query in queries:
            cells, areas = _summed(part, released, depth, query)
            yield from _means(level, query.name, None, cells.sum(axis=2), areas)
            for place, code in enumerate(codes.get(query.name, ())):
                yield from _means(level, query.name, code, cells[:, :, place], areas)


def _summed(part: Population, released: Counts, depth: int, query: MarginalQuery) -> tuple[np.ndarray, np.ndarray]:
    """Return for each size of area the sums of absolute and signed errors in each cell, and how many areas it has."""
    areas, cells = np.zeros(len(SIZES), dtype=np.int64), np.zeros((2, len(SIZES), query.size))
    for some in blocks(part.spine.areas(depth), max(1, _NUMBERS // query.size)):
        true = part.answers(query, depth, some)
        error = part.spine.counts(released, depth, some).answers(query) - true
        size = np.searchsorted(SIZES, true.sum(axis=1), side="right") - 1
        areas += np.bincount(size, minlength=len(SIZES))
        for place, own in enumerate((np.abs(error), error)):
            np.add.at(cells[place], size, own)
    return cells, areas


def _means(
    level: str, query: str, group: str | None, sums: np.ndarray, areas: np.ndarray
) -> Iterator[tuple[object, ...]]:
    total, many = sums.sum(axis=1), int(areas.sum())
    yield level, query, group, None, many, float(total[0] / many), float(total[1] / many)
    for place in np.flatnonzero(areas):
        own = sums[:, place] / areas[place]
        yield level, query, group, SIZES[place], int(areas[place]), float(own[0]), float(own[1])
