"""Margins first, at the top: what is measured well is settled before the cells under it.

The top has far more cells than people in most of them. Each empty cell whose estimate is above zero keeps it, and each
below zero is lifted to zero: sums of many such cells come out too large. So margins that are measured well are solved
for first, from coarse to fine, and then held, like totals further down (section 1.4). Only margins of exchangeable
attributes are taken. The top has no parent, and what is known of it are sums over all exchangeable attributes: any such
margin with the known total leaves a way to fill the cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stirred.mechanisms.topdown.least_squares import Floor, Model
from stirred.mechanisms.topdown.schema import DETAILED, Query
from stirred.mechanisms.topdown.solve.grid import Grid, Numbers
from stirred.mechanisms.topdown.solve.limits import coarsens

# A margin is measured well if its variance is at most this part of what the cells under it add up to.
_WELL: Final = 0.5
_TOLERANCE: Final = 1e-10
_MOST_ITERATIONS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Margin:
    """The quadratic form of a margin of the one area at the top, over the codes of exchangeable attributes."""

    query: Query
    precision: Numbers  # (sets of exchangeable attributes, 1, 1), in the sum form of the grid
    linear: Numbers  # (codes,)


def margins_of(grid: Grid, model: Model, floor: Floor, measured: Iterable[Query]) -> tuple[Margin, ...]:
    """Return the margins that are measured well at the top, each inside the next, with their best estimates."""
    found: list[Margin] = []
    widest = sorted((each for each in {*measured} if _is_margin(grid, each)), key=lambda each: (-each.size, each.name))
    for query in widest:
        if (not found or coarsens(query, found[-1].query)) and _is_measured_well(grid, model, floor, query):
            found.append(_margin(grid, model, floor, query))
    return tuple(found[::-1])


def _is_margin(grid: Grid, query: Query) -> bool:
    return 1 < query.size < grid.schema.size and not grid.rows_of(query).any()


def _sizes(model: Model, floor: Floor) -> dict[tuple[int, ...], tuple[float, float, float]]:
    """Return for each subspace the variance of the sum over rows, that of all rows added up, and what is unknown."""
    found = {}
    for each in model.spaces.all:
        known = floor.spread[model.like[each]]
        place = floor.kinds[0]
        covariance = known.covariance[place]
        blank = float(known.unknown[place].sum())
        found[each] = float(covariance.sum()), float(np.trace(covariance)), blank
    return found


def _is_measured_well(grid: Grid, model: Model, floor: Floor, query: Query) -> bool:
    sizes, kept = _sizes(model, floor), model.spaces.within(model.spaces.kept(query))
    if any(sizes[each][2] > 1e-9 for each in kept):
        return False
    outside = grid.lattice.outside[grid.kept_by(query)]
    margin = sum(model.spaces.width(each) * sizes[each][0] for each in kept) * outside
    cells = sum(model.spaces.width(each) * size for each, (_, size, _) in sizes.items())
    return bool(margin <= _WELL * cells)


def _margin(grid: Grid, model: Model, floor: Floor, query: Query) -> Margin:
    from stirred.mechanisms.topdown.solve.admm_kernel import to_sums

    spaces, lattice, sizes = model.spaces, grid.lattice, _sizes(model, floor)
    inside = {*spaces.within(spaces.kept(query))}
    largest = max(size for size, _, _ in sizes.values())
    blocks, parts = np.zeros((len(lattice.kept), 1, 1)), {}
    for place, kept in enumerate(lattice.kept):
        each = tuple(axis for axis, keeps in zip(grid.exchangeable, kept, strict=True) if keeps)
        # What is known exactly (the total) is held by an equality, and needs no precision.
        if each in inside and sizes[each][0] > 1e-9 * largest:
            blocks[place] = 1.0 / sizes[each][0]
            total = floor.mean[each][:1].sum(axis=1, keepdims=True) / sizes[each][0]
            parts[each] = np.broadcast_to(total, (1, spaces.cells, total.shape[2]))
    sums = np.empty(blocks.shape)
    to_sums(blocks, lattice.contains, lattice.outside, lattice.signs, sums)
    if not parts:
        return Margin(query=query, precision=sums, linear=np.zeros(lattice.width))
    linear = spaces.answers(grid.schema.query(DETAILED), parts)[0, grid.cells[0]]
    return Margin(query=query, precision=sums, linear=linear)


def settled(margins: Sequence[Margin], grid: Grid, total: float) -> tuple[Query, Numbers] | None:
    """Return the finest margin and its values (1, cells): not negative, nearest to the estimates, with this total.

    Each margin keeps the one before it. None if there is none, or one does not settle.
    """
    from stirred.mechanisms.topdown.solve.admm_kernel import solve_parent

    lattice = grid.lattice
    kernel: Any = solve_parent
    arrays = (lattice.place, lattice.groups, lattice.contains, lattice.outside)
    turned = np.array(lattice.sizes, dtype=np.int64), lattice.block
    one, none = np.ones((1, 1), dtype=np.bool_), np.zeros((1, 0))
    at, values = 0, np.array([total])
    for margin in margins:
        found, report = np.zeros((1, 1, lattice.width)), np.zeros(5)
        arguments: tuple[Any, ...] = (
            np.full((1, lattice.width), -1.0),
            (values[lattice.place[at]] > 0)[None, None],
            margin.precision[None],
            np.zeros(1, dtype=np.int64),
            np.ascontiguousarray(margin.linear[None, None]),
            *arrays,
            *turned,
            one,
            at,
            values[None, None],
            np.zeros((0, 1), dtype=np.bool_),
            none,
            none,
        )
        if not kernel(*arguments, _TOLERANCE * max(1.0, total) ** 0.5, _MOST_ITERATIONS, found, report):
            return None
        at = grid.kept_by(margin.query)
        values = np.bincount(lattice.place[at], weights=found[0, 0], minlength=lattice.groups[at])
        values *= total / max(values.sum(), 1e-300)
    return (margins[-1].query, values[None]) if margins else None
