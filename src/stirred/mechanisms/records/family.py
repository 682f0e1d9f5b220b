"""The members of the swapping family on one file, each by its settings from gentle to strong: what advice compares.

Losses and shares follow from the invariants of the swap, and all members have the same ones, as condition 3 of use asks
(docs/theory/conditions.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.problems import bad_plan
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.exact import Exact
from stirred.spec.problems import StirredError

_ROLES: Final = ("match", "swap", "hold", "unit", "settings_from")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberScale:
    """The settings of a swap by one number, in steps from the gentlest to the strongest.

    ``value`` returns the ``setting`` of a step as a plan writes it, by default a rate to a hundredth of a percent.
    ``others`` are the settings that all steps share.
    """

    name: str
    setting: str = "rate"
    steps: int = 9_999
    value: Callable[[int], str] = lambda step: f"{Decimal(step) / 100}%"
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FamilyMember:
    """A swap on the file of a plan; each step of its ``scale`` changes more records than the one before.

    ``plan`` is that of any swap with the same match, swap and hold variables.
    """

    kind: Any
    scale: MemberScale
    plan: SwapPlan

    @property
    def name(self) -> str:
        return self.scale.name

    def at(self, step: int) -> Any:
        """Return the swap at a step."""
        swap, scale = self.plan.origin.mechanism, self.scale
        roles = {name: getattr(swap, name) for name in _ROLES}
        return self.kind(**roles, **scale.others, **{scale.setting: scale.value(step)})

    def loss(self, step: int) -> Exact:
        """Return its loss."""
        law, strata, swap = self.at(step).swap_law, self.plan.strata, self.plan.swap
        if self.scale.setting != "rate":
            return law.policy(strata, swap).realised
        ((_, found),) = law.losses(strata, swap, [law.base_rate])
        return found

    def areas(self, step: int) -> pl.DataFrame:
        """Return for each combination of swap values its records and the share that is expected to change."""
        return self.at(step).areas_changed(self.plan)

    def losing(self, epsilon: Exact) -> int:
        """Return the gentlest step with a loss of at most ``epsilon``, or the step that loses least."""
        # That is the last, unless its law loses more again at high rates.
        strongest = self.at(1).swap_law.strongest_rate(self.plan.strata)
        lowest = min(self.scale.steps, math.ceil((self.scale.steps + 1) * strongest))
        return _gentlest(lambda step: self.loss(step) <= epsilon, last=lowest) or lowest

    def changing(self, share: float | Fraction) -> int | None:
        """Return the gentlest step that is expected to change this share of all records."""

        def enough(step: int) -> bool:
            areas = self.areas(step)
            return float((areas["records"] * areas["share_changed"]).sum()) / float(areas["records"].sum()) >= share

        return _gentlest(enough, last=self.scale.steps)

    def with_loss(self, epsilon: Exact) -> Any:
        """Return the swap with a loss of at most ``epsilon``, or None if no setting reaches it."""
        swap = self.at(1)
        try:
            wanted = swap.rate_losses(self.plan).gentlest(epsilon) if self.scale.setting == "rate" else epsilon
        except StirredError:
            return None
        return swap.with_settings(**{self.scale.setting: wanted})

    def has(self, swap: Any) -> bool:
        """Say whether a swap is of this member, at any setting."""
        same = (getattr(swap.settings, name, None) == value for name, value in self.scale.others.items())
        return type(swap) is self.kind and all(same)


def _gentlest(test: Callable[[int], bool], *, last: int) -> int | None:
    """Return the gentlest step that passes a test which all stronger ones pass too; None if the last does not."""
    low, high = 0, last
    if not test(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle, high)
    return high


def refuse_alone(plan: SwapPlan) -> None:
    """Refuse a plan with which no other member can be compared, because its invariants are its own."""
    if plan.origin.mechanism.swap_law.imputed is not None:
        raise bad_plan(
            "the other members do not leave imputed records out",
            where="imputed",
            remedy="compare plans without it, or two plans with different rates",
        )
    if plan.perturbed:
        raise bad_plan(
            f"the other members publish the counts of {', '.join(plan.perturbed)} that the response protects",
            where="respond",
            remedy="compare plans one by one: the specifications differ in what is published exactly",
        )
