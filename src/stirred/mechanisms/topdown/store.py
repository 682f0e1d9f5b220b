"""The measurement store: noisy answers on disk, written once, area by area; and as others publish them.

A store is a folder. ``journal.jsonl`` has a line for the whole and one for each piece, every line with the SHA-256 of
the line before it; a piece is one file of plain integers with the areas of a shard, and the line has the place, width
and SHA-256 of each array in it. Nothing is ever overwritten: a folder that has a journal takes no second draw.

Why not the published layout at once: for the same areas a tree took 24 s and 724 MB from Parquet, 0.3 s and 88 MB here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import TypeAdapter

from stirred.data.problems import bad_file
from stirred.mechanisms.topdown.hierarchy.counts import Integers
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.tree import AGREES, NO_BOUND, Answers, Constraint, Level, Tree, blocks
from stirred.randomness.cell_law import variance_of

JOURNAL: Final = "journal.jsonl"
_KINDS: Final = ("<i2", "<i4", "<i8")
_ALIGNED: Final = 8
_WRITING: Final = ".writing"
_VALUES_IN_A_PART: Final = 1 << 24
_AGAIN: Final = "use the store as it was written; the noise in it cannot be drawn again"

_SCHEMA: Final = TypeAdapter(Schema)
Blocks = Callable[[], Iterable[npt.NDArray[np.int64]]]
Entry = Mapping[str, Any]


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

    def add(self, name: str, written: tuple[str, list[dict[str, Any]]]) -> None:
        """Take a piece that was written whole (:func:`write_piece`), and note it."""
        path, (file, arrays) = self.folder / f"{self.pieces:05d}.bin", written
        os.rename(self.folder / file, path)
        self._line({"piece": name, "file": path.name, "arrays": arrays})
        self.pieces += 1

    def finish(self) -> MeasurementStore:
        """Say that all pieces are there, and return the store; what lost tasks left behind goes."""
        self._line({"pieces": self.pieces})
        for left in self.folder.glob(f"*{_WRITING}"):
            left.unlink(missing_ok=True)
        os.close(self._journal)
        return MeasurementStore.open(self.folder)


def write_piece(folder: Path, write: Callable[[PieceWriter], None]) -> tuple[str, list[dict[str, Any]]]:
    """Write one piece whole, under a name that no other attempt at it has; return the name and what is in it."""
    name = f"{uuid4().hex}{_WRITING}"
    with os.fdopen(os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as stream:
        piece = PieceWriter(stream)
        write(piece)
        stream.flush()
        os.fsync(stream.fileno())
    return name, piece.arrays


class PieceWriter:
    """One file of arrays while it is written."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.arrays: list[dict[str, Any]] = []

    def level(self, level: Level, since: Integers) -> None:
        """Write the areas of a level: geocodes, parents, and from which level on each carries the budget."""
        codes = np.array([code.encode() for code in level.geocodes], dtype=np.bytes_)
        facts = {"level": level.name, "rows": level.areas}
        self._put({**facts, "role": "geocode", "dtype": codes.dtype.str or "S1", "columns": 1}, [codes])
        self.numbers(lambda: [level.parent], columns=1, role="parent", **facts)
        self.numbers(lambda: [since], columns=1, role="since", **facts)

    def numbers(self, blocks: Blocks, *, columns: int, **facts: Any) -> None:
        """Write whole numbers, which come in blocks of rows, as narrow as they fit; blocks may be asked for again."""
        for kind in _KINDS:
            most = np.iinfo(kind).max
            fitting = takewhile(lambda block, most=most: np.abs(block).max(initial=0) <= most, blocks())  # type: ignore[misc]
            if self._put({**facts, "dtype": kind, "columns": columns}, (block.astype(kind) for block in fitting)):
                return

    def _put(self, facts: dict[str, Any], blocks: Iterable[npt.NDArray[Any]]) -> bool:
        """Append an array; what does not have all its rows is taken back."""
        start = self._stream.seek(0, os.SEEK_END)
        offset = start + -start % _ALIGNED
        self._stream.write(bytes(offset - start))
        digest, rows = hashlib.sha256(), 0
        for block in blocks:
            written = np.ascontiguousarray(block)
            self._stream.write(written.data.cast("B"))
            digest.update(written.data.cast("B"))
            rows += len(written)
        if rows < facts["rows"]:
            self._stream.seek(start)
            self._stream.truncate()
            return False
        self.arrays.append({**facts, "offset": offset, "sha256": digest.hexdigest()})
        return True


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
        """Compare every array with its checksum, and return how many there are."""
        count = 0
        for piece in self.pieces:
            for entry in piece["arrays"]:
                written = np.ascontiguousarray(self._array(piece, entry))
                if hashlib.sha256(written.view(np.uint8).data).hexdigest() != entry["sha256"]:
                    raise _bad(f"{piece['file']} is not as it was written", self.folder)
                count += 1
        return count

    def top(self) -> Tree | None:
        """Return the areas above the shards, and the shards as leaves without answers; None if there is one shard."""
        return self._tree(self.pieces[0]) if self.header["shard"] else None

    def shards(self) -> Iterator[Callable[[], Tree]]:
        """Yield how to open the trees that are worked on apart, each with its area at the top, answers included."""
        for piece in self.pieces[bool(self.header["shard"]) :]:
            yield partial(replace(self, folder=self.folder.absolute(), header={}, pieces=())._tree, piece)

    def _array(self, piece: Mapping[str, Any], entry: Entry) -> npt.NDArray[Any]:
        shape = (entry["rows"], entry["columns"]) if entry["columns"] > 1 else (entry["rows"],)
        try:
            return np.memmap(self.folder / piece["file"], entry["dtype"], "r", entry["offset"], shape)
        except (OSError, ValueError):
            raise _bad(f"{piece['file']} is missing or too short", self.folder) from None

    def _levels(self, piece: Mapping[str, Any]) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in piece["arrays"]:
            found.setdefault(entry["level"], []).append(entry)
        return found

    def _tree(self, piece: Mapping[str, Any]) -> Tree:
        levels = []
        for name, entries in self._levels(piece).items():
            own = {entry["role"]: self._array(piece, entry) for entry in entries[:3]}
            answers, known = [], []
            for entry in entries[3:]:
                if entry["published"] == AGREES and not self.agreeing:
                    continue
                query = self._query(entry)
                values = self._array(piece, entry).reshape(-1, query.size)
                if entry["role"] == "answers":
                    variance = _variances(entry["sigma2"], own["since"])
                    answers.append(Answers(query=query, values=values, variance=variance))
                else:
                    given, whole = np.ones(len(values), dtype=np.bool_), values.astype(np.int64)
                    known.append(Constraint(query=query, sign=entry["sign"], values=whole, given=given))
            codes, parent = tuple(code.decode() for code in own["geocode"].tolist()), own["parent"].astype(np.int64)
            levels.append(Level(name=name, geocodes=codes, parent=parent, answers=tuple(answers), known=tuple(known)))
        return Tree(schema=self.schema, levels=tuple(levels))

    def _query(self, entry: Entry) -> MarginalQuery:
        return self.schema.keeping(entry["kept"], name=entry["query"])

    # ---- the published layout

    def published(self, what: str = "measurements") -> Iterator[pl.DataFrame]:
        """Yield what is published of the draw, a row for each area and query, in parts that are not tiny.

        ``measurements`` are the noisy answers (a bypassed area has none), ``constraints`` what is known without noise,
        ``agreement`` the counts of an earlier release that records agree with.
        """
        yield from _parts(self._rows("answers" if what == "measurements" else "known", earlier=what == "agreement"))

    def _rows(self, role: str, *, earlier: bool) -> Iterator[pl.DataFrame]:
        columns = published_columns(self.schema, constraints=role == "known")
        for piece in self.pieces:
            for entries in self._levels(piece).values():
                codes, _, since = (self._array(piece, entry) for entry in entries[:3])
                texts = pl.Series("geocode", [code.decode() for code in codes.tolist()], dtype=pl.String)
                for entry in (each for each in entries if each["role"] == role):
                    if earlier != (entry["published"] == AGREES):
                        continue
                    measured = [int(key) for key in entry["sigma2"]] if role == "answers" else np.unique(since)
                    kept = np.flatnonzero(np.isin(since, measured))
                    values, query = self._array(piece, entry), self._query(entry)
                    for some in blocks(kept.size, max(1, _VALUES_IN_A_PART // query.size)):
                        rows = kept[some.start : some.stop]
                        block = _in_32_bits(values[rows].reshape(-1, query.size))
                        own = [texts.gather(rows), pl.Series("value", block).arr.to_list()]
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


def _parts(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Put small frames together, so that a part is neither tiny nor larger than memory should have."""
    held: list[pl.DataFrame] = []
    values = 0
    for frame in frames:
        more = frame.height * int(frame["value"].list.len()[0])
        if held and values + more > _VALUES_IN_A_PART:
            yield pl.concat(held)
            held, values = [], 0
        held.append(frame)
        values += more
    if held:
        yield pl.concat(held)


def published_columns(schema: Schema, *, constraints: bool = False) -> tuple[str, ...]:
    """Return the columns of published measurements, or of published constraints."""
    last = ("sign",) if constraints else ("variance", "sigma2")
    return ("geolevel", "geocode", "query_name", *schema.names, "query_shape", "value", *last)


def schema_document(schema: Schema) -> dict[str, Any]:
    """Return a schema as plain data."""
    return _SCHEMA.dump_python(schema, mode="json")
