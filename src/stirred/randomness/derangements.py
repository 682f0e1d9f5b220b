"""Uniformly random derangements: permutations that leave nothing in place.

Method: a Fisher-Yates shuffle that starts again as soon as an element is settled in its own place.
Given that no restart comes, the shuffle is a uniform permutation without fixed points, so every
derangement has the same probability. Nothing but unbiased integers is needed, no derangement number
and no real number: that is why it was preferred to the rejection-free cycle-closing algorithm of
Martinez, Panholzer and Prodinger (2008), which is of equal speed in practice (it draws about 2 words
for each element; this draws e - 1 = 1.72, at any size, because a failing shuffle fails early).

A restart need not put the elements back: shuffled from any arrangement, the result is uniform and
independent of what went before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import BUFFER_WORDS, Entropy
from stirred.randomness.integers import below


def derangement(size: int, words: Iterator[int]) -> list[int]:
    """Return a uniformly random derangement of 0, ..., size - 1: place ``i`` receives ``result[i]``.

    >>> derangement(2, Entropy.from_os().keystream("example").reader(0))
    [1, 0]
    """
    _require_derangeable(size)
    order = list(range(size))
    last = size - 1
    while last > 0:
        other = below(last + 1, words)
        order[last], order[other] = order[other], order[last]
        # Place ``last`` is now settled, and with place 1 so is place 0.
        fixed = order[last] == last or (last == 1 and order[0] == 0)
        last = size - 1 if fixed else last - 1
    return order


def random_derangement(size: int, *, entropy: Entropy, purpose: str) -> npt.NDArray[np.uint32]:
    """Return a uniformly random derangement in compiled code; ``derangement`` is the oracle.

    >>> sent = random_derangement(1000, entropy=Entropy.from_os(), purpose="example")
    >>> bool((sent == np.arange(1000)).any()), len(set(sent.tolist()))
    (False, 1000)
    """
    from stirred.randomness import kernel

    _require_derangeable(size)
    places = np.arange(size, dtype=np.uint64)
    items = places << np.uint64(32) | places
    buffer = np.empty(min(BUFFER_WORDS, 2 * size), dtype=np.uint32)
    reader = entropy.keystream(purpose).reader(0, buffer=buffer)
    kernel.derange_slices(items, np.array([0, size], dtype=np.int64), reader)
    return items.astype(np.uint32)


def derangement_number(size: int) -> int:
    """Return d(size), the number of derangements (Eq. E.4 of the source: d(k) = k d(k-1) + (-1)^k).

    >>> [derangement_number(size) for size in range(7)]
    [1, 0, 1, 2, 9, 44, 265]
    """
    number = 1
    for k in range(1, size + 1):
        number = k * number + (-1) ** k
    return number


def _require_derangeable(size: int) -> None:
    if size < 2:
        raise ValueError(f"{size} elements cannot all change places. A derangement needs at least 2")
