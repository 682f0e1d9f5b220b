"""Noisy answers: drawn once, area by area, into a store on disk; and as others publish them.

Every area draws from its own address of the stream, level and query being the purpose and its place in the level the
chunk: how the work is divided changes no number.

A store is a folder. ``journal.jsonl`` has a line for the whole and one for each piece, every line with the SHA-256 of
the line before it; a piece is one file of plain integers with the areas of a shard, and its line has the SHA-256 of the
file, and the place and width of each array in it. Nothing is ever overwritten: a folder that has a journal takes no
second draw.

Why not the published layout at once: for the same areas a tree took 24 s and 724 MB from Parquet, 0.3 s and 88 MB here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import TypeAdapter

from stirred.data.problems import bad_file
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import Engine
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.tree import (
    AGREES,
    NO_BOUND,
    Answers,
    Constraint,
    Counts,
    Integers,
    Level,
    Tree,
    blocks,
)
from stirred.mechanisms.topdown.population import NoisyQuery, Population, Rule, noisy_queries
from stirred.randomness.cell_law import variance_of
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import Streams, fill_noise_rows
from stirred.spec.shift_law import DiscreteGaussian

# So many numbers are drawn at once: enough for one call to cost nothing, and few enough to stay in the cache.
_NUMBERS = 1 << 19
HERE: Final = LocalEngine()
JOURNAL: Final = "journal.jsonl"
AREA_ROLES: Final = ("geocode", "parent", "since")  # of the first arrays of a level: areas, with whose budget
_KINDS: Final = ("<i2", "<i4", "<i8")
_ALIGNED: Final = 8
_WRITING: Final = ".writing"
_VALUES_IN_A_PART: Final = 1 << 24
_AGAIN: Final = "use the store as it was written; the noise in it cannot be drawn again"

_SCHEMA: Final = TypeAdapter(Schema)
Entry = Mapping[str, Any]  # of an array: level, role, rows, columns; of what is measured or known also the query
StoredQuery = tuple[Entry, MarginalQuery, npt.NDArray[Any]]
ArrayBlocks = tuple[Entry, Callable[[], Iterable[npt.NDArray[Any]]]]  # an array in blocks of rows, as often as asked


# ---- drawing ----------------------------------------------------------------------------------------------


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


# ---- the store --------------------------------------------------------------------------------------------


def _bad(what: str, folder: Path, remedy: str = _AGAIN) -> Exception:
    return bad_file(what, where=str(folder), remedy=remedy)


class StoreWriter:
    """Appends pieces to a new store."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            opened = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except FileExistsError:
            what = "noise was drawn into this store before, and a second draw would be a second release"
            raise _bad(
                what, folder, "estimate from what is there, or plan another release with a store of its own"
            ) from None
        self.folder, self._journal, self._before, self.pieces = folder, opened, "", 0
        self._line(header)

    def _line(self, facts: Mapping[str, Any]) -> None:
        line = json.dumps({**facts, "before": self._before}, ensure_ascii=False).encode()
        self._before = hashlib.sha256(line).hexdigest()
        os.write(self._journal, line + b"\n")
        os.fsync(self._journal)

    def add(self, name: str, piece: Mapping[str, Any]) -> None:
        """Take a piece that was written whole (:func:`write_piece`), and note it."""
        path = self.folder / f"{self.pieces:05d}.bin"
        os.rename(self.folder / piece["file"], path)
        self._line({"piece": name, **piece, "file": path.name})
        self.pieces += 1

    def finish(self) -> MeasurementStore:
        """Say that all pieces are there, and return the store; what lost tasks left behind goes."""
        self._line({"pieces": self.pieces})
        for left in self.folder.glob(f"*{_WRITING}"):
            left.unlink(missing_ok=True)
        os.close(self._journal)
        return MeasurementStore.open(self.folder)


def write_piece(folder: Path, arrays: Iterable[ArrayBlocks]) -> dict[str, Any]:
    """Write one piece whole, under a name that no other attempt at it has; return the name and what is in it."""
    name = f"{uuid4().hex}{_WRITING}"
    with os.fdopen(os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as stream:
        entries = [_put(stream, entry, blocks) for entry, blocks in arrays]
        stream.flush()
        os.fsync(stream.fileno())
        stream.seek(0)
        return {"file": name, "sha256": hashlib.file_digest(stream, "sha256").hexdigest(), "arrays": entries}


def _put(stream: BinaryIO, entry: Entry, blocks: Callable[[], Iterable[npt.NDArray[Any]]]) -> Entry:
    """Append an array: codes as they are, numbers as narrow as all of them fit."""
    offset = stream.seek(0, os.SEEK_END)
    offset += -offset % _ALIGNED
    for kind in _KINDS:
        stream.seek(offset)  # wider numbers are written over those that did not all fit
        for block in blocks():
            if block.dtype.kind == "S":
                kind = block.dtype.str
            elif np.abs(block).max(initial=0) > np.iinfo(kind).max:
                break
            stream.write(np.ascontiguousarray(block, dtype=kind).data)
        else:
            break
    return {**entry, "dtype": kind, "offset": offset}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasurementStore:
    """Measurements that were drawn, read back shard by shard; nothing of it is in memory until it is used."""

    folder: Path
    header: Mapping[str, Any]
    pieces: Sequence[Mapping[str, Any]]
    schema: Schema
    agreeing: bool = True  # whether trees have the counts of an earlier release

    @classmethod
    def open(cls, folder: Path) -> MeasurementStore:
        """Return the store of a folder; refuse one whose journal was changed or that is not complete."""
        try:
            lines = (folder / JOURNAL).read_bytes().splitlines()
        except OSError:
            raise _bad("there is no measurement store here", folder, "name the folder with journal.jsonl") from None
        found: list[dict[str, Any]] = []
        for line, before in zip(lines, ("", *(hashlib.sha256(line).hexdigest() for line in lines)), strict=False):
            try:
                facts = json.loads(line)
                whole = facts["before"] == before
            except (ValueError, TypeError, KeyError):
                whole = False
            if not whole:
                raise _bad(f"line {len(found) + 1} of its journal is not as it was written", folder)
            found.append(facts)
        if len(found) < 2 or found[-1].get("pieces") != len(found) - 2:
            raise _bad("the draw was not finished, and what there is of it is not a release", folder)
        schema = _SCHEMA.validate_python(found[0]["schema"])
        return cls(folder=folder, header=found[0], pieces=found[1:-1], schema=schema)

    def check(self) -> int:
        """Compare every piece with its checksum, and return how many arrays there are."""
        for piece in self.pieces:
            try:
                with (self.folder / piece["file"]).open("rb") as stream:
                    same = hashlib.file_digest(stream, "sha256").hexdigest() == piece["sha256"]
            except OSError:
                raise _bad(f"{piece['file']} is missing", self.folder) from None
            if not same:
                raise _bad(f"{piece['file']} is not as it was written", self.folder)
        return sum(len(piece["arrays"]) for piece in self.pieces)

    def top(self) -> Tree | None:
        """Return the areas above the shards, and the shards as leaves without answers; None if there is one shard."""
        return self._tree(self.pieces[0]) if self.header["shard"] else None

    def shards(self) -> Iterator[Callable[[], Tree]]:
        """Yield how to open the trees that are worked on apart, each with its area at the top, answers included."""
        for piece in self.pieces[bool(self.header["shard"]) :]:
            yield partial(replace(self, folder=self.folder.absolute(), header={}, pieces=())._tree, piece)

    def _array(self, piece: Mapping[str, Any], entry: Entry) -> npt.NDArray[Any]:
        shape = (entry["rows"], entry["columns"]) if "query" in entry else (entry["rows"],)
        try:
            return np.memmap(self.folder / piece["file"], entry["dtype"], "r", entry["offset"], shape)
        except (OSError, ValueError):
            raise _bad(f"{piece['file']} is missing or too short", self.folder) from None

    def _levels(self, piece: Mapping[str, Any]) -> Iterator[tuple[Level, Integers, list[StoredQuery]]]:
        """Yield the levels of a piece: their areas, the first level whose budget each has, and what is stored there."""
        by_level: dict[str, list[tuple[Entry, npt.NDArray[Any]]]] = {}
        for entry in piece["arrays"]:
            by_level.setdefault(entry["level"], []).append((entry, self._array(piece, entry)))
        for name, arrays in by_level.items():
            codes, parent, since = (values for _, values in arrays[: len(AREA_ROLES)])
            geocodes = tuple(code.decode() for code in codes.tolist())
            level = Level(name=name, geocodes=geocodes, parent=parent.astype(np.int64))
            queries = arrays[len(AREA_ROLES) :]
            yield level, since, [(e, self.schema.keeping(e["kept"], name=e["query"]), values) for e, values in queries]

    def _tree(self, piece: Mapping[str, Any]) -> Tree:
        levels = []
        for level, since, queries in self._levels(piece):
            answers, known = [], []
            for entry, query, values in queries:
                if entry["role"] == "answers":
                    variance = _variances(entry["sigma2"], since)
                    answers.append(Answers(query=query, values=values, variance=variance))
                elif self.agreeing or entry["published"] != AGREES:
                    given, whole = np.ones(len(values), dtype=np.bool_), values.astype(np.int64)
                    known.append(Constraint(query=query, sign=entry["sign"], values=whole, given=given))
            levels.append(replace(level, answers=tuple(answers), known=tuple(known)))
        return Tree(schema=self.schema, levels=tuple(levels))

    # ---- the published layout

    def published(self, what: str = "measurements") -> Iterator[pl.DataFrame]:
        """Yield what is published of the draw, a row for each area and query, in parts that are not tiny.

        ``measurements`` are the noisy answers (a bypassed area has none), ``constraints`` what is known without noise,
        ``agreement`` the counts of an earlier release that records agree with.
        """
        role = "answers" if what == "measurements" else "known"
        yield from in_parts(self._rows(role, earlier=what == "agreement"), _VALUES_IN_A_PART, _values)

    def _rows(self, role: str, *, earlier: bool) -> Iterator[pl.DataFrame]:
        columns = published_columns(self.schema, constraints=role == "known")
        for level, since, queries in (each for piece in self.pieces for each in self._levels(piece)):
            texts = pl.Series("geocode", level.geocodes, dtype=pl.String)
            for entry, query, values in queries:
                if entry["role"] != role or earlier != (entry["published"] == AGREES):
                    continue
                measured = [int(key) for key in entry["sigma2"]] if role == "answers" else np.unique(since)
                kept = np.flatnonzero(np.isin(since, measured))
                for some in blocks(kept.size, max(1, _VALUES_IN_A_PART // query.size)):
                    rows = kept[some.start : some.stop]
                    own = [texts.gather(rows), pl.Series("value", _in_32_bits(values[rows])).arr.to_list()]
                    if role == "answers":
                        noise = pl.Series("sigma2", since[rows].astype(np.int64)).replace_strict(
                            measured, [*entry["sigma2"].values()], return_dtype=pl.String
                        )
                        own += [pl.Series("variance", _variances(entry["sigma2"], since[rows])), noise]
                    yield pl.DataFrame(own).with_columns(self._same(entry, query)).select(columns)

    def _same(self, entry: Entry, query: MarginalQuery) -> list[pl.Expr]:
        """Return the columns that all areas have in common."""
        texts = {"geolevel": entry["level"], "query_name": entry["published"]}
        texts |= dict(zip(self.schema.names, query.kept, strict=True))
        if entry["role"] == "known":
            texts["sign"] = entry["sign"]
        shape = pl.lit(list(query.shape), dtype=pl.List(pl.Int32)).alias("query_shape")
        return [*(pl.lit(text).alias(name) for name, text in texts.items()), shape]


def _in_32_bits(block: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.int32]:
    """Return numbers as they are published; a bound beyond, as 99,999 persons for each of 30,000 homes, is none.

    >>> _in_32_bits(np.array([[5, 99_999 * 30_000]])).tolist()
    [[5, 2147483647]]
    """
    wide = block.dtype.itemsize > np.dtype(np.int32).itemsize
    return (np.minimum(block, NO_BOUND) if wide else block).astype(np.int32)


def _variances(sigma2: Mapping[str, str], since: Integers) -> npt.NDArray[np.float64]:
    """Return the exact variance of the noise in each area; infinite where nothing was measured."""
    found = np.full(len(since), np.inf)
    for key, text in sigma2.items():
        found[since == int(key)] = float(variance_of(Fraction(text)))
    return found


def in_parts(
    frames: Iterable[pl.DataFrame], most: int, size: Callable[[pl.DataFrame], int] = len
) -> Iterator[pl.DataFrame]:
    """Put small frames together, so that a part is neither tiny nor larger than memory should have."""
    held: list[pl.DataFrame] = []
    whole = 0
    for frame in frames:
        more = size(frame)
        if held and whole + more > most:
            yield pl.concat(held)
            held, whole = [], 0
        held.append(frame)
        whole += more
    if held:
        yield pl.concat(held)


def _values(frame: pl.DataFrame) -> int:
    return frame.height * int(frame["value"].list.len()[0])


def published_columns(schema: Schema, *, constraints: bool = False) -> tuple[str, ...]:
    """Return the columns of published measurements, or of published constraints."""
    last = ("sign",) if constraints else ("variance", "sigma2")
    return ("geolevel", "geocode", "query_name", *schema.names, "query_shape", "value", *last)


def schema_document(schema: Schema) -> dict[str, Any]:
    """Return a schema as plain data."""
    return _SCHEMA.dump_python(schema, mode="json")
