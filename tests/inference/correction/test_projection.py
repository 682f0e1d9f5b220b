"""The nearest table that margins allow, against a general solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from stirred.inference.unswap import project

TABLES = [
    np.array([[9.0, -3.0, 4.0], [-1.0, 6.0, 1.0]]),
    np.array([[-2.5, 4.5, 6.0, 2.0], [7.0, -1.0, 3.0, 1.0], [3.5, 2.5, -4.0, 8.0]]),
    np.array([[5.0, 1.0], [2.0, 7.0]]),
]


@pytest.mark.parametrize("columns_fixed", [True, False])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.shape[0]}x{table.shape[1]}")
def test_the_projection_is_the_least_squares_one(table: np.ndarray, columns_fixed: bool) -> None:
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    inside = np.outer(rows, columns) / table.sum()
    low, high = np.zeros_like(table), np.minimum(rows[:, None], columns[None, :])
    if not columns_fixed:
        high = np.broadcast_to(rows[:, None], table.shape).copy()
    found = project(table, low=low, high=high, inside=inside, columns_fixed=columns_fixed)
    sums = [{"type": "eq", "fun": lambda x: x.reshape(table.shape).sum(axis=1) - rows}]
    if columns_fixed:
        sums.append({"type": "eq", "fun": lambda x: x.reshape(table.shape).sum(axis=0)[1:] - columns[1:]})
    best = minimize(
        lambda x: ((x - table.ravel()) ** 2).sum(),
        inside.ravel(),
        bounds=list(zip(low.ravel(), high.ravel(), strict=True)),
        constraints=sums,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.sum(axis=1) == pytest.approx(rows, abs=1e-6)
    if columns_fixed:
        assert found.sum(axis=0) == pytest.approx(columns, abs=1e-6)
    assert np.all(found >= low)
    assert np.all(found <= high)
    assert found.ravel() == pytest.approx(best.x, abs=1e-4)


def test_a_table_inside_its_bounds_stays_as_it_is() -> None:
    table = TABLES[2]
    found = project(table, low=0 * table, high=10 + 0 * table, inside=table)
    assert np.array_equal(found, table)


def test_cells_that_the_margins_fix_are_not_moved() -> None:
    table = np.array([[4.0, -1.0, 0.0], [1.0, 3.0, 2.0]])
    high = np.array([[5.0, 5.0, 0.0], [5.0, 5.0, 2.0]])
    low = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    inside = np.array([[2.4, 0.6, 0.0], [2.6, 1.4, 2.0]])
    found = project(table, low=low, high=high, inside=inside)
    assert found[:, 2].tolist() == [0.0, 2.0]
    assert found.ravel() == pytest.approx([3.0, 0.0, 0.0, 2.0, 2.0, 2.0], abs=1e-6)
