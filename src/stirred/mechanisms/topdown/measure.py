"""Measuring: true answers and noise, shard by shard, into a store; and the same as an exact law for small files.

Every area draws from its own address of the stream, level and query being the purpose and its place in the level the
chunk: how the work is divided changes no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.engines.local import LocalEngine
from stirred.engines.protocol import Engine
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.topdown.budget import Shares
from stirred.mechanisms.topdown.counts import Counts
from stirred.mechanisms.topdown.rules import Rule
from stirred.mechanisms.topdown.schema import Query, Schema
from stirred.mechanisms.topdown.spine import BYPASSED, Spine
from stirred.mechanisms.topdown.store import Piece, Store, Writer, Written, schema_document, write_piece
from stirred.mechanisms.topdown.tree import Level
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import Streams, fill_noise_rows
from stirred.spec.shift_law import DiscreteGaussian

Integers = npt.NDArray[np.int64]
# So many numbers are drawn at once: enough for one call to cost nothing, and few enough to stay in the cache.
_NUMBERS = 1 << 19
HERE: Final = LocalEngine()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """What is measured of one kind of record: its schema and budget, its records, and what is known of them."""

    name: str  # persons or units
    schema: Schema
    shares: Shares | None  # None where only what is known is published
    spine: Spine
    counts: Counts  # of the leaves
    rules: tuple[Rule, ...] = ()
    records: str = "persons"  # what readers call them

    def answers(self, query: Query, depth: int, areas: range) -> Integers:
        """Return the true answers to a query in some areas of a level (areas, cells of the query)."""
        return self.spine.counts(self.counts, depth, areas).answers(query)

    @property
    def idle(self) -> frozenset[int]:
        """Return the levels at which nothing is measured."""
        return frozenset() if self.shares is None else self.shares.idle

    def queries(self, depth: int) -> list[Query]:
        """Return what is measured at a level."""
        names = [] if self.shares is None else self.shares.measured(self.spine.names[depth])
        return [self.schema.query(name) for name in names]

    def sigma2(self, depth: int, query: Query) -> dict[int, Fraction]:
        """Return the variance parameters at a level, by the level from which on an area has the budget."""
        return _sigma2(self, depth, query)


@lru_cache(maxsize=1_000)
def _sigma2(part: Part, depth: int, query: Query) -> dict[int, Fraction]:
    assert part.shares is not None
    names = part.spine.names
    found = {s: part.shares.sigma2(names[depth], query.name, since=names[s]) for s in range(depth + 1)}
    return {since: sigma2 for since, sigma2 in found.items() if sigma2 is not None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slab:
    """Neighbouring areas of one level and all that is asked of them: enough to measure them anywhere."""

    level: Level
    first: int  # place of the first area in its level, by which noise is addressed
    since: Integers
    counts: Counts
    asked: tuple[tuple[Query, dict[int, Fraction]], ...] = ()
    known: tuple[tuple[Rule, Counts | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Draw:
    """Measures slabs into a file of the store. It has the key of this draw: what runs again draws the same noise."""

    folder: Path
    key: bytes = field(repr=False)

    def __call__(self, slabs: Sequence[Slab]) -> Written:
        entropy = Entropy.from_kept(self.key)
        return write_piece(self.folder, lambda piece: _write(piece, slabs, entropy))


def measure(
    part: Part, folder: Path, entropy: Entropy, *, engine: Engine = HERE, progress: Progress | None = None
) -> Store:
    """Draw all noise of a part once, into the new store ``folder``; memory does not grow with the number of areas."""
    spine, cut = part.spine, part.spine.shard_depth
    header = {
        "store": 1,
        "part": part.name,
        "schema": schema_document(part.schema),
        "levels": spine.names,
        "shard": cut,
        "budget": None if part.shares is None else part.shares.document(),
        "seeded": entropy.seeded,
    }
    writer = Writer(folder, header)
    draw = _Draw(folder=folder.absolute(), key=entropy.child(part.name).kept)
    if cut:
        # Everybody is counted here: these few areas are measured where the records are.
        writer.add("top", draw([*_slabs(part, range(cut), (0, 0), leaves=cut)]))
    pieces = ([*_slabs(part, range(cut, spine.depth), (cut, shard))] for shard in range(spine.areas(cut)))
    for shard, written in enumerate(engine.map_groups(pieces, draw)):
        writer.add(str(spine.geocodes[cut][shard]), written)
        if progress:
            progress(f"measure {part.name}", shard + 1, spine.areas(cut))
    return writer.finish()


def _slabs(part: Part, depths: range, root: tuple[int, int], *, leaves: int | None = None) -> Iterator[Slab]:
    """Yield the levels of the tree below an area; ``leaves`` is a level that is listed without answers."""
    spine, above = part.spine, 0
    first_of: dict[int, Counts] = {}  # the same for all levels, so that they travel once

    def counts(leaves: Counts, depth: int, areas: range) -> Counts:
        found = spine.counts(leaves, depth, areas)
        same = first_of.setdefault(id(leaves), found)
        return Counts(starts=found.starts, cells=same.cells, counts=same.counts)

    for depth in (*depths, *(() if leaves is None else (leaves,))):
        areas = spine.within(*root, depth)
        first = above if depth > depths.start else int(spine.parents[depth][areas.start])
        above = areas.start
        known = (rule for rule in part.rules if depth in rule.depths and depth != leaves)
        yield Slab(
            level=spine.level(depth, areas, above=first),
            first=areas.start,
            since=spine.carried(depth, areas, idle=part.idle),
            counts=counts(part.counts, depth, areas),
            asked=() if depth == leaves else tuple((each, part.sigma2(depth, each)) for each in part.queries(depth)),
            known=tuple(
                (replace(rule, source=None), None if rule.source is None else counts(rule.source, depth, areas))
                for rule in known
            ),
        )


def _write(piece: Piece, slabs: Sequence[Slab], entropy: Entropy) -> None:
    """Write the levels of a tree, each with what is measured and known there."""
    for slab in slabs:
        piece.level(slab.level, slab.since)
        facts = {"level": slab.level.name, "rows": slab.level.areas}
        for query, sigma2 in slab.asked:
            # Apart, because names may have spaces: "area type" asked "sex" is not "area" asked "type sex".
            streams = Streams.of(entropy.child(f"level {slab.level.name}"), f"query {query.name}")
            piece.numbers(
                partial(noisy, slab, query, sigma2, streams),
                columns=query.size,
                **facts,
                role="answers",
                query=query.name,
                published=f"{query.name}_dpq",
                kept=query.kept,
                sigma2={str(since): f"{v.numerator}/{v.denominator}" for since, v in sigma2.items()},
            )
        for rule, source in slab.known:
            piece.numbers(
                lambda r=rule, c=source, n=slab.level.areas: (r.of(c, b) for b in _blocks(n, r.query.size)),  # type: ignore[misc]
                columns=rule.query.size,
                **facts,
                role="known",
                query=rule.query.name,
                published=rule.name,
                kept=rule.query.kept,
                sign=rule.sign,
            )


def noisy(slab: Slab, query: Query, sigma2: Mapping[int, Fraction], streams: Streams) -> Iterator[Integers]:
    """Yield the answers of areas with their noise, a block of areas at a time.

    Areas that are not measured have zeros: only where noise was drawn a true count is looked at.
    """
    laws = {since: DiscreteGaussian(each) for since, each in sigma2.items()}
    for block in _blocks(slab.level.areas, query.size):
        truth, since = slab.counts.answers(query, block), slab.since[block.start : block.stop]
        found = np.zeros_like(truth)
        for level, law in laws.items():
            rows = np.flatnonzero(since == level)
            noise = np.empty((rows.size, query.size), dtype=np.int64)
            if rows.size:
                chunks = (slab.first + block.start + rows).astype(np.uint64)
                fill_noise_rows(law, noise, chunks=chunks, streams=streams)
            found[rows] = truth[rows] + noise
        yield found


def _blocks(areas: int, size: int) -> Iterator[range]:
    many = max(1, _NUMBERS // size)
    for start in range(0, areas, many):
        yield range(start, min(start + many, areas))


def class_counts(spine: Spine, schema: Schema, shares: Shares) -> dict[tuple[str, str, str], int]:
    """Return how many areas each level, query and variance parameter has: what an audit of the files looks for."""
    found: dict[tuple[str, str, str], int] = {}
    for depth, level in enumerate(spine.names):
        for since, many in zip(
            *np.unique(spine.carried(depth, range(spine.areas(depth)), idle=shares.idle), return_counts=True),
            strict=True,
        ):
            for name in shares.measured(level) if since != BYPASSED else ():
                sigma2 = shares.sigma2(level, schema.query(name).name, since=spine.names[since])
                if sigma2 is not None:
                    key = (level, f"{name}_dpq", f"{sigma2.numerator}/{sigma2.denominator}")
                    found[key] = found.get(key, 0) + int(many)
    return found
