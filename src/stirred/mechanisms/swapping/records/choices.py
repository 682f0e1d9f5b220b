"""Random choices, drawn for a release or enumerated for the exact law: the same code is run with either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import below
from stirred.spec.law import Law

Rows = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """A weight ``2^-level * numerator / denominator`` for each record, the fraction from 1/2 to 1; 0 at ``ZERO``."""

    ZERO: ClassVar[int] = 63

    level: Rows
    numerator: Rows
    denominator: Rows

    @classmethod
    def inverse(cls, counts: Rows) -> Weights:
        """Return weights 1 / count."""
        level = np.frexp(counts.astype(float))[1].astype(np.int64) - 1  # counts are far below 2^53
        return cls(level=level, numerator=np.int64(1) << level, denominator=counts)

    @classmethod
    def of(cls, numbers: Rows) -> Weights:
        """Return whole numbers from 0 as weights."""
        bits = np.frexp(numbers.astype(float))[1].astype(np.int64)
        level = np.where(numbers == 0, cls.ZERO, int(bits.max(initial=0)) - bits)
        one = np.where(numbers == 0, 1, numbers)
        return cls(level=level, numerator=one, denominator=np.where(numbers == 0, 1, np.int64(1) << bits))

    def __getitem__(self, row: int) -> Fraction:
        if self.level[row] == self.ZERO:
            return Fraction(0)
        return Fraction(int(self.numerator[row]), int(self.denominator[row])) / (1 << int(self.level[row]))


class Urn:
    """Records drawn one after the other in proportion to their weights; those of weight 0 come last.

    A record is found by one random whole number and kept or put back by another: nothing is rounded. ``rows`` are
    sorted by level, and are changed.
    """

    __slots__ = ("_rows", "_slices", "_weights", "drawn")

    def __init__(self, rows: Rows, weights: Weights) -> None:
        self._rows, self._weights, self.drawn = rows, weights, list[int]()
        level = weights.level[rows]
        edges = [0, *(np.flatnonzero(np.diff(level)) + 1).tolist(), rows.size]
        self._slices = [[a, b, int(level[a])] for a, b in pairwise(edges) if b > a]

    def _open(self) -> list[list[int]]:
        left = [each for each in self._slices if each[1] > each[0]]
        return [each for each in left if each[2] < Weights.ZERO] or left

    def left(self) -> list[tuple[int, Fraction]]:
        """Return the records that may be drawn next, with their weights."""
        rows = [int(row) for a, b, _ in self._open() for row in self._rows[a:b]]
        return [(row, self._weights[row] or Fraction(1)) for row in rows]

    def draw(self, words: Iterator[int]) -> int | None:
        """Draw one record; None where none is left."""
        slices = self._open()
        if not slices:
            return None
        deepest = max(each[2] for each in slices)
        sizes = [(b - a) << (deepest - level) for a, b, level in slices]
        while True:
            at, own = below(sum(sizes), words), 0
            while at >= sizes[own]:
                at, own = at - sizes[own], own + 1
            row = int(self._rows[slices[own][0] + (at >> (deepest - slices[own][2]))])
            if below(int(self._weights.denominator[row]), words) < int(self._weights.numerator[row]):
                return self._without(slices[own], slices[own][0] + (at >> (deepest - slices[own][2])))

    def take(self, row: int) -> int:
        """Take out a record that is left."""
        own = next(each for each in self._slices if row in self._rows[each[0] : each[1]])
        return self._without(own, own[0] + int(np.flatnonzero(self._rows[own[0] : own[1]] == row)[0]))

    def _without(self, own: list[int], place: int) -> int:
        row = int(self._rows[place])
        own[1] -= 1
        self._rows[place] = self._rows[own[1]]
        return row


class Choices(ABC):
    """What a method decides at random."""

    @abstractmethod
    def happens(self, chance: Fraction) -> bool:
        """Say whether an event of this probability happens."""

    @abstractmethod
    def order(self, size: int) -> Sequence[int]:
        """Return a uniformly random order of 0, ..., size - 1."""

    @abstractmethod
    def next_of(self, urn: Urn) -> int | None:
        """Draw the next record of an urn; None where none is left."""


class Drawn(Choices):
    """Choices by the randomness of a release."""

    def __init__(self, entropy: Entropy) -> None:
        self._words = entropy.keystream("choices").reader(0)

    def happens(self, chance: Fraction) -> bool:
        """Say whether an event of this probability happens."""
        return bernoulli(chance, self._words)

    def order(self, size: int) -> Sequence[int]:
        """Return a uniformly random order."""
        found = list(range(size))
        for last in range(size - 1, 0, -1):
            other = below(last + 1, self._words)
            found[last], found[other] = found[other], found[last]
        return found

    def next_of(self, urn: Urn) -> int | None:
        """Draw the next record."""
        return urn.draw(self._words)


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

    def next_of(self, urn: Urn) -> int | None:
        left = urn.left()
        total = sum((weight for _, weight in left), Fraction(0))
        return urn.take(left[self._one([weight / total for _, weight in left])][0]) if left else None


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
