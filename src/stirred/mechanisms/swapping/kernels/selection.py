"""Lines 6-8 of Algorithm 1: selecting records. Importing this module loads numba."""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.kernels.addressing import CHUNK_ROWS, rows_of
from stirred.mechanisms.swapping.kernels.parallel import Scratch
from stirred.mechanisms.swapping.kernels.partition import Codes, Items, Offsets, Positions
from stirred.mechanisms.swapping.rates import Rates, RecordRates
from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Entropy, Words


class Selector:
    """Selects every record independently, with exactly its rate."""

    def __init__(self, stratum: Codes, *, rates: Rates, entropy: Entropy) -> None:
        self._stratum = stratum
        self._rates = rates
        self._digits, self._ties = rates.thresholds()
        self._words = entropy.keystream(addressing.SELECT)
        self._more = entropy.keystream(addressing.SELECT_TIES)
        self._scratch = Scratch()

    def mark(self, chunk: int) -> Positions:
        """Return the positions of the selected rows of a chunk."""
        codes = self._stratum[rows_of(chunk)]
        words = self._scratch.words[: codes.size]
        room = self._scratch.positions
        self._words.fill(chunk, words)
        state = np.zeros(2, dtype=np.int64)  # rows decided, rows selected
        while not self._decide(chunk, codes, words, room, state):
            tied, selected = state.tolist()
            # One word in 2**32 agrees with the rate so far; its row reads on in its own stream.
            row = chunk * CHUNK_ROWS + tied
            further = chain([int(words[tied])], self._more.reader(row))
            room[selected] = tied
            state += (1, bernoulli(self._rates.of_record(row, int(codes[tied])), further))
        return room[: state[1]].copy()

    def _decide(self, chunk: int, codes: Codes, words: Words, room: Positions, state: Offsets) -> bool:
        if isinstance(self._rates, RecordRates):
            return _select_by_record(words, self._rates.kinds[rows_of(chunk)], self._digits, self._ties, room, state)
        if self._rates.index is None:
            return _select_at_one_rate(words, self._digits[0], self._ties[0], room, state)
        return _select_by_stratum(words, codes, self._rates.index, self._digits, self._ties, room, state)


@compiled
def _select_at_one_rate(words: Words, digit: np.uint64, tie: np.uint64, room: Positions, state: Offsets) -> bool:
    selected = state[1]
    for row in range(state[0], words.size):
        word = np.uint64(words[row])
        if word == tie:
            state[0], state[1] = row, selected
            return False
        # Written always and kept only if selected: a branch would be mispredicted at every success.
        room[selected] = row
        selected += word < digit
    state[0], state[1] = words.size, selected
    return True


@compiled
def _select_by_stratum(
    words: Words,
    codes: Codes,
    index: npt.NDArray[np.uint32],
    digits: Items,
    ties: Items,
    room: Positions,
    state: Offsets,
) -> bool:
    selected = state[1]
    for row in range(state[0], words.size):
        word = np.uint64(words[row])
        kind = index[codes[row]]
        if word == ties[kind]:
            state[0], state[1] = row, selected
            return False
        room[selected] = row
        selected += word < digits[kind]
    state[0], state[1] = words.size, selected
    return True


@compiled
def _select_by_record(
    words: Words, kinds: npt.NDArray[np.uint16], digits: Items, ties: Items, room: Positions, state: Offsets
) -> bool:
    selected = state[1]
    for row in range(state[0], words.size):
        word = np.uint64(words[row])
        kind = kinds[row]
        if word == ties[kind]:
            state[0], state[1] = row, selected
            return False
        room[selected] = row
        selected += word < digits[kind]
    state[0], state[1] = words.size, selected
    return True
