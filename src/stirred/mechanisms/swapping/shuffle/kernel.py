"""The shuffle swap (swapping theory R7) on whole columns. Importing this module loads numba.

Every record is selected independently, as in permutation swapping, and the swap codes of the selected are
permuted uniformly inside each stratum: no derangement, and nothing is drawn again.
``shuffle_reference`` (in the tests) is the plain Python twin, equal bit for bit.
"""

from __future__ import annotations

from stirred.mechanisms.swapping.core.rates import Rates
from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.kernels.excerpt import Excerpt
from stirred.mechanisms.swapping.kernels.partition import (
    Codes,
    Progress,
    Scratch,
    Values,
    Workers,
    group_block,
    partition_rows,
    require_columns,
    ungroup_block,
)
from stirred.mechanisms.swapping.permutation.kernel import Selector
from stirred.randomness.entropy import Entropy
from stirred.randomness.kernel import shuffle_slices


def shuffle_in_place(
    stratum: Codes,
    swap: Values,
    *,
    rates: Rates,
    entropy: Entropy,
    threads: int | None = None,
    progress: Progress | None = None,
    excerpt: Excerpt | None = None,
) -> int:
    """Swap the column ``swap`` within strata by the shuffle swap, in place, and return how many records were selected.

    The arguments, and what they promise, are those of ``swap_in_place``.

    >>> from fractions import Fraction
    >>> import numpy as np
    >>> from stirred.mechanisms.swapping.core.rates import StratumRates
    >>> stratum, swap = np.zeros(4, dtype=np.uint32), np.arange(4, dtype=np.uint32)
    >>> rates = StratumRates.constant(Fraction(1), strata=1)
    >>> shuffle_in_place(stratum, swap, rates=rates, entropy=Entropy.from_os()), sorted(swap.tolist())
    (4, [0, 1, 2, 3])
    """
    require_columns(stratum, swap)
    workers = Workers(threads=threads, progress=progress)
    excerpt = excerpt or Excerpt(of=stratum.size)
    shift = excerpt.shift(rates.strata)
    mark = Selector(stratum, rates=rates, entropy=entropy, excerpt=excerpt).mark
    selection = partition_rows(stratum, groups=rates.strata, shift=shift, mark=mark, workers=workers)
    listed, inner = selection.gather(swap, workers=workers)
    keystream = entropy.keystream(addressing.SHUFFLE_SELECTED)
    scratch = Scratch()

    def work(block: int) -> None:
        entries = slice(*selection.bounds[block : block + 2])
        offsets = group_block(listed[entries], inner[entries], codes=1 << shift)
        shuffle_slices(listed[entries], offsets, keystream.reader(block, buffer=scratch.words))
        ungroup_block(listed[entries], inner[entries], offsets)

    workers.run("shuffle", work, selection.largest_first())
    selection.give_back(listed, swap, workers=workers)
    return selection.size
