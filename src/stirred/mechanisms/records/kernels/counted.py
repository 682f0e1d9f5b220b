"""Swaps in which the numbers of records to select are drawn first. Importing this module loads numba.

1. Count the records of every cell: every stratum, or every swap value of every stratum (``cells``).
2. Draw how many of them to select (``Counting``).
3. Pick that many, every choice equally likely, and shuffle or derange their swap codes (``CountedExchange``).

Yet most records are looked at once. First every record becomes a candidate independently, with a chance that leaves
hardly any cell with too few. Then as many candidates as needed are chosen, in one pass in which a candidate is chosen
with probability needed/left of its cell. Given their number, the candidates of a cell are a uniform subset of it, and
so are the chosen, whatever the chance was. A cell with too few candidates takes all its records as candidates; whether
it does depends on their number alone.

``swap_counted_reference`` (in the tests) is the plain Python twin, equal bit for bit.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.addressing import Excerpt, rows_of
from stirred.mechanisms.records.kernels.cells import CellCounts
from stirred.mechanisms.records.kernels.partition import (
    Codes,
    Counts,
    Limits,
    Offsets,
    Positions,
    Progress,
    Scratch,
    Values,
    Workers,
    derange_groups,
    partition_rows,
    require_columns,
)
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Entropy, WordReader, Words
from stirred.randomness.kernel import shuffle_slices

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


class CountedExchange:
    """Choosing ``need`` records of each cell and exchanging their swap codes."""

    def __init__(
        self, cells: CellCounts, need: Values, *, shift: int, derange: bool, entropy: Entropy, excerpt: Excerpt
    ) -> None:
        self._cells, self._need, self._shift, self._derange = cells, need, shift, derange
        self._excerpt = excerpt
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

        exchange = partial(self._exchange, candidates=candidates)
        rows.by_code("exchange", exchange, listed, inner, workers=workers)
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
        self._excerpt.fill_halves(self._streams[0], chunk, words)
        found = _mark_strata(words, stratum, self._highest, room)
        if cells.value is not None:
            value = cells.value[rows_of(chunk)]
            found = _mark_cells(words, stratum, value, cells.starts, self._limits, room[:found])
        return room[:found].copy()

    def _exchange(self, block: int, listed: Values, offsets: Offsets, candidates: Values) -> None:
        """Choose among the candidates of a block and exchange the swap codes of the chosen."""
        cells = self._cells
        starts = cells.starts[block << self._shift :][: offsets.size]
        own = slice(starts[0], starts[-1])
        kinds = np.empty_like(listed)
        if cells.value is None:
            candidates[own] = np.diff(offsets)
            kinds[:] = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
        else:
            _number(listed, offsets, starts, kinds, candidates[own])
        choose, arrange = (stream.reader(block, buffer=self._scratch.words) for stream in self._streams[1:])
        chosen = _choose(kinds, candidates[own], self._need[own], choose)
        if cells.codes is not None:
            listed[:] = cells.codes[own][kinds]
        codes, slices = listed[chosen], np.searchsorted(chosen, offsets.astype(np.uint32))
        (derange_groups if self._derange else shuffle_slices)(codes, slices, arrange)
        listed[chosen] = codes


def _choose(kinds: Values, have: Values, need: Values, reader: WordReader) -> Values:
    """Return the places of the chosen: ``need`` of the ``have`` of each kind, every choice equally likely."""
    left = np.stack([have, need], axis=1)  # side by side: a look at one fetches the other
    places = np.empty(kinds.size + 1, dtype=np.uint32)
    state = np.zeros(2, dtype=np.int64)  # records decided, records chosen
    while not _choose_kinds(kinds, left, reader.words, reader.cursor, state, places):
        reader.refill(kinds.size)
    return places[: state[1]]


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
    limits: Limits,
    marked: Positions,
) -> int:
    """Keep those of the marked rows that their own cell lets in."""
    found = 0
    for number in range(marked.size):
        row = marked[number]
        limit = limits[starts[stratum[row]] + value[row]]
        marked[found] = row
        found += (words[row >> 1] >> np.uint32((row & 1) << 4)) & _HALF <= limit
    return found


@compiled
def _number(listed: Values, offsets: Offsets, starts: Offsets, kinds: Values, candidates: Values) -> None:
    """Write the cell of every candidate of a block, counted from the first cell of the block, and count them."""
    for part in range(offsets.size - 1):
        first = starts[part] - starts[0]
        for record in range(offsets[part], offsets[part + 1]):
            cell = first + listed[record]
            kinds[record] = cell
            candidates[cell] += np.uint32(1)


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


class Counting(Protocol):
    """How many records a swap selects: of each swap value (``by_value``) or of the stratum; whether all must move."""

    @property
    def by_value(self) -> bool: ...

    @property
    def derange(self) -> bool: ...

    def draw(self, values: Values, counts: Counts, words: WordReader) -> Counts:
        """Return how many to select of each swap value of a stratum (or of all together), given how many there are.

        ``values`` are the swap codes, in order; empty if not ``by_value``.
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
    excerpt: Excerpt | None = None,
) -> int:
    """Swap the column ``swap`` within strata, in place, and return how many records were selected.

    Codes of ``stratum`` lie below ``strata`` and those of ``swap`` below ``values``. As with ``swap_in_place`` the
    result does not depend on the threads, and the rows stay in input order.
    """
    require_columns(stratum, swap)
    workers = Workers(threads=threads, progress=progress)
    excerpt = excerpt or Excerpt(of=stratum.size)
    shift = excerpt.shift(strata)
    if counting.by_value:
        cells = CellCounts.by_value(stratum, swap, strata=strata, values=values, workers=workers)
    else:
        cells = CellCounts.by_stratum(stratum, strata=strata, workers=workers)
    need = _draw_counts(cells, counting, shift=shift, entropy=entropy, workers=workers)
    exchange = CountedExchange(cells, need, shift=shift, derange=counting.derange, entropy=entropy, excerpt=excerpt)
    while not exchange.run(swap, workers=workers):
        pass  # some cells were short of candidates and take all their records now
    return int(need.sum())


def _draw_counts(cells: CellCounts, counting: Counting, *, shift: int, entropy: Entropy, workers: Workers) -> Values:
    """Draw the number to select of each cell, stratum by stratum."""
    occupied, begins, codes = cells.occupied()
    have = cells.have[occupied].astype(np.int64)
    drawn = np.zeros_like(have)
    keystream = entropy.keystream(addressing.COUNT)
    strata = begins.size - 1

    def work(block: int) -> None:
        words = keystream.reader(block)
        bounds = begins[block << shift : ((block + 1) << shift) + 1].tolist()
        for begin, end in pairwise(bounds):
            if end > begin:
                drawn[begin:end] = counting.draw(codes[begin:end], have[begin:end], words)

    workers.run("draw", work, range(addressing.blocks_of(strata, shift=shift)))
    need = np.zeros_like(cells.have)
    need[occupied] = drawn
    return need
