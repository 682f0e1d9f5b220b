"""One parent: its children's counts, jointly, from measurements to whole numbers.

Where children cannot hold what the parent holds (:mod:`feasible`), its counts are moved as little as they must. Then
comes the non-negative optimum, by our kernel on the grid or cell by cell. Rounding is controlled: whole counts next to
the optimum that keep sums, bounds and totals, along a chain of queries, each inside the one before: the total, then the
first attribute, and so on down to the cells. With the parent's cells this is a network, so that rounding cannot fail
where the optimum keeps all limits, and it is optimal. Limits off the chain leave the network: then HiGHS decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.topdown.hierarchy.schema import DETAILED, SUMMED, MarginalQuery
from stirred.mechanisms.topdown.hierarchy.tree import Flags, Level, Numbers, Places
from stirred.mechanisms.topdown.solve.feasible import Demands, best_totals, least_violation, possible, reason
from stirred.mechanisms.topdown.solve.objective import Objective, settled
from stirred.mechanisms.topdown.solve.problem import (
    NO_LIMIT,
    AreaLimits,
    LimitGroups,
    SolverMethod,
    lattice_of,
    tightened,
    unions,
    with_unions,
)
from stirred.mechanisms.topdown.solve.programs import CellSet, Quadratic, Rounding

_TOLERANCE: Final = 1e-10
_MOST_ITERATIONS: Final = 20_000
_LARGEST_PROGRAM: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverEvent:
    """Something out of the ordinary, for the manifest: where, what was done, and why."""

    level: str
    area: str
    what: str
    why: str
    amount: float = 0.0
    moves: bool = False  # whether counts of an area were moved after they had been decided on


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolverReport:
    """What happened while areas were solved for, and how many problems and iterations it took."""

    events: tuple[SolverEvent, ...] = ()
    parents: int = 0
    iterations: int = 0
    largest_gap: float = 0.0

    @staticmethod
    def of(parts: Iterable[SolverReport]) -> dict[str, Any]:
        parts = [*parts]
        return {
            "events": tuple(event for each in parts for event in each.events),
            "parents": sum(each.parents for each in parts),
            "iterations": sum(each.iterations for each in parts),
            "largest_gap": max((each.largest_gap for each in parts), default=0.0),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelStep:
    """What is the same for all parents of a level: the objective and the limits of the children, and how to proceed."""

    level: Level  # of the children
    rules: LimitGroups
    objective: Objective
    limits: AreaLimits
    method: SolverMethod
    totals_first: bool
    group: Places  # (areas,) group of areas whose total is known together
    group_total: Places  # -1 where it is not known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChildCounts(SolverReport):
    """The children of a parent: their counts in these cells (children, cells)."""

    parents: int = 1
    cells: Places
    counts: Places


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parent:
    """What a parent holds in its cells, on the part of the grid that it fills, and what is asked of its children."""

    step: LevelStep
    name: str
    children: slice
    cells: Places
    counts: Places | None  # None for an area that has no parent and may hold anything
    rows: Places  # rows of the grid that it fills
    grid: Places  # (rows, columns) cells of the schema
    sizes: tuple[int, ...]  # codes that are left of each exchangeable attribute
    held: Numbers  # (rows, columns); -1 without a parent
    row: Places  # of each cell
    column: Places
    demands: Demands
    lacks_rows: bool  # whether limits ask for rows that it does not have

    @classmethod
    def of(cls, step: LevelStep, name: str, cells: Places, counts: Places | None, children: slice) -> Parent:
        """Return a parent with these counts."""
        grid = step.rules.grid
        width = grid.lattice.width
        place = grid.place[cells]
        rows, row = np.unique(place // width, return_inverse=True)
        codes = np.unravel_index(place % width, grid.lattice.sizes) if grid.lattice.sizes else ()
        column, columns, sizes = np.zeros(len(cells), dtype=np.int64), np.zeros(1, dtype=np.int64), []
        for size, code in zip(grid.lattice.sizes, codes, strict=True):
            present, own = np.unique(code, return_inverse=True)
            column = column * len(present) + own
            columns = (columns[:, None] * size + present[None, :]).reshape(-1)
            sizes.append(len(present))
        held = np.full((len(rows), len(columns)), 0.0 if counts is not None else -1.0)
        if counts is not None:
            held[row, column] = counts
        by_row = held.sum(axis=1).astype(np.int64) if held.max(initial=-1.0) >= 0 else np.full(len(rows), NO_LIMIT)
        demands, lacks_rows = _demands(step, rows, by_row, children)
        return cls(
            step=step,
            name=name,
            children=children,
            cells=cells,
            counts=counts,
            rows=rows,
            grid=grid.cell_at[np.ix_(rows, columns)],
            sizes=tuple(sizes),
            held=held,
            row=row,
            column=column,
            demands=demands,
            lacks_rows=lacks_rows,
        )

    @property
    def published(self) -> tuple[MarginalQuery, Places] | None:
        """Return the margin that was published before of all children, and its values."""
        margin, values = self.step.rules.margin, self.step.limits.margin
        if margin is None or values is None or np.any(values[self.children] < 0):
            return None
        return margin, values[self.children]

    def event(self, what: str, why: str, amount: float, *, moves: bool = False) -> SolverEvent:
        return SolverEvent(level=self.step.level.name, area=self.name, what=what, why=why, amount=amount, moves=moves)

    def impossible(self, why: str) -> PlanError:
        """Return the error of a parent whose children cannot keep all that is known of them."""
        return bad_plan(
            f"no counts keep all that is known of {self.step.level.name} inside {self.name!r}: {why}",
            where="constraints",
            remedy="correct the bounds, totals or zeros that contradict each other",
        )


def _demands(step: LevelStep, rows: Places, by_row: Places, children: slice) -> tuple[Demands, bool]:
    """Return what limits ask in some rows, and whether they ask for others; groups that cannot bind are left out."""
    sets, limits = step.rules.groups[:, rows], step.limits.take(children)
    allowed = limits.allowed[:, rows]
    low, high = _without_implied(sets, limits.low, limits.high)
    filled = allowed.astype(np.float64) @ sets.T.astype(np.float64) > 0
    binding = (low > 0) | ((high < np.minimum(sets @ by_row, high[:, :1])) & filled)
    # A group that is everything is the total, whichever query it came from.
    total = sets.all(axis=1)
    kept = np.flatnonzero(binding.any(axis=0) & sets.any(axis=1) & ~total)
    lacks_rows = bool(np.any(low[:, ~sets.any(axis=1)] > 0) or np.any((low[:, 0] > 0) & ~allowed.any(axis=1)))
    used, group = np.unique(step.group[children], return_inverse=True)
    found = Demands(
        rows=by_row,
        allowed=allowed,
        sets=np.concatenate([np.ones((1, len(rows)), dtype=np.bool_), sets[kept]]),
        low=np.concatenate([low[:, total].max(axis=1)[:, None], low[:, kept]], axis=1),
        high=np.concatenate([high[:, total].min(axis=1)[:, None], high[:, kept]], axis=1),
        group=group.reshape(-1).astype(np.int64),
        group_total=step.group_total[used],
    )
    return found, lacks_rows


def _without_implied(sets: Flags, low: Places, high: Places) -> tuple[Places, Places]:
    """Return limits without those that another one implies: the most of a larger set, the least of a smaller one."""
    inside = (sets[:, None, :] <= sets[None, :, :]).all(axis=2)
    earlier = np.arange(len(sets))[:, None] < np.arange(len(sets))[None, :]
    same = inside & inside.T
    # Of two sets that are the same here, the first stays. What implies is implied by nothing in a circle.
    around = (inside & ~same) | (same & earlier.T)
    within = (inside & ~same) | (same & earlier)
    less = around & (high[:, None, :] <= high[:, :, None]).all(axis=0)  # the most of two implies that of one
    more = within & (low[:, :, None] >= low[:, None, :]).all(axis=0)  # the least of one implies that of two
    whole = sets.all(axis=1)
    return np.where(more.any(axis=0) & ~whole, 0, low), np.where(less.any(axis=1), NO_LIMIT, high)


def solve_children(step: LevelStep, name: str, cells: Places, counts: Places | None, children: slice) -> ChildCounts:
    """Return the children of one parent that holds ``counts`` in ``cells``; an area without a parent has None."""
    low = step.limits.low[children]
    if len(cells) == 0 and not low.any():
        return ChildCounts(cells=cells, counts=np.zeros((len(low), 0), dtype=np.int64))
    parent = Parent.of(step, name, cells, counts, children)
    events: list[SolverEvent] = []
    demands = parent.demands
    if counts is not None and (parent.lacks_rows or not possible(demands)):
        parent, moved = _failsafe(parent)
        demands, cells, counts = parent.demands, parent.cells, parent.counts
        events.append(moved)
    if counts is not None and len(low) == 1:
        return ChildCounts(cells=cells, counts=counts[None, :], events=tuple(events))
    totals = np.where(demands.low[:, 0] == demands.high[:, 0], demands.low[:, 0], -1).astype(np.float64)
    known = totals >= 0
    margin: _Margin = parent.published
    if np.any(demands.group_total >= 0) or step.totals_first:
        totals = _totals(parent, totals)
    if counts is None and known.all():
        margin = settled(step.objective.margins, step.rules.grid, float(totals[0])) or margin
    values, report, by_highs = _optimum(parent, totals, margin)
    found, further = _rounded(parent, values, np.where(known, np.rint(totals), -1).astype(np.int64))
    return ChildCounts(
        cells=cells,
        counts=found,
        events=tuple(each for each in (*events, by_highs, further) if each is not None),
        iterations=int(report[0]),
        largest_gap=float(report[4]),
    )


def solve_top(step: LevelStep, below: AreaLimits | None) -> ChildCounts:
    """Return the one area at the top, without a parent; it keeps what known totals of its children imply (case 23)."""
    rules, grid = step.rules, step.rules.grid
    everywhere = np.sort(grid.cell_at[step.limits.allowed[0]].reshape(-1))
    found = solve_children(step, step.level.geocodes[0], everywhere, None, slice(0, 1))
    if below is None:
        return found
    cuts = [*unions(rules, tightened(rules, step.limits), tightened(rules, below))]
    row = grid.place[found.cells] // grid.lattice.width
    if all(found.counts[0][rows[row]].sum() >= least for rows, least in cuts):
        return found
    rules, limits = with_unions(rules, step.limits, cuts)
    return solve_top(replace(step, rules=rules, limits=limits), None)


def _failsafe(parent: Parent) -> tuple[Parent, SolverEvent]:
    """Return the parent with its counts moved as little as children need; stop where no counts would do."""
    step, cells, counts = parent.step, parent.cells, parent.counts
    assert counts is not None
    grid, limits = step.rules.grid, step.limits.take(parent.children)
    # Rows that the parent does not have and a child may fill come in with one cell: where the parent has most.
    width = grid.lattice.width
    columns = np.bincount(grid.place[cells] % width, weights=counts, minlength=width)
    absent = np.setdiff1d(np.flatnonzero(limits.allowed.any(axis=0)), grid.place[cells] // width)
    cells = np.concatenate([cells, grid.cell_at[absent, int(columns.argmax())]])
    counts = np.concatenate([counts, np.zeros(len(absent), dtype=np.int64)])
    wide = Parent.of(step, parent.name, cells, counts, parent.children)
    demands = wide.demands
    by_row = grid.schema.keeping([DETAILED if n in grid.core else SUMMED for n in range(len(grid.schema.shape))])
    names = [grid.schema.cell_name(by_row, int(row)) for row in wide.rows]
    why = reason(demands, row_names=names, children=step.level.geocodes[parent.children])
    rows = least_violation(demands)
    if rows is None:
        raise parent.impossible(why)
    moved = counts.copy()
    for place, change in enumerate(rows - demands.rows):
        own = np.flatnonzero(wide.row == place)
        order = own[np.lexsort((own, -counts[own]))]  # the largest cells first, then the order of cells
        if change > 0:
            moved[order[0]] += change
        for cell in order if change < 0 else ():
            taken = min(int(moved[cell]), -int(change))
            moved[cell] -= taken
            change += taken
    amount = int(np.abs(rows - demands.rows).sum())
    what = f"the counts of this area were moved by {amount:,} in all, so that its children can hold them"
    kept = np.flatnonzero(moved)[np.argsort(cells[moved > 0])]
    found = Parent.of(step, parent.name, cells[kept], moved[kept], parent.children)
    return found, parent.event(what, why, amount, moves=True)


def _totals(parent: Parent, totals: Numbers) -> Numbers:
    """Return the children's totals, fixed before their cells: those known, and the nearest to the estimates."""
    if np.all(totals >= 0):
        return totals
    objective, demands = parent.step.objective, parent.demands
    variance = objective.total_variance[parent.children]
    if not np.all(np.isfinite(variance) | (totals >= 0)):
        if np.all(demands.group_total < 0):
            return totals  # an area whose total is not measured: all cells are solved for at once
        variance = np.where(np.isfinite(variance), variance, 1e12)
    found = best_totals(demands, objective.total[parent.children], variance)
    return totals if found is None else found


# ---- the non-negative optimum -----------------------------------------------------------------------------

_Margin = tuple[MarginalQuery, npt.NDArray[Any]] | None


def _optimum(parent: Parent, totals: Numbers, margin: _Margin) -> tuple[Numbers, Numbers, SolverEvent | None]:
    """Return the non-negative optimum (children, cells), and how it was found."""
    largest_total = np.abs(parent.step.objective.total[parent.children]).max(initial=0.0)
    largest = max(1.0, float(parent.held.max(initial=0.0)), float(largest_total))
    by_cell = _is_sparse(parent)
    problem = quadratic(parent, totals, margin, by_cell=by_cell)
    found, report, done = problem.by_kernel(_TOLERANCE * largest**0.5, _MOST_ITERATIONS)
    event = None
    if not done:
        better = problem.by_highs() if found.size <= _LARGEST_PROGRAM else None
        found = found if better is None else better
        what = "solved by HiGHS" if better is not None else "accepted with the gap given"
        why = f"alternating directions did not settle in {_MOST_ITERATIONS:,} iterations"
        event = parent.event(what, why, float(report[4]))
    return found[:, :, 0] if by_cell else found[:, parent.row, parent.column], report, event


def _is_sparse(parent: Parent) -> bool:
    """Say whether it is cheaper to take the cells one by one than the grid around them.

    An iteration takes cells squared for each child, against all of the grid times its structure; but first a matrix of
    the size of the cells is inverted for each kind of child.
    """
    kinds = parent.step.objective.kind[parent.children]
    cells, height, width = len(parent.cells), *parent.grid.shape
    structure = height + 4 * 2 ** len(parent.sizes)
    dense = 0.6 * len(np.unique(kinds)) * cells**3 + 50 * len(kinds) * cells**2
    return bool(parent.held[0, 0] >= 0 and dense < 85 * len(kinds) * height * width * structure)


def quadratic(parent: Parent, totals: Numbers, margin: _Margin, *, by_cell: bool) -> Quadratic:
    """Return the problem on the rows and columns of the grid that the parent fills, or each of its cells as a row."""
    objective, demands, grid = parent.step.objective, parent.demands, parent.step.rules.grid
    row = parent.row if by_cell else np.arange(len(parent.rows))
    cells = parent.cells[:, None] if by_cell else parent.grid
    held = parent.held[row, parent.column][:, None] if by_cell else parent.held
    lattice = lattice_of(() if by_cell else parent.sizes)
    free = (demands.allowed & (totals != 0)[:, None])[:, row, None] & (held != 0)[None]
    at, values = 0, totals.reshape(-1, 1, 1)
    equal = np.ones((1 if np.all(totals >= 0) else 0, len(row)), dtype=np.bool_)  # where totals are fixed
    if margin is not None:
        # A margin that was published before (section 6): groups of rows, by the columns that it keeps.
        query, fixed = margin
        at = 0 if by_cell else grid.kept_by(query)
        kept = query.cell_of[parent.cells] if by_cell else query.cell_along(grid.differing)[parent.rows]
        groups, group = np.unique(kept, return_inverse=True)
        values = np.zeros((len(totals), len(groups), lattice.groups[at]))
        values[:, group[:, None], lattice.place[at][None, :]] = fixed[:, query.cell_of[cells]]
        equal = np.arange(len(groups))[:, None] == group[None, :]
        free &= fixed[:, query.cell_of[cells]] > 0
    kinds, kind = np.unique(objective.kind[parent.children], return_inverse=True)
    most = min(int(demands.rows.sum()), NO_LIMIT)
    limited = np.any(demands.low[:, 0] > 0) or np.any(demands.high[:, 0] < most)
    sets = slice(1 if np.all(totals >= 0) or not limited else 0, None)
    return Quadratic(
        parent=held,
        free=free,
        precision=_precision(parent, objective.precision[kinds], by_cell=by_cell),
        kind=kind.reshape(-1).astype(np.int64),
        linear=objective.at(parent.children, cells),
        lattice=lattice,
        equal_groups=equal,
        equal_at=at,
        equal_to=values[:, : len(equal)],
        bound_groups=demands.sets[sets][:, row],
        lowest=demands.low[:, sets].astype(np.float64),
        highest=demands.high[:, sets].astype(np.float64),
    )


def _precision(parent: Parent, sums: Numbers, *, by_cell: bool) -> Numbers:
    """Return precisions in the rows of the grid that the parent fills, or in full for its cells."""
    from stirred.mechanisms.topdown.solve.admm_kernel import restricted

    if not by_cell:
        return sums[:, :, parent.rows[:, None], parent.rows[None, :]]
    found = np.empty((len(sums), 1, len(parent.cells), len(parent.cells)))
    places = np.ascontiguousarray(lattice_of(parent.sizes).place[:, parent.column])
    restricted(np.ascontiguousarray(sums), parent.rows[parent.row], places, found)
    return found


# ---- whole counts -----------------------------------------------------------------------------------------


def _rounded(parent: Parent, values: Numbers, totals: Places) -> tuple[Places, SolverEvent | None]:
    """Return whole counts of the children (children, cells), by a flow or by HiGHS."""
    demands, need = parent.demands, parent.counts
    chain, low, high, off_chain, allowed = _along_chain(parent, totals)
    column = np.arange(len(parent.cells), dtype=np.int64)
    if need is None:
        total = totals[0] if totals[0] >= 0 else int(np.rint(values.sum()))
        need, column = np.array([total], dtype=np.int64), np.zeros(len(parent.cells), dtype=np.int64)
    rounding = Rounding(
        values, need, column, chain, low, high, allowed, demands.group, demands.group_total, parent.step.method
    )
    for slack in () if off_chain else (0, 1, 3):
        if (found := rounding.by_kernel(slack)) is not None:
            why = "the optimum misses a limit by more than its tolerance"
            return found, parent.event(f"counts were rounded by up to {slack + 1}", why, slack) if slack else None
    for slack in (0, 1, 3, 100):
        if (found := rounding.by_highs(slack, off_chain=off_chain)) is not None:
            why = "limits overlap, so that rounding is not a flow"
            return found, parent.event(f"rounded by HiGHS, by up to {slack + 1}", why, slack)
    raise parent.impossible("no whole counts next to the optimum keep all limits")


def _along_chain(parent: Parent, totals: Places) -> tuple[Places, Places, Places, list[CellSet], Flags]:
    """Return the groups of cells along the chain, their limits by child, the limits off it, and what may be filled."""
    queries, cells, demands = parent.step.rules.chain, parent.cells, parent.demands
    chain = np.empty((len(queries), len(cells)), dtype=np.int64)
    labels = []
    for level, groups in enumerate(parent.step.rules.chain_cells):
        present, chain[level] = np.unique(groups[cells], return_inverse=True)
        labels.append(present)
    low = np.zeros((len(totals), len(chain), max(map(len, labels))), dtype=np.int64)
    high = np.full(low.shape, NO_LIMIT, dtype=np.int64)
    low[:, 0, 0] = np.maximum(demands.low[:, 0], np.maximum(totals, 0))
    high[:, 0, 0] = np.where(totals >= 0, totals, demands.high[:, 0])
    off_chain: list[CellSet] = []
    for place in range(1, len(demands.sets)):
        inside = demands.sets[place][parent.row]
        level = next((k for k, own in enumerate(chain) if _is_group(own, inside)), -1)
        if level < 0:
            off_chain.append((inside, demands.low[:, place], demands.high[:, place]))
            continue
        group = chain[level][inside][0]
        low[:, level, group] = np.maximum(low[:, level, group], demands.low[:, place])
        high[:, level, group] = np.minimum(high[:, level, group], demands.high[:, place])
    allowed = demands.allowed[:, parent.row]
    if parent.published is not None and parent.published[0] in queries:
        query, margin = parent.published
        level = queries.index(query)
        low[:, level, : len(labels[level])] = high[:, level, : len(labels[level])] = margin[:, labels[level]]
        allowed &= margin[:, query.cell_of[cells]] > 0
    return chain, low, high, off_chain, allowed


def _is_group(own: Places, inside: Flags) -> bool:
    """Say whether cells are exactly one group of a level of the chain."""
    groups = np.unique(own[inside])
    return len(groups) == 1 and bool(np.all((own == groups[0]) == inside))
