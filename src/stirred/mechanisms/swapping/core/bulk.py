"""The bulk work of a swap on an engine with machines of its own, which read the files for themselves.

What is decided stays here: plan, released order, verification. The engine's machines code the match and swap values,
exchange the swap codes of whole blocks of strata, and bring whole records and persons into the released order. Words
are addressed by the row of the file and by the block (``kernels.excerpt``), so a file leaves a cluster as it leaves
this machine, record by record, whatever the number of machines, of parts and of attempts.
"""

from __future__ import annotations

import io
import os
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
from stirred.engines.protocol import Engine, bad_engine
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.rates import RecordRates
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swapped_file import PART, Rows, Swapped
from stirred.mechanisms.swapping.core.swapping import Kernel
from stirred.mechanisms.swapping.kernels.excerpt import Excerpt
from stirred.randomness.entropy import Entropy

Values = npt.NDArray[np.uint32]
Messages = list[tuple[int, bytes]]

PIECE_ROWS: Final = 1 << 20
PART_ROWS: Final = PART // 8  # households in one part, as an engine writes it
EXCHANGED_ROWS: Final = 1 << 22  # records in one part of the exchange, where blocks allow it
_BYTES_A_ROW: Final = 96  # of a record in the exchange: messages, columns, the order of rows and the kernel's lists
_RECORD: Final = np.dtype([("row", "<u4"), ("stratum", "<u4"), ("swap", "<u4"), ("kind", "<u2")])
_PLACE: Final = "__position"


# ---- what must be so before anything is drawn -------------------------------------------------------------


def check_blocks(engine: Engine, strata: Strata) -> None:
    """Refuse strata whose block does not fit into a task, with its number of records."""
    most = engine.memory // _BYTES_A_ROW
    largest = int(_block_sizes(strata).max(initial=0))
    if largest > most:
        raise bad_plan(
            f"strata that are swapped together have {largest:,} records, and a task of the cluster can hold about "
            f"{most:,}",
            where="match",
            remedy="give executors more memory (spark.executor.memory under [engine.conf]), match on more variables, "
            "or leave [engine] out",
        )


def check_records(engine: Engine, data: Microdata, plan: SwapPlan) -> None:
    """Refuse if the engine's machines read other records than were planned, or code them otherwise."""
    levels = (plan.strata.coded.levels, plan.swap.levels)
    names = [*dict.fromkeys([*plan.hold, *plan.universe.swap])]
    _check_table(engine, data.households, "households", names, levels, (plan.strata.coded.codes, plan.swap.codes))
    if data.persons is not None:
        _check_table(engine, data.persons, "persons", _carried(data.person_variables, data), (), ())


def _check_table(
    engine: Engine,
    table: Columns,
    role: str,
    names: Sequence[str],
    levels: Sequence[pl.DataFrame],
    codes: Sequence[Codes],
) -> None:
    pieces = [*pieces_of(engine.sources[role], most=PIECE_ROWS)]
    if sum(piece.rows for piece in pieces) != table.height:
        raise _other_records(role)
    expected: list[list[int]] = [[] for _ in pieces]
    # One column at a time: a national file of persons does not fit beside everything else.
    for column in (*(table[name] for name in names), *(pl.Series(own) for own in codes)):
        for piece, own in zip(pieces, expected, strict=True):
            own.append(checksum_of(column[piece.slice], first=piece.first))
    seen = partial(_seen, schema_of(table, names), engine.share(levels))
    if [*engine.map_groups(pieces, seen)] != expected:
        raise _other_records(role)


def _seen(schema: Schema, levels: Callable[[], Sequence[pl.DataFrame]], piece: Piece) -> list[int]:
    """Return the checksums of the columns of a piece, and of its codes."""
    frame = piece.read(schema)
    codes = [pl.Series(_coded(frame, own)) for own in levels()]
    return [checksum_of(column, first=piece.first) for column in (*frame.get_columns(), *codes)]


def _carried(own: Sequence[str], data: Microdata) -> list[str]:
    """Return the columns of persons that are read: at least one, which says how many there are."""
    return [*own] or [str(data.hid)]


def _coded(frame: pl.DataFrame, levels: pl.DataFrame) -> Codes:
    """Return the codes that the plan gave the values of a frame."""
    if not levels.width:
        return np.zeros(frame.height, dtype=np.uint32)
    own = encode(frame, levels.columns)
    index = levels.with_row_index("__code")
    found = own.levels.join(index, on=levels.columns, how="left", maintain_order="left", nulls_equal=True)["__code"]
    return found.fill_null((1 << 32) - 1).to_numpy().astype(np.uint32)[own.codes]


def _other_records(role: str) -> Exception:
    return bad_engine(
        f"the cluster reads other records than were planned from the file of {role}",
        where=f"[data] {role}",
        remedy="if the file was changed, plan again; if it holds whole numbers as text with a decimal point, write it "
        "with `stirred prepare` first; or leave [engine] out",
    )


# ---- the exchange -----------------------------------------------------------------------------------------


def exchange(engine: Engine, plan: SwapPlan, kernel: Kernel, swapped: Values, entropy: Entropy) -> None:
    """Exchange the swap codes of all records, in place: every part has whole blocks of strata."""
    rows, strata = swapped.size, plan.strata
    sizes, excerpt = _block_sizes(strata), Excerpt(of=rows)
    # Neighbouring blocks, about equally many records in each part.
    wanted = min(sizes.size, max(engine.slots, -(-rows // EXCHANGED_ROWS)))
    part_of = ((np.cumsum(sizes) - sizes // 2 - 1).clip(0) * wanted // rows).astype(np.int64)
    rates = kernel.keywords.get("rates")
    kinds = None
    if isinstance(rates, RecordRates):
        # What every record has travels with the record.
        kinds, kernel = rates.kinds, partial(kernel, rates=replace(rates, kinds=rates.kinds[:0]))
    assert plan.origin is not None
    types = schema_of(plan.origin.data.households, [*strata.match, *plan.universe.swap])
    coding = engine.share((strata.coded.levels, plan.swap.levels, part_of, types))
    groups = [
        (piece, None if kinds is None else kinds[piece.slice])
        for piece in pieces_of(engine.sources["households"], most=PIECE_ROWS)
    ]
    folder = _folder(engine)
    work = _Exchanging(kernel=engine.share(kernel), key=_Key(entropy.kept), of=rows, folder=folder)
    split = partial(_by_block, coding, excerpt.shift(strata.coded.count))
    for path in engine.exchange(groups, split, work, parts=int(part_of.max(initial=0)) + 1):
        found = np.load(path)
        swapped[found["row"]] = found["swap"]


def _block_sizes(strata: Strata) -> npt.NDArray[np.int64]:
    """Return the number of records of each block of strata."""
    sizes = count(strata.coded.codes, groups=strata.coded.count)
    shift = Excerpt(of=strata.coded.codes.size).shift(strata.coded.count)
    return np.add.reduceat(sizes, np.arange(0, sizes.size, 1 << shift)) if sizes.size else sizes


def _by_block(
    coding: Callable[[], tuple[pl.DataFrame, pl.DataFrame, npt.NDArray[np.int64], Schema]],
    shift: int,
    group: tuple[Piece, npt.NDArray[np.uint16] | None],
) -> Messages:
    """Code a piece, and send every record to the part that has the block of its stratum."""
    piece, kinds = group
    match, swap, part_of, types = coding()
    frame = piece.read(types)
    records = np.zeros(piece.rows, dtype=_RECORD)
    records["row"] = np.arange(piece.first, piece.first + piece.rows)
    records["stratum"], records["swap"] = _coded(frame, match), _coded(frame, swap)
    if kinds is not None:
        records["kind"] = kinds
    part = part_of[records["stratum"] >> np.uint32(shift)]
    return [(each, records[own].tobytes()) for each, own in _grouped(part)]


def _grouped(part: npt.NDArray[np.integer]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield the parts that occur, and the places of each in their order."""
    order = np.argsort(part, kind="stable")
    found, begins = np.unique(part[order], return_index=True)
    for number, begin, end in zip(found.tolist(), begins, [*begins[1:], order.size], strict=True):
        yield number, order[begin:end]


class _Key(bytes):
    """The key of this one draw, on its way to where it is used: nothing shows it."""

    def __repr__(self) -> str:
        return "key hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchanging:
    """The member's own kernel on the records of a part, in the order of the file; writes their new swap codes."""

    kernel: Callable[[], Kernel]
    key: _Key
    of: int
    folder: Path

    def __call__(self, part: int, messages: list[bytes]) -> Path:
        records = np.concatenate([np.frombuffer(message, dtype=_RECORD) for message in messages])
        records = records[np.argsort(records["row"])]
        rows, stratum, swap = (np.ascontiguousarray(records[name]) for name in ("row", "stratum", "swap"))
        kernel = self.kernel()
        rates = kernel.keywords.get("rates")
        if isinstance(rates, RecordRates):
            kernel = partial(kernel, rates=replace(rates, kinds=np.ascontiguousarray(records["kind"])))
        entropy, excerpt = Entropy.from_kept(bytes(self.key)), Excerpt(of=self.of, rows=rows)
        kernel(stratum, swap, entropy=entropy, threads=1, excerpt=excerpt)
        records["swap"] = swap
        return _saved(records[["row", "swap"]].copy(), self.folder / f"swapped-{part}.npy")


# ---- the released records -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedParts(Swapped):
    """The swapped file as parts in the engine's folder, and what stays here to verify them: confidential."""

    parts: Mapping[str, Sequence[Path]]

    def households(self) -> Iterator[pl.DataFrame]:
        """Yield the released households."""
        return self._read("households")

    def persons(self) -> Iterator[pl.DataFrame]:
        """Yield the released persons."""
        return self._read("persons")

    def _read(self, role: str) -> Iterator[pl.DataFrame]:
        paths, together = self.parts[role], max(1, PART // PART_ROWS)
        for begin in range(0, len(paths), together):
            yield pl.concat([pl.read_parquet(path, glob=False) for path in paths[begin : begin + together]]).rechunk()


def gathered(
    engine: Engine, data: Microdata, plan: SwapPlan, *, swap: Coded, swapped: Codes, order: Rows
) -> SwappedParts:
    """Bring whole records, and persons with their households, into the released order, and write them in parts."""
    position = np.empty_like(order)
    position[order] = np.arange(order.size, dtype=np.uint32)
    levels = engine.share((swap.levels, np.cumsum(count(swapped, groups=swap.count))))
    swaps, released = plan.universe.swap, [*plan.releases["households"]]
    held = [name for name in released if name not in swaps] or [swaps[0]]
    ids = [] if data.persons is None else [str(data.hid)]
    homes = _Gathering(levels=levels, columns=(*ids, *released), ids=(*ids,), folder=_folder(engine), size=PART_ROWS)
    parts = {"households": _gathered(engine, data.households, "households", held, position, homes)}
    if data.persons is not None:
        own = data.person_variables
        people = replace(homes, columns=(*ids, *swaps, *own), own=tuple(own))
        places = position[household_rows(data)]
        parts["persons"] = _gathered(engine, data.persons, "persons", _carried(own, data), places, people)
    return SwappedParts(data=data, swap=swap, swapped=swapped, order=order, parts=parts)


def _gathered(
    engine: Engine, table: Columns, role: str, names: Sequence[str], places: Rows, work: _Gathering
) -> list[Path]:
    """Send the rows of a table to the parts that their places are in, and return the files of the parts."""
    pieces = [*pieces_of(engine.sources[role], most=PIECE_ROWS)]
    saved = _saved(places, work.folder / f"places-{role}.npy")
    split = partial(_by_place, schema_of(table, names), saved, work.size)
    parts = int(places.max(initial=0)) // work.size + 1
    found = engine.exchange(pieces, split, work, parts=parts)
    if sum(rows for _, rows in found) != table.height:
        raise bad_engine(f"{role} were lost on the cluster", remedy="this is a fault of ours, please report it")
    return [path for path, rows in found if rows]


def _by_place(schema: Schema, saved: Path, size: int, piece: Piece) -> Messages:
    """Read whole rows, and send each to the part that its place is in."""
    places = np.array(np.load(saved, mmap_mode="r")[piece.slice])
    frame = piece.read(schema).with_columns(pl.Series(_PLACE, places))
    return [(part, _packed(frame[own])) for part, own in _grouped(places // np.uint32(size))]


def _packed(frame: pl.DataFrame) -> bytes:
    message = io.BytesIO()
    # The newer layout of text would take the text of all rows along.
    frame.write_ipc_stream(message, compression="lz4", compat_level=pl.CompatLevel.oldest())
    return message.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathering:
    """Puts the rows of a part into the order of their places, with the swap values of these; writes them.

    ``columns`` are those of the file, ``ids`` the name of the new household id, if there is one, and ``own`` the
    variables of persons: inside a household they stand in the order of their values.
    """

    levels: Callable[[], tuple[pl.DataFrame, npt.NDArray[np.int64]]]
    columns: tuple[str, ...]
    ids: tuple[str, ...]
    folder: Path
    size: int
    own: tuple[str, ...] | None = None

    def __call__(self, part: int, messages: list[bytes]) -> tuple[Path, int]:
        path = self.folder / f"{'households' if self.own is None else 'persons'}-{part:06}.parquet"
        if not messages:
            return path, 0
        frame = pl.concat([pl.read_ipc_stream(io.BytesIO(message)) for message in messages])
        places = frame[_PLACE].to_numpy()
        values = np.zeros_like(places) if not self.own else encode(frame, [*self.own]).codes
        order = np.lexsort((values, places))
        frame, places = frame[order], places[order]
        if self.own is None and not np.array_equal(places, part * self.size + np.arange(places.size)):
            raise RuntimeError("a part does not have the records of its places, each once")
        levels, ends = self.levels()
        swap = levels[np.searchsorted(ends, places, side="right")]
        ids = [pl.Series(name, places + np.uint32(1)) for name in self.ids]
        released = {column.name: column for column in (*frame.get_columns(), *swap.get_columns(), *ids)}
        hidden = path.with_name(f"{uuid4()}.parquet")
        write_frame(pl.DataFrame([released[name] for name in self.columns]), hidden)
        os.replace(hidden, path)  # an attempt that runs beside this one writes the same
        return path, frame.height


def _folder(engine: Engine) -> Path:
    assert engine.scratch is not None, "the engine was not started"
    return engine.scratch


def _saved(array: npt.NDArray[np.generic], path: Path) -> Path:
    hidden = path.with_name(f"{uuid4()}.npy")
    np.save(hidden, array)
    os.replace(hidden, path)
    return path
