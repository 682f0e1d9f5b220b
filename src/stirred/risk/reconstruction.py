"""Reconstruction of one block from its published tables: how many persons have to be exactly there.

The unknowns are counts of kinds of persons, not persons. Kinds with an empty margin are out; propagation fixes most of
the others; what is left falls into components, each an integer program. The largest difference between the solution
found and any other is one program more: 0 means that there is one solution, and no two solutions differ in more than
twice its share of the persons (Abowd et al. 2025; their bound max(2 solvar, 100%) must be min).

Tables that were disturbed have no solution, or a wrong one. They are fitted: the persons whose tables are nearest. A
count of 0 then proves nothing, no kind of person is out, and nobody is certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stirred.risk.systems import System, nearest, propagated, solved
from stirred.risk.table_lists import TableList

_Array = npt.NDArray[Any]
Outcome = Literal["one", "several", "none", "fitted", "time limit"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockSolution:
    """What tables say of a block: a solution (``cells`` with ``counts``), and how far it is certain.

    ``certain`` persons of each cell are there in every solution. ``difference`` is how many persons of the solution at
    most have no equal in another one; of an outcome "time limit" it is a bound. ``residual`` is how far the tables of
    a "fitted" solution are from the published ones, all counts added up.
    """

    outcome: Outcome
    persons: int
    cells: _Array
    counts: _Array
    certain: _Array
    difference: int = 0
    residual: int = 0

    def agreement(self, truth: _Array) -> int:
        """Return how many persons of the solution are among the true cells of the persons."""
        found = np.zeros(max(int(truth.max(initial=0)), int(self.cells.max(initial=0))) + 1, dtype=np.int64)
        found[self.cells] = self.counts
        return int(np.minimum(found, np.bincount(truth, minlength=found.size)).sum())


def block_system(counts: Mapping[str, _Array], tables: TableList) -> tuple[System, _Array] | None:
    """Return the equations of a block and the kinds of persons that can be there; None where a count has none."""
    possible = np.ones(tables.cells, dtype=np.bool_)
    for name, category in tables.tables.items():
        possible &= (category < 0) | (counts[name] > 0)[category]
    cells = np.flatnonzero(possible)
    members, sizes, totals = [], [], []
    for name, category in tables.tables.items():
        own = category[cells]
        inside = np.flatnonzero(own >= 0)
        many = np.bincount(own[inside], minlength=counts[name].size)
        if ((many == 0) & (counts[name] > 0)).any():
            return None
        members.append(inside[np.argsort(own[inside], kind="stable")])
        sizes.append(many[many > 0])
        totals.append(counts[name][many > 0])
    start = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    return System(cells=cells.size, start=start, index=np.concatenate(members), total=np.concatenate(totals)), cells


def reconstruct(counts: Mapping[str, _Array], tables: TableList, *, seconds: float = 30.0) -> BlockSolution:
    """Return what the tables of a block say of the persons in it."""
    persons = max(int(each.sum()) for each in counts.values())
    nobody = np.zeros(0, dtype=np.int64)
    none = BlockSolution(outcome="none", persons=persons, cells=nobody, counts=nobody, certain=nobody)
    made = block_system(counts, tables)
    found = None if made is None else propagated(made[0])
    if made is None or found is None:
        return none
    (system, cells), (low, high) = made, found
    values, difference, certain = low.copy(), 0, low.copy()
    outcome: Outcome = "one"
    for own, part in components(system, low, high):
        first = solved(part, cost=np.zeros(own.size), low=low[own], high=high[own], seconds=seconds)
        if first.status == "infeasible":
            return none
        if first.status == "time limit":
            outcome, difference = "time limit", difference + int((high - low)[own].sum())
            continue
        values[own] = first.values
        away, sure = largest_difference(part, first.values, low[own], high[own], seconds=seconds)
        difference += away
        if away == 0:
            certain[own] = first.values
        elif outcome != "time limit":
            outcome = "several" if sure else "time limit"
    kept = values > 0
    return BlockSolution(
        outcome=outcome,
        persons=persons,
        cells=cells[kept],
        counts=values[kept],
        certain=certain[kept],
        difference=min(difference, persons),
    )


def fit(
    counts: Mapping[str, _Array], tables: TableList, *, weight: Mapping[str, float] | None = None, seconds: float = 30.0
) -> BlockSolution:
    """Return the persons whose tables are nearest to disturbed ones; a count that was left out is NaN.

    >>> from stirred.risk.table_lists import table_list
    >>> listed = table_list("pl")
    >>> found = fit(listed.counts(np.array([3, 3, 200])), listed)
    >>> found.cells.tolist(), found.counts.tolist(), found.residual
    ([3, 200], [2, 1], 0)
    """
    members, sizes, totals, weights = [], [], [], []
    for name, category in tables.tables.items():
        known = np.append(~np.isnan(counts[name]), False)  # -1, of a cell outside the table, is the last
        inside = np.flatnonzero(known[category])
        own = category[inside]
        many = np.bincount(own, minlength=counts[name].size)
        members.append(inside[np.argsort(own, kind="stable")])
        sizes.append(many[many > 0])
        totals.append(np.asarray(counts[name])[many > 0].astype(np.int64))
        weights.append(np.full(totals[-1].size, 1.0 if weight is None else weight[name]))
    start = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
    whole = System(cells=tables.cells, start=start, index=np.concatenate(members), total=np.concatenate(totals))
    found = nearest(whole, weight=np.concatenate(weights), seconds=seconds)
    if found.status != "solved":
        nobody = np.zeros(0, dtype=np.int64)
        return BlockSolution(outcome="time limit", persons=0, cells=nobody, counts=nobody, certain=nobody)
    cells = np.flatnonzero(found.values)
    return BlockSolution(
        outcome="fitted",
        persons=int(found.values.sum()),
        cells=cells,
        counts=found.values[cells],
        certain=np.zeros(cells.size, dtype=np.int64),
        residual=int(np.abs(whole.sums(found.values) - whole.total).sum()),
    )


def components(system: System, low: _Array, high: _Array) -> Iterator[tuple[_Array, System]]:
    """Yield the parts of a system that share no equation, without the cells that are fixed already."""
    free = low < high
    if not free.any():
        return
    entries = free[system.index]
    row, index = system.row[entries], system.index[entries]
    label = np.arange(system.cells)
    while True:
        lowest = np.full(system.total.size, system.cells)
        np.minimum.at(lowest, row, label[index])
        before = label.copy()
        np.minimum.at(label, index, lowest[row])
        if (label == before).all():
            break
    left = system.total - system.sums(np.where(free, 0, low))
    of_row = label[index]
    for each in np.unique(label[free]):
        own = np.flatnonzero(free & (label == each))
        place = np.zeros(system.cells, dtype=np.int64)
        place[own] = np.arange(own.size)
        inside = of_row == each
        rows, sizes = np.unique(row[inside], return_counts=True)
        start = np.concatenate([[0], np.cumsum(sizes)])
        yield own, System(cells=own.size, start=start, index=place[index[inside]], total=left[rows])


def largest_difference(
    system: System, values: _Array, low: _Array, high: _Array, *, seconds: float = 30.0
) -> tuple[int, bool]:
    """Return how many persons of a solution at most have no equal in another one, and whether that is proven.

    A cell is o + e with o up to its value, counted as overlap, and e beyond it; a binary number says which side of its
    value a cell lies on, where it can lie on both.
    """
    overlap, beyond = np.flatnonzero(values > 0), np.flatnonzero(high > values)
    both = np.intersect1d(overlap, beyond)
    o, e = np.full(system.cells, -1), np.full(system.cells, -1)
    o[overlap] = np.arange(overlap.size)
    e[beyond] = overlap.size + np.arange(beyond.size)
    size = overlap.size + beyond.size + both.size
    start, index = [0], []
    for begin, end in zip(system.start[:-1], system.start[1:], strict=True):
        own = system.index[begin:end]
        members = np.concatenate([o[own], e[own]])
        index.append(members[members >= 0])
        start.append(start[-1] + index[-1].size)
    wide = System(cells=size, start=np.array(start), index=np.concatenate(index), total=system.total)
    more = []
    for number, cell in enumerate(both):
        binary = overlap.size + beyond.size + number
        more.append((np.array([e[cell], binary]), np.array([1.0, -float((high - values)[cell])]), -np.inf, 0.0))
        more.append((np.array([o[cell], binary]), np.array([1.0, -float(values[cell])]), 0.0, np.inf))
    cost = np.zeros(size)
    cost[: overlap.size] = 1
    lowest = np.concatenate([low[overlap], np.zeros(beyond.size + both.size, dtype=np.int64)])
    highest = np.concatenate([values[overlap], (high - values)[beyond], np.ones(both.size, dtype=np.int64)])
    found = solved(wide, cost=cost, low=lowest, high=highest, more=more, seconds=seconds)
    whole = int(values.sum())
    if found.status == "solved":
        return whole - round(found.objective), True
    return whole - int(low.sum()), False
