"""The bulk work of a swap on a cluster, whose machines read the files for themselves.

What is decided stays here: plan, released order, verification. The machines code match and swap values, exchange the
swap codes of whole blocks of strata (``engines.codes``), and bring whole records and persons into the released order
(``engines.placed``). Words are addressed by the row of the file and by the block (``kernels.addressing``), so a file
leaves a cluster as it leaves this machine, record by record, whatever the number of machines, of parts and of attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, count, encode
from stirred.data.columns import Columns, RowRange, checksum_of, row_ranges, schema_of
from stirred.data.frames import write_frame
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.engines.codes import exchange_codes
from stirred.engines.placed import PlacedTable, place_rows, same_rows
from stirred.engines.protocol import ClusterEngine, bad_engine
from stirred.mechanisms.protocol import PERSONS, RECORDS
from stirred.mechanisms.records.files import PART, Rows, SwappedFile
from stirred.mechanisms.records.kernels.addressing import Excerpt
from stirred.mechanisms.records.law import Kernel
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.strata import Strata
from stirred.randomness.entropy import Entropy

PIECE_ROWS: Final = 1 << 19  # rows that are read at once
PART_ROWS: Final = PART // 8  # households in one part of the released file
EXCHANGED_ROWS: Final = 1 << 22  # records in one part of the exchange, where blocks allow it
_BYTES_A_ROW: Final = 96  # of a record in the exchange: messages, columns, the order of rows and the kernel's lists


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
    tables: dict[str, tuple[Columns, list[str]]] = {
        "households": (data.households, [*dict.fromkeys([*plan.hold, *plan.exact_swap])])
    }
    if data.persons is not None:
        tables["persons"] = (data.persons, _of_persons(data))
    for role, (table, names) in tables.items():
        pieces, types = _pieces(cluster, role), schema_of(table, names)
        columns = (table[name] for name in names)
        same = same_rows(cluster, pieces, columns, types=types, summed=checksum_of)
        if not same or sum(piece.rows for piece in pieces) != table.height:
            raise bad_engine(
                f"the cluster reads other records than were planned from the file of {role}",
                where=f"[data] {role}",
                remedy="if the file was changed, plan again; if it holds whole numbers with a decimal point, write "
                "them as whole numbers first; or run it here: --engine local",
            )


def _pieces(cluster: ClusterEngine, role: str) -> list[RowRange]:
    return [*row_ranges(cluster.sources[role], most=PIECE_ROWS)]


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


# ---- the released records ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class SwappedParts(SwappedFile):
    """The swapped file, whose released tables the cluster has written in parts, with the note of the release."""

    # None where no household has a person: parts of both tables cover the same households.
    parts: Mapping[str, Sequence[Path | None]]

    def households(self) -> Iterator[pl.DataFrame]:
        return _read(self.parts[RECORDS])

    def persons(self) -> Iterator[pl.DataFrame]:
        return _read(self.parts[PERSONS])


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
    swaps, released = plan.exact_swap, plan.releases["households"]
    ids = [] if data.persons is None else [str(data.hid)]
    table = partial(
        PlacedTable,
        levels=cluster.share((swap.levels, np.cumsum(count(swapped, groups=swap.count)))),
        size=PART_ROWS,
        ids=ids,
        note=plan.specification.notes,
        numbered=encode,
        summed=checksum_of,
        write=write_frame,
    )
    held, crossed = [name for name in released if name not in swaps], [*plan.match, *swaps]
    read = held or [swaps[0]]
    homes = table(
        name="households",
        types=schema_of(data.households, [*dict.fromkeys([*read, *crossed])]),
        read=read,
        columns=[*ids, *released],
        held=held,
        crossed=crossed,
        many_at_a_place=False,
    )
    parts: dict[str, Sequence[Path | None]] = {}
    agree: dict[str, Callable[[], bool]] = {}
    place = partial(place_rows, cluster, parts=-(-order.size // PART_ROWS))
    parts[RECORDS], agree[RECORDS] = place(homes, _pieces(cluster, "households"), places)
    if data.persons is not None:
        own, read = data.person_variables, _of_persons(data)
        people = table(
            name="persons",
            types=schema_of(data.persons, read),
            read=read,
            columns=[*ids, *swaps, *own],
            held=own,
            crossed=[],
            many_at_a_place=True,
        )
        places = places[household_rows(data)]
        parts[PERSONS], agree[PERSONS] = place(people, _pieces(cluster, "persons"), places)
    files = {name: [path for path in paths if path] for name, paths in parts.items()}
    return SwappedParts(data=data, swap=swap, swapped=swapped, order=order, parts=parts, files=files, agree=agree)
