"""A later, more detailed release that agrees with one already published: H(Z) = P in every area (section 6)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import AGREES, Answers, Constraint, Tree
from stirred.mechanisms.topdown.measurements import AREA_ROLES, StoreWriter, schema_document, write_piece
from stirred.mechanisms.topdown.solve.problem import METHODS, LimitGroups
from stirred.mechanisms.topdown.solve.tree import SolveOptions, solve
from tests.mechanisms.topdown.hierarchies import answer, summed_up
from tests.mechanisms.topdown.layout import made_from
from tests.mechanisms.topdown.wards import NO_BOUND, people
from tests.mechanisms.topdown.watched import watched

DETAILED = Schema(
    name="detailed people",
    attributes=(
        Attribute(
            name="relation", codes=("owner", "spouse", "child", "ward", "hall"), groupings={"home": (0, 0, 0, 1, 2)}
        ),
        Attribute(name="age", codes=("0-17", "18-44", "45+"), groupings={"adult": (0, 1, 1)}),
        Attribute(name="race", codes=("1", "2", "3", "4", "5")),
        Attribute(name="sex", codes=("m", "f")),
    ),
)
MARGIN = DETAILED.query("home * adult * race")
QUERIES = {"relation * sex": 3.0, "age * race": 3.0, "detailed": 2.0}


def later(tree: Tree, published: list[np.ndarray], *, seed: int, noise: float) -> tuple[Tree, list[np.ndarray]]:
    """Return measurements in more detail of people who are like those published, and their true counts."""
    rng = np.random.default_rng(seed)
    inside = MARGIN.cell_of
    barred = np.zeros(DETAILED.shape, dtype=bool)
    barred[:2, 0] = True  # no owner or spouse under age
    shares = rng.dirichlet(np.full(DETAILED.size, 0.3)) * ~barred.reshape(-1) + 1e-12 * ~barred.reshape(-1)
    leaves = np.zeros((len(published[-1]), DETAILED.size), dtype=np.int64)
    for cell in range(MARGIN.size):
        own = inside == cell
        for area, count in enumerate(published[-1][:, cell]):
            if count:
                leaves[area, own] = rng.multinomial(count, shares[own] / shares[own].sum())
    truth = summed_up(leaves, tree.levels)
    levels = []
    for level, true, known in zip(tree.levels, truth, published, strict=True):
        everywhere = np.ones(level.areas, dtype=bool)
        answers = []
        for name, variance in QUERIES.items():
            query = DETAILED.query(name)
            drawn = np.rint(rng.normal(0, np.sqrt(variance * noise), (level.areas, query.size))).astype(np.int64)
            spread = np.full(level.areas, variance * noise)
            answers.append(Answers(query=query, values=answer(query, true) + drawn, variance=spread))
        zeros = DETAILED.query("relation * age")
        most = np.where(answer(zeros, barred.reshape(1, -1)) > 0, 0, NO_BOUND).repeat(level.areas, axis=0)
        facts = (
            Constraint(query=MARGIN, sign="=", values=known, given=everywhere),
            Constraint(query=zeros, sign="<=", values=most, given=everywhere),
        )
        levels.append(replace(level, answers=tuple(answers), known=facts))
    return Tree(schema=DETAILED, levels=tuple(levels)), truth


def published(seed: int) -> tuple[Tree, list[np.ndarray]]:
    """Return an earlier release: microdata made from measurements, level by level."""
    tree, _ = people(seed, noise=3.0)
    piece = next(solve(lambda: [tree], SolveOptions(method=METHODS["default"])))
    return tree, [counts.answers(tree.schema.query("detailed")) for counts in piece.levels]


@pytest.mark.parametrize("arm", METHODS)
def test_every_area_agrees_with_what_was_published_before(arm: str) -> None:
    earlier, margins = published(3)
    tree, _ = later(earlier, margins, seed=4, noise=2.0)
    rules = LimitGroups.of([tree])
    assert rules.margin == MARGIN
    assert rules.grid.differing == (0, 1)
    assert [query.name for query in rules.chain][1] == "home * adult * race"
    piece = next(solve(lambda: [tree], SolveOptions(method=METHODS[arm])))
    for counts, margin in zip(piece.levels, margins, strict=True):
        assert np.array_equal(answer(MARGIN, counts.answers(DETAILED.query("detailed"))), margin)
    _, made = made_from(lambda: [tree], SolveOptions(method=METHODS[arm]))
    assert made.certificate.passed, made.certificate.failures
    assert not made.events


def test_estimates_leave_out_the_earlier_counts_and_nothing_else(tmp_path: Path) -> None:
    """Facilities may bound the very query that was counted then."""
    earlier, margins = published(3)
    leaves = earlier.levels[-1]
    entry = {"level": leaves.name, "rows": leaves.areas, "columns": 1}
    codes = np.array([code.encode() for code in leaves.geocodes])
    arrays = [({**entry, "role": role}, codes if role == "geocode" else leaves.parent) for role in AREA_ROLES]
    entry |= {"columns": MARGIN.size, "role": "known", "query": MARGIN.name, "kept": MARGIN.kept}
    arrays += [({**entry, "published": n, "sign": sign}, margins[-1]) for n, sign in ((AGREES, "="), ("b_con", "<="))]
    writer = StoreWriter(tmp_path / "store", {"schema": schema_document(DETAILED), "shard": 0})
    writer.add("all", write_piece(tmp_path / "store", [(own, partial(iter, (each,))) for own, each in arrays]))
    store = writer.finish()
    for each, signs in ((store, ["=", "<="]), (replace(store, agreeing=False), ["<="])):
        (tree,) = (shard() for shard in each.shards())
        assert [known.sign for known in tree.levels[-1].known] == signs


def test_without_noise_the_later_release_is_the_truth() -> None:
    earlier, margins = published(5)
    tree, truth = later(earlier, margins, seed=6, noise=0.0)
    piece = next(solve(lambda: [tree], SolveOptions(method=METHODS["default"])))
    for counts, true in zip(piece.levels, truth, strict=True):
        assert np.array_equal(counts.answers(DETAILED.query("detailed")), true)


def test_the_optimum_keeps_the_margin_of_every_child_before_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, margins = published(7)
    tree, _ = later(earlier, margins, seed=8, noise=2.0)
    children = watched(monkeypatch)
    next(solve(lambda: [tree], SolveOptions(method=METHODS["default"])))
    del children["", ""]  # the top has no parent
    places = {code: place for level in tree.levels for place, code in enumerate(level.geocodes)}
    assert len(children) == sum(level.areas for level in tree.levels[1:])
    for (_, child), (cells, values) in children.items():
        dense = np.zeros((1, DETAILED.size))
        dense[0, cells] = values
        depth = next(n for n, level in enumerate(tree.levels) if child in level.geocodes)
        assert answer(MARGIN, dense)[0] == pytest.approx(margins[depth][places[child]], abs=1e-6)
