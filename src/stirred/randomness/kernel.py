"""Compiled samplers over many slices at once. Importing this module loads numba.

Each public function drives a compiled loop that stops when its words run out and goes on, after a
refill, exactly where it stopped: a result depends on the words alone. The oracles are ``below``,
``permutation`` and ``derangement``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import WordReader, Words

Offsets = npt.NDArray[np.int64]
Items = npt.NDArray[np.uint64]

_WORD = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_TWO_TO_32 = np.uint64(1 << 32)
_ZERO = np.uint64(0)
_REJECTED = np.int64(-1)


def derange_slices(items: Items, offsets: Offsets, reader: WordReader) -> None:
    """Derange every slice ``items[offsets[s]:offsets[s + 1]]`` uniformly, in place, in order of ``s``.

    The upper 32 bits of an item are its place in its slice, counted from 0; the lower 32 bits are
    the payload that travels. Slices of fewer than two items are left alone and use no words.
    """
    # slice, place to settle; a negative place means the slice has not begun
    state = np.array([0, -1], dtype=np.int64)
    while not _derange_slices(items, offsets, reader.words, reader.cursor, state):
        reader.refill(2 * items.size)  # e - 1 = 1.72 words are expected for each item


def shuffle_slices(values: Words, offsets: Offsets, reader: WordReader) -> None:
    """Shuffle every slice ``values[offsets[s]:offsets[s + 1]]`` uniformly, in place, in order of ``s``."""
    state = np.array([0, -1], dtype=np.int64)
    while not _shuffle_slices(values, offsets, reader.words, reader.cursor, state):
        reader.refill(values.size)


def fill_below(bound: int, out: Items, reader: WordReader) -> None:
    """Fill ``out`` with integers uniform on 0, ..., bound - 1, for bounds from 1 to 2**64."""
    # results so far; the lower half of a 64-bit word still waiting for its upper half, or -1
    state = np.array([0, -1], dtype=np.int64)
    fill = _fill_below_32 if bound <= 1 << 32 else _fill_below_64
    # The bound 2**64 itself does not fit in 64 bits; stored as 0 it means "take the word".
    stored = np.uint64(bound % (1 << 64))
    while not fill(stored, out, reader.words, reader.cursor, state):
        reader.refill()


@compiled
def _below(word: np.uint32, bound: np.uint64) -> np.int64:
    """Return Lemire's draw below ``bound`` <= 2**32, or ``_REJECTED``."""
    product = np.uint64(word) * bound
    low = product & _LOW
    # 2**32 mod bound is below the bound, so the division is needed for few words only.
    if low < bound and low < _TWO_TO_32 % bound:
        return _REJECTED
    return np.int64(product >> _WORD)


@compiled
def _derange_slices(items: Items, offsets: Offsets, words: Words, cursor: Offsets, state: Offsets) -> bool:
    current = cursor[0]
    last = state[1]
    for part in range(state[0], offsets.size - 1):
        begin = offsets[part]
        top = offsets[part + 1] - begin - 1
        if last < 0:
            last = top
        while last > 0:
            if current == words.size:
                cursor[0] = current
                state[0] = part
                state[1] = last
                return False
            other = _below(words[current], np.uint64(last + 1))
            current += 1
            if other == _REJECTED:
                continue
            settled = items[begin + other]
            items[begin + other] = items[begin + last]
            items[begin + last] = settled
            # As in the twin: an element settled in its own place starts the slice again. The usual
            # case comes as a branch of its own so that the processor need not wait for the element.
            if np.int64(settled >> _WORD) == last:
                last = top
            elif last == 1:
                last = top if items[begin] >> _WORD == _ZERO else 0
            else:
                last -= 1
        last = -1
    cursor[0] = current
    return True


@compiled
def _shuffle_slices(values: Words, offsets: Offsets, words: Words, cursor: Offsets, state: Offsets) -> bool:
    current = cursor[0]
    last = state[1]
    for part in range(state[0], offsets.size - 1):
        begin = offsets[part]
        if last < 0:
            last = offsets[part + 1] - begin - 1
        while last > 0:
            if current == words.size:
                cursor[0] = current
                state[0] = part
                state[1] = last
                return False
            other = _below(words[current], np.uint64(last + 1))
            current += 1
            if other == _REJECTED:
                continue
            settled = values[begin + other]
            values[begin + other] = values[begin + last]
            values[begin + last] = settled
            last -= 1
        last = -1
    cursor[0] = current
    return True


@compiled
def _fill_below_32(bound: np.uint64, out: Items, words: Words, cursor: Offsets, state: Offsets) -> bool:
    current, done = cursor[0], state[0]
    while done < out.size and current < words.size:
        result = _below(words[current], bound)
        current += 1
        if result != _REJECTED:
            out[done] = result
            done += 1
    cursor[0], state[0] = current, done
    return bool(done == out.size)


@compiled
def _fill_below_64(bound: np.uint64, out: Items, words: Words, cursor: Offsets, state: Offsets) -> bool:
    # 2**64 mod bound, by way of (2**64 - bound) mod bound in wrapping arithmetic.
    rejected = _ZERO if bound == _ZERO else (_ZERO - bound) % bound
    current, done, waiting = cursor[0], state[0], state[1]
    while done < out.size and current < words.size:
        half = np.uint64(words[current])
        current += 1
        if waiting < 0:
            waiting = np.int64(half)
            continue
        word = np.uint64(waiting) | half << _WORD
        waiting = np.int64(-1)
        if bound == _ZERO:
            out[done] = word
            done += 1
        elif word * bound >= rejected:
            out[done] = _high_half(word, bound)
            done += 1
    cursor[0], state[0], state[1] = current, done, waiting
    return bool(done == out.size)


@compiled
def _high_half(left: np.uint64, right: np.uint64) -> np.uint64:
    """Return the upper 64 bits of a 128-bit product, by halves of 32 bits."""
    left_low, left_high = left & _LOW, left >> _WORD
    right_low, right_high = right & _LOW, right >> _WORD
    middle = left_high * right_low + (left_low * right_low >> _WORD)
    carry = (middle & _LOW) + left_low * right_high
    return left_high * right_high + (middle >> _WORD) + (carry >> _WORD)
