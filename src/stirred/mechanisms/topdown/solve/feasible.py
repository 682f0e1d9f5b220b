"""Whether children can hold what their parent holds, and what is done where they cannot.

Only the rows ``a`` of the grid matter: cells that differ in exchangeable attributes have the same limits. Limits on
sets of rows that are nested or apart form a tree below each child's total, and everything is a flow from rows through
these trees; its least cut says in words why it is not possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.hierarchy.tree import Flags, Numbers, Places
from stirred.mechanisms.topdown.solve.problem import NO_LIMIT
from stirred.mechanisms.topdown.solve.programs import Program

_FINE: Final = 1 << 20  # real totals become whole multiples of 1 / _FINE
_ACROSS: Final = 1 << 10  # leaving a group costs more than any number of moves inside it
_AWAY: Final = 1 << 20
_MOST_CUTS: Final = 60


@dataclass(frozen=True, kw_only=True, eq=False)
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

    @cached_property
    def around(self) -> Places | None:
        """Return for each set the smallest one around it, or None if sets overlap."""
        return nested(self.sets)


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _FlowNetwork:
    """A network from rows through the sets of each child and the groups of children to the sink, which is the last."""

    supply: Places  # of each node; negative is demand
    arcs: Places  # (arcs, 5): from, to, least, most, cost of a unit either way
    inner: Places  # of each row the smallest set around it

    @classmethod
    def of(cls, demands: Demands, *, fine: int = 1, totals: Places | None = None) -> _FlowNetwork:
        """Return the network in units of 1 / ``fine``; ``totals`` fix those of the children."""
        around, rows, sets = demands.around, len(demands.rows), len(demands.sets)
        assert around is not None
        children, place = np.divmod(np.arange(len(demands.group) * sets), sets)
        groups = rows + len(children) + np.arange(len(demands.group_total))
        sink = rows + len(children) + len(groups)
        order = demands.sets.sum(axis=1) * sets - np.arange(sets)  # the smallest first, of equal ones the last
        inner = np.where(demands.sets, order[:, None], np.iinfo(np.int64).max).argmin(axis=0)
        taker, row = np.nonzero(demands.allowed)
        into = _arcs(row, rows + taker * sets + inner[row], 0, NO_LIMIT)
        low, high = demands.low * fine, np.minimum(demands.high * fine, NO_LIMIT)
        if totals is not None:
            low[:, 0] = high[:, 0] = totals
        above = np.where(around[place] >= 0, rows + children * sets + around[place], groups[demands.group[children]])
        through = _arcs(rows + np.arange(len(children)), above, low.reshape(-1), high.reshape(-1))
        # Child by child, first from rows and then from set to set: the order in which ties are settled.
        both = np.concatenate([into, through])[np.argsort(np.concatenate([taker, children]), kind="stable")]
        fixed = (demands.group_total >= 0) & (totals is None)
        least, most = (np.where(fixed, demands.group_total, limit) for limit in (-NO_LIMIT, NO_LIMIT))
        supply = np.zeros(sink + 1, dtype=np.int64)
        supply[:rows], supply[sink] = demands.rows * fine, -demands.rows.sum() * fine
        return cls(supply=supply, arcs=np.concatenate([both, _arcs(groups, sink, least, most)]), inner=inner)

    def solve(self) -> tuple[int, Places, Flags]:
        """Return what could not be placed, the flow on each arc, and the nodes that what is left can reach."""
        from stirred.mechanisms.topdown.solve.flow_kernel import settle

        tail, head, low, high, cost = self.arcs.T.copy()
        flow, cut = np.zeros(len(tail), dtype=np.int64), np.zeros(len(self.supply), dtype=np.bool_)
        if np.any(low > high):
            return int((low - high).max()), flow, cut
        zero = np.zeros(len(tail), dtype=np.int64)
        left = settle(tail, head, low, high, zero, cost, cost, self.supply.copy(), flow, cut)
        return left, flow, cut


def _arcs(tail: Places, head: Places | int, low: Places | int, high: Places | int) -> Places:
    found = np.zeros((len(tail), 5), dtype=np.int64)
    for place, column in enumerate((tail, head, low, high)):
        found[:, place] = column
    return found


def possible(demands: Demands) -> bool:
    """Say whether the children can hold what the parent holds."""
    free = np.all(demands.low == 0) and np.all(demands.high >= np.minimum(demands.rows @ demands.sets.T, NO_LIMIT))
    if free and np.all(demands.group_total < 0) and np.all(demands.allowed.any(axis=0) | (demands.rows == 0)):
        return True
    if demands.around is None:
        return _shares(demands)[0].solve() is not None
    return _FlowNetwork.of(demands).solve()[0] == 0


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
    for child, place in np.argwhere(demands.low > demands.high)[:1]:
        least, most = demands.low[child, place], demands.high[child, place]
        return f"{children[child]!r} must hold at least {least:,} and at most {most:,}"
    if demands.around is None:
        return "its children have overlapping limits that no counts keep"
    net = _FlowNetwork.of(demands)
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
    tail, head, low, high, _ = net.arcs.T
    room, forced = high[cut[tail] & ~cut[head]].sum(), low[cut[head] & ~cut[tail]].sum()
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
    if demands.around is None:
        return _least_by_program(demands)
    net = _FlowNetwork.of(demands)
    first, hub = len(net.arcs), len(net.supply)
    by_set: dict[int, int] = {}
    arcs: list[tuple[int, int, int, int, int]] = []
    takes = []
    for row, inner in enumerate(net.inner.tolist()):
        if inner not in by_set:
            by_set[inner] = hub + 1 + len(by_set)
            arcs += [(by_set[inner], hub, 0, NO_LIMIT, _ACROSS), (hub, by_set[inner], 0, NO_LIMIT, _ACROSS)]
        takes.append(first + len(arcs))
        arcs += [(row, by_set[inner], 0, int(demands.rows[row]), 1), (by_set[inner], row, 0, NO_LIMIT, 1)]
    arcs += [(hub, hub - 1, 0, NO_LIMIT, _AWAY), (hub - 1, hub, 0, NO_LIMIT, _AWAY)]  # to the sink and back
    wider = replace(
        net, supply=np.append(net.supply, [0] * (1 + len(by_set))), arcs=np.concatenate([net.arcs, np.array(arcs)])
    )
    left, flow, _ = wider.solve()
    gives = np.array(takes) + 1
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
    if demands.around is None:
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
    sets = np.all(demands.low[:, 1:] == 0) and np.all(demands.high[:, 1:] >= NO_LIMIT)
    unlimited = sets and np.all(demands.allowed)
    cuts: list[tuple[Numbers, float]] = []
    found: Numbers | None = filled
    while found is not None and len(cuts) < _MOST_CUTS:
        if np.all(np.isfinite(found)):
            cut = None if not cuts and unlimited else _broken_cut(demands, found)
            if cut is None:
                return found
            cuts.append(cut)
        found = _nearest(demands, estimate, variance, low, high, cuts)
    return None


def _broken_cut(demands: Demands, totals: Numbers) -> tuple[Numbers, float] | None:
    """Return coefficients and a least value that the totals miss, or None if they leave a way to share out.

    For nodes R that what is left over can reach, supply(R) and the least that enters R exceed the most that leaves it.
    Totals are the flow on the last arc of each child, so that this is linear in them.
    """
    whole = np.round(totals * _FINE).astype(np.int64)
    whole[-1] += int(demands.rows.sum()) * _FINE - int(whole.sum())
    net = _FlowNetwork.of(demands, fine=_FINE, totals=whole)
    left, _, reached = net.solve()
    if left <= 8 * len(whole):
        return None
    tail, head, low, high, _ = net.arcs.T
    child, place = np.divmod(tail - len(demands.rows), len(demands.sets))
    crossing = reached[tail] != reached[head]
    total = crossing & (place == 0) & (child >= 0) & (child < len(whole))
    coefficients = np.zeros(len(whole))
    np.add.at(coefficients, child[total], np.where(reached[tail[total]], 1.0, -1.0))
    rest = crossing & ~total
    least = int(net.supply[reached].sum() + low[rest & reached[head]].sum() - high[rest & reached[tail]].sum())
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
