"""Passes over long columns, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

# What a piece reads and writes stays in the processor's cache.
PIECE: Final = 1 << 18


def by_pieces(work: Callable[[slice], None], rows: int) -> None:
    """Do ``work`` on every piece of so many rows.

    Pieces must not depend on each other; work that leaves the interpreter free, as compiled passes do,
    runs on all cores.

    >>> doubled = list(range(5))
    >>> def double(piece):
    ...     doubled[piece] = [2 * value for value in doubled[piece]]
    >>> by_pieces(double, 5)
    >>> doubled
    [0, 2, 4, 6, 8]
    """
    pieces = [slice(begin, min(begin + PIECE, rows)) for begin in range(0, rows, PIECE)]
    threads = min(os.cpu_count() or 1, len(pieces))
    if threads < 2:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, pieces):
            pass
