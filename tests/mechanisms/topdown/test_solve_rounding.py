"""Controlled rounding: printed cases, the linear program, and every rounding of small tables."""

from __future__ import annotations

from itertools import product
from typing import Any

import highspy
import numpy as np
import pytest

from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Level, Tree
from stirred.mechanisms.topdown.solve.flow_kernel import round_children, settle
from stirred.mechanisms.topdown.solve.problem import NO_LIMIT, LimitGroups, SolverMethod
from stirred.mechanisms.topdown.solve.programs import WHOLE, Program, Rounding
from tests.mechanisms.topdown.wards import people

CHAIN = np.array([[0, 0, 0, 0], [0, 0, 1, 1]])  # the total, two groups, four cells


def rounded(
    values: np.ndarray,
    *,
    chain: np.ndarray | None = None,
    mode: int = 0,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, int]:
    children, cells = values.shape
    chain = np.zeros((1, cells), dtype=np.int64) if chain is None else chain
    shape = (children, len(chain), int(chain.max()) + 1)
    found = np.zeros(values.shape, dtype=np.int64)
    left = round_children(
        values,
        np.rint(values.sum(axis=0)).astype(np.int64),
        np.arange(cells),
        chain,
        np.zeros(shape, dtype=np.int64) if low is None else low,
        np.full(shape, NO_LIMIT) if high is None else high,
        np.ones(values.shape, dtype=bool),
        np.zeros(children, dtype=np.int64),
        np.array([-1]),
        np.ones(len(chain) + 1, dtype=np.int64) if weights is None else weights,
        mode,
        0,
        WHOLE,
        found,
    )
    return found, left


def cell_cost(values: np.ndarray, found: np.ndarray, mode: int) -> float:
    up, part = found - np.floor(values), values - np.floor(values)
    return float(((1 - 2 * part) * up).sum() if mode == 0 else np.abs(up - np.rint(part)).sum())


def table(seed: int, children: int = 3) -> np.ndarray:
    """Return real counts whose columns are whole."""
    rng = np.random.default_rng(seed)
    values = rng.gamma(0.6, 2.0, (children, 4)) * (rng.random((children, 4)) < 0.8)
    values[-1] += np.ceil(values.sum(axis=0)) - values.sum(axis=0)
    return values


def chain_cost(values: np.ndarray, found: np.ndarray, chain: np.ndarray) -> float:
    """Return the documented objective: distances interpolated between whole numbers, over the chain and cells."""
    total = 0.0
    for groups in [*chain, np.arange(values.shape[1])]:
        for c, g in product(range(len(values)), np.unique(groups)):
            s, k = values[c, groups == g].sum(), found[c, groups == g].sum()
            floor = np.floor(s + WHOLE)
            steps = (k - floor) * (1 - 2 * max(s - floor, 0)) if floor <= k <= floor + 1 else None
            total += (
                steps if steps is not None else (floor - k if k < floor else k - floor - 1 + 1 - 2 * max(s - floor, 0))
            )
    return total


def test_case_12_the_documented_objective_prefers_the_nearest_and_the_production_one_ties() -> None:
    values = np.array([[0.3, 0.3, 0.4], [0.7, 0.7, 0.6]])
    options = [np.stack([np.eye(3, dtype=np.int64)[k], 1 - np.eye(3, dtype=np.int64)[k]]) for k in range(3)]
    assert [cell_cost(values, each, 0) for each in options] == pytest.approx([-0.2, -0.2, -0.6])
    assert [cell_cost(values, each, 1) for each in options] == [2, 2, 2]
    for mode in (0, 1, 2):  # production leaves the choice open; ours is then the nearest
        found, left = rounded(values, mode=mode)
        assert left == 0
        assert np.array_equal(found, options[2])


def test_case_21_a_published_margin_is_kept_by_rounding() -> None:
    found, left = rounded(np.array([[1.125, 0.875], [2.875, 0.125]]))
    assert left == 0
    assert found.tolist() == [[1, 1], [3, 0]]


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("seed", range(25))
def test_rounding_keeps_columns_and_stays_beside_the_values(seed: int, mode: int) -> None:
    values = table(seed, children=5)
    found, left = rounded(values, chain=CHAIN, mode=mode)
    assert left == 0
    assert found.min() >= 0
    assert np.array_equal(found.sum(axis=0), np.rint(values.sum(axis=0)))
    assert np.abs(found - values).max() < 1
    assert np.abs(found.sum(axis=1) - values.sum(axis=1)).max() < 1


@pytest.mark.parametrize("seed", range(20))
def test_no_rounding_is_cheaper_among_all_of_a_small_table(seed: int) -> None:
    values = table(seed)
    found, _ = rounded(values, chain=CHAIN)
    floors = np.floor(values + WHOLE).astype(np.int64)
    need = np.rint(values.sum(axis=0)).astype(np.int64)
    free = np.argwhere(values - floors > WHOLE)
    best = np.inf
    for ups in product((0, 1), repeat=len(free)):
        other = floors.copy()
        for (c, j), up in zip(free, ups, strict=True):
            other[c, j] += up
        if np.array_equal(other.sum(axis=0), need) and np.abs(other.sum(axis=1) - values.sum(axis=1)).max() < 1:
            best = min(best, chain_cost(values, other, CHAIN))
    assert chain_cost(values, found, CHAIN) == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_the_flow_costs_what_the_program_of_highs_costs_and_that_is_the_linear_bound(seed: int, mode: int) -> None:
    values = table(seed, children=4)
    found, _ = rounded(values, chain=CHAIN, mode=mode)
    programs: list[float] = []
    solve = Program.solve

    def both(program: Program) -> tuple[np.ndarray, float] | None:
        whole = solve(program)
        program.whole = [False] * len(program.whole)
        relaxed = solve(program)
        assert whole is not None
        assert relaxed is not None
        programs.extend([whole[1], relaxed[1]])
        return whole

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "solve", both)
        other = Rounding(
            values=values,
            need=np.rint(values.sum(axis=0)).astype(np.int64),
            column=np.arange(4),
            chain=CHAIN,
            low=np.zeros((4, 2, 2), dtype=np.int64),
            high=np.full((4, 2, 2), NO_LIMIT),
            allowed=np.ones(values.shape, dtype=bool),
            group=np.zeros(4, dtype=np.int64),
            group_total=np.array([-1]),
            method=SolverMethod(name="", pre_rounded=mode),
        ).by_highs()
    assert other is not None
    assert programs[0] == pytest.approx(programs[1], abs=1e-6), "the linear program is whole by itself"
    if mode == 0:
        assert chain_cost(values, found, CHAIN) == pytest.approx(chain_cost(values, other, CHAIN), abs=1e-4)


def test_bounds_of_groups_are_kept_by_rounding() -> None:
    values = np.array([[0.4, 0.4, 0.1, 0.1], [0.6, 0.6, 0.9, 0.9]])
    low = np.zeros((2, 2, 2), dtype=np.int64)
    low[0, 1, 1] = 1
    free, _ = rounded(values, chain=CHAIN)
    assert free[0, 2:].sum() == 0
    found, left = rounded(values, chain=CHAIN, low=low)
    assert left == 0
    assert found[0, 2:].sum() == 1


def test_what_cannot_be_placed_is_counted() -> None:
    high = np.full((2, 2, 2), NO_LIMIT)
    high[:, 0, 0] = 0
    _, left = rounded(np.array([[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]), chain=CHAIN, high=high)
    assert left > 0


def test_totals_that_come_first_are_rounded_to_the_nearest_before_all_else() -> None:
    values = table(3, children=6)
    first = rounded(values, chain=CHAIN, mode=1, weights=SolverMethod(name="", totals_first=True).weights(2))[0]
    totals = values.sum(axis=1)
    need = int(np.rint(values.sum()))
    floors = np.floor(totals + WHOLE)
    costs = [
        float(np.abs(floors + ups - np.rint(totals)).sum())
        for ups in product((0, 1), repeat=6)
        if floors.sum() + sum(ups) == need and np.all(np.abs(floors + ups - totals) < 1)
    ]
    assert np.abs(first.sum(axis=1) - np.rint(totals)).sum() == min(costs)


def test_a_flow_takes_the_cheapest_way_and_says_what_is_left() -> None:
    # Two sources of 2 and 1, one sink of 3; the cheap arc takes one unit only.
    tail, head = np.array([0, 0, 1]), np.array([2, 2, 2])
    low, high = np.zeros(3, dtype=np.int64), np.array([1, 5, 5])
    cost = np.array([1, 4, 2])
    flow, cut = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=bool)
    assert settle(tail, head, low, high, low, cost, cost, np.array([2, 1, -3]), flow, cut) == 0
    assert flow.tolist() == [1, 1, 1]
    flow[:] = 0
    assert settle(tail, head, low, np.array([1, 0, 5]), low, cost, cost, np.array([2, 1, -3]), flow, cut) == 1
    assert cut.tolist() == [True, False, False]


def test_the_chain_of_pl94_is_the_bureaus() -> None:
    schema = Schema(
        name="pl",
        attributes=(
            Attribute(name="hhgq", codes=("0", "1", "2"), groupings={"levels": (0, 1, 1)}),
            Attribute(name="votingage", codes=("0", "1")),
            Attribute(name="hispanic", codes=("0", "1")),
            Attribute(name="cenrace", codes=("1", "2", "3")),
        ),
    )
    tree, _ = people(1)
    known = tree.levels[0].known
    assert [query.name for query in LimitGroups.of([tree]).chain] == ["total", "home", "home * race"]
    assert len(known) == 4
    plain = Tree(schema=schema, levels=(Level(name="top", geocodes=("",), parent=np.zeros(1, dtype=np.int64)),))
    names = [query.name for query in LimitGroups.of([plain]).chain]
    assert names == ["total", "hhgq", "hhgq * votingage", "hhgq * votingage * hispanic"]


def test_no_clock_decides_what_highs_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are limited, and seconds are not: the same program has the same end on any machine."""
    asked: dict[str, object] = {}

    class Recorded(highspy.Highs):
        def setOptionValue(self, name: str, value: Any) -> Any:
            asked[name] = value
            return super().setOptionValue(name, value)

    monkeypatch.setattr(highspy, "Highs", Recorded)
    program = Program()
    program.row([program.column(1.0, 0.0, 5.0, whole=True), program.column(2.0, 0.0, 5.0, whole=True)], 3.0, 3.0)
    solved = program.solve()
    assert solved is not None
    assert solved[0].tolist() == [3.0, 0.0]
    assert "time_limit" not in asked
    assert {"qp_iteration_limit", "simplex_iteration_limit", "mip_max_nodes"} <= {*asked}
