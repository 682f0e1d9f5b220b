"""The bulk work of a swap on a cluster, whose machines read the files for themselves.

What is decided stays here: plan, released order, verification. The machines code match and swap values, exchange the
swap codes of whole blocks of strata, and bring whole records and persons into the released order. Words are addressed
by the row of the file and by the block (``kernels.excerpt``), so a file leaves a cluster as it leaves this machine,
record by record, whatever the number of machines, of parts and of attempts.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, count, encode
from stirred.data.columns import Columns
from stirred.data.frames import write_frame
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.pieces import RowRange, Schema, checksum_of, pieces_of, schema_of
from stirred.data.problems import bad_plan
from stirred.engines.codes import Messages, exchange_codes, grouped, lost
from stirred.engines.protocol import ClusterEngine, bad_engine
from stirred.mechanisms.protocol import PERSONS, RECORDS
from stirred.mechanisms.records.kernels.addressing import Excerpt
from stirred.mechanisms.records.law import Kernel
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.strata import Strata
from stirred.mechanisms.records.swapped_file import PART, Rows, SwappedFile
from stirred.randomness.entropy import Entropy

PIECE_ROWS: Final = 1 << 19  # rows that are read at once
PART_ROWS: Final = PART // 8  # households in one part of the released file
EXCHANGED_ROWS: Final = 1 << 22  # records in one part of the exchange, where blocks allow it
_BYTES_A_ROW: Final = 96  # of a record in the exchange: messages, columns, the order of rows and the kernel's lists
_PLACE: Final = "__place"


def check_blocks(cluster: ClusterEngine, strata: Strata) -> None:
    """Refuse strata whose block does not fit into a task, with its number of records."""
    most, largest = cluster.memory // _BYTES_A_ROW, int(_block_sizes(strata).max(initial=0))
    if largest > most:
        raise bad_plan(
            f"strata that are swapped together have {largest:,} records; a task of the cluster can hold about {most:,}",
            where="match",
            remedy="give executors more memory (spark.executor.memory under [engine.conf]), match on more variables, "
            "or run it here: --engine local",
        )


def check_records(cluster: ClusterEngine, data: Microdata, plan: SwapPlan) -> None:
    """Refuse if the cluster reads other records than were planned."""
    _check_table(cluster, "households", data.households, [*dict.fromkeys([*plan.hold, *plan.universe.swap])])
    if data.persons is not None:
        _check_table(cluster, "persons", data.persons, _of_persons(data))


def _check_table(cluster: ClusterEngine, role: str, table: Columns, names: Sequence[str]) -> None:
    pieces = [*pieces_of(cluster.sources[role], most=PIECE_ROWS)]
    expected: list[list[int]] = [[] for _ in pieces]
    schema, aside = schema_of(table, names), ThreadPoolExecutor(1)
    there = aside.submit(lambda: [*cluster.map_groups(pieces, partial(_seen, schema))])
    aside.shutdown(wait=False)
    # Here one column at a time: a national file of persons does not fit beside everything else.
    for column in (table[name] for name in names):
        for piece, own in zip(pieces, expected, strict=True):
            own.append(checksum_of(column[piece.slice], first=piece.first))
    if there.result() != expected or sum(piece.rows for piece in pieces) != table.height:
        raise bad_engine(
            f"the cluster reads other records than were planned from the file of {role}",
            where=f"[data] {role}",
            remedy="if the file was changed, plan again; if it holds whole numbers with a decimal point, write them as "
            "whole numbers first; or run it here: --engine local",
        )


def _seen(schema: Schema, piece: RowRange) -> list[int]:
    """Return the checksums of the columns of a piece."""
    return [checksum_of(column, first=piece.first) for column in piece.read(schema).get_columns()]


def _of_persons(data: Microdata) -> list[str]:
    """Return the columns of persons that are read: at least one, which says how many there are."""
    return data.person_variables or [str(data.hid)]


# ---- the exchange -----------------------------------------------------------------------------------------


def exchange(cluster: ClusterEngine, plan: SwapPlan, kernel: Kernel, swapped: Codes, entropy: Entropy) -> None:
    """Exchange the swap codes of all records, in place: every part has whole blocks of strata."""
    assert plan.origin is not None
    rows, strata, sizes = swapped.size, plan.strata, _block_sizes(plan.strata)
    # Neighbouring blocks, about equally many records in each part.
    wanted = min(sizes.size, max(cluster.slots, -(-rows // EXCHANGED_ROWS)))
    part_of = (np.cumsum(sizes) - sizes // 2 - 1).clip(0) * wanted // rows
    part_of = np.unique(part_of, return_inverse=True)[1].astype(np.int64)  # a large block leaves numbers out
    columns: dict[str, npt.NDArray[np.unsignedinteger]] = {"strata": strata.coded.codes, "swap": swapped}
    rates = kernel.keywords.get("rates")
    if rates is not None and rates.by_record:
        # What every record has of its own travels with it.
        columns["kinds"], kernel = rates.index, partial(kernel, rates=replace(rates, index=rates.index[:0]))
    exchange_codes(
        cluster,
        columns,
        part_of=part_of,
        shift=Excerpt(of=rows).shift(strata.coded.count),
        most=PIECE_ROWS,
        kernel=partial(_exchanged, cluster.share(kernel), _Key(entropy.kept), rows),
        out=swapped,
    )


def _block_sizes(strata: Strata) -> npt.NDArray[np.int64]:
    """Return the number of records of each block of strata."""
    sizes = count(strata.coded.codes, groups=strata.coded.count)
    shift = Excerpt(of=strata.coded.codes.size).shift(strata.coded.count)
    return np.add.reduceat(sizes, np.arange(0, sizes.size, 1 << shift))


class _Key(bytes):
    """The key of this one draw, on its way to where it is used: nothing shows it."""

    def __repr__(self) -> str:
        return "key hidden"


def _exchanged(kernel_of: Callable[[], Kernel], key: _Key, of: int, records: Sequence[Codes]) -> Codes:
    """Run the member's own kernel on the records of a part; return their new swap codes."""
    kernel, (rows, stratum, swap, *kinds) = kernel_of(), records
    if kinds:
        rates = kernel.keywords["rates"]
        kernel = partial(kernel, rates=replace(rates, index=kinds[0].astype(rates.index.dtype)))
    kernel(stratum, swap, entropy=Entropy.from_kept(bytes(key)), threads=1, excerpt=Excerpt(of=of, rows=rows))
    return swap


# ---- the released records -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedParts(SwappedFile):
    """The swapped file, whose released tables the cluster has written in parts, with the note of the release."""

    # None for households of whom nobody is a person: parts of both tables cover the same households.
    parts: Mapping[str, Sequence[Path | None]]
    compared: Mapping[str, Callable[[], bool]]

    def households(self) -> Iterator[pl.DataFrame]:
        return _read(self.parts["households"])

    def persons(self) -> Iterator[pl.DataFrame]:
        return _read(self.parts["persons"])

    def files(self) -> dict[str, list[Path]]:
        names = {"households": RECORDS, "persons": PERSONS}
        return {names[role]: [path for path in paths if path] for role, paths in self.parts.items()}

    def agrees(self, role: str) -> bool:
        """Say whether the cluster reads back what it was given, each record in its place, by sums over both."""
        return self.compared[role]()


def _read(paths: Sequence[Path | None]) -> Iterator[pl.DataFrame]:
    together, first = max(1, PART // PART_ROWS), next(path for path in paths if path)
    none = pl.read_parquet(first, glob=False, n_rows=0)
    for begin in range(0, len(paths), together):
        own = (pl.read_parquet(path, glob=False) for path in paths[begin : begin + together] if path)
        yield pl.concat([none, *own]).rechunk()


def gathered(
    cluster: ClusterEngine, data: Microdata, plan: SwapPlan, *, swap: Coded, swapped: Codes, order: Rows
) -> SwappedParts:
    """Bring whole records, and persons with their households, into the released order, and write them in parts."""
    places = np.empty_like(order)
    places[order] = np.arange(order.size, dtype=np.uint32)
    levels = cluster.share((swap.levels, np.cumsum(count(swapped, groups=swap.count))))
    swaps, released = plan.universe.swap, plan.releases["households"]
    ids = [] if data.persons is None else [str(data.hid)]
    made = _Made(
        role="households", levels=levels, size=PART_ROWS, ids=ids, columns=[*ids, *released],
        held=[name for name in released if name not in swaps], crossed=[*plan.universe.match, *swaps],
        note=plan.specification.notes,
    )  # fmt: skip
    parts, compared = {}, {}
    gather = partial(_gathered, cluster, -(-order.size // PART_ROWS))
    parts["households"], compared["households"] = gather(made, data.households, made.held or [swaps[0]], places)
    if data.persons is not None:
        own = data.person_variables
        made = replace(made, role="persons", columns=[*ids, *swaps, *own], held=own, crossed=[])
        places = places[household_rows(data)]
        parts["persons"], compared["persons"] = gather(made, data.persons, _of_persons(data), places)
    return SwappedParts(data=data, swap=swap, swapped=swapped, order=order, parts=parts, compared=compared)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """How the parts of a released table are made: of so many households each, with these columns.

    ``held`` come from the records, swap values and ``ids`` from their places; ``crossed`` is a table that is kept.
    Inside a household persons stand in the order of their values.
    """

    role: str
    levels: Callable[[], tuple[pl.DataFrame, npt.NDArray[np.int64]]]
    size: int
    ids: Sequence[str]
    columns: Sequence[str]
    held: Sequence[str]
    crossed: Sequence[str]
    note: Mapping[str, str]

    def from_places(self, places: Rows) -> list[pl.Series]:
        """Return swap values and ids of records in these places of the released order."""
        levels, ends = self.levels()
        swap = levels[np.searchsorted(ends, places, side="right")]
        return [*swap.get_columns(), *(pl.Series(name, places + np.uint32(1)) for name in self.ids)]

    def saved(self, scratch: Path) -> Path:
        """Return where the places of all rows of the input are."""
        return scratch / f"places-{self.role}.npy"


def _agree(
    cluster: ClusterEngine, made: _Made, table: Columns, parts: Sequence[Path | None], places: Sequence[int]
) -> bool:
    """Compare the records of the input, with their places, with those in the files that were written.

    ``places`` are checksums, made here, of what the machines were told about the places of each piece.
    """
    types = schema_of(table, [*dict.fromkeys([*made.held, *made.crossed])])
    pieces = pieces_of(cluster.sources[made.role], most=PIECE_ROWS)
    came = [*cluster.map_groups(pieces, partial(_of_piece, made, types, made.saved(cluster.scratch)))]
    left = cluster.map_groups([(n, path) for n, path in enumerate(parts) if path], partial(_of_part, made, types))
    given, found = (
        [sum(column) % (1 << 64) for column in zip(*sums, strict=True)] for sums in ([sums for _, sums in came], left)
    )
    return [told for told, _ in came] == places and given == found and given[0] == table.height


def _of_piece(made: _Made, types: Schema, saved: Path, piece: RowRange) -> tuple[int, tuple[int, int, int]]:
    places = np.array(np.load(saved, mmap_mode="r")[piece.slice])
    sums = _sums(made, piece.read(types) if types else pl.DataFrame(), places)
    return checksum_of(pl.Series(places), first=piece.first), sums


def _of_part(made: _Made, types: Schema, given: tuple[int, Path]) -> tuple[int, int, int]:
    frame = pl.read_parquet(given[1], glob=False, hive_partitioning=False)
    places = np.arange(frame.height, dtype=np.uint32) + np.uint32(given[0] * made.size)
    falls = False
    if made.role == "persons":
        places = frame[made.ids[0]].cast(pl.UInt32).to_numpy() - np.uint32(1)
        codes = encode(frame, [name for name in made.held if name in frame.columns]).codes if made.held else places
        falls = bool(((places[1:] == places[:-1]) & (codes[1:] < codes[:-1])).any())
    follow = pl.DataFrame(made.from_places(places))
    kinds = {**types, **follow.schema}
    strange = (
        [*frame.schema.items()] != [(name, kinds[name]) for name in made.columns]
        or not made.note.items() <= pl.read_parquet_metadata(given[1]).items()
        or falls
        or bool((places[1:] < places[:-1]).any())
        or bool((places // np.uint32(made.size) != given[0]).any())
        or not frame.select(follow.columns).equals(follow, null_equal=True)
    )
    # Nothing that could agree: other columns or types, no note, or not the order, ids and swap values of its places.
    return (0, 0, 0) if strange else _sums(made, frame, places)


def _sums(made: _Made, frame: pl.DataFrame, places: Rows) -> tuple[int, int, int]:
    """Return the number of rows, a sum that changes, in all likelihood, with any held value or place, and one over the
    crossed values.
    """
    held = [pl.Series(_PLACE, places), *frame.select(made.held).get_columns()]
    return places.size, _sum_of(pl.DataFrame(held)), _sum_of(frame.select(made.crossed)) if made.crossed else 0


def _sum_of(frame: pl.DataFrame) -> int:
    """Return a number that does not change with the order of rows."""
    return int(np.add.reduce(frame.hash_rows().to_numpy()))


def _gathered(
    cluster: ClusterEngine, parts: int, made: _Made, table: Columns, names: Sequence[str], places: Rows
) -> tuple[list[Path | None], Callable[[], bool]]:
    """Send the rows of a table to the parts that their places are in; return the files of the parts, and their check.

    The machines read the places from a file, so that the check compares what they read with what is known here.
    """
    np.save(saved := made.saved(cluster.scratch), places)
    split = partial(_by_place, schema_of(table, names), saved, made.size)
    pieces = [*pieces_of(cluster.sources[made.role], most=PIECE_ROWS)]
    told = [checksum_of(pl.Series(places[piece.slice]), first=piece.first) for piece in pieces]
    found = cluster.exchange(pieces, split, partial(_written, cluster.scratch, made), parts=parts)
    if sum(rows for _, rows in found) != table.height:
        raise lost(made.role)
    files = [path if rows else None for path, rows in found]
    return files, partial(_agree, cluster, made, table, files, told)


def _by_place(schema: Schema, saved: Path, size: int, piece: RowRange) -> Messages:
    """Read whole rows, and send each to the part that its place is in."""
    places = np.array(np.load(saved, mmap_mode="r")[piece.slice])
    frame = piece.read(schema).with_columns(pl.Series(_PLACE, places))
    messages = []
    for part, own in grouped(places // np.uint32(size)):
        message = io.BytesIO()
        # The newer layout of text would take the text of all rows along.
        frame[own].write_ipc_stream(message, compression="lz4", compat_level=pl.CompatLevel.oldest())
        messages.append((part, message.getvalue()))
    return messages


def _written(folder: Path, made: _Made, part: int, messages: list[bytes]) -> tuple[Path, int]:
    """Put the rows of a part into the order of their places, with new ids and swap values; return file and length.

    Every attempt writes under a name of its own, and the one that was heard of counts.
    """
    path = folder / f"{made.role}-{part:06}-{uuid4()}.parquet"
    if not messages:
        return path, 0
    frame = pl.concat([pl.read_ipc_stream(io.BytesIO(message)) for message in messages])
    places, persons = frame[_PLACE].to_numpy(), made.role == "persons"
    order = np.lexsort((encode(frame, [*made.held]).codes if persons and made.held else places, places))
    frame, places = frame[order], places[order]
    if not persons and not np.array_equal(places, part * made.size + np.arange(places.size)):
        raise RuntimeError("a part does not have the records of its places, each once")
    released = {column.name: column for column in (*frame.get_columns(), *made.from_places(places))}
    table = pl.DataFrame([released[name] for name in made.columns])
    write_frame(table, path, note=dict(made.note))
    return path, table.height
