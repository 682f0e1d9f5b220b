"""The order in which swapped records may be released. Importing this module loads numba.

The swapping guarantee is about the unordered table: a file left in input order, often sorted by
geography, would give every true location away (docs/theory/conditions.md, condition 1).
"""

from __future__ import annotations

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.partition import (
    Codes,
    Offsets,
    Scratch,
    Values,
    Workers,
    every_row,
    partition_rows,
    require_column,
)
from stirred.randomness.entropy import Entropy
from stirred.randomness.kernel import shuffle_slices


def release_order(codes: Codes, *, entropy: Entropy, groups: int | None = None, threads: int | None = None) -> Values:
    """Return row numbers grouped by ascending code and in uniformly random order inside each code.

    ``codes`` must be *released* values, dense from 0 (below ``groups``), such as the swapped geography.
    Whatever order the rows came in, the released file has the same law, so the order tells nothing
    about the input order.

    >>> import numpy as np
    >>> codes = np.array([1, 0, 1, 0, 1], dtype=np.uint32)
    >>> order = release_order(codes, entropy=Entropy.from_os())
    >>> codes[order].tolist(), sorted(order.tolist())
    ([0, 0, 1, 1, 1], [0, 1, 2, 3, 4])
    """
    require_column(codes, name="codes")
    if groups is None:
        groups = int(codes.max(initial=0)) + 1
    workers = Workers(threads=threads)
    shift = addressing.block_shift(groups, rows=codes.size)
    rows = partition_rows(codes, groups=groups, shift=shift, mark=every_row(codes.size), workers=workers)
    order, inner = rows.gather(None, workers=workers)
    keystream = entropy.keystream(addressing.SHUFFLE)
    scratch = Scratch()

    def work(block: int, own: Values, offsets: Offsets) -> None:
        shuffle_slices(own, offsets, keystream.reader(block, buffer=scratch.words))

    rows.by_code("shuffle", work, order, inner, workers=workers, back=False)
    return order
