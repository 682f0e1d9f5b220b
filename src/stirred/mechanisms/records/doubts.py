"""Doubts about a promise as a whole: too little moves, nothing is promised, or the settings rest on the file itself."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from stirred.data.codes import Coded
from stirred.data.record_doubts import similar_values
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.strata import Strata
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.number_text import percent

# Who changes with a smaller probability is published as it is.
LEAST: Final = "1 in 1,000"
# Of so many records that are swapped one at least must get other values than it had.
_LEAST_NEW: Final = 10


def nothing_moves(why: str) -> Doubt:
    """Return the doubt about a release that would be a copy of the file; it cannot be accepted."""
    return Doubt(
        kind="nothing-moves",
        what=f"{why}: the file would be published as it is, and nothing protects it",
        remedy="swap a variable that differs between records with the same match values, match on fewer variables, and "
        "choose a higher rate",
        final=True,
    )


def no_bound(when: str) -> Doubt:
    """Return the doubt about an infinite loss."""
    what = f"{when} nothing is promised: epsilon is infinite"
    return nothing_promised(what, remedy="choose a rate above 0 and below 1")


def empty_promise(plan: SwapPlan) -> Iterator[Doubt]:
    """Yield the doubts about a plan that leaves the file, or most of it, as it is, or promises nothing.

    Where it is protected how many records change, records that move are counted instead, which are more.
    """
    changed = plan.expected_change
    expected = plan.strata.most_moved if changed is None else changed.expected
    if plan.strata.largest_live is None:
        yield nothing_moves("nothing can be swapped, since no two records could exchange different values")
    elif all(rate.highest == 0 for rate in plan.strata.rates):
        yield nothing_moves("at a rate of 0 nothing is swapped and nothing is promised")
    elif expected < 1:
        yield nothing_moves("fewer than one record is expected to get other values")
    else:
        if plan.epsilon.is_infinite:
            yield no_bound("at a rate of 0 or 1")
        yield from _mostly_unmoved(plan)


def _mostly_unmoved(plan: SwapPlan) -> Iterator[Doubt]:
    """Yield the doubt about a file of which more than half is published as it is, or nearly certainly so.

    That is where nothing can move, where rates are next to 0, and where nearly all records of a stratum have the same
    swap values: a record that moves there gets the values it had.
    """
    records, moved, changed = int(plan.strata.records.sum()), plan.strata.most_moved, plan.expected_change
    still = plan.strata.unmoved_records if changed is None else changed.still
    if 2 * still > records:
        share = percent(Fraction(still, records), digits=2)
        what = f"{still:,} of {records:,} records ({share}) get other values with a probability below {LEAST}, or never"
    elif changed is not None and changed.expected < moved / _LEAST_NEW:
        what = (
            f"of about {moved:,.0f} records that are swapped only about {changed.expected:,.0f} get other values than "
            "they had: match and swap variables, published exactly, tell nearly every record's place"
        )
    else:
        return
    yield Doubt(
        kind="mostly-unmoved",
        what=f"{what}. The file is published nearly as it is",
        remedy="match on fewer or coarser variables, and choose a higher rate",
    )


def similar_in_roles(strata: Strata, swap: Coded) -> Iterator[Doubt]:
    """Yield doubts about values of match and swap variables that are the same but for blanks or letter case."""
    for name in strata.match:
        yield from similar_values(name, strata.coded.levels[name])
    for column in swap.levels.get_columns():
        yield from similar_values(column.name, column.unique())
