"""Whether children can hold what their parent holds, and what is done where they cannot.

Only the rows ``a`` of the grid matter: cells that differ in exchangeable attributes have the same limits. Limits on
sets of rows that are nested or apart form a tree below each child's total, and everything is a flow from rows through
these trees; its least cut says in words why it is not possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.solve.problem import NO_LIMIT, Flags, Numbers, Places
from stirred.mechanisms.topdown.solve.programs import Program

_FINE: Final = 1 << 20  # real totals become whole multiples of 1 / _FINE
_ACROSS: Final = 1 << 10  # leaving a group costs more than any number of moves inside it
_AWAY: Final = 1 << 20
_MOST_CUTS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demands:
    """What is asked of the children of one parent: rows that may be filled, sets of rows, and least and most of each.

    The first set is the total. Children of one ``group`` have together the total ``group_total``, if it is not -1.
    """

    rows: Places  # what the parent holds in each row
    allowed: Flags  # (children, rows)
    sets: Flags  # (sets, rows)
    low: Places  # (children, sets)
    high: Places
    group: Places  # (children,)
    group_total: Places

    @property
    def trivial(self) -> bool:
        """Say whether any way to share out is possible."""
        free = np.all(self.low == 0) and np.all((self.high >= NO_LIMIT) | (self.high >= self.rows @ self.sets.T))
        return bool(free and np.all(self.group_total < 0) and np.all(self.allowed.any(axis=0) | (self.rows == 0)))


def nested(sets: Flags) -> Places | None:
    """Return for each set the smallest one around it (-1 for the first), or None if sets overlap.

    >>> nested(np.array([[1, 1, 1], [1, 1, 0], [0, 1, 0]], dtype=bool)).tolist()
    [-1, 0, 1]
    >>> nested(np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]], dtype=bool)) is None
    True
    """
    sizes = sets.sum(axis=1)
    found = np.full(len(sets), -1, dtype=np.int64)
    for one in range(1, len(sets)):
        common = (sets & sets[one]).sum(axis=1)
        if np.any((common > 0) & (common < np.minimum(sizes, sizes[one]))):
            return None
        around = [
            two for two in range(len(sets)) if common[two] == sizes[one] and (-sizes[two], two) < (-sizes[one], one)
        ]
        found[one] = min(around, key=lambda two: (sizes[two], -two))
    return found


class _Network:
    """A flow network under construction."""

    def __init__(self) -> None:
        self.supply: list[int] = []
        self.arcs: list[tuple[int, int, int, int, int]] = []  # from, to, least, most, cost of a unit either way

    def node(self, supply: int = 0) -> int:
        self.supply.append(supply)
        return len(self.supply) - 1

    def arc(self, tail: int, head: int, low: int = 0, high: int = NO_LIMIT, cost: int = 0) -> int:
        self.arcs.append((tail, head, low, high, cost))
        return len(self.arcs) - 1

    def solve(self) -> tuple[int, Places, Flags]:
        from stirred.mechanisms.topdown.solve.flow_kernel import settle

        tail, head, low, high, cost = np.array(self.arcs, dtype=np.int64).T.copy()
        flow, cut = np.zeros(len(tail), dtype=np.int64), np.zeros(len(self.supply), dtype=np.bool_)
        zero = np.zeros(len(tail), dtype=np.int64)
        if np.any(low > high):
            return int((low - high).max()), flow, cut
        left = settle(tail, head, low, high, zero, cost, cost, np.array(self.supply, dtype=np.int64), flow, cut)
        return left, flow, cut


def _network(demands: Demands, around: Places, *, fine: int = 1, totals: Places | None = None) -> tuple[_Network, int]:
    """Return the network from rows to the sink, and the sink; nodes of rows come first, then those of children."""
    net = _Network()
    for count in demands.rows:
        net.node(int(count) * fine)
    sizes = demands.sets.sum(axis=1)
    inner = [
        min(np.flatnonzero(demands.sets[:, row]), key=lambda s: (sizes[s], -s)) for row in range(len(demands.rows))
    ]
    nodes = [[net.node() for _ in around] for _ in demands.group]
    groups = [net.node() for _ in demands.group_total]
    sink = net.node(-int(demands.rows.sum()) * fine)
    for child, own in enumerate(nodes):
        for row in np.flatnonzero(demands.allowed[child]):
            net.arc(int(row), own[inner[row]])
        for place, above in enumerate(around):
            low, high = int(demands.low[child, place]) * fine, int(min(demands.high[child, place] * fine, NO_LIMIT))
            if place == 0 and totals is not None:
                low = high = int(totals[child])
            net.arc(own[place], own[above] if above >= 0 else groups[demands.group[child]], low, high)
    for node, total in zip(groups, demands.group_total, strict=True):
        fixed = total >= 0 and totals is None
        net.arc(node, sink, int(total) if fixed else -NO_LIMIT, int(total) if fixed else NO_LIMIT)
    return net, sink


def possible(demands: Demands) -> bool:
    """Say whether the children can hold what the parent holds."""
    around = nested(demands.sets)
    if around is None:
        return _shares(demands)[0].solve() is not None
    return _network(demands, around)[0].solve()[0] == 0


def _shares(demands: Demands, *, exact: bool = True) -> tuple[Program, list[list[tuple[int, int]]]]:
    """Return a program with a column for each child and row, and its limits; and the columns of each child by row."""
    program = Program()
    columns = [[(int(row), program.column()) for row in np.flatnonzero(own)] for own in demands.allowed]
    for row, count in enumerate(demands.rows if exact else ()):
        program.row([column for own in columns for r, column in own if r == row], float(count), float(count))
    for child, own in enumerate(columns):
        for place, members in enumerate(demands.sets):
            inside = [column for row, column in own if members[row]]
            program.row(inside, float(demands.low[child, place]), float(demands.high[child, place]))
    for group, total in enumerate(demands.group_total):
        if total >= 0:
            members = np.flatnonzero(demands.group == group)
            program.row([column for c in members for _, column in columns[c]], float(total), float(total))
    return program, columns


def reason(demands: Demands, *, row_names: Sequence[str], children: Sequence[str]) -> str:
    """Say in words why children cannot hold what their parent holds: the least cut of the network."""
    around = nested(demands.sets)
    for child, place in np.argwhere(demands.low > demands.high)[:1]:
        least, most = demands.low[child, place], demands.high[child, place]
        return f"{children[child]!r} must hold at least {least:,} and at most {most:,}"
    if around is None:
        return "its children have overlapping limits that no counts keep"
    net, _ = _network(demands, around)
    left, _, cut = net.solve()
    if left == 0:
        return "nothing stands against it"
    rows = np.flatnonzero(cut[: len(demands.rows)])
    if len(rows) == 0:
        least = demands.low[:, 0]
        return (
            f"its children {_few(children, np.flatnonzero(least > 0))} must hold at least {int(least.sum()):,} "
            f"together where the parent holds {int(demands.rows.sum()):,}"
        )
    room = sum(high for tail, head, _, high, _ in net.arcs if cut[tail] and not cut[head])
    forced = sum(low for tail, head, low, _, _ in net.arcs if cut[head] and not cut[tail])
    takers = np.flatnonzero(demands.allowed[:, rows].any(axis=1))
    admit = f"children {_few(children, takers)} admit at most {int(room - forced):,}"
    return (
        f"{admit if len(takers) else 'no child admits anybody'} in {_few(row_names, rows)}, "
        f"and the parent holds {int(demands.rows[rows].sum()):,} there"
    )


def _few(names: Sequence[str], places: Places) -> str:
    shown = ", ".join(repr(names[place]) for place in places[:3])
    return shown + (f" and {len(places) - 3:,} more" if len(places) > 3 else "") or "(none)"


def least_violation(demands: Demands) -> Places | None:
    """Return the nearest counts of rows that children can hold: within groups first, then across, then the total.

    The L1 distance to what the parent holds is least (the failsafe, section 5); None if limits contradict themselves.
    """
    if np.any(demands.low > demands.high):
        return None
    around = nested(demands.sets)
    if around is None:
        return _least_by_program(demands)
    net, sink = _network(demands, around)
    sizes = demands.sets.sum(axis=1)
    hub = net.node()
    by_set: dict[int, int] = {}
    takes, gives = [], []
    for row in range(len(demands.rows)):
        inner = int(min(np.flatnonzero(demands.sets[:, row]), key=lambda s: (sizes[s], -s)))
        if inner not in by_set:
            by_set[inner] = net.node()
            net.arc(by_set[inner], hub, 0, NO_LIMIT, _ACROSS)
            net.arc(hub, by_set[inner], 0, NO_LIMIT, _ACROSS)
        takes.append(net.arc(row, by_set[inner], 0, int(demands.rows[row]), 1))
        gives.append(net.arc(by_set[inner], row, 0, NO_LIMIT, 1))
    net.arc(hub, sink, 0, NO_LIMIT, _AWAY)
    net.arc(sink, hub, 0, NO_LIMIT, _AWAY)
    left, flow, _ = net.solve()
    return None if left else demands.rows - flow[takes] + flow[gives]


def _least_by_program(demands: Demands) -> Places | None:
    """Return the nearest counts of rows where limits overlap; the total is left alone if that is possible."""
    program, columns = _shares(demands, exact=False)
    away = [program.column(_AWAY), program.column(_AWAY)]
    moves = []
    for row, count in enumerate(demands.rows):
        moves.append((program.column(1.0), program.column(1.0, 0.0, float(count))))
        own = [column for child in columns for r, column in child if r == row]
        program.row([*own, *moves[-1]], float(count), float(count), [1.0] * len(own) + [-1.0, 1.0])
    up, down = [up for up, _ in moves], [down for _, down in moves]
    program.row([*up, *down, *away], 0.0, 0.0, [1.0] * len(up) + [-1.0] * len(down) + [1.0, -1.0])
    program.whole = [True] * len(program.cost)
    solved = program.solve()
    if solved is None:
        return None
    change = np.rint(solved[0][up] - solved[0][down]).astype(np.int64)
    return demands.rows + change


def best_totals(demands: Demands, estimate: Numbers, variance: Numbers) -> Numbers | None:
    """Return the totals of children nearest to their estimates that leave a way to share out the parent's rows.

    Water-filling within the least and most of each child; where that leaves no way, the cut that shows it becomes a
    constraint on the totals, and a small quadratic program is solved again (the totals pass, section 1.4).
    """
    around = nested(demands.sets)
    if around is None:
        return None
    exclusive = demands.allowed & (demands.allowed.sum(axis=0) == 1)
    low = np.maximum(demands.low[:, 0], (exclusive * demands.rows).sum(axis=1)).astype(np.float64)
    high = np.minimum(demands.high[:, 0], (demands.allowed * demands.rows).sum(axis=1)).astype(np.float64)
    filled = np.empty(len(estimate))
    rest = np.ones(len(estimate), dtype=np.bool_)
    for group, total in enumerate(demands.group_total):
        if total >= 0:
            own = demands.group == group
            filled[own] = _filled(estimate[own], variance[own], low[own], high[own], float(total))
            rest &= ~own
    if rest.any():
        left = float(demands.rows.sum()) - float(filled[~rest].sum())
        filled[rest] = _filled(estimate[rest], variance[rest], low[rest], high[rest], left)
    cuts: list[tuple[Numbers, float]] = []
    found: Numbers | None = filled
    while found is not None and len(cuts) < _MOST_CUTS:
        if np.all(np.isfinite(found)):
            if not cuts and _unlimited(demands):
                return found
            cut = _broken_cut(demands, around, found)
            if cut is None:
                return found
            cuts.append(cut)
        elif cuts:
            return None
        found = _nearest(demands, estimate, variance, low, high, cuts)
    return None


def _broken_cut(demands: Demands, around: Places, totals: Numbers) -> tuple[Numbers, float] | None:
    """Return coefficients and a least value that the totals miss, or None if they leave a way to share out.

    For nodes R that what is left over can reach, supply(R) and the least that enters R exceed the most that leaves it.
    Totals are the flow on the last arc of each child, so that this is linear in them.
    """
    whole = np.round(totals * _FINE).astype(np.int64)
    whole[-1] += int(demands.rows.sum()) * _FINE - int(whole.sum())
    net, _ = _network(demands, around, fine=_FINE, totals=whole)
    left, _, reached = net.solve()
    if left <= 8 * len(whole):
        return None
    first = len(demands.rows)
    heads = {first + child * len(around): child for child in range(len(whole))}
    least, coefficients = 0, np.zeros(len(whole))
    for node, supply in enumerate(net.supply):
        least += supply if reached[node] else 0
    for tail, head, low, high, _ in net.arcs:
        if reached[tail] == reached[head]:
            continue
        if tail in heads:
            coefficients[heads[tail]] += 1.0 if reached[tail] else -1.0
        else:
            least += low if reached[head] else -high
    return coefficients, least / _FINE


def _nearest(
    demands: Demands,
    estimate: Numbers,
    variance: Numbers,
    low: Numbers,
    high: Numbers,
    cuts: Sequence[tuple[Numbers, float]],
) -> Numbers | None:
    """Return the totals nearest to their estimates within limits, sums and cuts, by HiGHS."""
    weights = 1.0 / np.maximum(variance, 1e-12)
    weights = weights / weights.max()
    program = Program()
    for place, weight in enumerate(weights):
        column = program.column(-weight * float(estimate[place]), float(low[place]), float(high[place]))
        program.quadratic[column, column] = float(weight)
    everything = [*range(len(weights))]
    program.row(everything, float(demands.rows.sum()), float(demands.rows.sum()))
    for group, total in enumerate(demands.group_total):
        if total >= 0:
            program.row([*map(int, np.flatnonzero(demands.group == group))], float(total), float(total))
    for coefficients, least in cuts:
        program.row(everything, least, float("inf"), [*map(float, coefficients)])
    solved = program.solve()
    return None if solved is None else solved[0]


def _unlimited(demands: Demands) -> bool:
    return bool(np.all(demands.allowed) and np.all(demands.low[:, 1:] == 0) and np.all(demands.high[:, 1:] >= NO_LIMIT))


def _filled(centre: Numbers, variance: Numbers, low: Numbers, high: Numbers, total: float) -> Numbers:
    """Return the minimiser of sum (t - centre)²/variance over low <= t <= high with this sum; NaN if there is none.

    >>> _filled(np.array([4.0, -3.0, 1.0]), np.ones(3), np.zeros(3), np.full(3, 9.0), 6.0).tolist()
    [4.5, 0.0, 1.5]
    """
    if not low.sum() - 1e-9 <= total <= high.sum() + 1e-9 or np.any(low > high):
        return np.full(len(centre), np.nan)
    spread = np.maximum(variance, 1e-12)
    # The sum rises with the price in straight pieces that change where a child meets a limit: find the piece.
    turns = np.sort(np.concatenate([(low - centre) / spread, (high - centre) / spread]))
    sums = np.array([np.clip(centre + spread * turn, low, high).sum() for turn in turns])
    place = int(np.clip(np.searchsorted(sums, total), 1, len(turns) - 1))
    middle = 0.5 * (turns[place - 1] + turns[place])
    moving = (centre + spread * middle > low) & (centre + spread * middle < high)
    fixed = np.clip(centre + spread * middle, low, high)[~moving].sum()
    price = (total - fixed - centre[moving].sum()) / spread[moving].sum() if moving.any() else middle
    return np.clip(centre + spread * price, low, high)
