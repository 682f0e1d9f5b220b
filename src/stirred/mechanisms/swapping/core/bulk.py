"""The bulk work of a swap on a cluster, whose machines read the files for themselves.

What is decided stays here: plan, released order, verification. The machines code match and swap values, exchange the
swap codes of whole blocks of strata, and bring whole records and persons into the released order. Words are addressed
by the row of the file and by the block (``kernels.excerpt``), so a file leaves a cluster as it leaves this machine,
record by record, whatever the number of machines, of parts and of attempts.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from stirred.data.pieces import Piece, Schema, checksum_of, pieces_of, schema_of
from stirred.data.problems import bad_plan
from stirred.engines.protocol import Cluster, EngineError, bad_engine
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.rates import RecordRates
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swapped_file import PART, Rows, SwappedFile
from stirred.mechanisms.swapping.core.swapping import Kernel
from stirred.mechanisms.swapping.kernels.excerpt import Excerpt
from stirred.randomness.entropy import Entropy

Messages = list[tuple[int, bytes]]

PIECE_ROWS: Final = 1 << 19  # rows that are read at once
PART_ROWS: Final = PART // 8  # households in one part of the released file
EXCHANGED_ROWS: Final = 1 << 22  # records in one part of the exchange, where blocks allow it
_BYTES_A_ROW: Final = 96  # of a record in the exchange: messages, columns, the order of rows and the kernel's lists
_RECORD: Final = np.dtype([("row", "<u4"), ("stratum", "<u4"), ("swap", "<u4"), ("kind", "<u2")])
_PLACE: Final = "__place"


def check_blocks(cluster: Cluster, strata: Strata) -> None:
    """Refuse strata whose block does not fit into a task, with its number of records."""
    most, largest = cluster.memory // _BYTES_A_ROW, int(_block_sizes(strata).max(initial=0))
    if largest > most:
        raise bad_plan(
            f"strata that are swapped together have {largest:,} records; a task of the cluster can hold about {most:,}",
            where="match",
            remedy="give executors more memory (spark.executor.memory under [engine.conf]), match on more variables, "
            "or run it here: --engine local",
        )


def check_records(cluster: Cluster, data: Microdata, plan: SwapPlan) -> None:
    """Refuse if the cluster reads other records than were planned, or codes them otherwise."""
    names = [*dict.fromkeys([*plan.hold, *plan.universe.swap])]
    _check_table(cluster, "households", data.households, names, [plan.strata.coded, plan.swap])
    if data.persons is not None:
        _check_table(cluster, "persons", data.persons, _of_persons(data), [])


def _check_table(cluster: Cluster, role: str, table: Columns, names: Sequence[str], coded: Sequence[Coded]) -> None:
    pieces = [*pieces_of(cluster.sources[role], most=PIECE_ROWS)]
    expected: list[list[int]] = [[] for _ in pieces]
    # One column at a time: a national file of persons does not fit beside everything else.
    for column in (*(table[name] for name in names), *(pl.Series(own.codes) for own in coded)):
        for piece, own in zip(pieces, expected, strict=True):
            own.append(checksum_of(column[piece.slice], first=piece.first))
    seen = partial(_seen, schema_of(table, names), cluster.share([own.levels for own in coded]))
    if sum(piece.rows for piece in pieces) != table.height or [*cluster.map_groups(pieces, seen)] != expected:
        raise bad_engine(
            f"the cluster reads other records than were planned from the file of {role}",
            where=f"[data] {role}",
            remedy="if the file was changed, plan again; if it holds whole numbers with a decimal point, write them as "
            "whole numbers first; or run it here: --engine local",
        )


def _seen(schema: Schema, levels: Callable[[], Sequence[pl.DataFrame]], piece: Piece) -> list[int]:
    """Return the checksums of the columns of a piece, and of its codes."""
    frame = piece.read(schema)
    codes = (pl.Series(_coded(frame, own)) for own in levels())
    return [checksum_of(column, first=piece.first) for column in (*frame.get_columns(), *codes)]


def _of_persons(data: Microdata) -> list[str]:
    """Return the columns of persons that are read: at least one, which says how many there are."""
    return data.person_variables or [str(data.hid)]


def _coded(frame: pl.DataFrame, levels: pl.DataFrame) -> Codes:
    """Return the codes that the plan gave the values of a frame."""
    if not levels.width:
        return np.zeros(frame.height, dtype=np.uint32)
    own, index = encode(frame, levels.columns), levels.with_row_index("__code")
    found = own.levels.join(index, on=levels.columns, how="left", maintain_order="left", nulls_equal=True)["__code"]
    return found.fill_null((1 << 32) - 1).to_numpy().astype(np.uint32)[own.codes]


# ---- the exchange -----------------------------------------------------------------------------------------


def exchange(cluster: Cluster, plan: SwapPlan, kernel: Kernel, swapped: Codes, entropy: Entropy) -> None:
    """Exchange the swap codes of all records, in place: every part has whole blocks of strata."""
    assert plan.origin is not None
    rows, strata, sizes = swapped.size, plan.strata, _block_sizes(plan.strata)
    # Neighbouring blocks, about equally many records in each part.
    wanted = min(sizes.size, max(cluster.slots, -(-rows // EXCHANGED_ROWS)))
    part_of = (np.cumsum(sizes) - sizes // 2 - 1).clip(0) * wanted // rows
    part_of = np.unique(part_of, return_inverse=True)[1].astype(np.int64)  # a large block leaves numbers out
    kinds, rates = None, kernel.keywords.get("rates")
    if isinstance(rates, RecordRates):
        # What every record has of its own travels with it.
        kinds, kernel = rates.kinds, partial(kernel, rates=replace(rates, kinds=rates.kinds[:0]))
    pieces = pieces_of(cluster.sources["households"], most=PIECE_ROWS)
    groups = [(piece, None if kinds is None else kinds[piece.slice]) for piece in pieces]
    types = schema_of(plan.origin.data.households, [*strata.match, *plan.universe.swap])
    coding = cluster.share((strata.coded.levels, plan.swap.levels, part_of))
    split = partial(_by_block, coding, types, Excerpt(of=rows).shift(strata.coded.count))
    work = partial(_exchanged, cluster.share(kernel), _Key(entropy.kept), rows, cluster.scratch)
    seen, came = np.zeros(rows, dtype=np.bool_), 0
    for path in cluster.exchange(groups, split, work, parts=int(part_of.max(initial=0)) + 1):
        found = np.load(path)
        swapped[found["row"]], seen[found["row"]], came = found["swap"], True, came + found.size
    if came != rows or not seen.all():  # whoever was forgotten would be released unswapped, and no table would show it
        raise _lost("records")


def _lost(who: str) -> EngineError:
    return bad_engine(f"{who} were lost on the cluster", remedy="this is a fault of ours, please report it")


def _block_sizes(strata: Strata) -> npt.NDArray[np.int64]:
    """Return the number of records of each block of strata."""
    sizes = count(strata.coded.codes, groups=strata.coded.count)
    shift = Excerpt(of=strata.coded.codes.size).shift(strata.coded.count)
    return np.add.reduceat(sizes, np.arange(0, sizes.size, 1 << shift))


def _by_block(
    coding: Callable[[], tuple[pl.DataFrame, pl.DataFrame, npt.NDArray[np.int64]]],
    types: Schema,
    shift: int,
    group: tuple[Piece, npt.NDArray[np.uint16] | None],
) -> Messages:
    """Code a piece, and send every record to the part that has the block of its stratum."""
    (piece, kinds), (match, swap, part_of) = group, coding()
    frame, records = piece.read(types), np.zeros(piece.rows, dtype=_RECORD)
    records["row"] = np.arange(piece.first, piece.first + piece.rows)
    records["stratum"], records["swap"] = _coded(frame, match), _coded(frame, swap)
    records["kind"] = 0 if kinds is None else kinds
    parts = part_of[records["stratum"] >> np.uint32(shift)]
    return [(part, records[own].tobytes()) for part, own in _grouped(parts)]


def _grouped(parts: npt.NDArray[np.integer]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield the parts that occur, and the rows of each in their order."""
    order = np.argsort(parts, kind="stable")
    found, begins = np.unique(parts[order], return_index=True)
    for part, begin, end in zip(found.tolist(), begins, [*begins[1:], order.size], strict=True):
        yield part, order[begin:end]


class _Key(bytes):
    """The key of this one draw, on its way to where it is used: nothing shows it."""

    def __repr__(self) -> str:
        return "key hidden"


def _exchanged(
    kernel_of: Callable[[], Kernel], key: _Key, of: int, folder: Path, part: int, messages: list[bytes]
) -> Path:
    """Run the member's own kernel on the records of a part, in the order of the file; write their new swap codes."""
    records = np.concatenate([np.frombuffer(message, dtype=_RECORD) for message in messages])
    records = records[np.argsort(records["row"])]
    rows, stratum, swap, kinds = (np.ascontiguousarray(records[name]) for name in _RECORD.names or ())
    kernel = kernel_of()
    if isinstance(rates := kernel.keywords.get("rates"), RecordRates):
        kernel = partial(kernel, rates=replace(rates, kinds=kinds))
    kernel(stratum, swap, entropy=Entropy.from_kept(bytes(key)), threads=1, excerpt=Excerpt(of=of, rows=rows))
    records["swap"] = swap
    return _placed(folder / f"swapped-{part}.npy", lambda path: np.save(path, records[["row", "swap"]]))


# ---- the released records -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedParts(SwappedFile):
    """The swapped file, whose released tables the cluster has written in parts."""

    # None for households of whom nobody is a person: parts of both tables cover the same households.
    parts: Mapping[str, Sequence[Path | None]]
    # The sum over the persons of the input, each with the place of its household.
    expected: Callable[[], int]

    def households(self) -> Iterator[pl.DataFrame]:
        """Yield the released households."""
        return _read(self.parts["households"])

    def persons(self) -> Iterator[pl.DataFrame]:
        """Yield the released persons."""
        return _read(self.parts["persons"])

    def persons_agree(self) -> bool:
        """Say whether the released persons are those of the input, each in its household: by a sum over both."""
        names = [str(self.data.hid), *self.data.person_variables]
        return self.expected() == sum(_sum_of(part.select(names)) for part in self.persons()) % (1 << 64)


def _read(paths: Sequence[Path | None]) -> Iterator[pl.DataFrame]:
    together, first = max(1, PART // PART_ROWS), next(path for path in paths if path)
    none = pl.read_parquet(first, glob=False, n_rows=0)
    for begin in range(0, len(paths), together):
        own = (pl.read_parquet(path, glob=False) for path in paths[begin : begin + together] if path)
        yield pl.concat([none, *own]).rechunk()


def gathered(
    cluster: Cluster, data: Microdata, plan: SwapPlan, *, swap: Coded, swapped: Codes, order: Rows
) -> SwappedParts:
    """Bring whole records, and persons with their households, into the released order, and write them in parts."""
    places = np.empty_like(order)
    places[order] = np.arange(order.size, dtype=np.uint32)
    levels = cluster.share((swap.levels, np.cumsum(count(swapped, groups=swap.count))))
    swaps, released, hid = (
        plan.universe.swap,
        plan.releases["households"],
        data.hid if data.persons is not None else None,
    )
    ids = [] if hid is None else [hid]
    held = [name for name in released if name not in swaps] or [swaps[0]]
    write = partial(_written, cluster.scratch, PART_ROWS, levels, hid)
    gather = partial(_gathered, cluster, -(-order.size // PART_ROWS))
    parts = {"households": gather("households", data.households, held, places, partial(write, [*ids, *released], None))}
    expected: Callable[[], int] = int
    if data.persons is not None:
        own, places = data.person_variables, places[household_rows(data)]
        work = partial(write, [*ids, *swaps, *own], own)
        parts["persons"] = gather("persons", data.persons, _of_persons(data), places, work)
        expected = partial(_expected, cluster, schema_of(data.persons, own))
    return SwappedParts(data=data, swap=swap, swapped=swapped, order=order, parts=parts, expected=expected)


def _expected(cluster: Cluster, schema: Schema) -> int:
    pieces = pieces_of(cluster.sources["persons"], most=PIECE_ROWS)
    return sum(cluster.map_groups(pieces, partial(_sum_of_piece, schema, _places_of(cluster, "persons")))) % (1 << 64)


def _sum_of_piece(schema: Schema, saved: Path, piece: Piece) -> int:
    ids = pl.Series(_PLACE, np.load(saved, mmap_mode="r")[piece.slice] + np.uint32(1))
    return _sum_of(pl.DataFrame([ids, *(piece.read(schema).get_columns() if schema else ())]))


def _sum_of(frame: pl.DataFrame) -> int:
    """Return a number that changes, in all likelihood, with any value of any row, and not with the order of rows."""
    return int(np.add.reduce(frame.hash_rows().to_numpy()))


def _places_of(cluster: Cluster, role: str) -> Path:
    return cluster.scratch / f"places-{role}.npy"


def _gathered(
    cluster: Cluster,
    parts: int,
    role: str,
    table: Columns,
    names: Sequence[str],
    places: Rows,
    work: partial[tuple[Path, int]],
) -> list[Path | None]:
    """Send the rows of a table to the parts that their places are in, and return the files of the parts."""
    saved = _placed(_places_of(cluster, role), lambda path: np.save(path, places))
    split = partial(_by_place, schema_of(table, names), saved, PART_ROWS)
    pieces = [*pieces_of(cluster.sources[role], most=PIECE_ROWS)]
    found = cluster.exchange(pieces, split, work, parts=parts)
    if sum(rows for _, rows in found) != table.height:
        raise _lost(role)
    return [path if rows else None for path, rows in found]


def _by_place(schema: Schema, saved: Path, size: int, piece: Piece) -> Messages:
    """Read whole rows, and send each to the part that its place is in."""
    places = np.array(np.load(saved, mmap_mode="r")[piece.slice])
    frame = piece.read(schema).with_columns(pl.Series(_PLACE, places))
    messages = []
    for part, own in _grouped(places // np.uint32(size)):
        message = io.BytesIO()
        # The newer layout of text would take the text of all rows along.
        frame[own].write_ipc_stream(message, compression="lz4", compat_level=pl.CompatLevel.oldest())
        messages.append((part, message.getvalue()))
    return messages


def _written(
    folder: Path,
    size: int,
    swap_levels: Callable[[], tuple[pl.DataFrame, npt.NDArray[np.int64]]],
    hid: str | None,
    columns: Sequence[str],
    own: Sequence[str] | None,
    part: int,
    messages: list[bytes],
) -> tuple[Path, int]:
    """Put the rows of a part into the order of their places, with new ids and swap values; return file and length.

    ``own`` are the variables of persons: inside a household these stand in the order of their values.
    """
    path = folder / f"{'households' if own is None else 'persons'}-{part:06}.parquet"
    if not messages:
        return path, 0
    frame = pl.concat([pl.read_ipc_stream(io.BytesIO(message)) for message in messages])
    places = frame[_PLACE].to_numpy()
    order = np.lexsort((encode(frame, [*own]).codes if own else places, places))
    frame, places = frame[order], places[order]
    if own is None and not np.array_equal(places, part * size + np.arange(places.size)):
        raise RuntimeError("a part does not have the records of its places, each once")
    levels, ends = swap_levels()
    swap, ids = levels[np.searchsorted(ends, places, side="right")], pl.Series(hid or _PLACE, places + np.uint32(1))
    released = {column.name: column for column in (*frame.get_columns(), *swap.get_columns(), ids)}
    table = pl.DataFrame([released[name] for name in columns])
    return _placed(path, partial(write_frame, table)), table.height


def _placed(path: Path, write: Callable[[Path], None]) -> Path:
    """Write a file under a name of its own, then give it its name: an attempt beside this one writes the same."""
    write(hidden := path.with_name(f"{uuid4()}{path.suffix}"))
    return hidden.replace(path)
