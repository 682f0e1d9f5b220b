"""Members of the swapping family as dials: each has one number, turned step by step from gentle to strong.

Everything read off a dial, losses and shares alike, is a function of the invariants of the swap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.mallows import MallowsSwap
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.shares import Shares
from stirred.mechanisms.swapping.shuffle import ShuffleSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.spec.exact import Exact, exact
from stirred.spec.family_budget import mallows_epsilon
from stirred.spec.swap_budget import smallest_psa_rate

# Rates are found to a hundredth of a percent, the loss of the Mallows swap to a hundredth.
STEPS: Final = 10_000
_LARGEST_MALLOWS: Final = 3_000

# Every member with one number: a rate, or for the Mallows swap how far its loss is below the largest tried.
MEMBERS: Final[dict[str, Callable[[dict[str, Any], Fraction], Swap]]] = {
    "permutation": lambda roles, rate: PermutationSwap(**roles, rate=rate),
    "conditioned, uniform": lambda roles, rate: ConditionedSwap(**roles, rate=rate),
    "conditioned, proportional": lambda roles, rate: ConditionedSwap(**roles, rate=rate, redraw_law="proportional"),
    "shuffle": lambda roles, rate: ShuffleSwap(**roles, rate=rate),
    "mallows": lambda roles, step: MallowsSwap(**roles, epsilon=exact(_LARGEST_MALLOWS - step * STEPS) / 100),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dial:
    """One member on the strata of one file; each step changes more records than the one before.

    ``plan`` is any swap's plan with the same match, swap and hold variables.

    >>> homes = pl.DataFrame({"county": ["A", "B"] * 50, "tenure": ["owned", "rented", "rented", "owned"] * 25})
    >>> roles = {"match": (), "swap": ("county",)}
    >>> dial = Dial(name="shuffle", roles=roles, plan=PermutationSwap(**roles, rate="1/2").plan(homes))
    >>> step = dial.first(lambda step: dial.changed(step) >= 0.2)
    >>> dial.at(step).rate, dial.loss(step).shown()
    (Fraction(203, 500), '3.50')
    """

    name: str
    roles: dict[str, Any]
    plan: SwapPlan

    @property
    def steps(self) -> int:
        """Return the last step."""
        return _LARGEST_MALLOWS if self.name == "mallows" else STEPS - 1

    @property
    def lowest(self) -> int:
        """Return the step with the smallest loss: the last, but for permutation swapping, whose loss rises again."""
        live = self.plan.strata.largest_live
        if self.name != "permutation" or live is None:
            return self.steps
        return min(self.steps, math.ceil(STEPS * float(smallest_psa_rate(live.records, bound="sharp"))))

    def at(self, step: int) -> Swap:
        """Return the swap at a step."""
        return MEMBERS[self.name](self.roles, Fraction(step, STEPS))

    def loss(self, step: int) -> Exact:
        """Return its loss."""
        swap = self.at(step)
        if isinstance(swap, MallowsSwap):
            return mallows_epsilon(swap.weight)
        ((_, found),) = swap.losses(self.plan, [Fraction(step, STEPS)])
        return found

    def areas(self, step: int) -> pl.DataFrame:
        """Return for each combination of swap values its records and the share that is expected to change."""
        return areas_changed(self.at(step), self.plan)

    def changed(self, step: int) -> float:
        """Return the share of all records that are expected to change their swap value."""
        return share_changed(self.areas(step))

    def first(self, test: Callable[[int], bool], *, last: int | None = None) -> int | None:
        """Return the gentlest step that passes a test which all stronger ones pass too; None if the last does not."""
        low, high = 0, last or self.steps
        if not test(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if test(middle) else (middle, high)
        return high


def areas_changed(swap: Swap, plan: SwapPlan) -> pl.DataFrame:
    """Return what a swap would change in each area, given any swap's plan for the same strata."""
    strata = plan.strata.with_shares(swap.moved_shares(plan.strata, plan.swap))
    return swap.changes(replace(plan, strata=strata))


def share_changed(areas: pl.DataFrame) -> float:
    """Return the share of all records that change, from those of the areas."""
    return float((areas["records"] * areas["share_changed"]).sum()) / float(areas["records"].sum())


def strata_changed(swap: Swap, plan: SwapPlan) -> Shares:
    """Return the share of records that change their swap value in each stratum."""
    margins = plan.strata.margins
    strata = plan.strata.with_shares(swap.moved_shares(plan.strata, plan.swap))
    live = np.array([stratum.live for stratum in strata.table])[margins.stratum]
    share = np.where(live, swap.changed_shares(strata, plan.swap, margins), 0.0)
    changed = np.bincount(margins.stratum, weights=share * margins.count, minlength=margins.strata)
    return np.asarray(changed / np.maximum(margins.records, 1))
