"""Doubts about a promise as a whole: too little moves, nothing is promised, or the settings rest on the file itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl

from stirred.data.codes import Coded, Codes, differing, encode
from stirred.data.guessing import may_be_chance
from stirred.data.microdata import Microdata
from stirred.data.problems import listed
from stirred.mechanisms.doubts import similar_values
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.strata import Strata
from stirred.mechanisms.records.telling import LOOKS_INSIDE, telling_columns, without
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.number_text import percent

# Who changes with a smaller probability is published as it is.
LEAST: Final = "1 in 1,000"
# Of so many records that are swapped one at least must get other values than it had.
_LEAST_NEW: Final = 10


def nothing_moves(why: str) -> Doubt:
    """Return the doubt about a release that would be a copy of the file; whoever accepts it, that is not swapping."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedChange:
    """What a swap is expected to change: how many records get other values, and how many have hardly a chance to."""

    expected: float
    still: int


def empty_promise(plan: SwapPlan, changed: ExpectedChange | None = None) -> Iterator[Doubt]:
    """Yield the doubts about a plan that leaves the file, or most of it, as it is, or promises nothing.

    ``changed`` is None where that is protected; then records that move are counted instead, which are more.
    """
    expected = plan.strata.most_moved if changed is None else changed.expected
    if plan.strata.largest_live is None:
        yield nothing_moves("nothing can be swapped, since no two records could exchange different values")
    elif plan.strata.moved == 0:
        yield nothing_moves("at a rate of 0 nothing is swapped and nothing is promised")
    elif expected < 1:
        yield nothing_moves("fewer than one record is expected to get other values")
    else:
        if plan.epsilon.is_infinite:
            yield no_bound("at a rate of 0 or 1")
        yield from mostly_unmoved(plan, changed)


def mostly_unmoved(plan: SwapPlan, changed: ExpectedChange | None = None) -> Iterator[Doubt]:
    """Yield the doubt about a file of which more than half is published as it is, or nearly certainly so.

    That is where nothing can move, where rates are next to 0, and where nearly all records of a stratum have the same
    swap values: whoever moves there gets the values it had.
    """
    records = int(plan.strata.records.sum())
    still = plan.strata.unmoved_records if changed is None else changed.still
    moved = plan.strata.most_moved
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


# So many rows, spread over the file, show of nearly every column that it tells nothing.
_GLANCE: Final = 50_000


def revealing_columns(data: Microdata, plan: SwapPlan) -> Iterator[Doubt]:
    """Yield doubts about held columns that tell swap values, or are told by them."""
    held = [name for name in plan.hold if name not in plan.universe.match]
    telling = [*telling_columns(data, plan)]
    yield from telling
    yield from _telling_the_response(data, plan)
    determining = {doubt.about for doubt in telling if doubt.kind in ("tells", "regroup")}
    others = [name for name in plan.exact_hold if name not in determining]
    unbound = {doubt.about: doubt for doubt in _against_the_response(data, plan, others)}
    yield from unbound.values()
    yield from _left_behind(data, plan, [name for name in others if name in held and name not in unbound])


def _telling_the_response(data: Microdata, plan: SwapPlan) -> Iterator[Doubt]:
    """Yield columns that tell the true value of a variable that gets a randomised response."""
    if plan.perturbed is None or plan.perturbed in plan.universe.swap:
        return  # what tells a swap value is doubted as it is for every swap
    others = [name for name in (*plan.exact_hold, *plan.exact_swap) if name not in plan.universe.match]
    for name, _ in told(data.households, others, of=[plan.perturbed]):
        yield Doubt(
            kind="tells-response",
            about=name,
            what=f'"{name}" is released and determines "{plan.perturbed}": the response protects nothing',
            remedy=f"list the columns to keep with --hold, without one of them {LOOKS_INSIDE}",
        )


def _left_behind(data: Microdata, plan: SwapPlan, held: Sequence[str]) -> Iterator[Doubt]:
    """Yield held functions of the swap values: where they differ inside a stratum, a swap leaves them behind."""
    frame, names = data.households, list(plan.universe.swap)
    swap = encode(frame, names) if plan.perturbed in names else plan.swap
    for name in functions(frame, held, of=swap):
        bound = _function(frame[name], plan.strata.coded.codes, count=plan.strata.coded.count)
        if not bound and not may_be_chance(frame.height - swap.count, share=_largest_share(frame[name])):
            yield Doubt(
                kind="left-behind",
                about=name,
                what=f'"{name}" is a function of {listed(names)} and is held: a record whose {listed(names)} does not '
                f'fit shows that it was swapped, and from which "{name}"',
                remedy=f"match on it, swap it too, or {without(name)} {LOOKS_INSIDE}",
            )


def _against_the_response(data: Microdata, plan: SwapPlan, held: Sequence[str]) -> Iterator[Doubt]:
    """Yield held functions of a variable that gets a response: matching does not bind a response."""
    if plan.perturbed is None:
        return
    frame = data.households
    for name in functions(frame, held, of=encode(frame, [plan.perturbed])):
        told_already = name not in plan.universe.match and _tells(frame, name, plan.perturbed)
        if not told_already and frame[name].n_unique() > 1:
            yield Doubt(
                kind="shows-response",
                about=name,
                what=f'"{name}" is a function of "{plan.perturbed}" and is released as it is: a record whose '
                f'"{plan.perturbed}" does not fit shows that the response changed it',
                remedy=f'leave "{name}" out, or let another variable get the response {LOOKS_INSIDE}',
            )


def told(frame: pl.DataFrame, columns: Sequence[str], *, of: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns whose value tells that of another, with those it tells.

    A column that is different on most rows tells everything, and nothing that could be read from it; one
    that never varies has nothing to be told.

    >>> homes = pl.DataFrame({"zip": [1, 2, 2, 3] * 2, "county": ["A", "A", "A", "B"] * 2, "size": [1, 2, 3, 4] * 2})
    >>> list(told(homes, ["zip", "size"], of=["county"]))
    [('zip', ('county',)), ('size', ('county',))]
    >>> list(told(homes.with_columns(size=pl.Series([1, 1, 2, 1] * 2)), ["zip", "size"], of=["county"]))
    [('zip', ('county',))]
    """
    glance = frame.gather_every(max(1, frame.height // _GLANCE))
    for name in columns:
        tells = tuple(other for other in of if _tells(glance, name, other) and _tells(frame, name, other))
        tells = tuple(other for other in tells if frame[other].n_unique() > 1)
        if tells and frame[name].n_unique() <= frame.height // 2:
            yield name, tells


def functions(frame: pl.DataFrame, columns: Sequence[str], *, of: Coded) -> Iterator[str]:
    """Yield the columns that are functions of some codes; nothing is known where these are different on most rows.

    >>> homes = pl.DataFrame({"place": [11, 12, 21, 21] * 2, "state": [1, 1, 2, 2] * 2, "size": [1, 2, 3, 4] * 2})
    >>> list(functions(homes, ["state", "size"], of=encode(homes, ["place"])))
    ['state']
    """
    if of.count > frame.height // 2:
        return
    step = max(1, frame.height // _GLANCE)
    few = np.ascontiguousarray(of.codes[::step])
    for name in columns:
        glance = frame[name].gather_every(step)
        if _function(glance, few, count=of.count) and _function(frame[name], of.codes, count=of.count):
            yield name


def _largest_share(column: pl.Series) -> float:
    """Return the share of the records that have the most frequent value."""
    return int(column.value_counts(name="__records")["__records"].max()) / len(column)  # type: ignore[arg-type]


def _tells(frame: pl.DataFrame, name: str, other: str) -> bool:
    column = encode(frame, [name])
    return _function(frame[other], column.codes, count=column.count)


def _function(column: pl.Series, codes: Codes, *, count: int) -> bool:
    """Say whether a column has one value for each code."""
    return not differing(codes, encode(column.to_frame(), [column.name]).codes, count=count).any()
