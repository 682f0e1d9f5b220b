"""Estimates of a hierarchy: published cases, the dense solution in fractions, and what their variances promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

from stirred.data.problems import PlanError
from stirred.mechanisms.topdown.estimates import TreeEstimates, Unions, estimate, estimate_in_pieces
from stirred.mechanisms.topdown.hierarchy.least_squares import SubspaceModel
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, MarginalQuery, Schema
from stirred.mechanisms.topdown.hierarchy.subspaces import Subspaces
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, GroupTotal, Level, Tree
from tests.depth import DEEP
from tests.mechanisms.topdown.dense import Dense
from tests.mechanisms.topdown.hierarchies import all_queries, answer, random_tree

ONE = Schema(name="one", attributes=(Attribute(name="all", codes=("1",)),))
TOTAL = ONE.query("total")


def level_of(name: str, parent: Sequence[int], query: MarginalQuery, values: Any, variance: Any) -> Level:
    """Return a level with one query."""
    codes = tuple(f"{name}{place}" for place in range(len(parent)))
    answers = Answers(query=query, values=np.array(values), variance=np.array(variance, dtype=np.float64))
    return Level(name=name, geocodes=codes, parent=np.array(parent, dtype=np.int64), answers=(answers,))


def totals(*levels: tuple[Sequence[int], Sequence[int], Sequence[float]]) -> Tree:
    """Return a tree of noisy totals: for each level parents, values and variances."""
    made = [
        level_of("abc"[n], parent, TOTAL, [[value] for value in values], variance)
        for n, (parent, values, variance) in enumerate(levels)
    ]
    return Tree(schema=ONE, levels=tuple(made))


def fixed(level: Level, query: MarginalQuery, values: Any, given: Sequence[bool] | None = None) -> Level:
    """Return the level with values that are known."""
    told = np.ones(level.areas, dtype=np.bool_) if given is None else np.array(given)
    known = Constraint(query=query, sign="=", values=np.array(values), given=told)
    return replace(level, known=(*level.known, known))


def numbers(found: TreeEstimates, level: int, query: MarginalQuery = TOTAL) -> tuple[Any, Any]:
    """Return estimates and variances."""
    answers = found.of(level, query)
    return answers.estimate.ravel().tolist(), (answers.std_dev.ravel() ** 2).tolist()


# ---- cases of the theory, each to the digits printed ---------------------------------------------------------


def test_a_parent_and_two_children_are_those_of_case_2_with_the_residuals_of_case_20() -> None:
    found = estimate(totals(([0], [10], [2]), ([0, 0], [3, 5], [4, 4])))
    assert numbers(found, 1) == (pytest.approx([3.8, 5.8]), pytest.approx([2.4, 2.4]))
    assert numbers(found, 0) == (pytest.approx([9.6]), pytest.approx([1.6]))
    assert found.residuals.squares == pytest.approx(0.4)
    assert found.residuals.freedom == 1


def test_children_of_different_variances_are_those_of_case_3() -> None:
    found = estimate(totals(([0], [10], [4]), ([0, 0], [3, 5], [1, 3])))
    assert numbers(found, 1) == (pytest.approx([3.25, 5.75]), pytest.approx([0.875, 1.875]))
    # var(a + b) = var(a) + var(b) + 2 cov, so that cov = -0.375
    assert numbers(found, 0)[1] == pytest.approx([0.875 + 1.875 - 2 * 0.375])


def test_precisions_by_subspace_are_those_of_case_4() -> None:
    schema = Schema(
        name="2x3", attributes=(Attribute(name="A", codes=("0", "1")), Attribute(name="B", codes=("0", "1", "2")))
    )
    asked = {"total": 1.0, "A": 3.0, "detailed": 8.0}
    answers = tuple(
        Answers(query=q, values=np.zeros((1, q.size), dtype=np.int64), variance=np.array([variance]))
        for q, variance in ((schema.query(name), variance) for name, variance in asked.items())
    )
    level = Level(name="a", geocodes=("",), parent=np.zeros(1, dtype=np.int64), answers=answers)
    found = estimate(Tree(schema=schema, levels=(level,)))
    precisions = {
        each: 1 / float(found.by_level[0].spread[found.model.like[each]].covariance[0, 0, 0])
        for each in ((), (0,), (1,))
    }
    assert precisions == {(): pytest.approx(7.125), (0,): pytest.approx(1.125), (1,): pytest.approx(0.125)}
    # A x B is seen by the same query as B, and looks like it.
    assert found.model.like[0, 1] == (1,)


def test_groups_of_unequal_size_are_those_of_case_5() -> None:
    attribute = Attribute(name="x", codes=("0", "1", "2", "3"), groupings={"pair": (0, 1, 1, 1)})
    schema = Schema(name="four", attributes=(attribute,))
    answers = tuple(
        Answers(query=q, values=np.zeros((1, q.size), dtype=np.int64), variance=np.array([variance]))
        for q, variance in ((schema.query("total"), 2.0), (schema.query("pair"), 5.0), (schema.query("x"), 7.0))
    )
    level = Level(name="a", geocodes=("",), parent=np.zeros(1, dtype=np.int64), answers=answers)
    found = estimate(Tree(schema=schema, levels=(level,)))
    cells = found.of(0, schema.query("x")).std_dev[0] ** 2
    assert cells[:2] == pytest.approx([1.966714, 4.913028], abs=5e-7)
    assert found.of(0, schema.query("total")).std_dev[0] ** 2 == pytest.approx([1.553329], abs=5e-7)


def test_a_fixed_total_is_kept_as_in_case_6() -> None:
    tree = totals(([0], [0], [np.inf]), ([0, 0, 0], [4, 7, 2], [1, 2, 3]))
    tree = replace(tree, levels=(fixed(tree.levels[0], TOTAL, [[10]]), tree.levels[1]))
    found = estimate(tree)
    assert numbers(found, 1) == (pytest.approx([3.5, 6, 0.5]), pytest.approx([5 / 6, 4 / 3, 1.5]))
    assert numbers(found, 0) == (pytest.approx([10.0]), [0.0])
    unions = Unions(found.model, {"two": ["b0", "b1"]})
    unions.add(found)
    unions.finish()
    together = unions.of("two", TOTAL).std_dev[0, 0] ** 2
    assert (together - 5 / 6 - 4 / 3) / 2 == pytest.approx(-1 / 3)


def test_a_union_off_the_spine_has_the_variance_of_case_17() -> None:
    tree = totals(([0], [0], [1]), ([0, 0, 0], [0] * 3, [2] * 3), ([0, 0, 1, 1, 2, 2], [0] * 6, [3] * 6))
    found = estimate(tree)
    unions = Unions(found.model, {"some": ["c0", "c2", "c3"]})
    unions.add(found)
    unions.finish()
    assert unions.of("some", TOTAL).std_dev[0, 0] ** 2 == pytest.approx(2.454545, abs=5e-7)


def test_a_single_child_and_its_parent_are_one_area_as_in_case_19() -> None:
    found = estimate(totals(([0], [10], [2]), ([0], [8], [2])))
    assert numbers(found, 0) == numbers(found, 1) == (pytest.approx([9.0]), pytest.approx([1.0]))


# ---- what is missing -------------------------------------------------------------------------------------------


def test_a_child_that_alone_lacks_a_measurement_gets_the_whole_residual_of_its_parent() -> None:
    found = estimate(totals(([0], [10], [2]), ([0, 0], [3, 0], [4, np.inf])))
    assert numbers(found, 1) == (pytest.approx([3.0, 7.0]), pytest.approx([4.0, 6.0]))
    assert found.residuals.freedom == 0


def test_two_children_without_measurements_are_estimable_together_only() -> None:
    found = estimate(totals(([0], [10], [2]), ([0, 0, 0], [3, 0, 0], [4, np.inf, np.inf])))
    answers = found.of(1, TOTAL)
    assert answers.estimable.ravel().tolist() == [True, False, False]
    assert np.isnan(answers.estimate.ravel()).tolist() == [False, True, True]
    unions = Unions(found.model, {"both": ["b1", "b2"]})
    unions.add(found)
    unions.finish()
    both = unions.of("both", TOTAL)
    assert both.estimate[0, 0] == pytest.approx(7.0)
    assert both.std_dev[0, 0] ** 2 == pytest.approx(6.0)


def test_very_small_and_very_large_variances_are_neither_certain_nor_unknown() -> None:
    found = estimate(totals(([0], [10], [1e-9]), ([0, 0], [3, 5], [1e9, 1e12])))
    dense = [1e9 * (1e12 + 1e-9) / (1e9 + 1e12 + 1e-9), 1e12 * (1e9 + 1e-9) / (1e9 + 1e12 + 1e-9)]
    assert numbers(found, 1)[1] == pytest.approx(dense, rel=1e-9)
    assert numbers(found, 0)[1] == pytest.approx([1 / (1e9 + 1 / (1e9 + 1e12))], rel=1e-9)
    assert found.of(1, TOTAL).estimable.all()


# ---- the dense solution ----------------------------------------------------------------------------------------


def compared(tree: Tree, groups: Sequence[GroupTotal], seed: int) -> tuple[float, int, int]:
    """Return the largest difference to the dense solution, how much was compared, and how much is not estimable."""
    dense, found = Dense(tree, groups), estimate(tree, groups=groups)
    assert found.residuals.freedom == dense.freedom
    assert found.residuals.squares == pytest.approx(float(dense.squares), rel=1e-7, abs=1e-7)
    rng = np.random.default_rng(seed)
    leaves = tree.levels[-1]
    chosen = [place for place in range(leaves.areas) if rng.random() < 0.5] or [0]
    unions = Unions(found.model, {"some": [leaves.geocodes[place] for place in chosen]})
    unions.add(found)
    unions.finish()
    worst, count, lost = 0.0, 0, 0
    for query in all_queries(tree.schema):
        asked = [([(h, a)], found.of(h, query), a) for h, each in enumerate(tree.levels) for a in range(each.areas)]
        asked.append(([(len(tree.levels) - 1, place) for place in chosen], unions.of("some", query), 0))
        for areas, answers, row in asked:
            for cell in range(query.size):
                exact = dense.estimate(dense.functional(areas, query, cell))
                count += 1
                assert answers.estimable[row, cell] == (exact is not None)
                if exact is None:
                    lost += 1
                    continue
                value, sd = float(exact[0]), sqrt(exact[1])
                worst = max(worst, abs(answers.estimate[row, cell] - value) / max(1.0, abs(value)))
                worst = max(worst, abs(answers.std_dev[row, cell] - sd) / max(1.0, sd))
    return worst, count, lost


@pytest.mark.parametrize("seed", [0, 8, 17])
def test_small_counts_beside_counts_of_millions_keep_seven_digits(seed: int) -> None:
    """Census variances, from 1.2 to 8,000, and counts from 0 to tens of millions in one tree with gaps."""
    tree, groups, truth = random_tree(seed)
    rng = np.random.default_rng(seed)
    levels = []
    for level, counts in zip(tree.levels, truth, strict=True):
        answers = tuple(
            replace(
                each,
                values=answer(each.query, counts * 10**6) + rng.integers(-3, 4, size=each.values.shape),
                variance=np.where(np.isinf(each.variance), np.inf, rng.choice([1.2, 4, 20, 8_000], size=level.areas)),
            )
            for each in level.answers
        )
        known = tuple(replace(each, values=each.values * 10**6) for each in level.known)
        levels.append(replace(level, answers=answers, known=known))
    groups = [replace(each, value=each.value * 10**6) for each in groups]
    worst, _, _ = compared(replace(tree, levels=tuple(levels)), groups, seed)
    assert worst < 1e-7


@pytest.mark.parametrize("seed", range(200 if DEEP else 32))
def test_two_passes_equal_dense_least_squares_in_fractions(seed: int) -> None:
    tree, groups, _ = random_tree(seed)
    worst, _, _ = compared(tree, groups, seed)
    assert worst < 1e-9


def steep(seed: int) -> tuple[Tree, list[GroupTotal]]:
    """Return a random tree whose variances go from 1e-6 to 1e6, with noise of their size, side by side."""
    tree, groups, truth = random_tree(seed)
    rng = np.random.default_rng(seed)
    levels = []
    for level, counts in zip(tree.levels, truth, strict=True):
        answers = []
        for each in level.answers:
            variance = np.where(np.isinf(each.variance), np.inf, 2.0 ** rng.integers(-20, 21, size=level.areas))
            noise = rng.normal(size=each.values.shape) * np.sqrt(np.where(np.isinf(variance), 1, variance))[:, None]
            values = answer(each.query, counts) + np.rint(noise).astype(np.int64)
            answers.append(replace(each, variance=variance, values=values))
        levels.append(replace(level, answers=tuple(answers)))
    return replace(tree, levels=tuple(levels)), groups


@pytest.mark.parametrize("seed", range(60 if DEEP else 12))
def test_variances_a_million_million_times_apart_leave_seven_digits_of_every_standard_error(seed: int) -> None:
    """Relative to the standard error itself, however small; in unions too."""
    tree, groups = steep(seed)
    dense, found = Dense(tree, groups), estimate(tree, groups=groups)
    leaves = tree.levels[-1]
    chosen = [place for place in range(leaves.areas) if place % 2] or [0]
    unions = Unions(found.model, {"some": [leaves.geocodes[place] for place in chosen]})
    unions.add(found)
    unions.finish()
    assert found.residuals.freedom == dense.freedom
    for query in all_queries(tree.schema)[::2]:
        asked = [([(h, a)], found.of(h, query), a) for h, each in enumerate(tree.levels) for a in range(each.areas)]
        asked.append(([(len(tree.levels) - 1, place) for place in chosen], unions.of("some", query), 0))
        for areas, answers, row in asked:
            for cell in range(query.size):
                exact = dense.estimate(dense.functional(areas, query, cell))
                assert answers.estimable[row, cell] == (exact is not None)
                if exact is not None:
                    value, sd = float(exact[0]), sqrt(exact[1])
                    assert abs(answers.std_dev[row, cell] - sd) <= 1e-8 * sd
                    assert abs(answers.estimate[row, cell] - value) <= 1e-8 * max(1.0, abs(value))


def test_a_union_of_areas_whose_total_is_known_exactly_has_no_standard_error() -> None:
    tree = totals(([0], [0], [1e-6]), ([0, 0, 0], [4, 7, 2], [1e6, 1e-6, 3.0]), ([0, 0, 1, 2], [2, 2, 7, 2], [1e6] * 4))
    group = GroupTotal(level="b", members=("b0", "b1"), value=11)
    found = estimate(tree, groups=[group])
    unions = Unions(found.model, {"both": ["c0", "c1", "c2"], "one": ["c0", "c1"]})
    unions.add(found)
    unions.finish()
    assert unions.of("both", TOTAL).std_dev.tolist() == [[0.0]]
    assert unions.of("both", TOTAL).estimate[0, 0] == pytest.approx(11)
    exact = Dense(tree, [group]).estimate(Dense(tree, [group]).functional([(1, 0)], TOTAL, 0))
    assert exact is not None
    assert unions.of("one", TOTAL).std_dev[0, 0] == pytest.approx(sqrt(exact[1]), rel=1e-9)


def test_the_random_trees_have_all_that_can_go_wrong() -> None:
    """Power: gaps, zeros, fixed values, groups and lost subspaces are all among the first trees."""
    trees = [random_tree(seed) for seed in range(32)]
    levels = [level for tree, _, _ in trees for level in tree.levels]
    assert sum(bool(groups) for _, groups, _ in trees) > 5
    assert any(np.isinf(answers.variance).any() for level in levels for answers in level.answers)
    assert any(known.sign == "=" and known.given.any() for level in levels for known in level.known)
    assert any(
        known.sign == "<=" and (known.values[known.given] == 0).any() for level in levels for known in level.known
    )
    lost = [
        not estimate(tree, groups=groups).of(2, tree.schema.query("detailed")).estimable.all()
        for tree, groups, _ in trees
    ]
    assert 3 < sum(lost) < 29


def piece_of(tree: Tree, area: int) -> Tree:
    """Return an area of the second level as a tree of its own."""
    levels, inside = [], np.array([area])
    for height, level in enumerate(tree.levels[1:], start=1):
        parent = np.zeros(1, dtype=np.int64)
        if height > 1:
            places = np.flatnonzero(np.isin(level.parent, inside))
            parent, inside = np.searchsorted(inside, level.parent[places]), places
        levels.append(
            Level(
                name=level.name,
                geocodes=tuple(level.geocodes[place] for place in inside),
                parent=parent,
                answers=tuple(
                    replace(each, values=each.values[inside], variance=each.variance[inside]) for each in level.answers
                ),
                known=tuple(
                    replace(each, values=each.values[inside], given=each.given[inside]) for each in level.known
                ),
            )
        )
    return Tree(schema=tree.schema, levels=tuple(levels))


@pytest.mark.parametrize("seed", range(8))
def test_pieces_give_the_same_as_the_whole(seed: int) -> None:
    tree, groups, _ = random_tree(seed)
    model = SubspaceModel.of_trees([tree], groups)
    whole = estimate(tree, groups=groups, model=model)
    bare = Level(name="L1", geocodes=tree.levels[1].geocodes, parent=tree.levels[1].parent)
    top = replace(tree, levels=(tree.levels[0], bare))
    pieces = [piece_of(tree, place) for place in range(tree.levels[1].areas)]
    found = [*estimate_in_pieces(top, lambda: iter(pieces), model=model, groups=groups)]
    some = [*tree.levels[2].geocodes[::2]]
    one, many = Unions(model, {"some": some}), Unions(model, {"some": some})
    one.add(whole)
    for each in found:
        many.add(each)
    one.finish()
    many.finish()
    for query in all_queries(tree.schema):
        asked = [(whole.of(0, query), [found[0].of(0, query)]), (one.of("some", query), [many.of("some", query)])]
        asked += [(whole.of(h, query), [piece.of(h - 1, query) for piece in found[1:]]) for h in (1, 2)]
        for expected, parts in asked:
            for name in ("estimate", "std_dev", "estimable"):
                together = np.concatenate([getattr(part, name) for part in parts])
                np.testing.assert_allclose(together, getattr(expected, name), rtol=1e-9, atol=1e-9)
    assert sum(each.residuals.squares for each in found) == pytest.approx(whole.residuals.squares)
    assert sum(each.residuals.freedom for each in found) == whole.residuals.freedom


# ---- properties ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_measurements_without_noise_return_the_truth(seed: int) -> None:
    tree, groups, truth = random_tree(seed)
    levels = []
    for level, counts in zip(tree.levels, truth, strict=True):
        exact = tuple(replace(each, values=answer(each.query, counts)) for each in level.answers)
        levels.append(replace(level, answers=exact))
    found = estimate(replace(tree, levels=tuple(levels)), groups=groups)
    assert found.residuals.squares == pytest.approx(0, abs=1e-12)
    for height, counts in enumerate(truth):
        answers = found.of(height, tree.schema.query("detailed"))
        expected = np.where(answers.estimable, counts, np.nan)
        np.testing.assert_allclose(answers.estimate, expected, atol=1e-8)


def test_a_true_constraint_more_never_raises_a_variance() -> None:
    smaller = 0
    for tree, groups, truth in (random_tree(seed, gaps=False) for seed in range(4)):
        more = fixed(tree.levels[1], tree.schema.query("total"), answer(tree.schema.query("total"), truth[1]))
        tighter = replace(tree, levels=(tree.levels[0], more, tree.levels[2]))
        before, after = estimate(tree, groups=groups), estimate(tighter)
        for query in all_queries(tree.schema):
            for height in range(3):
                old, new = before.of(height, query).std_dev, after.of(height, query).std_dev
                assert np.all(new <= old * (1 + 1e-9) + 1e-9)
                smaller += int(np.sum(new < old - 1e-6))
    assert smaller


def test_relabelling_areas_and_codes_relabels_the_estimates() -> None:
    rng = np.random.default_rng(3)
    schema = Schema(
        name="s", attributes=(Attribute(name="A", codes=("0", "1", "2")), Attribute(name="B", codes=("0", "1")))
    )
    query, grouped = schema.query("detailed"), schema.query("A")
    values, coarse = rng.integers(-9, 99, size=(4, 6)), rng.integers(0, 99, size=(1, 3))
    variance = np.array([1.0, 5.0, 2.0, 9.0])

    def answers(order: Sequence[int], codes: Sequence[int]) -> np.ndarray:
        cells = values[order].reshape(4, 3, 2)[:, codes].reshape(4, 6)
        tree = Tree(
            schema=schema,
            levels=(
                level_of("a", [0], grouped, coarse[:, codes], [2.0]),
                level_of("b", [0] * 4, query, cells, variance[order]),
            ),
        )
        return estimate(tree).of(1, query).estimate.reshape(4, 3, 2)

    order, codes = [2, 0, 3, 1], [1, 2, 0]
    np.testing.assert_allclose(answers(order, codes), answers([0, 1, 2, 3], [0, 1, 2])[order][:, codes], atol=1e-9)


# ---- statistics ------------------------------------------------------------------------------------------------

COPIES = 300


def discrete_gaussian(rng: np.random.Generator, variance: float, shape: tuple[int, ...]) -> np.ndarray:
    """Draw discrete Gaussian noise; floating point is good enough for a test of estimates."""
    values = np.arange(-60, 61)
    weights = np.exp(-(values**2) / (2 * variance))
    return rng.choice(values, size=shape, p=weights / weights.sum())


def copies(noise: Callable[[str, str], float], claimed: Callable[[str, str], float]) -> tuple[Tree, list[np.ndarray]]:
    """Return many copies of a small hierarchy under one area without measurements, and their true counts.

    Every third county has one block: it is bypassed, and its block has the budget of both.
    """
    rng = np.random.default_rng(11)
    schema = Schema(
        name="s",
        attributes=(
            Attribute(name="home", codes=("a", "b", "c"), groupings={"large": (0, 1, 1)}),
            Attribute(name="race", codes=("1", "2")),
        ),
    )
    counties = np.repeat(np.arange(COPIES), 3)
    blocks = np.repeat(np.arange(len(counties)), [2, 3, 1] * COPIES)
    alone = np.bincount(blocks) == 1
    truth = [rng.poisson(20, size=(len(blocks), schema.size))]
    for parent in (blocks, counties):
        above = np.zeros((parent[-1] + 1, schema.size), dtype=np.int64)
        np.add.at(above, parent, truth[0])
        truth.insert(0, above)
    bypassed = {"state": np.zeros(COPIES, dtype=bool), "county": alone, "block": np.zeros(len(blocks), dtype=bool)}
    levels = [Level(name="all", geocodes=("",), parent=np.zeros(1, dtype=np.int64))]
    parents = {"state": np.zeros(COPIES, dtype=np.int64), "county": counties, "block": blocks}
    for (name, parent), counts in zip(parents.items(), truth, strict=True):
        answers = []
        for asked in ("total", "large", "detailed"):
            query = schema.query(asked)
            variance, drawn = np.full(len(parent), claimed(name, asked)), np.full(len(parent), noise(name, asked))
            if name == "block":
                own = 1 / (1 / noise("block", asked) + 1 / noise("county", asked))
                drawn[alone[blocks]] = own
                variance[alone[blocks]] = own * claimed("block", "alone")
            variance[bypassed[name]] = np.inf
            values = answer(query, counts).astype(np.int64)
            for each in np.unique(drawn):
                rows = drawn == each
                values[rows] += discrete_gaussian(rng, each, (int(rows.sum()), query.size))
            answers.append(Answers(query=query, values=values, variance=variance))
        codes = tuple(f"{name}{place}" for place in range(len(parent)))
        levels.append(Level(name=name, geocodes=codes, parent=parent, answers=tuple(answers)))
    return Tree(schema=schema, levels=tuple(levels)), truth


def noise(level: str, query: str) -> float:
    """Return the variances that are drawn."""
    return {"state": 2.0, "county": 4.0, "block": 7.0}[level] * (1.0 if query == "detailed" else 2.0)


def claimed(level: str, query: str) -> float:
    """Return the variances that are written, as they were drawn."""
    return 1.0 if query == "alone" else noise(level, query)


def standardised(tree: Tree) -> float:
    """Return how far the residuals are from their mean, in standard deviations."""
    residuals = estimate(tree).residuals
    return (residuals.squares - residuals.freedom) / sqrt(2 * residuals.freedom)


def test_intervals_cover_and_residuals_are_chi_squared_within_monte_carlo_bands() -> None:
    """Bands of 4.5 standard errors: a right estimator fails once in 10,000 runs."""
    tree, truth = copies(noise, claimed)
    found = estimate(tree)
    assert abs(standardised(tree)) < 4.5
    for height, counts in enumerate(truth, start=1):
        for asked in ("total", "large", "detailed"):
            query = tree.schema.query(asked)
            answers = found.of(height, query)
            z = ((answers.estimate - answer(query, counts)) / answers.std_dev).reshape(COPIES, -1)
            covered = (np.abs(z) < 1.959964).mean(axis=1)
            assert abs(covered.mean() - 0.95) < 4.5 * covered.std() / sqrt(COPIES) + 0.003  # lattice of integers
            bias = z.mean(axis=1)
            assert abs(bias.mean()) < 4.5 * bias.std() / sqrt(COPIES)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda level, query: claimed(level, query) * (1.12 if query != "alone" else 1),
        lambda level, query: claimed(level, query) / (1.12 if query != "alone" else 1),
        # the levels swapped
        lambda level, query: claimed({"county": "block", "block": "county", "state": "state"}[level], query),
        # the variance of the budget of a level, where a bypassed parent left its own to a block
        lambda level, query: 11 / 4 if query == "alone" else claimed(level, query),
    ],
    ids=["too loud", "too quiet", "swapped levels", "from the budget"],
)
def test_residuals_tell_when_a_variance_is_not_that_of_the_noise(wrong: Callable[[str, str], float]) -> None:
    """Power: a standard deviation that is 6% off lies outside of the band."""
    tree, _ = copies(noise, wrong)
    assert abs(standardised(tree)) > 4.5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_dense_solution_tells_a_dropped_query(seed: int) -> None:
    tree, groups, _ = random_tree(seed, gaps=False)
    dense = Dense(tree, groups)
    level = tree.levels[1]
    fewer = replace(tree, levels=(tree.levels[0], replace(level, answers=level.answers[1:]), tree.levels[2]))
    found = estimate(fewer, groups=groups)
    exact = dense.estimate(dense.functional([(1, 0)], level.answers[0].query, 0))
    answers = found.of(1, level.answers[0].query)
    assert exact is not None
    assert abs(answers.std_dev[0, 0] - sqrt(exact[1])) > 1e-6 or found.residuals.freedom != dense.freedom


# ---- refusals --------------------------------------------------------------------------------------------------


def test_totals_that_contradict_each_other_are_refused() -> None:
    tree = totals(([0], [0], [np.inf]), ([0, 0], [4, 7], [1, 2]))
    top, below = fixed(tree.levels[0], TOTAL, [[10]]), fixed(tree.levels[1], TOTAL, [[4], [7]])
    with pytest.raises(PlanError, match='what is known of a "a0" contradicts itself or what is known of areas inside'):
        estimate(replace(tree, levels=(top, below)))
    estimate(replace(tree, levels=(top, fixed(tree.levels[1], TOTAL, [[4], [6]]))))


def test_a_total_of_an_area_that_must_be_empty_is_refused() -> None:
    tree = totals(([0], [0], [1.0]))
    bound = Constraint(query=TOTAL, sign="<=", values=np.array([[0]]), given=np.array([True]))
    level = replace(fixed(tree.levels[0], TOTAL, [[3]]), known=(bound, *fixed(tree.levels[0], TOTAL, [[3]]).known))
    with pytest.raises(PlanError, match="contradicts itself"):
        estimate(replace(tree, levels=(level,)))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([("c", ("c0", "c1"), 3), ("c", ("c1", "c2"), 3)], "some c belongs to two groups"),
        ([("c", ("c1", "c2"), 3)], "the members of the group have different parents"),
        ([("c", ("c9",), 3)], 'c "c9" is not in the file'),
        ([("d", ("c1",), 3)], 'there is no level "d"'),
    ],
)
def test_groups_that_are_not_side_by_side_are_refused(
    groups: list[tuple[str, tuple[str, ...], int]], message: str
) -> None:
    tree = totals(([0], [0], [1]), ([0, 0], [0] * 2, [2] * 2), ([0, 0, 1, 1], [0] * 4, [3] * 4))
    with pytest.raises(PlanError, match=message):
        estimate(tree, groups=[GroupTotal(level=level, members=own, value=value) for level, own, value in groups])


def test_a_core_that_is_too_large_is_refused() -> None:
    codes = tuple(str(n) for n in range(30))
    pairs = {"pairs": tuple(n // 2 for n in range(30))}
    schema = Schema(
        name="wide",
        attributes=(
            Attribute(name="A", codes=codes, groupings=pairs),
            Attribute(name="B", codes=codes, groupings={"halves": pairs["pairs"]}),
        ),
    )
    with pytest.raises(PlanError, match='the attributes "A", "B", which have 900 cells; at most 512'):
        Subspaces(schema=schema, core=frozenset({0, 1}))


def test_unions_of_overlapping_areas_are_refused() -> None:
    found = estimate(totals(([0], [0], [1]), ([0, 0], [0] * 2, [2] * 2), ([0, 0, 1, 1], [0] * 4, [3] * 4)))
    unions = Unions(found.model, {"some": ["c0", "b0"]})
    unions.add(found)
    with pytest.raises(PlanError, match='has "b0" and also areas inside it'):
        unions.finish()
