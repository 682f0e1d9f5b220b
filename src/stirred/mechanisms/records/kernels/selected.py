"""The Permutation Swapping Algorithm (PSA) on whole columns. Importing this module loads numba.

Algorithm 1 of "A Refreshment Stirred, Not Shaken", Section 3.3:

- lines 6-8, every record is selected independently with the exact rate of its stratum, or its own (R8):
  ``Selector``;
- lines 11-14, where exactly one record was selected, the whole stratum is drawn again: ``Redraw``;
- lines 15-17, the swap codes of the selected move along a uniform derangement: here.

Nothing is sorted by comparison and no permutation of all rows is built. The swap codes of selected
records are listed by block of strata in row order (``partition``), deranged there, and read back in
row order. ``addressing`` says which random words decide what; ``swap_reference`` (in the tests) is the plain
Python twin, equal bit for bit.

Time and memory use depend on which records are selected, so a swap belongs on a machine that
outsiders cannot observe.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.addressing import CHUNK_ROWS, Excerpt, rows_of
from stirred.mechanisms.records.kernels.partition import (
    Codes,
    Flags,
    Items,
    Offsets,
    Partition,
    Positions,
    Progress,
    Scratch,
    Values,
    Workers,
    derange_groups,
    partition_rows,
    require_columns,
)
from stirred.mechanisms.records.kernels.rates import Rates, thresholds
from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Entropy, WordReader, Words
from stirred.randomness.kernel import shuffle_slices

# Of a chunk in which all rows have the first rate.
_FIRST: Final = np.zeros(CHUNK_ROWS, dtype=np.uint16)


class Selector:
    """Selects every record independently, with exactly its rate."""

    def __init__(self, stratum: Codes, *, rates: Rates, entropy: Entropy, excerpt: Excerpt) -> None:
        self._stratum = stratum
        self._rates = rates
        self._excerpt = excerpt
        self._digits, self._ties = thresholds(rates.values)
        self._words = entropy.keystream(addressing.SELECT)
        self._more = entropy.keystream(addressing.SELECT_TIES)
        self._scratch = Scratch()

    def mark(self, chunk: int) -> Positions:
        """Return the positions of the selected rows of a chunk."""
        codes = self._stratum[rows_of(chunk)]
        words, room, index = self._scratch.words[: codes.size], self._scratch.positions, self._rates.index
        kinds = _FIRST[: codes.size] if index is None else index[rows_of(chunk) if self._rates.by_record else codes]
        self._excerpt.fill(self._words, chunk, words)
        state = np.zeros(2, dtype=np.int64)  # rows decided, rows selected
        while not _select(words, kinds, self._digits, self._ties, room, state):
            tied, selected = state.tolist()
            # One word in 2**32 agrees with the rate so far; its row reads on in its own stream.
            row = chunk * CHUNK_ROWS + tied
            further = chain([int(words[tied])], self._more.reader(self._excerpt.number(row)))
            room[selected] = tied
            state += (1, bernoulli(self._rates.of_record(row, int(codes[tied])), further))
        return room[: state[1]].copy()


@compiled
def _select(words: Words, kinds: Codes, digits: Items, ties: Items, room: Positions, state: Offsets) -> bool:
    selected = state[1]
    for row in range(state[0], words.size):
        word = np.uint64(words[row])
        kind = kinds[row]
        if word == ties[kind]:
            state[0], state[1] = row, selected
            return False
        # Written always and kept only if selected: a branch would be mispredicted at every success.
        room[selected] = row
        selected += word < digits[kind]
    state[0], state[1] = words.size, selected
    return True


def swap_in_place(
    stratum: Codes,
    swap: Values,
    *,
    rates: Rates,
    entropy: Entropy,
    threads: int | None = None,
    progress: Progress | None = None,
    excerpt: Excerpt | None = None,
    derange: bool = True,
) -> int:
    """Swap the column ``swap`` within strata by the PSA, in place, and return how many records were selected.

    Without ``derange`` it is the shuffle swap (R7): the selected are shuffled, and nothing is drawn again.

    ``stratum`` holds the match value of every record as a code from 0 to ``rates.strata - 1``; ``swap``
    holds its swapping variables as one code. The result is a function of the columns, the rates and
    the entropy, never of ``threads``. Calling again with the same entropy repeats the decisions, so
    give every swap its own child. If the call is interrupted the column is neither old nor new and
    must be discarded; wrong input is refused before anything is changed.

    What ``progress`` gets depends on the selection and is as internal as the tally.

    The rows stay in input order: publish them only after ``release_order``, or as a table.

    >>> from fractions import Fraction
    >>> stratum = np.repeat(np.arange(3, dtype=np.uint32), 4)
    >>> swap = np.arange(12, dtype=np.uint32)
    >>> rates = Rates(values=(Fraction(1), Fraction(0)), index=np.array([0, 1, 0], dtype=np.uint32), strata=3)
    >>> swap_in_place(stratum, swap, rates=rates, entropy=Entropy.from_os())
    8
    >>> swap[4:8].tolist(), sorted(swap[:4].tolist()), bool((swap[:4] == np.arange(4)).any())
    ([4, 5, 6, 7], [0, 1, 2, 3], False)
    """
    require_columns(stratum, swap)
    if rates.by_record and rates.index is not None and rates.index.size != stratum.size:
        raise ValueError(f"rates: {rates.index.size} kinds beside {stratum.size} rows. Give every record one")
    workers = Workers(threads=threads, progress=progress)
    excerpt = excerpt or Excerpt(of=stratum.size)
    shift = excerpt.shift(rates.strata)
    mark = Selector(stratum, rates=rates, entropy=entropy, excerpt=excerpt).mark
    selection = partition_rows(stratum, groups=rates.strata, shift=shift, mark=mark, workers=workers)
    alone = _exchange(selection, swap, strata=rates.strata, derange=derange, entropy=entropy, workers=workers)
    if not derange:
        return selection.size
    selected = selection.size - int(np.count_nonzero(alone))
    del selection
    if progress is not None:
        progress("redraw", 0, 1)  # said whether or not there is anything to select again: it depends on the selection
    if alone.any():
        selected += Redraw(stratum, swap, alone, rates=rates, entropy=entropy).run(shift, workers=workers)
    return selected


def _exchange(
    selection: Partition, swap: Values, *, strata: int, derange: bool, entropy: Entropy, workers: Workers
) -> Flags:
    """Derange or shuffle the swap codes of the selected of every stratum; return the strata with exactly one.

    Those strata stay as they are here; in a derangement they are left to ``Redraw``, which reconsiders all their
    records (lines 11-13).
    """
    alone = np.zeros(strata, dtype=np.bool_)
    keystream = entropy.keystream(addressing.DERANGE if derange else addressing.SHUFFLE_SELECTED)
    arrange = derange_groups if derange else shuffle_slices
    listed, inner = selection.gather(swap, workers=workers)
    scratch = Scratch()

    def work(block: int, own: Values, offsets: Offsets) -> None:
        flags = alone[block << selection.shift : (block + 1) << selection.shift]
        np.equal(np.diff(offsets), 1, out=flags)
        arrange(own, offsets, keystream.reader(block, buffer=scratch.words))

    selection.by_code("derange" if derange else "shuffle", work, listed, inner, workers=workers)
    selection.give_back(listed, swap, workers=workers)
    return alone


# How a compiled selection ended.
_DONE: Final = 0
_TIED: Final = 1
_OUT_OF_WORDS: Final = 2


class Redraw:
    """Selects all records of the flagged strata again, until not exactly one is, and deranges them.

    At one rate the chance of exactly one is at most 1/2 for n >= 2 (n p (1-p)^(n-1) is largest at p = 1/n,
    where it is (1-1/n)^(n-1)), so at most two draws are expected; where rates differ, plans bound it. Flagged
    strata of one record have nothing to swap with and stay as they are (line 3).
    """

    def __init__(self, stratum: Codes, swap: Values, flags: Flags, *, rates: Rates, entropy: Entropy) -> None:
        self._stratum = stratum
        self._swap = swap
        self._flags = flags
        self._rates = rates
        self._digits, self._ties = thresholds(rates.values)
        self._selections = entropy.keystream(addressing.SELECT_AGAIN)
        self._derangements = entropy.keystream(addressing.DERANGE_AGAIN)
        self._scratch = Scratch()

    def run(self, shift: int, *, workers: Workers) -> int:
        """Swap within the flagged strata; return how many of their records were selected."""
        members = partition_rows(self._stratum, groups=self._flags.size, shift=shift, mark=self._mark, workers=workers)
        rows, inner = members.gather(None, workers=workers)
        selected = np.zeros(members.blocks, dtype=np.int64)

        def work(block: int, records: Values, offsets: Offsets) -> None:
            chosen = self._select(block, records, offsets, first=block << shift)
            selected[block] = self._derange(block, records, offsets, chosen)

        members.by_code("redraw", work, rows, inner, workers=workers, back=False)
        return int(selected.sum())

    def _mark(self, chunk: int) -> Positions:
        return np.flatnonzero(self._flags[self._stratum[rows_of(chunk)]]).astype(np.uint16)

    def _select(self, block: int, records: Values, offsets: Offsets, *, first: int) -> Flags:
        """Return which records of a block are selected, after as many draws as each stratum needs."""
        chosen = np.zeros(records.size, dtype=np.bool_)
        kinds, by_record = self._kinds(records, first, offsets.size - 1), self._rates.by_record
        reader = self._selections.reader(block, buffer=self._scratch.words)
        state = np.zeros(3, dtype=np.int64)  # stratum, its records decided, its records selected
        while True:
            end = _select_again(
                offsets, kinds, by_record, self._digits, self._ties, reader.words, reader.cursor, state, chosen
            )
            if end == _DONE:
                return chosen
            if end == _OUT_OF_WORDS:
                reader.refill(2 * records.size)
            else:
                self._settle_tie(records, offsets, state, chosen, reader, first=first)

    def _settle_tie(
        self, records: Values, offsets: Offsets, state: Offsets, chosen: Flags, reader: WordReader, *, first: int
    ) -> None:
        """Decide the record whose word, the last one read, agrees with the rate so far: read on."""
        stratum, decided, _ = state.tolist()
        word, place = int(reader.words[reader.cursor[0] - 1]), offsets[stratum] + decided
        rate = self._rates.of_record(int(records[place]), first + stratum)
        hit = bernoulli(rate, chain([word], reader))
        chosen[place] = hit
        state += (0, 1, hit)

    def _derange(self, block: int, records: Values, offsets: Offsets, chosen: Flags) -> int:
        """Move the swap codes of the chosen records of a block (lines 15-17); return their number."""
        rows = records[chosen]
        values, slices = self._swap[rows], np.append(0, np.cumsum(chosen))[offsets]
        derange_groups(values, slices, self._derangements.reader(block, buffer=self._scratch.words))
        self._swap[rows] = values
        return rows.size

    def _kinds(self, records: Values, first: int, strata: int) -> npt.NDArray[np.uint32]:
        """Return which rate each stratum of a block has or, with rates by record, each of its records."""
        if self._rates.index is None:
            return np.zeros(strata, dtype=np.uint32)
        own = records if self._rates.by_record else slice(first, first + strata)
        return self._rates.index[own].astype(np.uint32, copy=False)


@compiled
def _select_again(
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
