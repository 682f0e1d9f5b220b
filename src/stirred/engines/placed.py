"""Whole rows of a table on a cluster: brought into a new order, written in parts, and compared with the table itself.

The machines read the table and the new places of its rows from files, and write one file for each part. How a piece of
a table is read, values are numbered and summed, and a file is written comes with the table.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.engines.codes import Messages, Rows, grouped, lost
from stirred.engines.protocol import ClusterEngine

Schema = Mapping[str, pl.DataType]
_PLACE: Final = "__place"


class TablePiece(Protocol):
    """Some rows of a table that any machine can read."""

    @property
    def first(self) -> int:
        """Return how many rows of the table come before."""
        ...

    @property
    def rows(self) -> int:
        """Return how many rows it has."""
        ...

    @property
    def slice(self) -> slice:
        """Return its rows of the table."""
        ...

    def read(self, schema: Any) -> pl.DataFrame:
        """Return these columns with these types."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTable:
    """How the parts of a table are made, each of ``size`` places, with these ``columns``.

    ``held`` come from the rows, ``ids`` and the values of ``levels`` from their places; ``crossed`` is a table that is
    kept. ``types`` are those of the columns that are ``read``. With ``many_at_a_place`` rows share a place and stand
    there in the order of their values, which ``numbered`` tells. ``summed`` is a checksum of a column from a row on.
    """

    name: str
    types: Schema
    read: Sequence[str]
    columns: Sequence[str]
    held: Sequence[str]
    crossed: Sequence[str]
    ids: Sequence[str]
    levels: Callable[[], tuple[pl.DataFrame, npt.NDArray[np.int64]]]
    size: int
    many_at_a_place: bool
    note: Mapping[str, str]
    numbered: Callable[[pl.DataFrame, list[str]], Any]
    summed: Callable[..., int]
    write: Callable[..., None]

    def from_places(self, places: Rows) -> list[pl.Series]:
        """Return what the rows in these places of the new order have by their places."""
        levels, ends = self.levels()
        values = levels[np.searchsorted(ends, places, side="right")]
        return [*values.get_columns(), *(pl.Series(name, places + np.uint32(1)) for name in self.ids)]

    def saved(self, scratch: Path) -> Path:
        """Return where the places of all rows are."""
        return scratch / f"places-{self.name}.npy"

    def order_at_a_place(self, frame: pl.DataFrame, places: Rows) -> Rows:
        """Return what decides the order of rows that share a place."""
        held = [name for name in self.held if name in frame.columns]
        codes: Rows = self.numbered(frame, held).codes if held else places
        return codes


def same_rows(
    cluster: ClusterEngine,
    pieces: Sequence[TablePiece],
    columns: Iterable[pl.Series],
    *,
    types: Schema,
    summed: Callable[..., int],
) -> bool:
    """Say whether the machines read from the pieces what the columns hold; these are looked at one at a time."""
    aside = ThreadPoolExecutor(1)
    there = aside.submit(lambda: [*cluster.map_groups(pieces, partial(_seen, types, summed))])
    aside.shutdown(wait=False)
    expected: list[list[int]] = [[] for _ in pieces]
    for column in columns:
        for piece, own in zip(pieces, expected, strict=True):
            own.append(summed(column[piece.slice], first=piece.first))
    return there.result() == expected


def _seen(types: Schema, summed: Callable[..., int], piece: TablePiece) -> list[int]:
    return [summed(column, first=piece.first) for column in piece.read(types).get_columns()]


def place_rows(
    cluster: ClusterEngine, table: PlacedTable, pieces: Sequence[TablePiece], places: Rows, *, parts: int
) -> tuple[list[Path | None], Callable[[], bool]]:
    """Send the rows of a table to the parts that their places are in; return the files of the parts, and their check.

    The machines read the places from a file, so that the check compares what they read with what is known here.
    """
    np.save(table.saved(cluster.scratch), places)
    decided = [table.summed(pl.Series(places[piece.slice]), first=piece.first) for piece in pieces]
    split, work = partial(_by_place, table, cluster.scratch), partial(_written, table, cluster.scratch)
    found = cluster.exchange(pieces, split, work, parts=parts)
    if sum(rows for _, rows in found) != places.size:
        raise lost(table.name)
    files = [path if rows else None for path, rows in found]
    return files, partial(_agree, cluster, table, pieces, decided, files)


def _places_of(table: PlacedTable, scratch: Path, piece: TablePiece) -> Rows:
    return np.array(np.load(table.saved(scratch), mmap_mode="r")[piece.slice])


def _by_place(table: PlacedTable, scratch: Path, piece: TablePiece) -> Messages:
    """Read whole rows, and send each to the part that its place is in."""
    places = _places_of(table, scratch, piece)
    frame = piece.read({name: table.types[name] for name in table.read}).with_columns(pl.Series(_PLACE, places))
    messages = []
    for part, own in grouped(places // np.uint32(table.size)):
        message = io.BytesIO()
        # The newer layout of text would take the text of all rows along.
        frame[own].write_ipc_stream(message, compression="lz4", compat_level=pl.CompatLevel.oldest())
        messages.append((part, message.getvalue()))
    return messages


def _written(table: PlacedTable, scratch: Path, part: int, messages: list[bytes]) -> tuple[Path, int]:
    """Put the rows of a part into the order of their places, with what these decide; return file and length.

    Every attempt writes under a name of its own, and the one that was heard of counts.
    """
    path = scratch / f"{table.name}-{part:06}-{uuid4()}.parquet"
    if not messages:
        return path, 0
    frame = pl.concat([pl.read_ipc_stream(io.BytesIO(message)) for message in messages])
    places = frame[_PLACE].to_numpy()
    order = np.lexsort((table.order_at_a_place(frame, places), places) if table.many_at_a_place else (places,))
    frame, places = frame[order], places[order]
    if not table.many_at_a_place and not np.array_equal(places, part * table.size + np.arange(places.size)):
        raise RuntimeError("a part does not have the records of its places, each once")
    made = {column.name: column for column in (*frame.get_columns(), *table.from_places(places))}
    table.write(pl.DataFrame([made[name] for name in table.columns]), path, note=dict(table.note))
    return path, frame.height


# ---- what was written, compared with the table -------------------------------------------------------------


def _agree(
    cluster: ClusterEngine,
    table: PlacedTable,
    pieces: Sequence[TablePiece],
    decided: Sequence[int],
    files: Sequence[Path | None],
) -> bool:
    """Compare the rows of the table, with their places, with those in the files that were written.

    ``decided`` are checksums, made here, of the places of each piece.
    """
    came = [*cluster.map_groups(pieces, partial(_of_piece, table, cluster.scratch))]
    left = cluster.map_groups([(n, path) for n, path in enumerate(files) if path], partial(_of_part, table))
    given, found = (
        [sum(column) % (1 << 64) for column in zip(*sums, strict=True)] for sums in ([sums for _, sums in came], left)
    )
    return (
        [places for places, _ in came] == decided and given == found and given[0] == sum(piece.rows for piece in pieces)
    )


def _of_piece(table: PlacedTable, scratch: Path, piece: TablePiece) -> tuple[int, tuple[int, int, int]]:
    places = _places_of(table, scratch, piece)
    types = {name: table.types[name] for name in dict.fromkeys([*table.held, *table.crossed])}
    sums = _sums(table, piece.read(types) if types else pl.DataFrame(), places)
    return table.summed(pl.Series(places), first=piece.first), sums


def _of_part(table: PlacedTable, given: tuple[int, Path]) -> tuple[int, int, int]:
    part, path = given
    frame = pl.read_parquet(path, glob=False, hive_partitioning=False)
    places, falls = np.arange(frame.height, dtype=np.uint32) + np.uint32(part * table.size), False
    if table.many_at_a_place:
        places = frame[table.ids[0]].cast(pl.UInt32).to_numpy() - np.uint32(1)
        codes = table.order_at_a_place(frame, places)
        falls = bool(((places[1:] == places[:-1]) & (codes[1:] < codes[:-1])).any())
    follow = pl.DataFrame(table.from_places(places))
    kinds = {**table.types, **follow.schema}
    strange = (
        [*frame.schema.items()] != [(name, kinds[name]) for name in table.columns]
        or not table.note.items() <= pl.read_parquet_metadata(path).items()
        or falls
        or bool((places[1:] < places[:-1]).any())
        or bool((places // np.uint32(table.size) != part).any())
        or not frame.select(follow.columns).equals(follow, null_equal=True)
    )
    # Nothing that could agree: other columns or types, no note, or not the order and values of its places.
    return (0, 0, 0) if strange else _sums(table, frame, places)


def _sums(table: PlacedTable, frame: pl.DataFrame, places: Rows) -> tuple[int, int, int]:
    """Return the number of rows, a sum that changes, in all likelihood, with any held value or place, and one over the
    crossed values; none changes with the order of rows.
    """
    held = pl.DataFrame([pl.Series(_PLACE, places), *frame.select(table.held).get_columns()])
    both = (held, frame.select(table.crossed) if table.crossed else None)
    sums = [0 if each is None else int(np.add.reduce(each.hash_rows().to_numpy())) for each in both]
    return places.size, sums[0], sums[1]
