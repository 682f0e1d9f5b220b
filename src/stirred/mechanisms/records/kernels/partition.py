"""Listing rows by block of codes, without sorting, and the released order. Importing this module loads numba.

Three sequential passes over chunks of rows: *mark* the rows that take part, *gather* what they carry
into one list for each block, and later *return* changed values from the lists to the rows. Every
chunk knows beforehand where its entries begin in every list, so chunks may be handled in any order
and the lists are always in row order. ``Workers`` share the pieces out among threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.records.kernels.addressing import (
    CHUNK_ROWS,
    SHUFFLE,
    block_shift,
    blocks_of,
    chunks_of,
    rows_of,
)
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import BUFFER_WORDS, Entropy, WordReader
from stirred.randomness.kernel import derange_slices, shuffle_slices

# stage, pieces done, pieces in all. Called from the thread that started the work.
Progress = Callable[[str, int, int], None]


class Scratch(threading.local):
    """Memory that every thread keeps for itself from one piece of work to the next.

    Fresh memory is several times slower than memory used before.
    """

    def __init__(self) -> None:
        self.words = np.empty(max(BUFFER_WORDS, CHUNK_ROWS), dtype=np.uint32)
        self.positions = np.empty(CHUNK_ROWS, dtype=np.uint16)


class Workers:
    """A number of threads that share out numbered pieces of work.

    The pieces must not depend on each other; then the result does not depend on the threads.

    >>> squares = [0] * 5
    >>> def square(piece):
    ...     squares[piece] = piece**2
    >>> Workers(threads=3).run("square", square, range(5))
    >>> squares
    [0, 1, 4, 9, 16]
    """

    def __init__(self, *, threads: int | None = None, progress: Progress | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"{threads} threads cannot work. Ask for at least 1, or None for all")
        self.threads = threads or _available_threads()
        self._progress = progress

    def run(self, stage: str, work: Callable[[int], None], pieces: Sequence[int], *, at_once: int = 1) -> None:
        """Do all ``pieces``, handing ``at_once`` of them to a thread; the first failure stops the rest."""
        batches = [pieces[start : start + at_once] for start in range(0, len(pieces), at_once)]

        def do(batch: Sequence[int]) -> None:
            for piece in batch:
                work(piece)

        if self.threads == 1 or len(batches) == 1:
            for number, batch in enumerate(batches, start=1):
                do(batch)
                self._report(stage, number, len(batches))
            return
        with ThreadPoolExecutor(min(self.threads, len(batches) or 1)) as pool:
            try:
                for number, _ in enumerate(pool.map(do, batches), start=1):
                    self._report(stage, number, len(batches))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(stage, done, total)


def _available_threads() -> int:
    """Return how many processors this process may use; not every system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


Codes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Values = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.uint16]
Offsets = npt.NDArray[np.int64]
Counts = Offsets
Limits = Positions
Items = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

# Given the number of a block, its list grouped by code, and where each code's slice begins.
BlockWork = Callable[[int, Values, Offsets], None]
# Given the number of a chunk, returns the positions in it of the rows that take part.
Mark = Callable[[int], Positions]
# Handed to a thread at once: one chunk is less work than finding it.
_CHUNKS_AT_ONCE: Final = 8

_WORD = np.uint64(32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """The rows that take part, chunk by chunk, and where their entries lie in the lists of the blocks.

    ``positions[c]`` are the rows of chunk ``c``, counted from its beginning. Its entries for block ``b``
    begin at ``starts[c, b]``; the list of block ``b`` is ``bounds[b]:bounds[b + 1]``.
    """

    codes: Codes
    groups: int
    shift: int
    positions: list[Positions]
    starts: Offsets
    bounds: Offsets

    @property
    def blocks(self) -> int:
        return self.bounds.size - 1

    @property
    def size(self) -> int:
        return int(self.bounds[-1])

    def gather(self, values: Values | None, *, workers: Workers) -> tuple[Values, Positions]:
        """Return the lists of values (of row numbers if None) and of codes inside the block.

        With one code to a block the second list would be all zeros and stays empty.
        """
        listed = np.empty(self.size, dtype=np.uint32)
        inner = np.empty(self.size if self.shift else 0, dtype=np.uint16)

        def work(chunk: int) -> None:
            codes, positions, cursors = self._chunk(chunk)
            rows = rows_of(chunk)
            part = np.arange(rows.start, rows.stop, dtype=np.uint32) if values is None else values[rows]
            _gather(codes, part, positions, self.shift, cursors, listed, inner)

        workers.run("gather", work, range(len(self.positions)), at_once=_CHUNKS_AT_ONCE)
        return listed, inner

    def give_back(self, listed: Values, values: Values, *, workers: Workers) -> None:
        """Write the lists over ``values``, each entry into the row it was gathered from."""

        def work(chunk: int) -> None:
            codes, positions, cursors = self._chunk(chunk)
            _give_back(codes, values[rows_of(chunk)], positions, self.shift, cursors, listed)

        workers.run("return", work, range(len(self.positions)), at_once=_CHUNKS_AT_ONCE)

    def by_code(
        self, stage: str, work: BlockWork, listed: Values, inner: Positions, *, workers: Workers, back: bool = True
    ) -> None:
        """Do the work of every block that holds anything on its list grouped by code, then bring it ``back`` in order.

        The longest lists come first: no thread ends late.
        """

        def one(block: int) -> None:
            entries = slice(*self.bounds[block : block + 2])
            own, codes = listed[entries], min(1 << self.shift, self.groups - (block << self.shift))
            offsets = group_block(own, inner[entries], codes=codes)
            work(block, own, offsets)
            if back:
                ungroup_block(own, inner[entries], offsets)

        sizes = np.diff(self.bounds)
        order = np.argsort(-sizes, kind="stable")
        workers.run(stage, one, [int(block) for block in order[: np.count_nonzero(sizes)]])

    def _chunk(self, chunk: int) -> tuple[Codes, Positions, Offsets]:
        return self.codes[rows_of(chunk)], self.positions[chunk], self.starts[chunk].copy()


def partition_rows(codes: Codes, *, groups: int, shift: int, mark: Mark, workers: Workers) -> Partition:
    """Return the partition, by block, of the rows that ``mark`` picks; refuse codes beyond ``groups``."""
    chunks = chunks_of(codes.size)
    positions: list[Positions] = [np.empty(0, dtype=np.uint16)] * chunks
    counts = np.zeros((chunks, blocks_of(groups, shift=shift)), dtype=np.int64)

    def work(chunk: int) -> None:
        # Compiled code does not check its indices: look at the codes before anything uses them.
        require_below(codes[rows_of(chunk)], groups=groups)
        positions[chunk] = mark(chunk)
        blocks = codes[rows_of(chunk)][positions[chunk]] >> shift
        counts[chunk] = np.bincount(blocks, minlength=counts.shape[1])

    workers.run("mark", work, range(chunks), at_once=_CHUNKS_AT_ONCE)
    # Block by block and, inside a block, chunk by chunk.
    ends = np.cumsum(counts.T.ravel())
    starts = ends.reshape(counts.T.shape).T - counts
    bounds = np.concatenate([[0], np.cumsum(counts.sum(axis=0))]).astype(np.int64)
    starts = np.ascontiguousarray(starts)
    return Partition(codes=codes, groups=groups, shift=shift, positions=positions, starts=starts, bounds=bounds)


def every_row(rows: int) -> Mark:
    """Return a mark that picks all of so many rows."""
    everyone = np.arange(CHUNK_ROWS, dtype=np.uint16)
    return lambda chunk: everyone[: rows - chunk * CHUNK_ROWS]


def group_block(listed: Values, inner: Positions, *, codes: int) -> Offsets:
    """Group a block's list by code, in place, and return where each code's slice begins."""
    if inner.size == 0:
        return np.array([0, listed.size], dtype=np.int64)
    offsets = np.zeros(codes + 1, dtype=np.int64)
    _group_block(listed.copy(), inner, listed, offsets)
    return offsets


def ungroup_block(listed: Values, inner: Positions, offsets: Offsets) -> None:
    """Bring a block's list back into row order, in place: undo ``group_block``."""
    if inner.size:
        _ungroup_block(listed.copy(), offsets[:-1].copy(), inner, listed)


def derange_groups(grouped: Values, offsets: Offsets, reader: WordReader) -> None:
    """Derange every slice of a grouped list, in place; a slice of one entry stays as it is."""
    # An item carries its place inside its slice in the upper 32 bits and the entry in the lower.
    items = np.empty(grouped.size, dtype=np.uint64)
    _number_places(grouped, offsets, items)
    derange_slices(items, offsets, reader)
    grouped[:] = items.astype(np.uint32)


def require_column(codes: Codes, *, name: str) -> None:
    """Refuse a column that is not made of codes or is too long for 32-bit row numbers."""
    if codes.ndim != 1 or codes.dtype not in (np.dtype(np.uint16), np.dtype(np.uint32)):
        raise TypeError(f"{name}: got {codes.dtype}. Pass one column of uint16 or uint32 codes")
    if codes.size >= 1 << 32:
        raise ValueError(f"{name}: {codes.size} rows exceed 32-bit row numbers. Split the file by stratum")


def require_columns(stratum: Codes, swap: Values) -> None:
    """Refuse columns that cannot be swapped in place."""
    require_column(stratum, name="stratum")
    if swap.dtype != np.uint32 or swap.ndim != 1 or not swap.flags.writeable:
        raise TypeError(f"swap: got {swap.dtype}. Pass one writable column of uint32 codes; copy if need be")
    if swap.size != stratum.size:
        raise ValueError(f"swap: {swap.size} rows beside {stratum.size} of stratum. Pass columns of equal length")


def require_below(codes: Codes, *, groups: int) -> None:
    """Refuse codes that are not below ``groups``."""
    largest = int(codes.max())
    if largest >= groups:
        raise ValueError(f"code {largest} is out of range. Pass codes from 0 to {groups - 1}")


# ---- the order in which swapped records may be released


def release_order(codes: Codes, *, entropy: Entropy, groups: int | None = None, threads: int | None = None) -> Values:
    """Return row numbers grouped by ascending code and in uniformly random order inside each code.

    ``codes`` must be *released* values, dense from 0 (below ``groups``), such as the swapped geography.
    Whatever order the rows came in, the released file has the same law. The swapping guarantee is about the unordered
    table: a file left in input order, often sorted by geography, would give every true location away
    (docs/theory/conditions.md, condition 1).

    >>> codes = np.array([1, 0, 1, 0, 1], dtype=np.uint32)
    >>> order = release_order(codes, entropy=Entropy.from_os())
    >>> codes[order].tolist(), sorted(order.tolist())
    ([0, 0, 1, 1, 1], [0, 1, 2, 3, 4])
    """
    require_column(codes, name="codes")
    if groups is None:
        groups = int(codes.max(initial=0)) + 1
    workers = Workers(threads=threads)
    shift = block_shift(groups, rows=codes.size)
    rows = partition_rows(codes, groups=groups, shift=shift, mark=every_row(codes.size), workers=workers)
    order, inner = rows.gather(None, workers=workers)
    keystream = entropy.keystream(SHUFFLE)
    scratch = Scratch()

    def work(block: int, own: Values, offsets: Offsets) -> None:
        shuffle_slices(own, offsets, keystream.reader(block, buffer=scratch.words))

    rows.by_code("shuffle", work, order, inner, workers=workers, back=False)
    return order


@compiled
def _gather(
    codes: Codes,
    values: Values,
    positions: Positions,
    shift: int,
    cursors: Offsets,
    listed: Values,
    inner: Positions,
) -> None:
    low = (1 << shift) - 1
    for position in positions:
        code = np.int64(codes[position])
        place = cursors[code >> shift]
        cursors[code >> shift] = place + 1
        listed[place] = values[position]
        if shift > 0:
            inner[place] = code & low


@compiled
def _give_back(
    codes: Codes, values: Values, positions: Positions, shift: int, cursors: Offsets, listed: Values
) -> None:
    for position in positions:
        block = np.int64(codes[position]) >> shift
        values[position] = listed[cursors[block]]
        cursors[block] += 1


@compiled
def _group_block(listed: Values, inner: Positions, grouped: Values, offsets: Offsets) -> None:
    for code in inner:
        offsets[np.int64(code) + 1] += 1
    for number in range(1, offsets.size):
        offsets[number] += offsets[number - 1]
    cursors = offsets[:-1].copy()
    for entry in range(listed.size):
        code = np.int64(inner[entry])
        grouped[cursors[code]] = listed[entry]
        cursors[code] += 1


@compiled
def _ungroup_block(grouped: Values, cursors: Offsets, inner: Positions, listed: Values) -> None:
    for entry in range(listed.size):
        code = np.int64(inner[entry])
        listed[entry] = grouped[cursors[code]]
        cursors[code] += 1


@compiled
def _number_places(grouped: Values, offsets: Offsets, items: Items) -> None:
    for part in range(offsets.size - 1):
        for entry in range(offsets[part], offsets[part + 1]):
            items[entry] = np.uint64(entry - offsets[part]) << _WORD | np.uint64(grouped[entry])
