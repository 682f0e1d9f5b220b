"""The members of the swapping family on one file, by steps from the gentlest setting to the strongest.

Each swap declares its steps (``MemberScale``). Losses and shares are functions of the invariants of the swap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from stirred.data.problems import bad_plan
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import StrongerMember, share_changed
from stirred.mechanisms.records.engine import RatedSwap, Swap
from stirred.mechanisms.records.law import MemberScale
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.exact import Exact
from stirred.spec.problems import StirredError

_MOST_MARGINS: Final = 50_000
_NOTICED: Final = 0.05  # of the loss: what is less is rounding of rates
_ROLES: Final = ("match", "swap", "hold", "unit", "settings_from")


def plain_swap(**roles: Any) -> Swap:
    """Return the default swap at a rate of one half: its plan has the strata and the invariants of all members."""
    made: Any = registry.mechanism_class(registry.DEFAULT)
    swap: Swap = made(**roles, rate="1/2")
    return swap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """One member on the strata of one file; each step changes more records than the one before.

    ``plan`` is any swap's plan with the same match, swap and hold variables.

    >>> homes = pl.DataFrame({"county": ["A", "B"] * 50, "tenure": ["owned", "rented", "rented", "owned"] * 25})
    >>> roles = {"match": (), "swap": ("county",)}
    >>> found = {member.name: member for member in members(roles, plain_swap(**roles).plan(homes))}
    >>> shuffle = found["shuffle"]
    >>> step = shuffle.first(lambda step: shuffle.changed(step) >= 0.2)
    >>> shuffle.at(step).rate, shuffle.loss(step).shown()
    (Fraction(203, 500), '3.50')
    """

    made: Callable[..., Swap]
    scale: MemberScale
    roles: dict[str, Any]
    plan: SwapPlan

    @property
    def name(self) -> str:
        """Return what it is called."""
        return self.scale.name

    @property
    def lowest(self) -> int:
        """Return the step with the smallest loss: the last, unless its law loses more again at high rates."""
        strongest = self.at(1).swap_law.strongest_rate(self.plan.strata)
        return min(self.scale.steps, math.ceil((self.scale.steps + 1) * strongest))

    def at(self, step: int) -> Swap:
        """Return the swap at a step."""
        return self.made(**self.roles, **self.scale.others, **{self.scale.setting: self.scale.value(step)})

    def loss(self, step: int) -> Exact:
        """Return its loss."""
        swap = self.at(step)
        if isinstance(swap, RatedSwap):
            return swap.losses(self.plan, [swap.swap_law.base_rate])[0][1]
        found: Exact = swap.swap_law.policy(self.plan.strata, self.plan.swap).realised
        return found

    def areas(self, step: int) -> pl.DataFrame:
        """Return for each combination of swap values its records and the share that is expected to change."""
        areas: pl.DataFrame = self.at(step).areas_changed(self.plan)
        return areas

    def changed(self, step: int) -> float:
        """Return the share of all records that are expected to change their swap value."""
        return share_changed(self.areas(step))

    def first(self, test: Callable[[int], bool], *, last: int | None = None) -> int | None:
        """Return the gentlest step that passes a test which all stronger ones pass too; None if the last does not."""
        low, high = 0, last or self.scale.steps
        if not test(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if test(middle) else (middle, high)
        return high

    def changing(self, share: float) -> int | None:
        """Return the gentlest step that changes this share of all records."""
        return self.first(lambda step: self.changed(step) >= share)

    def with_loss(self, epsilon: Exact) -> Iterator[Swap]:
        """Yield the swap with a loss of at most ``epsilon``, if there is one."""
        swap = self.at(1)
        if not isinstance(swap, RatedSwap):
            yield swap.with_settings(**{swap.loss_setting: epsilon})
            return
        try:
            yield swap.with_settings(rate=swap.rate_reaching(self.plan, epsilon))
        except StirredError:
            return  # no rate of this member reaches the loss

    def has(self, swap: Swap) -> bool:
        """Say whether a swap is of this member, at any setting."""
        own = self.at(1).swap_law
        same = (getattr(own, name) == getattr(swap.swap_law, name, None) for name in self.scale.others)
        return type(own) is type(swap.swap_law) and all(same)


def members(roles: dict[str, Any], plan: SwapPlan) -> list[Member]:
    """Return all members for these roles of columns; ``plan`` is that of any of them."""
    found: list[Any] = [registry.mechanism_class(name) for name in registry.family()]
    return [Member(made=made, scale=scale, roles=roles, plan=plan) for made in found for scale in made.scales]


def relatives(data: Any, swap: Swap, *, equal: str) -> list[tuple[str, Swap]]:
    """Return the members of the family at an equal share of changed records, or at an equal loss, as ``swap``.

    ``equal`` is ``changed`` or ``epsilon``. Members that cannot reach it are left out.
    """
    if equal not in ("changed", "epsilon"):
        raise bad_plan(f"'{equal}' cannot be made equal", where="--equal", remedy="write changed or epsilon")
    plan = swap.plan(data, doubts=False)
    if plan.origin.mechanism.imputed_flag is not None:
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
    wanted = share_changed(swap.areas_changed(plan))
    found: list[tuple[str, Swap]] = []
    for member in members({name: getattr(swap, name) for name in _ROLES}, plan):
        if member.has(swap):
            found.append((member.name, swap))
        elif equal == "epsilon":
            found += [(member.name, one) for one in member.with_loss(plan.epsilon)]
        elif member.changed(member.scale.steps) >= wanted * (1 - 1e-3):
            found.append((member.name, member.at(member.changing(wanted) or member.scale.steps)))
    return found


def stronger(mechanism: Any, plan: Any) -> StrongerMember | None:
    """Return the member with the smallest loss of those that change as many records, if it is below the plan's.

    All have the same invariants, unit and measure, so losses compare. From the margins alone, without a draw; None
    where whom a swap changes is protected, or where so many margins would take minutes.
    """
    if not isinstance(mechanism, Swap) or plan.origin.mechanism.imputed_flag is not None or plan.perturbed:
        return None
    try:
        areas = mechanism.areas_changed(plan) if plan.strata.margins.count.size <= _MOST_MARGINS else None
    except StirredError:
        return None  # whom it changes is protected
    wanted = 0.0 if areas is None else share_changed(areas)
    if not wanted:
        return None
    found = [
        StrongerMember(name=member.name, setting=member.at(step).setting_in_words(loss), epsilon=loss, changed=wanted)
        for member in members({name: getattr(mechanism, name) for name in _ROLES}, plan)
        if not member.has(mechanism) and (step := member.changing(wanted)) is not None
        for loss in [member.loss(step)]
    ]
    least = min(found, key=lambda each: each.epsilon, default=None)
    return least if least and float(least.epsilon) < float(plan.epsilon) * (1 - _NOTICED) else None
