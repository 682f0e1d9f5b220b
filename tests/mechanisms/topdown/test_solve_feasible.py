"""Whether children can hold what their parent holds: printed cases, words, and every way to share out small tables."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from stirred.mechanisms.topdown.hierarchy.tree import GroupTotal
from stirred.mechanisms.topdown.solve.feasible import Demands, best_totals, least_violation, possible, reason
from stirred.mechanisms.topdown.solve.problem import NO_LIMIT, AreaLimits, LimitGroups, limits_up, tightened, unions
from tests.mechanisms.topdown.wards import people


def demands(
    rows: Any,
    *,
    allowed: Any = None,
    sets: Any = None,
    low: Any = None,
    high: Any = None,
    children: int = 2,
    group: Any = None,
    group_total: Any = (-1,),
) -> Demands:
    rows = np.array(rows)
    sets = np.ones((1, len(rows)), dtype=bool) if sets is None else np.array(sets, dtype=bool)
    shape = (children, len(sets))
    return Demands(
        rows=rows,
        allowed=np.ones((children, len(rows)), dtype=bool) if allowed is None else np.array(allowed, dtype=bool),
        sets=sets,
        low=np.zeros(shape, dtype=np.int64) if low is None else np.array(low),
        high=np.full(shape, NO_LIMIT) if high is None else np.array(high),
        group=np.zeros(children, dtype=np.int64) if group is None else np.array(group),
        group_total=np.array(group_total),
    )


def test_case_15_children_that_admit_too_few_are_found_and_said_in_words() -> None:
    case = demands([5], high=[[2], [2]])
    assert not possible(case)
    assert reason(case, row_names=["hall"], children=["a", "b"]) == (
        "children 'a', 'b' admit at most 4 in 'hall', and the parent holds 5 there"
    )
    moved = least_violation(case)
    assert moved is not None
    assert np.abs(moved - case.rows).sum() == 1


def test_case_16_a_forbidden_arc_leaves_a_deficit_of_one_and_two_moves() -> None:
    case = demands([4, 1], allowed=[[1, 1], [0, 1]], low=[[3], [2]], high=[[3], [2]])
    assert not possible(case)
    moved = least_violation(case)
    assert moved is not None
    assert moved.tolist() == [3, 2]
    assert np.abs(moved - case.rows).sum() == 2
    assert possible(demands(moved, allowed=case.allowed, low=case.low, high=case.high))


def test_case_23_totals_of_children_can_forbid_what_sums_of_bounds_allow() -> None:
    case = demands([0, 2], allowed=[[0, 1], [1, 0]], low=[[1], [1]], high=[[1], [1]])
    assert not possible(case)
    tree, _ = people(0)
    rules = LimitGroups.of([tree])
    home = rules.place(tree.schema.query("home"))
    limits = AreaLimits(
        allowed=np.ones((2, rules.grid.cells), dtype=bool),
        low=np.zeros((2, len(rules.groups)), dtype=np.int64),
        high=np.full((2, len(rules.groups)), NO_LIMIT),
    )
    limits.low[:, 0] = limits.high[:, 0] = 1
    limits.high[0, home] = [0, NO_LIMIT, 0]
    limits.high[1, home] = [NO_LIMIT, 0, 0]
    follows = tightened(rules, limits)
    assert follows.low[:, home].sum(axis=0).tolist() == [1, 1, 0], "a parent with (0, 2, 0) is refused beforehand"


def test_unions_of_groups_are_passed_up_where_they_say_more_than_the_groups() -> None:
    tree, _ = people(0)
    rules = LimitGroups.of([tree])
    home = np.arange(len(rules.groups))[rules.place(tree.schema.query("home"))]
    children = AreaLimits(
        allowed=np.ones((2, rules.grid.cells), dtype=bool),
        low=np.zeros((2, len(rules.groups)), dtype=np.int64),
        high=np.full((2, len(rules.groups)), NO_LIMIT),
    )
    children.low[:, 0] = children.high[:, 0] = 5
    children.high[0, home[2]] = 0  # the first child has five people in a house or a ward, whichever
    parent = AreaLimits(
        allowed=children.allowed[:1],
        low=np.zeros((1, len(rules.groups)), dtype=np.int64),
        high=children.high[1:2].copy(),
    )
    parent.low[0, 0] = parent.high[0, 0] = 10
    found = [*unions(rules, tightened(rules, parent), tightened(rules, children))]
    assert ([True] * 4 + [False] * 2, 5) in [(rows.tolist(), least) for rows, least in found]


@pytest.mark.parametrize("seed", range(40))
def test_flows_say_possible_exactly_when_some_table_keeps_all_limits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 4, 3)
    sets = [[1, 1, 1], [1, 1, 0]]
    allowed = rng.random((2, 3)) < 0.8
    low = rng.integers(0, 3, (2, 2))
    high = low + rng.integers(0, 4, (2, 2))
    case = demands(rows, allowed=allowed, sets=sets, low=low, high=high)
    tables = []
    for first in product(*(range(n + 1) for n in rows)):
        table = np.array([first, rows - first])
        sums = table @ np.array(sets).T
        if np.all(table * ~allowed == 0) and np.all(sums >= low) and np.all(sums <= high):
            tables.append(table)
    assert possible(case) == bool(tables)
    if tables:
        estimate, variance = rng.normal(2, 2, 2), np.array([1.0, 2.0])
        found = best_totals(case, estimate, variance)
        assert found is not None
        ends = [table.sum(axis=1)[0] for table in tables]  # totals that can be had are an interval with whole ends
        best = np.clip(estimate[0] + (rows.sum() - estimate.sum()) / 3, min(ends), max(ends))
        assert found == pytest.approx([best, rows.sum() - best], abs=1e-5)
    else:
        moved = least_violation(case)
        assert moved is None or possible(demands(moved, allowed=allowed, sets=sets, low=low, high=high))


def test_totals_known_of_groups_of_children_are_kept_by_the_totals_pass() -> None:
    case = demands([6, 6], children=3, group=[1, 1, 0], group_total=[-1, 7])
    found = best_totals(case, np.array([4.0, 1.0, 9.0]), np.ones(3))
    assert found == pytest.approx([5, 2, 5])


def test_limits_of_a_parent_are_the_sums_of_those_of_its_children() -> None:
    tree, truth = people(2)
    rules = LimitGroups.of([tree])
    found = limits_up(rules, tree.levels)
    for level, limits, true in zip(tree.levels, found, truth, strict=True):
        held = np.stack([true.reshape(-1, 6, 5).sum(axis=2)[:, rows].sum(axis=1) for rows in rules.groups], axis=1)
        assert np.all(limits.low <= held), f"the true counts of {level.name} keep all limits"
        assert np.all(held <= limits.high)
    assert found[0].totals[0] == truth[0].sum()
    pair = GroupTotal(level="L1", members=("00", "01"), value=int(truth[1].sum()))
    levels = [*tree.levels]
    levels[0] = type(levels[0])(name="L0", geocodes=("",), parent=levels[0].parent)
    levels[1] = type(levels[1])(name="L1", geocodes=levels[1].geocodes, parent=levels[1].parent)
    assert limits_up(rules, levels)[0].totals[0] == -1
    assert limits_up(rules, levels, groups=[pair])[0].totals[0] == truth[1].sum()
