"""Which random words decide what, in all swaps and in the release order.

The compiled kernel and its plain Python twin share nothing but this page, so they must agree word
for word. Nothing here depends on the number of threads.

- ``SELECT``: the word at position ``row % CHUNK_ROWS`` of chunk ``row // CHUNK_ROWS`` decides whether
  the row is selected. If it ties with the rate, the words of chunk ``row`` of ``SELECT_TIES`` go on.
- ``DERANGE``: chunk ``b`` serves the strata of block ``b`` one after the other, in order of their codes.
- ``SELECT_AGAIN``: likewise, for the new selections of those strata of the block in which exactly one record
  was selected; ``DERANGE_AGAIN``: for their derangements.
- ``COUNT``, ``CHOOSE``, ``ARRANGE``: chunk ``b`` serves the strata of block ``b`` in turn, in swaps that draw first
  how many records to select (``counted``): for these numbers, for which candidates, and for their exchange.
- ``SHUFFLE_SELECTED``: likewise, for the permutations of the selected in the shuffle swap.
- ``CANDIDATES``: the word at position ``row % CHUNK_ROWS // 2`` of chunk ``row // CHUNK_ROWS`` decides whether the row
  is a candidate there: by its lower half for even rows and its upper half for odd ones.
- ``RESPOND``: word ``row`` decides whether the row changes in the randomised response before a swap;
  ``RESPOND_OTHER``: to which other value, one draw after the other for the rows that change. Both by chunks of
  ``BUFFER_WORDS`` words or draws.
- ``SHUFFLE``: chunk ``b`` serves the groups of block ``b`` in the release order.

A block is a run of ``2**shift`` neighbouring codes, which one thread serves. Blocks are large enough
to be worth a thread's while, small enough for the processor's cache, and spare millions of small
strata a cipher of their own. Their size follows from the numbers of codes and of rows alone.

Every swap in place returns how many records were selected. INTERNAL: that number is not an invariant, and published
beside the swapped data it voids the guarantee (docs/theory/conditions.md, condition 2: the loss becomes infinite).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import Keystream, Words

# Positions inside a chunk fit in 16 bits, and so do codes inside a block.
CHUNK_ROWS: Final = 1 << 16
MOST_SHIFT: Final = 16
# Fewer rows than this and threads would wait for each other rather than work.
BLOCK_ROWS: Final = 1 << 18
# More lists than this and writing to them in turn starts to miss the cache.
MOST_BLOCKS: Final = 1 << 10

SELECT: Final = "swapping/select"
SELECT_TIES: Final = "swapping/select ties"
DERANGE: Final = "swapping/derange"
SELECT_AGAIN: Final = "swapping/redraw"
DERANGE_AGAIN: Final = "swapping/derange redrawn"
COUNT: Final = "swapping/count"
CANDIDATES: Final = "swapping/candidates"
CHOOSE: Final = "swapping/choose"
ARRANGE: Final = "swapping/arrange"
SHUFFLE_SELECTED: Final = "swapping/shuffle selected"
RESPOND: Final = "swapping/respond"
RESPOND_OTHER: Final = "swapping/respond other"
SHUFFLE: Final = "release order/shuffle"


def block_shift(codes: int, *, rows: int) -> int:
    """Return the number of low bits that tell the codes of one block apart.

    >>> block_shift(357, rows=1_000), block_shift(357, rows=50_000_000)
    (9, 1)
    >>> block_shift(1_400_000, rows=50_000_000)
    13
    """
    most = max(1, min(MOST_BLOCKS, rows // BLOCK_ROWS))
    shift = 0
    while shift < MOST_SHIFT and blocks_of(codes, shift=shift) > most:
        shift += 1
    return shift


def blocks_of(codes: int, *, shift: int) -> int:
    """Return how many blocks hold the codes 0, ..., codes - 1.

    >>> blocks_of(357, shift=1), blocks_of(1_400_000, shift=13)
    (179, 171)
    """
    return -(-codes >> shift)


def chunks_of(rows: int) -> int:
    """Return how many chunks hold the rows.

    >>> chunks_of(65_536), chunks_of(65_537)
    (1, 2)
    """
    return -(-rows // CHUNK_ROWS)


def rows_of(chunk: int) -> slice:
    """Return the rows of a chunk; the last chunk of a column may be short.

    >>> rows_of(2)
    slice(131072, 196608, None)
    """
    return slice(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excerpt:
    """Rows of a file of ``of`` rows: their numbers in it, ascending, or None for all of them.

    >>> from stirred.randomness.entropy import Entropy
    >>> words = Entropy.from_seed("an example").keystream("select")
    >>> whole, some = np.empty(5, dtype=np.uint32), np.empty(2, dtype=np.uint32)
    >>> Excerpt(of=5).fill(words, 0, whole)
    >>> Excerpt(of=5, rows=np.array([1, 4], dtype=np.uint32)).fill(words, 0, some)
    >>> bool((some == whole[[1, 4]]).all())
    True
    """

    of: int
    rows: npt.NDArray[np.uint32] | None = None

    def shift(self, codes: int) -> int:
        """Return the number of low bits that tell the codes of one block of the file apart."""
        return block_shift(codes, rows=self.of)

    def number(self, row: int) -> int:
        """Return the number in the file of a row of the excerpt."""
        return row if self.rows is None else int(self.rows[row])

    def fill(self, keystream: Keystream, chunk: int, out: Words) -> None:
        """Overwrite ``out`` with the words of the rows of a chunk of the excerpt."""
        if self.rows is None:
            keystream.fill(chunk, out)
        else:
            out[:] = self._picked(keystream, self.rows[rows_of(chunk)], each=1)

    def fill_halves(self, keystream: Keystream, chunk: int, out: Words) -> None:
        """Overwrite ``out`` with the half words of these rows: the lower half of a word is that of the even row."""
        if self.rows is None:
            keystream.fill(chunk, out)
            return
        rows = self.rows[rows_of(chunk)]
        halves = np.zeros(2 * out.size, dtype=np.uint32)
        words = self._picked(keystream, rows, each=2)
        halves[: rows.size] = words >> ((rows & np.uint32(1)) << np.uint32(4)) & np.uint32(0xFFFF)
        out[:] = halves[0::2] | halves[1::2] << np.uint32(16)

    def _picked(self, keystream: Keystream, rows: npt.NDArray[np.uint32], *, each: int) -> Words:
        """Return the word of each of these rows, where one word serves so many neighbouring rows."""
        picked = np.empty_like(rows)
        chunks, begins = np.unique(rows // np.uint32(CHUNK_ROWS), return_index=True)
        places = rows % np.uint32(CHUNK_ROWS) // np.uint32(each)
        for chunk, begin, end in zip(chunks.tolist(), begins, [*begins[1:], rows.size], strict=True):
            words = keystream.words(chunk, count=int(places[end - 1]) + 1)
            picked[begin:end] = words[places[begin:end]]
        return picked
