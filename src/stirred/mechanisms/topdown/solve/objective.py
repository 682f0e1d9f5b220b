"""What the counts of the areas of a level should be near to: a quadratic form for each area, in information form.

The form x'Wx/2 - b'x of an area is made of its own measurements alone (W = sum Q'Q/variance, b = sum Q'y/variance), or
of all measurements in its subtree: then W is the precision of its bottom-up estimate and b is W times the estimate.
Both have W in the sum form of :class:`CellGrid`; at the leaves they are the same.

Margins come first, at the top. It has far more cells than people in most of them. Each empty cell whose estimate is
above zero keeps it, and each below zero is lifted to zero: sums of many such cells come out too large. So margins that
are measured well are solved for first, from coarse to fine, and then held, like totals further down (section 1.4). Only
margins of exchangeable attributes are taken. The top has no parent, and what is known of it are sums over all
exchangeable attributes: any such margin with the known total leaves a way to fill the cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.topdown.hierarchy.least_squares import LevelEstimates, SubspaceModel, at
from stirred.mechanisms.topdown.hierarchy.schema import DETAILED, TOTAL, MarginalQuery
from stirred.mechanisms.topdown.hierarchy.subspaces import Subspace, inverse_off
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, Level, Numbers, Places, Tree
from stirred.mechanisms.topdown.solve.problem import CellGrid, coarsens
from stirred.mechanisms.topdown.solve.programs import Quadratic

# A margin is measured well if its variance is at most this part of what the cells under it add up to.
_WELL: Final = 0.5
_TOLERANCE: Final = 1e-10
_MOST_ITERATIONS: Final = 100_000
_Sizes = dict[Subspace, tuple[float, float, float]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarginForm:
    """The quadratic form of a margin of the one area at the top, over the codes of exchangeable attributes."""

    query: MarginalQuery
    precision: Numbers  # (sets of exchangeable attributes, 1, 1), in the sum form of the grid
    linear: Numbers  # (codes,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Objective:
    """The quadratic forms of the areas of a level, and the estimates of their totals."""

    kind: Places  # (areas,) which precision
    precision: Numbers  # (kinds, sets of exchangeable attributes, a, a)
    total: Numbers  # (areas,)
    total_variance: Numbers  # (areas,), infinite where nothing is known
    linear: Numbers | None = None  # (areas, cells), or else made of the answers when it is needed
    answers: tuple[Answers, ...] = ()
    weights: Numbers | None = None  # (areas, queries)
    places: tuple[Places, ...] = ()  # for each query the cell of it that counts a cell
    margins: tuple[MarginForm, ...] = ()  # of the area at the top, that are settled before its cells

    def at(self, rows: slice, cells: Places) -> Numbers:
        """Return the linear terms of some areas and cells (areas, *shape of cells)."""
        if self.linear is not None:
            found: Numbers = self.linear[rows][:, cells]
            return np.ascontiguousarray(found)
        assert self.weights is not None
        found = np.zeros((len(self.weights[rows]), *cells.shape))
        for each, place, weight in zip(self.answers, self.places, self.weights[rows].T, strict=True):
            if weight.any():
                found += weight[:, None, None] * np.asarray(each.values[rows])[:, place[cells]]
        return found


def own_objective(grid: CellGrid, level: Level) -> Objective:
    """Return the objective of the areas' own measurements."""
    queries = [each.query for each in level.answers]
    weights = np.stack([each.precision for each in level.answers], axis=1) if queries else np.zeros((level.areas, 0))
    different, kind = np.unique(weights, axis=0, return_inverse=True)
    total, variance = np.zeros(level.areas), np.full(level.areas, np.inf)
    for each in level.answers:
        if each.query.size == 1:
            total, variance = np.asarray(each.values[:, 0], dtype=np.float64), each.variance
    return Objective(
        kind=kind.reshape(-1).astype(np.int64),
        precision=grid.precision(queries, different),
        total=total,
        total_variance=variance,
        answers=level.answers,
        weights=weights,
        places=tuple(query.cell_of for query in queries),
    )


def model_on(grid: CellGrid, queries: Sequence[MarginalQuery]) -> SubspaceModel:
    """Return the model of the linear estimates with the attributes apart as they are here."""
    seen = {each for query in queries for each in grid.within(grid.kept(query))}
    return SubspaceModel(spaces=grid, like={each: each for each in grid.all}, seen=frozenset(seen))


def bottom_up_objective(grid: CellGrid, estimates: LevelEstimates) -> Objective:
    """Return the objective of the estimates that areas have from their own subtrees."""
    inverses = {
        each: inverse_off(known.covariance, known.unknown + known.exact) for each, known in estimates.spread.items()
    }
    informed = {each: inverses[each][estimates.kinds] @ mean for each, mean in estimates.mean.items()}
    total, detailed = grid.schema.query(TOTAL), grid.schema.query(DETAILED)
    constant, ones = estimates.spread[()], grid.rows(total)
    variance = grid.scale(total) ** 2 * np.einsum("ci,nij,cj->n", ones, constant.covariance, ones)
    unknown = np.einsum("ci,nij,cj->n", ones, constant.unknown, ones) > 1e-9
    return Objective(
        kind=estimates.kinds,
        precision=grid.lattice.sums(np.stack([inverses[each] for each in grid.sets], axis=1)),
        total=grid.answers(total, estimates.mean)[:, 0],
        total_variance=np.where(unknown, np.inf, variance)[estimates.kinds],
        linear=grid.answers(detailed, informed),
    )


def collapsed(tree: Tree, model: SubspaceModel) -> Tree:
    """Return a tree that says the same of all areas above its leaves, with one leaf for all of a kind in a parent.

    Leaves with the same variances and zeros have one covariance V: the sum of n of them is known like one leaf whose
    answers are the sums and whose variances are n times as large.
    """
    leaves = tree.levels[-1]
    if len(tree.levels) == 1:
        return tree
    weights = [each.precision[:, None] for each in leaves.answers]
    zeros = [model.spaces.zeros(each) for each in leaves.known]
    given = [each.given[:, None] for each in leaves.known if each.sign == "="]
    table = np.concatenate([leaves.parent[:, None], *weights, *zeros, *given], axis=1)
    different, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    bounds = np.searchsorted(group.reshape(-1)[order], np.arange(len(different) + 1))
    counts = np.diff(bounds)

    def summed(values: npt.NDArray[np.signedinteger]) -> Places:
        # Group by group: np.add.reduceat along the first axis takes eight times as long.
        found = np.empty((len(different), values.shape[1]), dtype=np.int64)
        for place, (start, stop) in enumerate(pairwise(bounds)):
            np.add.reduce(values[order[start:stop]], axis=0, dtype=np.int64, out=found[place])
        return found

    answers = tuple(
        Answers(query=each.query, values=summed(each.values), variance=each.variance[first] * counts)
        for each in leaves.answers
    )
    known = tuple(
        Constraint(
            query=each.query,
            sign=each.sign,
            values=summed(each.values) if each.sign == "=" else each.values[first],
            given=each.given[first],
        )
        for each in leaves.known
        if each.sign != ">="
    )
    level = replace(
        leaves,
        geocodes=tuple(map(str, range(len(different)))),
        parent=leaves.parent[first],
        answers=answers,
        known=known,
    )
    return replace(tree, levels=(*tree.levels[:-1], level))


def inherited(levels: Sequence[Level]) -> list[Level]:
    """Return levels in which an area that was not measured, and has one child, has the answers of that child.

    Such an area is bypassed: its child has the budget of both, and the same histogram.
    """
    found = [levels[-1]]
    for above in reversed(levels[:-1]):
        below = found[0]
        count = np.bincount(below.parent, minlength=above.areas)
        blank = np.all([each.precision == 0 for each in above.answers] or [np.ones(above.areas, bool)], axis=0)
        alone = np.flatnonzero(blank & (count == 1))
        if len(alone) and below.answers:
            child = np.searchsorted(below.parent, alone)
            own, lent = {each.query: each for each in above.answers}, {}
            for each in below.answers:
                values, variance = (
                    np.zeros((above.areas, each.query.size), dtype=np.int64),
                    np.full(above.areas, np.inf),
                )
                if each.query in own:
                    values[:], variance[:] = own[each.query].values, own[each.query].variance
                values[alone], variance[alone] = each.values[child], each.variance[child]
                lent[each.query] = Answers(query=each.query, values=values, variance=variance)
            above = replace(above, answers=tuple((lent | own | lent).values()))  # in the order of the level below
        found.insert(0, above)
    return found


def margins_of(grid: CellGrid, estimates: LevelEstimates, measured: Iterable[MarginalQuery]) -> tuple[MarginForm, ...]:
    """Return the margins that are measured well at the top, each inside the next, with their best estimates."""
    found: list[MarginForm] = []
    top = at(estimates, 0)
    # For each subspace the variance of the sum over rows, that of all rows added up, and what is unknown.
    covariances = {each: top.spread[each].covariance[0] for each in grid.all}
    sizes = {
        each: (float(own.sum()), float(np.trace(own)), float(top.spread[each].unknown.sum()))
        for each, own in covariances.items()
    }
    margins = (each for each in {*measured} if 1 < each.size < grid.schema.size)
    for query in sorted(margins, key=lambda each: (-each.size, each.name)):
        inside = not query.cell_along(grid.differing).any() and (not found or coarsens(query, found[-1].query))
        if inside and _is_measured_well(grid, sizes, query):
            found.append(_margin(grid, top, sizes, query))
    return tuple(found[::-1])


def _is_measured_well(grid: CellGrid, sizes: _Sizes, query: MarginalQuery) -> bool:
    kept = grid.within(grid.kept(query))
    if any(sizes[each][2] > 1e-9 for each in kept):
        return False
    outside = grid.lattice.outside[grid.kept_by(query)]
    margin = sum(grid.width(each) * sizes[each][0] for each in kept) * outside
    cells = sum(grid.width(each) * size for each, (_, size, _) in sizes.items())
    return bool(margin <= _WELL * cells)


def _margin(grid: CellGrid, top: LevelEstimates, sizes: _Sizes, query: MarginalQuery) -> MarginForm:
    lattice, inside = grid.lattice, {*grid.within(grid.kept(query))}
    largest = max(size for size, _, _ in sizes.values())
    blocks, parts = np.zeros((len(lattice.kept), 1, 1)), {}
    for place, each in enumerate(grid.sets):
        # What is known exactly (the total) is held by an equality, and needs no precision.
        if each in inside and sizes[each][0] > 1e-9 * largest:
            blocks[place] = 1.0 / sizes[each][0]
            total = top.mean[each].sum(axis=1, keepdims=True) / sizes[each][0]
            parts[each] = np.broadcast_to(total, (1, grid.cells, total.shape[2]))
    linear = grid.answers(grid.schema.query(DETAILED), parts)[0, grid.cell_at[0]] if parts else np.zeros(lattice.width)
    return MarginForm(query=query, precision=lattice.sums(blocks[None])[0], linear=linear)


def settled(margins: Sequence[MarginForm], grid: CellGrid, total: float) -> tuple[MarginalQuery, Numbers] | None:
    """Return the finest margin and its values (1, cells): not negative, nearest to the estimates, with this total.

    Each margin keeps the one before it. None if there is none, or one does not settle.
    """
    at, values, lattice = 0, np.array([total]), grid.lattice
    for margin in margins:
        problem = Quadratic(
            parent=np.full((1, lattice.width), -1.0),
            free=(values[lattice.place[at]] > 0)[None, None],
            precision=margin.precision[None],
            kind=np.zeros(1, dtype=np.int64),
            linear=margin.linear[None, None],
            lattice=lattice,
            equal_groups=np.ones((1, 1), dtype=np.bool_),
            equal_at=at,
            equal_to=values[None, None],
            bound_groups=np.zeros((0, 1), dtype=np.bool_),
            lowest=np.zeros((1, 0)),
            highest=np.zeros((1, 0)),
        )
        found, _, done = problem.by_kernel(_TOLERANCE * max(1.0, total) ** 0.5, _MOST_ITERATIONS)
        if not done:
            return None
        at = grid.kept_by(margin.query)
        values = np.bincount(lattice.place[at], weights=found[0, 0], minlength=lattice.groups[at])
        values *= total / max(values.sum(), 1e-300)
    return (margins[-1].query, values[None]) if margins else None
