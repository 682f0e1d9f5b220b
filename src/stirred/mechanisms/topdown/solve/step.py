"""One parent: its children's counts, jointly, from measurements to whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.topdown.schema import Query
from stirred.mechanisms.topdown.solve.feasible import Demands, best_totals, least_violation, possible, reason
from stirred.mechanisms.topdown.solve.grid import Flags, Lattice, Numbers, Places
from stirred.mechanisms.topdown.solve.limits import NO_LIMIT, Limits, Rules
from stirred.mechanisms.topdown.solve.margins import settled
from stirred.mechanisms.topdown.solve.objective import Objective
from stirred.mechanisms.topdown.solve.programs import Program
from stirred.mechanisms.topdown.solve.rounding import WHOLE, Chain, Rounder, round_by_program

TOLERANCE: Final = 1e-10
MOST_ITERATIONS: Final = 20_000
_LARGEST_PROGRAM: Final = 2_000


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


@lru_cache(maxsize=4096)
def _lattice(sizes: tuple[int, ...]) -> tuple[Any, ...]:
    found = Lattice(sizes=sizes)
    return found.place, found.groups, found.contains, found.outside, np.array(sizes, dtype=np.int64), found.block


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Board:
    """The rows and columns of the grid that a parent fills, and its counts there."""

    rows: Places
    cells: Places  # (rows, columns) cells of the schema
    sizes: tuple[int, ...]
    held: Numbers  # (rows, columns); -1 for an area without a parent
    support: tuple[Places, Places]  # where the cells that may be filled stand

    @property
    def by_row(self) -> Places:
        return self.held.sum(axis=1).astype(np.int64)


def _board(stage: Stage, cells: Places, counts: Places | None) -> _Board:
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
    return _Board(
        rows=rows, cells=grid.cells[np.ix_(rows, columns)], sizes=tuple(sizes), held=held, support=(row, column)
    )


def _demands(stage: Stage, board: _Board, limits: Limits, children: slice) -> tuple[Demands, bool]:
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


def solve_children(stage: Stage, parent: str, cells: Places, counts: Places | None, children: slice) -> Solved:
    """Return the children of one parent that holds ``counts`` in ``cells``; an area without a parent has None."""
    limits = stage.limits.take(children)
    number = len(limits.low)
    if len(cells) == 0 and not limits.low.any():
        return Solved(cells=cells, counts=np.zeros((number, 0), dtype=np.int64))
    board = _board(stage, cells, counts)
    demands, short = _demands(stage, board, limits, children)
    events: list[Event] = []
    if counts is not None and (short or (not demands.trivial and not possible(demands))):
        cells, counts, event = _failsafe(stage, parent, cells, counts, children)
        events.append(event)
        board = _board(stage, cells, counts)
        demands, _ = _demands(stage, board, limits, children)
    if counts is not None and number == 1:
        return Solved(cells=cells, counts=counts[None, :], values=counts[None, :].astype(float), events=tuple(events))
    totals = np.where(demands.low[:, 0] == demands.high[:, 0], demands.low[:, 0], -1).astype(np.float64)
    known = totals >= 0
    if np.any(demands.group_total >= 0) or stage.totals_first:
        totals = _totals(stage, demands, totals, children)
    if counts is None and known.all():
        stage = replace(stage, settled=settled(stage.objective.margins, stage.rules.grid, float(totals[0])))
    values, report, fallen_back = _relaxed(stage, board, demands, totals, parent, children)
    fixed = np.where(known, np.rint(totals), -1).astype(np.int64)
    found, moved = _rounded(stage, board, demands, values, cells, counts, fixed, limits.margin, parent)
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
    board = _board(stage, cells, counts)
    demands, _ = _demands(stage, board, limits, children)
    names = [_row_name(stage.rules, int(row)) for row in board.rows]
    why = reason(demands, row_names=names, children=stage.geocodes[children])
    rows = least_violation(demands)
    if rows is None:
        raise _impossible(stage, parent, why)
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


def _impossible(stage: Stage, parent: str, why: str) -> PlanError:
    return bad_plan(
        f"no counts keep all that is known of {stage.name} inside {parent!r}: {why}",
        where="constraints",
        remedy="correct the bounds, totals or zeros that contradict each other",
    )


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


def _relaxed(
    stage: Stage, board: _Board, demands: Demands, totals: Numbers, parent: str, children: slice
) -> tuple[Numbers, Numbers, Event | None]:
    """Return the non-negative optimum in the cells of the support (children, cells), and how it was found."""
    from stirred.mechanisms.topdown.solve.admm_kernel import solve_parent

    make = _on_cells if _is_sparse(board, stage.objective.kind[children]) else _on_grid
    problem = make(stage, board, demands, totals, children).compact
    found = np.zeros(problem.arguments[4].shape)
    report = np.zeros(5)
    largest = max(float(board.held.max(initial=0.0)), float(np.abs(stage.objective.total[children]).max(initial=0.0)))
    tolerance = TOLERANCE * max(1.0, largest) ** 0.5
    kernel: Any = solve_parent
    solved = kernel(*problem.arguments, tolerance, MOST_ITERATIONS, found, report)
    event = None
    if not solved:
        better = _by_program(problem.arguments) if found.size <= _LARGEST_PROGRAM else None
        found = found if better is None else better
        what = "solved by HiGHS" if better is not None else "accepted with the gap given"
        why = f"alternating directions did not settle in {MOST_ITERATIONS:,} iterations"
        event = Event(level=stage.name, area=parent, what=what, why=why, amount=float(report[4]))
    return found[:, problem.support[0], problem.support[1]], report, event


def _is_sparse(board: _Board, kinds: Places) -> bool:
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


def _on_grid(stage: Stage, board: _Board, demands: Demands, totals: Numbers, children: slice) -> _Quadratic:
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


def _on_cells(stage: Stage, board: _Board, demands: Demands, totals: Numbers, children: slice) -> _Quadratic:
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


def _by_program(arguments: tuple[Any, ...]) -> Numbers | None:
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


def _rounded(
    stage: Stage,
    board: _Board,
    demands: Demands,
    values: Numbers,
    cells: Places,
    counts: Places | None,
    totals: Places,
    margin: Places | None,
    parent: str,
) -> tuple[Places, Event | None]:
    """Return whole counts of the children (children, cells)."""
    from stirred.mechanisms.topdown.solve.flow_kernel import round_children

    chain = np.empty((len(stage.chain.queries), len(cells)), dtype=np.int64)
    labels = []
    for level, groups in enumerate(stage.chain.groups):
        present, chain[level] = np.unique(groups[cells], return_inverse=True)
        labels.append(present)
    widest = max(map(len, labels))
    low = np.zeros((len(values), len(chain), widest), dtype=np.int64)
    high = np.full(low.shape, NO_LIMIT, dtype=np.int64)
    low[:, 0, 0] = np.maximum(demands.low[:, 0], np.maximum(totals, 0))
    high[:, 0, 0] = np.where(totals >= 0, totals, demands.high[:, 0])
    row = board.support[0]
    off_chain = []
    for place in range(1, len(demands.sets)):
        inside = demands.sets[place][row]
        levels = [k for k, own in enumerate(chain) if _is_group(own, inside)]
        if not levels:
            off_chain.append((inside, demands.low[:, place], demands.high[:, place]))
        for level in levels[:1]:
            group = chain[level][inside][0]
            low[:, level, group] = np.maximum(low[:, level, group], demands.low[:, place])
            high[:, level, group] = np.minimum(high[:, level, group], demands.high[:, place])
    allowed = demands.allowed[:, row]
    published = stage.rules.margin
    if margin is not None and published is not None and np.all(margin >= 0) and published in stage.chain.queries:
        level = stage.chain.queries.index(published)
        low[:, level, : len(labels[level])] = high[:, level, : len(labels[level])] = margin[:, labels[level]]
        allowed &= margin[:, published.cell_of[cells]] > 0
    if counts is None:
        total = totals[0] if totals[0] >= 0 else int(np.rint(values.sum()))
        need, column = np.array([total], dtype=np.int64), np.zeros(len(cells), dtype=np.int64)
    else:
        need, column = counts, np.arange(len(cells), dtype=np.int64)
    found = np.zeros(values.shape, dtype=np.int64)
    weights = stage.rounder.weights(len(chain))
    if not off_chain:
        for slack in (0, 1, 3):
            left = round_children(
                np.ascontiguousarray(values),
                need,
                column,
                chain,
                low,
                high,
                allowed,
                demands.group,
                demands.group_total,
                weights,
                stage.rounder.pre_rounded,
                slack,
                WHOLE,
                found,
            )
            if left == 0:
                why = "the optimum misses a limit by more than its tolerance"
                what = f"counts were rounded by up to {slack + 1}"
                event = Event(level=stage.name, area=parent, what=what, why=why, amount=slack) if slack else None
                return found, event
    sets = [*off_chain, *_sets_of(chain, low, high)]
    for slack in (0, 1, 3, 100):
        better = round_by_program(
            values,
            need=need,
            column=column,
            chain=chain,
            sets=sets,
            allowed=allowed,
            group=demands.group,
            group_total=demands.group_total,
            rounder=stage.rounder,
            slack=slack,
        )
        if better is not None:
            what, why = f"rounded by HiGHS, by up to {slack + 1}", "limits overlap, so that rounding is not a flow"
            return better, Event(level=stage.name, area=parent, what=what, why=why, amount=slack)
    raise _impossible(stage, parent, "no whole counts beside the optimum keep all limits")


def _is_group(own: Places, inside: Flags) -> bool:
    """Say whether cells are exactly one group of a level of the chain."""
    groups = np.unique(own[inside])
    return len(groups) == 1 and bool(np.all((own == groups[0]) == inside))


def _sets_of(chain: Places, low: Places, high: Places) -> list[tuple[Flags, Places, Places]]:
    found = []
    for level, own in enumerate(chain):
        for group in range(own.max() + 1):
            least, most = low[:, level, group], high[:, level, group]
            if np.any(least > 0) or np.any(most < NO_LIMIT):
                found.append((own == group, least, most))
    return found


def without_parents(stage: Stage, name: str) -> Solved:
    """Return the counts of the one area at the top, which has no parent."""
    grid = stage.rules.grid
    everywhere = np.sort(grid.cells[stage.limits.allowed[0]].reshape(-1))
    return solve_children(stage, name, everywhere, None, slice(0, 1))
