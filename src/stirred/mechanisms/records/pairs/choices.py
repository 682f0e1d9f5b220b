"""Random choices, drawn for a release or enumerated for the exact law: the same code is run with either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, chain, pairwise, repeat
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.entropy import BUFFER_WORDS, Entropy, Words
from stirred.randomness.integers import below
from stirred.spec.law import Law

Rows = npt.NDArray[np.int64]
_FEW: Final = 32  # draws one by one, before many are drawn at once
_PASSED: Final = 16  # records drawn before that are passed over, before the others are looked up


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceWeights:
    """A weight ``2^-level * numerator / denominator`` for each record, the fraction from 1/2 to 1; 0 at ``ZERO``."""

    ZERO: ClassVar[int] = 63

    level: Rows
    numerator: Rows
    denominator: Rows

    @classmethod
    def inverse(cls, counts: Rows) -> ChoiceWeights:
        """Return weights 1 / count."""
        level = np.frexp(counts.astype(float))[1].astype(np.int64) - 1  # counts are far below 2^53
        return cls(level=level, numerator=np.int64(1) << level, denominator=counts)

    @classmethod
    def of(cls, numbers: Rows) -> ChoiceWeights:
        """Return whole numbers from 0 as weights."""
        bits = np.frexp(numbers.astype(float))[1].astype(np.int64)
        level = np.where(numbers == 0, cls.ZERO, int(bits.max(initial=0)) - bits)
        one = np.where(numbers == 0, 1, numbers)
        return cls(level=level, numerator=one, denominator=np.where(numbers == 0, 1, np.int64(1) << bits))

    def __getitem__(self, row: int) -> Fraction:
        if self.level[row] == self.ZERO:
            return Fraction(0)
        return Fraction(int(self.numerator[row]), int(self.denominator[row])) / (1 << int(self.level[row]))


class ChoiceTree:
    """Records drawn one after the other in proportion to their weights; those of weight 0 come last.

    A record is found by one random whole number and kept or put back by another: nothing is rounded. Records that were
    drawn before are passed over, which leaves the others their proportions. ``rows`` are sorted by level.
    """

    __slots__ = ("_begin", "_bounds", "_pending", "_rows", "_seen", "_shift", "_wanted", "_weights", "drawn")

    def __init__(self, rows: Rows, weights: ChoiceWeights) -> None:
        self._weights, self._seen, self._wanted, self.drawn = weights, set[int](), _FEW, list[int]()
        self._reopen(rows)

    def _reopen(self, rows: Rows) -> None:
        """Note where the levels begin, and the bounds of the weights of all records up to each."""
        level = self._weights.level[rows]
        end = int(np.searchsorted(level, ChoiceWeights.ZERO)) or rows.size
        edges = [0, *(np.flatnonzero(np.diff(level[:end])) + 1).tolist(), end] if end else [0]
        self._rows, self._pending, self._begin = rows, list[int](), edges[:-1]
        self._shift = [int(level[end - 1] - level[begin]) for begin in self._begin]
        sizes = ((b - a) << shift for (a, b), shift in zip(pairwise(edges), self._shift, strict=True))
        self._bounds = [*accumulate(sizes)]

    def left(self) -> list[tuple[int, Fraction]]:
        """Return the records that may be drawn next, with their weights."""
        found = [(row, self._weights[row]) for row in self._rows.tolist() if row not in self._seen]
        return [each for each in found if each[1]] or [(row, Fraction(1)) for row, _ in found]

    def take(self, row: int) -> int:
        """Take out a record that is left."""
        self._seen.add(row)
        return row

    def draw(self, words: Iterator[int], many: Callable[[int], Words]) -> int | None:
        """Draw one record; None where none is left. ``words`` are random, and so are ``many`` at once."""
        passed = 0
        while self._bounds:
            if not self._pending and len(self._seen) >= _FEW:
                self._wanted *= 2
                self._pending = self._several(self._wanted, words, many)
            row = self._pending.pop() if self._pending else self._one(words)
            if row not in self._seen:
                return self.take(row)
            if (passed := passed + 1) > _PASSED:  # most of the weight is gone: go on with the others
                self._reopen(self._rows[[each not in self._seen for each in self._rows.tolist()]])
                passed = 0
        return None

    def _one(self, words: Iterator[int]) -> int:
        while True:
            at = below(self._bounds[-1], words)
            own = bisect_right(self._bounds, at)
            place = self._begin[own] + ((at - (self._bounds[own - 1] if own else 0)) >> self._shift[own])
            row = int(self._rows.item(place))
            bound, kept = self._weights.denominator.item(row), self._weights.numerator.item(row)
            if kept == bound or below(bound, words) < kept:
                return row

    def _several(self, count: int, words: Iterator[int], many: Callable[[int], Words]) -> list[int]:
        """Return as ``_one`` would, up to so many at once; the last is to be used first."""
        bounds = np.array(self._bounds, dtype=np.uint64)
        at = many(2 * count).view(np.uint64) >> np.uint64(64 - self._bounds[-1].bit_length())
        at = at[at < bounds[-1]]
        own = np.searchsorted(bounds, at, side="right")
        inside = at - np.concatenate([np.zeros(1, dtype=np.uint64), bounds])[own]
        rows = self._rows[np.array(self._begin)[own] + (inside >> np.array(self._shift, np.uint64)[own]).astype(int)]
        bound, kept = self._weights.denominator[rows], self._weights.numerator[rows] << 32
        word, least = many(rows.size).astype(np.int64), kept // bound
        accepted = word < least
        for tie in np.flatnonzero(word == least):  # 32 bits do not decide: the rest of the fraction does
            accepted[tie] = below(int(bound[tie]), words) < int(kept[tie] % bound[tie])
        found: list[int] = rows[accepted].tolist()
        return found


class Choices(ABC):
    """What a method decides at random."""

    @abstractmethod
    def happens(self, chance: Fraction) -> bool:
        """Say whether an event of this probability happens."""

    @abstractmethod
    def order(self, size: int) -> Sequence[int]:
        """Return a uniformly random order of 0, ..., size - 1."""

    @abstractmethod
    def next_of(self, tree: ChoiceTree) -> int | None:
        """Draw the next record of an tree; None where none is left."""


class RandomChoices(Choices):
    """Choices by the randomness of a release."""

    def __init__(self, entropy: Entropy) -> None:
        self._many = entropy.keystream("choices").reader(0).take
        self._words = chain.from_iterable(self._many(BUFFER_WORDS).tolist() for _ in repeat(None))

    def happens(self, chance: Fraction) -> bool:
        return bernoulli(chance, self._words)

    def order(self, size: int) -> Sequence[int]:
        """Return a uniformly random order: that of random numbers of 64 bits, drawn again where two are equal."""
        while True:
            numbers = self._many(2 * size).view(np.uint64)
            found = np.argsort(numbers)
            if (np.diff(numbers[found]) > 0).all():
                order: list[int] = found.tolist()
                return order

    def next_of(self, tree: ChoiceTree) -> int | None:
        return tree.draw(self._words, self._many)


class _Scripted(Choices):
    """Choices by a list of places; beyond it the first is taken, and what there was to choose is kept."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script, self.path = script, list[tuple[int, list[Fraction]]]()

    def _one(self, chances: list[Fraction]) -> int:
        place = self._script[len(self.path)] if len(self.path) < len(self._script) else 0
        self.path.append((place, chances))
        return place

    def happens(self, chance: Fraction) -> bool:
        return self._one([chance, 1 - chance]) == 0

    def order(self, size: int) -> Sequence[int]:
        left = list(range(size))
        return [left.pop(self._one([Fraction(1, len(left))] * len(left))) for _ in range(size)]

    def next_of(self, tree: ChoiceTree) -> int | None:
        left = tree.left()
        total = sum((weight for _, weight in left), Fraction(0))
        return tree.take(left[self._one([weight / total for _, weight in left])][0]) if left else None


def law_of(run: Callable[[Choices], Hashable]) -> Law:
    """Return the exact law of what a method returns, by running it once for every sequence of choices.

    >>> law_of(lambda choices: tuple(choices.order(2)))[(1, 0)]
    Fraction(1, 2)
    """
    outcomes: dict[Hashable, Fraction] = {}
    script: list[int] = []
    while True:
        choices = _Scripted(script)
        outcome, chance = run(choices), Fraction(1)
        for place, chances in choices.path:
            chance *= chances[place]
        outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + chance
        path = choices.path
        while path and path[-1][0] + 1 == len(path[-1][1]):
            path.pop()
        if not path:
            return Law(outcomes)
        script = [place for place, _ in path[:-1]] + [path[-1][0] + 1]
