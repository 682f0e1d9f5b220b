"""The Mallows swap: permutations are the less likely the more records they move (swapping theory R5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from stirred.data.codes import Coded
from stirred.mechanisms.protocol import Exchange, Rate, Settings, StratumAudit
from stirred.mechanisms.swapping.core.margins import Shares, mallows_share
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.roles import SwapSettings
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swap import Swap
from stirred.mechanisms.swapping.core.swapping import Kernel
from stirred.mechanisms.swapping.laws.counting import exact_loss_of_weights
from stirred.mechanisms.swapping.mallows.budget import mallows_epsilon, mallows_weight
from stirred.mechanisms.swapping.mallows.law import MallowsCounting, mallows_weights
from stirred.mechanisms.swapping.permutation.law import class_law
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import ZERO, Exact
from stirred.spec.given_numbers import Number
from stirred.spec.law import Law


class MallowsSettings(SwapSettings):
    """The loss itself."""

    epsilon: Rate = Field(description="The loss, in every stratum; there is no rate.", json_schema_extra={"example": 2})


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

    name: ClassVar[str] = "mallows-swap"
    title: ClassVar[str] = "Mallows swapping"
    settings_model: ClassVar[type[Settings]] = MallowsSettings
    member: ClassVar[str] = "mallows"
    rests_on: ClassVar[str] = "R5, Mallows swapping (docs/theory/swapping-family.md)"
    stratum_settings: ClassVar[Mapping[str, str | None]] = {"epsilon": None}
    loss_setting: ClassVar[str] = "epsilon"

    epsilon: Number

    @property
    def weight(self) -> Fraction:
        """Return the factor for each moved record: exp(-epsilon), rounded up where it is irrational."""
        return mallows_weight(self.epsilon)

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        assert isinstance(self.epsilon, Exact)
        return (
            f"Mallows swapping: {', '.join(self.swap)} exchanged among {self.among} along permutations that are less "
            f"likely by exp(-{self.epsilon}) for each record they move; everything else is held."
        )

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss (R5) on a stratum where hold and swap values occur this often, beside its bound.

        >>> MallowsSwap(match=[], swap=["county"], epsilon="ln(3)").stratum_audit((2, 2), (2, 2)).passed
        True
        """
        found = exact_loss_of_weights(hold, swap, mallows_weights(sum(hold), self.weight))
        return found.audit(mallows_epsilon(self.weight), for_every=", whatever its size")

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum."""
        return class_law(dataset, mallows_weights(len(dataset), self.weight))

    @property
    def exchange(self) -> Exchange | None:
        """Return what is exchanged within which strata."""
        return Exchange(tuple(self.match), tuple(self.swap))

    def rules(self) -> tuple[list[tuple[dict[str, object], Fraction]], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""
        # There is no rate; the weight of a moved record takes its place in the list of strata.
        return [], self.weight

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        value = mallows_epsilon(self.weight) if strata.live else ZERO
        formula = f"the parameter of the Mallows law, {self.epsilon}, in every stratum of any size; 0 if none is live"
        return Derived(formula=formula, value=value, varies=True)

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum."""
        by_size = {size: mallows_share(size, self.weight) for size in {stratum.records for stratum in strata.live}}
        return np.array([by_size.get(stratum.records, 0.0) for stratum in strata.table])

    def _kernel(self, plan: SwapPlan) -> Kernel:
        from stirred.mechanisms.swapping.kernels.counted import swap_counted_in_place

        strata, values = plan.strata.coded.count, plan.swap.count
        return partial(swap_counted_in_place, strata=strata, values=values, counting=MallowsCounting(self.weight))
