"""Exact draws from laws on integers that are known by the ratios of neighbouring weights.

Inversion: a uniform number U in [0, 1) falls into the step of the distribution function that is the
outcome. The weights may be irrational, or have more digits than fit. They enter as integers that
enclose them, scaled to the largest; where U lies too close to a step to tell, U gets more bits and the
enclosures more digits, without end. So every outcome that is possible stays possible and has
exactly its probability, however small.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from stirred.randomness.entropy import WORD_BITS

# The ratio of the weights of g + 1 and g, as numerator and denominator. It must not rise with g.
Ratio = Callable[[int], tuple[int, int]]
# A factor from 0 to 1 on the weight of g, enclosed in units of 2**-bits: (low, high).
Factor = Callable[[int, int], tuple[int, int]]

_FIRST_BITS: Final = 96
_FIRST_WORDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights on low, ..., high: a product of falling ratios, times a factor from 0 to 1 if there is one.

    ``near`` is an outcome whose weight without the factor is about the largest; a poor guess costs time only.

    >>> coins = Weights(low=0, high=2, near=1, ratio=lambda g: (2 - g, g + 1))  # 1, 2, 1
    >>> [coins.draw(iter([word, 0])) for word in (0, 2**30, 2**31, 3 * 2**30)]
    [0, 1, 1, 2]
    """

    low: int
    high: int
    near: int
    ratio: Ratio
    factor: Factor | None = None
    _steps: dict[int, _Steps] = field(default_factory=dict, repr=False, compare=False)

    def draw(self, words: Iterator[int]) -> int:
        """Return an outcome with exactly its probability; reads two words, and more where they do not decide."""
        bits = _FIRST_BITS
        read = 0
        point = 0
        while True:
            wanted = _FIRST_WORDS if not read else 2 * read
            for _ in range(wanted - read):
                point = point << WORD_BITS | next(words)
            read = wanted
            found = self._table(bits).place(point, WORD_BITS * read)
            if found is not None:
                return found
            bits *= 2

    def total(self, bits: int) -> tuple[int, int]:
        """Return an enclosure of the sum of all weights, in units of 2**-bits of the weight of ``near``."""
        return self._table(bits).total

    def _table(self, bits: int) -> _Steps:
        if bits not in self._steps:
            self._steps[bits] = _enclose(self, bits)
        return self._steps[bits]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Enclosures of the cumulated weights: after outcome ``first + i`` they lie from low[i] to high[i].

    ``before`` bounds what lies below ``first``; ``total`` encloses everything; ``complete`` says that no outcome lies
    beyond the listed ones.
    """

    first: int
    before: int
    low: list[int]
    high: list[int]
    total: tuple[int, int]
    complete: bool

    def place(self, point: int, bits: int) -> int | None:
        """Return the outcome if every number from point to point + 1, in units of 2**-bits, falls into its step."""
        least, most = self.total
        # The last step that certainly ends at or before the point.
        index = bisect_right(self.high, point * least, key=lambda step: step << bits)
        begun = self.before if index == 0 else self.high[index - 1]
        if index == len(self.low) or begun << bits > point * least:
            return None
        # Nothing lies beyond the last outcome of all, and U is below 1.
        last = self.complete and index == len(self.low) - 1
        return self.first + index if last or (point + 1) * most <= self.low[index] << bits else None


def _enclose(weights: Weights, bits: int) -> _Steps:
    one = 1 << bits
    up = list(_side(weights, bits, upwards=True))
    down = list(_side(weights, bits, upwards=False))
    terms = [*reversed(down), (one, one), *up]
    first = weights.near - len(down)
    # Beyond the terms listed the weights fall by steps of at least the last ratio: a geometric sum.
    before = _rest(weights, first, terms[0][1], upwards=False)
    after = _rest(weights, first + len(terms) - 1, terms[-1][1], upwards=True)
    low, high, below, above = [], [], 0, before
    for place, (least, most) in enumerate(terms):
        if weights.factor is not None:
            small, large = weights.factor(first + place, bits)
            least, most = least * small >> bits, -(-most * large >> bits)
        below, above = below + least, above + most
        low.append(below)
        high.append(above)
    total = (below, above + after)
    return _Steps(first=first, before=before, low=low, high=high, total=total, complete=after == 0)


def _side(weights: Weights, bits: int, *, upwards: bool) -> Iterator[tuple[int, int]]:
    """Yield enclosures of the weights beyond ``near`` on one side, until they are below one unit and falling."""
    least = most = 1 << bits
    g = weights.near
    while g < weights.high if upwards else g > weights.low:
        if upwards:
            top, bottom = weights.ratio(g)
        else:
            bottom, top = weights.ratio(g - 1)
        least, most = least * top // bottom, -(-most * top // bottom)
        g += 1 if upwards else -1
        yield least, most
        if least == 0 and top < bottom:
            return


def _rest(weights: Weights, g: int, most: int, *, upwards: bool) -> int:
    """Return a bound on all weights beyond g."""
    if g == (weights.high if upwards else weights.low):
        return 0
    if upwards:
        top, bottom = weights.ratio(g)
    else:
        bottom, top = weights.ratio(g - 1)
    left = weights.high - g if upwards else g - weights.low
    # The ratios fall away from the mode, so each further weight is at most top/bottom of the one before.
    return min(left * most, -(-most * top // (bottom - top))) if top < bottom else left * most


def draw_weighted(weights: Sequence[int], words: Iterator[int]) -> int:
    """Return the place of one of these integer weights, with exactly its share of their sum as probability.

    >>> [draw_weighted([1, 0, 2], iter([word, 0])) for word in (0, 2**31)]
    [0, 2]
    """
    steps = list(accumulate(weights))
    point = read = 0
    while True:
        wanted = _FIRST_WORDS if not read else 2 * read
        for _ in range(wanted - read):
            point = point << WORD_BITS | next(words)
        read, bits = wanted, WORD_BITS * wanted
        # The first step that ends beyond the point; nothing more is read if the next point does not pass it.
        place = bisect_right(steps, point * steps[-1], key=lambda step: step << bits)
        if (point + 1) * steps[-1] <= steps[place] << bits:
            return place
