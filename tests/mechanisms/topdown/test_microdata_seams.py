"""Per-parent optima through the command's seams, against dense least squares and an interior-point method of our own.

Nothing of the solver is used here: estimates come from one matrix over all leaves of a subtree, and the programs are
solved in full by Newton steps on the central path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from stirred.mechanisms.topdown.commands import MicrodataOptions, run_microdata
from stirred.mechanisms.topdown.hierarchy.tree import Level, Tree
from stirred.mechanisms.topdown.solve.problem import METHODS
from tests.mechanisms.topdown.layout import write_codebook, write_folders
from tests.mechanisms.topdown.wards import SCHEMA, people
from tests.mechanisms.topdown.watched import watched

CELLS = SCHEMA.size


class Near(NamedTuple):
    """What a child should be near to: cells that may be filled, their estimates and precision, and its total."""

    open: np.ndarray
    centre: np.ndarray
    precision: np.ndarray
    total: float
    total_variance: float


def quadratic_program(
    h: np.ndarray, c: np.ndarray, a: np.ndarray, b: np.ndarray, g: np.ndarray, k: np.ndarray
) -> np.ndarray:
    """Minimise x'Hx/2 + c'x where Ax = b and Gx >= k, by a primal-dual interior-point method."""
    left, sizes, right = np.linalg.svd(a, full_matrices=False)
    rank = int((sizes > 1e-9 * sizes[0]).sum())  # some equalities follow from others
    a, b = right[:rank], (left[:, :rank].T @ b) / sizes[:rank]
    n, m = len(c), len(k)
    x, s, y, z = np.full(n, 1.0), np.maximum(g @ np.ones(n) - k, 1.0), np.zeros(rank), np.ones(m)
    for _ in range(200):
        dual, primal, slack = h @ x + c - a.T @ y - g.T @ z, a @ x - b, g @ x - k - s
        gap = s @ z / m
        if max(np.abs(dual).max(), np.abs(primal).max(), np.abs(slack).max(), gap) < 1e-12:
            break
        goal = s * z - 0.1 * gap
        system = np.block([[h + (g.T * (z / s)) @ g, -a.T], [a, np.zeros((rank, rank))]])
        rhs = np.concatenate([-dual - g.T @ ((goal + z * slack) / s), -primal])
        try:
            found = np.linalg.solve(system, rhs)
        except np.linalg.LinAlgError:  # directions that nothing holds any more, near the end
            found = np.linalg.lstsq(system, rhs, rcond=None)[0]
        dx, dy = found[:n], found[n:]
        ds = g @ dx + slack
        dz = -(goal + z * ds) / s
        length = min(1.0, 0.9 * _room(s, ds), 0.9 * _room(z, dz))
        x, y, z, s = x + length * dx, y + length * dy, z + length * dz, s + length * ds
    return x


def _room(values: np.ndarray, step: np.ndarray) -> float:
    falling = step < 0
    return float((-values[falling] / step[falling]).min(initial=1e9))


def leaves_below(tree: Tree, depth: int, area: int) -> list[tuple[int, np.ndarray]]:
    """Return for each level from ``depth`` down the areas inside an area."""
    found = [(depth, np.array([area]))]
    for place in range(depth + 1, len(tree.levels)):
        found.append((place, np.flatnonzero(np.isin(tree.levels[place].parent, found[-1][1]))))
    return found


def open_cells(level: Level, area: int) -> np.ndarray:
    """Return the cells of an area that no upper bound of 0 empties."""
    found = np.ones(CELLS, dtype=bool)
    for known in level.known:
        if known.sign == "<=":
            found &= known.values[area][known.query.cell_of] > 0
    return found


def near(tree: Tree, depth: int, area: int, *, bottom_up: bool) -> Near:
    """Return estimate and precision of an area, from all measurements inside it or from its own."""
    inside = leaves_below(tree, depth, area) if bottom_up else [(depth, np.array([area]))]
    bottom, own = inside[-1]
    place = {leaf: n for n, leaf in enumerate(own)}
    size = len(own) * CELLS
    normal, right = np.zeros((size, size)), np.zeros(size)
    for height, areas in inside:
        level = tree.levels[height]
        for each in areas:
            within = [each] if height == bottom else leaves_below(tree, height, each)[bottom - height][1]
            for answers in level.answers:
                row = np.zeros((answers.query.size, size))
                for leaf in within:
                    row[answers.query.cell_of, place[leaf] * CELLS + np.arange(CELLS)] = 1
                normal += row.T @ row / answers.variance[each]
                right += row.T @ answers.values[each] / answers.variance[each]
    may = np.concatenate([open_cells(tree.levels[bottom], leaf) for leaf in own])
    here = open_cells(tree.levels[depth], area)
    adds = np.tile(np.eye(CELLS), len(own))[:, may][here]
    covariance = np.linalg.inv(normal[np.ix_(may, may)])
    spread = adds @ covariance @ adds.T
    centre = adds @ covariance @ right[may]
    total = tree.levels[depth].answers[0]
    if bottom_up:
        return Near(here, centre, np.linalg.inv(spread), float(centre.sum()), float(spread.sum()))
    return Near(here, centre, np.linalg.inv(spread), float(total.values[area, 0]), float(total.variance[area]))


def reference(tree: Tree, depth: int, parent: np.ndarray, children: np.ndarray, *, bottom_up: bool) -> np.ndarray:
    """Return the optimum of the children of a parent (children, cells), with totals first between top and leaves."""
    level = tree.levels[depth]
    nears = [near(tree, depth, child, bottom_up=bottom_up) for child in children]
    place = np.full((len(children), CELLS), -1)
    free = np.array([each.open for each in nears]) & (parent > 0)
    place[free] = np.arange(free.sum())
    size = int(free.sum())
    h, c = np.zeros((size, size)), np.zeros(size)
    for each, own, at in zip(nears, free, place, strict=True):
        some = own[each.open]
        h[np.ix_(at[own], at[own])] = each.precision[np.ix_(some, some)]
        c[at[own]] = -(each.precision @ each.centre)[some]
    a = [np.bincount(place[free[:, j], j], minlength=size) for j in np.flatnonzero(parent)]
    b = [parent[j] for j in np.flatnonzero(parent)]
    g, k = [*np.eye(size)], [0.0] * size
    sums = np.array([np.bincount(at[own], minlength=size) for own, at in zip(free, place, strict=True)], dtype=float)
    for known in level.known:
        for n, child in enumerate(children):
            for cell, value in enumerate(known.values[child]):
                row = np.bincount(place[n][free[n] & (known.query.cell_of == cell)], minlength=size).astype(float)
                if known.sign == "=":
                    a.append(row)
                    b.append(value)
                elif known.sign == ">=" and value > 0:
                    g.append(row)
                    k.append(float(value))
                elif known.sign == "<=" and 0 < value < parent.sum():
                    g.append(-row)
                    k.append(-float(value))
    limits = np.array(a, dtype=float), np.array(b, dtype=float), np.array(g), np.array(k)
    if 0 < depth < len(tree.levels) - 1:
        weights = np.array([1 / each.total_variance for each in nears])
        aims = np.array([each.total for each in nears])
        first = quadratic_program((sums.T * weights) @ sums, -sums.T @ (weights * aims), *limits)
        limits = (np.concatenate([limits[0], sums]), np.concatenate([limits[1], sums @ first]), *limits[2:])
    found = np.zeros((len(children), CELLS))
    found[free] = quadratic_program(h, c, *limits)
    return found


def test_the_interior_point_method_finds_printed_optima() -> None:
    """Cases 10 and 11 of topdown.md: the reference itself is right where the answer is known."""
    for centre, parent, expected in (
        ([2, -1, 1, 2], [2, 2], [1.25, 0, 0.75, 2]),
        ([1, -2, 1.5, 2.5], [3, 1], [0.375, 0, 2.625, 1]),
    ):
        w = np.kron(np.eye(2), np.eye(2) + 1)
        a = np.tile(np.eye(2), 2)
        found = quadratic_program(w, -w @ np.array(centre), a, np.array(parent, float), np.eye(4), np.zeros(4))
        assert found == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.parametrize("facts", [True, False])
@pytest.mark.parametrize("arm", METHODS)
def test_every_parents_optimum_is_that_of_dense_least_squares_and_a_general_method(
    arm: Any, facts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, truth = people(31 + facts, fanout=(2, 3, 4), noise=2.0, facts=facts)
    write_folders(tree, tmp_path / "files")
    write_codebook(SCHEMA, tmp_path / "schema.toml")
    given = {
        code: (np.flatnonzero(row), row[row > 0])
        for level, true in zip(tree.levels[:-1], truth, strict=False)
        for code, row in zip(level.geocodes, true, strict=True)
    }
    written = watched(monkeypatch, given)
    options = MicrodataOptions(
        measurements=tmp_path / "files",
        schema_=str(tmp_path / "schema.toml"),
        arm=arm,
        out=tmp_path / "out",
    )
    outcome = run_microdata(options)
    assert all("is not the sum of its leaves" in each for each in outcome.values["certificate"]["failures"])
    values = {(child, int(c)): v for (_, child), own in written.items() for c, v in zip(*own, strict=True)}
    compared = 0
    for depth in range(1, len(tree.levels)):
        level = tree.levels[depth]
        for up, parent in enumerate(truth[depth - 1]):
            children = np.flatnonzero(level.parent == up)
            expected = reference(tree, depth, parent.astype(float), children, bottom_up=arm != "bureau")
            for n, child in enumerate(children):
                for cell in np.flatnonzero(parent):
                    found = values.get((level.geocodes[child], int(cell)), 0.0)
                    assert found == pytest.approx(expected[n, cell], abs=1e-6), (level.name, child, cell)
                    compared += 1
    assert compared > 300, "the comparison was made"
