"""Members of the swapping family that have one number: from the gentlest setting to the strongest, on one file.

Everything read off, losses and shares alike, is a function of the invariants of the swap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Stronger, share_changed
from stirred.mechanisms.records.engine import RatedSwap, Swap
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.mallows import MallowsSwap, mallows_epsilon
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.exact import Exact, exact
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import smallest_psa_rate

# Rates are found to a hundredth of a percent, the loss of the Mallows swap to a hundredth.
STEPS: Final = 10_000
_MOST_MARGINS: Final = 50_000
_NOTICED: Final = 0.05  # of the loss: what is less is rounding of rates
_LARGEST_MALLOWS: Final = 3_000

# Every member with one number: a rate, or for the Mallows swap how far its loss is below the largest tried.
MEMBERS: Final[dict[str, Callable[[dict[str, Any], Fraction], Swap]]] = {
    "permutation": lambda roles, rate: PermutationSwap(**roles, rate=rate),
    "conditioned, uniform": lambda roles, rate: ConditionedSwap(**roles, rate=rate),
    "conditioned, proportional": lambda roles, rate: ConditionedSwap(**roles, rate=rate, redraw_law="proportional"),
    "shuffle": lambda roles, rate: ShuffleSwap(**roles, rate=rate),
    "mallows": lambda roles, step: MallowsSwap(**roles, epsilon=exact(_LARGEST_MALLOWS - step * STEPS) / 100),
}


def plain_swap(**roles: Any) -> Swap:
    """Return permutation swapping at a rate of one half: its plan has the strata and the invariants of all members."""
    return PermutationSwap(**roles, rate=Fraction(1, 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemberSettings:
    """One member on the strata of one file; each step changes more records than the one before.

    ``plan`` is any swap's plan with the same match, swap and hold variables.

    >>> homes = pl.DataFrame({"county": ["A", "B"] * 50, "tenure": ["owned", "rented", "rented", "owned"] * 25})
    >>> roles = {"match": (), "swap": ("county",)}
    >>> member = MemberSettings(name="shuffle", roles=roles, plan=PermutationSwap(**roles, rate="1/2").plan(homes))
    >>> step = member.first(lambda step: member.changed(step) >= 0.2)
    >>> member.at(step).rate, member.loss(step).shown()
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
        if isinstance(swap, RatedSwap):
            return swap.losses(self.plan, [Fraction(swap.rate)])[0][1]
        assert isinstance(swap, MallowsSwap)
        return mallows_epsilon(swap.swap_law.weight)

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
    if isinstance(swap, ConditionedSwap):  # whom it moves is whom it changes, and follows from the margins alone
        return swap.areas_changed(plan)
    moved = plan.strata.with_shares(swap.swap_law.moved(plan.strata, plan.swap))
    return swap.areas_changed(replace(plan, strata=moved))


def relatives(data: Any, swap: Swap, *, equal: str) -> list[tuple[str, Swap]]:
    """Return the members of the family at an equal share of changed records, or at an equal loss, as ``swap``.

    ``equal`` is ``changed`` or ``epsilon``. Members that cannot reach it are left out.
    """
    if equal not in ("changed", "epsilon"):
        raise bad_plan(f"'{equal}' cannot be made equal", where="--equal", remedy="write changed or epsilon")
    plan = swap.plan(data, doubts=False)
    if plan.universe.imputed is not None:
        raise bad_plan(
            "the other members do not leave imputed records out",
            where="imputed",
            remedy="compare plans without it, or two plans with different rates",
        )
    if plan.perturbed is not None:
        raise bad_plan(
            f"the other members publish the counts of {plan.perturbed} that the response protects",
            where="respond",
            remedy="compare plans one by one: the specifications differ in what is published exactly",
        )
    roles: dict[str, Any] = {name: getattr(swap, name) for name in ("match", "swap", "hold", "unit", "settings_from")}
    areas = swap.areas_changed(plan)
    assert areas is not None  # without a response
    wanted = share_changed(areas)
    found: list[tuple[str, Swap]] = []
    for name, made in MEMBERS.items():
        if swap.swap_law.name == name or (
            swap.swap_law.name != "mallows" != name and swap == made(roles, Fraction(_rate(swap)))
        ):
            found.append((name, swap))
        elif equal == "epsilon":
            found += [(name, one) for one in _at_loss(name, roles, plan)]
        else:
            member = MemberSettings(name=name, roles=roles, plan=plan)
            if member.changed(member.steps) >= wanted * (1 - 1e-3):
                step = member.first(lambda step, member=member: member.changed(step) >= wanted)  # type: ignore[misc]
                found.append((name, member.at(step or member.steps)))
    return found


def stronger(mechanism: Any, plan: Any) -> Stronger | None:
    """Return the member with the smallest loss of those that change as many records, if it is below the plan's.

    All have the same invariants, unit and measure, so losses compare. From the margins alone, without a draw; None
    where whom a swap changes is protected, or where so many margins would take minutes.
    """
    if not isinstance(mechanism, Swap) or plan.universe.imputed is not None or plan.perturbed is not None:
        return None
    try:
        areas = mechanism.areas_changed(plan) if plan.strata.margins.count.size <= _MOST_MARGINS else None
    except StirredError:
        return None  # whom it changes is protected
    wanted = 0.0 if areas is None else share_changed(areas)
    if not wanted:
        return None
    roles = {name: getattr(mechanism, name) for name in ("match", "swap", "hold", "unit", "settings_from")}
    found = []
    for name in [each for each in MEMBERS if each != mechanism.swap_law.name]:
        member = MemberSettings(name=name, roles=roles, plan=plan)
        step = member.first(lambda step, member=member: member.changed(step) >= wanted)  # type: ignore[misc]
        if step is not None:
            found.append((member.loss(step), name, member.at(step)))
    least, name, swap = min(found, key=lambda each: each[0], default=(plan.epsilon, "", mechanism))
    if not name or not float(least) < float(plan.epsilon) * (1 - _NOTICED):
        return None
    return Stronger(name=name, setting=swap.setting_in_words(least), epsilon=least, changed=wanted)


def _at_loss(name: str, roles: dict[str, Any], plan: SwapPlan) -> list[Swap]:
    if name == "mallows":
        return [MallowsSwap(**roles, epsilon=plan.epsilon)]
    swap = MEMBERS[name](roles, Fraction(1, 2))
    assert isinstance(swap, RatedSwap)
    try:
        return [swap.with_settings(rate=swap.rate_reaching(plan, plan.epsilon))]
    except StirredError:
        return []  # no rate of this member reaches the loss


def _rate(swap: Swap) -> Fraction:
    return Fraction(getattr(swap, "rate", Fraction(1, 2)))
