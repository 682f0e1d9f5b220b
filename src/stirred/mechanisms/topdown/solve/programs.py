"""Programs for HiGHS: the cross-check of our own kernels, and what is left where their structure does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
_INF = float("inf")
# What is tried at most, counted in steps and never in seconds: how busy a machine is must not decide a count.
_MOST_STEPS = {"qp_iteration_limit": 200_000, "simplex_iteration_limit": 1_000_000, "mip_max_nodes": 20_000}


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
