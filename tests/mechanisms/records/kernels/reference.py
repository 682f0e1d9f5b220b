"""Permutation swapping and the release order in plain Python: the oracles of the compiled kernels.

Written to be compared with Algorithm 1 by eye. They read the same random words (``addressing``) and
must give the same result, bit for bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.kernels.addressing import CHUNK_ROWS
from stirred.mechanisms.records.kernels.counted import Counting, candidate_limits
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.derangements import derangement
from stirred.randomness.entropy import BUFFER_WORDS, Entropy, Keystream, WordReader
from stirred.randomness.integers import below, permutation


def rates_by_stratum(rates: Sequence[Fraction]) -> Rates:
    """Return the rates given in order of stratum code, as the kernel takes them."""
    values = tuple(dict.fromkeys(rates))
    index = np.array([values.index(rate) for rate in rates], dtype=np.uint32)
    return Rates(values=values, index=None if len(values) == 1 else index, strata=len(rates))


def swap_reference(
    stratum: Sequence[int], swap: Sequence[int], *, rates: Rates, entropy: Entropy
) -> tuple[list[int], int]:
    """Return the swapped column and the tally, as ``swap_in_place`` makes them.

    >>> from fractions import Fraction
    >>> pair = Rates.constant(Fraction(1), strata=1)
    >>> swap_reference([0, 0], [7, 9], rates=pair, entropy=Entropy.from_os())[0]
    [9, 7]
    """
    swapped = list(swap)
    first_choice = _select_rows(stratum, rates=rates, entropy=entropy)
    words = _BlockWords(entropy, shift=addressing.block_shift(rates.strata, rows=len(swap)))
    total = 0
    for code, records in sorted(_rows_by_code(stratum).items()):
        if len(records) == 1:
            continue  # lines 3-5
        selected = [row for row in records if first_choice[row]]
        purpose = addressing.DERANGE
        while len(selected) == 1:  # lines 11-13
            again = words.of(addressing.SELECT_AGAIN, code)
            selected = [row for row in records if bernoulli(rates.of_record(row, code), again)]
            purpose = addressing.DERANGE_AGAIN
        if selected:
            sigma = derangement(len(selected), words.of(purpose, code))  # line 15
            for place, row in enumerate(selected):
                swapped[row] = swap[selected[sigma[place]]]  # line 17
        total += len(selected)
    return swapped, total


def swap_counted_reference(
    stratum: Sequence[int], swap: Sequence[int], *, strata: int, counting: Counting, entropy: Entropy
) -> tuple[list[int], int]:
    """Return the swapped column and the tally, as ``swap_counted_in_place`` makes them."""
    swapped = list(swap)
    numbers = _candidate_numbers(len(swap), entropy)
    words = _BlockWords(entropy, shift=addressing.block_shift(strata, rows=len(swap)))
    total = 0
    for code, records in sorted(_rows_by_code(stratum).items()):
        kinds: dict[int, list[int]] = {}
        for row in records:
            kinds.setdefault(swap[row] if counting.by_value else 0, []).append(row)
        order = sorted(kinds)
        values = np.array(order if counting.by_value else [], dtype=np.uint32)
        have = np.array([len(kinds[kind]) for kind in order])
        need = counting.draw(values, have, words.of(addressing.COUNT, code))
        limits = candidate_limits(have, need).tolist()
        wanted = dict(zip(order, need.tolist(), strict=True))
        candidates: dict[int, list[int]] = {}
        for kind, limit in zip(order, limits, strict=True):
            few = [row for row in kinds[kind] if numbers[row] <= limit]
            candidates[kind] = few if len(few) >= wanted[kind] else kinds[kind]
        left = {kind: len(rows) for kind, rows in candidates.items()}
        selected = []
        for row in sorted(row for rows in candidates.values() for row in rows):
            kind = swap[row] if counting.by_value else 0
            certain = wanted[kind] in (0, left[kind])
            hit = wanted[kind] > 0 if certain else below(left[kind], words.of(addressing.CHOOSE, code)) < wanted[kind]
            if hit:
                selected.append(row)
            left[kind], wanted[kind] = left[kind] - 1, wanted[kind] - hit
        arrange = derangement if counting.derange and selected else permutation
        sigma = arrange(len(selected), words.of(addressing.ARRANGE, code))
        for place, row in enumerate(selected):
            swapped[row] = swap[selected[sigma[place]]]
        total += len(selected)
    return swapped, total


def shuffle_reference(
    stratum: Sequence[int], swap: Sequence[int], *, rates: Rates, entropy: Entropy
) -> tuple[list[int], int]:
    """Return the swapped column and the tally, as ``swap_in_place`` without ``derange`` makes them.

    >>> from fractions import Fraction
    >>> sorted(shuffle_reference([0, 0, 0], [7, 8, 9], rates=Rates.constant(Fraction(1, 2), strata=1),
    ...                          entropy=Entropy.from_os())[0])
    [7, 8, 9]
    """
    swapped = list(swap)
    choice = _select_rows(stratum, rates=rates, entropy=entropy)
    words = _BlockWords(entropy, shift=addressing.block_shift(rates.strata, rows=len(swap)))
    for code, records in sorted(_rows_by_code(stratum).items()):
        selected = [row for row in records if choice[row]]
        sigma = permutation(len(selected), words.of(addressing.SHUFFLE_SELECTED, code))
        for place, row in enumerate(selected):
            swapped[row] = swap[selected[sigma[place]]]
    return swapped, sum(choice)


def response_reference(codes: Sequence[int], *, values: int, change: Fraction, entropy: Entropy) -> list[int]:
    """Return the codes after the randomised response, as ``respond`` makes them.

    >>> response_reference([0, 1], values=2, change=Fraction(1), entropy=Entropy.from_os())
    [1, 0]
    """
    flips, ties = entropy.keystream(addressing.RESPOND), entropy.keystream(f"{addressing.RESPOND}/ties")
    others = entropy.keystream(addressing.RESPOND_OTHER)
    answered = list(codes)
    words: Iterator[int] = iter(())
    draws: Iterator[int] = iter(())
    changed = 0
    for row, code in enumerate(codes):
        if row % BUFFER_WORDS == 0:
            words = flips.reader(row // BUFFER_WORDS)
        if not bernoulli(change, _with_further(next(words), ties, row)):
            continue
        if changed % BUFFER_WORDS == 0:
            draws = others.reader(changed // BUFFER_WORDS)
        changed += 1
        answered[row] = [value for value in range(values) if value != code][below(values - 1, draws)]
    return answered


def release_order_reference(codes: Sequence[int], *, groups: int, entropy: Entropy) -> list[int]:
    """Return the order of rows, as ``release_order`` makes it.

    >>> release_order_reference([2, 0, 1], groups=3, entropy=Entropy.from_os())
    [1, 2, 0]
    """
    words = _BlockWords(entropy, shift=addressing.block_shift(groups, rows=len(codes)))
    order: list[int] = []
    for code, rows in sorted(_rows_by_code(codes).items()):
        shuffled = permutation(len(rows), words.of(addressing.SHUFFLE, code))
        order.extend(rows[place] for place in shuffled)
    return order


def _select_rows(stratum: Sequence[int], *, rates: Rates, entropy: Entropy) -> list[bool]:
    """Lines 6-8 for all strata at once, in row order."""
    keystream = entropy.keystream(addressing.SELECT)
    ties = entropy.keystream(addressing.SELECT_TIES)
    selected = []
    words: Iterator[int] = iter(())
    for row, code in enumerate(stratum):
        if row % CHUNK_ROWS == 0:
            words = keystream.reader(row // CHUNK_ROWS)
        selected.append(bernoulli(rates.of_record(row, code), _with_further(next(words), ties, row)))
    return selected


def _candidate_numbers(rows: int, entropy: Entropy) -> list[int]:
    """Return the 16-bit number of every row that decides whether it is a candidate."""
    keystream = entropy.keystream(addressing.CANDIDATES)
    numbers: list[int] = []
    for chunk in range(addressing.chunks_of(rows)):
        for word in keystream.words(chunk, count=CHUNK_ROWS // 2).tolist():
            numbers += [word & 0xFFFF, word >> 16]
    return numbers[:rows]


def _with_further(word: int, ties: Keystream, row: int) -> Iterator[int]:
    yield word
    yield from ties.reader(row)


def _rows_by_code(codes: Sequence[int]) -> dict[int, list[int]]:
    rows = defaultdict(list)
    for row, code in enumerate(codes):
        rows[code].append(row)
    return rows


class _BlockWords:
    """The readers of every block, which go on from one stratum of the block to the next."""

    def __init__(self, entropy: Entropy, *, shift: int) -> None:
        self._entropy = entropy
        self._shift = shift
        self._readers: dict[tuple[str, int], WordReader] = {}

    def of(self, purpose: str, code: int) -> WordReader:
        block = code >> self._shift
        if (purpose, block) not in self._readers:
            self._readers[purpose, block] = self._entropy.keystream(purpose).reader(block)
        return self._readers[purpose, block]
