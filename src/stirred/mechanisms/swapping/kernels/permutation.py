"""The Permutation Swapping Algorithm (PSA) on whole columns. Importing this module loads numba.

Algorithm 1 of "A Refreshment Stirred, Not Shaken", Section 3.3:

- lines 6-8, every record is selected independently with the exact rate of its stratum, or its own (R8):
  ``selection``;
- lines 11-14, where exactly one record was selected, the whole stratum is drawn again: ``redraw``;
- lines 15-17, the swap codes of the selected move along a uniform derangement: here.

Nothing is sorted by comparison and no permutation of all rows is built. The swap codes of selected
records are listed by block of strata in row order (``partition``), deranged there, and read back in
row order. ``addressing`` says which random words decide what; ``reference.swap_reference`` is the plain
Python twin, equal bit for bit.

Time and memory use depend on which records are selected, so a swap belongs on a machine that
outsiders cannot observe.
"""

from __future__ import annotations

import numpy as np

from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.kernels.parallel import Progress, Scratch, Workers
from stirred.mechanisms.swapping.kernels.partition import (
    Codes,
    Flags,
    Partition,
    Positions,
    Values,
    partition_rows,
    require_column,
    sort_block,
    unsort_block,
)
from stirred.mechanisms.swapping.kernels.redraw import Redraw
from stirred.mechanisms.swapping.kernels.selection import Selector
from stirred.mechanisms.swapping.rates import Rates, RecordRates
from stirred.mechanisms.swapping.tally import SwapTally
from stirred.randomness.entropy import Entropy
from stirred.randomness.kernel import derange_slices


def swap_in_place(
    stratum: Codes,
    swap: Values,
    *,
    rates: Rates,
    entropy: Entropy,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SwapTally:
    """Swap the column ``swap`` within strata by the PSA, in place, and return what was done.

    ``stratum`` holds the match value of every record as a code from 0 to ``rates.strata - 1``; ``swap``
    holds its swapping variables as one code. The result is a function of the columns, the rates and
    the entropy, never of ``threads``. Calling again with the same entropy repeats the decisions, so
    give every swap its own child. If the call is interrupted the column is neither old nor new and
    must be discarded; wrong input is refused before anything is changed.

    What ``progress`` is told depends on the selection and is as internal as the tally.

    The rows stay in input order: publish them only after ``release_order``, or as a table.

    >>> from fractions import Fraction
    >>> from stirred.mechanisms.swapping.rates import StratumRates
    >>> stratum = np.repeat(np.arange(3, dtype=np.uint32), 4)
    >>> swap = np.arange(12, dtype=np.uint32)
    >>> rates = StratumRates.by_stratum([Fraction(1), Fraction(0), Fraction(1)])
    >>> swap_in_place(stratum, swap, rates=rates, entropy=Entropy.from_os())
    SwapTally(records=12, strata=3, selected=8)
    >>> swap[4:8].tolist(), sorted(swap[:4].tolist()), bool((swap[:4] == np.arange(4)).any())
    ([4, 5, 6, 7], [0, 1, 2, 3], False)
    """
    require_column(stratum, name="stratum")
    _require_swap_column(swap, records=stratum.size)
    if isinstance(rates, RecordRates) and rates.kinds.size != stratum.size:
        raise ValueError(f"rates: {rates.kinds.size} kinds beside {stratum.size} rows. Give every record one")
    workers = Workers(threads=threads, progress=progress)
    shift = addressing.block_shift(rates.strata, rows=stratum.size)
    mark = Selector(stratum, rates=rates, entropy=entropy).mark
    selection = partition_rows(stratum, groups=rates.strata, shift=shift, mark=mark, workers=workers)
    listed, inner = selection.gather(swap, workers=workers)
    alone = _derange_blocks(selection, listed, inner, strata=rates.strata, entropy=entropy, workers=workers)
    selection.give_back(listed, swap, workers=workers)
    selected = selection.size - int(np.count_nonzero(alone))
    del selection, listed, inner
    if progress is not None:
        progress("redraw", 0, 1)  # said whether or not there is anything to redraw: it depends on the selection
    if alone.any():
        selected += Redraw(stratum, swap, alone, rates=rates, entropy=entropy).run(shift, workers=workers)
    return SwapTally(records=stratum.size, strata=rates.strata, selected=selected)


def _derange_blocks(
    selection: Partition,
    listed: Values,
    inner: Positions,
    *,
    strata: int,
    entropy: Entropy,
    workers: Workers,
) -> Flags:
    """Derange the listed codes of every stratum; return the strata with exactly one selected record.

    Those strata stay as they are here and are left to the redraw, which reconsiders all their
    records (lines 11-13).
    """
    alone = np.zeros(strata, dtype=np.bool_)
    keystream = entropy.keystream(addressing.DERANGE)
    scratch = Scratch()

    def work(block: int) -> None:
        entries = slice(*selection.bounds[block : block + 2])
        flags = alone[block << selection.shift : (block + 1) << selection.shift]
        items, offsets = sort_block(listed[entries], inner[entries], codes=flags.size)
        np.equal(np.diff(offsets), 1, out=flags)
        derange_slices(items, offsets, keystream.reader(block, buffer=scratch.words))
        unsort_block(items, offsets, inner[entries], listed=listed[entries])

    workers.run("derange", work, selection.largest_first())
    return alone


def _require_swap_column(swap: Values, *, records: int) -> None:
    if swap.dtype != np.uint32 or swap.ndim != 1 or not swap.flags.writeable:
        raise TypeError(f"swap: got {swap.dtype}. Pass one writable column of uint32 codes; copy if need be")
    if swap.size != records:
        raise ValueError(f"swap: {swap.size} rows beside {records} of stratum. Pass columns of equal length")
