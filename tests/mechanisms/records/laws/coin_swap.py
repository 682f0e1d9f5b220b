"""A new member of the swapping family, in one file: a coin for each stratum, and all or nothing of it is permuted.

With probability ``rate`` the swap values of a stratum are put in uniformly random order, otherwise all stay. Every
table with the margins then has at least the probability rate/n!, and one of them 1 - rate more. Two tables are at
least two records apart, so the loss is at most 1/2 ln(1 + (1 - rate) n!/rate).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import SwapFamily
from stirred.mechanisms.records.engine import RatedSwap
from stirred.mechanisms.records.law import Kernel, Policy
from stirred.mechanisms.records.laws.counting import ClassLaw
from stirred.mechanisms.records.roles import SwapRate, SwapSettings
from stirred.mechanisms.records.strata import Shares, Strata
from stirred.randomness.bernoulli import bernoulli
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import permutation
from stirred.spec.budget import Derived
from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.given_numbers import probability


class CoinSettings(SwapSettings):
    """A rate."""

    rate: SwapRate

    def law(self) -> CoinLaw:
        return CoinLaw(rate=probability(self.rate, where="rate"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinLaw(ClassLaw):
    """Permute all records of a stratum with probability ``rate``, and none otherwise."""

    name: ClassVar[str] = "coin"
    rests_on: ClassVar[str] = "the bound in its own file"
    passes: ClassVar[tuple[str, ...]] = ()
    bound_for_every: ClassVar[str] = " of this size"

    rate: Fraction

    def policy(self, strata: Strata, swap: Coded) -> Policy:
        size = strata.largest_size
        formula = f"1/2 ln(1 + (1 - rate) n!/rate) of the largest live stratum, n records, at rate {self.rate}"
        return Derived(formula=formula, value=self._loss(size), varies=True)

    def _loss(self, records: int) -> Exact:
        if records < 2 or self.rate == 1:
            return ZERO
        return ln(1 + (1 - self.rate) * math.factorial(records) / self.rate) / 2 if self.rate else INFINITE

    def weights(self, n: int) -> list[Fraction]:
        every = self.rate / math.factorial(n)
        return [1 - self.rate + every] + [every] * n

    def bound(self, hold: Sequence[int], swap: Sequence[int]) -> Exact:
        return self._loss(sum(hold))

    def moved(self, strata: Strata, swap: Coded) -> Shares:
        return float(self.rate) * (1 - 1 / strata.records)

    def kernel(self, strata: Strata, swap: Coded) -> Kernel:
        return partial(permute_strata, strata=strata.count, rate=self.rate)


def permute_strata(
    stratum: Any, swap: Any, *, strata: int, rate: Fraction, entropy: Entropy, threads: int | None, progress: Any
) -> int:
    """Exchange swap codes in place; return how many records were selected."""
    words, selected = entropy.keystream("coin").reader(0), 0
    for code in range(strata):
        rows = np.flatnonzero(stratum == code)
        if bernoulli(rate, words):
            swap[rows] = swap[rows[permutation(rows.size, words)]]
            selected += rows.size
    return selected


class CoinSwap(RatedSwap):
    """Permute all records of a stratum with probability ``rate``, and none otherwise."""

    name: ClassVar[str] = "coin-swap"
    title: ClassVar[str] = "coin swapping"
    settings_model: ClassVar[type[SwapSettings]] = CoinSettings
    family: ClassVar[SwapFamily] = SwapFamily(stratum_settings={"rate": None})

    swap_law: CoinLaw

    @property
    def in_words(self) -> str:
        return f"Coin swapping: {', '.join(self.swap)} permuted among {self.among} at a rate of {self.swap_law.rate}."
