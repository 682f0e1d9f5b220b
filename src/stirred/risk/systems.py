"""Counts that add up to published totals: bounds by propagation, and integer programs for what it leaves open.

A system has cells, each a whole number from 0 on, and equations: some cells add up to a total. Propagation narrows the
range of every cell by each equation until nothing changes; its bounds hold for every solution. Programs are solved by
HiGHS; an answer is called proven only where the solver has proved it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]
_ROUNDS: Final = 10_000
_FEWER: Final = 0.01  # what a unit costs beside one that a sum is off: it decides ties alone
Status = Literal["solved", "infeasible", "time limit"]


@dataclass(frozen=True, kw_only=True, eq=False)
class System:
    """Equations row by row: the cells ``index[start[i]:start[i + 1]]`` add up to ``total[i]``."""

    cells: int
    start: _Array
    index: _Array
    total: _Array

    @classmethod
    def of(cls, cells: int, equations: Sequence[tuple[Sequence[int] | _Array, int]]) -> System:
        """Return the system of equations given as (cells, total)."""
        sizes = [len(members) for members, _ in equations]
        index = np.concatenate([np.asarray(members, dtype=np.int64) for members, _ in equations] or [np.zeros(0, int)])
        return cls(
            cells=cells,
            start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            index=index.astype(np.int64),
            total=np.array([total for _, total in equations], dtype=np.int64),
        )

    @cached_property
    def row(self) -> _Array:
        """Return the equation of each entry."""
        return np.repeat(np.arange(self.total.size), np.diff(self.start))

    def sums(self, values: _Array) -> _Array:
        """Return what the cells of each equation add up to."""
        return np.bincount(self.row, weights=values[self.index], minlength=self.total.size).astype(np.int64)


def propagated(system: System, low: _Array | None = None, high: _Array | None = None) -> tuple[_Array, _Array] | None:
    """Return bounds of every cell that hold for every solution; None where there is none.

    >>> low, high = propagated(System.of(3, [([0, 1], 2), ([1, 2], 0)]))
    >>> low.tolist(), high.tolist()
    ([2, 0, 0], [2, 0, 0])
    """
    most = int(system.total.max(initial=0))
    low = np.zeros(system.cells, dtype=np.int64) if low is None else low.copy()
    high = np.full(system.cells, most, dtype=np.int64) if high is None else high.copy()
    row, index = system.row, system.index
    for _ in range(_ROUNDS):
        before = int(high.sum() - low.sum())
        np.minimum.at(high, index, (system.total - system.sums(low))[row] + low[index])
        np.maximum.at(low, index, (system.total - system.sums(high))[row] + high[index])
        if (low > high).any() or (system.sums(low) > system.total).any() or (system.sums(high) < system.total).any():
            return None
        if int(high.sum() - low.sum()) == before:
            break
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """What a program came to: the values where it is solved, the objective, and the bound that is proved for it."""

    status: Status
    values: _Array
    objective: float = 0.0
    bound: float = 0.0


def solved(
    system: System,
    *,
    cost: _Array,
    low: _Array,
    high: _Array,
    integer: bool = True,
    more: Sequence[tuple[_Array, _Array, float, float]] = (),
    seconds: float = 60.0,
) -> Solution:
    """Return the cheapest solution within bounds; ``more`` are inequalities (cells, weights, lowest, highest).

    Cells beyond ``system.cells`` are those that only ``more`` has.
    """
    import highspy

    columns = cost.size
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, system.total.size + len(more)
    lp.col_cost_ = np.asarray(cost, dtype=np.float64)
    lp.col_lower_, lp.col_upper_ = low.astype(np.float64), high.astype(np.float64)
    lp.row_lower_ = np.array([*system.total, *(least for _, _, least, _ in more)], dtype=np.float64)
    lp.row_upper_ = np.array([*system.total, *(most for _, _, _, most in more)], dtype=np.float64)
    sizes = [*np.diff(system.start), *(len(members) for members, _, _, _ in more)]
    matrix = lp.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    matrix.index_ = np.concatenate([system.index, *(members for members, _, _, _ in more)]).astype(np.int32)
    matrix.value_ = np.concatenate([np.ones(system.index.size), *(weights for _, weights, _, _ in more)])
    if integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * columns
    solver = highspy.Highs()
    for name, value in (("output_flag", False), ("threads", 1), ("time_limit", seconds), ("mip_abs_gap", 0.5),
                        ("mip_rel_gap", 0.0)):  # fmt: skip
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    kinds = highspy.HighsModelStatus
    nothing = np.zeros(0)
    if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):
        return Solution(status="infeasible", values=nothing)
    if status != kinds.kOptimal:
        return Solution(status="time limit", values=nothing, bound=float(info.mip_dual_bound))
    values = np.array(solver.getSolution().col_value)
    bound = float(info.mip_dual_bound) if integer else float(info.objective_function_value)
    return Solution(
        status="solved",
        values=np.rint(values).astype(np.int64) if integer else values,
        objective=float(info.objective_function_value),
        bound=bound,
    )


def nearest(system: System, *, weight: _Array, seconds: float = 60.0) -> Solution:
    """Return whole numbers whose sums are nearest to totals that need not agree: the least sum of w |sum - total|.

    With w the inverse of the scale of the noise this is the most likely solution under noise of Laplace. Of equally
    near ones it has the smallest numbers: noise in many empty cells would fill them otherwise.

    >>> found = nearest(System.of(2, [([0], 3), ([0, 1], 5), ([1], -1)]), weight=np.array([1.0, 2.0, 1.0]))
    >>> found.values.tolist()
    [3, 2]
    """
    weight = weight / weight.min(initial=np.inf)  # the solver stops half a unit from the best
    rows, cells = system.total.size, system.cells
    more = [
        (
            np.concatenate([system.index[begin:end], [cells + row, cells + rows + row]]),
            np.concatenate([np.ones(end - begin), [-1.0, 1.0]]),
            float(total),
            float(total),
        )
        for row, (begin, end, total) in enumerate(zip(system.start[:-1], system.start[1:], system.total, strict=True))
    ]
    most = max(int(system.total.max(initial=0)), 0)
    off = np.full(2 * rows, np.inf)
    found = solved(
        System.of(cells, []),
        cost=np.concatenate([np.full(cells, _FEWER), weight, weight]),
        low=np.zeros(cells + 2 * rows),
        high=np.concatenate([np.full(cells, float(most)), off]),
        more=more,
        seconds=seconds,
    )
    return replace(found, values=found.values[:cells])
