"""What the step for one parent knows: the stage of its level, the part of the grid it fills, and what is demanded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.topdown.schema import Query
from stirred.mechanisms.topdown.solve.feasible import Demands
from stirred.mechanisms.topdown.solve.grid import Flags, Numbers, Places
from stirred.mechanisms.topdown.solve.limits import NO_LIMIT, Limits, Rules
from stirred.mechanisms.topdown.solve.objective import Objective
from stirred.mechanisms.topdown.solve.rounding import Chain, Rounder


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something out of the ordinary, for the manifest: where, what was done, and why."""

    level: str
    area: str
    what: str
    why: str
    amount: float = 0.0
    moves: bool = False  # whether counts of an area were moved after they had been decided on


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """What is the same for all parents of a level: the objective and the limits of the children, and how to proceed."""

    name: str  # of the children's level
    rules: Rules
    objective: Objective
    limits: Limits
    chain: Chain
    rounder: Rounder
    totals_first: bool
    geocodes: tuple[str, ...]
    group: Places  # (areas,) group of areas whose total is known together
    group_total: Places  # -1 where it is not known
    keep_unrounded: bool = False
    settled: tuple[Query, Numbers] | None = None  # a margin of the area at the top that its cells keep

    def margin(self, children: slice) -> tuple[Query, Numbers] | None:
        """Return the margin that these areas keep, and its values: one settled, or one published before."""
        if self.settled is not None or self.limits.margin is None or self.rules.margin is None:
            return self.settled
        values = self.limits.margin[children]
        return None if np.any(values < 0) else (self.rules.margin, values.astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """The children of a parent: their counts in these cells (children, cells), before and after rounding."""

    cells: Places
    counts: Places
    values: Numbers | None = None
    events: tuple[Event, ...] = ()
    iterations: int = 0
    gap: float = 0.0


def impossible(stage: Stage, parent: str, why: str) -> PlanError:
    """Return the error of a parent whose children cannot keep all that is known of them."""
    return bad_plan(
        f"no counts keep all that is known of {stage.name} inside {parent!r}: {why}",
        where="constraints",
        remedy="correct the bounds, totals or zeros that contradict each other",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Board:
    """The rows and columns of the grid that a parent fills, and its counts there."""

    rows: Places
    cells: Places  # (rows, columns) cells of the schema
    sizes: tuple[int, ...]
    held: Numbers  # (rows, columns); -1 for an area without a parent
    support: tuple[Places, Places]  # where the cells that may be filled stand

    @property
    def by_row(self) -> Places:
        """Return the counts of each row."""
        return self.held.sum(axis=1).astype(np.int64)


def board_of(stage: Stage, cells: Places, counts: Places | None) -> Board:
    """Return the part of the grid in which a parent holds ``counts``, or an area without a parent may have any."""
    grid = stage.rules.grid
    width = grid.lattice.width
    place = grid.place[cells]
    rows, row = np.unique(place // width, return_inverse=True)
    codes = np.unravel_index(place % width, grid.lattice.sizes) if grid.lattice.sizes else ()
    column = np.zeros(len(cells), dtype=np.int64)
    columns = np.zeros(1, dtype=np.int64)
    sizes = []
    for size, code in zip(grid.lattice.sizes, codes, strict=True):
        present, own = np.unique(code, return_inverse=True)
        column = column * len(present) + own
        columns = (columns[:, None] * size + present[None, :]).reshape(-1)
        sizes.append(len(present))
    held = np.full((len(rows), len(columns)), 0.0 if counts is not None else -1.0)
    if counts is not None:
        held[row, column] = counts
    return Board(
        rows=rows, cells=grid.cells[np.ix_(rows, columns)], sizes=tuple(sizes), held=held, support=(row, column)
    )


def demands_of(stage: Stage, board: Board, limits: Limits, children: slice) -> tuple[Demands, bool]:
    """Return what the limits ask in the rows of a board, and whether they ask for rows that it does not have.

    Groups that cannot bind are left out.
    """
    sets = stage.rules.groups[:, board.rows]
    by_row = board.by_row if board.held.max(initial=-1.0) >= 0 else np.full(len(board.rows), NO_LIMIT)
    allowed = limits.allowed[:, board.rows]
    low, high = _without_implied(sets, limits.low, limits.high)
    filled = allowed.astype(np.float64) @ sets.T.astype(np.float64) > 0
    binding = (low > 0) | ((high < np.minimum(sets @ by_row, high[:, :1])) & filled)
    # A group that is everything is the total, whichever query it came from.
    total = sets.all(axis=1)
    kept = np.flatnonzero(binding.any(axis=0) & sets.any(axis=1) & ~total)
    short = bool(np.any(low[:, ~sets.any(axis=1)] > 0) or np.any((low[:, 0] > 0) & ~allowed.any(axis=1)))
    least = np.concatenate([low[:, total].max(axis=1)[:, None], low[:, kept]], axis=1)
    most = np.concatenate([high[:, total].min(axis=1)[:, None], high[:, kept]], axis=1)
    used, group = np.unique(stage.group[children], return_inverse=True)
    found = Demands(
        rows=by_row,
        allowed=allowed,
        sets=np.concatenate([np.ones((1, len(board.rows)), dtype=np.bool_), sets[kept]]),
        low=least,
        high=most,
        group=group.reshape(-1).astype(np.int64),
        group_total=stage.group_total[used],
    )
    return found, short


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
