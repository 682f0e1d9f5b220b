"""Measuring: what the confidential files hold, and noisy answers from it, shard by shard, into a store.

Every area draws from its own address of the stream, level and query being the purpose and its place in the level the
chunk: how the work is divided changes no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.columns import Columns, select
from stirred.data.frames import read_given
from stirred.data.household_rows import Rows, household_rows
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError, PlanError
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import Engine
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.topdown.hierarchy.counts import Counts, Integers
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Cells, MarginalQuery, Schema, code_places
from stirred.mechanisms.topdown.hierarchy.tree import Level, blocks
from stirred.mechanisms.topdown.rules import (
    Rule,
    agreement,
    broken,
    by_facilities,
    disagreements,
    totals,
    zeros,
)
from stirred.mechanisms.topdown.settings import UNITS, RecordKind, TopDownDesign, collected
from stirred.mechanisms.topdown.spine import Spine
from stirred.mechanisms.topdown.store import (
    AREA_ROLES,
    ArrayBlocks,
    Entry,
    MeasurementStore,
    StoreWriter,
    schema_document,
    write_piece,
)
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import Streams, fill_noise_rows
from stirred.spec.problems import Problem, StirredError
from stirred.spec.shift_law import DiscreteGaussian

# So many numbers are drawn at once: enough for one call to cost nothing, and few enough to stay in the cache.
_NUMBERS = 1 << 19
HERE: Final = LocalEngine()


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordFile:
    """The records of one kind in the confidential files; persons have the columns of their household as well."""

    data: Microdata
    of_units: bool = False

    @property
    def alone(self) -> bool:
        """Say whether these are the records of the first file: units, or persons that have one file."""
        return self.of_units or self.data.persons is None

    @property
    def own(self) -> Columns:
        return self.data.households if self.alone or self.data.persons is None else self.data.persons

    @property
    def source(self) -> str:
        return self.data.household_source if self.alone else self.data.person_source

    @cached_property
    def home(self) -> Rows:
        return household_rows(self.data)

    def missing(self, names: Sequence[str]) -> Iterator[Problem]:
        there = [*dict.fromkeys((*self.own.columns, *self.data.households.columns))]
        for name in names:
            if name not in there:
                yield missing_column(name, there, where=self.source, role="a level or an attribute")

    def leaves(self, spine: Spine) -> Cells:
        """Return the leaf of each record; persons of a household live where it does."""
        homes, home = self.data.households, None if self.alone else self.home  # where a person has none is refused
        if home is None or any(name not in homes.columns for name in spine.leaves.columns):
            return spine.leaf_of(self.own, source=self.source)
        return spine.leaf_of(homes, source=self.data.household_source)[home]

    def places(self, attribute: Attribute, name: str) -> Cells:
        if name in self.own.columns:
            return code_places(self.own[name], attribute, source=self.source)
        return code_places(self.data.households[name], attribute, source=self.data.household_source)[self.home]

    def cells(self, kind: RecordKind) -> Cells:
        """Return the cell of each record; all codes that were not declared are refused at once."""
        problems: list[Problem] = []
        cells = np.zeros(self.own.height, dtype=np.int32)
        for attribute, name in zip(kind.schema.attributes, kind.columns, strict=True):
            if (place := collected(problems, partial(self.places, attribute, name))) is not None:
                cells *= attribute.size
                cells += place
        if problems:
            raise DataError(problems)
        return cells


def check_columns(design: TopDownDesign, data: Microdata) -> None:
    """Raise all columns that settings name and files lack; nothing is computed."""
    own, of_units = design.columns
    problems = [*RecordFile(data=data).missing(own)]
    if of_units and data.persons is None:
        remedy = "give two files under [data]: households (all housing units) and persons"
        problems.append(Problem(what="there is no file of housing units", where="units", remedy=remedy))
    elif of_units:
        problems += RecordFile(data=data, of_units=True).missing(of_units)
    if problems:
        raise PlanError(dict.fromkeys(problems))


def spine_of(design: TopDownDesign, data: Microdata, areas: pl.DataFrame | None) -> tuple[Spine, bool]:
    """Return the areas, and whether which of them exist was read off a file that does not publish that.

    The list is that of ``areas``, or the file ``areas`` of the settings; otherwise areas with a record are taken.
    """
    settings, names = design.settings, design.settings.places
    if areas is None and settings.areas is not None:
        areas = read_given(Path(settings.areas))
    if areas is not None and (absent := [name for name in names if name not in areas.columns]):
        where = settings.areas or "areas"
        raise PlanError(missing_column(name, areas.columns, where=where, role="a level") for name in absent)
    of_units = data.persons is not None and all(name in data.households.columns for name in names)
    table = select(RecordFile(data=data, of_units=of_units).own if areas is None else areas, names)
    if settings.geocode is not None:
        spine = Spine.of_geocodes(
            table, settings.geocode, widths=settings.widths, names=design.names, bypass=settings.bypass
        )
    else:
        spine = Spine.of_columns(table, settings.levels, names=design.names, bypass=settings.bypass)
    # Where the number of units in every leaf is published, so is which leaves have any.
    units, leaf = settings.units, len(design.names) - 1
    published = of_units and ((units is not None and leaf in design.depths(units)) or settings.facilities is not None)
    # A list names each area once. One that repeats them, or is the file itself, is made of records.
    sources = {Path(each).resolve() for each in (data.household_source, data.person_source)}
    of_records = areas is not None and (
        table.is_duplicated().any() or (settings.areas is not None and Path(settings.areas).resolve() in sources)
    )
    return spine, (areas is None or of_records) and not published


def populations(design: TopDownDesign, data: Microdata, spine: Spine) -> list[Population]:
    """Return what is measured, with its rules, all checked against the file before any noise is drawn."""
    found: list[Population] = []
    problems: list[Problem] = []
    for kind in design.kinds:
        own, schema, of_units = kind.settings, kind.schema, kind.name == UNITS
        file = RecordFile(data=data, of_units=of_units)
        try:
            counts = Counts.of(file.leaves(spine), file.cells(kind), areas=spine.areas(spine.depth - 1))
        except StirredError as error:
            problems += error.problems
            continue
        rules = [zeros(schema, zero, spine) for zero in own.zeros]
        if depths := design.depths(own):
            rules.insert(0, totals(counts, schema, depths))
        if design.settings.facilities is not None and not of_units:
            rules += collected(problems, partial(_facility_rules, design, data, spine)) or ()
        problems += broken(counts, schema, rules, spine, unit=kind.unit)
        earlier = collected(problems, partial(agreement, own, schema, spine))
        if earlier is not None:
            rules.append(earlier)
            problems += disagreements(schema, rules, spine, unit=kind.unit)
        found.append(
            Population(
                name=kind.name,
                settings=own,
                schema=schema,
                shares=kind.shares,
                spine=spine,
                counts=counts,
                rules=tuple(rules),
                noise=areas_by_noise(kind, spine),
            )
        )
    if problems:
        raise DataError(dict.fromkeys(problems))
    return found


def _facility_rules(design: TopDownDesign, data: Microdata, spine: Spine) -> tuple[Rule, Rule]:
    given = design.settings.facilities
    assert given is not None
    attribute = next(each for each in design.persons.schema.attributes if each.name == given.attribute)
    own = Schema(name="facilities", attributes=(Attribute(name=attribute.name, codes=attribute.codes),))
    file = RecordFile(data=data, of_units=True)
    counts = Counts.of(file.leaves(spine), file.places(attribute, given.column), areas=spine.areas(spine.depth - 1))
    return by_facilities(design.persons.schema, counts, own=own, most=given.most, empty=given.empty, spine=spine)


# ---- measuring --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population(RecordKind):
    """One kind of record with its areas, its counts and what is known of them."""

    spine: Spine
    counts: Counts  # of the leaves
    rules: tuple[Rule, ...] = ()
    noise: Mapping[tuple[str, str, str], int]  # how many areas have it, by level, query and variance parameter

    @property
    def numbers(self) -> int:
        """Return how many numbers are drawn."""
        return sum(many * self.queries[query].size for (_, query, _), many in self.noise.items())

    def answers(self, query: MarginalQuery, depth: int, areas: range) -> Integers:
        return self.spine.counts(self.counts, depth, areas).answers(query)


NoisyQuery = tuple[MarginalQuery, dict[int, Fraction]]  # with variance parameters by the level that has the budget


def noisy_queries(kind: RecordKind, spine: Spine, depth: int) -> Iterator[NoisyQuery]:
    """Yield what is measured at a level."""
    names, shares = spine.names, kind.shares
    for name in shares.measured(names[depth]):
        query = kind.schema.query(name)
        found = {s: shares.sigma2(names[depth], query.name, since=names[s]) for s in range(depth + 1)}
        yield query, {since: sigma2 for since, sigma2 in found.items() if sigma2 is not None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelTask:
    """Neighbouring areas of one level and all that is asked of them: enough to measure them anywhere."""

    level: Level
    first: int  # place of the first area in its level, by which noise is addressed
    since: Integers
    counts: Counts
    queries: tuple[NoisyQuery, ...] = ()
    rules: tuple[tuple[Rule, Counts | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Draw:
    """Measures tasks into a file of the store. It has the key of this draw: what runs again draws the same noise."""

    folder: Path
    key: bytes = field(repr=False)

    def __call__(self, tasks: Sequence[LevelTask]) -> dict[str, Any]:
        return write_piece(self.folder, _arrays(tasks, Entropy.from_kept(self.key)))


def measure(
    part: Population, folder: Path, entropy: Entropy, *, engine: Engine = HERE, progress: Progress | None = None
) -> MeasurementStore:
    """Draw all noise of a part once, into the new store ``folder``; memory does not grow with the number of areas."""
    spine, cut = part.spine, part.spine.shard_depth
    header = {
        "store": 1,
        "part": part.name,
        "schema": schema_document(part.schema),
        "levels": spine.names,
        "shard": cut,
        "budget": part.shares.document(),
        "seeded": entropy.seeded,
    }
    writer = StoreWriter(folder, header)
    asked = [tuple(noisy_queries(part, spine, depth)) for depth in range(spine.depth)]
    draw = _Draw(folder=folder.absolute(), key=entropy.child(part.name).kept)
    if cut:
        # Everybody is counted here: these few areas are measured where the records are.
        writer.add("top", draw([*_tasks(part, asked, 0, 0, cut)]))
    pieces = ([*_tasks(part, asked, cut, shard, spine.depth)] for shard in range(spine.areas(cut)))
    for shard, written in enumerate(engine.map_groups(pieces, draw)):
        writer.add(str(spine.geocodes[cut][shard]), written)
        if progress:
            progress(f"measure {part.name}", shard + 1, spine.areas(cut))
    return writer.finish()


def _tasks(
    part: Population, asked: Sequence[tuple[NoisyQuery, ...]], depth: int, area: int, until: int
) -> Iterator[LevelTask]:
    """Yield the levels of the tree below an area; the level ``until``, if there is one, is listed without answers."""
    spine = part.spine
    first_of: dict[int, Counts] = {}  # the same for all levels, so that they travel once

    def counts(leaves: Counts, depth: int, areas: range) -> Counts:
        found = spine.counts(leaves, depth, areas)
        same = first_of.setdefault(id(leaves), found)
        return Counts(starts=found.starts, cells=same.cells, counts=same.counts)

    for own, areas, level in spine.below(depth, area, min(until + 1, spine.depth)):
        rules = [rule for rule in part.rules if own in rule.depths and own < until]
        yield LevelTask(
            level=level,
            first=areas.start,
            since=spine.carried(own, areas, idle=part.shares.idle),
            counts=counts(part.counts, own, areas),
            queries=asked[own] if own < until else (),
            rules=tuple(
                (replace(rule, source=None), None if rule.source is None else counts(rule.source, own, areas))
                for rule in rules
            ),
        )


def _arrays(tasks: Sequence[LevelTask], entropy: Entropy) -> Iterator[ArrayBlocks]:
    """Yield the levels of a tree as they are stored: areas, then what is measured and what is known there."""
    for task in tasks:
        level, rows = task.level, task.level.areas
        codes = np.array([code.encode() for code in level.geocodes], dtype=np.bytes_)
        for role, values in zip(AREA_ROLES, (codes, level.parent, task.since), strict=True):
            yield {"level": level.name, "rows": rows, "columns": 1, "role": role}, partial(iter, (values,))
        for query, sigma2 in task.queries:
            # Apart, because names may have spaces: "area type" asked "sex" is not "area" asked "type sex".
            streams = Streams.of(entropy.child(f"level {level.name}"), f"query {query.name}")
            texts = {str(since): f"{v.numerator}/{v.denominator}" for since, v in sigma2.items()}
            entry = _entry(level, query, role="answers", published=f"{query.name}_dpq", sigma2=texts)
            yield entry, partial(noisy, task, query, sigma2, streams)
        for rule, source in task.rules:
            entry = _entry(level, rule.query, role="known", published=rule.name, sign=rule.sign)
            yield entry, partial(_known, rule, source, rows)


def _entry(level: Level, query: MarginalQuery, **more: Any) -> Entry:
    facts = {"level": level.name, "rows": level.areas, "columns": query.size, "query": query.name, "kept": query.kept}
    return {**facts, **more}


def _known(rule: Rule, source: Counts | None, areas: int) -> Iterator[Integers]:
    return (rule.of(source, some) for some in blocks(areas, max(1, _NUMBERS // rule.query.size)))


def noisy(
    task: LevelTask, query: MarginalQuery, sigma2: Mapping[int, Fraction], streams: Streams
) -> Iterator[Integers]:
    """Yield the answers of areas with their noise, a block of areas at a time.

    Areas that are not measured have zeros: only where noise was drawn a true count is looked at.
    """
    laws = {since: DiscreteGaussian(each) for since, each in sigma2.items()}
    for block in blocks(task.level.areas, max(1, _NUMBERS // query.size)):
        truth, since = task.counts.answers(query, block), task.since[block.start : block.stop]
        found = np.zeros_like(truth)
        for level, law in laws.items():
            if (rows := np.flatnonzero(since == level)).size:
                noise = np.empty((rows.size, query.size), dtype=np.int64)
                chunks = (task.first + block.start + rows).astype(np.uint64)
                fill_noise_rows(law, noise, chunks=chunks, streams=streams)
                found[rows] = truth[rows] + noise
        yield found


def areas_by_noise(kind: RecordKind, spine: Spine) -> dict[tuple[str, str, str], int]:
    """Return how many areas each level, query and variance parameter has: what an audit of the files looks for."""
    found: dict[tuple[str, str, str], int] = {}
    for depth, level in enumerate(spine.names):
        carried = spine.carried(depth, range(spine.areas(depth)), idle=kind.shares.idle)
        since, areas = (each.tolist() for each in np.unique(carried, return_counts=True))
        for query, sigma2 in noisy_queries(kind, spine, depth):
            for first, many in zip(since, areas, strict=True):
                if first in sigma2:
                    key = (level, f"{query.name}_dpq", f"{sigma2[first].numerator}/{sigma2[first].denominator}")
                    found[key] = found.get(key, 0) + many
    return found
