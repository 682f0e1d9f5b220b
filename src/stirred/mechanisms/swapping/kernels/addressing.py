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

from typing import Final

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
