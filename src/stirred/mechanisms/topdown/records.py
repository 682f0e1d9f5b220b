"""What follows from the measurements alone: estimates, counts, records, and tables counted from these.

All of it is post-processing of the store of the draw, and deterministic: a run that was interrupted makes the same
again, and goes on at the level where it stopped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stirred import __version__
from stirred.data.bundle import checksum
from stirred.data.natural import sort_naturally
from stirred.engines.protocol import Engine
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.topdown.estimates import ROWS_AT_ONCE, EstimateParts, estimate_frames, estimates_of
from stirred.mechanisms.topdown.measure import Population
from stirred.mechanisms.topdown.settings import TopDownSettings
from stirred.mechanisms.topdown.solve.files import SolverOutcome, make, records_frame
from stirred.mechanisms.topdown.solve.tree import ARMS, LevelStore, SolveOptions
from stirred.mechanisms.topdown.spine import Spine
from stirred.mechanisms.topdown.store import JOURNAL, MeasurementStore

Make = Callable[[], Iterable[pl.DataFrame]]
AREAS: Final = "areas"
CERTIFICATE: Final = "certificate"
EVENTS: Final = "events"
CERTIFICATE_COLUMNS: Final = ("records", "check", "compared")
EVENT_COLUMNS: Final = ("records", "geolevel", "area", "what", "why", "amount")
_ROWS: Final = 1 << 20
_MOST_CELLS: Final = 1_000_000


# ---- records as the file has them -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """How the records of a part are written: in the columns of the file, and in their types."""

    areas: pl.DataFrame  # geocode, and the columns that name the area in the file, in the order of the leaves
    columns: Mapping[str, tuple[str, pl.DataType]]  # by attribute
    codes: Mapping[str, tuple[str, ...]]  # of each attribute

    @classmethod
    def of(cls, part: Population, types: Mapping[str, pl.DataType]) -> Layout:
        """Return the layout of a file with columns of these types."""
        columns = {}
        for attribute, name in zip(part.schema.attributes, part.columns, strict=True):
            kind = types.get(name, pl.String())
            codes = pl.Series(attribute.codes, dtype=pl.String)
            fits = kind.is_integer() and not codes.cast(kind, strict=False).null_count()
            columns[attribute.name] = (name, kind if fits else pl.String())
        return cls(
            areas=areas_frame(part.spine, types),
            columns=columns,
            codes={attribute.name: attribute.codes for attribute in part.schema.attributes},
        )

    def of_counts(self, counts: pl.DataFrame) -> pl.DataFrame:
        """Return counts (geocode, attributes, count) in the columns of the file."""
        leaves = self.areas["geocode"].cast(pl.String)
        leaf = counts["geocode"].replace_strict(leaves, np.arange(len(leaves)), return_dtype=pl.Int64)
        places = self.areas.select(self.places)[leaf.to_numpy()]
        values = [counts[own].cast(kind).alias(name) for own, (name, kind) in self.columns.items()]
        return pl.DataFrame([*places.get_columns(), *values, counts["count"]])

    @property
    def places(self) -> list[str]:
        """Return the columns that name the area."""
        return [name for name in self.areas.columns if name != "geocode"] or ["geocode"]

    def every_cell(self, variables: Sequence[str]) -> pl.DataFrame | None:
        """Return all cells of a table: areas that exist, by all codes; None where there are too many."""
        of_areas = [name for name in variables if name in self.places]
        areas = self.areas.select(of_areas).unique(maintain_order=True)
        own = {name: (kind, self.codes[attribute]) for attribute, (name, kind) in self.columns.items()}
        codes = [own[name] for name in variables if name not in of_areas]
        if max(1, areas.height) * prod(len(each) for _, each in codes) > _MOST_CELLS:
            return None
        kinds = {name: own[name][0] for name in variables if name not in of_areas}
        rows = [*product(*(each for _, each in codes))]
        cells = pl.DataFrame(rows, schema=dict.fromkeys(kinds, pl.String), orient="row").cast(kinds)  # type: ignore[arg-type]
        return (areas.join(cells, how="cross") if of_areas and kinds else areas if of_areas else cells).select(
            variables
        )


def areas_frame(spine: Spine, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the leaves: their geocodes, and how the file names them."""
    own = spine.leaves.cast({name: types[name] for name in spine.leaves.columns if name in types}, strict=False)
    codes = spine.geocodes[-1].cast(pl.String).alias("geocode")
    return own if "geocode" in own.columns else pl.DataFrame([codes, *own.get_columns()])


# ---- from stores to files ---------------------------------------------------------------------------------


def record_files(
    parts: Sequence[Population],
    stores: Mapping[str, MeasurementStore],
    types: Mapping[str, pl.DataType],
    settings: TopDownSettings,
    *,
    work: Path,
    engine: Engine | None = None,
    tables: Mapping[str, tuple[str, Sequence[str]]],
    progress: Progress | None,
) -> tuple[dict[str, Make], dict[str, SolverOutcome]]:
    """Make all that the settings publish besides measurements: files by name, and the counts of each kind of record.

    ``tables`` are title: (kind of record, variables).
    """
    frames: dict[str, Make] = {}
    made: dict[str, SolverOutcome] = {}
    layouts = {part.name: Layout.of(part, types) for part in parts}
    for part in parts:
        store = stores[part.name]
        if "estimates" in settings.publish:
            written = write_estimates(store, part, work / "estimates" / part.name, progress=progress)
            frames[part.file("estimates")] = partial(_from_files, written, ROWS_AT_ONCE)
        if "records" in settings.publish:
            own = made[part.name] = solved(store, part.name, settings.arm, work, engine=engine, progress=progress)
            frames[part.file("counts")] = partial(_from_files, own.files)
            frames[part.file("records")] = partial(_records, own.files, layouts[part.name])
    if made:
        frames[AREAS] = lambda: [layouts[parts[0].name].areas]
        frames[CERTIFICATE] = lambda: [_certificates(made)]
        frames[EVENTS] = lambda: [_events(made)]
        for title, (kind, variables) in tables.items():
            frames[title] = partial(_table, made[kind].files, layouts[kind], variables)
    return frames, made


def solved(
    store: MeasurementStore,
    part: str,
    arm: str,
    work: Path,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> SolverOutcome:
    """Return the counts of a kind of record, made by an arm; levels that an interrupted run had done are taken over.

    The mark of what was kept is the journal of the store, which has the checksum of all noise in it.
    """

    def tell(stage: str, done: int, whole: int) -> None:
        if progress is not None:
            progress(f"{part} {stage}", done, whole)

    mark = f"{__version__} {arm} {checksum(store.folder / JOURNAL)}"
    options = SolveOptions(
        arm=ARMS[arm],
        threads=os.cpu_count() or 1,
        engine=engine,
        store=LevelStore(folder=work.absolute() / "levels", mark=mark),
        progress=tell,
    )
    folder = work / "counts" / arm / part
    return make(store.shards, options, folder, top=store.top(), records=None, joined=False)


def _in_parts(frames: Iterable[pl.DataFrame], rows: int | None = None) -> Iterator[pl.DataFrame]:
    """Yield frames, small ones together."""
    held: list[pl.DataFrame] = []
    long = 0
    for frame in frames:
        held.append(frame)
        long += frame.height
        if long >= (rows or _ROWS):
            yield pl.concat(held)
            held, long = [], 0
    if held:
        yield pl.concat(held)


def _from_files(paths: Sequence[Path], rows: int | None = None) -> Iterator[pl.DataFrame]:
    return _in_parts(map(pl.read_parquet, paths), rows)


def _records(paths: Sequence[Path], layout: Layout) -> Iterator[pl.DataFrame]:
    return _in_parts(records_frame(layout.of_counts(pl.read_parquet(path))) for path in paths)


def _table(paths: Sequence[Path], layout: Layout, variables: Sequence[str]) -> list[pl.DataFrame]:
    """Return a table counted from the counts, with its empty cells where these are not too many."""
    found = [
        layout.of_counts(pl.read_parquet(path)).group_by(variables).agg(pl.col("count").sum().cast(pl.Int64))
        for path in paths
    ]
    if (cells := layout.every_cell(variables)) is not None:
        found.append(cells.with_columns(count=pl.lit(0, dtype=pl.Int64)))
    return [sort_naturally(pl.concat(found).group_by(variables).agg(pl.col("count").sum()), variables)]


def _certificates(made: Mapping[str, SolverOutcome]) -> pl.DataFrame:
    rows = [(part, check, many) for part, own in made.items() for check, many in own.certificate.checks.items()]
    return pl.DataFrame(
        rows, schema=dict(zip(CERTIFICATE_COLUMNS, (pl.String, pl.String, pl.Int64), strict=True)), orient="row"
    )


def _events(made: Mapping[str, SolverOutcome]) -> pl.DataFrame:
    rows = [
        (part, each.level, each.area, each.what, each.why, each.amount)
        for part, own in made.items()
        for each in own.events
    ]
    kinds = (*(pl.String,) * 5, pl.Float64)
    return pl.DataFrame(rows, schema=dict(zip(EVENT_COLUMNS, kinds, strict=True)), orient="row")


# ---- estimates --------------------------------------------------------------------------------------------


def write_estimates(
    store: MeasurementStore, part: Population, folder: Path, *, progress: Progress | None = None
) -> list[Path]:
    """Write the best linear unbiased estimates of all that was measured, in parts, with their standard errors."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written = EstimateParts(folder)
    # Counts that were published before bind records; they are no measurement of the confidential file.
    source, stage = replace(store, agreeing=False), f"{part.name} estimate"
    for found in estimates_of(source, progress=progress, stage=stage):
        written.add(estimate_frames(found, part.queries))
    return written.files
