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
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.place import folder_at
from stirred.data.problems import PlanError, bad_plan
from stirred.data.synth.census_shares import (
    BETWEEN_TRACTS,
    GQ_RATE,
    GROUP,
    HOUSEHOLD_COLUMNS,
    OWNERS,
    PERSON_COLUMNS,
    SIZE,
    TRACT_RATES,
    Floats,
    census_codebook,
    tables,
)
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


# ---- the areas of the synthetic census: states, counties, tracts, block groups, and how many blocks each has -------
# Everything down to block groups is planned before any household is drawn, in a few megabytes even for the nation;
# blocks are laid out where they are needed. Area sizes are log-normal, so a few areas are large and many small. A
# tract's own mixture of race groups, household sizes and owners comes from Dirichlet laws, which differ between tracts
# and yet keep the national shares on average.

Integers = npt.NDArray[np.int64]

# The nation, and how many areas a smaller file keeps of it: its share to this power.
NATION: Final = 140_000_000
STATES: Final = (51, 2, 0.4)  # at national size, at least, power
COUNTIES: Final = (3_143, 4, 0.7)
# Households per area on average; smaller files have smaller areas, so that there is something to swap.
PER_TRACT: Final = 1_650.0
FEWEST_TRACTS: Final = 12
GROUPS_PER_TRACT: Final = 2.85
PER_BLOCK: Final = 20.0
# Standard deviation of the logarithm of the sizes.
SPREAD: Final = {"state": 1.02, "counties of a state": 0.6, "county": 1.45, "tract": 0.4, "block_group": 0.45}
SPREAD_OF_BLOCKS: Final = 1.2
# How much of the segregation dial lies between states and between the counties of a state.
DIAL_STATES: Final = 0.1
DIAL_COUNTIES: Final = 0.2
CHUNK: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """Areas from states to block groups, numbered from 0, each with its parent and its households."""

    state_of_county: Integers
    county_of_tract: Integers
    tract_of_group: Integers
    households_of_group: Integers
    blocks_of_group: Integers
    size_shares: Floats
    group_shares: Floats
    owners: Floats
    gq_rate: Floats
    imputation: Floats

    def counts(self) -> dict[str, int]:
        """Return the number of areas at each level."""
        return {
            "states": int(self.state_of_county[-1]) + 1,
            "counties": self.state_of_county.size,
            "tracts": self.county_of_tract.size,
            "block_groups": self.tract_of_group.size,
            "blocks": int(self.blocks_of_group.sum()),
        }

    def chunks(self) -> Iterator[Chunk]:
        """Yield whole tracts, together about half a million households, in order."""
        groups = np.searchsorted(self.tract_of_group, np.arange(self.county_of_tract.size + 1))
        starts = _starts(self.households_of_group)[groups]
        blocks = _starts(self.blocks_of_group)
        cuts = np.flatnonzero(np.diff(starts[:-1] // CHUNK, prepend=-1, append=starts[-1]))
        for number, (low, high) in enumerate(pairwise(cuts.tolist())):
            yield Chunk(
                number=number,
                areas=self,
                tracts=slice(low, high),
                groups=slice(int(groups[low]), int(groups[high])),
                first_household=int(starts[low]),
                first_block=int(blocks[groups[low]]),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive tracts that are drawn, and written, together."""

    number: int
    areas: Areas
    tracts: slice
    groups: slice
    first_household: int
    first_block: int

    def households(self) -> Integers:
        """Return the households of each block group."""
        return self.areas.households_of_group[self.groups]


def plan_areas(households: int, *, segregation: float, rng: np.random.Generator) -> Areas:
    """Return the areas of a census with this many households.

    >>> areas = plan_areas(1_000_000, segregation=0.4, rng=np.random.default_rng(1))
    >>> int(areas.households_of_group.sum()), list(areas.counts())
    (1000000, ['states', 'counties', 'tracts', 'block_groups', 'blocks'])
    """
    per_tract = min(PER_TRACT, households / FEWEST_TRACTS)
    per_group = per_tract / GROUPS_PER_TRACT
    states = _number(households, *STATES)
    in_state = _split([households], [states], weights=_shuffled_sizes(states, rng=rng))
    counties = _split([_number(households, *COUNTIES)], [states], weights=_sizes(states, "counties of a state", rng))
    in_county = _split(in_state, counties, weights=_sizes(int(counties.sum()), "county", rng))
    tracts = _parts(in_county, per_tract)
    in_tract = _split(in_county, tracts, weights=_sizes(int(tracts.sum()), "tract", rng))
    groups = _parts(in_tract, per_group)
    in_group = _split(in_tract, groups, weights=_sizes(int(groups.sum()), "block_group", rng))
    density = np.exp(0.4 * rng.standard_normal(in_group.size) - 0.08)
    blocks = np.minimum(_parts(in_group * density, min(PER_BLOCK, per_group / 3)), in_group)
    state_of_county = np.repeat(np.arange(states), counties)
    county_of_tract = np.repeat(np.arange(tracts.size), tracts)
    count = county_of_tract.size
    size = np.array(list(SIZE.values())) / 1000
    owners = np.tile([OWNERS, 1 - OWNERS], (count, 1))
    return Areas(
        state_of_county=state_of_county,
        county_of_tract=county_of_tract,
        tract_of_group=np.repeat(np.arange(groups.size), groups),
        households_of_group=in_group,
        blocks_of_group=blocks,
        size_shares=dirichlet(np.tile(size, (count, 1)), between=BETWEEN_TRACTS["size"], rng=rng),
        group_shares=_balanced(
            _race_groups(state_of_county, county_of_tract, segregation=segregation, rng=rng), households=in_tract
        ),
        owners=dirichlet(owners, between=BETWEEN_TRACTS["owners"], rng=rng)[:, 0],
        gq_rate=GQ_RATE * _mean_one(TRACT_RATES["gq"], count, rng=rng),
        imputation=_mean_one(TRACT_RATES["imputation"], count, rng=rng),
    )


def lay_out_blocks(chunk: Chunk, *, rng: np.random.Generator) -> Integers:
    """Return the households of each block of a chunk: many blocks with a few, a few with hundreds."""
    parts = chunk.areas.blocks_of_group[chunk.groups]
    weights = np.exp(SPREAD_OF_BLOCKS * rng.standard_normal(int(parts.sum())))
    return _split(chunk.households(), parts, weights=weights)


def dirichlet(shares: Floats, *, between: float, rng: np.random.Generator) -> Floats:
    """Return one random mixture per row: its mean is the row, and ``between`` its part of the variance.

    A Dirichlet law with concentration a has the intraclass correlation 1/(1 + a), so ``between`` = 0
    gives back the row and ``between`` = 1 a single certain class, drawn with the row's shares.

    >>> dirichlet(np.array([[0.2, 0.8]]), between=0, rng=np.random.default_rng(1)).tolist()
    [[0.2, 0.8]]
    """
    if between <= 0:
        return shares
    shapes = np.maximum(shares, 1e-9) * (1 / min(between, 1 - 1e-6) - 1)
    # Gamma draws of a tiny shape underflow; their logarithms do not: log G(a) = log G(a + 1) + log(U) / a.
    logarithms = np.log(rng.standard_gamma(shapes + 1)) + np.log1p(-rng.random(shapes.shape)) / shapes
    draws = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    mixtures: Floats = draws / draws.sum(axis=1, keepdims=True)
    return mixtures


def _race_groups(
    state_of_county: Integers, county_of_tract: Integers, *, segregation: float, rng: np.random.Generator
) -> Floats:
    """Return each tract's shares of the race groups.

    The dial is the share of the variance between tracts: a tenth of it between states and a fifth
    between counties, so that neighbours look alike, and the rest between tracts of a county.
    """
    nation = np.array(GROUP) / 1000
    above = (1 - DIAL_STATES * segregation) * (1 - DIAL_COUNTIES * segregation)
    tract_dial = 1 - (1 - segregation) / above
    states = np.tile(nation, (int(state_of_county[-1]) + 1, 1))
    states = dirichlet(states, between=DIAL_STATES * segregation, rng=rng)
    counties = dirichlet(states[state_of_county], between=DIAL_COUNTIES * segregation, rng=rng)
    return dirichlet(counties[county_of_tract], between=tract_dial, rng=rng)


def _balanced(shares: Floats, *, households: Integers) -> Floats:
    """Return the mixtures raked towards the national shares, from which a few states may lead far away.

    A group that no tract has at all, as happens in small files near the end of the dial, stays away.
    """
    nation = np.array(GROUP) / 1000
    for _ in range(20):
        found = households @ shares / households.sum()
        shares = shares * np.where(found > 1e-9, nation / np.maximum(found, 1e-9), 1.0)
        shares = shares / shares.sum(axis=1, keepdims=True)
    return shares


def _number(households: int, nation: int, least: int, power: float) -> int:
    return max(least, round(nation * min(1.0, households / NATION) ** power))


def _parts(households: npt.NDArray[np.generic], average: float) -> Integers:
    return np.maximum(1, np.rint(households / average)).astype(np.int64)  # type: ignore[operator]


def _sizes(count: int, level: str, rng: np.random.Generator) -> Floats:
    sizes: Floats = np.exp(SPREAD[level] * rng.standard_normal(count))
    return sizes


def _shuffled_sizes(count: int, *, rng: np.random.Generator) -> Floats:
    """Return the quantiles of the log-normal law in random order: no census has five Californias."""
    quantiles = [NormalDist().inv_cdf((rank + 0.5) / count) for rank in range(count)]
    return np.exp(SPREAD["state"] * rng.permutation(np.array(quantiles)))


def _mean_one(shape: float, count: int, *, rng: np.random.Generator) -> Floats:
    return rng.standard_gamma(shape, size=count) / shape


def _starts(counts: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(counts)])


def _split(totals: Sequence[int] | Integers, parts: Sequence[int] | Integers, *, weights: Floats) -> Integers:
    """Split each total into parts of at least one that add up exactly and follow the weights.

    >>> _split([10, 4], [3, 1], weights=np.array([1.0, 1.0, 5.0, 9.0])).tolist()
    [2, 2, 6, 4]
    """
    totals, parts = np.asarray(totals), np.asarray(parts)
    ends = np.cumsum(parts)
    running = np.cumsum(weights)
    before = np.concatenate([[0.0], running[ends[:-1] - 1]])
    spare = np.repeat((totals - parts) / (running[ends - 1] - before), parts)
    # Rounding the running totals, not the parts, makes them add up. The last of each is exact by definition.
    bounds = np.floor((running - np.repeat(before, parts)) * spare).astype(np.int64)
    bounds[ends - 1] = totals - parts
    sizes = np.diff(bounds, prepend=0)
    sizes[ends[:-1]] = bounds[ends[:-1]]
    return sizes + 1
