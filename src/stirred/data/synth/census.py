"""A synthetic census: households and persons in a nested geography, from a town to a nation.

Made from the tables in ``census_shares`` and nothing else. The same number of households, seed and dial
give the same records, whatever the number of threads: the areas are planned first, then cut into chunks
of whole tracts, and every chunk has random numbers of its own. Chunks are written as they are made, so
memory does not grow with the nation.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.place import folder_at
from stirred.data.problems import PlanError, bad_plan
from stirred.data.synth.census_areas import Areas, Chunk, lay_out_blocks, plan_areas
from stirred.data.synth.census_codes import HOUSEHOLD_COLUMNS, PERSON_COLUMNS, census_codebook
from stirred.data.synth.census_shares import tables
from stirred.spec.problems import Problem

FEWEST: Final = 1_000
MOST: Final = 200_000_000
# Gives about the tract-level dissimilarity of the United States: Black and White 0.55, Hispanic and White 0.45.
SEGREGATION: Final = 0.2
# Up to here each table is one file; beyond, a folder of parts.
ONE_FILE: Final = 5_000_000
_AREAS, _BLOCKS, _RECORDS = range(3)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusPlan:
    """What to make: the number of household records, the seed and the segregation dial, all checked.

    >>> CensusPlan(households=10, seed=1)
    Traceback (most recent call last):
      ...
    stirred.data.problems.PlanError: households: 10 is too few. Fix: ask for 1,000 to 200,000,000.
    """

    households: int
    seed: int
    segregation: float = SEGREGATION

    def __post_init__(self) -> None:
        problems = []
        if not FEWEST <= self.households <= MOST:
            few = "few" if self.households < FEWEST else "many"
            remedy = f"ask for {FEWEST:,} to {MOST:,}"
            problems.append(Problem(what=f"{self.households:,} is too {few}", where="households", remedy=remedy))
        if self.seed < 0:
            remedy = "give a whole number from 0"
            problems.append(Problem(what=f"{self.seed} is negative", where="seed", remedy=remedy))
        if not 0 <= self.segregation <= 1:
            remedy = "give a number from 0 (the same mixture everywhere) to 1 (nearly homogeneous tracts)"
            what = f"{self.segregation:g} is not on the dial"
            problems.append(Problem(what=what, where="segregation", remedy=remedy))
        if problems:
            raise PlanError(problems)

    def areas(self) -> Areas:
        """Return the areas down to block groups."""
        return plan_areas(self.households, segregation=self.segregation, rng=self._rng(_AREAS))

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(self.seed, spawn_key=purpose)))

    def draw(self, chunk: Chunk, *, buffers: Buffers | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the households and persons of one chunk, which depend on the plan and the chunk only.

        With ``buffers`` the frames may share their memory and last until the next draw.
        """
        from stirred.data.synth import census_kernel as kernel

        buffers = buffers or Buffers()
        areas, tracts = chunk.areas, chunk.tracts
        counts = chunk.households()
        rows = int(counts.sum())
        home = {name: buffers.take(f"h.{name}", rows, kind) for name, kind in HOUSEHOLD_COLUMNS.items()}
        _fill_geography(home, chunk, blocks=lay_out_blocks(chunk, rng=self._rng(_BLOCKS, chunk.number)))
        ages = buffers.take("age of the householder", rows, pl.UInt8)
        ages.fill(0)
        in_tract = np.bincount(areas.tract_of_group[chunk.groups] - tracts.start, weights=counts).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(in_tract)])
        sequence = np.random.SeedSequence(self.seed, spawn_key=(_RECORDS, chunk.number))
        state = sequence.generate_state(1, np.uint64)
        shares = tables()
        persons = kernel.draw_households(
            state,
            shares,
            kernel.CONSTANTS,
            starts,
            np.cumsum(areas.size_shares[tracts], axis=1),
            areas.owners[tracts],
            areas.gq_rate[tracts],
            home["size"],
            home["tenure"],
            home["household_type"],
            home["gq_type"],
            ages,
        )
        people = {name: buffers.take(f"p.{name}", persons, kind) for name, kind in PERSON_COLUMNS.items()}
        kernel.draw_persons(
            state,
            shares,
            kernel.CONSTANTS,
            starts,
            np.cumsum(areas.group_shares[tracts], axis=1),
            areas.imputation[tracts],
            chunk.first_household + 1,
            home["size"],
            home["household_type"],
            home["gq_type"],
            ages,
            *people.values(),
        )
        return pl.DataFrame(home, schema=HOUSEHOLD_COLUMNS), pl.DataFrame(people, schema=PERSON_COLUMNS)


class Buffers:
    """Columns that are used again for the next chunk: fresh memory costs more than filling it."""

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray[Any, Any]] = {}

    def take(self, name: str, rows: int, kind: type[pl.DataType]) -> np.ndarray[Any, Any]:
        """Return a column of this many rows, whose values are left over."""
        kept = self._kept.get(name)
        if kept is None or kept.size < rows:
            kept = self._kept[name] = np.empty(rows + rows // 8, dtype=kind.__name__.lower())
        return kept[:rows]


def _fill_geography(home: dict[str, Any], chunk: Chunk, *, blocks: np.ndarray[Any, Any]) -> None:
    """Fill the identifiers, which count from 1 through the nation at every level."""
    areas, counts = chunk.areas, chunk.households()
    groups = np.arange(chunk.groups.start, chunk.groups.stop)
    tracts = areas.tract_of_group[chunk.groups]
    counties = areas.county_of_tract[tracts]
    states = areas.state_of_county[counties]
    levels = {"state": states, "county": counties, "tract": tracts, "block_group": groups}
    for name, area in levels.items():
        home[name][:] = np.repeat((area + 1).astype(home[name].dtype), counts)
    numbers = np.arange(chunk.first_block + 1, chunk.first_block + 1 + blocks.size, dtype=np.uint32)
    home["block"][:] = np.repeat(numbers, blocks)
    home["hid"][:] = np.arange(chunk.first_household + 1, chunk.first_household + 1 + counts.sum())


def census(households: int, *, seed: int, segregation: float = SEGREGATION) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the households and persons of a synthetic census in memory; for a nation use :func:`write_census`.

    >>> homes, people = census(1_000, seed=1)
    >>> homes.height, people.height == homes["size"].sum()
    (1000, True)
    """
    plan = CensusPlan(households=households, seed=seed, segregation=segregation)
    drawn = [plan.draw(chunk) for chunk in plan.areas().chunks()]
    return pl.concat([homes for homes, _ in drawn]), pl.concat([people for _, people in drawn])


def write_census(
    out: Path, *, plan: CensusPlan, workers: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Write ``households.parquet``, ``persons.parquet`` and ``codebook.toml`` into a new folder; return the facts.

    Up to 5 million households each table is one file, beyond that a folder of parts. The folder appears
    complete or not at all. The number of ``workers`` (threads) changes nothing but the time.
    """
    areas = plan.areas()
    with _new_folder(out) as folder:
        facts = _write_parts(folder, plan, areas, workers=workers or os.cpu_count() or 1, progress=progress)
        if plan.households <= ONE_FILE:
            for name in ("households", "persons"):
                _join_parts(folder / f"{name}.parquet")
        title = f"Synthetic census of {plan.households:,} households (seed {plan.seed}): nobody's data"
        (folder / "codebook.toml").write_text(census_codebook(areas.counts(), title=title), encoding="utf-8")
    return {
        "folder": str(out),
        "files": ["households.parquet", "persons.parquet", "codebook.toml"],
        **facts,
        **areas.counts(),
        "seed": plan.seed,
        "segregation": plan.segregation,
    }


def _write_parts(
    folder: Path, plan: CensusPlan, areas: Areas, *, workers: int, progress: Progress | None
) -> dict[str, int]:
    """Draw and write the chunks, a few at a time, and count what was written."""
    for name in ("households", "persons"):
        (folder / f"{name}.parquet").mkdir()
    kept = threading.local()
    total = {"households": 0, "group_quarters": 0, "persons": 0}

    def work(chunk: Chunk) -> dict[str, int]:
        if not hasattr(kept, "buffers"):
            kept.buffers = Buffers()
        homes, people = plan.draw(chunk, buffers=kept.buffers)
        for name, frame in (("households", homes), ("persons", people)):
            path = folder / f"{name}.parquet" / f"part-{chunk.number:05}.parquet"
            frame.write_parquet(path, compression="zstd", compression_level=1)
        return {
            "households": homes.height,
            "group_quarters": int((homes["gq_type"] > 0).sum()),
            "persons": people.height,
        }

    for counts in _in_threads(work, list(areas.chunks()), workers=workers):
        total = {name: total[name] + count for name, count in counts.items()}
        if progress:
            progress("households", total["households"], plan.households)
    return total


def _in_threads(
    work: Callable[[Chunk], dict[str, int]], chunks: Sequence[Chunk], *, workers: int
) -> Iterator[dict[str, int]]:
    """Yield the result of every chunk as it is done; a failure stops what has not begun."""
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(chunks)))) as pool:
        try:
            for future in as_completed([pool.submit(work, chunk) for chunk in chunks]):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _join_parts(path: Path) -> None:
    """Replace a folder of parts by one file with the same rows in the same order."""
    joined = path.with_suffix(".joined")
    pl.scan_parquet(path / "part-*.parquet").sink_parquet(joined, compression="zstd", compression_level=1)
    shutil.rmtree(path)
    joined.rename(path)


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a hidden folder beside ``out`` that takes its name when everything is written; say what the system says."""
    if out.exists() or out.is_symlink():
        raise bad_plan("this exists already", where=str(out), remedy="choose another folder")
    blocking = next((path for path in out.parents if path.exists()), None)
    if blocking is not None and not blocking.is_dir():
        raise bad_plan(f"{blocking} is a file, not a folder", where=str(out), remedy="choose another folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with folder_at(out, private=False) as folder:
            yield folder
    except (OSError, pl.exceptions.ComputeError) as error:
        # Polars wraps what the system says while a file is written: "... underlying IO error: ... (os error 28)".
        said = re.search(r"(?:.*: )?(.*) \(os error \d+\)", str(error))
        if said is None and not isinstance(error, OSError):
            raise
        reason = said[1] if said else getattr(error, "strerror", None) or error
        raise bad_plan(f"cannot write: {reason}", where=str(out), remedy="choose another place, or make room") from None
