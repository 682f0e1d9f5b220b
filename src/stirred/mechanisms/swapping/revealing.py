"""Held columns that tell a swapped one: the name of a county beside its number undoes the swap.

This looks at the interior of the file, so it is no part of a plan. Acting on it is safe where it corrects
the role of a column by what the column *is*; choosing rates by it would void the guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from stirred.data.codes import differing, encode
from stirred.data.microdata import Microdata
from stirred.data.problems import listed
from stirred.mechanisms.swapping.swap_plan import SwapPlan

LOOKS_INSIDE: Final = (
    "(this looks inside the file: correct the column's role by what it is; choosing settings by this voids the "
    "guarantee)"
)
# So many rows, spread over the file, show of nearly every column that it tells nothing.
_GLANCE: Final = 1_000_000


def revealing_columns(data: Microdata, plan: SwapPlan) -> Iterator[str]:
    """Warn of held columns that tell swap values."""
    held = [name for name in plan.hold if name not in plan.universe.match]
    for name, tells in told(data.households, held, of=plan.universe.swap):
        what = "the swap values" if len(tells) == len(plan.universe.swap) else listed(tells)
        yield (
            f'"{name}" is held and tells {what}, so that anybody can undo the swap: if it is another name for '
            f"the place, swap it too or leave it out with --hold {LOOKS_INSIDE}"
        )
    yield from _telling_the_response(data, plan)


def _telling_the_response(data: Microdata, plan: SwapPlan) -> Iterator[str]:
    """Warn of columns that tell the true value of a variable that gets a randomised response."""
    if plan.perturbed is None or plan.perturbed in plan.universe.swap:
        return  # what tells a swap value is warned of as it is for every swap
    others = [name for name in (*plan.exact_hold, *plan.exact_swap) if name not in plan.universe.match]
    for name, _ in told(data.households, others, of=[plan.perturbed]):
        yield (
            f'"{name}" is released and tells "{plan.perturbed}", so that the response protects nothing: leave one of '
            f"them out with --hold {LOOKS_INSIDE}"
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


def _tells(frame: pl.DataFrame, name: str, other: str) -> bool:
    column = encode(frame, [name])
    return not differing(column.codes, encode(frame, [other]).codes, count=column.count).any()
