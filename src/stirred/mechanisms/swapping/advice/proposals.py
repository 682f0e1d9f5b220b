"""What is proposed for a custodian's wishes, what it falls short of, and why it is proposed, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.problems import number
from stirred.mechanisms.protocol import smallest_area
from stirred.mechanisms.swapping.advice.wishes import Area, Wishes
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.swapping import Swapping
from stirred.spec.exact import Exact

_TRAITS: Final = {
    "permutation": "It changes every group of records and every area at the same rate; its loss grows with the "
    "largest group.",
    "conditioned, uniform": "Its loss depends on how many areas there are and not on how many records; it pays for "
    "that in small areas, which change most.",
    "conditioned, proportional": "It redraws areas by their size, so that small ones change no more than large ones; "
    "its loss is set by the smallest area's share of a group and not by the number of records.",
    "shuffle": "It changes all areas at the same rate; its loss is set by how few records share the rarest value of "
    "a group.",
    "mallows": "Its loss is the number you choose in every group of records; it changes large groups most and small "
    "ones hardly.",
    "two-stage": "Its first stage exchanges among all who may exchange at all and sets the loss; its second, at the "
    "other rate, only among those with equal {fine}, whose counts by area it leaves as they are.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A wish that a swap does not meet: ``epsilon``, ``changed`` or ``undisturbed``, and by how much."""

    wish: str
    text: str
    short: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """One member at the gentlest setting that comes up to the wishes, and what it falls short of.

    ``bounded`` says that shares of areas are bounds from above, and ``changed`` that of areas spread evenly: of two
    stages no more can be told. ``mixed`` is the share of records that get values from a record that differs on
    the variables of nearly exact margins.
    """

    name: str
    mechanism: Swapping
    epsilon: Exact
    areas: pl.DataFrame
    changed: float
    undisturbed: tuple[tuple[Area, float], ...]
    mixed: float | None
    shortfalls: tuple[Shortfall, ...]
    bounded: bool = False

    @property
    def meets_all(self) -> bool:
        """Say whether it meets all wishes."""
        return not self.shortfalls

    @property
    def setting(self) -> str:
        """Return its numbers in words."""
        return self.mechanism.setting_in_words(self.epsilon)

    @property
    def in_words(self) -> str:
        """Return the member with its numbers and its loss."""
        loss = "" if self.mechanism.member == "mallows" else f", epsilon {self.epsilon.shown()}"
        return f"{self.name}, {self.setting}{loss}"

    @property
    def smallest_area(self) -> tuple[str, int, float]:
        """Return the area with the fewest records, how many it has, and which share of them changes."""
        return smallest_area(self.areas)

    @property
    def section(self) -> dict[str, Any]:
        """Return it as the section [mechanism] of a plan."""
        swap: Any = self.mechanism
        own = {
            "hold": None if swap.hold is None else list(swap.hold),
            "rate": as_percent(getattr(swap, "rate", None)),
            "epsilon": str(_decimal(swap.epsilon.rational)) if swap.member == "mallows" else None,
            "redraw_law": getattr(swap, "redraw_law", None),
            "fine_match": list(getattr(swap, "fine_match", ())) or None,
            "fine_rate": as_percent(getattr(swap, "fine_rate", None)),
            "settings_from": swap.settings_from,
        }
        roles = {"name": swap.name, "match": list(swap.match), "swap": list(swap.swap), "unit": swap.unit}
        return {**roles, **{key: value for key, value in own.items() if value is not None}}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concession:
    """What could be given up so that all other wishes are met, and by which swap.

    ``looks_inside`` marks those that rest on counts which the swap would then protect.
    """

    gives_up: str
    proposal: Proposal
    looks_inside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advice:
    """The proposals, best first, and for the first, if it meets all wishes, why it and what it promises."""

    wishes: Wishes
    proposals: tuple[Proposal, ...]
    why: tuple[str, ...]
    plan: SwapPlan
    concessions: tuple[Concession, ...] = ()

    @property
    def chosen(self) -> Proposal | None:
        """Return the proposal, or None if no member meets all wishes."""
        return self.proposals[0] if self.proposals[0].meets_all else None


def reasons(ranked: Sequence[Proposal], wishes: Wishes, plan: SwapPlan) -> Iterator[str]:
    """Yield why the match variables, why the first of the ranked proposals, and what it is like."""
    yield _matching(wishes, plan)
    best = ranked[0]
    meeting = [each for each in ranked if each.meets_all]
    if not meeting:
        yield f"No member meets all wishes; the closest is {best.name}: {'; '.join(s.text for s in best.shortfalls)}."
        return
    what = f"{best.name} ({best.setting}, epsilon {best.epsilon.shown()})"
    if len(meeting) == 1:
        yield f"Of the members of the swapping family only {what} meets your wishes."
    else:
        yield f"Of the {len(meeting)} members that meet your wishes {what} {_better(best, meeting[1], wishes)}."
    yield _TRAITS[best.name].format(fine=" x ".join(wishes.fine_match))


def _matching(wishes: Wishes, plan: SwapPlan) -> str:
    largest = plan.strata.largest_live
    records = number(largest.records if largest else 0, "record")
    if not wishes.match:
        return (
            f"No wish needs a match variable, so that all {records} may exchange {' and '.join(wishes.swap)}: counts "
            f"without {' or '.join(wishes.swap)} stay exact, and those of {' x '.join(wishes.swap)} alone."
        )
    margins = ", ".join(" x ".join(margin) for margin in wishes.demanding)
    jointly = " x ".join((*wishes.match, *wishes.swap))
    return (
        f"Matching on {' x '.join(wishes.match)} is what keeps {margins} exact, and with it all counts of {jointly}; "
        f"the largest group of records that may exchange {' and '.join(wishes.swap)} has {records}."
    )


def _better(best: Proposal, other: Proposal, wishes: Wishes) -> str:
    shares = [each.changed if each.mixed is None else each.mixed for each in (best, other)]
    shown = [f"{100 * share:.2f}%" for share in shares]
    alike = round(shares[0], 3) == round(shares[1], 3)
    if alike and best.epsilon.shown() == other.epsilon.shown():
        return f"changes as few records as any, {shown[0]}, at as small a loss; {other.name} would do as well"
    if wishes.epsilon is None or alike:
        return (
            f"loses least where {100 * best.changed:.2f}% of all records change; the next, {other.name}, has epsilon "
            f"{other.epsilon.shown()}"
        )
    if best.mixed is not None:
        apart = " x ".join(wishes.fine_match)
        return f"mixes records of different {apart} least: {shown[0]} of all; the next, {other.name}, {shown[1]}"
    return f"changes the fewest records, {shown[0]}; the next, {other.name}, {shown[1]}"


def tenths(share: float) -> str:
    """Return a share to a tenth of a percent.

    >>> tenths(0.0123), tenths(1)
    ('1.2%', '100.0%')
    """
    return f"{100 * share:.1f}%"


def as_percent(rate: Fraction | None) -> str | None:
    """Return a rate of hundredths of a percent as it is."""
    return None if rate is None else f"{_decimal(100 * rate)}%"


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
