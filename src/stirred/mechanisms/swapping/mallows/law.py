"""The law of the Mallows swap (swapping theory R5): weights of permutations, and how many records move, drawn exactly.

k of n records move with weight C(n,k) d(k) theta^k, d the derangement numbers. For the number j = n - k
that stay this is, up to a constant, t^j / j! times q(n - j), where t = 1/theta and q(m) = d(m)/m!: a Poisson
law cut at n, but for a factor that is 1/e to many digits unless nearly all records stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import WORD_BITS
from stirred.randomness.inversion import Weights
from stirred.spec.swap_budget import derangements

# A draw this close to a step, relative to the whole, is left to exact arithmetic. Rounding in double
# precision stays below 8 * 2**20 * 2**-53 for the windows used here.
_CLOSE: Final = 2.0**-24
_MOST_TERMS: Final = 1 << 20
# Standard deviations on each side that double precision looks at: the rest is below exp(-_REST).
_REACH: Final = 10
DERANGED: Final = 25


_REST: Final = 40
# Of all permutations of so many records, the share that moves every one; the last stands for all further ones.
DERANGED_SHARES: Final = np.array([derangements(m) / math.factorial(m) for m in range(DERANGED)] + [math.exp(-1)])


class MovedCount:
    """The law of the number of records that move in a stratum of ``records``.

    >>> from stirred.randomness.entropy import Entropy
    >>> words = Entropy.from_os().keystream("example").reader(0)
    >>> 0 <= MovedCount(1000, Fraction(1, 50)).draw(words) <= 1000, MovedCount(9, Fraction(0)).draw(words)
    (True, 0)
    """

    def __init__(self, records: int, weight: Fraction) -> None:
        self._records = records
        self._weight = weight
        self._quick: tuple[int, npt.NDArray[np.float64]] | None = None
        if weight and records > 1:
            expected = 1 / weight
            top, bottom = expected.numerator, expected.denominator
            self._exact = Weights(
                low=0,
                high=records,
                near=min(records, int(expected)),
                ratio=lambda j: (top, bottom * (j + 1)),
                factor=self._still_deranged,
            )
            self._quick = self._cumulated()

    def draw(self, words: Iterator[int]) -> int:
        """Return the number of records that move, with exactly its probability."""
        if not self._weight or self._records < 2:
            return 0
        head = [next(words), next(words)]
        stay = self._certain((head[0] << WORD_BITS | head[1]) * 2.0**-64)
        return self._records - (self._exact.draw(chain(head, words)) if stay is None else stay)

    def draw_exactly(self, words: Iterator[int]) -> int:
        """Return the same from the same words by integers alone: the oracle of ``draw``."""
        return self._records - self._exact.draw(words) if self._weight and self._records > 1 else 0

    def _certain(self, point: float) -> int | None:
        """Return how many records stay, if double precision is enough to tell."""
        if self._quick is None:
            return None
        first, cumulated = self._quick
        target = point * cumulated[-1]
        margin = _CLOSE * cumulated[-1]
        place = int(np.searchsorted(cumulated, target))
        below = cumulated[place - 1] if place else 0.0
        if place == cumulated.size or target - below < margin or cumulated[place] - target < margin:
            return None
        return first + place

    def _cumulated(self) -> tuple[int, npt.NDArray[np.float64]] | None:
        """Return the cumulated weights around the mode in double precision, from the first number kept."""
        n, expected = self._records, float(1 / self._weight)
        reach = int(_REACH * math.sqrt(min(n, expected))) + 60
        if 2 * reach > _MOST_TERMS:
            return None
        if n - expected - reach > DERANGED:
            return _uncut(expected, reach)
        if n < expected:
            # All ratios are below n / expected: where that is far from 1, few terms count.
            reach = min(reach, int(_REST / math.log(expected / n)) + 60)
        near = min(n, int(expected))
        low = max(0, near - reach)
        terms = poisson_terms(expected, near=near, low=low, high=min(n, near + reach))
        left = n - np.arange(low, low + terms.size)
        return low, np.cumsum(terms * DERANGED_SHARES[np.minimum(left, DERANGED)])

    def _still_deranged(self, stay: int, bits: int) -> tuple[int, int]:
        """Enclose q of the records that do not stay. Beyond this many, q changes by less than 2**-bits."""
        enough = bits // 2 + 10
        moved = self._records - stay
        return _share(moved, bits) if moved <= enough else _around(enough, bits)


@lru_cache(maxsize=64)
def _uncut(expected: float, reach: int) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the cumulated weights where the stratum is so large that they do not depend on its size."""
    near = int(expected)
    low = max(0, near - reach)
    return low, np.cumsum(poisson_terms(expected, near=near, low=low, high=near + reach))


def poisson_terms(expected: float, *, near: int, low: int, high: int) -> npt.NDArray[np.float64]:
    """Return the weights t^j / j! for j from low to high, in units of that of ``near``."""
    up = np.cumprod(expected / np.arange(near + 1.0, high + 1))
    down = np.cumprod(np.arange(float(near), low, -1) / expected)
    return np.concatenate([down[::-1], [1.0], up])


@lru_cache(maxsize=4096)
def _share(moved: int, bits: int) -> tuple[int, int]:
    """Enclose d(m)/m!."""
    scaled, rest = divmod(derangements(moved) << bits, math.factorial(moved))
    return scaled, scaled + (rest > 0)


def _around(moved: int, bits: int) -> tuple[int, int]:
    """Enclose d(m)/m! for every larger m: neighbouring shares differ by 1/m!."""
    low, high = _share(moved, bits)
    return low - 1, high + 1


class MallowsCounting:
    """How many records of a stratum the Mallows swap selects; all of them move."""

    by_value = False
    derange = True

    def __init__(self, weight: Fraction) -> None:
        self._weight = weight
        self._law = lru_cache(maxsize=10_000)(lambda records: MovedCount(records, weight))

    def draw(
        self, values: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64], words: Iterator[int]
    ) -> npt.NDArray[np.int64]:
        """Return the number of records to select, in a list of one."""
        return np.array([self._law(int(counts[0])).draw(words)], dtype=np.int64)

    def __reduce__(self) -> tuple[type[MallowsCounting], tuple[Fraction]]:
        # The laws that it remembers stay here: another process finds its own.
        return MallowsCounting, (self._weight,)


def mallows_weights(n: int, weight: Fraction) -> list[Fraction]:
    """Return the probability of each permutation that moves exactly k of n records: weight^k, normalised (R5).

    >>> mallows_weights(4, Fraction(1, 3))[2:]
    [Fraction(3, 56), Fraction(1, 56), Fraction(1, 168)]
    """
    total = sum((math.comb(n, k) * derangements(k) * weight**k for k in range(n + 1)), Fraction(0))
    return [weight**k / total if derangements(k) else Fraction(0) for k in range(n + 1)]
