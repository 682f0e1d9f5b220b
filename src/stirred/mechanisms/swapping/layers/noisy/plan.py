"""The plan of noise after a swap: the promise that is published, and those between closer files (R15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import polars as pl

from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.layers.budget import PerturbedBudget
from stirred.mechanisms.swapping.layers.layer import between_closer
from stirred.spec.budget import Derived
from stirred.spec.exact import Exact
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.specification import Specification

_AGREED = "these counts are what the compared files agree on; the release neither keeps nor publishes them"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NoisyPlan(SwapPlan):
    """The plan of swap and noise. ``specification`` is the promise that is published: only sizes of strata are fixed.

    ``closer`` are what the same release promises between files that agree on more: on the counts of what is held,
    on those of match x swap, and on both. ``noise_alone`` is what the same noise would promise without the swap.
    """

    releases_records: ClassVar[bool] = False
    live_in_words: ClassVar[str] = "have two records or more"

    cells: Mapping[str, pl.DataFrame] = field(repr=False)
    losses: PerturbedBudget
    closer: tuple[Specification, Specification, Specification]

    @property
    def noise_alone(self) -> Exact:
        """Return the loss of the noise on tables of the file itself, in the flavor of ``specification``."""
        return self.losses.one

    @property
    def further_losses(self) -> dict[str, Exact]:
        """Return the losses between files that agree on one margin, or on both."""
        one, both = self.losses.one, self.losses.both
        return {"noise_epsilon": one, "one_margin_epsilon": one, "both_margins_epsilon": both}

    @property
    def moved_by(self) -> str:
        """Say that the noise moves nobody."""
        return ", by the swap"

    @property
    def deciding(self) -> None:
        """Return nothing: the noise sets the loss, and no stratum."""
        return

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of the tables and the matched ones; of persons there are none."""
        assert self.origin is not None
        shown = {*self.universe.match, *(name for cells in self.cells.values() for name in cells.columns)}
        return {"households": [name for name in self.origin.data.households.columns if name in shown], "persons": []}

    @property
    def disturbed(self) -> str:
        """Say that only noisy tables are published."""
        swapped = ", ".join(self.universe.swap)
        return f"every cell of the published tables gets noise, after {swapped} was swapped; no records are published"

    @property
    def also_promised(self) -> str:
        """Say what holds between closer files, and what the swap did to the noise; a function of strata sizes."""
        held, swapped, _ = (spec.multiverse.invariants[-1] for spec in self.closer)
        alone = self.noise_alone.shown()
        weakened = (
            f"The noise alone, on tables of the file as it is, would promise {alone} where this release promises "
            f"{self.epsilon.shown()}: swapping first can weaken the noise's own guarantee, because a record that "
            "changes both what is held and what is swapped becomes two changed records after the swap. "
            if self.epsilon > self.noise_alone
            else ""
        )
        return (
            f"The loss of the specification is the one to rely on. {weakened}Between files that moreover agree on the "
            f"{held}, or on the {swapped}, it is at most {alone}; between files that agree on both at most "
            f"{self.losses.both.shown()}. This release neither keeps nor publishes these counts."
        )


def closer_flavors(
    plan: SwapPlan, margins: Sequence[Margin], losses: PerturbedBudget
) -> tuple[Specification, Specification, Specification]:
    """Return the promises between files that agree on what is held, on match x swap, and on both.

    All are functions of the sizes of the strata (condition 4 of use): whether a stratum is live is not looked at.
    """
    crossed, held = margins
    once = Derived(formula="the loss of the noise, once", value=losses.one)
    smaller = f"the smaller of the loss of the noise and of that of the swap, {plan.strata.policy}, live or not"
    either = Derived(formula=smaller, value=losses.both, varies=True)
    apart = {"nearest": 2, "nearest_because": "swapping: with both tables fixed no record can change alone"}
    closer = partial(between_closer, plan.specification, agreed=_AGREED)
    return (
        closer(Multiverse(invariants=(held,)), once),
        closer(Multiverse(invariants=(crossed,)), once),
        closer(Multiverse(invariants=(crossed, held), **apart), either),  # type: ignore[arg-type]
    )
