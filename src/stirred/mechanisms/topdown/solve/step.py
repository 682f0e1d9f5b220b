"""One parent: its children's counts, jointly, from measurements to whole numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stirred.mechanisms.topdown.solve.feasible import Demands, best_totals, least_violation, possible, reason
from stirred.mechanisms.topdown.solve.grid import Numbers, Places
from stirred.mechanisms.topdown.solve.limits import Rules
from stirred.mechanisms.topdown.solve.margins import settled
from stirred.mechanisms.topdown.solve.relaxed import relaxed
from stirred.mechanisms.topdown.solve.stage import Event, Solved, Stage, board_of, demands_of, impossible
from stirred.mechanisms.topdown.solve.whole import rounded


def solve_children(stage: Stage, parent: str, cells: Places, counts: Places | None, children: slice) -> Solved:
    """Return the children of one parent that holds ``counts`` in ``cells``; an area without a parent has None."""
    limits = stage.limits.take(children)
    number = len(limits.low)
    if len(cells) == 0 and not limits.low.any():
        return Solved(cells=cells, counts=np.zeros((number, 0), dtype=np.int64))
    board = board_of(stage, cells, counts)
    demands, short = demands_of(stage, board, limits, children)
    events: list[Event] = []
    if counts is not None and (short or (not demands.trivial and not possible(demands))):
        cells, counts, event = _failsafe(stage, parent, cells, counts, children)
        events.append(event)
        board = board_of(stage, cells, counts)
        demands, _ = demands_of(stage, board, limits, children)
    if counts is not None and number == 1:
        return Solved(cells=cells, counts=counts[None, :], values=counts[None, :].astype(float), events=tuple(events))
    totals = np.where(demands.low[:, 0] == demands.high[:, 0], demands.low[:, 0], -1).astype(np.float64)
    known = totals >= 0
    if np.any(demands.group_total >= 0) or stage.totals_first:
        totals = _totals(stage, demands, totals, children)
    if counts is None and known.all():
        stage = replace(stage, settled=settled(stage.objective.margins, stage.rules.grid, float(totals[0])))
    values, report, fallen_back = relaxed(stage, board, demands, totals, parent, children)
    fixed = np.where(known, np.rint(totals), -1).astype(np.int64)
    found, moved = rounded(stage, board, demands, values, cells, counts, fixed, limits.margin, parent)
    events += [each for each in (fallen_back, moved) if each is not None]
    return Solved(
        cells=cells,
        counts=found,
        values=values if stage.keep_unrounded else None,
        events=tuple(events),
        iterations=int(report[0]),
        gap=float(report[4]),
    )


def _failsafe(
    stage: Stage, parent: str, cells: Places, counts: Places, children: slice
) -> tuple[Places, Places, Event]:
    """Return the parent's counts moved as little as children need; stop where no counts would do."""
    grid, limits = stage.rules.grid, stage.limits.take(children)
    # Rows that the parent does not have and a child may fill come in with one cell: where the parent has most.
    width = grid.lattice.width
    columns = np.bincount(grid.place[cells] % width, weights=counts, minlength=width)
    absent = np.setdiff1d(np.flatnonzero(limits.allowed.any(axis=0)), grid.place[cells] // width)
    cells = np.concatenate([cells, grid.cells[absent, int(columns.argmax())]])
    counts = np.concatenate([counts, np.zeros(len(absent), dtype=np.int64)])
    board = board_of(stage, cells, counts)
    demands, _ = demands_of(stage, board, limits, children)
    names = [_row_name(stage.rules, int(row)) for row in board.rows]
    why = reason(demands, row_names=names, children=stage.geocodes[children])
    rows = least_violation(demands)
    if rows is None:
        raise impossible(stage, parent, why)
    moved, row = counts.copy(), board.support[0]
    for place, change in enumerate(rows - demands.rows):
        own = np.flatnonzero(row == place)
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
    return cells[kept], moved[kept], Event(level=stage.name, area=parent, what=what, why=why, amount=amount, moves=True)


def _row_name(rules: Rules, row: int) -> str:
    grid = rules.grid
    shape = [grid.schema.shape[axis] for axis in grid.differing]
    codes = np.unravel_index(row, shape) if shape else ()
    return ", ".join(
        f"{grid.schema.names[axis]} {grid.schema.attributes[axis].codes[code]}"
        for axis, code in zip(grid.differing, codes, strict=True)
        if grid.schema.shape[axis] > 1
    )


def _totals(stage: Stage, demands: Demands, totals: Numbers, children: slice) -> Numbers:
    """Return the children's totals, fixed before their cells: those known, and the nearest to the estimates."""
    if np.all(totals >= 0):
        return totals
    variance = stage.objective.total_variance[children]
    if not np.all(np.isfinite(variance) | (totals >= 0)):
        if np.all(demands.group_total < 0):
            return totals  # an area whose total is not measured: all cells are solved for at once
        variance = np.where(np.isfinite(variance), variance, 1e12)
    found = best_totals(demands, stage.objective.total[children], variance)
    return totals if found is None else found


def without_parents(stage: Stage, name: str) -> Solved:
    """Return the counts of the one area at the top, which has no parent."""
    grid = stage.rules.grid
    everywhere = np.sort(grid.cells[stage.limits.allowed[0]].reshape(-1))
    return solve_children(stage, name, everywhere, None, slice(0, 1))
