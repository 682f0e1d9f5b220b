"""Programs: the quadratic one of a parent, for our kernel and for HiGHS; and the rounding of one, by HiGHS.

HiGHS is the cross-check of our kernels, and what is left where their structure does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from stirred.mechanisms.topdown.hierarchy.tree import Flags, Numbers, Places
from stirred.mechanisms.topdown.solve.problem import NO_LIMIT, Lattice, SolverMethod

WHOLE: Final = 1e-6  # what is nearer than this to a whole number is one
_INF: Final = float("inf")
CellSet = tuple[Flags, Places, Places]  # cells, and the least and most that each child has in them
# What is tried at most, counted in steps and never in seconds: how busy a machine is must not decide a count.
_MOST_STEPS: Final = {"qp_iteration_limit": 200_000, "simplex_iteration_limit": 1_000_000, "mip_max_nodes": 20_000}


@dataclass(kw_only=True)
class Program:
    """Minimise x'Hx/2 + c'x for columns within bounds, subject to rows within bounds; some columns whole."""

    cost: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[tuple[Sequence[int], Sequence[float], float, float]] = field(default_factory=list)
    quadratic: dict[tuple[int, int], float] = field(default_factory=dict)  # of the lower triangle (row >= column)

    def column(self, cost: float = 0.0, low: float = 0.0, high: float = _INF, *, whole: bool = False) -> int:
        """Add a column and return its number."""
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, columns: Sequence[int], low: float, high: float, values: Sequence[float] | None = None) -> None:
        """Add a row: a sum of columns, each times its value, or 1."""
        self.rows.append((columns, [1.0] * len(columns) if values is None else values, low, high))

    def solve(self) -> tuple[Numbers, float] | None:
        """Return the optimum and its cost, or None if there is none or HiGHS did not prove it."""
        import highspy

        if not self.cost:
            return (np.zeros(0), 0.0) if all(low <= 0.0 <= high for _, _, low, high in self.rows) else None
        model = highspy.HighsModel()
        lp = model.lp_
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.rows)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.array(self.cost), np.array(self.low), np.array(self.high)
        lp.row_lower_ = np.array([low for _, _, low, _ in self.rows], dtype=np.float64)
        lp.row_upper_ = np.array([high for _, _, _, high in self.rows], dtype=np.float64)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(columns) for columns, _, _, _ in self.rows)])
        lp.a_matrix_.index_ = np.array([c for columns, _, _, _ in self.rows for c in columns], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([v for _, values, _, _ in self.rows for v in values], dtype=np.float64)
        if any(self.whole):
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[each] for each in self.whole]
        if self.quadratic:
            self._hessian(highspy, model.hessian_)
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        for name, most in _MOST_STEPS.items():
            solver.setOptionValue(name, most)
        solver.passModel(model)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        return np.array(solver.getSolution().col_value), float(solver.getInfo().objective_function_value)

    def _hessian(self, highspy: Any, hessian: Any) -> None:
        entries = sorted((column, row, value) for (row, column), value in self.quadratic.items() if value != 0.0)
        hessian.dim_ = len(self.cost)
        hessian.format_ = highspy.HessianFormat.kTriangular
        starts = np.searchsorted([column for column, _, _ in entries], np.arange(len(self.cost) + 1))
        hessian.start_ = starts.astype(np.int32)
        hessian.index_ = np.array([row for _, row, _ in entries], dtype=np.int32)
        hessian.value_ = np.array([value for _, _, value in entries], dtype=np.float64)


class Quadratic(NamedTuple):
    """The problem of one parent's children, as :func:`admm_kernel.solve_parent` says: its arguments, in order."""

    parent: Numbers
    free: Flags
    precision: Numbers
    kind: Places
    linear: Numbers
    lattice: Lattice
    equal_groups: Flags
    equal_at: int
    equal_to: Numbers
    bound_groups: Flags
    lowest: Numbers
    highest: Numbers

    def by_kernel(self, tolerance: float, most: int) -> tuple[Numbers, Numbers, bool]:
        """Return the optimum, the report of the kernel, and whether it settled."""
        from stirred.mechanisms.topdown.solve.admm_kernel import solve_parent

        kernel: Any = solve_parent
        # Arrays in one layout, for which the kernel is compiled.
        lattice = self.lattice
        structure = lattice.place, lattice.groups, lattice.contains, lattice.outside, np.array(lattice.sizes, np.int64)
        arguments = *self[:5], *structure, lattice.block, *self[6:]
        own = (np.ascontiguousarray(each) if isinstance(each, np.ndarray) else each for each in arguments)
        found, report = np.zeros(self.linear.shape), np.zeros(5)
        return found, report, kernel(*own, tolerance, most, found, report)

    def by_highs(self) -> Numbers | None:
        """Return the optimum of the same problem by HiGHS."""
        program, place = Program(), self.lattice.place
        columns = np.full(self.linear.shape, -1, dtype=np.int64)
        for c, a, e in np.argwhere(self.free):
            columns[c, a, e] = program.column(-float(self.linear[c, a, e]))
        for a, e in np.argwhere(self.parent > 0):
            program.row([*columns[:, a, e][columns[:, a, e] >= 0]], self.parent[a, e], self.parent[a, e])
        for c, kind in enumerate(self.kind):
            own = np.argwhere(columns[c] >= 0)
            for i, (a, e) in enumerate(own):
                for b, f in own[: i + 1]:
                    value = sum(self.precision[kind, u, a, b] for u in np.flatnonzero(place[:, e] == place[:, f]))
                    program.quadratic[int(columns[c, a, e]), int(columns[c, b, f])] = float(value)
            for g, k in np.ndindex(self.equal_to.shape[1:]):
                inside, count = columns[c][self.equal_groups[g]][:, place[self.equal_at] == k], self.equal_to[c, g, k]
                program.row([*inside[inside >= 0]], float(count), float(count))
            for g, members in enumerate(self.bound_groups):
                inside = columns[c][members]
                program.row([*inside[inside >= 0]], float(self.lowest[c, g]), float(self.highest[c, g]))
        solved = program.solve()
        if solved is None:
            return None
        found = np.zeros(self.linear.shape)
        found[columns >= 0] = solved[0][columns[columns >= 0]]
        return found


class _RoundingProgram:
    """An integer program: for each child and cell the columns that move it from its floor."""

    def __init__(self, values: Numbers, allowed: Flags, weight: float, method: SolverMethod, slack: int) -> None:
        self.program, self.method = Program(), method
        self.floors = np.where(allowed, np.floor(values + WHOLE), 0).astype(np.int64)
        self.parts = np.where(allowed, np.maximum(values - self.floors, 0.0), 0.0)
        self.parts[self.parts <= WHOLE] = 0.0
        self.columns: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for c, j in np.argwhere((self.parts > 0) | (allowed & (slack > 0))):
            part = self.parts[c, j]
            cost = 1.0 - 2.0 * part
            if method.pre_rounded == 1:
                cost = (1.0 if part <= 0.5 else -1.0) + 1e-4 * cost
            own = [(self.program.column(weight * cost, 0.0, 1.0, whole=True), 1.0)]
            if slack:
                most = min(slack, int(self.floors[c, j]))
                own.append((self.program.column(2.0 * weight, 0.0, slack, whole=True), 1.0))
                own.append((self.program.column(2.0 * weight, 0.0, most, whole=True), -1.0))
            self.columns[int(c), int(j)] = own

    def _terms(self, cells: Flags) -> tuple[list[int], list[float]]:
        terms = [term for c, j in np.argwhere(cells) for term in self.columns.get((int(c), int(j)), ())]
        return [column for column, _ in terms], [value for _, value in terms]

    def bound(self, cells: Flags, low: float, high: float) -> None:
        whole, (columns, values) = float(self.floors[cells].sum()), self._terms(cells)
        self.program.row(columns, low - whole, high - whole, values)

    def near(self, cells: Flags, weight: float) -> None:
        """Add the cost of a group: the distance of its count from its value, as the kernel has it."""
        total = float(self.parts[cells].sum())
        base = float(np.rint(total)) if self.method.pre_rounded else float(np.floor(total + WHOLE))
        middle = 1.0 if self.method.pre_rounded else 1.0 - 2.0 * max(total - base, 0.0)
        # count = base - below + step + above, where above costs no less than step.
        slopes = (1.0, _INF), (middle, 1.0), (1.0, _INF)
        distance = [self.program.column(weight * cost, 0.0, most) for cost, most in slopes]
        columns, values = self._terms(cells)
        self.program.row([*columns, *distance], base, base, [*values, 1.0, -1.0, -1.0])

    def counts(self) -> Places | None:
        """Return the whole counts, or None if there are none."""
        solved = self.program.solve()
        if solved is None:
            return None
        found = self.floors.copy()
        for (c, j), own in self.columns.items():
            found[c, j] += sum(int(np.rint(solved[0][column])) * int(sign) for column, sign in own)
        return found


class Rounding(NamedTuple):
    """The rounding of one parent's children, as :func:`flow_kernel.round_children` says: its arguments, in order."""

    values: Numbers
    need: Places
    column: Places
    chain: Places
    low: Places
    high: Places
    allowed: Flags
    group: Places
    group_total: Places
    method: SolverMethod

    def by_kernel(self, slack: int) -> Places | None:
        """Return the whole counts by network flow, or None if there are none; ``slack`` lets cells move further."""
        from stirred.mechanisms.topdown.solve.flow_kernel import round_children

        kernel: Any = round_children
        found, weights = np.zeros(self.values.shape, dtype=np.int64), self.method.weights(len(self.chain))
        values = np.ascontiguousarray(self.values)
        left = kernel(values, *self[1:9], weights, self.method.pre_rounded, slack, WHOLE, found)
        return found if left == 0 else None

    def by_highs(self, slack: int = 0, *, off_chain: Sequence[CellSet] = ()) -> Places | None:
        """Return the same by an integer program that also bounds sets of cells off the chain; None if impossible.

        With overlapping sets there may be no whole counts next to the optimum.
        """
        values, sets = self.values, [*off_chain, *self._limits()]
        weights = self.method.weights(len(self.chain)).astype(np.float64)
        units = _RoundingProgram(values, self.allowed, float(weights[-1]), self.method, slack)
        children = np.arange(len(values))[:, None]
        for place, count in enumerate(self.need):
            units.bound(np.broadcast_to(self.column == place, values.shape), float(count), float(count))
        for c in range(len(values)):
            for level, groups in enumerate(self.chain):
                for g in np.unique(groups):
                    cells = (children == c) & (groups == g)
                    units.near(cells, float(weights[level]))
                    if level == 0:
                        total = float(values[c].sum())
                        units.bound(cells, np.floor(total + WHOLE) - slack, np.ceil(total - WHOLE) + slack)
            for members, low, high in sets:
                units.bound((children == c) & members, float(low[c]), float(min(high[c], NO_LIMIT)))
        for place, total in enumerate(self.group_total):
            if total >= 0:
                units.bound(np.broadcast_to((self.group == place)[:, None], values.shape), float(total), float(total))
        return units.counts()

    def _limits(self) -> Iterator[CellSet]:
        """Yield the groups along the chain that have limits."""
        for level, own in enumerate(self.chain):
            for group in range(own.max() + 1):
                least, most = self.low[:, level, group], self.high[:, level, group]
                if np.any(least > 0) or np.any(most < NO_LIMIT):
                    yield own == group, least, most
