"""The non-negative optimum of the children of a parent: printed cases, HiGHS, and every possible support."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.solve.admm_kernel import invert, solve_parent, to_blocks
from stirred.mechanisms.topdown.solve.feasible import _filled
from stirred.mechanisms.topdown.solve.problem import CellGrid, Lattice, lattice_of
from stirred.mechanisms.topdown.solve.programs import Quadratic
from tests.mechanisms.topdown.hierarchies import answer


def problem(
    centre: Any,
    *,
    parent: Any,
    precision: Any = None,
    totals: Any = None,
    allowed: Any = None,
    sets: Any = None,
    low: Any = None,
    high: Any = None,
    sizes: tuple[int, ...] = (),
) -> tuple[Any, ...]:
    """Return the arguments of the kernel: centres (children, a, e), parent (a, e), precisions in sum form by child."""
    centre = np.asarray(centre, dtype=float)
    if centre.ndim == 2:
        centre = centre[:, :, None]
    children, height, width = centre.shape
    lattice = lattice_of(sizes)
    if precision is None:
        precision = (
            np.tile(np.eye(height), (children, len(lattice.kept), 1, 1))
            * (np.arange(len(lattice.kept)) == 0)[None, :, None, None]
        )
    precision = np.asarray(precision, dtype=float)
    dense = [in_full(precision[c], lattice) for c in range(children)]
    linear = np.stack([(w @ x.reshape(-1)).reshape(height, width) for w, x in zip(dense, centre, strict=True)])
    sets = np.zeros((0, height), dtype=bool) if sets is None else np.asarray(sets, dtype=bool)
    equal = np.ones((0 if totals is None else 1, height), dtype=bool)
    return (
        np.asarray(parent, dtype=float).reshape(height, width),
        _free(np.asarray(parent, dtype=float).reshape(height, width), children, allowed),
        precision,
        np.arange(children),
        linear,
        lattice.place,
        lattice.groups,
        lattice.contains,
        lattice.outside,
        np.array(lattice.sizes, dtype=np.int64),
        lattice.block,
        equal,
        0,
        np.zeros((children, 0, 1)) if totals is None else np.asarray(totals, dtype=float).reshape(children, 1, 1),
        sets,
        np.zeros((children, len(sets))) if low is None else np.asarray(low, dtype=float),
        np.full((children, len(sets)), 1e12) if high is None else np.asarray(high, dtype=float),
    )


def _free(parent: np.ndarray, children: int, allowed: Any) -> np.ndarray:
    rows = np.ones((children, len(parent)), dtype=bool) if allowed is None else np.asarray(allowed, dtype=bool)
    return rows[:, :, None] & (parent != 0)[None]


def in_full(sums: np.ndarray, lattice: Lattice) -> np.ndarray:
    """Return a matrix in sum form as it is."""
    height, width = sums.shape[1], lattice.width
    found = np.zeros((height, width, height, width))
    for matrix, place in zip(sums, lattice.place, strict=True):
        found += matrix[:, None, :, None] * (place[:, None] == place[None, :])[None, :, None, :]
    return found.reshape(height * width, -1)


def quadratic(arguments: Any) -> Quadratic:
    return Quadratic._make([*arguments[:5], lattice_of(tuple(arguments[9].tolist())), *arguments[11:]])


def optimum(arguments: Any, tolerance: float = 1e-10) -> np.ndarray:
    found, report = np.zeros(arguments[4].shape), np.zeros(5)
    kernel: Any = solve_parent
    assert kernel(*arguments, tolerance, 20_000, found, report)
    assert abs(report[4]) <= 1e-6 * (1 + abs(report[3])), "the duality gap is closed"
    return found


# ---- printed cases (topdown.md, section 8) -----------------------------------------------------------------


def test_case_7_one_total_is_shared_out_by_water_filling() -> None:
    assert _filled(np.array([4.0, -3, 1]), np.ones(3), np.zeros(3), np.full(3, 9.0), 6.0) == pytest.approx(
        [4.5, 0, 1.5]
    )
    found = optimum(problem([[4.0], [-3], [1]], parent=[6.0]))
    assert found.reshape(-1) == pytest.approx([4.5, 0, 1.5], abs=1e-8)


def test_case_8_the_less_precise_moves_more() -> None:
    variance = np.array([1.0, 1, 3])
    found = _filled(np.array([4.0, -3, 1]), variance, np.zeros(3), np.full(3, 9.0), 6.0)
    assert found == pytest.approx([4.25, 0, 1.75])
    again = optimum(problem([[4.0], [-3], [1]], parent=[6.0], precision=(1 / variance)[:, None, None, None]))
    assert again.reshape(-1) == pytest.approx(found, abs=1e-8)


def test_case_9_children_share_the_cells_of_their_parent_with_and_without_known_totals() -> None:
    centre = [[2.5, -0.5], [1.5, 1.5]]
    assert optimum(problem(centre, parent=[3, 2]))[:, :, 0] == pytest.approx(np.array([[2, 0], [1, 2]]), abs=1e-8)
    fixed = optimum(problem(centre, parent=[3, 2], totals=[3, 2]))[:, :, 0]
    assert fixed == pytest.approx(np.array([[2.5, 0.5], [0.5, 1.5]]), abs=1e-8)


@pytest.mark.parametrize(
    ("centre", "parent", "expected"),
    [
        ([[2, -1], [1, 2]], [2, 2], [[1.25, 0], [0.75, 2]]),
        ([[1, -2], [1.5, 2.5]], [3, 1], [[0.375, 0], [2.625, 1]]),
    ],
)
def test_cases_10_and_11_a_measured_total_ties_cells_together(centre: Any, parent: Any, expected: Any) -> None:
    precision = np.tile(np.eye(2) + 1, (2, 1, 1, 1))
    found = optimum(problem(centre, parent=parent, precision=precision))[:, :, 0]
    assert found == pytest.approx(np.array(expected), abs=1e-8)


def test_case_21_a_published_margin_leaves_transport_problems_of_their_own() -> None:
    found = optimum(problem([[1.2, 0.9], [2.9, 0.1]], parent=[4, 1], totals=[2, 3]))[:, :, 0]
    assert found == pytest.approx(np.array([[1.125, 0.875], [2.875, 0.125]]), abs=1e-8)


# ---- against slower ways ----------------------------------------------------------------------------------


def random_problem(seed: int) -> tuple[Any, ...]:
    """Return a problem on a grid of two differing rows and 2 x 3 exchangeable codes, with a way to keep its limits."""
    rng = np.random.default_rng(seed)
    lattice = lattice_of((2, 3))
    children, height = int(rng.integers(2, 5)), 2
    truth = rng.poisson(2.0, (children, height, lattice.width)).astype(float)
    allowed = np.ones((children, height), dtype=bool)
    if seed % 3 == 0:
        allowed[0, 1] = False
        truth[0, 1] = 0
    precision = np.zeros((children, len(lattice.kept), height, height))
    for c in range(children):
        precision[c, 0] = rng.choice([0.0, 0.5]) * np.ones((height, height)) + rng.random() * np.eye(height)
        precision[c, 1] = rng.choice([0.0, 1.0]) * np.eye(height)
        precision[c, 2] = rng.choice([0.0, 2.0]) * np.ones((height, height))
        precision[c, 3] = (0.3 + rng.random()) * np.eye(height)
    centre = truth + rng.normal(0, 2, truth.shape)
    sets = np.array([[True, False], [False, True]])
    held = truth.sum(axis=2) @ sets.T
    return problem(
        centre,
        parent=truth.sum(axis=0),
        precision=precision,
        totals=truth.sum(axis=(1, 2)) if seed % 2 else None,
        allowed=allowed,
        sets=sets if seed % 5 < 2 else None,
        low=np.maximum(held - 1, 0) if seed % 5 < 2 else None,
        high=held + 1 if seed % 5 < 2 else None,
        sizes=(2, 3),
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_optimum_is_that_of_highs(seed: int) -> None:
    arguments = random_problem(seed)
    found = optimum(arguments)
    reference = quadratic(arguments).by_highs()
    assert reference is not None
    assert cost(arguments, found) <= cost(arguments, reference) + 1e-6
    assert found == pytest.approx(reference, abs=2e-4)  # HiGHS stops within 1e-7 of its own conditions, not of x
    assert found.min() >= 0
    assert found.sum(axis=0) == pytest.approx(arguments[0], abs=1e-9)


def cost(arguments: tuple[Any, ...], x: np.ndarray) -> float:
    lattice = lattice_of((2, 3))
    total = 0.0
    for c in range(len(x)):
        w = in_full(arguments[2][c], lattice)
        total += float(0.5 * x[c].reshape(-1) @ w @ x[c].reshape(-1) - arguments[4][c].reshape(-1) @ x[c].reshape(-1))
    return total


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_the_best_over_all_supports(seed: int) -> None:
    """Solve the equations of every support of two children and three cells, and keep the best that is not negative."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(2, 3, 3))
    precision = (roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(3))[:, None]
    centre = rng.normal(1, 2, (2, 3))
    parent = rng.integers(1, 5, 3).astype(float)
    best, least = None, np.inf
    for zeros in product((0, 1, 2), repeat=3):  # for each cell: both children, only the second, only the first
        first_is_free = np.array([z != 1 for z in zeros])
        rows = [np.eye(3)[j] for j in range(3) if zeros[j]]
        fixed = [0.0 if zeros[j] == 1 else parent[j] for j in range(3) if zeros[j]]
        quadratic = precision[0, 0] + precision[1, 0]
        linear = precision[0, 0] @ centre[0] + precision[1, 0] @ (parent - centre[1])
        k = len(rows)
        system = np.block(
            [[quadratic, np.array(rows).reshape(k, 3).T], [np.array(rows).reshape(k, 3), np.zeros((k, k))]]
        )
        x = np.linalg.solve(system, np.concatenate([linear, fixed]))[:3]
        both = np.stack([x, parent - x])
        value = sum(0.5 * (both[c] - centre[c]) @ precision[c, 0] @ (both[c] - centre[c]) for c in range(2))
        if both.min() >= -1e-12 and value < least and first_is_free.size:
            best, least = both, value
    assert best is not None
    assert optimum(problem(centre, parent=parent, precision=precision))[:, :, 0] == pytest.approx(best, abs=1e-8)


def test_a_bound_that_binds_is_kept_and_one_that_does_not_changes_nothing() -> None:
    centre = [[2.5, -0.5], [1.5, 1.5]]
    free = optimum(problem(centre, parent=[3, 2]))
    wide = optimum(problem(centre, parent=[3, 2], sets=[[0, 1]], low=[[0], [0]], high=[[2], [2]]))
    assert wide == pytest.approx(free, abs=1e-8)
    bound = optimum(problem(centre, parent=[3, 2], sets=[[0, 1]], low=[[1], [0]], high=[[2], [2]]))
    assert bound[0, 1, 0] == pytest.approx(1, abs=1e-8)


# ---- the structure ----------------------------------------------------------------------------------------


def test_a_precision_in_blocks_is_the_one_in_sums() -> None:
    rng = np.random.default_rng(4)
    lattice = lattice_of((2, 3))
    sums = rng.normal(size=(4, 2, 2))
    sums = sums + sums.transpose(0, 2, 1)
    blocks = np.empty_like(sums)
    to_blocks(sums, lattice.contains, lattice.outside, blocks)
    assert lattice.sums(blocks[None])[0] == pytest.approx(sums)
    values = np.concatenate([np.repeat(np.linalg.eigvalsh(b), m) for b, m in zip(blocks, (1, 1, 2, 2), strict=True)])
    assert np.sort(values) == pytest.approx(np.linalg.eigvalsh(in_full(sums, lattice)))


def test_a_matrix_is_inverted_by_sweeps_and_one_that_is_not_definite_is_said_so() -> None:
    root = np.random.default_rng(1).normal(size=(5, 5))
    matrix = root @ root.T + np.eye(5)
    found = matrix.copy()
    assert invert(found)
    assert found @ matrix == pytest.approx(np.eye(5))
    assert not invert(np.array([[0.0]]))


def test_the_precision_of_queries_is_the_sum_of_their_squares() -> None:
    schema = Schema(
        name="toy",
        attributes=(
            Attribute(name="home", codes=("a", "b", "c"), groupings={"large": (0, 1, 1)}),
            Attribute(name="race", codes=("1", "2", "3", "4")),
        ),
    )
    queries = [schema.query(name) for name in ("total", "large", "race", "large * race", "detailed")]
    grid = CellGrid.of(schema, queries)
    assert grid.differing == (0,)
    weights = np.array([[1.0, 0.5, 2.0, 0.25, 3.0]])
    expected = np.zeros((12, 12))
    for query, weight in zip(queries, weights[0], strict=True):
        matrix = answer(query, np.eye(12)).T
        expected += weight * matrix.T @ matrix
    found = in_full(grid.precision(queries, weights)[0], grid.lattice)
    assert found == pytest.approx(expected[np.ix_(grid.cell_at.reshape(-1), grid.cell_at.reshape(-1))])
