"""Lines 11-14 of Algorithm 1: selecting again where exactly one record was selected.

Importing this module loads numba.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.kernels.addressing import rows_of
from stirred.mechanisms.swapping.kernels.parallel import Scratch, Workers
from stirred.mechanisms.swapping.kernels.partition import (
    Codes,
    Flags,
    Items,
    Offsets,
    Positions,
    Values,
    partition_rows,
    sort_block,
)
from stirred.mechanisms.swapping.rates import Rates, RecordRates
from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Entropy, WordReader, Words
from stirred.randomness.kernel import derange_slices

# How a compiled redraw ended.
_DONE: Final = 0
_TIED: Final = 1
_OUT_OF_WORDS: Final = 2

_WORD = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)


class Redraw:
    """Selects all records of the flagged strata anew, until not exactly one is, and deranges them.

    At one rate the chance of exactly one is at most 1/2 for n >= 2 (n p (1-p)^(n-1) is largest at p = 1/n,
    where it is (1-1/n)^(n-1)), so at most two draws are expected; where rates differ, plans bound it. Flagged
    strata of one record have nothing to swap with and stay as they are (line 3).
    """

    def __init__(self, stratum: Codes, swap: Values, flags: Flags, *, rates: Rates, entropy: Entropy) -> None:
        self._stratum = stratum
        self._swap = swap
        self._flags = flags
        self._rates = rates
        self._digits, self._ties = rates.thresholds()
        self._selections = entropy.keystream(addressing.REDRAW)
        self._derangements = entropy.keystream(addressing.DERANGE_REDRAWN)
        self._scratch = Scratch()

    def run(self, shift: int, *, workers: Workers) -> int:
        """Swap within the flagged strata; return how many of their records were selected."""
        members = partition_rows(self._stratum, groups=self._flags.size, shift=shift, mark=self._mark, workers=workers)
        rows, inner = members.gather(None, workers=workers)
        selected = np.zeros(members.blocks, dtype=np.int64)

        def work(block: int) -> None:
            begin, end = members.bounds[block : block + 2]
            strata = min(1 << shift, self._flags.size - (block << shift))
            records, offsets = sort_block(rows[begin:end], inner[begin:end], codes=strata)
            chosen = self._select(block, records, offsets, first=block << shift)
            selected[block] = self._derange(block, records, offsets, chosen)

        workers.run("redraw", work, members.largest_first())
        return int(selected.sum())

    def _mark(self, chunk: int) -> Positions:
        room = self._scratch.positions
        return room[: _members(self._stratum[rows_of(chunk)], self._flags, room)].copy()

    def _select(self, block: int, records: Items, offsets: Offsets, *, first: int) -> Flags:
        """Return which records of a block are selected, after as many draws as each stratum needs."""
        chosen = np.zeros(records.size, dtype=np.bool_)
        kinds, by_record = self._kinds(records, first, offsets.size - 1), isinstance(self._rates, RecordRates)
        reader = self._selections.reader(block, buffer=self._scratch.words)
        state = np.zeros(3, dtype=np.int64)  # stratum, its records decided, its records selected
        while True:
            end = _redraw(
                offsets, kinds, by_record, self._digits, self._ties, reader.words, reader.cursor, state, chosen
            )
            if end == _DONE:
                return chosen
            if end == _OUT_OF_WORDS:
                reader.refill(2 * records.size)
            else:
                self._settle_tie(records, offsets, state, chosen, reader, first=first)

    def _settle_tie(
        self, records: Items, offsets: Offsets, state: Offsets, chosen: Flags, reader: WordReader, *, first: int
    ) -> None:
        """Decide the record whose word, the last one read, agrees with the rate so far: read on."""
        stratum, decided, _ = state.tolist()
        word, place = int(reader.words[reader.cursor[0] - 1]), offsets[stratum] + decided
        rate = self._rates.of_record(int(records[place] & _LOW), first + stratum)
        hit = bernoulli(rate, chain([word], reader))
        chosen[place] = hit
        state += (0, 1, hit)

    def _derange(self, block: int, records: Items, offsets: Offsets, chosen: Flags) -> int:
        """Move the swap codes of the chosen records of a block (lines 15-17); return their number."""
        selected = int(np.count_nonzero(chosen))
        rows = np.empty(selected, dtype=np.uint32)
        items = np.empty(selected, dtype=np.uint64)
        slices = np.zeros_like(offsets)
        _lift(records, offsets, chosen, self._swap, rows, items, slices)
        derange_slices(items, slices, self._derangements.reader(block, buffer=self._scratch.words))
        _put(items, rows, self._swap)
        return selected

    def _kinds(self, records: Items, first: int, strata: int) -> npt.NDArray[np.uint32]:
        """Return which rate each stratum of a block has or, with rates by record, each of its records."""
        if isinstance(self._rates, RecordRates):
            return self._rates.kinds[records & _LOW].astype(np.uint32)
        if self._rates.index is None:
            return np.zeros(strata, dtype=np.uint32)
        return self._rates.index[first : first + strata]


@compiled
def _members(codes: Codes, flags: Flags, room: Positions) -> int:
    """Write the positions of the rows whose stratum is flagged, and return how many there are."""
    found = 0
    for row in range(codes.size):
        room[found] = row
        found += flags[codes[row]]
    return found


@compiled
def _redraw(
    offsets: Offsets,
    kinds: npt.NDArray[np.uint32],
    by_record: bool,
    digits: Items,
    ties: Items,
    words: Words,
    cursor: Offsets,
    state: Offsets,
    chosen: Flags,
) -> int:
    """Select until done, tied or out of words; ``state`` and ``cursor`` say where to go on."""
    current = cursor[0]
    stratum, decided, selected = state[0], state[1], state[2]
    end = _DONE
    while end == _DONE and stratum < offsets.size - 1:
        begin = offsets[stratum]
        records = offsets[stratum + 1] - begin
        if records < 2:
            stratum += 1
            continue
        while decided < records:
            if current == words.size:
                end = _OUT_OF_WORDS
                break
            word = np.uint64(words[current])
            current += 1
            kind = kinds[begin + decided] if by_record else kinds[stratum]
            if word == ties[kind]:
                end = _TIED
                break
            hit = word < digits[kind]
            chosen[begin + decided] = hit
            selected += hit
            decided += 1
        if end == _DONE:
            # Lines 9-14: exactly one selected means every record of the stratum again.
            if selected != 1:
                stratum += 1
            decided = 0
            selected = 0
    cursor[0] = current
    state[0], state[1], state[2] = stratum, decided, selected
    return end


@compiled
def _lift(
    records: Items,
    offsets: Offsets,
    chosen: Flags,
    swap: Values,
    rows: Values,
    items: Items,
    slices: Offsets,
) -> None:
    """List the chosen records' rows, and their swap codes with their places, stratum by stratum."""
    lifted = 0
    for stratum in range(offsets.size - 1):
        slices[stratum] = lifted
        for record in range(offsets[stratum], offsets[stratum + 1]):
            if chosen[record]:
                row = records[record] & _LOW
                rows[lifted] = row
                items[lifted] = np.uint64(lifted - slices[stratum]) << _WORD | np.uint64(swap[row])
                lifted += 1
    slices[offsets.size - 1] = lifted


@compiled
def _put(items: Items, rows: Values, swap: Values) -> None:
    """Write the swap codes carried by the items into their new rows."""
    for place in range(rows.size):
        swap[rows[place]] = np.uint32(items[place])
