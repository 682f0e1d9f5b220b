"""The flow tables of all strata of a file: which way each can be drawn exactly, and how many records they move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.laws.flow import Counts, Floats, Flow, FlowLaw, Pair
from stirred.mechanisms.swapping.laws.tree import Tree, TreeLaw, tree_of
from stirred.randomness.entropy import WordReader

# What one stratum may cost: steps (a second or two), numbers kept at once, and what the margin of double precision
# allows.
_MOST_STEPS: Final = 20_000_000
_MOST_NUMBERS: Final = 4_000_000
_MOST_RECORDS: Final = 400_000
_MOST_STEPS_OF_TREE: Final = 300_000_000
_MOST_NUMBERS_OF_TREE: Final = 16_000_000
_MOST_LEVELS_OF_RECORDS: Final = 1 << 18
# From here the peak of a law is where its mean is, to a percent or so.
_LARGE: Final = 1_000
# Below this the derivative that gives the mean is lost in rounding.
_WEAK: Final = 1e-6
_LIKELY_ALIKE: Final = 32


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
        # Small strata are often alike.
        self._trees = lru_cache(maxsize=20_000)(self._tree_of)

    def of(self, values: Sequence[int], counts: Sequence[int]) -> FlowLaw:
        """Return the law of a stratum with these swap codes and their counts."""
        kept = self._kept
        own = None if kept is None else [kept(value, count) for value, count in zip(values, counts, strict=True)]

        def floats(order: list[int]) -> Floats:
            return self._floats(np.array([values[place] for place in order]))

        return FlowLaw(counts, lambda a, b: self._pair(values[a], values[b]), own, floats=floats)

    def draw(self, values: npt.NDArray[np.uint32], counts: Counts, words: WordReader) -> Flow:
        """Return the flow table of a stratum."""
        by_tree = self._by_tree(values.tolist(), counts.tolist()) if counts.size > 2 else None
        return (by_tree or self.of(values.tolist(), counts.tolist())).draw(words)

    def _by_tree(self, values: list[int], counts: list[int]) -> TreeLaw | None:
        found = self._tree(values)
        # Large strata with a few small values can be summed where a tree is too slow, and beyond its margin of error.
        if found is None or (sum(counts) > _LARGE and not _within_reach_of_tree(found[0], counts)):
            return None
        return TreeLaw(counts, *found)

    def _tree(self, values: list[int]) -> tuple[Tree, list[Fraction], Floats] | None:
        if self._steps is None:
            return None
        steps = self._steps(np.array(values))
        return (self._tree_of if len(values) > _LIKELY_ALIKE else self._trees)(steps.tobytes(), len(values))

    def _tree_of(self, steps: bytes, size: int) -> tuple[Tree, list[Fraction], Floats] | None:
        tree = tree_of(np.frombuffer(steps, dtype=np.int64).reshape(size, size))
        if tree is None:
            return None
        weights = tree.weights(self._powers)
        return tree, weights, np.array([float(weight) for weight in weights])

    def within_reach(self, values: list[int], counts: list[int]) -> bool:
        """Say whether the flow table of a stratum can be drawn exactly in a second or two."""
        if (len(counts) <= 2 and self._kept is None) or summable(counts):
            return True
        found = self._tree(values)
        return found is not None and _within_reach_of_tree(found[0], counts)

    def expected_moves(self, values: list[int], counts: list[int]) -> list[float]:
        """Return how many records of each value are expected to get another.

        In strata of more than a thousand records that can only be drawn by a tree, the number at the peak of the law.
        """
        law = self._expecting(values, counts)
        if law is not None:
            return [law.expected_moves(place) for place in range(len(counts))]
        return _moves_at_peak(np.array(counts, dtype=np.float64), self._floats(np.array(values)))

    def expected_total(self, values: list[int], counts: list[int]) -> float:
        """Return how many records of a stratum are expected to get another value."""
        law = self._expecting(values, counts)
        return sum(self.expected_moves(values, counts)) if law is None else law.expected_moves()

    def _expecting(self, values: list[int], counts: list[int]) -> FlowLaw | TreeLaw | None:
        """Return the law that tells the expected moves, or None where its peak must do."""
        if len(counts) > 2 and sum(counts) <= _LARGE and _WEAK < self._powers_apart < 1:
            by_tree = self._by_tree(values, counts)
            if by_tree is not None:
                return by_tree
        return self.of(values, counts) if (len(counts) <= 2 and self._kept is None) or summable(counts) else None

    @property
    def _powers_apart(self) -> float:
        """Return 1 - theta, the smallest weight of a leaf that a tree may have."""
        return float(1 - self._powers[1]) if len(self._powers) > 1 else 0.0


def _within_reach_of_tree(tree: Tree, counts: Sequence[int]) -> bool:
    steps, numbers, levels = tree.cost(counts)
    return steps <= _MOST_STEPS_OF_TREE and numbers <= _MOST_NUMBERS_OF_TREE and levels <= _MOST_LEVELS_OF_RECORDS


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
