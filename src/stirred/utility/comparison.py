"""Swaps of the family side by side on one file: what each promises, what each costs, whom it moves.

Losses, shares and the errors from the margins are functions of the invariants, so that looking at them is no
disclosure; errors from the interior are marked by their source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.problems import bad_plan
from stirred.mechanisms.swapping.conditioned import ConditionedSwap
from stirred.mechanisms.swapping.mallows import MallowsSwap
from stirred.mechanisms.swapping.margins import SwapMargins
from stirred.mechanisms.swapping.moments import WITH_MOMENTS
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.shuffle import ShuffleSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.spec.exact import Exact, exact
from stirred.spec.problems import StirredError
from stirred.utility.expected import ExpectedError, expected_error

# Rates are found to a hundredth of a percent, the loss of the Mallows swap to a hundredth.
_STEPS: Final = 10_000
_LARGEST_MALLOWS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """One swap on the file."""

    name: str
    mechanism: Swap
    plan: SwapPlan
    areas: pl.DataFrame
    errors: tuple[tuple[str, ExpectedError], ...] = ()

    @property
    def epsilon(self) -> Exact:
        """Return its loss."""
        return self.plan.epsilon

    @property
    def moved(self) -> float:
        """Return the share of all records that get another value."""
        return self.plan.strata.moved

    @property
    def changed(self) -> float:
        """Return the share of all records whose swap value changes: what a table can notice."""
        records, share = self.areas["records"], self.areas["share_changed"]
        return float((records * share).sum()) / float(records.sum())

    @property
    def smallest_area(self) -> tuple[str, int, float]:
        """Return the area with the fewest records, how many it has, and which share of them changes."""
        row = self.areas.sort("records").row(0)
        return " ".join(str(value) for value in row[:-2]), int(row[-2]), float(row[-1])


def compare_swaps(
    data: Any, swaps: Sequence[tuple[str, Swap]], *, tables: Sequence[Sequence[str]] = (), source: str = "margins"
) -> list[Compared]:
    """Return the swaps side by side; ``tables`` get their expected error, from ``source`` (see ``expected_error``).

    >>> homes = pl.DataFrame({"size": [1] * 6, "county": list("AAABBC"), "tenure": list("oorror")})
    >>> one = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    >>> [(each.name, each.epsilon.shown()) for each in compare_swaps(homes, [("ours", one)])]
    [('ours', '1.70')]
    """
    found = []
    for name, swap in swaps:
        plan = swap.plan(data)
        errors = []
        if swap.member in WITH_MOMENTS:
            households = getattr(data, "households", data)
            errors = [
                (" x ".join(variables), expected_error(households, swap, variables=list(variables), source=source))
                for variables in tables
            ]
        areas = swap.changes(plan)
        found.append(Compared(name=name, mechanism=swap, plan=plan, areas=areas, errors=tuple(errors)))
    return found


def family_at(data: Any, swap: Swap, *, equal: str) -> list[tuple[str, Swap]]:
    """Return the members of the family at an equal share of changed records, or at an equal loss, as ``swap``.

    ``equal`` is ``changed`` or ``epsilon``. Members that cannot reach it are left out.
    """
    if equal not in ("changed", "epsilon"):
        raise bad_plan(f"'{equal}' cannot be made equal", where="--equal", remedy="write changed or epsilon")
    plan = swap.plan(data)
    if plan.universe.imputed is not None:
        raise bad_plan(
            "the other members do not leave imputed records out",
            where="imputed",
            remedy="compare plans without it, or two plans with different rates",
        )
    margins = SwapMargins.of(
        plan.strata.coded.codes, plan.swap.codes, strata=plan.strata.coded.count, values=plan.swap.count
    )
    roles: dict[str, Any] = {name: getattr(swap, name) for name in ("match", "swap", "hold", "unit", "settings_from")}
    wanted = _changed(swap, plan, margins)
    found: list[tuple[str, Swap]] = []
    for name, made in _MEMBERS.items():
        if swap.member == name or (swap.member != "mallows" != name and swap == made(roles, Fraction(_rate(swap)))):
            found.append((name, swap))
        elif equal == "epsilon":
            found += [(name, one) for one in _at_loss(name, made, roles, plan)]
        else:
            steps = _LARGEST_MALLOWS if name == "mallows" else _STEPS - 1
            one = _first(lambda step, made=made: made(roles, Fraction(step, _STEPS)), steps, wanted, plan, margins)  # type: ignore[misc]
            found += [] if one is None else [(name, one)]
    return found


# Every member with one number: a rate, or for the Mallows swap how far its loss is below the largest tried.
_MEMBERS: Final[dict[str, Callable[[dict[str, Any], Fraction], Swap]]] = {
    "permutation": lambda roles, rate: PermutationSwap(**roles, rate=rate),
    "conditioned, uniform": lambda roles, rate: ConditionedSwap(**roles, rate=rate),
    "conditioned, proportional": lambda roles, rate: ConditionedSwap(**roles, rate=rate, redraw_law="proportional"),
    "shuffle": lambda roles, rate: ShuffleSwap(**roles, rate=rate),
    "mallows": lambda roles, step: MallowsSwap(**roles, epsilon=exact(_LARGEST_MALLOWS - step * _STEPS) / 100),
}


def _at_loss(
    name: str, made: Callable[[dict[str, Any], Fraction], Swap], roles: dict[str, Any], plan: SwapPlan
) -> list[Swap]:
    if name == "mallows":
        return [MallowsSwap(**roles, epsilon=plan.epsilon)]
    try:
        return [made(roles, made(roles, Fraction(1, 2)).rate_reaching(plan, plan.epsilon))]
    except StirredError:
        return []  # no rate of this member reaches the loss


def _rate(swap: Swap) -> Fraction:
    return Fraction(getattr(swap, "rate", Fraction(1, 2)))


def _changed(swap: Swap, plan: SwapPlan, margins: SwapMargins) -> float:
    """Return the share of records whose value another swap would change, on the same strata."""
    strata = plan.strata.with_shares(swap.moved_shares(plan.strata, plan.swap))
    live = np.array([stratum.live for stratum in strata.table])[margins.stratum]
    share = np.where(live, swap.changed_shares(strata, plan.swap, margins), 0.0)
    return float(share @ margins.count / margins.count.sum())


def _first(made: Callable[[int], Swap], most: int, wanted: float, plan: SwapPlan, margins: SwapMargins) -> Swap | None:
    """Return the gentlest of a row of swaps, each changing more than the one before, that changes as much as wanted."""
    if _changed(made(most), plan, margins) < wanted * (1 - 1e-3):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _changed(made(middle), plan, margins) >= wanted else (middle, high)
    return made(high)
