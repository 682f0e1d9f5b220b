"""How many records of each swap value the conditioned swap selects (swapping theory R6).

The law of the counts g_s is proportional to k! times the product of C(c_s,g_s) x_s^g_s / g_s!, with k the sum of
the g_s and x_s the odds of the rate times the mass of value s. Since k! is the integral of u^k e^-u, one number u
(``mixing``) makes the counts independent.

u is drawn on the lattice of multiples of ``STEP`` instead of the line. u^k e^-u rises and then falls, so that its
sum over the lattice, times STEP, differs from the integral by at most STEP times its largest value, which is
at most k!. No probability is therefore off by more than a factor 1 + STEP or 1 - STEP, which adds at most
``LATTICE_EPSILON`` to the loss: the nearest tables are two records apart. Everything else is exact. Double
precision decides what it can tell with a margin a thousand times its own rounding, and integers of as many
digits as it takes decide the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.conditioned.mixing import STEP, Mixing, Odds, count_weights
from stirred.mechanisms.swapping.conditioned.selected_kernel import Counts, Floats, draw_counts, find_alike
from stirred.mechanisms.swapping.kernels.partition import Values
from stirred.randomness.entropy import WordReader
from stirred.spec.exact import Exact, ln

LATTICE_EPSILON: Final[Exact] = ln((1 + STEP) / (1 - STEP)) / 2

# Draws this close to a step of the distribution function, relative to the whole, go to exact arithmetic:
# sums of up to 2**20 terms are off by less than 8 * 2**20 * 2**-53 = 2**-30 of themselves.
_CLOSE: Final = 2.0**-24


class SelectedCounts:
    """The law of the selected counts of one stratum.

    ``counts`` are the records of each swap value; ``odds`` gives the odds of the rate times the mass of the value at a
    place, and ``rates`` the same in double precision.

    >>> from fractions import Fraction
    >>> from stirred.randomness.entropy import Entropy
    >>> words = Entropy.from_os().keystream("example").reader(0)
    >>> drawn = SelectedCounts(np.array([3, 2]), np.array([0.5, 0.5]), lambda place: Fraction(1, 2)).draw(words)
    >>> bool((drawn >= 0).all() and (drawn <= [3, 2]).all())
    True
    """

    def __init__(self, counts: Counts, rates: Floats, odds: Odds) -> None:
        self._counts: Counts = np.ascontiguousarray(counts, dtype=np.int64)
        self._rates, self._odds = rates, odds
        # Values alike in count and odds have equal sums.
        first, times = np.empty_like(self._counts), np.empty_like(rates)
        alike = find_alike(self._counts, rates, first, times)
        places, times = first[:alike], times[:alike]
        self._mixing = Mixing(self._counts[places], rates[places], times, lambda place: odds(int(places[place])))

    def draw(self, words: WordReader) -> Counts:
        """Return how many records of each swap value are selected."""
        point = self._mixing.draw(words)
        heads = words.take(2 * self._counts.size).astype(np.uint64)
        points = heads[0::2] << np.uint64(32) | heads[1::2]
        drawn: Counts = np.empty(self._counts.size, dtype=np.int64)
        if draw_counts(self._counts, self._rates, float(point * STEP), points, _CLOSE, drawn):
            for place in np.flatnonzero(drawn < 0).tolist():
                drawn[place] = self._draw_one(place, point, heads, words)
        return drawn

    def draw_exactly(self, words: WordReader) -> Counts:
        """Return the same from the same words by integers alone: the oracle of ``draw``."""
        point = self._mixing.draw(words, exactly=True)
        heads = words.take(2 * self._counts.size).astype(np.uint64)
        drawn = [self._draw_one(place, point, heads, words) for place in range(self._counts.size)]
        return np.array(drawn, dtype=np.int64)

    def _draw_one(self, place: int, point: int, heads: npt.NDArray[np.uint64], words: WordReader) -> int:
        count, rate = int(self._counts[place]), self._odds(place) * point * STEP
        near = min(count, int((float(rate) ** 2 + 4 * count * float(rate)) ** 0.5 - float(rate)) // 2)
        head = heads[2 * place : 2 * place + 2].tolist()
        return count_weights(count, rate, near=near).draw(chain(head, words))


_SMALL: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedCounting:
    """How many records of each swap value are selected, at one rate for each stratum.

    ``law`` is "uniform" over the swap values of the stratum, "proportional" to their counts there, or "declared":
    ``masses`` then gives the probability of each swap code, fixed beforehand and the same in every stratum.
    """

    rate: Fraction
    law: str = "uniform"
    masses: Mapping[int, Fraction] | None = None
    by_value: bool = True
    derange: bool = False

    def draw(self, values: Values, counts: Counts, words: WordReader) -> Counts:
        """Return how many records of each swap value of a stratum to select."""
        if counts.size < 2 or self.rate == 0:
            return np.zeros_like(counts)
        if self.rate == 1:
            return counts
        return self.of(values, counts).draw(words)

    def of(self, values: Values, counts: Counts) -> SelectedCounts:
        """Return the law of the selected counts of a stratum with these swap codes and their counts."""
        if self.masses is not None:
            odds = _odds(self.rate)
            exactly = [odds * self.masses[code] for code in values.tolist()]
            return SelectedCounts(counts, np.array([float(x) for x in exactly]), exactly.__getitem__)
        # Small strata are often alike.
        make = _made if counts.size <= _SMALL else _made.__wrapped__
        return make(self.rate, self.law, np.ascontiguousarray(counts, dtype=np.int64).tobytes())


@lru_cache(maxsize=64)
def _odds(rate: Fraction) -> Fraction:
    return rate / (1 - rate)


@lru_cache(maxsize=20_000)
def _made(rate: Fraction, law: str, packed: bytes) -> SelectedCounts:
    counts: Counts = np.frombuffer(packed, dtype=np.int64)
    odds, records = _odds(rate), int(counts.sum())
    if law == "uniform":
        same = odds / counts.size
        return SelectedCounts(counts, np.full(counts.size, float(same)), lambda place: same)
    rates = counts.astype(np.float64) * float(odds / records)
    return SelectedCounts(counts, rates, lambda place: odds * int(counts[place]) / records)
