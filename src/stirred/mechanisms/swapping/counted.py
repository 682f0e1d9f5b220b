"""Swaps in which the numbers of records to select are drawn first. Importing this module loads numba.

In every stratum: draw how many records to select, in all or of each swap value (``Counting``); pick that many
uniformly, by one pass in which a record is selected with probability needed/left of its kind; then shuffle
or derange the swap codes of the selected. ``reference.swap_counted_reference`` is the plain Python twin,
equal bit for bit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping import addressing
from stirred.mechanisms.swapping.addressing import CHUNK_ROWS
from stirred.mechanisms.swapping.parallel import Progress, Scratch, Workers
from stirred.mechanisms.swapping.partition import (
    Codes,
    Items,
    Offsets,
    Positions,
    Values,
    partition_rows,
    require_column,
    sort_block,
    unsort_block,
)
from stirred.mechanisms.swapping.tally import SwapTally
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Entropy, WordReader, Words
from stirred.randomness.kernel import derange_slices, shuffle_slices

Counts = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.uint32]

_WORD = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_TWO_TO_32 = np.uint64(1 << 32)


class Counting(Protocol):
    """How many records a swap selects."""

    @property
    def by_value(self) -> bool:
        """Say whether the numbers are those of each swap value, or of the stratum as a whole."""
        ...

    @property
    def derange(self) -> bool:
        """Say whether the selected must all move."""
        ...

    def draw(self, values: Values, counts: Counts, words: WordReader) -> Counts:
        """Return how many to select of each swap value of a stratum (or of all together), given how many there are.

        ``values`` are the swap codes, in order of first appearance; empty if not ``by_value``.
        """
        ...


def swap_counted_in_place(
    stratum: Codes,
    swap: Values,
    *,
    strata: int,
    values: int,
    counting: Counting,
    entropy: Entropy,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SwapTally:
    """Swap the column ``swap`` within strata, in place, and return what was done.

    Codes of ``stratum`` lie below ``strata`` and those of ``swap`` below ``values``. As with ``swap_in_place`` the
    result does not depend on the threads, and the rows stay in input order.
    """
    require_columns(stratum, swap)
    workers = Workers(threads=threads, progress=progress)
    shift = addressing.block_shift(strata, rows=stratum.size)
    everyone = np.arange(CHUNK_ROWS, dtype=np.uint16)

    def mark(chunk: int) -> Positions:
        return everyone[: stratum.size - chunk * CHUNK_ROWS]

    rows = partition_rows(stratum, groups=strata, shift=shift, mark=mark, workers=workers)
    listed, inner = rows.gather(swap, workers=workers)
    selected = np.zeros(rows.blocks, dtype=np.int64)
    streams = [entropy.keystream(p) for p in (addressing.COUNT, addressing.CHOOSE, addressing.ARRANGE)]
    scratch = Scratch()

    def work(block: int) -> None:
        entries = slice(*rows.bounds[block : block + 2])
        items, offsets = sort_block(listed[entries], inner[entries], codes=min(1 << shift, strata - (block << shift)))
        kinds, have, starts, codes = _group(items, offsets, values=values, by_value=counting.by_value)
        need = _draw_counts(counting, codes, have, starts, streams[0].reader(block))
        selected[block] = need.sum()
        chosen = _choose(kinds, have, need, streams[1].reader(block, buffer=scratch.words))
        _arrange(items, offsets, chosen, streams[2].reader(block, buffer=scratch.words), derange=counting.derange)
        unsort_block(items, offsets, inner[entries], listed=listed[entries])

    workers.run("select and exchange", work, rows.largest_first())
    rows.give_back(listed, swap, workers=workers)
    return SwapTally(records=stratum.size, strata=strata, selected=int(selected.sum()))


def require_columns(stratum: Codes, swap: Values) -> None:
    """Refuse columns that cannot be swapped in place."""
    require_column(stratum, name="stratum")
    if swap.dtype != np.uint32 or swap.shape != stratum.shape or not swap.flags.writeable:
        raise TypeError("swap: pass one writable column of uint32 codes beside the strata; copy if need be")


def _draw_counts(counting: Counting, codes: Values, have: Counts, starts: Offsets, words: WordReader) -> Counts:
    """Draw the numbers to select in each stratum of a block, in order."""
    need: Counts = np.zeros_like(have)
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if end > begin:
            need[begin:end] = counting.draw(codes[begin:end], have[begin:end], words)
    return need


def _group(items: Items, offsets: Offsets, *, values: int, by_value: bool) -> tuple[Kinds, Counts, Offsets, Values]:
    """Return the kind of every record of a block, the size of each kind, where those of a stratum begin, their codes.

    A kind is a swap value of a stratum, or a whole stratum.
    """
    if by_value:
        return group_values(items, offsets, values=values)
    kinds: Kinds = np.empty(items.size, dtype=np.uint32)
    starts = np.zeros(offsets.size, dtype=np.int64)
    _number_strata(offsets, kinds, starts)
    sizes = np.diff(offsets)
    return kinds, sizes[sizes > 0], starts, np.empty(0, dtype=np.uint32)


def group_values(items: Items, offsets: Offsets, *, values: int) -> tuple[Kinds, Counts, Offsets, Values]:
    """Return the same with a kind for each swap value of a stratum, in order of first appearance."""
    kinds: Kinds = np.empty(items.size, dtype=np.uint32)
    starts = np.zeros(offsets.size, dtype=np.int64)
    room = min(items.size, values * (offsets.size - 1))
    codes, have = np.empty(room, dtype=np.uint32), np.zeros(room, dtype=np.int64)
    seen = np.full(values, -1, dtype=np.int64)
    found = _number_values(items, offsets, seen, kinds, have, starts, codes)
    return kinds, have[:found], starts, codes[:found]


def _choose(kinds: Kinds, have: Counts, need: Counts, reader: WordReader) -> npt.NDArray[np.bool_]:
    """Return which records are selected: ``need`` of the ``have`` of each kind, every choice equally likely."""
    chosen = np.zeros(kinds.size, dtype=np.bool_)
    left, wanted = have.copy(), need.copy()
    state = np.zeros(1, dtype=np.int64)
    while not _choose_kinds(kinds, left, wanted, reader.words, reader.cursor, state, chosen):
        reader.refill(kinds.size)
    return chosen


def _arrange(
    items: Items, offsets: Offsets, chosen: npt.NDArray[np.bool_], reader: WordReader, *, derange: bool
) -> None:
    """Shuffle or derange the swap codes of the chosen records inside each stratum."""
    places = np.flatnonzero(chosen)
    slices = np.searchsorted(places, offsets).astype(np.int64)
    moving = items[places]
    if derange:
        _renumber(moving, slices)
        derange_slices(moving, slices, reader)
        items[places] = moving
    else:
        codes = moving.astype(np.uint32)
        shuffle_slices(codes, slices, reader)
        items[places] = codes


@compiled
def _number_strata(offsets: Offsets, kinds: Kinds, starts: Offsets) -> None:
    found = 0
    for part in range(offsets.size - 1):
        starts[part] = found
        for record in range(offsets[part], offsets[part + 1]):
            kinds[record] = found
        found += offsets[part + 1] > offsets[part]
    starts[offsets.size - 1] = found


@compiled
def _number_values(
    items: Items, offsets: Offsets, seen: Offsets, kinds: Kinds, have: Counts, starts: Offsets, codes: Values
) -> int:
    """Number the swap values of each stratum in order of first appearance; ``seen`` holds the last number of each."""
    found = 0
    for part in range(offsets.size - 1):
        starts[part] = found
        for record in range(offsets[part], offsets[part + 1]):
            code = items[record] & _LOW
            if seen[code] < starts[part]:
                seen[code] = found
                codes[found] = code
                found += 1
            kinds[record] = seen[code]
            have[seen[code]] += 1
    starts[offsets.size - 1] = found
    return found


@compiled
def _choose_kinds(
    kinds: Kinds,
    left: Counts,
    wanted: Counts,
    words: Words,
    cursor: Offsets,
    state: Offsets,
    chosen: npt.NDArray[np.bool_],
) -> bool:
    current = cursor[0]
    for record in range(state[0], kinds.size):
        kind = kinds[record]
        remaining = np.uint64(left[kind])
        # Selected if a uniform integer below the number left is below the number wanted; no word is
        # spent where nothing or everything is wanted.
        if wanted[kind] > 0 and wanted[kind] < left[kind]:
            hit = np.int64(-1)
            while hit < 0:
                if current == words.size:
                    cursor[0], state[0] = current, record
                    return False
                product = np.uint64(words[current]) * remaining
                current += 1
                low = product & _LOW
                if low >= remaining or low >= _TWO_TO_32 % remaining:
                    hit = np.int64(product >> _WORD)
            taken = hit < wanted[kind]
        else:
            taken = wanted[kind] > 0
        chosen[record] = taken
        wanted[kind] -= taken
        left[kind] -= 1
    cursor[0], state[0] = current, kinds.size
    return True


@compiled
def _renumber(items: Items, slices: Offsets) -> None:
    """Write into the upper halves the place of each item in its slice, as a derangement wants it."""
    for part in range(slices.size - 1):
        for place in range(slices[part], slices[part + 1]):
            items[place] = np.uint64(place - slices[part]) << _WORD | (items[place] & _LOW)
