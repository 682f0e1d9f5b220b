"""The flow tables of all strata of a file: which way each can be drawn exactly, and how many records they move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.flow_law import Counts, Floats, Flow, FlowLaw, Pair
from stirred.mechanisms.swapping.tree_law import Tree, TreeLaw, tree_of
from stirred.randomness.entropy import WordReader

# What one stratum may cost: steps (a second or two), numbers kept at once, and what the margin of double precision
# allows.
_MOST_STEPS: Final = 20_000_000
_MOST_NUMBERS: Final = 4_000_000
_MOST_RECORDS: Final = 400_000
_MOST_STEPS_OF_TREE: Final = 300_000_000
_MOST_NUMBERS_OF_TREE: Final = 16_000_000
_MOST_LEVELS_OF_RECORDS: Final = 1 << 18


class Flows:
    """The laws of the flow tables, by one table of weights on all swap codes.

    ``pair`` weighs a record that gets another value, from code to code, and ``floats`` is the table of these weights
    for some codes in double precision; ``kept`` gives the weights of 0, 1, ... records that keep a value, by its code
    and count, and all weigh 1 without it. Where weights are ``powers`` of distances, ``steps`` is the table of
    distances for some codes.
    """

    def __init__(
        self,
        pair: Pair,
        floats: Callable[[Counts], Floats],
        *,
        kept: Callable[[int, int], Sequence[Fraction]] | None = None,
        steps: Callable[[Counts], Counts] | None = None,
        powers: Sequence[Fraction] = (),
    ) -> None:
        self._pair, self._floats, self._kept, self._steps, self._powers = pair, floats, kept, steps, powers

    def of(self, values: Sequence[int], counts: Sequence[int]) -> FlowLaw:
        """Return the law of a stratum with these swap codes and their counts."""
        kept = self._kept
        own = None if kept is None else [kept(value, count) for value, count in zip(values, counts, strict=True)]

        def floats(order: list[int]) -> Floats:
            return self._floats(np.array([values[place] for place in order]))

        return FlowLaw(counts, lambda a, b: self._pair(values[a], values[b]), own, floats=floats)

    def draw(self, values: npt.NDArray[np.uint32], counts: Counts, words: WordReader) -> Flow:
        """Return the flow table of a stratum."""
        tree = self._tree(values.tolist()) if counts.size > 2 else None
        if tree is not None:
            return TreeLaw(counts.tolist(), tree, tree.weights(self._powers)).draw(words)
        return self.of(values.tolist(), counts.tolist()).draw(words)

    def _tree(self, values: list[int]) -> Tree | None:
        return None if self._steps is None else tree_of(self._steps(np.array(values)))

    def within_reach(self, values: list[int], counts: list[int]) -> bool:
        """Say whether the flow table of a stratum can be drawn exactly in a second or two."""
        if (len(counts) <= 2 and self._kept is None) or summable(counts):
            return True
        tree = self._tree(values)
        if tree is None:
            return False
        steps, numbers, levels = tree.cost(counts)
        return steps <= _MOST_STEPS_OF_TREE and numbers <= _MOST_NUMBERS_OF_TREE and levels <= _MOST_LEVELS_OF_RECORDS

    def expected_moves(self, values: list[int], counts: list[int]) -> list[float]:
        """Return how many records of each value are expected to get another.

        Exact where all flow tables can be summed over; otherwise the number where the law has its peak, which is that
        of large strata.
        """
        if (len(counts) <= 2 and self._kept is None) or summable(counts):
            law = self.of(values, counts)
            return [law.expected_moves(place) for place in range(len(counts))]
        return _moves_at_peak(np.array(counts, dtype=np.float64), self._floats(np.array(values)))

    def expected_total(self, values: list[int], counts: list[int]) -> float:
        """Return how many records of a stratum are expected to get another value."""
        if (len(counts) <= 2 and self._kept is None) or summable(counts):
            return self.of(values, counts).expected_moves()
        return sum(self.expected_moves(values, counts))


def summable(counts: Sequence[int]) -> bool:
    """Say whether a stratum is small enough to sum over all its flow tables.

    >>> summable([30, 30, 30]), summable([100_000, 5, 5]), summable([50, 50, 50, 50])
    (True, True, False)
    """
    *others, largest = sorted(counts)
    if not others:
        return True
    numbers = len(others) * (others[-1] + 1.0)
    for count in others:
        numbers *= count + 1
        if numbers > _MOST_NUMBERS:
            return False
    return numbers * len(others) * (others[-1] / 2 + 1) <= _MOST_STEPS and sum(others) + largest <= _MOST_RECORDS


def _moves_at_peak(counts: Floats, weights: Floats) -> list[float]:
    """Scale rows and columns of the weights to the counts: there the law of the flow table has its peak."""
    rows = columns = np.sqrt(counts)
    for _ in range(1_000):
        before = rows
        rows = counts / (weights @ columns)
        columns = counts / (rows @ weights)
        if np.allclose(rows, before, rtol=1e-9, atol=0):
            break
    return list((counts - rows * np.diag(weights) * columns).tolist())
