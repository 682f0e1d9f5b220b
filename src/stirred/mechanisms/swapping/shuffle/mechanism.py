"""The shuffle swap: independent selection, then a plain permutation of the selected (swapping theory R7)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import Exchange, Settings, StratumAudit
from stirred.mechanisms.swapping.core.margins import Shares, shuffle_share
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.roles import SwapRate, SwapSettings
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swap import RatedSwap, Swap
from stirred.mechanisms.swapping.core.swapping import Kernel
from stirred.mechanisms.swapping.laws.counting import exact_loss_of_weights
from stirred.mechanisms.swapping.permutation.law import class_law
from stirred.mechanisms.swapping.shuffle.budget import margin_epsilon, shuffle_epsilon
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import INFINITE, ZERO, Exact, largest
from stirred.spec.law import Law


class ShuffleSettings(SwapSettings):
    """A rate."""

    rate: SwapRate


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSwap(RatedSwap):
    """Select records independently with probability ``rate`` and shuffle the swap values of the selected.

    A selected record may keep its value, and nothing is drawn again. The loss falls with the rate, down to 0
    at rate 1, and with the number of records that share the rarest swap value of a stratum.

    >>> import polars as pl
    >>> swap = ShuffleSwap(match=["size"], swap=["county"], rate="1/2")
    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("ABAB"), "tenure": list("oorr")})
    >>> swap.plan(homes).specification.budget.realised
    Exact('ln(11/3)')
    """

    name: ClassVar[str] = "shuffle-swap"
    title: ClassVar[str] = "shuffle swapping"
    settings_model: ClassVar[type[Settings]] = ShuffleSettings
    member: ClassVar[str] = "shuffle"
    rests_on: ClassVar[str] = "R7, the shuffle swap (docs/theory/swapping-family.md)"
    stratum_settings: ClassVar[Mapping[str, str | None]] = {"rate": None}
    audited: ClassVar[tuple[tuple[str, str], ...]] = (*Swap.audited, ("abcd", "wxyz"))

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        return (
            f"Shuffle swapping: {', '.join(self.swap)} shuffled among {self.among} selected at a rate of {self.rate}; "
            "everything else is held."
        )

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss (R7) on a stratum where hold and swap values occur this often, beside its bound.

        >>> ShuffleSwap(match=[], swap=["county"], rate="1/2").stratum_audit((2, 2), (2, 1, 1)).exact_loss
        Exact('1/2*ln(8)')
        """
        rate = Fraction(self.rate)
        found = exact_loss_of_weights(hold, swap, shuffle_weights(sum(hold), rate))
        return found.audit(shuffle_epsilon(hold, swap, rate), for_every=" with these margins")

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        return class_law(dataset, shuffle_weights(len(dataset), Fraction(self.rate)))

    @property
    def exchange(self) -> Exchange | None:
        """Return what is exchanged within which strata."""
        return Exchange(tuple(self.match), tuple(self.swap))

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        formula = (
            f"-ln p* of the rarest swap value of each live stratum at rate {self.rate}; the hold margin, whose "
            "rarest value is usually a single record, is not used"
        )
        return Derived(formula=formula, value=self._loss(strata, swap), varies=True)

    def _loss(self, strata: Strata, swap: Coded) -> Exact:
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
        return shuffle_share(strata.sizes, np.full(len(strata.table), float(Fraction(self.rate))))

    def _kernel(self, plan: SwapPlan) -> Kernel:
        from stirred.mechanisms.swapping.shuffle.kernel import shuffle_in_place

        return partial(shuffle_in_place, rates=plan.strata.rates)


def shuffle_weights(n: int, rate: Fraction) -> list[Fraction]:
    """Return the probability of *each* permutation that moves exactly k of n records, for k = 0..n (R7).

    A permutation moving k records comes from every selection of m records that contains them.

    >>> shuffle_weights(2, Fraction(1, 2))
    [Fraction(7, 8), Fraction(0, 1), Fraction(1, 8)]
    """
    by_size = [rate**m * (1 - rate) ** (n - m) / math.factorial(m) for m in range(n + 1)]
    return [
        sum((math.comb(n - k, m - k) * by_size[m] for m in range(k, n + 1)), Fraction(0)) if k != 1 else Fraction(0)
        for k in range(n + 1)
    ]
