"""Margins that come first at the top: which they are, and that they are the optimum given the one before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from stirred.mechanisms.topdown.hierarchy.least_squares import upward
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, Level, Tree
from stirred.mechanisms.topdown.solve.objective import MarginForm, margins_of, model_on, settled
from stirred.mechanisms.topdown.solve.problem import METHODS, CellGrid
from stirred.mechanisms.topdown.solve.tree import SolveOptions, solve
from tests.mechanisms.topdown.hierarchies import answer
from tests.mechanisms.topdown.test_microdata_seams import quadratic_program

SCHEMA = Schema(
    name="origins",
    attributes=(
        Attribute(name="home", codes=("house", "ward", "hall"), groupings={"shared": (0, 1, 1)}),
        Attribute(name="race", codes=("1", "2", "3", "4", "5")),
        Attribute(name="origin", codes=("n", "y")),
    ),
)
WELL = {"total": 0.5, "shared": 9.0, "race": 1.0, "race * origin": 1.5, "detailed": 6.0}
POORLY = WELL | {"race": 500.0, "race * origin": 500.0}
NO_BOUND = (1 << 31) - 1


def hierarchy(seed: int, variances: Mapping[str, float] = WELL, *, noisy: bool = True) -> tuple[Tree, list[np.ndarray]]:
    """Return a top with four leaves; its total is known, and which kinds of home are empty where."""
    rng = np.random.default_rng(seed)
    leaves = rng.poisson(3.0 * rng.dirichlet(np.full(30, 0.15), size=4) * 10)
    truth = [leaves.sum(axis=0, keepdims=True), leaves]
    levels = []
    for n, true in enumerate(truth):
        answers = []
        for name, variance in variances.items():
            query = SCHEMA.query(name)
            drawn = np.rint(rng.normal(0, np.sqrt(variance) * noisy, (len(true), query.size))).astype(np.int64)
            variance = variance if noisy else 1e-9
            answers.append(
                Answers(query=query, values=answer(query, true) + drawn, variance=np.full(len(true), variance))
            )
        home, everywhere = SCHEMA.query("home"), np.ones(len(true), dtype=np.bool_)
        most = np.where(answer(home, true) > 0, NO_BOUND, 0)
        known = [Constraint(query=home, sign="<=", values=most, given=everywhere)]
        if n == 0:
            total = SCHEMA.query("total")
            known.append(Constraint(query=total, sign="=", values=answer(total, true), given=everywhere))
        codes = ("",) if n == 0 else tuple(f"{place:02d}" for place in range(4))
        parent = np.zeros(len(true), dtype=np.int64)
        levels.append(Level(name=f"L{n}", geocodes=codes, parent=parent, answers=tuple(answers), known=tuple(known)))
    return Tree(schema=SCHEMA, levels=tuple(levels)), truth


def margins(tree: Tree) -> tuple[CellGrid, tuple[MarginForm, ...]]:
    queries = [each.query for each in tree.levels[0].answers]
    grid = CellGrid.of(SCHEMA, queries, [SCHEMA.query("home")])
    model = model_on(grid, queries)
    return grid, margins_of(grid, upward(model, tree).by_level[0], queries)


def test_margins_that_are_measured_well_come_from_coarse_to_fine_and_others_not_at_all() -> None:
    _, found = margins(hierarchy(1)[0])
    assert [each.query.name for each in found] == ["race", "race * origin"]
    assert margins(hierarchy(1, POORLY)[0])[1] == ()
    only = WELL | {"race": 500.0}
    assert "race * origin" in [each.query.name for each in margins(hierarchy(1, only)[0])[1]]


def estimated(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Return the best estimate of the top and its covariance, by one matrix over all leaves; the total is held."""
    leaves = tree.levels[1].areas
    size = leaves * SCHEMA.size
    normal, right = np.zeros((size, size)), np.zeros(size)
    for level in tree.levels:
        for area in range(level.areas):
            for answers in level.answers:
                row = np.zeros((answers.query.size, size))
                for leaf in range(leaves) if level.name == "L0" else (area,):
                    row[answers.query.cell_of, leaf * SCHEMA.size + np.arange(SCHEMA.size)] = 1
                normal += row.T @ row / answers.variance[area]
                right += row.T @ answers.values[area] / answers.variance[area]
    bounds = tree.levels[1].known[0]
    may = (bounds.values[:, bounds.query.cell_of] > 0).reshape(-1)
    covariance = np.zeros((size, size))
    covariance[np.ix_(may, may)] = np.linalg.inv(normal[np.ix_(may, may)])
    adds = np.tile(np.eye(SCHEMA.size), leaves)
    mean, spread = adds @ covariance @ right, adds @ covariance @ adds.T
    gain = spread.sum(axis=1) / spread.sum()
    total = float(tree.levels[0].known[1].values[0, 0])
    return mean + gain * (total - mean.sum()), spread - np.outer(gain, spread.sum(axis=0))


@pytest.mark.parametrize("seed", range(8))
def test_a_settled_margin_is_the_nearest_that_is_not_negative_and_keeps_the_one_before(seed: int) -> None:
    tree, truth = hierarchy(seed)
    grid, found = margins(tree)
    total = float(truth[0].sum())
    mean, spread = estimated(tree)
    before: np.ndarray | None = None
    for count in range(1, len(found) + 1):
        query = found[count - 1].query
        matrix = answer(query, np.eye(SCHEMA.size)).T.astype(float)
        precision = np.linalg.pinv(matrix @ spread @ matrix.T, rcond=1e-9, hermitian=True)
        centre = matrix @ mean
        rows = [np.ones(query.size)]
        values = [total]
        if before is not None:  # race, kept by race * origin
            rows, values = [*np.repeat(np.eye(5), 2, axis=1)], [*before]
        expected = quadratic_program(
            precision, -precision @ centre, np.array(rows), np.array(values), np.eye(query.size), np.zeros(query.size)
        )
        own = settled(found[:count], grid, total)
        assert own is not None
        assert own[0] == query
        assert own[1][0] == pytest.approx(expected, abs=1e-6)
        assert own[1].min() >= 0
        assert own[1].sum() == pytest.approx(total)
        before = own[1][0]
    assert before is not None


def test_without_noise_the_top_is_the_truth() -> None:
    tree, truth = hierarchy(3, noisy=False)
    assert np.array_equal(top_of(tree), truth[0])


def test_the_cells_of_the_top_keep_its_margin_but_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    loud = {name: 4 * variance for name, variance in WELL.items()}
    moved = 0
    for seed in range(6):
        tree, truth = hierarchy(seed, loud)
        grid, found = margins(tree)
        top, kept = top_of(tree), settled(found, grid, float(truth[0].sum()))
        assert kept is not None
        assert top.sum() == truth[0].sum()
        # Cells move by less than one each when they are rounded, and three of them are in each cell of the margin.
        assert np.abs(answer(kept[0], top) - kept[1]).max() < 3
        with monkeypatch.context() as without:
            without.setattr("stirred.mechanisms.topdown.solve.tree.margins_of", lambda *_: ())
            moved += int(np.any(top != top_of(tree)))
    assert moved, "the margins make a difference"


def top_of(tree: Tree) -> np.ndarray:
    found: np.ndarray = (
        next(solve(lambda: [tree], SolveOptions(method=METHODS["default"]))).levels[0].answers(SCHEMA.query("detailed"))
    )
    return found
