"""The non-negative optimum of one parent's children: the kernel's problem, on the grid or cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from stirred.mechanisms.topdown.solve.feasible import Demands
from stirred.mechanisms.topdown.solve.grid import Lattice, Numbers, Places
from stirred.mechanisms.topdown.solve.limits import NO_LIMIT
from stirred.mechanisms.topdown.solve.programs import Program
from stirred.mechanisms.topdown.solve.stage import Board, Event, Stage

TOLERANCE: Final = 1e-10
MOST_ITERATIONS: Final = 20_000
_LARGEST_PROGRAM: Final = 2_000


@lru_cache(maxsize=4096)
def _lattice(sizes: tuple[int, ...]) -> tuple[Any, ...]:
    found = Lattice(sizes=sizes)
    return found.place, found.groups, found.contains, found.outside, np.array(sizes, dtype=np.int64), found.block


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Quadratic:
    """The arguments of the kernel for one parent, and where the cells of the support stand in what it finds."""

    arguments: tuple[Any, ...]
    support: tuple[Places, Places]

    @property
    def compact(self) -> _Quadratic:
        """Return it with arrays in one layout, for which the kernel is compiled."""
        arguments = (np.ascontiguousarray(each) if isinstance(each, np.ndarray) else each for each in self.arguments)
        return _Quadratic(arguments=tuple(arguments), support=self.support)


def relaxed(
    stage: Stage, board: Board, demands: Demands, totals: Numbers, parent: str, children: slice
) -> tuple[Numbers, Numbers, Event | None]:
    """Return the non-negative optimum in the cells of the support (children, cells), and how it was found."""
    from stirred.mechanisms.topdown.solve.admm_kernel import solve_parent

    make = on_cells if _is_sparse(board, stage.objective.kind[children]) else _on_grid
    problem = make(stage, board, demands, totals, children).compact
    found = np.zeros(problem.arguments[4].shape)
    report = np.zeros(5)
    largest = max(float(board.held.max(initial=0.0)), float(np.abs(stage.objective.total[children]).max(initial=0.0)))
    tolerance = TOLERANCE * max(1.0, largest) ** 0.5
    kernel: Any = solve_parent
    solved = kernel(*problem.arguments, tolerance, MOST_ITERATIONS, found, report)
    event = None
    if not solved:
        better = by_program(problem.arguments) if found.size <= _LARGEST_PROGRAM else None
        found = found if better is None else better
        what = "solved by HiGHS" if better is not None else "accepted with the gap given"
        why = f"alternating directions did not settle in {MOST_ITERATIONS:,} iterations"
        event = Event(level=stage.name, area=parent, what=what, why=why, amount=float(report[4]))
    return found[:, problem.support[0], problem.support[1]], report, event


def _is_sparse(board: Board, kinds: Places) -> bool:
    """Say whether it is cheaper to take the cells of the support one by one than the grid around them.

    An iteration takes cells squared for each child, against all of the grid times its structure; but first a matrix of
    the size of the support is inverted for each kind of child.
    """
    cells, height, width = len(board.support[0]), *board.cells.shape
    structure = height + 4 * 2 ** len(board.sizes)
    dense = 0.6 * len(np.unique(kinds)) * cells**3 + 50 * len(kinds) * cells**2
    return bool(board.held[0, 0] >= 0 and dense < 85 * len(kinds) * height * width * structure)


def _shared(stage: Stage, demands: Demands, totals: Numbers, children: slice) -> tuple[Any, ...]:
    """Return what both forms of a problem need: precisions, kinds, and the sets that are bounded with their bounds."""
    kinds, kind = np.unique(stage.objective.kind[children], return_inverse=True)
    sets = slice(1 if np.all(totals >= 0) or not _limited_totals(demands) else 0, None)
    low, high = demands.low[:, sets].astype(np.float64), demands.high[:, sets].astype(np.float64)
    precision = stage.objective.precision[kinds]
    return precision, kind.reshape(-1).astype(np.int64), demands.sets[sets], low, high, stage.margin(children)


def _on_grid(stage: Stage, board: Board, demands: Demands, totals: Numbers, children: slice) -> _Quadratic:
    """Return a problem on the rows and columns of the grid that the parent fills."""
    precision, kind, sets, low, high, margin = _shared(stage, demands, totals, children)
    number, height = len(totals), board.cells.shape[0]
    free = (demands.allowed & (totals != 0)[:, None])[:, :, None] & (board.held != 0)[None]
    lattice = _lattice(board.sizes)
    equal, at, values = np.zeros((0, height), dtype=np.bool_), 0, np.zeros((number, 0, 1))
    if margin is not None:
        # A margin that was published before (section 6): groups of rows, by the columns that it keeps.
        (query, told), grid = margin, stage.rules.grid
        groups, group = np.unique(grid.rows_of(query)[board.rows], return_inverse=True)
        at, cell = grid.kept_by(query), query.cell_of[board.cells]
        values = np.zeros((number, len(groups), lattice[1][at]))
        values[:, group[:, None], lattice[0][at][None, :]] = told[:, cell]
        equal = groups[:, None] == groups[group][None, :]
        free &= told[:, cell] > 0
    elif np.all(totals >= 0):
        equal, values = np.ones((1, height), dtype=np.bool_), totals.reshape(number, 1, 1)
    own = precision[:, :, board.rows[:, None], board.rows[None, :]]
    linear = stage.objective.at(children, board.cells)
    arguments = (board.held, free, own, kind, linear, *lattice, equal, at, values, sets, low, high)
    return _Quadratic(arguments=arguments, support=board.support)


def on_cells(stage: Stage, board: Board, demands: Demands, totals: Numbers, children: slice) -> _Quadratic:
    """Return the same problem on the cells of the support, each a row of its own."""
    from stirred.mechanisms.topdown.solve.admm_kernel import restricted

    precision, kind, sets, low, high, margin = _shared(stage, demands, totals, children)
    row, column = board.support
    cells, number = board.cells[row, column], len(totals)
    free = (demands.allowed & (totals != 0)[:, None])[:, row]
    equal, values = np.zeros((0, len(row)), dtype=np.bool_), np.zeros((number, 0, 1))
    if margin is not None:
        query, told = margin
        groups, group = np.unique(query.cell_of[cells], return_inverse=True)
        equal, values = np.arange(len(groups))[:, None] == group[None, :], told[:, groups, None]
        free &= told[:, query.cell_of[cells]] > 0
    elif np.all(totals >= 0):
        equal, values = np.ones((1, len(row)), dtype=np.bool_), totals.reshape(number, 1, 1)
    own = np.empty((len(precision), 1, len(row), len(row)))
    places = np.ascontiguousarray(_lattice(board.sizes)[0][:, column])
    restricted(np.ascontiguousarray(precision), board.rows[row], places, own)
    arguments = (
        board.held[row, column][:, None],
        free[:, :, None],
        own,
        kind,
        stage.objective.at(children, cells[:, None]),
        *_lattice(()),
        equal,
        0,
        values,
        sets[:, row],
        low,
        high,
    )
    return _Quadratic(arguments=arguments, support=(np.arange(len(row)), np.zeros(len(row), dtype=np.int64)))


def _limited_totals(demands: Demands) -> bool:
    return bool(np.any(demands.low[:, 0] > 0) or np.any(demands.high[:, 0] < min(int(demands.rows.sum()), NO_LIMIT)))


def by_program(arguments: tuple[Any, ...]) -> Numbers | None:
    """Return the optimum of the same problem by HiGHS."""
    held, free, precision, kind, linear, place = arguments[:6]
    equal, equal_at, equal_to, sets, low, high = arguments[11:]
    children = len(linear)
    program = Program()
    columns = np.full(linear.shape, -1, dtype=np.int64)
    for c, a, e in np.argwhere(free):
        columns[c, a, e] = program.column(-float(linear[c, a, e]))
    for a, e in np.argwhere(held > 0):
        program.row([*columns[:, a, e][columns[:, a, e] >= 0]], held[a, e], held[a, e])
    for c in range(children):
        own = np.argwhere(columns[c] >= 0)
        for i, (a, e) in enumerate(own):
            for b, f in own[: i + 1]:
                value = sum(precision[kind[c], u, a, b] for u in range(len(place)) if place[u, e] == place[u, f])
                program.quadratic[int(columns[c, a, e]), int(columns[c, b, f])] = float(value)
        for g, k in np.ndindex(equal_to.shape[1:]):
            inside = columns[c][equal[g]][:, place[equal_at] == k]
            program.row([*inside[inside >= 0]], float(equal_to[c, g, k]), float(equal_to[c, g, k]))
        for g, members in enumerate(sets):
            inside = columns[c][members]
            program.row([*inside[inside >= 0]], float(low[c, g]), float(high[c, g]))
    solved = program.solve()
    if solved is None:
        return None
    found = np.zeros(linear.shape)
    found[columns >= 0] = solved[0][columns[columns >= 0]]
    return found
