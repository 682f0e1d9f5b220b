"""The shuffle swap: independent selection, then a plain permutation of the selected (swapping theory R7)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.swapping.laws.family import shuffle_weights
from stirred.mechanisms.swapping.laws.permutation import class_law
from stirred.mechanisms.swapping.shares import Shares, shuffle_share
from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap import PAPER, RateLike, Swap, Values
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import INFINITE, ZERO, Exact, largest
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law
from stirred.spec.shuffle_budget import margin_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSwap(Swap):
    """Select records independently with probability ``rate`` and shuffle the swap values of the selected.

    A selected record may keep its value, and nothing is drawn again. The loss falls with the rate, down to 0
    at rate 1, and with the number of records that share the rarest swap value of a stratum.

    >>> import polars as pl
    >>> swap = ShuffleSwap(match=["size"], swap=["county"], rate="1/2")
    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("ABAB"), "tenure": list("oorr")})
    >>> swap.plan(homes).specification.budget.realised
    Exact('ln(11/3)')
    """

    member: ClassVar[str] = "shuffle"
    audited: ClassVar[tuple[tuple[str, str], ...]] = (*Swap.audited, ("abcd", "wxyz"))

    rate: RateLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", probability(self.rate, where="rate"))
        Swap.__post_init__(self)

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        among = f" among records with equal {', '.join(self.match)}" if self.match else " among all records"
        return (
            f"Shuffle swapping: {', '.join(self.swap)} shuffled{among} selected at a rate of {self.rate}; everything "
            "else is held."
        )

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        return class_law(dataset, shuffle_weights(len(dataset), Fraction(self.rate)))

    def rules(self) -> tuple[list[tuple[dict[str, object], Fraction]], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        return [], Fraction(self.rate)

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        formula = (
            f"-ln p* of the rarest swap value of each live stratum at rate {self.rate} (R7); the hold margin, whose "
            "rarest value is usually a single record, is not used"
        )
        return Derived(formula=formula, value=self._loss(strata, swap), varies=True)

    def _loss(self, strata: Strata, swap: Coded) -> Exact:
        del swap
        rate = Fraction(self.rate)
        if not strata.live or rate == 1:
            return ZERO
        if rate == 0:
            return INFINITE
        margins = strata.margins
        rarest = np.full(strata.coded.count, np.iinfo(np.int64).max)
        np.minimum.at(rarest, margins.stratum, margins.count)
        # p* falls with the other records and rises with the value's own: only the extremes can decide.
        pairs: dict[int, int] = {}
        for stratum, count in zip(strata.table, rarest.tolist(), strict=True):
            if stratum.live:
                pairs[count] = max(pairs.get(count, 0), stratum.records)
        worst, reach = [], -1
        for count, records in sorted(pairs.items()):
            if records - count > reach:  # otherwise a rarer value in a larger rest costs more
                worst.append(margin_epsilon(count, rate, stratum=records))
                reach = records - count
        return largest(worst)

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum."""
        del swap
        return shuffle_share(strata.sizes, np.full(len(strata.table), float(Fraction(self.rate))))

    def _theorem(self) -> tuple[str, ...]:
        return ("R7, the shuffle swap (docs/theory/swapping-family.md)", f"Proposition 4 of {PAPER}")

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        from stirred.mechanisms.swapping.kernels.shuffled import shuffle_in_place

        shuffle_in_place(
            plan.strata.coded.codes,
            swapped,
            rates=plan.strata.rates,
            entropy=entropy.child("shuffle swap"),
            threads=self.threads,
            progress=progress,
        )
