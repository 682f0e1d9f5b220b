"""The law from which the conditioned swap redraws swap values: uniform, by size, or declared (swapping theory R6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from stirred.mechanisms.swapping.kernels.partition import Values
from stirred.mechanisms.swapping.kernels.selected import Counts
from stirred.mechanisms.swapping.laws.selected_counts import SelectedCounts
from stirred.randomness.entropy import WordReader

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
