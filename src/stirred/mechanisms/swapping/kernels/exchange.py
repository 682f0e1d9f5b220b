"""Picking given numbers of records of each cell, and exchanging their swap codes. Importing this module loads numba.

Every choice is equally likely, yet most records are looked at once. First every record becomes a candidate
independently, with a chance that leaves hardly any cell with too few. Then as many candidates as needed are chosen, in
one pass in which a candidate is chosen with probability needed/left of its cell. Given their number, the candidates of
a cell are a uniform subset of it, and so are the chosen, whatever the chance was. A cell with too few candidates takes
all its records as candidates; whether it does depends on their number alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.kernels.addressing import rows_of
from stirred.mechanisms.swapping.kernels.cells import Cells
from stirred.mechanisms.swapping.kernels.parallel import Scratch, Workers
from stirred.mechanisms.swapping.kernels.partition import (
    Codes,
    Items,
    Offsets,
    Positions,
    Values,
    group_block,
    partition_rows,
    ungroup_block,
)
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Entropy, WordReader, Words
from stirred.randomness.kernel import derange_slices, shuffle_slices

Limits = npt.NDArray[np.uint16]

# Standard deviations, and records, by which more candidates are expected than needed: a cell is short with a
# probability of at most 1e-5, mostly far less.
_SPREADS: Final = 5
_SPARE: Final = 8
_EVERY: Final = 0xFFFF

_WORD = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint32(0xFFFF)
_TWO_TO_32 = np.uint64(1 << 32)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


def candidate_limits(have: Values | Offsets, need: Values | Offsets) -> Limits:
    """Return for each cell the largest 16-bit number that makes a record a candidate.

    A function of the numbers in the cell alone: any limit would do, a low one is fast.

    >>> candidate_limits(np.array([1000, 1000, 3], dtype=np.uint32), np.array([0, 100, 2], dtype=np.uint32)).tolist()
    [0, 10354, 65535]
    """
    wanted = need.astype(np.uint64)
    expected = wanted + np.uint64(_SPREADS) * np.sqrt(wanted).astype(np.uint64) + np.uint64(_SPARE)
    limits = (expected << np.uint64(16)) // have
    return np.where(need > 0, np.minimum(limits, _EVERY), 0).astype(np.uint16)


class Exchange:
    """Choosing ``need`` records of each cell and exchanging their swap codes."""

    def __init__(self, cells: Cells, need: Values, *, shift: int, derange: bool, entropy: Entropy) -> None:
        self._cells, self._need, self._shift, self._derange = cells, need, shift, derange
        occupied = np.flatnonzero(cells.have)
        self._limits: Limits = np.zeros(need.size, dtype=np.uint16)
        self._limits[occupied] = candidate_limits(cells.have[occupied], need[occupied])
        self._highest = self._highest_limits()
        self._streams = [entropy.keystream(p) for p in (addressing.CANDIDATES, addressing.CHOOSE, addressing.ARRANGE)]
        self._scratch = Scratch()

    def run(self, swap: Values, *, workers: Workers) -> bool:
        """Exchange, or return False, with nothing done, if some cells are short of candidates."""
        cells, shift = self._cells, self._shift
        strata = cells.starts.size - 1
        rows = partition_rows(cells.stratum, groups=strata, shift=shift, mark=self._mark, workers=workers)
        listed, inner = rows.gather(swap if cells.value is None else cells.value, workers=workers)
        candidates = np.zeros_like(self._need)

        def work(block: int) -> None:
            entries = slice(*rows.bounds[block : block + 2])
            codes = min(1 << shift, strata - (block << shift))
            offsets = group_block(listed[entries], inner[entries], codes=codes)
            self._exchange(block, listed[entries], offsets, candidates)
            ungroup_block(listed[entries], inner[entries], offsets)

        workers.run("exchange", work, rows.largest_first())
        short = candidates < self._need
        if short.any():
            self._limits[short] = _EVERY
            self._highest = self._highest_limits()
            return False
        rows.give_back(listed, swap, workers=workers)
        return True

    def _highest_limits(self) -> Limits:
        """Return the highest limit in each stratum: most rows are sorted out by it, without a look at their cell."""
        highest: Limits = np.zeros(self._cells.starts.size, dtype=np.uint16)
        occupied = np.flatnonzero(np.diff(self._cells.starts))
        highest[occupied] = np.maximum.reduceat(self._limits, self._cells.starts[occupied])
        return highest

    def _mark(self, chunk: int) -> Positions:
        """Return the positions of the candidates of a chunk."""
        cells, room = self._cells, self._scratch.positions
        stratum = cells.stratum[rows_of(chunk)]
        words = self._scratch.words[: (stratum.size + 1) // 2]
        self._streams[0].fill(chunk, words)
        found = _mark_strata(words, stratum, self._highest, room)
        if cells.value is not None:
            value = cells.value[rows_of(chunk)]
            found = _mark_cells(words, stratum, value, cells.starts, cells.place, self._limits, room[:found])
        return room[:found].copy()

    def _exchange(self, block: int, listed: Values, offsets: Offsets, candidates: Values) -> None:
        """Choose among the candidates of a block and exchange the swap codes of the chosen."""
        cells = self._cells
        starts = cells.starts[block << self._shift :][: offsets.size]
        own = slice(starts[0], starts[-1])
        kinds = np.empty_like(listed)
        if cells.value is None:
            _number_strata(offsets, kinds, candidates[own])
        else:
            _number(listed, offsets, starts, cells.place, kinds, candidates[own])
        choose, arrange = (stream.reader(block, buffer=self._scratch.words) for stream in self._streams[1:])
        chosen = _choose(kinds, candidates[own], self._need[own], choose)
        if cells.codes is not None:
            listed[:] = cells.codes[own][kinds]
        _arrange(listed, offsets, chosen, arrange, derange=self._derange)


def _choose(kinds: Values, have: Values, need: Values, reader: WordReader) -> Values:
    """Return the places of the chosen: ``need`` of the ``have`` of each kind, every choice equally likely."""
    left = np.stack([have, need], axis=1)  # side by side: a look at one fetches the other
    places = np.empty(kinds.size + 1, dtype=np.uint32)
    state = np.zeros(2, dtype=np.int64)  # records decided, records chosen
    while not _choose_kinds(kinds, left, reader.words, reader.cursor, state, places):
        reader.refill(kinds.size)
    return places[: state[1]]


def _arrange(listed: Values, offsets: Offsets, chosen: Values, reader: WordReader, *, derange: bool) -> None:
    """Shuffle or derange the swap codes of the chosen records inside each stratum."""
    slices = np.searchsorted(chosen, offsets.astype(np.uint32))
    if derange:
        items = np.empty(chosen.size, dtype=np.uint64)
        _lift_with_places(listed, chosen, slices, items)
        derange_slices(items, slices, reader)
        _put_back(items, chosen, listed)
    else:
        codes = np.empty_like(chosen)
        _lift(listed, chosen, codes)
        shuffle_slices(codes, slices, reader)
        _put_back(codes, chosen, listed)


@compiled
def _mark_strata(words: Words, stratum: Codes, limits: Limits, room: Positions) -> int:
    found = 0
    for row in range(stratum.size):
        room[found] = row
        found += (words[row >> 1] >> np.uint32((row & 1) << 4)) & _HALF <= limits[stratum[row]]
    return found


@compiled
def _mark_cells(
    words: Words,
    stratum: Codes,
    value: Values,
    starts: Offsets,
    place: Values,
    limits: Limits,
    marked: Positions,
) -> int:
    """Keep those of the marked rows that their own cell lets in."""
    found = 0
    for number in range(marked.size):
        row = marked[number]
        limit = limits[starts[stratum[row]] + place[value[row]]]
        marked[found] = row
        found += (words[row >> 1] >> np.uint32((row & 1) << 4)) & _HALF <= limit
    return found


@compiled
def _number(
    listed: Values, offsets: Offsets, starts: Offsets, place: Values, kinds: Values, candidates: Values
) -> None:
    """Write the cell of every candidate of a block, counted from the first cell of the block, and count them."""
    for part in range(offsets.size - 1):
        first = starts[part] - starts[0]
        for record in range(offsets[part], offsets[part + 1]):
            cell = first + place[listed[record]]
            kinds[record] = cell
            candidates[cell] += np.uint32(1)


@compiled
def _number_strata(offsets: Offsets, kinds: Values, candidates: Values) -> None:
    for part in range(offsets.size - 1):
        kinds[offsets[part] : offsets[part + 1]] = part
        candidates[part] = offsets[part + 1] - offsets[part]


@compiled
def _choose_kinds(kinds: Values, left: Values, words: Words, cursor: Offsets, state: Offsets, places: Values) -> bool:
    current, chosen = cursor[0], state[1]
    for record in range(state[0], kinds.size):
        kind = kinds[record]
        remaining, needed = np.uint64(left[kind, 0]), np.uint64(left[kind, 1])
        # Chosen if a uniform integer below the number left is below the number wanted; no word is
        # spent where nothing or everything is wanted.
        hit = _ZERO
        while needed > _ZERO and needed < remaining:
            if current == words.size:
                cursor[0], state[0], state[1] = current, record, chosen
                return False
            product = np.uint64(words[current]) * remaining
            current += 1
            low = product & _LOW
            if low >= remaining or low >= _TWO_TO_32 % remaining:
                hit = product >> _WORD
                break
        taken = hit < needed
        # Written always and kept only if chosen: a branch would be mispredicted.
        places[chosen] = record
        chosen += taken
        left[kind, 0] = remaining - _ONE
        left[kind, 1] = needed - np.uint64(taken)
    cursor[0], state[0], state[1] = current, kinds.size, chosen
    return True


@compiled
def _lift(listed: Values, chosen: Values, codes: Values) -> None:
    for place in range(chosen.size):
        codes[place] = listed[chosen[place]]


@compiled
def _put_back(moved: Items | Values, chosen: Values, listed: Values) -> None:
    for place in range(chosen.size):
        listed[chosen[place]] = np.uint32(moved[place])


@compiled
def _lift_with_places(listed: Values, chosen: Values, slices: Offsets, items: Items) -> None:
    """List the swap codes of the chosen, with their places in the upper halves as a derangement wants them."""
    for part in range(slices.size - 1):
        for place in range(slices[part], slices[part + 1]):
            items[place] = np.uint64(place - slices[part]) << _WORD | np.uint64(listed[chosen[place]])
