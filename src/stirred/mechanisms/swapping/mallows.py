"""The Mallows swap: permutations are the less likely the more records they move (swapping theory R5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import Progress
from stirred.mechanisms.swapping.laws.family import mallows_weights
from stirred.mechanisms.swapping.laws.permutation import class_law
from stirred.mechanisms.swapping.shares import Shares, mallows_share
from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap import PAPER, Swap, Values
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import ZERO, Exact
from stirred.spec.family_budget import Number, mallows_epsilon, mallows_weight
from stirred.spec.given_numbers import loss
from stirred.spec.law import Law


@dataclass(frozen=True, slots=True, kw_only=True)
class MallowsSwap(Swap):
    """Swap along a permutation that moves k records with weight exp(-epsilon k), in every stratum.

    The loss is at most ``epsilon`` in every stratum, whatever its size. The number of records that keep
    their values is about Poisson with mean exp(epsilon): at a given epsilon small strata are hardly
    moved and large ones almost wholly, so this fits files of many strata of like size.

    >>> import polars as pl
    >>> swap = MallowsSwap(match=["size"], swap=["county"], epsilon=2)
    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("ABAB"), "tenure": list("oorr")})
    >>> swap.plan(homes).specification.budget.shown
    '2.00'
    """

    member: ClassVar[str] = "mallows"

    epsilon: Number

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", loss(self.epsilon, where="epsilon"))
        Swap.__post_init__(self)

    @property
    def weight(self) -> Fraction:
        """Return the factor for each moved record: exp(-epsilon), rounded up where it is irrational."""
        return mallows_weight(self.epsilon)

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        assert isinstance(self.epsilon, Exact)
        among = f" among records with equal {', '.join(self.match)}" if self.match else " among all records"
        return (
            f"Mallows swapping: {', '.join(self.swap)} exchanged{among} along permutations that are less likely by "
            f"exp(-{self.epsilon}) for each record they move; everything else is held."
        )

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        return class_law(dataset, mallows_weights(len(dataset), self.weight))

    def rules(self) -> tuple[list[tuple[dict[str, object], Fraction]], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        # There is no rate; the weight of a moved record takes its place in the list of strata.
        return [], self.weight

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        del swap
        value = mallows_epsilon(self.weight) if strata.live else ZERO
        formula = (
            f"the parameter of the Mallows law, {self.epsilon}, in every stratum of any size (R5); 0 if none is live"
        )
        return Derived(formula=formula, value=value, varies=True)

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum."""
        del swap
        by_size = {size: mallows_share(size, self.weight) for size in {stratum.records for stratum in strata.live}}
        return np.array([by_size.get(stratum.records, 0.0) for stratum in strata.table])

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return nothing: there is no rate, the loss is chosen."""
        del plan, rates
        return []

    def _theorem(self) -> tuple[str, ...]:
        return ("R5, Mallows swapping (docs/theory/swapping-family.md)", f"Proposition 4 of {PAPER}")

    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        from stirred.mechanisms.swapping.kernels.counted import swap_counted_in_place
        from stirred.mechanisms.swapping.laws.moved_count import MallowsCounting

        swap_counted_in_place(
            plan.strata.coded.codes,
            swapped,
            strata=plan.strata.coded.count,
            values=plan.swap.count,
            counting=MallowsCounting(self.weight),
            entropy=entropy.child("mallows swap"),
            threads=self.threads,
            progress=progress,
        )
