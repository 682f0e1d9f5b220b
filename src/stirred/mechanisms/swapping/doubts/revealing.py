"""Held columns that a swap value determines, and columns that show what a randomised response did.

A state that is held shows which counties came from elsewhere. This looks at the interior of the file, as ``telling.py``
does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl

from stirred.data.codes import Coded, Codes, differing, encode
from stirred.data.guessing import may_be_chance
from stirred.data.microdata import Microdata
from stirred.data.problems import listed
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.doubts.telling import LOOKS_INSIDE, telling_columns, without
from stirred.spec.doubts import Doubt

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
