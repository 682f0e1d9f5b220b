"""Unbiased bounded integers and uniform permutations, by integer arithmetic and rejection.

The bounded draw is Lemire's multiply-and-reject ("Fast random integer generation in an interval",
2019, Algorithm 5): of the 2**w possible words exactly floor(2**w / bound) lead to each result, the
rest are drawn again. The shuffle is Fisher-Yates in Durstenfeld's form.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import BUFFER_WORDS, WORD_BITS, Entropy


def below(bound: int, words: Iterator[int]) -> int:
    """Return an integer uniform on 0, ..., bound - 1, exactly, for a bound of any size.

    Reads as many 32-bit words as the bound needs (the first is the least significant) and reads
    again after a rejection, which happens with probability below 1/2.

    >>> below(6, iter([2**31 + 1]))
    3
    >>> below(1, iter([17]))
    0
    >>> below(6, iter([2**31, 2**31 + 1]))  # 2**31 is one of the 2**32 mod 6 = 4 rejected words
    3
    """
    if 1 < bound <= (span := 1 << WORD_BITS):
        while True:  # one word; the remainder is taken only where it may reject
            product = next(words) * bound
            low = product & (span - 1)
            if low >= bound or low >= span % bound:
                return product >> WORD_BITS
    if bound < 1:
        raise ValueError(f"there is no integer from 0 to {bound - 1}. The bound must be at least 1")
    length = max(1, -(-(bound - 1).bit_length() // WORD_BITS))
    bits = WORD_BITS * length
    rejected = (1 << bits) % bound
    while True:
        word = _read_word(words, length)
        high, low = divmod(word * bound, 1 << bits)
        if low >= rejected:
            return high


def _read_word(words: Iterator[int], length: int) -> int:
    word = 0
    for place in range(length):
        word |= next(words) << (WORD_BITS * place)
    return word


def permutation(size: int, words: Iterator[int]) -> list[int]:
    """Return a uniformly random permutation of 0, ..., size - 1.

    >>> sorted(permutation(5, Entropy.from_os().keystream("example").reader(0)))
    [0, 1, 2, 3, 4]
    """
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        other = below(last + 1, words)
        order[last], order[other] = order[other], order[last]
    return order


def integers_below(bound: int, *, count: int, entropy: Entropy, purpose: str) -> npt.NDArray[np.uint64]:
    """Return ``count`` independent integers uniform on 0, ..., bound - 1, for bounds up to 2**64.

    Results ``i`` with the same ``i // BUFFER_WORDS`` share a chunk and use its words in order;
    ``below`` on the same words is the oracle. The same entropy and purpose give the same integers.

    >>> dice = integers_below(6, count=1000, entropy=Entropy.from_os(), purpose="dice")
    >>> int(dice.min()) >= 0 and int(dice.max()) <= 5
    True
    """
    from stirred.randomness import kernel

    if not 1 <= bound <= 1 << 64:
        raise ValueError(f"bound {bound} does not fit. Bulk draws need a bound from 1 to 2**64")
    keystream = entropy.keystream(purpose)
    results = np.empty(count, dtype=np.uint64)
    buffer = np.empty(BUFFER_WORDS, dtype=np.uint32)
    for start in range(0, count, BUFFER_WORDS):
        part = results[start : start + BUFFER_WORDS]
        kernel.fill_below(bound, part, keystream.reader(start // BUFFER_WORDS, buffer=buffer))
    return results


def random_permutation(size: int, *, entropy: Entropy, purpose: str) -> npt.NDArray[np.uint32]:
    """Return a uniformly random permutation of 0, ..., size - 1 in compiled code.

    ``permutation`` on the same words is the oracle.

    >>> sorted(random_permutation(4, entropy=Entropy.from_os(), purpose="example").tolist())
    [0, 1, 2, 3]
    """
    from stirred.randomness import kernel

    order = np.arange(size, dtype=np.uint32)
    kernel.shuffle_slices(order, np.array([0, size], dtype=np.int64), entropy.keystream(purpose).reader(0))
    return order
