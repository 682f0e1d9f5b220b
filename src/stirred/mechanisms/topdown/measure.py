"""Measuring: true answers and noise, shard by shard, into a store; and the same as an exact law for small files.

Every area draws from its own address of the stream, level and query being the purpose and its place in the level the
chunk: how the work is divided changes no number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.topdown.budget import Shares
from stirred.mechanisms.topdown.known import Rule
from stirred.mechanisms.topdown.schema import Query, Schema
from stirred.mechanisms.topdown.spine import BYPASSED, Counted, Spine
from stirred.mechanisms.topdown.store import Piece, Store, Writer, schema_document
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import Streams, fill_noise_rows
from stirred.spec.shift_law import DiscreteGaussian

Integers = npt.NDArray[np.int64]
# So many numbers are drawn at once: enough for one call to cost nothing, and few enough to stay in the cache.
_NUMBERS = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """What is measured of one kind of record: its schema and budget, its records, and what is known of them."""

    name: str  # persons or units
    schema: Schema
    shares: Shares | None  # None where only what is known is published
    counted: Counted
    rules: tuple[Rule, ...] = ()

    @property
    def spine(self) -> Spine:
        """Return the areas."""
        return self.counted.spine

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


def measure(part: Part, folder: Path, entropy: Entropy, *, progress: Progress | None = None) -> Store:
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
    writer, own = Writer(folder, header), entropy.child(part.name)
    if cut:
        writer.piece("top", lambda piece: _write(piece, part, own, range(cut), (0, 0), leaves=cut))
    for shard in range(spine.areas(cut)):
        name = str(spine.geocodes[cut][shard])
        writer.piece(name, lambda piece, at=(cut, shard): _write(piece, part, own, range(cut, spine.depth), at))  # type: ignore[misc]
        if progress:
            progress(f"measure {part.name}", shard + 1, spine.areas(cut))
    return writer.finish()


def _write(
    piece: Piece, part: Part, entropy: Entropy, depths: range, root: tuple[int, int], *, leaves: int | None = None
) -> None:
    """Write the levels of the tree below an area; ``leaves`` is a level that is listed without answers."""
    spine, above = part.spine, 0
    for depth in (*depths, *(() if leaves is None else (leaves,))):
        areas = spine.within(*root, depth)
        level = spine.level(
            depth, areas, above=above if depth > depths.start else int(spine.parents[depth][areas.start])
        )
        piece.level(level, spine.carried(depth, areas, idle=part.idle))
        above = areas.start
        if depth == leaves:
            continue
        facts = {"level": level.name, "rows": len(areas)}
        for query in part.queries(depth):
            sigma2 = part.sigma2(depth, query)
            # Apart, because names may have spaces: "area type" asked "sex" is not "area" asked "type sex".
            streams = Streams.of(entropy.child(f"level {level.name}"), f"query {query.name}")
            piece.numbers(
                lambda q=query, d=depth, a=areas, s=streams: noisy(part, q, d, a, s),  # type: ignore[misc]
                columns=query.size,
                **facts,
                role="answers",
                query=query.name,
                published=f"{query.name}_dpq",
                kept=query.kept,
                sigma2={str(since): f"{v.numerator}/{v.denominator}" for since, v in sigma2.items()},
            )
        for rule in (rule for rule in part.rules if depth in rule.depths):
            piece.numbers(
                lambda r=rule, d=depth, a=areas: (r.values(d, b) for b in _blocks(a, r.query.size)),  # type: ignore[misc]
                columns=rule.query.size,
                **facts,
                role="known",
                query=rule.query.name,
                published=rule.name,
                kept=rule.query.kept,
                sign=rule.sign,
            )


def noisy(part: Part, query: Query, depth: int, areas: range, streams: Streams) -> Iterator[Integers]:
    """Yield the answers of some areas with their noise, a block of areas at a time.

    Areas that are not measured have zeros: only where noise was drawn a true count is looked at.
    """
    laws = {since: DiscreteGaussian(sigma2) for since, sigma2 in part.sigma2(depth, query).items()}
    for block in _blocks(areas, query.size):
        truth, since = part.counted.answers(query, depth, block), part.spine.carried(depth, block, idle=part.idle)
        found = np.zeros_like(truth)
        for level, law in laws.items():
            rows = np.flatnonzero(since == level)
            noise = np.empty((rows.size, query.size), dtype=np.int64)
            if rows.size:
                fill_noise_rows(law, noise, chunks=(block.start + rows).astype(np.uint64), streams=streams)
            found[rows] = truth[rows] + noise
        yield found


def _blocks(areas: range, size: int) -> Iterator[range]:
    many = max(1, _NUMBERS // size)
    for start in range(areas.start, areas.stop, many):
        yield range(start, min(start + many, areas.stop))


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
