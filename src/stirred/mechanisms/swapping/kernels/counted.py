"""Swaps in which the numbers of records to select are drawn first. Importing this module loads numba.

1. Count the records of every cell: every stratum, or every swap value of every stratum (``cells``).
2. Draw how many of them to select (``Counting``).
3. Pick that many, every choice equally likely, and shuffle or derange their swap codes (``exchange``).

``reference.swap_counted_reference`` is the plain Python twin, equal bit for bit.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.kernels.cells import Cells
from stirred.mechanisms.swapping.kernels.exchange import Exchange
from stirred.mechanisms.swapping.kernels.parallel import Progress, Workers
from stirred.mechanisms.swapping.kernels.partition import Codes, Values, require_columns
from stirred.mechanisms.swapping.tally import SwapTally
from stirred.randomness.entropy import Entropy, WordReader

Counts = npt.NDArray[np.int64]


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
) -> SwapTally:
    """Swap the column ``swap`` within strata, in place, and return what was done.

    Codes of ``stratum`` lie below ``strata`` and those of ``swap`` below ``values``. As with ``swap_in_place`` the
    result does not depend on the threads, and the rows stay in input order.
    """
    require_columns(stratum, swap)
    workers = Workers(threads=threads, progress=progress)
    shift = addressing.block_shift(strata, rows=stratum.size)
    if counting.by_value:
        cells = Cells.by_value(stratum, swap, strata=strata, values=values, workers=workers)
    else:
        cells = Cells.by_stratum(stratum, strata=strata, workers=workers)
    need = _draw_counts(cells, counting, shift=shift, entropy=entropy, workers=workers)
    exchange = Exchange(cells, need, shift=shift, derange=counting.derange, entropy=entropy)
    while not exchange.run(swap, workers=workers):
        pass  # some cells were short of candidates and take all their records now
    return SwapTally(records=stratum.size, strata=strata, selected=int(need.sum()))


def _draw_counts(cells: Cells, counting: Counting, *, shift: int, entropy: Entropy, workers: Workers) -> Values:
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
