"""Swaps of the family side by side on one file: what each promises, what each costs, whom it moves.

Losses, shares and the errors from the margins are functions of the invariants, so that looking at them is no
disclosure; errors from the interior are marked by their source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from stirred.data.problems import bad_plan
from stirred.mechanisms.swapping.mallows import MallowsSwap
from stirred.mechanisms.swapping.moments.class_laws import WITH_MOMENTS, TooLargeError
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.spec.exact import Exact
from stirred.spec.problems import StirredError
from stirred.utility.dials import MEMBERS, Dial, areas_changed, share_changed
from stirred.utility.expected import ExpectedError, expected_error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """One swap on the file."""

    name: str
    mechanism: Swap
    plan: SwapPlan
    areas: pl.DataFrame | None
    errors: tuple[tuple[str, ExpectedError], ...] = ()

    @property
    def epsilon(self) -> Exact:
        """Return its loss."""
        return self.plan.epsilon

    @property
    def moved(self) -> float | None:
        """Return the share of all records that move: their new value may be the same."""
        return self.plan.strata.moved

    @property
    def changed(self) -> float | None:
        """Return the share of all records whose swap value changes: what a table can notice; None if protected."""
        return None if self.areas is None else share_changed(self.areas)

    @property
    def smallest_area(self) -> tuple[str, int, float] | None:
        """Return the area with the fewest records, how many it has, and which share of them changes."""
        if self.areas is None:
            return None
        row = self.areas.sort("records").row(0)
        return " ".join(str(value) for value in row[:-2]), int(row[-2]), float(row[-1])


def compare_swaps(
    data: Any, swaps: Sequence[tuple[str, Swap]], *, tables: Sequence[Sequence[str]] = (), source: str = "margins"
) -> list[Compared]:
    """Return the swaps side by side; ``tables`` get their expected error, from ``source`` (see ``expected_error``).

    >>> from stirred import PermutationSwap
    >>> homes = pl.DataFrame({"size": [1] * 6, "county": list("AAABBC"), "tenure": list("oorror")})
    >>> one = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    >>> [(each.name, each.epsilon.shown()) for each in compare_swaps(homes, [("ours", one)])]
    [('ours', '1.70')]
    """
    found = []
    for name, swap in swaps:
        plan = swap.plan(data)
        errors = []
        households = getattr(data, "households", data)
        for variables in tables if swap.stratum_law in WITH_MOMENTS else ():
            with suppress(TooLargeError):
                error = expected_error(households, swap, variables=list(variables), source=source)
                errors.append((" x ".join(variables), error))
        # Counts of a swap variable that gets a response are protected: settings must not be chosen by them.
        areas = None if plan.perturbed in plan.universe.swap else swap.changes(plan)
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
    if plan.perturbed is not None:
        raise bad_plan(
            f"the other members publish the counts of {plan.perturbed} that the response protects",
            where="respond",
            remedy="compare plans one by one: the specifications differ in what is published exactly",
        )
    roles: dict[str, Any] = {name: getattr(swap, name) for name in ("match", "swap", "hold", "unit", "settings_from")}
    wanted = share_changed(areas_changed(swap, plan))
    # Members with settings beside their one number, such as distances, are shown as they were given.
    alone = swap.member in ("metric", "gibbs")
    found: list[tuple[str, Swap]] = [(swap.member, swap)] if alone else []
    for name, made in MEMBERS.items():
        if swap.member == name or (swap.member != "mallows" != name and swap == made(roles, Fraction(_rate(swap)))):
            found.append((name, swap))
        elif equal == "epsilon":
            found += [(name, one) for one in _at_loss(name, made, roles, plan)]
        else:
            dial = Dial(name=name, roles=roles, plan=plan)
            if dial.changed(dial.steps) >= wanted * (1 - 1e-3):
                step = dial.first(lambda step, dial=dial: dial.changed(step) >= wanted)  # type: ignore[misc]
                found.append((name, dial.at(step or dial.steps)))
    return found


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
