"""Why a swap is proposed, in a few plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from stirred.data.problems import number
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.utility.wishes import Wishes

if TYPE_CHECKING:
    from stirred.utility.advice import Proposal

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
